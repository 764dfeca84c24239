"""Ground-truth records from files: strict, one bad record never takes the others with it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windtunnel.catalog.faults import show
from windtunnel.catalog.files import RECORDS_LIMIT, read_yaml
from windtunnel.catalog.format import read_section
from windtunnel.catalog.job_format import JobFile, RecordFile
from windtunnel.catalog.jobs import load_job
from windtunnel.catalog.model_section import with_base
from windtunnel.errors import Fault, FormatError, WindtunnelError
from windtunnel.job.record import Measured, Record, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedRecord:
    """A record that cannot be used, and why."""

    id: str
    file: str
    error: WindtunnelError

    @property
    def reason(self) -> str:
        """The first fault, and how many more there are."""
        first, *more = self.error.faults
        return f"{first} (and {len(more)} more)" if more else str(first)


def load_records(paths: Iterable[str | os.PathLike[str]]) -> list[Record | SkippedRecord]:
    """All records of some files, in order; a directory stands for the YAML files in it.

    A record that is not valid, not legal, or whose id was seen before becomes a ``SkippedRecord``.

    Raises:
        MissingError: a file that is not there.
        FormatError: a file that is not a YAML list of at most 64 MiB.
    """
    records: list[Record | SkippedRecord] = []
    seen: set[str] = set()
    for path in _files(paths):
        for index, entry in enumerate(_entries(path)):
            record = _read(entry, index, path, seen)
            seen.add(record.id)
            records.append(record)
    return records


def _files(paths: Iterable[str | os.PathLike[str]]) -> Iterable[Path]:
    for path in map(Path, paths):
        if path.is_dir():
            yield from sorted(file for file in path.iterdir() if file.suffix in (".yaml", ".yml", ".json"))
        else:
            yield path


def _entries(path: Path) -> list[object]:
    content = read_yaml(path, limit_bytes=RECORDS_LIMIT)
    if isinstance(content, Mapping) and "job" in content:
        return [content]
    if not isinstance(content, list):
        remedy = "begin each record with - id:"
        raise FormatError(Fault(str(path), show(content), "a file of records is a list", remedy))
    return content


def _read(entry: object, index: int, path: Path, seen: set[str]) -> Record | SkippedRecord:
    known = entry.get("id") if isinstance(entry, Mapping) else None
    name = known if isinstance(known, str) and known else f"#{index + 1}"
    try:
        if name in seen:
            raise FormatError(Fault("id", name, "an id is unique over all records read", "rename one of the two"))
        return read_record(entry, path)
    except WindtunnelError as error:
        return SkippedRecord(id=name, file=path.stem, error=error)


def read_record(entry: object, path: str | os.PathLike[str]) -> Record:
    """One record of a file. Raises FormatError, MissingError or LegalityError for its job or for the record itself."""
    faults: list[Fault] = []
    values = _section(faults, RecordFile, entry, "")
    job = entry.get("job") if isinstance(entry, Mapping) else None
    given = _section(faults, JobFile, with_base(job, Path(path).parent), "job") if isinstance(job, Mapping) else {}
    if faults:
        raise FormatError(faults)
    return _record(values, given, job, Path(path))


def _section(faults: list[Fault], section: Any, mapping: object, where: str) -> dict[str, Any]:
    try:
        return read_section(section, mapping, where)
    except FormatError as error:
        faults += error.faults
        return {}


def _record(values: dict[str, Any], given: dict[str, Any], job: Any, path: Path) -> Record:
    sections = ("job", "measured", "source")
    fields = {key: value for key, value in values.items() if key not in sections and value is not None}
    return Record(
        job=load_job(job, base_dir=path.parent),
        given=given,
        measured=Measured(**values["measured"]),
        source=Source(**values["source"]),
        file=path.stem,
        **fields,
    )
