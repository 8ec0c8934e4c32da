"""Loops written by hand, for `loopwright.kernel`: statements in Python that become machine code.

The function of a kernel is run once, on buffers and loop variables that stand for all their values; what it does is written
down. `for i in loop(n)` runs its body once; `y[i] = x[i] * 2` is a store; `sum(x[p] * w[p] for p in loop(k))` is a loop that
adds up. Sizes (`n, k = x.shape`) are integers that
are not known yet. NumPy's universal functions and Python's operators work on elements, which all have one dtype: nothing is
promoted but Python numbers.

Guarantees: loops that are marked parallel or have lanes are such that their iterations cannot touch what others write, else a
KernelError names the buffer; an index that is made of data is checked when the kernel runs (IndexError, negative ones count
from the end), an index that is made of loop variables is not.
"""
from __future__ import annotations

import builtins
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent, floordiv
from loopwright.ir.errors import DTypeError, KernelError
from loopwright.ir.loops import (
    Apply,
    Bounded,
    Expr,
    Index,
    Literal,
    Load,
    Local,
    LoopContext,
    Reduce,
    Size,
    When,
    integer,
    minus,
    plus,
    times,
    walk,
)
from loopwright.ir.nest import Allocate, Buffer, For, Let, Reduction, Statement, Store
from loopwright.ir.ops import TABLE
from loopwright.ir.ops.construct import scalar
from loopwright.ir.source import user_source
from loopwright.ir.types import BOOL, I64, ArrayType, native

__all__ = ["Array", "Element", "all", "any", "convert", "fold", "let", "local", "loop", "max", "min", "prod", "sum", "where"]

_NAMES = {"subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div", "negative": "neg", "maximum": "max",
          "minimum": "min", "absolute": "abs", "less": "lt", "less_equal": "le", "equal": "eq", "not_equal": "ne",
          "invert": "bitwise_not", "logical_and": "bitwise_and", "logical_or": "bitwise_or", "logical_not": "bitwise_not"}
_SWAPPED = {"greater": "lt", "greater_equal": "le"}


@dataclass(frozen=True)
class _Over:
    """A loop of a fold."""

    index: Index
    extent: Extent
    lanes: int
    unroll: int


# ---- what is being written --------------------------------------------------------------------------
class _Recorder:
    """The statements of a kernel: blocks that are open, innermost last."""

    def __init__(self) -> None:
        self.blocks: list[list[Statement]] = [[]]
        self.loops: list[tuple[Index, int]] = []  # those around, with their lanes
        self.folds: list[list[_Over]] = []  # the loops of folds whose values are being made
        self.count = itertools.count()

    def fresh(self, hint: str) -> str:
        return f"{hint}{next(self.count)}"

    def add(self, s: Statement) -> None:
        self.blocks[-1].append(s)

    @property
    def in_lanes(self) -> bool:
        return bool(self.loops) and self.loops[-1][1] > 1


class _Here(threading.local):
    recorder: _Recorder | None = None


_here = _Here()


def _recorder() -> _Recorder:
    if _here.recorder is None:
        raise KernelError(f"{user_source()}: loopwright.loops works in the function of a loopwright.kernel only.")
    return _here.recorder


def written(write: Callable[..., Any], inputs: Sequence[ArrayType], outputs: Sequence[ArrayType]) -> tuple[Statement, ...]:
    """The statements that a kernel's function writes on buffers x0, x1, ... and y0, y1, ... KernelError where it leaves a loop
    early or an output as it was."""
    before, _here.recorder = _here.recorder, _Recorder()
    try:
        xs = [Array(f"x{k}", t, writable=False) for k, t in enumerate(inputs)]
        write(*xs, *[Array(f"y{k}", t, writable=True) for k, t in enumerate(outputs)])
        open_loops, body = _here.recorder.loops, tuple(_here.recorder.blocks[0])
    finally:
        _here.recorder = before
    if open_loops:
        raise KernelError(f"{user_source()}: the function of the kernel leaves a loop before its end: loops have no break. "
                          f"Choose values with loops.where, or fold over the loop.")
    stored = {s.buffer for s in _all(body) if isinstance(s, Store)}
    if missing := [f"y{k}" for k in range(len(outputs)) if f"y{k}" not in stored]:
        raise KernelError(f"{user_source()}: the function of the kernel stores nothing to its output {missing[0]}: every "
                          f"element of every output must be written.")
    return body


# ---- elements -------------------------------------------------------------------------------------
def _operator(rule: Callable[[Any, Any], Element]) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]:
    """A Python operator, and the same with its operands exchanged."""
    return (lambda a, b: rule(a, b)), (lambda a, b: rule(b, a))


