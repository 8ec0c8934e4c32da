"""Functions of neural networks, by JAX's names: `loopwright.nn`.

Guarantees: numerically stable over the whole range, with derivatives to match (to any order, and free of NaN where elements are
masked by `where`); slopes at kinks are those of jax.nn: 0 for relu and relu6 at 0. Results have the argument's dtype, float64
for integers where the function is not exact on them.
"""
from __future__ import annotations

import math
from typing import Any

from loopwright import initializers
from loopwright.arrays import Array, inexact, quiet, real, xp
from loopwright.attention import dot_product_attention
from loopwright.ir.errors import ShapeError
from loopwright.ir.source import user_source
from loopwright.ir.types import F64
from loopwright.pooling import avg_pool, max_pool, min_pool, pool
from loopwright.scipy.special import erfc, expit, log_expit, logsumexp
from loopwright.scipy.special import log_softmax as _log_softmax
from loopwright.scipy.special import softmax as _softmax
from loopwright.tracer.axes import as_axis
from loopwright.tracer.promotion import as_dtype
from loopwright.tracer.tracer import Tracer

__all__ = [
    "avg_pool", "celu", "dot_product_attention", "elu", "gelu", "glu", "hard_sigmoid", "hard_silu", "hard_swish", "hard_tanh",
    "identity", "initializers", "leaky_relu", "log1mexp", "log_sigmoid", "log_softmax", "logmeanexp", "logsumexp", "max_pool",
    "min_pool", "mish", "one_hot", "pool", "relu", "relu6", "selu", "sigmoid", "silu", "soft_sign", "softmax", "softplus",
    "sparse_plus", "sparse_sigmoid", "squareplus", "standardize", "swish", "tanh",
]


tanh = xp.tanh


def _array(x: Any) -> Array:
    return x if isinstance(x, Tracer) else xp.asarray(x)


def identity(x: Any) -> Array:
    """x"""
    return _array(x)


# ---- with kinks -----------------------------------------------------------------------------------
@quiet
def relu(x: Any) -> Array:
    """max(x, 0)"""
    x = _array(x)
    return xp.where((x > 0) | xp.isnan(x), x, x.dtype.type(0))


@quiet
def relu6(x: Any) -> Array:
    """min(max(x, 0), 6)"""
    x = _array(x)
    return xp.where((x <= 0) | (x >= 6), xp.where(x > 0, x.dtype.type(6), x.dtype.type(0)), x)


@quiet
def leaky_relu(x: Any, negative_slope: Any = 1e-2) -> Array:
    """x above 0, negative_slope x below."""
    x = inexact(x)
    return xp.where(x >= 0, x, negative_slope * x)


@quiet
def hard_tanh(x: Any) -> Array:
    """x cut off at -1 and 1."""
    x = _array(x)
    return xp.where(x > 1, x.dtype.type(1), xp.where(x < -1, x.dtype.type(-1), x))


@quiet
def hard_sigmoid(x: Any) -> Array:
    """relu6(x + 3) / 6"""
    return relu6(inexact(x) + 3) / 6


@quiet
def hard_silu(x: Any) -> Array:
    """x hard_sigmoid(x)"""
    x = inexact(x)
    return x * hard_sigmoid(x)


@quiet
def sparse_plus(x: Any) -> Array:
    """0 below -1, x above 1, (x + 1)^2 / 4 between."""
    x = inexact(x)
    return xp.where(x <= -1, 0, xp.where(x >= 1, x, (xp.where(xp.abs(x) >= 1, 0, x) + 1) ** 2 / 4))


@quiet
def sparse_sigmoid(x: Any) -> Array:
    """(x + 1) / 2 cut off at 0 and 1."""
    return 0.5 * xp.clip(inexact(x) + 1, 0, 2)


# ---- exponential units ------------------------------------------------------------------------------
@quiet
def elu(x: Any, alpha: Any = 1.0) -> Array:
    """x above 0, alpha (exp(x) - 1) below."""
    x = inexact(x)
    return xp.where(x > 0, x, alpha * xp.expm1(xp.where(x > 0, 0, x)))


@quiet
def celu(x: Any, alpha: Any = 1.0) -> Array:
    """x above 0, alpha (exp(x / alpha) - 1) below."""
    x = inexact(x)
    return xp.where(x > 0, x, alpha * xp.expm1(xp.where(x > 0, 0, x) / alpha))


@quiet
def selu(x: Any) -> Array:
    """elu with the scales of self-normalising networks."""
    return 1.0507009873554805 * elu(x, 1.6732632423543772)


# ---- smooth -----------------------------------------------------------------------------------------
sigmoid, log_sigmoid = expit, log_expit


