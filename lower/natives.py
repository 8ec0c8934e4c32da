"""Kernels that users bring: functions of libraries, LLVM text, bare pointers, and loops written by hand, as nodes of a graph.

All are destination-passing: `void f(inputs..., outputs..., i64 sizes...)` gets the addresses of C-contiguous arrays and the
sizes that its signature names, in their order, and writes its outputs.

Guarantees: a node says in plain data what it calls, so that equal data is the same code in every process; a bare pointer is
there by a name alone, as Python functions are; outputs never overlap inputs; `user_kernel` has the user's rules for
derivatives and batches, and `native`, which it becomes where no derivative is taken any more, has none.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol, cast

import numpy as np

from loopwright.ir.attributes import Callback
from loopwright.ir.builder import Builder, Ref
from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent, Shape
from loopwright.ir.errors import GradientError
from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.loops import Expr, Index, Load, transform
from loopwright.ir.nest import Buffer, For, Let, Nest, Reduction, Statement, Store
from loopwright.ir.op import Engine, Flags, NodeRules, Op
from loopwright.ir.ops.arithmetic import add
from loopwright.ir.ops.callbacks import function_of, one_by_one
from loopwright.ir.ops.regions import filled, newest, types_of
from loopwright.ir.types import ArrayType
from loopwright.lower.codegen import emit_nest
from loopwright.lower.runtime import natives
from loopwright.lower.runtime.natives import LibraryFunction, LlvmFunction, symbol_of
from loopwright.lower.runtime.sizes import Sizes
from loopwright.lower.runtime.writer import Writer
from loopwright.lower.target import Target, host_target

_ELEMENT = "element"  # how the loops of batches are called
Tangents = list[Ref | None]
Group = tuple[int, ...]


@dataclass(frozen=True)
class LoopFunction:
    """Loops written by hand, over buffers x0, x1, ... (the operands) and y0, y1, ... (the results)."""

    body: tuple[Statement, ...]


Code = LibraryFunction | LlvmFunction | LoopFunction | Callback


# ---- as text --------------------------------------------------------------------------------------
def native_text(target: Target, w: Writer, sizes: Sizes, node: Node, inputs: list[str]) -> tuple[str, ...]:
    """The call of a `native` node's code, in a kernel whose outputs are %out, %out1, ...; and the text that it needs."""
    code: Code = node.attrs["code"]
    outputs = [f"%out{k or ''}" for k in range(len(node.outputs))]
    pointers = [f"ptr {p}" for p in (*inputs, *outputs)]
    if not isinstance(code, LoopFunction):
        w.call("void", symbol_of(code), *pointers, *(f"i64 {sizes.extent(x)}" for x in node.attrs["extents"]))
        return ()
    nest = nest_of(node, f"{w.fresh('loops')}.{symbol_of(code)}")
    made = emit_nest(nest, target)
    w.do(f"call void @{nest.name}({', '.join([*pointers, *(f'i64 {sizes.symbols[s]}' for s in nest.symbols), 'ptr %error'])})")
    return (*sorted(made.declarations), *sorted(made.globals), made.text)


def nest_of(n: Node, name: str) -> Nest:
    """The loops of a node with a LoopFunction."""
    inputs = [Buffer(f"x{k}", v.type.shape, v.type.dtype, "input") for k, v in enumerate(n.inputs)]
    outputs = [Buffer(f"y{k}", v.type.shape, v.type.dtype, "output") for k, v in enumerate(n.outputs)]
    symbols = Graph(tuple(dict.fromkeys(n.inputs)), (n,), n.outputs).symbols
    return Nest(name, (*inputs, *outputs), symbols, n.attrs["code"].body)


