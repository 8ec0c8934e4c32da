"""Products of f32 in the tile unit of AMX, which multiplies bf16: each number is the sum of three of them, and of the nine
products of the parts of two numbers the six largest are added up in f32.

    void @lw_amx_products3(ptr left, ptr right, ptr sums, i64 rows, i64 squares, ...)         see `_products`
    void @lw_amx_products1(...)                                                               of bf16, as they are

What is left out of a product is at most its last bit, as a rule a quarter of it; and it takes fewer additions to make a sum, 32
terms of which meet before they are added to it: its error is a third of what the same sum has in f32, one term after another.

Guarantees: an element's sum does not depend on the tile that it is in. Denormal bf16 are zeros.
"""
from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from loopwright.ir.dims import floordiv, product
from loopwright.ir.loops import Load
from loopwright.ir.nest import Block, Contract, Parts, Statement
from loopwright.lower.codegen import interleaving
from loopwright.lower.codegen.addresses import locate, offset_of
from loopwright.lower.codegen.context import Context
from loopwright.lower.codegen.machine import ATTRIBUTES
from loopwright.lower.codegen.spans import Span
from loopwright.lower.codegen.text import Carried, Function, Scope, branch, loop
from loopwright.lower.codegen.tile_parts import (
    LANES,
    LINE,
    ROWS,
    SQUARE,
    TERMS,
    TILE,
    F,
    at_byte,
    first_lanes,
    rows_as_they_are,
    rows_in_parts,
    square_as_it_is,
    square_in_parts,
)
from loopwright.lower.tiling import FULL, PARTS, WASTE, every

ODD = "odd"  # the buffer of what threads find out
AHEAD = 12  # lines of the next panel that each square of terms asks for
SMALL = (2, 0), (1, 0), (1, 1), (0, 1), (0, 2)  # which parts of both sides are multiplied first, for their sums are small
LARGE = ((0, 0),)
Pairs = Sequence[tuple[int, int]]
CONFIG = "lw_amx_config"


def with_tiles(function: Function) -> tuple[str, str]:
    """What a function does before and after its tiles' products: it says how large tiles are, and that there are none."""
    columns, lines = ", ".join(["i16 64"] * 8 + ["i16 0"] * 8), ", ".join(["i8 16"] * 8 + ["i8 0"] * 8)
    function.constants.add(f"@{CONFIG} = internal constant <{{ i8, [15 x i8], [16 x i16], [16 x i8] }}> <{{ i8 1, "
                           f"[15 x i8] zeroinitializer, [16 x i16] [{columns}], [16 x i8] [{lines}] }}>, align 64")
    function.declare("void", "llvm.x86.ldtilecfg", [("ptr", "")])
    function.declare("void", "llvm.x86.tilerelease", [])
    return f"call void @llvm.x86.ldtilecfg(ptr @{CONFIG})", "call void @llvm.x86.tilerelease()"


def amx_functions(function: Function, parts: int = PARTS) -> None:
    """Let a module have the functions for numbers of so many parts. Products are called between what `with_tiles` says."""
    rows, square = (rows_in_parts, square_in_parts) if parts > 1 else (rows_as_they_are, square_as_it_is)
    texts = ("rows", ROWS, rows), ("square", SQUARE, square), ("products", PRODUCTS, partial(_products, parts=parts))
    for name, given, text in texts:
        own = Function(function.declarations, function.constants)
        text(own.root)
        function.constants.add(f"define internal void @lw_amx_{name}{parts}{given} noinline {ATTRIBUTES} {{\n{own.body()}\n"
                               "  ret void\n}")


# ---- products ---------------------------------------------------------------------------------------
PRODUCTS = "(ptr noalias %left, ptr noalias %right, ptr noalias %sums, i64 %rows, i64 %squares, i64 %jumps, i64 %left.jump, " \
    "i64 %right.jump, i64 %groups, i64 %left.step, i64 %right.step, i64 %across, i64 %apart, i1 %fresh, i1 %narrow, ptr %ahead)"


