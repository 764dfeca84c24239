"""Where the seconds of a step go; every second belongs to exactly one part."""

from __future__ import annotations

from dataclasses import dataclass, fields

COMMUNICATION = ("tp", "cp", "ep", "etp", "pp", "dp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Seconds by cause. ``tp`` to ``dp`` are exposed communication of that group; ``bubble`` is waiting."""

    compute: float = 0.0
    recompute: float = 0.0
    tp: float = 0.0
    cp: float = 0.0
    ep: float = 0.0
    etp: float = 0.0
    pp: float = 0.0
    dp: float = 0.0
    host: float = 0.0
    contention: float = 0.0
    offload: float = 0.0
    optimizer: float = 0.0
    jitter: float = 0.0
    bubble: float = 0.0

    def __add__(self, other: Parts) -> Parts:
        return Parts(**{name: getattr(self, name) + getattr(other, name) for name in NAMES})

    def scaled(self, factor: float) -> Parts:
        return Parts(**{name: getattr(self, name) * factor for name in NAMES})

    @property
    def total(self) -> float:
        return (
            self.compute + self.recompute + self.tp + self.cp + self.ep + self.etp + self.pp + self.dp
            + self.host + self.contention + self.offload + self.optimizer + self.jitter + self.bubble
        )  # fmt: skip


NAMES: tuple[str, ...] = tuple(field.name for field in fields(Parts))
ZERO = Parts()
