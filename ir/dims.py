"""Symbolic sizes: canonical integer polynomials over named symbols.

Guarantees: equal polynomials are equal objects by value (`==` is structural and asks nobody); a `Dim` never holds a
plain integer (arithmetic collapses to int).
"""
from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from loopwright.ir.dataclass import dataclass


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

    __slots__ = ("_hash", "_symbols", "_text", "name", "terms")
    terms: tuple[tuple[Monomial, int], ...]
    name: str | None  # of the symbol that it is, if it is one

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]) -> None:
        self.terms = terms
        self._hash = hash(terms)
        atoms, c = terms[0]
        self.name = atoms[0].name if len(terms) == c == len(atoms) == 1 and isinstance(atoms[0], Symbol) else None
        self._text: str | None = None  # made when it is first asked for: sizes are put in order by it
        self._symbols: frozenset[str] | None = None  # and these

    def __eq__(self, other: object) -> bool:
        return self is other or (type(other) is Dim and self._hash == other._hash and self.terms == other.terms)

    def __hash__(self) -> int:
        return self._hash

    def __add__(self, other: Extent) -> Extent:
        return _plus(self, other)

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
        if self._text is None:
            self._text = self._written()
        return self._text

    def _written(self) -> str:
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
    return x.name if type(x) is Dim else None


def polynomial(parts: Iterable[tuple[Monomial, int]]) -> Extent:
    """The sum of coefficient * product(atoms) over the parts."""
    total: dict[Monomial, int] = {}
    for atoms, c in parts:
        total[atoms] = total.get(atoms, 0) + c
    kept = [(a, c) for a, c in total.items() if c]
    if not kept or (len(kept) == 1 and not kept[0][0]):
        return kept[0][1] if kept else 0
    if len(kept) == 1:
        return Dim((kept[0],))
    # Constants last, then by text: `n*m + 2*n + 1`.
    return Dim(tuple(sorted(kept, key=lambda term: (-len(term[0]), _order(term[0])))))


@lru_cache(maxsize=1 << 14)
def _order(atoms: Monomial) -> str:
    return str(atoms)


@lru_cache(maxsize=1 << 14)  # a trace adds and multiplies the same few sizes over and over
def _plus(a: Dim, b: Extent) -> Extent:
    return polynomial((*a.terms, *terms_of(b)))


@lru_cache(maxsize=1 << 14)
def _times(a: Dim, b: Extent) -> Extent:
    return polynomial((tuple(sorted(x + y, key=str)), c * d) for x, c in a.terms for y, d in terms_of(b))


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
            return polynomial((without(t, atoms), k // c) for t, k in whole)
        if whole:  # floor((c*q + r) / c) = q + floor(r / c)
            exact = polynomial((without(t, atoms), k // c) for t, k in whole)
            return exact + floordiv(polynomial(rest), b)
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
        term = polynomial([(without(atoms, lead), k // c)])
        quotient, rest = quotient + term, rest - b * term
        if rest == 0:
            return quotient
    return None


def without(monomial: Monomial, atoms: Monomial) -> Monomial:
    """The monomial divided by one that it holds."""
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
    return polynomial(term for x in extents for term in terms_of(x))


def substitute(x: Extent, to: Mapping[str, Extent]) -> Extent:
    """x with symbols replaced by name, and calls by their text, everywhere at once."""
    if type(x) is not Dim or not to:
        return x
    if x.name is not None:  # most sizes are one symbol
        return to.get(x.name, x)
    if any("(" in name for name in to):  # a call's text
        return _substitute(x, to)
    names = symbols_in(x)
    return _with_sizes(x, tuple([(name, to[name]) for name in names if name in to]))


@lru_cache(maxsize=1 << 14)  # the same few sizes, in many graphs
def _with_sizes(x: Dim, sizes: tuple[tuple[str, Extent], ...]) -> Extent:
    return _substitute(x, dict(sizes)) if sizes else x


def _substitute(x: Dim, to: Mapping[str, Extent]) -> Extent:
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
    if x.name is not None:
        return sizes[x.name]
    return sum(c * math.prod(_evaluate_atom(a, sizes) for a in atoms) for atoms, c in x.terms)


def _evaluate_atom(a: Atom, sizes: Mapping[str, int]) -> int:
    if isinstance(a, Symbol):
        return sizes[a.name]
    return FUNCTIONS[a.fn](evaluate(a.args[0], sizes), evaluate(a.args[1], sizes))


def largest(x: Extent) -> int:
    """The largest number, without its sign, that x is written with."""
    inner = [y for atoms, _ in terms_of(x) for a in atoms if isinstance(a, Call) for y in a.args]
    return max([abs(c) for _, c in terms_of(x)] + [largest(y) for y in inner])


def symbols_in(x: Extent) -> frozenset[str]:
    """The names of every symbol in x."""
    if isinstance(x, int):
        return frozenset()
    if x._symbols is None:
        x._symbols = frozenset().union(*(_symbols_in_atom(a) for atoms, _ in x.terms for a in atoms))
    return x._symbols


def _symbols_in_atom(a: Atom) -> frozenset[str]:
    return frozenset((a.name,)) if isinstance(a, Symbol) else symbols_in(a.args[0]) | symbols_in(a.args[1])