def _products(root: Scope, parts: int) -> None:
    """sums[r, :] += the products of `rows` rows with a panel of up to 32 columns, or 16 if it is narrow: of `squares` terms, 32
    in each, in groups, and groups of groups, which lie a step and a jump apart; `across` bytes are between rows of the left
    side, `apart` between those of the sums, which are set if `fresh`. The caches are asked for what is
    `ahead`, unless that is null."""
    whole = root.emit(f"and i64 {root.emit(f'add i64 %rows, {LANES - 1}')}, -{TERMS}")  # 16 or less make half a tile

    def tiles(scope: Scope, r: str, height: int) -> list[str]:
        narrow, wide = (partial(_tile, r=r, size=(height, width), parts=parts) for width in (1, 2))
        branch(scope, "%narrow", narrow, wide)
        return []
    loop(root, "0", whole, str(TERMS), (), lambda scope, r, _: tiles(scope, r, 2))
    loop(root, whole, "%rows", str(TERMS), (), lambda scope, r, _: tiles(scope, r, 1))


def _tile(scope: Scope, r: str, size: tuple[int, int], parts: int) -> Carried:
    """Sums of so many tiles below and beside each other, in registers."""
    height, width = size
    left = at_byte(scope, "%left", scope.emit(f"mul i64 {r}, %across"))
    sums = at_byte(scope, "%sums", scope.emit(f"mul i64 {r}, %apart"))
    lower = [scope.emit(f"mul i64 {x}, {LANES}") for x in ("%across", "%apart")]
    places = [(2 * row + column, at_byte(scope, at_byte(scope, sums, lower[1]) if row else sums, column * LINE))
              for row in range(height) for column in range(width)]

    for tile, _ in places:
        scope.run("llvm.x86.tilezero", [("i8", str(tile))])
    is_asked = scope.emit("icmp ne ptr %ahead, null")
    ahead = at_byte(scope, "%ahead", scope.emit(f"mul i64 {scope.emit(f'mul i64 {r}, %squares')}, {AHEAD * LINE // TERMS}"))

    def ask(inner: Scope, k: str) -> Carried:
        soon = at_byte(inner, ahead, inner.emit(f"mul i64 {k}, {AHEAD * LINE}"))
        for line in range(AHEAD):
            place = at_byte(inner, soon, line * LINE)
            inner.run("llvm.prefetch.p0", [("ptr", place), ("i32", "0"), ("i32", "2"), ("i32", "1")])
        return ()

    def all_terms(order: Pairs, asks: bool) -> None:
        def jump(inner: Scope, j: str, _: list[str]) -> list[str]:
            loop(inner, "0", "%groups", "1", (), partial(group, sides=_moved(inner, (left, "%right"), j, "jump")))
            return []

        def group(inner: Scope, g: str, _: list[str], sides: Sequence[str]) -> list[str]:
            loop(inner, "0", "%squares", "1", (), partial(square, sides=_moved(inner, sides, g, "step")))
            return []

        def square(inner: Scope, k: str, _: list[str], sides: Sequence[str]) -> list[str]:
            if asks:
                branch(inner, is_asked, partial(ask, k=k))
            steps = (inner.emit(f"mul i64 {k}, {size}") for size in (parts * LINE, 2 * parts * TILE))
            a, b = (at_byte(inner, side, step) for side, step in zip(sides, steps, strict=True))
            _square(inner, (a, at_byte(inner, a, lower[0])), b, height, width, order)
            return []
        loop(scope, "0", "%jumps", "1", (), jump)
    if parts > 1:
        all_terms(SMALL, asks=True)
    all_terms(LARGE, asks=parts == 1)
    _store(scope, places, sums, height, width)
    return ()


def _moved(scope: Scope, sides: Sequence[str], number: str, step: str) -> list[str]:
    """Both sides, so many steps on."""
    return [at_byte(scope, at, scope.emit(f"mul i64 {number}, %{side}.{step}"))
            for at, side in zip(sides, ("left", "right"), strict=True)]


