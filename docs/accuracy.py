"""Writes the tables and plots of docs/accuracy.md from the committed records and the last calibration.

    python docs/accuracy.py RECORDS CALIBRATION TABLE

RECORDS: folder of ground truth; CALIBRATION: what ``windtunnel calibrate --json`` printed; TABLE: where to write what
``windtunnel validate --json`` prints, which CI compares with. What stands between ``<!-- NAME -->`` and
``<!-- end -->`` in the page is replaced, and the summary in README.md; everything else is written by hand.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from math import exp, expm1, log
from pathlib import Path
from statistics import mean, median
from typing import Any

from pages import markdown, rewrite

from windtunnel.calibration.anchor import WITHIN, anchor, comparable_runs
from windtunnel.calibration.gap import constants_that_explain
from windtunnel.calibration.intervals import error_table
from windtunnel.catalog.calibration import evidence, spreads
from windtunnel.catalog.constants import FITTED, certificates
from windtunnel.catalog.records import SkippedRecord, load_records
from windtunnel.job.record import Record
from windtunnel.projection.memory import project_memory
from windtunnel.projection.project import project, step_time
from windtunnel.records.compare import measured_step_time
from windtunnel.records.unstated import joint_verdict, leaves_recompute_open, readings

PAGE = Path(__file__).with_name("accuracy.md")
README = Path(__file__).parents[1] / "README.md"
PLOTS = Path(__file__).with_name("plots")
GRID = "vtrain"
ANCHORED = ("scaling", "micro-batch", "mbc", "layouts", "batch")
"""Words of the names of series that change only scale, batch or layout."""

seconds = lru_cache(maxsize=None)(step_time)


def main(folder: str, calibration: str, table: str) -> None:
    loaded = {r.id: r for r in load_records([folder]) if not isinstance(r, SkippedRecord)}
    document = validate(folder)
    Path(table).write_text(json.dumps(document, indent=0) + "\n", encoding="utf-8")
    left = json.loads(Path(calibration).read_text(encoding="utf-8"))
    rows = [row for row in document["records"] if row["quantity"] == "speed" and row["error"] is not None]
    sections = {
        "speed": speed(document),
        "memory": groups(document["groups"]["memory"]),
        "verdicts": verdicts(loaded.values()),
        "edge": edge(loaded.values()),
        "order": order(document),
        "constants": constants(),
        "left-out": left_out(left),
        "intervals": intervals(left, loaded),
        "anchoring": anchoring(loaded.values()),
        "worst": worst(rows, loaded),
    }
    PLOTS.mkdir(exist_ok=True)
    (PLOTS / "projected-measured.svg").write_text(scatter(rows, loaded), encoding="utf-8")
    (PLOTS / "errors-by-group.svg").write_text(boxes(rows), encoding="utf-8")
    rewrite(PAGE, sections)
    rewrite(README, {"accuracy": summary(document)})


def summary(document: dict[str, Any]) -> str:
    """The errors in five lines."""
    speeds, memory, fits = document["groups"]["speed"], document["groups"]["memory"]["all"], document["fits"]
    lines = [
        f"- Speed, {words}, {group['n']} runs: median error {figure(group['median'])} %, nine in ten within "
        f"{figure(group['p90'])} %."
        for words, group in (("dense", speeds["dense"]), ("mixture of experts", speeds["moe"]))
    ]
    ordered, called = figure(document["series"]["pooled"]["ordered"]), figure(memory["median"])
    lines += [
        f"- Memory, {memory['n']} runs: median {called} %; of {fits['n']} runs {fits['false_oom']} that ran are called "
        f"too large, {fits['borderline']} a close call.",
        "- Order: of two runs in one series that differ by more than 2 %, the faster is told from the slower "
        f"{ordered} % of the time.",
    ]
    return "".join(f"{line}\n" for line in lines)


def validate(folder: str) -> dict[str, Any]:
    words = [str(Path(sys.executable).with_name("windtunnel")), "validate", folder, "--json", "--quiet"]
    found: dict[str, Any] = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    return found


def figure(value: float | None, sign: str = "") -> str:
    return "·" if value is None else f"{100 * value:{sign}.1f}"


def groups(found: dict[str, dict[str, Any]], names: Sequence[str] | None = None) -> str:
    rows = [
        [
            name, str(group["n"]), figure(group["mape"]), figure(group["median"]), figure(group["p90"]),
            figure(group["bias"], "+"), figure(group["within_bar"]),
        ]
        for name in (names or sorted(found))
        if (group := found.get(name)) is not None
    ]  # fmt: skip
    return markdown(["", "n", "mean", "median", "p90", "bias", "within bar"], rows)


def speed(document: dict[str, Any]) -> str:
    found = document["groups"]["speed"]
    first = ["all", "dense", "moe", "tight", "normal", "loose", GRID]
    files = sorted({row["source"] for row in document["records"]} - {GRID})
    return groups(found, first) + "\nBy file:\n\n" + groups(found, files)


def order(document: dict[str, Any]) -> str:
    rows = [
        [label, str(entry["decided"]), figure(entry["ordered"]), figure(entry["regret"])]
        for label, name in (("all but the grid", "pooled"), ("the grid", "pooled vtrain"))
        if (entry := document["series"].get(name))
    ]
    low = sorted(
        (entry["ordered"], name, entry["decided"])
        for name, entry in document["series"].items()
        if entry["ordered"] is not None and entry["decided"] >= 3 and not name.startswith("pooled")
    )[:8]
    worst_series = [[name, str(decided), figure(ordered)] for ordered, name, decided in low]
    return (
        markdown(["", "decided pairs", "ordered", "mean regret"], rows)
        + "\nThe series whose order is least right:\n\n"
        + markdown(["series", "decided pairs", "ordered"], worst_series)
    )


def constants() -> str:
    rows = [
        [
            f"`{known.name}`", f"{known.value:.4g}", known.kind,
            str(known.fitted.records), figure(known.fitted.residual),
            "{:.3g} to {:.3g}".format(*(known.fitted.range or (0, 0))),
            f"{1000 * (known.fitted.helps or 0):+.2f} ± {1000 * (known.fitted.error or 0):.2f}",
            f"{known.fitted.better} / {known.fitted.worse}",
        ]
        for known in certificates()
        if known.kind in FITTED and known.fitted is not None
    ]  # fmt: skip
    heads = ["constant", "value", "kind", "runs", "residual, %", "over refits", "helps, 10⁻³", "better / worse"]
    return markdown(heads, rows)


def left_out(calibration: dict[str, Any]) -> str:
    rows = [
        [name, str(entry["n"]), *[figure(value) for pair in entry["pairs"] for value in pair]]
        for name, entry in calibration["errors"].items()
    ]
    heads = ["source", "n", "median in sample", "p90", "median left out", "p90", "median, scoped neutral", "p90"]
    return markdown(heads, rows)


def intervals(calibration: dict[str, Any], loaded: dict[str, Record]) -> str:
    """Each run judged by the errors of other sources' left-out runs; doubtful ones are judged and judge nothing."""
    errors = {row["id"]: row["left_out"] for row in calibration["records"] if row["id"] in loaded}
    runs = [(loaded[key], error) for key, error in errors.items() if loaded[key].file != GRID]
    doubtful = evidence().doubtful.keys()
    everything = [(loaded[key], error) for key, error in errors.items() if not {loaded[key].series, key} & doubtful]
    judged = []
    for source in dict.fromkeys(record.file for record, _ in runs):
        table = error_table((r.job, e) for r, e in everything if r.file != source)
        whole = table.groups["all"]
        for record, error in runs:
            if record.file == source:
                judged.append((record, error, table.interval(record.job), (whole.low[0], whole.high[0])))
    picks: dict[str, Callable[[Record], bool]] = {
        "all but the grid": lambda _: True,
        "normal": lambda r: r.bar == "normal",
        "dense": lambda r: not r.job.model.is_moe,
        "moe": lambda r: r.job.model.is_moe,
    }
    rows = []
    for name, keep in picks.items():
        kept = [(e, own, whole) for record, e, own, whole in judged if keep(record)]
        rows.append(
            [
                name, str(len(kept)), figure(mean(low <= e <= high for e, (low, high), _ in kept)),
                figure(median(exp(high) - exp(low) for _, (low, high), _ in kept)),
                f"{mean(score(e, own) for e, own, _ in kept):.3f}",
                f"{mean(score(e, whole) for e, _, whole in kept):.3f}",
            ]
        )  # fmt: skip
    heads = ["", "n", "coverage, %", "median width, %", "interval score", "score of one global interval"]
    return markdown(heads, rows)


