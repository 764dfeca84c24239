"""Every verb: its document on stdout, its exit code, the same answer however the job is spelled."""

from __future__ import annotations

import io
import json

import pytest

from windtunnel import load_job, project
from windtunnel.catalog.files import data_file
from windtunnel.cli.largest import last_true

FLAGS = (
    "--model", "llama3.1-8b", "--accelerator", "h100-sxm-80gb", "--num-accelerators", "8",
    "--framework", "megatron-core", "--date", "2025-02", "--tp", "2", "--pp", "2",
    "--micro-batch-size", "1", "--global-batch-size", "32", "--sequence-length", "4096",
)  # fmt: skip


def test_project_prints_what_python_gets(cli, job_file):
    done = cli("project", job_file, "--json")
    assert done.code == 0
    assert done.document["step_time"] == project(load_job(job_file)).step_time
    time = done.document["time"]
    parts = [*time["exposed_communication"].values(), *(value for value in time.values() if isinstance(value, float))]
    assert sum(parts) == pytest.approx(done.document["step_time"], rel=1e-9)


def test_the_effective_job_of_a_document_gives_the_same_answer(cli, job_file, tmp_path):
    document = cli("project", job_file, "--json").document
    again = tmp_path / "again.json"
    again.write_text(json.dumps(document["job"]))
    assert cli("project", str(again), "--json").document["step_time"] == document["step_time"]


def test_a_file_flags_alone_and_stdin_are_one_job(cli, job_file, monkeypatch):
    from_file = cli("project", job_file, "--json").document
    from_flags = cli("project", *FLAGS, "--json").document
    with open(job_file) as file:
        monkeypatch.setattr("sys.stdin", io.StringIO(file.read()))
    from_stdin = cli("project", "-", "--json").document
    assert from_file["step_time"] == from_flags["step_time"] == from_stdin["step_time"]
    assert from_file["memory"] == from_flags["memory"] == from_stdin["memory"]


def test_a_flag_and_set_are_stronger_than_the_file(cli, job_file):
    flag = cli("project", job_file, "--tp", "4", "--json").document
    override = cli("project", job_file, "--set", "plan.parallel.tp=4", "--json").document
    assert flag["job"]["plan"]["parallel"]["tp"] == 4
    assert flag["step_time"] == override["step_time"]


def test_scale_batch_keeps_the_batch_per_replica(cli, job_file):
    twice = ("--num-accelerators", "16", "--json")
    assert cli("project", job_file, *twice).document["job"]["plan"]["batch"]["global_batch_size"] == 32
    assert cli("project", job_file, *twice, "--scale-batch").document["job"]["plan"]["batch"]["global_batch_size"] == 64


def test_another_schedule(cli, job_file):
    assert cli("project", job_file, "--schedule", "gpipe", "--json").document["schedule"]["name"] == "gpipe"


def test_explain_and_elasticity(cli, job_file):
    done = cli("project", job_file, "--explain", "--elasticity", "--json")
    assert done.document["explain"].keys() == {"binding", "assumptions", "knobs"}
    slopes = {entry["path"]: entry["value"] for entry in done.document["elasticity"]}
    assert -1 < slopes["cluster.accelerator.peaks"] < 0
    assert "What binds" in cli("project", job_file, "--explain").out


def test_the_effective_job_can_be_explained_from_stdin(cli, job_file, monkeypatch):
    with open(job_file) as file:
        monkeypatch.setattr("sys.stdin", io.StringIO(file.read()))
    assert (
        cli("project", "-", "--explain", "--json").document == cli("project", job_file, "--explain", "--json").document
    )


def test_warnings_go_to_stderr_beside_a_document(cli, job_file):
    noisy = cli("project", job_file, "--num-accelerators", "16", "--set", "plan.parallel.dp=4", "--json")
    assert noisy.document["warnings"] == [line.removeprefix("warning: ") for line in noisy.err.splitlines()]
    assert cli("project", job_file, "--json", "--quiet").err == ""


