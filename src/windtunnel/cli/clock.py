"""A budget of seconds, and signals that end a search and keep what it found."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from windtunnel.errors import Fault, FormatError


class Clock:
    """Seconds from now, and the most of them. Raises FormatError for a text that is no duration."""

    def __init__(self, budget: str) -> None:
        self.limit = seconds_of("--budget", budget)
        self._start = time.perf_counter()
        self.stopped = False

    @property
    def elapsed(self) -> float:
        return time.perf_counter() - self._start

    def over(self) -> bool:
        return self.stopped or self.elapsed > self.limit

    @contextmanager
    def stoppable(self) -> Iterator[None]:
        """Ctrl-C, SIGTERM and the end of the terminal ask the search to stop; a second Ctrl-C or SIGTERM ends the
        process as usual. Signals reach the main thread only: in others nothing is asked."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        terminal = signal.getsignal(signal.SIGHUP) if hasattr(signal, "SIGHUP") else signal.SIG_IGN

        def restore() -> None:
            for number, handler in previous.items():
                signal.signal(number, handler)

        def stop(_signal: int, _frame: object) -> None:
            self.stopped = True
            restore()

        def hang_up(_signal: int, _frame: object) -> None:
            self.stopped = True  # a terminal that closes says so more than once, as does the shell in it

        for number in previous:
            signal.signal(number, stop)
        if terminal is not signal.SIG_IGN:  # nohup means it
            signal.signal(signal.SIGHUP, hang_up)
        try:
            yield
        finally:
            restore()
            if terminal is not signal.SIG_IGN:
                signal.signal(signal.SIGHUP, terminal)


def seconds_of(option: str, text: str) -> float:
    """A duration such as ``60s``, ``5 min`` or ``10m``: minutes, as a budget is never metres."""
    from windtunnel.units import UnitError, parse

    digits = len(text) - len(text.lstrip("0123456789."))
    unit = text[digits:].strip()
    try:
        return parse(f"{text[:digits]} {'min' if unit == 'm' else unit}", "time")
    except UnitError as error:
        raise FormatError(Fault(option, text, error.rule, error.remedy)) from None


class StatusLine:
    """One line on a terminal, rewritten five times a second at most; nothing elsewhere."""

    def __init__(self, clock: Clock, text: Callable[[], str], *, quiet: bool) -> None:
        self._clock = clock
        self._text = text
        self._show = not quiet and sys.stderr.isatty()
        self._shown = 0.0

    def tick(self) -> None:
        if self._show and self._clock.elapsed - self._shown > 0.2:
            self._shown = self._clock.elapsed
            sys.stderr.write(f"\r{self._text()[:100]}\x1b[K")
            sys.stderr.flush()

    def clear(self) -> None:
        if self._show:
            sys.stderr.write("\r\x1b[K")
