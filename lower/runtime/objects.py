"""What generated code may know about live Python and NumPy objects: struct offsets and addresses by name.

Guarantees: every offset and every NumPy function is tried on real objects of this process before generated code may
use it; when a trial fails, `unsupported()` says which, and calls go through Python instead. No dtype's fields are
read: a dtype is known by the address of its singleton.
"""
from __future__ import annotations

import ctypes
import struct
import sys
import sysconfig
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from loopwright.ir.types import DTYPES, SHORT

TYPE = 8  # PyObject.ob_type
SIZE = 16  # PyVarObject.ob_size
FLOAT_VALUE = 16
COMPLEX_VALUE = 16
SCALAR_VALUE = 16  # in every NumPy scalar of ours
ARRAY_DATA, ARRAY_RANK, ARRAY_DIMS, ARRAY_STRIDES, ARRAY_DTYPE, ARRAY_FLAGS = 16, 24, 32, 40, 56, 64
LIST_ITEMS = 24
TUPLE_ITEMS = tuple.__basicsize__
BYTES_DATA = bytes.__basicsize__ - 1  # the basic size counts the trailing zero
CONTIGUOUS_ALIGNED = 0x0001 | 0x0100
OWNED_WRITEABLE = 0x0004 | 0x0400

# Slots of NumPy's C-API table, fixed by its ABI.
_NUMPY_SLOTS = {"PyArray_Type": 2, "PyArray_Scalar": 60, "PyArray_NewCopy": 85, "PyArray_NewFromDescr": 94,
                "PyArray_FromArray": 109, "PyDataMem_SetHandler": 304, "PyDataMem_DefaultHandler": 306,
                "_PyDataType_GetArrFuncs": 365}
_TYPES = {"PyFloat_Type": float, "PyLong_Type": int, "PyComplex_Type": complex, "PyTuple_Type": tuple,
          "PyList_Type": list, "PyDict_Type": dict}
_SINGLETONS = {"lw_none": None, "lw_true": True, "lw_false": False, "lw_new_object": object.__new__}


@cache
def unsupported() -> str | None:
    """Why generated code cannot take Python objects apart in this process; None when it can."""
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "only CPython with its global lock has the object layout that the dispatcher knows"
    if struct.calcsize("P") != 8 or object.__basicsize__ != 16 or sys.byteorder != "little":
        return "the dispatcher knows the object layout of 64-bit little-endian release builds"
    for trial in (_try_references, _try_arrays, _try_scalars, _try_containers, _try_numpy_functions):
        if not trial():
            return f"an object is not laid out as expected: {trial.__name__[5:]}"
    return None


def _read(ctype: Any, address: int) -> Any:
    return ctype.from_address(address).value


def _try_references() -> bool:
    """The count of references stands first, in four bytes at least, and is below 0 there where it does not change."""
    x = (object(),)
    before = _read(ctypes.c_int32, id(x))
    more = [x] * 5
    return bool(0 < before == _read(ctypes.c_int32, id(x)) - len(more))


def _try_arrays() -> bool:
    base = np.arange(24, dtype=np.float32)
    arrays: list[np.ndarray] = [
        base, base.reshape(2, 3, 4), base.reshape(2, 3, 4)[:, ::2], np.zeros((), np.int8), np.zeros((3, 0, 2), np.int64),
        np.frombuffer(bytes(17), np.uint8)[1:].view(np.float64)]
    return np.ndarray.__basicsize__ > ARRAY_FLAGS and all(map(_is_array_as_expected, arrays))


def _is_array_as_expected(x: np.ndarray) -> bool:
    at, p, i64 = id(x), ctypes.c_void_p, ctypes.c_int64
    flags = _read(ctypes.c_int32, at + ARRAY_FLAGS)
    dims, strides = _read(p, at + ARRAY_DIMS), _read(p, at + ARRAY_STRIDES)
    if (_read(p, at + TYPE) != id(np.ndarray) or _read(p, at + ARRAY_DATA) != x.__array_interface__["data"][0]
            or _read(ctypes.c_int32, at + ARRAY_RANK) != x.ndim or _read(p, at + ARRAY_DTYPE) != id(x.dtype)
            or bool(flags & 0x0001) != x.flags.c_contiguous or bool(flags & 0x0100) != x.flags.aligned
            or bool(flags & 0x0004) != x.flags.owndata or bool(flags & 0x0400) != x.flags.writeable):
        return False
    if x.ndim == 0:
        return True
    if dims is None or strides != dims + 8 * x.ndim:  # NumPy keeps them together; so the pointers may be followed
        return False
    return (tuple(_read(i64, dims + 8 * k) for k in range(x.ndim)) == x.shape
            and tuple(_read(i64, strides + 8 * k) for k in range(x.ndim)) == x.strides)


