"""Loops of tiny steps: what one step costs in a compiled `scan`, beside the same loop in C, numba and JAX, and its gradient
beside JAX's and the plain loop in C.

C is compiled by the system's compiler at -O3 without contraction of products and sums, as NumPy rounds.
"""
from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import loopwright as lw
from benchmarks.harness import Timing, interleaved, optional
from loopwright import lax

STEPS = 10_000

_C = """
#include <math.h>
void oscillator(long n, double p, double v, double k, const double *push, double *ps) {
    double a;
    for (long i = 0; i < n; i++) {
        a = -k * p - 0.1 * v + push[i];
        v = v + 0.01 * a;
        p = p + 0.01 * v;
        ps[i] = p;
    }
}
void recurrent(long n, double h, double w, double u, const double *x, double *hs) {
    for (long i = 0; i < n; i++)
        hs[i] = h = tanh(w * h + u * x[i]);
}
void mixing(long n, long m, double *c, const double *w, const double *x, double *cs) {
    for (long i = 0; i < n; i++)
        for (long j = 0; j < m; j++)
            cs[i * m + j] = c[j] = c[j] * w[j] + x[i * m + j];
}
void moving(long n, long m, const double *a, double *h, const double *x, double *hs) {
    for (long i = 0; i < n; i++) {
        for (long j = 0; j < m; j++) {
            double sum = x[i * m + j];
            for (long k = 0; k < m; k++)
                sum += a[j * m + k] * h[k];
            hs[i * m + j] = sum;
        }
        h = hs + i * m;
    }
}
long collatz(long n) {
    long k = 0;
    for (; n > 1; k++)
        n = n % 2 ? 3 * n + 1 : n / 2;
    return k;
}
"""


def _library() -> ctypes.CDLL | None:
    """The loops above, where there is a C compiler."""
    compiler = shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    folder = Path(tempfile.mkdtemp())
    (folder / "loops.c").write_text(_C)
    flags = ["-O3", "-march=native", "-ffp-contract=off", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, "-o", str(folder / "loops.so"), str(folder / "loops.c"), "-lm"], check=True)
    return ctypes.CDLL(str(folder / "loops.so"))


