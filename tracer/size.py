"""`Size`: a symbolic size as users see it.

Guarantees: arithmetic with integers and other sizes stays symbolic; a comparison is proved or becomes a guard; what must
be a plain integer (`int(n)`, `range(n)`, `hash(n)`, an index of a list) specialises the trace to this call's size, and
creation functions of NumPy that do so (`np.zeros(n)`, `np.arange(n)`) warn. A `Size` is no `int`. In array arithmetic it
counts as a Python int.
"""
from __future__ import annotations

import ast
import itertools
import linecache
import math
import operator
import os
import sys
import warnings
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np

from loopwright.ir.dims import Dim, Extent, floordiv, modulo
from loopwright.ir.guards import Scope
from loopwright.ir.source import user_source
from loopwright.tracer.tables import UFUNCS, call_function, call_ufunc


class SpecialisationWarning(UserWarning):
    """A NumPy function that takes only integers fixed the trace to this call's size; each other size compiles anew."""


class Size:
    """A size that differs from call to call: an element of `x.shape` inside `jit`."""

    __slots__ = ("_extent", "scope")

    def __init__(self, extent: Dim, scope: Scope) -> None:
        self._extent, self.scope = extent, scope

    @property
    def extent(self) -> Extent:
        """The size under the equalities known so far."""
        return self.scope.canonical(self._extent)

    # ---- arithmetic -----------------------------------------------------------------------------
    def __add__(self, other: Any) -> Any:
        return self._combine(operator.add, np.add, other)

    def __radd__(self, other: Any) -> Any:
        return self._combine(operator.add, np.add, other, swap=True)

    def __sub__(self, other: Any) -> Any:
        return self._combine(operator.sub, np.subtract, other)

    def __rsub__(self, other: Any) -> Any:
        return self._combine(operator.sub, np.subtract, other, swap=True)

    def __mul__(self, other: Any) -> Any:
        return self._combine(operator.mul, np.multiply, other)

    def __rmul__(self, other: Any) -> Any:
        return self._combine(operator.mul, np.multiply, other, swap=True)

    def __floordiv__(self, other: Any) -> Any:
        return self._combine(self._floordiv, np.floor_divide, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._combine(self._floordiv, np.floor_divide, other, swap=True)

    def __mod__(self, other: Any) -> Any:
        return self._combine(self._modulo, np.remainder, other)

    def __rmod__(self, other: Any) -> Any:
        return self._combine(self._modulo, np.remainder, other, swap=True)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __truediv__(self, other: Any) -> Any:
        return self._combine(None, np.true_divide, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._combine(None, np.true_divide, other, swap=True)

    def __pow__(self, other: Any) -> Any:
        if isinstance(other, int) and other >= 0:
            return sized(math.prod([self.extent] * other, start=1), self.scope)
        return self._combine(None, np.power, other)

    def __rpow__(self, other: Any) -> Any:
        return self._combine(None, np.power, other, swap=True)

    def __neg__(self) -> Size | int:
        return sized(self.extent * -1, self.scope)

    def __pos__(self) -> Size:
        return self

    def __abs__(self) -> Size | int:
        return self if self >= 0 else -self

    def _combine(self, exact: Callable[[Extent, Extent], Extent] | None, ufunc: np.ufunc, other: Any,
                 swap: bool = False) -> Any:
        """A size where both sides are sizes and the operation has one, else a traced Python number."""
        extent = as_extent(other)
        if extent is None and not isinstance(other, (float, complex)):
            return NotImplemented
        if exact is None or extent is None:
            return UFUNCS[ufunc](*((other, self) if swap else (self, other)), keep_weak=True)
        a, b = (extent, self.extent) if swap else (self.extent, extent)
        return sized(exact(a, b), self.scope)

    def _floordiv(self, a: Extent, b: Extent) -> Extent:
        self._refuse_zero(b)
        return floordiv(a, b)

    def _modulo(self, a: Extent, b: Extent) -> Extent:
        self._refuse_zero(b)
        return modulo(a, b)

    def _refuse_zero(self, divisor: Extent) -> None:
        if self.scope.decide("==", divisor, 0):
            raise ZeroDivisionError(f"{user_source()}: division of a size by {divisor}, which is zero")

    # ---- comparisons ----------------------------------------------------------------------------
    def __eq__(self, other: object) -> Any:
        if isinstance(other, float):
            return other.is_integer() and self == int(other)
        extent = as_extent(other)
        return NotImplemented if extent is None else self.scope.decide("==", self.extent, extent)

    def __ne__(self, other: object) -> Any:
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else not equal

    def __lt__(self, other: Any) -> Any:
        return self._compare(other, lambda n, m: self.scope.decide("<", n, m), math.ceil)

    def __le__(self, other: Any) -> Any:
        return self._compare(other, lambda n, m: self.scope.decide("<=", n, m), math.floor)

    def __gt__(self, other: Any) -> Any:
        return self._compare(other, lambda n, m: self.scope.decide("<", m, n), math.floor)

    def __ge__(self, other: Any) -> Any:
        return self._compare(other, lambda n, m: self.scope.decide("<=", m, n), math.ceil)

    def _compare(self, other: Any, decide: Callable[[Extent, Extent], bool], to_integer: Callable[[float], int]) -> Any:
        """n < 2.5 is n < 3, n <= 2.5 is n <= 2; nothing finite is beyond an infinity."""
        if isinstance(other, float) and not isinstance(other, np.generic):
            if math.isnan(other):
                return False
            other = to_integer(other) if math.isfinite(other) else int(math.copysign(1 << 62, other))
        extent = as_extent(other)
        return NotImplemented if extent is None else decide(self.extent, extent)

    def __bool__(self) -> bool:
        return not self.scope.decide("==", self.extent, 0)

    # ---- plain numbers --------------------------------------------------------------------------
    def __hash__(self) -> int:
        return hash(self.scope.value(self.extent))

    def __index__(self) -> int:
        return self._asked_by(sys._getframe(1))

    @property
    def __array__(self) -> Callable[..., np.ndarray]:
        """For `np.arange(n)`, which would make an array of objects, and where the text of a call is not known.
        `np.prod(x.shape)`, where NumPy asks, stays symbolic."""
        frame = sys._getframe(1)
        known = frame.f_code.co_filename.startswith(_NUMPY) or _call_at(frame) is not None
        if known and _called_by_name(frame) != "arange":
            raise AttributeError("__array__")
        return lambda dtype=None, copy=None: np.asarray(self._asked_by(frame), dtype)

    def _asked_by(self, frame: FrameType) -> int:
        """The number, for NumPy or Python in a frame."""
        extent = self.extent
        if not isinstance(extent, int) and _is_handed_on(frame):
            return self.scope.hint(extent)
        value = self.scope.value(extent)
        creator = None if isinstance(extent, int) else _creation_function(frame)
        if creator:
            warnings.warn(f"{creator} takes only plain integers, so this trace is fixed to size {self._extent} = {value} and "
                          f"every other size compiles anew. loopwright.numpy.{creator} keeps the size symbolic; so does "
                          f"like=x where NumPy has it.", SpecialisationWarning, stacklevel=_stack_level())
        return value

    def __int__(self) -> int:
        return self.scope.value(self.extent)

    def __float__(self) -> float:
        return float(self.scope.value(self.extent))

    def __complex__(self) -> complex:
        return complex(self.scope.value(self.extent))

    def __trunc__(self) -> Size:
        return self

    __floor__ = __ceil__ = __trunc__

    def __round__(self, digits: int | None = None) -> Size:
        return self

    def __str__(self) -> str:
        return str(self._extent)

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return format(self.scope.hint(self.extent), spec) if spec else str(self)

    # ---- NumPy ----------------------------------------------------------------------------------
    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *args: Any, **kwargs: Any) -> Any:
        return call_ufunc(ufunc, method, args, kwargs)

    def __array_function__(self, function: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        return call_function(function, args, kwargs)


def sized(extent: Extent, scope: Scope) -> Size | int:
    """An extent as users see it: a plain int where it is one."""
    return extent if isinstance(extent, int) else Size(extent, scope)


def as_extent(x: Any) -> Extent | None:
    """An integer or Size as an extent, else None."""
    if isinstance(x, Size):
        return x.extent
    return int(x) if isinstance(x, (int, np.integer)) else None


# ---- who asked for a plain integer --------------------------------------------------------------
_BUILT_IN: dict[str, Callable[..., Any]] = {"zeros": np.zeros, "empty": np.empty, "arange": np.arange}
_NUMPY = os.path.dirname(os.path.abspath(np.__file__)) + os.sep
_CREATORS = frozenset(("ones", "full", "eye", "identity", "tri", "linspace", "logspace", "geomspace", "indices"))


def _creation_function(frame: FrameType) -> str | None:
    """The NumPy creation function that called `__index__` from this frame: one in Python by its frames, one in C by the
    text of the call. `range(n)` and `items[n]` are none."""
    caller: FrameType | None = frame
    found = None
    while caller is not None and caller.f_code.co_filename.startswith(_NUMPY):
        found = caller.f_code.co_name if caller.f_code.co_name in _CREATORS else found
        caller = caller.f_back
    return found or _called_by_name(frame)


def _called_by_name(frame: FrameType) -> str | None:
    call = _call_at(frame)
    return None if call is None else _built_in(call, frame)


def _built_in(call: ast.Call, frame: FrameType) -> str | None:
    """The name of NumPy's creation function that a call is of. Where only the call itself tells whose attribute it takes, as in
    `library[0].arange(n)`, that is taken for NumPy's."""
    called = _named(call.func, frame)
    attribute = call.func.attr if called is None and isinstance(call.func, ast.Attribute) else None
    return next((name for name, f in _BUILT_IN.items() if f is called or name == attribute), None)


def _is_handed_on(frame: FrameType) -> bool:
    """Whether this frame calls np.zeros(n, like=x) of a traced x: NumPy looks at n first, and then hands n itself to x."""
    call = _call_at(frame)
    if call is None or _built_in(call, frame) is None:
        return False
    like = next((_named(k.value, frame) for k in call.keywords if k.arg == "like"), None)
    return not isinstance(like, np.ndarray) and hasattr(type(like), "__array_function__")


def _call_at(frame: FrameType) -> ast.Call | None:
    """The call that this frame makes, as it is written; None where its text is not known."""
    positions = next(itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None), None)
    if positions is None:
        return None
    first, last, begin, end = positions
    if first is None or last is None or begin is None or end is None:
        return None
    lines = [linecache.getline(frame.f_code.co_filename, k).encode() for k in range(first, last + 1)]
    if not all(lines):
        return None
    lines[-1] = lines[-1][:end]  # the end first: both columns count from the start of their line
    lines[0] = lines[0][begin:]
    try:
        call = ast.parse(b"".join(lines).decode().strip(), mode="eval").body
    except SyntaxError:
        return None
    return call if isinstance(call, ast.Call) else None


def _named(x: ast.expr, frame: FrameType) -> Any:
    """What a dotted name stands for in a frame, or None."""
    if isinstance(x, ast.Attribute):
        owner = _named(x.value, frame)
        return getattr(owner, x.attr, None) if isinstance(owner, type(np)) else None
    if isinstance(x, ast.Name):
        return frame.f_locals.get(x.id, frame.f_globals.get(x.id))
    return None


def _stack_level() -> int:
    """The distance from `__index__` to the user's line."""
    source, frame, level = user_source(), sys._getframe(1), 1
    while frame.f_back is not None and (frame.f_code.co_filename, frame.f_lineno) != (source.file, source.line):
        frame, level = frame.f_back, level + 1
    return level
