"""Expressions to registers: each distinct term once, in the outermost scope where it may stand.

Pure arithmetic stands where the innermost of its operands is defined, so what does not depend on a loop leaves it.
What loads, loops or can raise leaves a loop only as far as a scope that runs exactly when the loop runs at all.
"""
from __future__ import annotations

from dataclasses import replace

import numpy as np

from loopwright.ir.loops import (
    Apply,
    Bounded,
    Index,
    Literal,
    Load,
    Local,
    PartitionPoint,
    Prefix,
    Reduce,
    Size,
    When,
    walk,
    whole_number,
)
from loopwright.ir.types import BOOL, FLOATS, I64
from loopwright.lower.codegen.arithmetic import FORMULAS, Emit, Lanes, emitter, whole_power
from loopwright.lower.codegen.constants import constant_text
from loopwright.lower.codegen.context import (
    Context,
    Mask,
    Value,
    active_only,
    any_part,
    literal,
    place_of,
    raise_where,
    splat_register,
)
from loopwright.lower.codegen.conversions import bitcast, convert
from loopwright.lower.codegen.folds import fold, prefix
from loopwright.lower.codegen.machine import register_type, vector_type
from loopwright.lower.codegen.memory import load
from loopwright.lower.codegen.narrowing import bound_of
from loopwright.lower.codegen.quotients import BY_ONE
from loopwright.lower.codegen.searching import partition_point
from loopwright.lower.codegen.spans import first_lanes
from loopwright.lower.codegen.terms import Term
from loopwright.lower.codegen.text import Arm, Carried, Scope, branch, deepest
from loopwright.lower.codegen.two_vectors import fill_two, halves, joined


def evaluate(context: Context, term: Term) -> Value:
    """The value of a term in a context."""
    match term.expr:
        case Literal(value=value, dtype=dtype):
            root = context.kernel.root
            known: Value | None = root.values.get(term)
            if known is None:
                known = root.values[term] = literal(context.kernel, value, dtype)
            return known
        case Size(extent=extent):
            return Value((context.kernel.extent(extent),), I64, 1, context.kernel.root)
        case Index(name=name):
            return context.index_vector(name) if name == context.vector else context.bindings[name]
        case Local(name=name):
            return context.bindings[name]
    key = _key(context, term)
    found = _find(context, term, key)
    if found is None:
        found = _compute(context, term)
        mask = context.mask if _needs_mask(context, term) else None
        found.scope.values[(*key, mask)] = found
    return found


def remember(context: Context, term: Term, value: Value) -> None:
    """The value of a term in this context, made otherwise."""
    mask = context.mask if _needs_mask(context, term) else None
    context.scope.values[(*_key(context, term), mask)] = value


def _key(context: Context, term: Term) -> tuple[object, ...]:
    state = context.kernel.state(term.reads)
    return (term.number, state, context.lanes, context.parts) if context.varies(term) else (term.number, state, 1, 1)


def _needs_mask(context: Context, term: Term) -> bool:
    return term.effects and context.mask is not None and context.varies(term)


def _find(context: Context, term: Term, key: tuple[object, ...]) -> Value | None:
    """What was computed for at least the lanes that are active here."""
    mask = context.mask if _needs_mask(context, term) else None
    while True:
        found = context.scope.find((*key, mask))
        if found is not None or mask is None:
            assert found is None or isinstance(found, Value)
            return found
        mask = mask.outer


def _compute(context: Context, term: Term) -> Value:
    match term.expr:
        case Load():
            return load(context, term)
        case Bounded():
            return _bounded(context, term)
        case When():
            return _when(context, term)
        case Apply(fn="convert", dtype=dtype):
            return _convert(context, context.evaluate(term.args[0]), dtype)
        case Apply(fn="bitcast", dtype=dtype):
            return _bitcast(context, context.evaluate(term.args[0]), dtype)
        case Apply(fn="select"):
            return _select(context, *(context.evaluate(a) for a in term.args))
        case Apply(fn=fn, dtype=dtype):
            return _apply(context, term, fn, dtype)
        case Reduce(monoid=monoid, over=over, dtype=dtype, fused=fused):
            return fold(_placed(context, term), monoid, over, term.args[0], dtype, fused=fused)
        case Prefix(monoid=monoid, index=index, dtype=dtype):
            return prefix(_placed(context, term), monoid, index, term.args[0], term.args[1], dtype)
        case PartitionPoint(index=index, extent=extent):
            return partition_point(_placed(context, term), index, extent, term.args[0])
    raise AssertionError(f"not an expression of a nest: {term.expr}")


