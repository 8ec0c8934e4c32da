"""Loop expressions as CUDA text: each distinct term once in a block, where it is needed.

Guarantees: what a lazy branch does not take is not loaded; an index out of range is reported, and 0 instead; nothing is
loaded from an array that holds nothing.
"""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from loopwright.ir.dims import Extent
from loopwright.ir.loops import (
    Apply,
    Bounded,
    Expr,
    Index,
    Literal,
    Load,
    Local,
    PartitionPoint,
    Prefix,
    Reduce,
    Size,
    When,
    whole_number,
)
from loopwright.ir.nest import Buffer
from loopwright.ir.types import BOOL, INTEGERS, is_float
from loopwright.lower.codegen.terms import Term
from loopwright.lower.cuda import arithmetic
from loopwright.lower.cuda.context import REPORT, Context, linear_text, offset_form
from loopwright.lower.cuda.maths import Library
from loopwright.lower.cuda.serial import fold, partition_point, prefix
from loopwright.lower.cuda.text import Block, literal, register_type


def value(context: Context, expr: Expr) -> str:
    """The name or literal of an expression's value here."""
    return evaluate(context, context.launch.terms.of(expr))


def evaluate(context: Context, term: Term) -> str:
    """The name or literal of a term's value here."""
    match term.expr:
        case Literal(value=number, dtype=dtype):
            return literal(number, dtype)
        case Size(extent=extent):
            return context.launch.number(extent)
        case Index(name=name):
            return context.names[name] if context.launch.wide else f"(long long){context.names[name]}"
        case Local(name=name):
            return context.names[name]
    key = context.key(term)
    known = context.block.find(key)
    if known is None:
        text = _compute(context, term)
        known = text if text.isidentifier() and text not in ("true", "false") else \
            context.block.let(register_type(term.dtype), text)
        context.block.values[context.key(term)] = known
    return known


def _compute(context: Context, term: Term) -> str:
    library = context.launch.library
    match term.expr:
        case Load(array=array):
            return _load(context, context.launch.buffers[str(array)], term)
        case Bounded():
            return _bounded(context, term, term.expr)
        case When():
            return _when(context, term)
        case Reduce() as e:
            return fold(context, e, evaluate)
        case Prefix() as e:
            return prefix(context, e, evaluate)
        case PartitionPoint() as e:
            return partition_point(context, e, evaluate)
        case Apply(fn=fn, dtype=dtype):
            return _apply(context, library, term, fn, dtype)
    raise AssertionError(f"not an expression of a nest: {term.expr}")


def before_a_loop(context: Context, over: Sequence[tuple[Index, Extent]], exprs: Sequence[Expr]) -> list[Term]:
    """Compute what a loop's expressions have that is the same in all its iterations. The divisors among that."""
    inside, todo, seen = {index.name for index, _ in over}, [context.launch.terms.of(e) for e in exprs], set[int]()
    divisors: list[Term] = []

    def is_same(t: Term) -> bool:
        known = t.free.isdisjoint(inside) and t.free | t.locals <= context.names.keys()
        return known and not t.effects and not t.buffers and isinstance(t.expr, Apply | Local)
    while todo:
        term = todo.pop()
        if term.number in seen or not isinstance(term.expr, Apply):
            continue
        seen.add(term.number)
        if is_same(term):
            evaluate(context, term)
            continue
        todo += term.args
        if term.expr.fn == "div" and is_float(term.dtype) and is_same(term.args[1]):
            evaluate(context, term.args[1])
            divisors.append(term.args[1])
    return divisors


def reciprocals(context: Context, divisors: Sequence[Term]) -> str:
    """Compute reciprocals, for quotients here. Whether they serve, as text."""
    nears = dict[str, None]()
    for term in divisors:
        divisor = evaluate(context, term)
        found, near = arithmetic.reciprocal(context.block, context.launch.library, term.dtype, divisor)
        context.block.values["reciprocal", term.dtype, divisor] = found
        nears[near] = None
    return " && ".join(nears)


def _apply(context: Context, library: Library, term: Term, fn: str, dtype: np.dtype) -> str:
    args = [evaluate(context, a) for a in term.args]
    source = term.args[0].dtype
    match fn:
        case "convert":
            return arithmetic.convert(library, args[0], source, dtype)
        case "bitcast":
            return arithmetic.bitcast(library, args[0], source, dtype)
        case "select":
            return f"{args[0]} ? {args[1]} : {args[2]}"
        case "div" if context.rare and (found := context.block.find(("reciprocal", dtype, args[1]))) is not None:
            return arithmetic.divided(library, dtype, args[0], args[1], found, context.there or "true", context.rare)
        case "power":
            n = whole_number(term.args[1].expr)
            product = None if n is None else arithmetic.whole_power(context.block, library, source, args[0], n)
            if product is not None:
                return product
            if dtype in INTEGERS and dtype.kind == "i":  # NumPy raises ValueError: axis -1 marks it
                report(context, f"{args[1]} < 0", "1", "0", "-1", "0")
    return arithmetic.applied(library, fn, source, args)


def report(context: Context, condition: str, site: str, index: str, axis: str, size: str) -> None:
    """Store an offence where the condition holds."""
    context.launch.library.add("lw_report", REPORT)
    context.block.line(f"if ({condition}) lw_report(error, {site}, {index}, {axis}, {size});")


def _bounded(context: Context, term: Term, e: Bounded) -> str:
    index, extent = evaluate(context, term.args[0]), context.launch.number(e.extent)
    inside = context.block.let("bool", f"(unsigned long long){index} < (unsigned long long){extent}")
    report(context, f"!{inside}", str(e.site + 1), index, str(e.axis), extent)
    return f"{inside} ? {index} : 0ll"


# ---- loads --------------------------------------------------------------------------------------
def place(context: Context, buffer: Buffer, index: tuple[Term, ...]) -> str:
    """The text of an element's position in its buffer."""
    form = offset_form(context.launch, buffer, index)
    known = {t.number: evaluate(context, t) for t in form[0] if not isinstance(t.expr, Index)}
    return linear_text(context, form, known)


def _load(context: Context, buffer: Buffer, term: Term) -> str:
    if buffer.place == "registers":
        return f"{buffer.name}{context.slot}"
    text = f"{buffer.name}[{place(context, buffer, term.args)}]"
    found = arithmetic.from_memory(context.launch.library, text, buffer.dtype)
    some = holds_something(context, term)
    if not some:
        return found
    return f"{some} ? {found} : {literal(0, buffer.dtype)}" if buffer.dtype != BOOL else f"{some} && {found}"


def holds_something(context: Context, term: Term) -> str:
    """Of a load at places that data say: whether there are any; "" where that is known."""
    extents = sorted({e for t in term.args for e in t.extents if not isinstance(e, int) or e <= 0}, key=str)
    return " && ".join(f"{context.launch.number(e)} > 0" for e in extents)


# ---- lazy branches ------------------------------------------------------------------------------
def _when(context: Context, term: Term) -> str:
    condition, then, other = term.args
    if not (then.effects or other.effects):
        return " ? ".join([evaluate(context, condition), f"{evaluate(context, then)} : {evaluate(context, other)}"])
    test = evaluate(context, condition)
    result = context.block.fresh()
    context.block.line(f"{register_type(term.dtype)} {result};")
    with context.block.inner(f"if ({test})") as inside:
        inside.line(f"{result} = {evaluate(context.at(inside), then)};")
    inside = Block(context.block)
    inside.line(f"{result} = {evaluate(context.at(inside), other)};")
    context.block.otherwise(inside)
    return result

