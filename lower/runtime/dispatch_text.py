"""The dispatch function of one version, as LLVM text that calls its `@entry`.

    ptr @dispatch(ptr args, i64 count, ptr names)       vectorcall's arguments, without the callable

answers with a new object, with null when an exception is set, or with `MISS_VALUE` when the version does not fit the
call. It checks, allocates the results, lets go of Python's lock for large work, runs `@entry` and packs the results.

Guarantees: the text depends on the form of the call, on guards and on results, not on what is computed: versions that are
called alike have equal text; every reference it makes is given away or dropped on every path; Python objects are imported
symbols, so no address is in the code; results share no memory with anything but the arguments that were donated for them.
"""
from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any

from loopwright.ir.dims import Extent, Monomial, product, terms_of
from loopwright.ir.graph import Graph
from loopwright.ir.ops.control import while_
from loopwright.ir.signature import Container, Result, ResultContainer, ResultTree, Tree, Version
from loopwright.ir.types import ArrayType
from loopwright.lower.runtime import callbacks, objects, results
from loopwright.lower.runtime.arguments import MISS, Arguments
from loopwright.lower.runtime.writer import LIKELY_TEXT, Writer, every

MISS_VALUE = "inttoptr (i64 1 to ptr)"
RELEASE_ABOVE = 16384  # elements touched; letting go of the lock costs 30 to 50 ns
LARGEST_SCALAR = 16  # bytes
ERROR_WORDS = 7  # of the error: site + 1, index, axis, size; the exception that a signal raised
WEIGHTS = "@weights"  # a table that the program defines: how often each product of sizes counts in its work
RAISE = "lw_raise"
FAIL = "fail"


def dispatch_text(version: Version, donations: Mapping[int, int] = {}) -> str:
    """A module that defines `@dispatch` and needs `@entry` and `weights_text`. donations: results that are the very arrays of
    arguments, by number."""
    return _Dispatch(version, donations).text()


def weights_text(graph: Graph) -> str:
    """What the dispatch function must know of the work of a program."""
    numbers = ", ".join(f"i64 {c}" for _, c in _work(graph))
    return f"{WEIGHTS} = constant [{len(_work(graph))} x i64] [{numbers}]"


def bound_objects(version: Version, raise_error: Any) -> dict[str, Any]:
    """The Python objects of this process that the text names, by symbol. `raise_error(bytes)` raises a site's error."""
    found: dict[str, Any] = {RAISE: raise_error}
    found |= {symbol: sys.intern(text) for text, symbol in _texts(version).items()}
    found |= dict(callbacks.functions(version.graph))
    found |= {f"lw_static_{k}": x for k, x in enumerate(version.objects)}
    found |= {f"lw_hidden_{k}": x for k, x in enumerate(version.hidden)}
    found |= {f"lw_hidden_dtype_{k}": x.dtype for k, x in enumerate(version.hidden)}
    for k, (array, held) in enumerate(version.contents):
        found |= {f"lw_known_{k}": array, f"lw_known_dtype_{k}": array.dtype, f"lw_known_bytes_{k}": held}
    return found


def _texts(version: Version) -> dict[str, str]:
    """Keyword names and dict keys -> symbol."""
    signature = version.signature
    found: dict[str, None] = dict.fromkeys(name for name, _ in signature.keywords)
    trees: list[Tree | ResultTree] = [*signature.positional, *(t for _, t in signature.keywords), version.results]
    while trees:
        tree = trees.pop()
        if isinstance(tree, Container | ResultContainer):
            found.update(dict.fromkeys((*tree.keys, *(name for name, _ in tree.fixed))))
            trees += tree.items
    return {text: f"lw_text_{k}" for k, text in enumerate(sorted(found))}


class _Owned:
    """The references that the function holds, on the stack, so that one block can drop them all."""

    def __init__(self, writer: Writer, most: int) -> None:
        self.writer, self.most, self.count = writer, most, 0
        self.held: set[int] = set()
        self.array = writer.slot(f"[{most} x ptr]")

    def clear(self) -> None:
        self.writer.do(f"store [{self.most} x ptr] zeroinitializer, ptr {self.array}")

    def take(self, reference: str) -> int:
        """Hold a new reference; fail where it is null. Its place."""
        place, self.count = self.count, self.count + 1
        self.held.add(place)
        self.writer.store("ptr", reference, self.array, 8 * place)
        self.writer.likely(self.writer.let(f"icmp ne ptr {reference}, null"), FAIL)
        return place

    def give(self, place: int) -> None:
        """The reference has another owner now."""
        self.held.remove(place)
        self.writer.store("ptr", "null", self.array, 8 * place)

    def drop(self) -> None:
        """Drop what is still held here."""
        for place in sorted(self.held):
            self.writer.call("void", "Py_DecRef", f"ptr {self.writer.load('ptr', self.array, 8 * place)}")

    def drop_all(self) -> None:
        """Drop what is still held wherever this is reached from."""
        self.writer.each(self.array, self.count, "Py_DecRef")


