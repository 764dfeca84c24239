"""The intervals of the memory model are those of the committed records."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from windtunnel.catalog.records import SkippedRecord, load_records
from windtunnel.catalog.software import software_profile
from windtunnel.job.software import Traits
from windtunnel.records.residuals import FAMILY, Residuals, memory_residuals

GROUND_TRUTH = Path(__file__).parents[1] / "data" / "ground_truth"


@pytest.fixture(scope="module")
def found() -> Mapping[tuple[str, bool], Residuals]:
    loaded = load_records([str(GROUND_TRUTH)])
    return memory_residuals(record for record in loaded if not isinstance(record, SkippedRecord))


def ends(traits: Traits, moe: bool) -> tuple[float, float]:
    if moe:
        return traits.moe_residual_low, traits.moe_residual_high
    return traits.dense_residual_low, traits.dense_residual_high


@pytest.mark.parametrize("framework", FAMILY)
@pytest.mark.parametrize("moe", [False, True])
def test_intervals_of_several_sources_are_theirs(
    found: Mapping[tuple[str, bool], Residuals], framework: str, moe: bool
) -> None:
    residuals = found["megatron", moe]
    assert residuals.sources == 3
    assert ends(software_profile(framework).traits, moe) == pytest.approx(residuals[:2], abs=0.002)


@pytest.mark.parametrize(("framework", "moe"), [("nanotron", False), ("primus", True), ("torchtitan", False)])
def test_intervals_of_one_source_hold_its_own(
    found: Mapping[tuple[str, bool], Residuals], framework: str, moe: bool
) -> None:
    low, high = ends(software_profile(framework).traits, moe)
    assert low <= found[framework, moe].low + 0.002
    assert high >= found[framework, moe].high - 0.002
