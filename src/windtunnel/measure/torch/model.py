"""A chunk of a job's model as one module: its units in model order, as one rank holds them."""

from __future__ import annotations

from torch import Tensor, nn

from windtunnel.job.job import Job
from windtunnel.job.plan import Chunk
from windtunnel.measure.torch.blocks.build import build
from windtunnel.measure.torch.blocks.regions import Regions
from windtunnel.ops.chunk import Unit
from windtunnel.ops.sizes import sizes


class ChunkModule(nn.Module):
    """Embedding, layers and head of a chunk; takes token ids or hidden states, gives hidden states or, with labels,
    the loss. MTP depths are left out."""

    def __init__(self, job: Job, chunk: Chunk, regions: Regions | None = None) -> None:
        super().__init__()
        model, recompute = job.model, job.plan.recompute
        ends = {kind: build(sizes(job, Unit(kind=kind)), regions=regions) for kind in ("embedding", "head")}
        self.embedding = ends["embedding"] if chunk.embedding else None
        self.layers = nn.ModuleList(
            build(sizes(job, Unit(kind="layer", layer=model.layers[index])), recompute[index], regions)
            for index in chunk.layers
        )
        self.head = ends["head"] if chunk.head else None

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Tensor:
        if self.embedding is not None:
            x = self.embedding(x)
        for layer in self.layers:
            x = layer(x)
        if self.head is None:
            return x
        loss: Tensor = self.head(x, labels) if labels is not None else self.head.scores(x)
        return loss
