"""Dense feed-forward: gated with separate gate and up projections, or plain."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import gelu, silu

from windtunnel.measure.torch.blocks.recompute import again


class FeedForward(nn.Module):
    """down(silu(gate(x)) · up(x)), or down(gelu(up(x)))."""

    def __init__(self, hidden: int, width: int, *, gated: bool, recompute: bool) -> None:
        super().__init__()
        self.gate = nn.Linear(hidden, width, bias=False) if gated else None
        self.up = nn.Linear(hidden, width, bias=False)
        self.down = nn.Linear(width, hidden, bias=False)
        self._again = recompute

    def forward(self, x: Tensor) -> Tensor:
        mixed: Tensor = again(self._run, x, when=self._again)
        return mixed

    def _run(self, x: Tensor) -> Tensor:
        active = gelu(self.up(x)) if self.gate is None else silu(self.gate(x)) * self.up(x)
        out: Tensor = self.down(active)
        return out
