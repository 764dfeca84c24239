"""Every proposer keeps the contract, and each does what its name says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from proposer_conformance import Failing, conforms, ran, study_of, told

from windtunnel.catalog.jobs import load_job
from windtunnel.catalog.rates import rates
from windtunnel.errors import FormatError
from windtunnel.job import Job
from windtunnel.projection.project import project
from windtunnel.search.examine import Examiner
from windtunnel.search.exhaustive import Exhaustive, Progress
from windtunnel.search.moves import Moves
from windtunnel.search.objective import goal
from windtunnel.search.proposers import PROPOSERS, Ground, Proposer
from windtunnel.search.proposers.exhaustive import Certified
from windtunnel.search.proposers.ladder import weight
from windtunnel.search.space import default_space
from windtunnel.search.trial import Proposal, Trial

BASE: dict[str, Any] = {
    "model": "llama3.1-8b",
    "cluster": {"accelerator": "h100-sxm-80gb", "num_accelerators": 16},
    "software": {"framework": "megatron-core", "date": "2025-06"},
    "plan": {"batch": {"micro_batch_size": 1, "global_batch_size": 64, "sequence_length": 4096}},
}
PLACES = {"dense": {}, "moe": {"model": "qwen3-30b-a3b", "cluster.accelerator": "h200-sxm-141gb"}}
Vary = Callable[[Mapping[str, Any]], Job]


@pytest.fixture(scope="module", params=PLACES)
def place(request: Any) -> tuple[Job, Vary]:
    def vary(changes: Mapping[str, Any]) -> Job:
        return load_job(BASE, set={**PLACES[request.param], **changes}, repairs=False)

    return vary({}), vary


def exhaustive(job: Job, vary: Vary) -> Progress:
    progress = Progress()
    space = default_space(job)
    Exhaustive(examiner=Examiner(job=job, space=space, vary=vary)).run(progress, lambda: False, lambda: None)
    return progress


@pytest.fixture(scope="module")
def certified(place: tuple[Job, Vary]) -> Progress:
    return exhaustive(*place)


@pytest.mark.parametrize("name", PROPOSERS)
def test_a_proposer_conforms(name: str, place: tuple[Job, Vary]) -> None:
    job, vary = place
    conforms(PROPOSERS[name], job, default_space(job), vary)


def test_the_exhaustive_proposer_conforms_and_names_the_optimum_first(place: Any, certified: Progress) -> None:
    job, vary = place
    make = lambda ground: Certified(ground, lambda: certified.found)  # noqa: E731
    conforms(make, job, default_space(job), vary)
    study = study_of(make, job, default_space(job), vary)
    ran(study)
    assert study.trials[0].outcome.step_time == pytest.approx(certified.best.step_time, rel=1e-9)
    assert study.best is study.trials[0]


@pytest.mark.parametrize(("names", "calls", "within"), [("seed", 60, 0.05), ("seed,local", 300, 0.01)])
def test_what_they_find_beside_the_certified_optimum(
    place: Any, certified: Progress, names: str, calls: int, within: float
) -> None:
    job, vary = place
    ground = Ground(job=job, space=default_space(job), rates=rates())
    proposers = [PROPOSERS[name](ground) for name in names.split(",")]
    study = study_of(PROPOSERS["seed"], job, ground.space, vary, calls=calls, proposers=proposers)
    ran(study)
    assert study.best is not None
    gap = study.best.outcome.step_time / certified.best.step_time - 1
    assert -1e-9 <= gap <= within


def test_random_never_repeats_itself_and_depends_on_its_seed(place: Any) -> None:
    job, vary = place
    one, other = (
        study_of(lambda ground, s=seed: PROPOSERS["random"](replace(ground, seed=s)), job, default_space(job), vary)
        for seed in (1, 2)
    )
    ran(one)
    ran(other)
    assert told(one.trials) != told(other.trials)
    plans = [repr(sorted(trial.changes.items())) for trial in one.trials]
    assert len(set(plans)) == len(plans)


def test_the_seed_begins_with_the_baseline_and_gives_reasons(place: Any) -> None:
    job, vary = place
    study = study_of(PROPOSERS["seed"], job, default_space(job), vary, calls=60)
    ran(study)
    assert study.trials[0].changes == {}
    assert study.trials[0].reason == "the baseline"
    kinds = {trial.reason.split()[0].rstrip(":") for trial in study.trials}
    assert {"every", "shape", "sweep"} <= kinds


def test_local_starts_from_the_best_of_those_before_it(place: Any) -> None:
    job, vary = place
    ground = Ground(job=job, space=default_space(job), rates=rates())
    seed, local = PROPOSERS["seed"](ground), PROPOSERS["local"](ground)
    study = study_of(PROPOSERS["seed"], job, ground.space, vary, calls=90, proposers=[seed, local])
    ran(study)
    seeded = [trial for trial in study.trials if trial.proposer == "seed"]
    assert {trial.proposer for trial in study.trials} == {"seed", "local"}
    best = min((trial for trial in seeded if trial.values), key=lambda trial: trial.rank)
    first = next(trial for trial in study.trials if trial.proposer == "local")
    moved = {path for path in {*best.changes, *first.changes} if best.changes.get(path) != first.changes.get(path)}
    assert 0 < len(moved) <= 6


def test_a_written_proposer_needs_two_methods(place: Any) -> None:
    class Two:
        """The smallest one: proposes twice."""

        name = "two"
        finished = False

        def __init__(self, _ground: Ground) -> None:
            self.left = [{"plan.parallel.tp": 2}, {"plan.parallel.tp": 3}]

        def ask(self) -> Proposal | None:
            if not self.left:
                self.finished = True
                return None
            return Proposal(self.left.pop(0), "because")

        def tell(self, trial: Trial, *, own: bool) -> None:
            pass

    job, vary = place
    study = study_of(Two, job, default_space(job), vary)
    assert ran(study) == "exhausted"
    assert [trial.outcome.status for trial in study.trials][1] == "illegal"
    assert "plan.parallel.tp" in study.trials[1].outcome.why


def test_equal_plans_are_asked_about_once(place: Any) -> None:
    job, vary = place
    tp = job.plan.parallel.tp

    class Twice:
        name, finished = "twice", False

        def __init__(self, _ground: Ground) -> None:
            self.left = [{}, {"plan.parallel.tp": tp}, {}]

        def ask(self) -> Proposal | None:
            self.finished = not self.left
            return Proposal(self.left.pop(0), "again") if self.left else None

        def tell(self, trial: Trial, *, own: bool) -> None:
            pass

    make: Callable[[Ground], Proposer] = Twice
    study = study_of(make, job, default_space(job).pinned({"plan.sharding.strategy": ("zero1",)}), vary)
    ran(study)
    assert study.calls <= 1
    assert len({trial.outcome.step_time for trial in study.trials}) == 1


def test_an_out_of_memory_run_raises_the_margin(place: Any) -> None:
    job, vary = place

    class Ooms(Failing):
        ways = ("oom",)

    study = study_of(PROPOSERS["seed"], job, default_space(job), vary, calls=10, oracle=Ooms(projected=project))
    ran(study)
    assert study.screen.margin > 0
    refused = [trial for trial in study.trials if trial.outcome.status == "oom"]
    capacity = job.cluster.accelerator.hbm_capacity
    later = study.screen.look(refused[-1].changes)
    assert later.peak_device * study.screen.margin > capacity
    assert study.screen.refusal(later) is not None


def test_moves_carry_what_must_follow(place: Any) -> None:
    job, _ = place
    moves = Moves(job, default_space(job))
    assert moves.moved({}, {"plan.parallel.pp": 3}) is None
    deeper = moves.moved({}, {"plan.parallel.pp": 2, "plan.pipeline.virtual_stages": 2})
    assert deeper is not None
    assert deeper["plan.pipeline.schedule"] == "interleaved_1f1b"
    back = moves.moved(deeper, {"plan.parallel.pp": 1})
    assert back is not None
    assert back["plan.pipeline.virtual_stages"] == 1
    assert back["plan.pipeline.schedule"] == "1f1b"


def test_weights_order_recomputation() -> None:
    policies = [{"policy": "none"}, {"policy": "modules", "modules": ["layernorm"]}, {"policy": "per_op"},
                {"policy": "full"}]  # fmt: skip
    assert sorted(policies, key=lambda section: weight(section, rates())) == policies
    one, two = (weight({"policy": "block", "num_layers": number}, rates()) for number in (1, 2))
    assert one < two


@pytest.mark.parametrize("names", [["cost"], ["time_to_train"], ["speed"], [], ["throughput"] * 2])
def test_an_objective_that_cannot_be_had_is_an_error(place: Any, names: list[str]) -> None:
    with pytest.raises(FormatError, match="--objective"):
        goal(names, place[0])
