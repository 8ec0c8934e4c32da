"""The wide loads and stores of loops that have lanes, and how threads share out stretches of elements.

A thread takes `lanes` neighbouring elements at a time, with one access of up to 16 bytes to each array that is walked
element by element, where that is aligned: arrays start at multiples of 16 bytes, and what sizes say is tested once. What is
left goes one element at a time.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent, product
from loopwright.ir.gpu_schedule import THREAD_X, THREAD_Y
from loopwright.ir.loops import Expr, Index, Load, PartitionPoint, Prefix, Reduce, When
from loopwright.ir.nest import Store
from loopwright.lower.codegen.terms import Term
from loopwright.lower.cuda import arithmetic
from loopwright.lower.cuda.context import PACK, Context, offset_form
from loopwright.lower.cuda.evaluate import holds_something, place
from loopwright.lower.cuda.store import guarded
from loopwright.lower.cuda.text import Block, memory_type, register_type

Over = Sequence[tuple[Index, Extent]]
Run = Callable[[Context, str], None]  # writes what is done for one element, given the text of its number among the lanes


@dataclass(frozen=True)
class Pack:
    """A load or a store that lanes make together. `checks`: sizes that must be multiples of the lanes."""

    at: Term | Store
    buffer: str
    checks: tuple[Extent, ...]


def unravelled(context: Context, over: Over, flat: str) -> Context:
    """The loops' variables from their common number."""
    rest = flat
    unsigned, kind = f"(unsigned {context.launch.index_type})", context.launch.index_type
    for index, extent in reversed(over[1:]):
        n = context.launch.extent(extent)
        if context.launch.divides_often and not context.launch.wide and not isinstance(extent, int):
            whole = context.block.let(kind, f"lw_quotient({rest}, {context.launch.divisor(n)})", "i")
            name = context.block.let(kind, f"{rest} - {whole} * {n}", "i")
        else:
            name = context.block.let(kind, f"({kind})({unsigned}{rest} % {unsigned}{n})", "i")
            whole = context.block.let(kind, f"({kind})({unsigned}{rest} / {unsigned}{n})", "i")
        context, rest = context.bind(index.name, name), whole
    return context.bind(over[0][0].name, rest) if over else context


# ---- packs --------------------------------------------------------------------------------------
def packs(context: Context, over: Over, lanes: int, exprs: Sequence[Expr], stores: Sequence[Store]) -> list[Pack]:
    """What may be loaded and stored together when the last loop goes by `lanes`."""
    if lanes == 1 or not over:
        return []
    launch = context.launch
    inside = {k.name for k, _ in over} | {k.split()[0] for k in context.names}
    kept = {s.buffer for s in stores if launch.buffers[s.buffer].role == "local"}  # read after it is stored, in the same step
    loads = [t for e in exprs for t in eager(launch.terms.of(e)) if not kept & t.buffers]
    found: list[Pack] = []
    for t in dict.fromkeys(loads):
        assert isinstance(t.expr, Load)
        index = t.args
        if t.free <= inside:
            found += _pack(context, over, lanes, t, str(t.expr.array), index)
    for s in stores:
        if s.combine == "set" and s.when is None:
            found += _pack(context, over, lanes, s, s.buffer, tuple(map(launch.terms.of, s.index)))
    return found


def singles(context: Context, walked: set[str], exprs: Sequence[Expr]) -> list[Pack]:
    """The loads that go with all of these loops, at places that loops alone say: they may be made before what uses any."""
    launch, inside = context.launch, {k.split()[0] for k in context.names}
    found: list[Pack] = []
    for t in dict.fromkeys(t for e in exprs for t in eager(launch.terms.of(e))):
        assert isinstance(t.expr, Load)
        buffer = launch.buffers[str(t.expr.array)]
        if walked <= t.free <= inside and buffer.role == "input" and \
                all(isinstance(x.expr, Index) for x in offset_form(launch, buffer, t.args)[0]):
            found.append(Pack(t, buffer.name, ()))
    return found


