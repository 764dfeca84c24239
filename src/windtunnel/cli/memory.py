"""``windtunnel memory``."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from windtunnel.cli.flags import NO_FLAGS, JobFlags, JobSource, request
from windtunnel.cli.output import DEFAULT, Output, print_json, print_screen, print_warnings, switch


def memory(
    job: JobSource = None,
    /,
    *,
    max: Annotated[
        str | None, Parameter(help="Largest micro_batch_size, sequence_length or both (with a comma) that still fit.")
    ] = None,
    profile: Annotated[
        str | None, Parameter(help="A profile of windtunnel measure: its pilots anchor the peak.")
    ] = None,
    timeline: Annotated[bool, switch("Bytes over the step of the worst stage, and what is alive at its peak.")] = False,
    tensors: Annotated[bool, switch("Every kind of tensor alive at the peak, and what would spare it.")] = False,
    flags: JobFlags = NO_FLAGS,
    output: Output = DEFAULT,
) -> int:
    """Bytes per rank class at each stage's peak moment."""
    from windtunnel.cli.largest import largest_values
    from windtunnel.cli.measured import pricing
    from windtunnel.report.json import memory_document, warnings_of

    asked = request(job, flags)
    projection = pricing(profile, None, anchored=False).run(asked.load())
    largest = largest_values(max.split(","), projection.job, asked.load) if max else {}
    print_warnings(warnings_of(projection), output)
    if output.json:
        document = memory_document(projection)
        if max:
            document["max"] = largest
        if tensors:
            from windtunnel.memory.tensors import tensors_at_peak

            kinds = tensors_at_peak(projection.job, projection.memory.peak)
            document["tensors"] = [kind._asdict() for kind in kinds]
        if timeline:
            from windtunnel.memory.over_time import alive_at_peak, memory_over_time
            from windtunnel.report.timeline import memory_timeline_document

            over_time = projection.job, projection.timeline
            document["timeline"] = memory_timeline_document(memory_over_time(*over_time), alive_at_peak(*over_time))
        print_json(document)
        return 0
    from windtunnel.report.memory import memory_text

    print_screen(memory_text(projection, largest), output)
    if tensors:
        from windtunnel.memory.tensors import tensors_at_peak
        from windtunnel.report.memory import tensors_text

        peak = projection.memory.peak
        print_screen(tensors_text(peak, tensors_at_peak(projection.job, peak)), output)
    if timeline:
        from windtunnel.memory.over_time import alive_at_peak, memory_over_time
        from windtunnel.report.timeline import memory_timeline_text

        stage, over_time = projection.memory.peak.stage, (projection.job, projection.timeline)
        points, alive = memory_over_time(*over_time)[stage], alive_at_peak(*over_time)[stage]
        print_screen(memory_timeline_text(projection, points, alive), output)
    return 0
