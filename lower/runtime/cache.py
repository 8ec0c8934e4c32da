"""Object code on disk, addressed by content.

Guarantees: an entry is used only when it is whole (checksummed) and names the very key that was asked for; entries are
renamed into place, so that concurrent writers and readers see all or nothing; a directory that others own or may write
is refused; the state of the disk never makes a call fail: without a cache everything is compiled. No pickle.
"""
from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from loopwright.ir.dataclass import dataclass
from loopwright.lower.runtime import objects
from loopwright.lower.runtime.engine import assemble_each
from loopwright.lower.runtime.lazy import llvm_version
from loopwright.lower.target import Target, host_target

VARIABLE = "LOOPWRIGHT_CACHE_DIR"
MOST_BYTES = 256 << 20
WRITES_BETWEEN_PRUNINGS = 256  # on average
STALE_AFTER = 3600.0  # seconds until the unfinished file of a writer that died is removed
_MAGIC = b"loopwright object 1\n"
_SUFFIX = ".object"
_UNFINISHED = ".unfinished-"

_checked: dict[str, bool] = {}  # directory -> whether it may be used


@dataclass(frozen=True)
class Entry:
    """An object file and what must be known to load it."""

    code: bytes
    metadata: Mapping[str, Any] = field(default_factory=dict)


def directory() -> Path | None:
    """Where entries lie; None where there is no place for them."""
    chosen = os.environ.get(VARIABLE)
    try:
        path = Path(chosen) if chosen else _user_cache() / "loopwright"
    except RuntimeError:  # no home directory
        return None
    known = _checked.get(str(path))
    if known is None:
        known = _checked[str(path)] = _is_safe(path)
    return path if known else None


def _user_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    return Path(chosen) if os.path.isabs(chosen) else Path.home() / ".cache"


