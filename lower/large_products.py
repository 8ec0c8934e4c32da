"""Large matrix products as text: the program of a product in blocks, for each form.

    void @lw_large_f32_nn(ptr a, ptr b, ptr c, i64 m, i64 k, i64 n, ptr error)
    void @lw_large_f32_tn(..., i64 k, i64 m, i64 n, ptr error)      C[m, n] = A B, all contiguous; t: that side is stored
                                                                    transposed; so _nt, _tt, f64
    void @lw_large_f32_nn_few(...)                                  the same of few rows by the tile unit

Guarantees: those of any kernel. Where scratch memory cannot be had the first number at `error` becomes another, and C is not
made.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from loopwright.ir.dims import Extent, symbol
from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.nest import For, Nest, Statement
from loopwright.ir.ops.contraction import dot_general
from loopwright.ir.types import ArrayType
from loopwright.lower.codegen.nests import emit_nest, emit_other_way
from loopwright.lower.codegen.product_sizes import has_few_rows
from loopwright.lower.codegen.text import Scope
from loopwright.lower.rules import default_schedule, few_rows_schedule
from loopwright.lower.scheduling import build_nest, with_usual
from loopwright.lower.target import Target

M, N, K = (symbol(name) for name in "mnk")


def name_of(dtype: np.dtype, form: tuple[bool, bool]) -> str:
    """The function for one form."""
    return f"lw_large_f{8 * dtype.itemsize}_{''.join('nt'[side] for side in form)}"


def few_rows_of(name: str) -> str:
    """The function for few rows."""
    return f"{name}_few"


def call_large(scope: Scope, dtype: np.dtype, form: tuple[bool, bool], places: Sequence[str], sizes: Mapping[str, str],
               error: str, few_rows: str | None = None) -> None:
    """Call the function of a form; `sizes`: m, n and k; few_rows: whether to call that for these, where there is one."""
    given = [*(f"ptr {x}" for x in places), *(f"i64 {sizes[s]}" for s in _product(dtype, form).symbols), f"ptr {error}"]
    function = f"@{name_of(dtype, form)}"
    if few_rows is not None:
        function = scope.emit(f"select i1 {few_rows}, ptr {few_rows_of(function)}, ptr {function}")
    scope.do(f"call void {function}({', '.join(given)})")


def large_products_text(dtype: np.dtype, target: Target, forms: Iterable[tuple[bool, bool]], declarations: set[str],
                        constants: set[str]) -> str:
    """The functions for some forms. They call the pool's and the scratch memory's."""
    texts = []
    for form in forms:
        region, name = _product(dtype, form), name_of(dtype, form)
        nest = _nest(region, target, name)
        made = [emit_nest(nest, target)]
        if nest.instead is not None and has_few_rows(form):
            few = build_nest(region, few_rows_schedule(region, target), few_rows_of(name)).nest
            made.append(emit_other_way(replace(few, instead=nest.instead), target, name))
        for x in made:
            declarations |= x.declarations
            constants |= x.globals
            texts.append(x.text)
    return "\n".join(texts)


def _nest(region: Graph, target: Target, name: str) -> Nest:
    made = build_nest(region, default_schedule(region, target), name)
    nest = with_usual(region, made, partial(default_schedule, region, replace(target, has_tiles=False)),
                      has_unit=target.has_tiles).nest
    usual = nest.instead

    def instead() -> Nest:
        assert usual is not None
        made = usual()
        return replace(made, body=_shared(made.body))
    return replace(nest, body=_shared(nest.body), instead=None if usual is None else instead)


def _shared(body: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """The blocks of columns, in which threads share out the copy of the columns' factors, too, if they do not share columns."""
    def blocks(s: Statement) -> Statement:
        return s.with_body(tuple([replace(x, parallel=True) if isinstance(x, For) else x for x in s.body])) \
            if isinstance(s, For) else s
    return tuple(map(blocks, body))


def _product(dtype: np.dtype, form: tuple[bool, bool]) -> Graph:
    """The region of one product, whose sizes are symbols."""
    sides: list[tuple[Extent, Extent]] = [(M, K), (K, N)]
    a, b = (Value(ArrayType(shape[::-1] if turned else shape, dtype)) for shape, turned in zip(sides, form, strict=True))
    terms = 0 if form[0] else 1, 1 if form[1] else 0
    c = Value(ArrayType((M, N), dtype))
    return Graph((a, b), (Node(dot_general, (a, b), {"contract": (terms,), "batch": (), "dtype": None}, (c,)),), (c,))
