"""A profile of another device, framework or time is said to be one; a fitting one passes in silence."""

from __future__ import annotations

import pytest

from windtunnel.catalog.software import framework_names
from windtunnel.cost.profile import Profile
from windtunnel.cost.suits import LAYERS_OF, warnings


def profile(device: str = "NVIDIA H100 80GB HBM3", layers: str | None = None, date: str = "2025-09-01") -> Profile:
    software = (("torch", "2.8.0"), *((("layers", layers),) if layers else ()))
    return Profile(device=(("name", device),), software=software, method=(("date", date),), entries=())


def test_what_fits_passes_in_silence(make_job):
    job = make_job()  # an H100 under Megatron-core of 2025-06
    assert warnings(job, profile()) == ()
    assert warnings(job, profile(layers="megatron-core 0.16.1")) == ()


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (profile(device="NVIDIA A100-SXM4-80GB"), "measured on NVIDIA A100-SXM4-80GB, the job runs on h100-sxm-80gb"),
        (profile(device="NVIDIA GH200 480GB"), "NVIDIA GH200 480GB"),
        (profile(layers="transformers 5.24.0"), "layers are those of transformers, the job runs megatron-core"),
        (profile(date="2026-11-30"), "measured in 2026-11 with torch 2.8.0, the job's software is of 2025-06"),
        (profile(date="2023-01-01"), "measured in 2023-01"),
    ],
)
def test_what_does_not_fit_is_said(make_job, found: Profile, words: str):
    (sentence,) = warnings(make_job(), found)
    assert words in sentence


def test_everything_that_does_not_fit_is_said(make_job):
    assert len(warnings(make_job(), profile(device="AMD EPYC", layers="torchtitan 0.3.0", date="2023-01-01"))) == 3


def test_frameworks_are_those_of_the_catalog():
    assert set(LAYERS_OF) <= set(framework_names())