@quiet
def softplus(x: Any) -> Array:
    """log(1 + exp(x)) without overflow."""
    return -log_expit(-inexact(x))


@quiet
def silu(x: Any) -> Array:
    """x sigmoid(x)"""
    x = inexact(x)
    return x * expit(x)


@quiet
def mish(x: Any) -> Array:
    """x tanh(softplus(x))"""
    x = inexact(x)
    return x * xp.tanh(softplus(x))


@quiet
def soft_sign(x: Any) -> Array:
    """x / (1 + |x|)"""
    x = inexact(x)
    return x / (xp.abs(x) + 1)


@quiet
def squareplus(x: Any, b: Any = 4) -> Array:
    """(x + sqrt(x^2 + b)) / 2"""
    x = inexact(x)
    return (x + xp.sqrt(x * x + b)) / 2


@quiet
def gelu(x: Any, approximate: bool = True) -> Array:
    """x times the normal distribution function, by tanh where approximate."""
    x = inexact(x)
    if approximate:
        return x * (0.5 * (1 + xp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x)))))
    return 0.5 * x * erfc(x * -math.sqrt(0.5))


@quiet
def log1mexp(x: Any) -> Array:
    """log(1 - exp(-x)) for x >= 0, with full precision at both ends (Maechler); NaN below."""
    x = real("log1mexp", x)
    is_small = x < math.log(2)
    large = xp.log1p(-xp.exp(-xp.where(is_small, 1, x)))
    return xp.where(is_small, xp.log(-xp.expm1(-xp.where(is_small, x, 0.5))), large)


@quiet
def glu(x: Any, axis: int = -1) -> Array:
    """The first half along an axis, times the sigmoid of the second. ShapeError for an odd size."""
    x = inexact(x)
    size = x.shape[axis]
    if size % 2 != 0:
        raise ShapeError(f"{user_source()}: glu halves axis {axis}, whose size {size} is odd.")
    first, second = xp.split(x, 2, axis)
    return first * expit(second)


hard_swish, swish = hard_silu, silu


# ---- over an axis -----------------------------------------------------------------------------------
def softmax(x: Any, axis: Any = -1, where: Any = None) -> Array:
    """exp(x) / sum(exp(x)) along an axis. where: which elements count; the others are 0."""
    return _softmax(x, axis, where)


def log_softmax(x: Any, axis: Any = -1, where: Any = None) -> Array:
    """x - logsumexp(x) along an axis. where: which elements count; the others are -inf."""
    return _log_softmax(x, axis, where)


@quiet
def logmeanexp(x: Any, axis: Any = None, where: Any = None, keepdims: bool = False) -> Array:
    """log(mean(exp(x))) without overflow."""
    x = inexact(x)
    counted = xp.ones_like(x) if where is None else xp.where(where, xp.ones_like(x), 0)
    return logsumexp(x, axis, where=where, keepdims=keepdims) - xp.log(xp.sum(counted, axis=axis, keepdims=keepdims))


@quiet
def standardize(x: Any, axis: Any = -1, mean: Any = None, variance: Any = None, epsilon: Any = 1e-5, where: Any = None, *,
                algorithm: str = "stable") -> Array:
    """(x - mean) / sqrt(variance + epsilon), both along an axis where not given. The variance is that of the differences from
    the mean; `algorithm="fast"`, the difference of two squares, is accepted and computed the same way."""
    if algorithm not in ("stable", "fast"):
        raise ValueError(f"{user_source()}: standardize: algorithm must be 'stable' or 'fast', got {algorithm!r}.")
    x = inexact(x)
    if mean is None:
        mean = _mean(x, axis, where)
    if variance is None:
        off = x - mean
        variance = _mean(off * off, axis, where)
    return (x - mean) / xp.sqrt(variance + epsilon)


def _mean(x: Array, axis: Any, where: Any) -> Array:
    if where is None:
        return xp.mean(x, axis=axis, keepdims=True)
    counted = xp.broadcast_to(where, x.shape)
    return xp.sum(xp.where(counted, x, 0), axis=axis, keepdims=True) / xp.sum(counted, axis=axis, keepdims=True).astype(x.dtype)


@quiet
def one_hot(x: Any, num_classes: Any, *, dtype: Any = None, axis: int = -1) -> Array:
    """[..., num_classes] with 1 where the class is x, else 0; only 0 where x is no class. `num_classes` may be symbolic."""
    x = _array(x)
    axis = as_axis(axis, x.ndim + 1)
    classes = xp.arange(num_classes).reshape([-1 if a == axis else 1 for a in range(x.ndim + 1)])
    return (xp.expand_dims(x, axis) == classes).astype(F64 if dtype is None else as_dtype(dtype))