class Element:
    """One number, for all values of the loop variables around it."""

    __slots__ = ("expr",)
    __array_priority__ = 1000

    def __init__(self, expr: Expr) -> None:
        self.expr = expr

    @property
    def dtype(self) -> np.dtype:
        return self.expr.dtype

    def __repr__(self) -> str:
        return f"Element({self.dtype})"

    def __bool__(self) -> bool:
        raise KernelError(f"{user_source()}: the truth of an element is not known while the kernel is written. Choose between "
                          f"two values with loops.where(condition, a, b).")

    def __index__(self) -> int:
        raise KernelError(f"{user_source()}: the value of an element or a size is not known while the kernel is written. Loop "
                          f"with loops.loop(n), and compute with elements as they are.")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Element:
        name = ufunc.__name__
        if method != "__call__" or kwargs or not (name in _SWAPPED or _NAMES.get(name, name) in TABLE):
            raise KernelError(f"{user_source()}: np.{name} does not work on one element of a kernel's loops.")
        return _apply(_SWAPPED[name], *inputs[::-1]) if name in _SWAPPED else _apply(_NAMES.get(name, name), *inputs)

    __add__, __radd__ = _operator(lambda a, b: _sum(a, b))
    __sub__, __rsub__ = _operator(lambda a, b: _difference(a, b))
    __mul__, __rmul__ = _operator(lambda a, b: _product(a, b))
    __floordiv__, __rfloordiv__ = _operator(lambda a, b: _quotient(a, b))
    __truediv__, __rtruediv__ = _operator(lambda a, b: _apply("div", a, b))
    __mod__, __rmod__ = _operator(lambda a, b: _apply("remainder", a, b))
    __pow__, __rpow__ = _operator(lambda a, b: _apply("power", a, b))
    __and__, __rand__ = _operator(lambda a, b: _apply("bitwise_and", a, b))
    __or__, __ror__ = _operator(lambda a, b: _apply("bitwise_or", a, b))
    __xor__, __rxor__ = _operator(lambda a, b: _apply("bitwise_xor", a, b))
    __lshift__, __rlshift__ = _operator(lambda a, b: _apply("left_shift", a, b))
    __rshift__, __rrshift__ = _operator(lambda a, b: _apply("right_shift", a, b))
    __lt__, __gt__ = _operator(lambda a, b: _apply("lt", a, b))
    __le__, __ge__ = _operator(lambda a, b: _apply("le", a, b))
    __eq__ = _operator(lambda a, b: _apply("eq", a, b))[0]
    __ne__ = _operator(lambda a, b: _apply("ne", a, b))[0]

    def __neg__(self) -> Element:
        return _apply("neg", self)

    def __abs__(self) -> Element:
        return _apply("abs", self)

    def __invert__(self) -> Element:
        return _apply("bitwise_not", self)

    __hash__ = None  # type: ignore[assignment]


def _sum(a: Any, b: Any) -> Element:
    """a + b; of indices and sizes in the form that addresses are made of."""
    x, y = _alike((a, b))
    return Element(plus(x, y)) if x.dtype == y.dtype == I64 else _apply("add", a, b)


def _difference(a: Any, b: Any) -> Element:
    x, y = _alike((a, b))
    return Element(minus(x, y)) if x.dtype == y.dtype == I64 else _apply("sub", a, b)


def _product(a: Any, b: Any) -> Element:
    x, y = _alike((a, b))
    return Element(times(x, y)) if x.dtype == y.dtype == I64 else _apply("mul", a, b)


def _quotient(a: Any, b: Any) -> Element:
    x, y = map(_size, _alike((a, b)))
    return _apply("floor_divide", a, b) if x is None or y is None or y == 0 else Element(integer(floordiv(x, y)))


def _size(x: Expr) -> Extent | None:
    """What an expression of sizes alone is."""
    match x:
        case Size(extent):
            return extent
        case Literal(int() as value, dtype) if dtype == I64:
            return value
    return None


def _extent(x: Any) -> Extent:
    """How far a loop goes, how long an array is."""
    found = _size(x.expr) if isinstance(x, Element) else int(x) if isinstance(x, (int, np.integer)) else None
    if found is None:
        raise KernelError(f"{user_source()}: a loop's extent is made of integers and sizes of arrays, got {x!r:.60}.")
    return found


def _extents(x: Any) -> tuple[Extent, ...]:
    return tuple(map(_extent, x)) if isinstance(x, (tuple, list)) else (_extent(x),)


def _alike(xs: Sequence[Any]) -> list[Expr]:
    """Operands of one dtype: Python numbers take that of the others."""
    dtypes = [x.dtype for x in xs if isinstance(x, (Element, np.generic))]
    dtype = dtypes[0] if dtypes else I64
    return [_lifted(x, dtype) for x in xs]


