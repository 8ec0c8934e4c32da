"""What is known about sizes, and what follows from it.

Guarantees: `Facts.prove` answers True or False only when the answer holds for every size that satisfies the facts, else
None; two sizes that equalities and divisibilities prove equal have one canonical form.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, NamedTuple

from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import (
    Atom,
    Call,
    Dim,
    Extent,
    Symbol,
    evaluate,
    modulo,
    polynomial,
    product,
    substitute,
    symbol,
    symbol_of,
    symbols_in,
    terms_of,
    without,
)
from loopwright.ir.types import SIZELESS, ArrayType

FEW = 16  # rewrites of a size that are made anew, so that the size that was met first keeps its name


class Constraint(NamedTuple):
    """left relation right, with relation one of `==`, `!=`, `<=`, `divides`."""

    relation: str
    left: Extent
    right: Extent

    def __str__(self) -> str:
        if self.relation == "<=" and isinstance(self.left, int):
            return f"{self.right} >= {self.left}"
        return f"{self.left} {self.relation} {self.right}"

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether it is true for these sizes."""
        relation, left, right = self
        a, b = evaluate(left, sizes), evaluate(right, sizes)
        match relation:
            case "==":
                return a == b
            case "!=":
                return a != b
            case "<=":
                return a <= b
            case "divides":
                return a != 0 and b % a == 0
        raise ValueError(f"unknown relation {self.relation}")


def _solved(x: Extent, other: Extent) -> tuple[str, Extent] | None:
    """(x's name, other) where x is a symbol that other does not hold."""
    name = symbol_of(x)
    if name is None:
        return None
    known = symbol_of(other)
    return None if name == known or (known is None and name in symbols_in(other)) else (name, other)


def _factors_of_one(a: Extent, b: Extent) -> list[Dim] | None:
    """The symbols of which the product is 1, where a and b are that: each is 1."""
    if not isinstance(a, int) and not isinstance(b, int):
        return None
    if a == 1:
        a, b = b, a
    match terms_of(a):
        case ((atoms, 1),) if b == 1 and len(atoms) > 1 and all(isinstance(x, Symbol) for x in atoms):
            return [symbol(str(x)) for x in atoms]
    return None


