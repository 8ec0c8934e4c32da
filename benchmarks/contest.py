"""One program in several libraries: every contender's result is checked before its time counts.

A program for a peer is given as a function of the peer's module, so that nothing is imported where it is not installed.
"""
from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import loopwright as lw
from benchmarks import harness
from benchmarks.harness import Timing, interleaved, optional

Program = Callable[..., Any]
Optimised = Callable[[Program], Program]  # torch.compile, or nothing


@dataclass(frozen=True)
class Entry:
    """What a contest is held with: its arguments, as they were given."""

    workload: str
    args: tuple
    ours: Program
    expected: Any
    numpy: Program | None
    jax: Callable[[Any], Program] | None
    torch: Callable[[Any, Optimised], Program] | None
    jit: Callable[..., Any]
    tolerance: float
    verify: Callable[[str, Any], None] | None
    compiles: bool


_noted: list[list[Entry]] = []  # where contests are noted, which are not held


@contextmanager
def noted() -> Iterator[list[Entry]]:
    """Contests inside are noted, and not held."""
    found: list[Entry] = []
    _noted.append(found)
    try:
        yield found
    finally:
        _noted.remove(found)


def contest(workload: str, args: tuple, ours: Program, *, expected: Any = None, numpy: Program | None = None,
            jax: Callable[[Any], Program] | None = None, torch: Callable[[Any, Optimised], Program] | None = None,
            numba: Callable[[Any], Mapping[str, Program]] | None = None, jit: Callable[..., Any] = lw.jit,
            tolerance: float = 1e-5, verify: Callable[[str, Any], None] | None = None, compiles: bool = True,
            in_numpy: bool = True, rounds: int = 15) -> list[Timing]:
    """Time `ours(*args)` under `jit` beside its peers; torch.compile is one where the program `compiles`.

    `expected` is the result, by NumPy in float64, or a function that gives it; without it what `ours` gives for float64
    arguments outside jit. An element may differ by `tolerance` times itself and the greatest, or `verify` judges. NumPy runs
    `ours` as it is, or `numpy`, where the program is said `in_numpy`.
    """
    if _noted:
        _noted[-1].append(Entry(workload, args, ours, expected, numpy, jax, torch, jit, tolerance, verify, compiles))
        return []
    if verify is None:
        expected = result(expected, ours, args)
    compiled, by_hand = jit(ours), numpy or ours
    runs: dict[str, Callable[[], Any]] = {"loopwright": lambda: compiled(*args)}
    if in_numpy:
        runs["numpy"] = lambda: by_hand(*args)
    for name, f in (numba(module) if numba and (module := optional("numba")) else {}).items():
        runs[name] = lambda f=f: f(*args)
    if jax is not None and (module := jax_module()) is not None:
        runs["jax"] = _with_jax(module, jax(module), args)
    if torch is not None and (module := optional("torch")) is not None:
        here = mapped(module.from_numpy, args)
        ways: dict[str, Optimised] = {"torch": lambda f: f}
        if compiles and not harness.QUICK and has_compiler():
            ways["torch.compile"] = module.compile
        for name, way in ways.items():
            theirs = torch(module, way)
            runs[name] = lambda f=theirs: f(*here)
    notes: dict[str, str] = {}
    if harness.TUNE:
        runs[harness.TUNED], notes[harness.TUNED] = _tuned(workload, compiled, jit(ours), args)
    for name, run in runs.items():
        if verify is not None:
            verify(f"{workload}, {name}", run())
        else:
            check(f"{workload}, {name}", run(), expected, tolerance)
    from benchmarks import roofline  # which an older loopwright has not all of (benchmarks.frozen)
    least = roofline.least_seconds(ours, args, harness.THREADS)
    return [*interleaved(workload, runs, rounds=rounds, notes=notes), Timing(workload, "roofline", least, least, least)]


def result(expected: Any, ours: Program, args: tuple) -> Any:
    """What a contest expects."""
    return expected() if callable(expected) else in_f64(ours, args) if expected is None else expected


def in_f64(f: Program, args: tuple) -> Any:
    """What a program gives for float64 arguments, outside jit."""
    double = {np.dtype("float32"): "float64", np.dtype("complex64"): "complex128"}
    return f(*mapped(lambda x: x.astype(double.get(x.dtype, x.dtype)), args))


def _tuned(workload: str, default: Program, f: Program, args: tuple) -> tuple[Callable[[], Any], str]:
    """A run of the tuned program, and how its search went."""
    from benchmarks import candidates  # as above
    default(*args)  # compiled before there is anything better to be found
    with candidates.in_search() as spent:
        result = lw.tune(f, *args, seconds=harness.TUNE, progress=False)
    found, = result.found
    largest = candidates.of_largest(found.tuned)
    kept = "" if found.record.module else "the default stays; "
    text = "" if largest is None else f", text {largest.text:.0f} ms"
    note = f"{kept}{candidates.a_minute(found.tuned):.0f} candidates a minute, replay and features {spent.each:.2f} ms{text}"
    print(f"{workload}: {note}\n{result.report()}", flush=True)
    return lambda: f(*args), note


def _with_jax(jax: Any, f: Program, args: tuple) -> Callable[[], Any]:
    here, g = mapped(jax.numpy.asarray, args), jax.jit(f)
    return lambda: jax.block_until_ready(g(*here))


def jax_module() -> Any:
    """JAX with float64, where it is installed."""
    jax = optional("jax")
    if jax is not None:
        jax.config.update("jax_enable_x64", True)
    return jax


@cache
def has_compiler() -> bool:
    """torch.compile writes C++; where nothing compiles that it takes no part."""
    found = shutil.which(os.environ.get("CXX", "g++")) is not None
    if not found:
        print("torch.compile takes no part: there is no C++ compiler")
    return found


def mapped(f: Callable[[Any], Any], tree: Any) -> Any:
    return type(tree)(mapped(f, x) for x in tree) if isinstance(tree, tuple | list) else f(tree)


def leaves(tree: Any) -> list:
    """The arrays of nested tuples and lists."""
    return [x for part in tree for x in leaves(part)] if isinstance(tree, tuple | list) else [tree]


def check(who: str, found: Any, expected: Any, tolerance: float) -> None:
    """AssertionError where a result is not the expected one."""
    for a, b in zip(leaves(found), leaves(expected), strict=True):
        b = np.asarray(b)
        a = np.asarray(a.detach() if hasattr(a, "detach") else a)
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * np.abs(b).max(initial=0), err_msg=who)


def torch_gradient(torch: Any, f: Program, wanted: int) -> Program:
    """The gradients of f by its first `wanted` arguments, against the last argument as the cotangent."""
    def run(*args: Any) -> Any:
        *args, cotangent = args
        watched = [x.detach().requires_grad_() for x in args[:wanted]]
        return torch.autograd.grad(f(*watched, *args[wanted:]), watched, cotangent)
    return run


def gradient(xp: Any, grad: Callable[..., Program], f: Program, wanted: int) -> Program:
    """The same for libraries with `grad`."""
    def against(*args: Any) -> Any:
        return xp.sum(f(*args[:-1]) * args[-1])
    return grad(against, argnums=tuple(range(wanted)))
