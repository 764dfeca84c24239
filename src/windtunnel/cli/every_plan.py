"""The exhaustive search on the processors at hand, slice by slice where the step time is not the objective."""

from __future__ import annotations

from windtunnel.cli.clock import Clock, StatusLine
from windtunnel.cli.search import Search
from windtunnel.cli.workers import RUN, Workers, processors
from windtunnel.errors import Fault, FormatError
from windtunnel.search.examine import Examiner
from windtunnel.search.exhaustive import Exhaustive, Plan, Progress
from windtunnel.search.objective import Goal
from windtunnel.search.slices import merge, slices


def every_plan(search: Search, *, quiet: bool, processes: int = 0) -> tuple[Progress, list[Plan]]:
    """The best plans of a space by the goal's first objective, and each slice's best; on ``processes``, or on all
    there are.

    Raises FormatError for an objective without a bound.
    """
    goal, clock = search.aim, search.clock
    check_bounded(goal)
    parts = list(slices(search.axes))
    single = [objective.name for objective in goal.objectives] == ["accelerators"]
    total, ended = Progress(), list[bool]()
    bests: list[Plan] = []
    for part in parts:
        one = Progress()
        examiner = Examiner(job=search.base, space=part, vary=search.asked.vary, top=search.top)
        _run(examiner, one, clock, quiet, processes or processors())
        if len(parts) == 1 and goal.target is None:
            return one, []
        bests += one.found[:1]
        merge(total, one, search.top, goal, search.job_of)
        ended.append(one.certified)
        if clock.over() or (total.best is not None and single):
            break
    total.certified = all(ended) and not clock.over()
    return total, bests


def check_bounded(goal: Goal) -> None:
    """Raises FormatError for memory as the first objective."""
    if goal.objectives[0].name == "memory":
        remedy = "use --proposer seed,local, or see the front of a search for throughput"
        raise FormatError(Fault("--objective", "memory", "has no bound that an exhaustive search could use", remedy))


def _run(examiner: Examiner, progress: Progress, clock: Clock, quiet: bool, processes: int) -> None:
    """Search with a status line on a terminal; Ctrl-C and SIGTERM end it and keep what was found."""

    def said() -> str:
        best = f", best {progress.best.step_time:.3f} s" if progress.best else ""
        return f"{progress.phase}: {progress.evaluated:,} plans of {progress.enumerated:,}{best}"

    line = StatusLine(clock, said, quiet=quiet)
    workers = Workers(examiner, processes) if processes > 1 and _is_large(examiner) else None
    try:
        with clock.stoppable():
            search = Exhaustive(examiner=examiner, spread=workers, run_length=RUN if workers else 1)
            search.run(progress, clock.over, line.tick)
    finally:
        if workers is not None:
            workers.close()
        line.clear()


SMALL = 200
"""Grid points that one process looks at sooner than others start."""


def _is_large(examiner: Examiner) -> bool:
    return len(examiner.grid) > SMALL
