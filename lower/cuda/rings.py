"""Terms of a product through a ring of stages in shared memory: copies run ahead of what is multiplied, by `cp.async`.

While a block multiplies what lies in one stage, the copies to all others but one are under way. What is only copied goes from
memory to shared memory past the registers; what is computed on the way goes through them. Each step ends its copies as a group,
waits for the oldest group, and then for the other threads, so that all of a stage is there, and nobody reads the next one.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from loopwright.ir.dims import product
from loopwright.ir.loops import Load
from loopwright.ir.nest import Contract
from loopwright.lower.blocks import STAGES, is_copied
from loopwright.lower.cuda.blocks import Side, access, at_position, put, side_of, take, through_stages
from loopwright.lower.cuda.context import PACK, SHARED, Context
from loopwright.lower.cuda.evaluate import place
from loopwright.lower.cuda.multiplying import Alone, TensorCores
from loopwright.lower.cuda.packs import Over, Pack, aligned, packs, unravelled
from loopwright.lower.cuda.text import Block, literal

COPY = """// N bytes from memory to shared memory, both at multiples of N, while the thread goes on
template <int N> __device__ __forceinline__ void lw_copy(void* to, const void* from) {
#ifdef LW_EMULATED
    emulator::copy(to, from, N);
#elif __CUDA_ARCH__ >= 800
    const unsigned at = (unsigned)__cvta_generic_to_shared(to);
    const unsigned long long source = (unsigned long long)__cvta_generic_to_global(from);
    if (N == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(at), "l"(source) : "memory");
    else asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" :: "r"(at), "l"(source), "n"(N) : "memory");
#else
    *(lw_pack<unsigned, N / 4>*)to = *(const lw_pack<unsigned, N / 4>*)from;
#endif
}
// what this thread copies from here on is of the next group
__device__ __forceinline__ void lw_end_group() {
#ifdef LW_EMULATED
    emulator::end_group();
#elif __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// until of this thread's groups at most the newest N are under way
template <int N> __device__ __forceinline__ void lw_wait_groups() {
#ifdef LW_EMULATED
    emulator::wait_groups(N);
#elif __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory");
#endif
}"""


def multiplied(context: Context, s: Contract) -> None:
    """The sums of this block's tile."""
    launch, block = context.launch, context.block
    over = [(k.index, k.extent) for k in s.over]
    terms, total = launch.extent(product(n for _, n in over)), launch.buffers[s.buffer].each
    means = TensorCores(context, s) if s.unit else Alone(context, s)
    launch.shares[s.buffer] = means.rows, means.columns
    sides = [side_of(context, s, name, e, p, means) for name, e, p in (("left", s.left, s.rows), ("right", s.right, s.columns))]
    launch.library.add("lw_pack", PACK)
    if s.stages == STAGES:
        _declare_two(context, s, sides)
    else:
        sides = _declare_ring(context, s, sides)
    k = block.fresh("k")
    block.line("#pragma unroll")
    with block.inner(f"for (int {k} = 0; {k} < {total}; ++{k})") as inside:
        inside.line(f"{s.buffer}[{k}] = {literal(0, s.dtype)};")

    def multiply(here: Context, stage: str, first: str = "") -> None:
        means.multiply(here, s, f"[{stage}]", [side.lies_across for side in sides])
    if s.stages == STAGES:
        through_stages(context, sides, over, (terms, s.depth), "", multiply)
    else:
        through_ring(context, s, sides, over, multiply)


def _declare_two(context: Context, s: Contract, sides: Sequence[Side]) -> None:
    """Two stages for each side, and what a thread takes for the next."""
    for side in sides:
        shape, block, means = (s.depth, side.size) if side.lies_across else (side.size, s.depth), context.block, side.means
        block.line(f"__shared__ __align__(16) {means.element} {side.name}[{STAGES}][{shape[0]}][{shape[1] + means.pad}];")
        block.line(f"{means.element} {side.name}_next[{side.count * side.lanes}];")


def _declare_ring(context: Context, s: Contract, sides: Sequence[Side]) -> list[Side]:
    """The stages of a ring; the sides, as they are copied."""
    context.launch.library.add("lw_copy", COPY)
    exprs = {"left": s.left, "right": s.right}
    sides = [ahead(side) if is_copied(exprs[side.name], s.unit) else side for side in sides]
    for side in sides:
        _declare(context, s, side)
    return sides


def through_ring(context: Context, s: Contract, sides: Sequence[Side], over: Over,
                 multiply: Callable[[Context, str], None]) -> None:
    """The terms of a product, through its stages: `multiply` writes what is done with those of one."""
    launch, block, kind = context.launch, context.block, context.launch.index_type
    terms, depth, count = launch.extent(product(n for _, n in over)), s.depth, s.stages
    launch.forget()
    u, step = block.fresh("u"), block.fresh("first")
    block.line("#pragma unroll")
    with block.inner(f"for (int {u} = 0; {u} < {count - 1}; ++{u})") as inside:
        with inside.inner(f"if ({u} * {depth} < {terms})") as some:
            here = context.at(some)
            for side in sides:
                _begin(here, side, over, f"{u} * {depth}", u, depth)
                _end(here, side, u, depth)
        inside.line("lw_end_group();")
    stage = block.variable("int", "0", "stage")
    with block.inner(f"for ({kind} {step} = 0; {step} < {terms}; {step} += {depth})") as inside:
        here = context.at(inside)
        inside.line(f"lw_wait_groups<{count - 2}>();")
        inside.line("__syncthreads();")
        free = inside.let("int", f"{stage} == 0 ? {count - 1} : {stage} - 1", "stage")
        ahead = inside.let(kind, f"{step} + {(count - 1) * depth}", "first")
        with inside.inner(f"if ({ahead} < {terms})") as some:
            for side in sides:
                _begin(here.at(some), side, over, ahead, free, depth)
        inside.line("lw_end_group();")
        multiply(here, stage)
        if not all(map(_is_ahead, sides)):
            with inside.inner(f"if ({ahead} < {terms})") as some:
                for side in sides:
                    _end(here.at(some), side, free, depth)
        inside.line(f"{stage} = {stage} == {count - 1} ? 0 : {stage} + 1;")
    block.line("__syncthreads();")
    launch.forget()


def _is_ahead(side: Side) -> bool:
    """Whether a side is copied past the registers."""
    return side.loaded is not None


def ahead(side: Side) -> Side:
    """A side that is copied past the registers: elements that do not stay together one by one, neighbouring threads those that
    are neighbours in memory."""
    assert isinstance(side.expr, Load)
    side = replace(side, loaded=side.expr)
    return side if side.together else replace(side, lanes=1, count=side.count * side.lanes)


def _declare(context: Context, s: Contract, side: Side) -> None:
    """A side's stages in shared memory, and what a thread takes where it goes through registers."""
    launch, element = context.launch, side.means.element
    high, long = (s.depth, side.size) if side.lies_across else (side.size, s.depth)
    long += side.means.pad
    itemsize = 2 if s.unit else s.dtype.itemsize
    launch.library.add("lw_shared", SHARED)
    if launch.shared == 0:
        context.block.line("LW_SHARED(lw_shared);")
    kind = f"(*{side.name})[{high}][{long}]"
    context.block.line(f"{element} {kind} = ({element} (*)[{high}][{long}])(lw_shared + {launch.number(launch.shared)});")
    launch.shared = launch.shared + s.stages * high * long * itemsize
    if not _is_ahead(side):
        context.block.line(f"{element} {side.name}_next[{side.count * side.lanes}];")


def _begin(context: Context, side: Side, over: Over, first: str, stage: str, depth: int, *, is_rare: bool = False) -> None:
    """Begin to copy a stage; in little text where that is rare."""
    if not _is_ahead(side):
        take(context, side, over, first, depth)
        return
    u = context.block.fresh("u")
    context.block.line(f"#pragma unroll{' 1' if is_rare else ''}")
    with context.block.inner(f"for (int {u} = 0; {u} < {side.count}; ++{u})") as inside:
        position, term, at, k = access(context.at(inside), side, u, first, depth)
        _copied(context.at(inside), side, over, (position, term), (at, k), stage)


def _end(context: Context, side: Side, stage: str, depth: int) -> None:
    """What went through registers to its stage."""
    if not _is_ahead(side):
        put(context, side, stage, depth)


def ask(context: Context, side: Side, over: Over, first: str, stage: str, depth: int) -> None:
    """Begin to copy a stage, without a test of each access where all of it is there; what goes through registers has been
    copied then."""
    block, found = context.block, _found(context, side, over) if _is_ahead(side) else []
    if not found:
        _begin(context, side, over, first, stage, depth)
        _end(context, side, stage, depth)
        return
    assert side.positions.origin is not None and side.loaded is not None
    origin, ends, size = context.names[side.positions.origin.name], _ends(context, side, over), side.loaded.dtype.itemsize
    inside = f"{origin} + {side.size} <= {ends[0]} && {first} + {depth} <= {ends[1]}"
    with block.inner(f"if ({' && '.join(x for x in (aligned(context, found, side.lanes), inside) if x)})") as whole:
        u = whole.fresh("u")
        whole.line("#pragma unroll")
        with whole.inner(f"for (int {u} = 0; {u} < {side.count}; ++{u})") as each:
            position, term, at, k = access(context.at(each), side, u, first, depth)
            x = _source(context.at(each), side, over, at, k)
            each.line(f"lw_copy<{side.lanes * size}>(&{side.place(stage, position, term)}, &{x});")
    other = Block(block)
    _begin(context.at(other), side, over, first, stage, depth, is_rare=True)
    block.otherwise(other)


def _found(context: Context, side: Side, over: Over) -> list[Pack]:
    """The wide access of a side that is copied past the registers, if it has one."""
    if side.lanes == 1:
        return []
    index, load = side.positions.index, side.loaded
    assert load is not None
    along: Over = [(index, side.positions.extent)] if side.across else over
    names = [x.name for x, _ in over] if side.across else [x.name for x in (index, *(x for x, _ in side.positions.of))]
    return packs(replace(context, names={**context.names, **dict.fromkeys(names, "")}), along, side.lanes, [load], [])


def _ends(context: Context, side: Side, over: Over) -> tuple[str, str]:
    """How many positions and terms there are."""
    return context.launch.extent(side.positions.extent), context.launch.extent(product(n for _, n in over))


def _source(context: Context, side: Side, over: Over, position: str, term: str) -> str:
    """An element of what is copied."""
    launch, load = context.launch, side.loaded
    assert load is not None
    buffer, there = launch.buffers[str(load.array)], unravelled(at_position(context, side.positions, position), over, term)
    return f"{buffer.name}[{place(there, buffer, tuple(map(launch.terms.of, load.index)))}]"


def _copied(context: Context, side: Side, over: Over, inside_tile: tuple[str, str], at: tuple[str, str], stage: str) -> None:
    """One access: whole where sizes allow that, and inside the edges; else element after element, zeros past the edges."""
    block, load = context.block, side.loaded
    assert load is not None
    itemsize, ends = load.dtype.itemsize, _ends(context, side, over)
    (position, term), (i, k), lanes = inside_tile, at, side.lanes

    def one(here: Context, e: str) -> None:
        lane = f" + {e}" if e else ""
        p, t = (f"({i}{lane})", k) if side.across else (i, f"({k}{lane})")
        to = side.place(stage, f"{position}{lane}", term) if side.across else side.place(stage, position, f"{term}{lane}")
        with here.block.inner(f"if ({p} < {ends[0]} && {t} < {ends[1]})") as some:
            x = _source(here.at(some), side, over, p, t)
            some.line(f"lw_copy<{itemsize}>(&{to}, &{x});" if itemsize > 2 else f"{to} = {x};")
        other = Block(here.block)
        other.line(f"{to} = 0;")
        here.block.otherwise(other)

    def each(here: Context) -> None:
        e = here.block.fresh("e")
        here.block.line("#pragma unroll")
        with here.block.inner(f"for (int {e} = 0; {e} < {lanes}; ++{e})") as inside:
            one(here.at(inside), e)

    if lanes == 1:
        one(context, "")
        return
    found = _found(context, side, over)
    if not found:
        each(context)
        return
    edge = f" + {lanes} <="
    fits = f"{i}{edge if side.across else ' <'} {ends[0]} && {k}{' <' if side.across else edge} {ends[1]}"
    with block.inner(f"if ({' && '.join(x for x in (aligned(context, found, lanes), fits) if x)})") as whole:
        x = _source(context.at(whole), side, over, i, k)
        whole.line(f"lw_copy<{lanes * itemsize}>(&{side.place(stage, position, term)}, &{x});")
    other = Block(block)
    each(context.at(other))
    block.otherwise(other)