def score(error: float, interval: tuple[float, float]) -> float:
    """Width, and ten times what the value misses it by: the smaller the better (80 % intervals)."""
    low, high = interval
    return high - low + 10 * (max(low - error, 0.0) + max(error - high, 0.0))


def anchoring(records: Iterable[Record]) -> str:
    """Every scaling, batch or layout series anchored on its smallest run."""
    series: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        named = record.series and any(word in record.series for word in ANCHORED)
        if named and record.file != GRID and record.bar != "fits" and measured_step_time(record):
            series[record.series or ""].append(record)
    known = spreads()
    total: list[tuple[float, float, bool]] = []
    rows = []
    for name, members in sorted(series.items()):
        first = min(members, key=size)
        found = [carried(first, other, known) for other in members if other is not first]
        kept = [item for item in found if item is not None]
        if kept:
            total += kept
            rows.append([name, str(len(kept)), *[figure(median(item[i] for item in kept)) for i in (0, 1)]])
    before, after = (median(item[i] for item in total) for i in (0, 1))
    inside = mean(item[2] for item in total)
    head = (
        f"{len(total)} other runs of {len(rows)} series: median error {figure(before)} % without an anchor, "
        f"{figure(after)} % with one, a ratio of {after / before:.2f}; "
        f"{figure(inside)} % lie in the anchored interval.\n\n"
    )
    return head + markdown(["series", "others", "median error", "anchored"], rows)


