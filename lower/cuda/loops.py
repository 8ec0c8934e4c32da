"""Loops that blocks and threads share out."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from loopwright.ir.dims import maximum, minimum, product
from loopwright.ir.gpu_schedule import BLOCK, THREAD_X, THREAD_Y
from loopwright.ir.nest import For, Let, Reduction, Scan, Statement, Store
from loopwright.lower.cuda.blocks import each_sum
from loopwright.lower.cuda.context import WARP, Context
from loopwright.lower.cuda.evaluate import before_a_loop, place, value
from loopwright.lower.cuda.packs import Run, clamped, packs, strided, tiled, unravelled
from loopwright.lower.cuda.registers import kept_pass
from loopwright.lower.cuda.squares import in_squares
from loopwright.lower.cuda.store import written
from loopwright.lower.cuda.text import register_type
from loopwright.lower.registers import perfect, rows_read

MOST_OWNERS = 2048  # warps that look at all updates


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

    def every(statements: Sequence[Statement]) -> Run:
        def one(here: Context, _: str) -> None:
            run(here, statements)
        return one
    one = every(body)
    match s.bind:
        case ():
            _serial(context, s, run)
        case (axis,) if axis == BLOCK:
            run(_of_block(inside, s), body)
        case (axis,) if axis == THREAD_Y:
            each_sum(context, s, run)
        case (_, axis) if axis == THREAD_Y or cooperates(body):
            clamped(inside, over, axis, lambda here: run(here, body))
        case (_, _):
            tiled(inside, over, lanes, innermost.unroll if lanes > 1 else 1, packs(inside, over, lanes, exprs, stores), one)
        case (_, _, _):
            in_squares(inside, over, lanes, body, one)
        case (_,):
            divisors = before_a_loop(inside, over, exprs)
            found, rows = packs(inside, over, lanes, exprs, stores), rows_read(body, launch.rows)
            if rows:
                kept_pass(inside, over, lanes, found, rows[0].each, body, every, divisors if is_plain(body) else ())
                return
            strided(inside, over, lanes, launch.thread(THREAD_X), str(launch.x), found, innermost.unroll, one)
            if any(launch.buffers[x.buffer].role == "local" for x in stores):
                context.block.line(launch.barrier)


def _of_block(context: Context, s: For) -> Context:
    """The loops' variables of one block: of loops over blocks of positions those that these begin with."""
    over, steps = [(s.index, (s.extent + (s.step - 1)) // s.step)], [s.step]
    while len(s.body) == 1 and isinstance(inner := s.body[0], For) and inner.bind == s.bind:
        s = inner
        over.append((s.index, (s.extent + (s.step - 1)) // s.step))
        steps.append(s.step)
    context.launch.grid = product(n for _, n in over)
    context = unravelled(context, over, context.launch.thread("blockIdx.x"))
    for (index, _), step in zip(over, steps, strict=True):
        if step > 1:
            first = f"{context.names[index.name]} * {step}"
            context = context.bind(index.name, context.block.let(context.launch.index_type, first, "at"))
    return context


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
