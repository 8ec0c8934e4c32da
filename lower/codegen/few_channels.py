"""Convolutions of few input channels as text: lanes go along features, and a window's sum from row to row of it, each of which
lies along memory.

    void @lw_few_channels_f32(i64 numbers..., ptr x, ptr w, ptr out, ptr error)         the arguments of `few_features.py`
    void @lw_few_channels_f64(...)

Nothing of an image is copied but for its padding: tiles are panels of features by pixels, whose numbers are any distance apart.

Guarantees: as `few_features.py` says.
"""
from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from loopwright.lower.codegen import small
from loopwright.lower.codegen.few_features import rows_text
from loopwright.lower.codegen.interleaving import added, product
from loopwright.lower.codegen.machine import ATTRIBUTES, memory_type
from loopwright.lower.codegen.small import TOGETHER, element
from loopwright.lower.codegen.text import Function, Scope, loop
from loopwright.lower.target import Target

BY_ROWS = ("row", "column", "channel", "feature")  # the order of the kernel's axes


def few_channels_text(dtype: np.dtype, target: Target, declarations: set[str], constants: set[str]) -> str:
    """The function, and those that it calls but for the pool's and the scratch memory's."""
    tiles = [_Windows(dtype, target, v, Function(declarations, constants)).text()
             for v in small.widths_of(target) if v <= small.widest(target)]
    rows = partial(_call_tiles, dtype, target)
    return "\n".join([*tiles, rows_text(_name_of(dtype), dtype, BY_ROWS, rows, declarations, constants)])


def _name_of(dtype: np.dtype) -> str:
    return f"lw_few_channels_f{8 * dtype.itemsize}"


def _call_tiles(dtype: np.dtype, target: Target, scope: Scope, base: str, line: str, at: str, count: str) -> None:
    """Each row of pixels by panels of features."""
    kind, run = memory_type(dtype), product(scope, "%columns", "%channels")
    below, step = product(scope, "%spread", line), product(scope, "%right", "%channels")

    def row(inner: Scope, k: str, state: list[str]) -> list[str]:
        a = element(inner, kind, base, product(inner, k, "%down", line))
        c = element(inner, kind, "%out", product(inner, added(inner, at, k), "%wide", "%features"))

        def panel(last: Scope, vectors: int, first: str, left: str) -> None:
            b, sums = (element(last, kind, x, first) for x in ("%w", c))
            last.do(f"call void @{_name_of(dtype)}_{vectors}(i64 %rows, i64 {run}, i64 {below}, ptr {a}, i64 {step}, ptr {b}, "
                    f"i64 %features, ptr {sums}, i64 %wide, i64 {left})")
        small.panels(inner, dtype, target, small.widest(target), ("0", "%features"), panel)
        return []
    loop(scope, "0", count, "1", (), row)


class _Windows(small.Tiles):
    """The function of a panel of so many vectors of features: the pixels of a row, and windows of `rows` rows with `run`
    numbers each, which lie `below` numbers apart."""

    def text(self) -> str:
        """Tiles from the first pixel to the last, as those of products."""
        root, pixel, heights = self.function.root, "0", small.heights(self.target, self.vectors)
        for height, lower in zip(heights, [*heights[1:], 0], strict=True):
            end = root.emit(f"sub i64 %m, {self.left(root, height, lower)}")
            pixel, = loop(root, pixel, end, str(height), [("i64", pixel)], partial(self._tile, height))
        header = f"void @{_name_of(self.dtype)}_{self.vectors}(i64 %rows, i64 %run, i64 %below, ptr noalias %a, i64 %a.row, " \
            "ptr noalias %b, i64 %n, ptr noalias %c, i64 %m, i64 %left)"
        return f"define internal {header} noinline {ATTRIBUTES} {{\n{self.function.body()}\n  ret void\n}}"

    def _tile(self, height: int, scope: Scope, at: str, done: list[str]) -> list[str]:
        """The sums of some pixels; where they end."""
        pixels = self.rows(scope, height, at)
        left = [self.at(scope, "%a", product(scope, pixel, "%a.row")) for pixel in pixels]
        zeros = [(self.kind, "zeroinitializer")] * (height * self.vectors)
        self.store(scope, self.places(scope, pixels), loop(scope, "0", "%rows", "1", zeros, partial(self._line, left)))
        return [added(scope, at, height)]

    def _line(self, left: Sequence[str], scope: Scope, row: str, sums: list[str]) -> list[str]:
        """The terms of a row of the windows."""
        below = product(scope, row, "%below")
        left = [self.at(scope, x, below) for x in left]
        right = self.at(scope, "%b", product(scope, row, "%run", "%n"))
        first, end = "0", scope.emit(f"and i64 %run, {-TOGETHER}")
        for count, last in ((TOGETHER, end), (1, "%run")):
            terms = partial(self.terms, left, right, "%n", count)
            sums, first = loop(scope, first, last, str(count), [(self.kind, x) for x in sums], terms), last
        return sums
