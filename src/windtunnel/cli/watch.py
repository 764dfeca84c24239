"""A study watched on stderr: a screen that is redrawn on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from windtunnel.cli.clock import Clock
from windtunnel.cli.output import WIDTH

if TYPE_CHECKING:
    from rich.live import Live

    from windtunnel.search.study import Study
    from windtunnel.search.trial import Trial

REDRAWN = 0.2
"""Seconds between two screens, at least."""
NEWS = 10.0
"""Seconds between two lines, at least; the first best plan is told at once."""


class Watch:
    """Shows a study whenever it is told that time has passed; with ``quiet`` nothing."""

    def __init__(self, clock: Clock, study: Study, *, quiet: bool) -> None:
        self._clock = clock
        self._study = study
        self._quiet = quiet
        self._live: Live | None = None
        self._shown = -NEWS
        self._told: Trial | None = None

    def tick(self) -> None:
        if self._quiet:
            return
        since = self._clock.elapsed - self._shown
        if sys.stderr.isatty():
            if since > REDRAWN:
                self._redraw()
        elif since > NEWS and (self._study.best is not self._told or since > 6 * NEWS):
            self._say()

    def clear(self) -> None:
        """The screen goes when the answer comes; a log says how it ended."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        elif not self._quiet and not sys.stderr.isatty() and self._study.best is not self._told:
            self._say()

    def _redraw(self) -> None:
        from windtunnel.report.progress import study_screen

        self._shown = self._clock.elapsed
        screen = study_screen(self._study, self._clock.elapsed, self._clock.limit)
        if self._live is None:
            from rich.console import Console
            from rich.live import Live

            plain = bool(os.environ.get("NO_COLOR"))
            console = Console(stderr=True, no_color=plain, highlight=False, markup=False, emoji=False)
            console.width = min(WIDTH, console.width)
            self._live = Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False,
                              redirect_stderr=False)  # fmt: skip
            self._live.start()
        self._live.update(screen, refresh=True)

    def _say(self) -> None:
        from windtunnel.report.progress import news_line

        self._shown, self._told = self._clock.elapsed, self._study.best
        sys.stderr.write(news_line(self._study, self._clock.elapsed) + "\n")
        sys.stderr.flush()
