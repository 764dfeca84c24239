"""Nothing a user types ends in a traceback; what is wrong is named, on stderr or as a document."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from windtunnel.cli import app

COMMAND = [sys.executable, "-c", "from windtunnel.cli import main; main()"]

BAD = [
    ("project",),
    ("project", "no-such-file.yaml"),
    ("project", "/"),
    ("project", "--model", "no-such-model", "--num-accelerators", "8"),
    ("project", "JOB", "--tp", "x"),
    ("project", "JOB", "--tp", "0"),
    ("project", "JOB", "--set", "plan.parallel.tp"),
    ("project", "JOB", "--set", "plan.no.such=1"),
    ("project", "JOB", "--unknown-flag"),
    ("project", "JOB", "one-too-many"),
    ("project", "JOB", "--schedule", "no-such-schedule"),
    ("memory", "JOB", "--max", "tp"),
    ("compare", "JOB"),
    ("compare", "JOB", "JOB", "--vary", "plan.parallel.tp=1,2"),
    ("check", "no-such-file.yaml"),
    ("schedule", "no-such-schedule", "--stages", "2", "--microbatches", "2"),
    ("schedule", "1f1b", "--stages", "0", "--microbatches", "2"),
    ("schedule", "1f1b", "--stages", "2"),
    ("schedule", "1f1b", "--stages", "2", "--microbatches", "2", "--forward", "nan"),
    ("schedule", "custom", "--stages", "2", "--microbatches", "2"),
    ("schedule", "custom", "--stages", "2", "--microbatches", "2", "--orders", "no-such-file"),
    ("validate",),
    ("validate", "no-such-file.yaml"),
    ("validate", "JOB", "--against", "JOB"),
    ("show",),
    ("show", "no-such-name"),
    ("show", "schema", "no-such-schema"),
    ("list", "no-such-kind"),
    ("no-such-verb",),
]


@pytest.mark.parametrize("arguments", BAD, ids=" ".join)
def test_bad_input_is_two(cli, job_file, arguments):
    words = [job_file if word == "JOB" else word for word in arguments]
    done = cli(*words)
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith("error: ")
    assert "Traceback" not in done.err


@pytest.mark.parametrize("arguments", BAD, ids=" ".join)
def test_bad_input_as_a_document(cli, job_file, arguments):
    words = [job_file if word == "JOB" else word for word in arguments]
    error = cli(*words, "--json").document["error"]
    assert error["kind"] in ("format", "legality", "missing")
    for fault in error["faults"]:
        assert fault.keys() == {"path", "value", "rule", "remedy"}
        assert fault["path"]
        assert fault["rule"]
        assert fault["remedy"]


def test_all_faults_at_once(cli, tmp_path):
    job = tmp_path / "bad.yaml"
    job.write_text("modle: x\ncluster: {accelerator: h100, num_accelerators: many}\nplan: {batch: {}}\n")
    assert len(cli("project", str(job), "--json").document["error"]["faults"]) >= 4


def test_a_defect_is_named_in_one_line(cli, job_file, monkeypatch):
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("float division\nby zero")

    monkeypatch.setattr("windtunnel.projection.project.project", broken)
    done = cli("project", job_file)
    assert done.code == 2
    assert len(done.err.splitlines()) == 1
    assert "ZeroDivisionError" in done.err
    assert "please report it" in done.err
    assert cli("project", job_file, "--json").document["error"]["kind"] == "internal"


def test_interrupted_is_130(cli, monkeypatch):
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(app, "build", interrupted)
    assert cli("list").code == 130


def test_a_closed_pipe_is_quiet():
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [*COMMAND, "list", "--json"], stdout=writer, stderr=subprocess.PIPE, text=True, check=False
        )
    finally:
        os.close(writer)
    assert done.stderr == ""
    assert done.returncode == 141


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C"}])
def test_any_terminal(environment):
    arguments = ["schedule", "1f1b", "--stages", "2", "--microbatches", "2"]
    done = subprocess.run([*COMMAND, *arguments], env={**os.environ, **environment}, capture_output=True, check=False)
    assert done.returncode == 0
    assert b"\x1b" not in done.stdout
    assert done.stderr == b""


def test_colour_only_where_asked():
    arguments = [*COMMAND, "schedule", "1f1b", "--stages", "2", "--microbatches", "2"]
    forced = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | {"FORCE_COLOR": "1"}
    coloured = subprocess.run(arguments, env=forced, capture_output=True, check=True)
    plain = subprocess.run([*arguments, "--no-color"], env=forced, capture_output=True, check=True)
    assert b"\x1b[3" in coloured.stdout
    assert b"\x1b[3" not in plain.stdout


def test_version_and_help(cli):
    import windtunnel

    assert cli("--version").out.strip() == windtunnel.__version__
    assert "project" in cli("--help").out
    for verb in app.VERBS:
        done = cli(verb, "--help")
        assert done.code == 0
        assert "--json" in done.out


@pytest.mark.parametrize("flag", ["--html"])
def test_no_flag_is_offered_that_does_nothing(cli, flag):
    assert flag not in " ".join(cli(verb, "--help").out for verb in app.VERBS).split()
