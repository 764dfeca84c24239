"""calibrate PROFILE: the shares an accelerator sustains come back, and its data file is written with their source."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from windtunnel.catalog.files import load_data, parse_yaml
from windtunnel.catalog.profiles import write_profile
from windtunnel.cost.kernels.gemm import gemm
from windtunnel.cost.kernels.stream import stream
from windtunnel.cost.profile import Entry, Profile
from windtunnel.cost.profile_keys import collective_key, op_key
from windtunnel.ops.op import Gemm, Stream

METHOD = (("date", "2026-11-30"),)


def entry(key, seconds: float) -> Entry:
    return Entry(key=key, seconds=seconds, low=seconds, high=seconds, repeats=9)


@pytest.fixture
def profile_file(tmp_path, make_job):
    """What an H100 with other shares would take, and a link of 100 GB/s with 10 µs of latency."""
    job = make_job()
    part = job.cluster.accelerator
    other = replace(part, gemm=replace(part.gemm, bf16=0.6), memory_bound=0.7)
    gemms = [
        Gemm(name="gemm", phase="F", m=m, n=n, k=4096, compute="bf16") for m, n in product((4096, 8192), (4096, 14336))
    ]
    passes = [Stream(name="mlp_norm", phase="F", bytes_moved=size, eager=True) for size in (2e9, 4e9)]
    entries = [entry(op_key(op), gemm(op, other, job.constants.gemm).seconds) for op in gemms]
    entries += [entry(op_key(op), stream(op, other, job.constants.stream).seconds) for op in passes]
    sizes = (2.0**20, 2.0**24)
    entries += [entry(collective_key("all_gather", 2, 2, size), 1e-5 + size / 2 / 100e9) for size in sizes]
    profile = Profile(device=(("name", "NVIDIA H100 80GB HBM3"),), software=(), method=METHOD, entries=tuple(entries))
    path = tmp_path / "profile.yaml"
    write_profile(path, profile)
    return str(path)


def test_figures_are_fitted_and_shown(cli, profile_file):
    done = cli("calibrate", profile_file, "--accelerator", "h100-sxm-80gb", "--json")
    assert done.code == 0
    fits = {fit["path"]: fit for fit in done.document["fits"]}
    assert fits["gemm.bf16"]["new"] == pytest.approx(0.6, rel=0.01)
    assert fits["memory_bound"]["new"] == pytest.approx(0.7, rel=0.01)
    (curve,) = done.document["curves"]
    assert curve["bandwidth"] == pytest.approx(100e9)
    screen = cli("calibrate", profile_file, "--accelerator", "h100-sxm-80gb").out
    assert "gemm.bf16" in screen
    assert "all_gather" in screen


def test_the_data_file_is_written_whole(cli, profile_file, tmp_path):
    before = load_data("accelerators", "h100-sxm-80gb.yaml")
    assert cli("calibrate", profile_file, "--accelerator", "h100-sxm-80gb", "--out", str(tmp_path)).code == 0
    written = (tmp_path / "h100-sxm-80gb.yaml").read_text()
    after = parse_yaml(written, "written")
    assert after["gemm"]["bf16"] == pytest.approx(0.6, rel=0.01)
    assert after["gemm"]["fp8"] == before["gemm"]["fp8"]
    assert after["peaks"] == before["peaks"]
    assert "on 4 entries" in after["source"]["gemm"]
    assert after["source"]["peaks"] == before["source"]["peaks"]
    assert len(after["scale_up"]["fits"]) == len(before["scale_up"]["fits"])


def test_a_device_of_several_parts_needs_a_name(cli, profile_file):
    done = cli("calibrate", profile_file)
    assert done.code == 2
    assert "--accelerator" in done.err


def test_nothing_to_fit_is_said(cli, tmp_path):
    path = tmp_path / "empty.yaml"
    write_profile(path, Profile(device=(("name", "H100"),), software=(), method=METHOD, entries=()))
    done = cli("calibrate", str(path), "--accelerator", "h100-sxm-80gb")
    assert done.code == 2
    assert "standard" in done.err
