"""The operators and methods of arrays: each passes on to the table of NumPy's functions.

Guarantees: an operator between a weak scalar and Python numbers gives a weak scalar; a foreign operand that brings its own
operators gets its turn, as with ndarray.
"""
from __future__ import annotations

import operator
from typing import Any

import numpy as np

from loopwright.ir.source import user_source
from loopwright.ir.types import is_inexact
from loopwright.tracer.tables import FUNCTIONS, UFUNCS, call_function


def _defers(other: Any) -> bool:
    """Whether the other operand's reflected operator should run, as NumPy decides it; some types can be no operand."""
    kind = type(other)
    if kind is float or kind is int or isinstance(other, Operators):
        return False
    return getattr(kind, "__array_ufunc__", True) is None or isinstance(other, (str, bytes, dict, set, type(None)))


def _operate(ufunc: np.ufunc, a: Any, b: Any, other: Any) -> Any:
    return NotImplemented if _defers(other) else UFUNCS[ufunc](a, b, keep_weak=True)


def _in_place(ufunc: np.ufunc, x: Any, other: Any) -> Any:
    return NotImplemented if _defers(other) else FUNCTIONS[operator.iadd](ufunc, x, other)


# NumPy's shortcuts for Python exponents of floating arrays (2 of any): a square is exactly rounded, which power is not.
_POWERS: dict[float, np.ufunc] = {2: np.square, 1: np.positive, 0.5: np.sqrt, -1: np.reciprocal}


def _power(x: Any, exponent: Any) -> Any:
    is_shortcut = type(exponent) in (int, float) and exponent in _POWERS
    if is_shortcut and (is_inexact(x.dtype) or (type(exponent) is int and exponent == 2)):
        return UFUNCS[_POWERS[exponent]](x, keep_weak=True)
    return _operate(np.power, x, exponent, exponent)