def _try_scalars() -> bool:
    number, pair = 1.2345e-67, complex(-3.25, 7.5)
    if _read(ctypes.c_double, id(number) + FLOAT_VALUE) != number or _read(ctypes.c_void_p, id(number) + TYPE) != id(float):
        return False
    if [_read(ctypes.c_double, id(pair) + COMPLEX_VALUE + 8 * k) for k in (0, 1)] != [pair.real, pair.imag]:
        return False
    for dtype in DTYPES:
        array = np.array([3]).astype(dtype)
        scalar = array[0]
        if type(scalar) is not dtype.type or ctypes.string_at(id(scalar) + SCALAR_VALUE, dtype.itemsize) != array.tobytes():
            return False
    return True


def _try_containers() -> bool:
    first, second = object(), object()
    pair, pairs, text = (first, second), [first, second], b"\x01\x02"
    items = _read(ctypes.c_void_p, id(pairs) + LIST_ITEMS)
    return (_read(ctypes.c_int64, id(pair) + SIZE) == _read(ctypes.c_int64, id(pairs) + SIZE) == 2
            and all(_read(ctypes.c_void_p, id(pair) + TUPLE_ITEMS + 8 * k) == id(x) for k, x in enumerate(pair))
            and all(_read(ctypes.c_void_p, items + 8 * k) == id(x) for k, x in enumerate(pairs))
            and ctypes.string_at(id(text) + BYTES_DATA, 2) == text)


def _try_numpy_functions() -> bool:
    if _numpy_address("PyArray_Type") != id(np.ndarray):
        return False
    p, i, obj = ctypes.c_void_p, ctypes.c_int, ctypes.py_object
    new = ctypes.PYFUNCTYPE(obj, p, obj, i, p, p, p, i, p)(_numpy_address("PyArray_NewFromDescr"))
    scalar = ctypes.PYFUNCTYPE(obj, p, obj, p)(_numpy_address("PyArray_Scalar"))
    copy = ctypes.PYFUNCTYPE(obj, obj, i)(_numpy_address("PyArray_NewCopy"))
    from_array = ctypes.PYFUNCTYPE(obj, obj, obj, i)(_numpy_address("PyArray_FromArray"))
    keep = ctypes.PYFUNCTYPE(None, obj)(_function_address("Py_IncRef"))
    dtype, dims = np.dtype(np.float32), (ctypes.c_int64 * 2)(3, 5)
    keep(dtype)  # the call takes this reference
    made = new(id(np.ndarray), dtype, 2, ctypes.addressof(dims), None, None, 0, None)
    if type(made) is not np.ndarray or made.dtype is not dtype or made.shape != (3, 5) or not made.flags.c_contiguous:
        return False
    made[...] = np.arange(15).reshape(3, 5)
    keep(dtype)
    straight = from_array(made[:, ::-1], dtype, CONTIGUOUS_ALIGNED)
    number = scalar(made.ctypes.data + 8, dtype, None)
    return (np.array_equal(copy(made, 0), made) and straight.flags.c_contiguous and np.array_equal(straight, made[:, ::-1])
            and type(number) is np.float32 and number == 2)


def numpy_core() -> Any:
    """NumPy's package of compiled modules, which NumPy 2 renamed."""
    return np.core if np.__version__.startswith("1.") else np._core  # type: ignore[attr-defined]


@cache
def _numpy_table() -> int:
    pointer: Callable[..., int] = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]  # type: ignore[attr-defined]
    return pointer(numpy_core().multiarray._ARRAY_API, None)


def _numpy_address(name: str) -> int:
    return int(_read(ctypes.c_void_p, _numpy_table() + 8 * _NUMPY_SLOTS[name]))


def _function_address(name: str) -> int:
    return int(ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0)


def dtype_symbol(dtype: np.dtype) -> str:
    """The symbol of a dtype's singleton."""
    return f"lw_dtype_{SHORT[dtype]}"


def scalar_symbol(dtype: np.dtype) -> str:
    """The symbol of a dtype's scalar type."""
    return f"lw_scalar_{SHORT[dtype]}"


@cache
def _object_addresses() -> dict[str, int]:
    found = {name: id(x) for name, x in (*_TYPES.items(), *_SINGLETONS.items())}
    found |= {dtype_symbol(d): id(d) for d in DTYPES}
    return found | {scalar_symbol(d): id(d.type) for d in DTYPES}


@cache
def address(name: str) -> int:
    """The address of a Python or NumPy function, type or singleton by its symbol. AttributeError when there is none."""
    if name in _NUMPY_SLOTS:
        return _numpy_address(name)
    known = _object_addresses().get(name)
    return _function_address(name) if known is None else known
