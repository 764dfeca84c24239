"""Writes the tables of docs/studies.md: python docs/studies.py [TABLE…] [--keep FOLDER]. An hour of one core; every
figure is seeded. What is worked out is kept in the folder, and taken from there by the next run.

The rows of the tuning agent need windtunnel[agent]; its recorded conversation is docs/conversation.jsonl, written by
python docs/studies.py record.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from hashlib import blake2b
from math import exp, inf
from pathlib import Path
from statistics import NormalDist, median
from time import perf_counter
from typing import Any

from pages import rewrite

from windtunnel.agent.bench import Bench
from windtunnel.agent.journal import Journal
from windtunnel.agent.llm import Llm
from windtunnel.agent.models import model_of
from windtunnel.agent.recorded import Recorded
from windtunnel.agent.thinking import Mind
from windtunnel.agent.words import Secrets
from windtunnel.catalog.dump import job_to_mapping
from windtunnel.catalog.jobs import load_job, read_source
from windtunnel.catalog.rates import rates
from windtunnel.job.job import Job
from windtunnel.projection.project import project
from windtunnel.search.examine import Examiner
from windtunnel.search.exhaustive import Exhaustive, Plan, Progress
from windtunnel.search.moves import own_value
from windtunnel.search.objective import goal
from windtunnel.search.oracle import Projecting
from windtunnel.search.proposers import PROPOSERS, Ground
from windtunnel.search.proposers.exhaustive import Certified
from windtunnel.search.screen import Candidate, Screen
from windtunnel.search.space import EVEN, LAYOUT, default_space
from windtunnel.search.study import Study
from windtunnel.search.trial import FREE, Outcome
from windtunnel.store.journal import InMemory
from windtunnel.store.notebook import Loose

ROOT = Path(__file__).resolve().parent
PAGE = ROOT / "studies.md"
CASE = read_source(ROOT.parent / "examples" / "mixtral-8x22b-32-mi355x.yaml")[0]
CONVERSATION = ROOT / "conversation.jsonl"
MODELS = {"llm": "scripted:expert", "recorded": f"replay:{CONVERSATION}"}
"""Proposers that are a model: a policy that uses the tools, and what it said in world 0 said again in every world."""
SPACES = [
    ("llama3.1-8b", "h100-sxm-80gb", 8, 4096, 64, "megatron-core"),
    ("llama3.1-8b", "h100-sxm-80gb", 16, 8192, 128, "megatron-core"),
    ("llama3.1-8b", "a100-sxm-80gb", 32, 8192, 256, "torchtitan"),
    ("llama3.1-8b", "h100-sxm-80gb", 64, 32768, 64, "megatron-core"),
    ("llama2-13b", "a100-sxm-40gb", 32, 4096, 256, "megatron-core"),
    ("llama3.1-70b", "h100-sxm-80gb", 64, 8192, 128, "megatron-core"),
    ("llama3.1-70b", "h200-sxm-141gb", 64, 8192, 256, "torchtitan"),
    ("llama3.1-70b", "b200-180gb", 32, 8192, 128, "megatron-core"),
    ("qwen2.5-32b", "h100-sxm-80gb", 32, 8192, 128, "megatron-core"),
    ("qwen2.5-14b", "h800-sxm-80gb", 16, 4096, 256, "deepspeed"),
    ("qwen2.5-72b", "a100-sxm-80gb", 128, 4096, 512, "megatron-core"),
    ("gpt3-175b", "a100-sxm-80gb", 128, 2048, 768, "megatron-core"),
    ("megatron-22b", "a100-sxm-80gb", 32, 2048, 128, "nemo"),
    ("mixtral-8x7b", "h100-sxm-80gb", 32, 8192, 256, "megatron-core"),
    ("mixtral-8x22b", "mi355x", 32, 8192, 128, "primus"),
    ("mixtral-8x22b", "h100-sxm-80gb", 128, 8192, 256, "megatron-core"),
    ("qwen3-30b-a3b", "h100-sxm-80gb", 16, 4096, 128, "megatron-core"),
    ("qwen3-30b-a3b", "h100-sxm-80gb", 32, 4096, 256, "torchtitan"),
    ("deepseek-v2-lite", "h800-sxm-80gb", 32, 4096, 512, "megatron-core"),
    ("llama3.1-70b", "mi300x", 64, 8192, 128, "primus"),
]
"""Model, accelerator, their number, tokens per sequence, sequences per step, framework; the job says nothing else."""
HELD_OUT = [
    ("mistral-7b", "h200-sxm-141gb", 16, 32768, 32, "torchtitan"),
    ("llama3.2-3b", "l40s-48gb", 16, 4096, 128, "megatron-core"),
    ("gpt-oss-20b", "h100-sxm-80gb", 16, 8192, 128, "megatron-core"),
    ("olmoe-1b-7b", "a100-sxm-80gb", 16, 4096, 256, "megatron-core"),
    ("qwen3-235b-a22b", "h800-sxm-80gb", 128, 4096, 512, "megatron-core"),
    ("llama2-70b", "a100-sxm-80gb", 64, 4096, 256, "nemo"),
    ("glm-4.5-air", "b200-180gb", 64, 8192, 256, "megatron-bridge"),
    ("qwen3-32b", "mi325x", 32, 8192, 128, "primus"),
    ("opt-30b", "a100-sxm-40gb", 64, 2048, 256, "deepspeed"),
    ("moonlight-16b-a3b", "h100-sxm-80gb", 32, 8192, 256, "megatron-core"),
    ("llama3.1-405b", "h100-sxm-80gb", 256, 8192, 256, "megatron-core"),
    ("qwen2-57b-a14b", "mi300x", 32, 4096, 256, "primus"),
]
"""Spaces on which nothing was shaped."""
RUNS = (("seed", 60), ("local", 300), ("seed+local", 300), ("random", 60))
"""Proposers and the calls they get in a space."""
CALLS = (12, 30, 60)
WORLDS = 10
SPREAD = 0.05
"""Standard deviation of the logarithm of each hidden factor."""
AXES = (
    "plan.parallel.tp", "plan.parallel.pp", "plan.parallel.ep", "plan.pipeline.schedule",
    "plan.pipeline.virtual_stages", "plan.batch.micro_batch_size", "plan.recompute", "plan.moe.dispatcher",
    "plan.sharding.strategy", "plan.overlap.ep_comm", "plan.overlap.grad_reduce", "plan.overlap.param_gather",
    "plan.overlap.p2p", "plan.offload.optimizer",
)  # fmt: skip
"""Axes that are distorted."""


@dataclass(frozen=True)
class Place:
    """A job to tune."""

    source: Any

    def vary(self, changes: Mapping[str, Any]) -> Job:
        return load_job(self.source, set=dict(changes), repairs=False)


def place_of(space: tuple[Any, ...]) -> Place:
    model, accelerator, number, tokens, sequences, framework = space
    batch = {"micro_batch_size": 1, "global_batch_size": sequences, "sequence_length": tokens}
    cluster = {"accelerator": accelerator, "num_accelerators": number}
    software = {"framework": framework, "date": "2025-10"}
    return Place({"model": model, "cluster": cluster, "software": software, "plan": {"batch": batch}})


def certified(place: Place, top: int = 10) -> Progress:
    job, progress = place.vary({}), Progress()
    examiner = Examiner(job=job, space=default_space(job), vary=place.vary, top=top)
    Exhaustive(examiner=examiner).run(progress, lambda: False, lambda: None)
    return progress


def assistant(
    place: Place, ground: Ground, model: str, left: Callable[[], float], oracle: Any, notebook: Loose | None
) -> Llm:
    """The tuning agent with a scripted or recorded model."""
    name = "simulated" if oracle is None else oracle.name
    bench = Bench(job=ground.job, space=ground.space, load=place.vary, vary=place.vary,
                  goal=goal(["throughput"], ground.job), oracle=name, left=left)  # fmt: skip
    kept, secrets = notebook or Loose(), Secrets({})
    mind = Mind(Recorded(model_of(model, secrets), model, kept, secrets, 3600.0), bench)
    return Llm(ground, mind, bench, Journal(kept, secrets), sys.stderr.write)


def studied(
    place: Place,
    names: str,
    calls: int,
    oracle: Any = None,
    plans: list[Plan] | None = None,
    notebook: Loose | None = None,
) -> list[float]:
    """The best step time after each call; infinite before any plan ran."""
    job = place.vary({})
    space = default_space(job)
    examiner, ground = Examiner(job=job, space=space, vary=place.vary), Ground(job=job, space=space, rates=rates())

    def written(changes: Mapping[str, Any]) -> dict[str, Any]:
        return examiner.written(dict(changes)) or examiner.written({**changes, LAYOUT: EVEN}) or dict(changes)

    def make(name: str) -> Any:
        if name in MODELS:
            return assistant(place, ground, MODELS[name], lambda: study.most_calls - study.calls, oracle, notebook)
        return Certified(ground, lambda: plans or []) if name == "exhaustive" else PROPOSERS[name](ground)

    study = Study(
        proposers=(),
        oracle=oracle or Projecting(projected=project),
        screen=Screen(vary=place.vary, write=written),
        goal=goal(["throughput"], job),
        journal=InMemory(job_to_mapping),
        most_calls=calls,
    )
    study.proposers = [make(name) for name in names.split("+")]
    study.run(lambda: False, lambda: None)
    curve, best, seen = [], inf, set[str]()
    for trial in study.trials:
        if trial.outcome.status in FREE or repr(trial.changes) in seen:
            continue
        seen.add(repr(trial.changes))
        best = min(best, trial.outcome.step_time or inf)
        curve.append(best)
    return curve[:calls] or [inf]


def after(curve: list[float], calls: int) -> float:
    return curve[min(calls, len(curve)) - 1]


def optimum(space: tuple[Any, ...]) -> list[float]:
    """Its step time, and how many plans are legal."""
    search = certified(place_of(space), top=1)
    assert search.best is not None
    return [search.best.step_time, search.legal]


def one_run(space: tuple[Any, ...], names: str, calls: int) -> list[float]:
    return studied(place_of(space), names, calls)


def named(space: tuple[Any, ...]) -> str:
    parts = space[1].split("-")
    return f"{space[0]}, {space[2]} {'-'.join(dict.fromkeys((parts[0], parts[-1])))}, {space[5]}"


class Cluster(Projecting):
    """The projection with hidden factors: one per value of each axis, one for all memory; what exceeds it is oom."""

    def __init__(self, world: int) -> None:
        super().__init__(projected=project, name=f"world {world}")
        self.world = world

    def _normal(self, *about: object) -> float:
        number = int.from_bytes(blake2b(repr((self.world, *about)).encode(), digest_size=6).digest())
        return NormalDist().inv_cdf((number + 0.5) / 2**48)

    def poll(self, number: int, *, wait: bool) -> Outcome | None:
        candidate: Candidate | None = self._candidates.get(number)
        found = super().poll(number, wait=wait)
        if found is None or candidate is None or found.step_time is None or found.peak_device is None:
            return found
        peak = found.peak_device * exp(0.03 * self._normal("memory"))
        if peak > candidate.job.cluster.accelerator.hbm_capacity:
            return Outcome(status="oom", why="the hidden memory is larger")
        hidden = sum(self._normal(path, own_value(candidate.job, path)) for path in AXES)
        return Outcome(status="ok", step_time=found.step_time * exp(SPREAD * hidden), peak_device=peak)


def record() -> None:
    """Keep what the scripted model proposes in world 0."""
    notebook = Loose()
    studied(Place(CASE), "llm", max(CALLS), Cluster(0), notebook=notebook)
    said = [json.loads(message.response)[0] for message in notebook.messages]
    proposals = [answer for answer in said if any(part.get("tool_name") == "propose" for part in answer["parts"])]
    lines = [json.dumps({"response": {"kind": "response", "parts": answer["parts"]}}) for answer in proposals]
    CONVERSATION.write_text("\n".join(lines) + "\n")


def one_world(world: int, plans: list[Plan]) -> dict[str, list[float]]:
    """Step times after 12, 30, 60 calls by proposer, over the best that any of them ever found; ``plans`` are the
    model's first."""
    place = Place(CASE)
    names = ("seed", "local", "random", "seed+local", "exhaustive", "llm", "recorded")
    curves = {name: studied(place, name, 60, Cluster(world), plans) for name in names}
    long = studied(place, "exhaustive+local", 250, Cluster(world), plans)[-1]
    best = min(long, *(curve[-1] for curve in curves.values()))
    return {name: [after(curve, calls) / best - 1 for calls in CALLS] for name, curve in curves.items()}


