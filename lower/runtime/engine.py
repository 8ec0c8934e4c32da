"""LLVM text to machine code in this process.

Guarantees: a library's code lives as long as its `Library`; modules that several programs have in common are compiled once.
"""
from __future__ import annotations

import atexit
import itertools
import struct
from collections import deque
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from loopwright.lower.runtime.emission import CAREFULLY, QUICKLY, Job, object_files, parsed, target_machine, uninterrupted
from loopwright.lower.runtime.lazy import LLVM_LOCK, assembled_each, llvm
from loopwright.lower.runtime.parts import Parts, parts
from loopwright.lower.runtime.threads import threads
from loopwright.lower.target import Target, host_target

_LENGTH = struct.Struct("<Q")  # of an object file, before it
SHORT = 1 << 14  # characters of text that only calls, whose code is remembered
MOST_KNOWN = 256  # codes that are remembered
LIBRARIES_PER_ENGINE = 256  # linking slows down in an engine that holds thousands

_serial = itertools.count()
_known: dict[tuple[str, Target], bytes] = {}  # of texts that many programs have in common
_loaded: dict[int, tuple[Any, Any]] = {}  # LLVM's handle of each library, and the LLJIT that it is in
_left: deque[int] = deque()  # of those, the ones that nothing refers to
_current: list[Any] = []  # the LLJIT in use, and how many libraries it was given


def assemble(text: str, target: Target | None = None) -> bytes:
    """The object code of LLVM text: object files, each after its length, so that what belongs together may be assembled apart
    and joined. RuntimeError, with LLVM's words, for text that is not valid."""
    return assemble_each([text], target or host_target())[0]


def assemble_each(texts: Sequence[str], target: Target) -> list[bytes]:
    """The same of several texts, which are compiled at a time."""
    split = [parts(text, threads()) for text in texts]
    jobs = [job for own in split for job in _jobs(own)]
    files = dict(zip(jobs, object_files(jobs, target), strict=True))
    return [_joined(own, files, target) for own in split]


def known_code(texts: Sequence[str], target: Target) -> bytes:
    """That of texts which many programs have in common, from memory or the disk where it is known."""
    with LLVM_LOCK:
        new = [text for text in dict.fromkeys(texts) if (text, target) not in _known]
        _known.update(zip([(text, target) for text in new], assembled_each(new, target), strict=True))
        code = b"".join([_known[text, target] for text in texts])
        while len(_known) > MOST_KNOWN:
            del _known[next(iter(_known))]
        return code


def _jobs(own: Parts) -> list[Job]:
    """What is compiled for these modules alone."""
    return [*((module, CAREFULLY) for module in own.careful), *([(own.quick, QUICKLY)] if len(own.quick) >= SHORT else [])]


def _joined(own: Parts, files: Mapping[Job, bytes], target: Target) -> bytes:
    """The code of modules: theirs alone, and what others have, too."""
    made = [files[job] for job in _jobs(own)] + ([_known_file(own.quick, target)] if 0 < len(own.quick) < SHORT else [])
    framed = [part for file in made for part in (_LENGTH.pack(len(file)), file)]
    return b"".join((*framed, known_code(own.ours, target)))


@lru_cache(maxsize=MOST_KNOWN)
def _known_file(quick: str, target: Target) -> bytes:
    """What only calls has few forms: small programs that are called alike often share it."""
    return object_files([(quick, QUICKLY)], target)[0]


def optimised(text: str, target: Target) -> str:
    """LLVM text after all of LLVM's usual passes, loops made vectors among them: for text that others wrote."""
    with LLVM_LOCK:
        module = llvm().parse_assembly(text)
        module.triple = target.triple
        module.verify()
        options = llvm().create_pipeline_tuning_options(speed_level=3)
        options.loop_vectorization = options.slp_vectorization = True
        with llvm().create_pass_builder(target_machine(target, 3), options) as builder:
            builder.getModulePassManager().run(module, builder)
        return str(module)


def exported(text: str) -> dict[str, tuple[str, tuple[str, ...]]]:
    """The functions that LLVM text defines and exports: the type of the result, and of each argument. RuntimeError, with LLVM's
    words, for text that is not valid."""
    with LLVM_LOCK:
        module = llvm().parse_assembly(text)
        module.verify()
        found = [f for f in module.functions if not f.is_declaration and f.linkage.name == "external"]
        return {f.name: (_result_type(str(f)), tuple([str(a.type) for a in f.arguments])) for f in found}


def _result_type(definition: str) -> str:
    """What a function's text says before its name."""
    head = next(line for line in definition.split("\n") if line.startswith("define "))
    return head[:head.index("@")].split()[-1]


def assembly(text: str, target: Target | None = None) -> str:
    """The same as readable assembly."""
    target = target or host_target()
    careful, quick, ours = parts(text)
    jobs = [*((part, CAREFULLY) for part in (*careful, *ours)), *([(quick, QUICKLY)] if quick else [])]
    return "\n".join([_assembly_of(job, target) for job in jobs])


def _assembly_of(job: Job, target: Target) -> str:
    text, level = job

    def emitted() -> str:
        with parsed(text, target) as module:
            return str(target_machine(target, level).emit_assembly(module))
    with LLVM_LOCK:
        return uninterrupted(emitted)


class _Token(int):
    """Has a library unloaded when the next one is loaded, once the last reference to it is gone: finalisers wait for no lock,
    as the collector may run them in a thread that its holder waits for. An int is no container, so the collector never
    finalises it while finalisers of the same cycle may still call the code."""

    __slots__ = ()

    def __del__(self, left: deque[int] = _left) -> None:
        left.append(int(self))


class Library:
    """Loaded code: addresses by exported name. `keep` are the Python objects that the code refers to."""

    __slots__ = ("_addresses", "_token", "keep")

    def __init__(self, token: _Token, addresses: dict[str, int], keep: Mapping[str, Any]) -> None:
        self._token, self._addresses, self.keep = token, addresses, keep

    def __getitem__(self, name: str) -> int:
        return self._addresses[name]


def load(code: bytes, imports: Mapping[str, int], exports: Sequence[str], keep: Mapping[str, Any] | None = None) -> Library:
    """Link what `assemble` made into the process. Symbols not in `imports` are the process's own (libc, libm)."""
    target = host_target()

    def linked() -> Library:
        while _left:
            tracker, engine = _loaded.pop(_left.popleft())
            tracker.close()  # before the last reference to its engine goes
            del engine
        builder, at = llvm().JITLibraryBuilder(), 0
        while at < len(code):
            (length,), start = _LENGTH.unpack_from(code, at), at + _LENGTH.size
            at = start + length
            builder.add_object_img(code[start:at])
        for name, where in imports.items():
            builder.import_symbol(name, where)
        for name in exports:
            builder.export_symbol(name)
        engine, number = _engine(target), next(_serial)
        tracker = builder.add_current_process().link(engine, f"library{number}")
        _loaded[number] = tracker, engine
        return Library(_Token(number), {name: int(tracker[name]) for name in exports}, keep or {})
    with LLVM_LOCK:
        return uninterrupted(linked)


def _engine(target: Target) -> Any:
    if not _current or _current[1] >= LIBRARIES_PER_ENGINE:
        _current[:] = [llvm().create_lljit_compiler(target_machine(target, CAREFULLY), use_jit_link=False), 0]
    _current[1] += 1
    return _current[0]


@atexit.register
def _leave_loaded() -> None:
    """Threads may be inside compiled code when the interpreter ends: from now on nothing is unloaded."""
    for tracker, engine in _loaded.values():
        tracker.detach()
        engine.detach()

