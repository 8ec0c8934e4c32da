"""Square matrices in registers, transposed, and a function that does it from memory to memory.

    transposed(scope, "<16 x float>", rows)     16 registers, the columns of a matrix of 16 registers

Rows go in pairs that lie a power of 2 apart; of each pair two shuffles make two other rows. They are those that processors have
an instruction for, without a register that says what goes where: parts of 128 bits are interleaved within themselves, and whole
parts change places after it.

Guarantees: bits move as they are, those of NaNs too.
"""
from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial

from loopwright.ir.dataclass import dataclass
from loopwright.lower.codegen.machine import ATTRIBUTES, suffix, vector_type
from loopwright.lower.codegen.small import first_lanes
from loopwright.lower.codegen.text import Carried, Function, Scope, branch, loop
from loopwright.lower.target import Target

PART = 128  # bits
_FLOATS = {"half": 16, "bfloat": 16, "float": 32, "double": 64}  # of an element


def transposed(scope: Scope, kind: str, rows: Sequence[str]) -> list[str]:
    """The columns of a matrix that has as many rows as `kind`, a type of vectors, has lanes; of the matrices side by side in
    fewer rows, so many columns each."""
    (lanes, bits), found, distance = _shape(kind), list(rows), 1
    count = len(rows)
    part = min(count, PART // bits)
    while distance < count:
        for k in range(count):
            if k & distance == 0:
                pair = f"{kind} {found[k]}, {kind} {found[k + distance]}"
                found[k], found[k + distance] = (scope.emit(f"shufflevector {pair}, <{lanes} x i32> <{order}>")
                                                 for order in _orders(lanes, part, distance, count))
        distance *= 2
        if distance < count:
            found = [_apart(scope, kind, x) for x in found]
    return [found[_mirrored(k, part)] for k in range(count)]


def _shape(kind: str) -> tuple[int, int]:
    """How many elements, of how many bits each."""
    lanes, element = kind[1:-1].split(" x ")
    return int(lanes), _FLOATS.get(element) or int(element[1:])


def _apart(scope: Scope, kind: str, register: str) -> str:
    """The same register, behind which LLVM does not look: it would seek one shuffle in place of several in a row, in vain, for
    half of the time that such a loop takes to compile."""
    lanes, bits = _shape(kind)
    floats = f"<{lanes * bits // 32} x float>"
    if kind == floats:
        return scope.call(kind, f"llvm.arithmetic.fence.{suffix(kind)}", [(kind, register)])
    fenced = _apart(scope, floats, scope.emit(f"bitcast {kind} {register} to {floats}"))
    return scope.emit(f"bitcast {floats} {fenced} to {kind}")


@cache
def _orders(lanes: int, part: int, distance: int, count: int) -> tuple[str, str]:
    """What two of so many rows become: their elements by number, those of the second after the first's."""
    if distance < part:  # within parts: blocks of `distance` elements of the lower halves in turn, then of the upper halves
        blocks = [first + k for first in range(0, lanes, part) for k in range(0, part // 2, distance)]
        low = [x for k in blocks for x in (*range(k, k + distance), *range(lanes + k, lanes + k + distance))]
        step = part // 2
    else:  # every other part of both, in each matrix, then the rest
        low = [of + matrix + first + k for matrix in range(0, lanes, count) for of in (0, lanes)
               for first in range(0, count, 2 * part) for k in range(part)]
        step = part
    first, second = (", ".join([f"i32 {x + more}" for x in low]) for more in (0, step))
    return first, second


def _mirrored(k: int, part: int) -> int:
    """Which row is the column k: interleaving leaves them in the order of the reversed bits of their places within a part."""
    bits = part.bit_length() - 1
    return k - k % part + sum(1 << bits - 1 - bit for bit in range(bits) if k >> bit & 1)


@cache
def turning_function(element: str, lanes: int, pace: int, target: Target) -> tuple[str, frozenset[str], frozenset[str]]:
    """`void (ptr from, i64 apart, i64 lines, i64 places, i64 numbers, ptr to)`: so many numbers of each of some lines, which
    lie `apart`, become as many rows of the lines' numbers, which lie a pace apart; both count elements. Rows have so many
    `places`, to whole vectors; the last line is in those for which there is none. With masks no more is read than there is.
    Its name, and what a module needs for it."""
    function, name = Function(set(), set()), f"lw_turned_{element}x{lanes}_{pace}"
    squares = _Squares(element, lanes, pace, target)

    def along(scope: Scope, place: str, state: list[str]) -> list[str]:
        loop(scope, "0", "%numbers", str(lanes), (), partial(squares.square, place))
        return []
    loop(function.root, "0", "%places", str(lanes), (), along)
    parameters = "ptr noalias %from, i64 %apart, i64 %lines, i64 %places, i64 %numbers, ptr noalias %to"
    text = f"define internal void @{name}({parameters}) noinline {ATTRIBUTES} {{\n{function.body()}\n  ret void\n}}"
    return name, frozenset(function.declarations), frozenset((*function.constants, text))


@dataclass(frozen=True)
class _Squares:
    """Squares of lines and numbers, as that function moves them."""

    element: str
    lanes: int
    pace: int
    target: Target

    @property
    def kind(self) -> str:
        return vector_type(self.element, self.lanes)

    @property
    def align(self) -> int:
        return _shape(self.kind)[1] // 8

    def square(self, place: str, scope: Scope, at: str, state: list[str]) -> list[str]:
        """From a line's number on, to that place in the number's row."""
        first = self._moved(scope, self._moved(scope, "%from", scope.emit(f"mul i64 {place}, %apart")), at)
        to = self._moved(scope, self._moved(scope, "%to", place), scope.emit(f"mul i64 {at}, {self.pace}"))
        lines, numbers = (scope.emit(f"sub i64 {count}, {before}") for count, before in (("%lines", place), ("%numbers", at)))
        enough = [scope.emit(f"icmp sge i64 {x}, {self.lanes}") for x in (lines, numbers)]
        both = scope.emit(f"and i1 {enough[0]}, {enough[1]}")
        branch(scope, both, partial(self._whole, first, to), partial(self._part, first, to, lines, numbers))
        return []

    def _whole(self, first: str, to: str, scope: Scope) -> Carried:
        lines = []
        for _ in range(self.lanes):
            lines.append(scope.emit(f"load {self.kind}, ptr {first}, align {self.align}"))
            first = self._moved(scope, first, "%apart")
        return self._store(scope, to, lines)

    def _part(self, first: str, to: str, lines: str, numbers: str, scope: Scope) -> Carried:
        """With the last line in the place of those behind it."""
        last, mask = scope.emit(f"sub i64 {lines}, 1"), first_lanes(scope, numbers, self.lanes)
        found = []
        for k in range(self.lanes):
            line = scope.call("i64", "llvm.smin.i64", [("i64", str(k)), ("i64", last)])
            place = self._moved(scope, first, scope.emit(f"mul i64 {line}, %apart"))
            found.append(scope.call(self.kind, f"llvm.masked.load.{suffix(self.kind)}.p0", [
                ("ptr", place), ("i32", str(self.align)), (f"<{self.lanes} x i1>", mask), (self.kind, "zeroinitializer")])
                if self.target.has_masks else scope.emit(f"load {self.kind}, ptr {place}, align {self.align}"))
        return self._store(scope, to, found)

    def _store(self, scope: Scope, to: str, lines: Sequence[str]) -> Carried:
        for k, column in enumerate(transposed(scope, self.kind, lines)):
            scope.do(f"store {self.kind} {column}, ptr {self._moved(scope, to, str(k * self.pace))}, align {self.align}")
        return ()

    def _moved(self, scope: Scope, pointer: str, by: str) -> str:
        return scope.emit(f"getelementptr {self.element}, ptr {pointer}, i64 {by}")
