"""Two ranks, block by block: a real training step of a configuration, all its measurements, and the step again.

A measurement runs one unit, optimizer or collective. Units run on each rank for itself, so each has a co-runner on
the other core, as in training; nothing of a training step of two ranks is timed for the profile. A block takes seconds,
so that whatever else the machine does meets both alike; what counts is the ratio of projection and step in a block.
"""

from __future__ import annotations

import gc
import os
import random
import statistics
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

sys.path.insert(0, str(Path(__file__).parent))

from jobs import CONFIGURATIONS, PILOTED, job_of
from truth import trainer

from windtunnel.cost.anchor import SLOWDOWN
from windtunnel.cost.profile import Key, Profile
from windtunnel.cost.profile_keys import calibration_key, gathered_by_unit, unit_key
from windtunnel.cost.simulated import simulated_source
from windtunnel.measure.statistics import entry
from windtunnel.measure.torch.clock import Clock
from windtunnel.measure.torch.collectives import BesideTraffic, CollectiveKernel, slowdown
from windtunnel.measure.torch.optimizer import OptimizerKernel
from windtunnel.measure.torch.units import UnitKernel
from windtunnel.measure.wanted import asked
from windtunnel.ops.sizes import Sizes, sizes

LEAST = 0.15
"""Seconds of one sample of a unit: as long as a step of training, so that both meet other work on the machine alike."""

BESIDE = tuple(calibration_key(name) for name in ("compute", "traffic", "both"))

Samples = dict[Key, float]
Measurement = Callable[[], Samples]


@dataclass(frozen=True)
class Block:
    """Seconds of a real step, the mean of one before and one after, and what was measured between them."""

    real: float
    samples: Samples


def timed(step: Callable[[], object]) -> float:
    """Seconds of one call, the longer of what both ranks took."""
    dist.barrier()
    start = time.perf_counter()
    step()
    return latest(time.perf_counter() - start)


def first_alone(step: Callable[[], object]) -> float:
    """Seconds of one call on the first rank while the other one waits."""
    dist.barrier()
    start = time.perf_counter()
    if dist.get_rank() == 0:
        step()
    seconds = time.perf_counter() - start
    dist.barrier()
    return latest(seconds) if dist.get_rank() == 0 else latest(0.0)


def latest(seconds: float) -> float:
    """The longer of what both ranks took."""
    both = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(both, op=dist.ReduceOp.MAX)
    return both.item()


def average(seconds: float) -> float:
    """The mean of what both ranks took."""
    both = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(both)
    return both.item() / 2


class Kernels:
    """What is measured, made once for all configurations that need it."""

    def __init__(self) -> None:
        self._clock = Clock()
        self._made: dict[object, Any] = {}

    def of(self, configuration: tuple[str, str]) -> list[Measurement]:
        """All that projecting a configuration asks for: units beside each other and alone, optimizer, collectives."""
        job, pilot = job_of(*configuration), configuration in PILOTED
        source = simulated_source(job)
        wanted = asked(job, source, source.placements)
        found: list[Measurement] = []
        for unit in wanted.units:
            sized = sizes(job, unit)
            if gathered_by_unit(job) or sized.tp > 1:
                sharded = gathered_by_unit(job)
                kernel = self._once("gathered" if sharded else "unit", sized)
                found.append(partial(_in_step, sized, kernel, sharded))
                continue
            found += [] if pilot else [partial(_unit, sized, self._once("unit", sized))]
            found += [partial(_alone, sized, self._once("unit", sized))] if pilot or job.plan.parallel.pp > 1 else []
        found += [partial(_one, key, self._once("optimizer", (key, count))) for key, count in wanted.optimizers.items()]
        found += [partial(_one, key, self._once("network", (key, size))) for key, size in wanted.collectives.items()]
        if job.plan.overlap.grad_reduce:
            found.append(self._once("beside", 0))
        return found

    def _once(self, kind: str, what: Any) -> Any:
        if (kind, what) not in self._made:
            self._made[kind, what] = self._make(kind, what)
        return self._made[kind, what]

    def _make(self, kind: str, what: Any) -> Any:
        if kind in ("unit", "gathered"):
            return UnitKernel(what, self._clock, whole=kind == "unit")
        if kind == "beside":
            beside = BesideTraffic(8e6, self._clock)
            return lambda: dict(zip(BESIDE, beside.run(), strict=True))
        name = what[0].op.partition("/")[2]
        made = OptimizerKernel if kind == "optimizer" else CollectiveKernel
        return made(name, what[1], self._clock)


