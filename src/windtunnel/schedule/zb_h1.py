"""ZB-H1 (ZB1P): 1F1B with the backward split; weight gradients fill the cool-down (Qi et al., 2024)."""

from __future__ import annotations

from windtunnel.schedule.action import Action, Rows
from windtunnel.schedule.base import Request, Schedule, each, looped, one_forward_one_split_backward


def rows(request: Request) -> Rows:
    """Rank r delays its weight gradients by r micro-batches: makespan m(F+B+W) + (p-1)(F+B-W), p alive."""
    p, m = request.num_stages, request.num_microbatches
    forwards, inputs, weights = each("F", m), each("B", m), each("W", m)
    if m < p:
        return _short(p, forwards, inputs, weights)
    return tuple(one_forward_one_split_backward(forwards, inputs, weights, p - 1 - r, r) for r in range(p))


def _short(p: int, forwards: list[Action], inputs: list[Action], weights: list[Action]) -> Rows:
    """Fewer micro-batches than stages: all forwards first, except on the last rank, which has no one to feed."""
    backwards = [action for pair in zip(inputs, weights, strict=True) for action in pair]
    turns = [action for pair in zip(forwards, inputs, strict=True) for action in pair]
    return (*(tuple(forwards + backwards),) * (p - 1), tuple(turns + weights))


ZB_H1 = Schedule(name="zb_h1", rows=rows, placement=looped)
