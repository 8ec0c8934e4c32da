"""Choice between two arrays, and change of dtype: the elementwise ops whose operands differ in dtype."""
from __future__ import annotations

from typing import Any

import numpy as np

from loopwright.ir.builder import Ref
from loopwright.ir.errors import DTypeError
from loopwright.ir.loops import Apply, Bounded, Expr, Literal, LoopContext, minus, plus
from loopwright.ir.op import Example, Op
from loopwright.ir.ops.construct import zeros_like
from loopwright.ir.ops.elementwise import between, pointwise, same_dtype
from loopwright.ir.types import (
    BOOL,
    C64,
    C128,
    COMPLEX,
    DTYPES,
    F32,
    F64,
    FLOATS,
    I16,
    I32,
    I64,
    INTEGERS,
    U8,
    U16,
    U32,
    U64,
    ArrayType,
    is_inexact,
)


# ---- select -------------------------------------------------------------------------------------
def _select_dtype(pred: ArrayType, a: ArrayType, b: ArrayType) -> np.dtype:
    if pred.dtype != BOOL:
        raise DTypeError(f"select: the predicate must be bool, got {pred}")
    return same_dtype(a, b)


select: Op = pointwise(
    name="select",
    doc="a where pred holds, else b: neither NaN nor inf of the other passes.",
    dtype=_select_dtype,
    numpy=np.where,
    linear=(1, 2), jointly=True,
    transpose={1: lambda ct, pred, a, b: select(pred, ct, zeros_like(ct)),
               2: lambda ct, pred, a, b: select(pred, zeros_like(ct), ct)},
    examples=tuple(Example((f"bool[{shape}]", f"{dtype}[{shape}]", f"{dtype}[{shape}]"))
                   for shape in ("n, 3", "", "n, 1, m") for dtype in ("f64", "f32", "i32", "bool", "c128")),
)


# ---- convert ------------------------------------------------------------------------------------
def _convert_dtype(x: ArrayType, dtype: np.dtype, weak: bool = False) -> np.dtype:
    if dtype not in DTYPES:
        raise DTypeError(f"convert: {dtype} is not a dtype of loopwright")
    return dtype


