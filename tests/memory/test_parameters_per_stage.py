"""Parameters of every stage against a count of its own: sizes of the released models, written out by hand."""

from __future__ import annotations

from math import ceil
from typing import Any, NamedTuple

import pytest

from windtunnel.catalog.jobs import job_from_mapping
from windtunnel.memory.structure import structures


class Sizes(NamedTuple):
    """Hidden size, layers, vocabulary, query and key-value heads, head dimension, feed-forward width."""

    h: int
    layers: int
    vocab: int
    a: int
    kv: int
    d: int
    f: int
    qkv_bias: bool = False
    qk_norm: bool = False
    tied: bool = False
    experts: int = 0
    fe: int = 0
    shared: int = 0
    dense_first: int = 0
    mla: tuple[int, int, int, int, int] | None = None
    """q rank, kv rank, nope, rope and value dimension; a q rank of 0: no query latent."""


MLA_V2, MLA_V3 = (0, 512, 128, 64, 128), (1536, 512, 128, 64, 128)
MODELS = {
    "llama3.1-8b": Sizes(4096, 32, 128256, 32, 8, 128, 14336),
    "llama3.1-70b": Sizes(8192, 80, 128256, 64, 8, 128, 28672),
    "llama3.2-1b": Sizes(2048, 16, 128256, 32, 8, 64, 8192, tied=True),
    "llama2-7b": Sizes(4096, 32, 32000, 32, 32, 128, 11008),
    "llama2-70b": Sizes(8192, 80, 32000, 64, 8, 128, 28672),
    "mistral-7b": Sizes(4096, 32, 32000, 32, 8, 128, 14336),
    "qwen2.5-7b": Sizes(3584, 28, 152064, 28, 4, 128, 18944, qkv_bias=True),
    "qwen3-8b": Sizes(4096, 36, 151936, 32, 8, 128, 12288, qk_norm=True),
    "qwen3-30b-a3b": Sizes(2048, 48, 151936, 32, 4, 128, 6144, qk_norm=True, experts=128, fe=768),
    "mixtral-8x7b": Sizes(4096, 32, 32000, 32, 8, 128, 14336, experts=8, fe=14336),
    "deepseek-v2-lite": Sizes(
        2048, 27, 102400, 16, 16, 192, 10944, experts=64, fe=1408, shared=2816, dense_first=1, mla=MLA_V2
    ),
    "deepseek-v3": Sizes(
        7168, 61, 129280, 128, 128, 192, 18432, experts=256, fe=2048, shared=2048, dense_first=3, mla=MLA_V3
    ),
}
LAYOUTS = {
    "one stage": {"tp": 1, "pp": 1},
    "tensors": {"tp": 4, "pp": 1},
    "stages": {"tp": 1, "pp": 2},
    "both, uneven": {"tp": 2, "pp": 4},
}


def attention(m: Sizes, tp: int) -> int:
    if m.mla is None:
        matrices = m.h * m.a * m.d * 2 + 2 * m.h * m.kv * m.d
        biases = (m.a + 2 * m.kv) * m.d if m.qkv_bias else 0
        return (matrices + biases) // tp + (2 * m.d if m.qk_norm else 0)
    q, kv, nope, rope, value = m.mla
    query = m.h * q + q + q * m.a * (nope + rope) // tp if q else m.h * m.a * (nope + rope) // tp
    down = m.h * (kv + rope) + kv
    return query + down + kv * m.a * (nope + value) // tp + m.h * m.a * value // tp


def layer(m: Sizes, index: int, tp: int, ep: int) -> int:
    norms = 2 * m.h
    if m.experts == 0 or index < m.dense_first:
        return norms + attention(m, tp) + 3 * m.h * m.f // tp
    experts = 3 * m.h * m.fe * m.experts // ep
    return norms + attention(m, tp) + m.experts * m.h + experts + 3 * m.h * m.shared // tp


def stages(m: Sizes, tp: int, counts: list[int], ep: int) -> list[int]:
    vocab = ceil(m.vocab / (128 * tp)) * 128 * tp * m.h // tp
    found, first = [], 0
    for stage, count in enumerate(counts):
        total = sum(layer(m, index, tp, ep) for index in range(first, first + count))
        last = stage == len(counts) - 1
        total += vocab if stage == 0 else 0
        total += m.h if last else 0
        total += vocab if last and (not m.tied or len(counts) > 1) else 0
        found.append(total)
        first += count
    return found


def split(m: Sizes, pp: int) -> list[int]:
    """A first stage of what an even split leaves over, which is at times nothing at all."""
    each = m.layers // pp
    rest = [each] * (pp - 1)
    return [m.layers - sum(rest), *rest]


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
@pytest.mark.parametrize("name", MODELS)
def test_parameters_of_every_stage(name: str, layout: dict[str, int]) -> None:
    m, (tp, pp) = MODELS[name], layout.values()
    counts, ep = split(m, pp), 8 if m.experts else 1
    plan: dict[str, Any] = {
        "parallel": {"tp": tp, "pp": pp, "ep": ep, "etp": 1},
        "batch": {"micro_batch_size": 1, "global_batch_size": 64, "sequence_length": 4096},
    }
    if pp > 1:
        plan["pipeline"] = {"schedule": "1f1b", "layers_per_stage": counts}
    job = job_from_mapping(
        {
            "model": {"base": name, "num_mtp_layers": 0},
            "cluster": {"accelerator": "h100-sxm-80gb", "num_accelerators": 64},
            "software": {"framework": "megatron-core", "date": "2025-06"},
            "plan": plan,
        }
    )
    assert [structure.parameters.total for structure in structures(job)] == stages(m, tp, counts, ep)