def _store(scope: Scope, places: Sequence[tuple[int, str]], sums: str, height: int, width: int) -> None:
    """Store the sums, or add them to what is there."""
    def fresh(inner: Scope) -> Carried:
        for tile, at in places:
            inner.run("llvm.x86.tilestored64", [("i8", str(tile)), ("ptr", at), ("i64", "%apart")])
        return ()

    def added(inner: Scope) -> Carried:
        kept = inner.function.slot(4 * TILE, "i8", 64)
        for tile, _ in places:
            to = at_byte(inner, kept, tile // 2 * 2 * TILE + tile % 2 * LINE)
            inner.run("llvm.x86.tilestored64", [("i8", str(tile)), ("ptr", to), ("i64", str(2 * LINE))])

        def row(here: Scope, r: str, _: list[str]) -> list[str]:
            to = at_byte(here, sums, here.emit(f"mul i64 {r}, %apart"))
            of = at_byte(here, kept, here.emit(f"mul i64 {r}, {2 * LINE}"))
            for column in range(width):
                at = at_byte(here, to, column * LINE)
                before = here.emit(f"load {F}, ptr {at}, align 4")
                more = here.emit(f"load {F}, ptr {at_byte(here, of, column * LINE)}, align 64")
                here.do(f"store {F} {here.emit(f'fadd {F} {before}, {more}')}, ptr {at}, align 4")
            return []
        loop(inner, "0", str(height * LANES), "1", (), row)
        return ()
    branch(scope, "%fresh", fresh, added)


def _square(scope: Scope, rows: Sequence[str], right: str, height: int, width: int, order: Pairs) -> None:
    """Products of 32 terms: of these parts."""
    there: dict[int, int] = {}  # which part each register has

    def loaded(tile: int, part: int, at: str, stride: str) -> None:
        if there.get(tile) != part:
            there[tile] = part
            scope.run("llvm.x86.tileloadd64", [("i8", str(tile)), ("ptr", at), ("i64", stride)])
    before = -1
    for of_left, of_right in order:
        pairs = [(row, column) for row in range(height) for column in range(width)]
        for row, column in pairs if before != of_left else sorted(pairs, key=lambda x: x[1]):
            loaded(6 + column, of_right, at_byte(scope, right, (2 * of_right + column) * TILE), str(LINE))
            loaded(4 + row, of_left, at_byte(scope, rows[row], of_left * LINE), "%across")
            scope.run("llvm.x86.tdpbf16ps", [("i8", str(x)) for x in (2 * row + column, 4 + row, 6 + column)])
        before = of_left


def suits(context: Context, body: Sequence[Statement]) -> str:
    """Whether all products have so many rows, columns and terms that tiles are full enough."""
    scope, found = context.scope, "true"
    products = [s for s in every(body) if isinstance(s, Contract) and s.unit]
    for sizes in dict.fromkeys((s.rows.extent, s.columns.extent, s.over[-1].extent) for s in products):
        found = scope.emit(f"and i1 {found}, {fill_tiles(scope, [context.kernel.extent(n) for n in sizes])}")
    return found


def fill_tiles(scope: Scope, sizes: Sequence[str]) -> str:
    """Whether so many rows, columns and terms do: see `tiling.may_fill`."""
    full = [scope.emit(f"and i64 {scope.emit(f'add i64 {n}, {size - 1}')}, -{size}")
            for n, size in zip(sizes, FULL, strict=True)]
    done, there = (scope.emit(f"mul i64 {interleaving.product(scope, *of)}, {times}")
                   for of, times in zip((full, sizes), WASTE, strict=True))
    return scope.emit(f"icmp sle i64 {done}, {there}")


def store_sums(scope: Scope, sums: str, to: str, rows: str, columns: str) -> None:
    """Store rows of up to 32 sums, a line of two vectors each, to where rows are %n numbers apart."""
    def row(inner: Scope, r: str, state: list[str]) -> list[str]:
        line = at_byte(inner, to, inner.emit(f"mul i64 {inner.emit(f'mul i64 {r}, %n')}, 4"))
        of = at_byte(inner, sums, inner.emit(f"mul i64 {r}, {2 * LINE}"))
        for half in range(2):
            x = inner.emit(f"load {F}, ptr {at_byte(inner, of, half * LINE)}, align 64")
            mask = first_lanes(inner, inner.emit(f"sub i64 {columns}, {half * LANES}"))
            inner.run(f"llvm.masked.store.v{LANES}f32.p0", [(F, x), ("ptr", at_byte(inner, line, half * LINE)), ("i32", "4"),
                                                            (f"<{LANES} x i1>", mask)])
        return []
    loop(scope, "0", rows, "1", (), row)


# ---- statements -------------------------------------------------------------------------------------
def divide(context: Context, s: Parts, terms: Span, rows: Span, columns: Span) -> None:
    """Do a statement of parts; spans: of its blocks."""
    kernel, scope = context.kernel, context.scope
    amx_functions(kernel.function, s.parts)
    here = context.bind_index(s.terms.index.name, terms[0], scope)
    for block, span in ((s.rows, rows), (s.columns, columns)):
        here = here if block is None else here.bind_index(block.index.name, span[0], scope)
    source = kernel.buffers[str(s.value.array)], tuple([kernel.terms.of(x) for x in s.value.index])
    steps = offset_of(here, *source)[0]
    along = s.terms.index if s.rows is None else s.rows.index
    width = kernel.extent(floordiv(steps.get(kernel.terms.of(along), 0), s.times))
    target = locate(here, kernel.buffers[s.target], (kernel.terms.of(s.at),)).pointer

    def length(span: Span) -> str:
        return span[1] if span[0] == "0" else scope.emit(f"sub i64 {span[1]}, {span[0]}")
    given = f"ptr {locate(here, *source).pointer}, ptr {target}"
    count, odd = length(terms), kernel.pointers[ODD]
    if s.columns is None:
        many = scope.emit(f"mul i64 {length(rows)}, {s.times}")
        between = f"i64 {width}, i64 {kernel.extent(s.apart)}"
        scope.do(f"call void @lw_amx_rows{s.parts}({given}, i64 {many}, {between}, i64 {count}, ptr {odd})")
    else:
        scope.do(f"call void @lw_amx_square{s.parts}({given}, i64 {width}, i64 {count}, i64 {length(columns)}, ptr {odd})")


def multiply(context: Context, s: Contract, rows: Span, terms: Span, runs: Sequence[Sequence[Block]], fresh: str) -> None:
    """The sums of a block of rows and a panel of columns, over two runs of blocks around the innermost."""
    kernel, scope = context.kernel, context.scope
    number = 1 if s.pairs else PARTS
    amx_functions(kernel.function, number)
    kernel.function.around(*with_tiles(kernel.function))
    sums = Load(s.buffer, s.at, s.dtype)
    places = [(kernel.buffers[str(x.array)], tuple([kernel.terms.of(i) for i in x.index]))
              for x in (s.left, s.right, sums) if isinstance(x, Load)]

    def step(side: int, index: object, size: int) -> str:
        found = offset_of(context, *places[side])[0].get(kernel.terms.of(index), 0)  # type: ignore[arg-type]
        return kernel.extent(found * size)
    left, right, at = (locate(context, *place).pointer for place in places)
    count = scope.emit(f"sub i64 {rows[1]}, {rows[0]}")
    many = scope.emit(f"sub i64 {terms[1]}, {terms[0]}")
    squares = scope.emit(f"sdiv i64 {scope.emit(f'add i64 {many}, {TERMS - 1}')}, {TERMS}")
    given = [f"ptr {left}", f"ptr {right}", f"ptr {at}", f"i64 {count}", f"i64 {squares}"]
    for run in runs:
        steps = [step(side, run[-1].index, 2) if run else "0" for side in (0, 1)]
        given += [f"i64 {kernel.extent(product(b.extent for b in run))}", *(f"i64 {x}" for x in steps)]
    assert s.columns.origin is not None and s.columns.length is not None
    panel, width = context.bindings[s.columns.origin.name].parts[0], s.columns.length
    past = scope.emit(f"sub nsw i64 {kernel.extent(s.columns.extent)}, {panel}")
    is_last = scope.emit(f"icmp sle i64 {past}, {width}")
    panels = scope.emit(f"mul i64 {step(1, s.columns.origin, 2)}, {width}")
    ahead = at_byte(scope, right, scope.emit(f"select i1 {is_last}, i64 0, i64 {panels}"))
    given += [f"i64 {step(0, s.rows.index, 2)}", f"i64 {step(2, s.rows.index, 4)}", f"i1 {fresh}",
              f"i1 {scope.emit(f'icmp sle i64 {past}, {width // 2}')}", f"ptr {ahead}"]

    def call(inside: Scope) -> Carried:
        inside.do(f"call void @lw_amx_products{number}({', '.join(given)})")
        return ()
    odd = scope.emit(f"load atomic i32, ptr {kernel.pointers[ODD]} monotonic, align 4")
    branch(scope, scope.emit(f"icmp eq i32 {odd}, 0"), call)
