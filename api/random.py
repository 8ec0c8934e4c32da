"""Random numbers from keys: `loopwright.random`, by JAX's names.

A key is a `uint32[2]` array; the same key gives the same numbers, on plain arrays, inside `jit` and under `vmap` of keys
alike. Guarantees: the bits are those of JAX's threefry2x32 with `jax_threefry_partitionable=True` and x64 enabled, and so
are the values of every distribution where its arithmetic is exact; the others differ by rounding. Default dtypes are float64
and int64. Sizes in `shape` may be symbolic. Every function uses up its key: split it first to draw again.

>>> key = PRNGKey(0)
>>> uniform(key, (2,))
array([0.41845711, 0.21629545])
"""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from loopwright.arrays import Array, inexact_type, quiet, stopped, xp
from loopwright.ir.builder import Builder, innermost
from loopwright.ir.errors import ArgumentError, DTypeError, ShapeError
from loopwright.ir.source import user_source
from loopwright.ir.types import C64, COMPLEX, F32, F64, FLOATS, I32, I64, INTEGERS, U32, U64
from loopwright.random_bits import blocks, encrypt, fraction, fraction_width, limits, random_bits
from loopwright.random_rejection import draw_gamma, draw_poisson
from loopwright.scipy.special import erf, erfinv, gammainc, gammaln, softmax
from loopwright.tracer.axes import as_axis, as_shape, as_tracer, as_tracers
from loopwright.tracer.promotion import as_dtype, broadcast_shapes, fits, shape_of
from loopwright.tracer.size import as_extent, sized
from loopwright.tracer.tracer import Tracer

Key = Any  # uint32[2]


# ---- keys -----------------------------------------------------------------------------------------
@quiet
def key(seed: Any) -> Key:
    """uint32[2]: the key of an integer seed. Seeds that differ modulo 2^64 give different keys."""
    if isinstance(seed, int):
        if not -2 ** 63 <= seed < 2 ** 63:
            raise OverflowError(f"{user_source()}: Python integer {seed} out of bounds for int64")
        seed = np.int64(seed)
    seed = seed if isinstance(seed, Tracer) else np.asarray(seed)
    if seed.ndim or seed.dtype not in INTEGERS:
        raise ArgumentError(f"{user_source()}: a seed is one integer, got {seed.dtype} of shape {seed.shape}.")
    return xp.stack(_seeded(seed))


PRNGKey = key


def _seeded(seed: Array) -> tuple[Array, Array]:
    """The two words of a seed: of 32 bits or fewer the low one alone."""
    low = seed.astype(U32)
    high = (seed.astype(U64) >> np.uint64(32)).astype(U32) if seed.dtype.itemsize == 8 else xp.zeros_like(low)
    return high, low


@quiet
def split(key: Key, num: Any = 2) -> Key:
    """uint32[num, 2]: new keys, independent of each other; `num` may be a shape."""
    key = _checked(key)
    return xp.stack(blocks(key, as_shape(num)), axis=-1)


@quiet
def fold_in(key: Key, data: Any) -> Key:
    """uint32[2]: a new key from a key and an integer."""
    key = _checked(key)
    data = data if isinstance(data, Tracer) else xp.asarray(data)
    high, low = _seeded(data.astype(U32))
    if isinstance(key, Tracer) or isinstance(low, Tracer):
        key, high, low = as_tracers(key, high, low)
        return xp.stack(encrypt(key, high.ref, low.ref))
    return xp.stack(encrypt(key, high, low))


def key_data(keys: Key) -> Key:
    """The words of keys: a key is its own."""
    return keys


def wrap_key_data(words: Any) -> Key:
    """Keys of words."""
    return words


def _checked(key: Any) -> Key:
    """The key; inside a trace as a traced one, so that its contents are no constant of the program."""
    if not isinstance(key, Tracer):
        key = np.asarray(key)
    if key.dtype != U32 or key.ndim != 1 or key.shape[0] != 2:
        hint = "Use vmap to draw from several keys." if key.dtype == U32 and key.ndim > 1 else "Make one with random.key(seed)."
        raise ArgumentError(f"{user_source()}: a key is a uint32 array of shape (2,), got {key.dtype} of shape {key.shape}. "
                            f"{hint}")
    around = innermost()
    return key if around is None or isinstance(key, Tracer) else as_tracer(key, around)


# ---- arguments ------------------------------------------------------------------------------------
def _extents(shape: Any) -> tuple[Any, ...]:
    """A shape as plain ints and Sizes."""
    shape = shape if isinstance(shape, (tuple, list, np.ndarray)) else (shape,)
    around = innermost()
    return tuple([n if around is None else sized(n, around.scope) for n in as_shape(shape)])


