"""``windtunnel schedule``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from windtunnel.cli.output import DEFAULT, Output, console, print_json, switch
from windtunnel.errors import Fault, FormatError, LegalityError

if TYPE_CHECKING:
    from windtunnel.schedule.action import Order
    from windtunnel.schedule.base import Costs
    from windtunnel.step.timeline import ChunkDurations


def schedule(
    name: Annotated[str, Parameter(help="A schedule; windtunnel list schedules names them.")],
    /,
    *,
    stages: Annotated[int, Parameter(help="Pipeline stages.")],
    microbatches: Annotated[int, Parameter(help="Micro-batches of one step.")],
    virtual_stages: Annotated[int | None, Parameter(help="Chunks per stage; default: as few as it runs with.")] = None,
    forward: Annotated[float, Parameter(help="Seconds of a whole stage's forward for one micro-batch.")] = 1.0,
    backward_input: Annotated[float, Parameter(help="Seconds of its backward for the inputs.")] = 1.0,
    backward_weight: Annotated[float, Parameter(help="Seconds of its backward for the weights.")] = 1.0,
    p2p: Annotated[float, Parameter(help="Seconds between two ranks.")] = 0.0,
    memory_cap: Annotated[int | None, Parameter(help="Most micro-batches in flight, where the schedule asks.")] = None,
    microbatch_group_size: Annotated[int | None, Parameter(help="Micro-batches a chunk takes at a stretch.")] = None,
    orders: Annotated[str | None, Parameter(help="A file with the orders of schedule --json, for custom.")] = None,
    gap: Annotated[bool, switch("How far above the best order of all, proven; for small pipelines.")] = False,
    time_limit: Annotated[float, Parameter(help="Most seconds for the proof of --gap.")] = 60.0,
    output: Output = DEFAULT,
) -> int:
    """One pipeline schedule on its own: makespan, bubble and in-flight micro-batches, drawn or as JSON."""
    from windtunnel.report.schedule import schedule_document, schedule_text
    from windtunnel.schedule.in_flight import peak_in_flight
    from windtunnel.schedule.registry import build_order
    from windtunnel.step.timeline import execute

    seconds = _checked(
        forward=forward, backward_input=backward_input, backward_weight=backward_weight, p2p=p2p, time_limit=time_limit
    )
    _refuse_unused(name, virtual_stages, memory_cap, microbatch_group_size, orders)
    order = build_order(
        name,
        stages,
        microbatches,
        _chunks(name, virtual_stages),
        microbatch_group_size,
        memory_cap,
        _orders(orders) if orders else None,
        seconds,
    )
    durations = _durations(order, *seconds[:3])
    timeline = execute(order, durations, seconds[3])
    document = schedule_document(timeline, peak_in_flight(order), order.name)
    if gap:
        from windtunnel.report.schedule_gap import gap_document
        from windtunnel.search.optimum import gap as gap_to_optimum

        document["optimum"] = gap_document(
            gap_to_optimum(order, durations, seconds[3], memory_cap, time_limit=time_limit)
        )
    if output.json:
        print_json(document)
        return 0
    screen = console(output)
    colour = screen.is_terminal and not screen.no_color
    screen.print(schedule_text(document, timeline, screen.width, colour=colour))
    if gap:
        from windtunnel.report.schedule_gap import gap_text

        screen.print(gap_text(document["optimum"]))
    return 0


def _chunks(name: str, virtual_stages: int | None) -> int:
    """Chunks per stage: those asked for, or the fewest the schedule runs with. Raises LegalityError where it cannot."""
    from windtunnel.schedule.registry import find

    found = find(name)
    fewest = found.virtual_stages or found.min_virtual_stages
    if virtual_stages is not None and virtual_stages < fewest:
        rule = f"{name} runs with {fewest} {'chunk' if fewest == 1 else 'chunks'} per stage"
        rule += " or more" if found.virtual_stages is None else ""
        raise LegalityError(Fault("--virtual-stages", str(virtual_stages), rule, "leave it out or give as many"))
    return fewest if virtual_stages is None else virtual_stages


def _refuse_unused(
    name: str, virtual_stages: int | None, memory_cap: int | None, group_size: int | None, orders: str | None
) -> None:
    """Raises FormatError for every option that would change nothing."""
    from windtunnel.schedule.registry import SCHEDULES, find

    given = {"memory_cap": memory_cap, "microbatch_group_size": group_size, "orders": orders}
    faults = []
    for option, value in given.items():
        if value is None:
            continue
        flag, used = f"--{option.replace('_', '-')}", find(name).uses
        if option not in used:
            users = ", ".join(each.name for each in SCHEDULES if option in each.uses)
            faults.append(Fault(flag, str(value), f"{name} has no use for it", f"leave it out, or choose {users}"))
        elif option == "microbatch_group_size" and _chunks(name, virtual_stages) == 1:
            faults.append(Fault(flag, str(value), "one chunk per stage takes every micro-batch at a stretch",
                                "leave it out, or give --virtual-stages 2 or more"))  # fmt: skip
    if faults:
        raise FormatError(faults)


def _durations(order: Order, forward: float, backward_input: float, backward_weight: float) -> list[ChunkDurations]:
    """Each chunk lasts its share of a stage."""
    from windtunnel.step.timeline import ChunkDurations

    share = 1 / order.virtual_stages
    chunk = ChunkDurations(forward * share, backward_input * share, backward_weight * share)
    return [chunk] * order.num_chunks


def _checked(**seconds: float) -> Costs:
    rule, remedy = "a duration is finite and not negative", "give seconds, 0 or more"
    faults = [
        Fault(f"--{name.replace('_', '-')}", str(value), rule, remedy)
        for name, value in seconds.items()
        if not 0 <= value < float("inf")
    ]
    if faults:
        raise FormatError(faults)
    forward, backward_input, backward_weight, p2p, _ = seconds.values()
    return forward, backward_input, backward_weight, p2p


def _orders(path: str) -> list[list[str]]:
    """The ``orders`` of a file written by ``schedule --json``, or a bare list of rows. Raises FormatError."""
    from windtunnel.catalog.files import JOB_LIMIT, read_yaml

    content = read_yaml(path, limit_bytes=JOB_LIMIT)
    rows = content.get("orders") if isinstance(content, dict) else content
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        rule = "a file of orders holds one list of actions per rank"
        raise FormatError(Fault(path, "", rule, "write it like the orders of windtunnel schedule 1f1b --json"))
    return [[str(action) for action in row] for row in rows]
