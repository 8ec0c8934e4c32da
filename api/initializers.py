"""Initial weights of networks, by JAX's names: `loopwright.nn.initializers`.

Each function gives an initializer: `init(key, shape, dtype=...)`, float64 where no dtype is given. Guarantees: the numbers are
those of `loopwright.random` for the same key, and so JAX's.
"""
from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from loopwright import random
from loopwright.arrays import Array, xp
from loopwright.ir.errors import ShapeError
from loopwright.ir.source import user_source
from loopwright.ir.types import F64

__all__ = [
    "constant", "delta_orthogonal", "glorot_normal", "glorot_uniform", "he_normal", "he_uniform", "kaiming_normal",
    "kaiming_uniform", "lecun_normal", "lecun_uniform", "normal", "ones", "orthogonal", "truncated_normal", "uniform",
    "variance_scaling", "xavier_normal", "xavier_uniform", "zeros",
]

Initializer = Callable[..., Array]
_TRUNCATED = 0.87962566103423978  # the standard deviation of a normal number between -2 and 2


def zeros(key: Any, shape: Sequence[Any], dtype: Any = F64) -> Array:
    """0"""
    return xp.zeros(shape, dtype)


def ones(key: Any, shape: Sequence[Any], dtype: Any = F64) -> Array:
    """1"""
    return xp.ones(shape, dtype)


def constant(value: Any, dtype: Any = None) -> Initializer:
    """value everywhere."""
    def init(key: Any, shape: Sequence[Any], dtype: Any = dtype or F64) -> Array:
        return xp.full(shape, value, dtype)
    return init


def _scaled(draw: Callable[[Any, Sequence[Any], Any], Array], scale: Any, dtype: Any) -> Initializer:
    def init(key: Any, shape: Sequence[Any], dtype: Any = dtype or F64) -> Array:
        return draw(key, shape, dtype) * xp.asarray(scale, dtype=dtype)
    return init


def uniform(scale: Any = 1e-2, dtype: Any = None) -> Initializer:
    """Even between 0 and scale.

    >>> import loopwright as lw
    >>> uniform(2.0)(lw.random.key(0), (2, 3)).shape
    (2, 3)
    """
    return _scaled(random.uniform, scale, dtype)


def normal(stddev: Any = 1e-2, dtype: Any = None) -> Initializer:
    """Normal around 0."""
    return _scaled(random.normal, stddev, dtype)


def truncated_normal(stddev: Any = 1e-2, dtype: Any = None, lower: Any = -2.0, upper: Any = 2.0) -> Initializer:
    """stddev times normal numbers between lower and upper."""
    return _scaled(lambda key, shape, dtype: random.truncated_normal(key, lower, upper, shape, dtype), stddev, dtype)


def _axes(axes: int | Sequence[int]) -> Sequence[int]:
    return (axes,) if isinstance(axes, int) else tuple(axes)


