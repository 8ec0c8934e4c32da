"""Symbolic sizes in machine code: polynomials and guards over i64 values.

Guarantees: the same integers as `ir.dims.evaluate` as long as they fit 64 bits; no division traps, and where a divisor
is zero the guard does not hold.
"""
from __future__ import annotations

from loopwright.ir.dims import Atom, Call, Dim, Extent, Monomial, Symbol
from loopwright.ir.facts import Constraint
from loopwright.lower.runtime.writer import Writer, every


class Sizes:
    """Emits extents, each once. `conditions` are the divisors' being non-zero, to be checked with what used them."""

    def __init__(self, writer: Writer, symbols: dict[str, str]) -> None:
        self.writer, self.symbols = writer, symbols
        self.conditions: list[str] = []
        self._known: dict[Atom | Monomial | Extent, str] = {}

    def extent(self, x: Extent) -> str:
        """The operand that holds x."""
        if isinstance(x, int):
            return str(x)
        if x not in self._known:
            self._known[x] = self._sum(x)
        return self._known[x]

    def _sum(self, x: Dim) -> str:
        total = ""
        for atoms, c in x.terms:
            term = self._monomial(atoms)
            term = term if c == 1 else str(c) if not atoms else self.writer.let(f"mul i64 {term}, {c}")
            total = self.writer.let(f"add i64 {total}, {term}") if total else term
        return total

    def _monomial(self, atoms: Monomial) -> str:
        out = ""
        for a in atoms:
            value = self._atom(a)
            out = self.writer.let(f"mul i64 {out}, {value}") if out else value
        return out or "1"

    def _atom(self, a: Atom) -> str:
        match a:
            case Symbol(name):
                return self.symbols[name]
            case Call():
                if a not in self._known:
                    first, second = map(self.extent, a.args)
                    self._known[a] = self._divide(first, second) if a.fn == "floordiv" else self._extreme(a.fn, first, second)
                return self._known[a]

    def _extreme(self, fn: str, a: str, b: str) -> str:
        return self.writer.call("i64", f"llvm.s{fn}.i64", f"i64 {a}", f"i64 {b}")

    def _nonzero(self, b: str) -> tuple[str, str]:
        """(b is not zero, b with 1 in place of zero)."""
        condition = self.writer.let(f"icmp ne i64 {b}, 0")
        return condition, self.writer.let(f"select i1 {condition}, i64 {b}, i64 1")

    def _divide(self, a: str, b: str) -> str:
        """floor(a / b): the quotient that truncates, less one where the remainder has the other sign than b."""
        w = self.writer
        condition, divisor = self._nonzero(b)
        self.conditions.append(condition)
        quotient, rest = w.let(f"sdiv i64 {a}, {divisor}"), w.let(f"srem i64 {a}, {divisor}")
        inexact = w.let(f"icmp ne i64 {rest}, 0")
        crossed = w.let(f"icmp slt i64 {w.let(f'xor i64 {rest}, {divisor}')}, 0")
        correction = w.let(f"sext i1 {w.let(f'and i1 {inexact}, {crossed}')} to i64")
        return w.let(f"add i64 {quotient}, {correction}")

    def holds(self, c: Constraint) -> str:
        """Whether the constraint is true."""
        w, a, b = self.writer, self.extent(c.left), self.extent(c.right)
        match c.relation:
            case "==" | "!=" | "<=":
                return w.let(f"icmp {({'==': 'eq', '!=': 'ne', '<=': 'sle'})[c.relation]} i64 {a}, {b}")
            case "divides":
                condition, divisor = self._nonzero(a)
                exact = w.let(f"icmp eq i64 {w.let(f'srem i64 {b}, {divisor}')}, 0")
                return w.let(f"and i1 {condition}, {exact}")
        raise ValueError(f"unknown relation {c.relation}")

    def check(self, constraints: list[Constraint], otherwise: str) -> None:
        """Go on where all hold, else to that block."""
        held = [self.holds(c) for c in constraints]
        conditions = [*self.conditions, *held]
        self.conditions.clear()
        if conditions:
            self.writer.likely(every(self.writer, conditions), otherwise)

    def weighted(self, monomials: list[Monomial], weights: str) -> str:
        """The sum of these products, that of no sizes first, each times its number in a table."""
        total = self.writer.load("i64", weights)
        for k, atoms in enumerate(monomials[1:], 1):
            term = self.writer.let(f"mul i64 {self._monomial(atoms)}, {self.writer.load('i64', weights, 8 * k)}")
            total = self.writer.let(f"add i64 {total}, {term}")
        return total
