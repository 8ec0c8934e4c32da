"""Sorts, orders, ranks and the greatest of rows on a GPU: launches of text written by hand, stable, by merging.

Rows of up to 32 elements are sorted by as many lanes of a warp, each of which counts what goes before its own; rows of up to a
tile by a block, whose threads sort eight elements each and merge them in shared memory; longer ones tile by tile, and then by
launches that merge runs in pairs, each block making a tile of what comes out. Sizes that a launch is not for give it no blocks.

Guarantees: elements are moved as they are, so that NaNs keep their bits; what the ops say of their order; memory outside the
arrays is never touched, and equal inputs give equal bits.
"""
from __future__ import annotations

from dataclasses import replace

import numpy as np

from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent, floordiv, minimum, product
from loopwright.ir.graph import Node
from loopwright.ir.types import BF16, BOOL, F16, F32, F64, SHORT, U8
from loopwright.lower.cuda.emit import CudaKernel, LaunchText, Scratch
from loopwright.lower.cuda.maths import Library
from loopwright.lower.cuda.text import literal, memory_type

EACH, WARP, MOST = 8, 32, 256  # elements of a thread; lanes; threads of a block
TILE = EACH * MOST
BLOCKS = (64, 128, MOST)  # threads of a block for a row whose length only the run tells
MERGES = 21  # launches that merge: for rows of up to 2^32 elements
BITS = {F16: (0x7C00, 0xFFFF, 0xFC00), BF16: (0x7F80, 0xFFFF, 0xFF80)}  # infinity, a NaN, and what is lowest
ORDER = """struct {name} {{
    typedef {kind} Key;
    static __device__ __forceinline__ bool before(Key a, Key b) {{ {before} }}
    static __device__ __forceinline__ Key last() {{ return {last}; }}
}};"""
MERGE = """enum { lw_each = 8 };
__device__ __forceinline__ int lw_bank(int i) { return i + (i >> 5); }
// The next elements after `skipped` ones of two runs in shared memory, [i, end) before [j, j_end), merged.
template <class O, class I, bool P> __device__ __forceinline__ void lw_merge(
        const typename O::Key* keys, const I* at, int i, int end, int j, int j_end, int skipped, typename O::Key* x, I* p) {
    int low = skipped > j_end - j ? skipped - (j_end - j) : 0, high = skipped < end - i ? skipped : end - i;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (O::before(keys[lw_bank(j + skipped - 1 - middle)], keys[lw_bank(i + middle)])) high = middle;
        else low = middle + 1;
    }
    i += low;
    j += skipped - low;
    typename O::Key a = keys[lw_bank(i)], b = keys[lw_bank(j)];
    #pragma unroll
    for (int k = 0; k < lw_each; ++k) {
        const bool first = j >= j_end || (i < end && !O::before(b, a));
        x[k] = first ? a : b;
        if (P) p[k] = at[lw_bank(first ? i : j)];
        if (first) a = keys[lw_bank(++i)];
        else b = keys[lw_bank(++j)];
    }
}
template <class O, class I, bool P> __device__ __forceinline__ void lw_keep(typename O::Key* keys, I* at,
                                                                            const typename O::Key* x, const I* p) {
    __syncthreads();
    #pragma unroll
    for (int k = 0; k < lw_each; ++k) {
        const int i = lw_bank((int)threadIdx.x * lw_each + k);
        keys[i] = x[k];
        if (P) at[i] = p[k];
    }
    __syncthreads();
}
// Each thread's elements, sorted with those of all T threads, in shared memory.
template <class O, class I, bool P, int T> __device__ __forceinline__ void lw_sort_tile(typename O::Key* keys, I* at,
                                                                                        typename O::Key* x, I* p) {
    #pragma unroll
    for (int round = 0; round < lw_each; ++round) {
        #pragma unroll
        for (int k = round & 1; k + 1 < lw_each; k += 2) {
            const bool swaps = O::before(x[k + 1], x[k]);
            const typename O::Key a = x[k], b = x[k + 1];
            x[k] = swaps ? b : a;
            x[k + 1] = swaps ? a : b;
            if (P) {
                const I c = p[k], d = p[k + 1];
                p[k] = swaps ? d : c;
                p[k + 1] = swaps ? c : d;
            }
        }
    }
    lw_keep<O, I, P>(keys, at, x, p);
    #pragma unroll 1
    for (int run = lw_each; run < T * lw_each; run *= 2) {
        const int here = (int)threadIdx.x * lw_each, first = here / (2 * run) * (2 * run);
        lw_merge<O, I, P>(keys, at, first, first + run, first + run, first + 2 * run, here - first, x, p);
        lw_keep<O, I, P>(keys, at, x, p);
    }
}
// How many of the first `skipped` elements of two runs, merged, are of the first one: all lanes of a warp look, at 32 places.
template <class O> __device__ __forceinline__ long long lw_split(const typename O::Key* a, const typename O::Key* b,
                                                                 long long in_a, long long in_b, long long skipped) {
    long long low = skipped > in_b ? skipped - in_b : 0, high = skipped < in_a ? skipped : in_a;
    while (low < high) {
        const long long step = (high - low + 31) / 32, at = low + ((int)threadIdx.x % 32 + 1) * step - 1;
        const unsigned found = __ballot_sync(~0u, at < high && !O::before(b[skipped - 1 - at], a[at]));
        low += __popc(found) * step;
        high = low + step - 1 < high ? low + step - 1 : high;
    }
    return low;
}"""
FEW = """    const int width = n > 16 ? 32 : n > 8 ? 16 : n > 4 ? 8 : 4, lane = threadIdx.x % 32, me = lane % width;
    const long long row = ((long long)blockIdx.x * {threads} + threadIdx.x) / width;
    const bool there = row < rows && me < n;
    const {order}::Key key = there ? x[row * n + me] : {order}::last();
    int place = 0;
    for (int j = 0; j < n; ++j) {{
        const {order}::Key other = ({order}::Key)__shfl_sync(~0u, key, lane - me + j);
        place += j < me ? !{order}::before(key, other) : {order}::before(other, key);
    }}
    if (there) {{
        {put}
    }}"""
