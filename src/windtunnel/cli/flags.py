"""JOB on the command line: a file, ``-``, or flags alone; every flag is one path of the job format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from windtunnel.errors import Fault, MissingError

if TYPE_CHECKING:
    from windtunnel.catalog.variations import Variations
    from windtunnel.job.draft import Draft
    from windtunnel.job.job import Job

STDIN = "(standard input)"
"""What ``-`` becomes before parsing: the parser takes every word that begins with a hyphen for an option."""

JobSource = Annotated[str | None, Parameter(help="A job file, - for stdin, or nothing when flags say it all.")]


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class JobFlags:
    """Values that are stronger than the job file; those not given are None."""

    set: Annotated[
        list[str] | None, Parameter(negative="", metavar="KEY=VALUE", help="Any job path; may be repeated.")
    ] = None
    scale_batch: Annotated[
        bool,
        Parameter(
            negative="", show_default=False, help="Keep the batch per replica when the number of replicas changes."
        ),
    ] = False
    model: Annotated[str | None, Parameter(help="Catalog name, or path of a config.json.")] = None
    accelerator: Annotated[str | None, Parameter(help="Catalog name of the accelerator.")] = None
    num_accelerators: Annotated[int | None, Parameter(help="Accelerators of the whole job.")] = None
    accelerators_per_node: Annotated[int | None, Parameter(help="Accelerators of one node.")] = None
    framework: Annotated[str | None, Parameter(help="Training framework.")] = None
    date: Annotated[str | None, Parameter(help="Year and month of the software that runs, as 2026-03.")] = None
    tp: Annotated[int | None, Parameter(help="Tensor parallel degree.")] = None
    cp: Annotated[int | None, Parameter(help="Context parallel degree.")] = None
    pp: Annotated[int | None, Parameter(help="Pipeline parallel degree.")] = None
    ep: Annotated[int | None, Parameter(help="Expert parallel degree.")] = None
    etp: Annotated[int | None, Parameter(help="Expert tensor parallel degree.")] = None
    schedule: Annotated[str | None, Parameter(help="Pipeline schedule; project compares all.")] = None
    virtual_stages: Annotated[int | None, Parameter(help="Chunks per pipeline stage.")] = None
    micro_batch_size: Annotated[int | None, Parameter(help="Sequences per data-parallel rank and micro-batch.")] = None
    global_batch_size: Annotated[int | None, Parameter(help="Sequences per step.")] = None
    sequence_length: Annotated[int | None, Parameter(help="Tokens per sequence.")] = None
    strategy: Annotated[str | None, Parameter(help="Sharding: ddp, zero1, zero2, zero3, fsdp, hsdp.")] = None
    precision: Annotated[str | None, Parameter(help="Compute precision, as bf16 or fp8_blockwise.")] = None
    recompute: Annotated[str | None, Parameter(help="Recompute policy.")] = None
    optimizer: Annotated[str | None, Parameter(help="Optimizer.")] = None


NO_FLAGS = JobFlags()
ALL_SCHEDULES = "all"
"""What ``project --schedule`` takes beside the name of one schedule; no job has it."""

PATHS = {
    "model": "model",
    "accelerator": "cluster.accelerator",
    "num_accelerators": "cluster.num_accelerators",
    "accelerators_per_node": "cluster.accelerators_per_node",
    "framework": "software.framework",
    "date": "software.date",
    "tp": "plan.parallel.tp",
    "cp": "plan.parallel.cp",
    "pp": "plan.parallel.pp",
    "ep": "plan.parallel.ep",
    "etp": "plan.parallel.etp",
    "schedule": "plan.pipeline.schedule",
    "virtual_stages": "plan.pipeline.virtual_stages",
    "micro_batch_size": "plan.batch.micro_batch_size",
    "global_batch_size": "plan.batch.global_batch_size",
    "sequence_length": "plan.batch.sequence_length",
    "strategy": "plan.sharding.strategy",
    "precision": "plan.precision.compute",
    "recompute": "plan.recompute.policy",
    "optimizer": "plan.optimizer",
}
"""Flag to job path."""


def given(flags: JobFlags) -> dict[str, Any]:
    """The flags a user typed, by job path."""
    values = {item.name: getattr(flags, item.name) for item in fields(flags)}
    return {path: values[name] for name, path in PATHS.items() if values[name] is not None}


@dataclass(frozen=True, slots=True)
class Request:
    """A job as asked for: the source, read once, and the changes of the command line laid over it."""

    source: Mapping[str, Any]
    folder: Path
    changes: Mapping[str, object]
    scale_batch: bool
    constants: Mapping[str, float] = field(default_factory=dict)
    """Constants in place of the published ones, by ``group.name``."""
    _variations: Variations = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        from windtunnel.catalog.variations import Variations

        given = Variations(self.source, self.changes, scale_batch=self.scale_batch, base_dir=self.folder)
        object.__setattr__(self, "_variations", given)

    def load(self, further: Mapping[str, object] | None = None) -> Job:
        """The legal job, with ``further`` values by job path on top. Raises WindtunnelError."""
        from windtunnel.catalog.jobs import load_job

        changes = {**self.changes, **(further or {})}
        return self._believing(load_job(self.source, set=changes, scale_batch=self.scale_batch, base_dir=self.folder))

    def vary(self, further: Mapping[str, object]) -> Job:
        """As ``load``, for who tries many: a refusal proposes no repairs."""
        return self._believing(self._variations(further))

    def _believing(self, job: Job) -> Job:
        return replace(job, constants=job.constants.having(self.constants)) if self.constants else job

    def to_mapping(self) -> dict[str, Any]:
        """What was asked for, for ``from_mapping`` in another process."""
        return {
            "source": self.source,
            "folder": str(self.folder.resolve()),
            "changes": self.changes,
            "scale_batch": self.scale_batch,
        }

    @classmethod
    def from_mapping(cls, written: Mapping[str, Any]) -> Request:
        return cls(written["source"], Path(written["folder"]), written["changes"], written["scale_batch"])

    def draft(self) -> Draft:
        """The job before legality is asked. Raises FormatError and MissingError only."""
        from windtunnel.catalog.jobs import load_draft

        return load_draft(self.source, set=self.changes, scale_batch=self.scale_batch, base_dir=self.folder)


def request(source: str | None, flags: JobFlags) -> Request:
    """What a command line asks for. Raises FormatError and MissingError."""
    from windtunnel.catalog.jobs import read_source
    from windtunnel.catalog.overrides import parse_overrides

    changes = {**given(flags), **parse_overrides(flags.set or ())}
    if source is None and not changes:
        remedy = "name a job file, - for stdin, or flags such as --model and --accelerator"
        raise MissingError(Fault("JOB", "", "no job was given", remedy))
    mapping, folder = read_source("-" if source == STDIN else source)
    return Request(mapping, folder, changes, flags.scale_batch)
