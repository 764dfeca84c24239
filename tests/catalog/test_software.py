"""The software catalog: every framework at every date is complete, cited, valid and monotone in time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_args

import pytest

from windtunnel.catalog import software
from windtunnel.catalog.format import read_section
from windtunnel.catalog.job_format import JobFile
from windtunnel.catalog.software import framework_names, software_profile, trait_sources
from windtunnel.errors import FormatError, MissingError
from windtunnel.job.software import MEGATRON_FAMILY, AttentionBackend, Framework, SoftwareProfile, Traits

IN_RECORDS = [
    ("automodel", "2025-10"), ("llm-foundry", "2023-10"), ("llm-foundry", "2024-01"), ("maxtext", "2023-12"),
    ("maxtext", "2025-10"), ("megatron-bridge", "2025-09"), ("megatron-bridge", "2026-08"),
    ("megatron-core", "2021-04"), ("megatron-core", "2023-06"), ("megatron-core", "2026-08"),
    ("nanotron", "2024-07"), ("nemo", "2024-03"), ("nemo", "2025-04"), ("primus", "2025-10"), ("primus", "2026-08"),
    ("torchtitan", "2024-12"),
    ("torchtitan", "2026-08"),
]  # fmt: skip
BY_FRAMEWORK = (
    "plan.sharding.strategy", "plan.overlap.grad_reduce", "plan.overlap.param_gather", "plan.overlap.tp_comm",
    "plan.overlap.ep_comm", "plan.overlap.p2p", "plan.overlap.cp_comm", "plan.overlap.delay_wgrad",
    "plan.moe.permute_fusion", "plan.loss.implementation", "plan.loss.fused_cross_entropy", "software.attention",
    "software.compiled",
)  # fmt: skip
VENDORS = {"nvidia", "amd", "google", "intel", "aws"}


def defaults(profile: SoftwareProfile) -> dict[str, Any]:
    return {default.path: default.value for default in profile.defaults}


def every_profile() -> list[SoftwareProfile]:
    """Each framework at the first month of each of its entries, and at its newest."""
    months = {name: [entry.since for entry in software._read(name).entries] for name in framework_names()}
    return [software_profile(name, month) for name in framework_names() for month in [*months[name], None]]


def test_all_eleven_frameworks_of_the_job_format_are_known() -> None:
    assert set(framework_names()) == set(get_args(Framework))
    assert len(framework_names()) == 11


@pytest.mark.parametrize(("framework", "date"), IN_RECORDS)
def test_every_framework_and_date_on_record_resolves(framework: str, date: str) -> None:
    profile = software_profile(framework, date)
    assert (profile.framework, profile.date) == (framework, date)


@pytest.mark.parametrize("profile", every_profile(), ids=lambda profile: f"{profile.framework}-{profile.date}")
def test_a_profile_is_complete_and_cited(profile: SoftwareProfile) -> None:
    assert set(BY_FRAMEWORK) <= set(defaults(profile))
    assert len({default.path for default in profile.defaults}) == len(profile.defaults)
    assert all(len(default.source) > 3 for default in profile.defaults)
    sources = trait_sources(profile.framework, profile.date)
    assert sources.keys() == {item.name for item in fields(Traits)}
    assert all(len(source) > 3 for source in sources.values())


@pytest.mark.parametrize("profile", every_profile(), ids=lambda profile: f"{profile.framework}-{profile.date}")
def test_every_default_is_a_value_of_the_job_format(profile: SoftwareProfile) -> None:
    nested: dict[str, Any] = {
        "model": "any", "cluster": {"accelerator": "any", "num_accelerators": 8},
        "plan": {"batch": {"micro_batch_size": 1, "global_batch_size": 8, "sequence_length": 8}},
    }  # fmt: skip
    for path, value in defaults(profile).items():
        if path == "software.attention":
            continue
        *sections, key = path.split(".")
        place = nested
        for section in sections:
            place = place.setdefault(section, {})
        place[key] = value
    read_section(JobFile, nested)


@pytest.mark.parametrize("profile", every_profile(), ids=lambda profile: f"{profile.framework}-{profile.date}")
def test_auto_attention_is_a_backend_for_every_vendor(profile: SoftwareProfile) -> None:
    backends = defaults(profile)["software.attention"]
    assert isinstance(backends, Mapping)
    assert backends.keys() == VENDORS | {"other"}
    assert set(backends.values()) <= set(get_args(AttentionBackend))


def test_the_megatron_family_pads_splits_and_keeps_alike() -> None:
    for name in MEGATRON_FAMILY:
        traits = software_profile(name).traits
        assert (traits.kept_tensors, traits.etp_follows_tp) == ("megatron", True)
        assert (traits.vocab_multiple, traits.vocab_multiple_times_tp) == (128, True)
        assert (traits.loss_kept_bytes, traits.loss_peak_bytes, traits.reserved_ratio) == (4, 6, 1.04)
    assert not software_profile("torchtitan").traits.etp_follows_tp


def test_kept_tensors_and_fitted_factors_are_those_of_the_models() -> None:
    at_newest = {name: software_profile(name).traits for name in framework_names()}
    kept = {name: traits.kept_tensors for name, traits in at_newest.items()}
    assert kept["nanotron"] == "nanotron"
    assert kept["maxtext"] == "xla"
    assert {kept[name] for name in ("torchtitan", "automodel", "pytorch-fsdp", "llm-foundry")} == {"torchtitan"}
    assert [at_newest[name].attention_factor for name in ("llm-foundry", "torchtitan", "nanotron")] == [0.5, 1.0, 1.0]
    assert [at_newest[name].host_era for name in ("megatron-core", "primus", "maxtext")] == ["modern", "rocm", "xla"]
    assert at_newest["nanotron"].layer_balance == "cost"


def test_generations_change_at_their_month() -> None:
    assert software_profile("megatron-core", "2023-12").traits.host_era == "eager"
    assert software_profile("megatron-core", "2024-01").traits.host_era == "modern"
    assert defaults(software_profile("megatron-core", "2023-12"))["software.attention"]["nvidia"] == "unfused"
    assert defaults(software_profile("megatron-core", "2024-01"))["software.attention"]["nvidia"] == "te-fused"
    assert software_profile("torchtitan", "2025-02").traits.loss_peak_bytes == 12
    assert software_profile("torchtitan", "2025-03").traits.loss_peak_bytes == 8
    # what a later entry does not name stays
    assert software_profile("torchtitan", "2025-03").traits.unsharded_under_pipeline
    assert defaults(software_profile("megatron-core", "2026-01"))["plan.sharding.strategy"] == "ddp"


def test_no_date_means_the_newest_known_one() -> None:
    profile = software_profile("megatron-core")
    assert profile.date == "2026-08"
    assert profile is software_profile("megatron-core", "2026-08")


def test_shipped_flags_are_the_defaults() -> None:
    """Megatron-LM's distributed optimizer and overlaps are opt-in; Bridge and NeMo recipes turn them on."""
    core, bridge = defaults(software_profile("megatron-core")), defaults(software_profile("megatron-bridge"))
    assert (core["plan.sharding.strategy"], core["plan.overlap.grad_reduce"]) == ("ddp", False)
    assert (bridge["plan.sharding.strategy"], bridge["plan.overlap.grad_reduce"]) == ("zero1", True)
    titan = defaults(software_profile("torchtitan"))
    assert (titan["plan.sharding.strategy"], titan["plan.precision.params"]) == ("fsdp", "fp32")
    assert titan["plan.precision.grad_reduce"] == "fp32"
    assert defaults(software_profile("maxtext"))["plan.recompute.policy"] == "full"


