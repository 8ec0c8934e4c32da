"""Loops that store into the arrays that they carry, as numerical programs do, and their gradients."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import loopwright as lw
from benchmarks.contest import contest, gradient
from benchmarks.harness import Timing
from loopwright import lax

Program = Callable[..., Any]


def _held(name: str, args: tuple, ours: Program, plain: Program, theirs: Callable[[Any], Program], *,
          numba: Callable[[Any], Mapping[str, Program]], slopes: Program | None = None) -> list[Timing]:
    """A program, and its gradients by all arguments. plain: in NumPy, by Python's loops; slopes: the gradients so. torch takes
    no part: its loops are Python's."""
    cotangent = np.random.default_rng(9).normal(size=plain(*args).shape)
    forward = contest(name, args, ours, expected=lambda: plain(*args), numpy=plain, tolerance=1e-9,
                      jax=lambda jax: theirs(jax), numba=numba)
    return forward + contest(
        f"gradient of {name}", (*args, cotangent), gradient(np, lw.grad, ours, len(args)), numpy=slopes,
        expected=None if slopes is None else lambda: slopes(*args, cotangent), tolerance=1e-8, in_numpy=slopes is not None,
        jax=lambda jax: gradient(jax.numpy, jax.grad, theirs(jax), len(args)))


def _jitted(f: Program) -> Callable[[Any], Mapping[str, Program]]:
    return lambda numba: {"numba": numba.njit(f)}


# ---- a triangular solve, row by row ---------------------------------------------------------------
def _solved(a, b):
    def row(i, x):
        x[i] = (b[i] - a[i] @ x) / a[i, i]
        return x
    return lax.fori_loop(0, b.shape[0], row, np.zeros_like(b))


def _solved_plain(a, b):
    x = np.zeros_like(b)
    for i in range(len(b)):
        x[i] = (b[i] - a[i] @ x) / a[i, i]
    return x


def _solved_jax(jax):
    def f(a, b):
        return jax.lax.fori_loop(0, len(b), lambda i, x: x.at[i].set((b[i] - a[i] @ x) / a[i, i]), jax.numpy.zeros_like(b))
    return f


def _solved_slopes(a, b, cotangent):
    """Of numbers above the diagonal too: the solve multiplies them by the zeros that x has there."""
    x, db = _solved_plain(a, b), np.linalg.solve(np.tril(a).T, cotangent)
    return np.tril(-np.outer(db, x)), db


# ---- Jacobi's method ------------------------------------------------------------------------------
STEPS = 40


def _mean(x):
    return 0.2 * (x[1:-1, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:] + x[2:, 1:-1] + x[:-2, 1:-1])


def _relaxed(a, b):
    def step(_, s):
        a, b = s
        b[1:-1, 1:-1] = _mean(a)
        a[1:-1, 1:-1] = _mean(b)
        return a, b
    return lax.fori_loop(0, STEPS, step, (a, b))[0]


def _relaxed_plain(a, b):
    a, b = a.copy(), b.copy()
    for _ in range(STEPS):
        b[1:-1, 1:-1] = 0.2 * (a[1:-1, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:] + a[2:, 1:-1] + a[:-2, 1:-1])
        a[1:-1, 1:-1] = 0.2 * (b[1:-1, 1:-1] + b[1:-1, :-2] + b[1:-1, 2:] + b[2:, 1:-1] + b[:-2, 1:-1])
    return a


def _relaxed_jax(jax):
    def step(_, s):
        a, b = s
        b = b.at[1:-1, 1:-1].set(_mean(a))
        return a.at[1:-1, 1:-1].set(_mean(b)), b
    return lambda a, b: jax.lax.fori_loop(0, STEPS, step, (a, b))[0]


# ---- columns of those before them -------------------------------------------------------------------
def _swept(p, q):
    def column(j, q):
        q[1:-1, j] = (p[1:-1, j] - 0.3 * q[1:-1, j - 1]) / (2 - 0.5 * q[:-2, j - 1])
        return q
    return lax.fori_loop(1, q.shape[1], column, q)


def _swept_plain(p, q):
    q = q.copy()
    for j in range(1, q.shape[1]):
        q[1:-1, j] = (p[1:-1, j] - 0.3 * q[1:-1, j - 1]) / (2 - 0.5 * q[:-2, j - 1])
    return q


def _swept_jax(jax):
    def f(p, q):
        def column(j, q):
            return q.at[1:-1, j].set((p[1:-1, j] - 0.3 * q[1:-1, j - 1]) / (2 - 0.5 * q[:-2, j - 1]))
        return jax.lax.fori_loop(1, q.shape[1], column, q)
    return f


# ---- two stores in a trip ---------------------------------------------------------------------------
def _filled(x):
    def pair(i, x):
        x[i] = x[i] * 0.5 + x[i - 1]
        x[i + 1] -= x[i]
        return x
    return lax.fori_loop(1, x.shape[0] - 1, pair, x)


def _filled_plain(x):
    x = x.copy()
    for i in range(1, len(x) - 1):
        x[i] = x[i] * 0.5 + x[i - 1]
        x[i + 1] -= x[i]
    return x


def _filled_jax(jax):
    def pair(i, x):
        x = x.at[i].set(x[i] * 0.5 + x[i - 1])
        return x.at[i + 1].add(-x[i])
    return lambda x: jax.lax.fori_loop(1, len(x) - 1, pair, x)


def stores() -> list[Timing]:
    """Loops that store: rows of a solve, stencils, columns, two numbers in a trip; and their gradients. float64."""
    rng = np.random.default_rng(0)
    lower = np.tril(rng.normal(size=(500, 500))) + 500 * np.eye(500)
    return [
        *_held("triangular solve by rows, 500 f64", (lower, rng.normal(size=500)), _solved, _solved_plain, _solved_jax,
               numba=_jitted(_solved_plain), slopes=_solved_slopes),
        *_held("40 steps of Jacobi's method, 250x250 f64", tuple(rng.normal(size=(2, 250, 250))), _relaxed, _relaxed_plain,
               _relaxed_jax, numba=_jitted(_relaxed_plain)),
        *_held("columns of those before, 300x400 f64", tuple(rng.uniform(size=(2, 300, 400))), _swept, _swept_plain, _swept_jax,
               numba=_jitted(_swept_plain)),
        *_held("two stores in a trip, 10000 f64", (rng.normal(size=10_000),), _filled, _filled_plain, _filled_jax,
               numba=_jitted(_filled_plain))]


WORKLOADS = (stores,)