def _solved_linear(d: Extent, kind: type[Symbol] | type[Call]) -> tuple[str, Extent] | None:
    """An atom and what it is where d == 0: d = c*atom + rest, without the atom in the rest, and c divides the rest."""
    for atoms, c in terms_of(d):
        if len(atoms) == 1 and isinstance(atoms[0], kind):
            name, rest = str(atoms[0]), d - Dim(((atoms, c),))
            if name not in _atoms_in(rest) and all(k % c == 0 for _, k in terms_of(rest)):
                return name, polynomial((t, -k // c) for t, k in terms_of(rest))
    return None


def _atoms_in(x: Extent) -> frozenset[str]:
    """The text of every symbol and call in x, however deep."""
    if (name := symbol_of(x)) is not None:
        return frozenset((name,))
    own = [a for atoms, _ in terms_of(x) for a in atoms]
    inner = [_atoms_in(y) for a in own if isinstance(a, Call) for y in a.args]
    return frozenset(map(str, own)).union(*inner)


@dataclass
class Facts:
    """What is known about symbols: lower bounds, equalities used as rewrites, other inequalities, divisibility."""

    low: dict[str, int] = field(default_factory=dict)
    equal: dict[str, Extent] = field(default_factory=dict)  # of symbols, and of calls by their text
    calls: dict[str, Extent] = field(default_factory=dict)  # the calls among them
    at_least_zero: list[Extent] = field(default_factory=list)
    unequal: list[Extent] = field(default_factory=list)
    changes: int = 0  # how often sizes got other canonical forms
    divides: list[tuple[Extent, Extent]] = field(default_factory=list)
    _holders: dict[str, set[str]] = field(default_factory=dict, repr=False)  # an atom's text -> where `equal` holds it
    _canonical: dict[Dim, Extent] = field(default_factory=dict, repr=False)  # what is known by `equal` and `divides`
    _answers: dict[str, list[Dim]] = field(default_factory=dict, repr=False)  # an atom's text -> the sizes whose form holds it
    _types: dict[int, tuple[ArrayType, ArrayType]] = field(default_factory=dict, repr=False)  # by identity: a type and its form
    _lows: dict[Call, int] = field(default_factory=dict, repr=False)  # what is known by `low`

    def learn(self, c: Constraint) -> None:
        """Take a constraint as true."""
        relation, left, right = c
        a, b = self.canonical(left), self.canonical(right)
        match relation:
            case "==":
                self._unify(a, b)
            case "!=":
                self._learn_unequal(a - b)
            case "<=":
                self._learn_at_least_zero(b - a)
            case "divides":
                self._learn_unequal(a)  # 0 divides nothing
                self.divides.append((a, b))
                self._forget_all()

    def _learn_at_least_zero(self, d: Extent) -> None:
        match terms_of(d):
            case (((Symbol(name),), 1),):
                self.low[name] = max(self.low.get(name, 0), 0)
            case (((Symbol(name),), 1), ((), c)):
                self.low[name] = max(self.low.get(name, 0), -c)
                self._lows = {}
            case _:
                self.at_least_zero.append(d)

    def _learn_unequal(self, d: Extent) -> None:
        self.unequal.append(d)
        for sign in (d, d * -1):
            if self.lower(sign) == 0:
                self._learn_at_least_zero(sign - 1)

    def _unify(self, a: Extent, b: Extent) -> None:
        """Make the equality a rewrite of one symbol, if it can be solved for one; else remember both inequalities."""
        if a == b:
            return
        if (factors := _factors_of_one(a, b)) is not None:
            for x in factors:
                self._unify(self.canonical(x), 1)
            return
        if FEW < self._held(b) > self._held(a):
            a, b = b, a
        solved = _solved(b, a) or _solved(a, b) or _solved_linear(a - b, Symbol)
        if solved is None:
            self._unify_call(a - b)
            return
        name, other = solved
        least = self.low.get(name, 0)
        self._rewrite(name, other)
        if not isinstance(other, int) and not self._at_least(other, least):
            self._learn_at_least_zero(other - least)

    def _held(self, x: Extent) -> int:
        """How many rewrites are about x, if it is a symbol: replacing that with fewer, a thousand sizes are one in no time."""
        name = symbol_of(x)
        return len(self._holders.get(name, ())) if name is not None else 0

    def _unify_call(self, d: Extent) -> None:
        """Where no symbol can be solved for, a rewrite of one floordiv, min or max, if there is one; d is 0 in any case."""
        solved = _solved_linear(d, Call)
        self.at_least_zero += [d, d * -1]
        if solved is not None:
            self.calls[solved[0]] = next(Dim(((t, 1),)) for t, _ in terms_of(d) if len(t) == 1 and str(t[0]) == solved[0])
            self._rewrite(*solved)

    def _rewrite(self, name: str, other: Extent) -> None:
        """Replace an atom from now on, in what is known too: a call that reads otherwise now is learned anew."""
        to = {name: other}
        holders = [k for k in self._holders.pop(name, ()) if k in self.equal]  # some were learned anew since
        for k in holders:
            self.equal[k] = substitute(self.equal[k], to)
        self.equal[name] = other
        self._forget(name)
        for k in (name, *holders):
            for atom in _atoms_in(self.equal[k]):
                self._holders.setdefault(atom, set()).add(k)
        for key, call in list(self.calls.items()) if self.calls else ():
            if key != name and (now := substitute(call, to)) != call:
                del self.calls[key]
                self._forget_all()
                self.learn(Constraint("==", now, self.equal.pop(key)))

    def _forget_all(self) -> None:
        self.changes += 1
        self._canonical, self._answers, self._types = {}, {}, {}

    def _forget(self, name: str) -> None:
        """Forget the canonical sizes that hold an atom; a division that cancels might read otherwise without holding it."""
        self.changes += 1
        self._types = {}
        if self.divides:
            self._forget_all()
        for x in self._answers.pop(name, ()):
            self._canonical.pop(x, None)

    def canonical(self, x: Extent) -> Extent:
        """x under the known equalities and divisibilities: two sizes proved equal by them become one object."""
        if type(x) is not Dim:
            return x
        if x.name is not None:  # most sizes are one symbol, before and after
            x = self.equal.get(x.name, x)
            if type(x) is not Dim or x.name is not None:
                return x
        if not self.equal and not self.divides:
            return x
        known = self._canonical.get(x)
        if known is None:
            known = self._canonical[x] = self._rewritten(x)
            for atom in _atoms_in(known):
                self._answers.setdefault(atom, []).append(x)
        return known

    def canonical_type(self, t: ArrayType) -> ArrayType:
        """t with a canonical shape; t itself where its own is."""
        if not self.equal and not self.divides:
            return t
        for x in t.shape:
            if type(x) is Dim and (x.name is None or x.name in self.equal):
                break
        else:
            return t
        known = self._types.get(id(t))
        if known is not None:
            return known[1]
        shape = tuple([self.canonical(x) for x in t.shape])
        new = t if shape == t.shape else ArrayType(shape, t.dtype, t.weak)
        self._types[id(t)] = t, new  # with t, so that nothing else gets its id
        return new

    def canonical_attribute(self, a: Any) -> Any:
        """An attribute with its sizes canonical, however deep in tuples."""
        kind = type(a)
        if kind is Dim:
            return self.canonical(a)
        if kind in SIZELESS or not isinstance(a, tuple):
            return a
        for x in a:
            kind = type(x)
            if kind is not int and (kind is not Dim or x.name is None or x.name in self.equal):
                break
        else:
            return a
        return tuple([x if type(x) in SIZELESS else self.canonical(x) if type(x) is Dim else self.canonical_attribute(x)
                      for x in a])

    def _rewritten(self, x: Extent) -> Extent:
        x, before = substitute(x, self.equal), None
        while x != before:  # by what one division leaves, another may cancel
            before = x
            for k, n in self.divides:
                x = _cancel_division(x, substitute(k, self.equal), substitute(n, self.equal))
        return x

    def lower(self, x: Extent) -> int | None:
        """A lower bound of x, or None when none is known."""
        return self._bound(self.canonical(x))

    def _bound(self, x: Extent) -> int | None:
        """Write each atom as low + rest with rest >= 0: sound when every other coefficient is >= 0."""
        if isinstance(x, int):
            return x
        if x.name is not None:
            return self.low.get(x.name, 0)
        total = 0
        if all(len(atoms) < 2 for atoms, _ in x.terms):  # of one atom each, so no two terms meet
            for atoms, c in x.terms:
                if atoms and c < 0:
                    return None
                total += c * self._atom_low(atoms[0]) if atoms else c
            return total
        for atoms, c in terms_of(self._shifted(x)):
            if atoms and c < 0:
                return None
            total += c if not atoms else 0
        return total

    def _shifted(self, x: Extent) -> Extent:
        if all(isinstance(a, Symbol) and not self.low.get(a.name, 0) for atoms, _ in terms_of(x) for a in atoms):
            return x
        out: Extent = 0
        for atoms, c in terms_of(x):
            out = out + product(self._shifted_atom(a) for a in atoms) * c
        return out

    def _shifted_atom(self, a: Atom) -> Extent:
        return Dim((((a,), 1),)) + self._atom_low(a)

    def _atom_low(self, a: Atom) -> int:
        """A lower bound of an atom; sizes are never negative, and a floordiv or min of sizes is bounded by its parts."""
        if isinstance(a, Symbol):
            return self.low.get(a.name, 0)
        known = self._lows.get(a)
        if known is None:
            known = self._lows[a] = self._call_low(a)
        return known

    def _call_low(self, a: Call) -> int:
        first, second = (self._bound(x) for x in a.args)
        match a.fn:
            case "floordiv" if first is not None and isinstance(a.args[1], int) and a.args[1] > 0:
                return first // a.args[1]
            case "floordiv" if first is not None and first >= 0 and second is not None and second >= 1:
                return 0
            case "min" if first is not None and second is not None:
                return min(first, second)
            case "max" if first is not None or second is not None:
                return max(v for v in (first, second) if v is not None)
        return -(1 << 62)

    def prove(self, relation: str, a: Extent, b: Extent) -> bool | None:
        """True or False when it follows from the facts, else None. Relations: `==`, `<=`, `<`, `divides`."""
        if relation == "<":
            return self.prove("<=", a + 1, b)
        if relation == "divides":
            return self._prove_divides(self.canonical(a), self.canonical(b))
        a, b = self.canonical(a), self.canonical(b)
        if relation == "==":
            if a is b or a == b:
                return True
            if not (self.at_least_zero or self.unequal) and symbol_of(a) and symbol_of(b):
                return None  # bounds of one symbol say nothing of another
            return self._prove_zero(b - a)
        d = b - a
        if self._at_least(d, 0):
            return True
        return False if self._at_least(d * -1, 1) else None

    def _prove_zero(self, d: Extent) -> bool | None:
        if isinstance(d, int):
            return d == 0
        if self._at_least(d, 1) or self._at_least(d * -1, 1):
            return False
        if any(self.canonical(u) in (d, d * -1) for u in self.unequal):
            return False
        return True if self._at_least(d, 0) and self._at_least(d * -1, 0) else None

    def _at_least(self, d: Extent, least: int) -> bool:
        bound = self._bound(d)
        if bound is not None and bound >= least:
            return True
        for fact in self.at_least_zero:
            bound = self._bound(d - self.canonical(fact))
            if bound is not None and bound >= least:
                return True
        return False

    def _prove_divides(self, k: Extent, n: Extent) -> bool | None:
        """0 divides nothing, as in Constraint.holds: a multiple of k is proved one only where k is not 0."""
        rest = self.canonical(modulo(n, k)) if k != 0 else 1
        if isinstance(rest, int):
            return False if rest != 0 else True if self._prove_zero(k) is False else None
        return True if any((self.canonical(a), self.canonical(b)) == (k, n) for a, b in self.divides) else None


def _cancel_division(x: Extent, k: Extent, n: Extent) -> Extent:
    """With k | n, a term c*k*floordiv(n, k)*rest is c*n*rest."""
    if isinstance(x, int):
        return x
    quotient = Call("floordiv", (n, k))
    if not any(quotient in atoms for atoms, _ in x.terms):
        return x
    divisor = terms_of(k)
    if len(divisor) != 1:
        return x
    factors, c = divisor[0]
    out: Extent = 0
    for atoms, coefficient in x.terms:
        whole = quotient in atoms and coefficient % c == 0 and all(atoms.count(f) >= factors.count(f) for f in factors)
        if whole:
            out = out + polynomial([(without(atoms, (*factors, quotient)), coefficient // c)]) * n
        else:
            out = out + polynomial([(atoms, coefficient)])
    return out