def _pack(context: Context, over: Over, lanes: int, at: Term | Store, name: str, index: tuple[Term, ...]) -> list[Pack]:
    buffer, last = context.launch.buffers[name], over[-1][0]
    if buffer.place == "registers":
        return []
    atoms, constant = offset_form(context.launch, buffer, index)
    checks: list[Extent] = [over[-1][1]] if len(over) > 1 else []
    walked = False
    for term, coefficient in atoms.items():
        if term.expr == last:
            walked = isinstance(coefficient, int) and coefficient == 1
        elif last.name in term.free:
            return []
        else:
            checks.append(coefficient)
    checks = [n for n in (*checks, constant) if not isinstance(n, int) or n % lanes]
    if not walked or any(isinstance(n, int) for n in checks) or buffer.dtype.itemsize * lanes > 16:
        return []
    return [Pack(at, name, tuple(checks))]


def eager(term: Term) -> list[Term]:
    """The loads in a term that are made whatever its conditions are, outside loops of its own."""
    found, todo, seen = [], [term], {term.number}
    while todo:
        t = todo.pop()
        parts = t.args
        match t.expr:
            case Load():
                found.append(t)
            case Reduce() | Prefix() | PartitionPoint():
                parts = ()
            case When() if any(a.effects for a in t.args[1:]):
                parts = t.args[:1]
        todo += [a for a in reversed(parts) if a.number not in seen]
        seen.update(a.number for a in parts)
    return found


def aligned(context: Context, found: Sequence[Pack], lanes: int) -> str:
    """Whether the sizes allow the packs; "" where all do."""
    checks = dict.fromkeys(n for p in found for n in p.checks)
    return " && ".join(f"{context.launch.extent(n)} % {lanes} == 0" for n in checks)


def pack_type(context: Context, buffer: str, lanes: int) -> str:
    context.launch.library.add("lw_pack", PACK)
    return f"lw_pack<{memory_type(context.launch.buffers[buffer].dtype)}, {lanes}>"


def load_packs(context: Context, found: Sequence[Pack], lanes: int, into: Mapping[int, str], slot: str, when: str = "") -> None:
    """Load all packs at the place that the loops' variables say, where a condition holds."""
    for p in found:
        if isinstance(p.at, Term):
            kind = pack_type(context, p.buffer, lanes)
            at = place(context, context.launch.buffers[p.buffer], p.at.args)
            text = f"{into[p.at.number]}{slot} = *(const {kind}*)&{p.buffer}[{at}];"
            some = " && ".join(x for x in (when, holds_something(context, p.at)) if x)
            context.block.line(f"if ({some}) {text}" if some else text)


def each_lane(context: Context, over: Over, lanes: int, found: Sequence[Pack], loaded: Mapping[int, str], slot: str,
              run: Run) -> None:
    """`run` for every lane, then the packs of stores."""
    last = over[-1][0].name
    stored = declare_stores(context, found, lanes)
    context.block.line("#pragma unroll")
    lane = context.block.fresh("e")
    with context.block.inner(f"for (int {lane} = 0; {lane} < {lanes}; ++{lane})") as inside:
        packed = {key: f"{pack}.at[{lane}]" for key, pack in stored.items()}
        here = replace(context.at(inside).bind(last, f"({context.names[last]} + {lane})"), packed=packed)
        known_lanes(here, found, loaded, slot, lane)
        run(here, lane)
    store_packs(context, found, lanes, stored)


def declare_stores(context: Context, found: Sequence[Pack], lanes: int) -> dict[int, str]:
    """Registers for what is stored, by the statements."""
    stored: dict[int, str] = {}
    for p in found:
        if isinstance(p.at, Store):
            stored[id(p.at)] = context.block.fresh("pack")
            context.block.line(f"{pack_type(context, p.buffer, lanes)} {stored[id(p.at)]};")
    return stored


def known_lanes(context: Context, found: Sequence[Pack], loaded: Mapping[int, str], slot: str, lane: str) -> None:
    """What was loaded for a lane is known here."""
    for p in found:
        if isinstance(p.at, Term):
            text = f"{loaded[p.at.number]}{slot}.at[{lane}]"
            dtype = context.launch.buffers[p.buffer].dtype
            known = context.block.let(register_type(dtype), arithmetic.from_memory(context.launch.library, text, dtype))
            context.block.values[context.key(p.at)] = known


