"""Running folds: of a thread alone, of a block of threads, of all blocks in parts, and of columns in parts.

Guarantees: who goes on from what, and in which order parts are put together, depend on sizes alone, so equal inputs give equal
bits in every run.
"""
from __future__ import annotations

from collections.abc import Callable

from loopwright.ir.dims import Extent, floordiv, maximum, minimum
from loopwright.ir.gpu_schedule import THREAD_X, THREAD_Y
from loopwright.ir.nest import Scan
from loopwright.lower.cuda import arithmetic
from loopwright.lower.cuda.context import WARP, Context, Launch
from loopwright.lower.cuda.evaluate import evaluate, place
from loopwright.lower.cuda.folds import MOST_PARTS, across, put, scratch, shuffled, together
from loopwright.lower.cuda.serial import Fold, element
from loopwright.lower.cuda.store import guarded
from loopwright.lower.cuda.text import literal

SHARE, EACH = 4096, 4  # the least that a block of a long running fold goes through; neighbours that one thread takes
COLUMN_SHARE, COLUMN_THREADS, MOST_COLUMN_PARTS = 16, 270_000, 256  # rows of a thread, at least; threads that a GPU runs; parts


def _fold(context: Context, s: Scan) -> Fold:
    return Fold(s.monoid, s.dtype, s.body.dtype, context.launch.library, running=True)


def scanned(context: Context, s: Scan) -> None:
    """A running fold: alone, or a block of threads at a time, each warp by shuffles."""
    fold = _fold(context, s)
    go = _scanned_by_threads if s.bind else _scanned_alone
    go(context, s, fold, "0", context.launch.extent(s.extent), literal(fold.identity, fold.work))


def _scanned_alone(context: Context, s: Scan, fold: Fold, begin: str, end: str, start: str) -> None:
    """The places from begin to end, one after another; `start`: what is before them."""
    launch = context.launch
    total = context.block.variable(fold.kind, start, "all")
    launch.forget()
    k = context.block.fresh("k")
    with context.block.inner(f"for ({launch.index_type} {k} = {begin}; {k} < {end}; ++{k})") as inside:
        here = context.at(inside).bind(s.index.name, k)
        x = element(here, fold, launch.terms.of(s.body), evaluate)
        inside.line(f"{total} = {fold.combined(total, x)};")
        _store_running(here, s, fold, total)
    launch.forget()


def _store_running(context: Context, s: Scan, fold: Fold, total: str) -> None:
    result = fold.result(context.block, (total,))
    guarded(context, lambda here: here.block.line(f"{_target(here, s)} = {_stored(here, s, result)};"))


def _target(context: Context, s: Scan) -> str:
    launch = context.launch
    return f"{s.buffer}[{place(context, launch.buffers[s.buffer], tuple(map(launch.terms.of, s.at)))}]"


def _stored(context: Context, s: Scan, result: str) -> str:
    return arithmetic.to_memory(context.launch.library, result, s.dtype)


def scan_parts(context: Context, s: Scan) -> None:
    """The fold of each block's share of a running fold, into scratch."""
    launch, fold = context.launch, _fold(context, s)
    begin, end = _share(context, s)
    state, k = fold.declare(context.block, 1), context.block.fresh("k")
    header = f"for ({launch.index_type} {k} = {begin} + {launch.thread(THREAD_X)}; {k} < {end}; {k} += {launch.x})"
    with context.block.inner(header) as inside:
        here = Context(launch, inside, {**context.names, s.index.name: k})
        fold.step(inside, state, "0", element(here, fold, launch.terms.of(s.body), evaluate), "")
    found = across(context, fold, fold.joined(context.block, state, 1), THREAD_X)
    put(context, scratch(context, s.buffer, fold, launch.grid), found)


def scan_from_parts(context: Context, s: Scan) -> None:
    """A running fold by all blocks: each goes on from what those before it have."""
    launch, fold = context.launch, _fold(context, s)
    begin, end = _share(context, s)
    total, = together(context, fold, scratch(context, s.buffer, fold, launch.grid), launch.thread("blockIdx.x"))
    _scanned_by_threads(context, s, fold, begin, end, total)


