"""Matrix products by the BLAS that is already there, found by a probed list.

    void @lw_gemm_f32(i32 ta, i32 tb, i64 m, i64 n, i64 k, ptr a, i64 lda, ptr b, i64 ldb, ptr c, i64 ldc, i32 most)
    void @lw_gemm_f64(...)                       row-major C = op(A) op(B), by at most so many threads of the library

Guarantees: a library is used only after it multiplied a small matrix rightly; sizes of zero, and sizes beyond a
32-bit interface, are computed here; what C held before does not matter. A matrix of one row or column goes to the library's
product of a matrix and a vector, where that passed, too: general products are two to four times slower there. A library has
no more threads than were chosen for us: see blas_threads.py.
"""
from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from loopwright.ir.dataclass import dataclass
from loopwright.lower.runtime.blas_threads import EXPORTS, MOST, blas_threads_text
from loopwright.lower.runtime.engine import Library, load
from loopwright.lower.runtime.lazy import assembled
from loopwright.lower.runtime.objects import numpy_core
from loopwright.lower.runtime.once import once
from loopwright.lower.runtime.threads import chosen

VARIABLE = "LOOPWRIGHT_BLAS"
_PARAMETERS = "i32 %ta, i32 %tb, i64 %m, i64 %n, i64 %k, ptr %a, i64 %lda, ptr %b, i64 %ldb, ptr %c, i64 %ldc, i32 %most"
BRIEF = 1 << 12  # multiplications, for fewer of which OpenBLAS never has several threads
_ROW_MAJOR, _PLAIN, _TRANSPOSED = 101, 111, 112
# Names of sgemm and dgemm, and the bits of the integers they take.
_SPELLINGS = (("scipy_cblas_{}gemm64_", 64), ("cblas_{}gemm64_", 64), ("cblas_{}gemm$NEWLAPACK$ILP64", 64),
              ("scipy_cblas_{}gemm", 32), ("cblas_{}gemm", 32))


@dataclass(frozen=True)
class Blas:
    """A library that passed: where it is, the functions' addresses, the bits of its integers; products with vectors are 0 where
    it has none that passed, and so is what says how many threads it has. It never has more than most_threads."""

    path: str
    sgemm: int
    dgemm: int
    bits: int
    sgemv: int = 0
    dgemv: int = 0
    get_threads: int = 0
    set_threads: int = 0
    most_threads: int = MOST


def available() -> bool:
    """Whether `lw_gemm_f32` and `lw_gemm_f64` exist."""
    return found() is not None


def found() -> Blas | None:
    """The library in use. LOOPWRIGHT_BLAS is a path, or `none`; without it NumPy's and SciPy's own are tried."""
    return _find(os.environ.get(VARIABLE, ""))


@cache
def _find(chosen: str) -> Blas | None:
    if chosen == "none":
        return None
    for path in [chosen] if chosen else _candidates():
        blas = _probe(path)
        if blas is not None:
            return blas
    if chosen:
        raise OSError(f"{VARIABLE}={chosen}: no library there that has a working cblas_sgemm and cblas_dgemm")
    return None


def _candidates() -> Iterator[str]:
    """Wheels carry OpenBLAS beside the package; other builds of NumPy link a system BLAS."""
    for package in ("numpy", "scipy"):
        spec = find_spec(package)
        for folder in map(Path, spec.submodule_search_locations or () if spec else ()):
            for place in (folder.parent / f"{package}.libs", folder / ".dylibs", folder / ".libs"):
                yield from map(str, sorted(place.glob("*openblas*")))
    yield numpy_core()._multiarray_umath.__file__


