"""Loops that blocks and threads share out, and the wide loads and stores of those that have lanes.

A thread takes `lanes` neighbouring elements at a time, with one access of up to 16 bytes to each array that is walked
element by element, where that is aligned: arrays start at multiples of 16 bytes, and what sizes say is tested once. What is
left goes one element at a time.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from loopwright.ir.dims import Extent, maximum, minimum, product
from loopwright.ir.loops import Expr, Index, Load, Prefix, Reduce, When
from loopwright.ir.nest import For, Let, Reduction, Scan, Statement, Store
from loopwright.ir.schedule import BLOCK, THREAD_X, THREAD_Y
from loopwright.lower.codegen.terms import Term
from loopwright.lower.cuda import arithmetic
from loopwright.lower.cuda.context import PACK, WARP, Context, offset_form
from loopwright.lower.cuda.evaluate import holds_something, place, value
from loopwright.lower.cuda.store import guarded, written
from loopwright.lower.cuda.text import Block, memory_type, register_type
from loopwright.lower.fusing import transposed_loads

SQUARE = 32
MOST_OWNERS = 2048  # warps that look at all updates
Over = Sequence[tuple[Index, Extent]]
Run = Callable[[Context, str], None]  # writes what is done for one element, given the text of its number among the lanes


@dataclass(frozen=True)
class Pack:
    """A load or a store that lanes make together. `checks`: sizes that must be multiples of the lanes."""

    at: Term | Store
    buffer: str
    checks: tuple[Extent, ...]


def perfect(s: For) -> tuple[list[tuple[Index, Extent]], For]:
    """The loops directly inside each other that are shared out as one, and the innermost."""
    over = [(s.index, s.extent)]
    while len(s.body) == 1 and isinstance(inner := s.body[0], For) and inner.bind == s.bind:
        s = inner
        over.append((s.index, s.extent))
    return over, s


def unravelled(context: Context, over: Over, flat: str) -> Context:
    """The loops' variables from their common number."""
    rest = flat
    unsigned, kind = f"(unsigned {context.launch.index_type})", context.launch.index_type
    for index, extent in reversed(over[1:]):
        n = context.launch.extent(extent)
        name = context.block.let(kind, f"({kind})({unsigned}{rest} % {unsigned}{n})", "i")
        rest = context.block.let(kind, f"({kind})({unsigned}{rest} / {unsigned}{n})", "i")
        context = context.bind(index.name, name)
    return context.bind(over[0][0].name, rest) if over else context


# ---- packs --------------------------------------------------------------------------------------
def packs(context: Context, over: Over, lanes: int, exprs: Sequence[Expr], stores: Sequence[Store]) -> list[Pack]:
    """What may be loaded and stored together when the last loop goes by `lanes`."""
    if lanes == 1 or not over:
        return []
    launch = context.launch
    inside = {k.name for k, _ in over} | {k.split()[0] for k in context.names}
    kept = {s.buffer for s in stores if launch.buffers[s.buffer].role == "local"}  # read after it is stored, in the same step
    loads = [t for e in exprs for t in _eager(launch.terms.of(e)) if not kept & t.buffers]
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


def _pack(context: Context, over: Over, lanes: int, at: Term | Store, name: str, index: tuple[Term, ...]) -> list[Pack]:
    buffer, last = context.launch.buffers[name], over[-1][0]
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


def _eager(term: Term) -> list[Term]:
    """The loads in a term that are made whatever its conditions are, outside loops of its own."""
    found, todo, seen = [], [term], {term.number}
    while todo:
        t = todo.pop()
        parts = t.args
        match t.expr:
            case Load():
                found.append(t)
            case Reduce() | Prefix():
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


def load_packs(context: Context, found: Sequence[Pack], lanes: int, into: Mapping[int, str], slot: str) -> None:
    """Load all packs at the place that the loops' variables say."""
    for p in found:
        if isinstance(p.at, Term):
            kind = pack_type(context, p.buffer, lanes)
            at = place(context, context.launch.buffers[p.buffer], p.at.args)
            text = f"{into[p.at.number]}{slot} = *(const {kind}*)&{p.buffer}[{at}];"
            some = holds_something(context, p.at)
            context.block.line(f"if ({some}) {text}" if some else text)


