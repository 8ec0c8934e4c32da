"""Where the first extreme is, of a stretch along the lanes: a loop finds the extreme, and in which of its turns each lane met
it first; that turn alone is looked at again.

Guarantees: the first of equal extremes, or the first NaN; the same whatever the number of vectors in a turn is.
"""
from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np

from loopwright.ir.monoids import identity
from loopwright.ir.nest import Store
from loopwright.ir.types import is_float
from loopwright.lower.codegen.arithmetic import Lanes
from loopwright.lower.codegen.constants import constant_text
from loopwright.lower.codegen.context import Context, counting, splat_register
from loopwright.lower.codegen.fold_states import Fold, Joint, State
from loopwright.lower.codegen.machine import any_lane, register_type, vector_type
from loopwright.lower.codegen.text import Carried, Scope, branch, loop

LAST = {"i32": 2**31 - 1, "i64": 2**63 - 1}  # numbers of turns, by their type
Found = Callable[[Lanes, str], str]  # which lanes of a vector are what is looked for


def searched(folding: Fold | Joint) -> Fold | None:
    """The fold, if it is one that finds positions of floats, and stores nothing: NaNs are what takes long to tell apart."""
    fold, *others = folding.folds if isinstance(folding, Joint) else [folding]
    stores = any(isinstance(s, Store) for s in fold.also)
    return fold if fold.positions and is_float(fold.work) and not others and not stores else None


class Search:
    """The fold of a loop over `wide` vectors at once."""

    def __init__(self, fold: Fold, index: str, wide: Context, place: str) -> None:
        self.fold, self.index, self.wide, self.place = fold, index, wide, place
        self.lanes, self.step, self.relation = wide.lanes, wide.lanes * wide.parts, "gt" if fold.monoid == "argmax" else "lt"
        self.element = register_type(fold.work)
        self.kind, self.number, self.mask = (vector_type(x, self.lanes) for x in (self.element, place, "i1"))
        self.past = constant_text(LAST[place], place, self.lanes)

    def state(self, scope: Scope, low: str, high: str) -> State:
        """The extreme of points that there are, and the position of its first, in all lanes."""
        best, turns, plain = self._go_through(scope, low, high)
        top = self.fold.most(scope, best, self.lanes)
        extreme = splat_register(scope, self.element, top, self.lanes)

        def usual(inner: Scope) -> Carried:
            def found(at: Lanes, x: str) -> str:
                return at.machine.compare("eq", x, extreme)
            turn = inner.emit(f"select {self.mask} {found(self.fold.at(inner, self.lanes), best)}, "
                              f"{self.number} {turns}, {self.number} {self.past}")
            return [(self.element, top), ("i64", self._first(inner, low, turn, found))]

        def of_nan(inner: Scope) -> Carried:
            return [(self.element, constant_text(np.nan, self.element, 1)), ("i64", self._first_nan(inner, low, high))]
        some = any_lane(scope, self.fold.at(scope, self.lanes).machine.negate(plain), self.lanes)
        value, position = branch(scope, some, of_nan, usual)
        return [splat_register(scope, self.element, value, self.lanes), splat_register(scope, "i64", position, self.lanes)]

    def _go_through(self, scope: Scope, low: str, high: str) -> tuple[str, str, str]:
        """The extremes of all lanes, the number of the turn in which each was met first, and which lanes met no NaN: what the
        extremes of others are is left open."""
        worst = constant_text(identity(self.fold.monoid, self.fold.work), self.element, self.lanes)
        start = [(self.kind, worst), (self.number, self._turn(0)), (self.number, self._turn(0)),
                 (self.mask, constant_text(True, "i1", self.lanes))]

        def turn(inner: Scope, first: str, now: list[str]) -> list[str]:
            best, turns, count, plain = now
            self.fold.before(self.wide.bind_index(self.index, first, inner))
            at, values = self._values(inner, first)
            most = reduce(lambda a, b: self._better(at, b, a), values)
            more = at.machine.compare(self.relation, most, best)
            turns = inner.emit(f"select {self.mask} {more}, {self.number} {count}, {self.number} {turns}")
            for a, b in zip(values[::2], [*values[1::2], values[-1]], strict=False):
                plain = at.mask("and", plain, inner.emit(f"fcmp ord {self.kind} {a}, {b}"))
            return [self._better(at, most, best), turns, inner.emit(f"add {self.number} {count}, {self._turn(1)}"), plain]
        best, turns, _, plain = loop(scope, low, high, str(self.step), start, turn, runs=True)
        return best, turns, plain

    def _first_nan(self, scope: Scope, low: str, high: str) -> str:
        """The position of the first NaN of points of which some are."""
        def found(at: Lanes, x: str) -> str:
            return at.machine.compare("unordered", x, x)

        def turn(inner: Scope, first: str, now: list[str]) -> list[str]:
            turns, count = now
            at, values = self._values(inner, first)
            here = reduce(lambda a, b: at.mask("or", a, b), [found(at, x) for x in values])
            since = inner.emit(f"select {self.mask} {here}, {self.number} {count}, {self.number} {self.past}")
            return [self._lesser(inner, turns, since), inner.emit(f"add {self.number} {count}, {self._turn(1)}")]
        start = [(self.number, self.past), (self.number, self._turn(0))]
        return self._first(scope, low, loop(scope, low, high, str(self.step), start, turn, runs=True)[0], found)

    def _first(self, scope: Scope, low: str, turns: str, found: Found) -> str:
        """The position of the first point that is what is looked for, in the first of these turns."""
        number = self._extended(scope, self._least(scope, turns))
        first = scope.emit(f"add i64 {low}, {scope.emit(f'mul i64 {number}, {self.step}')}")
        at, values = self._values(scope, first)
        numbers = [counting(k * self.lanes, self.lanes, self.place) for k in range(len(values))]
        places = [scope.emit(f"select {self.mask} {found(at, x)}, {self.number} {k}, {self.number} {self.past}")
                  for k, x in zip(numbers, values, strict=True)]
        place = self._least(scope, reduce(lambda a, b: self._lesser(scope, a, b), places))
        return scope.emit(f"add i64 {first}, {self._extended(scope, place)}")

    # ---- vectors ----------------------------------------------------------------------------------
    def _values(self, scope: Scope, first: str) -> tuple[Lanes, list[str]]:
        """What is folded, in the turn that begins at a position."""
        return self.fold.at(scope, self.lanes), self.fold.registers(self.wide.bind_index(self.index, first, scope))

    def _better(self, at: Lanes, a: str, b: str) -> str:
        return (at.machine.maximum if self.relation == "gt" else at.machine.minimum)(a, b)

    def _lesser(self, scope: Scope, a: str, b: str) -> str:
        return scope.call(self.number, f"llvm.smin.v{self.lanes}{self.place}", [(self.number, a), (self.number, b)])

    def _least(self, scope: Scope, numbers: str) -> str:
        return scope.call(self.place, f"llvm.vector.reduce.smin.v{self.lanes}{self.place}", [(self.number, numbers)])

    def _extended(self, scope: Scope, number: str) -> str:
        return number if self.place == "i64" else scope.emit(f"zext {self.place} {number} to i64")

    def _turn(self, number: int) -> str:
        return constant_text(number, self.place, self.lanes)