class Operators:
    """Python's operators, and the methods that are NumPy functions with the array first."""

    __slots__ = ()

    def __add__(self, other: Any) -> Any:
        return _operate(np.add, self, other, other)

    def __radd__(self, other: Any) -> Any:
        return _operate(np.add, other, self, other)

    def __iadd__(self, other: Any) -> Any:
        return _in_place(np.add, self, other)

    def __sub__(self, other: Any) -> Any:
        return _operate(np.subtract, self, other, other)

    def __rsub__(self, other: Any) -> Any:
        return _operate(np.subtract, other, self, other)

    def __isub__(self, other: Any) -> Any:
        return _in_place(np.subtract, self, other)

    def __mul__(self, other: Any) -> Any:
        return _operate(np.multiply, self, other, other)

    def __rmul__(self, other: Any) -> Any:
        return _operate(np.multiply, other, self, other)

    def __imul__(self, other: Any) -> Any:
        return _in_place(np.multiply, self, other)

    def __truediv__(self, other: Any) -> Any:
        return _operate(np.true_divide, self, other, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _operate(np.true_divide, other, self, other)

    def __itruediv__(self, other: Any) -> Any:
        return _in_place(np.true_divide, self, other)

    def __floordiv__(self, other: Any) -> Any:
        return _operate(np.floor_divide, self, other, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return _operate(np.floor_divide, other, self, other)

    def __ifloordiv__(self, other: Any) -> Any:
        return _in_place(np.floor_divide, self, other)

    def __mod__(self, other: Any) -> Any:
        return _operate(np.remainder, self, other, other)

    def __rmod__(self, other: Any) -> Any:
        return _operate(np.remainder, other, self, other)

    def __imod__(self, other: Any) -> Any:
        return _in_place(np.remainder, self, other)

    def __lshift__(self, other: Any) -> Any:
        return _operate(np.left_shift, self, other, other)

    def __rlshift__(self, other: Any) -> Any:
        return _operate(np.left_shift, other, self, other)

    def __ilshift__(self, other: Any) -> Any:
        return _in_place(np.left_shift, self, other)

    def __rshift__(self, other: Any) -> Any:
        return _operate(np.right_shift, self, other, other)

    def __rrshift__(self, other: Any) -> Any:
        return _operate(np.right_shift, other, self, other)

    def __irshift__(self, other: Any) -> Any:
        return _in_place(np.right_shift, self, other)

    def __and__(self, other: Any) -> Any:
        return _operate(np.bitwise_and, self, other, other)

    def __rand__(self, other: Any) -> Any:
        return _operate(np.bitwise_and, other, self, other)

    def __iand__(self, other: Any) -> Any:
        return _in_place(np.bitwise_and, self, other)

    def __or__(self, other: Any) -> Any:
        return _operate(np.bitwise_or, self, other, other)

    def __ror__(self, other: Any) -> Any:
        return _operate(np.bitwise_or, other, self, other)

    def __ior__(self, other: Any) -> Any:
        return _in_place(np.bitwise_or, self, other)

    def __xor__(self, other: Any) -> Any:
        return _operate(np.bitwise_xor, self, other, other)

    def __rxor__(self, other: Any) -> Any:
        return _operate(np.bitwise_xor, other, self, other)

    def __ixor__(self, other: Any) -> Any:
        return _in_place(np.bitwise_xor, self, other)

    def __matmul__(self, other: Any) -> Any:
        return _operate(np.matmul, self, other, other)

    def __rmatmul__(self, other: Any) -> Any:
        return _operate(np.matmul, other, self, other)

    def __imatmul__(self, other: Any) -> Any:
        return _in_place(np.matmul, self, other)

    def __pow__(self, other: Any) -> Any:
        return _power(self, other)

    def __rpow__(self, other: Any) -> Any:
        return _operate(np.power, other, self, other)

    def __ipow__(self, other: Any) -> Any:
        return _in_place(np.power, self, other)

    def __divmod__(self, other: Any) -> Any:
        return _operate(np.divmod, self, other, other)

    def __rdivmod__(self, other: Any) -> Any:
        return _operate(np.divmod, other, self, other)

    def __hash__(self) -> int:
        raise TypeError(f"{user_source()}: a traced array is unhashable, so it is in no set and no key of a dict: its value "
                        f"is not known. Choose by value with np.where, or with lax.switch on an integer.")

    def __eq__(self, other: object) -> Any:
        return _operate(np.equal, self, other, other)

    def __ne__(self, other: object) -> Any:
        return _operate(np.not_equal, self, other, other)

    def __lt__(self, other: Any) -> Any:
        return _operate(np.less, self, other, other)

    def __le__(self, other: Any) -> Any:
        return _operate(np.less_equal, self, other, other)

    def __gt__(self, other: Any) -> Any:
        return _operate(np.greater, self, other, other)

    def __ge__(self, other: Any) -> Any:
        return _operate(np.greater_equal, self, other, other)

    def __neg__(self) -> Any:
        return UFUNCS[np.negative](self, keep_weak=True)

    def __pos__(self) -> Any:
        return UFUNCS[np.positive](self, keep_weak=True)

    def __abs__(self) -> Any:
        return UFUNCS[np.absolute](self, keep_weak=True)

    def __invert__(self) -> Any:
        return UFUNCS[np.invert](self, keep_weak=True)

    def conj(self: Any) -> Any:
        return UFUNCS[np.conjugate](self) if self.dtype.kind == "c" else self  # np.conjugate of bool is int8

    conjugate = conj

    def all(self, *args: Any, **kwargs: Any) -> Any:
        return call_function(np.all, (self, *args), kwargs)

    def any(self, *args: Any, **kwargs: Any) -> Any:
        return call_function(np.any, (self, *args), kwargs)

    def argmax(self, *args: Any, **kwargs: Any) -> Any:
        return call_function(np.argmax, (self, *args), kwargs)

    def argmin(self, *args: Any, **kwargs: Any) -> Any:
        return call_function(np.argmin, (self, *args), kwargs)

    def argsort(self, *args: Any, **kwargs: Any) -> Any:
        return call_function(np.argsort, (self, *args), kwargs)

    def clip(self, *args: Any, **kwargs: Any) -> Any:
        return call_function(np.clip, (self, *args), kwargs)

    def cumprod(self, *args: Any, **kwargs: Any) -> Any:
        return call_function(np.cumprod, (self, *args), kwargs)

    def cumsum(self, *args: Any, **kwargs: Any) -> Any:
        return call_function(np.cumsum, (self, *args), kwargs)

    def diagonal(self, *args: Any, **kwargs: Any) -> Any:
        return call_function(np.diagonal, (self, *args), kwargs)

    def max(self, *args: Any, **kwargs: Any) -> Any:
        return call_function(np.max, (self, *args), kwargs)

    def mean(self, *args: Any, **kwargs: Any) -> Any:
        return call_function(np.mean, (self, *args), kwargs)

    def min(self, *args: Any, **kwargs: Any) -> Any:
        return call_function(np.min, (self, *args), kwargs)

    def nonzero(self, *args: Any, **kwargs: Any) -> Any:
        return call_function(np.nonzero, (self, *args), kwargs)

    def prod(self, *args: Any, **kwargs: Any) -> Any:
        return call_function(np.prod, (self, *args), kwargs)

    def ptp(self, *args: Any, **kwargs: Any) -> Any:
        return call_function(np.ptp, (self, *args), kwargs)

    def ravel(self, *args: Any, **kwargs: Any) -> Any:
        return call_function(np.ravel, (self, *args), kwargs)

    def repeat(self, *args: Any, **kwargs: Any) -> Any:
        return call_function(np.repeat, (self, *args), kwargs)

    def round(self, *args: Any, **kwargs: Any) -> Any:
        return call_function(np.round, (self, *args), kwargs)

    def searchsorted(self, *args: Any, **kwargs: Any) -> Any:
        return call_function(np.searchsorted, (self, *args), kwargs)

    def squeeze(self, *args: Any, **kwargs: Any) -> Any:
        return call_function(np.squeeze, (self, *args), kwargs)

    def std(self, *args: Any, **kwargs: Any) -> Any:
        return call_function(np.std, (self, *args), kwargs)

    def sum(self, *args: Any, **kwargs: Any) -> Any:
        return call_function(np.sum, (self, *args), kwargs)

    def swapaxes(self, *args: Any, **kwargs: Any) -> Any:
        return call_function(np.swapaxes, (self, *args), kwargs)

    def take(self, *args: Any, **kwargs: Any) -> Any:
        return call_function(np.take, (self, *args), kwargs)

    def trace(self, *args: Any, **kwargs: Any) -> Any:
        return call_function(np.trace, (self, *args), kwargs)

    def var(self, *args: Any, **kwargs: Any) -> Any:
        return call_function(np.var, (self, *args), kwargs)

    def compress(self, *args: Any, **kwargs: Any) -> Any:
        return call_function(np.compress, (self, *args), kwargs)

    def choose(self, *args: Any, **kwargs: Any) -> Any:
        return call_function(np.choose, (self, *args), kwargs)
