"""LLVM modules to object files, by as many threads as compute.

Guarantees: text is verified before it is compiled, each module in a context of its own, which goes with it; the target's
features are passed in full; one caller at a time is at work, under a lock that no user code runs under and that forks wait for;
an interrupt is raised when all of its threads have ended.

llvmlite lets one thread at a time call into LLVM, all of a module's compilation included. What takes that long is called
directly: it is LLVM's own function, which modules of unlike contexts, and machines of unlike threads, may be given at a time.
"""
from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, TypeVar

from loopwright.ir.collector import collector_paused
from loopwright.lower.runtime.bridges import bridged
from loopwright.lower.runtime.lazy import LLVM_LOCK, llvm
from loopwright.lower.runtime.threads import threads
from loopwright.lower.target import Target

CONTROL = "control_"  # how the names of functions of control flow begin
CAREFULLY, QUICKLY = 1, 0  # levels of code generation
Job = tuple[str, int]  # text, and the level for it
T = TypeVar("T")

_workers = itertools.count(1)  # 0 is what calls llvmlite under its lock
_idle: list[int] = []


@cache
def target_machine(target: Target, level: int, worker: int = 0) -> Any:
    """The features are given in full: the processor's name can be wrong on virtual machines. Level 1 of code generation:
    explicit vectors run as fast as at 2 and 3, and compile in less time; passes before it (sroa, instcombine,
    simplifycfg) cost what they save; level 0 for what only calls (see parts.py). The large code model: in a process that holds
    much, constants and callees can lie further than 2 GiB from the code."""
    return llvm().Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=level, reloc="static", codemodel="large")


@contextmanager
def parsed(text: str, target: Target, worker: int = 0) -> Iterator[Any]:
    """The module of a text, ready to be compiled. RuntimeError, with LLVM's words, for text that is not valid."""
    text = bridged(text, target)
    with llvm().create_context() as context, llvm().parse_assembly(text, context) as module:
        module.triple = target.triple
        module.verify()
        if f"@{CONTROL}" in text:
            _tighten(module, target_machine(target, CAREFULLY, worker))
        yield module


def _tighten(module: Any, machine: Any) -> None:
    """Functions of control flow take in the calls that they mark, and keep in registers what they can: what is written as
    loops over memory becomes loops over numbers. All other functions stay as they are written."""
    options = llvm().create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = options.slp_vectorization = False
    with llvm().create_pass_builder(machine, options) as builder:
        with llvm().create_new_module_pass_manager() as whole:
            whole.add_always_inliner_pass()
            whole.add_global_dead_code_eliminate_pass()
            whole.run(module, builder)
        with builder.getFunctionPassManager() as each:
            for function in module.functions:
                if function.name.startswith(CONTROL) and not function.is_declaration:
                    each.run(function, builder)


def object_files(jobs: Sequence[Job], target: Target) -> list[bytes]:
    """One for each, the longest begun first. RuntimeError as `parsed`."""
    made: dict[Job, bytes] = {}
    left = sorted(dict.fromkeys(jobs), key=lambda job: len(job[0]))

    def work(worker: int) -> None:
        while True:
            try:
                job = left.pop()
            except IndexError:  # there is none, or another was quicker
                return
            made[job] = _object_file(job, target, worker)

    with LLVM_LOCK:
        _by_others(work, min(len(left), threads()), left)
    return [made[job] for job in jobs]


def uninterrupted(run: Callable[[], T]) -> T:
    """What `run` returns, which uses llvmlite, but not our lock: another thread computes it."""
    left, found = [run], list[T]()

    def work(_: int) -> None:
        with suppress(IndexError):
            found.append(left.pop()())
    _by_others(work, 1, left)
    return found[0]


def _by_others(work: Callable[[int], None], count: int, left: list[Any]) -> None:
    """Some threads at work until nothing is left. After an error, or an interrupt, they begin nothing, and it is raised when
    they have ended. This thread only waits, as interrupts come to Python's main one: one amid a call of llvmlite could
    leave a lock locked, or have something freed twice. Nor does it `join`, of which an interrupt takes a thread for ended."""
    active: list[int] = []
    errors: list[BaseException] = []
    ended = threading.Lock()

    def run() -> None:
        with _worker() as worker:
            active.append(worker)
            try:
                work(worker)
            except BaseException as error:
                errors.append(error)
                left.clear()
            finally:
                active.remove(worker)
        with suppress(RuntimeError):  # another has told it
            ended.release()

    waiting = [threading.Thread(target=run) for _ in range(count)]
    with collector_paused():  # a finaliser of the user's may call what waits for us
        while left or active:
            try:
                if waiting:
                    waiting.pop().start()
                else:
                    ended.acquire(timeout=0.1)
            except BaseException as error:
                errors.append(error)
                left.clear()
    if errors:
        raise errors[0]


@contextmanager
def _worker() -> Iterator[int]:
    """The number of a worker that no other thread is."""
    try:
        number = _idle.pop()
    except IndexError:
        number = next(_workers)
    try:
        yield number
    finally:
        _idle.append(number)


def _object_file(job: Job, target: Target, worker: int) -> bytes:
    text, level = job
    ffi = llvm().ffi
    with parsed(text, target, worker) as module, ffi.OutputString() as message:
        file = _emit()(target_machine(target, level, worker), module, 1, message)
        if not file:
            raise RuntimeError(str(message))
    try:
        return ctypes.string_at(ffi.lib.LLVMPY_GetBufferStart(file), ffi.lib.LLVMPY_GetBufferSize(file))
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(file)


@cache
def _emit() -> Any:
    """What llvmlite's `emit_object` calls: (machine, module, whether an object file, where a message goes) to a buffer."""
    function = ctypes.CDLL(llvm().ffi.lib._name).LLVMPY_TargetMachineEmitToMemory
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)]
    function.restype = llvm().ffi.LLVMMemoryBufferRef
    return function
