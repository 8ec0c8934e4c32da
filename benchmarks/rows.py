"""Programs as rows of a table, each stated once for all libraries that have the names it uses, and drawn arguments.

torch.compile takes no part: it takes seconds for each.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import loopwright as lw
from benchmarks import contest
from benchmarks.contest import Program
from benchmarks.harness import Timing

Draw = Callable[[np.random.Generator], np.ndarray]
LABELS = {"float32": "f32", "float64": "f64", "int32": "i32", "int64": "i64", "uint8": "u8"}


@dataclass(frozen=True)
class Row:
    """A program of a library with JAX's names (`loopwright`, `jax`), NumPy's where it takes part, and torch's.

    Drawn float64 arguments are given in the dtype that the row is named by. An element may differ by `tolerance` in float32,
    and by 1e-8 of that in float64.
    """

    name: str
    draws: tuple[Draw, ...]
    program: Callable[[Any], Program]
    numpy: Program | None = None
    torch: Callable[[Any], Program] | None = None
    dtype: str = "float32"
    tolerance: float = 1e-5
    verify: Callable[[str, Any], None] | None = None


def plain(name: str, draws: tuple[Draw, ...], program: Callable[[Any], Program], **more: Any) -> Row:
    """A program of the names that NumPy has too."""
    return Row(name, draws, lambda library: program(library.numpy), program(np), **more)


def held(*rows: Row) -> list[Timing]:
    """The contests of rows."""
    found = []
    for row in rows:
        rng = np.random.default_rng(0)
        args = tuple(x.astype(row.dtype) if x.dtype == np.float64 else x for x in (draw(rng) for draw in row.draws))
        found += contest.contest(
            f"{row.name} {LABELS[row.dtype]}", args, row.program(lw), numpy=row.numpy, in_numpy=row.numpy is not None,
            expected=None if row.numpy is None else lambda row=row, args=args: contest.in_f64(row.numpy, args),
            jax=row.program, torch=None if row.torch is None else lambda torch, optimised, row=row: row.torch(torch),
            tolerance=row.tolerance * (1e-8 if row.dtype == "float64" else 1), verify=row.verify, compiles=False, rounds=7)
    return found


def normal(*shape: int) -> Draw:
    return lambda rng: rng.normal(size=shape)


def positive(*shape: int) -> Draw:
    """Between 0.5 and 1.5."""
    return lambda rng: rng.uniform(0.5, 1.5, size=shape)


def ascending(count: int) -> Draw:
    """From -3 to 3 in steps that differ by up to a half."""
    return lambda rng: (np.arange(count) + rng.uniform(0, 0.5, count)) * (6 / count) - 3


def signs(count: int) -> Draw:
    return lambda rng: rng.choice([-1.0, 1.0], count)


def below(bound: int, *shape: int, least: int = 0, dtype: str = "int64") -> Draw:
    """Integers from the least."""
    return lambda rng: rng.integers(least, bound, shape, dtype)


def regular(*shape: int) -> Draw:
    """Square matrices far from singular."""
    return lambda rng: rng.normal(size=shape) + 2 * shape[-1] * np.eye(shape[-1])
