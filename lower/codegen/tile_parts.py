"""What the tile unit of AMX reads, as text: numbers of f32 in three parts of bf16, or bf16 as they are, in its order.

    void @lw_amx_rows3(ptr source, ptr target, i64 rows, i64 width, i64 apart, i64 terms, ptr odd)         parts of rows
    void @lw_amx_square3(ptr source, ptr target, i64 width, i64 terms, i64 columns, ptr odd)               of terms by columns
    void @lw_amx_rows1(...), @lw_amx_square1(...)                                                          bf16, never odd

A part has 8 of the 24 bits of a number, so that three say all of it.

Guarantees: where a number of f32 is not finite, or so large or small that its parts, or sums of their products, do not say the
same, `odd` becomes 1, whichever thread finds it. Past the terms, and past the columns, there are zeros.
"""
from __future__ import annotations

import struct
from functools import partial

from loopwright.lower.codegen.text import Carried, Scope, branch, loop

LANES, TERMS, TILE, LINE = 16, 32, 1 << 10, 64  # of a vector of f32; of a tile of bf16; bytes
LEAST, MOST = 2.0 ** -102, 2.0 ** 52  # of numbers whose last part is no denormal, and whose products' sums are finite
F, B, W, H = f"<{LANES} x float>", f"<{LANES} x i32>", f"<{TERMS} x i16>", f"<{LANES} x i16>"  # numbers, their bits, words
ROWS = "(ptr noalias %source, ptr noalias %target, i64 %rows, i64 %width, i64 %apart, i64 %terms, ptr %odd)"
SQUARE = "(ptr noalias %source, ptr noalias %target, i64 %width, i64 %terms, i64 %columns, ptr %odd)"


class _Seen:
    """The largest and the least size of numbers that are not zero, as bits, in each lane."""

    def __init__(self, most: str = "zeroinitializer", least: str = "splat (i32 -1)") -> None:
        self.carried = ((B, most), (B, least))

    def with_numbers(self, scope: Scope, bits: str) -> _Seen:
        (_, most), (_, least) = self.carried
        size = scope.emit(f"and {B} {bits}, splat (i32 {(1 << 31) - 1})")
        before = scope.emit(f"add {B} {size}, splat (i32 -1)")
        return _Seen(scope.call(B, f"llvm.umax.v{LANES}i32", [(B, most), (B, size)]),
                     scope.call(B, f"llvm.umin.v{LANES}i32", [(B, least), (B, before)]))

    def tell(self, scope: Scope) -> None:
        """Say whether parts do not say all of some number."""
        (_, most), (_, least) = self.carried
        large, small = (scope.call("i32", f"llvm.vector.reduce.{kind}.v{LANES}i32", [(B, x)])
                        for kind, x in (("umax", most), ("umin", least)))
        tests = f"icmp ugt i32 {large}, {_bits(MOST)}", f"icmp ult i32 {small}, {_bits(LEAST) - 1}"

        def odd(inner: Scope) -> Carried:
            inner.do("store atomic i32 1, ptr %odd monotonic, align 4")
            return ()
        branch(scope, scope.emit("or i1 " + ", ".join(map(scope.emit, tests))), odd, rare=True)


def _bits(x: float) -> int:
    return int.from_bytes(struct.pack("<f", x), "little")


def _split(scope: Scope, bits: str) -> list[str]:
    """The three parts of each number of a vector, in the upper half of its bits: each is what is left, rounded."""
    found = list[str]()
    for _ in range(2):
        up = scope.emit(f"add {B} {bits}, splat (i32 {1 << 15})")
        found.append(scope.emit(f"and {B} {up}, splat (i32 {-1 << 16})"))
        x, part = (scope.emit(f"bitcast {B} {v} to {F}") for v in (bits, found[-1]))
        bits = scope.emit(f"bitcast {F} {scope.emit(f'fsub {F} {x}, {part}')} to {B}")
    return [*found, bits]