def _unit(sized: Sizes, kernel: UnitKernel) -> Samples:
    """With a co-runner, the other rank. Ranks that meet at the end of a step take what they take on average."""
    dist.barrier()
    return {unit_key(sized, phase, 1): average(value) for phase, value in kernel.run(LEAST).items()}


def _in_step(sized: Sizes, kernel: UnitKernel, sharded: bool) -> Samples:
    """As ``_unit`` for ranks that wait for each other at every unit: the slower one counts every time. ``sharded``:
    under FSDP in a group of one."""
    rounds: list[Samples] = []
    while not rounds or sum(sum(found.values()) for found in rounds) < LEAST:
        dist.barrier()
        found = kernel.run(split=False)
        rounds.append({unit_key(sized, phase, 1, sharded=sharded): latest(value) for phase, value in found.items()})
    return {key: statistics.mean(found[key] for found in rounds) for key in rounds[0]}


def _alone(sized: Sizes, kernel: UnitKernel) -> Samples:
    """The first rank, the other one waiting."""
    dist.barrier()
    passes = (
        ("forward", "backward", "grad_input", "grad_weight") if sized.kind != "embedding" else ("forward", "backward")
    )
    found = kernel.run(LEAST) if dist.get_rank() == 0 else dict.fromkeys(passes, 0.0)
    dist.barrier()
    return {unit_key(sized, phase, 0): latest(value) for phase, value in found.items()}


def _one(key: Key, kernel: CollectiveKernel | OptimizerKernel) -> Samples:
    dist.barrier()
    return {key: latest(kernel.run(8))}


def block(step: Callable[[], object], pieces: list[Measurement], how: Callable[..., float]) -> Block:
    """One block of a configuration."""
    before = how(step)
    samples: Samples = {}
    for piece in pieces:
        samples |= piece()
    return Block((before + how(step)) / 2, samples)


def rank(index: int, folder: str, rounds: int) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=index, world_size=2)
    every = [named for named in (*CONFIGURATIONS, *PILOTED) if ONLY in "/".join(named)]
    steps = {configuration: trainer(job_of(*configuration)) for configuration in every}
    kernels = Kernels()
    pieces = {configuration: kernels.of(configuration) for configuration in every}
    gc.disable()
    blocks: dict[tuple[str, str], list[Block]] = defaultdict(list)
    shuffled = random.Random(7)
    begin = time.perf_counter()
    for number in range(rounds + 1):
        order = list(every)
        shuffled.shuffle(order)
        for configuration in order:
            shuffled.shuffle(pieces[configuration])
            how = first_alone if configuration in PILOTED else timed
            blocks[configuration].append(block(steps[configuration], pieces[configuration], how))
        gc.collect()
        if index == 0:
            print(f"round {number} of {rounds}: {time.perf_counter() - begin:.0f} s", flush=True)
    if index == 0:
        torch.save(dict(blocks), f"{folder}/blocks.pt")
    dist.destroy_process_group()


ONLY = os.environ.get("WINDTUNNEL_HYBRID_ONLY", "")
"""Part of the names of the configurations to run; all of them without it."""


def run(folder: Path, rounds: int) -> dict[tuple[str, str], list[Block]]:
    """Blocks by configuration, the first round left out as warm-up."""
    mp.spawn(rank, args=(str(folder), rounds), nprocs=2)
    found = torch.load(folder / "blocks.pt", weights_only=False)
    return {name: blocks[1:] for name, blocks in found.items()}


def profile_of(samples: Samples, slowed: float) -> Profile:
    """The profile of a block; ``slowed``: seconds compute loses for every second of traffic beside it."""
    figures = {key: seconds for key, seconds in samples.items() if key not in BESIDE}
    figures[calibration_key(SLOWDOWN)] = slowed
    entries = tuple(entry(key, [seconds]) for key, seconds in figures.items())
    return Profile(device=(("name", "cpu-core"),), software=(), method=(), entries=entries)


def slowed_by_traffic(blocks: dict[tuple[str, str], list[Block]]) -> float:
    """From the medians over all blocks of compute alone, traffic alone and both."""
    series = [each.samples for found in blocks.values() for each in found if BESIDE[0] in each.samples]
    return slowdown([tuple(samples[key] for key in BESIDE) for samples in series]) if series else 1e-6


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        found = run(Path(folder), int(sys.argv[1]))
    torch.save(found, sys.argv[2])
