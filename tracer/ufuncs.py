"""NumPy's universal functions on traced values.

Guarantees: operands and results have the dtypes that NumPy's own loops have; a function that has no op of its own is a
composition of ops whose values at NaN, infinities and signed zeros are NumPy's. Operators between Python numbers (weak
scalars) give Python numbers; the functions by name give NumPy scalars.
"""
from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from loopwright.ir.builder import Ref
from loopwright.ir.errors import DTypeError
from loopwright.ir.op import Op
from loopwright.ir.ops import arithmetic as a
from loopwright.ir.ops import bitwise, comparison, transcendental
from loopwright.ir.ops.construct import full_like, zeros_like
from loopwright.ir.ops.selection import select
from loopwright.ir.source import user_source
from loopwright.ir.types import BOOL, COMPLEX, FLOATS, I64, is_inexact, is_integer
from loopwright.tracer.promotion import (
    Kind,
    as_dtype,
    as_operand,
    broadcast,
    broadcast_shapes,
    constant,
    convert,
    kind_of,
    lift_to,
    newest_builder,
    resolve,
    shape_of,
)
from loopwright.tracer.tables import UFUNCS
from loopwright.tracer.tracer import Tracer

Rule = Callable[..., Any]  # refs of one shape, at the dtypes of NumPy's loop -> a ref, or a tuple of them


# ---- rules by composition -----------------------------------------------------------------------
def _for(is_kind: Callable[[np.dtype], bool], op: Rule, otherwise: Rule) -> Rule:
    """The op where the first operand's dtype is of a kind, else another rule."""
    return lambda x, *rest: op(x, *rest) if is_kind(x.dtype) else otherwise(x, *rest)


def _is_complex(dtype: np.dtype) -> bool:
    return dtype in COMPLEX


def _same(x: Ref) -> Ref:
    return x


def _never(x: Ref) -> Ref:
    return full_like(convert(x, BOOL), False)


def _always(x: Ref) -> Ref:
    return full_like(convert(x, BOOL), True)


def _truths(op: Op) -> Rule:
    return lambda x, y: op(convert(x, BOOL), convert(y, BOOL))


def _swapped(rule: Rule) -> Rule:
    return lambda x, y: rule(y, x)


def _ordered(op: Op, if_negative: bool, swap: bool = False) -> Rule:
    """A comparison; i64 with u64, which have no exact common dtype, by sign first. `if_negative`: x op y for x < 0 <= y."""
    def rule(x: Ref, y: Ref) -> Ref:
        if x.dtype == y.dtype:
            return op(y, x) if swap else op(x, y)
        signed, unsigned = (x, y) if x.dtype == I64 else (y, x)
        is_negative = comparison.lt(signed, zeros_like(signed))
        as_unsigned = convert(signed, unsigned.dtype)
        first, second = (as_unsigned, unsigned) if signed is x else (unsigned, as_unsigned)
        known = full_like(is_negative, if_negative if signed is x or op in (comparison.eq, comparison.ne) else not if_negative)
        return select(is_negative, known, op(second, first) if swap else op(first, second))
    return rule


def _scaled(factor: float) -> Rule:
    return lambda x: a.mul(x, full_like(x, factor))


def _reciprocal(x: Ref) -> Ref:
    one = full_like(x, 1)
    if is_inexact(x.dtype):
        return a.div(one, x)
    is_unit = comparison.eq(a.abs(x) if x.dtype.kind == "i" else x, one)
    return select(is_unit, x, zeros_like(x))


def _complex_sign(x: Ref) -> Ref:
    length = a.abs(x)
    is_zero = comparison.eq(length, zeros_like(length))
    return select(is_zero, zeros_like(x), a.div(x, convert(select(is_zero, full_like(length, 1), length), x.dtype)))


def _complex_rint(x: Ref) -> Ref:
    re, im = (convert(a.rint(part(x)), x.dtype) for part in (a.real, a.imag))
    return a.add(re, a.mul(im, full_like(im, 1j)))


