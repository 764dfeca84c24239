"""Memory anchored on a pilot: residuals keep their sign, and a pilot's own peak comes back."""

from __future__ import annotations

import pytest

from windtunnel.projection.pilot_memory import PilotPeak, anchored_memory, residuals
from windtunnel.projection.project import project


@pytest.mark.parametrize("excess", [2e9, -1e9])
def test_a_pilot_predicts_itself(make_job, excess: float):
    memory = project(make_job()).memory
    peak = memory.peak
    pilot = PilotPeak(allocated=peak.allocated + excess, reserved=peak.allocated + excess + 5e8)
    found = residuals(pilot, memory)
    assert (found.live_excess, found.framework_overhead) == pytest.approx((excess, 5e8))
    anchored = anchored_memory(memory, found)
    assert anchored.point == pytest.approx(pilot.reserved + peak.overhead)
    assert anchored.upper == pytest.approx(anchored.point + 0.05 * (abs(excess) + 5e8))


def test_residuals_are_carried_to_the_target(make_job):
    pilot, target = (project(make_job({"plan.parallel.tp": tp})).memory for tp in (1, 2))
    found = residuals(PilotPeak(allocated=pilot.peak.allocated + 1e9, reserved=pilot.peak.allocated + 2e9), pilot)
    anchored = anchored_memory(target, found)
    assert anchored.point == pytest.approx(target.peak.allocated + target.peak.overhead + 2e9)
