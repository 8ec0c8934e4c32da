"""What one call costs: `x + 1` on 10 float32, and sums of more arguments, where the work itself takes 2 ns."""
from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import loopwright as lw
from benchmarks.harness import Timing, interleaved, optional


def one_call() -> list[Timing]:
    """`x + 1` on 10 float32."""
    def f(x):
        return x + 1
    x, ours = np.arange(10, dtype=np.float32), lw.jit(f)
    np.testing.assert_array_equal(ours(x), f(x))
    contenders: dict[str, Callable[[], object]] = {"loopwright": lambda: _many(ours, x), "numpy": lambda: _many(f, x)}
    if (jax := optional("jax")) is not None:
        theirs, y = jax.jit(f), jax.numpy.asarray(x)
        contenders["jax"] = lambda: _many(theirs, y)
    return _each_of_many(interleaved("call, x + 1, 10 f32", contenders))


def more_arguments() -> list[Timing]:
    """The sum of 2, 4 and 8 arrays of 10 float32."""
    found = []
    for arity in (2, 4, 8):
        def f(*xs):
            total = xs[0]
            for x in xs[1:]:
                total = total + x
            return total
        ours, xs = lw.jit(f), [np.arange(10, dtype=np.float32)] * arity
        np.testing.assert_array_equal(ours(*xs), f(*xs))
        contenders = {"loopwright": lambda: _many(ours, *xs), "numpy": lambda: _many(f, *xs)}  # noqa: B023
        found += _each_of_many(interleaved(f"call, sum of {arity}, 10 f32", contenders))
    return found


class State(NamedTuple):
    """What a training loop hands on."""

    mean: object
    spread: object
    count: object


def containers() -> list[Timing]:
    """A named tuple of three arrays of 10 float32 becomes another one."""
    def f(s):
        return State(s.mean + s.count, s.spread * s.count, s.count + s.count)
    ours, numbers = lw.jit(f), np.arange(10, dtype=np.float32)
    state = State(numbers, numbers + 1, numbers + 2)
    for found, expected in zip(ours(state), f(state), strict=True):
        np.testing.assert_array_equal(found, expected)
    contenders: dict[str, Callable[[], object]] = {"loopwright": lambda: _many(ours, state), "numpy": lambda: _many(f, state)}
    if (jax := optional("jax")) is not None:
        theirs, there = jax.jit(f), State(*map(jax.numpy.asarray, state))
        contenders["jax"] = lambda: _many(theirs, there)
    return _each_of_many(interleaved("call, named tuple of 3 to another, 10 f32", contenders))


CALLS = 1000


def _many(f: Callable[..., object], *xs: object) -> None:
    """A loop in which calling is all there is to see."""
    if len(xs) == 1:
        x, = xs
        for _ in range(CALLS):
            f(x)
    else:
        for _ in range(CALLS):
            f(*xs)


def _each_of_many(timings: list[Timing]) -> list[Timing]:
    return [Timing(t.workload, t.contender, t.median / CALLS, t.low / CALLS, t.high / CALLS, t.note) for t in timings]


WORKLOADS = (one_call, more_arguments, containers)
