"""Which layers each chunk holds: the spellings of a plan, the rules where it is silent, and balanced cuts.

Layer ids are consecutive in chunk order; the embedding is on the first chunk, head and MTP layers are on the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from windtunnel.errors import Fault, LegalityError
from windtunnel.job.plan import Chunk
from windtunnel.schedule.action import Placement
from windtunnel.schedule.balance import ChunkMemory, Fits, anything, minimax_cut
from windtunnel.schedule.base import looped
from windtunnel.schedule.layout_text import layout_text, parse_layout

__all__ = [
    "balanced_layout",
    "cost_layout",
    "counts_layout",
    "even_layout",
    "first_last_layout",
    "from_layers_per_stage",
    "layout_text",
    "minimax_cut",
    "parse_layout",
    "silent_layout",
]


def counts_layout(layers_per_chunk: Sequence[int], *, num_mtp_layers: int = 0) -> tuple[Chunk, ...]:
    """Chunks of the given numbers of layers, in model order."""
    last = len(layers_per_chunk) - 1
    firsts = accumulate(layers_per_chunk, initial=0)
    return tuple(
        Chunk(
            layers=tuple(range(first, first + count)),
            embedding=index == 0,
            head=index == last,
            num_mtp_layers=num_mtp_layers if index == last else 0,
        )
        for index, (first, count) in enumerate(zip(firsts, layers_per_chunk, strict=False))
    )


def even_layout(
    num_layers: int,
    chunks: int,
    *,
    count_embedding: bool = False,
    count_head: bool = False,
    num_mtp_layers: int = 0,
) -> tuple[Chunk, ...]:
    """Equal chunks, the embedding and the head counting as one layer each where asked.

    Raises LegalityError where the chunks do not divide what is counted.
    """
    counted = num_layers + count_embedding + count_head
    if counted % chunks:
        extra = " + embedding" * count_embedding + " + head" * count_head
        rule = f"{num_layers} layers{extra} = {counted} do not split evenly over {chunks} chunks (pp × virtual_stages)"
        remedy = "change pp or virtual_stages, count the embedding or the head, or write a layout"
        raise LegalityError(Fault("plan.pipeline", str(chunks), rule, remedy))
    per_chunk = [counted // chunks] * chunks
    per_chunk[0] -= count_embedding
    per_chunk[-1] -= count_head
    return counts_layout(per_chunk, num_mtp_layers=num_mtp_layers)


def silent_layout(num_layers: int, chunks: int, *, num_mtp_layers: int = 0) -> tuple[Chunk, ...]:
    """What a plan that says nothing means: the first even split that works, else full chunks and short last ones.

    Tried in turn: layers alone, layers with embedding and head, layers with the head.
    """
    for embedding, head in ((False, False), (True, True), (False, True)):
        if (num_layers + embedding + head) % chunks == 0:
            return even_layout(
                num_layers, chunks, count_embedding=embedding, count_head=head, num_mtp_layers=num_mtp_layers
            )
    full = -(-num_layers // chunks)
    counts = [min(full, max(num_layers - index * full, 0)) for index in range(chunks)]
    return counts_layout(counts, num_mtp_layers=num_mtp_layers)


def from_layers_per_stage(
    layers_per_stage: Sequence[int],
    virtual_stages: int = 1,
    *,
    num_layers: int | None = None,
    num_mtp_layers: int = 0,
    placement: Placement | None = None,
) -> tuple[Chunk, ...]:
    """Each stage's layers cut into ``virtual_stages`` equal chunks; ``placement`` (default: looped) says which chunks.

    Raises LegalityError where a count is negative or no multiple of ``virtual_stages``, or the sum not ``num_layers``.
    """
    path, shown = "plan.pipeline.layers_per_stage", str(list(layers_per_stage))
    faults = [
        Fault(path, shown, f"stage {stage} has {count} layers, not a multiple of {virtual_stages} virtual stages",
              "round it or write a layout")
        for stage, count in enumerate(layers_per_stage)
        if count < 0 or count % virtual_stages
    ]  # fmt: skip
    if num_layers is not None and sum(layers_per_stage) != num_layers:
        rule = f"the stages have {sum(layers_per_stage)} layers, the model {num_layers}"
        faults.append(Fault(path, shown, rule, "make them sum to the layers of the model"))
    if faults:
        raise LegalityError(faults)
    held = placement or looped(len(layers_per_stage), virtual_stages)
    counts = [0] * (len(layers_per_stage) * virtual_stages)
    for count, chunks in zip(layers_per_stage, held, strict=True):
        for chunk in chunks[:virtual_stages]:
            counts[chunk] = count // virtual_stages
    return counts_layout(counts, num_mtp_layers=num_mtp_layers)


def first_last_layout(
    num_layers: int,
    pp: int,
    *,
    first: int | None = None,
    last: int | None = None,
    virtual_stages: int = 1,
    num_mtp_layers: int = 0,
    placement: Placement | None = None,
) -> tuple[Chunk, ...]:
    """Stated numbers of layers on the first and last stage, the rest shared evenly.

    The rule of megatron-core (transformer_config.py).
    Raises LegalityError where the middle stages cannot share the rest evenly.
    """
    middle_layers = num_layers - (first or 0) - (last or 0)
    middle_stages = pp - (first is not None) - (last is not None)
    fits = middle_layers == 0 if middle_stages == 0 else middle_layers > 0 and middle_layers % middle_stages == 0
    if middle_stages < 0 or not fits or (first is not None and first < 1) or (last is not None and last < 1):
        rule = (
            f"{num_layers} layers less {first or 0} on the first and {last or 0} on the last stage leave "
            f"{middle_layers} for {middle_stages} middle stages, which must share them evenly"
        )
        path = "plan.pipeline.first_stage_layers" if first is not None else "plan.pipeline.last_stage_layers"
        raise LegalityError(Fault(path, f"{first}, {last}", rule, "change these counts or write layers_per_stage"))
    share = [middle_layers // middle_stages] * middle_stages if middle_stages else []
    counts = [*([] if first is None else [first]), *share, *([] if last is None else [last])]
    return from_layers_per_stage(counts, virtual_stages, num_mtp_layers=num_mtp_layers, placement=placement)


def cost_layout(
    layer_costs: Sequence[float], chunks: int, *, head_cost: float = 0.0, num_mtp_layers: int = 0
) -> tuple[Chunk, ...]:
    """nanotron's cut: a chunk takes layers until the cumulative cost exceeds its share of the total (layers and head).

    The share of chunk k ends at total · (k+1) / chunks; the layer that crosses it still belongs to chunk k.
    """
    total = sum(layer_costs) + head_cost
    counts = [0] * chunks
    chunk, cumulative = 0, 0.0
    for cost in layer_costs:
        counts[chunk] += 1
        cumulative += cost
        if chunk < chunks - 1 and cumulative > total * (chunk + 1) / chunks:
            chunk += 1
    return counts_layout(counts, num_mtp_layers=num_mtp_layers)


def balanced_layout(
    weights: Sequence[float],
    chunks: int,
    *,
    embedding_weight: float = 0.0,
    head_weight: float = 0.0,
    num_mtp_layers: int = 0,
    memory: ChunkMemory | None = None,
) -> tuple[Chunk, ...]:
    """The cut of the layers into consecutive chunks whose heaviest chunk is as light as can be; exact.

    ``memory`` bounds what a chunk may hold. An embedding or head that weighs something may have a chunk of its own;
    otherwise no chunk is empty while there are layers enough. Among equal cuts the late chunks are filled first: early
    stages keep more micro-batches in flight. ``weights`` are not negative.
    Raises LegalityError where no cut fits the memory.
    """
    before, after = int(embedding_weight > 0), int(head_weight > 0)
    items = [*[embedding_weight] * before, *weights, *[head_weight] * after]
    parts = min(chunks, max(len(items), 1))
    counts = minimax_cut(items, parts, anything if memory is None else _over_items(memory, len(items), parts, before))
    counts[0] -= before
    counts[-1] -= after
    counts[1:1] = [0] * (chunks - len(counts))
    return counts_layout(counts, num_mtp_layers=num_mtp_layers)


def _over_items(memory: ChunkMemory, items: int, parts: int, before: int) -> Fits:
    """What fits, counted in items: an embedding and a head that are none belong to the first and the last one.

    Where there are fewer items than chunks, those after the first stay empty.
    """
    fits, chunks, ends = memory.fits(), len(memory.room), len(memory.layers) + 2

    def within(part: int, start: int, end: int) -> bool:
        first = 0 if start == 0 else start + 1 - before
        last = ends if end == items else end + 1 - before
        return fits(part if part == 0 else part + chunks - parts, first, last)

    return within
