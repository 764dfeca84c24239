"""A job on two ranks, projected from what one process measures, against the same job really run."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch.nn")  # a folder of tests named torch would pass for the package itself
if "WINDTUNNEL_HYBRID" not in os.environ:
    pytest.skip("minutes of timing: make test-hybrid", allow_module_level=True)

sys.path.insert(0, str(Path(__file__).parent))

from compare import rows, summary, table
from jobs import CONFIGURATIONS, PILOTED, PILOTS, job_of
from ranks import profile_of, run, slowed_by_traffic

from windtunnel.projection.measured import project_measured

ROUNDS = int(os.environ["WINDTUNNEL_HYBRID"])


@pytest.fixture(scope="module")
def timed(tmp_path_factory):
    return run(tmp_path_factory.mktemp("ranks"), ROUNDS)


@pytest.fixture(scope="module")
def everything(timed):
    made = rows(timed)
    found = [row for row in made if row.name[1] not in PILOTS]
    print("\n" + table(found) + "\n\n" + table([row for row in made if row.name[1] in PILOTS]))
    return made


@pytest.fixture(scope="module")
def found(everything):
    return [row for row in everything if row.name[1] not in PILOTS]


def test_enough_configurations(found):
    assert len(found) == len(CONFIGURATIONS) >= 20


def test_median_error(found):
    assert summary(found, "measured").median <= 0.10


def test_p90_of_the_error(found):
    assert summary(found, "measured").p90 <= 0.20


def test_decided_pairs_are_ordered(found):
    assert summary(found, "measured").ordered >= 0.85


def test_pilots_reproduce_themselves(everything):
    errors = {row.name: row.measured / row.real - 1 for row in everything if row.name in PILOTED}
    assert len(errors) == len(PILOTED)
    assert max(map(abs, errors.values())) <= 0.05, errors


def test_a_profile_is_worth_having(found):
    assert summary(found, "measured").median < summary(found, "simulated").median


def test_what_was_timed_is_measured_not_simulated(timed):
    profile = profile_of(timed["dense", "ddp"][0].samples, slowed_by_traffic(timed))
    shares = project_measured(job_of("dense", "ddp"), profile)[0].provenance
    assert shares.measured > 0.9
    assert shares.simulated < 0.01
