"""The only writer of files: a whole new file or none, never half of one."""

from __future__ import annotations

import os
from collections.abc import Iterable

from windtunnel.errors import Fault, FormatError, MissingError


def write_whole(path: str | os.PathLike[str], pieces: Iterable[str | bytes]) -> None:
    """Write the pieces, texts as UTF-8, to a file beside ``path``, then put it in its place instead of an earlier one.

    Raises:
        MissingError: the folder is not there.
        FormatError: ``path`` is a directory or a device, or the file cannot be written; nothing is left behind.
    """
    name = os.fspath(path)
    target = os.path.realpath(name)
    if os.path.isdir(target):
        raise FormatError(Fault(name, "a directory", "a file is written here", "name a file in it"))
    if os.path.exists(target) and not os.path.isfile(target):
        raise FormatError(Fault(name, "not a regular file", "a regular file is written here", "name another file"))
    partial = f"{target}.{os.getpid()}.partial"
    try:
        _write(partial, pieces)
        os.replace(partial, target)
    except FileNotFoundError:
        raise MissingError(Fault(name, "", "its folder does not exist", "create the folder first")) from None
    except (OSError, ValueError) as error:
        rule = f"the file cannot be written: {getattr(error, 'strerror', None) or error}"
        remedy = "free space, or name a file in a folder this user may write to"
        raise FormatError(Fault(name, "", rule, remedy)) from None
    finally:
        _remove(partial)


def _write(partial: str, pieces: Iterable[str | bytes]) -> None:
    with open(partial, "xb") as file:
        file.writelines(piece.encode() if isinstance(piece, str) else piece for piece in pieces)
        file.flush()
        os.fsync(file.fileno())


def _remove(partial: str) -> None:
    try:
        os.unlink(partial)
    except (OSError, ValueError):
        return