def _placed(context: Context, term: Term) -> Context:
    """The context for code with branches: as far out as the term's names and effects allow; scalar if it can be."""
    place = context.scope
    if all(context.kernel.buffers[name].role == "input" for name in term.buffers):
        place = context.scope.climb(context.depth(term), walls=term.effects)
    context = context.at(place)
    return context if context.varies(term) else context.scalar()


def _shape(values: tuple[Value, ...]) -> tuple[int, int]:
    """Lanes and parts of a result: those of the operands that vary."""
    return max(v.lanes for v in values), max(len(v.parts) for v in values)


def _register(value: Value, part: int, lanes: int) -> str:
    """One part of an operand, broadcast if it is scalar."""
    if value.lanes == lanes:
        return value.parts[part if len(value.parts) > 1 else 0]
    register = value.parts[0]
    if not register.startswith("%"):
        return f"splat ({value.kind} {register})"
    return splat_register(value.scope, value.kind, register, lanes)


def _apply(context: Context, term: Term, fn: str, dtype: np.dtype) -> Value:
    places = _places(context, term) if fn == "lt" else None
    if places is not None:
        return places
    args = tuple(context.evaluate(a) for a in term.args)
    special = _special_power(context, term, args) if fn == "power" else None
    if special is not None:
        return special
    if (by_one := BY_ONE.get(fn)) is not None and (found := by_one(context, *args)) is not None:
        return found
    lanes, parts = _shape(args)
    scope = place_of(*args)
    if fn == "power" and dtype.kind == "i":
        scope = context.scope.climb(scope.depth)
        _refuse_negative(context, scope, args[1])
    apart = context.kernel.maths_apart
    emit = emitter(fn, args[0].dtype, apart=apart)
    at = context.writer(args[0].dtype, scope, lanes)
    each = [[_register(a, part, lanes) for a in args] for part in range(parts)]
    is_formula = fn in FORMULAS and args[0].dtype in FLOATS and not apart
    if is_formula and parts % 2 == 0 and fill_two(2 * lanes, at.machine.bits, at.target):
        return Value(_two_at_once(at, emit, each), dtype, lanes, scope)
    return Value(tuple([emit(at, *operands) for operands in each]), dtype, lanes, scope)


def _two_at_once(at: Lanes, emit: Emit, each: list[list[str]]) -> tuple[str, ...]:
    """A formula of the operands of each part, two parts at once."""
    wide, found = replace(at, lanes=2 * at.lanes), list[str]()
    for k in range(0, len(each), 2):
        operands = [joined(at.machine, both) for both in zip(each[k], each[k + 1], strict=True)]
        found += halves(at.machine, emit(wide, *operands))
    return tuple(found)


def _places(context: Context, term: Term) -> Value | None:
    """A comparison of the lanes' positions with what is one number for all, as that of bytes; None of others."""
    lane, has_masks = context.vector, context.kernel.target.has_masks
    if lane is None or lane not in term.free or context.lanes <= 8 or not has_masks or term.args[0].dtype != I64 \
            or any(isinstance(x, Local) for x in walk(term.expr)):
        return None
    bound = bound_of(context, term, Index(lane))
    if bound is None:
        return None
    is_least, value, scope = bound
    base = context.bindings[lane]
    scope = deepest(base.scope, scope)
    first = first_lanes(context, base.parts[0], value, scope)
    if not is_least:
        return first
    kind, ones = vector_type("i1", first.lanes), constant_text(True, "i1", first.lanes)
    return Value(tuple([scope.emit(f"xor {kind} {m}, {ones}") for m in first.parts]), BOOL, first.lanes, scope)


def _special_power(context: Context, term: Term, args: tuple[Value, ...]) -> Value | None:
    """A whole power that is known here, by products: x ** 1 is x and x ** 2 is x * x, which is how NumPy rounds them."""
    x, n = args[0], whole_number(term.args[1].expr)
    if n is None:
        return None
    at = context.writer(x.dtype, x.scope, x.lanes)
    found = [whole_power(at, r, n) for r in x.parts]
    registers = tuple([r for r in found if r is not None])
    return Value(registers, x.dtype, x.lanes, x.scope) if registers else None


def _refuse_negative(context: Context, scope: Scope, exponent: Value) -> None:
    """NumPy raises ValueError for an integer to a negative power: axis -1 marks it."""
    at = context.writer(exponent.dtype, scope, exponent.lanes)
    bad = tuple(at.compare("lt", r, 0) for r in exponent.parts)
    if exponent.varies:
        bad = active_only(context, scope, bad)
    raise_where(context, scope, bad, exponent.lanes, None, ("1", "-1", "0"))


