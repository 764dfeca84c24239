"""Many jobs of one source: a draft is completed once for all that differ only in values nothing else follows from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from windtunnel.catalog.job_format import GROUPS
from windtunnel.catalog.jobs import flatten, legal, load_draft, with_schedule
from windtunnel.catalog.layouts import resolve_layout
from windtunnel.job.draft import Draft
from windtunnel.job.job import Job

MICRO_BATCH, ORDER = "plan.batch.micro_batch_size", "plan.parallel.order"
SEQUENCE_PARALLEL, TP_COMM, TP = "plan.parallel.sequence_parallel", "plan.overlap.tp_comm", "plan.parallel.tp"
LAYOUT, PIPELINE = "plan.pipeline.layout", (
    "plan.parallel.pp", "plan.pipeline.schedule", "plan.pipeline.virtual_stages",
)  # fmt: skip
SPELLINGS = frozenset({
    "layout", "layers_per_stage", "first_stage_layers", "last_stage_layers", "count_embedding", "count_head",
})  # fmt: skip
"""Keys of ``plan.pipeline`` that say which layers a stage holds."""
SEQUENCES = range(1, 1025)
"""Micro-batches that are valid without a closer look."""
SPLIT = range(2, 1025)
"""Tensor-parallel degrees with something to split along the sequence."""
MOST = 4096
"""Drafts that are remembered."""


class Variations:
    """The legal job of a source for changes by path, as ``load_job`` gives it with all of them; a refusal proposes no
    repairs."""

    def __init__(
        self, source: Mapping[str, Any], changes: Mapping[str, object], *, scale_batch: bool, base_dir: Path
    ) -> None:
        self._source, self._changes = source, changes
        self._scale_batch, self._base_dir = scale_batch, base_dir
        self._drafts: dict[str, Draft] = {}
        self._silent = _is_silent(source, changes)

    def __call__(self, further: Mapping[str, object]) -> Job:
        """Raises as ``load_job``."""
        lone = {path: value for path, value in further.items() if self._stands_alone(path, value, further)}
        rest = {path: value for path, value in further.items() if path not in lone}
        draft = self._draft(rest)
        return legal(_with(draft, lone) if lone else draft, repairs=False)

    def _stands_alone(self, path: str, value: object, further: Mapping[str, object]) -> bool:
        """Whether a value is a valid one of the paths that no other value of a draft follows from.

        From sequence parallelism follows whether its traffic may overlap, and from a layout how many chunks a stage has
        and what else may say so, unless those are given too.
        """
        if path == MICRO_BATCH:
            return type(value) is int and value in SEQUENCES
        if path == SEQUENCE_PARALLEL:
            return type(value) is bool and type(further.get(TP_COMM)) is bool and further.get(TP) in SPLIT
        if path == LAYOUT:
            given = all(further.get(name) is not None for name in PIPELINE)
            return isinstance(value, str) and given and self._silent and not _spells(further, but=LAYOUT)
        return path == ORDER and isinstance(value, str) and sorted(value.split("-")) == sorted(GROUPS)

    def _draft(self, further: Mapping[str, object]) -> Draft:
        key = repr(further)
        if key not in self._drafts:
            if len(self._drafts) >= MOST:
                self._drafts.clear()
            self._drafts[key] = load_draft(
                self._source,
                set={**self._changes, **further},
                scale_batch=self._scale_batch,
                base_dir=self._base_dir,
            )
        return self._drafts[key]


def _is_silent(source: Mapping[str, Any], changes: Mapping[str, object]) -> bool:
    """Whether neither says which layers a stage holds."""
    return not _spells(flatten(source)) and not _spells(changes)


def _spells(values: Mapping[str, object], but: str = "") -> bool:
    sections = {"plan", "plan.pipeline"}
    return any(
        path in sections or (path.startswith("plan.pipeline.") and path.rpartition(".")[2] in SPELLINGS)
        for path in values
        if path != but
    )


def _with(draft: Draft, lone: Mapping[str, object]) -> Draft:
    """The draft with these values given."""
    own = {path.removeprefix("plan."): value for path, value in lone.items()}
    if ORDER in lone:
        own["parallel.order"] = tuple(str(lone[ORDER]).split("-"))
    plan = {**draft.plan, **own}
    layout, fault = draft.layout, draft.layout_fault
    if LAYOUT in lone:
        layout, fault, _ = resolve_layout(plan, draft.model, draft.software)
    return with_schedule(
        replace(
            draft,
            plan=plan,
            given=draft.given | lone.keys(),
            layout=layout,
            layout_fault=fault,
            origin=tuple(origin for origin in draft.origin if origin.path not in lone),
            schedule_fault=None,
        )
    )
