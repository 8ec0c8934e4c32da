"""Expressions for two neighbouring columns at once, half floats as the two halves of a word.

Guarantees: the same values as one after the other, every operation rounded as it is written: sums, differences and products of
f16 by instructions of pairs, quotients by a number of the row from its reciprocal in two parts, all else in f32 and rounded to
pairs; but for exponentials of f16, which err by 0.51 units in the last place. Where a column is past the edge nothing is read.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import nullcontext
from dataclasses import field

import numpy as np

from loopwright.ir.dataclass import dataclass
from loopwright.ir.loops import Apply, Literal, Local, When
from loopwright.ir.types import BF16, F16, F32, U16
from loopwright.lower.codegen.terms import Term
from loopwright.lower.cuda import arithmetic
from loopwright.lower.cuda.context import Context
from loopwright.lower.cuda.evaluate import evaluate
from loopwright.lower.cuda.maths import FORMULAS, Library
from loopwright.lower.cuda.text import Block, literal, register_type

PAIR = """// two numbers as half floats in a word, the first in its lower half
__device__ __forceinline__ unsigned lw_pair_KIND(float x, float y) {
#ifndef LW_EMULATED
    unsigned pair;
    asm("cvt.rn.KINDx2.f32 %0, %2, %1;" : "=r"(pair) : "f"(x), "f"(y));
    return pair;
#else
    return lw_to_KIND(x) | (unsigned)lw_to_KIND(y) << 16;
#endif
}"""
HALVES = """// the half floats of a word
__device__ __forceinline__ float lw_first(unsigned pair) { return lw_from_f16((unsigned short)pair); }
__device__ __forceinline__ float lw_second(unsigned pair) { return lw_from_f16((unsigned short)(pair >> 16)); }"""
OF_PAIRS = """__device__ __forceinline__ unsigned lw_NAME_pairs(unsigned x, unsigned y) {
#ifndef LW_EMULATED
    unsigned pair;
    asm("INSTRUCTION.f16x2 %0, %1, %2;" : "=r"(pair) : "r"(x), "r"(y));
    return pair;
#else
    return lw_pair_f16(SCALAR(lw_first(x), lw_first(y)), SCALAR(lw_second(x), lw_second(y)));
#endif
}"""
EXP = """// exp of an f16, for an f16: the exponent's error is less than 2^-20 where the result is none of 0 and infinity
__device__ __forceinline__ float lw_exp_f16(float x) {
#ifndef LW_EMULATED
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 0x1.715476p+0f));
    return y;
#else
    return expf(x);
#endif
}"""
EXP_FROM = """// exp(x - y): what is rounded is the exponent, once
__device__ __forceinline__ float lw_exp_from(float x, float y) {
#ifndef LW_EMULATED
    float z;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(z) : "f"(fmaf(x, 0x1.715476p+0f, -(y * 0x1.715476p+0f))));
    return z;
#else
    return expf(x - y);
