"""``windtunnel measure``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from windtunnel.cli.clock import seconds_of
from windtunnel.cli.flags import NO_FLAGS, JobFlags, JobSource, request
from windtunnel.cli.output import DEFAULT, Output, print_json, print_note, print_screen, switch
from windtunnel.errors import Fault, FormatError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windtunnel.measure.harness import Bench, Result
    from windtunnel.measure.plan import Layers
    from windtunnel.measure.task import Task


def measure(
    job: JobSource = None,
    /,
    *,
    suite: Annotated[str | None, Parameter(help="A standard grid in place of a job: standard or smoke.")] = None,
    out: Annotated[str, Parameter(help="The profile; one that is there is continued.")] = "profile.yaml",
    device: Annotated[str, Parameter(help="cpu, or cuda for NVIDIA and AMD accelerators.")] = "cpu",
    budget: Annotated[str | None, Parameter(help="Time to spend, as 10 min; most valuable first.")] = None,
    dry_run: Annotated[bool, switch("List what would be measured and why, and measure nothing.")] = False,
    world: Annotated[int | None, Parameter(help="Time the job's collectives too, over this many ranks.")] = None,
    threads: Annotated[int | None, Parameter(help="Threads of one rank on a CPU.")] = None,
    co_runners: Annotated[int, Parameter(help="Copies of each kernel that run beside it, as other ranks will.")] = 0,
    layers: Annotated[
        Literal["blocks", "transformers", "torchtitan", "megatron-core"],
        Parameter(help="Whose layers: our reference blocks, or the framework's."),
    ] = "blocks",
    slurm: Annotated[bool, switch("Run on a node of the cluster, through submitit.")] = False,
    flags: JobFlags = NO_FLAGS,
    output: Output = DEFAULT,
) -> int:
    """Time the ops of a job at the shapes one rank executes, into a profile that project --profile reads."""
    from windtunnel.measure.harness import Bench
    from windtunnel.measure.worker import Effort
    from windtunnel.report.measuring import plan_document, plan_text

    seconds = _seconds(budget)
    tasks = _tasks(job, suite, out, flags, co_runners, layers)
    if dry_run:
        if output.json:
            print_json(plan_document(tasks))
        else:
            print_screen(plan_text(tasks), output)
        return 0
    bench = Bench(device=device, threads=threads, co_runners=co_runners, effort=Effort(), layers=layers)
    ranks = world if suite is None else None
    if slurm:
        from windtunnel.measure.slurm import Network, submitted

        network = None if ranks is None else Network(request(job, flags).load(), ranks)
        results: Sequence[Result] = submitted(tasks, out, bench, seconds, network)
    else:
        results = _run(tasks, out, bench, seconds, output)
    if ranks is not None and not slurm:
        from windtunnel.measure.network import measure_network

        print_note(f"collectives over {ranks} ranks", output)
        results = [*results, *measure_network(request(job, flags).load(), out, ranks, device)]
    if suite is None:
        from windtunnel.measure.ratios import write_ratios

        write_ratios(request(job, flags).load(), out, co_runners)
    return _answer(results, out, output)


def _seconds(budget: str | None) -> float | None:
    return None if budget is None else seconds_of("--budget", budget)


def _tasks(
    job: str | None, name: str | None, out: str, flags: JobFlags, co_runners: int, layers: Layers
) -> Sequence[Task]:
    """The suite's tasks, or the job's in view of what the profile knows already."""
    import os

    from windtunnel.catalog.profiles import read_profile, repair
    from windtunnel.measure.plan import EMPTY, tasks_of
    from windtunnel.measure.suite import SUITES, suite

    if name is not None:
        if name not in SUITES:
            raise FormatError(Fault("--suite", name, "no such suite", f"choose one of {', '.join(SUITES)}"))
        return suite(name)
    known = EMPTY
    if os.path.exists(out):
        repair(out)
        known = read_profile(out)
    return tasks_of(request(job, flags).load(), known, co_runners, layers)


def _run(tasks: Sequence[Task], out: str, bench: Bench, budget: float | None, output: Output) -> list[Result]:
    from windtunnel.measure.session import session
    from windtunnel.report.measuring import result_line

    done = []
    for result in session(tasks, out, bench, budget):
        done.append(result)
        if not output.quiet:
            sys.stderr.write(f"{len(done):>4}/{len(tasks)}  {result_line(result)}\n")
    return done


def _answer(results: Sequence[Result], out: str, output: Output) -> int:
    from windtunnel.report.measuring import results_document, results_text

    if output.json:
        print_json(results_document(results, out))
    else:
        print_screen(results_text(results, out), output)
    return 0
