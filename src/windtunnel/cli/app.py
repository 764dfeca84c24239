"""The table of verbs, and the one place where errors become exit codes.

0: the work was done. 1: the answer is no. 2: bad input. 130: interrupted. 141: the reader of the pipe went away.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError

import windtunnel
from windtunnel.cli.flags import STDIN
from windtunnel.cli.output import print_error
from windtunnel.errors import Fault, WindtunnelError

BAD_INPUT = 2
INTERRUPTED = 130
BROKEN_PIPE = 141

VERBS = {
    "project": ("windtunnel.cli.project:project", "Memory and throughput of one job."),
    "memory": ("windtunnel.cli.memory:memory", "The memory half alone, and the largest values that still fit."),
    "compare": ("windtunnel.cli.compare:compare", "Jobs side by side, the difference attributed to terms that sum."),
    "check": ("windtunnel.cli.check:check", "Legality: values, grids, broken rules, nearest repairs. Exit 1: illegal."),
    "fit": ("windtunnel.cli.fit:fit", "What makes it fit: ranked changes, priced; reads out-of-memory messages."),
    "tune": ("windtunnel.cli.tune:tune", "Every plan: the fastest that fits, and the proof. Exit 1: nothing fits."),
    "study": (
        "windtunnel.cli.study:study",
        "What a study has tried: all trials, the best, or JSON lines.",
    ),
    "portfolio": ("windtunnel.cli.portfolio:portfolio", "Many jobs in many places, the best plan of each, one table."),
    "measure": ("windtunnel.cli.measure:measure", "Time a job's own ops on the device at hand, into a profile."),
    "profile": ("windtunnel.cli.profile:profile", "What a profile holds; two compared, or made one."),
    "schedule": ("windtunnel.cli.schedule:schedule", "One pipeline schedule on its own, drawn."),
    "validate": ("windtunnel.cli.validate:validate", "Projections against measured runs. Exit 1: worse than before."),
    "calibrate": (
        "windtunnel.cli.calibrate:calibrate",
        "Refit the constants on measured runs, sources left out in turn.",
    ),
    "mcp": ("windtunnel.mcp.verb:mcp", "The tuning agent's tools for any assistant that speaks MCP."),
    "list": ("windtunnel.cli.catalog:list_names", "Names in the catalog."),
    "show": ("windtunnel.cli.catalog:show", "One catalog entry, or the schema of a format."),
}
"""Verb to the function that runs it and its summary."""


def build() -> App:
    """The application; a verb's module is imported when the verb or the help needs it."""
    app = App(
        name="windtunnel",
        help="Will it fit, how fast, and why: LLM training projected before the cluster is booked.",
        version=windtunnel.__version__,
        help_epilogue="windtunnel VERB --help tells the rest. Exit codes: 0 done, 1 the answer is no, 2 bad input.",
        help_format="plaintext",
        result_action="return_value",
    )
    for name, (path, summary) in VERBS.items():
        app.command(path, name=name, help=summary)
    return app


def run(arguments: Sequence[str]) -> int:
    """Run one command line and answer its exit code; no exception leaves here."""
    as_json = "--json" in arguments
    try:
        words = [STDIN if word == "-" else word for word in arguments]
        code = build()(words, exit_on_error=False, print_error=False)
        sys.stdout.flush()
    except WindtunnelError as error:
        print_error(error.kind, error.faults, as_json=as_json)
        return BAD_INPUT
    except CycloptsError as error:
        print_error("format", [_usage_fault(error, arguments)], as_json=as_json)
        return BAD_INPUT
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return INTERRUPTED
    except BrokenPipeError:
        _silence_stdout()
        return BROKEN_PIPE
    except Exception as error:
        # The last door: a defect of ours must still reach a script as a document and a person as one line.
        print_error("internal", [_internal_fault(error)], as_json=as_json)
        return BAD_INPUT
    return code if isinstance(code, int) else 0


def _usage_fault(error: CycloptsError, arguments: Sequence[str]) -> Fault:
    error.verbose = False
    message = " ".join(str(error).split()) or type(error).__name__
    verb = next((argument for argument in arguments if argument in VERBS), "")
    help_line = " ".join(filter(None, ("windtunnel", verb, "--help")))
    return Fault("command line", " ".join(arguments), message, f"see {help_line}")


def _internal_fault(error: Exception) -> Fault:
    message = " ".join(str(error).split())[:200]
    where = _innermost(error)
    return Fault(
        "windtunnel",
        "",
        f"an unexpected {type(error).__name__} at {where}: {message}",
        "this is a defect of windtunnel, not of the job: please report it with the command and the job file",
    )


def _innermost(error: Exception) -> str:
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is None:
        return "an unknown place"
    return f"{os.path.basename(traceback.tb_frame.f_code.co_filename)}:{traceback.tb_lineno}"


def _silence_stdout() -> None:
    """Keep the interpreter's own flush at exit from failing on the closed pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
