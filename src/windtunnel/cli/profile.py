"""``windtunnel profile``: one profile shown, two compared or made one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from windtunnel.cli.output import DEFAULT, Output, print_json, print_note, print_screen
from windtunnel.errors import Fault, MissingError

if TYPE_CHECKING:
    from windtunnel.cost.profile import Profile


def profile(
    action: Annotated[
        Literal["show", "diff", "merge"], Parameter(help="What a profile holds; two compared; two made one.")
    ],
    first: Annotated[str, Parameter(help="A profile; of two the older one.")],
    second: Annotated[str | None, Parameter(help="A profile of the same device and software; its entries win.")] = None,
    /,
    *,
    out: Annotated[str, Parameter(help="Where merge writes.")] = "profile.yaml",
    output: Output = DEFAULT,
) -> int:
    """Show what a profile holds, compare two entry by entry, or merge them: the newer entry of a key stays."""
    from windtunnel.catalog.profiles import read_profile, write_profile
    from windtunnel.cost.profile import diff, merge
    from windtunnel.report.measuring import diff_document, diff_text

    if action == "show":
        return _show(read_profile(first), output)
    if second is None:
        raise MissingError(Fault("profile", action, "takes two profiles", "name another one"))
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


def _show(found: Profile, output: Output) -> int:
    from windtunnel.report.profile import profile_document, profile_text

    if output.json:
        print_json(profile_document(found))
    else:
        print_screen(profile_text(found), output)
    return 0