def first_lanes(scope: Scope, count: str, lanes: int = LANES) -> str:
    """The mask of so many lanes, none if that is below zero, and all if it is beyond."""
    kind = f"<{lanes} x i32>"
    first = scope.emit(f"insertelement {kind} poison, i32 {scope.emit(f'trunc i64 {count} to i32')}, i32 0")
    many = scope.emit(f"shufflevector {kind} {first}, {kind} poison, {kind} zeroinitializer")
    steps = ", ".join(f"i32 {k}" for k in range(lanes))
    return scope.emit(f"icmp slt {kind} <{steps}>, {many}")


def _load(scope: Scope, at: str, count: str | None, kind: str = B) -> str:
    """A vector of so many numbers, past which there are zeros; None: all."""
    lanes, element = kind.strip("<>").split(" x ")
    size = str(int(element[1:]) // 8)
    if count is None:
        return scope.emit(f"load {kind}, ptr {at}, align {size}")
    mask = first_lanes(scope, count, int(lanes))
    return scope.call(kind, f"llvm.masked.load.v{lanes}{element}.p0",
                      [("ptr", at), ("i32", size), (f"<{lanes} x i1>", mask), (kind, "zeroinitializer")])


def at_byte(scope: Scope, base: str, count: str | int) -> str:
    """So many bytes on."""
    return scope.emit(f"getelementptr i8, ptr {base}, i64 {count}")


def rows_in_parts(root: Scope) -> None:
    """target[r, k // 32, part, k % 32] for source[r, k], rows of which are `width` numbers and `apart` bf16 apart."""
    whole = root.emit(f"and i64 %terms, -{TERMS}")
    odd_words = ", ".join(f"i32 {2 * k + 1}" for k in range(TERMS))

    def row(scope: Scope, r: str, state: list[str]) -> list[str]:
        source = at_byte(scope, "%source", scope.emit(f"mul i64 {scope.emit(f'mul i64 {r}, %width')}, 4"))
        target = at_byte(scope, "%target", scope.emit(f"mul i64 {scope.emit(f'mul i64 {r}, %apart')}, 2"))

        def square(inner: Scope, k: str, now: list[str], *, is_last: bool) -> list[str]:
            seen, halves = _Seen(*now), []
            for half in range(2):
                at = inner.emit(f"add i64 {k}, {half * LANES}")
                left = inner.emit(f"sub i64 %terms, {at}") if is_last else None
                x = _load(inner, at_byte(inner, source, inner.emit(f"mul i64 {at}, 4")), left)
                seen = seen.with_numbers(inner, x)
                halves.append(_split(inner, x))
            to = at_byte(inner, target, inner.emit(f"mul i64 {k}, 6"))
            for part, (low, high) in enumerate(zip(*halves, strict=True)):
                words = [inner.emit(f"bitcast {B} {x} to {W}") for x in (low, high)]
                made = inner.emit(f"shufflevector {W} {words[0]}, {W} {words[1]}, <{TERMS} x i32> <{odd_words}>")
                inner.do(f"store {W} {made}, ptr {at_byte(inner, to, part * LINE)}, align 64")
            return [x for _, x in seen.carried]
        for low, high, is_last in (("0", whole, False), (whole, "%terms", True)):
            state = loop(scope, low, high, str(TERMS), [(B, x) for x in state], partial(square, is_last=is_last))
        return state
    _Seen(*loop(root, "0", "%rows", "1", _Seen().carried, row)).tell(root)


def square_in_parts(root: Scope) -> None:
    """target[part, column // 16, k // 2, column % 16, k % 2] for source[k, column], of up to 32 terms and columns."""
    def pair(scope: Scope, k: str, state: list[str], *, is_whole: bool) -> list[str]:
        seen = _Seen(*state)
        for tile in range(2):
            both = []
            for second in range(2):
                at, count = scope.emit(f"add i64 {k}, {second}"), None
                if not is_whole:
                    left = scope.emit(f"sub i64 %columns, {tile * LANES}")
                    count = scope.emit(f"select i1 {scope.emit(f'icmp sge i64 {at}, %terms')}, i64 0, i64 {left}")
                place = at_byte(scope, "%source", scope.emit(f"mul i64 {scope.emit(f'mul i64 {at}, %width')}, 4"))
                x = _load(scope, at_byte(scope, place, tile * LANES * 4), count)
                seen = seen.with_numbers(scope, x)
                both.append(_split(scope, x))
            for part, (first, second_of) in enumerate(zip(*both, strict=True)):
                words = scope.emit(f"or {B} {scope.emit(f'lshr {B} {first}, splat (i32 16)')}, {second_of}")
                past = scope.emit(f"add i64 {scope.emit(f'mul i64 {k}, 32')}, {(2 * part + tile) * TILE}")
                to = at_byte(scope, "%target", past)
                scope.do(f"store {B} {words}, ptr {to}, align 64")
        return [x for _, x in seen.carried]

    def pairs(scope: Scope, *, is_whole: bool) -> Carried:
        made = loop(scope, "0", str(TERMS), "2", _Seen().carried, partial(pair, is_whole=is_whole))
        return [(B, x) for x in made]
    least = root.call("i64", "llvm.smin.i64", [("i64", "%terms"), ("i64", "%columns")])
    is_whole = root.emit(f"icmp sge i64 {least}, {TERMS}")
    made = branch(root, is_whole, partial(pairs, is_whole=True), partial(pairs, is_whole=False))
    _Seen(*made).tell(root)


# ---- bf16 -------------------------------------------------------------------------------------------
def rows_as_they_are(root: Scope) -> None:
    """target[r, k] for source[r, k], up to whole squares of terms."""
    def row(scope: Scope, r: str, _: list[str]) -> list[str]:
        source, target = (at_byte(scope, base, scope.emit(f"mul i64 {scope.emit(f'mul i64 {r}, {step}')}, 2"))
                          for base, step in (("%source", "%width"), ("%target", "%apart")))

        def square(inner: Scope, k: str, _: list[str]) -> list[str]:
            here = inner.emit(f"mul i64 {k}, 2")
            x = _load(inner, at_byte(inner, source, here), inner.emit(f"sub i64 %terms, {k}"), W)
            inner.do(f"store {W} {x}, ptr {at_byte(inner, target, here)}, align 64")
            return []
        loop(scope, "0", "%terms", str(TERMS), (), square)
        return []
    loop(root, "0", "%rows", "1", (), row)


def square_as_it_is(root: Scope) -> None:
    """target[column // 16, k // 2, column % 16, k % 2] for source[k, column], of up to 32 terms and columns."""
    def pair(scope: Scope, k: str, _: list[str]) -> list[str]:
        for tile in range(2):
            left, both = scope.emit(f"sub i64 %columns, {tile * LANES}"), []
            for second in range(2):
                at = scope.emit(f"add i64 {k}, {second}")
                count = scope.emit(f"select i1 {scope.emit(f'icmp sge i64 {at}, %terms')}, i64 0, i64 {left}")
                place = at_byte(scope, "%source", scope.emit(f"mul i64 {scope.emit(f'mul i64 {at}, %width')}, 2"))
                x = _load(scope, at_byte(scope, place, tile * LANES * 2), count, H)
                both.append(scope.emit(f"zext {H} {x} to {B}"))
            words = scope.emit(f"or {B} {both[0]}, {scope.emit(f'shl {B} {both[1]}, splat (i32 16)')}")
            to = at_byte(scope, "%target", scope.emit(f"add i64 {scope.emit(f'mul i64 {k}, 32')}, {tile * TILE}"))
            scope.do(f"store {B} {words}, ptr {to}, align 64")
        return []
    loop(root, "0", str(TERMS), "2", (), pair)
