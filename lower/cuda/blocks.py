"""Products of matrices: a tile of the sums for each block, both sides' terms through shared memory, sums in registers.

While a block multiplies what lies in one of two stages, its threads load the next terms into registers and store them to the
other; so they wait for each other once for each depth of terms. Past the edges terms are zeros, and nothing is stored.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import product
from loopwright.ir.gpu_schedule import THREAD_X, THREAD_Y
from loopwright.ir.loops import Expr, Load, walk
from loopwright.ir.nest import Block as Positions
from loopwright.ir.nest import Contract, For, Let, Statement, Store
from loopwright.lower.blocks import BYTES, lanes_of
from loopwright.lower.cuda.context import Context
from loopwright.lower.cuda.multiplying import Means
from loopwright.lower.cuda.packs import Over, aligned, declare_packs, each_lane, load_packs, packs, unravelled
from loopwright.lower.cuda.text import Block
from loopwright.lower.registers import rows_read

Run = Callable[[Context, Sequence[Statement]], object]


@dataclass(frozen=True)
class Side:
    """What one side of a product copies: `positions` of its rows (or columns), in the shared array of this name. across: its
    memory goes along the positions, not along the terms. lanes: elements of one access. count: accesses of a thread. loaded:
    what is copied past the registers, if it is."""

    name: str
    expr: Expr
    positions: Positions
    across: bool
    lanes: int
    count: int
    means: Means
    loaded: Load | None = None

    @property
    def lies_across(self) -> bool:
        """Whether positions lie side by side in shared memory, not terms."""
        return self.means.lies_across(self.across)

    @property
    def together(self) -> bool:
        """Whether what one access loads lies together in shared memory, too."""
        return self.across == self.lies_across

    def place(self, stage: str, position: str, term: str) -> str:
        """An element of a stage."""
        return f"{self.name}[{stage}]{f'[{term}][{position}]' if self.lies_across else f'[{position}][{term}]'}"

    @property
    def size(self) -> int:
        assert isinstance(self.positions.length, int)
        return self.positions.length


def through_stages(context: Context, sides: Sequence[Side], over: Over, counts: tuple[str, int], origin: str,
                   multiply: Callable[[Context, str, str], None]) -> None:
    """The terms from `origin` on, as many as the first of the counts says, through stages of shared memory, as many at a time
    as the second says: `multiply` writes what is done with those of a stage, which begin at a place. All threads have met when
    it is done."""
    launch, block, kind = context.launch, context.block, context.launch.index_type
    terms, depth = counts
    stage, first = block.variable("int", "0", "stage"), block.fresh("first")
    launch.forget()
    with block.inner(f"for ({kind} {first} = -{depth}; {first} < {terms}; {first} += {depth})") as inside:
        here = context.at(inside)
        more = inside.let("bool", f"{first} + {depth} < {terms}", "more")
        with inside.inner(f"if ({more})") as some:
            for side in sides:
                take(here.at(some), side, over, f"{origin}{first} + {depth}", depth)
        with inside.inner(f"if ({first} >= 0)") as some:
            multiply(here.at(some), stage, first)
        inside.line(f"{stage} = 1 - {stage};")
        with inside.inner(f"if ({more})") as some:
            for side in sides:
                put(here.at(some), side, stage, depth)
        inside.line("__syncthreads();")
    launch.forget()


def side_of(context: Context, s: Contract, name: str, e: Expr, positions: Positions, means: Means) -> Side:
    launch = context.launch
    assert isinstance(positions.length, int)
    share = positions.length * s.depth // (launch.x * launch.y)
    loads = [x for x in walk(e) if isinstance(x, Load) and x.index]
    across = any(k in walk(x.index[-1]) for x in loads for k, _ in positions.of or [(positions.index, positions.extent)])
    narrowest = min([launch.buffers[str(x.array)].dtype.itemsize for x in loads], default=BYTES)
    lanes = 1 if across and positions.of else min(lanes_of(narrowest, share), s.depth)
    return Side(name, means.factor(e), positions, across, lanes, share // lanes, means)


# ---- copies ---------------------------------------------------------------------------------------
def _places(context: Context, side: Side, u: str, depth: int) -> tuple[str, str]:
    """Which position and which term, of a tile's, a thread's access number u begins at."""
    launch, block = context.launch, context.block
    long = (side.size if side.across else depth) // side.lanes
    number = block.let("int", f"{u} * {launch.x * launch.y} + (int){THREAD_Y} * {launch.x} + (int){THREAD_X}", "at")
    along, other = block.let("int", f"{number} % {long} * {side.lanes}", "at"), block.let("int", f"{number} / {long}", "at")
    return (along, other) if side.across else (other, along)


def access(context: Context, side: Side, u: str, first: str, depth: int) -> tuple[str, str, str, str]:
    """Where a thread's access number u begins: the position and the term of a tile's, and of all."""
    block, kind = context.block, context.launch.index_type
    position, term = _places(context, side, u, depth)
    assert side.positions.origin is not None
    origin = context.names[side.positions.origin.name]
    return position, term, block.let(kind, f"{origin} + {position}", "i"), block.let(kind, f"{first} + {term}", "k")


def take(context: Context, side: Side, over: Over, first: str, depth: int) -> None:
    """The next terms, from memory to registers."""
    launch, block = context.launch, context.block
    u = block.fresh("u")
    block.line("#pragma unroll")
    with block.inner(f"for (int {u} = 0; {u} < {side.count}; ++{u})") as inside:
        _, _, at, k = access(context.at(inside), side, u, first, depth)
        ends = launch.extent(side.positions.extent), launch.extent(product(n for _, n in over))
        here = context.at(inside)

        def run(here: Context, lane: str) -> None:
            here.block.line(f"{side.name}_next[{u} * {side.lanes} + {lane}] = {side.means.stored(here, side.expr)};")

        def narrow(here: Context) -> None:
            lane = here.block.fresh("e")
            here.block.line("#pragma unroll")
            with here.block.inner(f"for (int {lane} = 0; {lane} < {side.lanes}; ++{lane})") as one:
                p, t = (f"({at} + {lane})", k) if side.across else (at, f"({k} + {lane})")
                one.line(f"{side.name}_next[{u} * {side.lanes} + {lane}] = 0;")
                with one.inner(f"if ({p} < {ends[0]} && {t} < {ends[1]})") as some:
                    run(unravelled(at_position(here.at(some), side.positions, p), over, t), lane)
        _wide_or_not(here, side, over, (at, k), ends, run, narrow)


def at_position(context: Context, positions: Positions | For, text: str) -> Context:
    """At one of the positions: its loops' variables."""
    context = context.bind(positions.index.name, text)
    return unravelled(context, positions.of, f"({text})") if positions.of else context


