"""Python functions called from compiled code.

    void @lw_call_python(ptr function, ptr table, ptr error)

`function` is a Python object, an `Invocation`; `table` are i64: the number of operands, that of results, then for each array
its dtype (by number), its rank, its address and its sizes. What the function raises becomes the error (-2, 0, 0, 0, type,
value, traceback), with the references of that exception.

Guarantees: takes Python's lock, whether or not the caller holds it; the function gets copies, and its results are checked
before they are copied to where compiled code reads them; no exception stays pending.
"""
from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from loopwright.ir.graph import Graph, Node
from loopwright.ir.ops.callbacks import checked, own
from loopwright.ir.types import DTYPES
from loopwright.lower.runtime import objects
from loopwright.lower.runtime.engine import Library, load
from loopwright.lower.runtime.lazy import assembled, digest
from loopwright.lower.runtime.once import once

PREFIX = "lw_python_"
_PYTHON = ("PyGILState_Ensure", "PyGILState_Release", "PyLong_FromVoidPtr", "PyObject_CallOneArg", "PyErr_Fetch", "Py_DecRef")
_TEXT = """
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare ptr @PyLong_FromVoidPtr(ptr)
declare ptr @PyObject_CallOneArg(ptr, ptr)
declare void @PyErr_Fetch(ptr, ptr, ptr)
declare void @Py_DecRef(ptr)
define void @lw_call_python(ptr %function, ptr %table, ptr %error) nounwind {
entry:
  %state = call i32 @PyGILState_Ensure()
  %where = call ptr @PyLong_FromVoidPtr(ptr %table)
  %none = icmp eq ptr %where, null
  br i1 %none, label %raised, label %call
call:
  %answer = call ptr @PyObject_CallOneArg(ptr %function, ptr %where)
  call void @Py_DecRef(ptr %where)
  %bad = icmp eq ptr %answer, null
  br i1 %bad, label %raised, label %fine
fine:
  call void @Py_DecRef(ptr %answer)
  br label %done
raised:
  %type = getelementptr i64, ptr %error, i64 4
  %value = getelementptr i64, ptr %error, i64 5
  %traceback = getelementptr i64, ptr %error, i64 6
  call void @PyErr_Fetch(ptr %type, ptr %value, ptr %traceback)
  store i64 -2, ptr %error
  br label %done
done:
  call void @PyGILState_Release(i32 %state)
  ret void
}
"""


@once
def library() -> Library:
    """The compiled function."""
    return load(assembled(_TEXT), {name: objects.address(name) for name in _PYTHON}, ("lw_call_python",))


def symbol_of(n: Node) -> str:
    """The symbol of the function that a node calls: the same in every process."""
    assert n.op.python is not None
    return PREFIX + digest(n.op.python(n)[0])[:32]


def functions(g: Graph) -> Iterator[tuple[str, Invocation]]:
    """The functions that a graph calls, at any depth, by symbol."""
    for n in g.nodes:
        if n.op.python is not None:
            yield symbol_of(n), Invocation(*n.op.python(n))
        for region in n.regions:
            yield from functions(region)


class Invocation:
    """Calls a function on the arrays of a table."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name, self.function = name, function

    def __call__(self, table: int) -> None:
        numbers = _Numbers(table)
        counts = numbers.next(), numbers.next()
        operands, results = ([_array(numbers) for _ in range(count)] for count in counts)
        found = self.function(*map(own, operands))
        if results:
            for x, out in zip(results, checked(found, [(x.shape, x.dtype) for x in results], self.name), strict=True):
                x[...] = out


class _Numbers:
    """Integers that lie one after the other."""

    def __init__(self, at: int) -> None:
        self.at = at

    def next(self) -> int:
        found = ctypes.c_int64.from_address(self.at).value
        self.at += 8
        return found


def _array(numbers: _Numbers) -> np.ndarray:
    """The next array of the table, where it lies."""
    dtype, rank, address = DTYPES[numbers.next()], numbers.next(), numbers.next()
    shape = tuple([numbers.next() for _ in range(rank)])
    count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    memory = memoryview((ctypes.c_char * count).from_address(address)) if count else b""
    return np.ndarray(shape, dtype, memory)
