"""From a graph to the text of one native entry point (docs/architecture.md has its interface).

Guarantees: kernels of equal structure are one internal function; the entry calls them directly, in one memory plan,
with no dispatch of its own; scratch is returned on every exit.
"""
from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any

from loopwright.ir.attributes import attributes_key
from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import evaluate, symbol, symbols_in
from loopwright.ir.errors import ScheduleError
from loopwright.ir.graph import Graph, Node, substitute_graph
from loopwright.ir.nest import Nest, altered
from loopwright.ir.schedule import ByColumns, FewInRows, InPlace, Schedule
from loopwright.ir.source import Source
from loopwright.lower.blocking import blocked
from loopwright.lower.by_columns import adds_up, in_columns, is_sum, sums_apart
from loopwright.lower.codegen import KernelText, emit_nest, emitted, exported, usual_text
from loopwright.lower.codegen.bodies import calling
from loopwright.lower.control import is_control, sized, strips
from loopwright.lower.covers import RULES, Cover, chosen, covered
from loopwright.lower.decisions import InBlocks
from loopwright.lower.donation import donate
from loopwright.lower.epilogues import with_epilogues
from loopwright.lower.few_columns import spelled_out
from loopwright.lower.functions import INTERRUPTED, OUT_OF_MEMORY, Callee, Frame, Function, source_at
from loopwright.lower.kernel import kernel, program, region_of
from loopwright.lower.library import MAY_RAISE, library_text
from loopwright.lower.operands import without_transposes
from loopwright.lower.own_sizes import own_sizes
from loopwright.lower.padding import padded
from loopwright.lower.panels import with_panels
from loopwright.lower.partition import partitioned
from loopwright.lower.plan import Argument, Place, ResultMemory, bytes_of, on_stack, plan_memory
from loopwright.lower.regions import SMALL_TEXT, control_function
from loopwright.lower.rules import default_schedule, squeezed_schedule
from loopwright.lower.runtime.emission import CONTROL
from loopwright.lower.runtime.fourier import RAISED
from loopwright.lower.runtime.later import amx_of, few_of, squeezed_of, usual_of, whole_of
from loopwright.lower.runtime.parts import quickly
from loopwright.lower.runtime.writer import Writer
from loopwright.lower.scheduling import Scheduled, build_nest, with_usual
from loopwright.lower.squeezing import squeezed
from loopwright.lower.strips import in_strips
from loopwright.lower.target import Target


@dataclass(frozen=True)
class Program:
    """LLVM text that defines `@entry` and its kernels; the user's line of each error site (site 0 is unknown); for each result
    that lies in the memory of an argument, the argument's number; by name the functions that are made when calls need them."""

    text: str
    sites: tuple[Source | None, ...]
    kernels: Graph
    donations: Mapping[int, int]
    apart: Mapping[str, Callable[[], KernelText]] = field(default_factory=dict)

    def later(self, functions: Iterable[str]) -> str:
        """LLVM text of some of these: see runtime/later.py."""
        made = [self.apart[name]() for name in functions]
        shared = sorted({line for x in made for line in (*x.declarations, *x.globals)})
        return "\n".join((*shared, *(x.text for x in made)))


def lower_graph(g: Graph, target: Target, *, blas: bool, fast_math: bool = False, donated: Sequence[int] = (),
                cover: Cover = RULES, apart: bool = False, sizes: Mapping[str, int] = {}) -> Program:
    """The program of a graph, of which results may lie in `donated` arguments, with what `cover` decides. apart: without what
    only short rows need. sizes: of symbols, if it runs with no others: without what only others need. DTypeError where it holds
    a dtype that has no machine code, ScheduleError for a cover that does not fit."""
    if len(g.nodes) == 1 and g.nodes[0].op is program:
        once = g.nodes[0]
        if cover.partition:
            raise ScheduleError(f"{cover.partition[0]}: the graph is a program already, whose partition is decided.")
        kernels = covered(once.regions[0], cover.kernels)
        return lower_kernels(kernels, target, g.free_symbols, dict(once.attrs["donations"]),
                             fast_math=once.attrs["fast_math"], apart=apart, sizes=sizes)
    kernels, donations = cover_graph(g, target, blas=blas, donated=donated, cover=cover, fast_math=fast_math)
    return lower_kernels(kernels, target, g.free_symbols, donations, fast_math=fast_math, apart=apart, sizes=sizes)


