"""Shares of an accelerator's peak come back from seconds made with other shares."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from windtunnel.calibration.from_profile import fit_accelerator
from windtunnel.cost.kernels.attention import attention
from windtunnel.cost.kernels.gemm import gemm
from windtunnel.cost.profile import Entry, Profile
from windtunnel.cost.profile_keys import op_key
from windtunnel.ops.op import Attention, Gemm


def entries(accelerator, job, ops):
    for op in ops:
        if isinstance(op, Gemm):
            seconds = gemm(op, accelerator, job.constants.gemm).seconds
        else:
            seconds = attention(op, accelerator, job.software, job.constants.attention).seconds
        yield Entry(key=op_key(op), seconds=seconds, low=seconds, high=seconds, repeats=9)


def test_shares_are_found_again(make_job):
    job = make_job()
    part = job.cluster.accelerator
    gemms = [
        Gemm(name="gemm", phase="F", m=m, n=n, k=4096, compute="bf16") for m, n in product((4096, 8192), (4096, 14336))
    ]
    cores = [
        Attention(name="a", phase=phase, batch=1, heads=32, sequence=16384, qk_dim=128, v_dim=128)
        for phase in ("F", "B")
    ]
    kernel = replace(part.attention[0], forward=0.5, backward=0.6)
    other = replace(part, gemm=replace(part.gemm, bf16=0.6), attention=(kernel,))
    profile = Profile(device=(), software=(), method=(), entries=tuple(entries(other, job, [*gemms, *cores])))
    fits = {fit.path: fit for fit in fit_accelerator(part, job.software, job.constants, profile)}
    assert fits["gemm.bf16"].new == pytest.approx(0.6, rel=0.01)
    assert fits["attention.forward"].new == pytest.approx(0.5, rel=0.01)
    assert fits["attention.backward"].new == pytest.approx(0.6, rel=0.01)
    assert all(fit.residual_after < 0.02 < fit.residual_before for fit in fits.values())


def test_nothing_measured_nothing_fitted(make_job):
    job = make_job()
    empty = Profile(device=(), software=(), method=(), entries=())
    assert fit_accelerator(job.cluster.accelerator, job.software, job.constants, empty) == ()
