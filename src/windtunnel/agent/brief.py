"""What a model is told: who it is, the job and where its step goes, and the study so far, in bounded words."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from windtunnel.agent import views
from windtunnel.agent.bench import Bench
from windtunnel.agent.choices import Menu
from windtunnel.agent.tools.past import failures
from windtunnel.agent.words import clean
from windtunnel.errors import WindtunnelError
from windtunnel.projection.result import Projection

LONGEST = 14_000
"""Characters of a brief: the conversation of a round starts with one, however many trials there were."""
BEST, RECENT, LESSONS, FAILED = 6, 10, 8, 6

ROLE = """\
You tune the training plan of a large language model with windtunnel, which projects memory and step time. Each round
you look around with the tools, then call propose with a few plans to try; in the next round you are told what came of
each. Rules: what a plan does is decided by trials and nothing else, so never claim a result you were not told. Look by
the model first (evaluate, sweep: free), and spend trials on what the model cannot tell. Every proposal needs a
hypothesis that can fail, with the change of step time you expect. A plan that is illegal or does not fit costs nothing
and is answered with the rule and repairs. You may set any plan path, also ones no grid has: uneven layouts, recompute
per layer, group sizes. Model, machine, batch, sequence length and precision stay as they are. Stop when nothing is
worth a trial."""
ROLE_CHOICES = (
    "You tune the training plan of a language model. Pick one move from the menu that should make a step faster."
)


def instructions(bench: Bench, *, choices: bool) -> str:
    """The role and what is left to spend."""
    left = bench.left()
    spend = "calls of the oracle are not limited" if left == float("inf") else f"calls of the oracle left: {left:.0f}"
    return f"{ROLE_CHOICES if choices else ROLE}\n\nOracle: {bench.oracle}; {spend}."


def brief(bench: Bench, number: int, last: Sequence[Mapping[str, Any]], lessons: Sequence[str]) -> str:
    """The state of the study at the start of a round; ``last`` are the answers to the last proposals."""
    best = bench.best
    sections: list[tuple[str, Any]] = [("The job", _job(bench)), ("The baseline by the model", _standing(bench, {}))]
    if best is not None and best.changes:
        sections.append(("The best plan, by the model", _standing(bench, best.changes)))
    if bench.certified():
        words = "no plan on the axes of the study is faster by the model than the best of exhaustive; others may be"
        sections.append(("Certificate", words))
    sections += [
        ("Best trials", [views.trial(item, best) for item in _ranked(bench)[:BEST]]),
        ("Last trials", [views.trial(item, best) for item in bench.trials[-RECENT:]]),
        ("Refused or failed", failures(bench.trials)[:FAILED]),
        ("Your last proposals: hypothesis and outcome", list(last)),
        ("Learnt so far", list(lessons[-LESSONS:])),
        ("Your scratchpad", bench.scratch),
    ]
    head = f"Round {number}; {len(bench.trials)} trials so far."
    return _joined(head, [(title, content) for title, content in sections if content])


def short_brief(bench: Bench, number: int, offered: Menu) -> str:
    """The same in a few lines, for a small model."""
    best, baseline = bench.best, bench.baseline
    lines = [f"Round {number}. {bench.job.model.name} on {bench.job.cluster.num_accelerators} accelerators."]
    for name, trial in (("baseline", baseline), ("best", best)):
        if trial is not None and trial.outcome.step_time:
            lines.append(f"{name}: {trial.outcome.step_time:.4g} s a step")
    lines += [f"tried: {_line(trial.changes)} -> {trial.outcome.status}" for trial in bench.trials[-4:]]
    return "\n".join([*lines, "Menu:", *(f"- {words}" for words in offered), "Pick one move."])[:4000]


def _line(changes: Mapping[str, Any]) -> str:
    return clean(", ".join(f"{path.rpartition('.')[2]} {value}" for path, value in changes.items()) or "baseline", 160)


def _ranked(bench: Bench) -> list[Any]:
    return sorted((trial for trial in bench.trials if trial.values), key=lambda trial: trial.rank)


def _joined(head: str, sections: Sequence[tuple[str, Any]]) -> str:
    """The sections as text; where they are too long together, the long ones are cut."""
    texts = [(title, item if isinstance(item, str) else json.dumps(item)) for title, item in sections]
    room = LONGEST - len(head)
    while sum(len(title) + len(text) + 5 for title, text in texts) > room:
        longest = max(range(len(texts)), key=lambda index: len(texts[index][1]))
        title, text = texts[longest]
        texts[longest] = (title, text[: len(text) * 3 // 4 - 1] + "…")
    return "\n\n".join([head, *(f"## {title}\n{text}" for title, text in texts)])


def _job(bench: Bench) -> dict[str, Any]:
    model, cluster, batch = bench.job.model, bench.job.cluster, bench.job.plan.batch
    moe = model.moe
    return {
        "model": model.name,
        "layers": model.num_layers,
        "hidden": model.hidden_size,
        "heads": model.num_attention_heads,
        "experts": None if moe is None else f"{moe.num_experts_per_token} of {moe.num_experts}",
        "accelerators": f"{cluster.num_accelerators} {cluster.accelerator.name} by {cluster.accelerators_per_node}",
        "framework": f"{bench.job.software.framework} {bench.job.software.date}",
        "tokens_per_step": batch.global_batch_size * batch.sequence_length,
        "sequence_length": batch.sequence_length,
        "objective": [objective.name for objective in bench.goal.objectives],
    }


def _standing(bench: Bench, changes: Mapping[str, Any]) -> dict[str, Any]:
    try:
        answer = bench.project(changes)
    except WindtunnelError as error:
        return views.refused(error)
    return _plan(answer) | views.summary(answer)


def _plan(answer: Projection) -> dict[str, Any]:
    """The plan in force, in a line."""
    plan = answer.job.plan
    parallel = plan.parallel
    degrees = f"tp {parallel.tp} cp {parallel.cp} pp {parallel.pp} ep {parallel.ep} dp {parallel.dp}"
    pipeline = f"{plan.pipeline.schedule}, {plan.pipeline.virtual_stages} chunks a stage"
    return {"plan": f"{degrees}; {pipeline}; micro-batch {plan.batch.micro_batch_size}; {plan.sharding.strategy}"}