def cover_graph(g: Graph, target: Target, *, blas: bool, donated: Sequence[int] = (),
                cover: Cover = RULES, fast_math: bool = False) -> tuple[Graph, Mapping[int, int]]:
    """The kernels of a graph, as `lower_kernels` takes them, and which results lie in which donated arguments. ScheduleError
    for a cover that does not fit."""
    made = partitioned(g, target, blas=blas, decisions=cover.partition, fast_math=fast_math)
    usual = partial(default_schedule, target=replace(target, has_tiles=False))
    kernels, donations = donate(made.kernels, g, donated, usual)
    choices = chosen(made, cover.partition)
    if not donations:  # a donated argument may be read after a block of it is stored
        kernels = blocked(kernels, target, choices)
    elif divided := [x for x in choices.values() if isinstance(x, InBlocks)]:
        raise ScheduleError(f"{divided[0]}: a result takes the memory of a donated argument: nothing is in blocks.")
    kernels = padded(kernels, target)
    if blas:
        kernels = without_transposes(kernels, target, [kernels.params[k] for k in donations.values()])
    return covered(kernels, cover.kernels), donations


def lower_kernels(kernels: Graph, target: Target, symbols: tuple[str, ...], donations: Mapping[int, int] = {}, *,
                  fast_math: bool = False, apart: bool = False, sizes: Mapping[str, int] = {}) -> Program:
    """The program of a partitioned graph, of which some results lie in the memory of arguments. `symbols`: those of the graph
    that it was, in the order of the entry's sizes."""
    module, made = _Module(target, fast_math, {} if apart else None, sizes), with_panels(kernels, target)
    if not donations:  # a result may take the memory of what a loop begins with, or a product before it reads
        made = with_epilogues(in_strips(made, target), target)
    frame = _entry(made, symbols, module)
    whole = Node(kernel, made.params, {}, made.results, (made,))
    sites = (None, *(source_at(whole, path) for path in frame.sites[1:]))
    return Program(module.text(frame), sites, kernels, donations, module.apart or {})


