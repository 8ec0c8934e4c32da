"""New arrays for large results, in memory that earlier results left.

    ptr @lw_new_array(...)      what NumPy's PyArray_NewFromDescr does, with its arguments; for LARGE bytes and more

Guarantees: the arrays own their memory, like any of NumPy's; it comes from and goes back to the blocks of
`scratch` (64-byte aligned, kept up to its limit), through NumPy's own hook for allocators. A program that set an allocator of
its own has that one. Without this, the system clears the pages of results beyond 32 MB at every call, and those of smaller ones
where several are given up at once, which can take longer than to compute them.
"""
from __future__ import annotations

import ctypes

from loopwright.lower.runtime import objects, scratch
from loopwright.lower.runtime.engine import Library, load
from loopwright.lower.runtime.lazy import assembled
from loopwright.lower.runtime.once import once

LARGE = 1 << 16  # bytes; choosing an allocator takes 0.1 us
_NEEDED = ("PyArray_NewFromDescr", "PyDataMem_SetHandler", "PyDataMem_DefaultHandler", "Py_DecRef")
_MEMORY = ("lw_result_acquire", "lw_result_resize", "lw_scratch_release")
_EXPORTS = ("lw_new_array", "lw_allocate", "lw_allocate_zeroed", "lw_reallocate", "lw_free")


class _Handler(ctypes.Structure):
    """NumPy's PyDataMem_Handler, version 1."""

    _fields_ = [("name", ctypes.c_char * 127), ("version", ctypes.c_uint8),
                *((name, ctypes.c_void_p) for name in ("context", "malloc", "calloc", "realloc", "free"))]


@once
def library() -> Library:
    """The compiled function. Arrays that outlive the package still go through it: it is never unloaded."""
    place = ctypes.c_void_p()  # of the capsule, which holds functions of the library that reads it
    imports = {**{name: objects.address(name) for name in _NEEDED}, **{name: scratch.library()[name] for name in _MEMORY},
               "lw_handler": ctypes.addressof(place)}
    loaded = load(assembled(_TEXT), imports, _EXPORTS)
    handler = _Handler(b"loopwright", 1, None, *[loaded[name] for name in _EXPORTS[1:]])
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
        objects.address("PyCapsule_New"))
    capsule = new(ctypes.addressof(handler), _CAPSULE, None)
    place.value = id(capsule)
    for x in (loaded, handler, place, capsule, _CAPSULE):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(x))
    return loaded


_CAPSULE = b"mem_handler"  # the name that NumPy asks for

_TEXT = """
@lw_handler = external global ptr
@PyDataMem_DefaultHandler = external global ptr
declare ptr @PyArray_NewFromDescr(ptr, ptr, i32, ptr, ptr, ptr, i32, ptr)
declare ptr @PyDataMem_SetHandler(ptr)
declare void @Py_DecRef(ptr)
declare ptr @lw_result_acquire(i64)
declare ptr @lw_result_resize(ptr, i64)
declare void @lw_scratch_release(ptr)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

; Put back the allocator of before, which is given up.
define internal void @restore(ptr %before) nounwind {
entry:
  %ours = call ptr @PyDataMem_SetHandler(ptr %before)
  call void @Py_DecRef(ptr %before)
  %none = icmp eq ptr %ours, null
  br i1 %none, label %out, label %drop
drop:
  call void @Py_DecRef(ptr %ours)
  br label %out
out:
  ret void
}

define ptr @lw_new_array(ptr %type, ptr %dtype, i32 %rank, ptr %dims, ptr %strides, ptr %data, i32 %flags, ptr %of) nounwind {
entry:
  %handler = load ptr, ptr @lw_handler
  %before = call ptr @PyDataMem_SetHandler(ptr %handler)
  %refused = icmp eq ptr %before, null
  br i1 %refused, label %none, label %compare
compare:
  %default = load ptr, ptr @PyDataMem_DefaultHandler
  %usual = icmp eq ptr %before, %default
  br i1 %usual, label %kept, label %theirs
kept:
  %recycled = call ptr @PyArray_NewFromDescr(ptr %type, ptr %dtype, i32 %rank, ptr %dims, ptr %strides, ptr %data, i32 %flags,
                                             ptr %of)
  call void @restore(ptr %before)
  ret ptr %recycled
theirs:
  call void @restore(ptr %before)
  %array = call ptr @PyArray_NewFromDescr(ptr %type, ptr %dtype, i32 %rank, ptr %dims, ptr %strides, ptr %data, i32 %flags,
                                          ptr %of)
  ret ptr %array
none:
  call void @Py_DecRef(ptr %dtype)
  ret ptr null
}

define ptr @lw_allocate(ptr %context, i64 %bytes) nounwind {
  %block = call ptr @lw_result_acquire(i64 %bytes)
  ret ptr %block
}

define ptr @lw_allocate_zeroed(ptr %context, i64 %count, i64 %each) nounwind {
entry:
  %product = call { i64, i1 } @llvm.umul.with.overflow.i64(i64 %count, i64 %each)
  %bytes = extractvalue { i64, i1 } %product, 0
  %huge = extractvalue { i64, i1 } %product, 1
  br i1 %huge, label %none, label %acquire
acquire:
  %block = call ptr @lw_result_acquire(i64 %bytes)
  %refused = icmp eq ptr %block, null
  br i1 %refused, label %none, label %clear
clear:
  call void @llvm.memset.p0.i64(ptr %block, i8 0, i64 %bytes, i1 false)
  ret ptr %block
none:
  ret ptr null
}
declare { i64, i1 } @llvm.umul.with.overflow.i64(i64, i64)

define ptr @lw_reallocate(ptr %context, ptr %old, i64 %bytes) nounwind {
  %block = call ptr @lw_result_resize(ptr %old, i64 %bytes)
  ret ptr %block
}

define void @lw_free(ptr %context, ptr %block, i64 %bytes) nounwind {
entry:
  %none = icmp eq ptr %block, null
  br i1 %none, label %out, label %release
release:
  call void @lw_scratch_release(ptr %block)
  br label %out
out:
  ret void
}
"""
