"""Chains of products in passes, each warp with rows of its own: 16 or 32 of them, by tensor cores.

The rows' side of a product is copied to shared memory once, where its terms are no more than two stages of them; a tile of
the other side is on its way while the one before is multiplied, the last product's right side while its left side is computed.
Each thread folds its own columns, and those of a row come together by shuffles of four threads; the last product's
left side goes from registers to registers. Elements go by pairs of columns; where a tile is whole no edge is looked for.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace

from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import product
from loopwright.ir.gpu_schedule import THREAD_X, THREAD_Y
from loopwright.ir.loops import Expr, Load, Local, walk
from loopwright.ir.nest import Block as Positions
from loopwright.ir.nest import Contract, Passes, Reduction, Running
from loopwright.ir.types import F16
from loopwright.lower.blocks import is_copied
from loopwright.lower.codegen.terms import Term
from loopwright.lower.cuda import arithmetic
from loopwright.lower.cuda.blocks import Side, at_position, side_of
from loopwright.lower.cuda.context import PACK, SHARED, Context, Share
from loopwright.lower.cuda.evaluate import evaluate
from loopwright.lower.cuda.folds import ALL
from loopwright.lower.cuda.multiplying import TensorCores
from loopwright.lower.cuda.packs import Over
from loopwright.lower.cuda.pairs import Pair, divisors, exponential, halves, packed, parts_of
from loopwright.lower.cuda.rings import COPY, ahead, ask
from loopwright.lower.cuda.row_chains import RowPasses
from loopwright.lower.cuda.serial import Fold
from loopwright.lower.cuda.text import Block, literal, register_type
from loopwright.lower.row_passes import REFERENCE, WEIGHT, side_bytes

LANE, WARP = f"(int){THREAD_X}", f"(int){THREAD_Y}"
ONE, FEW, MANY = 16, 12, 8  # warps that run on a multiprocessor at once: of 16 rows in one pass, and in several, and others


@dataclass(frozen=True)
class Sum:
    """A sum whose terms of a tile's row are added up as they are, in a variable, before that is added to the state."""

    fold: Fold
    state: Sequence[str]
    name: str

    def add(self, pair: Pair, numbers: tuple[str, str]) -> None:
        first, second = (f"({pair.there(str(k))} ? {x} : 0)" if pair.there("0") else x for k, x in enumerate(numbers))
        pair.block.line(f"{self.name} += {first};")
        pair.block.line(f"{self.name} += {second};")


