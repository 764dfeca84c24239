"""From one plan of a space to another: a value of one axis, and what has to move with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from windtunnel.job.job import Job
from windtunnel.job.recompute import spelled
from windtunnel.projection.choices import (
    CP_COMM,
    DISPATCHER,
    EP_COMM,
    P2P,
    PARAM_GATHER,
    RECOMPUTE,
    SHARD_SIZE,
    SHARDING,
    TP_COMM,
    Changes,
)
from windtunnel.schedule.registry import find
from windtunnel.search.space import BALANCED, EVEN, LAYOUT, SCHEDULE, VIRTUAL_STAGES, Axis, Space, divisors, possible

WORLD = "cluster.num_accelerators"
TP, CP, PP, EP = (f"plan.parallel.{name}" for name in ("tp", "cp", "pp", "ep"))
ETP = "plan.parallel.etp"
"""Frameworks let it follow tp where a job does not say it."""
SEQUENCE_PARALLEL = "plan.parallel.sequence_parallel"
MICRO_BATCH = "plan.batch.micro_batch_size"
GLOBAL_BATCH = "plan.batch.global_batch_size"


def own_value(job: Job, path: str) -> Any:
    """The job's value at a path of a space, as a job file has it; None where one path does not say it."""
    if path == LAYOUT:
        return None
    section, _, leaf = path.rpartition(".")
    if RECOMPUTE in (path, section):
        written = spelled(job.plan.recompute, job.model.num_layers)
        return written if path == RECOMPUTE else written.get(leaf)
    value: Any = job
    for name in path.split("."):
        value = getattr(value, name, None)
    if isinstance(value, tuple):
        return "-".join(map(str, value))
    return getattr(value, "name", value)


