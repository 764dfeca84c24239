"""The command line: parse, call, render."""

from __future__ import annotations


def main() -> None:
    """Entry point of the ``windtunnel`` command; leaves with its exit code."""
    import sys

    from windtunnel.cli.app import run

    sys.exit(run(sys.argv[1:]))
