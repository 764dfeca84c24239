"""The oracle that projects: the pipeline itself, with whatever source prices its ops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from windtunnel.errors import WindtunnelError
from windtunnel.job.job import Job
from windtunnel.projection.result import Projection
from windtunnel.search.screen import Candidate
from windtunnel.search.trial import Outcome


@dataclass(slots=True, kw_only=True)
class Projecting:
    """``projected`` is ``project`` with a cost source: simulated, profile or anchored, which ``name`` says."""

    projected: Callable[[Job], Projection]
    name: str = "simulated"
    workers: int = 1
    _candidates: dict[int, Candidate] = field(default_factory=dict)

    def start(self, number: int, candidate: Candidate) -> None:
        self._candidates[number] = candidate

    def poll(self, number: int, *, wait: bool) -> Outcome | None:
        if not wait:
            return None
        candidate = self._candidates.pop(number)
        try:
            answer = self.projected(candidate.job)
        except WindtunnelError as error:
            return Outcome(status="crashed", why=f"cannot be projected: {error}")
        return Outcome(
            status="ok",
            step_time=answer.step_time,
            peak_device=answer.memory.peak.device,
            provenance={name: share for name, share in asdict(answer.provenance).items() if share},
        )
