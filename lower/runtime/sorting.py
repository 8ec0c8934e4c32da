"""Sorts of one row, for compiled code: NumPy's own sort functions where they pass, else our merge sort.

    void @lw_sort_<dtype>(ptr data, ptr temp, i64 n)                    in place; temp holds n elements
    void @lw_argsort_<dtype>(ptr keys, ptr data, ptr temp, i64 n)       data becomes the i64 positions; temp holds n of them
    void @lw_ranked_<dtype>(ptr row, ptr out, ptr ranks, ptr temp, i64 n, i64 m)   out becomes what stands at m i64 ranks
    void @lw_top_k_<dtype>(ptr keys, ptr out, ptr temp, i64 n, i64 k)   out becomes the i64 positions of the greatest, falling
    void @lw_sort_rows_<dtype>(ptr rows, ptr out, ptr temp, i64 count, i64 n)      the same of each of some rows, see
    ...                                                                            `kernels/networks.py`

Guarantees: ascending, NaN last, as `np.sort`; NumPy's function is used only for dtypes whose sort needs nothing but the
data, and after it sorted a row rightly.
"""
from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from functools import cache, partial

import numpy as np

from loopwright.ir.types import BF16, BY_SHORT, SHORT
from loopwright.kernels.networks import argsort_rows_text, ranked_rows_text, sort_rows_text, top_k_rows_text
from loopwright.kernels.orders import argsort_text
from loopwright.kernels.ranking import ranked_text
from loopwright.kernels.selecting import top_k_text
from loopwright.kernels.sorting import sort_text
from loopwright.lower.runtime.engine import Library, load
from loopwright.lower.runtime.lazy import assembled
from loopwright.lower.runtime.objects import address as object_address
from loopwright.lower.runtime.once import once

# PyArray_ArrFuncs begins with 21 casts and 12 other functions; then come the sorts, the default one first.
_DEFAULT_SORT = (21 + 12) * ctypes.sizeof(ctypes.c_void_p)
_Sort = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_void_p)


def address(name: str) -> int:
    """The address of one of these functions."""
    dtype = BY_SHORT[name.rsplit("_", 1)[1]]
    return FUNCTIONS[name.rpartition("_")[0]](dtype)[name]


@once
def _library(dtype: np.dtype) -> Library:
    name, text = sort_text(dtype)
    theirs = numpy_sort(dtype)
    if theirs is None:
        return load(assembled(text.replace("define internal ", "define ", 1)), {}, [name])
    shim = (f"declare i32 @numpy_sort(ptr, i64, ptr)\ndefine void @{name}(ptr %data, ptr %temp, i64 %n) nounwind {{\n"
            "  %unused = call i32 @numpy_sort(ptr %data, i64 %n, ptr null)\n  ret void\n}\n")
    return load(assembled(shim), {"numpy_sort": theirs}, [name])


@once
def _orders(dtype: np.dtype) -> Library:
    name, text = argsort_text(dtype)
    return load(assembled(text), {"lw_sort_i64": address("lw_sort_i64")}, [name])


@once
def _selections(dtype: np.dtype) -> Library:
    name, text = top_k_text(dtype)
    sort = f"lw_argsort_{SHORT[dtype]}"
    return load(assembled(text), {sort: address(sort)}, [name])


@once
def _ranks(dtype: np.dtype) -> Library:
    name, text = ranked_text(dtype)
    sort = f"lw_sort_{SHORT[dtype]}"
    return load(assembled(text), {sort: address(sort)}, [name])


@once
def _rows(text: Callable[[np.dtype], tuple[str, str]], one: str, dtype: np.dtype) -> Library:
    name, made = text(dtype)
    single = f"{one}_{SHORT[dtype]}"
    return load(assembled(made), {single: address(single)}, [name])


@cache
def numpy_sort(dtype: np.dtype) -> int | None:
    """The address of NumPy's sort of this dtype, tried on a row; None where it has none that stands alone."""
    if dtype == BF16:  # another package's dtype: sorted through comparisons of array elements
        return None
    functions = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)(object_address("_PyDataType_GetArrFuncs"))(dtype)
    found = ctypes.c_void_p.from_address(functions + _DEFAULT_SORT).value if functions else None
    return found if found and _sorts(_Sort(found), dtype) else None


def _sorts(sort: Callable[[int, int, None], int], dtype: np.dtype) -> bool:
    """Whether it sorts a long enough row with repeats, extremes and NaN as np.sort does."""
    row = (np.arange(1000) * 7919 % 1009 - 500).astype(dtype)
    if dtype.kind == "f":
        row[::97], row[5], row[6] = np.nan, np.inf, -np.inf
    wanted = np.sort(row)
    return sort(row.ctypes.data, row.size, None) == 0 and np.array_equal(row, wanted, equal_nan=dtype.kind == "f")


FUNCTIONS: Mapping[str, Callable[[np.dtype], Library]] = {
    "lw_sort": _library, "lw_argsort": _orders, "lw_top_k": _selections, "lw_ranked": _ranks,
    "lw_sort_rows": partial(_rows, sort_rows_text, "lw_sort"),
    "lw_argsort_rows": partial(_rows, argsort_rows_text, "lw_argsort"),
    "lw_ranked_rows": partial(_rows, ranked_rows_text, "lw_ranked"),
    "lw_top_k_rows": partial(_rows, top_k_rows_text, "lw_top_k")}
