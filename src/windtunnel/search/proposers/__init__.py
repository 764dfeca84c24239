"""Who says what to try next, one file each. A proposer of one's own needs ``ask`` and ``tell``."""

from collections.abc import Callable, Mapping

from windtunnel.search.proposers.base import Ground, Proposer
from windtunnel.search.proposers.local import Local
from windtunnel.search.proposers.random import Random
from windtunnel.search.proposers.seed import Seed

PROPOSERS: Mapping[str, Callable[[Ground], Proposer]] = {"seed": Seed, "local": Local, "random": Random}
"""Proposers that need nothing but their ground, by name."""

__all__ = ["PROPOSERS", "Ground", "Proposer"]
