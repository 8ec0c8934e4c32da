"""What is measured: a program as text, the sizes that it is measured at, and the arrays for it."""
from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import evaluate
from loopwright.ir.graph import Graph, Value
from loopwright.ir.interpreter import evaluate as interpret
from loopwright.ir.parser import parse
from loopwright.ir.printer import printable_symbols
from loopwright.ir.types import BF16, COMPLEX, F16, F32
from loopwright.lower.modules import CLASSES, OPS, kernels_of
from loopwright.lower.runtime.cache import digest
from loopwright.lower.runtime.canonical import canonical

SEED = 20
KNOWN = 4  # kernels whose arguments stay
SCALE = 0.1  # of normal numbers
LEAST = 0.25  # of them: quotients by a number near 0 would show each rounding of it
MOST_INDEX = 100  # of integers: they may be indices
Kinds = tuple[tuple[np.dtype, tuple[int, ...]], ...]  # the dtypes and shapes of arrays
DRAWS = 4  # of arguments whose last bits are others
MOVES = 16  # times as far as such arguments move an element may another order of additions
LAST_BITS = {F16: 2.0**-10, BF16: 2.0**-7, F32: 2.0**-23, np.dtype(np.complex64): 2.0**-23}  # others 2**-52
TOLERANCES = {F16: 1e-2, BF16: 5e-2, F32: 1e-4, np.dtype(np.complex64): 1e-4}  # of the largest element; others 1e-9


@dataclass(frozen=True)
class Candidate:
    """A module (`lower.modules`) as text, and a size for each of its symbols. values: the path of an .npz file with the arrays
    of its parameters, in order; "": they are drawn. expected: that of one with the results of all candidates that name it,
    which the first of them to be checked makes; "": its results are what NumPy makes of it."""

    text: str
    sizes: tuple[tuple[str, int], ...] = ()
    values: str = ""
    expected: str = ""

    @classmethod
    def of(cls, g: Graph, sizes: Mapping[str, int], values: str = "", expected: str = "") -> Candidate:
        """A module with sizes for its symbols."""
        printed = {s: str(x) for s, x in printable_symbols(g.symbols).items()}
        return cls(str(g), tuple([(printed.get(s, s), sizes[s]) for s in g.free_symbols]), values, expected)

    def parsed(self) -> Graph:
        """The module."""
        return parse(self.text, OPS, CLASSES)


def structure_of(g: Graph) -> str:
    """What a program computes, whatever its schedules and the names of its sizes: the key of its records."""
    kernels = tuple([n.regions[0].key for n in kernels_of(g)])
    params, results = (tuple([v.type.rank for v in values]) for values in (g.params, g.results))
    return digest(canonical((kernels, params, results), {}))[:32]


def kinds_of(values: Sequence[Value], sizes: Mapping[str, int]) -> Kinds:
    """The dtype and shape of each."""
    return tuple([(v.type.dtype, tuple([evaluate(n, sizes) for n in v.type.shape])) for v in values])


def arguments(g: Graph, sizes: Mapping[str, int], values: str = "") -> list[np.ndarray]:
    """Arrays for the parameters of a program, for whoever asks alone. See `filled`."""
    return [x.copy() for x in filled(kinds_of(g.params, sizes), values)]


def filled(kinds: Kinds, values: str = "") -> list[np.ndarray]:
    """Arrays, the same in every process: those of a file, or numbers away from 0, small so that few functions leave their
    range, and integers from 0 that are indices of every axis."""
    return loaded(values, [dtype for dtype, _ in kinds]) if values else _drawn(kinds)


def loaded(path: str, dtypes: Sequence[np.dtype]) -> list[np.ndarray]:
    """The arrays of a file."""
    with np.load(path) as file:
        return [file[f"arr_{k}"].view(dtype) for k, dtype in enumerate(dtypes)]  # NumPy keeps bf16 as bytes


def save(path: str, arrays: Sequence[np.ndarray]) -> None:
    """Make a file of arrays, whole or not at all."""
    with tempfile.NamedTemporaryFile(dir=os.path.dirname(path), suffix=".npz", delete=False) as file:
        np.savez(file, *arrays)
    os.replace(file.name, path)


@lru_cache(maxsize=KNOWN)
def _drawn(kinds: Kinds) -> list[np.ndarray]:
    """Arrays of these dtypes and shapes, which candidates of one kernel share."""
    rng = np.random.default_rng(SEED)
    least = min([n for _, shape in kinds for n in shape if n > 0], default=1)
    return [_one(rng, dtype, shape, min(least, MOST_INDEX)) for dtype, shape in kinds]


