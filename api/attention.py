"""Attention by JAX's name and arguments: `loopwright.nn.dot_product_attention`.

Guarantees: numerically stable; what masks leave out has no part in values and derivatives; sizes may be symbolic; softmax is
computed in float32 at least.
"""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from loopwright.arrays import Array, inexact, quiet, stopped, xp
from loopwright.ir.errors import DTypeError, ShapeError
from loopwright.ir.source import user_source
from loopwright.ir.types import BOOL, F32
from loopwright.scipy.special import logsumexp, softmax
from loopwright.tracer.tracer import Tracer


def _of_rank_4(x: Any) -> Array:
    x = x if isinstance(x, Tracer) else xp.asarray(x)
    return x.reshape((1,) * (4 - x.ndim) + x.shape) if x.ndim < 4 else x


def _check(query: Array, key: Array, value: Array, bias: Array | None, mask: Array | None) -> None:
    """Shapes and dtypes that go together."""
    why = f"{user_source()}: nn.dot_product_attention"
    if query.ndim != 4 or key.ndim != 4 or any(key.shape[a] != value.shape[a] for a in range(3)) or value.ndim != 4:
        raise ShapeError(f"{why}: key and value must have one shape [batch, source, heads, size], with or without the batch, "
                         f"got {key.shape} and {value.shape}.")
    if query.shape[0] != key.shape[0] or query.shape[3] != key.shape[3] or query.shape[2] % key.shape[2] != 0:
        raise ShapeError(f"{why}: query [batch, target, heads, size] must have the batch and size of key, and a multiple of "
                         f"its heads, got {query.shape} and {key.shape}.")
    if mask is not None and mask.dtype != BOOL:
        raise DTypeError(f"{why}: mask must be bool, got {mask.dtype}. Pass numbers that are added as bias.")
    for name, x in (("bias", bias), ("mask", mask)):
        if x is not None and x.ndim != 4:
            raise ShapeError(f"{why}: {name} must go together with [batch, heads, target, source], got {x.shape}.")


def _allowed(target: Any, source: Any, is_causal: bool, window: tuple[int, int] | None, query_lengths: Array | None,
             key_lengths: Array | None) -> list[Array]:
    """Which pairs of positions are let through, each to go together with [batch, heads, target, source]."""
    rows, columns = xp.arange(target)[:, None], xp.arange(source)[None, :]
    found = [rows >= columns] if is_causal else []
    if window is not None:
        found += [rows <= columns + window[0], rows >= columns - window[1]]
    if query_lengths is not None:
        found.append(rows < query_lengths[:, None, None, None])
    if key_lengths is not None:
        found.append(columns < key_lengths[:, None, None, None])
    return found


def _by_groups(x: Array, groups: Any) -> Array:
    """What goes together with [batch, heads, target, source], for [batch, key heads, target, of each, source]."""
    if x.ndim == 2:
        return x[:, None]
    batch, heads, target, source = x.shape
    if heads == 1:
        return x[:, :, :, None]
    return xp.moveaxis(x.reshape((batch, groups, heads // groups, target, source)), 2, 3)


def _masked(logits: Array, masks: list[Array]) -> Array:
    """A number far below all others, and finite, where a mask does not let through."""
    for allowed in masks:
        logits = xp.where(allowed, logits, -0.7 * float(np.finfo(F32).max))
    return logits


@quiet
def dot_product_attention(
        query: Any, key: Any, value: Any, bias: Any = None, mask: Any = None, *, scale: Any = None, is_causal: bool = False,
        query_seq_lengths: Any = None, key_value_seq_lengths: Any = None,
        local_window_size: int | tuple[int, int] | None = None, implementation: str | None = None,
        return_residual: bool = False) -> Any:
    """softmax(scale query key^T + bias) value for each head: like query.

    query: [batch, target, heads, size], key and value: [batch, source, key heads, size], all with or without the batch; each
    key head serves heads / key heads of the query's in turn. bias, mask (bool, True where attention is paid): go together with
    [batch, heads, target, source]. scale: 1 / sqrt(size) by default. is_causal: no position sees later ones. *_seq_lengths:
    [batch], how many positions count; results past a query's length are 0. local_window_size: how many positions back and
    forward are seen. `implementation` changes nothing. return_residual: also the logarithm of the sum of exponentials
    [batch, target, heads], held constant by derivatives. A row that sees nothing gets the mean of all values.

    >>> x = np.ones((1, 3, 2, 4))
    >>> dot_product_attention(x, x, x, is_causal=True).shape
    (1, 3, 2, 4)
    """
    shape = query.shape
    query, key, value = inexact(_of_rank_4(query), _of_rank_4(key), _of_rank_4(value))
    bias, mask = (None if x is None else _of_rank_4(x) for x in (bias, mask))
    _check(query, key, value, bias, mask)
    (batch, target, heads, size), (source, groups) = query.shape, key.shape[1:3]
    at, g = np.promote_types(query.dtype, F32), "" if heads == groups else "g"  # the query's heads of one of the key's
    if g:
        query = query.reshape((batch, target, groups, heads // groups, size))
    logits = xp.einsum(f"btk{g}h,bskh->bkt{g}s", query, key, preferred_element_type=at)
    if scale is None:  # a symbolic size stays one
        scale = 1 / math.sqrt(size) if isinstance(size, int) else (1 / xp.sqrt(size)).astype(at)
    logits = (logits * scale).astype(at)
    if bias is not None:
        logits = (logits + (_by_groups(bias, groups) if g else bias)).astype(at)
    lengths = [None if x is None else x if isinstance(x, Tracer) else np.asarray(x)
               for x in (query_seq_lengths, key_value_seq_lengths)]
    window = (local_window_size, local_window_size) if isinstance(local_window_size, int) else local_window_size
    masks = [*([] if mask is None else [mask]), *_allowed(target, source, is_causal, window, *lengths)]
    logits = _masked(logits, [_by_groups(x, groups) for x in masks] if g else masks)
    weights = softmax(logits, axis=-1).astype(value.dtype)
    out = xp.einsum(f"bkt{g}s,bskh->btk{g}h", weights, value).reshape((batch, target, heads, value.shape[3]))
    if lengths[0] is not None:
        out = xp.where((xp.arange(target) < lengths[0][:, None])[:, :, None, None], out, 0)
    out = out.reshape((*shape[:-1], value.shape[3]))
    if not return_residual:
        return out
    residual = xp.moveaxis(logsumexp(logits, axis=-1), 2, 1).astype(value.dtype)
    return out, stopped(residual.reshape(shape[:-1]))
