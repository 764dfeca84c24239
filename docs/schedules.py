"""Writes the tables of docs/schedules.md: python docs/schedules.py [TABLE…]. Some four minutes of two cores.

``gap`` needs windtunnel[ilp]: what ``windtunnel schedule --gap`` proves, three minutes. ``speed``: what ``make bench``
prints, half a minute; leave the machine alone meanwhile. ``series``: what ``windtunnel validate`` says of the order
within series, some seconds.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pages import markdown, rewrite

from windtunnel.catalog.files import RECORDS_LIMIT, read_yaml
from windtunnel.catalog.records import SkippedRecord, load_records, read_record
from windtunnel.job.record import Record
from windtunnel.records.compare import check_record
from windtunnel.records.summary import summarise
from windtunnel.report.schedule_gap import gap_document
from windtunnel.schedule.action import Order
from windtunnel.schedule.base import Costs
from windtunnel.schedule.registry import applicable, build_order, find, schedule_names
from windtunnel.search.optimum import gap
from windtunnel.step.timeline import ChunkDurations, execute

PAGE = Path(__file__).with_suffix(".md")
ROOT = PAGE.parents[1]
BENCH = ["benchmarks/test_schedules.py", "--benchmark-only", "--benchmark-quiet", "-p", "no:cacheprovider"]
RECORDS = ROOT / "tests" / "data" / "ground_truth"

PIPES = ((2, 4), (3, 6), (4, 8))
"""Stages and micro-batches."""
COSTS: tuple[Costs, ...] = ((1.0, 1.0, 1.0, 0.0), (1.0, 1.5, 0.5, 0.0))
"""F, B, W of a stage and a hop."""
CHUNKS = {"1f1b_ep_overlap": 2}
"""Chunks per stage, where they are not the fewest that the schedule runs with."""
TIME_LIMIT = 60.0
"""Most seconds for one proof, the default of ``--gap``."""

NAMED = ("layouts", "schedules")
"""Last words of the series that are compared, where nothing but the plan varies."""
VARIANTS: dict[str, tuple[str, str, str, Any]] = {
    "primus-qwen3-235b-schedules": ("with full recompute", "plan", "recompute", {"policy": "full"}),
    "primus-llama2-7b-schedules": ("with 32 layers", "model", "num_layers", 32),
}
"""Series projected once more with one value of the job changed: in words, section, key, value."""


def ordered(name: str, p: int, m: int, costs: Costs) -> Order | None:
    """The order of a schedule under a cap of p; None where it cannot run."""
    v = chunks(name)
    if applicable(name, p, m, v, memory_cap=p) is not None:
        return None
    return build_order(name, p, m, v, memory_cap=p, costs=costs)


def chunks(name: str) -> int:
    found = find(name)
    return CHUNKS.get(name) or found.virtual_stages or found.min_virtual_stages


def durations(order: Order, costs: Costs) -> list[ChunkDurations]:
    """Each chunk lasts its share of a stage."""
    return [ChunkDurations(*(seconds / order.virtual_stages for seconds in costs[:3]))] * order.num_chunks


def distance(name: str, p: int, m: int, costs: Costs) -> str:
    """How much longer than the optimum; nothing where the schedule cannot run."""
    order = ordered(name, p, m, costs)
    if order is None:
        return ""
    cap = p if "memory_cap" in find(name).uses else None
    found = gap_document(gap(order, durations(order, costs), costs[3], cap, time_limit=TIME_LIMIT))
    if found["proven"]:
        return f"{figure(found['gap'])} %"
    return f"{figure(found['gap'])} to {figure(found['gap_at_most'])} % (not proven)"


def figure(share: float) -> str:
    return f"{100 * share:.1f}" if share > 0.0005 else "0"


def gap_table() -> str:
    """Schedules that agree share a row."""
    alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name in schedule_names():
        if name == "custom":
            continue
        cells = [distance(name, p, m, costs) for p, m in PIPES for costs in COSTS]
        capped = " (cap p)" if "memory_cap" in find(name).uses else ""
        alike[str(chunks(name)), *cells].append(f"`{name}`{capped}")
    kinds = [", ".join(f"{seconds:g}".replace("0.", ".") for seconds in costs[:3]) for costs in COSTS]
    heads = [f"p = {p}, m = {m}: F, B, W = {each}" for p, m in PIPES for each in kinds]
    return markdown(["schedule", "v", *heads], [[", ".join(names), *cells] for cells, names in alike.items()])


def speed_table() -> str:
    """The lines that the bench prints, one column a size."""
    words = [sys.executable, "-m", "pytest", *BENCH]
    printed = subprocess.run(words, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    pattern = r"timeline (\w+), p=(\d+) m=(\d+), (\w+) .* budget +(\d+) ms +(\d+)%"
    columns: dict[str, dict[str, str]] = defaultdict(dict)
    for name, p, m, how, budget, share in re.findall(pattern, printed):
        known = "cached" if how == "cached" else "from nothing"
        columns[f"p = {p}, m = {int(m):,}, {known}, of {int(budget):,} ms"][name] = f"{share} %"
    names = next(iter(columns.values()))
    rows = [[f"`{name}`", f"{spans(name):,}", *(column[name] for column in columns.values())] for name in names]
    return markdown(["schedule", "spans at p = 16", *columns], rows)


def spans(name: str) -> int:
    order = ordered(name, 16, 128, COSTS[0])
    assert order is not None
    return sum(map(len, execute(order, durations(order, COSTS[0]), 0.0).spans))


def series_table() -> str:
    """Series of one file, kind and device share a row; the best ordered first."""
    loaded = [record for record in load_records([RECORDS]) if not isinstance(record, SkippedRecord)]
    named = [record for record in loaded if record.series and record.series.endswith(NAMED)]
    found = summarise([check_record(record) for record in named]).series
    kinds: dict[tuple[str, str, str], list[Record]] = defaultdict(list)
    for record in named:
        if record.series in found and found[record.series].regret is not None:
            kinds[record.file, kind(record), device(record)].append(record)
    rows = []
    for records in kinds.values():
        share, cells = judged(records)
        own = [[title(records), *cells]]
        if (variant := VARIANTS.get(records[0].series or "")) is not None:
            own.append([f"the same, {variant[0]}", *judged(changed(records, *variant[1:]))[1]])
        rows.append((share, own))
    best_first = sorted(rows, key=lambda row: -row[0])
    return markdown(["series", "ordered", "speed off by"], [row for _, own in best_first for row in own])


def kind(record: Record) -> str:
    return (record.series or "").rpartition("-")[2]


def device(record: Record) -> str:
    return record.job.cluster.accelerator.name.split("-")[0].upper()


def judged(records: Iterable[Record]) -> tuple[float, list[str]]:
    """The share of pairs ordered as measured; in words, with the least and greatest error of speed."""
    found = summarise([check_record(record) for record in records])
    pooled = found.series["pooled"]
    share = pooled.ordered or 0.0
    errors = [row.error for row in found.rows if row.quantity == "speed" and row.error is not None]
    around = f"{signed(min(errors))} … {signed(max(errors))} %"
    return share, [f"{round(share * pooled.decided)} of {pooled.decided}", around]


def signed(share: float) -> str:
    whole = round(100 * share)
    return f"{whole:+d}".replace("-", "−") if whole else "0"


def changed(records: Sequence[Record], section: str, key: str, value: Any) -> list[Record]:
    """The same records, read with one value of their jobs replaced."""
    path = RECORDS / f"{records[0].file}.yaml"
    wanted = {record.id for record in records}
    entries = [entry for entry in read_yaml(path, limit_bytes=RECORDS_LIMIT) if entry["id"] in wanted]
    for entry in entries:
        entry["job"][section][key] = value
    return [read_record(entry, path) for entry in entries]


def title(records: Sequence[Record]) -> str:
    names = list(dict.fromkeys(record.series or "" for record in records))
    first = records[0]
    if len(names) == 1:
        return f"`{names[0]}` ({device(first)})"
    return f"`{names[0].split('-')[0]}-*-{kind(first)}` ({device(first)}; {len(names)} series)"


TABLES = {"gap": gap_table, "speed": speed_table, "series": series_table}


def main(words: list[str]) -> None:
    for name in words or TABLES:
        rewrite(PAGE, {f"table {name}": TABLES[name]()})
        sys.stderr.write(f"{name}: done\n")


if __name__ == "__main__":
    main(sys.argv[1:])
