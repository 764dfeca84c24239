"""What a change on the command line makes stale in the job file, and how it is derived anew.

The format's rule: dp, shard_size, layout, layers_per_stage, first and last counts and virtual_stages of a file follow
from other values; a change of those drops them with a note, unless the same command sets them too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from windtunnel.errors import Fault, FormatError
from windtunnel.job.plan import V_SCHEDULES
from windtunnel.job.resolve import replicas
from windtunnel.schedule.registry import SCHEDULES, find

Flat = Mapping[str, object]

_GRID = ("plan.parallel.tp", "plan.parallel.cp", "plan.parallel.pp", "cluster.num_accelerators")
_MODEL = ("model",)
_COUNTS = ("plan.pipeline.count_embedding", "plan.pipeline.count_head")
_FIRST_LAST = ("plan.pipeline.first_stage_layers", "plan.pipeline.last_stage_layers")
_LAYOUT, _PER_STAGE = "plan.pipeline.layout", "plan.pipeline.layers_per_stage"
_PP, _SCHEDULE, _VIRTUAL = "plan.parallel.pp", "plan.pipeline.schedule", "plan.pipeline.virtual_stages"
_DP, _BATCH = "plan.parallel.dp", "plan.batch.global_batch_size"

FOLLOWS: dict[str, tuple[str, ...]] = {
    _DP: _GRID,
    "plan.sharding.shard_size": (*_GRID, _DP, "plan.sharding.strategy"),
    _LAYOUT: (_PP, _VIRTUAL, *_MODEL, _PER_STAGE, *_FIRST_LAST, *_COUNTS),
    _PER_STAGE: (_PP, *_MODEL, _LAYOUT, *_FIRST_LAST, *_COUNTS),
    _FIRST_LAST[0]: (_PP, *_MODEL, _LAYOUT, _PER_STAGE, *_COUNTS),
    _FIRST_LAST[1]: (_PP, *_MODEL, _LAYOUT, _PER_STAGE, *_COUNTS),
    _VIRTUAL: (_PP, *_MODEL, _SCHEDULE, _LAYOUT),
}
"""A path to the paths it follows from."""

_NEUTRAL: dict[str, object] = {
    "plan.parallel.tp": 1, "plan.parallel.cp": 1, _PP: 1, _VIRTUAL: 1, _COUNTS[0]: False, _COUNTS[1]: False,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Rederived:
    """The values given that still hold, and a note for each that does not."""

    given: Flat
    notes: tuple[str, ...]
    virtual_stages: int | None = None
    """Chunks per stage that replace those of the file."""


def rederive(given: Flat, file: Flat, changes: Flat, num_layers: int, file_chunks: int | None) -> Rederived:
    """``given``: file and changes merged, all by full path; ``file_chunks``: chunks of the file's layout, if any."""
    changed = frozenset(path for path in changes if _value(changes, path) != _value(file, path))
    changed |= {"model" for path in changed if path.startswith("model.")}
    kept, notes = dict(given), []
    stages = _virtual_stages(given, file, changed, num_layers, file_chunks)
    if stages is not None and stages != _file_stages(file, file_chunks):
        changed |= {_VIRTUAL}
    for path, sources in FOLLOWS.items():
        causes = [source for source in sources if source in changed]
        stale = path in file and path not in changes and bool(causes)
        if stale and not (path == _VIRTUAL and stages == file[path]):
            del kept[path]
            notes.append(f"{path} = {_short(file[path])} of the file is derived anew, because of {', '.join(causes)}")
    notes += _schedule_note(kept, changes, stages)
    still = stages if _VIRTUAL not in kept and _LAYOUT not in kept else None
    return Rederived(given=kept, notes=tuple(notes), virtual_stages=still)


def _value(flat: Flat, path: str) -> object:
    """A value, or what stands where none is given."""
    value = flat.get(path)
    return _NEUTRAL.get(path) if value is None else value


def _short(value: object) -> str:
    return str(list(value)) if isinstance(value, tuple) else str(value)


def _number(value: object, otherwise: int = 1) -> int:
    return value if isinstance(value, int) else otherwise


def _file_stages(file: Flat, file_chunks: int | None) -> int:
    """Chunks per stage the file asks for, by count, layout or schedule."""
    if file.get(_SCHEDULE) in V_SCHEDULES:
        return 2
    if file_chunks is not None:
        return max(1, file_chunks // _number(file.get(_PP)))
    return _number(file.get(_VIRTUAL))


def _virtual_stages(
    given: Flat, file: Flat, changed: frozenset[str], num_layers: int, file_chunks: int | None
) -> int | None:
    """Chunks per stage after the change: the file's where they still divide the layers, else the most that do."""
    if _VIRTUAL in changed or _LAYOUT in changed or not changed & {_PP, _SCHEDULE, "model"}:
        return None
    had, pp = _file_stages(file, file_chunks), _number(given.get(_PP))
    schedule = given.get(_SCHEDULE)
    if schedule in V_SCHEDULES:
        return 2
    if _SCHEDULE in changed and any(known.name == schedule for known in SCHEDULES):
        chosen = find(str(schedule))
        if chosen.virtual_stages is not None:
            return chosen.virtual_stages
        had = max(had, chosen.min_virtual_stages)
    if _PP not in changed and "model" not in changed:
        return had
    counted = num_layers + sum(bool(given.get(path)) for path in _COUNTS)
    return max((v for v in range(1, had + 1) if pp > 1 and counted % (pp * v) == 0), default=1)


def _schedule_note(kept: dict[str, object], changes: Flat, stages: int | None) -> list[str]:
    """An interleaved schedule of the file has nothing left to interleave at one chunk a stage."""
    if stages != 1 or _SCHEDULE in changes or kept.get(_SCHEDULE) != "interleaved_1f1b":
        return []
    kept[_SCHEDULE] = "1f1b"
    return [f"{_SCHEDULE} is 1f1b, not interleaved_1f1b as in the file: one chunk a stage is left"]


def scaled_batch(given: Flat, file: Flat, changes: Flat) -> dict[str, object]:
    """The global batch that keeps the sequences per replica of the file; nothing where the command sets the batch.

    Raises:
        FormatError: the file's batch is no multiple of its replicas.
    """
    before, after = _replicas(file), _replicas(given)
    batch = file.get(_BATCH)
    if _BATCH in changes or not isinstance(batch, int) or before is None or after is None:
        return {}
    each, rest = divmod(batch, before)
    if rest:
        rule = f"the batch per replica is kept, and {batch} sequences are no multiple of the file's {before} replicas"
        raise FormatError(Fault(_BATCH, str(batch), rule, f"set {_BATCH} itself"))
    return {_BATCH: each * after}


def _replicas(flat: Flat) -> int | None:
    """dp as given, else as it follows from the grid."""
    given = flat.get(_DP)
    if isinstance(given, int):
        return given
    tp, cp, pp = (_number(flat.get(f"plan.parallel.{name}")) for name in ("tp", "cp", "pp"))
    return replicas(_number(flat.get("cluster.num_accelerators"), 0), tp, cp, pp)
