"""``windtunnel list`` and ``windtunnel show``."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

from windtunnel.cli.output import DEFAULT, Output, print_json, print_screen

Kind = Literal["accelerators", "clusters", "models", "schedules", "software"]


def list_names(
    kind: Annotated[Kind | None, Parameter(help="Which names; all kinds without it.")] = None,
    /,
    *,
    output: Output = DEFAULT,
) -> int:
    """Names in the catalog."""
    from windtunnel.catalog import names

    found = names.names_by_kind()
    chosen = {name: found[name] for name in found if kind in (None, name)}
    if output.json:
        print_json({name: list(entries) for name, entries in chosen.items()})
        return 0
    from windtunnel.report.catalog import names_text

    print_screen(names_text(chosen), output)
    return 0


def show(
    name: Annotated[str, Parameter(help="A catalog name, or the word schema.")],
    schema: Annotated[str | None, Parameter(help="After schema: job, record or accelerator.")] = None,
    /,
    *,
    output: Output = DEFAULT,
) -> int:
    """One catalog entry with its sources, or the JSON schema of a format."""
    from windtunnel.catalog import names

    if name == "schema":
        from windtunnel.catalog.schema import schema as schema_of

        print_json(schema_of(schema or "job"))
        return 0
    entry = names.entry(name)
    if output.json:
        print_json(entry)
        return 0
    from windtunnel.report.catalog import entry_text

    print_screen(entry_text(name, entry), output)
    return 0
