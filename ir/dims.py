"""Symbolic sizes: canonical integer polynomials over named symbols, and what can be proved about them.

Guarantees: equal polynomials are equal objects by value (`==` is structural and asks nobody); a `Dim` never holds a
plain integer (arithmetic collapses to int); `Facts.prove` answers True or False only when the answer holds for every
size that satisfies the facts, else None.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any


@dataclass(frozen=True, slots=True)
class Symbol:
    """A named size, an integer >= 0 unless a fact says more."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Call:
    """A non-polynomial atom: floordiv, min or max of two sizes."""

    fn: str
    args: tuple[Extent, Extent]

    def __str__(self) -> str:
        return f"{self.fn}({self.args[0]}, {self.args[1]})"


Atom = Symbol | Call
Monomial = tuple[Atom, ...]


class Dim:
    """A sum of coefficient * product(atoms): terms sorted, no zero coefficient, at least one atom somewhere."""

    __slots__ = ("_hash", "name", "terms")
    terms: tuple[tuple[Monomial, int], ...]
    name: str | None  # of the symbol that it is, if it is one

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]) -> None:
        self.terms = terms
        self._hash = hash(terms)
        atoms, c = terms[0]
        self.name = atoms[0].name if len(terms) == c == len(atoms) == 1 and isinstance(atoms[0], Symbol) else None

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Dim) and self._hash == other._hash and self.terms == other.terms)

    def __hash__(self) -> int:
        return self._hash

    def __add__(self, other: Extent) -> Extent:
        return _polynomial((*self.terms, *terms_of(other)))

    def __neg__(self) -> Extent:
        return self * -1

    def __sub__(self, other: Extent) -> Extent:
        return self + other * -1

    def __rsub__(self, other: Extent) -> Extent:
        return self * -1 + other

    def __mul__(self, other: Extent) -> Extent:
        return _times(self, other)

    __radd__, __rmul__ = __add__, __mul__

    def __floordiv__(self, other: Extent) -> Extent:
        return floordiv(self, other)

    def __rfloordiv__(self, other: Extent) -> Extent:
        return floordiv(other, self)

    def __mod__(self, other: Extent) -> Extent:
        return modulo(self, other)

    def __rmod__(self, other: Extent) -> Extent:
        return modulo(other, self)

    def __str__(self) -> str:
        text = ""
        for atoms, c in self.terms:
            sign = "-" if c < 0 else "+"
            factors = [*([str(abs(c))] if abs(c) != 1 or not atoms else []), *map(str, atoms)]
            text += (f" {sign} " if text else sign.strip("+")) + "*".join(factors)
        return text

    __repr__ = __str__


