"""Formulas on two vectors at once, where masks are vectors: without AVX-512.

The steps of both stand beside each other, and they ask once, not twice, whether some lane is rare. LLVM would pack masks of
more lanes than a register has into bytes, and back: here they are integers, of which each half is a register.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from loopwright.ir.dataclass import dataclass
from loopwright.lower.codegen.machine import Machine, any_lane, vector_type
from loopwright.lower.target import Target


def fill_two(lanes: int, bits: int, target: Target) -> bool:
    """Whether so many lanes take two registers, and masks would be registers, too."""
    return target.has_avx2 and not target.has_masks and lanes * bits == 2 * target.vector_bits


@dataclass(frozen=True)
class TwoVectors(Machine):
    """Two registers of lanes; masks are integers, -1 where they hold."""

    def compare(self, relation: str, a: str | float, b: str | float) -> str:
        return self._extended(super().compare(relation, a, b))

    def icompare(self, relation: str, a: str | int, b: str | int) -> str:
        return self._extended(super().icompare(relation, a, b))

    def ucompare(self, relation: str, a: str | int, b: str | int) -> str:
        return self._extended(super().ucompare(relation, a, b))

    def select(self, mask: str, a: str | float, b: str | float) -> str:
        return super().select(self._held(mask), a, b)

    def iselect(self, mask: str, a: str | int, b: str | int) -> str:
        return super().iselect(self._held(mask), a, b)

    def both(self, a: str, b: str) -> str:
        return self.iand(a, b)

    def either(self, a: str, b: str) -> str:
        return self.ior(a, b)

    def differ(self, a: str, b: str) -> str:
        return self.ixor(a, b)

    def negate(self, a: str) -> str:
        return self.ixor(a, -1)

    def any(self, mask: str) -> str:
        half = replace(self, lanes=self.lanes // 2)
        low, high = (self.shuffled(mask, "poison", self.int_type, range(k, k + half.lanes)) for k in (0, half.lanes))
        return any_lane(self.scope, half._held(half.ior(low, high)), half.lanes)

    def _extended(self, mask: str) -> str:
        return self.scope.emit(f"sext {self.mask_type} {mask} to {self.int_type}")

    def _held(self, mask: str) -> str:
        """The lanes of a mask as LLVM has them."""
        return self.scope.emit(f"icmp slt {self.int_type} {mask}, zeroinitializer")


def joined(m: Machine, parts: Sequence[str]) -> str:
    """Two vectors as one, of both."""
    return m.shuffled(parts[0], parts[1], m.float_type, range(2 * m.lanes))


def halves(m: Machine, both: str) -> tuple[str, str]:
    """The two vectors of what is of both."""
    kind = vector_type(m.element, 2 * m.lanes)
    low, high = (m.shuffled(both, "poison", kind, range(k, k + m.lanes)) for k in (0, m.lanes))
    return low, high
