"""Keys, and what every distribution takes.

Guarantees: the keys of seeds, splits and folds are JAX's; a key inside a trace is a traced one, so that its contents are no
constant of the program; sizes in shapes may be symbolic.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from loopwright.arrays import Array, quiet, xp
from loopwright.ir.builder import Builder, innermost
from loopwright.ir.errors import ArgumentError, DTypeError, ShapeError
from loopwright.ir.source import user_source
from loopwright.ir.types import F64, FLOATS, INTEGERS, U32, U64
from loopwright.random_bits import blocks, encrypt
from loopwright.tracer.axes import as_shape, as_tracer, as_tracers
from loopwright.tracer.promotion import as_dtype, broadcast_shapes, fits, shape_of
from loopwright.tracer.size import sized
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
    key = checked(key)
    return xp.stack(blocks(key, as_shape(num)), axis=-1)


@quiet
def fold_in(key: Key, data: Any) -> Key:
    """uint32[2]: a new key from a key and an integer."""
    key = checked(key)
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


def clone(key: Key) -> Key:
    """The key again, for a second use that is meant."""
    return key


def checked(key: Any) -> Key:
    """The key; inside a trace as a traced one, so that its contents are no constant of the program."""
    if not isinstance(key, Tracer):
        key = np.asarray(key)
    if key.dtype != U32 or key.ndim != 1 or key.shape[0] != 2:
        hint = "Use vmap to draw from several keys." if key.dtype == U32 and key.ndim > 1 else "Make one with random.key(seed)."
        raise ArgumentError(f"{user_source()}: a key is a uint32 array of shape (2,), got {key.dtype} of shape {key.shape}. "
                            f"{hint}")
    around = innermost()
    return key if around is None or isinstance(key, Tracer) else as_tracer(key, around)


def pair(key: Key) -> tuple[Key, Key]:
    two = split(key)
    return two[0], two[1]


# ---- arguments ------------------------------------------------------------------------------------
def extents(shape: Any) -> tuple[Any, ...]:
    """A shape as plain ints and Sizes."""
    shape = shape if isinstance(shape, (tuple, list, np.ndarray)) else (shape,)
    around = innermost()
    return tuple([n if around is None else sized(n, around.scope) for n in as_shape(shape)])


def shape_with(name: str, shape: Any, *parameters: Any) -> tuple[Any, ...]:
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


def float_type(name: str, dtype: Any) -> np.dtype:
    found = F64 if dtype is None else as_dtype(dtype)
    if found not in FLOATS:
        raise DTypeError(f"{user_source()}: random.{name} makes floating numbers, got dtype {found}.")
    return found


def parameters(dtype: np.dtype, *xs: Any) -> Any:
    """Parameters at the result's dtype."""
    out = tuple([x.astype(dtype) if isinstance(x, Tracer) else xp.asarray(x, dtype=dtype) for x in xs])
    return out[0] if len(out) == 1 else out
