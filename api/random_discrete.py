"""Random bits and integers, order and choice.

Guarantees: everything that is exact arithmetic on bits is JAX's to the bit; counts by rejection are JAX's unless a comparison
of theirs falls within rounding.
"""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from loopwright.arrays import Array, inexact_type, quiet, stopped, xp
from loopwright.control_flow import scan
from loopwright.ir.errors import ArgumentError, DTypeError, ShapeError
from loopwright.ir.source import user_source
from loopwright.ir.types import F32, I32, I64, INTEGERS, U64
from loopwright.random_bits import limits, random_bits
from loopwright.random_continuous import gumbel, signs, uniform
from loopwright.random_keys import Key, checked, extents, float_type, pair, parameters, shape_with, split
from loopwright.random_rejection import draw_binomial, draw_poisson
from loopwright.tracer.axes import as_axis, as_shape
from loopwright.tracer.promotion import as_dtype
from loopwright.tracer.size import as_extent
from loopwright.tracer.tracer import Tracer


# ---- bits and integers ----------------------------------------------------------------------------
@quiet
def bits(key: Key, shape: Any = (), dtype: Any = None) -> Array:
    """Uniform bits as unsigned integers (uint64 by default)."""
    found = U64 if dtype is None else as_dtype(dtype)
    if found.kind != "u":
        raise DTypeError(f"{user_source()}: random.bits makes unsigned integers, got dtype {found}.")
    return random_bits(checked(key), 8 * found.itemsize, as_shape(shape))


@quiet
def randint(key: Key, shape: Any, minval: Any, maxval: Any, dtype: Any = None) -> Array:
    """Integers in [minval, maxval), minval where that is empty. No integer is likelier than another by more than 2^-32 times
    the span (2^-64 for 64 bits)."""
    found = I64 if dtype is None else as_dtype(dtype)
    if found not in INTEGERS:
        raise DTypeError(f"{user_source()}: random.randint makes integers, got dtype {found}.")
    shape = shape_with("randint", shape, minval, maxval)
    at = found
    if found.itemsize < 4:  # drawn in 32 bits, else it would be biased
        at, info = I32, np.iinfo(found)
        minval = xp.clip(_integer(minval).astype(I32), int(info.min), int(info.max))
        maxval = xp.clip(_integer(maxval).astype(I32), int(info.min), int(info.max) + 1)
    return _integers(checked(key), shape, _integer(minval), _integer(maxval), at).astype(found)


def _integer(x: Any) -> Array:
    """A bound as an integer array."""
    x = x if isinstance(x, Tracer) else xp.asarray(x)
    return x if x.dtype in INTEGERS else x.astype(I64)


