"""Discrete Fourier transforms for compiled code, by the loops of NumPy's own; t is f32 or f64.

    void @lw_fft_t(ptr args, ptr dims, ptr steps)        forward, complex to complex
    void @lw_ifft_t(ptr args, ptr dims, ptr steps)       the other direction
    void @lw_rfft_t(ptr args, ptr dims, ptr steps)       forward, real to complex
    void @lw_irfft_t(ptr args, ptr dims, ptr steps)      the other direction, complex to real
    i32  @lw_raised(i32 status, ptr error)               after the last of them; see below

args: input, factor (one real number), output; dims: rows, points of a row that are read, that are written; steps in bytes:
from row to row of the input, the factor (0) and the output, from point to point of the input and of the output.

Guarantees: the loops need no lock of Python's, as NumPy calls them without it; they are used only after each transformed
rows rightly. Where memory is short a loop leaves MemoryError pending in its thread: `lw_raised` answers 3, with the
exception as the error (see `signals.py`), if there is one, else the status that it is given.
"""
from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np

from loopwright.ir.types import BY_SHORT, C64, C128
from loopwright.lower.runtime import objects
from loopwright.lower.runtime.engine import Library, load
from loopwright.lower.runtime.lazy import assembled
from loopwright.lower.runtime.once import once

KINDS = ("fft", "ifft", "rfft", "irfft")
NAMES = frozenset(f"lw_{kind}_{t}" for kind in KINDS for t in ("f32", "f64"))
RAISED = "lw_raised"
_PYTHON = ("PyGILState_Ensure", "PyGILState_Release", "PyErr_Occurred", "PyErr_Fetch")
# PyUFuncObject, which NumPy's headers publish.
_COUNTS, _FUNCTIONS, _DATA, _TYPE_COUNT, _TYPE_NUMBERS = 16, 32, 40, 48, 64
_POINTER = ctypes.sizeof(ctypes.c_void_p)


def address(name: str) -> int | None:
    """The address of one of these functions; None where NumPy's loops are not found."""
    if name == RAISED:
        return _raised()[name]
    return _library(name.rpartition("_")[2])[name] if available() else None


@cache
def available() -> bool:
    """Whether compiled code can transform: NumPy's loops are where its headers say, and do what np.fft does."""
    return all(_found(t) is not None and _transforms(t) for t in ("f32", "f64"))


# ---- NumPy's loops --------------------------------------------------------------------------------
def _found(t: str) -> dict[str, tuple[int, int]] | None:
    """The address of each loop for parts of this dtype, and of the data that it is given."""
    real, pair = BY_SHORT[t], C64 if t == "f32" else C128
    signatures = {"fft": (pair, real, pair), "ifft": (pair, real, pair), "rfft_n_even": (real, real, pair),
                  "rfft_n_odd": (real, real, pair), "irfft": (pair, real, real)}
    module = getattr(np.fft, "_pocketfft_umath", None)
    found = {name: _loop(getattr(module, name, None), dtypes) for name, dtypes in signatures.items()}
    known = {name: loop for name, loop in found.items() if loop is not None}
    return known if len(known) == len(signatures) else None


def _loop(ufunc: Any, dtypes: tuple[np.dtype, ...]) -> tuple[int, int] | None:
    """A ufunc's inner loop for these dtypes. Pointers are followed once the numbers beside them are the ufunc's own."""
    if objects.unsupported() is not None or not isinstance(ufunc, np.ufunc):
        return None
    at = id(ufunc)
    counts = [ctypes.c_int.from_address(at + _COUNTS + 4 * k).value for k in range(3)]
    number = ctypes.c_int.from_address(at + _TYPE_COUNT).value
    if counts != [ufunc.nin, ufunc.nout, ufunc.nargs] or number != ufunc.ntypes:
        return None
    types = ctypes.string_at(ctypes.c_void_p.from_address(at + _TYPE_NUMBERS).value or 0, ufunc.nargs * number)
    wanted = bytes(d.num for d in dtypes)
    rows = [types[k:k + ufunc.nargs] for k in range(0, len(types), ufunc.nargs)]
    if wanted not in rows:
        return None
    functions, data = (ctypes.c_void_p.from_address(at + offset).value for offset in (_FUNCTIONS, _DATA))
    place = _POINTER * rows.index(wanted)
    function = ctypes.c_void_p.from_address(functions + place).value if functions else None
    given = ctypes.c_void_p.from_address(data + place).value if data else None
    return (function, given or 0) if function else None