class ByWarps(RowPasses):
    """Each warp makes all columns of a tile for its own rows."""

    def __init__(self, context: Context, s: Passes) -> None:
        super().__init__(context, s)
        last = s.last.columns.length
        assert isinstance(s.rows.length, int) and isinstance(s.columns.length, int) and isinstance(last, int)
        high = s.rows.length // self.launch.y
        self.top, self.groups = f"{WARP} * {high}", high // 16
        self.rows = self.rows_of_last = Share(f"{self.top} + {LANE} / 4", high // 8, 1, 8)
        self.tile, self.wide = (Share(f"{LANE} % 4 * 2", n // 4, 2, 8) for n in (s.columns.length, last))
        is_small = self.groups == 1 and len(s.products) == 1 and last <= 64 and not self._reads()
        most = MANY if not is_small else ONE if s.running else FEW
        self.launch.at_once = max(1, most // self.launch.y)
        self.asked: set[str] = set()  # the products whose rows have been copied
        self.words: dict[str, str] = {}  # of products, for the pass: the words of the rows' side
        self.own = {p.buffer for p in s.products} | {WEIGHT, s.columns.index.name, *(k.name for k, _ in s.columns.of)}

    def _reads(self) -> bool:
        """Whether something is read for each row and column, which takes registers."""
        s = self.s
        rows, columns = ({p.index, *(k for k, _ in p.of)} for p in (s.rows, s.columns))
        loads = [set(walk(y)) for e in (*(f.body for folds in s.folds for f in folds), s.last.left) for y in walk(e)
                 if isinstance(y, Load)]
        return any(rows & x and columns & x for x in loads)

    # ---- shared memory ---------------------------------------------------------------------------
    def declare(self) -> None:
        library, block = self.launch.library, self.context.block
        for name, text in (("lw_pack", PACK), ("lw_copy", COPY), ("lw_shared", SHARED)):
            library.add(name, text)
        assert self.launch.shared == 0
        block.line("LW_SHARED(lw_shared);")
        self.sides = {p.buffer: (self._side(p, "left", p.left, p.rows, 2), self._side(p, "right", p.right, p.columns, 2))
                      for p in self.s.products}
        last, columns = self.s.last, self.s.columns
        assert isinstance(columns.length, int)
        self.values = self._side(replace(last, depth=columns.length), "right", last.right, last.columns, 1)

    def _side(self, p: Contract, name: str, e: Expr, positions: Positions, stages: int) -> Side:
        """What is copied of a side, and its stages."""
        launch, block = self.launch, self.context.block
        side = side_of(self.context, p, f"{p.buffer}_{name}", e, positions, TensorCores(self.context, p))
        if is_copied(e, p.unit):
            side = ahead(side)
        else:
            block.line(f"{side.means.element} {side.name}_next[{side.count * side.lanes}];")
        high, long = (p.depth, side.size) if side.lies_across else (side.size, p.depth)
        kind = f"[{high}][{long + side.means.pad}]"
        block.line(f"unsigned short (*const {side.name}){kind} = (unsigned short (*){kind})"
                   f"(lw_shared + {launch.number(launch.shared)});")
        launch.shared = launch.shared + stages * side_bytes(side.size, p.depth)
        return side

    # ---- tiles -----------------------------------------------------------------------------------
    def tiles(self, exprs: Sequence[Expr], use: Callable[[Context], None]) -> None:
        asked = {x.name for e in exprs for x in walk(e) if isinstance(x, Local)}
        products = [p for p in self.s.products if p.buffer in asked]
        self._prepare(exprs)
        has_values = self.s.running is not None or exprs[0] is self.s.last.left
        columns, kind, block = self.s.columns, self.launch.index_type, self.context.block
        assert columns.origin is not None
        first, end = block.fresh("first"), self.launch.extent(columns.extent)
        self.launch.forget()
        block.line("__syncthreads();")
        for p in products:
            self._ask_first(p)
        block.line("lw_end_group();")
        stages = {p.buffer: block.variable("int", "0", "stage") for p in products}
        for p in products:
            self.words[p.buffer] = block.fresh("words")
            if not has_values:
                block.line(f"unsigned {self.words[p.buffer]}[{p.depth // 16}][{self.groups}][4];")
        with block.inner(f"for ({kind} {first} = 0; {first} < {end}; {first} += {columns.length})") as inside:
            here = self.context.at(inside).bind(columns.origin.name, first)
            for p in products:
                self._product(here, p, stages[p.buffer], has_values, p is products[0])
            use(here)
        self.launch.forget()

    def _prepare(self, exprs: Sequence[Expr]) -> None:
        """The reciprocals by which a pass divides: of f16 in parts; of others where that serves, in the last pass alone, as
        what it computes may be computed once more."""
        block, found = self.context.block, dict[int, Term]()
        for e in exprs:
            found.update(divisors(self.launch.terms.of(e), self.own))
        self.parts = {k: block.fresh("over") for k, y in found.items() if y.dtype == F16}
        is_last = exprs[0] is self.s.last.left
        self.reciprocals = {k: (y, block.fresh("over")) for k, y in found.items() if is_last and k not in self.parts}
        if self.reciprocals:
            self.near = block.variable("bool", "true", "near")
        names = [*(f"{name}{end}" for name in self.parts.values() for end in ("_high", "_low")),
                 *(name for _, name in self.reciprocals.values())]
        for name in names:
            block.line(f"float {name}[{self.rows.count}];")
        if names:
            self._reciprocals(block, found)

    def _reciprocals(self, block: Block, found: Mapping[int, Term]) -> None:
        """Of each row."""
        r = block.fresh("r")
        block.line("#pragma unroll")
        with block.inner(f"for (int {r} = 0; {r} < {self.rows.count}; ++{r})") as each:
            here = self._at_row(self.context.at(each), r)[0]
            for k, name in self.parts.items():
                parts_of(here, found[k], f"{name}_high[{r}]", f"{name}_low[{r}]")
            for y, name in self.reciprocals.values():
                over, near = arithmetic.reciprocal(each, self.launch.library, y.dtype, evaluate(here, y))
                each.line(f"{name}[{r}] = {over};")
                each.line(f"{self.near} &= {near};")

    def _at_row(self, context: Context, r: str) -> tuple[Context, str]:
        """At one of a thread's rows, and which one of the whole it is."""
        i = self.row(context, self.rows, r)
        return self.named(at_position(context, self.s.rows, i), r), i

    def _ask_first(self, p: Contract) -> None:
        """What is multiplied first, and the rows' side, where it is not there from an earlier pass."""
        assert self.s.columns.origin is not None
        context, (left, right) = self.context, self.sides[p.buffer]
        terms, over = _terms(context, p)
        there = context.bind(self.s.columns.origin.name, "0")
        ask(there, right, over, "0", "0", p.depth)
        if p.buffer not in self.asked:
            ask(context, left, over, "0", "0", p.depth)
            with context.block.inner(f"if ({terms} > {p.depth} && {terms} <= {2 * p.depth})") as more:
                ask(context.at(more), left, over, str(p.depth), "1", p.depth)
        else:
            with context.block.inner(f"if ({terms} > {2 * p.depth})") as anew:
                ask(context.at(anew), left, over, "0", "0", p.depth)
        self.asked.add(p.buffer)

    def _product(self, context: Context, p: Contract, stage: str, has_values: bool, is_first: bool) -> None:
        """A product's tile, in registers. The rows' words stay in registers from tile to tile if no sums are there."""
        block, kind, columns, depth = context.block, self.launch.index_type, self.s.columns, p.depth
        assert columns.origin is not None and isinstance(columns.length, int)
        left, right = self.sides[p.buffer]
        terms, over = _terms(context, p)
        block.line(f"float {p.buffer}[{self.rows.count * self.tile.count}];")
        self.begin(p, self.rows, self.tile, context)
        chunk, first, end = block.fresh("chunk"), context.names[columns.origin.name], self.launch.extent(columns.extent)
        with block.inner(f"for ({kind} {chunk} = 0; {chunk} == 0 || {chunk} < {terms}; {chunk} += {depth})") as inside:
            inside.line("lw_wait_groups<0>();")
            inside.line("__syncthreads();")
            if has_values and is_first:
                with inside.inner(f"if ({chunk} == 0)") as some:
                    ask(context.at(some), self.values, _columns(columns), first, "0", columns.length)
                inside.line("lw_end_group();")
            more = inside.let("bool", f"{chunk} + {depth} < {terms}", "more")
            then = inside.let(kind, f"{more} ? {chunk} + {depth} : 0", "k")
            at = inside.let(kind, f"{more} ? {first} : {first} + {columns.length}", "first")
            other = inside.let("int", f"1 - {stage}", "stage")
            with inside.inner(f"if ({at} < {end})") as some:
                ask(context.at(some).bind(columns.origin.name, at), right, over, then, other, depth)
                with some.inner(f"if ({terms} > {2 * depth})") as anew:
                    ask(context.at(anew), left, over, then, other, depth)
            inside.line("lw_end_group();")
            if has_values:
                inside.line(f"unsigned {self.words[p.buffer]}[{depth // 16}][{self.groups}][4];")
            with inside.inner("" if has_values else f"if ({first} == 0 || {terms} > {depth})") as anew:
                slot = anew.let("int", f"{terms} > {2 * depth} ? {stage} : (int){chunk} / {depth}", "stage")
                self._take_rows(anew, p, f"{left.name}[{slot}]")
            self._multiply(inside, p, f"{right.name}[{stage}]")
            inside.line(f"{stage} = {other};")

    def _take_rows(self, block: Block, p: Contract, left: str) -> None:
        """The words of this warp's rows, of all terms of a stage."""
        means, k, g = TensorCores(self.context, p), block.fresh("k"), block.fresh("g")
        block.line("#pragma unroll")
        with block.inner(f"for (int {k} = 0; {k} < {p.depth // 16}; ++{k})") as inside:
            inside.line("#pragma unroll")
            with inside.inner(f"for (int {g} = 0; {g} < {self.groups}; ++{g})") as each:
                _words(each, means, f"{self.words[p.buffer]}[{k}][{g}]", left, self.sides[p.buffer][0].lies_across,
                       f"{self.top} + {g} * 16 + {LANE} / 8 % 2 * 8", f"{k} * 16 + {LANE} / 16 * 8")

    def _multiply(self, block: Block, p: Contract, right: str) -> None:
        """Add a stage's products."""
        means, k = TensorCores(self.context, p), block.fresh("k")
        block.line("#pragma unroll")
        with block.inner(f"for (int {k} = 0; {k} < {p.depth}; {k} += 16)") as inside:
            self._by_columns(inside, means, p, self.tile, f"{self.words[p.buffer]}[{k} / 16]", right,
                             self.sides[p.buffer][1].lies_across, k)

    def _by_columns(self, block: Block, means: TensorCores, p: Contract, columns: Share, left: str, right: str, across: bool,
                    k: str) -> None:
        """Products of 16 terms from `k` on, of the words of the left side, with all columns, 16 at a time."""
        name, h, g = means.instruction(self.launch.library), block.fresh("h"), block.fresh("g")
        block.line("#pragma unroll")
        with block.inner(f"for (int {h} = 0; {h} < {columns.count // 4}; ++{h})") as each:
            each.line("unsigned right_now[4];")
            _words(each, means, "right_now", right, across, f"{h} * 16 + {LANE} / 16 * 8", f"{k} + {LANE} / 8 % 2 * 8")
            each.line("#pragma unroll")
            with each.inner(f"for (int {g} = 0; {g} < {self.groups}; ++{g})") as group:
                for half in range(2):
                    at = [f"({g} * 2 + {low}) * {columns.count} + {h} * 4 + {half * 2 + e}" for low in (0, 1) for e in (0, 1)]
                    sums = ", ".join(f"{p.buffer}[{x}]" for x in at)
                    group.line(f"{name}({sums}, {left}[{g}], right_now + {half * 2});")

    # ---- elements ----------------------------------------------------------------------------------
    def each(self, context: Context, sums: Sequence[Sum], run: Callable[[Pair, str, str], None]) -> None:
        """Something for each pair of a tile, given the numbers of its row and its columns among the thread's: without looking
        for edges where it is whole, and once more, if quotients by reciprocals are not right. sums: what is added up, as it
        is, for a row of a tile."""
        s, block = self.s, context.block
        assert s.columns.origin is not None and s.rows.origin is not None
        ends = self.launch.extent(s.rows.extent), self.launch.extent(s.columns.extent)
        firsts = context.names[s.rows.origin.name], context.names[s.columns.origin.name]
        whole = f"{firsts[0]} + {s.rows.length} <= {ends[0]} && {firsts[1]} + {s.columns.length} <= {ends[1]}"

        def rows(here: Context, rare: str | None) -> None:
            r, t = here.block.fresh("r"), here.block.fresh("t")
            here.block.line("#pragma unroll")
            with here.block.inner(f"for (int {r} = 0; {r} < {self.rows.count}; ++{r})") as row:
                at_row, i = self._at_row(here.at(row), r)
                for x in sums:
                    row.line(f"{x.fold.kind} {x.name} = {literal(0, x.fold.work)};")
                if rare:
                    for y, name in self.reciprocals.values():
                        row.values["reciprocal", y.dtype, evaluate(at_row, y)] = f"{name}[{r}]"
                row.line("#pragma unroll")
                with row.inner(f"for (int {t} = 0; {t} < {self.tile.count // 2}; ++{t})") as one:
                    run(self._pair(replace(at_row.at(one), rare=rare or ""), (r, t), i, ends, rare is not None), r, t)
                for x in sums:
                    x.fold.step(row, x.state, r, x.name, "")
        if self.reciprocals:
            rare = block.variable("bool", f"!({self.near} && {whole})", "rare")
            with block.inner(f"if (!{rare})") as some:
                rows(context.at(some), rare)
            with block.inner(f"if ({rare})") as some:
                rows(context.at(some), None)
            return
        with block.inner(f"if ({whole})") as some:
            rows(context.at(some), "")
        other = Block(block)
        rows(context.at(other), None)
        block.otherwise(other)

    def _pair(self, context: Context, at: tuple[str, str], i: str, ends: tuple[str, str], is_whole: bool) -> Pair:
        (r, t), s = at, self.s
        assert s.columns.origin is not None
        j = context.block.let(self.launch.index_type, f"{context.names[s.columns.origin.name]} + {self.tile.start(t)}", "i")

        def at_lane(here: Context, e: str) -> Context:
            here = at_position(here, s.columns, f"({j} + {e})")
            for p in s.products:
                here = here.bind(p.buffer, local(p.buffer, e))
            return here

        def local(name: str, e: str) -> str:
            return f"{name}[{r} * {self.tile.count} + {t} * 2 + {e}]"

        def there(e: str) -> str:
            return "" if is_whole else f"{i} < {ends[0]} && {j} + {e} < {ends[1]}"
        parts = {k: (f"{name}_high[{r}]", f"{name}_low[{r}]") for k, name in self.parts.items()}
        return Pair(context, at_lane, local, there, self.own, parts)

    # ---- folds -------------------------------------------------------------------------------------
    def fold(self, folds: Sequence[Reduction]) -> None:
        block = self.context.block
        made = [Fold(f.monoid, f.dtype, f.body.dtype, self.launch.library) for f in folds]
        states = [self._declare(block, fold) for fold in made]
        sums = {k: Sum(fold, state, block.fresh("part")) for k, (fold, state) in enumerate(zip(made, states, strict=True))
                if fold.keeps}

        def one(pair: Pair, r: str, _: str) -> None:
            for k, (f, fold, state) in enumerate(zip(folds, made, states, strict=True)):
                term = self.launch.terms.of(f.body)
                if k in sums:
                    sums[k].add(pair, self._numbers(pair, fold, term))
                else:
                    self._step(pair, fold, state, r, term)
        self.tiles([f.body for f in folds], lambda here: self.each(here, list(sums.values()), one))
        for f, fold, state in zip(folds, made, states, strict=True):
            self.together(f, fold, state)

    def _declare(self, block: Block, fold: Fold) -> list[str]:
        """A state for each of a thread's rows: a word of two, for extremes of f16."""
        if not _is_of_pairs(fold):
            return fold.declare(block, self.rows.count)
        name, zero = block.fresh("acc"), _identity(fold)
        block.line(f"unsigned {name}[{self.rows.count}] = {{{', '.join([zero] * self.rows.count)}}};")
        return [name]

    def _step(self, pair: Pair, fold: Fold, state: Sequence[str], r: str, term: Term) -> None:
        """Take a pair's numbers, but for those past the edges."""
        if _is_of_pairs(fold):
            word = _inside(pair, pair.word(term), _identity(fold))
            pair.block.line(f"{state[0]}[{r}] = {packed(pair.library, fold.monoid)}({state[0]}[{r}], {word});")
            return
        for k, x in enumerate(self._numbers(pair, fold, term)):
            there = pair.there(str(k))
            with pair.block.inner(f"if ({there})") if there else nullcontext(pair.block) as some:
                fold.step(some, state, r, x, "")

    def _numbers(self, pair: Pair, fold: Fold, term: Term) -> tuple[str, str]:
        """A pair, as the fold computes with it."""
        first, second = (arithmetic.convert(fold.library, x, term.dtype, fold.work) for x in pair.numbers(term))
        return first, second

    def _of_thread(self, block: Block, fold: Fold, state: Sequence[str], r: str) -> str:
        """What a thread has of a row: a variable."""
        if not _is_of_pairs(fold):
            found, = fold.joined(block, [f"({name} + {r})" for name in state], 1)
            return found
        halves(self.launch.library)
        word = f"{state[0]}[{r}]"
        return block.variable(fold.kind, fold.combined(f"lw_first({word})", f"lw_second({word})"), "all")

    def _of_row(self, block: Block, fold: Fold, found: str) -> None:
        """What the four threads of a row have, together."""
        d = block.fresh("d")
        kind = fold.kind if fold.kind in ("float", "double") else "long long"
        block.line("#pragma unroll")
        with block.inner(f"for (int {d} = 2; {d} > 0; {d} /= 2)") as step:
            other = step.let(fold.kind, f"({fold.kind})__shfl_xor_sync({ALL}, ({kind}){found}, {d})")
            fold.merge_into(step, (found,), (other,))

    def together(self, f: Reduction, fold: Fold, state: Sequence[str]) -> None:
        block, r = self.context.block, self.context.block.fresh("r")
        block.line(f"{register_type(f.dtype)} {f.name}_rows[{self.rows.count}];")
        block.line("#pragma unroll")
        with block.inner(f"for (int {r} = 0; {r} < {self.rows.count}; ++{r})") as each:
            found = self._of_thread(each, fold, state, r)
            self._of_row(each, fold, found)
            each.line(f"{f.name}_rows[{r}] = {fold.result(each, (found,))};")

    def share(self) -> str:
        return f"{LANE} % 4"

    # ---- one pass ----------------------------------------------------------------------------------
    def run_on(self, context: Context, running: Running, most: Fold, sums: Fold, state: Sequence[str]) -> None:
        (high,), _ = self.s.folds
        block, terms, kept, seen = context.block, self.launch.terms, self._places(context), context.block.fresh("seen")
        found, r = self._declare(block, most), block.fresh("r")
        self.each(context, [], lambda pair, r, _: self._step(pair, most, found, r, terms.of(high.body)))
        block.line(f"{most.kind} {seen}[{self.rows.count}];")
        block.line("#pragma unroll")
        with block.inner(f"for (int {r} = 0; {r} < {self.rows.count}; ++{r})") as each:
            whole = self._of_thread(each, most, found, r)
            self._of_row(each, most, whole)
            each.line(f"{seen}[{r}] = {whole};")
        self.scaled(context, running, most, seen, state)
        total = Sum(sums, state, block.fresh("part"))
        named, reference = terms.of(Local(WEIGHT, running.weight.dtype)), terms.of(Local(REFERENCE, running.reference.dtype))
        x = terms.of(running.weight).args[0].args[0]  # the weight is exp(x - reference)
        factor = terms.of(TensorCores(context, self.s.last).factor(running.left))

        def weigh(pair: Pair, r: str, t: str) -> None:
            first, second = (exponential(pair.library, n, evaluate(pair.context, reference)) for n in pair.numbers(x))
            pair.known[named.number] = pair.block.let("float", first), pair.block.let("float", second)
            total.add(pair, pair.known[named.number])
            pair.block.line(f"{kept}[{r}][{t}] = {_inside(pair, pair.word(factor), '0u')};")
        self.each(context, [total], weigh)
        self._multiply_last(context, kept)

    # ---- the last product --------------------------------------------------------------------------
    def _places(self, context: Context) -> str:
        """Places for the last left side of a tile."""
        kept = context.block.fresh("kept")
        context.block.line(f"unsigned {kept}[{self.rows.count}][{self.tile.count // 2}];")
        return kept

    def multiply(self, context: Context, left: Expr) -> None:
        kept, factor = self._places(context), self.launch.terms.of(TensorCores(context, self.s.last).factor(left))
        self.each(context, [], lambda pair, r, t: pair.block.line(
            f"{kept}[{r}][{t}] = {_inside(pair, pair.word(factor), '0u')};"))
        self._multiply_last(context, kept)

    def _multiply_last(self, context: Context, kept: str) -> None:
        """The products of what is kept: the sums of a product of 16 rows lie as the left side of the next one does."""
        block, last, means = context.block, self.s.last, TensorCores(context, self.s.last)
        block.line("lw_wait_groups<1>();")
        block.line("__syncthreads();")
        k, g = block.fresh("k"), block.fresh("g")
        block.line("#pragma unroll")
        with block.inner(f"for (int {k} = 0; {k} < {self.s.columns.length}; {k} += 16)") as inside:
            inside.line(f"unsigned left_now[{self.groups}][4];")
            inside.line("#pragma unroll")
            with inside.inner(f"for (int {g} = 0; {g} < {self.groups}; ++{g})") as each:
                for word, (low, right) in enumerate(((0, 0), (1, 0), (0, 1), (1, 1))):
                    each.line(f"left_now[{g}][{word}] = {kept}[{g} * 2 + {low}][{k} / 8 + {right}];")
            self._by_columns(inside, means, last, self.wide, "left_now", f"{self.values.name}[0]", self.values.lies_across, k)


def _terms(context: Context, p: Contract) -> tuple[str, Over]:
    """How many terms a product has, and their loops."""
    return context.launch.extent(product(k.extent for k in p.over)), [(k.index, k.extent) for k in p.over]


def _columns(columns: Positions) -> Over:
    """The loops of the last product's terms."""
    return columns.of or [(columns.index, columns.extent)]


def _words(block: Block, means: TensorCores, to: str, source: str, across: bool, position: str, term: str) -> None:
    """Four words of squares of 8 by 8, from where this lane says that a row of one begins."""
    at = f"[{term} + {LANE} % 8][{position}]" if across else f"[{position} + {LANE} % 8][{term}]"
    block.line(f"{means.loader(4, across)}({to}, &{source}{at});")


def _inside(pair: Pair, word: str, other: str) -> str:
    """A word, but for the halves that are past the edges."""
    if not pair.there("0"):
        return word
    masks = enumerate(("0xffffu", "0xffff0000u"))
    first, second = (f"(({pair.there(str(k))} ? {word} : {other}) & {mask})" for k, mask in masks)
    return pair.block.let("unsigned", f"{first} | {second}", "w")


def _is_of_pairs(fold: Fold) -> bool:
    """Whether a fold goes by pairs of f16."""
    return fold.monoid in ("max", "min") and fold.dtype == fold.body == F16


def _identity(fold: Fold) -> str:
    """Of pairs."""
    return "0xfc00fc00u" if fold.monoid == "max" else "0x7c007c00u"
