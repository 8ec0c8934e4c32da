"""The callable that `jit` returns, and how it finds the compiled version for a call.

`NativeFunction` is a heap type with vectorcall. A call tries the versions of its table in turn, in compiled code; when
all pass on the call, `slow(*args, **kwargs)` answers. Where generated code cannot read this interpreter's objects,
the same tries run in Python (`__call__`).

Guarantees: publishing versions is atomic; a table, and the code in it, outlives every call that reads it; cycles
through `slow`, the table and the instance's dict are collected; CPython's own slots do the memory management.
"""
from __future__ import annotations

import ctypes
from collections.abc import Sequence
from types import MethodType
from typing import Any, Protocol

from loopwright.ir.tracebacks import user_frames
from loopwright.lower.runtime import objects
from loopwright.lower.runtime.dispatch_text import MISS_VALUE
from loopwright.lower.runtime.engine import Library, load
from loopwright.lower.runtime.fallback import Miss
from loopwright.lower.runtime.lazy import assembled
from loopwright.lower.runtime.once import once


class CallableVersion(Protocol):
    """What a function needs of a compiled version."""

    @property
    def library(self) -> Library: ...

    @property
    def dispatch(self) -> int | None:
        """The address of its dispatch function; None where calls go through Python."""

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Its answer, or Miss."""


class _Callable:
    """What `NativeFunction` is in Python: used until the first version comes, and where there is no native dispatch."""

    __slots__ = ("published",)
    published: tuple[CallableVersion, ...]
    slow: Any
    table: tuple[Any, ...]

    def __init__(self) -> None:
        self.published = ()

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if self.published and not self.table[1]:
            for version in self.published:
                try:
                    return version.call(args, kwargs)
                except Miss:
                    continue
        with user_frames():
            return self.slow(*args, **kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self, instance)


class _Member(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("type", ctypes.c_int), ("offset", ctypes.c_ssize_t), ("flags", ctypes.c_int),
                ("doc", ctypes.c_char_p)]


class _GetSet(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("get", ctypes.c_void_p), ("set", ctypes.c_void_p), ("doc", ctypes.c_char_p),
                ("closure", ctypes.c_void_p)]


class _Slot(ctypes.Structure):
    _fields_ = [("slot", ctypes.c_int), ("function", ctypes.c_void_p)]


class _Spec(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("basicsize", ctypes.c_int), ("itemsize", ctypes.c_int), ("flags", ctypes.c_uint),
                ("slots", ctypes.POINTER(_Slot))]


_VECTORCALL, _SLOW, _TABLE, _DICT, _WEAKREFS, _END = (_Callable.__basicsize__ + 8 * k for k in range(6))
_OBJECT, _OFFSET, _READ_ONLY = 16, 19, 1  # member types: an owned reference, a Py_ssize_t
_SLOT_MEMBERS, _SLOT_GETSET = 72, 73
_BASE_TYPE, _HAS_VECTORCALL, _METHOD_DESCRIPTOR = 1 << 10, 1 << 11, 1 << 17


def _native_type() -> type[_Callable]:
    """The heap type. Its references are plain slots, so that CPython's own traverse, clear and dealloc serve."""
    def function(name: str) -> int | None:
        return ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value

    members = (_Member * 6)(_Member(b"__vectorcalloffset__", _OFFSET, _VECTORCALL, _READ_ONLY, None),
                            _Member(b"slow", _OBJECT, _SLOW, 0, b"answers the calls that no version fits"),
                            _Member(b"table", _OBJECT, _TABLE, 0, b"what the compiled call reads"),
                            _Member(b"__dictoffset__", _OFFSET, _DICT, _READ_ONLY, None),
                            _Member(b"__weaklistoffset__", _OFFSET, _WEAKREFS, _READ_ONLY, None))
    get, set = function("PyObject_GenericGetDict"), function("PyObject_GenericSetDict")
    getset = (_GetSet * 2)(_GetSet(b"__dict__", get, set, None, None))
    slots = (_Slot * 3)(_Slot(_SLOT_MEMBERS, ctypes.addressof(members)), _Slot(_SLOT_GETSET, ctypes.addressof(getset)))
    spec = _Spec(b"loopwright.NativeFunction", _END, 0, _BASE_TYPE | _HAS_VECTORCALL | _METHOD_DESCRIPTOR, slots)
    prototype = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object)
    from_spec = prototype(("PyType_FromSpecWithBases", ctypes.pythonapi))
    made: type[_Callable] = from_spec(ctypes.addressof(spec), (_Callable,))
    _kept.append((members, getset, slots, spec))  # CPython points into them for as long as the type lives
    return made