def _shape_with(name: str, shape: Any, *parameters: Any) -> tuple[Any, ...]:
    """The result's shape: given, or the parameters' in common, which must broadcast to it."""
    around = innermost()
    scope = (around or Builder()).scope
    own = broadcast_shapes(scope, (), *[shape_of(p) for p in parameters])
    if shape is None:
        return tuple(sized(n, scope) for n in own)
    given = as_shape(shape if isinstance(shape, (tuple, list, np.ndarray)) else (shape,))
    if not fits(scope, own, given):
        raise ShapeError(f"{user_source()}: random.{name}: parameters of shape {scope.describe(own)} do not broadcast to shape="
                         f"{scope.describe(given)}.")
    return tuple(sized(n, scope) for n in given)


def _float(name: str, dtype: Any) -> np.dtype:
    found = F64 if dtype is None else as_dtype(dtype)
    if found not in FLOATS:
        raise DTypeError(f"{user_source()}: random.{name} makes floating numbers, got dtype {found}.")
    return found


def _parameters(dtype: np.dtype, *xs: Any) -> Any:
    """Parameters at the result's dtype."""
    out = tuple([x.astype(dtype) if isinstance(x, Tracer) else xp.asarray(x, dtype=dtype) for x in xs])
    return out[0] if len(out) == 1 else out


# ---- uniform numbers ------------------------------------------------------------------------------
@quiet
def bits(key: Key, shape: Any = (), dtype: Any = None) -> Array:
    """Uniform bits as unsigned integers (uint64 by default)."""
    found = U64 if dtype is None else as_dtype(dtype)
    if found.kind != "u":
        raise DTypeError(f"{user_source()}: random.bits makes unsigned integers, got dtype {found}.")
    return random_bits(_checked(key), 8 * found.itemsize, as_shape(shape))


@quiet
def uniform(key: Key, shape: Any = (), dtype: Any = None, minval: Any = 0.0, maxval: Any = 1.0) -> Array:
    """Uniform numbers in [minval, maxval)."""
    found = _float("uniform", dtype)
    unit = _unit(_checked(key), _shape_with("uniform", shape, minval, maxval), found)
    if isinstance(minval, (int, float)) and isinstance(maxval, (int, float)) and (minval, maxval) == (0, 1):
        return unit
    low, high = _parameters(found, minval, maxval)
    return xp.maximum(low, unit * (high - low) + low)


def _unit(key: Key, shape: tuple[Any, ...], dtype: np.dtype) -> Array:
    """Fractions in [0, 1)."""
    return fraction(random_bits(key, fraction_width(dtype), as_shape(shape)), dtype)


@quiet
def randint(key: Key, shape: Any, minval: Any, maxval: Any, dtype: Any = None) -> Array:
    """Integers in [minval, maxval), minval where that is empty. No integer is likelier than another by more than 2^-32 times
    the span (2^-64 for 64 bits)."""
    found = I64 if dtype is None else as_dtype(dtype)
    if found not in INTEGERS:
        raise DTypeError(f"{user_source()}: random.randint makes integers, got dtype {found}.")
    shape = _shape_with("randint", shape, minval, maxval)
    at = found
    if found.itemsize < 4:  # drawn in 32 bits, else it would be biased
        at, info = I32, np.iinfo(found)
        minval = xp.clip(_integer(minval).astype(I32), int(info.min), int(info.max))
        maxval = xp.clip(_integer(maxval).astype(I32), int(info.min), int(info.max) + 1)
    return _integers(_checked(key), shape, _integer(minval), _integer(maxval), at).astype(found)


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
    first, second = (random_bits(k, info.bits, as_shape(shape)) for k in _pair(key))
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


def _pair(key: Key) -> tuple[Key, Key]:
    two = split(key)
    return two[0], two[1]


@quiet
def bernoulli(key: Key, p: Any = 0.5, shape: Any = None, mode: str = "low") -> Array:
    """bool: True with probability p. mode "high" resolves p below the spacing of uniform numbers."""
    if mode not in ("high", "low"):
        raise ValueError(f"{user_source()}: random.bernoulli: mode must be 'high' or 'low', got {mode!r}.")
    dtype = inexact_type(p)
    p, shape = _parameters(dtype, p), _shape_with("bernoulli", shape, p)
    if mode == "low":
        return uniform(key, shape, dtype) < p
    drawn = uniform(key, (2, *shape), dtype)
    return drawn[1] * dtype.type(2.0 ** -limits(dtype).nmant) < p - drawn[0]


