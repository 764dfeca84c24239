"""``windtunnel portfolio``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from windtunnel.cli.clock import Clock, StatusLine, seconds_of
from windtunnel.cli.flags import NO_FLAGS, JobFlags, request
from windtunnel.cli.output import DEFAULT, Output, print_json, print_screen, switch
from windtunnel.cli.tuning import Tuning
from windtunnel.errors import Fault, FormatError, MissingError

if TYPE_CHECKING:
    from windtunnel.cli.member import Member

INTERRUPTED = 130
NO_END = "1000 d"


def portfolio(
    *jobs: Annotated[str, Parameter(help="Job files.")],
    across: Annotated[
        list[str] | None,
        Parameter(negative="", metavar="PATH=A,B", help="Put every job in each of these places; may be repeated."),
    ] = None,
    proposer: Annotated[str, Parameter(help="exhaustive, seed, local, random; several with commas.")] = "seed",
    calls: Annotated[int | None, Parameter(help="Most plans to try for one row.")] = None,
    budget: Annotated[str, Parameter(help="Longest search for one row.")] = "10 min",
    objective: Annotated[str, Parameter(help="throughput, cost, time_to_train, accelerators, memory.")] = "throughput",
    target: Annotated[
        str | None, Parameter(help="Slowest that counts: of the run where the job has run.tokens, else of a step.")
    ] = None,
    seed: Annotated[int, Parameter(help="Of the proposers that draw.")] = 0,
    vary: Annotated[
        list[str] | None, Parameter(negative="", metavar="PATH=A,B", help="Values of one axis of every search.")
    ] = None,
    space: Annotated[str | None, Parameter(metavar="FILE", help="Axes of every search, as for tune.")] = None,
    studies: Annotated[str | None, Parameter(metavar="FOLDER", help="Keep a study of every row in it.")] = None,
    resume: Annotated[bool, switch("Go on with studies that exist.")] = False,
    local: Annotated[bool, switch("On the cores at hand, without Ray.")] = False,
    address: Annotated[str | None, Parameter(help="Of a Ray cluster; without it Ray starts workers here.")] = None,
    workers: Annotated[int | None, Parameter(help="Rows at once here; by default one a core.")] = None,
    flags: JobFlags = NO_FLAGS,
    output: Output = DEFAULT,
) -> int:
    """Many jobs in many places: a study of each, on Ray or on the cores at hand, and one table."""
    from windtunnel.cli.member import failed
    from windtunnel.cli.spread import Lost

    if target is not None:
        seconds_of("--target", target)
    seconds_of("--budget", budget)
    tuning = Tuning(proposer=proposer, seed=seed, objective=objective, calls=calls, study=studies, resume=resume)
    common: dict[str, Any] = {"tuning": tuning, "vary": tuple(vary or ()), "space": space, "budget": budget}
    common["target"] = None if target is None else seconds_of("--target", target)
    members = [member for job in jobs for member in _members(job, flags, _places(across or ()), common)]
    _check(members, tuning, workers)
    clock, rows = Clock(NO_END), dict[int, dict[str, Any]]()
    line = StatusLine(clock, lambda: f"{len(rows)} of {len(members)} rows", quiet=output.quiet)
    with clock.stoppable():
        for index, found in _spread(members, address, workers, clock, local=local):
            rows[index] = failed(found.why, members[index]) if isinstance(found, Lost) else found
            line.tick()
    line.clear()
    return _told(members, rows, clock, output)


def _told(members: Sequence[Member], rows: dict[int, dict[str, Any]], clock: Clock, output: Output) -> int:
    """Print the table in the order of the members; rows that an interruption cost say so."""
    from windtunnel.cli.member import failed
    from windtunnel.report.portfolio import portfolio_document, portfolio_text

    listed = [rows[index] if index in rows else failed("interrupted", member) for index, member in enumerate(members)]
    document = portfolio_document(listed, clock.elapsed, interrupted=clock.stopped)
    print_json(document) if output.json else print_screen(portfolio_text(document), output)
    if clock.stopped:
        return INTERRUPTED
    return 0 if any(row["best"] for row in listed) else 1


def _spread(
    members: Sequence[Member], address: str | None, workers: int | None, clock: Clock, *, local: bool
) -> Iterator[tuple[int, Any]]:
    from windtunnel.cli.member import row
    from windtunnel.cli.spread import on_cores, on_ray
    from windtunnel.cli.workers import processors

    at_once = workers or processors()
    if local:
        return on_cores(row, members, min(at_once, len(members)), clock.over)
    return on_ray(row, members, address, at_once, clock.over)


def _members(source: str, flags: JobFlags, places: Sequence[dict[str, Any]], common: dict[str, Any]) -> list[Member]:
    """A job in every place."""
    from windtunnel.cli.member import Member

    asked = request(source, flags)
    name = source.rsplit("/", 1)[-1].removesuffix(".yaml").removesuffix(".yml").removesuffix(".json")
    return [
        Member(name=name, across=place, asked=replace(asked, changes={**asked.changes, **place}), **common)
        for place in places
    ]


def _places(across: Sequence[str]) -> list[dict[str, Any]]:
    """Every combination of the values named; one place without any."""
    from windtunnel.catalog.overrides import parse_overrides

    axes: dict[str, list[Any]] = {}
    for text in across:
        path, _, listed = text.partition("=")
        if not listed.strip():
            rule = "a place has a value"
            raise FormatError(Fault("--across", text, rule, "write --across cluster.num_accelerators=8,16"))
        values: Any = parse_overrides([f"{path}=[{listed}]"])[path]
        axes[path] = list(values)
    parse_overrides([f"{path}=0" for path in axes])
    return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]


def _check(members: Sequence[Member], tuning: Tuning, workers: int | None) -> None:
    import os

    from windtunnel.cli.studies import check_names

    if not members:
        raise MissingError(Fault("JOB", "", "no job was given", "name job files"))
    check_names(tuning)
    if workers is not None and workers < 1:
        raise FormatError(Fault("--workers", str(workers), "at least one row at a time", "write --workers 1"))
    if tuning.study is not None and not os.path.isdir(tuning.study):
        raise MissingError(Fault("--studies", tuning.study, "no such folder", "create it first"))
    titles = [member.title for member in members]
    if tuning.study is not None and len(set(titles)) < len(titles):
        rule = "rows of one name would share a study"
        raise FormatError(Fault("--studies", tuning.study, rule, "give the job files different names"))
