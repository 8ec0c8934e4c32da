"""The functions of tiles: a few rows by a few vectors of sums of products, in registers while terms are added.

Guarantees: one function for each shape in a module, whoever calls it; a sum takes its terms one by one, in order, each with
one rounding where the machine can.
"""
from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from loopwright.ir.dataclass import dataclass
from loopwright.ir.types import I32
from loopwright.lower.codegen.machine import ATTRIBUTES, Machine, memory_type, vector_type
from loopwright.lower.codegen.small import in_turn
from loopwright.lower.codegen.text import Body, Carried, Function, Scope, branch, loop
from loopwright.lower.target import Target

LINE_BYTES = 64  # that a cache moves
TOGETHER = 4  # terms at a time, where registers are few
STRETCH, LINES = 8, 4  # terms, before which the caches are asked for so many lines of a result: memory brings as many meanwhile


@dataclass(frozen=True)
class TileShape:
    """`height` rows of `parts` vectors; how far apart lie rows of the left side, `distance`, and its terms, `pace` (None: told
    by calls); how many vectors the right side has for each term, `stride` (None: calls tell how many elements), how many bytes
    of what comes next to ask the caches for, whether a term is a pair of numbers of 16 bits, and whether to ask the caches for
    the rows of what the sums are made into, some lines before each stretch of terms."""

    dtype: np.dtype
    height: int
    parts: int
    lanes: int
    distance: int
    pace: int | None
    stride: int | None
    ahead: int
    pairs: bool
    nested: bool
    asks: bool

    @property
    def lines(self) -> int:
        """Of the caches, that a row of sums has."""
        return max(1, self.parts * self.lanes * self.dtype.itemsize // LINE_BYTES)

    @property
    def name(self) -> str:
        numbers = f"{self.height}x{self.parts}x{self.lanes}_{self.distance}_{self.pace}_{self.stride}_{self.ahead}"
        kinds = "_pairs" * self.pairs + "_nested" * self.nested + "_asks" * self.asks
        return f"lw_tile_{memory_type(self.dtype)}{kinds}_{numbers}"


@cache
def tile_function(shape: TileShape, target: Target) -> tuple[str, frozenset[str], frozenset[str]]:
    """`void (ptr left, ptr right, ptr sums, i64 count, i64 groups, i64 left step, i64 right step, i1 fresh, ...)`: sums[r, :]
    is the sum of left[r, k] * right[k, :] over `count` terms of each of some groups, which lie a step apart; added to what is
    there unless `fresh`. If they are `nested`, groups of groups and their steps stand before. `i64 apart`: between rows of
    sums; last `i64 pace`, `i64 stride`, `ptr ahead`, and `ptr result` and the bytes between its rows, `i64 result.apart`, where
    the shape asks for them.
    Its name, and what a module needs for it. All kernels of a module share it."""
    function = Function(set(), set())
    root, count = function.root, shape.height * shape.parts
    at_once = TOGETHER if target.is_short_of_registers else 2 if target.vector_registers - count >= 8 else 1
    # of the next terms, factors need registers, unless each is loaded in its turn
    together = at_once if shape.ahead or target.is_short_of_registers else 1
    terms = _Terms(shape, target, together, root.emit(f"and i64 %count, {-together}"))
    rows = _rows_of_sums(root, shape)
    zeros = ["zeroinitializer"] * count
    sums = terms.of_nested_groups(root, zeros) if shape.nested else terms.of_groups(root, zeros, ("%left", "%right"), "0")
    _store(root, shape, target, rows, sums)
    jumps = "i64 %jumps, i64 %left.jump, i64 %right.jump, " * shape.nested
    parameters = f"ptr noalias %left, ptr noalias %right, ptr noalias %sums, i64 %count, {jumps}i64 %groups, i64 %left.step, " \
        "i64 %right.step, i1 %fresh, i64 %apart" + ", i64 %pace" * (shape.pace is None) \
        + ", i64 %stride" * (shape.stride is None) + ", ptr %ahead" * bool(shape.ahead) \
        + ", ptr %result, i64 %result.apart" * shape.asks
    text = f"define internal void @{shape.name}({parameters}) noinline {ATTRIBUTES} {{\n{function.body()}\n  ret void\n}}"
    return shape.name, frozenset(function.declarations), frozenset((*function.constants, text))


@dataclass(frozen=True)
class _Terms:
    """The loops around the terms of a tile, `together` of them at a time up to `whole`. `sides`: where the left side is, the
    right one, and what to ask the caches for; `before`: how many terms are before these."""

    shape: TileShape
    target: Target
    together: int
    whole: str

    def of_nested_groups(self, scope: Scope, state: Sequence[str]) -> list[str]:
        """Of groups of groups: the outer ones lie a jump apart."""
        def body(inner: Scope, number: str, now: list[str]) -> list[str]:
            before = inner.emit(f"mul i64 {inner.emit(f'mul i64 {number}, %groups')}, %count") if self._counts else "0"
            return self.of_groups(inner, now, self._moved(inner, ("%left", "%right"), number, "jump"), before)
        return self._loop(scope, "0", "%jumps", 1, state, body)

    def of_groups(self, scope: Scope, state: Sequence[str], sides: Sequence[str], before: str) -> list[str]:
        return self._loop(scope, "0", "%groups", 1, state, lambda inner, at, now: self._group(inner, at, now, sides, before))

    def _group(self, scope: Scope, number: str, state: list[str], around: Sequence[str], before: str) -> list[str]:
        sides = self._moved(scope, around, number, "step")
        if self._counts:
            before = scope.emit(f"add i64 {before}, {scope.emit(f'mul i64 {number}, %count')}")
        if self.shape.ahead:
            past = scope.emit(f"mul i64 {before}, {self.shape.ahead}")
            sides.append(scope.emit(f"getelementptr i8, ptr %ahead, i64 {past}"))

        def some(inner: Scope, at: str, now: list[str]) -> list[str]:
            return self._some(inner, at, now, sides, self.together)

        def stretch(inner: Scope, at: str, now: list[str]) -> list[str]:
            end = inner.emit(f"add nsw i64 {at}, {STRETCH}")
            end = inner.call("i64", "llvm.smin.i64", [("i64", end), ("i64", self.whole)])
            self._ask_for_result(inner, inner.emit(f"udiv i64 {inner.emit(f'add i64 {before}, {at}')}, {STRETCH}"))
            return self._loop(inner, at, end, self.together, now, some)
        if self.shape.asks:
            state = self._loop(scope, "0", self.whole, STRETCH, state, stretch)
        else:
            state = self._loop(scope, "0", self.whole, self.together, state, some)
        if self.together == 1:
            return state
        return self._loop(scope, self.whole, "%count", 1, state, lambda inner, at, now: self._some(inner, at, now, sides, 1))

    def _some(self, scope: Scope, at: str, state: list[str], sides: Sequence[str], number: int) -> list[str]:
        machine = Machine(scope, 8 * self.shape.dtype.itemsize, self.shape.lanes, self.target)
        for k in range(number):
            state = _term(machine, self.shape, _at_term(scope, self.shape, sides, at, k), state)
        if self.shape.ahead:
            place = scope.emit(f"getelementptr i8, ptr {sides[2]}, i64 {scope.emit(f'mul nsw i64 {at}, {self.shape.ahead}')}")
            scope.run("llvm.prefetch.p0", [("ptr", place), ("i32", "0"), ("i32", "2"), ("i32", "1")])
        return state

    @property
    def _counts(self) -> bool:
        """Whether terms before are counted: what the caches are asked for follows from that."""
        return bool(self.shape.ahead) or self.shape.asks

    def _ask_for_result(self, scope: Scope, number: str) -> None:
        """The next rows of the tile, as long as there are any."""
        shape = self.shape
        rows = max(1, LINES // shape.lines)
        first = scope.emit(f"mul i64 {number}, {rows}")

        def ask(inner: Scope) -> Carried:
            place = inner.emit(f"getelementptr i8, ptr %result, i64 {inner.emit(f'mul i64 {first}, %result.apart')}")
            for _ in range(rows):
                for line in range(shape.lines):
                    at = inner.emit(f"getelementptr i8, ptr {place}, i64 {line * LINE_BYTES}")
                    inner.run("llvm.prefetch.p0", [("ptr", at), ("i32", "0"), ("i32", "2"), ("i32", "1")])
                place = inner.emit(f"getelementptr i8, ptr {place}, i64 %result.apart")
            return ()
        branch(scope, scope.emit(f"icmp ult i64 {first}, {shape.height}"), ask)

    def _moved(self, scope: Scope, sides: Sequence[str], number: str, step: str) -> list[str]:
        """Both sides, so many steps on."""
        element = memory_type(self.shape.dtype)
        return [scope.emit(f"getelementptr {element}, ptr {at}, i64 {scope.emit(f'mul i64 {number}, %{side}.{step}')}")
                for at, side in zip(sides, ("left", "right"), strict=False)]

    def _loop(self, scope: Scope, low: str, high: str, step: int, state: Sequence[str], body: Body) -> list[str]:
        kind = vector_type(memory_type(self.shape.dtype), self.shape.lanes)
        return loop(scope, low, high, str(step), [(kind, x) for x in state], body)


def _rows_of_sums(root: Scope, shape: TileShape) -> list[str]:
    """Where the rows of sums are; the caches are asked for them while terms are added."""
    rows = ["%sums"]
    for _ in range(1, shape.height):
        rows.append(root.emit(f"getelementptr {memory_type(shape.dtype)}, ptr {rows[-1]}, i64 %apart"))
    for row in rows:
        for past in range(0, shape.parts * shape.lanes * shape.dtype.itemsize, LINE_BYTES):
            line = root.emit(f"getelementptr i8, ptr {row}, i64 {past}")
            root.run("llvm.prefetch.p0", [("ptr", line), ("i32", "1"), ("i32", "3"), ("i32", "1")])
    return rows


def _store(root: Scope, shape: TileShape, target: Target, rows: Sequence[str], sums: Sequence[str]) -> None:
    """Store the sums, or add them to what is there."""
    element, bits = memory_type(shape.dtype), 8 * shape.dtype.itemsize
    kind = vector_type(element, shape.lanes)

    def stored(scope: Scope, fresh: bool) -> Carried:
        machine = Machine(scope, bits, shape.lanes, target)
        for k, total in enumerate(sums):
            row, part = divmod(k, shape.parts)
            at = scope.emit(f"getelementptr {element}, ptr {rows[row]}, i64 {part * shape.lanes}")
            if not fresh:
                before = scope.emit(f"load {kind}, ptr {at}, align {bits // 8}")
                total = machine.add(before, total) if shape.dtype.kind == "f" else machine.iadd(before, total)
            scope.do(f"store {kind} {total}, ptr {at}, align {bits // 8}")
        return ()
    branch(root, "%fresh", lambda scope: stored(scope, True), lambda scope: stored(scope, False))


def _at_term(scope: Scope, shape: TileShape, sides: Sequence[str], first: str, more: int) -> tuple[str, str]:
    """Where both sides are so many terms after one."""
    element = memory_type(shape.dtype)
    found = []
    for side, pace, unit, name in ((sides[0], shape.pace, element, "%pace"),
                                   (sides[1], shape.stride, vector_type(element, shape.lanes), "%stride")):
        unit = element if pace is None else unit
        at = scope.emit(f"add nsw i64 {first}, {more}") if pace is None else first
        place = at if pace == 1 else scope.emit(f"mul nsw i64 {at}, {name if pace is None else pace}")
        found.append(scope.emit(f"getelementptr {unit}, ptr {side}, i64 {place}"))
        if pace is not None and more:
            found[-1] = scope.emit(f"getelementptr {unit}, ptr {found[-1]}, i64 {more * pace}")
    return found[0], found[1]


def _term(machine: Machine, shape: TileShape, at: tuple[str, str], state: list[str]) -> list[str]:
    """One term of every sum of a tile."""
    scope, element, lanes = machine.scope, memory_type(shape.dtype), shape.lanes
    kind, (left, right) = vector_type(element, lanes), at
    places = [scope.emit(f"getelementptr {kind}, ptr {right}, i64 {part}") for part in range(shape.parts)]
    columns = [scope.emit(f"load {kind}, ptr {place}, align {machine.bits // 8}") for place in places]
    new: list[str] = []
    for row in range(shape.height):
        place = scope.emit(f"getelementptr {element}, ptr {left}, i64 {row * shape.distance}")
        factor = scope.emit(f"load {element}, ptr {place}, align {machine.bits // 8}")
        one = scope.emit(f"insertelement {kind} poison, {element} {factor}, i32 0")
        factor = scope.emit(f"shufflevector {kind} {one}, {kind} poison, <{lanes} x i32> zeroinitializer")
        for x, y in zip(columns, state[len(new):len(new) + shape.parts], strict=True):
            if shape.pairs:
                new.append(_pairs(machine, shape.dtype, factor, x, y))
            elif shape.dtype.kind == "f":
                new.append(machine.fma(factor, x, y))
            else:
                new.append(machine.iadd(machine.imul(factor, x), y))
        in_turn(scope, machine.target, kind, new[-shape.parts:])
    return new


_PAIRS = {16: "llvm.x86.avx512.pmaddw.d.512", 8: "llvm.x86.avx2.pmadd.wd", 4: "llvm.x86.sse2.pmadd.wd"}


def _pairs(machine: Machine, dtype: np.dtype, a: str, b: str, total: str) -> str:
    """`total` and the products of the halves of each lane's words: an instruction of AVX512-BF16, or of AVX512-VNNI,
    which LLVM makes of the sum of products and the addition where the machine has it."""
    scope, lanes, short = machine.scope, machine.lanes, "i16" if dtype == I32 else "bfloat"
    kind, halves = vector_type(memory_type(dtype), lanes), f"<{2 * lanes} x {short}>"
    both = [(halves, scope.emit(f"bitcast {kind} {x} to {halves}")) for x in (a, b)]
    if dtype == I32:
        return machine.iadd(scope.call(kind, _PAIRS[lanes], both), total)
    return scope.call(kind, "llvm.x86.avx512bf16.dpbf16ps.512", [(kind, total), *both])