def store_packs(context: Context, found: Sequence[Pack], lanes: int, stored: Mapping[int, str]) -> None:
    """Store what the lanes have put together."""
    for p in found:
        if isinstance(p.at, Store):
            _store(context, p.at, f"*({pack_type(context, p.buffer, lanes)}*)&", stored[id(p.at)])


def store_lane(context: Context, found: Sequence[Pack], stored: Mapping[int, str], lane: str) -> None:
    """Store what one lane has."""
    for p in found:
        if isinstance(p.at, Store):
            _store(context, p.at, "", f"{stored[id(p.at)]}.at[{lane}]")


def _store(context: Context, s: Store, how: str, value: str) -> None:
    launch = context.launch
    buffer = launch.buffers[s.buffer]
    at = place(context, buffer, tuple(map(launch.terms.of, s.index)))
    own = replace(context, active="") if buffer.role == "local" else context
    guarded(own, lambda here: here.block.line(f"{how}{s.buffer}[{at}] = {value};"))
    launch.wrote(s.buffer)


def declare_packs(context: Context, found: Sequence[Pack], lanes: int, slots: str, is_zero: bool = False) -> dict[int, str]:
    """Registers for the loads, by their terms; zeros where some may not be made."""
    names: dict[int, str] = {}
    for p in found:
        if isinstance(p.at, Term):
            names[p.at.number] = context.block.fresh("pack")
            start = " = {}" if is_zero or holds_something(context, p.at) else ""
            context.block.line(f"{pack_type(context, p.buffer, lanes)} {names[p.at.number]}{slots}{start};")
    return names


# ---- a stretch of elements ----------------------------------------------------------------------
def strided(context: Context, over: Over, lanes: int, who: str, everyone: str, found: Sequence[Pack], unroll: int,
            run: Run) -> None:
    """Thread `who` of `everyone` takes every so many elements, lanes at a time as far as that goes."""
    launch, kind = context.launch, context.launch.index_type
    total = launch.extent(product(n for _, n in over))
    begin = who
    if found:
        condition = aligned(context, found, lanes)
        whole = f"{total} - {total} % {lanes}"
        main = context.block.let(kind, f"{condition} ? {whole} : 0" if condition else whole, "n")
        flat = context.block.fresh("at")
        launch.forget()
        context.block.line(f"#pragma unroll {unroll}")
        header = f"for ({kind} {flat} = {who} * {lanes}; {flat} < {main}; {flat} += {everyone} * {lanes})"
        with context.block.inner(header) as inside:
            here = unravelled(replace(context.at(inside), repeats=True), over, flat)
            loaded = declare_packs(here, found, lanes, "")
            load_packs(here, found, lanes, loaded, "")
            each_lane(here, over, lanes, found, loaded, "", run)
        begin = f"{main} + {who}"
    flat = context.block.fresh("at")
    launch.forget()
    with context.block.inner(f"for ({kind} {flat} = {begin}; {flat} < {total}; {flat} += {everyone})") as inside:
        run(unravelled(replace(context.at(inside), repeats=True), over, flat), "0")
    launch.forget()


def batched(context: Context, over: Over, lanes: int, who: str, everyone: str, found: Sequence[Pack], count: int,
            use: Callable[[Context, Mapping[int, str], str], None]) -> None:
    """Thread `who` of `everyone` takes every so many elements, and loads what is found of `count` before it uses any."""
    launch, kind, total = context.launch, context.launch.index_type, context.launch.extent(product(n for _, n in over))
    flat = context.block.fresh("at")
    launch.forget()
    with context.block.inner(f"for ({kind} {flat} = {who}; {flat} < {total}; {flat} += {everyone} * {count})") as inside:
        loaded = declare_packs(context.at(inside), found, lanes, f"[{count}]")

        def each(of: Callable[[Context, str, str], None]) -> None:
            u = inside.fresh("u")
            inside.line("#pragma unroll")
            with inside.inner(f"for (int {u} = 0; {u} < {count}; ++{u})") as one:
                of(replace(context.at(one), repeats=True), one.let(kind, f"{flat} + {u} * {everyone}", "at"), f"[{u}]")

        def load(here: Context, at: str, slot: str) -> None:
            near = here.block.let(kind, f"{at} < {total} ? {at} : {total} - 1", "at")
            load_packs(unravelled(here, over, near), found, lanes, loaded, slot)

        def run(here: Context, at: str, slot: str) -> None:
            with here.block.inner(f"if ({at} < {total})") as some:
                use(unravelled(here.at(some), over, at), loaded, slot)
        each(load)
        each(run)
    launch.forget()


