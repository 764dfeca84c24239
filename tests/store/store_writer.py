"""A process that records trials: python store_writer.py FILE FIRST COUNT — prints each number once it is recorded."""

from __future__ import annotations

import sys

from windtunnel.errors import WindtunnelError
from windtunnel.search.trial import Outcome, Trial
from windtunnel.store.study_file import StudyFile


def trial(number: int, padding: int = 0) -> Trial:
    outcome = Outcome(status="ok", step_time=1.0 + number, peak_device=2.0, provenance={"measured": 1.0})
    changes = {"plan.parallel.tp": number, "padding": "x" * padding}
    return Trial(number=number, proposer="p", reason="r", changes=changes, outcome=outcome, values=(1.0 + number,))


def main(path: str, first: int, count: int, padding: int = 0) -> int:
    try:
        study = StudyFile.create(path, {"job": {}})
        for number in range(first, first + count):
            study.record("o", f"key {number}", trial(number, padding), {})
            print(number, flush=True)
    except WindtunnelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(*(argument if index == 0 else int(argument) for index, argument in enumerate(sys.argv[1:]))))
