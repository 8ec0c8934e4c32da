"""Complex numbers as pairs of real ones: after this pass no node computes at a complex dtype.

Guarantees: the same numbers as NumPy's loops over the same bytes: a parameter c128[n, m] becomes f64[n, m, 2], its very
memory, and so does a result; other parameters, symbols and constraints stay. What goes into a region or comes out of one (a
carry, rows, an operand or result of a branch) is two arrays, real parts and imaginary parts. An op without a rule here is a
DTypeError that names it: `sort`, `argsort` and `ranked`.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from loopwright.ir.builder import Builder, Ref, attributed
from loopwright.ir.dims import Extent, Shape
from loopwright.ir.errors import DTypeError
from loopwright.ir.facts import Facts
from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.guards import Scope
from loopwright.ir.op import Op
from loopwright.ir.ops import (
    arithmetic,
    comparison,
    construct,
    contraction,
    convolution,
    indexing,
    reductions,
    selection,
    structural,
    windows,
)
from loopwright.ir.ops import transcendental as t
from loopwright.ir.ops.broadcasting import broadcast, reduce_sum
from loopwright.ir.ops.control import scan, switch, while_
from loopwright.ir.ops.elementwise import real_part
from loopwright.ir.ops.structural import move_axis, pad, permute, reshape, section
from loopwright.ir.rewriting import simplify
from loopwright.ir.types import BOOL, COMPLEX, ArrayType
from loopwright.lower import complex_functions as functions
from loopwright.lower import complex_products as products
from loopwright.lower.fourier import RULES as TRANSFORMS
from loopwright.lower.pairs import Pair, Part, Whole, as_pair, call, is_true, joined, pair_where, whole
from loopwright.lower.products import running_product

Known = Part | Pair
Rule = Callable[..., Known]


def without_complex(g: Graph) -> Graph:
    """g on pairs of real numbers; g itself where nothing is complex."""
    return simplify(_in_parts(g, g.facts, _parameter, _stored)) if _holds_complex(g) else g


def _holds_complex(g: Graph) -> bool:
    values = [*g.params, *(v for n in g.nodes for v in n.outputs)]
    return any(v.type.dtype in COMPLEX for v in values) or any(_holds_complex(r) for n in g.nodes for r in n.regions)


def _in_parts(g: Graph, facts: Facts, parameter: Callable[[Builder, ArrayType], Known],
              stored: Callable[[Known], Sequence[Ref]]) -> Graph:
    """g on real numbers; `parameter` and `stored` say how a complex number comes in and goes out."""
    builder = Builder(Scope(facts=facts), "complex arithmetic")
    known: dict[Value, Known] = {v: parameter(builder, v.type) for v in g.params}
    with attributed() as attribute:
        for n in g.nodes:
            attribute(n.source)
            known.update(_rewritten(builder, n, known))
        results = [r for v in g.results for r in stored(known[v])]
    made, _ = builder.finish(results)
    return Graph(made.params, made.nodes, made.results, g.constraints)


def _parameter(builder: Builder, type: ArrayType) -> Known:
    if type.dtype not in COMPLEX:
        return Part(builder.param(type))
    return whole(builder.param(ArrayType((*type.shape, 2), real_part(type.dtype))))


def _stored(x: Known) -> list[Ref]:
    """A result as it lies in memory."""
    return [x.ref if isinstance(x, Part) else joined(x)]


def _rewritten(builder: Builder, n: Node, known: dict[Value, Known]) -> dict[Value, Known]:
    operands = [known[v] for v in n.inputs]
    if n.regions:
        return _with_regions(builder, n, operands)
    if not any(v.type.dtype in COMPLEX for v in (*n.inputs, *n.outputs)):
        refs = [x.ref for x in operands if isinstance(x, Part)]
        made = builder.bind_all(n.op, refs, n.attrs, n.regions)
        return {v: Part(r) for v, r in zip(n.outputs, made, strict=True)}
    if n.op.python is not None or n.op.foreign:
        return _with_pairs(builder, n, operands)
    rule = RULES.get(n.op)
    if rule is None:
        raise DTypeError(f"{n.op.name} on {(*n.inputs, *n.outputs)[0].type}: it has no machine code for complex numbers. "
                         f"Take np.abs, np.real or np.imag of them first, or call the function without jit.")
    into = {} if operands else {"into": builder}
    return {n.outputs[0]: rule(*operands, **into, **n.attrs)}


def _with_pairs(builder: Builder, n: Node, operands: Sequence[Known]) -> dict[Value, Known]:
    """A call of a user's function: complex numbers go and come as they lie in memory, and the node says which they are."""
    pairs = tuple([k for k, v in enumerate((*n.inputs, *n.outputs)) if v.type.dtype in COMPLEX])
    attrs = dict(n.attrs)
    if n.outputs:
        attrs["shapes"] = tuple([(*v.type.shape, 2) if v.type.dtype in COMPLEX else v.type.shape for v in n.outputs])
        attrs["dtypes"] = tuple([real_part(v.type.dtype) for v in n.outputs])
    made = builder.bind_all(n.op, [r for x in operands for r in _stored(x)], {**attrs, "pairs": pairs})
    return {v: whole(x) if v.type.dtype in COMPLEX else Part(x) for v, x in zip(n.outputs, made, strict=True)}