@quiet
def rademacher(key: Key, shape: Any = (), dtype: Any = None) -> Array:
    """-1 or 1, equally likely (int64 by default)."""
    found = I64 if dtype is None else as_dtype(dtype)
    return (2 * bernoulli(key, 0.5, _extents(shape)).astype(found) - 1).astype(found)


# ---- order and choice -----------------------------------------------------------------------------
@quiet
def permutation(key: Key, x: Any, axis: int = 0, independent: bool = False) -> Array:
    """x, or range(x) for an integer x, in random order along an axis; `independent`: each line in an order of its own."""
    key = _checked(key)
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
        key, now = _pair(key)
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
    count, shape = a if arr is None else arr.shape[axis], _extents(shape)
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
    weights = _parameters(inexact_type(p), p)
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
    logits = _parameters(inexact_type(logits), logits)
    axis = as_axis(axis, logits.ndim)
    batch = logits.shape[:axis] + logits.shape[axis + 1:]
    shape = batch if shape is None else _extents(shape)
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


# ---- distributions by formula -----------------------------------------------------------------------
@quiet
def normal(key: Key, shape: Any = (), dtype: Any = None) -> Array:
    """Normal numbers of mean 0 and variance 1; complex ones have parts of variance 1/2."""
    found = F64 if dtype is None else as_dtype(dtype)
    if found in COMPLEX:
        part = F32 if found == C64 else F64
        re, im = (normal(k, shape, part).astype(found) for k in _pair(key))
        return (re + 1j * im) / found.type(math.sqrt(2))
    found = _float("normal", found)
    low = float(np.nextafter(found.type(-1), found.type(0)))
    return found.type(math.sqrt(2)) * erfinv(uniform(key, shape, found, low, 1.0))


@quiet
def truncated_normal(key: Key, lower: Any, upper: Any, shape: Any = None, dtype: Any = None) -> Array:
    """Normal numbers of mean 0 and variance 1, given that they lie in (lower, upper)."""
    found = _float("truncated_normal", dtype)
    shape = _shape_with("truncated_normal", shape, lower, upper)
    lower, upper = _parameters(found, lower, upper)
    root = found.type(math.sqrt(2))
    out = root * erfinv(uniform(key, shape, found, erf(lower / root), erf(upper / root)))
    return xp.minimum(xp.maximum(out, xp.nextafter(lower, found.type(math.inf))), xp.nextafter(upper, found.type(-math.inf)))


@quiet
def exponential(key: Key, shape: Any = (), dtype: Any = None) -> Array:
    """Density exp(-x) on [0, inf)."""
    return -xp.log1p(-uniform(key, shape, _float("exponential", dtype)))


@quiet
def gumbel(key: Key, shape: Any = (), dtype: Any = None, mode: str | None = None) -> Array:
    """Density exp(-x - exp(-x)). mode "high" resolves the upper tail below the spacing of uniform numbers."""
    found, shape = _float("gumbel", dtype), _extents(shape)
    held = limits(found)
    if mode in (None, "low"):
        return -xp.log(-xp.log(uniform(key, shape, found, float(held.tiny), 1.0)))
    if mode != "high":
        raise ValueError(f"{user_source()}: random.gumbel: mode must be 'high' or 'low', got {mode!r}.")
    drawn = uniform(key, (2, *shape), found)
    x = xp.where(drawn[0] >= 0.5, drawn[0], drawn[0] + found.type(2.0 ** -held.nmant) * drawn[1] + found.type(held.tiny))
    return -xp.log(-xp.log1p(-x))


@quiet
def laplace(key: Key, shape: Any = (), dtype: Any = None) -> Array:
    """Density exp(-|x|) / 2."""
    found = _float("laplace", dtype)
    u = uniform(key, shape, found, float(found.type(-1) + limits(found).epsneg), 1.0)
    return xp.sign(u) * xp.log1p(-xp.abs(u))


@quiet
def logistic(key: Key, shape: Any = (), dtype: Any = None) -> Array:
    """Distribution function 1 / (1 + exp(-x))."""
    found = _float("logistic", dtype)
    x = uniform(key, shape, found, float(limits(found).tiny), 1.0)
    return xp.log(x) - xp.log1p(-x)


@quiet
def cauchy(key: Key, shape: Any = (), dtype: Any = None) -> Array:
    """Density 1 / (pi (1 + x^2))."""
    found = _float("cauchy", dtype)
    u = uniform(key, shape, found, float(limits(found).eps), 1.0)
    return xp.tan(found.type(math.pi) * (u - found.type(0.5)))


