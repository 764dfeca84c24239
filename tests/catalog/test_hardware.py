"""The hardware catalog: complete, sourced, consistent with the clock, and open to a job's own parts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.catalog import hardware
from windtunnel.catalog.hardware import at_power, custom_accelerator, find_accelerator
from windtunnel.errors import FormatError, MissingError

GIB = 2**30
IN_RECORDS = (
    "a100-sxm-40gb", "a100-sxm-80gb", "b200-180gb", "b300-288gb", "gb200-192gb", "gb300-288gb", "h100-sxm-80gb",
    "h100-sxm-96gb-hbm2e-500w", "h200-sxm-141gb", "mi300x", "mi355x", "tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e",
)  # fmt: skip
OTHERS = (
    "a100-pcie-80gb", "a800-sxm-80gb", "h100-pcie-80gb", "h100-nvl-94gb", "h800-sxm-80gb", "h20-sxm-96gb",
    "v100-sxm2-32gb", "l40s-48gb", "rtx4090-24gb", "mi250x-gcd", "mi325x", "mi350x", "tpu-v7x", "gaudi2", "gaudi3",
    "trainium2",
)  # fmt: skip
FLOP_PER_CLOCK = {
    "volta": 1024, "ampere": 2048, "hopper": 4096, "blackwell": 8192, "cdna2": 1024, "cdna3": 2048, "cdna4": 4096,
    "gaudi": 131072,
}  # fmt: skip
"""16-bit FLOP per clock of one unit (stas00/ml-engineering FMA table); a Gaudi unit is a 256 x 256 matrix engine."""
GROUPS = {
    "peaks", "compute_units", "hbm_capacity", "hbm_bandwidth", "scale_up", "system", "gemm", "attention",
    "memory_bound",
}  # fmt: skip


def test_the_catalog_holds_exactly_the_known_parts() -> None:
    assert set(hardware.accelerator_names()) == {*IN_RECORDS, *OTHERS}
    assert len(hardware.accelerator_names()) == 31


@pytest.mark.parametrize("name", [*IN_RECORDS, *OTHERS])
def test_every_value_group_has_a_source_and_a_sane_size(name: str) -> None:
    entry = find_accelerator(name)
    part, system = entry.accelerator, entry.system
    expected = GROUPS | ({"clock"} if entry.clock else set()) | ({"power"} if part.power else set())
    expected |= ({"fits"} if system.scale_up.fits else set()) | ({"set_points"} if entry.set_points else set())
    assert entry.source.keys() == expected
    assert all(len(source) > 3 for source in entry.source.values())
    assert part.name == name
    assert 10 * GIB < part.hbm_capacity < 300 * GIB
    assert part.peaks.half > 100e12
    assert part.gemm.bf16 * part.peaks.half > 60e12
    assert 1e-6 <= part.gemm.launch <= 10e-6
    assert system.scale_up.domain_size >= 2
    assert all(fit.bandwidth <= 1.25 * system.scale_up.bandwidth for fit in system.scale_up.fits)
    assert all(fit.ranks <= system.scale_up.domain_size for fit in system.scale_up.fits)


@pytest.mark.parametrize("name", [*IN_RECORDS, *OTHERS])
def test_peak_is_flop_per_clock_times_units_times_clock(name: str) -> None:
    entry = find_accelerator(name)
    part = entry.accelerator
    if part.architecture == "ada":
        per_clock = 1024 if name == "l40s-48gb" else 512  # GeForce halves the rate with fp32 accumulation
    else:
        per_clock = FLOP_PER_CLOCK.get(part.architecture, 0)
    if entry.clock is None or not per_clock:
        pytest.skip("no clock is known for the stated peak")
    assert per_clock * part.compute_units * entry.clock == pytest.approx(part.peaks.half, rel=0.013)


def test_fp8_is_twice_bf16_where_a_part_has_both_but_gaudi3() -> None:
    for name in hardware.accelerator_names():
        peaks = find_accelerator(name).accelerator.peaks
        if peaks.fp8 and peaks.bf16 and name not in ("gaudi3",):
            assert peaks.fp8 / peaks.bf16 == pytest.approx(2, rel=0.03)


@pytest.mark.parametrize(
    ("name", "gib"),
    [("h100-sxm-80gb", 79.18), ("h200-sxm-141gb", 139.8), ("b200-180gb", 178.35), ("mi300x", 191.98),
     ("gb200-192gb", 185.03), ("b300-288gb", 268.59), ("gb300-288gb", 277.55), ("l40s-48gb", 44.99)],
)  # fmt: skip
def test_capacity_is_what_the_driver_reports_not_the_label(name: str, gib: float) -> None:
    entry = find_accelerator(name)
    assert entry.accelerator.hbm_capacity == pytest.approx(gib * GIB)
    assert entry.capacity_status == "driver"


def test_estimated_capacities_stay_below_the_label() -> None:
    label = {"mi355x": 288, "a100-sxm-40gb": 40, "tpu-v5p": 96, "gaudi2": 96}
    for name, gib in label.items():
        entry = find_accelerator(name)
        assert 0.97 * gib * GIB < entry.accelerator.hbm_capacity < gib * GIB
        assert entry.capacity_status == "estimated"


def test_nvl72_is_one_domain_of_nodes_of_four() -> None:
    for name in ("gb200-192gb", "gb300-288gb"):
        system = find_accelerator(name).system
        assert (system.accelerators_per_node, system.scale_up.domain_size) == (4, 72)
        assert system.scale_up.bandwidth == 900e9
        assert system.host.kind == "grace"


def test_collective_curves_are_those_of_the_measured_table() -> None:
    fits = {(fit.op, fit.ranks): fit for fit in find_accelerator("h100").system.scale_up.fits}
    assert len(fits) == 12
    gather = fits["all_gather", 8]
    assert (gather.latency, gather.bandwidth) == (pytest.approx(10.41e-6), 368.5e9)
    # c = 5.017 in us per 1000 sqrt(byte): 5.017e-9 s per sqrt(byte)
    assert gather.root == pytest.approx(5.017e-9)
    h800 = {(fit.op, fit.ranks): fit for fit in find_accelerator("h800").system.scale_up.fits}
    assert h800["all_gather", 8].bandwidth == pytest.approx(368.5e9 * 200 / 450, rel=1e-5)


@pytest.mark.parametrize(
    ("spelled", "name"),
    [("h100", "h100-sxm-80gb"), ("H100 SXM", "h100-sxm-80gb"), ("H100_SXM_80GB", "h100-sxm-80gb"), ("MI300X", "mi300x"),
     ("GB200 NVL72", "gb200-192gb"), ("TPU v5p", "tpu-v5p"), ("Trillium", "tpu-v6e")],
)  # fmt: skip
def test_other_names_are_understood(spelled: str, name: str) -> None:
    assert find_accelerator(spelled) is find_accelerator(name)


def test_aliases_name_known_parts_and_shadow_none() -> None:
    names = set(hardware.accelerator_names())
    aliases = hardware.accelerator_aliases()
    assert set(aliases.values()) <= names
    assert not names & aliases.keys()


@pytest.mark.parametrize(("wrong", "near"), [("h1000", "h100"), ("mi355", "mi355x"), ("gb20", "gb200"), ("", "list")])
def test_an_unknown_name_is_answered_with_near_ones(wrong: str, near: str) -> None:
    with pytest.raises(MissingError, match=near):
        find_accelerator(wrong)
    with pytest.raises(MissingError):
        hardware.find_cluster(wrong)


def test_a_path_is_no_name() -> None:
    for wrong in ("../hardware", "h100-sxm-80gb.yaml", "/etc/passwd", "a\0b"):
        with pytest.raises(MissingError):
            find_accelerator(wrong)


def test_a_measured_set_point_replaces_the_law() -> None:
    entry = find_accelerator("b200")
    capped = at_power(entry, 700.0)
    assert (capped.gemm.bf16, capped.gemm.fp8, capped.memory_bound, capped.power) == (0.49, 0.45, 0.67, 700)
    assert (capped.attention[0].forward, capped.attention[0].backward) == (0.50, 0.40)
    assert capped.attention[1].forward < entry.accelerator.attention[1].forward


def test_the_law_gives_the_500_watt_part_from_the_700_watt_one() -> None:
    """The row of the 500 W part: GEMM 0.55, fp8 0.49, attention 0.47 and 0.42."""
    capped = at_power(find_accelerator("h100"), 500.0)
    assert capped.gemm.bf16 == pytest.approx(0.735 * (5 / 7) ** 0.85)
    assert capped.gemm.bf16 == pytest.approx(0.55, rel=0.01)
    assert capped.gemm.fp8 == pytest.approx(0.49, rel=0.05)
    assert capped.attention[0].forward == pytest.approx(0.47, rel=0.01)
    assert capped.attention[0].backward == pytest.approx(0.42, rel=0.01)
    assert capped.gemm.launch == find_accelerator("h100").accelerator.gemm.launch


@given(st.sampled_from(("h100", "mi355x", "a100", "b300")), st.floats(100, 2000), st.floats(100, 2000))
def test_less_power_is_never_faster(name: str, first: float, second: float) -> None:
    low, high = sorted((first, second))
    entry = find_accelerator(name)
    weak, strong = at_power(entry, low), at_power(entry, high)
    assert weak.gemm.bf16 <= strong.gemm.bf16 <= entry.accelerator.gemm.bf16
    assert weak.attention[0].backward <= strong.attention[0].backward


def test_no_cap_or_a_high_one_changes_nothing() -> None:
    entry = find_accelerator("h100")
    assert at_power(entry, None) is at_power(entry, 700.0) is at_power(entry, 5000.0) is entry.accelerator
    assert at_power(find_accelerator("tpu-v5p"), 100.0) is find_accelerator("tpu-v5p").accelerator


def test_a_changed_part_differs_in_nothing_else() -> None:
    base = find_accelerator("h100")
    own = custom_accelerator({"base": "h100", "hbm_capacity": "96 GB", "gemm": {"bf16": 0.5}})
    expected = replace(
        base.accelerator,
        name="h100-sxm-80gb (changed)",
        hbm_capacity=96e9,
        gemm=replace(base.accelerator.gemm, bf16=0.5),
    )
    assert own.accelerator == expected
    assert own.system == base.system
    assert own.source["hbm_capacity"] == own.source["gemm"] == "given by the job"
    assert own.source["peaks"] == base.source["peaks"]
    assert own.capacity_status == "given"
    assert find_accelerator("h100") == base


def test_a_new_link_rate_scales_the_measured_curves() -> None:
    base = find_accelerator("h100").system.scale_up
    own = custom_accelerator({"base": "h100", "scale_up": {"bandwidth": "225 GB/s"}}).system.scale_up
    assert own.bandwidth == 225e9
    assert own == hardware.with_bandwidth(base, 225e9)
    fits = [{"op": "all_gather", "ranks": 8, "latency": "9 us", "bandwidth": "200 GB/s"}]
    given = custom_accelerator({"base": "h100", "scale_up": {"bandwidth": "225 GB/s", "fits": fits}}).system.scale_up
    assert [(fit.ranks, fit.bandwidth, fit.root) for fit in given.fits] == [(8, 200e9, 0.0)]


WHOLE: dict[str, object] = {
    "name": "x1", "vendor": "acme", "architecture": "x", "peaks": {"bf16": "500 TFLOP/s", "fp8": "1 PFLOP/s"},
    "compute_units": 100, "hbm_capacity": "64 GiB", "hbm_bandwidth": "2 TB/s",
    "scale_up": {"kind": "roce", "domain_size": 4, "bandwidth": "100 GB/s", "latency": "10 us"},
    "gemm": {"bf16": 0.7, "fp8": 0.6, "launch": "3 us"},
    "attention": [{"kernel": "sdpa", "forward": 0.5, "backward": 0.4, "half_length": 500}], "memory_bound": 0.8,
}  # fmt: skip


def test_a_part_defined_in_full() -> None:
    own = custom_accelerator(WHOLE)
    part = own.accelerator
    assert (part.name, part.peaks.fp8, part.hbm_capacity, part.power) == ("x1", 1e15, 64 * GIB, None)
    assert (part.gemm.mxfp8, part.gemm.nvfp4, part.gemm.launch) == (0.6, 0.6, pytest.approx(3e-6))
    assert not part.measured
    assert own.system.scale_up.domain_size == 4
    assert own.system.scale_out.kind == "infiniband"
    changed = custom_accelerator({**WHOLE, "system": {"accelerators_per_node": 4, "scale_out": {"kind": "none"}}})
    assert (changed.system.accelerators_per_node, changed.system.scale_out.kind) == (4, "none")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hbm_capacity": "80 Gb"}, "80 Gb are bits"),
        ({"hbm_capacity": 80}, "no unit"),
        ({"colour": "red"}, "unknown key"),
        ({"peaks": {"bf17": "1 TFLOP/s"}}, "did you mean bf16"),
        ({"peaks": {"bf16": "0 TFLOP/s"}}, "above 0"),
        ({"gemm": {"bf16": 1.2}}, "at most 1"),
        ({"gemm": {"bf16": True}}, "share of the peak"),
        ({"memory_bound": 0}, "above 0"),
        ({"attention": []}, "at least 1"),
        ({"attention": [{"kernel": "magic"}]}, "must be one of"),
        ({"clock": "5 s"}, "frequency"),
        ({"scale_up": {"kind": "string"}}, "must be one of"),
        ({"compute_units": 1.5}, "whole number"),
        ({"source": {}}, "unknown key"),
        ({"measured": True}, "unknown key"),
        ({"power": "-3 W"}, "above 0"),
        ({"set_points": []}, "unknown key"),
    ],
)
def test_what_a_custom_part_may_not_say(change: dict[str, object], words: str) -> None:
    for mapping in ({"base": "h100", **change}, {**WHOLE, **change}):
        with pytest.raises(FormatError) as refusal:
            custom_accelerator(mapping)
        assert words in str(refusal.value)
        assert all(fault.path.startswith("cluster.accelerator.") for fault in refusal.value.faults)


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(FormatError) as refusal:
        custom_accelerator({"base": "h100", "hbm_capacity": 1, "colour": 2, "power": "1 kg"})
    assert len(refusal.value.faults) == 3
    with pytest.raises(FormatError) as refusal:
        custom_accelerator({"name": "x"})
    assert len(refusal.value.faults) == 10
    with pytest.raises(MissingError, match="h100"):
        custom_accelerator({"base": "h100x"})


def test_the_schema_names_every_field_and_wants_text_with_units() -> None:
    schema = hardware.accelerator_schema()
    assert {"base", *WHOLE, "clock", "power", "system"} == schema["properties"].keys()
    assert schema["additionalProperties"] is False
    assert "GiB" in str(schema["properties"]["hbm_capacity"])


@pytest.mark.parametrize("name", hardware.cluster_names())
def test_usual_clusters_are_clusters_of_known_parts(name: str) -> None:
    from windtunnel.catalog.format import ClusterSection, read_section

    cluster = hardware.find_cluster(name)
    assert len(hardware.cluster_source(name)) > 10
    checked = read_section(ClusterSection, dict(cluster), "cluster")
    entry = find_accelerator(str(cluster["accelerator"]))
    assert cluster["accelerators_per_node"] == entry.system.accelerators_per_node
    assert checked["num_accelerators"] % checked["accelerators_per_node"] == 0
    if "scale_up" in checked:
        assert checked["scale_up"]["bandwidth"] == entry.system.scale_up.bandwidth


def test_the_usual_clusters_everyone_asks_for_are_there() -> None:
    wanted = {
        "dgx-h100",
        "dgx-a100",
        "dgx-b200",
        "gb200-nvl72",
        "gb300-nvl72",
        "hgx-h200",
        "mi300x-node",
        "mi355x-node",
    }
    assert wanted | {"tpu-v5p-pod"} <= set(hardware.cluster_names())
