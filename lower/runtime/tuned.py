"""Where programs that tuning found lie on the disk: a file for each structure of a traced graph, in the user's cache directory.

Guarantees: where nothing was tuned a compile costs one `stat`; where something was, a digest of the graph and another.
"""
from __future__ import annotations

import os
from pathlib import Path

from loopwright.ir.signature import Version
from loopwright.lower.runtime import cache
from loopwright.lower.runtime.canonical import canonical

SUFFIX = ".jsonl"


def structure(version: Version, on_gpu: bool = False) -> str:
    """The same for versions whose programs may take each other's place, whatever their sizes are called."""
    where = ("gpu",) if on_gpu else ()
    return cache.digest(canonical((version.graph.key, version.fast_math, version.donated, *where), {}))[:32]


def directory() -> Path | None:
    """The folder of the files; None where there is no place for it."""
    found = cache.directory()
    return None if found is None else found / "tuned"


def kernels_file() -> Path | None:
    """The file of measurements of kernels, which any program may have."""
    found = cache.directory()
    return None if found is None else found / f"kernels{SUFFIX}"


def file_of(version: Version, on_gpu: bool = False) -> Path | None:
    """The file of a version's structure, if there is one."""
    folder = directory()
    if folder is None or not os.path.isdir(folder):
        return None
    path = folder / (structure(version, on_gpu) + SUFFIX)
    return path if path.is_file() else None