@dataclass(frozen=True, slots=True)
class Moves:
    """The steps from plan to plan of a space; a plan is the changes it makes to the job."""

    job: Job
    space: Space
    wishes: tuple[tuple[str, Any], ...] = ()
    """Values by path that a plan gets wherever they mean something and it does not say otherwise."""
    pinned: Changes = field(init=False)
    """What the space leaves no choice of and the job would have otherwise: every plan says it."""

    def __post_init__(self) -> None:
        single = {axis.path: axis.values[0] for axis in self.space.axes if len(axis.values) == 1}
        words = {path: value for path, value in single.items() if path not in (LAYOUT, SHARD_SIZE)}
        pinned = {path: value for path, value in words.items() if path == ETP or value != own_value(self.job, path)}
        object.__setattr__(self, "pinned", pinned)

    def axis(self, path: str) -> tuple[Any, ...]:
        """The values of an axis, none where the space keeps it fixed; shard sizes are what divides the replicas."""
        found = next((axis.values for axis in self.space.axes if axis.path == path), ())
        if path == SHARD_SIZE and "divisors" in found:
            return tuple(divisors(self.job.cluster.num_accelerators))
        return found

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axes with a choice."""
        every = (Axis(axis.path, self.axis(axis.path)) for axis in self.space.axes)
        return tuple(axis for axis in every if len(axis.values) > 1)

    def value(self, at: Mapping[str, Any], path: str) -> Any:
        """What the plan has at a path."""
        if path in at:
            return at[path]
        if path in self.pinned:
            return self.pinned[path]
        return EVEN if path == LAYOUT else own_value(self.job, path)

    def moved(self, at: Mapping[str, Any], changes: Mapping[str, Any]) -> Changes | None:
        """The plan with other values, and whatever must follow them; None where those values cannot hold."""
        point = self.settled(at, changes)
        kept = point is not None and all(self.value(point, path) == value for path, value in changes.items())
        return point if kept else None

    def settled(self, at: Mapping[str, Any], changes: Mapping[str, Any]) -> Changes | None:
        """As ``moved``, but values that have no meaning beside the others give way."""
        point = {**self.pinned, **at, **changes}
        if changes.keys() & {TP, CP, PP, WORLD} and SHARD_SIZE not in changes:
            point.pop(SHARD_SIZE, None)
        world, tp, cp, pp = (int(self.value(point, path)) for path in (WORLD, TP, CP, PP))
        if world % (tp * cp * pp):
            return None
        self._pipeline(point, changes, pp)
        if self.axis(SEQUENCE_PARALLEL) and SEQUENCE_PARALLEL not in changes:
            self._set(point, SEQUENCE_PARALLEL, tp > 1)
        if not self._batch(point, changes, world // (tp * cp * pp)):
            return None
        self._experts(point, changes, world // pp)
        self._shards(point, world // (tp * pp))
        self._overlaps(point)
        return point if possible(self.job, {**self._own, **point}) else None

    @property
    def _own(self) -> Changes:
        paths = (SCHEDULE, VIRTUAL_STAGES, EP, ETP, SEQUENCE_PARALLEL)
        return {path: own_value(self.job, path) for path in paths}

    def _set(self, point: Changes, path: str, value: Any) -> None:
        if self.value(point, path) != value:
            point[path] = value

    def _pipeline(self, point: Changes, changes: Mapping[str, Any], pp: int) -> None:
        """A schedule with the chunks it takes, or chunks with a schedule that takes them."""
        if pp == 1:
            self._set(point, SCHEDULE, "1f1b")
            self._set(point, VIRTUAL_STAGES, 1)
            point.pop(LAYOUT, None)
            return
        name, virtual = str(self.value(point, SCHEDULE)), int(self.value(point, VIRTUAL_STAGES))
        if takes(name, virtual):
            most = (self.job.model.num_layers + 2) // pp
            if virtual > most and VIRTUAL_STAGES not in changes:
                fewer = [n for n in self.axis(VIRTUAL_STAGES) if n <= most and takes(name, n)]
                point[VIRTUAL_STAGES] = max(fewer, default=virtual)
        elif VIRTUAL_STAGES in changes and SCHEDULE not in changes:
            able = [str(other) for other in self.axis(SCHEDULE) if takes(str(other), virtual)]
            point[SCHEDULE] = min(able, key=lambda other: (other not in _PLAIN, able.index(other)), default=name)
        else:
            able_counts = [n for n in self.axis(VIRTUAL_STAGES) if takes(name, n)]
            point[VIRTUAL_STAGES] = min(able_counts, default=virtual)
        uneven = self.job.model.num_layers % (pp * int(self.value(point, VIRTUAL_STAGES)))
        if uneven and LAYOUT not in changes and BALANCED in self.axis(LAYOUT):
            point[LAYOUT] = BALANCED

    def _batch(self, point: Changes, changes: Mapping[str, Any], dp: int) -> bool:
        """The largest micro-batch up to the plan's own that the replicas can share; whether there is one."""
        batch, micro = int(self.value(point, GLOBAL_BATCH)), int(self.value(point, MICRO_BATCH))
        if batch % (micro * dp) == 0:
            return True
        smaller = [n for n in self.axis(MICRO_BATCH) if n <= micro and batch % (n * dp) == 0]
        if MICRO_BATCH in changes or not smaller:
            return False
        point[MICRO_BATCH] = max(smaller)
        return True

    def _experts(self, point: Changes, changes: Mapping[str, Any], ranks: int) -> None:
        ep, etp = int(self.value(point, EP)), int(self.value(point, ETP))
        if ranks % (ep * etp) and EP not in changes:
            fewer = [n for n in self.axis(EP) if n <= ep and ranks % (n * etp) == 0]
            point[EP] = max(fewer, default=ep)

    def _shards(self, point: Changes, replicas: int) -> None:
        size, strategy = point.get(SHARD_SIZE), self.value(point, SHARDING)
        if size is not None and (replicas % size or strategy == "ddp" or (strategy == "hsdp" and size == replicas)):
            del point[SHARD_SIZE]

    def _overlaps(self, point: Changes) -> None:
        """Overlaps that have something to hide as wished, others left to the job."""
        if SHARDING in dict(self.wishes):
            point.setdefault(SHARDING, dict(self.wishes)[SHARDING])
        traffic = {
            TP_COMM: self.value(point, SEQUENCE_PARALLEL) is True,
            CP_COMM: self.value(point, CP) > 1,
            EP_COMM: self.value(point, EP) > 1,
            DISPATCHER: self.value(point, EP) > 1,
            P2P: self.value(point, VIRTUAL_STAGES) > 1,
            PARAM_GATHER: self.value(point, SHARDING) != "ddp",
        }
        for path, wish in self.wishes:
            if traffic.get(path, True):
                point.setdefault(path, wish)
        for path, useful in traffic.items():
            if not useful:
                point.pop(path, None)


_PLAIN = ("1f1b", "interleaved_1f1b")
"""Schedules every framework has."""


def takes(name: str, virtual: int) -> bool:
    """Whether a schedule runs so many chunks a stage."""
    schedule = find(name)
    only = schedule.virtual_stages
    return virtual == only if only is not None else virtual >= schedule.min_virtual_stages


def spread(values: Sequence[Any], count: int) -> tuple[Any, ...]:
    """At most ``count`` of the values, the first and the last among them."""
    if len(values) <= count:
        return tuple(values)
    return tuple(values[round(k * (len(values) - 1) / (count - 1))] for k in range(count))