@quiet
def pareto(key: Key, b: Any, shape: Any = None, dtype: Any = None) -> Array:
    """Density b x^(-b - 1) on [1, inf)."""
    found, shape = _float("pareto", dtype), _shape_with("pareto", shape, b)
    return xp.exp(exponential(key, shape, found) / _parameters(found, b))


@quiet
def weibull_min(key: Key, scale: Any, concentration: Any, shape: Any = (), dtype: Any = None) -> Array:
    """Distribution function 1 - exp(-(x / scale)^concentration)."""
    found = _float("weibull_min", dtype)
    scale, concentration = _parameters(found, scale, concentration)
    return xp.power(-xp.log1p(-uniform(key, shape, found)), 1.0 / concentration) * scale


@quiet
def rayleigh(key: Key, scale: Any, shape: Any = None, dtype: Any = None) -> Array:
    """Density x / scale^2 exp(-x^2 / (2 scale^2)) on [0, inf)."""
    found, shape = _float("rayleigh", dtype), _shape_with("rayleigh", shape, scale)
    return _parameters(found, scale) * xp.sqrt(xp.log(uniform(key, shape, found)) * found.type(-2))


@quiet
def wald(key: Key, mean: Any, shape: Any = None, dtype: Any = None) -> Array:
    """Inverse Gaussian numbers of a mean and shape parameter 1."""
    found, shape = _float("wald", dtype), _shape_with("wald", shape, mean)
    first, second = _pair(_checked(key))
    mean, v, z = _parameters(found, mean), normal(first, shape, found), uniform(second, shape, found)
    y, square = v * v, mean * mean
    x = mean + square * y / 2 - mean / 2 * xp.sqrt(4 * mean * y + square * (y * y))
    return xp.where(z <= mean / (mean + x), x, square / x)


@quiet
def geometric(key: Key, p: Any, shape: Any = None, dtype: Any = None) -> Array:
    """The number of trials of probability p up to the first success (int64 by default)."""
    found = I64 if dtype is None else as_dtype(dtype)
    at, shape = inexact_type(p), _shape_with("geometric", shape, p)
    u = uniform(key, shape, at)
    u = xp.where(u == 0, at.type(1), u)
    return (xp.floor(xp.log(u) / xp.log1p(-_parameters(at, p))) + 1).astype(found)


@quiet
def triangular(key: Key, left: Any, mode: Any, right: Any, shape: Any = None, dtype: Any = None) -> Array:
    """A density that rises linearly from left to mode and falls to right."""
    found, shape = _float("triangular", dtype), _shape_with("triangular", shape, left, mode, right)
    left, mode, right = _parameters(found, left, mode, right)
    u = uniform(key, shape, found)
    rising = left + xp.sqrt(u * (right - left) * (mode - left))
    falling = right - xp.sqrt((1 - u) * (right - left) * (right - mode))
    return xp.where(u < (mode - left) / (right - left), rising, falling)


@quiet
def lognormal(key: Key, sigma: Any = 1.0, shape: Any = None, dtype: Any = None) -> Array:
    """exp of normal numbers of standard deviation sigma."""
    found, shape = _float("lognormal", dtype), _shape_with("lognormal", shape, sigma)
    return xp.exp(normal(key, shape, found) * _parameters(found, sigma))


@quiet
def maxwell(key: Key, shape: Any = (), dtype: Any = None) -> Array:
    """The length of a vector of three normal numbers."""
    found, shape = _float("maxwell", dtype), _extents(shape)
    drawn = normal(key, (*shape, 3), found)
    return xp.sqrt(xp.sum(drawn * drawn, axis=-1))


# ---- distributions by rejection ---------------------------------------------------------------------
@quiet
def gamma(key: Key, a: Any, shape: Any = None, dtype: Any = None) -> Array:
    """Density x^(a - 1) exp(-x) / gamma(a) on [0, inf). Its derivative in a keeps the probability of less than the sample."""
    found, shape = _float("gamma", dtype), _shape_with("gamma", shape, a)
    a = xp.broadcast_to(_parameters(found, a), shape)
    sample = draw_gamma(_checked(key), stopped(a), logarithm=False)
    return sample + _implicit_change(sample, a) if isinstance(a, Tracer) else sample


