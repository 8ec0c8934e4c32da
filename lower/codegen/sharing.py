"""Reductions whose points the pool shares out: blocks of them are folded each by itself, then what they gave.

Guarantees: which points a block has depends on how many there are, and on nothing else: bits do not depend on threads. Few
points are folded where they are.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from loopwright.ir.nest import Reduction
from loopwright.lower.codegen.context import Context, Value
from loopwright.lower.codegen.fold_states import Joint, State
from loopwright.lower.codegen.folds import cascade, folded, folding_of
from loopwright.lower.codegen.text import Carried, Scope, branch, loop
from loopwright.lower.codegen.work import work_of
from loopwright.lower.runtime.pool_text import THRESHOLD

MOST_BLOCKS = 128  # what they give lies on the stack; as many as the pool shares out at most
POINTS = 1 << 10  # a block has a multiple of these, where they lie side by side: whole vectors
TOGETHER = 16  # of what blocks gave, added up in a row

Given = Sequence[tuple[str, str]]  # LLVM type and register
Inside = Callable[[Context, Sequence[str], str, str], None]  # context, what was given, begin, end
Outline = Callable[[Context, Given, Inside], tuple[str, str]]  # the name of a function over a range, and its block


def fold_shared(context: Context, reductions: Sequence[Reduction], outline: Outline) -> list[Value]:
    """The values of reductions that share one pass, outside all loops. `outline` writes functions for the pool."""
    first, joint = reductions[0], folding_of(context, reductions)
    kernel, (index, extent), rest = context.kernel, first.over[0], first.over[1:]
    kinds, n = joint.types(context), kernel.extent(extent)
    each = kernel.extent(work_of([replace(r, over=((index, 1), *rest)) for r in reductions]))

    def here(scope: Scope) -> Carried:
        state = folded(context.at(scope), joint, first.over, first.lanes, first.unroll)
        return list(zip(kinds, state, strict=True))

    def in_blocks(scope: Scope) -> Carried:
        size = _size(scope, n, 1 if rest else POINTS)
        rounded = scope.emit(f"add i64 {n}, {scope.emit(f'sub i64 {size}, 1')}")
        count = scope.emit(f"sdiv i64 {rounded}, {size}")
        slots = [kernel.function.slot(MOST_BLOCKS, kind, 64) for kind in kinds]

        def some(inside: Context, given: Sequence[str], begin: str, end: str) -> None:
            *places, each_block, last = given

            def one(inner: Scope, at: str, state: list[str]) -> list[str]:
                low = inner.emit(f"mul i64 {at}, {each_block}")
                high = inner.call("i64", "llvm.smin.i64", [("i64", inner.emit(f"add i64 {low}, {each_block}")), ("i64", last)])
                fold = folding_of(inside, reductions)  # of this function
                found = folded(inside.at(inner), fold, first.over, first.lanes, first.unroll, (low, high))
                for kind, place, register in zip(kinds, places, found, strict=True):
                    inner.do(f"store {kind} {register}, ptr {_slot(inner, kind, place, at)}")
                return []
            loop(inside.scope, begin, end, "1", (), one)
        name, block = outline(context.at(scope), [*(("ptr", s) for s in slots), ("i64", size), ("i64", n)], some)
        work = scope.emit(f"mul i64 {each}, {size}")
        scope.run("lw_loop", [("ptr", name), ("ptr", block), ("i64", count), ("i64", work), ("i64", "1"), ("i64", "1")])
        return list(zip(kinds, _gathered(context, scope, joint, slots, count), strict=True))
    few = context.scope.emit(f"icmp slt i64 {context.scope.emit(f'mul i64 {n}, {each}')}, {THRESHOLD}")
    return joint.results(context, branch(context.scope, few, here, in_blocks))


def _size(scope: Scope, n: str, points: int) -> str:
    """How many positions of the first index a block has: a multiple of `points`."""
    share = scope.emit(f"sdiv i64 {scope.emit(f'add i64 {n}, {MOST_BLOCKS - 1}')}, {MOST_BLOCKS}")
    return scope.emit(f"and i64 {scope.emit(f'add i64 {share}, {points - 1}')}, {-points}")


def _slot(scope: Scope, kind: str, place: str, at: str) -> str:
    return scope.emit(f"getelementptr {kind}, ptr {place}, i64 {at}")


def _gathered(context: Context, scope: Scope, joint: Joint, slots: Sequence[str], count: str) -> State:
    """The fold of what the blocks gave, in their order."""
    kinds = joint.types(context)
    zero = list(zip(kinds, joint.zero(context), strict=True))

    def partial(inner: Scope, low: str, high: str, runs: bool) -> State:
        def body(within: Scope, at: str, state: list[str]) -> list[str]:
            found = [within.emit(f"load {kind}, ptr {_slot(within, kind, place, at)}")
                     for kind, place in zip(kinds, slots, strict=True)]
            return joint.merge(within, state, found, 1)
        return loop(inner, low, high, "1", zero, body, runs=runs)
    return cascade(scope, ("0", count), (TOGETHER,), zero, partial, lambda s, a, b: joint.merge(s, a, b, 1))