@once
def _library(t: str) -> Library:
    found = _found(t)
    assert found is not None
    where = {f"loop_{name}": at for name, (at, _) in found.items()}
    where |= {f"data_{name}": at for name, (_, at) in found.items() if at}
    return load(assembled(_text(t, found)), where, [f"lw_{kind}_{t}" for kind in KINDS])


def _text(t: str, found: dict[str, tuple[int, int]]) -> str:
    def call(name: str) -> str:
        data = f"@data_{name}" if found[name][1] else "null"
        return f"call void @loop_{name}(ptr %args, ptr %dims, ptr %steps, ptr {data})"

    declared = [f"declare void @loop_{name}(ptr, ptr, ptr, ptr)" for name in found]
    declared += [f"@data_{name} = external global i8" for name, (_, data) in found.items() if data]
    direct = [f"""
define void @lw_{kind}_{t}(ptr %args, ptr %dims, ptr %steps) nounwind {{
  {call(kind)}
  ret void
}}""" for kind in KINDS if kind != "rfft"]
    return "\n".join((*declared, *direct, f"""
define void @lw_rfft_{t}(ptr %args, ptr %dims, ptr %steps) nounwind {{
  %read = getelementptr i64, ptr %dims, i64 1
  %n = load i64, ptr %read
  %odd = trunc i64 %n to i1
  br i1 %odd, label %is.odd, label %is.even
is.odd:
  {call("rfft_n_odd")}
  ret void
is.even:
  {call("rfft_n_even")}
  ret void
}}"""))


def _transforms(t: str) -> bool:
    """Whether each loop does to some rows what NumPy's function does: dims, steps and data are then as this module says."""
    real, pair = BY_SHORT[t], C64 if t == "f32" else C128
    for n in (5, 6):
        x = (np.arange(9 * n).reshape(9, n) * 7 % 11).astype(real)
        z = x.astype(pair)
        wanted = {"fft": (z, np.fft.fft(z)), "ifft": (z, np.fft.ifft(z)), "rfft": (x, np.fft.rfft(x)),
                  "irfft": (z[:, :n // 2 + 1], np.fft.irfft(z, n))}
        for kind, (given, want) in wanted.items():
            got = np.full_like(want, np.nan)
            _run(f"lw_{kind}_{t}", given, 1 / n if kind.startswith("i") else 1.0, got)
            if not np.allclose(got, want, atol=1e-4):
                return False
    return True


def _run(name: str, given: np.ndarray, factor: float, out: np.ndarray) -> None:
    """A transform of the rows of a matrix."""
    real = given.real.dtype
    scale = np.array([factor], real)
    args = (ctypes.c_void_p * 3)(given.ctypes.data, scale.ctypes.data, out.ctypes.data)
    dims = (ctypes.c_int64 * 3)(len(given), given.shape[1], out.shape[1])
    steps = (ctypes.c_int64 * 5)(given.strides[0], 0, out.strides[0], given.strides[1], out.strides[1])
    ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(_library(name.rpartition("_")[2])[name])(args, dims, steps)


# ---- exceptions -----------------------------------------------------------------------------------
@once
def _raised() -> Library:
    where = {name: objects.address(name) for name in _PYTHON}
    return load(assembled(_RAISED_TEXT), where, (RAISED,))


_RAISED_TEXT = """
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare ptr @PyErr_Occurred()
declare void @PyErr_Fetch(ptr, ptr, ptr)
define i32 @lw_raised(i32 %status, ptr %error) nounwind {
  %state = call i32 @PyGILState_Ensure()
  %pending = call ptr @PyErr_Occurred()
  %calm = icmp eq ptr %pending, null
  br i1 %calm, label %leave, label %fetch
fetch:
  %type = getelementptr i64, ptr %error, i64 4
  %value = getelementptr i64, ptr %error, i64 5
  %traceback = getelementptr i64, ptr %error, i64 6
  call void @PyErr_Fetch(ptr %type, ptr %value, ptr %traceback)
  store i64 -2, ptr %error
  br label %leave
leave:
  %answer = phi i32 [ %status, %0 ], [ 3, %fetch ]
  call void @PyGILState_Release(i32 %state)
  ret i32 %answer
}
"""