#endif
}"""
OVER = """// 1 / y in two parts of one sign, none of which is 0: x times both, of f16, is x / y, exact where that is an f32
__device__ __forceinline__ void lw_parts(float y, float& high, float& low) {
    high = 1 / y;
    float left = fmaf(-y, high, 1);
    if (left < 0) {
        high = __int_as_float(__float_as_int(high) - 1);
        left = fmaf(-y, high, 1);
    }
    left = fabsf(left * high);
    low = copysignf(left >= 0x1p-149f ? left : 0x1p-149f, high);
}
__device__ __forceinline__ float lw_times(float x, float high, float low) { return fmaf(x, high, x * low); }"""
PACKED = {"add": "add.rn", "sub": "sub.rn", "mul": "mul.rn", "max": "max.NaN", "min": "min.NaN"}
SIGNS = {"add": "+", "sub": "-", "mul": "*"}
ROUNDED = ("div", "sqrt", *FORMULAS)


@dataclass(eq=False)
class Pair:
    """Two columns of a row. at_lane: the context of one of them, by the text of its number; local: a name of its own there;
    there: whether it is one of the whole, "" where it is. own: names that mean something else in each column. parts: of
    reciprocals that are known, of f16 by which columns are divided."""

    context: Context
    at_lane: Callable[[Context, str], Context]
    local: Callable[[str, str], str]
    there: Callable[[str], str]
    own: Set[str]
    parts: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    words: dict[int, str] = field(default_factory=dict)
    known: dict[int, tuple[str, str]] = field(default_factory=dict)

    @property
    def block(self) -> Block:
        return self.context.block

    @property
    def library(self) -> Library:
        return self.context.launch.library

    # ---- words ---------------------------------------------------------------------------------
    def word(self, term: Term) -> str:
        """Both numbers of a half float in a word, or of 16 bits that stand for one."""
        found = self.words.get(term.number)
        if found is None:
            text = self._word(term)
            found = self.words[term.number] = text if text.isidentifier() else self.block.let("unsigned", text, "w")
        return found

    def _word(self, term: Term) -> str:
        if term.dtype == U16:
            first, second = self.numbers(term)
            return f"{first} | (unsigned){second} << 16"
        if not self._is_packed(term):
            return self._paired(term.dtype, self.numbers(term))
        assert isinstance(term.expr, Apply)
        fn = term.expr.fn
        if fn == "convert":
            return self._paired(term.dtype, self.numbers(term.args[0]))
        if fn in PACKED and term.dtype == F16:
            return f"{packed(self.library, fn)}({', '.join(map(self.word, term.args))})"
        if fn == "exp" and term.dtype == F16:
            name = self.library.add("lw_exp_f16", EXP)
            first, second = self.numbers(term.args[0])
            return self._paired(F16, (f"{name}({first})", f"{name}({second})"))
        if fn == "div" and term.args[1].number in self.parts:
            return self._divided(term.args[0], self.parts[term.args[1].number])
        args = [self.numbers(a) for a in term.args]
        first, second = (self._operation(fn, term.dtype, F32, [a[k] for a in args]) for k in range(2))
        return self._paired(term.dtype, (first, second))

    def _operation(self, fn: str, dtype: np.dtype, work: np.dtype, args: Sequence[str]) -> str:
        """An operation on numbers of dtype, rounded as one of `work`: a quotient by a reciprocal where one is known."""
        found = self.block.find(("reciprocal", dtype, args[1])) if fn == "div" and self.context.rare else None
        if found is None:
            return arithmetic.applied(self.library, fn, work, args)
        return arithmetic.divided(self.library, work, args[0], args[1], found, "true", self.context.rare)

    def _paired(self, dtype: np.dtype, numbers: tuple[str, str]) -> str:
        return f"{paired(self.library, dtype)}({', '.join(numbers)})"

    def _divided(self, x: Term, parts: tuple[str, str]) -> str:
        """Quotients by one number, from its reciprocal."""
        self.library.add("lw_parts", OVER)
        first, second = (f"lw_times({number}, {', '.join(parts)})" for number in self.numbers(x))
        return self._paired(F16, (first, second))

    def _is_packed(self, term: Term) -> bool:
        """Whether a term's pairs are made as words."""
        if not isinstance(term.expr, Apply) or self._is_of_row(term):
            return False
        fn, from_ = term.expr.fn, [a.dtype for a in term.args]
        if fn == "convert":
            return term.dtype in (F16, BF16) and from_ == [F32]
        return term.dtype in (F16, BF16) and set(from_) == {term.dtype} and (fn in PACKED or fn in ROUNDED)

    def _has_packed(self, term: Term) -> bool:
        return term.number in self.words or self._is_packed(term) or any(map(self._has_packed, term.args))

    # ---- numbers -------------------------------------------------------------------------------
    def numbers(self, term: Term) -> tuple[str, str]:
        """Both numbers, in registers of their own."""
        found = self.known.get(term.number)
        if found is None:
            first, second = self._numbers(term)
            if not (_is_plain(first) and _is_plain(second)):
                kind = register_type(term.dtype)
                first, second = self.block.let(kind, first), self.block.let(kind, second)
            found = self.known[term.number] = first, second
        return found

    def _numbers(self, term: Term) -> tuple[str, str]:
        if term.number in self.words or self._is_packed(term):
            return self._unpacked(term)
        if isinstance(term.expr, Local) and term.expr.name in self.own:
            return self.local(term.expr.name, "0"), self.local(term.expr.name, "1")
        if isinstance(term.expr, Literal):
            return (literal(term.expr.value, term.dtype),) * 2
        if self._is_of_row(term):
            return (evaluate(self.context, term),) * 2
        if self._has_packed(term) and not term.effects and isinstance(term.expr, Apply | When):
            args = [self.numbers(a) for a in term.args]
            first, second = (self._applied(term, [a[k] for a in args]) for k in range(2))
            return first, second
        return self._apart(term)

    def _unpacked(self, term: Term) -> tuple[str, str]:
        word = self.word(term)
        if term.dtype == F16:
            halves(self.library)
            return f"lw_first({word})", f"lw_second({word})"
        first, second = (arithmetic.from_memory(self.library, f"(unsigned short)({word}{shift})", term.dtype)
                         for shift in ("", " >> 16"))
        return first, second

    def _applied(self, term: Term, args: Sequence[str]) -> str:
        """An operation of one column."""
        if isinstance(term.expr, When):
            return "{} ? {} : {}".format(*args)
        assert isinstance(term.expr, Apply)
        source = term.args[0].dtype
        match term.expr.fn:
            case "convert":
                return arithmetic.convert(self.library, args[0], source, term.dtype)
            case "bitcast":
                return arithmetic.bitcast(self.library, args[0], source, term.dtype)
            case "select":
                return "{} ? {} : {}".format(*args)
        return self._operation(term.expr.fn, source, source, args)

    def _apart(self, term: Term) -> tuple[str, str]:
        """Of each column by itself."""
        block, x, e = self.block, self.block.fresh("x"), self.block.fresh("e")
        kind, some = register_type(term.dtype), self.there("0") != ""
        block.line(f"{kind} {x}[2]{' = {0, 0}' if some else ''};")
        block.line("#pragma unroll")
        with block.inner(f"for (int {e} = 0; {e} < 2; ++{e})") as lane, \
                (lane.inner(f"if ({self.there(e)})") if some else nullcontext(lane)) as one:
            one.line(f"{x}[{e}] = {evaluate(self.at_lane(self.context.at(one), e), term)};")
        return f"{x}[0]", f"{x}[1]"

    def _is_of_row(self, term: Term) -> bool:
        return is_of_row(term, self.own)


