"""Signals that end a search."""

from __future__ import annotations

import os
import signal

from windtunnel.cli.clock import Clock


def test_a_terminal_that_closes_stops_a_search_however_often_it_says_so() -> None:
    clock = Clock("10 min")
    before = signal.getsignal(signal.SIGHUP)
    with clock.stoppable():
        assert not clock.over()
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGHUP)
        assert clock.over()
    assert signal.getsignal(signal.SIGHUP) == before


def test_nohup_is_meant() -> None:
    clock = Clock("10 min")
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with clock.stoppable():
            os.kill(os.getpid(), signal.SIGHUP)
            assert not clock.over()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