def test_memory_is_the_memory_half_of_project(cli, job_file):
    whole = cli("project", job_file, "--json").document
    half = cli("memory", job_file, "--json").document
    assert half == {key: whole[key] for key in ("memory", "parameters", "origin", "warnings")}


def test_the_largest_values_fit_and_the_next_do_not(cli, job_file):
    found = cli("memory", job_file, "--max", "micro_batch_size,sequence_length", "--json").document["max"]
    micro, length = found["micro_batch_size"], found["sequence_length"]

    def verdict(**sizes):
        pairs = [f"--{name.replace('_', '-')}={value}" for name, value in sizes.items()]
        return cli("memory", job_file, *pairs, "--json").document["memory"]["verdict"]

    assert verdict(micro_batch_size=micro, global_batch_size=16 * 2 * micro) == "fits"
    assert verdict(micro_batch_size=micro + 1, global_batch_size=16 * 2 * (micro + 1)) != "fits"
    assert verdict(sequence_length=length) == "fits"
    assert verdict(sequence_length=length + 128) != "fits"


def test_a_value_that_cannot_be_searched(cli, job_file):
    done = cli("memory", job_file, "--max", "tp", "--json")
    assert done.code == 2
    assert done.document["error"]["faults"][0]["path"] == "--max"


@pytest.mark.parametrize("bound", [0, 1, 2, 3, 7, 8, 1000])
def test_bisection_finds_the_bound(bound):
    assert last_true(lambda n: n <= bound) == bound


def test_compare_files_and_vary_agree(cli, job_file, tmp_path):
    varied = cli("compare", job_file, "--vary", "plan.batch.micro_batch_size=1,2,4", "--json").document
    assert [(delta["from"], delta["to"]) for delta in varied["deltas"]] == [(0, 1), (0, 2)]
    for delta in varied["deltas"]:
        assert sum(delta["terms"].values()) == pytest.approx(delta["step_time"], abs=1e-9)
    other = tmp_path / "other.yaml"
    with open(job_file) as file:
        other.write_text(file.read().replace("micro_batch_size: 1", "micro_batch_size: 2"))
    pair = cli("compare", job_file, str(other), "--json").document
    assert pair["deltas"][0]["step_time"] == varied["deltas"][0]["step_time"]
    assert "micro_batch_size 4" in cli("compare", job_file, "--vary", "plan.batch.micro_batch_size=1,4").out


@pytest.mark.parametrize("arguments", [(), ("--vary", "plan.parallel.tp"), ("--vary", "plan.parallel.tp=2")])
def test_a_comparison_needs_two(cli, job_file, arguments):
    assert cli("compare", job_file, *arguments).code == 2


def test_check(cli, job_file):
    legal = cli("check", job_file, "--json")
    assert (legal.code, legal.document["legal"], legal.document["violations"]) == (0, True, [])
    illegal = cli("check", job_file, "--tp", "3", "--json")
    assert (illegal.code, illegal.document["legal"]) == (1, False)
    assert {"rule", "values", "repairs"} <= illegal.document["violations"][0].keys()
    assert cli("check", job_file, "--tp", "3").out.startswith("ILLEGAL")


def test_a_repair_of_check_repairs(cli, job_file):
    violations = cli("check", job_file, "--set", "plan.batch.global_batch_size=33", "--json").document["violations"]
    changes = violations[0]["repairs"][0]["changes"]
    sets = [word for path, value in changes.items() for word in ("--set", f"{path}={value}")]
    assert cli("check", job_file, *sets, "--json").document["legal"] is True


def test_an_illegal_job_is_bad_input_elsewhere(cli, job_file):
    for verb in ("project", "memory"):
        done = cli(verb, job_file, "--tp", "3", "--json")
        assert done.code == 2
        assert done.document["error"]["kind"] == "legality"


