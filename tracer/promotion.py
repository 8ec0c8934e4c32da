"""From what users pass to what ops take: NEP 50 promotion, broadcasting, and constants.

Guarantees: result dtypes are those that NumPy itself resolves; a Python number (and a weak traced scalar) never widens an
array; a Python int that its partner's dtype cannot hold raises OverflowError; sizes are compared by proof or guard.
"""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from loopwright.ir import types
from loopwright.ir.builder import Builder, Ref, innermost
from loopwright.ir.dims import Dim, Extent, Shape, largest, symbol, symbols_in
from loopwright.ir.errors import ArgumentError, DTypeError, LeakedValueError, ShapeError
from loopwright.ir.guards import BEYOND, Scope
from loopwright.ir.ops import TABLE
from loopwright.ir.ops.construct import scalar
from loopwright.ir.source import user_source
from loopwright.ir.types import C128, COMPLEX, F64, I64, SHORT, is_array, is_on_device
from loopwright.tracer.size import Size
from loopwright.tracer.tracer import Tracer

Kind = Any  # np.dtype, or int, float, complex: the Python number that a weak scalar is
WEAK: dict[str, Kind] = {"i": int, "u": int, "f": float, "c": complex}
DEFAULT: dict[Any, np.dtype] = {int: I64, float: F64, complex: C128}
USUAL = 1 << 30  # what sizes are below that are multiplied with each other


# ---- kinds and dtypes ---------------------------------------------------------------------------
@lru_cache(maxsize=256)
def native(dtype: np.dtype) -> np.dtype:
    """The dtype of the IR that this one is, whatever its byte order. DTypeError when there is none."""
    known = types.native(dtype)
    if known in SHORT:
        return known
    hint = " An array of sizes is one: use loopwright.numpy.array, or loopwright.numpy.arange." if dtype.kind == "O" else ""
    raise DTypeError(f"{user_source()}: dtype {dtype} is not supported. The dtypes are {', '.join(map(str, SHORT))}.{hint}")


def as_dtype(dtype: Any) -> np.dtype:
    """What a user wrote as a dtype."""
    return native(np.dtype(dtype))


def kind_of(x: Any) -> Kind:
    """How x takes part in promotion."""
    if isinstance(x, Tracer):
        t = x.ref.value.type
        return WEAK[t.dtype.kind] if t.weak else t.dtype
    if isinstance(x, np.generic) or is_array(x):
        return native(x.dtype)
    if isinstance(x, bool):
        return np.dtype(bool)
    if isinstance(x, (int, Size)):
        return int
    if isinstance(x, (float, complex)):
        return type(x) if type(x) in (float, complex) else (float if isinstance(x, float) else complex)
    raise not_an_array(x)


def own_kind(x: Any) -> np.dtype:
    """The dtype of x as an array of its own, for functions that make arrays of all their arguments and then promote."""
    kind = kind_of(x)
    return DEFAULT[kind] if isinstance(kind, type) else kind


def not_an_array(x: Any) -> ArgumentError:
    return ArgumentError(f"{user_source()}: expected an array or a number, got {type(x).__name__} ({x!r:.60}).")


_STAND_IN = {int: 0, float: 0.0, complex: 0j}


@lru_cache(maxsize=4096)
def result_kind(*kinds: Any) -> np.dtype:
    """np.result_type, where only the kinds of Python numbers matter."""
    return native(np.result_type(*[_STAND_IN[k] if isinstance(k, type) else k for k in kinds]))


def result_type(*xs: Any) -> np.dtype:
    """The dtype that NumPy gives these operands in common."""
    return result_kind(*[kind_of(x) for x in xs])


@lru_cache(maxsize=8192)
def resolve(ufunc: np.ufunc, kinds: tuple[Kind, ...], dtype: np.dtype | None = None,
            casting: str = "same_kind") -> tuple[tuple[np.dtype, ...], tuple[np.dtype, ...]]:
    """The dtypes NumPy computes a ufunc at, and of its results. TypeError when it has no loop, in NumPy's words."""
    if kinds and all(k is int for k in kinds) and len(kinds) == 2:
        kinds = (I64, int)  # NumPy compares two Python integers as objects
    if casting == "equiv" and any(isinstance(k, type) for k in kinds):  # NumPy 2's resolve_dtypes crashes here
        raise TypeError(f"cannot cast Python numbers under the casting rule {casting!r}")
    options: dict[str, Any] = {} if dtype is None else {"signature": (*[None] * ufunc.nin, *[dtype] * ufunc.nout)}
    if all(k is int for k in kinds):
        kinds = (I64,) * len(kinds)  # NumPy compares Python ints as objects
    found = ufunc.resolve_dtypes((*kinds, *[None] * ufunc.nout), casting=casting, **options)  # type: ignore[arg-type]
    dtypes = [native(d) for d in found]
    return tuple(dtypes[:ufunc.nin]), tuple(dtypes[ufunc.nin:])


