"""Random numbers by rejection: loops that run until every element has accepted one.

Guarantees: elements draw from keys of their own (gamma) or from one key a round (Poisson, binomial) as JAX does, so that the
numbers are JAX's up to rounding; an element that has accepted keeps its number while others go on.
"""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from loopwright.arrays import Array, xp
from loopwright.control_flow import while_loop
from loopwright.ir.types import F32, I32
from loopwright.random_bits import blocks, encrypt_each, fraction_each, fractions
from loopwright.scipy.special import erfinv, gammaln
from loopwright.tracer.axes import as_shape

Keys = tuple[Any, Any]  # the two words of the key of every element


# ---- gamma ------------------------------------------------------------------------------------------
def draw_gamma(key: Any, alpha: Array, logarithm: bool) -> Array:
    """Gamma numbers, or their logarithms, of Marsaglia and Tsang; below 1 that of alpha + 1 times a power of a fraction."""
    dtype = alpha.dtype
    keys = blocks(key, as_shape(alpha.shape))
    is_plain = alpha >= 1
    d = xp.where(is_plain, alpha, alpha + 1) - dtype.type(1 / 3)
    c = dtype.type(1 / 3) / xp.sqrt(d)
    going, last = encrypt_each(keys, 0), encrypt_each(keys, 1)
    v = _accepted(going, d, c)
    if logarithm:
        boost = xp.log1p(-fraction_each(last, dtype))
        return (xp.log(d) + xp.log(v)) + xp.where(is_plain | (boost == 0), 0, boost * (1 / alpha))
    return (d * v) * xp.where(is_plain, 1, xp.power(1 - fraction_each(last, dtype), 1 / alpha))


def _accepted(keys: Keys, d: Array, c: Array) -> Array:
    """The cubes that the test of the method accepts."""
    dtype = d.dtype

    def is_open(state: Any) -> Array:
        _, x, v, u = state
        return (u >= 1 - dtype.type(0.0331) * (x * x)) & (xp.log(u) >= x * dtype.type(0.5) + d * ((1 - v) + xp.log(v)))

    def again(state: Any) -> Any:
        keys, x, v, u = state
        more = is_open(state)
        keys, normals, uniforms = (encrypt_each(keys, k) for k in range(3))
        root, factor = _positive(normals, c, more)
        cube = factor * factor * factor
        return keys, xp.where(more, root * root, x), xp.where(more, cube, v), xp.where(more, fraction_each(uniforms, dtype), u)

    zero = d * 0
    return while_loop(lambda state: xp.any(is_open(state)), again, (keys, zero, zero + 1, zero + 2))[2]


def _positive(keys: Keys, c: Array, more: Array) -> tuple[Array, Array]:
    """The first normal number x of each key with 1 + c x > 0, and that."""
    dtype = c.dtype

    def again(state: Any) -> Any:
        keys, x, v = state
        open_ = v <= 0
        keys, drawn = encrypt_each(keys, 0), encrypt_each(keys, 1)
        new = _normal_each(drawn, dtype)
        return keys, xp.where(open_, new, x), xp.where(open_, 1 + new * c, v)
    found = while_loop(lambda state: xp.any(state[2] <= 0), again, (keys, c * 0, xp.where(more, c * 0 - 1, 1)))
    return found[1], found[2]


def _normal_each(keys: Keys, dtype: np.dtype) -> Array:
    low = np.nextafter(dtype.type(-1), dtype.type(0))
    drawn = xp.maximum(low, fraction_each(keys, dtype) * (1 - low) + low)
    return dtype.type(math.sqrt(2)) * erfinv(drawn)


# ---- Poisson ----------------------------------------------------------------------------------------
def draw_poisson(key: Any, rate: Array) -> Array:
    """The number of events of a rate, as floating numbers."""
    is_small = xp.isnan(rate) | (rate < 10)
    few = _by_products(key, xp.where(is_small, rate, 0))
    many = _by_rejection(key, xp.where(is_small, rate.dtype.type(1e5), rate))
    return xp.where(rate == 0, 0, xp.where(is_small, few, many))


def _split(key: Any, count: int) -> list[Any]:
    keys = xp.stack(blocks(key, (count,)), axis=-1)
    return [keys[k] for k in range(count)]


def _by_products(key: Any, rate: Array) -> Array:
    """Knuth: as many uniform numbers as have a product above exp(-rate)."""
    def again(state: Any) -> Any:
        k, key, logarithm = state
        key, now = _split(key, 2)
        drawn = xp.log(fractions(now, rate.shape, F32))
        return xp.where(logarithm > -rate, k + 1, k), key, logarithm + drawn
    logarithm = (rate * 0).astype(F32)
    return while_loop(lambda state: xp.any(state[2] > -rate), again, (rate * 0, key, logarithm))[0] - 1