def test_schedule(cli):
    document = cli("schedule", "1f1b", "--stages", "4", "--microbatches", "8", "--json").document
    assert (document["makespan"], document["peak_in_flight"]) == (33.0, [4, 3, 2, 1])
    assert document["bubble_fraction"] == pytest.approx(3 / 11)
    assert document["orders"][3][:4] == ["F0.0", "BW0.0", "F1.0", "BW1.0"]
    assert set(document) == {
        "name", "stages", "microbatches", "virtual_stages", "makespan", "bubble_fraction", "peak_in_flight", "orders",
    }  # fmt: skip


def test_interleaving_divides_a_stage(cli):
    arguments = (
        "schedule",
        "interleaved_1f1b",
        "--stages",
        "4",
        "--microbatches",
        "8",
        "--virtual-stages",
        "2",
        "--json",
    )
    document = cli(*arguments).document
    assert document["makespan"] == 28.5
    assert document["peak_in_flight"] == [5.5, 4.5, 3.5, 2.5]


def test_orders_printed_are_orders_read(cli, tmp_path):
    printed = cli("schedule", "1f1b", "--stages", "3", "--microbatches", "5", "--json")
    orders = tmp_path / "orders.json"
    orders.write_text(printed.out)
    again = cli(
        "schedule", "custom", "--stages", "3", "--microbatches", "5", "--orders", str(orders), "--json"
    ).document
    assert again["makespan"] == printed.document["makespan"]
    assert again["orders"] == printed.document["orders"]


def test_list_and_show(cli):
    kinds = cli("list", "--json").document
    assert set(kinds) == {"accelerators", "clusters", "models", "schedules", "software"}
    assert all(kinds.values())
    assert cli("list", "schedules").out.split() == kinds["schedules"]
    assert cli("show", "llama3.1-70b", "--json").document["num_layers"] == 80
    assert cli("show", "h100", "--json").document == cli("show", "h100-sxm-80gb", "--json").document
    assert "source" in cli("show", "megatron-core").out
    assert cli("show", "zbv", "--json").document["chunks_per_stage"] == 2


def test_every_entry_can_be_shown(cli):
    for names in cli("list", "--json").document.values():
        for name in names:
            assert cli("show", name).code == 0


@pytest.mark.parametrize("kind", ["job", "record", "accelerator"])
def test_schemas(cli, kind):
    schema = cli("show", "schema", kind).document
    assert schema["type"] == "object"
    assert schema["properties"]


def test_a_schema_that_is_not_there(cli):
    assert cli("show", "schema", "dream").code == 2


RECORD = """
- id: one
  job:
    model: llama3.1-8b
    cluster: {accelerator: h100-sxm-80gb, num_accelerators: 8, scale_out: {kind: none}}
    software: {framework: megatron-core, date: 2025-02}
    plan:
      parallel: {tp: 2}
      batch: {micro_batch_size: 1, global_batch_size: 32, sequence_length: 4096}
  measured: {step_time: 2 s}
  bar: normal
  source: {title: made up}
- id: broken
  job: {model: no-such-model}
  measured: {step_time: 2 s}
  bar: normal
  source: {title: made up}
"""


def test_validate(cli, tmp_path):
    records = tmp_path / "records.yaml"
    records.write_text(RECORD)
    done = cli("validate", str(records), "--group-by", "cluster.accelerator", "--json")
    assert done.code == 0
    assert set(done.document) == {"records", "groups", "series", "fits"}
    good, bad = done.document["records"]
    assert good["error"] == pytest.approx(good["projected"] / good["measured"] - 1)
    assert bad["skipped"]
    assert done.document["groups"]["speed"]["cluster.accelerator=h100-sxm-80gb"]["n"] == 1
    assert "furthest off" in cli("validate", str(records)).out


def test_validate_against_a_better_table_says_no(cli, tmp_path):
    records, table = tmp_path / "records.yaml", tmp_path / "table.json"
    records.write_text(RECORD)
    document = cli("validate", str(records), "--json").document
    table.write_text(json.dumps(document))
    assert cli("validate", str(records), "--against", str(table)).code == 0
    document["groups"]["speed"]["all"]["mape"] = 0.0
    table.write_text(json.dumps(document))
    done = cli("validate", str(records), "--against", str(table), "--json")
    assert done.code == 1
    assert "groups.speed.all.mape" in done.err


