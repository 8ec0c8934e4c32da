"""Where CUDA text is written: one launch's function, its open block, what names mean there, and which threads are there.

Guarantees: sizes are worked out once, at the top of the function; index arithmetic is 32 bits wide unless the kernel is
made wide, and `narrow` then lists what must stay below `MOST_NARROW`; other integers are as wide as their dtype.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Call, Extent, Symbol, terms_of
from loopwright.ir.loops import Expr, Index
from loopwright.ir.nest import Buffer, Nest
from loopwright.lower.codegen.terms import Linear, Term, Terms, add_linear, scale_linear
from loopwright.lower.cuda.maths import Library
from loopwright.lower.cuda.text import Block, memory_type

WARP = 32
REGISTERS, WORKING = 1 << 16, 48  # of a multiprocessor; of a thread that spills nothing, as elementary functions of f64 need
MOST_NARROW = (1 << 31) - (1 << 20)  # one step of all threads past it still has 32 bits
FLOOR_DIVIDE = """__device__ __forceinline__ long long lw_size_divide(long long a, long long b) {
    return b == 0 ? 0 : a / b - (a % b != 0 && (a % b ^ b) < 0);
}"""
REPORT = """__device__ __forceinline__ void lw_report(long long* error, long long site, long long index, long long axis,
                                          long long size) {
    if (atomicCAS((unsigned long long*)error, 0ull, (unsigned long long)site) == 0) {
        error[1] = index;
        error[2] = axis;
        error[3] = size;
    }
}"""
# Quotients of numbers below 2^31 by one of them, as a product and a shift; what rounding up adds stays below 1 / n.
DIVISOR = """struct lw_divisor { unsigned by; int shift; };
__device__ __forceinline__ lw_divisor lw_divisor_of(int n) {
    const int bits = n > 1 ? 64 - __clzll((unsigned long long)(n - 1)) : 0;
    return {n > 0 ? (unsigned)(((1ull << (31 + bits)) + (n - 1)) / n) : 0u, 31 + bits};
}
__device__ __forceinline__ int lw_quotient(int x, lw_divisor d) {
    return (int)((unsigned long long)(unsigned)x * d.by >> d.shift);
}"""
SHARED = """#ifndef LW_EMULATED
#define LW_SHARED(name) extern __shared__ __align__(16) unsigned char name[]
#endif"""
PACK = "template <class T, int N> struct alignas(sizeof(T) * N) lw_pack { T at[N]; };"


@dataclass(frozen=True)
class Share:
    """Of a tile's rows or columns those of one thread: groups of `lanes` neighbours, so far `apart`; the first is at `base`."""

    base: str
    count: int
    lanes: int
    apart: int

    def start(self, group: str) -> str:
        """Where a group begins."""
        return f"{group} * {self.apart} + {self.base}"