class _Module:
    """The functions of kernels and control flow by structure, and the declarations that they share."""

    def __init__(self, target: Target, fast_math: bool, apart: dict[str, Callable[[], KernelText]] | None,
                 sizes: Mapping[str, int]) -> None:
        self.target, self.fast_math, self.apart, self.sizes = target, fast_math, apart, sizes
        self.functions: dict[Any, Function] = {}
        self.texts: list[str] = []
        self.number = itertools.count()
        self.shared: dict[str, None] = {}
        self.may_raise = False

    def called_by(self, n: Node) -> Callee:
        """What a node calls, made when it is first asked for."""
        if is_control(n):
            whole, inputs = region_of([n], n.outputs)
            key = n.op, whole.key, tuple(map(self.sizes.get, whole.free_symbols))
            return Callee(self._once(key, lambda: self._control(whole)), inputs, tuple(map(symbol, whole.free_symbols)))
        region, sizes = own_sizes(n)
        own = Node(kernel, region.params, n.attrs, region.results, (region,), n.source)
        known = {s: evaluate(x, self.sizes) for s, x in zip(region.symbols, sizes, strict=True)
                 if symbols_in(x) <= self.sizes.keys()}
        key = kernel, region.key, (attributes_key(n.attrs), *map(known.get, region.symbols))
        return Callee(self._once(key, lambda: self._kernel(own, known)), n.inputs, sizes)

    def _once(self, key: Any, make: Callable[[], Function]) -> Function:
        if key not in self.functions:
            self.functions[key] = make()
        return self.functions[key]

    def _kernel(self, n: Node, sizes: Mapping[str, int]) -> Function:
        """That of a kernel, of which some sizes may be known."""
        name = f"kernel_{next(self.number)}"
        if n.attrs["implementation"] != "generated":
            text, shared = library_text(n, name, self.target)
            self._add(text, shared)
            self.may_raise = self.may_raise or n.attrs["implementation"] in MAY_RAISE
            can_fail = text.count("%error") > 1  # once it is a parameter
            return Function(name, ((), ((0, 0),)) if can_fail else ((),), can_fail, is_small=False)
        scheduled = build_nest(n.regions[0], n.attrs["schedule"], name)
        usual = partial(default_schedule, n.regions[0], replace(self.target, has_tiles=False))
        scheduled = with_usual(n.regions[0], scheduled, usual, has_unit=self.target.has_tiles)
        if n.attrs.get("later") and self.apart is not None:
            return self._later(self.apart, scheduled, name)
        alone = _ones(scheduled.nest, sizes)
        nest = _without_ones(n, scheduled, name, alone, self.target) if alone else scheduled.nest
        few = tuple([x for x in nest.few if all(sizes.get(s, k) == k for s, k in x)])
        nest = altered(nest, few=few, ones=None if self.apart is None else nest.ones)
        made = emit_nest(nest, self.target, self.fast_math, apart=self.apart is not None)
        few_columns = self._few_columns(n.regions[0], n.attrs["schedule"], replace(scheduled, nest=nest))
        later = {**made.apart, **few_columns, **self._squeezed(n, scheduled)}
        if self.apart is not None:
            self.apart.update(later)
        for one in [] if self.apart is not None else [make() for make in later.values()]:
            self._add(one.text, (*sorted(one.declarations), *sorted(one.globals)))
        sites = tuple([((0, stage),) for stage in scheduled.sites])
        updates = any(isinstance(x, InPlace) for x in n.attrs["schedule"])
        is_small = len(made.text) < SMALL_TEXT and (updates or all(on_stack(bytes_of(v)) for v in n.outputs))
        can_fail = "call void @lw_report(" in made.text or "@lw_poll(" in made.text
        text = made.text if is_small or f"@{name}_range" not in made.text else quickly(made.text)
        self._add(text, (*sorted(made.declarations), *sorted(made.globals)))
        return Function(name, sites, can_fail, is_small)

    def _later(self, apart: dict[str, Callable[[], KernelText]], scheduled: Scheduled, name: str) -> Function:
        """A kernel that is compiled when it is first called."""
        own = whole_of(name)
        nest = altered(scheduled.nest, name=own, few=(), ones=None)
        if nest.instead is None:
            apart[own] = lambda: exported(emit_nest(nest, self.target, self.fast_math), own)
        else:
            own_name = altered(nest, name=name)
            apart[amx_of(name)] = lambda: exported(emitted(own_name, self.target, self.fast_math), amx_of(name))
            apart[usual_of(name)] = usual_text(own_name, self.target, self.fast_math)
        made = calling(nest, name)
        self._add(made.text, (*sorted(made.declarations), *sorted(made.globals)))
        return Function(name, tuple([((0, stage),) for stage in scheduled.sites]), can_fail=True, is_small=False)

    def _few_columns(self, region: Graph, schedule: Schedule, scheduled: Scheduled) -> dict[str, Callable[[], KernelText]]:
        """A kernel's functions for few columns."""
        nest, emit = scheduled.nest, partial(emit_nest, target=self.target, fast_math=self.fast_math)

        def made(name: str, few: Graph) -> KernelText:
            by_columns, adds = ByColumns() in schedule, adds_up(few)
            parts = _sums_apart(few, schedule, name, nest.symbols, self.target, emit) if by_columns and adds else None
            if parts is not None:
                return parts
            inner = _by_columns(few, schedule, name, self.target) if by_columns and not adds else None
            if inner is None:
                in_rows = squeezed_schedule(few, self.target, schedule) if FewInRows() in schedule else None
                found = build_nest(few, in_rows or spelled_out(schedule, few), name)
                alike = found.sites == scheduled.sites  # else its errors would name another line
                inner = found.nest if alike else altered(nest, name=name, few=(), ones=None)
            inner = altered(inner, symbols=nest.symbols)
            return exported(emit(inner), name)
        return {name: partial(made, name, substitute_graph(region, dict(values)))
                for values in nest.few for name in [few_of(nest.name, values)]}

    def _squeezed(self, n: Node, scheduled: Scheduled) -> dict[str, Callable[[], KernelText]]:
        """A kernel's functions for axes of one element, by which sizes are 1."""
        def made(name: str, ones: Sequence[str]) -> KernelText:
            nest = altered(_without_ones(n, scheduled, name, ones, self.target), few=(), ones=None)
            return exported(emit_nest(nest, self.target, self.fast_math), name)
        found = scheduled.nest.ones
        symbols = found.symbols if found and self.apart is not None else ()
        return {name: partial(made, name, [x for k, x in enumerate(symbols) if which >> k & 1])
                for which in range(1 << len(symbols) if symbols else 0) for name in [squeezed_of(scheduled.nest.name, which)]}

    def _control(self, whole: Graph) -> Function:
        n = whole.nodes[0]  # what only calls kernels needs no care
        only_calls = n.op is sized or (n.op is strips and n.attrs["equal"])
        name = f"{'through_' if only_calls else CONTROL}{next(self.number)}"
        f, text, shared = control_function(whole, name, self.called_by, quickly=only_calls, has_masks=self.target.has_masks)
        self._add(text, shared)
        return f

    def _add(self, text: str, shared: Iterable[str]) -> None:
        self.texts.append(text)
        self.shared.update(dict.fromkeys(shared))

    def text(self, entry: Frame) -> str:
        """The whole module: each function stands before those that call it."""
        body = entry.text("i32 @entry(ptr %args, ptr %results, ptr %sizes, ptr %error)", quickly=True)
        shared = dict.fromkeys((*self.shared, *entry.w.declarations))
        return "\n".join((*shared, *self.texts, body))


