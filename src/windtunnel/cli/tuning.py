"""What ``tune`` may be told beside the space: who proposes, who answers, what counts, where it is kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from windtunnel.cli.output import switch


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Options of a study; without any of them every plan is looked at."""

    proposer: Annotated[
        str,
        Parameter(
            help="exhaustive, seed, local, random, llm; several with commas take turns, each told of all trials; "
            "seed:12 is at most 12 calls of seed."
        ),
    ] = "exhaustive"
    llm: Annotated[
        str | None, Parameter(metavar="PROVIDER:MODEL", help="The language model that the proposer llm asks.")
    ] = None
    llm_timeout: Annotated[str, Parameter(help="Longest wait for an answer of the language model.")] = "5 min"
    llm_choices: Annotated[
        bool, switch("It picks from a menu by a fixed schema: for models too small to call tools.")
    ] = False
    seed: Annotated[int, Parameter(help="Of the proposers that draw.")] = 0
    objective: Annotated[
        str, Parameter(help="throughput, cost, time_to_train, accelerators, memory; two or three draw a front.")
    ] = "throughput"
    target: Annotated[
        str | None, Parameter(help="Slowest that counts: of the run where the job has run.tokens, else of a step.")
    ] = None
    calls: Annotated[int | None, Parameter(help="Most plans to try by the oracle.")] = None
    run: Annotated[
        str | None,
        Parameter(metavar="COMMAND", help="Try plans by real runs: words with {job}, {result}, {plan.parallel.tp}, …"),
    ] = None
    profile: Annotated[str | None, Parameter(metavar="FILE", help="Try plans by a profile of windtunnel measure.")] = (
        None
    )
    anchor: Annotated[
        list[str] | None,
        Parameter(negative="", metavar="RECORDS", help="Try plans by the model anchored on own measured runs."),
    ] = None
    timeout: Annotated[str, Parameter(help="Longest single run.")] = "30 min"
    slurm: Annotated[bool, switch("Queue each run as a job of the cluster, through submitit.")] = False
    workers: Annotated[int, Parameter(help="Runs at once.")] = 1
    study: Annotated[str | None, Parameter(metavar="FILE", help="Keep every trial in a study.")] = None
    resume: Annotated[bool, switch("Go on with a study that exists.")] = False
    what_if: Annotated[bool, switch("Also what more memory and more accelerators would buy.")] = False
    plot: Annotated[str | None, Parameter(metavar="FILE", help="Draw the search: .svg, or .png (extra png).")] = None
    report: Annotated[
        str | None, Parameter(metavar="FILE", help="Write answer and search as a report: .html or .md.")
    ] = None

    @property
    def names(self) -> list[str]:
        return [name.strip() for name in self.proposer.split(",") if name.strip()]

    @property
    def objectives(self) -> list[str]:
        return [name.strip() for name in self.objective.split(",") if name.strip()]

    @property
    def is_study(self) -> bool:
        """Whether single plans are tried, rather than all of them scored."""
        asked = (self.run, self.profile, self.anchor, self.study)
        return self.names != ["exhaustive"] or self.resume or any(value is not None for value in asked)


DEFAULT = Tuning()