def _probe(path: str) -> Blas | None:
    try:
        library = ctypes.CDLL(path)
    except OSError:  # not a library for this machine: the next candidate may be
        return None
    for spelling, bits in _SPELLINGS:
        single, double = (getattr(library, spelling.format(kind), None) for kind in "sd")
        if single and double and _multiplies(single, bits, np.float32) and _multiplies(double, bits, np.float64):
            vectors = [getattr(library, spelling.replace("gemm", "gemv").format(kind), None) for kind in "sd"]
            if not all(f and _applies(f, bits, dtype) for f, dtype in zip(vectors, (np.float32, np.float64), strict=True)):
                vectors = [None, None]
            counts = [_of_threads(library, spelling, name) for name in ("get_num_threads", "set_num_threads")]
            where = [ctypes.cast(f, ctypes.c_void_p).value or 0 if f else 0 for f in (single, double, *vectors, *counts)]
            most = _most_threads(library, spelling)
            return Blas(path, where[0], where[1], bits, where[2], where[3], where[4], where[5], most)
    return None


def _of_threads(library: ctypes.CDLL, spelling: str, name: str) -> Any:
    """A function of OpenBLAS by its name: spelled as its products are, or plainly."""
    spelled = spelling.replace("cblas_{}gemm", f"openblas_{name}")
    return getattr(library, spelled, None) or getattr(library, f"openblas_{name}", None)


def _most_threads(library: ctypes.CDLL, spelling: str) -> int:
    """What OpenBLAS was built for."""
    config = _of_threads(library, spelling, "get_config")
    if config is None:
        return MOST
    config.restype = ctypes.c_char_p
    found = re.search(rb"MAX_THREADS=(\d+)", config() or b"")
    return int(found[1]) if found else MOST


def _multiplies(function: Any, bits: int, dtype: type) -> bool:
    a: np.ndarray = np.arange(6, dtype=dtype).reshape(2, 3)
    b: np.ndarray = np.arange(12, dtype=dtype).reshape(4, 3)
    c: np.ndarray = np.full((2, 4), np.nan, dtype)
    real = ctypes.c_float if dtype is np.float32 else ctypes.c_double
    size = ctypes.c_int64 if bits == 64 else ctypes.c_int32
    function.restype = None
    function(ctypes.c_int(_ROW_MAJOR), ctypes.c_int(_PLAIN), ctypes.c_int(_TRANSPOSED), size(2), size(4), size(3), real(1),
             ctypes.c_void_p(a.ctypes.data), size(3), ctypes.c_void_p(b.ctypes.data), size(3), real(0),
             ctypes.c_void_p(c.ctypes.data), size(4))
    return np.array_equal(c, a @ b.T)


def _applies(function: Any, bits: int, dtype: type) -> bool:
    """Whether a product with a vector is right and does not mind what was there."""
    a: np.ndarray = np.arange(6, dtype=dtype).reshape(2, 3)
    x: np.ndarray = np.arange(6, dtype=dtype)[::2]
    y: np.ndarray = np.full(2, np.nan, dtype)
    real = ctypes.c_float if dtype is np.float32 else ctypes.c_double
    size = ctypes.c_int64 if bits == 64 else ctypes.c_int32
    function.restype = None
    function(ctypes.c_int(_ROW_MAJOR), ctypes.c_int(_PLAIN), size(2), size(3), real(1), ctypes.c_void_p(a.ctypes.data), size(3),
             ctypes.c_void_p(x.ctypes.data), size(2), real(0), ctypes.c_void_p(y.ctypes.data), size(1))
    return np.array_equal(y, a @ x)


def address(name: str) -> int | None:
    """The address of `lw_gemm_f32` or `lw_gemm_f64`; None when there is no BLAS."""
    blas = found()
    return None if blas is None else library(blas)[name]


def limit_threads() -> None:
    """Let the library in use have no more threads than are chosen now while it computes for us."""
    if library.is_made and (blas := found()) is not None:
        _limit(library(blas))


def _limit(loaded: Library) -> None:
    count = chosen()
    ctypes.CFUNCTYPE(None, ctypes.c_int32)(loaded["lw_blas_limit"])(MOST if count is None else min(count, MOST))


