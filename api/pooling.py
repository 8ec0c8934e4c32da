"""Pooling: windows of an array[batch..., *space, feature] brought together, with Flax's names, arguments and meaning."""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from loopwright.arrays import Array, inexact, xp
from loopwright.ir.errors import ShapeError
from loopwright.ir.ops.windows import greatest_value, least_value
from loopwright.ir.source import user_source
from loopwright.tracer.axes import known_list
from loopwright.tracer.tracer import Tracer
from loopwright.windows import Padding, reduce_window


def pool(inputs: Any, init: Any, reduce_fn: Callable[..., Any], window_shape: Sequence[Any],
         strides: Sequence[int] | None = None, padding: Padding = "VALID") -> Array:
    """reduce_window along the spatial axes of inputs[batch..., *space, feature].

    window_shape: a size for each spatial axis; strides and padding pairs too. ShapeError where the array has fewer axes.

    >>> import numpy as np
    >>> pool(np.arange(4.0)[:, None], 1.0, np.multiply, (2,))[:, 0]
    array([0., 2., 6.])
    """
    x = inputs if isinstance(inputs, Tracer) else xp.asarray(inputs)
    window = tuple(known_list(window_shape))
    front = x.ndim - len(window) - 1
    if front < 0:
        raise ShapeError(f"{user_source()}: pool: windows of shape {window} need an array of at least {len(window) + 1} axes, "
                         f"the last for features, got shape {x.shape}.")
    by = (1,) * len(window) if strides is None else tuple(known_list(strides))
    pads = padding if isinstance(padding, str) else [*[(0, 0)] * front, *known_list(padding), (0, 0)]
    return reduce_window(x, init, reduce_fn, (*[1] * front, *window, 1), (*[1] * front, *by, 1), pads)


def avg_pool(inputs: Any, window_shape: Sequence[Any], strides: Sequence[int] | None = None, padding: Padding = "VALID",
             count_include_pad: bool = True) -> Array:
    """The mean of each window; without what is past the array where not count_include_pad. See pool.

    >>> import numpy as np
    >>> avg_pool(np.arange(4.0)[:, None], (2,), strides=(2,))[:, 0]
    array([0.5, 2.5])
    """
    x = inexact(inputs)
    total = pool(x, 0, xp.add, window_shape, strides, padding)
    if count_include_pad:
        return total / math.prod(known_list(window_shape))
    ones = xp.ones((*x.shape[x.ndim - len(window_shape) - 1:-1], 1), dtype=x.dtype)
    return total / pool(ones, 0, xp.add, window_shape, strides, padding)


def max_pool(inputs: Any, window_shape: Sequence[Any], strides: Sequence[int] | None = None,
             padding: Padding = "VALID") -> Array:
    """The greatest of each window, whose first position in it has the derivative. See pool.

    >>> import numpy as np
    >>> max_pool(np.array([3.0, 1.0, 2.0, 5.0])[:, None], (2,), padding="SAME")[:, 0]
    array([3., 2., 5., 5.])
    """
    x = inputs if isinstance(inputs, Tracer) else xp.asarray(inputs)
    return pool(x, least_value(x.dtype), xp.maximum, window_shape, strides, padding)


def min_pool(inputs: Any, window_shape: Sequence[Any], strides: Sequence[int] | None = None,
             padding: Padding = "VALID") -> Array:
    """The least of each window, whose first position in it has the derivative. See pool.

    >>> import numpy as np
    >>> min_pool(np.array([3.0, 1.0, 2.0, 5.0])[:, None], (2,))[:, 0]
    array([1., 1., 2.])
    """
    x = inputs if isinstance(inputs, Tracer) else xp.asarray(inputs)
    return pool(x, greatest_value(x.dtype), xp.minimum, window_shape, strides, padding)