def _convert(context: Context, value: Value, dtype: np.dtype) -> Value:
    if value.dtype == dtype:
        return value
    parts = tuple(convert(value.scope, r, value.dtype, dtype, value.lanes, context.kernel.target) for r in value.parts)
    return Value(parts, dtype, value.lanes, value.scope)


def _bitcast(context: Context, value: Value, dtype: np.dtype) -> Value:
    parts = tuple(bitcast(value.scope, r, value.dtype, dtype, value.lanes, context.kernel.target) for r in value.parts)
    return Value(parts, dtype, value.lanes, value.scope)


def _select(context: Context, condition: Value, a: Value, b: Value) -> Value:
    values = (condition, a, b)
    lanes, parts = _shape(values)
    scope = place_of(*values)
    kind, masks = vector_type(register_type(a.dtype), lanes), vector_type("i1", lanes)
    registers = []
    for part in range(parts):
        c, x, y = (_register(v, part, lanes) for v in values)
        registers.append(scope.emit(f"select {masks} {c}, {kind} {x}, {kind} {y}"))
    return Value(tuple(registers), a.dtype, lanes, scope)


def _bounded(context: Context, term: Term) -> Value:
    """An index in range, or 0 and an error."""
    assert isinstance(term.expr, Bounded)
    value = context.evaluate(term.args[0])
    if not value.varies:
        context = context.scalar()
    scope = context.scope.climb(max(value.scope.depth, context.depth(term)))
    extent = context.kernel.extent(term.expr.extent)
    at = context.writer(I64, scope, value.lanes)
    known = not extent.startswith("%")
    size = at.constant(int(extent)) if known else splat_register(context.kernel.root, "i64", extent, value.lanes)
    fits = [at.op("icmp ult", r, size) for r in value.parts]
    bad = tuple(at.mask("xor", ok, constant_text(True, "i1", value.lanes)) for ok in fits)
    if value.varies:
        bad = active_only(context, scope, bad)
    raise_where(context, scope, bad, value.lanes, value.parts, (str(term.expr.site + 1), str(term.expr.axis), extent))
    safe = tuple(at.select(ok, r, 0) for ok, r in zip(fits, value.parts, strict=True))
    return Value(safe, I64, value.lanes, scope)


# ---- lazy branches ------------------------------------------------------------------------------
def _when(context: Context, term: Term) -> Value:
    condition, then, other = term.args
    if not (then.effects or other.effects):
        return _select(context, *(context.evaluate(a) for a in term.args))
    context = _placed(context, term)
    test = context.evaluate(condition)
    if not test.varies:
        return _branched(context, test, term)
    yes = test.parts
    kind = vector_type("i1", test.lanes)
    ones = constant_text(True, "i1", test.lanes)
    no = tuple(test.scope.emit(f"xor {kind} {m}, {ones}") for m in yes)
    first = _arm(context, then, yes)
    second = _arm(context, other, no)
    return _select(context, test, first, second)


def _branched(context: Context, test: Value, term: Term) -> Value:
    """One condition for all lanes: a real branch."""
    kind = vector_type(register_type(term.dtype), context.lanes)

    def arm(which: Term) -> Arm:
        def emit(scope: Scope) -> Carried:
            return [(kind, r) for r in context.spread(context.at(scope).evaluate(which))]
        return emit
    joined = branch(context.scope, test.parts[0], arm(term.args[1]), arm(term.args[2]))
    return Value(tuple(joined), term.dtype, context.lanes, context.scope)


def _arm(context: Context, term: Term, lanes: tuple[str, ...]) -> Value:
    """A term for some lanes; where it may load or raise, only if there are any, and zero elsewhere."""
    if not term.effects:
        return context.evaluate(term)
    scope = context.scope
    masks = active_only(context, scope, lanes)
    kind = vector_type(register_type(term.dtype), context.lanes)

    def emit(inner: Scope) -> Carried:
        mask = Mask(Value(masks, BOOL, context.lanes, scope), context.mask)
        narrowed = Context(context.kernel, inner, context.bindings, context.lanes, context.parts, context.vector, mask)
        return [(kind, r) for r in context.spread(narrowed.evaluate(term))]
    zero = constant_text(0, register_type(term.dtype), context.lanes)
    joined = branch(scope, any_part(scope, masks, context.lanes), emit, None, [(kind, zero)] * context.parts)
    return Value(tuple(joined), term.dtype, context.lanes, scope)