# ---- shapes -------------------------------------------------------------------------------------
def shape_of(x: Any) -> Shape:
    """The shape of an operand, in extents."""
    if isinstance(x, Tracer):
        return x.ref.shape
    return x.shape if is_array(x) else ()


def broadcast_shapes(scope: Scope, *shapes: Shape) -> Shape:
    """NumPy's common shape. Sizes that cannot be compared by proof are compared by guard."""
    out: Shape = shapes[0]
    for shape in shapes[1:]:
        if shape != out and shape:
            out = _common_shape(scope, out, shape, shapes)
    return scope.canonical_shape(out)


def _common_shape(scope: Scope, a: Shape, b: Shape, everyone: Sequence[Shape]) -> Shape:
    if len(a) < len(b):
        a, b = b, a
    front = len(a) - len(b)
    return a[:front] + tuple([_common_extent(scope, n, m, everyone) for n, m in zip(a[front:], b, strict=True)])


def _common_extent(scope: Scope, n: Extent, m: Extent, everyone: Sequence[Shape]) -> Extent:
    n, m = scope.canonical(n), scope.canonical(m)
    if n is m or m == 1 or n == m:
        return n
    if n == 1 or scope.equate(n, m):
        return m
    if scope.equate(n, 1):
        return m
    if scope.equate(m, 1):
        return n
    shapes = " ".join(scope.describe(s) for s in everyone)
    raise ShapeError(f"{user_source()}: operands could not be broadcast together with shapes {shapes}. "
                     f"Sizes on one axis must be equal or 1; add an axis with x[:, None], or transpose or reshape an operand.")


def fits(scope: Scope, shape: Shape, target: Shape) -> bool:
    """Whether an array of a shape broadcasts to a target shape."""
    front = len(target) - len(shape)
    return front >= 0 and all(n in (1, m) or scope.equate(n, m) or scope.equate(n, 1)
                              for n, m in zip(shape, target[front:], strict=True))


# ---- values -------------------------------------------------------------------------------------
def newest_builder(xs: Iterable[Any]) -> Builder:
    """Where an operation on these operands goes: the newest trace among them, else the innermost trace."""
    found: Builder | None = None
    for x in xs:
        if isinstance(x, Tracer):
            builder = x.ref.builder
            if found is None or builder.serial > found.serial:
                found = builder
        elif isinstance(x, (list, tuple)) and any(isinstance(y, (Tracer, list, tuple)) for y in x):
            found = _newer(found, _newest_or_none(x))
    found = found or innermost()
    if found is None:
        raise LeakedValueError(f"{user_source()}: a symbolic size was used outside the trace it belongs to.")
    return found


def _newest_or_none(xs: Iterable[Any]) -> Builder | None:
    found: Builder | None = None
    for x in xs:
        if isinstance(x, Tracer):
            found = _newer(found, x.ref.builder)
        elif isinstance(x, (list, tuple)):
            found = _newer(found, _newest_or_none(x))
    return found


def _newer(a: Builder | None, b: Builder | None) -> Builder | None:
    if a is None or b is None:
        return a or b
    return a if a.serial > b.serial else b


def has_tracer(x: Any) -> bool:
    """Whether a traced value or size is x or is somewhere in its lists and tuples."""
    if isinstance(x, (list, tuple)):
        return any(has_tracer(y) for y in x)
    return isinstance(x, (Tracer, Size))


def as_operand(x: Any) -> Any:
    """x as something with a kind and a shape: lists become arrays, traced where they hold traced values."""
    if isinstance(x, Tracer):
        return x
    if isinstance(x, (list, tuple)):
        return stacked(x) if has_tracer(x) else np.asarray(x)
    if isinstance(x, np.ndarray):
        check_plain(x)
    elif not isinstance(x, (bool, int, float, complex, np.generic, Size)) and not is_on_device(x):
        raise not_an_array(x)
    return x


def check_plain(x: np.ndarray) -> None:
    """Refuse arrays that bring their own arithmetic."""
    if isinstance(x, (np.ma.MaskedArray, np.matrix)):
        raise ArgumentError(f"{user_source()}: a {type(x).__name__} is not supported: its own arithmetic would be lost. "
                            f"Pass np.asarray(x){' and the mask' if isinstance(x, np.ma.MaskedArray) else ''}.")


def stacked(xs: Sequence[Any]) -> Tracer:
    """np.array of nested sequences that hold traced values."""
    builder = newest_builder(xs)
    parts = [as_operand(x) for x in xs]
    dtype = result_kind(*[kind_of(p) for p in parts])
    shape = shape_of(parts[0])
    for p in parts[1:]:
        if len(shape_of(p)) != len(shape) or any(not builder.scope.equate(a, b)
                                                 for a, b in zip(shape_of(p), shape, strict=True)):
            found = " ".join(builder.scope.describe(shape_of(p)) for p in parts)
            raise ShapeError(f"{user_source()}: a sequence of arrays of shapes {found} has an inhomogeneous shape.")
    refs = [lift(p, dtype, builder) for p in parts]
    return Tracer(TABLE["concatenate"](*[reshape(r, (1, *r.shape)) for r in refs], axis=0))


