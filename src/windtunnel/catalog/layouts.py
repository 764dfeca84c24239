"""One layout from its five spellings in a plan."""

from __future__ import annotations

from collections.abc import Mapping

from windtunnel.errors import Fault, FormatError, LegalityError
from windtunnel.job.model import ModelSpec
from windtunnel.job.plan import Chunk
from windtunnel.job.software import Software
from windtunnel.schedule.layout import (
    cost_layout,
    even_layout,
    first_last_layout,
    from_layers_per_stage,
    parse_layout,
    silent_layout,
)
from windtunnel.schedule.registry import placement

Layout = tuple[Chunk, ...]


def resolve_layout(
    plan: Mapping[str, object], model: ModelSpec, software: Software
) -> tuple[Layout | None, Fault | None, str]:
    """The layout of an effective plan (paths below ``plan.``) and how it came about; or the fault that forbids it."""
    try:
        layout, why = _layout(plan, model, software)
    except (FormatError, LegalityError) as error:
        return None, error.faults[0], ""
    return layout, None, why


def _layout(plan: Mapping[str, object], model: ModelSpec, software: Software) -> tuple[Layout, str]:
    pp, virtual = _number(plan["parallel.pp"]), _number(plan["pipeline.virtual_stages"])
    layers, mtp = model.num_layers, model.num_mtp_layers
    text, per_stage = plan["pipeline.layout"], plan["pipeline.layers_per_stage"]
    first, last = (_maybe(plan[f"pipeline.{name}_stage_layers"]) for name in ("first", "last"))
    if isinstance(text, str):
        parsed = parse_layout(text, pp, num_layers=layers, num_mtp_layers=mtp, virtual_stages=virtual)
        return parsed, "as written"
    if isinstance(per_stage, tuple):
        _one_entry_a_stage(per_stage, pp)
        held = placement(str(plan["pipeline.schedule"]), pp, virtual)
        return (
            from_layers_per_stage(per_stage, virtual, num_layers=layers, num_mtp_layers=mtp, placement=held),
            "layers_per_stage",
        )
    if first is not None or last is not None:
        held = placement(str(plan["pipeline.schedule"]), pp, virtual)
        return (
            first_last_layout(
                layers, pp, first=first, last=last, virtual_stages=virtual, num_mtp_layers=mtp, placement=held
            ),
            "first and last stage as given, the rest even",
        )
    embedding, head = bool(plan["pipeline.count_embedding"]), bool(plan["pipeline.count_head"])
    if embedding or head:
        even = even_layout(layers, pp * virtual, count_embedding=embedding, count_head=head, num_mtp_layers=mtp)
        return even, "even, embedding and head counted as asked"
    if software.traits.layer_balance == "cost":
        return _by_cost(model, pp * virtual), "nanotron balances parameters per stage"
    return silent_layout(layers, pp * virtual, num_mtp_layers=mtp), "as even as the layers allow"


def _by_cost(model: ModelSpec, chunks: int) -> Layout:
    """nanotron's cut, by multiplications per token.

    block = 4 · q width · hidden + 3 · ffn · hidden; head = vocab · hidden.
    Source: huggingface/nanotron, models/llama.py, ``get_block_compute_costs``.
    """
    layer = 4 * model.num_attention_heads * model.head_dim * model.hidden_size
    layer += 3 * model.intermediate_size * model.hidden_size
    head = model.vocab_size * model.hidden_size
    return cost_layout(
        [float(layer)] * model.num_layers, chunks, head_cost=float(head), num_mtp_layers=model.num_mtp_layers
    )


def _one_entry_a_stage(per_stage: tuple[int, ...], pp: int) -> None:
    if len(per_stage) != pp:
        rule = f"one entry a stage is due: {len(per_stage)} entries, pp = {pp}"
        remedy = f"write {pp} numbers that sum to the layers"
        raise LegalityError(Fault("plan.pipeline.layers_per_stage", str(list(per_stage)), rule, remedy))


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value


def _maybe(value: object) -> int | None:
    return value if isinstance(value, int) else None
