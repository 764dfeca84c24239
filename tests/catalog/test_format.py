"""What a job file may hold: every faulty class of input is refused with path, value, rule and remedy, all at once."""

from __future__ import annotations

import copy
import datetime as dt
from pathlib import Path
from typing import Any

import pytest

from windtunnel.catalog.format import read_section
from windtunnel.catalog.job_format import JobFile, RecordFile
from windtunnel.catalog.jobs import load_job
from windtunnel.errors import FormatError, MissingError

JOB: dict[str, Any] = {
    "model": "llama3.1-8b",
    "cluster": {"accelerator": "h100-sxm-80gb", "num_accelerators": 8},
    "plan": {"batch": {"micro_batch_size": 1, "global_batch_size": 64, "sequence_length": 8192}},
}


def changed(path: str, value: object) -> dict[str, Any]:
    job = copy.deepcopy(JOB)
    *sections, key = path.split(".")
    below: dict[str, Any] = job
    for section in sections:
        below = below.setdefault(section, {})
    below[key] = value
    return job


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("cluster.power_cap", 700),
        ("cluster.hbm_capacity", "80"),
        ("cluster.hbm_capacity", "80 Gb"),
        ("cluster.hbm_capacity", "0 GiB"),
        ("cluster.hbm_capacity", "-80 GiB"),
        ("cluster.hbm_capacity", "nan GiB"),
        ("cluster.hbm_bandwidth", "3.35 TB"),
        ("cluster.scale_up.bandwidth", 900),
        ("cluster.scale_up.latency", "5"),
        ("cluster.scale_out.bandwidth", "400 GW"),
        ("cluster.scale_out.kind", "carrier-pigeon"),
        ("cluster.num_accelerators", 0),
        ("cluster.num_accelerators", -8),
        ("cluster.num_accelerators", 8.0),
        ("cluster.num_accelerators", "8"),
        ("cluster.num_accelerators", True),
        ("cluster.num_accelerators", 10**30),
        ("cluster.num_accelerators", None),
        ("cluster.price", float("nan")),
        ("cluster.price", float("inf")),
        ("plan.parallel.tp", 0),
        ("plan.parallel.tp", 2.5),
        ("plan.parallel.order", "tp-cp-ep-dp"),
        ("plan.parallel.order", "tp-tp-cp-ep-dp"),
        ("plan.parallel.sequence_parallel", 1),
        ("plan.parallel.sequence_parallel", "yes"),
        ("plan.batch.global_batch_size", 1e300),
        ("plan.batch.sequence_length", 10**12),
        ("plan.pipeline.schedule", "1f2b"),
        ("plan.pipeline.layers_per_stage", 8),
        ("plan.pipeline.layers_per_stage", [8, "8"]),
        ("plan.moe.imbalance", 0.5),
        ("plan.moe.capacity_factor", 0),
        ("plan.offload.activations", "half"),
        ("plan.offload.activations", 1.5),
        ("plan.dropout.hidden", 1.0),
        ("plan.precision.compute", "bf8"),
        ("plan.recompute.modules", ["attn"]),
        ("plan.optimizer", "sophia"),
        ("software.framework", "megatron"),
        ("software.date", "2025-13"),
        ("software.date", 2025),
        ("software.cuda_graph_scope", ["everything"]),
        ("run.tokens", -1),
        ("run.restart_time", 60),
        ("model", 3),
        ("model", ""),
    ],
)
def test_a_faulty_value_is_named_with_rule_and_remedy(path: str, value: object) -> None:
    with pytest.raises(FormatError) as refused:
        read_section(JobFile, changed(path, value))
    (fault,) = refused.value.faults
    assert fault.path.startswith(path)
    assert fault.rule
    assert fault.remedy


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("plan.paralel", "parallel"),
        ("plan.parallel.tpp", "tp"),
        ("plan.pipeline.virtual_stage", "virtual_stages"),
        ("cluster.num_accelerator", "num_accelerators"),
        ("softwares", "software"),
    ],
)
def test_an_unknown_key_suggests_the_nearest(path: str, meant: str) -> None:
    with pytest.raises(FormatError) as refused:
        read_section(JobFile, changed(path, 1))
    (fault,) = refused.value.faults
    assert (fault.path, fault.rule) == (path, "unknown key")
    assert meant in fault.remedy


def test_all_faults_come_at_once() -> None:
    job = changed("plan.parallel.tp", 0)
    job["cluster"] |= {"power_cap": 700, "num_accelerators": "8"}
    job["zoo"] = 1
    del job["plan"]["batch"]["sequence_length"]
    with pytest.raises(FormatError) as refused:
        read_section(JobFile, job)
    assert {fault.path for fault in refused.value.faults} == {
        "plan.parallel.tp", "cluster.power_cap", "cluster.num_accelerators", "zoo", "plan.batch.sequence_length",
    }  # fmt: skip


