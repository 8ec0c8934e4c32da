"""Updates in any order: each by whichever thread comes to it, through atomic operations of which every order gives equal bits.

Guarantees: integers end as NumPy's do. What is set last, in C order, stays. Of floats the greatest and least propagate NaN,
and of zeros the greatest is 0.0, the least -0.0. The terms of a sum of floats become multiples of a power of two that the
largest of them alone decides, and are added as integers, exactly; the sum is rounded, and added to what is there. Of fewer
than 2**b terms each loses at most 2**(b - 62) of the largest, in f64 the square of that. Infinities and NaN give what they do
in sums. Sums that are `loose` round after each addition, in the order in which threads come.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import maximum, minimum, product
from loopwright.ir.gpu_schedule import THREAD_X
from loopwright.ir.nest import Buffer, For, Store
from loopwright.ir.types import BOOL, F64, is_float
from loopwright.lower.binding import owner
from loopwright.lower.cuda import arithmetic
from loopwright.lower.cuda.context import Context
from loopwright.lower.cuda.evaluate import place, value
from loopwright.lower.cuda.packs import unravelled
from loopwright.lower.cuda.store import written
from loopwright.lower.cuda.text import Block, register_type
from loopwright.lower.registers import perfect

SHARE, MOST_BLOCKS = 1024, 1024  # updates, at least, of a block; blocks
IN_FLIGHT = 4  # updates of a thread
NOT_FINITE = 2048  # what lw_magnitude says
Write = Callable[[Context, str, str], None]  # writes one update, given its number and its place
Take = Callable[[Block, str, str], None]  # takes a number into an array, at the place of an update

MULTIPLY = """template <class T> __device__ __forceinline__ void lw_atomic_multiply(T* at, T x) {
    T old = 0, seen;
    while ((seen = atomicCAS(at, old, old * x)) != old) old = seen;
}"""
KEYS = """// integers in the order of floats
__device__ __forceinline__ KEY lw_key_of_TYPE(TYPE x, KEY nan) {
    const KEY bits = (KEY)BITS(x), sign = (KEY)1 << (sizeof(KEY) * 8 - 1);
    return x != x ? nan : bits & sign ? ~bits : bits | sign;
}
__device__ __forceinline__ TYPE lw_of_key_TYPE(KEY key) {
    const KEY sign = (KEY)1 << (sizeof(KEY) * 8 - 1), bits = key & sign ? key ^ sign : ~key;
    return FROM(key == 0 || key == ~(KEY)0 ? QUIET : bits);
}"""
SUMS = """// 0: -0.0; 1: 0.0; 2 and more: abs(x) < 2^(this - 1023); 2048: not finite
__device__ __forceinline__ unsigned lw_magnitude(double x) {
    const unsigned long long bits = (unsigned long long)__double_as_longlong(x);
    const unsigned exponent = (unsigned)(bits >> 52) & 0x7ffu;
    return bits == 0x8000000000000000ull ? 0u : bits == 0 ? 1u : exponent == 0 ? 2u : exponent + 1u;
}
__device__ __forceinline__ double lw_scaled(double x, int by) {  // x 2^by, in two steps that no exponent is too small for
    const int half = by / 2;
    const double first = __longlong_as_double((long long)(half + 1023) << 52);
    return x * first * __longlong_as_double((long long)(by - half + 1023) << 52);
}
// Terms below 2^(magnitude - 1023) as multiples of a power of two, with so many bits; what is left in as many more.
__device__ __forceinline__ long long lw_whole(double x, unsigned magnitude, int bits) {
    return __double2ll_rn(lw_scaled(x, bits + 1023 - (int)magnitude));
}
__device__ __forceinline__ long long lw_rest(double x, unsigned magnitude, int bits) {
    const double scaled = lw_scaled(x, bits + 1023 - (int)magnitude);
    return __double2ll_rn(lw_scaled(scaled - rint(scaled), bits));
}
__device__ __forceinline__ unsigned long long lw_not_finite(double x) { return x != x ? 4ull : x > 0 ? 1ull : 2ull; }
__device__ __forceinline__ double lw_sum(unsigned long long whole, unsigned long long rest, unsigned magnitude, int bits) {
    if (magnitude == 2048u)
        return __longlong_as_double(whole == 1 ? 0x7ff0000000000000ll : whole == 2 ? (long long)0xfff0000000000000ull
                                                                                   : 0x7ff8000000000000ll);
    return lw_scaled((double)(long long)whole + lw_scaled((double)(long long)rest, -bits), (int)magnitude - bits - 1023);
}"""


@dataclass(frozen=True)
class Way:
    """How numbers are put together: C type, atomic function, and what it starts from; `inplace`: in the array itself."""

    kind: str
    function: str
    identity: str
    inplace: bool = False

    def text(self, at: str, x: str) -> str:
        """The statement that takes one more number."""
        name = "lw_atomic_multiply" if self.function == "Multiply" else f"atomic{self.function}"
        return f"{name}(({self.kind}*)&{at}, ({self.kind}){x});"


FIRST, WORD = Way("unsigned", "Max", "0u"), Way("unsigned long long", "Add", "0ull")


def way_of(combine: str, dtype: np.dtype) -> Way:
    """For integers, and for the keys of floats that are compared."""
    if is_float(dtype):
        kind = "unsigned long long" if dtype == F64 else "unsigned"
        return Way(kind, combine.capitalize(), f"({kind})0" if combine == "max" else f"~({kind})0")
    wide, signed = dtype.itemsize == 8, dtype.kind == "i"
    combine = {"add": "max", "mul": "min"}.get(combine, combine) if dtype == BOOL else combine
    if combine in ("add", "mul"):
        return Way("unsigned long long" if wide else "unsigned", {"add": "Add", "mul": "Multiply"}[combine],
                   {"add": "0", "mul": "1"}[combine], dtype.itemsize >= 4)
    bits = 64 if wide else 32
    least, most = (f"(-{(1 << bits - 1) - 1}ll - 1)", f"{(1 << bits - 1) - 1}ll") if signed else ("0", f"{(1 << bits) - 1}ull")
    kind = f"{'' if signed else 'unsigned '}{'long long' if wide else 'int'}"
    return Way(kind, combine.capitalize(), f"({kind}){least if combine == 'max' else most}", dtype.itemsize >= 4)


def updates_in_any_order(s: For, buffers: Sequence[Buffer]) -> list[Callable[[Context], object]]:
    """What writes each launch."""
    update = perfect(s)[1].body[0]
    assert isinstance(update, Store)
    dtype = next(b.dtype for b in buffers if b.name == update.buffer)
    steps: tuple[Callable[[_Updates], None], ...]
    if update.combine == "set":
        steps = _no_last, _find_last, _set_last
    elif s.loose:
        steps = (_in_place,)
    elif update.combine == "add" and is_float(dtype):
        steps = _no_sums, _measure, _add, _sum_up
    elif way_of(update.combine, dtype).inplace:
        steps = (_in_place,)
    else:
        steps = _no_numbers, _gather_numbers, _put_numbers
    return [lambda context, step=step: step(_Updates(context, s, update)) for step in steps]  # type: ignore[misc]


class _Updates:
    """One launch over all updates of a scatter."""

    def __init__(self, context: Context, s: For, update: Store) -> None:
        launch = context.launch
        self.launch, self.update, self.over, self.copy = launch, update, perfect(s)[0], s.copy
        self.context = replace(context, free=(), repeats=True)
        self.buffer = launch.buffers[update.buffer]
        self.dtype, self.size, self.loose = self.buffer.dtype, product(self.buffer.shape), s.loose
        count = product(n for _, n in self.over)
        share = maximum(SHARE, 2 * minimum(self.size, s.copy))
        launch.grid = maximum(1, minimum((count + (share - 1)) // share, MOST_BLOCKS))
        self.total, self.end = launch.extent(count), launch.extent(self.size)

    def scratch(self, name: str, kind: str) -> str:
        """An array that the launches pass on, as long as what is updated."""
        name = f"{self.update.buffer}_{name}"
        self.launch.scratch[name] = kind, self.size, 8 if "long" in kind else 4
        return name

    def every(self, write: Write) -> None:
        """`write` for each update that is done, of which threads take turns."""
        block, kind, x = self.context.block, self.launch.index_type, self.launch.x
        first, step = (f"{self.launch.thread(n)} * {x}" for n in ("blockIdx.x", "gridDim.x"))
        flat = block.fresh("at")
        self.launch.forget()
        block.line(f"#pragma unroll {IN_FLIGHT}")
        begin = f"{first} + {self.launch.thread(THREAD_X)}"
        with block.inner(f"for ({kind} {flat} = {begin}; {flat} < {self.total}; {flat} += {step})") as inside:
            here = unravelled(self.context.at(inside), self.over, flat)
            if self.update.when is None:
                self._there(here, flat, write)
                return
            with inside.inner(f"if ({value(here, self.update.when)})") as some:
                self._there(here.at(some), flat, write)

    def _there(self, context: Context, flat: str, write: Write) -> None:
        index = tuple(map(self.launch.terms.of, self.update.index))
        at = context.block.let(self.launch.index_type, place(context, self.buffer, index), "at")
        with context.block.inner(f"if ({at} < {self.end})") as inside:  # an array of nothing has no element 0
            write(context.at(inside), flat, at)

    def value(self, context: Context) -> str:
        return value(context, self.update.value)

    def as_double(self, context: Context) -> str:
        """The value of a float, exactly."""
        return context.block.let("double", self.value(context) if self.dtype == F64 else f"(double){self.value(context)}")

    def cleared(self, arrays: Sequence[tuple[str, Way]]) -> None:
        """What is updated starts as nothing; atomically, for several threads do it."""
        def write(here: Context, flat: str, at: str) -> None:
            for name, way in arrays:
                here.block.line(f"atomicExch(&{name}[{at}], {way.identity});")
        self.every(write)

    def gathered(self, arrays: Sequence[tuple[str, Way]], write: Callable[[Context, str, Take], None]) -> None:
        """`write` for each update, with what takes a number into an array at its place: first into the block's copy, where
        there is one, and this at the end."""
        block, launch, copy = self.context.block, self.launch, self.copy
        parts = {name: block.fresh("part") for name, _ in arrays} if copy else {}
        for name, way in arrays if copy else ():
            block.line(f"__shared__ {way.kind} {parts[name]}[{copy}];")
            self._each_element(lambda k, name=name, way=way: f"{parts[name]}[{k}] = {way.identity};")  # type: ignore[misc]
        if copy:
            block.line("__syncthreads();")

        def one(here: Context, flat: str, at: str) -> None:
            def take(inside: Block, name: str, x: str) -> None:
                way = dict(arrays)[name]
                x = x if x.isidentifier() else inside.let(way.kind, f"({way.kind}){x}")
                if copy:
                    inside.line(f"if ({self.end} <= {copy}) {way.text(f'{parts[name]}[{at}]', x)}")
                inside.line(f"{'else ' if copy else ''}{way.text(f'{name}[{at}]', x)}")
            write(here, at, take)
        self.every(one)
        if copy:
            block.line("__syncthreads();")
        for name, way in arrays if copy else ():
            part = parts[name]
            self._each_element(lambda k, name=name, way=way, part=part:  # type: ignore[misc]
                               f"if ({part}[{k}] != {way.identity}) {way.text(f'{name}[{k}]', f'{part}[{k}]')}")
        launch.forget()

    def _each_element(self, text: Callable[[str], str]) -> None:
        """A line for each element of a block's copy, if it has one."""
        k = self.context.block.fresh("k")
        header = f"for (int {k} = (int){THREAD_X}; {k} < {self.end}; {k} += {self.launch.x})"
        with self.context.block.inner(f"if ({self.end} <= {self.copy})") as small, small.inner(header) as inside:
            inside.line(text(k))