def _integers(key: Key, shape: tuple[Any, ...], minval: Array, maxval: Array, dtype: np.dtype) -> Array:
    """Twice as many bits as the dtype has, modulo the span: ((high mod s) (2^bits mod s) + low mod s) mod s."""
    info, unsigned = np.iinfo(dtype), np.dtype(f"u{dtype.itemsize}")
    largest = min(int(info.max), int(np.iinfo(maxval.dtype).max))
    is_beyond = maxval > maxval.dtype.type(largest)
    low, high = _within(minval, dtype), _within(maxval, dtype)
    one = unsigned.type(1)
    span = xp.where(high <= low, one, (high - low).astype(unsigned))
    span = xp.where(is_beyond & (high > low), span + one, span)  # 0 stands for all of the dtype
    first, second = (random_bits(k, info.bits, as_shape(shape)) for k in pair(key))
    factor = _modulo(unsigned.type(2 ** (info.bits // 2)), span)
    factor = _modulo(factor * factor, span)
    offset = _modulo(_modulo(first, span) * factor + _modulo(second, span), span)
    return low + offset.astype(dtype)


def _within(x: Array, dtype: np.dtype) -> Array:
    """x at an integer dtype: the nearest extreme where that cannot hold it."""
    to, own = np.iinfo(dtype), np.iinfo(x.dtype)
    return xp.clip(x, x.dtype.type(max(int(to.min), int(own.min))), x.dtype.type(min(int(to.max), int(own.max)))).astype(dtype)


def _modulo(x: Array, span: Array) -> Array:
    """x mod span; x where span is 0."""
    is_all = span == 0
    return xp.where(is_all, x, x % xp.where(is_all, span.dtype.type(1), span))


@quiet
def bernoulli(key: Key, p: Any = 0.5, shape: Any = None, mode: str = "low") -> Array:
    """bool: True with probability p. mode "high" resolves p below the spacing of uniform numbers."""
    if mode not in ("high", "low"):
        raise ValueError(f"{user_source()}: random.bernoulli: mode must be 'high' or 'low', got {mode!r}.")
    dtype = inexact_type(p)
    p, shape = parameters(dtype, p), shape_with("bernoulli", shape, p)
    if mode == "low":
        return uniform(key, shape, dtype) < p
    drawn = uniform(key, (2, *shape), dtype)
    return drawn[1] * dtype.type(2.0 ** -limits(dtype).nmant) < p - drawn[0]


@quiet
def rademacher(key: Key, shape: Any = (), dtype: Any = None) -> Array:
    """-1 or 1, equally likely (int64 by default)."""
    return signs(key, extents(shape), I64 if dtype is None else as_dtype(dtype))


# ---- order and choice -----------------------------------------------------------------------------
@quiet
def permutation(key: Key, x: Any, axis: int = 0, independent: bool = False) -> Array:
    """x, or range(x) for an integer x, in random order along an axis; `independent`: each line in an order of its own."""
    key = checked(key)
    if as_extent(x) is not None:
        return _shuffled(key, xp.arange(x), 0)
    x = x if isinstance(x, Tracer) else xp.asarray(x)
    if not x.ndim:
        raise ArgumentError(f"{user_source()}: random.permutation takes an array or a plain integer; the traced number {x!r} "
                            f"would be a size made from data. Pass it as a static argument.")
    axis = as_axis(axis, x.ndim)
    if independent or x.ndim == 1:
        return _shuffled(key, x, axis)
    return xp.take(x, _shuffled(key, xp.arange(x.shape[axis]), 0), axis)


def _shuffled(key: Key, x: Array, axis: int) -> Array:
    """Sorted by random 32-bit numbers, as often as makes it unlikely that equal ones bias the order."""
    for _ in range(_rounds(x.size)):
        key, now = pair(key)
        order = xp.argsort(random_bits(now, 32, as_shape(x.shape)), axis=axis, kind="stable")
        x = xp.take_along_axis(x, order, axis)
    return x


def _rounds(size: Any) -> int:
    """ceil(3 log(size) / log(2^32 - 1)), by comparisons that a symbolic size can answer with guards."""
    count = 0
    while size > 1 and size > int((2 ** 32 - 1) ** (count / 3)):
        count += 1
    return count


@quiet
def choice(key: Key, a: Any, shape: Any = (), replace: bool = True, p: Any = None, axis: int = 0,
           mode: str | None = None) -> Array:
    """Elements of `a` along an axis (or of range(a)), with probabilities p (equal ones by default)."""
    is_range = as_extent(a) is not None
    arr = None if is_range else a if isinstance(a, Tracer) else xp.asarray(a)
    axis = 0 if arr is None else as_axis(axis, arr.ndim)
    count, shape = a if arr is None else arr.shape[axis], extents(shape)
    draws: Any = math.prod(shape)
    if draws == 0:
        return xp.zeros(shape, dtype=I64 if arr is None else arr.dtype)
    if count <= 0:
        raise ValueError(f"{user_source()}: random.choice: there is nothing to choose from.")
    if not replace and draws > count:
        raise ValueError(f"{user_source()}: random.choice: {draws} of {count} elements cannot be chosen without replacement.")
    if p is None and not replace:
        order = permutation(key, a if arr is None else arr, axis)
        return xp.reshape(order[(slice(None),) * axis + (slice(draws),)], _replaced(arr, axis, shape))
    index = randint(key, shape, 0, count) if p is None else _weighted(key, p, count, shape, draws, replace, mode)
    return xp.reshape(index if arr is None else xp.take(arr, index, axis), _replaced(arr, axis, shape))


def _replaced(arr: Array | None, axis: int, shape: tuple[Any, ...]) -> tuple[Any, ...]:
    return shape if arr is None else (*arr.shape[:axis], *shape, *arr.shape[axis + 1:])


def _weighted(key: Key, p: Any, count: Any, shape: tuple[Any, ...], draws: Any, replace: bool, mode: str | None) -> Array:
    """Positions with probabilities p: by the inverse of their sums, or the greatest of log(p) + Gumbel numbers."""
    weights = parameters(inexact_type(p), p)
    if weights.ndim != 1 or weights.shape[0] != count:
        raise ShapeError(f"{user_source()}: random.choice: p must have one weight for each of the {count} elements, got shape "
                         f"{weights.shape}.")
    if replace:
        sums = xp.cumsum(weights)
        return xp.searchsorted(sums, sums[-1] * (1 - uniform(key, shape, sums.dtype))).astype(I64)
    score = gumbel(key, (count,), weights.dtype, mode) + xp.log(weights)
    return xp.argsort(-score, kind="stable")[:draws]


@quiet
def categorical(key: Key, logits: Any, axis: int = -1, shape: Any = None, replace: bool = True,
                mode: str | None = None) -> Array:
    """int64: positions along an axis, with probabilities proportional to exp(logits)."""
    logits = parameters(inexact_type(logits), logits)
    axis = as_axis(axis, logits.ndim)
    batch = logits.shape[:axis] + logits.shape[axis + 1:]
    shape = batch if shape is None else extents(shape)
    front = shape[:len(shape) - len(batch)]
    if len(shape) < len(batch) or any(n != m for n, m in zip(shape[len(front):], batch, strict=True)):
        raise ShapeError(f"{user_source()}: random.categorical: shape {shape} must end with the logits' other axes, {batch}.")
    if replace:
        noise = gumbel(key, (*front, *logits.shape), logits.dtype, mode)
        return xp.argmax(noise + logits, axis=len(front) + axis)
    score = xp.moveaxis(logits + gumbel(key, logits.shape, logits.dtype, mode), axis, -1)
    count: Any = math.prod(front)
    if count > logits.shape[axis]:
        raise ValueError(f"{user_source()}: random.categorical: {count} of {logits.shape[axis]} categories cannot be chosen "
                         f"without replacement.")
    return xp.reshape(xp.moveaxis(xp.argsort(-score, axis=-1, kind="stable")[..., :count], -1, 0), shape)


# ---- counts ---------------------------------------------------------------------------------------
@quiet
def geometric(key: Key, p: Any, shape: Any = None, dtype: Any = None) -> Array:
    """The number of trials of probability p up to the first success (int64 by default)."""
    found = I64 if dtype is None else as_dtype(dtype)
    at, shape = inexact_type(p), shape_with("geometric", shape, p)
    u = uniform(key, shape, at)
    u = xp.where(u == 0, at.type(1), u)
    return (xp.floor(xp.log(u) / xp.log1p(-parameters(at, p))) + 1).astype(found)


@quiet
def poisson(key: Key, lam: Any, shape: Any = None, dtype: Any = None) -> Array:
    """The number of events of rate lam (int64 by default): Knuth's method below 10, rejection beyond (Hormann)."""
    found, shape = I64 if dtype is None else as_dtype(dtype), shape_with("poisson", shape, lam)
    rate = stopped(parameters(F32, lam))  # as in JAX, whatever the dtypes
    return draw_poisson(checked(key), xp.broadcast_to(rate, shape)).astype(found)


@quiet
def binomial(key: Key, n: Any, p: Any, shape: Any = None, dtype: Any = None) -> Array:
    """The number of successes among n trials of probability p, as floating numbers (float64 by default); NaN where n or p has
    no meaning. Sums of geometric numbers up to a mean of 10, rejection beyond (Hormann)."""
    found, shape = float_type("binomial", dtype), shape_with("binomial", shape, n, p)
    at = inexact_type(p)
    count, probability = (xp.broadcast_to(stopped(parameters(at, x)), shape) for x in (n, p))
    return draw_binomial(checked(key), count, probability).astype(found)


@quiet
def multinomial(key: Key, n: Any, p: Any, *, shape: Any = None, dtype: Any = None) -> Array:
    """The number of each outcome among n trials, as floating numbers of the parameters' dtype, with probabilities p along the
    last axis. shape: that of the result, its last axis included; p's by default."""
    at = inexact_type(n, p)
    n, p = parameters(at, n, p)
    if not p.ndim:
        raise ShapeError(f"{user_source()}: random.multinomial: p needs an axis of probabilities, got a number.")
    shape = p.shape if shape is None else extents(shape)
    p = xp.moveaxis(xp.broadcast_to(p, shape), -1, 0)
    left = xp.cumsum(p[::-1], axis=0)[::-1]
    ratios = xp.clip(p / xp.where(left == 0, at.type(1), left), 0, 1)

    def draw(remaining: Array, row: tuple[Array, Key]) -> tuple[Array, Array]:
        ratio, now = row
        drawn = binomial(now, remaining, ratio, dtype=at)
        return remaining - drawn, drawn
    counts = scan(draw, xp.broadcast_to(n, shape[:-1]), (ratios, split(key, ratios.shape[0])))[1]
    return xp.moveaxis(counts, 0, -1).astype(at if dtype is None else float_type("multinomial", dtype))