SHARED = """    __shared__ {order}::Key keys[{room}];
    {at}
    {order}::Key own[lw_each];
    {index} number[lw_each];"""
ROW = SHARED + """
    const long long row = blockIdx.x;
    #pragma unroll
    for (int k = 0; k < lw_each; ++k) {{
        const int i = (int)threadIdx.x * lw_each + k;
        own[k] = i < n ? x[row * n + i] : {order}::last();
        number[k] = i;
    }}
    lw_sort_tile<{order}, {index}, {told}, {threads}>(keys, at, own, number);
    for (int i = threadIdx.x; i < {count}; i += {threads})
        {put}"""
FIRST = SHARED + """
    const long long tiles = (n + {tile} - 1) / {tile}, row = blockIdx.x / tiles, start = blockIdx.x % tiles * {tile};
    #pragma unroll
    for (int k = 0; k < lw_each; ++k) {{
        const long long i = start + (int)threadIdx.x * lw_each + k;
        own[k] = i < n ? x[row * n + i] : {order}::last();
        number[k] = ({index})i;
    }}
    lw_sort_tile<{order}, {index}, {told}, {threads}>(keys, at, own, number);
    for (int i = threadIdx.x; i < {tile} && start + i < n; i += {threads}) {{
        keys_0[row * n + start + i] = keys[lw_bank(i)];
        {keep}
    }}"""
PAIRS = SHARED + """
    __shared__ long long cuts[2];
    const long long tiles = (n + {tile} - 1) / {tile}, row = blockIdx.x / tiles, start = blockIdx.x % tiles * {tile};
    const long long run = (long long){tile} << step, base = start / (2 * run) * (2 * run), left = n - base;
    const long long in_a = run < left ? run : left, in_b = run < left - in_a ? run : left - in_a;
    const long long skipped = start - base, end = skipped + {tile} < in_a + in_b ? skipped + {tile} : in_a + in_b;
    const {order}::Key* from = (step & 1 ? keys_1 : keys_0) + row * n + base;
    {order}::Key* const keys_to = step & 1 ? keys_0 : keys_1;
    {numbers}
    if (threadIdx.x < 64) {{
        const long long cut = lw_split<{order}>(from, from + in_a, in_a, in_b, threadIdx.x < 32 ? skipped : end);
        if (threadIdx.x % 32 == 0) cuts[threadIdx.x / 32] = cut;
    }}
    __syncthreads();
    const int of_a = (int)(cuts[1] - cuts[0]), count = (int)(end - skipped);
    for (int i = threadIdx.x; i < count; i += {threads}) {{
        const long long k = i < of_a ? cuts[0] + i : in_a + skipped - cuts[0] + (i - of_a);
        keys[lw_bank(i)] = from[k];
        {take}
    }}
    __syncthreads();
    const int here = (int)threadIdx.x * lw_each;
    lw_merge<{order}, {index}, {told}>(keys, at, 0, of_a, of_a, count, here < count ? here : count, own, number);
    lw_keep<{order}, {index}, {told}>(keys, at, own, number);
    const bool is_last = run * 2 >= n;
    for (int i = threadIdx.x; i < count; i += {threads}) {{
        const long long place = start + i;
        if (is_last) {{
            {put}
        }} else {{
            keys_to[row * n + place] = keys[lw_bank(i)];
            {keep}
        }}
    }}"""