# ---- the last of what is set ----------------------------------------------------------------------
def _last(u: _Updates) -> tuple[str, Way]:
    kind = "unsigned long long" if u.launch.wide else "unsigned"
    return u.scratch("last", kind), Way(kind, "Max", "0")


def _no_last(u: _Updates) -> None:
    u.cleared([_last(u)])


def _find_last(u: _Updates) -> None:
    name, way = _last(u)
    u.every(lambda here, flat, at: here.block.line(way.text(f"{name}[{at}]", f"({flat} + 1)")))


def _set_last(u: _Updates) -> None:
    name, way = _last(u)

    def write(here: Context, flat: str, at: str) -> None:
        with here.block.inner(f"if ({name}[{at}] == ({way.kind})({flat} + 1))") as inside:
            written(here.at(inside), u.update, f"{u.update.buffer}[{at}]", u.value(here.at(inside)))
    u.every(write)


# ---- numbers that are put together ----------------------------------------------------------------
def _in_place(u: _Updates) -> None:
    way, y = _helped(u), u.update.buffer
    u.gathered([(y, way)], lambda here, at, take: take(here.block, y, u.value(here)))


def _numbers(u: _Updates) -> tuple[str, Way]:
    way = _helped(u)
    return u.scratch("numbers", way.kind), way


