"""The balanced layout of a grid point: what its chunks cost, and the cut whose heaviest chunk lasts least."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from windtunnel.cost.simulated import simulated_source
from windtunnel.job.job import Job
from windtunnel.projection.choices import Changes
from windtunnel.projection.layouts import layer_seconds
from windtunnel.schedule.layout import balanced_layout, layout_text
from windtunnel.search.space import LAYOUT, ORDERS, VIRTUAL_STAGES


@dataclass(frozen=True, slots=True, kw_only=True)
class Balancer:
    """Cuts the layers of a job; remembers what they weigh, and every cut of equal weights."""

    job: Job
    _weights: dict[tuple[Any, ...], tuple[Any, ...]] = field(init=False, default_factory=dict)
    _layouts: dict[tuple[Any, ...], str] = field(init=False, default_factory=dict)

    def with_layout(self, point: Changes) -> Changes | None:
        """The point with the layout whose heaviest chunk lasts least when nothing is recomputed; None if all chunks
        are alike."""
        plan, model = self.job.plan, self.job.model
        degrees = {path.rpartition(".")[2]: value for path, value in point.items() if path.startswith("plan.parallel.")}
        micro = point.get("plan.batch.micro_batch_size", plan.batch.micro_batch_size)
        if degrees.get("order") in ORDERS:
            degrees["order"] = ORDERS[0]  # none of them moves what runs inside a layer
        shape = (*sorted((name, value) for name, value in degrees.items() if name not in ("pp", "dp")), micro)
        chunks = int(point.get("plan.parallel.pp", plan.parallel.pp)) * int(point.get(VIRTUAL_STAGES, 1))
        if shape not in self._weights:
            parallel = replace(plan.parallel, **_typed(degrees))
            batch = replace(plan.batch, micro_batch_size=micro)
            bare = (frozenset[str](),) * len(plan.recompute)
            shaped = replace(self.job, plan=replace(plan, parallel=parallel, batch=batch, recompute=bare))
            each, *ends = layer_seconds(shaped, simulated_source(shaped))
            self._weights[shape] = (tuple(each), *ends)
        weights = self._weights[shape]
        if (weights, chunks) not in self._layouts:
            layers, embedding, head = weights
            found = balanced_layout(
                layers, chunks, embedding_weight=embedding, head_weight=head, num_mtp_layers=model.num_mtp_layers
            )
            even = len({len(chunk.layers) for chunk in found}) == 1
            self._layouts[weights, chunks] = "" if even else layout_text(found)
        text = self._layouts[weights, chunks]
        return {**point, LAYOUT: text} if text else None


def _typed(degrees: Mapping[str, Any]) -> dict[str, Any]:
    """Degrees as ``Parallel`` takes them: a group order is a tuple."""
    return {name: tuple(v.split("-")) if isinstance(v, str) else v for name, v in degrees.items()}