# ---- regions ----------------------------------------------------------------------------------------
_COUNTS: dict[Op, tuple[str, ...]] = {scan: ("constants", "carry"), while_: ("condition_constants", "body_constants"),
                                      switch: ()}  # attributes that say how many operands are of a kind, in their order


def _with_regions(builder: Builder, n: Node, operands: Sequence[Known]) -> dict[Value, Known]:
    """Control flow over real parts and imaginary parts, each beside the other."""
    counts, rest = {}, [len(_separate(x)) for x in operands]
    for name in _COUNTS[n.op]:
        counts[name], rest = sum(rest[:n.attrs[name]]), rest[n.attrs[name]:]
    regions = tuple([_in_parts(r, builder.scope.facts, _parameters, _separate) for r in n.regions])
    refs = [r for x in operands for r in _separate(x)]
    made = iter(builder.bind_all(n.op, refs, {**n.attrs, **counts}, regions))
    return {v: Pair(Part(next(made)), Part(next(made))) if v.type.dtype in COMPLEX else Part(next(made)) for v in n.outputs}


def _parameters(builder: Builder, type: ArrayType) -> Known:
    if type.dtype not in COMPLEX:
        return Part(builder.param(type))
    part = ArrayType(type.shape, real_part(type.dtype))
    return Pair(Part(builder.param(part)), Part(builder.param(part)))


def _separate(x: Known) -> list[Ref]:
    return [x.ref] if isinstance(x, Part) else [x.re.ref, x.im.ref]


# ---- forms of rules ---------------------------------------------------------------------------------
def _each(op: Op) -> Rule:
    """The op on real parts and on imaginary parts; operands that are real are the same for both."""
    def rule(*xs: Known, **attrs: Any) -> Pair:
        re, im = ([x.ref if isinstance(x, Part) else part(x).ref for x in xs] for part in (_re, _im))
        return Pair(Part(op(*re, **attrs)), Part(op(*im, **attrs)))
    return rule


def _re(x: Pair) -> Part:
    return x.re


def _im(x: Pair) -> Part:
    return x.im


def _either(op: Op) -> Rule:
    """Whether the question is answered with yes by one of the parts."""
    return lambda z: call(op, z.re) | call(op, z.im)


# ---- rules of their own -----------------------------------------------------------------------------
def _convert(x: Known, dtype: np.dtype, weak: bool = False) -> Known:
    if dtype in COMPLEX:
        part = real_part(dtype)
        return x.to(part) if isinstance(x, Pair) else as_pair(x.to(part))
    z = as_pair(x)
    return is_true(z) if dtype == BOOL else z.re.to(dtype)


