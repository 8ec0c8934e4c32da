"""Guards: questions about sizes that the prover could not answer, answered by this call's sizes and recorded.

Guarantees: a question answered once is a fact for every later question of the same trace; `Scope.decide` records a
guard only when the answer did not follow from earlier ones, or makes one object of two sizes; a guard names the user's
line that asked.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple

import numpy as np

from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Dim, Extent, Shape, evaluate, largest, substitute, symbol, symbols_in, terms_of
from loopwright.ir.facts import Constraint, Facts
from loopwright.ir.source import Source, user_source

BEYOND = 1 << 61  # no size is as large, nor what programs ask of one


class Guard(NamedTuple):
    """A constraint that a compiled version relies on, and the user's line that asked for it."""

    constraint: Constraint
    source: Source

    def __str__(self) -> str:
        return f"{self.constraint}   # {self.source}"


@dataclass
class Scope:
    """One per outermost trace, shared by every trace nested in it: hints, guards, and the facts they imply."""

    hints: dict[str, int] = field(default_factory=dict)
    guards: list[Guard] = field(default_factory=list)
    facts: Facts = field(default_factory=Facts)
    counts: dict[str, Any] = field(default_factory=dict)  # the symbols that nodes bind, and the traced value that each is
    contents: list[tuple[np.ndarray, bytes]] = field(default_factory=list)  # arrays whose bytes steered the trace, and those
    choices: list[Any] = field(default_factory=list)  # what loops keep for the way back: (who, residuals.Choice)
    _constraints: tuple[int, int, tuple[Constraint, ...]] = (0, 0, ())  # for so many guards and changes of sizes: those

    def constraints(self) -> tuple[Constraint, ...]:
        """What the guards say under the equalities of symbols, without those that only said that two symbols are one."""
        guards, changes, found = self._constraints
        if (guards, changes) != (len(self.guards), self.facts.changes):
            to = {s: self.canonical(x) for s, x in self.facts.equal.items() if s not in self.facts.calls}
            found = tuple(_unspent([g.constraint for g in self.guards], to))
            self._constraints = len(self.guards), self.facts.changes, found
        return found

    def canonical(self, x: Extent) -> Extent:
        """x under the equalities known so far."""
        return self.facts.canonical(x)

    def canonical_shape(self, shape: Shape) -> Shape:
        """Every extent of a shape under the equalities known so far."""
        if not self.facts.equal and not self.facts.divides:
            return shape
        return tuple(map(self.facts.canonical, shape))

    def decide(self, relation: str, a: Extent, b: Extent) -> bool:
        """Whether `a relation b`; relations are `==`, `<=`, `<` and `divides`. Records a guard when it was not proved.

        Whether k divides anything asks first whether k is 0, so that no guard divides by it.
        """
        if relation == "divides" and self.decide("==", a, 0):
            return False
        known = self.facts.prove(relation, a, b)
        if known is not None and not (relation == "==" and known and self._apart(a, b)):
            return known
        if relation == "<":
            return self.decide("<=", a + 1, b)
        constraint = Constraint(relation, a, b)
        answer = constraint.holds(self.hints)
        large = [x for x in (a, b) if largest(x) >= BEYOND]
        if relation != "divides" and len(large) == 1 and isinstance(large[0], int):
            return answer  # that of all sizes
        if large:  # no compiled guard computes it
            return Constraint(relation, self.settled(a), self.settled(b)).holds({})
        if not answer:
            constraint = self._refuted(relation, a, b)
        self.guards.append(Guard(constraint, user_source()))
        self.facts.learn(constraint)
        return answer

    def equate(self, a: Extent, b: Extent) -> bool:
        """Whether two sizes are equal, by proof or guard; if so, they are one polynomial afterwards, as ops demand: n*m and k*l
        by n = k and m = l where that holds, else by fixing their symbols to this call's sizes."""
        if a is b:
            return True
        if not self.decide("==", a, b):
            return False
        x, y = self.canonical(a), self.canonical(b)
        if x is not y and x != y and not self._factors_equated(x, y):
            for name in sorted(symbols_in(a) | symbols_in(b)):
                self.value(symbol(name))
        return True

    def _factors_equated(self, a: Extent, b: Extent) -> bool:
        first, second = terms_of(a), terms_of(b)
        if len(first) != 1 or len(second) != 1 or first[0][1] != second[0][1] or len(first[0][0]) != len(second[0][0]):
            return False
        pairs = [(Dim((((x,), 1),)), Dim((((y,), 1),))) for x, y in zip(first[0][0], second[0][0], strict=True)]
        if any(self.hint(x) != self.hint(y) for x, y in pairs):
            return False
        return all([self.decide("==", x, y) for x, y in pairs]) and self.canonical(a) == self.canonical(b)  # noqa: C419 all are asked

    def _apart(self, a: Extent, b: Extent) -> bool:
        """Whether two sizes that are proved equal, by bounds, are yet to become one object: the guard that says so does."""
        return self.canonical(a) != self.canonical(b) and all(Constraint("==", a, b) != g.constraint for g in self.guards)

    def _refuted(self, relation: str, a: Extent, b: Extent) -> Constraint:
        """The weakest fact that denies the relation; sizes above 0 or 1 share one bound instead of two exclusions."""
        if relation == "<=":
            return Constraint("<=", b + 1, a)
        if relation == "divides":
            return Constraint("!=", b - (b // a) * a, 0)
        size, other = (b, a) if isinstance(a, int) else (a, b)
        if isinstance(other, int) and self.facts.prove("<=", other, size):
            return Constraint("<=", other + 1, size)
        return Constraint("!=", a, b)

    def value(self, x: Extent) -> int:
        """The integer that x is, at the price of specialising: records `x == value` when x is symbolic."""
        if isinstance(x, int):
            return x
        value = evaluate(self.canonical(x), self.hints) if symbols_in(self.canonical(x)) else self.canonical(x)
        assert isinstance(value, int)
        self.decide("==", x, value)
        return value

    def settled(self, x: Extent) -> int:
        """The integer that x is, however large, at the price of specialising each size that it is made of."""
        return evaluate(x, {s: self.value(symbol(s)) for s in symbols_in(x)})

    def hint(self, x: Extent) -> int:
        """The integer that x is for this call's sizes; records nothing, so it may steer nothing but messages."""
        return evaluate(x, self.hints)

    def describe(self, shape: Shape) -> str:
        """A shape for messages: symbols with this call's sizes."""
        def one(x: Extent) -> str:
            return f"{x}={self.hint(x)}" if isinstance(x, Dim) else str(x)
        return f"({', '.join(map(one, shape))}{',' if len(shape) == 1 else ''})"


def _unspent(constraints: Sequence[Constraint], to: Mapping[str, Extent]) -> Iterator[Constraint]:
    for relation, left, right in constraints:
        a, b = substitute(left, to), substitute(right, to)
        if relation != "==" or (a is not b and a != b):
            yield Constraint(relation, a, b)