def tiled(context: Context, over: Over, lanes: int, unroll: int, found: Sequence[Pack], run: Run) -> None:
    """A stretch of the elements for each block: `unroll` packs a thread before the first is used, or, at the end and where
    packs are not aligned, one element after another."""
    launch, kind = context.launch, context.launch.index_type
    size = launch.x * lanes * unroll
    total = launch.extent(product(n for _, n in over))
    launch.grid = (product(n for _, n in over) + (size - 1)) // size
    if size == launch.x:
        flat = context.block.let(kind, f"{launch.thread('blockIdx.x')} * {launch.x} + {launch.thread(THREAD_X)}", "at")
        with context.block.inner(f"if ({flat} < {total})") as inside:
            run(unravelled(context.at(inside), over, flat), "0")
        return
    first = context.block.let(kind, f"{launch.thread('blockIdx.x')} * {size}", "at")

    def rest(block: Block) -> None:
        flat = block.fresh("at")
        end = block.let(kind, f"{first} + {size} < {total} ? {first} + {size} : {total}", "n")
        header = f"for ({kind} {flat} = {first} + {launch.thread(THREAD_X)}; {flat} < {end}; {flat} += {launch.x})"
        with block.inner(header) as inside:
            run(unravelled(replace(context.at(inside), repeats=True), over, flat), "0")
    launch.forget()
    if not found:
        rest(context.block)
    else:
        condition = " && ".join(x for x in (aligned(context, found, lanes), f"{first} + {size} <= {total}") if x)
        with context.block.inner(f"if ({condition})") as inside:
            _whole_tile(context.at(inside), over, lanes, unroll, found, first, run)
        other = Block(context.block)
        launch.forget()
        rest(other)
        context.block.otherwise(other)
    launch.forget()


def _whole_tile(context: Context, over: Over, lanes: int, unroll: int, found: Sequence[Pack], first: str, run: Run) -> None:
    launch, block = context.launch, context.block
    loaded = declare_packs(context, found, lanes, f"[{unroll}]")

    def every(each: Callable[[Context, str], None]) -> None:
        u = block.fresh("u")
        block.line("#pragma unroll")
        with block.inner(f"for (int {u} = 0; {u} < {unroll}; ++{u})") as inside:
            at = f"{first} + ({u} * {launch.x} + {launch.thread(THREAD_X)}) * {lanes}"
            flat = inside.let(launch.index_type, at, "at")
            each(unravelled(replace(context.at(inside), repeats=True), over, flat), f"[{u}]")
    if loaded:
        every(lambda here, slot: load_packs(here, found, lanes, loaded, slot))
    every(lambda here, slot: each_lane(here, over, lanes, found, loaded, slot, run))


def clamped(context: Context, over: Over, axis: str, run: Callable[[Context], object], place: str = "") -> None:
    """One element for each place along an axis of a block, whose threads stay together: past the end they do again what the
    last element's do. `place`: the number of the block, if it is not its own."""
    launch, kind, block = context.launch, context.launch.index_type, context.block
    each = launch.y if axis == THREAD_Y else launch.x
    launch.grid = (product(n for _, n in over) + (each - 1)) // each
    total = launch.extent(product(n for _, n in over))
    flat = block.let(kind, f"{place or launch.thread('blockIdx.x')} * {each} + {launch.thread(axis)}", "at")
    active = block.let("bool", f"{flat} < {total}")
    near = block.let(kind, f"{active} ? {flat} : {total} - 1", "at")
    run(unravelled(replace(context, active=active), over, near))