@once
def library(blas: Blas) -> Library:
    """The compiled functions, over a library, with those of `blas_threads.py`."""
    known = {"blas_f32": blas.sgemm, "blas_f64": blas.dgemm}
    if blas.sgemv and blas.dgemv:
        known |= {"vector_f32": blas.sgemv, "vector_f64": blas.dgemv}
    is_known = bool(blas.get_threads and blas.set_threads)
    if is_known:
        known |= {"blas_get_threads": blas.get_threads, "blas_set_threads": blas.set_threads}
    kinds = (("f32", "float"), ("f64", "double"))
    texts = [_text(name, real, blas.bits, f"vector_{name}" in known) for name, real in kinds]
    loaded = load(assembled("\n".join([blas_threads_text(is_known), *texts])), known, ["lw_gemm_f32", "lw_gemm_f64", *EXPORTS])
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=ctypes.CFUNCTYPE(None)(loaded["lw_blas_reset"]))
    _limit(loaded)
    return loaded


def _vectors(suffix: str, real: str, bits: int, size: dict[str, str]) -> str:
    """The part of a shim for one column, or one row: its transpose is the other side's times a column."""
    def call(name: str, trans: str, matrix: str, lead: str, vector: str, step: str, result: str) -> str:
        return f"""
  %{name}.rows = select i1 %{trans}.set, i{bits} %k.size, i{bits} {result}
  %{name}.columns = select i1 %{trans}.set, i{bits} {result}, i{bits} %k.size
  %{name}.trans = select i1 %{trans}.set, i32 {_TRANSPOSED}, i32 {_PLAIN}
  call void @vector_{suffix}(i32 {_ROW_MAJOR}, i32 %{name}.trans, i{bits} %{name}.rows, i{bits} %{name}.columns, {real} 1.0, \
ptr %{matrix}, {lead}, ptr %{vector}, i{bits} {step}, {real} 0.0, ptr %c, """
    m, n, k, lda, ldb, ldc = (size[s].split()[1] for s in ("m", "n", "k", "lda", "ldb", "ldc"))
    return f"""  %k.size = add i{bits} {k}, 0
  %one.column = icmp eq i64 %n, 1
  br i1 %one.column, label %column, label %several
column:
  %b.step = select i1 %tb.set, i{bits} 1, i{bits} {ldb}{call("column", "ta", "a", size["lda"], "b", "%b.step", m)}i{bits} {ldc})
  br label %made
several:
  %one.row = icmp eq i64 %m, 1
  br i1 %one.row, label %row, label %matrices
row:
  %not.set = xor i1 %tb.set, true
  %a.step = select i1 %ta.set, i{bits} {lda}, i{bits} 1{call("row", "not", "b", size["ldb"], "a", "%a.step", n)}i{bits} 1)
  br label %made
matrices:
"""


