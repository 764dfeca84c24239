"""``windtunnel fit``: the document, the screen, and messages that are none."""

from __future__ import annotations

import pytest

MESSAGE = (
    "CUDA out of memory. Tried to allocate 1.96 GiB. GPU 0 has a total capacity of 79.11 GiB of which 1.20 GiB is "
    "free. Including non-PyTorch memory, this process has 77.90 GiB memory in use. Of the allocated memory 73.15 GiB "
    "is allocated by PyTorch, and 2.10 GiB is reserved by PyTorch but unallocated."
)
TOO_LARGE = ("--micro-batch-size", "8", "--sequence-length", "8192")


def test_the_document(cli, job_file):
    done = cli("fit", job_file, *TOO_LARGE, "--json")
    assert done.code == 0
    assert set(done.document) == {"verdict", "changes"}
    assert done.document["verdict"] == "oom"
    first = done.document["changes"][0]
    assert set(first) == {"changes", "peak_device", "step_time", "price"}


def test_a_change_of_the_document_makes_it_fit(cli, job_file):
    for item in cli("fit", job_file, *TOO_LARGE, "--json").document["changes"][:3]:
        path, value = next(iter(item["changes"].items()))
        if len(item["changes"]) > 1 or isinstance(value, dict):
            continue
        base = [word for word in TOO_LARGE if path != "plan.batch.micro_batch_size"] or TOO_LARGE[2:]
        memory = cli("memory", job_file, *base, "--set", f"{path}={value}", "--json").document["memory"]
        assert memory["verdict"] == "fits"
        assert memory["peak_device"] == item["peak_device"]


def test_a_job_that_fits(cli, job_file):
    assert cli("fit", job_file, "--json").document == {"verdict": "fits", "changes": []}
    assert "nothing has to change" in cli("fit", job_file).out


def test_a_message_is_set_beside_the_plan(cli, job_file):
    document = cli("fit", job_file, "--error", MESSAGE, "--json").document
    error = document["error"]
    assert error["exceeded"] == "tensors"
    assert error["requested"] == pytest.approx(1.96 * 2**30)
    assert {item["class"] for item in error["classes"]} >= {"tensors", "fragmentation", "outside the allocator"}
    assert document["verdict"] == "fits"
    assert document["changes"], "what the run needed beyond the plan has to be found somewhere"


def test_the_screen_is_at_most_a_hundred_columns(cli, job_file):
    for words in ((*TOO_LARGE,), ("--error", MESSAGE), (*TOO_LARGE, "--error", MESSAGE)):
        assert max(map(len, cli("fit", job_file, *words).out.splitlines())) <= 100


def test_another_text_is_bad_input(cli, job_file):
    done = cli("fit", job_file, "--error", "it stopped", "--json")
    assert done.code == 2
    assert done.document["error"]["faults"][0]["path"] == "--error"


SMALLER = (
    "HIP out of memory. Tried to allocate 576.00 MiB (GPU 3; 15.98 GiB total capacity; 15.10 GiB already allocated; "
    "0 bytes free; 15.84 GiB reserved in total by PyTorch)"
)


def test_changes_have_to_fit_the_device_of_the_message(cli, job_file):
    """A plan for 80 GB that was started on 16: the verdict, and what helps, are those of the 16."""
    document = cli("fit", job_file, "--error", SMALLER, "--json").document
    assert document["verdict"] == "oom"
    assert document["error"]["plan_too_large"]
    assert all(item["peak_device"] < 16 * 2**30 for item in document["changes"])
    screen = cli("fit", job_file, "--error", SMALLER).out
    assert "the device has 16.0 GiB; the plan counts on 79.2 GiB" in screen
    assert "nothing has to change" not in screen
    assert "it asked for 576 MiB" in screen