def _pointer(x: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(x.ctypes.data)


def _oscillator(scan: Callable[..., Any]) -> Callable[..., Any]:
    def f(p: Any, v: Any, k: Any, push: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            p, v = carry
            v = v + 0.01 * (-k * p - 0.1 * v + x)
            p = p + 0.01 * v
            return (p, v), p
        return scan(step, (p, v), push)[1]
    return f


def _recurrent(scan: Callable[..., Any], tanh: Callable[..., Any]) -> Callable[..., Any]:
    def f(h: Any, w: Any, u: Any, x: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = tanh(w * h + u * x)
            return h, h
        return scan(step, h, x)[1]
    return f


def _mixing(scan: Callable[..., Any]) -> Callable[..., Any]:
    def f(c: Any, w: Any, x: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            c = c * w + x
            return c, c
        return scan(step, c, x)[1]
    return f


def _moving(scan: Callable[..., Any]) -> Callable[..., Any]:
    def f(a: Any, h: Any, x: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = a @ h + x
            return h, h
        return scan(step, h, x)[1]
    return f


def _numba_oscillator(numba: Any) -> Callable[..., Any]:
    def f(p: float, v: float, k: float, push: np.ndarray) -> np.ndarray:
        out = np.empty_like(push)
        for i in range(len(push)):
            v = v + 0.01 * (-k * p - 0.1 * v + push[i])
            p = p + 0.01 * v
            out[i] = p
        return out
    return numba.njit(f)  # type: ignore[no-any-return]


def _each_step(timings: list[Timing]) -> list[Timing]:
    return [Timing(t.workload, t.contender, t.median / STEPS, t.low / STEPS, t.high / STEPS, t.note) for t in timings]


def _forward_and_gradient(name: str, ours: Callable[..., Any], theirs: Callable[..., Any] | None, args: tuple[Any, ...],
                          others: dict[str, Callable[[], object]]) -> list[Timing]:
    """One step of the loop, and of the gradient of the sum of its squares by all but the last argument."""
    wanted = tuple(range(len(args) - 1))
    forward, slope = lw.jit(ours), lw.jit(lw.grad(lambda *a: np.sum(ours(*a) ** 2), argnums=wanted))
    first: dict[str, Callable[[], object]] = {"loopwright": lambda: forward(*args), **others}
    second: dict[str, Callable[[], object]] = {"loopwright": lambda: slope(*args)}
    if "c" in others:
        second["c, the plain loop"] = others["c"]
    if theirs is not None and (jax := optional("jax")) is not None:
        jax.config.update("jax_enable_x64", True)
        jax_forward = jax.jit(theirs)
        jax_slope = jax.jit(jax.grad(lambda *a: jax.numpy.sum(theirs(*a) ** 2), argnums=wanted))
        np.testing.assert_allclose(forward(*args), jax_forward(*args), rtol=1e-9)
        for a, b in zip(slope(*args), jax_slope(*args), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-8)
        first["jax"] = lambda: jax.block_until_ready(jax_forward(*args))
        second["jax"] = lambda: jax.block_until_ready(jax_slope(*args))
    return _each_step(interleaved(f"step, {name}", first) + interleaved(f"step, gradient of {name}", second))


def oscillator() -> list[Timing]:
    """Two numbers as carry: latency of a few additions and products."""
    push, out, c = np.random.default_rng(0).normal(size=STEPS), np.empty(STEPS), _library()
    args = 0.5, 0.1, 2.0, push
    others: dict[str, Callable[[], object]] = {}
    if c is not None:
        numbers = [ctypes.c_double(x) for x in args[:3]]
        others["c"] = lambda: c.oscillator(STEPS, *numbers, _pointer(push), _pointer(out))
    if (numba := optional("numba")) is not None:
        loop = _numba_oscillator(numba)
        others["numba"] = lambda: loop(*args)
    return _forward_and_gradient("oscillator", _oscillator(lax.scan), _jax(_oscillator), args, others)


def recurrent() -> list[Timing]:
    """One number through tanh."""
    x, out, c = np.random.default_rng(0).normal(size=STEPS), np.empty(STEPS), _library()
    args = 0.5, 0.3, 0.2, x
    others: dict[str, Callable[[], object]] = {}
    if c is not None:
        numbers = [ctypes.c_double(v) for v in args[:3]]
        others["c"] = lambda: c.recurrent(STEPS, *numbers, _pointer(x), _pointer(out))
    theirs = _recurrent(jax.lax.scan, jax.numpy.tanh) if (jax := optional("jax")) is not None else None
    return _forward_and_gradient("tanh", _recurrent(lax.scan, np.tanh), theirs, args, others)


def mixing() -> list[Timing]:
    """Vectors of 3, 4 and 16 as carry: with sizes known at the call only, and declared."""
    found, c = [], _library()
    for m in (3, 4, 16):
        rng = np.random.default_rng(0)
        start, w, x, out = rng.normal(size=m), rng.uniform(size=m), rng.normal(size=(STEPS, m)), np.empty((STEPS, m))
        others: dict[str, Callable[[], object]] = {}
        declared = lw.jit(_mixing(lax.scan), shapes=(f"{m}", f"{m}", f"n {m}"))
        others["declared"] = lambda f=declared, args=(start, w, x): f(*args)
        if c is not None:
            carry = start.copy()
            others["c"] = lambda m=m, a=(carry, w, x, out): c.mixing(STEPS, m, *map(_pointer, a))
        found += _forward_and_gradient(f"vectors of {m}", _mixing(lax.scan), _jax(_mixing), (start, w, x), others)
    return found


def moving() -> list[Timing]:
    """A matrix times a vector in each step, of 3, 4 and 16 rows."""
    found, c = [], _library()
    for m in (3, 4, 16):
        rng = np.random.default_rng(0)
        a, start, x = rng.normal(size=(m, m)) / (2 * m), rng.normal(size=m), rng.normal(size=(STEPS, m))
        out = np.empty((STEPS, m))
        others: dict[str, Callable[[], object]] = {}
        if c is not None:
            others["c"] = lambda m=m, given=(a, start, x, out): c.moving(STEPS, m, *map(_pointer, given))
        found += _forward_and_gradient(f"{m}x{m} times a vector", _moving(lax.scan), _jax(_moving), (a, start, x), others)
    return found


def collatz() -> list[Timing]:
    """A `while` over integers: 524 trips from 837799."""
    def f(n: Any) -> Any:
        return lax.while_loop(lambda s: s[0] > 1, lambda s: (np.where(s[0] % 2 == 1, 3 * s[0] + 1, s[0] // 2), s[1] + 1),
                              (n, np.int64(0)))[1]
    ours, n, c = lw.jit(f), np.int64(837799), _library()
    assert ours(n) == 524
    contenders: dict[str, Callable[[], object]] = {"loopwright": lambda: ours(n)}
    if c is not None:
        contenders["c"] = lambda: c.collatz(837799)
    return interleaved("while, 524 trips", contenders)


def _jax(program: Callable[..., Any]) -> Callable[..., Any] | None:
    jax = optional("jax")
    return None if jax is None else program(jax.lax.scan)


WORKLOADS = (oscillator, recurrent, mixing, moving, collatz)
