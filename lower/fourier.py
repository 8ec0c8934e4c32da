"""Discrete Fourier transforms of pairs: a library call for each block of rows.

Guarantees: rows are transformed where they lie, along any axis; the factor is NumPy's, in the dtype of the parts, so that the
numbers are NumPy's too.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent, Shape, product
from loopwright.ir.errors import DTypeError
from loopwright.ir.graph import Node
from loopwright.ir.op import Op
from loopwright.ir.ops import fft
from loopwright.ir.ops.broadcasting import operand_dtype
from loopwright.ir.ops.fft import SWAPPED, half
from loopwright.ir.types import C64, C128, F32, F64, SHORT, ArrayType
from loopwright.lower.pairs import Pair, Part, joined, whole
from loopwright.lower.runtime import fourier
from loopwright.lower.runtime.sizes import Sizes
from loopwright.lower.runtime.writer import Writer

READS_PAIRS, WRITES_PAIRS = ("fft", "ifft", "irfft"), ("fft", "ifft", "rfft")


# ---- the op ---------------------------------------------------------------------------------------
def _shape(x: ArrayType, kind: str, axis: int, n: Extent, norm: str) -> Shape:
    front = x.shape[:-1] if kind in READS_PAIRS else x.shape
    points = half(n) if kind == "rfft" else n
    return (*front[:axis], points, *front[axis + 1:], *((2,) if kind in WRITES_PAIRS else ()))


def _numpy(x: np.ndarray, kind: str, axis: int, n: int, norm: Any) -> np.ndarray:
    pair = C64 if x.dtype == F32 else C128
    given = np.ascontiguousarray(x).view(pair)[..., 0] if kind in READS_PAIRS else x
    if n == 0:
        empty: Any = _shape(ArrayType(x.shape, x.dtype), kind, axis, n, norm)
        return np.zeros(empty, x.dtype)
    out = getattr(np.fft, kind)(given, n, axis=axis, norm=norm)
    return np.ascontiguousarray(out)[..., None].view(x.dtype) if kind in WRITES_PAIRS else out


transform = Op(
    name="transform",
    doc="NumPy's fft, ifft, rfft or irfft (`kind`) of n points along an axis; complex numbers are pairs along a last axis.",
    shape=_shape, dtype=operand_dtype, numpy=_numpy,
)


def _fft(x: Pair, axis: int, inverse: bool, norm: str) -> Pair:
    return whole(transform(joined(x), kind="ifft" if inverse else "fft", axis=axis, n=x.re.ref.shape[axis], norm=norm))


def _rfft(x: Part, axis: int, norm: str) -> Pair:
    return whole(transform(x.ref, kind="rfft", axis=axis, n=x.ref.shape[axis], norm=norm))


def _irfft(x: Pair, axis: int, n: Extent, norm: str) -> Part:
    return Part(transform(joined(x), kind="irfft", axis=axis, n=n, norm=norm))


RULES: dict[Op, Callable[..., Part | Pair]] = {fft.fft: _fft, fft.rfft: _rfft, fft.irfft: _irfft}  # for `complexes.py`


# ---- the call -------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Layout:
    """How the rows along an axis of an operand or result lie. Rows that differ in axes after it are one block, or all are."""

    points: Extent  # of a row
    inner: Extent  # the size of the axes after it
    front: Extent  # and of those before it
    unit: int  # bytes of a point

    @property
    def is_straight(self) -> bool:
        """Whether rows lie one behind the other."""
        return self.inner == 1

    @property
    def rows(self) -> Extent:
        """Of a block."""
        return self.front if self.is_straight else self.inner

    @property
    def blocks(self) -> Extent:
        """How many there are."""
        return 1 if self.is_straight else self.front

    @property
    def steps(self) -> tuple[Extent, Extent]:
        """Bytes from row to row and from point to point."""
        return (self.points * self.unit, self.unit) if self.is_straight else (self.unit, self.inner * self.unit)

    @property
    def block(self) -> Extent:
        """Bytes."""
        return self.points * self.rows * self.unit


def _layout(t: ArrayType, axis: int, is_pairs: bool) -> Layout:
    shape = t.shape[:-1] if is_pairs else t.shape
    return Layout(shape[axis], product(shape[axis + 1:]), product(shape[:axis]), t.dtype.itemsize * (2 if is_pairs else 1))


def layouts(node: Node) -> tuple[Layout, Layout]:
    """Of the operand and of the result."""
    axis, kind = node.attrs["axis"], node.attrs["kind"]
    return (_layout(node.inputs[0].type, axis, kind in READS_PAIRS), _layout(node.outputs[0].type, axis, kind in WRITES_PAIRS))


def transform_block(w: Writer, sizes: Sizes, node: Node) -> Callable[[list[str]], None]:
    """Write what all calls share; what it gives writes the call for a block at two pointers."""
    if not fourier.available():
        raise DTypeError(f"{node.source}: {node.attrs['kind']} needs the loops of NumPy's own, which this NumPy does not have "
                         f"where they are known to be. Call the function without jit.")
    kind, t = node.attrs["kind"], node.inputs[0].type.dtype
    given, made = layouts(node)
    factor = _factor(w, sizes.extent(node.attrs["n"]), "float" if t == F32 else "double", kind, node.attrs["norm"])
    arguments = w.slot("[3 x ptr]")
    dims = _table(w, [sizes.extent(x) for x in (given.rows, given.points, made.points)])
    (from_row, from_point), (to_row, to_point) = given.steps, made.steps
    steps = _table(w, [sizes.extent(x) for x in (from_row, 0, to_row, from_point, to_point)])

    def call(at: list[str]) -> None:
        for k, pointer in enumerate((at[0], factor, at[1])):
            w.store("ptr", pointer, arguments, 8 * k)
        w.call("void", f"lw_{kind}_{SHORT[t]}", f"ptr {arguments}", f"ptr {dims}", f"ptr {steps}")
    return call


def _table(w: Writer, values: list[str]) -> str:
    table = w.slot(f"[{len(values)} x i64]")
    for k, value in enumerate(values):
        w.store("i64", value, table, 8 * k)
    return table


def _factor(w: Writer, n: str, real: str, kind: str, norm: str) -> str:
    """Where the number is that the result is multiplied by: 1, 1/sqrt(n) or 1/n."""
    norm = SWAPPED[norm] if kind in ("ifft", "irfft") else norm
    value, place = "1.0", w.slot(real)
    if norm != "backward":
        divisor = w.let(f"sitofp i64 {n} to {real}")
        if norm == "ortho":
            divisor = w.call(real, f"llvm.sqrt.{SHORT[F32 if real == 'float' else F64]}", f"{real} {divisor}")
        value = w.let(f"fdiv {real} 1.0, {divisor}")
    w.store(real, value, place)
    return place
