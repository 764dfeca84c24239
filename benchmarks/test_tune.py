"""Speed of the exhaustive search: ``make bench`` prints plans per wall second, start-up and finalists included.

Each figure is one process on the processors at hand. *legal* plans had their memory computed, *scored* ones fit and
had their time bounded and estimated.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
COMMAND = [sys.executable, "-c", "from windtunnel.cli import main; main()"]
SPACES = {
    "llama3.1-70b-64-h100": (),
    "gpt3-175b-1024-a100": (),
    "deepseek-v3-2048-h800": ("--vary", "plan.batch.micro_batch_size=1,2"),
    "mixtral-8x22b-32-mi355x": (),
}
"""Examples, and how their default space is bounded."""
BUDGET_SECONDS, BUDGET_RATE = 20.0, 100_000


@pytest.fixture(scope="module", autouse=True)
def figures(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """Collects lines and prints them when the file is done."""
    found: list[str] = []
    yield found
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        sys.stdout.write("\n" + "\n".join(found) + "\n")


@pytest.mark.parametrize("example", SPACES)
def test_tune(benchmark, figures: list[str], example: str) -> None:
    job = ROOT / "examples" / f"{example}.yaml"

    def search() -> dict[str, float]:
        words = [*COMMAND, "tune", str(job), *SPACES[example], "--json"]
        done = subprocess.run(words, check=True, capture_output=True, cwd=ROOT, text=True)
        return dict(json.loads(done.stdout))

    found = benchmark.pedantic(search, rounds=1)
    assert found["certificate"] == "exhaustive"
    seconds = found["seconds"]
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    figures.append(
        f"  tune {example:<26}{found['legal']:>10,.0f} legal in {seconds:5.1f} s (budget {BUDGET_SECONDS:.0f} s), "
        f"{found['legal'] / seconds:>8,.0f} legal/s, {found['plans_per_second']:>8,.0f} scored/s "
        f"(budget {BUDGET_RATE:,}), largest process {peak / 2**20:.0f} MiB"
    )
