"""Jobs from files, standard input, mappings and flags: read, checked, completed, and legal or refused."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from windtunnel.catalog.cluster_section import read_cluster
from windtunnel.catalog.constants import constants
from windtunnel.catalog.faults import show
from windtunnel.catalog.files import JOB_LIMIT, parse_yaml, read_yaml
from windtunnel.catalog.format import read_section
from windtunnel.catalog.job_format import JobFile
from windtunnel.catalog.layouts import resolve_layout
from windtunnel.catalog.model_section import read_model_value, with_base
from windtunnel.catalog.overrides import parse_overrides, path_faults, with_values
from windtunnel.catalog.rederive import Rederived, rederive, scaled_batch
from windtunnel.catalog.software import software_profile
from windtunnel.errors import Fault, FormatError, LegalityError, MissingError, WindtunnelError
from windtunnel.job.build import build
from windtunnel.job.cluster import Cluster
from windtunnel.job.draft import Draft
from windtunnel.job.job import Job, Origin, Run
from windtunnel.job.legality import violations
from windtunnel.job.legality.words import fault_of
from windtunnel.job.model import ModelSpec
from windtunnel.job.resolve import resolve_plan, resolve_software
from windtunnel.job.software import SoftwareProfile
from windtunnel.schedule.layout import layout_text, parse_layout
from windtunnel.schedule.registry import applicable, chunks_obstacle, find

Source = str | os.PathLike[str] | Mapping[str, Any] | None
Changes = Mapping[str, object] | Sequence[str]
T = TypeVar("T")

_SECTIONS = ("cluster", "software", "plan", "run")


def load_job(
    source: Source,
    *,
    set: Changes = (),
    flags: Mapping[str, object] | None = None,
    scale_batch: bool = False,
    base_dir: str | os.PathLike[str] | None = None,
    repairs: bool = True,
) -> Job:
    """The legal job of a file, ``-`` (standard input), a mapping, or None (flags alone).

    ``set`` holds ``KEY=VALUE`` texts or values by path; with ``flags`` (values by path) it is stronger than the source.
    ``scale_batch`` keeps the batch per replica where the number of replicas changes. Without ``repairs`` a refusal
    comes sooner and proposes none.

    Raises:
        FormatError, MissingError: what cannot be read, all faults at once.
        LegalityError: what cannot run, all violated rules at once.
    """
    draft = load_draft(source, set=set, flags=flags, scale_batch=scale_batch, base_dir=base_dir)
    return legal(draft, repairs=repairs)


def load_draft(
    source: Source,
    *,
    set: Changes = (),
    flags: Mapping[str, object] | None = None,
    scale_batch: bool = False,
    base_dir: str | os.PathLike[str] | None = None,
) -> Draft:
    """The effective values of a job, legal or not; arguments as for ``load_job``.

    Raises:
        FormatError, MissingError: what cannot be read, all faults at once.
    """
    mapping, folder = read_source(source)
    changes = {**(flags or {}), **_changes(set)}
    return draft_of(mapping, changes, scale_batch=scale_batch, base_dir=Path(base_dir) if base_dir else folder)


def job_from_mapping(mapping: Mapping[str, Any], base_dir: str | os.PathLike[str] | None = None) -> Job:
    """The legal job of a mapping; paths in it are relative to ``base_dir``. Raises as ``load_job``."""
    return load_job(mapping, base_dir=base_dir)


def legal(draft: Draft, *, repairs: bool = True) -> Job:
    """The job of a draft that breaks no rule; warnings of rules join those of the draft.

    Raises:
        LegalityError: a fault for each broken rule, with its nearest repairs in words.
    """
    found = violations(draft, repairs=repairs)
    errors = [violation for violation in found if violation.severity == "error"]
    if errors:
        raise LegalityError([fault_of(violation) for violation in errors])
    said = tuple(violation.message for violation in found)
    return build(replace(draft, warnings=draft.warnings + said) if said else draft, constants())


def draft_of(
    mapping: Mapping[str, Any], changes: Mapping[str, object], *, scale_batch: bool = False, base_dir: Path
) -> Draft:
    """A mapping and the changes laid over it, completed."""
    merged = with_values(mapping, changes) if changes else dict(mapping)
    section = read_section(JobFile, with_base(merged, base_dir))
    parts = _read_parts(section, base_dir)
    given = flatten(section)
    rederived = Rederived(given=given, notes=())
    if changes and mapping:
        file = flatten(mapping)
        leaves = _leaves(changes, file)
        rederived = rederive(given, file, leaves, parts.model.num_layers, _file_chunks(file, base_dir))
        if scale_batch:
            rederived = replace(rederived, given={**rederived.given, **scaled_batch(rederived.given, file, leaves)})
    return _complete(parts, rederived, base_dir)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """What catalogs and files know of a job."""

    model: ModelSpec
    model_notes: tuple[str, ...]
    cluster: Cluster
    origin: tuple[Origin, ...]
    profile: SoftwareProfile
    run: Run


def _read_parts(section: Mapping[str, Any], base_dir: Path) -> _Parts:
    """Model, cluster and software of a checked file; the faults of all three at once."""
    software = section.get("software", {})
    faults = _Faults()
    model = faults.of(lambda: read_model_value(section["model"], base_dir))
    cluster = faults.of(lambda: read_cluster(section["cluster"]))
    framework, date = software.get("framework", "megatron-core"), software.get("date")
    profile = faults.of(lambda: software_profile(framework, date, model[0].name if model else ""))
    faults.raise_all()
    assert model is not None
    assert cluster is not None
    assert profile is not None
    return _Parts(
        model=model[0],
        model_notes=model[1],
        cluster=cluster[0],
        origin=cluster[1],
        profile=profile,
        run=Run(**section.get("run", {})),
    )


class _Faults:
    """Gathers the faults of several readings, so that a user sees all of them."""

    def __init__(self) -> None:
        self._errors: list[WindtunnelError] = []

    def of(self, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except (FormatError, MissingError) as error:
            self._errors.append(error)
            return None

    def raise_all(self) -> None:
        faults = [fault for error in self._errors for fault in error.faults]
        if any(isinstance(error, FormatError) for error in self._errors):
            raise FormatError(faults)
        if faults:
            raise MissingError(faults)


def _complete(parts: _Parts, rederived: Rederived, base_dir: Path) -> Draft:
    given = rederived.given
    parts = _with_positions(parts, given)
    software, of_software = resolve_software(given, parts.profile, parts.cluster.accelerator)
    stages = _chunks_per_stage(given, rederived, parts.model)
    plan = resolve_plan(
        given, model=parts.model, cluster=parts.cluster, software=software, profile=parts.profile, virtual_stages=stages
    )
    layout, fault, why = resolve_layout(plan.values, parts.model, software)
    orders = _orders(given.get("plan.pipeline.orders"), base_dir)
    draft = Draft(
        model=parts.model,
        cluster=parts.cluster,
        software=software,
        run=parts.run,
        plan=plan.values,
        given=frozenset(given),
        layout=layout,
        layout_fault=fault,
        orders=orders,
        origin=parts.origin + of_software.origin + plan.origin,
        warnings=parts.model_notes + rederived.notes + of_software.warnings + plan.warnings,
    )
    return with_schedule(_with_layout(draft, why))


def _with_positions(parts: _Parts, given: Mapping[str, Any]) -> _Parts:
    """Learned positions cover the sequence trained on unless the model says more."""
    if parts.model.position != "learned" or parts.model.max_position_embeddings is not None:
        return parts
    length = given["plan.batch.sequence_length"]
    origin = Origin("model.max_position_embeddings", length, "derived", "sequence_length")
    model = replace(parts.model, max_position_embeddings=length)
    return replace(parts, model=model, origin=(origin, *parts.origin))


def _chunks_per_stage(given: Mapping[str, Any], rederived: Rederived, model: ModelSpec) -> tuple[int, str] | None:
    if rederived.virtual_stages is not None:
        return rederived.virtual_stages, "derived anew from the file's, after the change"
    text, pp = given.get("plan.pipeline.layout"), given.get("plan.parallel.pp", 1)
    chunks = _chunks(text, model) if isinstance(text, str) else None
    if chunks is None or chunks % pp:
        return None
    return chunks // pp, f"the layout has {chunks} chunks for {pp} stages"


def _chunks(text: str, model: ModelSpec) -> int | None:
    try:
        return len(parse_layout(text, 1, num_layers=model.num_layers, num_mtp_layers=model.num_mtp_layers))
    except FormatError:
        return None


def _file_chunks(file: Mapping[str, Any], base_dir: Path) -> int | None:
    """Chunks of a layout in the file, whose model may differ from the one in force."""
    text = file.get("plan.pipeline.layout")
    if not isinstance(text, str):
        return None
    try:
        return _chunks(text, read_model_value(with_base(file, base_dir)["model"], base_dir)[0])
    except (WindtunnelError, KeyError, TypeError, ValueError):
        return None


def _with_layout(draft: Draft, why: str) -> Draft:
    """The layout found stands in the plan too, as the text and the counts that spell it."""
    if draft.layout is None or "plan.pipeline.layout" in draft.given:
        return draft
    text = layout_text(draft.layout)
    return replace(
        draft,
        plan={**draft.plan, "pipeline.layout": text},
        origin=(*draft.origin, Origin("plan.pipeline.layout", text, "derived", why)),
    )


def with_schedule(draft: Draft) -> Draft:
    """The draft with what its schedule, asked itself, says of these stages and micro-batches."""
    plan = draft.plan
    dp = plan["parallel.dp"]
    per_step = draft.count("batch.micro_batch_size") * (dp if isinstance(dp, int) else 0)
    if not per_step or draft.count("batch.global_batch_size") % per_step:
        return draft
    name, virtual_stages = str(plan["pipeline.schedule"]), draft.count("pipeline.virtual_stages")
    why = chunks_obstacle(find(name), virtual_stages) or applicable(
        name,
        draft.count("parallel.pp"),
        draft.count("batch.global_batch_size") // per_step,
        virtual_stages,
        microbatch_group_size=draft.count("pipeline.microbatch_group_size"),
        orders=draft.orders,
    )
    return draft if why is None else replace(draft, schedule_fault=why)


def _orders(value: object, base_dir: Path) -> tuple[tuple[str, ...], ...] | None:
    """The rows of a custom schedule: in place, or in a file with ``orders`` as ``schedule --json`` prints them."""
    if value is None or isinstance(value, tuple):
        return value
    path = str(base_dir / str(value))
    content = read_yaml(path, limit_bytes=JOB_LIMIT)
    rows = content.get("orders") if isinstance(content, Mapping) else None
    if not isinstance(rows, list) or not all(
        isinstance(row, list) and all(isinstance(token, str) for token in row) for row in rows
    ):
        rule = "orders is due: a list of rows, one a rank, of actions such as F0.0"
        raise FormatError(Fault(path, "", rule, "write what `windtunnel schedule NAME --json` prints"))
    return tuple(tuple(row) for row in rows)


def flatten(section: Mapping[str, Any]) -> dict[str, Any]:
    """Values by full path; the model and the accelerator stay whole, and null means not given."""
    flat: dict[str, Any] = {key: value for key, value in section.items() if key not in _SECTIONS}
    for name in _SECTIONS:
        _flatten(section.get(name), name, flat)
    return flat


def _flatten(value: object, path: str, flat: dict[str, Any]) -> None:
    if isinstance(value, Mapping) and path != "cluster.accelerator":
        for key, below in value.items():
            _flatten(below, f"{path}.{key}", flat)
    elif value is not None:
        flat[path] = value


def _leaves(changes: Mapping[str, object], file: Mapping[str, Any]) -> dict[str, object]:
    """Changes by the paths of single values: a section set as a whole also takes back what the file has in it."""
    leaves: dict[str, object] = {}
    for path, value in changes.items():
        if isinstance(value, Mapping) and path.split(".")[0] in _SECTIONS:
            leaves |= {known: None for known in file if known.startswith(f"{path}.")}
            _flatten(value, path, leaves)
        else:
            leaves[path] = value
    return leaves


def read_source(source: Source) -> tuple[Mapping[str, Any], Path]:
    """The mapping of a source, and the folder its relative paths start from."""
    if source is None:
        return {}, Path.cwd()
    if isinstance(source, Mapping):
        return source, Path.cwd()
    name = os.fspath(source)
    if name == "-":
        return _mapping(parse_yaml(_stdin(), "standard input"), "standard input"), Path.cwd()
    return _mapping(read_yaml(name, limit_bytes=JOB_LIMIT), name), Path(name).parent


def _stdin() -> str:
    text = sys.stdin.read(JOB_LIMIT + 1)
    if len(text) > JOB_LIMIT:
        raise FormatError(Fault("standard input", "", f"a job is at most {JOB_LIMIT} bytes", "name a job file"))
    return text


def _mapping(content: object, name: str) -> Mapping[str, Any]:
    if not isinstance(content, Mapping):
        rule = "a job is a mapping with model, cluster and plan"
        raise FormatError(Fault(name, show(content), rule, "`windtunnel show schema job` lists the keys"))
    return content


def _changes(changes: Changes) -> dict[str, object]:
    if not isinstance(changes, Mapping):
        return parse_overrides(changes)
    faults = path_faults(changes)
    if faults:
        raise FormatError(faults)
    return dict(changes)


def write_job(path: str | os.PathLike[str], mapping: Mapping[str, Any]) -> None:
    """Write a job file, whole or not at all. Raises MissingError and FormatError as ``write_whole`` does."""
    from io import StringIO

    from ruamel.yaml import YAML

    from windtunnel.catalog.writing import write_whole

    text = StringIO()
    YAML(typ="safe", pure=True).dump(dict(mapping), text)
    write_whole(path, [text.getvalue()])
