"""A command that pretends to train: python pretend_run.py JOB RESULT WAY — behaves well, or in one of many bad ways."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

from windtunnel import load_job, project


def main(job_file: str, result: str, way: str) -> int:
    answer = project(load_job(job_file))
    seconds, peak = answer.step_time, answer.memory.peak.device
    time.sleep(max(0.0, 1.2 * seconds))
    if way == "mixed":
        way = "oom" if answer.job.plan.parallel.tp == 1 else "crash" if answer.job.plan.parallel.tp == 4 else "well"
    if way == "hang":
        child = [sys.executable, "-c", "import time; time.sleep(600)"]
        print(os.getpid(), subprocess.Popen(child).pid, flush=True)
        with open(os.environ["PIDS"], "w") as file:
            file.write(f"{os.getpid()}")
        time.sleep(600)
    if way == "oom":
        print("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", file=sys.stderr)
        return 1
    if way == "crash":
        print("Traceback: NCCL is unhappy", file=sys.stderr)
        return 3
    if way == "killed":
        os.kill(os.getpid(), 9)
    if way == "silent":
        return 0
    if way == "noisy":
        sys.stdout.write("x" * 10_000_000 + "\n")
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
    }
    text = json.dumps(reports.get(way, {"step_time": seconds, "peak_memory": peak}))
    text = {"garbage": "\x00\xff{]", "nan": '{"step_time": NaN}', "huge": "[" * 200_000}.get(way, text)
    with open(result, "w") as file:
        file.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