def _full(into: Builder, value: complex, shape: Shape, dtype: np.dtype) -> Pair:
    value, part = complex(value), real_part(dtype)
    return Pair(*[Part(construct.full(into=into, value=construct.scalar(x, part), shape=shape, dtype=part))
                  for x in (value.real, value.imag)])


def _iota(into: Builder, shape: Shape, axis: int, dtype: np.dtype) -> Pair:
    return as_pair(Part(construct.iota(into=into, shape=shape, axis=axis, dtype=real_part(dtype))))


def _filling(op: Op) -> Rule:
    """An op that puts a value where its operand has nothing."""
    def rule(x: Pair, value: complex, **attrs: Any) -> Pair:
        value, part = complex(value), x.re.dtype
        return Pair(Part(op(x.re.ref, value=construct.scalar(value.real, part), **attrs)),
                    Part(op(x.im.ref, value=construct.scalar(value.imag, part), **attrs)))
    return rule


def _gather(x: Pair, *indices: Part, axes: tuple[int, ...], batch: int, mode: str) -> Pair:
    """Outside the array there is NaN + 0i."""
    at = [i.ref for i in indices]
    return Pair(Part(indexing.gather(x.re.ref, *at, axes=axes, batch=batch, mode=mode)),
                Part(indexing.gather(x.im.ref, *at, axes=axes, batch=batch, mode="zero" if mode == "fill" else mode)))


def _cumprod(x: Pair, axis: int) -> Pair:
    """The library's running products run along the last axis of pairs."""
    last = len(x.re.ref.shape) - 1
    moved = Pair(*[Part(move_axis(p.ref, axis, last)) for p in (x.re, x.im)])
    out = whole(running_product(joined(moved)))
    return Pair(*[Part(move_axis(p.ref, last, axis)) for p in (out.re, out.im)])


def _reduce_sum(x: Pair, axes: tuple[int, ...]) -> Known:
    """Of an array, across what lies along memory: both parts at once, as they lie."""
    if isinstance(x, Whole) and axes and len(x.re.ref.shape) - 1 not in axes:
        return whole(reduce_sum(x.pairs, axes=axes))
    return _SUM_OF_EACH(x, axes=axes)


def _reduce_prod(x: Pair, axes: tuple[int, ...]) -> Pair:
    """The last of the running products that begin with 1."""
    if not axes:
        return x
    shape = x.re.ref.shape
    rest = tuple(a for a in range(len(shape)) if a not in axes)
    kept = tuple(shape[a] for a in rest)
    count: Extent = math.prod((shape[a] for a in axes), start=1)

    def longer(part: Part, first: float) -> Part:
        merged = reshape(permute(part.ref, (*rest, *sorted(axes))), shape=(*kept, count))
        start, step = (*(0 for _ in kept), 1), (1,) * (len(kept) + 1)
        return Part(pad(merged, shape=(*kept, count + 1), start=start, step=step, value=first))
    products = _cumprod(Pair(longer(x.re, 1.0), longer(x.im, 0.0)), len(kept))
    re, im = (reshape(section(p.ref, len(kept), count, 1), shape=kept) for p in (products.re, products.im))
    return Pair(Part(re), Part(im))


def _as_they_lie(op: Op, move: Callable[..., Ref]) -> Rule:
    """An op that moves numbers: `move` moves arrays of pairs that are there; parts of others move each for itself."""
    of_each = _each(op)

    def rule(*xs: Known, **attrs: Any) -> Known:
        there = [x.pairs for x in xs if isinstance(x, Whole)]
        return whole(move(*there, **attrs)) if len(there) == len(xs) else of_each(*xs, **attrs)
    return rule


def _reshaped(x: Ref, shape: Shape) -> Ref:
    return reshape(x, shape=(*shape, 2))


def _cut(x: Ref, start: Shape, step: Shape, shape: Shape) -> Ref:
    return structural.slice_(x, start=(*start, 0), step=(*step, 1), shape=(*shape, 2))