# ---- as NumPy sees them ---------------------------------------------------------------------------
def _run(*arrays: np.ndarray, name: str, code: Code, extents: Sequence[int], shapes: Sequence[tuple[int, ...]],
         dtypes: Sequence[np.dtype], **attrs: Any) -> tuple[np.ndarray, ...]:
    given = [np.ascontiguousarray(x).reshape(x.shape) for x in arrays]
    outs = [np.zeros(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
    if isinstance(code, LoopFunction):
        types = [tuple([ArrayType(x.shape, x.dtype) for x in xs]) for xs in (given, outs)]
        natives.run_entry(_alone(code, *types), [*given, *outs])
    else:
        natives.run(natives.address(code), [*given, *outs], extents)
    return tuple(outs)


def _alone(code: LoopFunction, inputs: tuple[ArrayType, ...], outputs: tuple[ArrayType, ...]) -> str:
    """The text of `void @run(ptr arrays, ptr error)` for arrays of these types."""
    params, results = tuple(map(Value, inputs)), tuple(map(Value, outputs))
    node = Node(native, params, {"code": code}, results)
    made = emit_nest(nest_of(node, "loops"), host_target())
    w = Writer()
    pointers = [f"ptr {w.load('ptr', '%arrays', 8 * k)}" for k in range(len(params) + len(results))]
    w.do(f"call void @loops({', '.join([*pointers, 'ptr %error'])})")
    w.do("ret void")
    whole = w.body("void @run(ptr %arrays, ptr %error)")
    return "\n".join([*sorted(made.declarations), *sorted(made.globals), made.text, whole])


# ---- rules ----------------------------------------------------------------------------------------
class Rules(Protocol):
    """What a user says about a kernel. `linear`: groups of operands, in each of which the kernel is linear while the other
    operands are held."""

    linear: tuple[Group, ...]

    def transpose(self, group: Group, args: Sequence[Ref | ArrayType], cotangents: Sequence[Ref]) -> list[Ref]:
        """The cotangents of a group's operands, which are given as types."""

    def batch(self, size: Extent, args: Sequence[Ref], mapped: Flags, results: Sequence[ArrayType]) -> list[Ref] | None:
        """Results of these types, with one more axis in front; None: nothing is said, and elements run one after the other."""


def _rules(n: Node) -> Rules:
    return cast(Rules, function_of(n.attrs["rules"]))


def _no_derivative(n: Node, k: int) -> GradientError:
    name = n.attrs["name"]
    return GradientError(
        f"{n.source}: the kernel {name} has no derivative with respect to operand {k}: nothing is known of what it computes. "
        f"Give it one with {name}.defjvp(rule) (or {name}.deftranspose({k}) where it is linear in that operand), or hold the "
        f"operand constant with lax.stop_gradient.")


def _groups(n: Node, tangents: Sequence[Ref | ArrayType | None]) -> list[Group]:
    """The groups in which something moves."""
    linear = _rules(n).linear
    moving = [k for k, t in enumerate(tangents) if t is not None]
    for k in moving:
        if not any(k in group for group in linear):
            raise _no_derivative(n, k)
    return [group for group in linear if not set(group).isdisjoint(moving)]


def _along(n: Node, primals: list[Ref], tangents: Tangents, into: Builder) -> Tangents:
    """The tangents of the results: those of a group in its place, summed over groups."""
    total: list[Ref] = []
    for group in _groups(n, tangents):
        operands = list(primals)
        at = [tangents[k] for k in group]
        for k, t in zip(group, filled(at, [n.inputs[k] for k in group], into), strict=True):
            operands[k] = t
        part = into.bind_all(n.op, operands, n.attrs)
        total = [add(a, b) for a, b in zip(total, part, strict=True)] if total else part
    return [t if v.type.is_inexact else None for t, v in zip(total, n.outputs, strict=True)]


def _jvp(engine: Engine, n: Node, primals: list[Ref], tangents: Tangents) -> tuple[list[Ref], Tangents]:
    return _linearize(engine, n, primals, tangents, newest([*primals, *tangents]))


def _linearize(engine: Engine, n: Node, primals: list[Ref], tangents: Tangents,
               behind: Builder) -> tuple[list[Ref], Tangents]:
    return newest(primals).bind_all(n.op, primals, n.attrs), _along(n, primals, tangents, behind)


def _transpose(engine: Engine, n: Node, args: list[Ref | ArrayType], cts: Tangents) -> Tangents:
    groups = _groups(n, [a if isinstance(a, ArrayType) else None for a in args])
    if len(groups) != 1:
        raise GradientError(f"{n.source}: the kernel {n.attrs['name']} is not linear in operands of several deftranspose rules "
                            f"together, and what is transposed here is: only linear functions have a transpose.")
    group, = groups
    known = [a for a in args if isinstance(a, Ref)]
    into = newest([*known, *cts])
    arriving = filled(cts, n.outputs, into)
    operands = [args[k] if k not in group else n.inputs[k].type for k in range(len(args))]
    found: Tangents = [None] * len(args)
    for k, ct in zip(group, _rules(n).transpose(group, operands, arriving), strict=True):
        found[k] = ct
    return found


def _batch(engine: Engine, size: Extent, n: Node, args: list[Ref], mapped: Flags) -> tuple[list[Ref], list[bool]]:
    rules, every = _rules(n), [True] * len(n.outputs)
    found = rules.batch(size, args, mapped, types_of(n.outputs))
    if found is not None:
        return found, every
    if not isinstance(n.attrs["code"], LoopFunction) or rules.linear:  # a transpose is that of one element
        return one_by_one(size, n, args, mapped)
    with_axis = {*(f"x{k}" for k, m in enumerate(mapped) if m), *(f"y{k}" for k in range(len(n.outputs)))}
    attrs = {**n.attrs, "code": _over_elements(n.attrs["code"], size, with_axis),
             "shapes": tuple([(size, *shape) for shape in n.attrs["shapes"]])}
    return newest(args).bind_all(n.op, args, attrs), every


def _over_elements(code: LoopFunction, size: Extent, with_axis: set[str]) -> LoopFunction:
    """The loops inside one more, over a new first axis of some buffers."""
    first = code.body[0]
    inner = first.index.name if isinstance(first, For) else ""
    index = Index(inner + "'" if inner.startswith(_ELEMENT) else _ELEMENT)

    def moved(e: Expr) -> Expr | None:
        if not isinstance(e, Load) or e.array not in with_axis:
            return None
        return Load(e.array, (index, *[transform(x, moved) for x in e.index]), e.dtype)

    def one(s: Statement) -> Statement:
        match s:
            case For():
                return replace(s, body=tuple(map(one, s.body)), parallel=False)
            case Store(name, at):
                at = tuple([transform(x, moved) for x in at])
                return replace(s, index=(index, *at) if name in with_axis else at, value=transform(s.value, moved))
            case Let():
                return replace(s, value=transform(s.value, moved))
            case Reduction():
                return replace(s, body=transform(s.body, moved))
        return s
    return LoopFunction((For(index, size, tuple(map(one, code.body)), parallel=True),))


def _types(types: Sequence[ArrayType], regions: tuple[Graph, ...], shapes: Sequence[Shape], dtypes: Sequence[np.dtype],
           **attrs: Any) -> tuple[ArrayType, ...]:
    return tuple(map(ArrayType, shapes, dtypes))


def _refuse(engine: Engine, n: Node, *args: Any) -> tuple[Any, Any]:
    raise GradientError(f"{n.source}: the kernel {n.attrs['name']} comes from text of a compiled program, which has no rules: "
                        f"derivatives and batches are taken of the functions that make programs.")


def _refuse_batch(engine: Engine, size: Extent, n: Node, args: list[Ref], mapped: Flags) -> tuple[Any, Any]:
    return _refuse(engine, n)


def _reach(n: Node, flags: Flags, through: Callable[[Graph, Flags], list[bool]]) -> list[bool]:
    return [any(flags)] * len(n.outputs)


native = Op(
    name="native",
    doc="Calls machine code with the addresses of operands, results and then `extents`. `code`: a LibraryFunction, "
        "LlvmFunction, LoopFunction, or the name of a bare pointer. `pairs`: operands, and after them results, that are "
        "complex numbers in pairs.",
    infer=_types,
    numpy=_run,
    foreign=True,
    rules=NodeRules(jvp=_refuse, linearize=_refuse, batch=_refuse_batch, reach=_reach),
)


def _without_rules(n: Node) -> Graph:
    params, results = (tuple(map(Value, types_of(values))) for values in (n.inputs, n.outputs))
    attrs = {k: a for k, a in n.attrs.items() if k != "rules"}
    return Graph(params, (Node(native, params, attrs, results, (), n.source),), results)


user_kernel = Op(
    name="user_kernel",
    doc="What `native` does, with `rules` for derivatives and batches: those of a kernel, by its name.",
    infer=_types,
    numpy=_run,
    foreign=True,
    expand=_without_rules,
    rules=NodeRules(jvp=_jvp, linearize=_linearize, transpose=_transpose, batch=_batch, reach=_reach),
)
