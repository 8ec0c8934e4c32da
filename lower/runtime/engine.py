"""LLVM text to machine code in this process.

Guarantees: text is verified before it is compiled; the target's features are passed in full;
a library's code lives exactly as long as its `Library`; compilation is serialised by one lock, which no user code runs
under and which a fork waits for.
"""
from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from loopwright.lower.runtime.lazy import llvm
from loopwright.lower.target import Target, host_target

LIBRARIES_PER_ENGINE = 256  # linking slows down in an engine that holds thousands

_lock = threading.RLock()
_serial = itertools.count()
_current: list[Any] = []  # the LLJIT in use, and how many libraries it was given


@cache
def _target_machine(target: Target) -> Any:
    """The features are given in full: the processor's name can be wrong on virtual machines."""
    return llvm().Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=2, reloc="pic", codemodel="small")


def _parsed(text: str, target: Target) -> Any:
    module = llvm().parse_assembly(text)
    module.triple = target.triple
    module.verify()
    return module


def assemble(text: str, target: Target | None = None) -> bytes:
    """The object file of LLVM text. RuntimeError, with LLVM's words, for text that is not valid."""
    target = target or host_target()
    with _lock:
        return bytes(_target_machine(target).emit_object(_parsed(text, target)))


def assembly(text: str, target: Target | None = None) -> str:
    """The same as readable assembly."""
    target = target or host_target()
    with _lock:
        return str(_target_machine(target).emit_assembly(_parsed(text, target)))


class Library:
    """Loaded code: addresses by exported name. `keep` are the Python objects that the code refers to."""

    __slots__ = ("_engine", "_tracker", "keep")

    def __init__(self, tracker: Any, engine: Any, keep: tuple[Any, ...]) -> None:
        self._tracker, self._engine, self.keep = tracker, engine, keep

    def __getitem__(self, name: str) -> int:
        return int(self._tracker[name])

    def stay(self) -> Library:
        """Never unload: for code that other threads may be inside of when the interpreter ends."""
        self._tracker.detach()
        self._engine.detach()
        return self


def load(code: bytes, imports: Mapping[str, int], exports: Iterable[str], keep: tuple[Any, ...] = ()) -> Library:
    """Link an object file into the process. Symbols not in `imports` are the process's own (libc, libm)."""
    with _lock:
        builder = llvm().JITLibraryBuilder().add_object_img(code)
        for name, where in imports.items():
            builder.import_symbol(name, where)
        for name in exports:
            builder.export_symbol(name)
        engine = _engine()
        return Library(builder.add_current_process().link(engine, f"library{next(_serial)}"), engine, keep)


def _engine() -> Any:
    if not _current or _current[1] >= LIBRARIES_PER_ENGINE:
        _current[:] = [llvm().create_lljit_compiler(_target_machine(host_target()), use_jit_link=False), 0]
    _current[1] += 1
    return _current[0]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)