def _heaviside(x: Ref, at_zero: Ref) -> Ref:
    zero = zeros_like(x)
    step = select(comparison.lt(x, zero), zero, full_like(x, 1))
    return select(comparison.eq(x, zero), at_zero, select(comparison.isnan(x), x, step))


def _modf(x: Ref) -> tuple[Ref, Ref]:
    whole = a.trunc(x)
    rest = select(comparison.isinf(x), zeros_like(x), a.sub(x, whole))
    return a.copysign(rest, x), whole


def _divmod(x: Ref, y: Ref) -> tuple[Ref, Ref]:
    return a.floor_divide(x, y), a.remainder(x, y)


_rounding = {np.floor: a.floor, np.ceil: a.ceil, np.trunc: a.trunc}
_questions = {np.isnan: (comparison.isnan, _never), np.isinf: (comparison.isinf, _never),
              np.isfinite: (comparison.isfinite, _always)}
_bits = {np.bitwise_and: bitwise.bitwise_and, np.bitwise_or: bitwise.bitwise_or, np.bitwise_xor: bitwise.bitwise_xor,
         np.invert: bitwise.bitwise_not, np.left_shift: bitwise.left_shift, np.right_shift: bitwise.right_shift}
_transcendental = {getattr(np, name): getattr(transcendental, name) for name in (
    "sqrt", "cbrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "arcsin", "arccos", "arctan",
    "sinh", "cosh", "tanh", "arcsinh", "arccosh", "arctanh", "arctan2", "hypot", "power")}

RULES: dict[np.ufunc, Rule] = {
    **_transcendental,
    **_bits,
    **{ufunc: _for(is_inexact, op, _same) for ufunc, op in _rounding.items()},
    **{ufunc: _for(is_inexact, op, default) for ufunc, (op, default) in _questions.items()},
    np.float_power: transcendental.power,
    np.add: a.add, np.subtract: a.sub, np.multiply: a.mul, np.true_divide: a.div, np.negative: a.neg, np.positive: _same,
    np.floor_divide: a.floor_divide, np.remainder: a.remainder, np.fmod: a.fmod, np.divmod: _divmod, np.modf: _modf,
    np.rint: _for(_is_complex, _complex_rint, a.rint), np.fabs: a.abs,
    np.absolute: lambda x: x if x.dtype == BOOL else a.abs(x),
    np.sign: lambda x: _complex_sign(x) if x.dtype in COMPLEX else a.sign(x),
    np.maximum: a.max, np.minimum: a.min, np.fmax: lambda x, y: (a.fmax if is_inexact(x.dtype) else a.max)(x, y),
    np.fmin: lambda x, y: (a.fmin if is_inexact(x.dtype) else a.min)(x, y),
    np.copysign: a.copysign, np.nextafter: a.nextafter, np.signbit: comparison.signbit,
    np.conjugate: _for(_is_complex, a.conj, _same),
    np.square: lambda x: a.mul(x, x), np.reciprocal: _reciprocal,
    np.equal: _ordered(comparison.eq, False), np.not_equal: _ordered(comparison.ne, True),
    np.less: _ordered(comparison.lt, True), np.less_equal: _ordered(comparison.le, True),
    np.greater: _ordered(comparison.lt, False, swap=True), np.greater_equal: _ordered(comparison.le, False, swap=True),
    np.logical_and: _truths(bitwise.bitwise_and), np.logical_or: _truths(bitwise.bitwise_or),
    np.logical_xor: _truths(bitwise.bitwise_xor), np.logical_not: lambda x: bitwise.bitwise_not(convert(x, BOOL)),
    np.logaddexp: transcendental.logaddexp, np.logaddexp2: transcendental.logaddexp2, np.heaviside: _heaviside,
    np.deg2rad: _scaled(math.pi / 180), np.radians: _scaled(math.pi / 180),
    np.rad2deg: _scaled(180 / math.pi), np.degrees: _scaled(180 / math.pi),
}
_COMPARISONS = (np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal)


