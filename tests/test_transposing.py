"""Square matrices in registers: columns of rows, bit for bit, for every shape of vectors that programs use."""
from __future__ import annotations

import ctypes

import numpy as np
import pytest

from loopwright.lower.codegen.machine import ATTRIBUTES
from loopwright.lower.codegen.text import Function
from loopwright.lower.codegen.transposing import transposed
from loopwright.lower.runtime import engine

KINDS = {"float": np.float32, "double": np.float64, "i8": np.uint8, "i16": np.uint16, "i32": np.uint32, "i64": np.uint64,
         "half": np.float16}


def turned(element: str, lanes: int, count: int):
    """A function of two addresses that transposes the squares side by side in so many rows."""
    function, kind = Function(set(), set()), f"<{lanes} x {element}>"
    root = function.root
    places = {name: [root.emit(f"getelementptr {kind}, ptr %{name}, i64 {k}") for k in range(count)] for name in ("from", "to")}
    rows = [root.emit(f"load {kind}, ptr {place}, align 1") for place in places["from"]]
    for column, place in zip(transposed(root, kind, rows), places["to"], strict=True):
        root.do(f"store {kind} {column}, ptr {place}, align 1")
    text = f"define void @turned(ptr %to, ptr %from) {ATTRIBUTES} {{\n{function.body()}\n  ret void\n}}"
    return engine.load(engine.assemble("\n".join((*sorted(function.declarations), text))), {}, ["turned"])


@pytest.mark.parametrize("element", KINDS)
@pytest.mark.parametrize(("lanes", "count"), [(2, 2), (4, 4), (8, 8), (16, 16), (16, 8), (16, 4), (8, 4), (8, 2)])
def test_columns_of_rows(element, lanes, count):
    dtype = np.dtype(KINDS[element])
    rows = np.random.default_rng(lanes).integers(0, 256, (count, lanes * dtype.itemsize), np.uint8).view(dtype)
    columns = np.empty_like(rows)
    library = turned(element, lanes, count)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(library["turned"])(columns.ctypes.data, rows.ctypes.data)
    squares = rows.reshape(count, lanes // count, count)
    assert columns.tobytes() == np.ascontiguousarray(squares.transpose(2, 1, 0)).tobytes()