def _one(rng: np.random.Generator, dtype: np.dtype, shape: tuple[int, ...], below: int) -> np.ndarray:
    if dtype.kind == "b":
        return np.asarray(rng.random(shape) < 0.5)
    if dtype.kind in "iu":
        return np.asarray(rng.integers(0, below, shape)).astype(dtype)
    drawn = rng.normal(size=shape)
    drawn += np.copysign(LEAST, drawn)
    return np.asarray((drawn + (1j * rng.normal(size=shape) if dtype in COMPLEX else 0)) * SCALE).astype(dtype)


def reference(g: Graph, args: Sequence[np.ndarray], sizes: Mapping[str, int]) -> list[np.ndarray]:
    """What the program computes, by NumPy."""
    return [np.array(x) for x in interpret(g, args, sizes)]


@dataclass(frozen=True)
class Roundings:
    """What a result owes to rounding. moved: how far each element moves when arguments change by their last bit; terms: how
    large what it is summed from seems to be, which is that over the bit, at most the largest argument. Sums that cancel, as
    that of a row of a softmax's gradient, are their roundings; quotients by such sums move far."""

    moved: np.ndarray
    terms: float


def roundings(g: Graph, args: Sequence[np.ndarray], sizes: Mapping[str, int]) -> list[Roundings]:
    """Those of each result."""
    rng, expected = np.random.default_rng(SEED), reference(g, args, sizes)
    most = max([_largest(x) for x in args if x.dtype.kind not in "biu"], default=0.0)
    moved = [np.zeros(x.shape, np.float32) for x in expected]
    for _ in range(DRAWS):
        near = [x if x.dtype.kind in "biu" else _moved(rng, x) for x in args]
        for k, (a, b) in enumerate(zip(reference(g, near, sizes), expected, strict=True)):
            if b.dtype.kind not in "biu":
                with np.errstate(all="ignore"):
                    moved[k] = np.fmax(moved[k], np.abs(_wide(a) - _wide(b))).astype(np.float32)
    return [Roundings(x, min(_largest(x) / _last_bit(b.dtype), most)) for x, b in zip(moved, expected, strict=True)]


def _moved(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    """Numbers whose last bits are others."""
    return np.asarray(_wide(x) * (1 + _last_bit(x.dtype) * rng.choice([-1.0, 1.0], x.shape))).astype(x.dtype)


def _last_bit(dtype: np.dtype) -> float:
    return LAST_BITS.get(dtype, 2.0**-52)


def _wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.complex128 if x.dtype in COMPLEX else np.float64)


def _largest(x: np.ndarray) -> float:
    """The largest finite magnitude."""
    size = np.abs(_wide(x))
    return float(np.max(size, initial=0.0, where=np.isfinite(size)))


def difference(found: Sequence[np.ndarray], expected: Sequence[np.ndarray], rounded: Sequence[Roundings] = ()) -> str | None:
    """Where results are not the expected ones, within what the order of additions may change; None where they are. rounded:
    what each result owes to rounding, where that is known."""
    for k, (a, b) in enumerate(zip(found, expected, strict=True)):
        tolerance = TOLERANCES.get(b.dtype, 1e-9)
        exact = b.dtype.kind in "biu"
        if not exact and _is_near(a, b, tolerance):
            continue
        wrong = a != b if exact else _off(a, b, tolerance, rounded[k] if rounded else None)
        if np.any(wrong):
            at = tuple([int(i) for i in np.argwhere(np.atleast_1d(wrong))[0]])
            return f"result {k} is wrong at {at}: {np.atleast_1d(a)[at]}, expected {np.atleast_1d(b)[at]}"
    return None


def _is_near(a: np.ndarray, b: np.ndarray, tolerance: float) -> bool:
    """Whether all is finite and surely right: what is seen soon, of most results."""
    with np.errstate(all="ignore"):
        largest = float(np.max(np.abs(b), initial=0.0))
        return bool(np.max(np.abs(a - b), initial=0.0) <= tolerance / 2 * largest < np.inf)


def _off(a: np.ndarray, b: np.ndarray, tolerance: float, rounded: Roundings | None) -> Any:
    x, y, least = _wide(a), _wide(b), float(np.finfo(np.float32).tiny)
    with np.errstate(all="ignore"):
        finite = np.isfinite(y)
        near = np.abs(x - y) <= tolerance * max(_largest(y), rounded.terms if rounded else 0.0, least)
        if rounded:
            near |= np.abs(x - y) <= MOVES * rounded.moved
        return ~(np.where(finite, near, (x == y) | (np.isnan(x) & np.isnan(y))))