def _by_columns(region: Graph, schedule: Schedule, name: str, target: Target) -> Nest | None:
    """What a kernel does where columns are folded each by itself; None where the rules do not allow it."""
    columns = in_columns(region)
    own = None if columns is None else squeezed_schedule(columns, target, schedule)
    return None if columns is None or own is None else build_nest(columns, own, name).nest


def _sums_apart(region: Graph, schedule: Schedule, name: str, symbols: tuple[str, ...], target: Target,
                emit: Callable[[Nest], KernelText]) -> KernelText | None:
    """What a kernel does that adds up along its rows, where these are short: a function for each part, one after another; None
    where the rules do not allow it."""
    parts, calls, arrays = list[KernelText](), list[str](), (*region.params, *region.results)
    sizes = ", ".join((*(f"i64 %n{k}" for k in range(len(symbols))), "ptr %error"))
    for whole in sums_apart(region):
        part, number = in_columns(whole) if is_sum(whole) else whole, {v: k for k, v in enumerate(whole.results)}
        kept = [x for x in schedule if not isinstance(x, InPlace) or region.results[x.output] in number]
        steps = [replace(x, output=number[region.results[x.output]]) if isinstance(x, InPlace) else x for x in kept]
        own = None if part is None else squeezed_schedule(part, target, tuple(steps))
        if part is None or own is None:
            return None
        inner = f"{name}_part{len(parts)}"
        parts.append(emit(altered(build_nest(part, own, inner).nest, symbols=symbols)))
        buffers = ", ".join(f"ptr %b{arrays.index(v)}" for v in (*whole.params, *whole.results))
        calls.append(f"  call void @{inner}({buffers}, {sizes})")
    buffers = ", ".join(f"ptr noalias %b{k}" for k in range(len(arrays)))
    calling = "\n".join((f"define void @{name}({buffers}, {sizes}) nounwind {{", *calls, "  ret void\n}"))
    declarations, constants = [x.declarations for x in parts], [x.globals for x in parts]
    text = "\n".join((*(x.text for x in parts), calling))
    return KernelText(name, text, frozenset[str]().union(*declarations), frozenset[str]().union(*constants))


def _ones(nest: Nest, sizes: Mapping[str, int]) -> list[str]:
    """The sizes of a kernel that are always 1, if that matters."""
    alone = [x for x in nest.ones.symbols if sizes.get(x) == 1] if nest.ones else []
    return alone if nest.ones and any(set(alone) >= set(group) for group in nest.ones.matter) else []


def _without_ones(n: Node, scheduled: Scheduled, name: str, ones: Sequence[str], target: Target) -> Nest:
    """What a kernel does where these sizes are 1; the same as for others where the rules do not allow more."""
    few = squeezed(n.regions[0], ones)
    own = squeezed_schedule(few, target, n.attrs["schedule"])
    made = None if own is None else build_nest(few, own, name)
    if made is None or made.sites != scheduled.sites:
        return altered(scheduled.nest, name=name)
    return altered(made.nest, symbols=scheduled.nest.symbols)


def _entry(g: Graph, symbols: tuple[str, ...], module: _Module) -> Frame:
    """The entry: sizes, scratch, then each kernel in order, leaving at the first error."""
    def sizes(head: Writer) -> dict[str, str]:
        return {s: head.load("i64", "%sizes", 8 * k) for k, s in enumerate(symbols)}

    frame = Frame(module.called_by, sizes, inlines=False)
    pointers: dict[Place, str] = {Argument(k): frame.head.load("ptr", "%args", 8 * k) for k in range(len(g.params))}
    pointers |= {ResultMemory(k): frame.head.load("ptr", "%results", 8 * k) for k in range(len(g.results))}
    frame.run_in_scratch(g, plan_memory(g), pointers, lambda w, failed: _return_status(w, failed, module.may_raise))
    return frame


def _return_status(w: Writer, failed: bool, may_raise: bool) -> None:
    """0, 1 (error stored), 2 (out of memory) or 3 (interrupted, or code that was called left an exception)."""
    status = "0"
    if failed:
        first, status = w.load("i64", "%error"), "1"
        for number, answer in ((OUT_OF_MEMORY, 2), (INTERRUPTED, 3)):
            status = w.let(f"select i1 {w.let(f'icmp eq i64 {first}, {number}')}, i32 {answer}, i32 {status}")
    if may_raise:
        status = w.call("i32", RAISED, f"i32 {status}", "ptr %error")
    w.do(f"ret i32 {status}")
