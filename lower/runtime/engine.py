"""LLVM text to machine code in this process.

Guarantees: text is verified before it is compiled; the target's features are passed in full;
a library's code lives as long as its `Library`; compilation is serialised by one lock, which no user code runs
under and which a fork waits for.
"""
from __future__ import annotations

import atexit
import itertools
import struct
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

from loopwright.lower.runtime.lazy import LLVM_LOCK, llvm
from loopwright.lower.runtime.parts import parts
from loopwright.lower.target import Target, host_target

CONTROL = "control_"  # how the names of functions of control flow begin
_LENGTH = struct.Struct("<Q")  # of an object file, before it
CAREFULLY, QUICKLY = 1, 0  # levels of code generation
MOST_KNOWN = 1 << 14  # characters of text whose code is remembered
LIBRARIES_PER_ENGINE = 256  # linking slows down in an engine that holds thousands

_serial = itertools.count()
_loaded: dict[int, tuple[Any, Any]] = {}  # LLVM's handle of each library, and the LLJIT that it is in
_current: list[Any] = []  # the LLJIT in use, and how many libraries it was given


@cache
def _target_machine(target: Target, level: int) -> Any:
    """The features are given in full: the processor's name can be wrong on virtual machines. Level 1 of code generation:
    explicit vectors run as fast as at 2 and 3, and compile in less time; passes before it (sroa, instcombine,
    simplifycfg) cost what they save; level 0 for what only calls (see parts.py). The large code model: in a process that holds
    much, constants and callees can lie further than 2 GiB from the code."""
    return llvm().Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=level, reloc="static", codemodel="large")


def _parsed(text: str, target: Target) -> Any:
    module = llvm().parse_assembly(text)
    module.triple = target.triple
    module.verify()
    if f"@{CONTROL}" in text:
        _tighten(module, target)
    return module


def _tighten(module: Any, target: Target) -> None:
    """Functions of control flow take in the calls that they mark, and keep in registers what they can: what is written as
    loops over memory becomes loops over numbers. All other functions stay as they are written."""
    options = llvm().create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = options.slp_vectorization = False
    with llvm().create_pass_builder(_target_machine(target, CAREFULLY), options) as builder:
        with llvm().create_new_module_pass_manager() as whole:
            whole.add_always_inliner_pass()
            whole.add_global_dead_code_eliminate_pass()
            whole.run(module, builder)
        with builder.getFunctionPassManager() as each:
            for function in module.functions:
                if function.name.startswith(CONTROL) and not function.is_declaration:
                    each.run(function, builder)


def assemble(text: str, target: Target | None = None) -> bytes:
    """The object code of LLVM text: object files, each after its length, so that what belongs together may be assembled apart
    and joined. RuntimeError, with LLVM's words, for text that is not valid."""
    target = target or host_target()
    careful, quick = parts(text)
    made = [_object(careful, target, CAREFULLY)]
    if quick:
        made.append(_known_object(quick, target) if len(quick) < MOST_KNOWN else _object(quick, target, QUICKLY))
    return b"".join(part for file in made for part in (_LENGTH.pack(len(file)), file))


def _object(text: str, target: Target, level: int) -> bytes:
    """One object file."""
    with LLVM_LOCK:
        return bytes(_target_machine(target, level).emit_object(_parsed(text, target)))


@lru_cache(maxsize=256)
def _known_object(quick: str, target: Target) -> bytes:
    """What only calls has few forms: small programs that are called alike often share it."""
    return _object(quick, target, QUICKLY)


def optimised(text: str, target: Target) -> str:
    """LLVM text after all of LLVM's usual passes, loops made vectors among them: for text that others wrote."""
    with LLVM_LOCK:
        module = llvm().parse_assembly(text)
        module.triple = target.triple
        module.verify()
        options = llvm().create_pipeline_tuning_options(speed_level=3)
        options.loop_vectorization = options.slp_vectorization = True
        with llvm().create_pass_builder(_target_machine(target, 3), options) as builder:
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
    with LLVM_LOCK:
        return "\n".join([str(_target_machine(target, level).emit_assembly(_parsed(part, target)))
                          for level, part in zip((CAREFULLY, QUICKLY), parts(text), strict=True) if part])


class _Token(int):
    """Unloads a library when the last reference to it is gone. An int is no container, so the garbage collector never
    finalises it while finalisers of the same cycle may still call the code."""

    __slots__ = ()

    def __del__(self, loaded: dict[int, tuple[Any, Any]] = _loaded, lock: Any = LLVM_LOCK) -> None:
        with lock:
            tracker, engine = loaded.pop(int(self))
            tracker.close()  # before the last reference to its engine goes
            del engine


class Library:
    """Loaded code: addresses by exported name. `keep` are the Python objects that the code refers to."""

    __slots__ = ("_addresses", "_token", "keep")

    def __init__(self, token: _Token, addresses: dict[str, int], keep: Mapping[str, Any]) -> None:
        self._token, self._addresses, self.keep = token, addresses, keep

    def __getitem__(self, name: str) -> int:
        return self._addresses[name]


def load(code: bytes, imports: Mapping[str, int], exports: Sequence[str], keep: Mapping[str, Any] | None = None) -> Library:
    """Link what `assemble` made into the process. Symbols not in `imports` are the process's own (libc, libm)."""
    with LLVM_LOCK:
        builder, at = llvm().JITLibraryBuilder(), 0
        while at < len(code):
            (length,), start = _LENGTH.unpack_from(code, at), at + _LENGTH.size
            at = start + length
            builder.add_object_img(code[start:at])
        for name, where in imports.items():
            builder.import_symbol(name, where)
        for name in exports:
            builder.export_symbol(name)
        engine, number = _engine(), next(_serial)
        tracker = builder.add_current_process().link(engine, f"library{number}")
        _loaded[number] = tracker, engine
        return Library(_Token(number), {name: int(tracker[name]) for name in exports}, keep or {})


def _engine() -> Any:
    if not _current or _current[1] >= LIBRARIES_PER_ENGINE:
        _current[:] = [llvm().create_lljit_compiler(_target_machine(host_target(), CAREFULLY), use_jit_link=False), 0]
    _current[1] += 1
    return _current[0]


@atexit.register
def _leave_loaded() -> None:
    """Threads may be inside compiled code when the interpreter ends: from now on nothing is unloaded."""
    for tracker, engine in _loaded.values():
        tracker.detach()
        engine.detach()

