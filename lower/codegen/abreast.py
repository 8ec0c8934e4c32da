"""Products of small matrices of a batch as text: the lanes of a vector are matrices.

    i1 @lw_abreast_f32(i64 count, i64 m, i64 n, i64 k, ptr a, i64 a.row, i64 a.term, ptr b, i64 b.column, i64 b.term, ptr c)
    i1 @lw_abreast_f64(...)                            as `tiny.py` says; nothing is done for few matrices, or without memory

As many matrices as there are lanes are transposed into scratch memory, multiplied number by number, and their products
transposed back.

Guarantees: nothing outside the matrices is read or written; an element's sum is made term by term, whatever else is in the
batch. There is at least one matrix, row, column and term.
"""
from __future__ import annotations

from functools import partial

import numpy as np

from loopwright.lower.codegen.interleaving import Lanes, added, interleaving_text, product
from loopwright.lower.codegen.machine import ATTRIBUTES
from loopwright.lower.codegen.small import element
from loopwright.lower.codegen.text import Carried, Scope, branch, loop, repeat
from loopwright.lower.target import Target


def name_of(dtype: np.dtype) -> str:
    """The function's name."""
    return f"lw_abreast_f{8 * dtype.itemsize}"


def abreast_text(dtype: np.dtype, target: Target) -> str:
    """The function and those that it calls, but for the scratch memory's."""
    lanes = Lanes(dtype, target)
    texts = [interleaving_text(lanes), _Whole(lanes).text()]
    return "\n".join([*sorted(lanes.declarations), *sorted(lanes.constants), *texts])


class _Whole:
    def __init__(self, lanes: Lanes) -> None:
        self.lanes, self.function = lanes, lanes.function()

    def text(self) -> str:
        root, lanes = self.function.root, self.lanes
        self.sizes = [product(root, *(f"%{x}" for x in sides)) for sides in (("m", "terms"), ("terms", "n"), ("m", "n"))]
        room, self.starts = "0", list[str]()
        for size in self.sizes:
            self.starts.append(room)
            room = added(root, room, added(root, size, lanes.count))
        many = root.emit(f"icmp sge i64 %count, {lanes.count // 2}")
        found, = branch(root, many, partial(self._with_scratch, room), otherwise=[("i1", "false")])
        header = f"i1 @{name_of(lanes.dtype)}(i64 %count, i64 %m, i64 %n, i64 %terms, ptr %a, i64 %a.row, i64 %a.term, " \
            "ptr %b, i64 %b.column, i64 %b.term, ptr %c)"
        return f"define internal {header} {ATTRIBUTES} {{\n{self.function.body()}\n  ret i1 {found}\n}}"

    def _with_scratch(self, room: str, scope: Scope) -> Carried:
        whole = product(scope, room, str(self.lanes.count * self.lanes.dtype.itemsize))
        scratch = scope.call("ptr", "lw_scratch_acquire", [("i64", whole)])
        found = scope.emit(f"icmp ne ptr {scratch}, null")
        branch(scope, found, partial(self._blocks, scratch))
        return [("i1", found)]

    def _blocks(self, scratch: str, scope: Scope) -> Carried:
        lanes = self.lanes
        places = [lanes.at(scope, scratch, start) for start in self.starts]

        def block(inner: Scope, at: str, state: list[str]) -> list[str]:
            left = inner.emit(f"sub i64 %count, {at}")
            count = inner.call("i64", "llvm.smin.i64", [("i64", left), ("i64", str(lanes.count))])
            a, b, c = (element(inner, lanes.number, f"%{x}", product(inner, at, size))
                       for x, size in zip("abc", self.sizes, strict=True))
            for place, source, size in zip(places[:2], (a, b), self.sizes[:2], strict=True):
                lanes.interleave(inner, place, source, size, count)
            loop(inner, "0", "%m", "1", (), partial(self._row, places))
            lanes.separate(inner, c, places[2], self.sizes[2], count)
            return []
        loop(scope, "0", "%count", str(lanes.count), (), block)
        scope.run("lw_scratch_release", [("ptr", scratch)])
        return ()

    def _row(self, places: list[str], scope: Scope, row: str, state: list[str]) -> list[str]:
        lanes, first, results = self.lanes, product(scope, row, "%a.row"), product(scope, row, "%n")

        def column(outer: Scope, at: str, state: list[str]) -> list[str]:
            def term(inner: Scope, state: list[str]) -> tuple[str, list[str]]:
                left, x, y, total = state
                factors = [lanes.load(inner, place, k) for place, k in zip(places, (x, y), strict=False)]
                left = added(inner, left, -1)
                following = [added(inner, x, "%a.term"), added(inner, y, "%b.term")]
                total = lanes.machine(inner).fma(factors[0], factors[1], total)
                return inner.emit(f"icmp ne i64 {left}, 0"), [left, *following, total]
            *_, total = repeat(outer, [("i64", "%terms"), ("i64", first), ("i64", product(outer, at, "%b.column")),
                                       (lanes.kind, "zeroinitializer")], term)
            lanes.store(outer, total, places[2], added(outer, results, at))
            return []
        loop(scope, "0", "%n", "1", (), column)
        return []