def _lifted(x: Any, dtype: np.dtype) -> Expr:
    match x:
        case Element():
            return x.expr
        case np.generic():
            return Literal(x.item(), native(x.dtype))
        case bool() | int() | float():
            return Literal(scalar(x, dtype), dtype)
    raise KernelError(f"{user_source()}: expected an element, a size or a number, got {type(x).__name__}.")


def _apply(name: str, *xs: Any) -> Element:
    args, op = _alike(xs), TABLE[name]
    types = tuple([ArrayType((), x.dtype) for x in args])
    try:
        result, = op.result_types(types, (), {})
    except (DTypeError, TypeError) as error:
        raise DTypeError(f"{user_source()}: {error}. Elements are not promoted: use loops.convert(x, dtype).") from None
    assert op.loop is not None
    context = LoopContext(types, result, lambda k, at: args[k], lambda: Index(_recorder().fresh("q")))
    return Element(op.loop(context, ()))


def convert(x: Any, dtype: Any) -> Element:
    """An element, a size or a number at another dtype."""
    to, expr = native(np.dtype(dtype)), _alike((x,))[0]
    return Element(expr if expr.dtype == to else Apply("convert", (expr,), to))


def where(condition: Any, then: Any, otherwise: Any) -> Element:
    """`then` where the condition holds, else `otherwise`; of the one that is not taken nothing is loaded."""
    a, b = _alike((then, otherwise))
    chosen, = _alike((condition,))
    if chosen.dtype != BOOL or a.dtype != b.dtype:
        raise DTypeError(f"{user_source()}: loops.where takes a bool and two elements of one dtype, got {chosen.dtype}, "
                         f"{a.dtype} and {b.dtype}. Use loops.convert(x, dtype).")
    return Element(When(chosen, a, b))


def let(value: Any) -> Element:
    """A value that is computed here, once, however often it is used."""
    r, (expr,) = _recorder(), _alike((value,))
    name = r.fresh("v")
    r.add(Let(name, expr))
    return Element(Local(name, expr.dtype))


# ---- arrays ---------------------------------------------------------------------------------------
class Array:
    """A buffer of a kernel. `shape` holds integers and sizes, `dtype` is a NumPy dtype; `x[i, j]` is an element, and
    `x[i, j] = value` stores one, where the buffer is an output or local."""

    def __init__(self, name: str, type: ArrayType, writable: bool) -> None:
        self._name, self._type, self._writable = name, type, writable

    @property
    def shape(self) -> tuple[Any, ...]:
        return tuple([n if isinstance(n, int) else Element(Size(n)) for n in self._type.shape])

    @property
    def dtype(self) -> np.dtype:
        return self._type.dtype

    def _at(self, index: Any) -> tuple[Expr, ...]:
        given = index if isinstance(index, tuple) else (index,)
        if len(given) != self._type.rank:
            raise KernelError(f"{user_source()}: {self._name} has type {self._type}, so an element has {self._type.rank} "
                              f"indices, got {len(given)}.")
        return tuple([self._inside(x, axis) for axis, x in enumerate(given)])

    def _inside(self, x: Any, axis: int) -> Expr:
        expr, size = _lifted(x, I64), self._type.shape[axis]
        if expr.dtype.kind not in "iu":
            raise DTypeError(f"{user_source()}: an index of {self._name} must be an integer, got {expr.dtype}.")
        if expr.dtype != I64:
            expr = Apply("convert", (expr,), I64)
        if builtins.any(isinstance(e, Load | Local) for e in walk(expr)):
            negative = Apply("lt", (expr, Literal(0, I64)), BOOL)
            expr = Bounded(When(negative, plus(expr, integer(size)), expr), size, axis, 1)
        return expr

    def __getitem__(self, index: Any) -> Element:
        return Element(Load(self._name, self._at(index), self.dtype))

    def __setitem__(self, index: Any, value: Any) -> None:
        if not self._writable:
            raise KernelError(f"{user_source()}: {self._name} is an input of the kernel, which it may not write. Store to an "
                              f"output, or to loops.local(shape, dtype).")
        expr = _lifted(value, self.dtype)
        if expr.dtype != self.dtype:
            raise DTypeError(f"{user_source()}: {self._name} holds {self.dtype}, and {expr.dtype} is stored. Use "
                             f"loops.convert(x, {self.dtype}).")
        _recorder().add(Store(self._name, self._at(index), expr))


def local(shape: Any, dtype: Any) -> Array:
    """A scratch array, whose contents are not defined, for one iteration of the loops around it."""
    r = _recorder()
    if r.in_lanes:
        raise KernelError(f"{user_source()}: a loop with lanes has no room for a local array: make it outside.")
    type = ArrayType(_extents(shape), native(np.dtype(dtype)))
    buffer = Buffer(r.fresh("t"), type.shape, type.dtype, "local")
    r.add(Allocate(buffer))
    return Array(buffer.name, type, writable=True)