class _Dispatch:
    """Emits the function."""

    def __init__(self, version: Version, donations: Mapping[int, int]) -> None:
        self.version, self.graph, self.donations = version, version.graph, donations
        self.writer, self.texts = Writer(), _texts(version)
        self.arguments = Arguments(self.writer, version, self.texts)
        self.owned = _Owned(self.writer, len(version.hidden) + len(self.graph.results) + _nodes(version.results))
        self.objects: dict[int, tuple[str, int]] = {}  # array result -> object and its place in owned
        self.buffers: list[str] = []
        self.packed: set[int] = set()

    def text(self) -> str:
        sizes = self.arguments.sizes
        self.arguments.check()
        shapes = [[sizes.extent(x) for x in r.type.shape] for r in self.graph.results]
        work = sizes.weighted([atoms for atoms, _ in _work(self.graph)], WEIGHTS)
        sizes.check([], MISS)
        self.owned.clear()
        self._straighten()
        self._allocate(shapes)
        self._run(work)
        value, place = self._pack(self.version.results)
        self.owned.held.remove(place)
        self.owned.drop()
        self.writer.do(f"ret ptr {value}")
        self._ends()
        body = self.writer.body("ptr @dispatch(ptr %args, i64 %count, ptr %names)")
        return "\n".join((f"{WEIGHTS} = external global i8", *self.writer.declarations, body, LIKELY_TEXT, ""))

    def _straighten(self) -> None:
        """Contiguous copies of captured arrays that are not."""
        w = self.writer
        for at, given in self.arguments.crooked:
            dtype = w.object(objects.dtype_symbol(self.graph.params[at].type.dtype))
            w.call("void", "Py_IncRef", f"ptr {dtype}")  # the call takes a reference
            copy = w.call("ptr", "PyArray_FromArray", f"ptr {given}", f"ptr {dtype}", f"i32 {objects.CONTIGUOUS_ALIGNED}")
            self.owned.take(copy)
            self.arguments.pointers[at] = w.load("ptr", copy, objects.ARRAY_DATA)

    def _allocate(self, shapes: list[list[str]]) -> None:
        w = self.writer
        for number, (result, shape) in enumerate(zip(self.graph.results, shapes, strict=True)):
            if not shape:
                self.buffers.append(w.slot(f"[{LARGEST_SCALAR} x i8]", align=16))
                continue
            given = self.donations.get(number)
            array = self._new_array(result.type, shape) if given is None else self._donated(given)
            self.objects[number] = array, self.owned.take(array)
            self.buffers.append(w.load("ptr", array, objects.ARRAY_DATA))
            if given is not None:
                self.arguments.pointers[given] = self.buffers[-1]

    def _donated(self, number: int) -> str:
        """A new reference to an argument that may be written and shares no memory with another, else to a copy of it."""
        w, given, taken = self.writer, self.arguments.arrays[number], self.writer.slot("ptr")
        flags = w.let(f"and i32 {w.load('i32', given, objects.ARRAY_FLAGS)}, {objects.OWNED_WRITEABLE}")
        conditions = [w.let(f"icmp eq i32 {flags}, {objects.OWNED_WRITEABLE}")]
        start, end = self._stretch(number)
        for other in range(len(self.graph.params)):
            if other != number:  # a number may be an array of rank 0 inside this one
                first, last = self._stretch(other)
                apart = w.let(f"icmp ule i64 {end}, {first}"), w.let(f"icmp ule i64 {last}, {start}")
                conditions.append(w.let(f"or i1 {apart[0]}, {apart[1]}"))
        take, copy, done = w.fresh("take"), w.fresh("copy"), w.fresh("taken")
        w.branch(every(w, conditions), take, copy)
        w.label(take)
        w.call("void", "Py_IncRef", f"ptr {given}")
        w.store("ptr", given, taken)
        w.jump(done)
        w.label(copy)
        w.store("ptr", w.call("ptr", "PyArray_NewCopy", f"ptr {given}", "i32 0"), taken)
        w.jump(done)
        w.label(done)
        return w.load("ptr", taken)

    def _stretch(self, number: int) -> tuple[str, str]:
        """Where the bytes of an argument begin and end."""
        w, t = self.writer, self.graph.params[number].type
        start = w.let(f"ptrtoint ptr {self.arguments.pointers[number]} to i64")
        return start, w.let(f"add i64 {start}, {self.arguments.sizes.extent(t.size * t.dtype.itemsize)}")

    def _new_array(self, type: ArrayType, shape: list[str]) -> str:
        w, dims = self.writer, self.writer.slot(f"[{len(shape)} x i64]")
        dtype, size = w.object(objects.dtype_symbol(type.dtype)), type.size * type.dtype.itemsize
        for axis, x in enumerate(shape):
            w.store("i64", x, dims, 8 * axis)
        w.keep(dtype)  # the call takes a reference
        new = w.object("PyArray_NewFromDescr")
        if not isinstance(size, int) or size >= results.LARGE:
            is_large = w.let(f"icmp sge i64 {self.arguments.sizes.extent(size)}, {results.LARGE}")
            new = w.let(f"select i1 {is_large}, ptr {w.object('lw_new_array')}, ptr {new}")
        return w.let(f"call ptr {new}(ptr {w.object('PyArray_Type')}, ptr {dtype}, i32 {len(shape)}, ptr {dims}, ptr null, "
                     f"ptr null, i32 0, ptr null)")

    def _run(self, work: str) -> None:
        """Call the entry, without Python's lock where the work is large."""
        w = self.writer
        args, results = self._table("ptr", self.arguments.pointers), self._table("ptr", self.buffers)
        sizes = self._table("i64", [self.arguments.sizes.symbols[s] for s in self.graph.free_symbols])
        error, status = w.slot(f"[{ERROR_WORDS} x i64]"), w.slot("i32")
        w.store("i64", "0", error)
        tables = [f"ptr {x}" for x in (args, results, sizes, error)]
        small, large, done = w.fresh("small"), w.fresh("large"), w.fresh("done")
        w.branch(w.let(f"icmp ugt i64 {work}, {RELEASE_ABOVE}"), large, small)
        w.label(small)
        w.store("i32", w.call("i32", "entry", *tables), status)
        w.jump(done)
        w.label(large)
        borrowed, count = self._table("ptr", self.arguments.borrowed), len(self.arguments.borrowed)
        w.each(borrowed, count, "Py_IncRef")
        thread = w.call("ptr", "PyEval_SaveThread")
        w.store("i32", w.call("i32", "entry", *tables), status)
        w.call("void", "PyEval_RestoreThread", f"ptr {thread}")
        w.each(borrowed, count, "Py_DecRef")
        w.jump(done)
        w.label(done)
        self._answer_errors(w.load("i32", status), error)

    def _table(self, type: str, values: list[str]) -> str:
        table = self.writer.slot(f"[{len(values)} x {type}]")
        for k, value in enumerate(values):
            self.writer.store(type, value, table, 8 * k)
        return table

    def _answer_errors(self, status: str, error: str) -> None:
        w = self.writer
        onwards, at_site, no_memory, interrupted = w.fresh("fine"), w.fresh("site"), w.fresh("memory"), w.fresh("interrupted")
        w.do(f"switch i32 {status}, label %{no_memory} [ i32 0, label %{onwards} i32 1, label %{at_site} "
             f"i32 3, label %{interrupted} ]")
        w.label(interrupted)
        raised = [w.load("ptr", error, 8 * k) for k in (4, 5, 6)]
        w.call("void", "PyErr_Restore", *(f"ptr {x}" for x in raised))
        w.jump(FAIL)
        w.label(no_memory)
        w.call("ptr", "PyErr_NoMemory")
        w.jump(FAIL)
        w.label(at_site)
        what = w.call("ptr", "PyBytes_FromStringAndSize", f"ptr {error}", "i64 32")
        raising = w.fresh("raising")
        w.branch(w.let(f"icmp eq ptr {what}, null"), FAIL, raising)
        w.label(raising)
        w.call("void", "Py_DecRef", f"ptr {w.call('ptr', 'PyObject_CallOneArg', f'ptr {w.object(RAISE)}', f'ptr {what}')}")
        w.call("void", "Py_DecRef", f"ptr {what}")
        w.jump(FAIL)
        w.label(onwards)

    def _pack(self, tree: ResultTree) -> tuple[str, int]:
        """The object of a result tree, held in owned until given; its place."""
        match tree:
            case Result(number):
                return self._leaf(number)
            case ResultContainer(kind="none"):
                none = self.writer.object("lw_none")
                self.writer.call("void", "Py_IncRef", f"ptr {none}")
                return none, self.owned.take(none)
        match tree.kind:
            case "dict":
                return self._pack_dict(tree)
            case "record":
                return self._pack_record(tree)
        return self._pack_sequence(tree)

    def _leaf(self, number: int) -> tuple[str, int]:
        w = self.writer
        if number not in self.objects:  # of rank 0
            dtype = w.object(objects.dtype_symbol(self.graph.results[number].type.dtype))
            made = w.call("ptr", "PyArray_Scalar", f"ptr {self.buffers[number]}", f"ptr {dtype}", "ptr null")
            return made, self.owned.take(made)
        if number in self.packed:  # the same result twice: results share no memory
            made = w.call("ptr", "PyArray_NewCopy", f"ptr {self.objects[number][0]}", "i32 0")
            return made, self.owned.take(made)
        self.packed.add(number)
        return self.objects[number]

    def _pack_sequence(self, tree: ResultContainer) -> tuple[str, int]:
        """A named tuple is an instance of its type with room for its items, as `tuple.__new__` makes it."""
        w, kind, count = self.writer, "PyList" if tree.kind == "list" else "PyTuple", f"i64 {len(tree.items)}"
        if tree.kind == "named":
            made = w.call("ptr", "PyType_GenericAlloc", f"ptr {w.object(f'lw_static_{tree.type}')}", count)
        else:
            made = w.call("ptr", f"{kind}_New", count)
        place = self.owned.take(made)
        for k, item in enumerate(tree.items):
            value, held = self._pack(item)
            w.call("i32", f"{kind}_SetItem", f"ptr {made}", f"i64 {k}", f"ptr {value}")  # takes the reference
            self.owned.give(held)
        return made, place

    def _pack_dict(self, tree: ResultContainer) -> tuple[str, int]:
        w = self.writer
        made = w.call("ptr", "PyDict_New")
        place = self.owned.take(made)
        for key, item in zip(tree.keys, tree.items, strict=True):
            value, held = self._pack(item)
            status = w.call("i32", "PyDict_SetItem", f"ptr {made}", f"ptr {w.object(self.texts[key])}", f"ptr {value}")
            w.likely(w.let(f"icmp eq i32 {status}, 0"), FAIL)
            w.call("void", "Py_DecRef", f"ptr {value}")
            self.owned.give(held)
        return made, place

    def _pack_record(self, tree: ResultContainer) -> tuple[str, int]:
        """As pytrees put a dataclass together: without its `__init__`, field by field."""
        w = self.writer
        table = self._table("ptr", [w.object(f"lw_static_{tree.type}")])
        made = w.call("ptr", "PyObject_Vectorcall", f"ptr {w.object('lw_new_object')}", f"ptr {table}", "i64 1", "ptr null")
        place = self.owned.take(made)
        for key, item in zip(tree.keys, tree.items, strict=True):
            value, held = self._pack(item)
            self._set(made, key, value)
            w.call("void", "Py_DecRef", f"ptr {value}")
            self.owned.give(held)
        for key, slot in tree.fixed:
            self._set(made, key, w.object(f"lw_static_{slot}"))
        return made, place

    def _set(self, record: str, name: str, value: str) -> None:
        w = self.writer
        status = w.call("i32", "PyObject_GenericSetAttr", f"ptr {record}", f"ptr {w.object(self.texts[name])}", f"ptr {value}")
        w.likely(w.let(f"icmp eq i32 {status}, 0"), FAIL)

    def _ends(self) -> None:
        w = self.writer
        w.label(MISS)
        w.do(f"ret ptr {MISS_VALUE}")
        w.label(FAIL)
        self.owned.drop_all()
        w.do("ret ptr null")


def _nodes(tree: ResultTree) -> int:
    """Leaves and containers."""
    return 1 + (sum(map(_nodes, tree.items)) if isinstance(tree, ResultContainer) else 0)


def _work(graph: Graph) -> list[tuple[Monomial, int]]:
    """How many elements a program touches: products of sizes, that of none first, and how often each counts."""
    touched = _touched(graph)
    if touched is None:
        return [((), RELEASE_ABOVE + 1)]
    total: Extent = 0
    for size, count in touched.items():
        total += size * count
    return list({(): 0, **dict(terms_of(total))}.items())


def _touched(graph: Graph) -> Counter[Extent] | None:
    """How many arrays of each size the graph reads or makes: a measure of its work. None where the number of a loop's trips
    is not known before it runs; a branch counts as all of them."""
    found = Counter([v.type.size for v in graph.params])
    for n in graph.nodes:
        inside = [_touched(r) for r in n.regions]
        if n.op is while_ or n.op.binds is not None:
            return None
        found.update([v.type.size for v in n.outputs])
        for counted in inside:
            if counted is None:
                return None
            for size, count in counted.items():
                found[product((size, n.attrs.get("length", 1)))] += count
    return found