@pytest.mark.parametrize(
    ("spelled", "name"), [("Megatron-LM", "megatron-core"), ("bridge", "megatron-bridge"), ("NeMo2", "nemo")]
)
def test_other_names_are_understood(spelled: str, name: str) -> None:
    assert software_profile(spelled).framework == name


def test_other_names_are_unique_and_shadow_none() -> None:
    files: list[Any] = [software.load_data("software", f"{name}.yaml") for name in framework_names()]
    aliases = [alias for file in files for alias in file["aliases"]]
    assert len(set(aliases)) == len(aliases)
    assert not set(aliases) & set(framework_names())


def test_what_is_not_known_is_said() -> None:
    with pytest.raises(MissingError, match="torchtitan"):
        software_profile("megatorn")
    with pytest.raises(MissingError, match="2024-01"):
        software_profile("torchtitan", "2019-01")
    for wrong in ("2025", "2025-13", "newest", "2025-02-01", ""):
        with pytest.raises(FormatError, match="like 2025-02"):
            software_profile("torchtitan", wrong)


GOOD_TRAITS = {item.name: {"value": item.default, "source": "test"} for item in fields(Traits)}
GOOD: dict[str, Any] = {
    "framework": "x", "aliases": [], "newest": "2025-01",
    "entries": [{
        "since": "2024-01", "traits": GOOD_TRAITS, "defaults": {"plan.optimizer": {"value": "adam", "source": "s"}},
    }],
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"extra": 1}, "framework, aliases"),
        ({"framework": "y"}, "named after"),
        ({"newest": "2023-01"}, "ascend"),
        ({"entries": [{"since": "2024-01", "traits": {}}]}, "every trait"),
        ({"entries": [{"since": "2024-01"}]}, "defaults, recipes or traits"),
        ({"entries": [{"since": "2024-01", "traits": {"colour": {"value": 1, "source": "s"}}}]}, "colour"),
        ({"entries": [{"since": "2024-01", "traits": {"host_era": {"value": True, "source": "s"}}}]}, "host_era"),
        ({"entries": [{"since": "2024-01", "traits": {"vocab_multiple": {"value": 1.5, "source": "s"}}}]}, "vocab_mul"),
        (
            {"entries": [{"since": "2024-01", "traits": {"layer_balance": {"value": "odd", "source": "s"}}}]},
            "layer_bal",
        ),
        ({"entries": [{"since": "2024-01", "defaults": {"plan.optimizer": {"value": "adam"}}}]}, "a source"),
        ({"entries": [{"since": "2024-01", "defaults": {"plan.optimizer": {"value": 1, "source": ""}}}]}, "a source"),
        ({"entries": [{"since": "2024-01", "defaults": {"model.name": {"value": 1, "source": "s"}}}]}, "model.name"),
    ],
)
def test_a_malformed_file_is_refused(monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], words: str) -> None:
    monkeypatch.setattr(software, "load_data", lambda *_: {**GOOD, **change})
    with pytest.raises(FormatError, match=words):
        software._read.__wrapped__("x")


def test_a_well_formed_file_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(software, "load_data", lambda *_: GOOD)
    assert software._read.__wrapped__("x").entries[0].defaults["plan.optimizer"].value == "adam"