@quiet
def loggamma(key: Key, a: Any, shape: Any = None, dtype: Any = None) -> Array:
    """The logarithm of a gamma number, which keeps its precision where that is as good as 0."""
    found, shape = _float("loggamma", dtype), _shape_with("loggamma", shape, a)
    a = xp.broadcast_to(_parameters(found, a), shape)
    sample = draw_gamma(_checked(key), stopped(a), logarithm=True)
    if not isinstance(a, Tracer):
        return sample
    size = xp.maximum(xp.exp(sample), found.type(limits(found).tiny))
    return sample + _implicit_change(size, a) / size


def _implicit_change(sample: Array, a: Array) -> Array:
    """Nothing, with the derivative -(d gammainc / d a) / density that the sample has."""
    held = stopped(a)
    density = xp.exp((held - 1) * xp.log(sample) - sample - gammaln(held))
    p = gammainc(a, sample)
    return -(p - stopped(p)) / density


@quiet
def chisquare(key: Key, df: Any, shape: Any = None, dtype: Any = None) -> Array:
    """The sum of df squares of normal numbers."""
    found = _float("chisquare", dtype)
    return xp.exp(loggamma(key, _parameters(found, df) / 2, shape, found)) * 2


@quiet
def f(key: Key, dfnum: Any, dfden: Any, shape: Any = None, dtype: Any = None) -> Array:
    """The quotient of two chi-square numbers, each over its degrees of freedom."""
    found, shape = _float("f", dtype), _shape_with("f", shape, dfnum, dfden)
    below, above = _pair(_checked(key))
    top, bottom = _parameters(found, dfnum, dfden)
    return (chisquare(above, top, shape, found) / top) / (chisquare(below, bottom, shape, found) / bottom)


@quiet
def t(key: Key, df: Any, shape: Any = None, dtype: Any = None) -> Array:
    """Student's t with df degrees of freedom."""
    found, shape = _float("t", dtype), _shape_with("t", shape, df)
    first, second = _pair(_checked(key))
    half = _parameters(found, df) / 2
    return normal(first, shape, found) * xp.sqrt(half / gamma(second, half, shape, found))


@quiet
def beta(key: Key, a: Any, b: Any, shape: Any = None, dtype: Any = None) -> Array:
    """Density proportional to x^(a - 1) (1 - x)^(b - 1) on [0, 1]."""
    found, shape = _float("beta", dtype), _shape_with("beta", shape, a, b)
    first, second = _pair(_checked(key))
    one, other = loggamma(first, a, shape, found), loggamma(second, b, shape, found)
    largest = xp.maximum(one, other)
    one, other = xp.exp(one - largest), xp.exp(other - largest)
    return one / (one + other)


@quiet
def dirichlet(key: Key, alpha: Any, shape: Any = None, dtype: Any = None) -> Array:
    """[*shape, k]: shares that sum to 1, with concentrations alpha along the last axis."""
    found = _float("dirichlet", dtype)
    alpha = _parameters(found, alpha)
    if not alpha.ndim:
        raise ShapeError(f"{user_source()}: random.dirichlet: alpha needs an axis of concentrations, got a number.")
    batch = alpha.shape[:-1] if shape is None else _extents(shape)
    return softmax(loggamma(key, alpha, (*batch, alpha.shape[-1]), found), -1)


@quiet
def generalized_normal(key: Key, p: Any, shape: Any = (), dtype: Any = None) -> Array:
    """Density proportional to exp(-|x|^p)."""
    found, shape = _float("generalized_normal", dtype), _extents(shape)
    first, second = _pair(_checked(key))
    p = _parameters(found, p)
    return rademacher(second, shape, found) * gamma(first, 1 / p, shape, found) ** (1 / p)


@quiet
def ball(key: Key, d: int, p: Any = 2, shape: Any = (), dtype: Any = None) -> Array:
    """[*shape, d]: points uniform in the unit ball of the p-norm."""
    found, shape = _float("ball", dtype), _extents(shape)
    first, second = _pair(_checked(key))
    g, e = generalized_normal(first, p, (*shape, d), found), exponential(second, shape, found)
    return g / ((xp.sum(xp.abs(g) ** p, -1) + e) ** (1 / p))[..., None]


@quiet
def poisson(key: Key, lam: Any, shape: Any = None, dtype: Any = None) -> Array:
    """The number of events of rate lam (int64 by default): Knuth's method below 10, rejection beyond (Hormann)."""
    found, shape = I64 if dtype is None else as_dtype(dtype), _shape_with("poisson", shape, lam)
    rate = stopped(_parameters(F32, lam))  # as in JAX, whatever the dtypes
    return draw_poisson(_checked(key), xp.broadcast_to(rate, shape)).astype(found)
