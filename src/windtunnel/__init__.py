"""windtunnel: will it fit, how fast, what is the best plan, why, and what do I run?

Public names are loaded on first use (PEP 562), so that ``import windtunnel`` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "load_job": "windtunnel.catalog.jobs",
    "project": "windtunnel.projection.project",
    "Job": "windtunnel.job",
    "Projection": "windtunnel.projection.result",
    "WindtunnelError": "windtunnel.errors",
}

__all__ = ["Job", "Projection", "WindtunnelError", "__version__", "load_job", "project"]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'windtunnel' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return __all__
