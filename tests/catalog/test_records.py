"""Ground-truth records of every shape; one that is wrong does not take the others with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from windtunnel.catalog.records import SkippedRecord, load_records
from windtunnel.errors import FormatError, MissingError
from windtunnel.job.record import Record

JOB = """
  job:
    model: llama3.1-8b
    cluster: {accelerator: h100-sxm-80gb, num_accelerators: 8, scale_out: {kind: none}}
    software: {framework: torchtitan, date: 2024-12}
    plan:
      parallel: {tp: TP}
      batch: {micro_batch_size: 1, global_batch_size: 64, sequence_length: 8192}
"""


def record(name: str, rest: str, tp: int = 1) -> str:
    return f"- id: {name}" + JOB.replace("TP", str(tp)) + rest


FULL = """
  measured: {tokens_per_second_per_accelerator: 5762.0, peak_memory: 82.4 GiB, mfu: 0.33, derived: true}
  memory_kind: reserved
  memory_rank: max
  memory_bar: loose
  flops_convention: 6nd
  bar: tight
  series: a-series
  source: {title: a table, url: "https://example.org/t", where: Table 1, date: 2024-12}
  assumed: [one]
  notes: [two, three]
"""
OOM = """
  measured: {}
  outcome: oom
  bar: fits
  source: {title: a table}
"""
STAGES = """
  measured: {peak_memory_per_stage: [10 GiB, 20 GiB], peak_memory: 20 GiB}
  memory_kind: device
  bar: trend
  source: {title: a table}
"""
ROUND = """
  measured: {step_time: 2 s}
  bar: normal
  source: {title: a table}
"""


def written(folder: Path, text: str, name: str = "records.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_every_shape_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, record("full", FULL) + record("oom", OOM) + record("stages", STAGES))
    full, oom, stages = load_records([path])
    assert isinstance(full, Record)
    assert full.measured.tokens_per_second_per_accelerator == 5762.0
    assert full.measured.peak_memory == pytest.approx(82.4 * 2**30)
    assert full.measured.derived
    assert (full.bar, full.memory_bar, full.memory_kind, full.memory_rank) == ("tight", "loose", "reserved", "max")
    assert (full.series, full.assumed, full.notes) == ("a-series", ("one",), ("two", "three"))
    assert full.source.date == "2024-12"
    assert full.file == "records"
    assert full.job.plan.parallel.dp == 8
    assert isinstance(oom, Record)
    assert oom.outcome == "oom"
    assert isinstance(stages, Record)
    assert stages.measured.peak_memory_per_stage == (10 * 2**30, 20 * 2**30)


def test_given_holds_what_the_file_spells_in_si(tmp_path: Path) -> None:
    (one,) = load_records([written(tmp_path, record("one", ROUND))])
    assert isinstance(one, Record)
    assert one.given["plan"] == {
        "parallel": {"tp": 1},
        "batch": {"micro_batch_size": 1, "global_batch_size": 64, "sequence_length": 8192},
    }


def test_one_bad_record_leaves_the_others(tmp_path: Path) -> None:
    bad_format = record("bad-format", ROUND.replace("2 s", "2"))
    illegal = record("illegal", ROUND, tp=3)
    path = written(tmp_path, record("good", ROUND) + bad_format + illegal + "- 17\n" + record("good", ROUND))
    good, *bad = load_records([path])
    assert isinstance(good, Record)
    assert all(isinstance(one, SkippedRecord) for one in bad)
    assert [one.id for one in bad] == ["bad-format", "illegal", "#4", "good"]
    assert "has no unit" in bad[0].reason  # type: ignore[union-attr]
    assert "must divide the 8 accelerators" in bad[1].reason  # type: ignore[union-attr]
    assert "unique" in bad[3].reason  # type: ignore[union-attr]


def test_a_folder_stands_for_its_files(tmp_path: Path) -> None:
    written(tmp_path, record("b", ROUND), "b.yaml")
    written(tmp_path, record("a", ROUND), "a.yaml")
    written(tmp_path, "no records", "README.md")
    assert [one.id for one in load_records([tmp_path])] == ["a", "b"]


def test_a_single_record_needs_no_list(tmp_path: Path) -> None:
    text = record("one", ROUND)
    alone = text.replace("- id", "  id", 1).replace("\n  ", "\n").lstrip()
    (one,) = load_records([written(tmp_path, alone)])
    assert isinstance(one, Record)


def test_files_that_hold_no_records_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="list"):
        load_records([written(tmp_path, "a: 1\n")])
    with pytest.raises(MissingError):
        load_records([tmp_path / "nowhere.yaml"])
