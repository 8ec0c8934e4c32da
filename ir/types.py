"""Array types: a shape of sizes, a dtype, and whether a Python scalar's weak kind is still attached."""
from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent, Shape, product

BOOL, I8, I16, I32, I64 = (np.dtype(x) for x in ("bool", "int8", "int16", "int32", "int64"))
U8, U16, U32, U64 = (np.dtype(x) for x in ("uint8", "uint16", "uint32", "uint64"))
F16, F32, F64 = (np.dtype(x) for x in ("float16", "float32", "float64"))
BF16 = np.dtype(ml_dtypes.bfloat16)
C64, C128 = np.dtype("complex64"), np.dtype("complex128")

SHORT = {BOOL: "bool", I8: "i8", I16: "i16", I32: "i32", I64: "i64", U8: "u8", U16: "u16", U32: "u32", U64: "u64",
         F16: "f16", BF16: "bf16", F32: "f32", F64: "f64", C64: "c64", C128: "c128"}
BY_SHORT = {short: dtype for dtype, short in SHORT.items()}
INTEGERS = (I8, I16, I32, I64, U8, U16, U32, U64)
FLOATS = (F16, BF16, F32, F64)
COMPLEX = (C64, C128)
DTYPES = (BOOL, *INTEGERS, *FLOATS, *COMPLEX)
SIZELESS = frozenset((bool, int, float, complex, str, type(None), *map(type, DTYPES)))  # types of plain values without a size
_OURS = {d: d for d in DTYPES}
_FLOATS, _INEXACT, _INTEGERS = frozenset(FLOATS), frozenset((*FLOATS, *COMPLEX)), frozenset(INTEGERS)


def native(dtype: np.dtype) -> np.dtype:
    """Ours of the same meaning, whatever the byte order or alias (np.longlong is int64); itself where there is none."""
    known = _OURS.get(dtype)
    return known if known is not None else next((d for d in DTYPES if d == dtype.newbyteorder("=")), dtype)


def is_on_device(x: Any) -> bool:
    """Whether x is an array in the memory of a GPU: CuPy's, or one that says so as CuPy's do."""
    return hasattr(type(x), "__cuda_array_interface__") and isinstance(getattr(x, "dtype", None), np.dtype)


def is_array(x: Any) -> bool:
    """Whether x is an array, of NumPy's or on a GPU."""
    return isinstance(x, np.ndarray) or is_on_device(x)


def is_float(dtype: np.dtype) -> bool:
    """Real floating point, bfloat16 included."""
    return dtype in _FLOATS


def is_inexact(dtype: np.dtype) -> bool:
    """Floating or complex: the dtypes that have tangents."""
    return dtype in _INEXACT


def is_integer(dtype: np.dtype) -> bool:
    """Signed or unsigned integer; bool is not one."""
    return dtype in _INTEGERS


class _Known:
    """Places for a hash and a size: both are asked for many times."""

    __slots__ = ("_hash", "_size")
    _hash: int
    _size: Extent


@dataclass(frozen=True, slots=True, eq=False)
class ArrayType(_Known):
    """`f32[n, 3]`; weak scalars (Python numbers, NEP 50) print as `weak_f64[]`."""

    shape: Shape
    dtype: np.dtype
    weak: bool = False

    def __eq__(self, other: object) -> bool:
        return self is other or (type(other) is ArrayType and self.shape == other.shape and self.dtype == other.dtype
                                 and self.weak == other.weak)

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            object.__setattr__(self, "_hash", hash((self.shape, self.dtype, self.weak)))
            return self._hash

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> Extent:
        """The number of elements."""
        try:
            return self._size
        except AttributeError:
            object.__setattr__(self, "_size", product(self.shape))
            return self._size

    @property
    def is_inexact(self) -> bool:
        return is_inexact(self.dtype)

    def with_shape(self, shape: Shape) -> ArrayType:
        return ArrayType(shape, self.dtype)

    def __str__(self) -> str:
        return f"{'weak_' if self.weak else ''}{SHORT.get(self.dtype, self.dtype)}[{', '.join(map(str, self.shape))}]"