class Launch:
    """One function: `head` works sizes out, `body` follows it. `shared`: bytes of its rows in shared memory."""

    def __init__(self, nest: Nest, library: Library, terms: Terms, wide: bool) -> None:
        self.nest, self.library, self.terms, self.wide = nest, library, terms, wide
        self.head = Block()
        self.body = Block(self.head)
        self.body.depth = self.head.depth
        self.buffers: dict[str, Buffer] = {b.name: b for b in nest.buffers}
        self.kept: dict[str, tuple[tuple[Index, ...], Expr]] = {}  # rows in registers: what was stored to each, at which index
        self.shares: dict[str, tuple[Share, Share]] = {}  # whose rows and columns of sums in tiles are a thread's
        self.scratch: dict[str, tuple[str, Extent, int]] = {}  # by name: C type, elements, bytes of one
        self.symbols = {name: f"size_{name if name.isidentifier() and name.isascii() else k}"
                        for k, name in enumerate(nest.symbols)}
        self.versions: dict[str, int] = {}
        self.narrow: dict[Extent, None] = {}
        self.grid: Extent = 1
        self.at_once = 1  # blocks that keep long rows and are to run on one multiprocessor
        self.passes: list[set[str]] = []  # the rows in registers that each pass over such rows reads or stores
        self.shared: Extent = 0
        self.in_parts = False  # whether blocks share out rows
        self.divides_often = False  # so that it is worth what makes quotients quick
        assert nest.threads is not None
        self.x, self.y = nest.threads

    @property
    def rows(self) -> dict[str, Buffer]:
        """The rows in registers."""
        return {name: b for name, b in self.buffers.items() if b.place == "registers"}

    @property
    def most_at_once(self) -> int:
        """How many blocks with rows in registers fit a multiprocessor, where threads have `WORKING` registers beside rows."""
        first = {x: k for k, names in reversed([*enumerate(self.passes)]) for x in names}
        last = {x: k for k, names in enumerate(self.passes) for x in names}
        kept = {x: b.each * max(b.dtype.itemsize // 4, 1) for x, b in self.rows.items()}
        most = max([sum(kept[x] for x in first if first[x] <= k < last[x]) for k in range(len(self.passes))], default=0)
        return max(1, REGISTERS // (self.x * self.y * (most + WORKING)))

    @property
    def index_type(self) -> str:
        return "long long" if self.wide else "int"

    # ---- what is out of date -------------------------------------------------------------------
    def wrote(self, name: str) -> None:
        """What was read from this buffer is out of date."""
        self.versions[name] = self.versions.get(name, 0) + 1

    def forget(self) -> None:
        """A loop begins or ends: what it stores may be read by its next iteration."""
        for name, buffer in self.buffers.items():
            if buffer.role != "input":
                self.wrote(name)

    # ---- sizes ---------------------------------------------------------------------------------
    def number(self, x: Extent) -> str:
        """A size as a long long."""
        if isinstance(x, int):
            return f"{x}ll" if x >= 0 else f"({x}ll)"
        known = self.head.find(("size", x))
        if known is None:
            terms = " + ".join(" * ".join([*map(self._atom, atoms), *([f"{c}ll"] if c != 1 or not atoms else [])])
                               for atoms, c in terms_of(x))
            simple = x.name is not None
            known = self.head.values["size", x] = terms if simple else self.head.let("long long", terms, "n")
        return known

    def _atom(self, atom: Symbol | Call) -> str:
        if isinstance(atom, Symbol):
            return self.symbols[atom.name]
        a, b = map(self.number, atom.args)
        if atom.fn == "floordiv":
            return f"{self.library.add('lw_size_divide', FLOOR_DIVIDE)}({a}, {b})"
        return f"({a} {'<' if atom.fn == 'min' else '>'} {b} ? {a} : {b})"

    def extent(self, x: Extent) -> str:
        """A size as an index."""
        self.narrow[x] = None
        if isinstance(x, int):
            return f"{x}{'ll' if self.wide else ''}" if x >= 0 else f"({x})"
        if self.wide:
            return self.number(x)
        known = self.head.find(("index", x))
        if known is None:
            known = self.head.values["index", x] = self.head.let("int", f"(int)({self.number(x)})", "n")
        return known

    def divisor(self, n: str) -> str:
        """What makes quotients by an index quick."""
        known = self.head.find(("divisor", n))
        if known is None:
            self.library.add("lw_divisor", DIVISOR)
            known = self.head.values["divisor", n] = self.head.let("lw_divisor", f"lw_divisor_of({n})", "d")
        return known

    @property
    def barrier(self) -> str:
        """Where the threads along x wait for each other."""
        return "__syncwarp();" if self.x <= WARP else "__syncthreads();"

    def thread(self, axis: str) -> str:
        return f"({self.index_type}){axis}"

    # ---- text ----------------------------------------------------------------------------------
    def parameters(self) -> list[str]:
        found = []
        for b in self.nest.buffers:
            constant = "const " if b.role == "input" else ""
            found.append(f"{constant}{memory_type(b.dtype)}* {'__restrict__ ' if constant else ''}{b.name}")
        return found


@dataclass(frozen=True, eq=False)
class Context:
    """`free`: the axes of threads that all do the same here, of which the first stores. `active`: whether this thread has an
    element of its own; one that has none does again what the last one does, and stores nothing. `packed`: where stores put
    their values, by the statement. `repeats`: whether a loop around this place runs it more than once. `slot`: which
    of a thread's elements of rows in registers is here. `there`: whether the row has it; what an element is may be computed
    where it has not, and is then anything. `rare`: the variable that becomes true where a quotient by a reciprocal
    is not the quotient, and all is done again without."""

    launch: Launch
    block: Block
    names: Mapping[str, str] = field(default_factory=dict)
    free: tuple[str, ...] = ()
    active: str = ""
    packed: Mapping[int, str] = field(default_factory=dict)
    repeats: bool = False
    slot: str = ""
    there: str = ""
    rare: str = ""

    def at(self, block: Block) -> Context:
        return replace(self, block=block)

    def bind(self, name: str, text: str) -> Context:
        return replace(self, names={**self.names, name: text})

    def key(self, term: Term) -> tuple[object, ...]:
        """What tells this term's value from others: the term, and the state of what it reads."""
        launch = self.launch
        state = tuple([launch.versions.get(name, 0) for name in sorted(term.buffers)])
        return term.number, state, tuple([self.names[name] for name in sorted(term.free)])


def offset_form(launch: Launch, buffer: Buffer, index: tuple[Term, ...]) -> Linear:
    """The position as sizes times terms."""
    total: Linear = ({}, 0)
    stride: Extent = 1
    for term, extent in zip(reversed(index), reversed(buffer.shape), strict=True):
        total = add_linear(total, scale_linear(launch.terms.linear(term), stride))
        stride = stride * extent
    return total


def linear_text(context: Context, form: Linear, value_of: Mapping[int, str]) -> str:
    """A position as text; `value_of`: the values of its terms that are no loops."""
    launch = context.launch
    found = []
    for term, coefficient in form[0].items():
        if isinstance(term.expr, Index):
            text = context.names[term.expr.name]
        else:
            text = value_of[term.number] if launch.wide else f"(int){value_of[term.number]}"
        is_one = isinstance(coefficient, int) and coefficient == 1
        found.append(text if is_one else f"{text} * {launch.extent(coefficient)}")
    if form[1] != 0 or not found:
        found.append(launch.extent(form[1]))
    return " + ".join(found)
