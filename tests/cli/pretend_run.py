"""A command that pretends to train: python pretend_run.py JOB RESULT WAY — behaves well, or in one of many bad ways."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable


def main(job_file: str, result: str, way: str) -> int:
    if way in INSTEAD:
        INSTEAD[way](result)
        return 0
    if way in SAID:
        print(SAID[way][0], file=sys.stderr)
        return SAID[way][1]
    from windtunnel import load_job, project

    answer = project(load_job(job_file))
    seconds, peak = answer.step_time, answer.memory.peak.device
    time.sleep(max(0.0, 1.2 * seconds))
    if way == "mixed" and answer.job.plan.parallel.tp != 2:
        text, code = SAID["oom" if answer.job.plan.parallel.tp == 1 else "crash"]
        print(text, file=sys.stderr)
        return code
    if way == "noisy":
        sys.stdout.write("x" * 10_000_000 + "\n")
    if way == "daemon":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(20)"], start_new_session=True)
    with open(result, "w") as file:
        file.write(report(way, seconds, peak))
    return 0


SAID = {
    "oom": ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", 1),
    "crash": ("Traceback: NCCL is unhappy", 3),
    "terminal": ("\x1b[2J\x1b]0;owned\x07 bad \x00 end", 1),
    "silent": ("", 0),
}


def hang(_result: str) -> None:
    child = [sys.executable, "-c", "import time; time.sleep(600)"]
    print(os.getpid(), subprocess.Popen(child).pid, flush=True)
    with open(os.environ["PIDS"], "w") as file:
        file.write(f"{os.getpid()}")
    time.sleep(600)


def be_stubborn(_result: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with open(os.environ.get("PIDS", os.devnull), "w") as file:
        file.write(f"{os.getpid()}")
    time.sleep(600)


INSTEAD: dict[str, Callable[[str], object]] = {
    "hang": hang,
    "stubborn": be_stubborn,
    "killed": lambda _: os.kill(os.getpid(), signal.SIGKILL),
    "vandal": lambda result: shutil.rmtree(os.path.dirname(result)),
    "folder": os.mkdir,
    "endless": lambda result: os.symlink("/dev/zero", result),
}
"""What is done in place of a report."""


def report(way: str, seconds: float, peak: float) -> str:
    reports = {
        "milliseconds": {"step_time": seconds * 1e6},
        "hours": {"step_time": seconds / 3600},
        "gibibytes": {"step_time": seconds, "peak_memory": peak / 2**30},
        "bits": {"step_time": seconds, "peak_memory": peak * 80},
        "text": {"step_time": "fast"},
        "units": {"step_time": f"{seconds * 1e3} ms", "peak_memory": f"{peak / 2**30} GiB", "steps": 1},
        "negative": {"step_time": -1},
        "list": [seconds],
        "true": {"step_time": True},
        "nothing": {"peak_memory": peak},
        "says oom": {"oom": True},
        "enormous": {"step_time": 10**400},
        "countless": {"step_time": seconds, "steps": 10**400},
        "surrogate": {"step_time": "\ud800"},
    }
    text = json.dumps(reports.get(way, {"step_time": seconds, "peak_memory": peak}))
    texts = {"garbage": "\x00\xff{]", "nan": '{"step_time": NaN}', "huge": "[" * 200_000, "nested": "[" * 60_000}
    return texts.get(way, text)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
