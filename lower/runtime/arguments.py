"""The checks of a version's arguments: form of the call, containers, types, layouts, sizes, guards.

Guarantees: nothing of the caller's objects is changed; a call that does not fit goes to the block `miss` with no
exception set; past the checks every parameter has a pointer and every symbol a value.
"""
from __future__ import annotations

import numpy as np

from loopwright.ir.dims import Extent, Shape, symbol_of
from loopwright.ir.signature import ArrayLeaf, Container, ObjectLeaf, ScalarLeaf, Tree, Version
from loopwright.ir.types import BOOL, C128, F64, I64, ArrayType
from loopwright.lower.runtime import objects
from loopwright.lower.runtime.sizes import Sizes
from loopwright.lower.runtime.writer import Writer, every

MISS = "miss"
_CONTAINERS = {"tuple": "PyTuple_Type", "list": "PyList_Type", "dict": "PyDict_Type"}
_KEYWORD_COUNT_MASK = (1 << 63) - 1  # the top bit of vectorcall's count says that args[-1] may be used


class Arguments:
    """Emits the checks; then holds `pointers` (per parameter), `sizes`, and what a release of the lock must keep alive."""

    def __init__(self, writer: Writer, version: Version, texts: dict[str, str]) -> None:
        self.writer, self.version, self.texts = writer, version, texts
        self.pointers: list[str] = []
        self.arrays: dict[int, str] = {}  # parameter -> the array that was given for it
        self.borrowed: list[str] = []  # what is inside lists, dicts and records, which another thread may empty
        self.crooked: list[tuple[int, str]] = []  # parameters whose captured array must be copied straight at each call
        self.sizes = Sizes(writer, {})
        self._pending: list[tuple[str, Extent]] = []

    def check(self) -> None:
        """Emit every check."""
        self._call_form()
        positional, keywords = self.version.signature.positional, self.version.signature.keywords
        for k, tree in enumerate([*positional, *(tree for _, tree in keywords)]):
            self._tree(tree, self.writer.load("ptr", "%args", 8 * k), borrowed=False)
        for k, array in enumerate(self.version.hidden):
            self._hidden(k, array)
        for k, (array, held) in enumerate(self.version.contents if reads_contents(self.version) else ()):
            self._holds(k, array, held)
        self._check_sizes()

    def _call_form(self) -> None:
        w, signature = self.writer, self.version.signature
        count = w.let(f"and i64 %count, {_KEYWORD_COUNT_MASK}")
        conditions = [w.let(f"icmp eq i64 {count}, {len(signature.positional)}")]
        has_names = "ne" if signature.keywords else "eq"
        conditions.append(w.let(f"icmp {has_names} ptr %names, null"))
        w.likely(every(w, conditions), MISS)
        if not signature.keywords:
            return
        size = w.load("i64", "%names", objects.SIZE)
        w.likely(w.let(f"icmp eq i64 {size}, {len(signature.keywords)}"), MISS)
        for k, (name, _) in enumerate(signature.keywords):
            self._same_text(w.load("ptr", "%names", objects.TUPLE_ITEMS + 8 * k), name)

    def _same_text(self, given: str, expected: str) -> None:
        """Names are nearly always interned: compare pointers, then characters."""
        w, known = self.writer, self.writer.object(self.texts[expected])
        compare, equal = w.fresh("compare"), w.fresh("equal")
        w.branch(w.let(f"icmp eq ptr {given}, {known}"), equal, compare)
        w.label(compare)
        order = w.call("i32", "PyUnicode_Compare", f"ptr {given}", f"ptr {known}")
        w.branch(w.let(f"icmp eq i32 {order}, 0"), equal, MISS)
        w.label(equal)

    def _tree(self, tree: Tree, given: str, borrowed: bool) -> None:
        match tree:
            case ArrayLeaf():
                self._array(tree.type, given)
                self.borrowed += [given] if borrowed else []
            case ScalarLeaf():
                self._scalar(tree, given)
                self.borrowed += [given] if borrowed else []
            case ObjectLeaf():
                self._is(given, f"lw_static_{tree.slot}")
            case Container():
                self._container(tree, given, borrowed)

    def _is(self, given: str, name: str) -> None:
        self.writer.likely(self.writer.let(f"icmp eq ptr {given}, {self.writer.object(name)}"), MISS)

    def _is_exactly(self, given: str, type_name: str) -> None:
        self._is(self.writer.load("ptr", given, objects.TYPE), type_name)

    def _container(self, tree: Container, given: str, borrowed: bool) -> None:
        if tree.kind == "none":
            self._is(given, "lw_none")
            return
        w = self.writer
        self._is_exactly(given, _CONTAINERS.get(tree.kind) or f"lw_static_{tree.type}")
        if tree.kind != "record":
            size = w.call("i64", "PyDict_Size", f"ptr {given}") if tree.kind == "dict" else w.load("i64", given, objects.SIZE)
            w.likely(w.let(f"icmp eq i64 {size}, {len(tree.items)}"), MISS)
        items = self._items(tree, given)
        for item, value in zip(tree.items, items, strict=True):
            self._tree(item, value, borrowed or tree.kind not in ("tuple", "named"))
        for name, slot in tree.fixed:
            self._is(self._attribute(given, name), f"lw_static_{slot}")

    def _items(self, tree: Container, given: str) -> list[str]:
        w = self.writer
        if tree.kind == "dict":
            return [self._item(given, key) for key in tree.keys]
        if tree.kind == "record":
            return [self._attribute(given, key) for key in tree.keys]
        base, start = (given, objects.TUPLE_ITEMS)
        if tree.kind == "list":
            base, start = (w.load("ptr", given, objects.LIST_ITEMS) if tree.items else given), 0
        return [w.load("ptr", base, start + 8 * k) for k in range(len(tree.items))]

    def _item(self, given: str, key: str) -> str:
        w = self.writer
        value = w.call("ptr", "PyDict_GetItem", f"ptr {given}", f"ptr {w.object(self.texts[key])}")
        w.likely(w.let(f"icmp ne ptr {value}, null"), MISS)
        return value

    def _attribute(self, given: str, name: str) -> str:
        """A field of an object, which alone goes on holding it: what nobody else holds was made for us, and is Python's."""
        w, there, absent = self.writer, self.writer.fresh("there"), self.writer.fresh("absent")
        value = w.call("ptr", "PyObject_GetAttr", f"ptr {given}", f"ptr {w.object(self.texts[name])}")
        w.branch(w.let(f"icmp eq ptr {value}, null"), absent, there)
        w.label(absent)
        w.call("void", "PyErr_Clear")
        w.jump(MISS)
        w.label(there)
        count = w.load("i32", value)
        w.call("void", "Py_DecRef", f"ptr {value}")
        w.likely(w.let(f"icmp ugt i32 {count}, 1"), MISS)
        return value

    def _scalar(self, leaf: ScalarLeaf, given: str) -> None:
        w, dtype = self.writer, leaf.type.dtype
        if not leaf.python:
            self._is_exactly(given, objects.scalar_symbol(dtype))
            self.pointers.append(w.field(given, objects.SCALAR_VALUE))
        elif dtype == F64:
            self._is_exactly(given, "PyFloat_Type")
            self.pointers.append(w.field(given, objects.FLOAT_VALUE))
        elif dtype == C128:
            self._is_exactly(given, "PyComplex_Type")
            self.pointers.append(w.field(given, objects.COMPLEX_VALUE))
        elif dtype == I64:
            self._integer(given)
        elif dtype == BOOL:
            self._boolean(given)
        else:
            raise TypeError(f"a Python scalar cannot be passed as {leaf.type}")

    def _integer(self, given: str) -> None:
        w = self.writer
        self._is_exactly(given, "PyLong_Type")
        overflow, where = w.slot("i32"), w.slot("i64")
        value = w.call("i64", "PyLong_AsLongLongAndOverflow", f"ptr {given}", f"ptr {overflow}")
        w.likely(w.let(f"icmp eq i32 {w.load('i32', overflow)}, 0"), MISS)
        w.store("i64", value, where)
        self.pointers.append(where)

    def _boolean(self, given: str) -> None:
        w, where = self.writer, self.writer.slot("i8")
        true, false = (w.let(f"icmp eq ptr {given}, {w.object(name)}") for name in ("lw_true", "lw_false"))
        w.likely(w.let(f"or i1 {true}, {false}"), MISS)
        w.store("i8", w.let(f"zext i1 {true} to i8"), where)
        self.pointers.append(where)

    def _array(self, type: ArrayType, given: str) -> None:
        w = self.writer
        self._is_exactly(given, "PyArray_Type")
        conditions = self._dtype_and_rank(given, objects.dtype_symbol(type.dtype), type.rank)
        w.likely(every(w, [*conditions, self._straight(given)]), MISS)
        self._shape(given, type.shape)
        self.arrays[len(self.pointers)] = given
        self.pointers.append(w.load("ptr", given, objects.ARRAY_DATA))

    def _dtype_and_rank(self, given: str, dtype: str, rank: int) -> list[str]:
        w = self.writer
        return [w.let(f"icmp eq ptr {w.load('ptr', given, objects.ARRAY_DTYPE)}, {w.object(dtype)}"),
                w.let(f"icmp eq i32 {w.load('i32', given, objects.ARRAY_RANK)}, {rank}")]

    def _straight(self, given: str) -> str:
        flags = self.writer.load("i32", given, objects.ARRAY_FLAGS)
        kept = self.writer.let(f"and i32 {flags}, {objects.CONTIGUOUS_ALIGNED}")
        return self.writer.let(f"icmp eq i32 {kept}, {objects.CONTIGUOUS_ALIGNED}")

    def _shape(self, given: str, shape: Shape) -> None:
        """Bind sizes by the signature's names and by the graph's, which speak of the same axes."""
        if not shape:
            return
        w = self.writer
        dims = w.load("ptr", given, objects.ARRAY_DIMS)
        for axis, extents in enumerate(zip(shape, self.version.graph.params[len(self.pointers)].type.shape, strict=True)):
            value = w.load("i64", dims, 8 * axis)
            for x in dict.fromkeys(extents):
                name = symbol_of(x)
                if name is not None and name not in self.sizes.symbols:
                    self.sizes.symbols[name] = value
                else:
                    self._pending.append((value, x))

    def _hidden(self, k: int, array: np.ndarray) -> None:
        """A captured array keeps its dtype, rank and sizes, and its layout where it is read in place."""
        w = self.writer
        given = w.object(f"lw_hidden_{k}")
        conditions = self._dtype_and_rank(given, f"lw_hidden_dtype_{k}", array.ndim)
        straight = is_straight(array)
        w.likely(every(w, [*conditions, self._straight(given)] if straight else conditions), MISS)
        self._shape(given, self.version.graph.params[len(self.pointers)].type.shape)
        if not straight:
            self.crooked.append((len(self.pointers), given))
        self.pointers.append(w.load("ptr", given, objects.ARRAY_DATA) if straight else "")

    def _holds(self, k: int, array: np.ndarray, held: bytes) -> None:
        """A captured array has its dtype, its shape and these bytes."""
        w = self.writer
        given = w.object(f"lw_known_{k}")
        conditions = self._dtype_and_rank(given, f"lw_known_dtype_{k}", array.ndim)
        w.likely(every(w, [*conditions, self._straight(given)]), MISS)
        dims = w.load("ptr", given, objects.ARRAY_DIMS) if array.ndim else ""
        conditions = [w.let(f"icmp eq i64 {w.load('i64', dims, 8 * axis)}, {n}") for axis, n in enumerate(array.shape)]
        if conditions:
            w.likely(every(w, conditions), MISS)
        data, known = w.load("ptr", given, objects.ARRAY_DATA), w.field(w.object(f"lw_known_bytes_{k}"), objects.BYTES_DATA)
        order = w.call("i32", "memcmp", f"ptr {data}", f"ptr {known}", f"i64 {len(held)}")
        w.likely(w.let(f"icmp eq i32 {order}, 0"), MISS)

    def _check_sizes(self) -> None:
        unbound = set(self.version.graph.free_symbols) - set(self.sizes.symbols)
        if unbound:
            raise ValueError(f"no argument of {self.version.name} tells the size {', '.join(sorted(unbound))}")
        w, held = self.writer, []
        for value, x in self._pending:
            expected = self.sizes.extent(x)
            if expected != value:
                held.append(w.let(f"icmp eq i64 {value}, {expected}"))
        if held:
            w.likely(every(w, held), MISS)
        self.sizes.check([g.constraint for g in self.version.guards], MISS)


def reads_contents(version: Version) -> bool:
    """Whether generated code compares what captured arrays must hold: where they lie in one piece. Else Python does, and calls
    it."""
    return all(is_straight(x) for x, _ in version.contents)


def is_straight(array: np.ndarray) -> bool:
    """Native, aligned and C-contiguous: generated code may read it in place."""
    return array.flags.c_contiguous and array.flags.aligned and array.dtype.isnative