def _wide_or_not(context: Context, side: Side, over: Over, at: tuple[str, str], ends: tuple[str, str],
                 run: Callable[[Context, str], None], narrow: Callable[[Context], None]) -> None:
    """Accesses of all lanes where sizes allow them, and inside the edges; else one element after another."""
    block, position = context.block, side.positions.index
    along: Over = [(position, side.positions.extent)] if side.across else over
    names = [k.name for k, _ in over] if side.across else [k.name for k in (position, *(x for x, _ in side.positions.of))]
    found = packs(replace(context, names={**context.names, **dict.fromkeys(names, "")}), along, side.lanes, [side.expr], [])
    if not found:
        narrow(context)
        return
    lanes = f" + {side.lanes} <="
    inside = f"{at[0]}{lanes if side.across else ' <'} {ends[0]} && {at[1]}{' <' if side.across else lanes} {ends[1]}"
    with block.inner(f"if ({' && '.join(x for x in (aligned(context, found, side.lanes), inside) if x)})") as whole:
        here = unravelled(at_position(context.at(whole), side.positions, at[0]), over, at[1])
        loaded = declare_packs(here, found, side.lanes, "")
        load_packs(here, found, side.lanes, loaded, "")
        each_lane(here, along, side.lanes, found, loaded, "", run)
    other = Block(block)
    narrow(context.at(other))
    block.otherwise(other)


