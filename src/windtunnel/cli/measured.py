"""How ``windtunnel project`` prices a job: on simulated seconds, or on those of a profile."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from windtunnel.errors import Fault, FormatError, MissingError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from windtunnel.cost.measured import MeasuredSource
    from windtunnel.cost.profile import Profile
    from windtunnel.cost.source import CostSource
    from windtunnel.job.job import Job
    from windtunnel.projection.in_model import PilotStep
    from windtunnel.projection.result import Projection

Mode = Literal["simulated", "measured", "both"]


@dataclass(frozen=True, slots=True)
class Simulated:
    """Every second is one of a formula."""

    def priced(self, job: Job) -> tuple[Projection, CostSource | None]:
        """The projection of a job and the source of its seconds, None for the simulated one."""
        from windtunnel.projection.project import project

        return project(job), None

    def run(self, job: Job) -> Projection:
        """The projection of a job."""
        return self.priced(job)[0]

    def certain(self, projection: Projection, source: CostSource | None) -> Projection:  # noqa: ARG002
        """The projection with the interval its evidence gives."""
        from windtunnel.catalog.calibration import with_uncertainty

        return with_uncertainty(projection)

    def slopes(self, projection: Projection, source: CostSource | None) -> tuple[tuple[str, float], ...]:
        """How its step time follows each figure of the cluster."""
        from windtunnel.projection.elasticity import elasticity
        from windtunnel.projection.project import step_time

        return elasticity(projection.job, lambda job: step_time(job, self.repriced(job, source)))

    def repriced(self, job: Job, source: CostSource | None) -> CostSource | None:  # noqa: ARG002
        """The source for a job whose cluster differs."""
        return None

    def document(self, job: Job, projection: Projection, source: CostSource | None) -> dict[str, Any]:  # noqa: ARG002
        """What the JSON document says besides."""
        return {}

    def screens(self, job: Job, projection: Projection, source: CostSource | None) -> list[RenderableType]:  # noqa: ARG002
        """What the screen shows besides."""
        return []


@dataclass(frozen=True, slots=True)
class Measured(Simulated):
    """Seconds of a profile where it has them; ``both``: shown beside the simulated ones, op by op."""

    profile: Profile
    both: bool

    def priced(self, job: Job) -> tuple[Projection, MeasuredSource]:
        from windtunnel.catalog.pilots import eager_software
        from windtunnel.cost.suits import warnings
        from windtunnel.projection.measured import project_measured
        from windtunnel.projection.pilot_memory import anchored_on_pilots

        projection, source = project_measured(job, self.profile)
        memory = projection.memory
        anchored = anchored_on_pilots(job, memory, self.profile, eager_software())
        sentences = (*projection.warnings, *warnings(job, self.profile))
        return replace(projection, memory=replace(memory, anchored=anchored), warnings=sentences), source

    def certain(self, projection: Projection, source: CostSource | None) -> Projection:
        from windtunnel.catalog.calibration import with_measured_uncertainty
        from windtunnel.cost.measured import MeasuredSource
        from windtunnel.projection.measured import spread

        assert isinstance(source, MeasuredSource)
        return with_measured_uncertainty(projection, spread(projection, source))

    def repriced(self, job: Job, source: CostSource | None) -> CostSource:
        from windtunnel.cost.measured import MeasuredSource, measured_source

        assert isinstance(source, MeasuredSource)
        return measured_source(job, self.profile, beside=source.beside)

    def document(self, job: Job, projection: Projection, source: CostSource | None) -> dict[str, Any]:
        from windtunnel.projection.project import project
        from windtunnel.report.json import projection_document
        from windtunnel.report.measured import evidence_document, ops_document
        from windtunnel.report.plain import plain

        found = {"evidence": evidence_document(projection), "pilots": plain(self._pilots(job))}
        if not self.both:
            return found
        simulated = projection_document(project(job))
        return found | {"simulated": simulated, "ops": ops_document(self._rows(job, projection, source))}

    def screens(self, job: Job, projection: Projection, source: CostSource | None) -> list[RenderableType]:
        from windtunnel.projection.project import project
        from windtunnel.report.measured import evidence_text, ops_text

        evidence = evidence_text(projection, project(job), self._pilots(job))
        return [evidence, ops_text(self._rows(job, projection, source))] if self.both else [evidence]

    def _pilots(self, job: Job) -> tuple[PilotStep, ...]:
        from windtunnel.catalog.pilots import eager_software
        from windtunnel.projection.in_model import pilot_steps

        return pilot_steps(job, self.profile, eager_software())

    def _rows(self, job: Job, projection: Projection, source: CostSource | None) -> Any:
        from windtunnel.cost.simulated import simulated_source
        from windtunnel.projection.evidence import compare_ops

        assert source is not None
        return compare_ops(job, simulated_source(job), projection.job, source, projection.busiest_stage)


def pricing(path: str | None, mode: Mode | None, anchored: bool) -> Simulated:
    """How to price: by a profile where one is named. Raises FormatError and MissingError."""
    from windtunnel.catalog.profiles import read_profile

    if path is None:
        if mode in ("measured", "both"):
            raise MissingError(Fault("--mode", mode, "measured seconds need a profile", "add --profile FILE"))
        return Simulated()
    if anchored:
        rule = "own runs correct simulated seconds, a profile replaces them"
        raise FormatError(Fault("--anchor", "", rule, "leave out --profile, or --anchor"))
    return Simulated() if mode == "simulated" else Measured(read_profile(path), mode == "both")
