"""NumPy's functions as `loopwright.numpy` has them: NumPy itself on plain arrays, the traced meaning on traced ones."""
from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from loopwright.ir.builder import innermost
from loopwright.tracer.promotion import as_dtype, has_tracer
from loopwright.tracer.tables import call_function, call_ufunc

CREATORS: frozenset[Any] = frozenset((
    np.zeros, np.ones, np.empty, np.full, np.arange, np.linspace, np.eye, np.identity, np.tri, np.array, np.asarray,
    np.asanyarray, np.ascontiguousarray, np.fromfunction, np.indices, np.meshgrid))

PRODUCTS: frozenset[Any] = frozenset((
    np.dot, np.matmul, np.inner, np.vdot, np.tensordot, np.einsum, np.vecdot, np.linalg.matmul, np.linalg.tensordot,
    np.linalg.vecdot))


def _is_traced(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return any(map(has_tracer, args)) or any(map(has_tracer, kwargs.values()))


def _dispatching(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return call_function(function, args, kwargs) if _is_traced(args, kwargs) else function(*args, **kwargs)
    return call


def _creating(function: Callable[..., Any]) -> Callable[..., Any]:
    """Inside a trace the result is traced, so that traced values can be stored into it."""
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if innermost() is None and not _is_traced(args, kwargs):
            return function(*args, **kwargs)
        return call_function(function, args, kwargs)
    return call


def _product(function: Any) -> Callable[..., Any]:
    """With `preferred_element_type`, as in JAX: the dtype in which products of narrower operands are summed and given."""
    plain = Ufunc(function) if isinstance(function, np.ufunc) else _dispatching(function)

    @functools.wraps(function)
    def call(*args: Any, preferred_element_type: Any = None, **kwargs: Any) -> Any:
        if preferred_element_type is None:
            return plain(*args, **kwargs)
        dtype = as_dtype(preferred_element_type)
        found = plain(*[x.astype(np.promote_types(x.dtype, dtype)) if hasattr(x, "astype") else x for x in args], **kwargs)
        return found.astype(dtype)
    return call


class Ufunc:
    """A universal function with its methods."""

    def __init__(self, ufunc: np.ufunc) -> None:
        self._ufunc = ufunc
        self.__name__, self.__doc__ = ufunc.__name__, ufunc.__doc__

    def _apply(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if _is_traced(args, kwargs):
            return call_ufunc(self._ufunc, method, args, kwargs)
        return getattr(self._ufunc, method)(*args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._apply("__call__", args, kwargs)

    def reduce(self, *args: Any, **kwargs: Any) -> Any:
        return self._apply("reduce", args, kwargs)

    def accumulate(self, *args: Any, **kwargs: Any) -> Any:
        return self._apply("accumulate", args, kwargs)

    def outer(self, *args: Any, **kwargs: Any) -> Any:
        return self._apply("outer", args, kwargs)

    def at(self, *args: Any, **kwargs: Any) -> None:
        self._apply("at", args, kwargs)

    def reduceat(self, *args: Any, **kwargs: Any) -> Any:
        return self._apply("reduceat", args, kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ufunc, name)

    def __repr__(self) -> str:
        return repr(self._ufunc)


class Namespace:
    """A submodule of NumPy by the same rule."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self.__doc__ = module.__doc__

    def __getattr__(self, name: str) -> Any:
        value = wrapped(getattr(self._module, name))
        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        return dir(self._module)


def wrapped(x: Any) -> Any:
    """What `loopwright.numpy` has for an object of NumPy: dtypes, constants and classes are NumPy's own."""
    if x is np.linalg or x is np.fft:
        return Namespace(x)
    if callable(x) and x in PRODUCTS:
        return _product(x)
    if isinstance(x, np.ufunc):
        return Ufunc(x)
    if x is np.nonzero:
        return nonzero
    if not callable(x) or isinstance(x, type):
        return x
    return _creating(x) if x in CREATORS else _dispatching(x)


def nonzero(a: Any, *, size: int | None = None, fill_value: Any = 0) -> Any:
    """np.nonzero: i64[count] positions for each axis of a.

    size: exactly so many positions, the first ones, filled up with fill_value; it makes a shape that does not depend on
    values, so that it works on traced arrays. Without it a traced array whose values are not known raises
    ConcretizationError.
    """
    if size is None:
        return call_function(np.nonzero, (a,), {}) if has_tracer(a) else np.nonzero(a)
    count = operator.index(size)
    mask = _creating(np.asarray)(a) != 0
    flat = np.ravel(mask)
    first = np.argsort(~flat, kind="stable")[:count]  # the true ones come first, in order
    missing = count - first.shape[0]
    first = np.pad(first, (0, missing)) if missing > 0 else first
    is_found = np.arange(count) < np.sum(flat)
    strides = [np.prod(mask.shape[axis + 1:], dtype=object) for axis in range(mask.ndim)]
    return tuple([np.where(is_found, first // stride % n, fill_value) for stride, n in zip(strides, mask.shape, strict=True)])