OWN_RECORD = """
- id: own
  job: {job}
  measured: {{step_time: {seconds} s}}
  bar: trend
  source: {{title: a run of our own}}
"""


@pytest.fixture
def own_record(cli, job_file, tmp_path):
    """A run of the job of ``job_file`` that took 1.2 times the projected step."""
    document = cli("project", job_file, "--json").document
    path = tmp_path / "own.yaml"
    path.write_text(OWN_RECORD.format(job=json.dumps(document["job"]), seconds=1.2 * document["step_time"]))
    return str(path)


def test_an_interval_surrounds_the_step(cli, job_file):
    found = cli("project", job_file, "--json").document
    low, high = found["uncertainty"]["step_time"]
    assert found["uncertainty"]["level"] == 0.8
    assert low < found["step_time"] < high


def test_own_runs_anchor_a_projection(cli, job_file, own_record):
    plain = cli("project", job_file, "--json").document
    done = cli("project", job_file, "--anchor", own_record, "--explain", "--json")
    found = done.document
    assert found["step_time"] == pytest.approx(1.2 * plain["step_time"], rel=0.04)
    assert found["provenance"] == {"measured": 0, "interpolated": 0, "anchored": 1, "simulated": 0}
    low, high = found["uncertainty"]["step_time"]
    assert low < 1.2 * plain["step_time"] < high
    assert high / low < 1.2
    assert "anchored on 1 runs" in done.err


def test_an_anchor_of_another_part_is_refused(cli, job_file, own_record):
    done = cli("project", job_file, "--accelerator", "h200-sxm-141gb", "--anchor", own_record)
    assert done.code == 2
    assert "same accelerator" in done.err


def test_a_job_against_a_record_says_what_could_explain_the_gap(cli, job_file, own_record):
    found = cli("compare", job_file, own_record, "--json").document
    step = found["jobs"][0]["step_time"]
    assert found["gap"] == pytest.approx(0.2 * step)
    compute = next(part for part in found["parts"] if part["term"] == "compute")
    assert compute["needed"] == pytest.approx(compute["now"] + 0.2 * step)
    assert [item["spreads"] for item in found["constants"]] == sorted(item["spreads"] for item in found["constants"])
    assert "stream.slowdown" in cli("compare", job_file, own_record).out


def test_assumptions_are_listed_by_their_effect(cli, job_file):
    found = cli("project", job_file, "--explain", "--json").document["explain"]
    effects = [abs(item["effect"]) for item in found["assumptions"]]
    assert effects == sorted(effects, reverse=True)
    assert all(item["term"] for item in found["binding"])


def test_calibrate_writes_constants_that_the_catalog_reads(cli, job_file, tmp_path):
    document = cli("project", job_file, "--json").document
    folder = tmp_path / "records"
    folder.mkdir()
    for name, share in (("one", 1.1), ("two", 1.2)):
        text = OWN_RECORD.format(job=json.dumps(document["job"]), seconds=share * document["step_time"])
        (folder / f"{name}.yaml").write_text(text.replace("id: own", f"id: {name}"))
    done = cli("calibrate", str(folder), "--out", str(tmp_path), "--json")
    assert done.code == 0
    assert {row["id"] for row in done.document["records"]} == {"one", "two"}
    written = (tmp_path / "simulated.yaml").read_text()
    shipped = data_file("calibration", "simulated.yaml").read_text()
    assert written.count("\n") == shipped.count("\n")
    assert json.loads((tmp_path / "errors.json").read_text())["groups"]["all"]["n"] == 2


def test_calibrate_wants_two_sources(cli, own_record):
    done = cli("calibrate", own_record)
    assert done.code == 2
    assert "two files" in done.err