def size(record: Record) -> tuple[float, float, str]:
    batch = record.job.plan.batch
    return record.job.cluster.num_accelerators, batch.global_batch_size * batch.sequence_length, record.id


def carried(first: Record, other: Record, known: Any) -> tuple[float, float, bool] | None:
    own = comparable_runs(other.job, [(first.job, measured_step_time(first) or 0.0)])
    measured = measured_step_time(other)
    if not own or measured is None:
        return None
    found = anchor(other.job, own, known, seconds)
    adjusted = seconds(replace(other.job, constants=other.job.constants.having(found.values))) * found.factor
    error = log(measured / adjusted)
    return abs(measured / seconds(other.job) - 1), abs(expm1(error)), abs(error) <= WITHIN * found.spread


def worst(rows: list[dict[str, Any]], loaded: dict[str, Record]) -> str:
    """The largest errors outside the grid, and the constant that would explain each most plausibly."""
    barred = [row for row in rows if row["source"] != GRID]
    table = []
    for row in sorted(barred, key=lambda row: -abs(row["error"]))[:20]:
        record = loaded[row["id"]]
        measured = measured_step_time(record)
        found = constants_that_explain(project(record.job), measured or 0.0, spreads().constants, step_time)[:1]
        spelled = [
            f"`{item.term}` {item.now:.3g} → " + ("out of reach" if item.needed is None else f"{item.needed:.3g}")
            for item in found
        ]
        table.append([row["id"], row["bar"], figure(row["error"], "+"), "".join(spelled) or "·"])
    return markdown(["run", "bar", "error, %", "what would have to change"], table)


def verdicts(records: Iterable[Record]) -> str:
    """Verdicts of all runs outside the grid; those called oom or borderline, the furthest over first."""
    judged = []
    for record in records:
        if record.file != GRID:
            given = project_memory(record.job)
            judged.append((record, given, joint_verdict(readings(record, given))))
    ran = [item for item in judged if item[0].outcome == "ran"]
    open_ = [item for item in ran if item[2] == "borderline" and leaves_recompute_open(item[0])]
    wrong = [item for item in ran if item[2] == "oom"]
    middle = sum(item[2] == "borderline" for item in ran)
    out = [item[2] for item in judged if item[0].outcome == "oom"]
    head = (
        f"Of {len(ran)} records outside the grid that ran, {len(wrong)} are called `oom` "
        f"({figure(len(wrong) / len(ran))} %) and {middle} `borderline` ({figure(middle / len(ran))} %), {len(open_)} "
        "of these because their source leaves the recomputation open; those that ran out are called "
        f"{', '.join(out)}.\n\n"
    )
    rows = [
        [
            record.id, f"{given.peak.device / 2**30:.1f}", f"{given.capacity / 2**30:.1f}",
            "open recomputation" if verdict != "oom" else "·",
        ]
        for record, given, verdict in sorted(judged, key=lambda item: -item[1].peak.device / item[1].capacity)
        if record.outcome == "ran" and given.verdict == "oom"
    ]  # fmt: skip
    return head + markdown(["projected over capacity", "GiB", "of", "called borderline for"], rows)


def edge(records: Iterable[Record]) -> str:
    """Each record with reserved or device memory on a device of 0.9 and of 1.1 times what was measured."""
    right: dict[str, list[bool]] = defaultdict(list)
    for record in records:
        measured = record.measured.peak_memory
        if measured is None or record.memory_kind not in ("reserved", "device"):
            continue
        for factor in (0.9, 1.1):
            device = replace(record.job.cluster.accelerator, hbm_capacity=factor * measured)
            memory = project_memory(replace(record.job, cluster=replace(record.job.cluster, accelerator=device)))
            hit = (memory.verdict == "oom") is (factor < 1)
            kind = "trend" if (record.memory_bar or record.bar) == "trend" else "with a bar"
            for name in ("all", kind, f"{record.file}, {kind}"):
                right[name].append(hit)
    names = ["all", "with a bar", "trend", *sorted(right.keys() - {"all", "with a bar", "trend"})]
    rows = [[name, str(len(right[name])), figure(mean(right[name]))] for name in names if right[name]]
    return markdown(["records", "verdicts", "right, %"], rows)