PICK = """    const long long i = (long long)blockIdx.x * {threads} + threadIdx.x, row = i / m;
    if (i < rows * m) out[i] = (step ? keys_1 : keys_0)[row * n + x1[i % m]];"""
KINDS = ("sort", "argsort", "top_k", "ranked")


def sorts(n: Node) -> bool:
    """Whether a kernel is a sort that this module writes."""
    return n.attrs["implementation"] in KINDS


def sorting_kernel(n: Node, name: str, library: Library, *, wide: bool) -> CudaKernel:
    """The launches of a sort. `wide`: positions have 64 bits."""
    return _Sort(n, name, library, wide).kernel()


@dataclass
class _Sort:
    """The launches of one sort: of rows of every length that there may be."""

    node: Node
    name: str
    library: Library
    wide: bool

    def __post_init__(self) -> None:
        once, = self.node.regions[0].nodes
        self.kind, self.type, self.made = once.op.name, once.inputs[0].type, once.outputs[0].type
        *outer, self.length = self.type.shape
        self.rows, self.told = product(outer), self.kind in ("argsort", "top_k")
        self.order = _order(self.library, self.type.dtype, falling=self.kind == "top_k")
        self.index = "long long" if self.wide else "int"
        self.library.add("lw_merge", MERGE)

    def kernel(self) -> CudaKernel:
        region, n = self.node.regions[0], self.length
        parts = [self.few()] if _may(n, 0, WARP) else []
        for low, threads in zip((WARP, *(EACH * t for t in BLOCKS)), BLOCKS, strict=False):
            if _may(n, low, EACH * threads):
                parts.append(self.row(low, EACH * threads, threads))
        if not isinstance(n, int) or n > TILE:
            parts += self.long_rows()
        kinds = [("keys", memory_type(self.type.dtype), self.type.dtype.itemsize)]
        kinds += [("at", self.index, 8 if self.wide else 4)] if self.told else []
        count = self.rows * n * _is_above(n, TILE)
        scratch = [Scratch(f"{x}_{k}", kind, count, size) for x, kind, size in kinds for k in (0, 1)]
        made = [replace(x, text=self.function(x, scratch)) for x in parts]
        return CudaKernel(self.name, tuple(made), tuple(scratch), region.symbols, () if self.wide else (n,))

    # ---- launches ------------------------------------------------------------------------------
    def few(self) -> LaunchText:
        """Rows of up to a warp's lanes."""
        width = 4 + 4 * _is_above(self.length, 4) + 8 * _is_above(self.length, 8) + 16 * _is_above(self.length, 16)
        blocks = floordiv(self.rows * width + (MOST - 1), MOST) * _is_between(self.length, 0, WARP)
        put = {"sort": "out[row * n + place] = key;", "argsort": "out[row * n + place] = me;",
               "top_k": "if (place < m) out[row * m + place] = me;",
               "ranked": "for (int k = 0; k < m; ++k) if (x1[k] == place) out[row * m + k] = key;"}
        return self.part("few", FEW, blocks, MOST, put=put[self.kind])

    def row(self, low: int, high: int, threads: int) -> LaunchText:
        """Rows of a tile each."""
        if isinstance(self.length, int):
            threads = max(WARP, 1 << (-(-self.length // EACH) - 1).bit_length())
        put = {"sort": "out[row * n + i] = keys[lw_bank(i)];", "argsort": "out[row * n + i] = at[lw_bank(i)];",
               "top_k": "out[row * m + i] = at[lw_bank(i)];", "ranked": "out[row * m + i] = keys[lw_bank((int)x1[i])];"}
        blocks = self.rows * _is_between(self.length, low, high)
        return self.part(f"rows_{high}", ROW, blocks, threads, put=put[self.kind],
                         count="n" if self.kind in ("sort", "argsort") else "m")

    def long_rows(self) -> list[LaunchText]:
        """Sorted tiles, runs merged in pairs, and what is asked of the rows then, where that is no part of the last merge."""
        n, told = self.length, self.told
        tiles = self.rows * floordiv(n + (TILE - 1), TILE)
        put = {"sort": "out[row * n + place] = keys[lw_bank(i)];", "argsort": "out[row * n + place] = at[lw_bank(i)];",
               "top_k": "if (place < m) out[row * m + place] = at[lw_bank(i)];",
               "ranked": "keys_to[row * n + place] = keys[lw_bank(i)];"}
        numbers = f"const {self.index}* numbers = (step & 1 ? at_1 : at_0) + row * n + base;\n    " \
                  f"{self.index}* const at_to = step & 1 ? at_0 : at_1;" if told else ""
        first = self.part("tiles", FIRST, tiles * _is_above(n, TILE), MOST,
                          keep="at_0[row * n + start + i] = at[lw_bank(i)];" if told else "")
        merge = self.part("merge", PAIRS, 0, MOST, put=put[self.kind], numbers=numbers,
                          take="at[lw_bank(i)] = numbers[k];" if told else "",
                          keep="at_to[row * n + place] = at[lw_bank(i)];" if told else "")
        runs = [TILE << k for k in range(MERGES) if not isinstance(n, int) or n > TILE << k]
        merges = [replace(merge, grid=tiles * _is_above(n, run), numbers=self.given(k)) for k, run in enumerate(runs)]
        if self.kind != "ranked":
            return [first, *merges]
        passes = sum((_is_above(n, run) for run in runs[1:]), start=_is_above(n, TILE))
        m = self.made.shape[-1]
        blocks = floordiv(self.rows * m + (MOST - 1), MOST) * _is_above(n, TILE)
        numbers_of_last = self.given(passes - floordiv(passes, 2) * 2)
        return [first, *merges, replace(self.part("pick", PICK, blocks, MOST), numbers=numbers_of_last)]

    def given(self, step: Extent = 0) -> tuple[Extent, ...]:
        return self.rows, self.length, self.made.shape[-1], step

    # ---- text ----------------------------------------------------------------------------------
    def part(self, name: str, text: str, grid: Extent, threads: int, **words: str) -> LaunchText:
        room = EACH * threads + EACH
        at = f"__shared__ {self.index} at[{room + room // 32 + 1}];" if self.told else f"{self.index}* const at = nullptr;"
        body = text.format(order=self.order, index=self.index, told="true" if self.told else "false", tile=TILE,
                           threads=threads, room=room + room // 32 + 1, at=at, **words)
        return LaunchText(f"{self.name}_{name}", body, grid, (threads, 1), 0, self.given())

    def function(self, x: LaunchText, scratch: list[Scratch]) -> str:
        """A launch's function."""
        region = self.node.regions[0]
        once, = region.nodes
        names = dict(zip(reversed(once.inputs), ("x1", "x")[-len(once.inputs):], strict=True))
        kinds = memory_type(self.type.dtype), memory_type(self.made.dtype)
        listed = [*(f"const {memory_type(v.type.dtype)}* {names[v]}" for v in region.params), f"{kinds[1]}* out",
                  *(f"{s.kind}* {s.name}" for s in scratch), *(f"long long size_{k}" for k in range(len(region.symbols))),
                  "long long* error", *(f"long long {name}" for name in ("rows", "n", "m", "step"))]
        body = "    const long long* const x1 = x;\n" * (len(once.inputs) > len(region.params)) + x.text
        head = f'extern "C" __global__ void __launch_bounds__({x.threads[0]}) {x.name}'
        return f"{head}(\n        {', '.join(listed)}) {{\n{body}\n}}"


def _order(library: Library, dtype: np.dtype, falling: bool) -> str:
    """The type that tells which of two elements goes before another, NaN after numbers, all of it turned around if falling."""
    name, kind = f"lw_{'falling' if falling else 'rising'}_{SHORT[dtype]}", memory_type(dtype)
    key = "{0}"
    if dtype in BITS:
        infinity, nan, lowest = BITS[dtype]
        key = f"(({{0}} & 0x7fff) > {infinity} ? 0x8000 : {{0}} & 0x8000 ? -({{0}} & 0x7fff) : {{0}})"
        last = str(lowest if falling else nan)
    elif dtype in (F32, F64):
        last = literal(-np.inf if falling else np.nan, dtype)
    else:
        ends = (0, 1) if dtype == BOOL else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        last = literal(ends[not falling], U8 if dtype == BOOL else dtype)
    a, b = (key.format(x) for x in ("ba" if falling else "ab"))
    test = f"{a} < {b}" + (f" || ({b} != {b} && {a} == {a})" if dtype in (F32, F64) else "")
    return library.add(name, ORDER.format(name=name, kind=kind, before=f"return {test};", last=last))


# ---- where launches are for these sizes ---------------------------------------------------------------
def _may(n: Extent, low: int, high: int) -> bool:
    """Whether rows may have more than `low` elements and at most `high`."""
    return not isinstance(n, int) or low < n <= high


def _is_above(n: Extent, low: int) -> Extent:
    """1 where n is greater, else 0."""
    return minimum(1, floordiv(n, low + 1))


def _is_between(n: Extent, low: int, high: int) -> Extent:
    """1 where n is greater than `low` and at most `high`, else 0."""
    return _is_above(n, low) - _is_above(n, high)
