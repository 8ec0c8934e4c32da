"""How a block multiplies what is in shared memory, which decides how it lies there and whose the sums are."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from loopwright.ir.gpu_schedule import THREAD_X, THREAD_Y
from loopwright.ir.loops import Apply, Expr, Literal, Load, When
from loopwright.ir.nest import Contract
from loopwright.ir.types import BF16, F32, U16, is_float
from loopwright.lower.blocks import BYTES, HALVES, half_of, lanes_of
from loopwright.lower.cuda import arithmetic
from loopwright.lower.cuda.context import Context, Share
from loopwright.lower.cuda.evaluate import value
from loopwright.lower.cuda.folds import ALL
from loopwright.lower.cuda.maths import Library
from loopwright.lower.cuda.text import Block, register_type

MMA = """// c += a b of a warp: 16 rows by 16 terms, by 8 columns; the words hold two terms each
__device__ __forceinline__ void lw_mma_KIND(float& c0, float& c1, float& c2, float& c3, const unsigned* a, const unsigned* b) {
#ifndef LW_EMULATED
    asm("mma.sync.aligned.m16n8k16.row.col.f32.KIND.KIND.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    const int lane = (int)threadIdx.x % 32;
    for (int k = 0; k < 8; ++k) {
        const unsigned upper = __shfl_sync(ALL, k < 4 ? a[0] : a[2], lane / 4 * 4 + k % 4);
        const unsigned lower = __shfl_sync(ALL, k < 4 ? a[1] : a[3], lane / 4 * 4 + k % 4);
        const unsigned left = __shfl_sync(ALL, k < 4 ? b[0] : b[1], lane % 4 * 8 + k % 4);
        const unsigned right = __shfl_sync(ALL, k < 4 ? b[0] : b[1], lane % 4 * 8 + 4 + k % 4);
        for (int h = 0; h < 32; h += 16) {
            c0 += lw_from_KIND(upper >> h) * lw_from_KIND(left >> h);
            c1 += lw_from_KIND(upper >> h) * lw_from_KIND(right >> h);
            c2 += lw_from_KIND(lower >> h) * lw_from_KIND(left >> h);
            c3 += lw_from_KIND(lower >> h) * lw_from_KIND(right >> h);
        }
    }
#endif
}""".replace("ALL", ALL)

WORDS = """// squares of 8 by 8: lane l has the elements 2 (l % 4) and the next of row l / 4 of each
__device__ __forceinline__ void NAME(unsigned* to, const unsigned short* row) {
#ifndef LW_EMULATED
    const unsigned at = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.xCOUNT.TRANS.shared.b16 {PLACES}, [FROM];" : RESULTS : "r"(at) : "memory");
#else
    const int lane = (int)threadIdx.x % 32, one = lane % 4 * 2, other = lane / 4;
    for (int q = 0; q < COUNT; ++q) {
        const unsigned short* const x = __shfl_sync(ALL, row, q * 8 + (ACROSS ? one : other));
        const unsigned short* const y = __shfl_sync(ALL, row, q * 8 + (ACROSS ? one + 1 : other));
        to[q] = ACROSS ? x[other] | (unsigned)y[other] << 16 : x[one] | (unsigned)y[one + 1] << 16;
    }
#endif
}""".replace("ALL", ALL)


class Alone:
    """Each thread one product at a time: what lies side by side is of neighbouring rows, or columns."""

    def __init__(self, context: Context, s: Contract) -> None:
        launch, itemsize = context.launch, s.dtype.itemsize
        self.element, self.itemsize, self.pad = register_type(s.dtype), itemsize, lanes_of(itemsize, BYTES)

        def share(axis: str, threads: int, count: int) -> Share:
            lanes = lanes_of(itemsize, count)
            return Share(f"(int){axis} * {lanes}", count, lanes, threads * lanes)
        self.rows, self.columns = share(THREAD_Y, launch.y, s.heights[0]), share(THREAD_X, launch.x, s.lanes)

    def lies_across(self, across: bool) -> bool:
        """Whether positions of a side lie side by side in shared memory, not terms."""
        return True

    def factor(self, e: Expr) -> Expr:
        """What is copied of a factor."""
        return e

    def stored(self, context: Context, e: Expr) -> str:
        """An element as it is copied."""
        return value(context, e)

    def multiply(self, context: Context, s: Contract, stage: str, across: Sequence[bool]) -> None:
        """Add the products of a stage."""
        block, element, rows, columns = context.block, self.element, self.rows, self.columns
        k = block.fresh("k")
        block.line("#pragma unroll 4")
        with block.inner(f"for (int {k} = 0; {k} < {s.depth}; ++{k})") as inside:
            for name, share in (("left", rows), ("right", columns)):
                pack, g = f"lw_pack<{element}, {share.lanes}>", inside.fresh("g")
                inside.line(f"{pack} {name}_now[{share.count // share.lanes}];")
                inside.line("#pragma unroll")
                with inside.inner(f"for (int {g} = 0; {g} < {share.count // share.lanes}; ++{g})") as each:
                    each.line(f"{name}_now[{g}] = *(const {pack}*)&{name}{stage}[{k}][{share.start(g)}];")
            r, c = inside.fresh("r"), inside.fresh("c")
            inside.line("#pragma unroll")
            with inside.inner(f"for (int {r} = 0; {r} < {rows.count}; ++{r})") as each:
                each.line("#pragma unroll")
                with each.inner(f"for (int {c} = 0; {c} < {columns.count}; ++{c})") as one:
                    a = f"left_now[{r} / {rows.lanes}].at[{r} % {rows.lanes}]"
                    b = f"right_now[{c} / {columns.lanes}].at[{c} % {columns.lanes}]"
                    total = f"{s.buffer}[{r} * {columns.count} + {c}]"
                    one.line(f"{total} = {_summed(context, s, a, b, total)};")


def _summed(context: Context, s: Contract, a: str, b: str, total: str) -> str:
    if is_float(s.dtype):
        return f"{'fmaf' if s.dtype == F32 else 'fma'}({a}, {b}, {total})"
    library = context.launch.library
    return arithmetic.applied(library, "add", s.dtype, [total, arithmetic.applied(library, "mul", s.dtype, [a, b])])


class TensorCores:
    """Warps 16 rows, 8 columns and 16 terms at once, in words of two terms. Of the sums of such a step each lane has two
    neighbours in a row, and those eight rows below."""

    element, itemsize, pad = "unsigned short", 2, HALVES

    def __init__(self, context: Context, s: Contract) -> None:
        dtype = half_of(s.left)
        assert isinstance(s.rows.length, int) and isinstance(s.columns.length, int) and dtype is not None
        self.launch, self.dtype = context.launch, dtype
        lane, warp = f"(int){THREAD_X}", f"(int){THREAD_Y}"
        self.row = f"{warp} % 2 * {s.rows.length // 2}"
        self.column = f"{warp} / 2 * {s.columns.length * 2 // context.launch.y}"
        self.rows = Share(f"{self.row} + {lane} / 4", s.heights[0], 1, 8)
        self.columns = Share(f"{self.column} + {lane} % 4 * 2", s.lanes, 2, 8)

    def lies_across(self, across: bool) -> bool:
        """As in memory: words of two terms are put together on the way to registers."""
        return across

    def factor(self, e: Expr) -> Expr:
        """What is copied of a factor: the bits of what it is made of, as they are where that is loaded."""
        if isinstance(e, When):
            found = self.factor(e.then)
            return When(e.cond, found, Literal(0, found.dtype))
        assert isinstance(e, Apply)
        inner, = e.args
        if not isinstance(inner, Load):
            return inner
        buffer = self.launch.buffers[str(inner.array)]
        name = f"{buffer.name}_bits"
        if name not in self.launch.buffers:
            self.launch.buffers[name] = replace(buffer, name=name, dtype=U16)
            self.launch.body.line(f"const unsigned short* const {name} = {buffer.name};")
        return Load(name, inner.index, U16)

    def stored(self, context: Context, e: Expr) -> str:
        """An element as it is copied."""
        return arithmetic.to_memory(context.launch.library, value(context, e), e.dtype)

    def multiply(self, context: Context, s: Contract, stage: str, across: Sequence[bool]) -> None:
        """Add the products of a stage."""
        block = context.block
        high, wide = self.rows.count // 2, self.columns.count // 2
        name = self.instruction(context.launch.library)
        k = block.fresh("k")
        block.line("#pragma unroll")
        with block.inner(f"for (int {k} = 0; {k} < {s.depth}; {k} += 16)") as inside:
            self._words(inside, f"left{stage}", high, 4, f"{self.row} + G * 16", k, across[0])
            self._words(inside, f"right{stage}", wide, 2, f"{self.column} + G * 8", k, across[1])
            r, c = inside.fresh("r"), inside.fresh("c")
            inside.line("#pragma unroll")
            with inside.inner(f"for (int {r} = 0; {r} < {high}; ++{r})") as each:
                each.line("#pragma unroll")
                with each.inner(f"for (int {c} = 0; {c} < {wide}; ++{c})") as one:
                    rows = [f"({r} * 2 + {low}) * {self.columns.count}" for low in (0, 0, 1, 1)]
                    sums = [f"{s.buffer}[{row} + {c} * 2 + {k % 2}]" for k, row in enumerate(rows)]
                    one.line(f"{name}({', '.join(sums)}, left_now[{r}], right_now[{c}]);")

    def _words(self, block: Block, source: str, count: int, words: int, first: str, term: str, across: bool) -> None:
        """The words of one side that this lane gives to its warp's steps, from position `first` of step G on: squares of 8 by
        8, of which lanes 8 q to 8 q + 7 tell where the rows of square q begin. Squares of a left side go down, then along."""
        name, lane, g = source.split("[")[0], f"(int){THREAD_X}", block.fresh("g")
        block.line(f"unsigned {name}_now[{count}][{words}];")
        block.line("#pragma unroll")
        with block.inner(f"for (int {g} = 0; {g} < {count}; ++{g})") as each:
            down, along = (f"{lane} / 8 % 2 * 8", f"{lane} / 16 * 8") if words == 4 else ("0", f"{lane} / 8 % 2 * 8")
            position, k = f"{first.replace('G', g)} + {down}", f"{term} + {along}"
            at = f"[{k} + {lane} % 8][{position}]" if across else f"[{position} + {lane} % 8][{k}]"
            function = self.loader(words, across)
            each.line(f"{function}({name}_now[{g}], &{source}{at});")

    def loader(self, words: int, across: bool) -> str:
        """A function that loads words of squares, which lie across or not."""
        name = f"lw_words{words}{'_across' if across else ''}"
        listed = [", ".join(x.format(k) for k in range(words)) for x in ("%{}", '"=r"(to[{}])')]
        text = WORDS.replace("NAME", name).replace("COUNT", str(words)).replace(".TRANS", ".trans" if across else "")
        text = text.replace("PLACES", listed[0]).replace("RESULTS", listed[1]).replace("FROM", f"%{words}")
        return self.launch.library.add(name, text.replace("ACROSS", "true" if across else "false"))

    def instruction(self, library: Library) -> str:
        kind = "bf16" if self.dtype == BF16 else "f16"
        arithmetic.from_memory(library, "", self.dtype)
        return library.add(f"lw_mma_{kind}", MMA.replace("KIND", kind))


Means = Alone | TensorCores
