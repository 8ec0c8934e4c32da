"""Folds that the threads of a block share: alone, then in a warp by shuffles, then in a block through shared memory.

Guarantees: every thread has the result, and in every run the same bits; each fold has shared memory of its own, so that
only loops around it make threads wait once more.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace

from loopwright.ir.dims import Extent, maximum, minimum, product
from loopwright.ir.gpu_schedule import THREAD_X, THREAD_Y
from loopwright.ir.loops import Load
from loopwright.ir.nest import Prefetch, Reduction, Statement, Store
from loopwright.lower.cuda.context import WARP, Context
from loopwright.lower.cuda.evaluate import before_a_loop, evaluate
from loopwright.lower.cuda.packs import Pack, Run, batched, known_lanes, packs, singles, strided
from loopwright.lower.cuda.registers import kept_pass
from loopwright.lower.cuda.serial import Fold, element
from loopwright.lower.cuda.store import store
from loopwright.lower.cuda.text import Block, register_type
from loopwright.lower.registers import rows_read

MOST_PARTS = 1024  # blocks of a fold of everything
MOST_PLAIN = 16  # terms that a thread adds up as they are: NumPy's pairwise sums begin so, too
ALL = "0xffffffffu"
State = tuple[str, ...]


def made(context: Context, r: Reduction) -> Fold:
    return Fold(r.monoid, r.dtype, r.body.dtype, context.launch.library)


def folded(context: Context, reductions: Sequence[Reduction]) -> Context:
    """Reductions that share a pass; the context knows their values."""
    first = reductions[0]
    launch = context.launch
    who, everyone = (launch.thread(THREAD_Y), str(launch.y)) if THREAD_Y in first.bind else \
        (launch.thread(THREAD_X), str(launch.x)) if first.bind else ("0", "1")
    for r, found in zip(reductions, passed(context, reductions, who, everyone), strict=True):
        fold = made(context, r)
        if first.bind:
            found = across(context, fold, found, first.bind[-1])
        context = context.bind(r.name, fold.result(context.block, found))
    return context


def passed(context: Context, reductions: Sequence[Reduction], who: str, everyone: str) -> list[State]:
    """What one thread makes of its share of the points."""
    first, launch = reductions[0], context.launch
    also = [x for r in reductions for x in r.also if not isinstance(x, Prefetch)]
    shared = first.bind != () and THREAD_Y not in first.bind
    lanes = first.lanes if shared else 1
    exprs = [*(x.value for x in also), *(r.body for r in reductions)]
    found, rows = packs(context, first.over, lanes, exprs, also), rows_read(reductions, launch.rows)
    slots = lanes if found or rows else 1
    folds = [made(context, r) for r in reductions]
    states = [f.declare(context.block, slots) for f in folds]
    inside = _sharing(context, first.bind)

    def written(some: Sequence[Statement]) -> Run:
        def one(here: Context, slot: str) -> None:
            alone = [r for r in some if isinstance(r, Reduction)]
            for x in [x for r in alone for x in r.also if isinstance(x, Store)]:
                kept = evaluate(here, launch.terms.of(x.value))
                store(here, x)
                load = launch.terms.of(_as_load(here, x))
                here.block.values[here.key(load)] = kept
            plainly = bool(rows) and here.slot != "" and rows[0].each <= MOST_PLAIN * slots
            for f, state, r in zip(folds, states, alone, strict=True):
                body = launch.terms.of(r.body)
                position = f"(long long){here.names[first.over[-1][0].name]}" if f.positions else ""
                term = element(here, f, body, evaluate)
                with here.block.inner(f"if ({here.there})") if here.there else nullcontext(here.block) as block:
                    f.step(block, state, slot, term, position, plainly=plainly)
        return one
    before_a_loop(inside, first.over, exprs)
    if rows:
        kept_pass(inside, first.over, lanes, found, rows[0].each, reductions, written)
    elif early := _early(inside, reductions) if THREAD_Y in first.bind and not also else []:
        one = written(reductions)

        def use(here: Context, loaded: Mapping[int, str], slot: str) -> None:
            known_lanes(here, early, loaded, slot, "0")
            one(here, "0")
        batched(inside, first.over, 1, who, everyone, early, max(first.unroll, 1), use)
    else:
        strided(inside, first.over, lanes, who, everyone, found, max(first.unroll, 1), written(reductions))
    if any(launch.buffers[x.buffer].place == "shared" for x in also):
        context.block.line(launch.barrier)
    return [f.joined(context.block, state, slots) for f, state in zip(folds, states, strict=True)]


def _early(context: Context, reductions: Sequence[Reduction]) -> list[Pack]:
    """The loads that a thread may make of several rows before it uses those of the first."""
    over = {k.name for k, _ in reductions[0].over}
    return singles(replace(context, names={**context.names, **dict.fromkeys(over, "")}), over, [r.body for r in reductions])


def _sharing(context: Context, axes: Sequence[str]) -> Context:
    """Inside the loop of a fold: its axes are shared out."""
    return Context(context.launch, context.block, context.names, tuple([a for a in context.free if a not in axes]), "",
                   context.packed, context.repeats)


def _as_load(context: Context, x: Store) -> Load:
    return Load(x.buffer, x.index, context.launch.buffers[x.buffer].dtype)


# ---- between threads ----------------------------------------------------------------------------
def across(context: Context, fold: Fold, state: State, axis: str) -> State:
    """The states of all threads along an axis as one, which all of them have."""
    launch = context.launch
    if axis == THREAD_Y:
        return _through_shared(context, fold, state, THREAD_X, launch.x, THREAD_Y, launch.y)
    _in_warp(context.block, fold, state, min(launch.x, WARP))
    if launch.x <= WARP:
        return state
    return _through_shared(context, fold, state, THREAD_Y, launch.y, f"{THREAD_X} / {WARP}", launch.x // WARP,
                           f"{THREAD_X} % {WARP} == 0")


def _in_warp(block: Block, fold: Fold, state: State, width: int) -> None:
    step = block.fresh("d")
    block.line("#pragma unroll")
    with block.inner(f"for (int {step} = {width // 2}; {step} > 0; {step} /= 2)") as inside:
        other = tuple([shuffled(inside, "xor", kind, x, step) for kind, x in zip(kinds(fold), state, strict=True)])
        fold.merge_into(inside, state, other)


def kinds(fold: Fold) -> list[str]:
    return [register_type(d) for d in fold.components]


def shuffled(block: Block, how: str, kind: str, x: str, by: str) -> str:
    if kind in ("float", "double", "int", "unsigned", "long long", "unsigned long long"):
        return block.variable(kind, f"__shfl_{how}_sync({ALL}, {x}, {by})")
    return block.variable(kind, f"({kind})__shfl_{how}_sync({ALL}, (int){x}, {by})")


def _through_shared(context: Context, fold: Fold, state: State, row: str, rows: int, column: str, columns: int,
                    who: str = "") -> State:
    """Each puts its state in a table, and takes all of its row's together, in order."""
    block = context.block
    names = [block.fresh("part") for _ in state]
    for name, kind in zip(names, kinds(fold), strict=True):
        block.line(f"__shared__ {kind} {name}[{rows}][{columns + (rows > 1)}];")  # rows begin in different banks
    for name, x in zip(names, state, strict=True):
        block.line(f"{f'if ({who}) ' if who else ''}{name}[{row}][{column}] = {x};")
    block.line("__syncthreads();")
    found = tuple([block.variable(kind, f"{name}[{row}][0]", "all") for name, kind in zip(names, kinds(fold), strict=True)])
    k = block.fresh("k")
    with block.inner(f"for (int {k} = 1; {k} < {columns}; ++{k})") as inside:
        fold.merge_into(inside, found, tuple([f"{name}[{row}][{k}]" for name in names]))
    if context.repeats:
        block.line("__syncthreads();")
    return found