def _share(context: Context, s: Scan) -> tuple[str, str]:
    """Where this block's share begins and ends."""
    launch = context.launch
    launch.grid = maximum(1, minimum((s.extent + (SHARE - 1)) // SHARE, MOST_PARTS))
    each, total = launch.extent((s.extent + (launch.grid - 1)) // launch.grid), launch.extent(s.extent)
    begin = context.block.let(launch.index_type, f"{launch.thread('blockIdx.x')} * {each}", "at")
    return begin, context.block.let(launch.index_type, f"{begin} + {each} < {total} ? {begin} + {each} : {total}", "n")


def _scanned_by_threads(context: Context, s: Scan, fold: Fold, begin: str, end: str, start: str) -> None:
    """The places from begin to end, a block of threads at a time, `EACH` neighbours a thread; `start`: what is before them."""
    launch, block, kind = context.launch, context.block, context.launch.index_type
    warps = launch.x // WARP
    zero = literal(fold.identity, fold.work)
    part, total = block.fresh("part"), block.variable(fold.kind, start, "all")
    first, turn = block.fresh("at"), block.fresh("turn")
    block.line(f"__shared__ {fold.kind} {part}[2][{launch.y}][{warps}];")  # in turns, so that one barrier a step is enough
    lane, warp = block.let("int", f"{THREAD_X} % {WARP}"), block.let("int", f"{THREAD_X} / {WARP}")
    block.line(f"int {turn} = 0;")
    launch.forget()
    with block.inner(f"for ({kind} {first} = {begin}; {first} < {end}; {first} += {launch.x * EACH})") as inside:
        own = inside.let(kind, f"{first} + {launch.thread(THREAD_X)} * {EACH}", "k")
        x = inside.fresh("x")
        inside.line(f"{fold.kind} {x}[{EACH}] = {{{', '.join([zero] * EACH)}}};")

        def each(write: Callable[[Context, str], None]) -> None:
            e = inside.fresh("e")
            inside.line("#pragma unroll")
            with inside.inner(f"for (int {e} = 0; {e} < {EACH}; ++{e})") as one, one.inner(f"if ({own} + {e} < {end})") as some:
                k = some.let(kind, f"{own} + {e}", "k")
                write(Context(launch, some, {**context.names, s.index.name: k}, (), context.active), e)
        each(lambda here, e: here.block.line(f"{x}[{e}] = {element(here, fold, launch.terms.of(s.body), evaluate)};"))
        inside.line("#pragma unroll")
        e = inside.fresh("e")
        inside.line(f"for (int {e} = 1; {e} < {EACH}; ++{e}) {x}[{e}] = {fold.combined(f'{x}[{e} - 1]', f'{x}[{e}]')};")
        own_warps = inside.variable(fold.kind, f"{x}[{EACH - 1}]", "all")
        step = inside.fresh("d")
        inside.line("#pragma unroll")
        with inside.inner(f"for (int {step} = 1; {step} < {WARP}; {step} *= 2)") as shift:
            before = shuffled(shift, "up", fold.kind, own_warps, step)
            shift.line(f"if ({lane} >= {step}) {own_warps} = {fold.combined(before, own_warps)};")
        inside.line(f"if ({lane} == {WARP - 1}) {part}[{turn}][{THREAD_Y}][{warp}] = {own_warps};")
        inside.line("__syncthreads();")
        so_far = inside.variable(fold.kind, zero, "all")
        w = inside.fresh("k")
        with inside.inner(f"for (int {w} = 0; {w} < {warps}; ++{w})") as every:
            every.line(f"if ({w} == {warp}) {so_far} = {total};")
            every.line(f"{total} = {fold.combined(total, f'{part}[{turn}][{THREAD_Y}][{w}]')};")
        before = shuffled(inside, "up", fold.kind, own_warps, "1")
        inside.line(f"if ({lane} > 0) {so_far} = {fold.combined(so_far, before)};")
        each(lambda here, e: _store_running(here, s, fold, here.block.let(fold.kind, fold.combined(so_far, f"{x}[{e}]"))))
        inside.line(f"{turn} = 1 - {turn};")
    block.line("__syncthreads();")
    launch.forget()


# ---- columns in parts ----------------------------------------------------------------------------
def parts_of_scans(rows: Extent, columns: Extent, launch: Launch) -> Extent:
    """Between how many blocks running folds of so many rows along columns are shared out."""
    enough = floordiv(COLUMN_THREADS, maximum(columns * launch.y, 1))
    return maximum(1, minimum(floordiv(rows + (launch.y * COLUMN_SHARE - 1), launch.y * COLUMN_SHARE),
                              minimum(enough, MOST_COLUMN_PARTS)))


def scan_column_parts(context: Context, s: Scan, part: str, column: str, columns: Extent) -> None:
    """The fold of each thread's share of a column, and of those of a block, into scratch: a row of it for each thread along y,
    and for each part."""
    launch, fold = context.launch, _fold(context, s)
    begin, end, parts = _column_share(context, s, part, columns)
    state, k = fold.declare(context.block, 1), context.block.fresh("k")
    with context.block.inner(f"for ({launch.index_type} {k} = {begin}; {k} < {end}; ++{k})") as inside:
        here = context.at(inside).bind(s.index.name, k)
        fold.step(inside, state, "0", element(here, fold, launch.terms.of(s.body), evaluate), "")
    found = fold.joined(context.block, state, 1)
    own, = scratch(context, f"{s.buffer}_own", fold, parts * launch.y * columns)
    whole, = scratch(context, s.buffer, fold, parts * columns)
    with context.block.inner(f"if ({context.active})") as inside:
        inside.line(f"{own}[({part} * {launch.y} + {THREAD_Y}) * {launch.extent(columns)} + {column}] = {found[0]};")
    total, = across(context, fold, found, THREAD_Y)
    with context.block.inner(f"if ({context.active} && {THREAD_Y} == 0)") as inside:
        inside.line(f"{whole}[{part} * {launch.extent(columns)} + {column}] = {total};")


def scan_from_column_parts(context: Context, s: Scan, part: str, column: str, columns: Extent) -> None:
    """Running folds along columns: each thread goes on from what those before it have, of other parts and of its own."""
    launch, block, fold = context.launch, context.block, _fold(context, s)
    begin, end, parts = _column_share(context, s, part, columns)
    own, = scratch(context, f"{s.buffer}_own", fold, parts * launch.y * columns)
    whole, = scratch(context, s.buffer, fold, parts * columns)
    before = block.variable(fold.kind, literal(fold.identity, fold.work), "all")
    for name, first, count in ((whole, "0", part), (own, f"{part} * {launch.y}", launch.thread(THREAD_Y))):
        k = block.fresh("k")
        with block.inner(f"for (int {k} = 0; {k} < {count}; ++{k})") as inside:
            at = f"{name}[({first} + {k}) * {launch.extent(columns)} + {column}]"
            inside.line(f"{before} = {fold.combined(before, at)};")
    _scanned_alone(context, s, fold, begin, end, before)


def _column_share(context: Context, s: Scan, part: str, columns: Extent) -> tuple[str, str, Extent]:
    """Where this thread's share of a column begins and ends, and the number of parts."""
    launch, kind = context.launch, context.launch.index_type
    parts = parts_of_scans(s.extent, columns, launch)
    sharers, total = parts * launch.y, launch.extent(s.extent)
    each = launch.extent(floordiv(s.extent + (sharers - 1), sharers))
    begin = context.block.let(kind, f"({part} * {launch.y} + {launch.thread(THREAD_Y)}) * {each}", "at")
    return begin, context.block.let(kind, f"{begin} + {each} < {total} ? {begin} + {each} : {total}", "n"), parts
