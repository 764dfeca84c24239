"""What reaches the terminal: one JSON document or one screen on stdout, everything else on stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from windtunnel.errors import Fault

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

WIDTH = 100


def switch(text: str) -> Parameter:
    """A flag that is given or not: no ``--no-`` form, no default shown."""
    return Parameter(negative="", show_default=False, help=text)


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Options every verb has."""

    json: Annotated[bool, switch("One JSON document on stdout and nothing else there.")] = False
    quiet: Annotated[bool, switch("No progress and no warnings on stderr.")] = False
    no_color: Annotated[bool, switch("No colour; the variable NO_COLOR does the same.")] = False


DEFAULT = Output()


def print_json(document: Any) -> None:
    sys.stdout.write(json.dumps(document, indent=2, allow_nan=False) + "\n")


def print_screen(screen: RenderableType, output: Output) -> None:
    console(output).print(screen, soft_wrap=False)


def console(output: Output) -> Console:
    """A console on stdout at most 100 columns wide; never guesses at markup or highlights figures by itself."""
    from rich.console import Console

    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        # A terminal that cannot show a block character gets a question mark, not an error.
        reconfigure(errors="replace")
    plain = output.no_color or bool(os.environ.get("NO_COLOR"))
    made = Console(no_color=plain, highlight=False, markup=False, emoji=False)
    width = min(WIDTH, made.width) if made.is_terminal else WIDTH
    return Console(width=width, no_color=plain, highlight=False, markup=False, emoji=False)


def print_warnings(warnings: Iterable[str], output: Output) -> None:
    """Warnings beside a JSON document; a screen carries its own."""
    if output.json and not output.quiet:
        sys.stderr.writelines(f"warning: {warning}\n" for warning in warnings)


def print_note(note: str, output: Output) -> None:
    """What was done beside the answer."""
    if not output.quiet:
        sys.stderr.write(note + "\n")


def print_error(kind: str, faults: Iterable[Fault], *, as_json: bool) -> None:
    """All faults at once: the error document on stdout, or one line each on stderr."""
    if as_json:
        from windtunnel.report.errors import error_document

        print_json(error_document(kind, faults))
        return
    sys.stderr.writelines(f"error: {fault}\n" for fault in faults)