# ---- application --------------------------------------------------------------------------------
def apply(ufunc: np.ufunc, args: tuple[Any, ...], dtype: Any = None, where: Any = True, casting: str = "same_kind",
          keep_weak: bool = False, **unknown: Any) -> Any:
    """Promote, broadcast and compute; keep_weak: Python numbers give a Python number."""
    _check_call(ufunc, args, where, unknown)
    xs = tuple([x if isinstance(x, Tracer) else as_operand(x) for x in args])
    kinds = tuple([kind_of(x) for x in xs])
    if ufunc in _COMPARISONS:
        kinds = _compared(xs, kinds)
    inputs, outputs = _resolve(ufunc, kinds, None if dtype is None else as_dtype(dtype), casting)
    builder = newest_builder(xs)
    shape = broadcast_shapes(builder.scope, *[shape_of(x) for x in xs])
    if ufunc in _COMPARISONS and (answer := _beyond_range(ufunc, xs, inputs)) is not None:
        return Tracer(constant(answer, BOOL, shape, builder))
    _check_exponent(ufunc, xs, inputs)
    out = _emit(ufunc, [lift_to(x, d, shape, builder) for x, d in zip(xs, inputs, strict=True)])
    is_weak = keep_weak and all(isinstance(k, type) for k in kinds)
    if isinstance(out, tuple):
        return tuple([_wrapped(r, d, is_weak) for r, d in zip(out, outputs, strict=True)])
    return _wrapped(out, outputs[0], is_weak)


def _check_call(ufunc: np.ufunc, args: tuple[Any, ...], where: Any, unknown: dict[str, Any]) -> None:
    if len(args) != ufunc.nin:
        raise TypeError(f"{user_source()}: np.{ufunc.__name__} takes {ufunc.nin} operands, got {len(args)}; "
                        f"results cannot be stored into an argument (out=) of a traced call.")
    if where is not True:
        raise TypeError(f"{user_source()}: np.{ufunc.__name__}(where=...) without out= leaves the other elements undefined in "
                        f"NumPy. Write np.where(condition, np.{ufunc.__name__}(...), other).")
    unknown = {k: v for k, v in unknown.items() if not (k in ("order", "subok", "out") and v in (None, "K", "C", True))}
    if unknown:
        raise TypeError(f"{user_source()}: np.{ufunc.__name__} on traced values does not take {', '.join(unknown)}=")


def _resolve(ufunc: np.ufunc, kinds: tuple[Kind, ...], dtype: np.dtype | None = None,
             casting: str = "same_kind") -> tuple[tuple[np.dtype, ...], tuple[np.dtype, ...]]:
    try:
        return resolve(ufunc, kinds, dtype, casting)
    except DTypeError:
        raise
    except TypeError as error:  # NumPy's own words: a missing loop, a forbidden cast, boolean subtract
        raise DTypeError(f"{user_source()}: {error}") from None


def _emit(ufunc: np.ufunc, refs: list[Ref]) -> Any:
    try:
        return RULES[ufunc](*refs)
    except DTypeError as error:
        raise _at_line(ufunc, error) from None


def _at_line(ufunc: np.ufunc, error: DTypeError) -> DTypeError:
    return DTypeError(f"{user_source()}: np.{ufunc.__name__}: {error}")


def _wrapped(x: Ref, dtype: np.dtype, is_weak: bool) -> Tracer:
    return Tracer(convert(x, dtype, is_weak and dtype != BOOL))


def _compared(xs: tuple[Any, ...], kinds: tuple[Kind, ...]) -> tuple[Kind, ...]:
    """Traced Python integers beside integers are compared at 64 bits: they may lie beyond the other's range."""
    if not any(isinstance(k, np.dtype) and is_integer(k) for k in kinds):
        return kinds
    return tuple([I64 if k is int and isinstance(x, Tracer) else k for x, k in zip(xs, kinds, strict=True)])


