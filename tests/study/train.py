"""A real training run of two ranks: torchrun --nproc-per-node 2 train.py JOB RESULT.

Each step is divided by the pace of the machine around it, so that a run beside other work reports what a quiet machine
would take: seconds at the quiet pace.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parents[1] / "hybrid"))
sys.path.insert(0, str(Path(__file__).parent))

from pace import pace, quiet_seconds
from place import key, plans
from truth import trainer

from windtunnel.catalog.jobs import load_job

WARM_UP, STEPS = 2, 15


def main(job_file: str, result: str) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    job = load_job(job_file)
    if key(job) not in plans():
        sys.exit("this program has no such plan")
    dist.init_process_group("gloo")
    step = trainer(job)
    for _ in range(WARM_UP):
        step()
    found, before = [], pace()
    for _ in range(STEPS):
        seconds, before = quiet_seconds(step, before)
        found.append(seconds)
    if dist.get_rank() == 0:
        Path(result).write_text(json.dumps({"step_time": statistics.median(found), "steps": STEPS}))
    dist.barrier()
    os._exit(0)  # one rank in a dozen waits for ever while gloo takes its connections down


if __name__ == "__main__":
    main(*sys.argv[1:])