def _side_by_side(*xs: Ref, axis: int) -> Ref:
    """Single numbers as columns, two for each."""
    if axis < len(xs[0].shape) - 2 or any(x.shape[-2] != 1 for x in xs):
        return structural.concatenate(*xs, axis=axis)
    found = structural.concatenate(*[reshape(x, shape=(*x.shape[:-2], 2)) for x in xs], axis=axis)
    return reshape(found, shape=(*found.shape[:-1], len(xs), 2))


def _broadcast(x: Known, shape: Shape, axes: tuple[int, ...]) -> Known:
    """Rows that lie in an array are there again as they lie; single numbers, side by side, by their parts."""
    if isinstance(x, Whole) and len(shape) - 1 in axes:
        return whole(broadcast(x.pairs, shape=(*shape, 2), axes=(*axes, len(shape))))
    return _BROADCAST_OF_EACH(x, shape=shape, axes=axes)


_MOVES: dict[Op, Callable[..., Ref]] = {
    structural.reshape: _reshaped, structural.slice_: _cut, structural.concatenate: _side_by_side}
_SUM_OF_EACH, _BROADCAST_OF_EACH = _each(reduce_sum), _each(broadcast)
RULES: dict[Op, Rule] = {
    arithmetic.add: lambda x, y: x + y,
    arithmetic.sub: lambda x, y: x - y,
    arithmetic.neg: lambda x: -x,
    arithmetic.mul: lambda x, y: x * y,
    arithmetic.div: lambda x, y: x / y,
    arithmetic.real: lambda z: z.re,
    arithmetic.imag: lambda z: z.im,
    arithmetic.complex: lambda x, y: Pair(x, y),
    arithmetic.conj: products.conj,
    arithmetic.abs: lambda z: call(t.hypot, z.re, z.im),
    comparison.eq: lambda x, y: x.re.equals(y.re) & x.im.equals(y.im),
    comparison.ne: lambda x, y: x.re.differs(y.re) | x.im.differs(y.im),
    comparison.isnan: _either(comparison.isnan),
    comparison.isinf: _either(comparison.isinf),
    comparison.isfinite: lambda z: call(comparison.isfinite, z.re) & call(comparison.isfinite, z.im),
    selection.select: pair_where,
    selection.convert: _convert,
    construct.full: _full,
    construct.iota: _iota,
    reduce_sum: _reduce_sum, broadcast: _broadcast,
    **{op: _as_they_lie(op, move) for op, move in _MOVES.items()},
    **{op: _each(op) for op in (reductions.cumsum, windows.overlap_add, indexing.scatter, indexing.scatter_add)},
    structural.transpose: products.transpose, structural.pad: _filling(pad), windows.windows: _filling(windows.windows),
    indexing.gather: _gather,
    contraction.dot_general: products.dot_general, convolution.conv: products.bilinear(convolution.conv),
    **TRANSFORMS,
    reductions.cumprod: _cumprod,
    reductions.reduce_prod: _reduce_prod,
    t.exp: functions.exp, t.exp2: functions.exp2, t.expm1: functions.expm1,
    t.log: functions.log, t.log1p: functions.log1p,
    t.log2: functions.times(functions.log, 1 / math.log(2)), t.log10: functions.times(functions.log, 1 / math.log(10)),
    t.sqrt: functions.sqrt, t.power: functions.power,
    t.sinh: functions.sinh, t.cosh: functions.cosh, t.tanh: functions.tanh,
    t.sin: functions.turned(functions.sinh), t.cos: functions.at_turned(functions.cosh),
    t.tan: functions.turned(functions.tanh),
    t.arcsin: functions.arcsin, t.arccos: functions.arccos, t.arctan: functions.mirrored(functions.arctanh),
    t.arcsinh: functions.mirrored(functions.arcsin), t.arccosh: functions.arccosh, t.arctanh: functions.arctanh,
}
