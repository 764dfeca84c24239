"""JSON Schema of the formats, for editors and for people."""

from __future__ import annotations

from typing import Any

from windtunnel.catalog.faults import did_you_mean
from windtunnel.errors import Fault, MissingError

KINDS = ("job", "record", "accelerator")


def schema(kind: str) -> dict[str, Any]:
    """The JSON Schema (2020-12) of a ``job``, a ``record`` or an ``accelerator``.

    Raises:
        MissingError: no such format.
    """
    from windtunnel.catalog.hardware import accelerator_schema
    from windtunnel.catalog.job_format import JobFile, RecordFile

    if kind not in KINDS:
        raise MissingError(Fault("schema", kind, "no such format", did_you_mean(kind, KINDS)))
    if kind == "accelerator":
        return accelerator_schema()
    document = JobFile.model_json_schema() if kind == "job" else RecordFile.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **document}
