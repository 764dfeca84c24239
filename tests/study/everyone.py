"""The truth about every plan: all programs trained by the same two ranks, in turn, round by round."""

from __future__ import annotations

import gc
import random
import statistics
import sys
import warnings
from collections import defaultdict
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

sys.path.insert(0, str(Path(__file__).parents[1] / "hybrid"))
sys.path.insert(0, str(Path(__file__).parent))

from pace import pace, quiet_seconds
from place import plans, program
from truth import trainer

Steps = dict[str, list[float]]
"""Step seconds at the quiet pace, by program."""


def rank(index: int, folder: str, rounds: int, seed: int) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=index, world_size=2)
    steps = {name: trainer(job) for name, job in {program(job): job for job in plans().values()}.items()}
    gc.disable()
    found: Steps = defaultdict(list)
    shuffled = random.Random(seed)
    for _ in range(rounds + 1):
        order = list(steps.items())
        shuffled.shuffle(order)
        before = pace()
        for name, step in order:
            seconds, before = quiet_seconds(step, before)
            found[name].append(seconds)
        gc.collect()
    if index == 0:
        torch.save({name: series[1:] for name, series in found.items()}, f"{folder}/steps.pt")
    dist.destroy_process_group()


def run(folder: Path, rounds: int, seed: int) -> Steps:
    """Samples of every program, the first round left out as warm-up."""
    folder.mkdir()
    mp.spawn(rank, args=(str(folder), rounds, seed), nprocs=2)
    found: Steps = torch.load(folder / "steps.pt")
    return found


def medians(*parts: Steps) -> dict[str, float]:
    return {name: statistics.median([seconds for part in parts for seconds in part[name]]) for name in parts[0]}
