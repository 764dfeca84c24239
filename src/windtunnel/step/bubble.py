"""The share of a step that the busiest rank waits."""

from __future__ import annotations

from windtunnel.step.timeline import Timeline


def bubble_fraction(timeline: Timeline) -> float:
    """1 - ideal / makespan, where ideal is the busy seconds of the busiest rank; 0 for an empty timeline."""
    makespan = timeline.makespan
    if makespan == 0:
        return 0.0
    ideal = max(timeline.busy(rank) for rank in range(len(timeline.spans)))
    return 1.0 - ideal / makespan
