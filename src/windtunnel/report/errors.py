"""What every verb prints when its input is bad; apart from the other documents because it must never fail to load."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from windtunnel.errors import Fault


def error_document(kind: str, faults: Iterable[Fault]) -> dict[str, Any]:
    """``{"error": {"kind", "faults"}}``; kind is format, legality, missing or internal."""
    return {"error": {"kind": kind, "faults": [asdict(fault) for fault in faults]}}
