"""The harness is killed at random, fifty times: what it has reported as finished is in the file, every time."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from kernels import key_of

from windtunnel.catalog.profiles import read_profile, repair

TIMES = 50
SCRIPT = """
import sys
from kernels import task
from windtunnel.cost.profile import Profile
from windtunnel.measure.harness import Bench
from windtunnel.measure.session import session
from windtunnel.measure.worker import Effort

if __name__ == "__main__":
    here = Profile(device=(("name", "test"),), software=(), method=(), entries=())
    bench = Bench(prepare="kernels:prepare", effort=Effort(warm_up=0.0, sampling=0.0, least=2))
    tasks = [task("steady", f"t{index}") for index in range(100_000)]
    for result in session(tasks, sys.argv[1], bench, empty=here):
        print(result.task.label, flush=True)
"""


def test_every_finished_op_is_kept(tmp_path: Path):
    script, path = tmp_path / "run.py", tmp_path / "profile.yaml"
    script.write_text(SCRIPT)
    (tmp_path / "kernels.py").write_text((Path(__file__).parent / "kernels.py").read_text())
    draw, finished, sessions = random.Random(0), set[str](), 0
    for _ in range(TIMES):
        process = subprocess.Popen([sys.executable, str(script), str(path)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        first = process.stdout.readline().strip()
        time.sleep(draw.random() * 0.1)
        process.send_signal(signal.SIGKILL)
        said = [first, *process.stdout.read().split("\n")[:-1]]
        process.wait()
        finished |= set(filter(None, said))
        sessions += bool(first)
        repair(path)
        kept = {entry.key for entry in read_profile(path).entries}
        assert {key_of(label) for label in finished} <= kept
    assert sessions == TIMES
    assert len(finished) > TIMES