# ---- loops ----------------------------------------------------------------------------------------
def loop(extent: Any, *, parallel: bool = False, lanes: int = 1, unroll: int = 1) -> Iterator[Element]:
    """The loop variable from 0 up to extent: `for i in loop(n):`, or in the generator of a fold.

    parallel: threads share the iterations out (an outermost loop). lanes: so many iterations at a time, as vectors (an
    innermost loop); unroll: so many vectors at a time. KernelError where iterations touch what others of them write.
    """
    r, source, count = _recorder(), user_source(), _extent(extent)
    if r.folds:
        index = Index(r.fresh("k"))
        r.folds[-1].append(_Over(index, count, lanes, unroll))
        yield Element(index)
        return
    if parallel and r.loops:
        raise KernelError(f"{source}: only an outermost loop can be parallel.")
    if r.in_lanes:
        raise KernelError(f"{source}: a loop with lanes holds no other loop: use loops.sum and its like, or give the inner "
                          f"loop the lanes.")
    index = Index(r.fresh("i"))
    r.loops.append((index, lanes))
    r.blocks.append([])
    yield Element(index)
    body = tuple(r.blocks.pop())
    r.loops.pop()
    if parallel or lanes > 1:
        _check_apart(index, body, f"{source}: the loop over {count} cannot be {'parallel' if parallel else 'in lanes'}")
    r.add(For(index, count, body, lanes, unroll, parallel))


def _check_apart(index: Index, body: Sequence[Statement], why: str) -> None:
    """Refuse a loop unless, of each buffer that its body writes, each iteration touches positions of its own: those that have
    the loop's variable on one axis."""
    own = {s.buffer.name for s in _all(body) if isinstance(s, Allocate)}
    stores = {s.buffer for s in _all(body) if isinstance(s, Store)} - own
    found: dict[str, list[tuple[Expr, ...]]] = {name: [] for name in stores}
    for s in _all(body):
        if isinstance(s, Store) and s.buffer in found:
            found[s.buffer].append(s.index)
        for e in [x for top in _expressions(s) for x in walk(top)]:
            if isinstance(e, Load) and e.array in found:
                found[str(e.array)].append(e.index)
    for name, places in found.items():
        if not builtins.any(builtins.all(at[axis] == index for at in places) for axis in range(len(places[0]))):
            raise KernelError(f"{why}: its iterations may touch the same elements of {name}. Let one axis of {name} be indexed "
                              f"by the loop's variable alone, wherever the loop reads or writes it.")


def _all(body: Sequence[Statement]) -> Iterator[Statement]:
    for s in body:
        yield s
        if isinstance(s, For):
            yield from _all(s.body)


def _expressions(s: Statement) -> tuple[Expr, ...]:
    match s:
        case Store():
            return (*s.index, s.value)
        case Let():
            return (s.value,)
        case Reduction():
            return (s.body,)
    return ()


# ---- folds ----------------------------------------------------------------------------------------
def fold(monoid: str, values: Iterable[Any]) -> Element:
    """All values of a generator over loops, brought together by sum, prod, max, min, any or all:
    `fold("max", (x[i, p] for p in loop(k, lanes=8)))`. Lanes and unroll of the innermost of these loops say how many values are
    folded at a time, and into how many accumulators."""
    r, over = _recorder(), list[_Over]()
    r.folds.append(over)
    try:
        found = list(values)
    finally:
        r.folds.pop()
    if len(found) != 1 or not over:
        raise KernelError(f"{user_source()}: a fold takes a generator over loops: loops.sum(x[i, p] for p in loops.loop(k)).")
    (value,), last = _alike(found), over[-1]
    indices = tuple([(x.index, x.extent) for x in over])
    if r.in_lanes or r.folds:
        return Element(Reduce(monoid, indices, value, value.dtype))
    name = r.fresh("r")
    r.add(Reduction(name, monoid, indices, value, value.dtype, last.lanes, last.unroll))
    return Element(Local(name, value.dtype))


def sum(values: Iterable[Any]) -> Element:
    """The sum of a generator over loops: `sum(x[i, p] * w[p] for p in loop(k, lanes=8))`."""
    return fold("sum", values)


def prod(values: Iterable[Any]) -> Element:
    """The product of a generator over loops."""
    return fold("prod", values)


def max(values: Iterable[Any]) -> Element:
    """The greatest of a generator over loops; -inf, or the least integer, of none."""
    return fold("max", values)


def min(values: Iterable[Any]) -> Element:
    """The least of a generator over loops; inf, or the greatest integer, of none."""
    return fold("min", values)


def any(values: Iterable[Any]) -> Element:
    """Whether one of a generator over loops, of bools, holds."""
    return fold("any", values)


def all(values: Iterable[Any]) -> Element:
    """Whether all of a generator over loops, of bools, hold."""
    return fold("all", values)
