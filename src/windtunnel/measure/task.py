"""One thing to measure: which kernel, with which arguments, what it yields, and why it is worth the time."""

from __future__ import annotations

from dataclasses import dataclass

from windtunnel.cost.profile import Key


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """``kernel`` is ``module:function``; the function takes the device and ``arguments`` and gives an object whose
    ``run()`` answers seconds by key. ``share`` of a step's seconds stands on it, known to ``uncertainty``."""

    keys: tuple[Key, ...]
    kernel: str
    arguments: tuple[object, ...]
    label: str
    share: float = 0.0
    uncertainty: float = 0.0

    @property
    def value(self) -> float:
        """What measuring it takes off the uncertainty of the step."""
        return self.share * self.uncertainty