def put(context: Context, side: Side, stage: str, depth: int) -> None:
    """What was taken, from registers to a stage: what is narrower in memory than there takes several stores."""
    u, lane = context.block.fresh("u"), context.block.fresh("e")
    wide = lanes_of(side.means.itemsize, side.lanes) if side.together else side.lanes
    context.block.line("#pragma unroll")
    with context.block.inner(f"for (int {u} = 0; {u} < {side.count}; ++{u})") as inside:
        position, term = _places(context.at(inside), side, u, depth)
        pack = f"lw_pack<{side.means.element}, {wide}>"
        for first in range(0, side.lanes, wide):
            whole, more = (f"whole{first}", f" + {first}") if first else ("whole", "")
            if side.together:
                inside.line(f"{pack} {whole};")
            p, k = (f"{position} + {lane}", term) if side.across else (position, f"{term} + {lane}")
            to = f"{whole}.at[{lane}]" if side.together else side.place(stage, p, k)
            inside.line("#pragma unroll")
            with inside.inner(f"for (int {lane} = 0; {lane} < {wide}; ++{lane})") as one:
                one.line(f"{to} = {side.name}_next[{u} * {side.lanes}{more} + {lane}];")
            if side.together:
                p, k = (position + more, term) if side.across else (position, term + more)
                inside.line(f"*({pack}*)&{side.place(stage, p, k)} = {whole};")


# ---- sums -----------------------------------------------------------------------------------------
def each_sum(context: Context, s: For, run: Run) -> None:
    """What is made of the sums: for each of a thread's rows, groups of columns in lanes."""
    inner, = s.body
    assert isinstance(inner, For) and s.origin is not None and inner.origin is not None
    launch, kind, body = context.launch, context.launch.index_type, inner.body
    sums = rows_read(body, launch.rows)[0]
    rows, columns = launch.shares[sums.name]
    ends, over = (launch.extent(s.extent), launch.extent(inner.extent)), [(inner.index, inner.extent)]
    context = replace(context, free=tuple([a for a in context.free if a not in (*s.bind, *inner.bind)]), repeats=True)
    r, g = context.block.fresh("r"), context.block.fresh("g")
    context.block.line("#pragma unroll")
    with context.block.inner(f"for (int {r} = 0; {r} < {rows.count}; ++{r})") as each:
        row = rows.start(f"{r} / {rows.lanes}")
        i = each.let(kind, f"{context.names[s.origin.name]} + {row} + {r} % {rows.lanes}", "i")
        each.line("#pragma unroll")
        with each.inner(f"for (int {g} = 0; {g} < {columns.count // columns.lanes}; ++{g})") as group:
            j = group.let(kind, f"{context.names[inner.origin.name]} + {columns.start(g)}", "i")
            here = at_position(context.at(group), s, i)

            def one(here: Context, lane: str) -> None:
                here = at_position(here, inner, here.names[inner.index.name])
                run(replace(here, slot=f"[{r} * {columns.count} + {g} * {columns.lanes} + {lane}]"), body)
            store_sums(here, over, columns.lanes, (i, j), ends, body, one)


def store_sums(context: Context, over: Over, lanes: int, at: tuple[str, str], ends: tuple[str, str],
               body: Sequence[Statement], one: Callable[[Context, str], None]) -> None:
    """A group of columns of a row, with wide accesses where sizes allow them, else one after another."""
    index, block = over[0][0].name, context.block
    stores = [x for x in body if isinstance(x, Store)]
    exprs = [x.value for x in body if isinstance(x, Let | Store)]
    found = packs(context, over, lanes, exprs, stores)

    def narrow(here: Context) -> None:
        e = here.block.fresh("e")
        here.block.line("#pragma unroll")
        there = f"if ({at[0]} < {ends[0]} && {at[1]} + {e} < {ends[1]})"
        with here.block.inner(f"for (int {e} = 0; {e} < {lanes}; ++{e})") as each, each.inner(there) as some:
            one(here.at(some).bind(index, f"({at[1]} + {e})"), e)
    if not found:
        narrow(context)
        return
    inside = f"{at[0]} < {ends[0]} && {at[1]} + {lanes} <= {ends[1]}"
    with block.inner(f"if ({' && '.join(x for x in (aligned(context, found, lanes), inside) if x)})") as whole:
        here = context.at(whole).bind(index, at[1])
        loaded = declare_packs(here, found, lanes, "")
        load_packs(here, found, lanes, loaded, "")
        each_lane(here, over, lanes, found, loaded, "", one)
    other = Block(block)
    narrow(context.at(other))
    block.otherwise(other)