def one_case(names: str, calls: int) -> list[float]:
    """Calls, the best step, seconds."""
    start = perf_counter()
    curve = studied(Place(CASE), names, calls)
    return [len(curve), curve[-1], perf_counter() - start]


def whole_case() -> list[float]:
    """Plans scored and timed, the best step, seconds."""
    start = perf_counter()
    search = certified(Place(CASE))
    assert search.best is not None
    return [search.evaluated, search.exactly_timed, search.best.step_time, perf_counter() - start]


class Kept:
    """Two processes, and a folder of what they came to before."""

    def __init__(self, pool: ProcessPoolExecutor, folder: Path | None) -> None:
        self.pool = pool
        self.folder = folder

    def start(self, work: Callable[..., Any], *given: Any) -> Callable[[], Any]:
        """Begin; what is returned waits for the answer."""
        name = blake2b(repr((work.__name__, given)).encode(), digest_size=8).hexdigest()
        file = None if self.folder is None else self.folder / f"{work.__name__}-{name}.json"
        if file is not None and file.exists():
            found = json.loads(file.read_text())
            return lambda: found
        running = self.pool.submit(work, *given)
        if file is not None:
            running.add_done_callback(lambda done: file.write_text(json.dumps(done.result())))
        return running.result


def case_table(kept: Kept) -> list[str]:
    baseline = project(Place(CASE).vary({})).step_time
    runs = [(names, kept.start(one_case, names, calls)) for names, calls in (("seed", 60), ("seed+local", 300))]
    whole = kept.start(whole_case)
    rows = []
    for names, answer in runs:
        calls, best, seconds = answer()
        gain = f"{baseline / best - 1:+.1%}"
        rows.append([f"`{names.replace('+', ',')}`", f"{calls} calls", f"{best:.3f} s", gain, f"{seconds:.0f} s"])
    scored, timed, best, seconds = whole()
    looked = f"{scored:,} scored, {timed:,} timed"
    gain = f"{baseline / best - 1:+.1%}"
    rows.append(["`exhaustive`", looked, f"{best:.3f} s", gain, f"{seconds:.0f} s, certified"])
    return _table(["proposer", "looked at", "best step", "gain over the baseline", "one core"], rows)


