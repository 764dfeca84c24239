"""``windtunnel profile``: two profiles compared or made one."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

from windtunnel.cli.output import DEFAULT, Output, print_json, print_note, print_screen


def profile(
    action: Annotated[Literal["diff", "merge"], Parameter(help="Compare two profiles, or make one of them.")],
    first: Annotated[str, Parameter(help="A profile; the older one.")],
    second: Annotated[str, Parameter(help="A profile of the same device and software; its entries win.")],
    /,
    *,
    out: Annotated[str, Parameter(help="Where merge writes.")] = "profile.yaml",
    output: Output = DEFAULT,
) -> int:
    """Compare two profiles entry by entry, or merge them: the newer entry of a key stays."""
    from windtunnel.catalog.profiles import read_profile, write_profile
    from windtunnel.cost.profile import diff, merge
    from windtunnel.report.measuring import diff_document, diff_text

    old, new = read_profile(first), read_profile(second)
    if action == "merge":
        merged = merge(old, new)
        write_profile(out, merged)
        print_note(f"wrote {out}: {len(merged.entries)} entries", output)
        if output.json:
            print_json({"out": out, "entries": len(merged.entries)})
        return 0
    changes = diff(old, new)
    if output.json:
        print_json(diff_document(changes))
    else:
        print_screen(diff_text(changes), output)
    return 0