def is_of_row(term: Term, own: Set[str]) -> bool:
    """Whether a term is the same in all columns, and needs no load."""
    return own.isdisjoint(term.free) and not term.buffers and not term.effects


def divisors(term: Term, own: Set[str]) -> dict[int, Term]:
    """The numbers of a row by which floats of its columns, none of 64 bits, are divided in a term."""
    if is_of_row(term, own):
        return {}
    found = {k: y for a in term.args for k, y in divisors(a, own).items()}
    is_quotient = isinstance(term.expr, Apply) and term.expr.fn == "div" and term.dtype in (F16, BF16, F32)
    if is_quotient and is_of_row(term.args[1], own):
        found[term.args[1].number] = term.args[1]
    return found


def parts_of(context: Context, y: Term, high: str, low: str) -> None:
    """The parts of a divisor's reciprocal, to variables."""
    context.launch.library.add("lw_parts", OVER)
    context.block.line(f"lw_parts({evaluate(context, y)}, {high}, {low});")


def exponential(library: Library, x: str, reference: str) -> str:
    """exp(x - reference) of f32, for sums in one pass: the exponent is rounded once."""
    return f"{library.add('lw_exp_from', EXP_FROM)}({x}, {reference})"


def paired(library: Library, dtype: np.dtype) -> str:
    """A function that makes a word of two numbers."""
    kind = arithmetic.NAMES[dtype]
    arithmetic.from_memory(library, "", dtype)
    return library.add(f"lw_pair_{kind}", PAIR.replace("KIND", kind))


def halves(library: Library) -> None:
    """Functions for the f16 of a word: lw_first and lw_second."""
    arithmetic.from_memory(library, "", F16)
    library.add("lw_halves", HALVES)


def packed(library: Library, fn: str) -> str:
    """A function of pairs of f16."""
    paired(library, F16)
    halves(library)
    text = OF_PAIRS.replace("NAME", fn).replace("INSTRUCTION", PACKED[fn])
    if fn in SIGNS:
        text = text.replace("SCALAR(lw_first(x), lw_first(y))", f"lw_first(x) {SIGNS[fn]} lw_first(y)")
        text = text.replace("SCALAR(lw_second(x), lw_second(y))", f"lw_second(x) {SIGNS[fn]} lw_second(y)")
    else:
        arithmetic.applied(library, fn, F32, ["", ""])
    return library.add(f"lw_{fn}_pairs", text.replace("SCALAR", f"lw_{fn}"))


def _is_plain(text: str) -> bool:
    """Whether a text may stand anywhere, at no cost: a name, an element, a number."""
    return text.replace("_", "").replace(".", "").replace("[", "").replace("]", "").isalnum() or text.endswith("]")
