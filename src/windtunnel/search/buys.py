"""What more memory or more accelerators would buy, by a short search on the larger cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from windtunnel.errors import WindtunnelError
from windtunnel.job.job import Job
from windtunnel.projection.choices import Changes
from windtunnel.projection.project import project
from windtunnel.projection.result import Projection
from windtunnel.search.examine import Examiner
from windtunnel.search.objective import goal
from windtunnel.search.oracle import Projecting
from windtunnel.search.points import Vary
from windtunnel.search.proposers import Ground
from windtunnel.search.proposers.seed import Seed
from windtunnel.search.rates import Rates
from windtunnel.search.screen import Screen
from windtunnel.search.space import EVEN, LAYOUT, default_space
from windtunnel.search.study import Journal, Study

MEMORY = 1.5
"""Times the capacity that is asked about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Buy:
    """A larger cluster and a plan for it; ``gain`` is that of the throughput of one accelerator over the best plan, at
    least: the search behind it is short."""

    cluster: Changes
    changes: Changes
    step_time: float
    gain: float


def buys(best: Projection, vary: Vary, rates: Rates, journal: Journal, stop: Callable[[], bool]) -> Iterator[Buy]:
    """Half as much memory again, and twice the accelerators, where the job is legal there."""
    cluster = best.job.cluster
    capacity = f"{MEMORY * cluster.accelerator.hbm_capacity / 2**30:.3f} GiB"
    for larger in ({"cluster.hbm_capacity": capacity}, {"cluster.num_accelerators": 2 * cluster.num_accelerators}):
        found = _searched(best, dict(larger), vary, rates, journal, stop)
        if found is not None:
            yield found


def _searched(
    best: Projection, larger: Changes, vary: Vary, rates: Rates, journal: Journal, stop: Callable[[], bool]
) -> Buy | None:
    def there(changes: Changes) -> Job:
        return vary({**larger, **changes})

    try:
        job = there({})
    except WindtunnelError:
        return None
    space = default_space(job)
    examiner = Examiner(job=job, space=space, vary=lambda changes: there(dict(changes)))

    def written(changes: Changes) -> Changes:
        return examiner.written(changes) or examiner.written({**changes, LAYOUT: EVEN}) or changes

    study = Study(
        proposers=[Seed(Ground(job=job, space=space, rates=rates))],
        oracle=Projecting(projected=project),
        screen=Screen(vary=examiner.vary, write=written),
        goal=goal(["throughput"], job),
        journal=journal,
    )
    study.run(stop, lambda: None)
    if study.best is None or study.best.outcome.step_time is None:
        return None
    seconds = study.best.outcome.step_time
    world = job.cluster.num_accelerators / best.job.cluster.num_accelerators
    gain = best.step_time / (seconds * world) - 1
    return Buy(cluster=larger, changes=written(study.best.changes), step_time=seconds, gain=gain)