def _no_numbers(u: _Updates) -> None:
    u.cleared([_numbers(u), (u.scratch("mark", FIRST.kind), FIRST)])


def _gather_numbers(u: _Updates) -> None:
    name, way = _numbers(u)

    def write(here: Context, at: str, take: Take) -> None:
        x = u.value(here)
        if is_float(u.dtype):
            nan = f"~({way.kind})0" if u.update.combine == "max" else f"({way.kind})0"
            x = here.block.let(way.kind, f"lw_key_of_{_float(u)}({x}, {nan})")
        take(here.block, name, x)
    u.gathered([(name, way)], write)


def _put_numbers(u: _Updates) -> None:
    name, _ = _numbers(u)
    mark, kind = u.scratch("mark", FIRST.kind), register_type(u.dtype)

    def write(here: Context, flat: str, at: str) -> None:
        with here.block.inner(f"if (atomicExch(&{mark}[{at}], 1u) == 0u)") as inside:
            found = f"lw_of_key_{_float(u)}({name}[{at}])" if is_float(u.dtype) else f"({kind}){name}[{at}]"
            written(here.at(inside), u.update, f"{u.update.buffer}[{at}]", inside.let(kind, found))
    u.every(write)


def _helped(u: _Updates) -> Way:
    """How numbers are put together, with the functions for it in the library."""
    if u.loose:
        kind = register_type(u.dtype)
        return Way(kind, "Add", f"({kind})0")
    way, library = way_of(u.update.combine, u.dtype), u.launch.library
    if way.function == "Multiply":
        library.add("lw_atomic_multiply", MULTIPLY)
    if is_float(u.dtype):
        name, read, make, quiet = ("double", "__double_as_longlong", "__longlong_as_double", "0x7ff8000000000000ull") \
            if u.dtype == F64 else ("float", "__float_as_uint", "__uint_as_float", "0x7fc00000u")
        text = KEYS
        for mark, to in (("TYPE", name), ("KEY", way.kind), ("BITS", read), ("FROM", make), ("QUIET", quiet)):
            text = text.replace(mark, to)
        library.add(f"lw_key_of_{name}", text)
    return way


