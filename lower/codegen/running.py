"""Running folds, of which every step is stored.

Guarantees: sums and products of floats take element after element, each rounded as its dtype, as NumPy's are. Where the order
makes no difference (extremes, integers that wrap) a vector's lanes are folded in log2 steps, and only its last goes on.
"""
from __future__ import annotations

from functools import partial

from loopwright.ir.loops import Local
from loopwright.ir.nest import Scan, Store, altered
from loopwright.lower.codegen.context import Context, Value, splat_register
from loopwright.lower.codegen.fold_states import Fold, State
from loopwright.lower.codegen.machine import register_type, vector_type
from loopwright.lower.codegen.memory import store
from loopwright.lower.codegen.text import Scope, loop


def running_fold(context: Context, s: Scan) -> None:
    """The fold along its index: whole vectors, if it has lanes, then element after element."""
    kernel = context.kernel
    folding = Fold(context, s.monoid, kernel.terms.of(s.body), s.dtype, ())
    state, begin, end = folding.nothing_yet(context), "0", kernel.extent(s.extent)
    types = folding.types(context)
    kernel.forget()
    if s.lanes > 1:
        wide = altered(context, lanes=s.lanes, parts=1, vector=s.index.name)
        begin = context.scope.emit(f"and i64 {end}, {-s.lanes}")
        state = loop(context.scope, "0", begin, str(s.lanes), list(zip(types, state, strict=True)),
                     partial(_vector, wide, s, folding))
        kernel.forget()
    loop(context.scope, begin, end, "1", list(zip(types, state, strict=True)), partial(_element, context, s, folding))
    kernel.forget()


def _element(context: Context, s: Scan, folding: Fold, scope: Scope, at: str, state: State) -> State:
    here = context.bind_index(s.index.name, at, scope)
    value = folding.result(here, scope, folding.step(here, state, s.index.name))
    _store(here, s, value)
    return list(value.parts)


def _vector(context: Context, s: Scan, folding: Fold, scope: Scope, at: str, state: State) -> State:
    """One vector: lanes take in those 1, 2, 4, ... before them; what came before the vector is taken in last, and goes on by
    itself."""
    here = context.bind_index(s.index.name, at, scope)
    element = register_type(folding.work)
    kind = vector_type(element, s.lanes)
    found, nothing, distance = folding.element(here, s.index.name)[0], folding.zero(here)[0], 1
    while distance < s.lanes:
        order = ", ".join(f"i32 {k - distance if k >= distance else s.lanes + k}" for k in range(s.lanes))
        moved = scope.emit(f"shufflevector {kind} {found}, {kind} {nothing}, <{s.lanes} x i32> <{order}>")
        found, = folding.merge(scope, [moved], [found], s.lanes)
        distance *= 2
    before, = state
    whole = folding.merge(scope, [splat_register(scope, element, before, s.lanes)], [found], s.lanes)
    _store(here, s, folding.result(here, scope, whole))
    last = scope.emit(f"extractelement {kind} {found}, i32 {s.lanes - 1}")
    return folding.merge(scope, [before], [last], 1)


def _store(here: Context, s: Scan, value: Value) -> None:
    running = Local(f"running {s.index.name}", s.dtype)
    here.kernel.wrote(running.name)
    store(here.bind(running.name, value), Store(s.buffer, s.at, running))
