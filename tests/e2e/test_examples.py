"""Every example loads, projects, and names the published run it is nearest to."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from windtunnel import load_job, project
from windtunnel.catalog.dump import job_to_mapping

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 15


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_names_its_source(path: Path) -> None:
    comment = "".join(line for line in path.read_text().splitlines() if line.startswith("#"))
    assert "https://" in comment
    words = " ".join(comment.replace("#", " ").split())
    assert re.search(r"[Pp]ublished neighbour|the nearest is|is that of the run", words)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_projected(path: Path) -> None:
    projection = project(load_job(path))
    assert projection.time.total == pytest.approx(projection.step_time, rel=1e-9)
    model = projection.job.model
    low, high = (0.08, 0.60) if model.is_moe or model.linear_attention else (0.15, 0.65)
    assert low < projection.mfu < high
    assert len(projection.memory.stages) == projection.job.plan.parallel.pp
    assert sum(projection.parameters.per_stage) > 0


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_effective_job_is_a_job(path: Path) -> None:
    job = load_job(path)
    again = load_job(job_to_mapping(job))
    assert (again.model, again.software, again.plan) == (job.model, job.software, job.plan)
    # A part spelled out in full is nobody's evidence, so a changed one loses that mark on the way.
    measured = replace(again.cluster.accelerator, measured=job.cluster.accelerator.measured)
    assert replace(again.cluster, accelerator=measured) == job.cluster