def lift(x: Any, dtype: np.dtype, builder: Builder) -> Ref:
    """An operand as a value of this dtype, at its own shape."""
    if isinstance(x, Tracer):
        return convert(x.ref, dtype)
    if is_array(x):
        native(x.dtype)
        return convert(builder.capture(x), dtype)
    if isinstance(x, Size):
        return _lifted_size(x, dtype, builder)
    return constant(x, dtype, (), builder)


def _lifted_size(x: Size, dtype: np.dtype, builder: Builder) -> Ref:
    """A size as a number: counted in i64 where sizes up to a bound, which is a guard, are not too large for that; else it is
    this call's number."""
    extent, scope = x.extent, builder.scope
    if isinstance(extent, int):
        return convert(constant(extent, dtype if abs(extent) >= BEYOND else I64, (), builder), dtype)
    powers = _highest_powers(extent)
    weight = sum(abs(c) for _, c in extent.terms)
    most = min(USUAL, int((2.0**63 / weight) ** (1 / max(powers.values()))) - 1)
    within = largest(extent) < BEYOND and (most == USUAL or all(scope.decide("<=", symbol(s), most) for s in powers))
    if not within:
        return constant(scope.settled(extent), dtype, (), builder)
    return convert(TABLE["size_value"](into=builder, size=extent), dtype)


def _highest_powers(x: Dim) -> dict[str, int]:
    """In which power a term of x holds each symbol. Different symbols are those of one array, which memory holds, or of few."""
    found = dict.fromkeys(symbols_in(x), 1)
    for atoms, _ in x.terms:
        for s in found:
            found[s] = max(found[s], sum(s in symbols_in(Dim((((a,), 1),))) for a in atoms))
    return found


def lift_to(x: Any, dtype: np.dtype, shape: Shape, builder: Builder) -> Ref:
    """An operand as a value of this dtype and shape: a number becomes one constant array."""
    if isinstance(x, (Tracer, Size)) or is_array(x):
        return broadcast(lift(x, dtype, builder), shape)
    return constant(x, dtype, shape, builder)


def lift_own(x: Any, builder: Builder | None = None) -> Ref:
    """An operand as a value of its own dtype (NumPy's default for Python numbers)."""
    x = as_operand(x)
    return lift(x, own_kind(x), builder or newest_builder((x,)))


def constant(x: Any, dtype: np.dtype, shape: Shape, builder: Builder) -> Ref:
    """An array of one number."""
    return TABLE["full"](into=builder, value=exact(x, dtype), shape=shape, dtype=dtype)


def exact(x: Any, dtype: np.dtype) -> Any:
    """The Python number that a dtype holds for x. OverflowError for a Python int that it cannot hold."""
    if type(x) is float and dtype == F64:
        return x
    if isinstance(x, int) and dtype.kind in "iu" and not isinstance(x, bool):
        info = np.iinfo(dtype)
        if not info.min <= x <= info.max:
            raise OverflowError(f"{user_source()}: Python integer {x} out of bounds for {dtype}")
        return int(x)
    return scalar(x, dtype)


def convert(x: Ref, dtype: np.dtype, weak: bool = False) -> Ref:
    """x at another dtype, as astype does: a complex number's imaginary part is dropped."""
    t = x.value.type
    if t.dtype == dtype and t.weak == weak:
        return x
    if t.dtype in COMPLEX and dtype not in COMPLEX and dtype.kind != "b":
        return convert(TABLE["real"](x), dtype)
    if t.weak and t.dtype == I64 and dtype.kind in "iu" and dtype != I64:
        return TABLE["narrow"](x, dtype=dtype)
    return TABLE["convert"](x, dtype=dtype, weak=weak)


def reshape(x: Ref, shape: Shape) -> Ref:
    """x under a shape of equal size; nothing when it is its own."""
    return x if x.shape == shape else TABLE["reshape"](x, shape=shape)


def broadcast(x: Ref, shape: Shape) -> Ref:
    """x repeated to a shape that `broadcast_shapes` gave."""
    own = x.shape
    if own == shape:
        return x
    front = len(shape) - len(own)
    kept = [k for k, n in enumerate(own) if n is shape[front + k] or n == shape[front + k]]  # the others have size 1 and repeat
    if len(kept) < len(own):
        x = reshape(x, tuple([own[k] for k in kept]))
    return TABLE["broadcast"](x, shape=shape, axes=tuple([front + k for k in kept])) if len(kept) < len(shape) else x


