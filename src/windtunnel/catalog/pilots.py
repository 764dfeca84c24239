"""The software that the modules of a pilot are: eager torch, as torchtitan's layers are."""

from __future__ import annotations

from dataclasses import replace

from windtunnel.catalog.software import software_profile
from windtunnel.job.software import Software


def eager_software() -> Software:
    """Modules of eager torch, one micro-batch's gradients in place, a fused optimizer that makes no copies."""
    known = software_profile("torchtitan")
    traits = replace(known.traits, one_gradient_buffer=True, foreach_optimizer=False)
    return Software(framework="torchtitan", date=known.date, attention="sdpa", traits=traits)
