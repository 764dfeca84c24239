"""A verdict that hangs on what a source does not say is borderline."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from windtunnel.catalog.records import load_records
from windtunnel.job.record import Record
from windtunnel.projection.memory import project_memory
from windtunnel.records.compare import check_record
from windtunnel.records.unstated import joint_verdict, leaves_recompute_open, readings

RECORDS = Path(__file__).parents[1] / "data" / "ground_truth"


@pytest.fixture(scope="module")
def record() -> Record:
    found = {item.id: item for item in load_records([RECORDS / "primus.yaml"])}
    chosen = found["primus-pp-qwen3-235b-32xmi355x-pp4-ep8-1f1b"]
    assert isinstance(chosen, Record)
    return chosen


@pytest.mark.parametrize(
    ("line", "is_open"),
    [
        ("recompute none: not stated by the source", True),
        ("activation checkpointing mode not stated", True),
        ("recompute: repo config block/3, blog value unknown", True),
        ("recompute none: launcher passes --recompute-granularity full --recompute-num-layers 0", False),
        ("micro batch size not stated", False),
    ],
)
def test_the_words_of_a_record_say_what_is_open(record: Record, line: str, is_open: bool) -> None:
    assert leaves_recompute_open(replace(record, assumed=(line,))) is is_open


def test_an_open_recompute_spans_none_and_full(record: Record) -> None:
    given = project_memory(record.job)
    found = readings(record, given)
    assert found[0] is given
    assert found[1].peak.device > given.peak.device > found[2].peak.device
    assert (given.verdict, joint_verdict(found)) == ("oom", "borderline")
    row = next(row for row in check_record(record).rows if row.quantity == "memory")
    assert row.interval is not None
    assert row.measured is not None
    assert row.interval[0] < row.measured < row.interval[1]


def test_a_stated_recompute_keeps_its_verdict(record: Record) -> None:
    stated = replace(record, assumed=())
    assert check_record(stated).verdict == "oom"
    assert check_record(record).verdict == "borderline"