def _float(u: _Updates) -> str:
    return "double" if u.dtype == F64 else "float"


# ---- sums of floats -------------------------------------------------------------------------------
def _sums(u: _Updates) -> list[tuple[str, Way]]:
    """How large the terms are, and their sums as integers."""
    u.launch.library.add("lw_sums", SUMS)
    words = ("whole", "rest") if u.dtype == F64 else ("whole",)
    return [(u.scratch("magnitude", FIRST.kind), FIRST), *((u.scratch(name, WORD.kind), WORD) for name in words)]


def _bits(u: _Updates) -> str:
    """Bits that each term may have, so that all terms of one element do not overflow."""
    loops = {k for k, _ in u.over}
    own = {owner(e, loops) for e in u.update.index}
    terms = product(n for k, n in u.over if k not in own)
    return u.context.block.let("int", f"__clzll({u.launch.number(terms)}) - 2")


def _no_sums(u: _Updates) -> None:
    u.cleared(_sums(u))


def _measure(u: _Updates) -> None:
    magnitude = _sums(u)[0]

    def write(here: Context, at: str, take: Take) -> None:
        take(here.block, magnitude[0], f"lw_magnitude({u.as_double(here)})")
    u.gathered([magnitude], write)


def _add(u: _Updates) -> None:
    (magnitude, _), *sums = _sums(u)
    bits = _bits(u)

    def write(here: Context, at: str, take: Take) -> None:
        x, size = u.as_double(here), here.block.let("unsigned", f"{magnitude}[{at}]")
        with here.block.inner(f"if ({size} < {NOT_FINITE}u)") as finite:
            take(finite, sums[0][0], f"lw_whole({x}, {size}, {bits})")
            for name, way in sums[1:]:
                left = finite.let(way.kind, f"({way.kind})lw_rest({x}, {size}, {bits})")
                with finite.inner(f"if ({left} != 0)") as some:
                    take(some, name, left)
        other = Block(here.block)
        other.line(f"if (lw_magnitude({x}) == {NOT_FINITE}u) atomicOr(&{sums[0][0]}[{at}], lw_not_finite({x}));")
        here.block.otherwise(other)
    u.gathered(sums, write)


def _sum_up(u: _Updates) -> None:
    (magnitude, _), *sums = _sums(u)
    bits = _bits(u)

    def write(here: Context, flat: str, at: str) -> None:
        size = here.block.let("unsigned", f"atomicExch(&{magnitude}[{at}], 0u)")
        with here.block.inner(f"if ({size} != 0u)") as inside:  # else it is done, or all terms are -0.0 and change nothing
            words = [f"{name}[{at}]" for name, _ in sums] if u.dtype == F64 else [f"{sums[0][0]}[{at}]", "0ull"]
            found = f"lw_sum({', '.join(words)}, {size}, {bits})"
            target, y = f"{u.update.buffer}[{at}]", "double" if u.dtype == F64 else "float"
            old = inside.let(y, arithmetic.from_memory(u.launch.library, target, u.dtype))
            x = inside.let(y, f"({y})((double){old} + {found})")
            inside.line(f"{target} = {arithmetic.to_memory(u.launch.library, x, u.dtype)};")
    u.every(write)