WIDTH, HEIGHT, MARGIN = 640, 420, 50
COLOURS = {"dense": "#1f77b4", "moe": "#d62728"}


def svg(body: Iterable[str], height: int = HEIGHT) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
        f'font-size="11"><rect width="{WIDTH}" height="{height}" fill="white"/>'
    )
    return "\n".join([head, *body, "</svg>"]) + "\n"


def label(x: float, y: float, text: str, anchor_at: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor_at}">{text}</text>'


def scatter(rows: list[dict[str, Any]], loaded: dict[str, Record]) -> str:
    """Measured step time across, projected over measured up; logarithmic across."""
    points = []
    for row in rows:
        record = loaded[row["id"]]
        measured = measured_step_time(record)
        if row["source"] != GRID and measured:
            points.append((measured, 1 / (1 + row["error"]), "moe" if record.job.model.is_moe else "dense"))
    low, high = log(min(p[0] for p in points)), log(max(p[0] for p in points))

    def place(seconds_: float, ratio: float) -> tuple[float, float]:
        x = MARGIN + (log(seconds_) - low) / (high - low) * (WIDTH - 2 * MARGIN)
        y = HEIGHT - MARGIN - min(ratio, 2.0) / 2.0 * (HEIGHT - 2 * MARGIN)
        return x, y

    body = []
    for ratio, text in ((0.5, "0.5"), (0.9, "0.9"), (1.0, "1"), (1.1, "1.1"), (1.5, "1.5")):
        y = place(exp(low), ratio)[1]
        body += [
            f'<line x1="{MARGIN}" x2="{WIDTH - MARGIN}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ccc"/>',
            label(MARGIN - 6, y + 4, text, "end"),
        ]
    for tick in (0.1, 1, 10, 100):
        if low <= log(tick) <= high:
            body.append(label(place(tick, 0)[0], HEIGHT - MARGIN + 16, f"{tick:g} s", "middle"))
    for measured, ratio, kind in points:
        x, y = place(measured, ratio)
        body.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{COLOURS[kind]}" fill-opacity="0.6"/>')
    body.append(label(WIDTH / 2, HEIGHT - 10, "measured step time", "middle"))
    body.append(label(MARGIN, 20, "projected / measured step time; blue: dense, red: mixture of experts"))
    return svg(body)


def boxes(rows: list[dict[str, Any]]) -> str:
    """Signed errors by source: 10th to 90th percentile, quartiles, median."""
    by_source: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        by_source[row["source"]].append(row["error"])
    height = 40 + 22 * len(by_source) + 30
    left, right = 190, WIDTH - 20

    def place(error: float) -> float:
        return left + (min(max(error, -0.5), 0.5) + 0.5) * (right - left)

    body = []
    for error in (-0.5, -0.25, -0.1, 0.0, 0.1, 0.25, 0.5):
        x = place(error)
        body += [
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="30" y2="{height - 25}" stroke="#ccc"/>',
            label(x, height - 10, f"{100 * error:+.0f} %", "middle"),
        ]
    for index, (source, errors) in enumerate(sorted(by_source.items())):
        y = 40 + 22 * index
        ordered = sorted(errors)
        p10, q1, q2, q3, p90 = (ordered[round(share * (len(ordered) - 1))] for share in (0.1, 0.25, 0.5, 0.75, 0.9))
        body += [
            label(left - 8, y + 10, f"{source} ({len(ordered)})", "end"),
            f'<line x1="{place(p10):.1f}" x2="{place(p90):.1f}" y1="{y + 6}" y2="{y + 6}" stroke="#1f77b4"/>',
            f'<rect x="{place(q1):.1f}" y="{y}" width="{max(place(q3) - place(q1), 1):.1f}" height="12" '
            'fill="#9ecae1"/>',
            f'<rect x="{place(q2) - 1:.1f}" y="{y - 1}" width="2" height="14" fill="#08519c"/>',
        ]
    body.append(label(20, 18, "error of speed by source: median, quartiles, 10th to 90th percentile"))
    return svg(body, height)


if __name__ == "__main__":
    main(*sys.argv[1:])