# ---- between blocks -----------------------------------------------------------------------------
def parts_of(reductions: Sequence[Reduction], threads: int) -> Extent:
    """How many blocks fold everything, each a part."""
    first = reductions[0]
    size = threads * first.lanes * max(first.unroll, 1) * 4
    return maximum(1, minimum((product(n for _, n in first.over) + (size - 1)) // size, MOST_PARTS))


def fold_parts(context: Context, reductions: Sequence[Reduction]) -> None:
    """Each block's part of reductions over everything, into scratch arrays."""
    launch = context.launch
    launch.grid = parts_of(reductions, launch.x)
    who = f"({launch.thread('blockIdx.x')} * {launch.x} + {launch.thread(THREAD_X)})"
    everyone = f"({launch.thread('gridDim.x')} * {launch.x})"
    for r, found in zip(reductions, passed(context, reductions, who, everyone), strict=True):
        fold = made(context, r)
        found = across(context, fold, found, THREAD_X)
        put(context, scratch(context, r.name, fold, launch.grid), found)


def put(context: Context, names: Sequence[str], state: State, at: str = "blockIdx.x") -> None:
    """This block's part."""
    for name, x in zip(names, state, strict=True):
        context.block.line(f"if ({THREAD_X} == 0) {name}[{at}] = {x};")


def scratch(context: Context, name: str, fold: Fold, count: Extent) -> list[str]:
    """Arrays that hold a state for each block."""
    names = [f"{name}_part{k}" for k, _ in enumerate(fold.components)]
    for x, d in zip(names, fold.components, strict=True):
        context.launch.scratch[x] = register_type(d), count, d.itemsize
    return names


def from_parts(context: Context, reductions: Sequence[Reduction]) -> Context:
    """The values of reductions that an earlier launch left in parts: every block puts them together."""
    count = parts_of(reductions, context.launch.x)
    for r in reductions:
        fold = made(context, r)
        state = together(context, fold, scratch(context, r.name, fold, count), context.launch.extent(count))
        context = context.bind(r.name, fold.result(context.block, state))
    return context


def together(context: Context, fold: Fold, names: Sequence[str], end: str, first: str = "") -> State:
    """So many parts, from a first on, as one state, by all threads."""
    block = context.block
    state = tuple([block.variable(kind, zero, "all") for kind, zero in zip(kinds(fold), fold.zero(), strict=True)])
    k = block.fresh("k")
    with block.inner(f"for (int {k} = (int){THREAD_X}; {k} < {end}; {k} += {context.launch.x})") as inside:
        at = f"{first} + {k}" if first else k
        fold.merge_into(inside, state, tuple([f"{name}[{at}]" for name in names]))
    return across(context, fold, state, THREAD_X)