def _beyond_range(ufunc: np.ufunc, xs: tuple[Any, ...], dtypes: tuple[np.dtype, ...]) -> bool | None:
    """The answer of a comparison with a Python int that the other's dtype cannot hold: that of 0 in the other's place."""
    for k, (x, dtype) in enumerate(zip(xs, dtypes, strict=True)):
        if isinstance(x, int) and not isinstance(x, np.generic) and is_integer(dtype):
            info = np.iinfo(dtype)
            if not info.min <= x <= info.max:
                return bool(_PYTHON[ufunc](*((x, 0) if k == 0 else (0, x))))
    return None


_PYTHON: dict[np.ufunc, Callable[[Any, Any], Any]] = {
    np.equal: operator.eq, np.not_equal: operator.ne, np.less: operator.lt, np.less_equal: operator.le,
    np.greater: operator.gt, np.greater_equal: operator.ge}


def _check_exponent(ufunc: np.ufunc, xs: tuple[Any, ...], dtypes: tuple[np.dtype, ...]) -> None:
    if ufunc is np.power and dtypes[1].kind == "i" and isinstance(xs[1], (int, np.integer)) and xs[1] < 0:
        raise ValueError(f"{user_source()}: Integers to negative integer powers are not allowed.")


def _alike(args: tuple[Any, ...]) -> tuple[list[Ref | float], np.dtype, tuple[Kind, ...]] | None:
    """The common case, for speed: traced arrays of one dtype, and Python floats beside floating ones."""
    xs: list[Ref | float] = []
    kinds: list[Kind] = []
    dtype: np.dtype | None = None
    has_floats = False
    for x in args:
        if type(x) is Tracer:
            ref = x.ref
            t = ref.value.type
            if t.weak or (dtype is not None and t.dtype is not dtype):
                return None
            dtype = t.dtype
            xs.append(ref)
            kinds.append(dtype)
        elif type(x) is float:
            has_floats = True
            xs.append(x)
            kinds.append(float)
        else:
            return None
    if dtype is None or (has_floats and dtype not in FLOATS):
        return None
    return xs, dtype, tuple(kinds)


def _of_one_shape(xs: list[Ref | float], dtype: np.dtype) -> list[Ref]:
    """Values of one shape; floats at this dtype."""
    refs = [x for x in xs if type(x) is Ref]
    if len(xs) == 1:
        return refs
    builder, shapes = refs[0].builder, [x.shape for x in refs]
    shape = shapes[0]
    if len(shapes) > 1 and shapes.count(shape) < len(shapes):
        shape = broadcast_shapes(builder.scope, *shapes)
        refs = [broadcast(x, shape) for x in refs]
    if len(refs) == len(xs):
        return refs
    rest = iter(refs)
    return [next(rest) if type(x) is Ref else constant(x, dtype, shape, builder) for x in xs]


def _entry(ufunc: np.ufunc) -> Callable[..., Any]:
    rule, count = RULES[ufunc], ufunc.nin
    plain: dict[tuple[Kind, ...], np.dtype | None] = {}  # kinds of operands -> the result's dtype, where theirs is the loop's

    def call(*args: Any, keep_weak: bool = False, **options: Any) -> Any:
        alike = None if options or ufunc.nout > 1 or len(args) != count else _alike(args)
        if alike is None:
            return apply(ufunc, args, keep_weak=keep_weak, **options)
        xs, dtype, kinds = alike
        if kinds not in plain:
            inputs, outputs = _resolve(ufunc, kinds)
            plain[kinds] = outputs[0] if all(d is dtype for d in inputs) else None
        if (result := plain[kinds]) is None:
            return apply(ufunc, args, keep_weak=keep_weak)
        try:
            return Tracer(convert(rule(*_of_one_shape(xs, dtype)), result))
        except DTypeError as error:
            raise _at_line(ufunc, error) from None
    return call


UFUNCS.update({ufunc: _entry(ufunc) for ufunc in RULES})
