"""From a graph to the text of one native entry point (docs/architecture.md has its interface).

Guarantees: kernels of equal structure are one internal function; the entry calls them directly, in one memory plan,
with no dispatch of its own; scratch is returned on every exit.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from loopwright.ir.attributes import attributes_key
from loopwright.ir.dims import Extent, floordiv, product, symbol
from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.source import Source
from loopwright.lower.codegen import emit_nest
from loopwright.lower.library import library_text
from loopwright.lower.partition import partition
from loopwright.lower.plan import Argument, Plan, ResultMemory, Scratch, plan_memory
from loopwright.lower.runtime.sizes import Sizes
from loopwright.lower.runtime.writer import Writer
from loopwright.lower.scheduling import build_nest
from loopwright.lower.target import Target


@dataclass(frozen=True)
class Program:
    """LLVM text that defines `@entry` and its kernels; the user's line of each error site (site 0 is unknown)."""

    text: str
    sites: tuple[Source | None, ...]
    kernels: Graph


@dataclass(frozen=True)
class Function:
    """A kernel's internal function, the stage of its region that each of its error sites belongs to, and whether it
    can meet an error at all (a power of integers reports one without a site)."""

    name: str
    sites: tuple[int, ...]
    can_fail: bool


def lower_graph(g: Graph, target: Target, *, blas: bool, fast_math: bool = False) -> Program:
    """The program of a graph. DTypeError where it holds a dtype that has no machine code."""
    return lower_kernels(partition(g, target, blas=blas), target, g.symbols, fast_math=fast_math)


def lower_kernels(kernels: Graph, target: Target, symbols: tuple[str, ...], *, fast_math: bool = False) -> Program:
    """The program of a partitioned graph. `symbols`: those of the graph that it was, in the order of the entry's sizes."""
    module = _Module(target, fast_math)
    functions = [module.function(n) if n.regions else None for n in kernels.nodes]
    entry = _Entry(kernels, symbols, plan_memory(kernels), functions)
    return Program(module.text(entry.text()), tuple(entry.sites), kernels)


class _Module:
    """Kernel functions by structure, and the declarations that they share."""

    def __init__(self, target: Target, fast_math: bool) -> None:
        self.target, self.fast_math = target, fast_math
        self.functions: dict[Any, Function] = {}
        self.texts: list[str] = []
        self.shared: dict[str, None] = {}

    def function(self, n: Node) -> Function:
        key = n.regions[0].key, attributes_key(n.attrs)
        known = self.functions.get(key)
        if known is None:
            known = self.functions[key] = self._emit(n, f"kernel_{len(self.functions)}")
        return known

    def _emit(self, n: Node, name: str) -> Function:
        if n.attrs["implementation"] != "generated":
            text, shared = library_text(n, name, self.target)
            self.texts.append(text)
            self.shared.update(dict.fromkeys(shared))
            return Function(name, (-1,), can_fail=True)
        scheduled = build_nest(n.regions[0], n.attrs["schedule"], name)
        kernel = emit_nest(scheduled.nest, self.target, self.fast_math)
        self.texts.append(kernel.text)
        self.shared.update(dict.fromkeys(sorted(kernel.declarations)))
        self.shared.update(dict.fromkeys(sorted(kernel.globals)))
        return Function(name, scheduled.sites, can_fail=f"call void @{name}_report(" in kernel.text)

    def text(self, entry: Writer) -> str:
        shared = dict.fromkeys((*self.shared, *entry.declarations))
        body = entry.body("i32 @entry(ptr %args, ptr %results, ptr %sizes, ptr %error)")
        return "\n".join((*shared, *self.texts, body))


class _Entry:
    """The entry: sizes, scratch, then each kernel in order, leaving at the first error."""

    def __init__(self, g: Graph, symbols: tuple[str, ...], plan: Plan, functions: list[Function | None]) -> None:
        self.g, self.plan, self.functions = g, plan, functions
        self.sites: list[Source | None] = [None]
        self.w = Writer()
        self.w.label("entry")
        loaded = {s: self.w.load("i64", "%sizes", 8 * k) for k, s in enumerate(symbols)}
        self.sizes = Sizes(self.w, loaded)
        self.pointers: dict[object, str] = {}

    def text(self) -> Writer:
        total = self._scratch()
        for v in (*self.g.params, *self.g.results):  # in the entry block, so that every later block may use them
            self._pointer(v)
        for n, f in zip(self.g.nodes, self.functions, strict=True):
            if f is not None:
                self._call(n, f)
        self._leave("0")
        w = self.w
        if total is not None:
            w.label("full")
            w.do("ret i32 2")
        w.label("failed")
        first = w.load("i64", "%error")
        status = w.let(f"select i1 {w.let(f'icmp slt i64 {first}, 0')}, i32 2, i32 1")
        self._leave(status)
        return w

    def _scratch(self) -> Extent | None:
        """One block for every slot, each slot 64-byte aligned."""
        if not self.plan.slots:
            return None
        w, offset = self.w, "0"
        offsets = []
        for need in self.plan.slots:
            offsets.append(offset)
            offset = w.let(f"add i64 {offset}, {self.sizes.extent(floordiv(need + 63, 64) * 64)}")
        block = w.call("ptr", "lw_scratch_acquire", f"i64 {offset}")
        missing = w.let(f"icmp eq ptr {block}, null")
        w.branch(missing, "full", "run")
        w.label("run")
        self.pointers["block"] = block
        for slot, at in enumerate(offsets):
            self.pointers[Scratch(slot)] = w.let(f"getelementptr i8, ptr {block}, i64 {at}")
        return product(self.plan.slots)

    def _pointer(self, v: Value) -> str:
        place = self.plan.places[v]
        if place not in self.pointers:
            assert not isinstance(place, Scratch)
            base = "%args" if isinstance(place, Argument) else "%results"
            assert isinstance(place, Argument | ResultMemory)
            self.pointers[place] = self.w.load("ptr", base, 8 * place.number)
        return self.pointers[place]

    def _call(self, n: Node, f: Function) -> None:
        buffers = [f"ptr {self._pointer(v)}" for v in (*n.inputs, *n.outputs)]
        sizes = [f"i64 {self.sizes.extent(symbol(s))}" for s in n.regions[0].symbols]
        self.w.do(f"call void @{f.name}({', '.join((*buffers, *sizes, 'ptr %error'))})")
        if f.can_fail:
            self._check(n, f)

    def _check(self, n: Node, f: Function) -> None:
        """Leave if the kernel met an error; its site becomes the program's."""
        w, base = self.w, len(self.sites) - 1
        self.sites += [n.regions[0].nodes[stage].source for stage in f.sites[1:]]
        first = w.load("i64", "%error")
        on, bad = w.fresh("on"), w.fresh("bad")
        w.branch(w.let(f"icmp eq i64 {first}, 0"), on, bad)
        w.label(bad)
        known = w.let(f"icmp sgt i64 {first}, 1")
        moved = w.let(f"add i64 {first}, {w.let(f'select i1 {known}, i64 {base}, i64 0')}")
        w.store("i64", moved, "%error")
        w.jump("failed")
        w.label(on)

    def _leave(self, status: str) -> None:
        if "block" in self.pointers:
            self.w.call("void", "lw_scratch_release", f"ptr {self.pointers['block']}")
        self.w.do(f"ret i32 {status}")