def each_lane(context: Context, over: Over, lanes: int, found: Sequence[Pack], loaded: Mapping[int, str], slot: str,
              run: Run) -> None:
    """`run` for every lane, then the packs of stores."""
    launch, last, stored = context.launch, over[-1][0].name, dict[int, str]()
    for p in found:
        if isinstance(p.at, Store):
            stored[id(p.at)] = context.block.fresh("pack")
            context.block.line(f"{pack_type(context, p.buffer, lanes)} {stored[id(p.at)]};")
    context.block.line("#pragma unroll")
    lane = context.block.fresh("e")
    with context.block.inner(f"for (int {lane} = 0; {lane} < {lanes}; ++{lane})") as inside:
        packed = {key: f"{pack}.at[{lane}]" for key, pack in stored.items()}
        here = replace(context.at(inside).bind(last, f"({context.names[last]} + {lane})"), packed=packed)
        for p in found:
            if isinstance(p.at, Term):
                text = f"{loaded[p.at.number]}{slot}.at[{lane}]"
                dtype = launch.buffers[p.buffer].dtype
                known = inside.let(register_type(dtype), arithmetic.from_memory(launch.library, text, dtype))
                inside.values[here.key(p.at)] = known
        run(here, lane)
    for p in found:
        if isinstance(p.at, Store):
            kind = pack_type(context, p.buffer, lanes)
            index = tuple(map(launch.terms.of, p.at.index))
            at = place(context, launch.buffers[p.buffer], index)
            own = replace(context, active="") if launch.buffers[p.buffer].role == "local" else context
            text = f"*({kind}*)&{p.buffer}[{at}] = {stored[id(p.at)]};"
            guarded(own, lambda here, text=text: here.block.line(text))  # type: ignore[misc]
            launch.wrote(p.buffer)


def declare_packs(context: Context, found: Sequence[Pack], lanes: int, slots: str) -> dict[int, str]:
    """Registers for the loads, by their terms."""
    names: dict[int, str] = {}
    for p in found:
        if isinstance(p.at, Term):
            names[p.at.number] = context.block.fresh("pack")
            start = " = {}" if holds_something(context, p.at) else ""
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


# ---- loops of statements ------------------------------------------------------------------------
def is_plain(body: Sequence[Statement]) -> bool:
    """Whether lanes may do a body together: nothing in it is a loop."""
    return all(isinstance(s, Let | Store) for s in body)


def cooperates(body: Sequence[Statement]) -> bool:
    """Whether the threads of a block meet in a body."""
    return any((isinstance(s, Reduction | Scan | For) and bool(s.bind)) or (isinstance(s, For) and cooperates(s.body))
               for s in body)


def looped(context: Context, s: For, run: Callable[[Context, Sequence[Statement]], object]) -> None:
    """A loop and what is in it; `run` writes statements."""
    launch = context.launch
    if s.by_owner:
        _by_owner(context, s)
        return
    over, innermost = perfect(s) if s.bind else ([(s.index, s.extent)], s)
    body = innermost.body
    lanes = innermost.lanes if is_plain(body) else 1
    stores = [x for x in body if isinstance(x, Store)]
    exprs = [x.value for x in body if isinstance(x, Let | Store)]
    inside = replace(context, free=tuple([a for a in context.free if a not in s.bind]))

    def one(here: Context, _: str) -> None:
        run(here, body)
    match s.bind:
        case ():
            _serial(context, s, run)
        case (axis,) if axis == BLOCK:
            launch.grid = product(n for _, n in over)
            run(unravelled(inside, over, launch.thread("blockIdx.x")), body)
        case (_, axis) if axis == THREAD_Y or cooperates(body):
            clamped(inside, over, axis, lambda here: run(here, body))
        case (_, _):
            tiled(inside, over, lanes, innermost.unroll if lanes > 1 else 1, packs(inside, over, lanes, exprs, stores), one)
        case (_, _, _):
            _in_squares(inside, over, body, one)
        case (_,):
            found = packs(inside, over, lanes, exprs, stores)
            strided(inside, over, lanes, launch.thread(THREAD_X), str(launch.x), found, innermost.unroll, one)
            if any(launch.buffers[x.buffer].role == "local" for x in stores):
                context.block.line(launch.barrier)