def _is_safe(path: Path) -> bool:
    """Make the directory for us alone; refuse what somebody else could have filled with code."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.stat()
    except OSError as error:
        _warn(f"cannot use the cache directory {path}: {error}")
        return False
    if sys.platform != "win32" and (status.st_uid != os.geteuid() or status.st_mode & 0o022):
        _warn(f"the cache directory {path} is not used: it must belong to this user and be writable by nobody else "
              f"(chmod 700 {path}, or set {VARIABLE} to another one)")
        return False
    return True


def _warn(message: str) -> None:
    warnings.warn(f"loopwright goes on without its cache: {message}", RuntimeWarning, stacklevel=2)


def digest(*parts: str) -> str:
    """The key of what these strings determine; their boundaries count."""
    return _digest(part.encode() for part in parts)


def _digest(parts: Iterable[bytes]) -> str:
    whole = hashlib.sha256()
    for part in parts:
        whole.update(len(part).to_bytes(8, "little") + part)
    return whole.hexdigest()


@cache
def source_digest() -> str:
    """A digest of the modules that decide what code is generated: every process reads them all, so by the shortest way."""
    return _digest(part for name, path in sorted(_sources()) for part in (name.encode(), _bytes_of(path)))


def _sources() -> Iterator[tuple[str, str]]:
    """The names of modules, and where they are."""
    root = str(Path(__file__).parents[2])
    for folder in ("ir", "kernels", "lower"):
        for at, _, names in os.walk(os.path.join(root, folder)):
            for path in [os.path.join(at, name) for name in names if name.endswith(".py")]:
                yield path[len(root):].replace(os.sep, "/"), path


def _bytes_of(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


@cache
def environment() -> str:
    """The interpreter, the libraries and the layouts that generated code is made for."""
    layouts = (objects.TUPLE_ITEMS, objects.BYTES_DATA, objects.unsupported())
    return f"{platform.python_implementation()} {sys.version}, NumPy {np.__version__}, {llvm_version()}, {layouts}"


def read(key: str) -> Entry | None:
    """The entry, or None when there is no whole one."""
    folder = directory()
    if folder is None:
        return None
    path = folder / (key + _SUFFIX)
    try:
        data = path.read_bytes()
    except OSError:  # not there, or not readable: then it is made anew
        return None
    entry = _decode(key, data)
    if entry is not None:
        with contextlib.suppress(OSError):  # somebody pruned it meanwhile
            os.utime(path)
    return entry


def write(key: str, entry: Entry) -> None:
    """Keep the entry, if the disk lets us."""
    folder = directory()
    if folder is None:
        return
    try:
        _write(folder, key, _encode(key, entry))
    except OSError as error:
        _checked[str(folder)] = False
        _warn(f"cannot write to {folder}: {error}")


def _write(folder: Path, key: str, data: bytes) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # it may have been removed since it was checked
    if crc32(key.encode()) % WRITES_BETWEEN_PRUNINGS == 0:  # of all processes' writes, so that short ones seldom wait for it
        prune(folder)
    handle, unfinished = tempfile.mkstemp(prefix=_UNFINISHED, dir=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(unfinished, folder / (key + _SUFFIX))
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(unfinished)
        raise


def _encode(key: str, entry: Entry) -> bytes:
    head = json.dumps({"key": key, "size": len(entry.code), "metadata": entry.metadata}).encode()
    body = head + b"\n" + entry.code
    return _seal(body) + body


def _seal(body: bytes) -> bytes:
    """What stands before it: of one length always."""
    return _MAGIC + hashlib.sha256(body).hexdigest().encode() + b"\n"


def _decode(key: str, data: bytes) -> Entry | None:
    length = len(_seal(b""))
    seal, body = data[:length], data[length:]
    if seal != _seal(body):
        return None
    head, _, code = body.partition(b"\n")
    told = json.loads(head)
    return Entry(code, told["metadata"]) if told["key"] == key and told["size"] == len(code) else None


def prune(folder: Path, most: int = MOST_BYTES) -> None:
    """Remove the entries that were not used for longest until three quarters of `most` bytes are left, if it is exceeded."""
    entries: list[tuple[float, int, str]] = []
    with os.scandir(folder) as found:
        for file in found:
            with contextlib.suppress(OSError):  # another process removed it
                status = file.stat()
                if file.name.startswith(_UNFINISHED) and status.st_mtime < time.time() - STALE_AFTER:
                    os.unlink(file)
                elif file.name.endswith(_SUFFIX):
                    entries.append((status.st_mtime, status.st_size, file.path))
    total = sum(size for _, size, _ in entries)
    if total <= most:
        return
    for _, size, path in sorted(entries):
        if total <= most * 3 // 4:
            break
        with contextlib.suppress(OSError):
            os.unlink(path)
        total -= size


def assembled(text: str, target: Target | None = None) -> bytes:
    """The object files of LLVM text, from the disk where it is known."""
    return assembled_each([text], target or host_target())[0]


def assembled_each(texts: Sequence[str], target: Target) -> list[bytes]:
    """The same of several texts, of which those that are not known are compiled at a time."""
    return _known("text", texts, target, lambda new: assemble_each(new, target))


def function_code(name: str, pieces: Callable[[], Sequence[str]], target: Target) -> bytes:
    """The object files of one function of ours, from the disk where it is known. If not, its pieces are made, of which other
    functions may have left some there."""
    return _known("function", [name], target, lambda _: [b"".join(assembled_each(pieces(), target))])[0]


def _known(kind: str, names: Sequence[str], target: Target, make: Callable[[Sequence[str]], Sequence[bytes]]) -> list[bytes]:
    """The code that our sources make under these names, of which `make` is given those that are not on the disk."""
    keys = {name: digest(kind, name, repr(target), environment(), source_digest()) for name in names}
    found = {name: entry.code for name, key in keys.items() if (entry := read(key)) is not None}
    new = [name for name in keys if name not in found]
    for name, code in zip(new, make(new) if new else (), strict=True):
        found[name] = code
        write(keys[name], Entry(code))
    return [found[name] for name in names]