def _text(suffix: str, real: str, bits: int, vectors: bool) -> str:
    """One shim; what the library cannot be asked is computed here."""
    sizes = ("m", "n", "k", "lda", "ldb", "ldc")
    largest = "9223372036854775807" if bits == 64 else "2147483647"
    highest = "".join(f"  %top{i + 1} = call i64 @llvm.smax.i64(i64 %top{i}, i64 %{s})\n" for i, s in enumerate(sizes))
    narrow = "" if bits == 64 else "".join(f"  %{s}.small = trunc i64 %{s} to i32\n" for s in sizes)
    size = {s: f"i{bits} %{s}" if bits == 64 else f"i{bits} %{s}.small" for s in sizes}
    types = f"i32, i32, i32, i{bits}, i{bits}, i{bits}, {real}, ptr, i{bits}, ptr, i{bits}, {real}, ptr, i{bits}"
    arguments = (f"i32 {_ROW_MAJOR}, i32 %ta.name, i32 %tb.name, {size['m']}, {size['n']}, {size['k']}, {real} 1.0, "
                 f"ptr %a, {size['lda']}, ptr %b, {size['ldb']}, {real} 0.0, ptr %c, {size['ldc']}")
    declare = "declare i64 @llvm.smax.i64(i64, i64)\n" if suffix == "f32" else ""
    if vectors:
        declare += f"declare void @vector_{suffix}(i32, i32, i{bits}, i{bits}, {real}, ptr, i{bits}, ptr, i{bits}, {real}, " \
            f"ptr, i{bits})\n"
    return f"""
{declare}declare void @blas_{suffix}({types})
define void @lw_gemm_{suffix}({_PARAMETERS}) nounwind {{
entry:
  %rows = icmp sgt i64 %m, 0
  %columns = icmp sgt i64 %n, 0
  %any = and i1 %rows, %columns
  br i1 %any, label %measure, label %out
measure:
  %deep = icmp sgt i64 %k, 0
  %top0 = add i64 0, 0
{highest}  %small = icmp sle i64 %top{len(sizes)}, {largest}
  %fits = and i1 %deep, %small
  br i1 %fits, label %library, label %plain
library:
  %ta.set = icmp ne i32 %ta, 0
  %tb.set = icmp ne i32 %tb, 0
  %ta.name = select i1 %ta.set, i32 {_TRANSPOSED}, i32 {_PLAIN}
  %tb.name = select i1 %tb.set, i32 {_TRANSPOSED}, i32 {_PLAIN}
{narrow}  %elements = mul i64 %m, %n
  %work = mul i64 %elements, %k
  %brief = icmp slt i64 %work, {BRIEF}
  br i1 %brief, label %call, label %enter
enter:
  call void @lw_blas_enter(i32 %most)
  br label %call
call:
{_vectors(suffix, real, bits, size) if vectors else ""}  call void @blas_{suffix}({arguments})
  br label %made
made:
  br i1 %brief, label %out, label %leave
leave:
  call void @lw_blas_leave()
  br label %out
plain:
  call void @plain_{suffix}({_PARAMETERS})
  br label %out
out:
  ret void
}}
{_plain_text(suffix, real)}"""


def _plain_text(suffix: str, real: str) -> str:
    """Three loops."""
    return f"""define internal void @plain_{suffix}({_PARAMETERS}) nounwind {{
entry:
  %ta.set = icmp ne i32 %ta, 0
  %tb.set = icmp ne i32 %tb, 0
  %a.i = select i1 %ta.set, i64 1, i64 %lda
  %a.p = select i1 %ta.set, i64 %lda, i64 1
  %b.p = select i1 %tb.set, i64 1, i64 %ldb
  %b.j = select i1 %tb.set, i64 %ldb, i64 1
  br label %row
row:
  %i = phi i64 [ 0, %entry ], [ %i.next, %row.end ]
  %i.at = mul i64 %i, %a.i
  %a.row = getelementptr {real}, ptr %a, i64 %i.at
  %c.offset = mul i64 %i, %ldc
  %c.row = getelementptr {real}, ptr %c, i64 %c.offset
  br label %column
column:
  %j = phi i64 [ 0, %row ], [ %j.next, %column.end ]
  %j.at = mul i64 %j, %b.j
  %b.column = getelementptr {real}, ptr %b, i64 %j.at
  br label %term
term:
  %p = phi i64 [ 0, %column ], [ %p.next, %add ]
  %sum = phi {real} [ 0.0, %column ], [ %sum.next, %add ]
  %more = icmp slt i64 %p, %k
  br i1 %more, label %add, label %column.end
add:
  %a.offset = mul i64 %p, %a.p
  %b.offset = mul i64 %p, %b.p
  %a.at = getelementptr {real}, ptr %a.row, i64 %a.offset
  %b.at = getelementptr {real}, ptr %b.column, i64 %b.offset
  %x = load {real}, ptr %a.at
  %y = load {real}, ptr %b.at
  %xy = fmul {real} %x, %y
  %sum.next = fadd {real} %sum, %xy
  %p.next = add i64 %p, 1
  br label %term
column.end:
  %c.at = getelementptr {real}, ptr %c.row, i64 %j
  store {real} %sum, ptr %c.at
  %j.next = add i64 %j, 1
  %j.more = icmp slt i64 %j.next, %n
  br i1 %j.more, label %column, label %row.end
row.end:
  %i.next = add i64 %i, 1
  %i.more = icmp slt i64 %i.next, %m
  br i1 %i.more, label %row, label %done
done:
  ret void
}}
"""