def variance_scaling(scale: Any, mode: str, distribution: str, in_axis: int | Sequence[int] = -2,
                     out_axis: int | Sequence[int] = -1, batch_axis: int | Sequence[int] = (),
                     dtype: Any = None) -> Initializer:
    """Numbers around 0 whose variance is scale / n: n is the number of inputs of a weight ("fan_in"), of outputs ("fan_out"),
    or their mean ("fan_avg", "fan_geo_avg"); axes that are none of in_axis, out_axis and batch_axis count in both.

    distribution: "truncated_normal" (between two standard deviations), "normal" or "uniform". ShapeError for fewer than two
    axes.
    """
    if mode not in ("fan_in", "fan_out", "fan_avg", "fan_geo_avg"):
        raise ValueError(f"{user_source()}: mode must be 'fan_in', 'fan_out', 'fan_avg' or 'fan_geo_avg', got {mode!r}.")
    if distribution not in ("truncated_normal", "normal", "uniform"):
        raise ValueError(f"{user_source()}: distribution must be 'truncated_normal', 'normal' or 'uniform', got "
                         f"{distribution!r}.")

    def fan(shape: Sequence[Any]) -> Any:
        inputs, outputs, batch = (math.prod(shape[a] for a in _axes(x)) for x in (in_axis, out_axis, batch_axis))
        rest = math.prod(shape) / inputs / outputs / batch
        first, second = inputs * rest, outputs * rest
        means = {"fan_avg": (first + second) / 2, "fan_geo_avg": (first * second) ** 0.5}
        return {"fan_in": first, "fan_out": second, **means}[mode]

    def init(key: Any, shape: Sequence[Any], dtype: Any = dtype or F64) -> Array:
        if len(shape) < 2:
            raise ShapeError(f"{user_source()}: variance_scaling needs a shape of two axes or more, got {tuple(shape)}.")
        variance = xp.asarray(scale / fan(shape), dtype=dtype)
        if distribution == "uniform":
            return random.uniform(key, shape, dtype, -1) * xp.sqrt(3 * variance)
        if distribution == "normal":
            return random.normal(key, shape, dtype) * xp.sqrt(variance)
        return random.truncated_normal(key, -2, 2, shape, dtype) * (xp.sqrt(variance) / xp.asarray(_TRUNCATED, dtype=dtype))
    return init


glorot_uniform = xavier_uniform = functools.partial(variance_scaling, 1.0, "fan_avg", "uniform")
glorot_normal = xavier_normal = functools.partial(variance_scaling, 1.0, "fan_avg", "truncated_normal")
lecun_uniform = functools.partial(variance_scaling, 1.0, "fan_in", "uniform")
lecun_normal = functools.partial(variance_scaling, 1.0, "fan_in", "truncated_normal")
he_uniform = kaiming_uniform = functools.partial(variance_scaling, 2.0, "fan_in", "uniform")
he_normal = kaiming_normal = functools.partial(variance_scaling, 2.0, "fan_in", "truncated_normal")


def orthogonal(scale: Any = 1.0, column_axis: int = -1, dtype: Any = None) -> Initializer:
    """scale times matrices whose rows or columns, whichever are fewer, are orthonormal. ShapeError for fewer than two axes."""
    def init(key: Any, shape: Sequence[Any], dtype: Any = dtype or F64) -> Array:
        if len(shape) < 2:
            raise ShapeError(f"{user_source()}: orthogonal needs a shape of two axes or more, got {tuple(shape)}.")
        columns = shape[column_axis]
        rest = [n for k, n in enumerate(shape) if k != column_axis % len(shape)]
        q = random.orthogonal(key, math.prod(rest), (), dtype, columns)
        return xp.moveaxis(xp.reshape(q, (*rest, columns)), -1, column_axis) * xp.asarray(scale, dtype=dtype)
    return init


def delta_orthogonal(scale: Any = 1.0, column_axis: int = -1, dtype: Any = None) -> Initializer:
    """Kernels of convolutions f[window..., inputs, outputs], of 1 to 3 window axes: an orthogonal matrix in the middle, 0
    elsewhere. ShapeError for other shapes and for more inputs than outputs."""
    def init(key: Any, shape: Sequence[Any], dtype: Any = dtype or F64) -> Array:
        if len(shape) not in (3, 4, 5) or shape[-1] < shape[-2]:
            raise ShapeError(f"{user_source()}: delta_orthogonal needs a shape of 3 to 5 axes, with no more inputs (axis -2) "
                             f"than outputs, got {tuple(shape)}.")
        middle = orthogonal(scale, column_axis, dtype)(key, shape[-2:])
        widths = [((n - 1) // 2, n - 1 - (n - 1) // 2) for n in shape[:-2]]
        return xp.pad(xp.reshape(middle, (*[1] * len(widths), *shape[-2:])), (*widths, (0, 0), (0, 0)))
    return init
