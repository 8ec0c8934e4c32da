"""A scheduled nest to the CUDA text of its launches.

Guarantees: the launches of a kernel run in order compute what the nest means; memory outside the buffers is never touched;
a block never leaves before a place where its threads meet; with equal inputs the bits are equal in every run.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent, evaluate, product
from loopwright.ir.gpu_schedule import BLOCK, THREAD_X, THREAD_Y
from loopwright.ir.loops import Index
from loopwright.ir.nest import (
    Allocate,
    Buffer,
    Contract,
    For,
    Let,
    Nest,
    Passes,
    Prefetch,
    Reduction,
    Scan,
    Statement,
    Store,
    While,
    one_pass,
)
from loopwright.lower.codegen.terms import Terms
from loopwright.lower.cuda import folds, running
from loopwright.lower.cuda.atomics import updates_in_any_order
from loopwright.lower.cuda.chains import passed
from loopwright.lower.cuda.columns import (
    fold_column_parts,
    fold_wide_column_parts,
    from_column_parts,
    parts_of_columns,
    wide_loads,
)
from loopwright.lower.cuda.context import MOST_NARROW, SHARED, Context, Launch
from loopwright.lower.cuda.evaluate import value
from loopwright.lower.cuda.long_rows import BLOCKS_AT_ONCE, in_row_parts
from loopwright.lower.cuda.loops import looped
from loopwright.lower.cuda.maths import Library
from loopwright.lower.cuda.packs import clamped
from loopwright.lower.cuda.rings import multiplied
from loopwright.lower.cuda.store import store
from loopwright.lower.cuda.text import register_type
from loopwright.lower.cuda.whiles import repeated
from loopwright.lower.registers import perfect


@dataclass(frozen=True)
class Scratch:
    """An array that the launches of a kernel pass on: C type, elements, bytes of one."""

    name: str
    kind: str
    count: Extent
    itemsize: int


@dataclass(frozen=True)
class LaunchText:
    """One launch of a `__global__` function: `grid` blocks of `threads` along x and y, `shared` bytes of dynamic shared memory.
    `numbers`: what it is given after the parameters of all launches. A grid of 0 is not launched."""

    name: str
    text: str
    grid: Extent
    threads: tuple[int, int]
    shared: Extent
    numbers: tuple[Extent, ...] = ()


@dataclass(frozen=True)
class CudaKernel:
    """Launches, run in order, all with the parameters: operands and results in order, scratch, symbols (long long),
    `long long* error` of four elements. `narrow`: what must be below MOST_NARROW; () where any size will do."""

    name: str
    launches: tuple[LaunchText, ...]
    scratch: tuple[Scratch, ...]
    symbols: tuple[str, ...]
    narrow: tuple[Extent, ...]

    def fits(self, sizes: Mapping[str, int]) -> bool:
        """Whether 32-bit indices reach everything at these sizes."""
        return all(evaluate(n, sizes) < MOST_NARROW for n in self.narrow)

    @property
    def text(self) -> str:
        return "\n\n".join(dict.fromkeys(x.text for x in self.launches))


def emit_cuda(nest: Nest, library: Library, *, wide: bool = False) -> CudaKernel:
    """The launches of a nest whose loops are bound; the functions they call go into the library. `wide`: 64-bit indices."""
    return _Emitter(nest, library, wide).run()


class _Emitter:
    def __init__(self, nest: Nest, library: Library, wide: bool) -> None:
        self.nest, self.library, self.wide = nest, library, wide
        self.terms = Terms()
        self.scratch: dict[str, Scratch] = {}
        self.made: list[Launch] = []

    def run(self) -> CudaKernel:
        for first, last in self.parts():
            for write in self.passes(self.nest.body[first:last]):
                launch = Launch(self.nest, self.library, self.terms, self.wide)
                axes = [(THREAD_X, launch.x), (THREAD_Y, launch.y)]
                context = Context(launch, launch.body, free=tuple([axis for axis, n in axes if n > 1]))
                write(self.again(context, self.nest.body[:first]))
                for name, (kind, count, itemsize) in launch.scratch.items():
                    self.scratch[name] = Scratch(name, kind, count, itemsize)
                self.made.append(launch)
        narrow = dict.fromkeys([*(product(b.shape) for b in self.nest.buffers), *(n for x in self.made for n in x.narrow)])
        texts = tuple([self.text(k, launch) for k, launch in enumerate(self.made)])
        return CudaKernel(self.nest.name, texts, tuple(self.scratch.values()), self.nest.symbols,
                          () if self.wide else tuple(narrow))

    def parts(self) -> list[tuple[int, int]]:
        """The stretches of the body that are launches: each loop that blocks share out, each pass of folds that blocks share
        out, and what is between them."""
        found: list[tuple[int, int]] = []
        alone = True
        for k, s in enumerate(self.nest.body):
            apart = self.is_apart(s)
            joined = isinstance(s, Reduction) and s.joined
            if found and (joined or not (apart or alone)):
                found[-1] = found[-1][0], k + 1
            else:
                found.append((k, k + 1))
            alone = apart if not joined else alone
        return found

    def passes(self, group: Sequence[Statement]) -> list[Callable[[Context], object]]:
        """What writes each launch of a stretch."""
        match group[0]:
            case For() as s if s.any_order:
                return updates_in_any_order(s, self.nest.buffers)
            case Reduction() as r if BLOCK in r.bind:
                return [lambda context: folds.fold_parts(context, one_pass(group, 0))]
            case For() as s if (found := _running(s)) is not None:
                return [lambda context, write=write: self.scans(context, s, found, write)  # type: ignore[misc]
                        for write in (running.scan_column_parts, running.scan_from_column_parts)]
            case For() as s if (count := len(_split(perfect(s)[1].body))):
                write = self.rows if s.bind == (BLOCK,) else self.columns
                return [lambda context, k=k: write(context, s, k) for k in range(count + 1)]  # type: ignore[misc]
            case Scan() as s if BLOCK in s.bind:
                return [lambda context: running.scan_parts(context, s), lambda context: running.scan_from_parts(context, s)]
        return [lambda context: self.statements(context, group)]

    def is_in_parts(self, s: Statement) -> bool:
        return isinstance(s, Reduction) and BLOCK in s.bind

    def is_apart(self, s: Statement) -> bool:
        return (isinstance(s, For | Reduction | Scan) and BLOCK in s.bind) or (isinstance(s, For) and s.any_order)

    def again(self, context: Context, before: Sequence[Statement]) -> Context:
        """The names that earlier launches gave, given once more."""
        for k, s in enumerate(before):
            if isinstance(s, Let):
                context = self.statements(context, [s])
            elif isinstance(s, Reduction) and not s.joined:
                together = one_pass(before, k)
                context = (folds.from_parts if self.is_in_parts(s) else self.statements)(context, together)
        return context

    # ---- rows and columns in parts -------------------------------------------------------------
    def rows(self, context: Context, s: For, number: int) -> None:
        """One launch of a loop over rows whose folds blocks share out."""
        context.launch.in_parts, context.launch.at_once = True, BLOCKS_AT_ONCE
        in_row_parts(context, s, _split(perfect(s)[1].body), number, self.statements)

    def columns(self, context: Context, s: For, number: int) -> None:
        """One launch of a loop over columns whose folds blocks share out: parts of the folds of this number, or, after all of
        them, the rest."""
        over, innermost = perfect(s)
        body, starts = innermost.body, _split(innermost.body)
        launch, columns = context.launch, product(n for _, n in over)
        whole = replace(context, free=tuple([a for a in context.free if a not in s.bind]))
        parts: Extent = 1
        place = part = ""
        is_last = number == len(starts)
        if not is_last:
            reductions = one_pass(body, starts[number])
            wide = wide_loads(context, over, reductions[0].lanes, body[:starts[number]], reductions)
            parts = parts_of_columns(product(n for _, n in reductions[0].over), columns, launch.y)
            place, part = self.place_and_part(context, columns, launch.x * (reductions[0].lanes if wide else 1))
            if wide:
                fold_wide_column_parts(context, reductions, over, wide, place, part, columns)
                launch.grid = launch.grid * parts
                return

        def run(here: Context) -> None:
            at = here.block.let(launch.index_type, _flat(here, over), "at")
            done = 0
            for k, start in enumerate(starts[:number + 1]):
                here = self.statements(here, [x for x in body[done:start] if is_last or not isinstance(x, Store)])
                reductions = one_pass(body, start)
                if k == number:
                    fold_column_parts(here, reductions, part, at, columns)
                    return
                here = from_column_parts(here, reductions, at, columns)
                done = start + len(reductions)
            self.statements(here, body[done:])
        clamped(whole, over, THREAD_X, run, place)
        launch.grid = launch.grid * parts

    def place_and_part(self, context: Context, columns: Extent, each: int) -> list[str]:
        """Which of the stretches of so many columns a block has, and which part of their rows."""
        launch = context.launch
        both = f"{launch.thread('blockIdx.x')} OF {launch.extent((columns + (each - 1)) // each)}"
        return [context.block.let(launch.index_type, both.replace("OF", op), "at") for op in "%/"]

    def scans(self, context: Context, s: For, found: Scan, write: Callable[[Context, Scan, str, str, Extent], None]) -> None:
        """One launch of running folds along columns, which blocks share out in parts."""
        over, launch = perfect(s)[0], context.launch
        columns = product(n for _, n in over)
        place, part = self.place_and_part(context, columns, launch.x)

        def run(here: Context) -> None:
            at = here.block.let(launch.index_type, _flat(here, over), "at")
            write(here, found, part, at, columns)
        free = tuple([a for a in context.free if a not in (*s.bind, *found.bind)])
        clamped(replace(context, free=free), over, THREAD_X, run, place)
        launch.grid = launch.grid * running.parts_of_scans(found.extent, columns, launch)

    # ---- statements ----------------------------------------------------------------------------
    def statements(self, context: Context, body: Sequence[Statement]) -> Context:
        """The statements in order; names given by one are known to the next."""
        done = 0
        while done < len(body):
            s = body[done]
            if isinstance(s, Reduction):
                reductions = one_pass(body, done)
                context = folds.folded(context, reductions)
                done += len(reductions)
                continue
            context = self.statement(context, s)
            done += 1
        return context

    def statement(self, context: Context, s: Statement) -> Context:
        match s:
            case For():
                looped(context, s, self.statements)
            case Store():
                store(context, s)
            case Let(name=name, value=x):
                return context.bind(name, value(context, x))
            case Scan():
                running.scanned(context, s)
            case Contract():
                context.launch.divides_often = True
                multiplied(context, s)
            case Passes():
                passed(context, s, self.statements)
            case Allocate(buffer):
                self.allocate(context, buffer)
            case Prefetch():
                pass
            case While():
                return repeated(context, s)
            case _:
                raise AssertionError(f"{type(s).__name__} is no statement of a GPU's nest")
        return context

    def allocate(self, context: Context, buffer: Buffer) -> None:
        """A row in registers, or one in shared memory for each row of threads."""
        launch = context.launch
        if buffer.place == "registers":
            launch.buffers[buffer.name] = buffer
            context.block.line(f"{register_type(buffer.dtype)} {buffer.name}[{buffer.each}];")
            return
        self.library.add("lw_shared", SHARED)
        if launch.shared == 0:
            context.block.line("LW_SHARED(lw_shared);")
        kind = register_type(buffer.dtype) if buffer.dtype.kind not in "bV" and buffer.dtype.itemsize > 2 else ""
        kind = kind or ("unsigned char" if buffer.dtype.itemsize == 1 else "unsigned short")
        row = (product(buffer.shape) * buffer.dtype.itemsize + 15) // 16 * 16
        start = f"lw_shared + {launch.number(launch.shared)} + {THREAD_Y} * {launch.number(row)}"
        context.block.line(f"{kind}* const {buffer.name} = ({kind}*)({start});")
        launch.buffers[buffer.name] = buffer
        launch.shared = launch.shared + row * launch.y

    # ---- text ----------------------------------------------------------------------------------
    def text(self, number: int, launch: Launch) -> LaunchText:
        name = self.nest.name if len(self.made) == 1 else f"{self.nest.name}_{number}"
        threads = launch.x * launch.y
        parameters = [*launch.parameters(), *(f"{x.kind}* {x.name}" for x in self.scratch.values()),
                      *(f"long long {n}" for n in launch.symbols.values()), "long long* error"]
        listed = ",\n        ".join(parameters)
        lines = "\n".join([*launch.head.lines, *launch.body.lines])
        # rows in registers, or long ones of which it keeps several steps: else the compiler would spill some for more threads
        at_once = launch.most_at_once if launch.passes else launch.at_once
        bounds = f"{threads}, {at_once}" if launch.rows or launch.in_parts else str(threads)
        text = f'extern "C" __global__ void __launch_bounds__({bounds}) {name}(\n        {listed}) {{\n{lines}\n}}'
        return LaunchText(name, text, launch.grid, (launch.x, launch.y), launch.shared)


def _running(s: For) -> Scan | None:
    """The running fold along columns that blocks share out in parts, if that is what is in these loops."""
    body = perfect(s)[1].body
    found = body[0] if len(body) == 1 else None
    return found if isinstance(found, Scan) and BLOCK in found.bind else None


def _split(body: Sequence[Statement]) -> list[int]:
    """Where folds begin whose points blocks share out."""
    return [k for k, s in enumerate(body) if isinstance(s, Reduction) and BLOCK in s.bind and not s.joined]


def _flat(context: Context, over: Sequence[tuple[Index, Extent]]) -> str:
    """The loops' common number, from their variables."""
    text = context.names[over[0][0].name]
    for index, extent in over[1:]:
        text = f"({text}) * {context.launch.extent(extent)} + {context.names[index.name]}"
    return text