def _in_squares(context: Context, over: Over, body: Sequence[Statement], run: Run) -> None:
    """Squares of the last two loops: what is walked along the first of them is read so, into shared memory, and from there
    along the last."""
    launch, block, kind = context.launch, context.block, context.launch.index_type
    (i, height), (j, width) = over[-2:]
    inner = For(j, width, tuple(body), lanes=SQUARE)
    counts = [(n + (SQUARE - 1)) // SQUARE for n in (height, width)]
    launch.grid = product([*(n for _, n in over[:-2]), *counts])
    squares = [*over[:-2], (Index("row of squares"), counts[0]), (Index("column of squares"), counts[1])]
    context = unravelled(context, squares, launch.thread("blockIdx.x"))
    top = block.let(kind, f"{context.names['row of squares']} * {SQUARE}", "at")
    left = block.let(kind, f"{context.names['column of squares']} * {SQUARE}", "at")
    loads = [launch.terms.of(e) for e in transposed_loads(For(i, height, (inner,)))]
    tiles = [block.fresh("tile") for _ in loads]
    for t, tile in zip(loads, tiles, strict=True):
        assert isinstance(t.expr, Load)
        block.line(f"__shared__ {memory_type(t.dtype)} {tile}[{SQUARE}][{SQUARE + 1}];")

    def every(rows: tuple[str, str, Extent], columns: tuple[str, str, Extent], each: Callable[[Context, str], None]) -> None:
        r = block.fresh("k")
        block.line("#pragma unroll")
        with block.inner(f"for (int {r} = (int){THREAD_Y}; {r} < {SQUARE}; {r} += {launch.y})") as inside:
            row = inside.let(kind, f"{rows[1]} + {r}", "i")
            column = inside.let(kind, f"{columns[1]} + {launch.thread(THREAD_X)}", "i")
            test = f"{row} < {launch.extent(rows[2])} && {column} < {launch.extent(columns[2])}"
            with inside.inner(f"if ({test})") as own:
                here = replace(context.at(own), repeats=True)
                each(here.bind(rows[0], row).bind(columns[0], column), r)

    def fill(here: Context, r: str) -> None:
        for t, tile in zip(loads, tiles, strict=True):
            at = place(here, launch.buffers[str(t.expr.array)], t.args)  # type: ignore[union-attr]
            here.block.line(f"{tile}[{r}][{THREAD_X}] = {t.expr.array}[{at}];")  # type: ignore[union-attr]

    def use(here: Context, r: str) -> None:
        for t, tile in zip(loads, tiles, strict=True):
            text = arithmetic.from_memory(launch.library, f"{tile}[{THREAD_X}][{r}]", t.dtype)
            here.block.values[here.key(t)] = here.block.let(register_type(t.dtype), text)
        run(here, "0")
    launch.forget()
    every((j.name, left, width), (i.name, top, height), fill)
    block.line("__syncthreads();")
    every((i.name, top, height), (j.name, left, width), use)
    launch.forget()


def _by_owner(context: Context, s: For) -> None:
    """Each warp looks at all updates, one in each lane, and does those of its own stretch of the array, lane after lane."""
    launch, block, kind = context.launch, context.block, context.launch.index_type
    over, innermost = perfect(s)
    update, = innermost.body
    assert isinstance(update, Store)
    buffer = launch.buffers[update.buffer]
    size, warps = product(buffer.shape), launch.x * launch.y // WARP
    launch.grid = maximum(1, minimum((size + (WARP * warps - 1)) // (WARP * warps), MOST_OWNERS // warps))
    stretch = (size + (launch.grid * warps - 1)) // (launch.grid * warps)
    lane = block.let("int", f"{THREAD_X} % {WARP}")
    warp = f"({launch.thread('blockIdx.x')} * {warps} + {launch.thread(THREAD_X)} / {WARP})"
    low = block.let(kind, f"{warp} * {launch.extent(stretch)}", "n")
    high = block.let(kind, f"{low} + {launch.extent(stretch)}", "n")
    total, first = launch.extent(product(n for _, n in over)), block.fresh("at")
    launch.forget()
    with block.inner(f"for ({kind} {first} = 0; {first} < {total}; {first} += {WARP})") as inside:
        flat, at = inside.let(kind, f"{first} + {lane}", "at"), inside.variable(kind, "-1", "at")
        x = inside.variable(register_type(buffer.dtype), "0")
        with inside.inner(f"if ({flat} < {total})") as some:
            _place_of_update(unravelled(replace(context.at(some), repeats=True), over, flat), update, at, x, low, high)
        todo = inside.variable("unsigned", f"__ballot_sync(0xffffffffu, {at} >= 0)", "todo")
        with inside.inner(f"for (; {todo} != 0; {todo} &= {todo} - 1)") as one:
            with one.inner(f"if ({lane} == __ffs({todo}) - 1)") as own:
                written(context.at(own), update, f"{update.buffer}[{at}]", x)
            one.line("__syncwarp();")
    launch.forget()


def _place_of_update(context: Context, s: Store, at: str, x: str, low: str, high: str) -> None:
    """Where an update goes and what it is, if it is of the stretch."""
    launch = context.launch
    if s.when is not None:
        with context.block.inner(f"if ({value(context, s.when)})") as inside:
            _place_of_update(context.at(inside), replace(s, when=None), at, x, low, high)
        return
    index = tuple(map(launch.terms.of, s.index))
    where = context.block.let(launch.index_type, place(context, launch.buffers[s.buffer], index))
    with context.block.inner(f"if ({low} <= {where} && {where} < {high})") as inside:
        inside.line(f"{at} = {where};")
        inside.line(f"{x} = {value(context.at(inside), s.value)};")


def _serial(context: Context, s: For, run: Callable[[Context, Sequence[Statement]], object]) -> None:
    context.launch.forget()
    k = context.block.fresh("i")
    header = f"for ({context.launch.index_type} {k} = 0; {k} < {context.launch.extent(s.extent)}; ++{k})"
    with context.block.inner(header) as inside:
        run(replace(context.at(inside), repeats=True).bind(s.index.name, k), s.body)
    context.launch.forget()


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