Extent = int | Dim
Shape = tuple[Extent, ...]
FUNCTIONS: dict[str, Callable[[int, int], int]] = {"floordiv": lambda a, b: a // b, "min": min, "max": max}


@lru_cache(maxsize=1 << 14)  # one object for each name: comparing it with itself takes no time
def symbol(name: str) -> Dim:
    """The size called `name`."""
    return Dim((((Symbol(name),), 1),))


def terms_of(x: Extent) -> tuple[tuple[Monomial, int], ...]:
    """The terms of x; an integer is one term without atoms."""
    return x.terms if isinstance(x, Dim) else (((), int(x)),)


def symbol_of(x: Extent) -> str | None:
    """The symbol's name, if x is exactly one symbol."""
    return x.name if isinstance(x, Dim) else None


def _polynomial(parts: Iterable[tuple[Monomial, int]]) -> Extent:
    total: dict[Monomial, int] = {}
    for atoms, c in parts:
        total[atoms] = total.get(atoms, 0) + c
    kept = [(a, c) for a, c in total.items() if c]
    if not kept or (len(kept) == 1 and not kept[0][0]):
        return kept[0][1] if kept else 0
    if len(kept) == 1:
        return Dim((kept[0],))
    # Constants last, then by text: `n*m + 2*n + 1`.
    return Dim(tuple(sorted(kept, key=lambda term: (-len(term[0]), str(term[0])))))


@lru_cache(maxsize=1 << 14)  # a trace multiplies the same few sizes over and over
def _times(a: Dim, b: Extent) -> Extent:
    return _polynomial((tuple(sorted(x + y, key=str)), c * d) for x, c in a.terms for y, d in terms_of(b))


def floordiv(a: Extent, b: Extent) -> Extent:
    """floor(a / b): exact when b divides a as a polynomial, or is a monomial that divides some of its terms; else an atom."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    if isinstance(a, int) and a == 0:
        return 0
    divisor = terms_of(b)
    if len(divisor) == 1:
        atoms, c = divisor[0]
        whole: list[tuple[Monomial, int]] = []
        rest: list[tuple[Monomial, int]] = []
        for t, k in terms_of(a):
            divides = k % c == 0 and all(t.count(x) >= atoms.count(x) for x in set(atoms))
            (whole if divides else rest).append((t, k))
        if not rest:
            return _polynomial((_without(t, atoms), k // c) for t, k in whole)
        if whole:  # floor((c*q + r) / c) = q + floor(r / c)
            exact = _polynomial((_without(t, atoms), k // c) for t, k in whole)
            return exact + floordiv(_polynomial(rest), b)
    elif (quotient := _exact_quotient(a, b)) is not None:
        return quotient
    return Dim((((Call("floordiv", (a, b)),), 1),))


def _exact_quotient(a: Extent, b: Extent) -> Extent | None:
    """The q with q * b == a, by long division on leading terms, if it is found."""
    lead, c = terms_of(b)[0]
    quotient: Extent = 0
    rest = a
    for _ in range(len(terms_of(a))):
        atoms, k = terms_of(rest)[0]
        if k % c or any(atoms.count(x) < lead.count(x) for x in lead):
            return None
        term = _polynomial([(_without(atoms, lead), k // c)])
        quotient, rest = quotient + term, rest - b * term
        if rest == 0:
            return quotient
    return None


def _without(monomial: Monomial, atoms: Monomial) -> Monomial:
    left = list(monomial)
    for x in atoms:
        left.remove(x)
    return tuple(left)


def modulo(a: Extent, b: Extent) -> Extent:
    """a - b * floor(a / b), so that a remainder is an ordinary polynomial over one floordiv atom."""
    return a - floordiv(a, b) * b


def _extreme(fn: str, a: Extent, b: Extent) -> Extent:
    d = a - b
    if isinstance(d, int):
        return (a if d <= 0 else b) if fn == "min" else (a if d >= 0 else b)
    first, second = sorted((a, b), key=str)
    return Dim((((Call(fn, (first, second)),), 1),))


def minimum(a: Extent, b: Extent) -> Extent:
    """The smaller size."""
    return _extreme("min", a, b)


def maximum(a: Extent, b: Extent) -> Extent:
    """The larger size."""
    return _extreme("max", a, b)


_BUILD: dict[str, Callable[[Extent, Extent], Extent]] = {"floordiv": floordiv, "min": minimum, "max": maximum}


def product(extents: Iterable[Extent]) -> Extent:
    """The product; 1 when empty."""
    return math.prod(extents, start=1)


def summed(extents: Iterable[Extent]) -> Extent:
    """The sum; 0 when empty. In one go: adding one after another takes time with the square of their number."""
    return _polynomial(term for x in extents for term in terms_of(x))


def substitute(x: Extent, to: Mapping[str, Extent]) -> Extent:
    """x with symbols replaced by name, and calls by their text, everywhere at once."""
    if isinstance(x, int) or not to:
        return x
    if x.name is not None:  # most sizes are one symbol
        return to.get(x.name, x)
    out: Extent = 0
    for atoms, c in x.terms:
        out = out + product(_substitute_atom(a, to) for a in atoms) * c
    return out


def _substitute_atom(a: Atom, to: Mapping[str, Extent]) -> Extent:
    if isinstance(a, Symbol):
        return to.get(a.name, Dim((((a,), 1),)))
    first, second = substitute(a.args[0], to), substitute(a.args[1], to)
    if a.fn == "floordiv" and second == 0:  # it has no value, so nothing can be said of it
        return Dim((((a,), 1),))
    new = _BUILD[a.fn](first, second)
    if isinstance(new, int):
        return new
    out: Extent = 0
    for atoms, c in new.terms:
        out = out + product(to.get(str(x), Dim((((x,), 1),))) if isinstance(x, Call) else Dim((((x,), 1),)) for x in atoms) * c
    return out


def evaluate(x: Extent, sizes: Mapping[str, int]) -> int:
    """The integer that x is for these sizes. KeyError for a symbol without one."""
    if isinstance(x, int):
        return x
    return sum(c * math.prod(_evaluate_atom(a, sizes) for a in atoms) for atoms, c in x.terms)


def _evaluate_atom(a: Atom, sizes: Mapping[str, int]) -> int:
    if isinstance(a, Symbol):
        return sizes[a.name]
    return FUNCTIONS[a.fn](evaluate(a.args[0], sizes), evaluate(a.args[1], sizes))


def symbols_in(x: Extent) -> frozenset[str]:
    """The names of every symbol in x."""
    if isinstance(x, int):
        return frozenset()
    return frozenset().union(*(_symbols_in_atom(a) for atoms, _ in x.terms for a in atoms))


def _symbols_in_atom(a: Atom) -> frozenset[str]:
    return frozenset((a.name,)) if isinstance(a, Symbol) else symbols_in(a.args[0]) | symbols_in(a.args[1])


@dataclass(frozen=True, slots=True)
class Constraint:
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
        a, b = evaluate(self.left, sizes), evaluate(self.right, sizes)
        match self.relation:
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
    return (name, other) if name is not None and name not in symbols_in(other) else None


def _solved_linear(d: Extent, kind: type[Symbol] | type[Call]) -> tuple[str, Extent] | None:
    """An atom and what it is where d == 0: d = c*atom + rest, without the atom in the rest, and c divides the rest."""
    for atoms, c in terms_of(d):
        if len(atoms) == 1 and isinstance(atoms[0], kind):
            name, rest = str(atoms[0]), d - Dim(((atoms, c),))
            if name not in _atoms_in(rest) and all(k % c == 0 for _, k in terms_of(rest)):
                return name, _polynomial((t, -k // c) for t, k in terms_of(rest))
    return None


def _atoms_in(x: Extent) -> frozenset[str]:
    """The text of every symbol and call in x, however deep."""
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
    divides: list[tuple[Extent, Extent]] = field(default_factory=list)
    _holders: dict[str, set[str]] = field(default_factory=dict, repr=False)  # an atom's text -> where `equal` holds it
    _canonical: dict[Dim, Extent] = field(default_factory=dict, repr=False)  # what is known by `equal` and `divides`
    canonical_types: dict[int, tuple[Any, Any]] = field(default_factory=dict, repr=False)  # the same, by a type's identity

    def learn(self, c: Constraint) -> None:
        """Take a constraint as true."""
        a, b = self.canonical(c.left), self.canonical(c.right)
        match c.relation:
            case "==":
                self._unify(a, b)
            case "!=":
                self._learn_unequal(a - b)
            case "<=":
                self._learn_at_least_zero(b - a)
            case "divides":
                self._learn_unequal(a)  # 0 divides nothing
                self.divides.append((a, b))
                self._forget()

    def _learn_at_least_zero(self, d: Extent) -> None:
        match terms_of(d):
            case (((Symbol(name),), 1),):
                self.low[name] = max(self.low.get(name, 0), 0)
            case (((Symbol(name),), 1), ((), c)):
                self.low[name] = max(self.low.get(name, 0), -c)
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
        solved = _solved(b, a) or _solved(a, b) or _solved_linear(a - b, Symbol)
        if solved is None:
            self._unify_call(a - b)
            return
        name, other = solved
        least = self.low.get(name, 0)
        self._rewrite(name, other)
        if not isinstance(other, int) and not self._at_least(other, least):
            self._learn_at_least_zero(other - least)

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
        self.equal |= {k: substitute(self.equal[k], to) for k in holders} | to
        self._forget()
        for k in (name, *holders):
            for atom in _atoms_in(self.equal[k]):
                self._holders.setdefault(atom, set()).add(k)
        for key, call in list(self.calls.items()):
            if key != name and (now := substitute(call, to)) != call:
                del self.calls[key]
                self._forget()
                self.learn(Constraint("==", now, self.equal.pop(key)))

    def _forget(self) -> None:
        self._canonical, self.canonical_types = {}, {}

    def canonical(self, x: Extent) -> Extent:
        """x under the known equalities and divisibilities: two sizes proved equal by them become one object."""
        if isinstance(x, int) or not (self.equal or self.divides):
            return x
        known = self._canonical.get(x)
        if known is None:
            known = self._canonical[x] = self._rewritten(x)
        return known

    def _rewritten(self, x: Extent) -> Extent:
        x = substitute(x, self.equal)
        for k, n in self.divides:
            x = _cancel_division(x, substitute(k, self.equal), substitute(n, self.equal))
        return x

    def lower(self, x: Extent) -> int | None:
        """A lower bound of x, or None when none is known."""
        return self._bound(self.canonical(x))

    def _bound(self, x: Extent) -> int | None:
        """Write each atom as low + rest with rest >= 0: sound when every other coefficient is >= 0."""
        total = 0
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
        return Dim((((a,), 1),)) + self._atom_low(a) if self._atom_low(a) is not None else Dim((((a,), 1),))

    def _atom_low(self, a: Atom) -> int:
        """A lower bound of an atom; sizes are never negative, and a floordiv or min of sizes is bounded by its parts."""
        if isinstance(a, Symbol):
            return self.low.get(a.name, 0)
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
        d = self.canonical(b) - self.canonical(a)
        if relation == "==":
            return self._prove_zero(d)
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
            out = out + _polynomial([(_without(atoms, (*factors, quotient)), coefficient // c)]) * n
        else:
            out = out + _polynomial([(atoms, coefficient)])
    return out
