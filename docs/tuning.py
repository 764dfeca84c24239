"""Writes the table of docs/tuning.md: python docs/tuning.py [PLANS]. Some minutes for 60,000; every draw is seeded."""

from __future__ import annotations

import random
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from pages import rewrite

from windtunnel.catalog.jobs import load_job
from windtunnel.job.job import Job
from windtunnel.schedule.registry import schedule_names
from windtunnel.search.points import Points
from windtunnel.search.space import SCHEDULE, default_space

PAGE = Path(__file__).with_suffix(".md")
JOBS = [
    ("llama3.1-70b", "h100-sxm-80gb", 64, "megatron-core"),
    ("llama3.1-8b", "a100-sxm-80gb", 32, "torchtitan"),
    ("mixtral-8x22b", "mi355x", 32, "primus"),
    ("deepseek-v2-lite", "h800-sxm-80gb", 32, "megatron-core"),
]
"""Model, accelerator, their number, framework."""
ROWS, COLUMNS = 6, 4
"""Variants of a grid point, and choices of a variant, that are compared."""
PLANS = 60_000


def place(model: str, accelerator: str, number: int, framework: str, changes: Mapping[str, Any]) -> Job:
    base = {
        "model": model,
        "cluster": {"accelerator": accelerator, "num_accelerators": number},
        "software": {"framework": framework, "date": "2025-10"},
        "plan": {"batch": {"micro_batch_size": 1, "global_batch_size": 256, "sequence_length": 4096}},
    }
    return load_job(base, set=dict(changes), repairs=False)


def compared(which: int, plans: int) -> dict[str, list[tuple[float, float]]]:
    """By schedule, what the estimate and the bound of random plans of one job are off exact times."""
    draw = random.Random(which)
    job = place(*JOBS[which], {})
    names = [name for name in schedule_names() if name != "custom"]
    grids = [default_space(job).pinned({SCHEDULE: (name,)}).grid for name in names]
    space = default_space(job).pinned({SCHEDULE: names})
    points = Points(job=job, space=space, vary=lambda changes: place(*JOBS[which], changes))
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    while sum(map(len, found.values())) < plans:
        grid = draw.choice(grids)
        point = grid[draw.randrange(len(grid))]
        batch = points.at(point).batch
        if batch is None:
            continue
        fits = batch.fits(batch.peak_device())
        rows = [int(row) for row in np.flatnonzero(fits.any(axis=1))]
        if not rows:
            continue
        times = batch.times(np.array(rows))
        for index, row in draw.sample(list(enumerate(rows)), min(ROWS, len(rows))):
            exact = batch.exact(row)
            columns = [int(column) for column in np.flatnonzero(fits[row])]
            for column in draw.sample(columns, min(COLUMNS, len(columns))):
                truth = float(exact[column])
                about, least = float(times.estimate[index, column]), float(times.bound[index, column])
                pair = about / truth - 1, 1 - least / truth
                found[str(point[SCHEDULE])].append(pair)
    return found


def table(plans: int) -> list[str]:
    every: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for index in range(len(JOBS)):
        for schedule, pairs in compared(index, plans // len(JOBS)).items():
            every[schedule] += pairs
    pooled = [pair for pairs in every.values() for pair in pairs]
    assert min(below for _, below in pooled) > -1e-9, "a bound exceeds the step time"
    rows = [_row(f"`{name}`", every[name]) for name in schedule_names() if name in every]
    head = ["schedule", "plans", "median", "99th percentile", "bound below exact, median"]
    return [_line(head), _line(["---"] * len(head)), *map(_line, [*rows, _row("all", pooled)])]


def _row(name: str, pairs: list[tuple[float, float]]) -> list[str]:
    errors, below = (np.abs(np.array(column)) for column in zip(*pairs, strict=True))
    figures = (np.median(errors), np.quantile(errors, 0.99), np.median(below))
    return [name, f"{len(pairs):,}", *(f"{100 * figure:.1f} %" for figure in figures)]


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main(words: list[str]) -> None:
    plans = int(words[0]) if words else PLANS
    rewrite(PAGE, {"table estimate": "\n".join(table(plans)) + "\n"})


if __name__ == "__main__":
    main(sys.argv[1:])
