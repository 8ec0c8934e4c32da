"""Files of lines that several processes write.

Guarantees: what is appended stands there whole, on lines of its own, also after what a writer that died left; a file that is
replaced is the old one or the new one, and loses nothing that was appended meanwhile (where the system lets files be locked).
"""
from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

if sys.platform != "win32":
    import fcntl


def append(path: Path, data: bytes) -> None:
    """Write whole lines at the end, in one piece."""
    with locked(path) as handle, os.fdopen(os.dup(handle), "r+b", buffering=0) as file:
        if size := file.seek(0, os.SEEK_END):
            file.seek(size - 1)
            data = data if file.read(1) == b"\n" else b"\n" + data  # a writer died before the end of its line
        file.seek(0, os.SEEK_END)
        file.write(data)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[int]:
    """The file, open and held against other writers. It is made if it is not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if sys.platform != "win32":
                fcntl.flock(handle, fcntl.LOCK_EX)
            if _is(path, handle):
                yield handle
                return
        finally:
            os.close(handle)


def _is(path: Path, handle: int) -> bool:
    """Whether the path still leads to the open file: who replaced it meanwhile put another there."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))
    except FileNotFoundError:
        return False


def replace(path: Path, data: bytes) -> None:
    """Put other contents in a file that is `locked`, or remove it where there are none."""
    if not data:
        path.unlink()
        return
    handle, unfinished = tempfile.mkstemp(prefix=".unfinished-", dir=path.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    os.replace(unfinished, path)