def space_table(kept: Kept, spaces: list[tuple[Any, ...]] = SPACES) -> list[str]:
    started = [
        (space, kept.start(optimum, space), [kept.start(one_run, space, *run) for run in RUNS]) for space in spaces
    ]
    rows, within = [], [0] * len(RUNS)
    for space, best, runs in started:
        seconds, legal = best()
        gaps = [after(run(), calls) / seconds - 1 for run, (_, calls) in zip(runs, RUNS, strict=True)]
        within = [count + (gap <= 0.01) for count, gap in zip(within, gaps, strict=True)]
        rows.append([named(space), f"{legal:,}", *map(_percent, gaps)])
    head = ["space", "plans", *(f"{names.replace('+', ',')}, {calls}" for names, calls in RUNS)]
    return _table(head, [*rows, ["**within 1 %**", "", *(f"{count} of {len(rows)}" for count in within)]])


def held_out_table(kept: Kept) -> list[str]:
    return space_table(kept, HELD_OUT)


def world_table(kept: Kept) -> list[str]:
    plans = certified(Place(CASE), top=60).found
    worlds = [answer() for answer in [kept.start(one_world, world, plans) for world in range(WORLDS)]]
    rows = []
    for name in worlds[0]:
        middle = [_percent(median(world[name][k] for world in worlds)) for k in range(len(CALLS))]
        worst = _percent(max(world[name][-1] for world in worlds))
        rows.append([f"`{name.replace('+', ',')}`", *middle, worst])
    return _table(["proposer", *(f"{calls} calls" for calls in CALLS), "worst world, 60 calls"], rows)


def _percent(share: float) -> str:
    return "none ran" if share == inf else f"{100 * share + 0.0:.1f} %".replace("-0.0", "0.0")


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


TABLES = {"case": case_table, "worlds": world_table, "spaces": space_table, "held-out": held_out_table}


def main(words: list[str]) -> None:
    if words == ["record"]:
        record()
        return
    folder = Path(words[words.index("--keep") + 1]) if "--keep" in words else None
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(2) as pool:
        for name in [word for word in words if word in TABLES] or TABLES:
            rewrite(PAGE, {f"table {name}": "\n".join(TABLES[name](Kept(pool, folder))) + "\n"})
            sys.stderr.write(f"{name}: done\n")


if __name__ == "__main__":
    main(sys.argv[1:])
