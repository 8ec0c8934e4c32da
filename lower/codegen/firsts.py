"""Where the first truth is, along the lanes, or for an argmin what is not true: the loop ends where it is found.

Guarantees: where there is none, the first position; what may raise is not sought so, since it is computed for all points.
"""
from __future__ import annotations

from functools import partial

from loopwright.ir.loops import Index, walk
from loopwright.ir.nest import Store, altered
from loopwright.ir.types import BOOL
from loopwright.lower.codegen.context import Context
from loopwright.lower.codegen.fold_states import Fold, Joint, State
from loopwright.lower.codegen.spans import Span
from loopwright.lower.codegen.text import Carried, Scope, branch, repeat
from loopwright.lower.lanes import may_raise

FEWER = 8  # lanes, for what fills no vector


def sought(folding: Fold | Joint) -> Fold | None:
    """The fold, if it is one that finds positions of booleans, and nothing else is done on the way."""
    fold, *others = folding.folds if isinstance(folding, Joint) else [folding]
    stores = any(isinstance(s, Store) for s in fold.also)
    found = fold.positions and fold.body.dtype == BOOL and not others and not stores
    return fold if found and not any(map(may_raise, walk(fold.body.expr))) else None


def first(context: Context, fold: Fold, index: Index, span: Span, lanes: int) -> State:
    """The fold of a span of points: vectors, then narrow ones, then one by one, until it is found."""
    scope, (low, high) = context.scope, span
    at, position = low, "-1"
    for width in sorted({lanes, min(lanes, FEWER), 1}, reverse=True):
        goes_on = scope.emit(f"icmp sle i64 {scope.emit(f'add i64 {at}, {width}')}, {high}")
        goes_on = scope.emit(f"and i1 {goes_on}, {scope.emit(f'icmp slt i64 {position}, 0')}")
        at, position = branch(scope, goes_on, partial(_search, context, fold, index, at, high, width),
                              otherwise=[("i64", at), ("i64", position)])
    found = scope.emit(f"icmp sge i64 {position}, 0")
    value = scope.emit(f"zext i1 {found if fold.monoid == 'argmax' else scope.emit(f'xor i1 {found}, true')} to i8")
    return [value, scope.emit(f"select i1 {found}, i64 {position}, i64 {low}")]


def _search(context: Context, fold: Fold, index: Index, low: str, high: str, width: int, scope: Scope) -> Carried:
    """Vectors of so many lanes from `low` on, of which there is one: where they end, and the position, or -1."""
    def turn(inner: Scope, state: list[str]) -> tuple[str, list[str]]:
        at, _ = state
        here = context.at(inner) if width == 1 else altered(context, scope=inner, lanes=width, parts=1, vector=index.name)
        here = here.bind_index(index.name, at, inner)
        fold.before(here)
        mask, = here.spread(here.evaluate(fold.body))
        bits = mask if width == 1 else inner.emit(f"bitcast <{width} x i1> {mask} to i{width}")
        if fold.monoid == "argmin":
            bits = inner.emit(f"xor i{width} {bits}, -1")
        following = inner.emit(f"add i64 {at}, {width}")
        more = inner.emit(f"icmp sle i64 {inner.emit(f'add i64 {following}, {width}')}, {high}")
        return inner.emit(f"and i1 {more}, {inner.emit(f'icmp eq i{width} {bits}, 0')}"), [following, bits]
    end, bits = repeat(scope, [("i64", low), (f"i{width}", "0")], turn)
    lane = scope.call(f"i{width}", f"llvm.cttz.i{width}", [(f"i{width}", bits), ("i1", "false")])
    lane = lane if width == 64 else scope.emit(f"zext i{width} {lane} to i64")
    place = scope.emit(f"add i64 {scope.emit(f'sub i64 {end}, {width}')}, {lane}")
    none = scope.emit(f"icmp eq i{width} {bits}, 0")
    return [("i64", end), ("i64", scope.emit(f"select i1 {none}, i64 -1, i64 {place}"))]