_kept: list[Any] = []
NativeFunction = _native_type()


def set_versions(function: Any, versions: Sequence[CallableVersion], busy: list[Any] | None = None) -> None:
    """Publish these versions, tried in this order. A call that is running goes on with the table it began with.

    busy: while this list holds anything, every call goes to `slow`.
    """
    function.table = make_table(versions, [] if busy is None else busy)
    function.published = tuple(versions)
    addresses = [v.dispatch for v in versions]
    if None not in addresses:
        ctypes.c_void_p.from_address(id(function) + _VECTORCALL).value = _call_address()
    else:
        ctypes.c_void_p.from_address(id(function) + _VECTORCALL).value = None  # CPython then uses __call__


def make_table(versions: Sequence[CallableVersion], busy: list[Any]) -> tuple[Any, ...]:
    """One object with the addresses of the dispatch functions, the list `busy`, and all that keeps the code in memory."""
    addresses = b"".join((v.dispatch or 0).to_bytes(8, "little") for v in versions)
    return addresses, busy, *(v.library for v in versions)


@once
def _call_library() -> Library:
    where = {name: objects.address(name) for name in _FUNCTIONS}
    return load(assembled(_call_text()), where, ["call"])


def _call_address() -> int:
    return _call_library()["call"]


_FUNCTIONS = ("Py_IncRef", "Py_DecRef", "PyObject_Vectorcall", "PyErr_BadInternalCall")


def _call_text() -> str:
    """`ptr @call(self, args, count, names)`: vectorcall over the table, a tuple of ours whose references are counted here."""
    return f"""
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare void @PyErr_BadInternalCall()
define ptr @call(ptr %self, ptr %args, i64 %count, ptr %names) nounwind {{
  %table.at = getelementptr i8, ptr %self, i64 {_TABLE}
  %table = load ptr, ptr %table.at
  %none = icmp eq ptr %table, null
  br i1 %none, label %slow, label %look
look:
  %count.before = load i32, ptr %table
  %count.now = add i32 %count.before, 1
  store i32 %count.now, ptr %table
  %busy.at = getelementptr i8, ptr %table, i64 {objects.TUPLE_ITEMS + 8}
  %busy = load ptr, ptr %busy.at
  %length.at = getelementptr i8, ptr %busy, i64 {objects.SIZE}
  %length = load i64, ptr %length.at
  %idle = icmp eq i64 %length, 0
  br i1 %idle, label %start, label %missed
start:
  %bytes.at = getelementptr i8, ptr %table, i64 {objects.TUPLE_ITEMS}
  %bytes = load ptr, ptr %bytes.at
  %size.at = getelementptr i8, ptr %bytes, i64 {objects.SIZE}
  %size = load i64, ptr %size.at
  %first = getelementptr i8, ptr %bytes, i64 {objects.BYTES_DATA}
  %end = getelementptr i8, ptr %first, i64 %size
  br label %more
more:
  %at = phi ptr [ %first, %start ], [ %next, %try ]
  %exhausted = icmp eq ptr %at, %end
  br i1 %exhausted, label %missed, label %try
try:
  %version = load ptr, ptr %at
  %next = getelementptr i8, ptr %at, i64 8
  %answer = call ptr %version(ptr %args, i64 %count, ptr %names)
  %miss = icmp eq ptr %answer, {MISS_VALUE}
  br i1 %miss, label %more, label %answered
answered:
  %held = load i32, ptr %table
  %is.last = icmp eq i32 %held, 1
  br i1 %is.last, label %drop, label %leave
leave:
  %fewer = sub i32 %held, 1
  store i32 %fewer, ptr %table
  ret ptr %answer
drop:
  call void @Py_DecRef(ptr %table)
  ret ptr %answer
missed:
  call void @Py_DecRef(ptr %table)
  br label %slow
slow:
  %slow.at = getelementptr i8, ptr %self, i64 {_SLOW}
  %function = load ptr, ptr %slow.at
  %unset = icmp eq ptr %function, null
  br i1 %unset, label %bad, label %python
python:
  call void @Py_IncRef(ptr %function)
  %result = call ptr @PyObject_Vectorcall(ptr %function, ptr %args, i64 %count, ptr %names)
  call void @Py_DecRef(ptr %function)
  ret ptr %result
bad:
  call void @PyErr_BadInternalCall()
  ret ptr null
}}
"""
