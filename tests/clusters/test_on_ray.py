"""A portfolio of twenty jobs on two workers of Ray: the same table as on the cores at hand (make test-ray)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")
if "WINDTUNNEL_RAY" not in os.environ:
    pytest.skip("starts a Ray cluster: make test-ray", allow_module_level=True)

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, "-c", "from windtunnel.cli import main; main()"]


def portfolio(*words: str) -> Any:
    done = subprocess.run([*PROGRAM, "portfolio", *words, "--json"], stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def rows(document: Any) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "seconds"} for row in document["rows"]]


def test_twenty_jobs_give_the_same_table(tmp_path: Path) -> None:
    jobs = sorted(map(str, (ROOT / "examples").glob("*.yaml")))[:16]
    broken = tmp_path / "broken.yaml"
    broken.write_text(Path(jobs[0]).read_text().replace("model:", "modell:", 1))
    places = ("--across", "plan.batch.micro_batch_size=1", "--proposer", "seed", "--calls", "12", "--workers", "2")
    across = ("--across", "cluster.accelerator=h100-sxm-80gb,a100-sxm-80gb,mi300x")
    few = (str(ROOT / "examples" / "llama3.1-8b-8-h100-fsdp2.yaml"), *across, *places)
    local, far = (portfolio(*jobs, str(broken), *places, *where) for where in (("--local",), ()))
    local_few, far_few = (portfolio(*few, *where) for where in (("--local",), ()))
    assert len(local["rows"]) + len(local_few["rows"]) == 20
    assert rows(far) == rows(local)
    assert rows(far_few) == rows(local_few)
    found = rows(local) + rows(local_few)
    statuses = [row["status"] for row in found]
    print(f"\n{statuses.count('ok')} rows ok, {statuses.count('refused')} refused, {statuses.count('failed')} failed")
    for name, one, other in (("17 jobs", local, far), ("3 places", local_few, far_few)):
        print(f"{name}: {one['seconds']:.0f} s on two processes, {other['seconds']:.0f} s on two workers of Ray")
    assert statuses.count("ok") >= 17
    assert found[16]["status"] == "refused"
    assert not statuses.count("failed")


def test_a_worker_that_dies_costs_its_row() -> None:
    from windtunnel.cli.spread import Lost, on_ray

    def deadly(number: int) -> int:
        if number == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return number * number

    found = dict(on_ray(deadly, range(5), None, 2, lambda: False))
    assert isinstance(found.pop(2), Lost)
    assert found == {0: 0, 1: 1, 3: 9, 4: 16}


def test_a_cluster_that_is_not_there_is_named() -> None:
    words = ["portfolio", str(ROOT / "examples" / "llama3.2-1b-one-gpu.yaml"), "--address", "127.0.0.1:1"]
    done = subprocess.run([*PROGRAM, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--address" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_interrupted_portfolio_tells_what_it_has(tmp_path: Path) -> None:
    job = str(ROOT / "examples" / "llama3.1-8b-8-h100-fsdp2.yaml")
    places = ("--across", "cluster.num_accelerators=4,8,16")
    words = ["portfolio", job, *places, "--proposer", "random", "--calls", "100000", "--workers", "1", "--json"]
    words += ["--studies", str(tmp_path)]
    with subprocess.Popen([*PROGRAM, *words], stdout=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 120
        while not any(tmp_path.glob("*.db")) and time.monotonic() < deadline:  # until the first row is searched
            time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    document = json.loads(out)
    assert document["interrupted"]
    assert len(document["rows"]) == 3
