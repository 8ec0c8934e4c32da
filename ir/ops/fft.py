"""Discrete Fourier transforms along one axis, as NumPy has them: of complex numbers, of real ones to the half of the spectrum
that says it all, and from such a half back to real numbers. Library calls.

Guarantees: all are linear, and the transpose of each is written with another. `norm` is NumPy's: the inverse is divided by
the number of points ("backward"), or the other direction is ("forward"), or each by its root ("ortho"). The transform of no
points is zero where it has elements; NumPy's functions refuse it, and so does the tracer.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from loopwright.ir.builder import Ref
from loopwright.ir.dims import Extent, Shape, symbol
from loopwright.ir.errors import DTypeError, ShapeError
from loopwright.ir.op import Example, Op
from loopwright.ir.ops.arithmetic import add, conj, mul
from loopwright.ir.ops.bitwise import bitwise_or
from loopwright.ir.ops.broadcasting import broadcast
from loopwright.ir.ops.comparison import eq
from loopwright.ir.ops.construct import full_like, iota, size_value, zeros_like
from loopwright.ir.ops.elementwise import real_part
from loopwright.ir.ops.selection import select
from loopwright.ir.types import C64, C128, COMPLEX, F32, F64, I64, ArrayType

SWAPPED = {"backward": "forward", "ortho": "ortho", "forward": "backward"}  # the norm by which the other direction is divided


def half(n: Extent) -> Extent:
    """How many frequencies say the whole spectrum of n real numbers."""
    return n // 2 + 1


# ---- types ----------------------------------------------------------------------------------------
def _check(name: str, x: ArrayType, axis: int, norm: str) -> None:
    if not 0 <= axis < x.rank:
        raise ShapeError(f"{name}: axis {axis} must be below the rank of {x}")
    if norm not in SWAPPED:
        raise ValueError(f"{name}: norm {norm!r} must be one of {', '.join(SWAPPED)}")


def _resized(shape: tuple[Any, ...], axis: int, n: Extent) -> tuple[Any, ...]:
    return (*shape[:axis], n, *shape[axis + 1:])


def _same_shape(x: ArrayType, axis: int, inverse: bool, norm: str) -> Shape:
    _check("fft", x, axis, norm)
    return x.shape


def _half_shape(x: ArrayType, axis: int, norm: str) -> Shape:
    _check("rfft", x, axis, norm)
    return _resized(x.shape, axis, half(x.shape[axis]))


def _whole_shape(x: ArrayType, axis: int, n: Extent, norm: str) -> Shape:
    _check("irfft", x, axis, norm)
    if x.shape[axis] != half(n):
        raise ShapeError(f"irfft: axis {axis} of {x} must have the {half(n)} frequencies of {n} real numbers")
    return _resized(x.shape, axis, n)


def _complex_dtype(x: ArrayType, **attrs: Any) -> np.dtype:
    if x.dtype not in COMPLEX:
        raise DTypeError(f"fft: {x} must be c64 or c128")
    return x.dtype


def _half_dtype(x: ArrayType, **attrs: Any) -> np.dtype:
    if x.dtype not in (F32, F64):
        raise DTypeError(f"rfft: {x} must be f32 or f64")
    return C64 if x.dtype == F32 else C128


def _whole_dtype(x: ArrayType, **attrs: Any) -> np.dtype:
    if x.dtype not in COMPLEX:
        raise DTypeError(f"irfft: {x} must be c64 or c128")
    return real_part(x.dtype)


# ---- meaning --------------------------------------------------------------------------------------
def _fft_numpy(x: np.ndarray, axis: int, inverse: bool, norm: Any) -> np.ndarray:
    if x.shape[axis] == 0:
        return np.zeros_like(x)
    return np.fft.ifft(x, axis=axis, norm=norm) if inverse else np.fft.fft(x, axis=axis, norm=norm)


def _rfft_numpy(x: np.ndarray, axis: int, norm: Any) -> np.ndarray:
    if x.shape[axis] == 0:
        return np.zeros(_resized(x.shape, axis, 1), C64 if x.dtype == F32 else C128)
    return np.fft.rfft(x, axis=axis, norm=norm)


def _irfft_numpy(x: np.ndarray, axis: int, n: int, norm: Any) -> np.ndarray:
    if n == 0:
        return np.zeros(_resized(x.shape, axis, 0), real_part(x.dtype))
    return np.fft.irfft(x, n, axis=axis, norm=norm)


# ---- transposes -----------------------------------------------------------------------------------
def _alone(x: Ref, axis: int, n: Extent) -> Ref:
    """Which frequencies of a half stand for themselves: 0 and n/2. The others stand for their mirror images too."""
    k = iota(into=x.builder, shape=x.shape, axis=axis, dtype=I64)
    points = broadcast(size_value(into=x.builder, size=n), shape=x.shape, axes=())
    return bitwise_or(eq(k, zeros_like(k)), eq(add(k, k), points))


def _rfft_transpose(ct: Ref, x: ArrayType, axis: int, norm: str) -> Ref:
    """Re sum_k ct_k e^(-2 pi i jk/n) over the half is an irfft of conj(ct) that counts what is alone twice, halved."""
    doubled = select(_alone(ct, axis, x.shape[axis]), add(ct, ct), ct)
    back = irfft(conj(doubled), axis=axis, n=x.shape[axis], norm=SWAPPED[norm])
    return mul(back, full_like(back, 0.5))


def _irfft_transpose(ct: Ref, x: ArrayType, axis: int, n: Extent, norm: str) -> Ref:
    """A frequency acts by its real part where it is alone, else by itself and its mirror image: twice the real part."""
    back = conj(rfft(ct, axis=axis, norm=SWAPPED[norm]))
    return select(_alone(back, axis, n), back, add(back, back))


# ---- ops ------------------------------------------------------------------------------------------
fft: Op = Op(
    name="fft",
    doc="y_k = sum_j x_j e^(-2 pi i jk/n) along an axis of complex numbers; with e^(+2 pi i jk/n) if inverse.",
    shape=_same_shape, dtype=_complex_dtype,
    numpy=_fft_numpy,
    batch=lambda size, args, mapped, axis, inverse, norm: fft(args[0], axis=axis + 1, inverse=inverse, norm=norm),
    linear=(0,),
    transpose={0: lambda ct, x, axis, inverse, norm: fft(ct, axis=axis, inverse=inverse, norm=norm)},  # its matrix is symmetric
    examples=tuple(Example((f"{d}[{shape}]",), {"axis": axis, "inverse": inverse, "norm": norm})
                   for d, inverse, shape, axis, norm in (
                       ("c128", False, "n", 0, "backward"), ("c128", True, "n", 0, "backward"),
                       ("c128", False, "n, 3, m", 1, "ortho"), ("c128", True, "2, n", 1, "forward"),
                       ("c128", False, "n, 1", 1, "forward"), ("c128", True, "n, n", 0, "ortho"),
                       ("c128", False, "0, n", 1, "ortho"), ("c64", True, "m, n", 0, "backward"),
                       ("c64", False, "n", 0, "ortho"))),
)

rfft: Op = Op(
    name="rfft",
    doc="The first n//2 + 1 frequencies of the fft of n real numbers along an axis.",
    shape=_half_shape, dtype=_half_dtype,
    numpy=_rfft_numpy,
    batch=lambda size, args, mapped, axis, norm: rfft(args[0], axis=axis + 1, norm=norm),
    linear=(0,), transpose={0: _rfft_transpose},
    examples=tuple(Example((f"{d}[{shape}]",), {"axis": axis, "norm": norm}) for d, shape, axis, norm in (
        ("f64", "n", 0, "backward"), ("f64", "n, 3, m", 1, "ortho"), ("f64", "2, n", 1, "forward"),
        ("f64", "n, 1", 1, "forward"), ("f64", "n, n", 0, "ortho"), ("f64", "0, n", 1, "ortho"),
        ("f32", "m, n", 0, "backward"), ("f32", "n", 0, "ortho"))),
)

irfft: Op = Op(
    name="irfft",
    doc="The n real numbers whose fft begins with these n//2 + 1 frequencies; imaginary parts at 0 and n/2 are not read.",
    shape=_whole_shape, dtype=_whole_dtype,
    numpy=_irfft_numpy,
    batch=lambda size, args, mapped, axis, n, norm: irfft(args[0], axis=axis + 1, n=n, norm=norm),
    linear=(0,), transpose={0: _irfft_transpose},
    examples=tuple(Example((f"{d}[{shape}]",), {"axis": axis, "n": n, "norm": norm})
                   for d, shape, axis, n, norm in (
                       ("c128", "n + 1", 0, symbol("n") * 2, "backward"), ("c128", "n + 1, m", 0, symbol("n") * 2 + 1, "ortho"),
                       ("c128", "2, n + 1, 3", 1, symbol("n") * 2 + 1, "forward"), ("c128", "3, 1", 1, 1, "backward"),
                       ("c128", "0, 2", 1, 3, "backward"), ("c64", "n + 1", 0, symbol("n") * 2 + 1, "backward"))),
)
