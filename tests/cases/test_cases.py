"""Cases of real users' trouble that no other test file holds; the table in docs/cases.md lists all of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from windtunnel.catalog.jobs import load_draft, load_job
from windtunnel.catalog.models import find_model
from windtunnel.errors import LegalityError
from windtunnel.job import Job
from windtunnel.job.legality import minimum_accelerators
from windtunnel.job.vocabulary import padded_vocab
from windtunnel.projection.project import project
from windtunnel.report.json import memory_document
from windtunnel.schedule.layout import parse_layout

MakeJob = Callable[[dict[str, Any]], Job]
ROOT = Path(__file__).parents[2]


def test_legal_layout_string_llama70b() -> None:
    """github.com/NVIDIA-NeMo/Megatron-Bridge/pull/5391: commas separate, nothing more."""
    layout = parse_layout("Et*2|(t*2|)*34,t*3|(t*2|)*3,tL", 8, num_layers=80, virtual_stages=5)
    assert len(layout) == 40
    assert sum(len(chunk.layers) for chunk in layout) == 80
    assert (len(layout[0].layers), len(layout[-1].layers)) == (2, 1)


@pytest.mark.parametrize(
    ("vocab", "tp", "padded"),
    [(32000, 2, 32000), (32002, 2, 32256), (201088, 8, 201728), (151936, 1, 151936), (151936, 2, 152064),
     (151936, 8, 152576)],
)  # fmt: skip
def test_legal_vocab_padding_megatron(make_job: MakeJob, vocab: int, tp: int, padded: int) -> None:
    """github.com/epfLLM/Megatron-LLM/issues/103: ceil(vocab / (128 · tp)) · 128 · tp."""
    job = make_job({"model": {"base": "llama3.1-8b", "vocab_size": vocab}, "plan.parallel": {"tp": tp}})
    assert padded_vocab(job.model, job.software, tp) == padded


@pytest.mark.parametrize(("cp", "fewest"), [(32, 256), (64, 512)])
def test_long_cp32_dsv3_gpu_count(cp: int, fewest: int) -> None:
    """DeepSeek-V3 at 128k and 256k tokens: pp · lcm(tp · cp, ep · etp)."""
    draft = load_draft(
        {
            "model": "deepseek-v3",
            "cluster": {"accelerator": "h100-sxm-80gb", "num_accelerators": 1024},
            "software": {"framework": "megatron-core", "date": "2026-05"},
            "plan": {
                "parallel": {"tp": 1, "cp": cp, "pp": 8, "ep": 32, "etp": 1},
                "batch": {"micro_batch_size": 1, "global_batch_size": 256, "sequence_length": 131072},
            },
        }
    )
    assert minimum_accelerators(draft) == fewest


def test_thr_mfu_sparse_peak_1565(make_job: MakeJob) -> None:
    """github.com/NVIDIA/Megatron-LM/issues/1565: 420 TFLOP/s are 42.5 % of the dense peak, not 21 % of a sparse one."""
    job = make_job(
        {
            "model": "qwen2.5-32b",
            "cluster": {"accelerator": "h200-sxm-141gb", "num_accelerators": 16},
            "plan.parallel": {"tp": 4, "pp": 2},
        }
    )
    answer = project(job)
    assert 420e12 / answer.peak_flops == pytest.approx(0.4245, abs=0.001)
    assert answer.mfu == pytest.approx(answer.model_flops_per_second_per_accelerator / 989.4e12)


def test_thr_llama70b_8a100_1000() -> None:
    """github.com/NVIDIA/Megatron-LM/issues/1000: tp 8 · pp 2 cannot be what ran on 8 accelerators."""
    job = {
        "model": "llama3-70b",
        "cluster": {"accelerator": "a100-sxm-80gb", "num_accelerators": 8},
        "plan": {
            "parallel": {"tp": 8, "pp": 2},
            "batch": {"micro_batch_size": 1, "global_batch_size": 64, "sequence_length": 4096},
            "recompute": {"policy": "full"},
        },
    }
    assert minimum_accelerators(load_draft(job)) == 16
    with pytest.raises(LegalityError, match="8"):
        load_job(job)


def test_ask_memory_estimator(make_job: MakeJob) -> None:
    """github.com/NVIDIA-NeMo/Megatron-Bridge/issues/1673: a breakdown per rank, without a launch."""
    document = memory_document(project(make_job({"plan.parallel": {"tp": 1, "pp": 4}})))
    stages = document["memory"]["stages"]
    assert len(stages) == 4
    wanted = {"weights", "gradients", "master", "moments", "activations", "logits", "buffers", "reserved", "overhead"}
    assert wanted <= stages[0].keys()


def test_cfg_primus_recompute_zero(make_job: MakeJob) -> None:
    """Primus Mixtral files: recompute full, block, 0 layers recomputes nothing."""
    job = make_job({"plan.recompute": {"policy": "full", "num_layers": 0}})
    assert not any(job.plan.recompute)


def test_cfg_nemo_launcher_70b(make_job: MakeJob) -> None:
    """NeMo 1 launcher, Llama-3.1 70B on 1,024 accelerators: what its degrees come to."""
    job = make_job(
        {
            "model": "llama3.1-70b",
            "cluster.num_accelerators": 1024,
            "plan.parallel": {"tp": 4, "cp": 2, "pp": 4},
            "plan.pipeline": {"virtual_stages": 10},
            "plan.batch": {"micro_batch_size": 1, "global_batch_size": 2048, "sequence_length": 8192},
        }
    )
    assert (job.plan.parallel.dp, job.plan.num_microbatches) == (32, 64)
    assert {len(chunk.layers) for chunk in job.plan.pipeline.layout} == {2}
    assert find_model("llama3.1-70b").gated


def rows() -> list[tuple[str, str]]:
    """(case id, where it is tested) of every row of the table."""
    text = (ROOT / "docs" / "cases.md").read_text()
    return re.findall(r"^\| `([a-z0-9-]+)` \|[^|]*\| ([^|]*) \|$", text, flags=re.MULTILINE)


def test_the_table_names_tests_that_exist() -> None:
    found = rows()
    assert len(found) == len(dict(found)) == 66
    for case, where in found:
        if where.startswith(("later", "no:")):
            continue
        file, _, name = where.strip().strip("`").partition("::")
        source = (ROOT / "tests" / file).read_text()
        assert f"def {name}(" in source, case


def test_what_no_test_answers_is_answered_below_the_table() -> None:
    text = (ROOT / "docs" / "cases.md").read_text()
    for case in (case for case, where in rows() if where.startswith("no:")):
        assert f"- `{case}`: " in text


def test_the_counts_above_the_table_are_those_of_the_table() -> None:
    """Rows that wait for the work on figures are about figures; a figure case already answered is one of them."""
    text = (ROOT / "docs" / "cases.md").read_text()
    counts = re.findall(r"(\d+) of the (\d+)", text.split("| case |", maxsplit=1)[0])
    (right, asked), (figures_right, figures) = ((int(n), int(of)) for n, of in counts)
    found = rows()
    answered = sum(not where.startswith(("later", "no:")) for _, where in found)
    waiting = sum(where.startswith(("later: answered with the", "no:")) for _, where in found)
    assert (right + figures_right, asked + figures) == (answered, len(found))
    assert waiting == figures - figures_right
    assert right / asked >= 0.9
