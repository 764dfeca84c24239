"""One rank of the world at hand: joins the others, times collectives with them."""

from __future__ import annotations

import warnings
from typing import Any

import torch
import torch.distributed as dist

from windtunnel.measure.network import Question
from windtunnel.measure.torch.collectives import BesideTraffic, CollectiveKernel, slowdown
from windtunnel.measure.torch.device import clock

BESIDE = 2.0**23
"""Bytes of the traffic beside compute."""


def rank(
    index: int, ranks: int, rendezvous: str, asked: tuple[Question, ...], rounds: int, device: str, answers: Any
) -> None:
    """Take part in all collectives; rank 0 answers its samples by key."""
    warnings.simplefilter("ignore")
    own = device
    if device == "cpu":
        torch.set_num_threads(1)
    else:
        torch.cuda.set_device(index)
        own = f"cuda:{index}"
    backend = "gloo" if device == "cpu" else "nccl"
    dist.init_process_group(backend, init_method=f"file://{rendezvous}", rank=index, world_size=ranks)
    try:
        samples = {question.key: _samples(question, own, rounds) for question in asked}
        if index == 0:
            answers.put(samples)
    except Exception as error:  # a backend may lack a collective: say so instead of nothing
        if index == 0:
            answers.put(f"{type(error).__name__}: {' '.join(str(error).split())[:160]}")
    finally:
        dist.destroy_process_group()


def _samples(question: Question, device: str, rounds: int) -> list[float]:
    """Seconds of ``rounds`` series after one that warms up."""
    if question.kind == "beside":
        beside = BesideTraffic(BESIDE, clock(device))
        series = [beside.run() for _ in range(3 * rounds + 1)][1:]
        return [slowdown(series[start : start + rounds]) for start in range(0, len(series), rounds)]
    kernel = CollectiveKernel(question.kind, question.size, clock(device))
    times = 8 if question.size < 2**22 else 2
    return [kernel.run(times) for _ in range(rounds + 1)][1:]