def _by_rejection(key: Any, rate: Array) -> Array:
    """Hormann's transformed rejection."""
    dtype = rate.dtype
    b = 0.931 + 2.53 * xp.sqrt(rate)
    a = -0.059 + 0.02483 * b
    inverse, bound = 1.1239 + 1.1328 / (b - 3.4), 0.9277 - 3.6224 / (b - 2)

    def again(state: Any) -> Any:
        out, accepted, key = state
        key, first, second = _split(key, 3)
        u, v = fractions(first, rate.shape, dtype) - 0.5, fractions(second, rate.shape, dtype)
        off = 0.5 - xp.abs(u)
        k = xp.floor((2 * a / off + b) * u + rate + 0.43)
        s = xp.log(v * inverse / (a / (off * off) + b))
        t = -rate + k * xp.log(rate) - gammaln(k + 1)
        refused = (k < 0) | ((off < 0.013) & (v > off))
        now = ((off >= 0.07) & (v <= bound)) | (~refused & (s <= t))
        return xp.where(now, k, out), accepted | now, key
    return while_loop(lambda state: ~xp.all(state[1]), again, (rate * 0 - 1, rate != rate, key))[0]


# ---- binomial ---------------------------------------------------------------------------------------
_STIRLING = (0.0810614667953272, 0.0413406959554092, 0.0276779256849983, 0.02079067210376509, 0.0166446911898211,
             0.0138761288230707, 0.0118967099458917, 0.0104112652619720, 0.00925546218271273, 0.00833056343336287)


def draw_binomial(key: Any, count: Array, p: Array) -> Array:
    """The number of successes among `count` trials, as floating numbers."""
    at = p.dtype
    q = xp.where(p < 0.5, p, 1 - p)
    is_wrong, has_none = xp.isnan(q) | (q < 0), xp.isnan(count) | (count < 0)
    q = xp.where(is_wrong, at.type(0.01), q)
    is_small, is_endless = has_none | (count * q <= 10), xp.isinf(count)
    count = xp.floor(count)
    few = _by_gaps(key, xp.where(is_small, count, 0), q)
    is_spare = is_small | is_endless
    many = _by_binomial_rejection(key, xp.where(is_spare, at.type(1e4), count), xp.where(is_spare, at.type(0.5), q))
    out = xp.where(is_wrong | has_none, at.type(math.nan), xp.where(is_small, few, many))
    out = xp.where(is_endless & ~(is_wrong | has_none), at.type(math.inf), out)
    return xp.where((p < 0.5) | has_none | xp.isnan(p) | is_endless, out, count - out)


def _by_gaps(key: Any, count: Array, p: Array) -> Array:
    """As many geometric gaps between successes as fit among the trials."""
    logarithm = xp.log1p(-p)

    def again(state: Any) -> Any:
        k, total, key = state
        now, key = _split(key, 2)
        gap = xp.ceil(xp.log(fractions(now, p.shape, p.dtype)) / logarithm)
        return xp.where(total <= count, k + 1, k), total + gap, key
    zero = xp.zeros_like(p)
    return while_loop(lambda state: xp.any(state[1] <= count), again, (zero, zero, key))[0] - 1


def _by_binomial_rejection(key: Any, count: Array, p: Array) -> Array:
    """Hormann's transformed rejection."""
    dtype = p.dtype
    deviation = xp.sqrt(count * p * (1 - p))
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * p
    center, bound, odds = count * p + 0.5, 0.92 - 4.2 / b, p / (1 - p)
    alpha, mode = (2.83 + 5.1 / b) * deviation, xp.floor((count + 1) * p)

    def log_ratio(k: Array) -> Array:
        """Of the probabilities of k and of the mode."""
        return ((mode + 0.5) * xp.log((mode + 1) / (odds * (count - mode + 1)))
                + (count + 1) * xp.log((count - mode + 1) / (count - k + 1))
                + (k + 0.5) * xp.log(odds * (count - k + 1) / (k + 1))
                + _stirling_tail(mode) + _stirling_tail(count - mode) - _stirling_tail(k) - _stirling_tail(count - k))

    def again(state: Any) -> Any:
        out, accepted, key = state
        key, first, second = _split(key, 3)
        u, v = fractions(first, p.shape, dtype) - 0.5, fractions(second, p.shape, dtype)
        off = 0.5 - xp.abs(u)
        k = xp.floor((2 * a / off + b) * u + center)
        is_sure = (off >= 0.07) & (v <= bound)
        refused = (k < 0) | (k > count)
        now = is_sure | (~refused & (xp.log(v * alpha / (a / (off * off) + b)) <= log_ratio(k)))
        return xp.where(now, k, out), accepted | now, key
    return while_loop(lambda state: ~xp.all(state[1]), again, (xp.zeros_like(p) - 1, p != p, key))[0]


def _stirling_tail(k: Array) -> Array:
    """log(k!) less Stirling's formula, by table; beyond 9 that of 9, as in JAX: four terms that cancel but for 1e-3."""
    return xp.asarray(_STIRLING, dtype=k.dtype)[xp.clip(k, 0, 9).astype(I32)]