def test_faults_of_catalogs_come_together() -> None:
    job = changed("model", "lama3.1-8b")
    job["cluster"]["accelerator"] = "h1000"
    with pytest.raises(MissingError) as refused:
        load_job(job)
    assert {fault.path for fault in refused.value.faults} == {"model", "cluster.accelerator"}


def test_units_become_si_and_a_date_may_be_a_date() -> None:
    job = changed("cluster.scale_out", {"bandwidth": "400 Gb/s", "latency": "5 us"})
    job["software"] = {"date": dt.date(2025, 2, 14)}
    read = read_section(JobFile, job)
    assert read["cluster"]["scale_out"] == {"bandwidth": 50e9, "latency": 5e-6}
    assert read["software"]["date"] == "2025-02"


def test_an_empty_section_is_a_section_left_out() -> None:
    job = changed("plan.moe", None)
    job["software"] = None
    assert read_section(JobFile, job)["plan"]["moe"] == {}


@pytest.mark.parametrize("kept", ["cluster", "model", "plan"])
def test_a_section_that_is_required_must_be_there(kept: str) -> None:
    with pytest.raises(FormatError) as refused:
        read_section(JobFile, {kept: JOB[kept]})
    assert {fault.path for fault in refused.value.faults} == {"cluster", "model", "plan"} - {kept}


def file(folder: Path, content: str | bytes, name: str = "job.yaml") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize(
    "content",
    [
        "",
        "\n# nothing\n",
        "just text",
        "- a\n- list\n",
        b"\x7fELF\x00\x01\x02",
        b"\xff\xfe\xfa",
        "model: [unclosed",
        "a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nd: [*c,*c]\n",
        "model: !!python/object/apply:os.system ['true']\n",
        "model: !!python/name:os.system\n",
        "model: a\nmodel: b\n",
        "plan: {" * 200,
        "model: llama3.1-8b\n" + "#" * 2**20,
    ],
    ids=["empty", "comment", "text", "list", "binary", "bytes", "unclosed", "bomb", "python", "name", "twice", "deep",
         "large"],
)  # fmt: skip
def test_a_file_that_is_no_job_is_refused(tmp_path: Path, content: str | bytes) -> None:
    with pytest.raises(FormatError) as refused:
        load_job(file(tmp_path, content))
    assert refused.value.faults[0].remedy


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    with path.open("wb") as huge:
        huge.truncate(50 * 2**20)
    with pytest.raises(FormatError, match="1048576"):
        load_job(path)


def test_a_directory_and_a_missing_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="directory"):
        load_job(tmp_path)
    with pytest.raises(MissingError, match=r"nowhere\.yaml"):
        load_job(tmp_path / "nowhere.yaml")


def test_an_unreadable_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = file(tmp_path, "model: x")

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "denied")

    monkeypatch.setattr("builtins.open", denied)
    with pytest.raises(FormatError, match="permission"):
        load_job(path)


def test_a_missing_model_file_is_named(tmp_path: Path) -> None:
    job = file(
        tmp_path,
        """
model: ./elsewhere/config.json
cluster: {accelerator: h100-sxm-80gb, num_accelerators: 8}
plan: {batch: {micro_batch_size: 1, global_batch_size: 64, sequence_length: 8192}}
""",
    )
    with pytest.raises(MissingError, match=r"elsewhere/config\.json"):
        load_job(job)


RECORD: dict[str, Any] = {
    "id": "one",
    "job": JOB,
    "measured": {"step_time": "1.5 s"},
    "bar": "normal",
    "source": {"title": "a table"},
}


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"measured": {}}, ""),
        ({"measured": {"step_time": 1.5}}, "measured.step_time"),
        ({"measured": {"mfu": 1.5}}, "measured.mfu"),
        ({"measured": {"peak_memory_per_stage": ["1 GiB", 2]}}, "measured.peak_memory_per_stage[1]"),
        ({"bar": "exact"}, "bar"),
        ({"outcome": "crashed"}, "outcome"),
        ({"assumed": [1]}, "assumed[0]"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_faulty_record_is_refused(change: dict[str, Any], path: str) -> None:
    with pytest.raises(FormatError) as refused:
        read_section(RecordFile, {**RECORD, **change})
    assert [fault.path for fault in refused.value.faults] == [path]


def test_a_record_may_say_only_that_it_ran_or_did_not() -> None:
    for change in ({"bar": "fits"}, {"bar": "normal", "outcome": "oom"}):
        assert read_section(RecordFile, {**RECORD, "measured": {}, **change})["measured"] == {}