def _saturated(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Floating x toward zero into an integer dtype: the nearest extreme when out of range, 0 for NaN."""
    x = np.asarray(x).astype(F64)  # exact for every floating dtype
    info = np.iinfo(dtype)
    low, high = float(info.min), 2.0 ** (info.bits - (info.min < 0))  # both exact; the range is [low, high)
    out = np.where((x >= low) & (x < high), x, 0).astype(dtype)
    out = np.where(x >= high, np.array(info.max, dtype), out)
    return np.where(x < low, np.array(info.min, dtype), out)


def _convert_numpy(x: np.ndarray, dtype: np.dtype, weak: bool = False) -> np.ndarray:
    if x.dtype in COMPLEX and dtype not in COMPLEX and dtype != BOOL:
        x = x.real
    if is_inexact(x.dtype) and dtype in INTEGERS:
        return _saturated(x, dtype)
    return x.astype(dtype)


def _convert_jvp(primals: tuple[Ref, ...], tangents: tuple[Ref, ...], out: Ref, **attrs: Any) -> Ref | None:
    return convert(tangents[0], dtype=out.dtype) if is_inexact(out.dtype) else None


convert: Op = pointwise(
    name="convert",
    doc="The same number at another dtype: rounded to nearest (to bfloat16 by way of float32); toward zero and saturating "
        "into integers (NaN gives 0); the real part of complex; != 0 into bool. `weak` marks the result as a Python number's "
        "(NEP 50).",
    dtype=_convert_dtype,
    numpy=_convert_numpy,
    # Between integers and inexact numbers there is no tangent, which the jvp rule says; the rest is linear.
    jvp=_convert_jvp,
    linear=(0,), jointly=True,
    transpose={0: lambda ct, x, dtype, weak=False: convert(ct, dtype=x.dtype)},
    examples=(*(Example(("f64[n, 3]",), {"dtype": d}) for d in DTYPES),
              *(Example((f"{d}[n]",), {"dtype": F64}) for d in ("bool", "u64", "i8", "f16", "bf16", "f32", "c64")),
              Example(("c128[]",), {"dtype": C64}), Example(("f32[]",), {"dtype": C128}), Example(("c64[n]",), {"dtype": F32}),
              Example(("i64[n, 1]",), {"dtype": U8}), Example(("f64[]",), {"dtype": F64, "weak": True}),
              Example(("u8[n]",), {"dtype": I32})),
)


# ---- bitcast ------------------------------------------------------------------------------------
def _bitcast_dtype(x: ArrayType, dtype: np.dtype) -> np.dtype:
    if not all(d in (*INTEGERS, *FLOATS) for d in (x.dtype, dtype)) or x.dtype.itemsize != dtype.itemsize:
        raise DTypeError(f"bitcast: takes integers and real floats to those of the same width, not {x} to {dtype}")
    return dtype


bitcast: Op = pointwise(
    name="bitcast",
    doc="The number at another dtype of the same width that has the same bits.",
    dtype=_bitcast_dtype,
    numpy=lambda x, dtype: np.asarray(x).view(dtype),
    jvp=lambda primals, tangents, out, dtype: None,
    examples=tuple(Example((f"{source}[n]",), {"dtype": dtype}) for source, dtype in (
        ("f64", I64), ("f32", U32), ("f16", I16), ("bf16", U16), ("i8", U8), ("u32", I32))),
)


# ---- narrow -------------------------------------------------------------------------------------
def _narrow_dtype(x: ArrayType, dtype: np.dtype) -> np.dtype:
    if x.dtype != I64 or dtype not in INTEGERS:
        raise DTypeError(f"narrow: takes i64 to an integer dtype, not {x} to {dtype}")
    return dtype


def _narrow_numpy(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    info = np.iinfo(dtype)
    bad = [v for v in np.ravel(x).tolist() if not info.min <= v <= info.max]
    if bad:
        raise OverflowError(f"Python integer {bad[0]} out of bounds for {dtype}")
    return x.astype(dtype)


def narrow_axis(dtype: np.dtype) -> int:
    """What a failed check reports in place of an axis."""
    return FIRST_NARROW_AXIS - INTEGERS.index(dtype)


def _narrow_loop(context: LoopContext, index: tuple[Expr, ...], dtype: np.dtype) -> Expr:
    """The offset from the least value, checked against the number of values; for u64 only the sign is in question."""
    x, info = context.load(0, index), np.iinfo(dtype)
    if dtype.itemsize == 8:
        sign = Apply("right_shift", (x, Literal(63, I64)), I64)
        return Apply("convert", (plus(x, Bounded(sign, 1, narrow_axis(dtype))),), dtype) if info.min == 0 else x
    low = Literal(info.min, I64)
    offset = Bounded(minus(x, low), info.max - info.min + 1, narrow_axis(dtype))
    return Apply("convert", (plus(offset, low),), dtype)


FIRST_NARROW_AXIS = -2  # -1 marks an integer power with a negative exponent
narrow: Op = Op(
    name="narrow",
    doc="A Python int (i64) at the integer dtype of its partner; OverflowError where it does not fit, as NumPy's.",
    shape=lambda x, dtype: x.shape,
    dtype=_narrow_dtype,
    numpy=_narrow_numpy,
    batch=lambda size, args, mapped, dtype: narrow(args[0], dtype=dtype),
    loop=_narrow_loop,
    jvp=lambda primals, tangents, out, dtype: None,
    examples=tuple(Example(("i64[n]",), {"dtype": dtype}, {0: between(0, 100)})
                   for dtype in (U8, I32, U64, I64)),
)
