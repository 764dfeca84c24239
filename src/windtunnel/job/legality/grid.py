"""The two grids: dense (tp · cp · pp · dp) and, inside it, expert (etp · ep)."""

from __future__ import annotations

from math import gcd, lcm

from windtunnel.job.draft import Draft
from windtunnel.job.legality.violation import Repair, Violation
from windtunnel.job.legality.words import divisors, nearest, repair, values_of

DENSE = ("parallel.tp", "parallel.cp", "parallel.pp")
EXPERT = ("parallel.ep", "parallel.etp", "parallel.pp")
_WORLD = "cluster.num_accelerators"


def minimum_accelerators(draft: Draft) -> int:
    """The fewest accelerators that hold both grids: pp · lcm(tp · cp, ep · etp)."""
    tp, cp, pp = (draft.count(path) for path in DENSE)
    return pp * lcm(tp * cp, draft.count("parallel.ep") * draft.count("parallel.etp"))


def grids(draft: Draft) -> dict[str, dict[str, int | None]]:
    """Degrees of both grids; ``size`` is what must divide the accelerators, ``dp`` None where it does not."""
    tp, cp, pp, ep, etp = (draft.count(f"parallel.{name}") for name in ("tp", "cp", "pp", "ep", "etp"))
    world, dp = draft.cluster.num_accelerators, draft.plan["parallel.dp"]
    expert, rest = divmod(world, ep * etp * pp)
    return {
        "dense": {"tp": tp, "cp": cp, "pp": pp, "dp": dp if isinstance(dp, int) else None, "size": tp * cp * pp},
        "expert": {"etp": etp, "ep": ep, "pp": pp, "dp": expert if rest == 0 else None, "size": etp * ep * pp},
    }


def dense_grid(draft: Draft) -> Violation | None:
    tp, cp, pp = (draft.count(path) for path in DENSE)
    world, dp, size = draft.cluster.num_accelerators, draft.plan["parallel.dp"], tp * cp * pp
    values = {_WORLD: world, **values_of(draft.plan, *DENSE, "parallel.dp")}
    if world % size:
        message = f"tp × cp × pp = {tp} × {cp} × {pp} = {size} must divide the {world} accelerators"
        repairs = (*_smaller_degrees(draft), *_worlds(world, minimum_accelerators(draft)))
        return Violation(rule="dense-grid", message=message, path=_WORLD, values=values, repairs=repairs)
    if dp is not None and dp != world // size:
        message = f"tp × cp × pp × dp = {size} × {dp} must equal the {world} accelerators"
        repairs = (repair(parallel__dp=world // size), Repair({_WORLD: size * int(str(dp))}))
        return Violation(rule="dense-grid", message=message, path="plan.parallel.dp", values=values, repairs=repairs)
    return None


def _smaller_degrees(draft: Draft) -> tuple[Repair, ...]:
    """One degree lowered to the largest divisor of what the other two leave."""
    found = []
    degrees = {path: draft.count(path) for path in DENSE}
    for path, degree in degrees.items():
        others = degrees["parallel.tp"] * degrees["parallel.cp"] * degrees["parallel.pp"] // degree
        room = draft.cluster.num_accelerators // others
        if degree > 1 and draft.cluster.num_accelerators % others == 0:
            found += [Repair({f"plan.{path}": d}) for d in divisors(room)[::-1] if d < degree][:1]
    return tuple(found)


def _worlds(world: int, unit: int) -> tuple[Repair, ...]:
    """The nearest multiples of ``unit`` accelerators, above and below."""
    below, above = world // unit * unit, -(-world // unit) * unit
    return tuple(Repair({_WORLD: n}) for n in dict.fromkeys((above, below)) if n > 0)


def expert_grid(draft: Draft) -> Violation | None:
    ep, etp, pp = (draft.count(path) for path in EXPERT)
    world, size = draft.cluster.num_accelerators, ep * etp * pp
    if not draft.model.is_moe or world % size == 0:
        return None
    lowered = [repair(parallel__ep=d) for d in nearest(divisors(gcd(world, ep * pp * etp) // pp or 1), ep) if d < ep]
    fewer = [repair(parallel__etp=1)] if etp > 1 else []
    message = f"etp × ep × pp = {etp} × {ep} × {pp} = {size} must divide the {world} accelerators"
    return Violation(
        rule="expert-grid",
        message=message,
        path="plan.parallel.etp" if etp > 1 else "plan.parallel.ep",
        values={_WORLD: world, **values_of(draft.plan, *EXPERT, "parallel.tp")},
        repairs=(*fewer, *lowered, *_worlds(world, minimum_accelerators(draft))),
    )


def expert_grid_order(draft: Draft) -> Violation | None:
    """Megatron-core builds the expert grid separately: with pp not outermost both data-parallel sizes must agree."""
    order, pp, dp = draft.plan["parallel.order"], draft.count("parallel.pp"), draft.plan["parallel.dp"]
    outermost = isinstance(order, tuple) and order[-1] == "pp"
    if not draft.software.is_megatron or not draft.model.is_moe or pp == 1 or outermost or not isinstance(dp, int):
        return None
    expert = grids(draft)["expert"]["dp"]
    if expert is None or expert == dp:
        return None
    return Violation(
        rule="expert-grid-order",
        message=f"where pp is not the outermost group the expert grid's dp ({expert}) must equal the dense one ({dp})",
        path="plan.parallel.order",
        values=values_of(draft.plan, "parallel.order", "parallel.pp", "parallel.dp", "parallel.ep", "parallel.etp"),
        repairs=(repair(parallel__order="tp-cp-ep-dp-pp"),),
    )


def shard_size(draft: Draft) -> Violation | None:
    dp, size = draft.plan["parallel.dp"], draft.plan["sharding.shard_size"]
    if not isinstance(dp, int) or not isinstance(size, int):
        return None
    ranks = dp * draft.count("parallel.cp")
    if ranks % size == 0:
        return None
    fitting = [d for d in divisors(ranks) if d <= size]
    return Violation(
        rule="shard-size",
        message=f"the states are sharded over {size} of dp × cp = {ranks} ranks, which it must divide",
        path="plan.sharding.shard_size",
        values=values_of(draft.plan, "sharding.shard_size", "parallel.dp", "parallel.cp"),
        repairs=tuple(repair(sharding__shard_size=n) for n in dict.fromkeys((ranks, fitting[-1]))),
    )


def fabric(draft: Draft) -> Violation | None:
    cluster = draft.cluster
    reach = max(cluster.accelerators_per_node, cluster.scale_up.domain_size)
    if cluster.scale_out.kind != "none" or cluster.num_accelerators <= reach:
        return None
    return Violation(
        rule="fabric",
        message=f"{cluster.num_accelerators} accelerators exceed the {reach} of one domain, and scale_out is none",
        path="cluster.scale_out.kind",
        values={
            "cluster.scale_out.kind": "none",
            _WORLD: cluster.num_accelerators,
            "cluster.scale_up.domain_size": cluster.scale_up.domain_size,
            "cluster.accelerators_per_node": cluster.accelerators_per_node,
        },
        repairs=(Repair({"cluster.scale_out.kind": "infiniband"}), Repair({_WORLD: reach})),
    )


RULES = (dense_grid, expert_grid, expert_grid_order, shard_size, fabric)
