"""Matrix products as text that copies nothing: of small matrices, or of few rows.

    void @lw_small_f32(i64 m, i64 n, i64 k, ptr a, i64 a.row, i64 a.term, ptr b, i64 b.term, ptr c)
    void @lw_small_f64(...)             C[m, n] = A B: C contiguous, and B's rows; A's rows, and terms of both, any number of
                                        elements apart

Tiles of registers go down each panel of columns; factors come from where they lie.

Guarantees: nothing outside the matrices is read or written; an element's sum is made term by term in one order, whatever the
other sizes are; no terms make zeros.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from loopwright.ir.dataclass import dataclass
from loopwright.lower.codegen.machine import ATTRIBUTES, Machine, memory_type, suffix, vector_type
from loopwright.lower.codegen.text import Carried, Function, Scope, branch, loop, repeat
from loopwright.lower.target import Target

HIGHEST = 8  # rows of a tile: each has a pointer
SHORT, ROWS = 32, (35, 280)  # terms, with no more than which there are fewer rows in a block: results are stored in order
LOWER = (4, 2)  # rows of tiles for what is left
LEAST = 4  # sums of a tile: fewer wait for each other as long
LINE = 64  # bytes of a cache's line
FAR = 2  # times the second cache: results that are larger come from memory
WIDEST, COPIED = 4, 2  # vectors of a tile; of one that reads a copy, where vector registers are few
TOGETHER = 4  # terms at a time, there
_MATRICES = "i64 %k, ptr noalias %a, i64 %a.row, i64 %a.term, ptr noalias %b"


def heights(target: Target, vectors: int) -> list[int]:
    """The rows of tiles of so many vectors, the highest first: the sums have registers, and all factors of a term, which LLVM
    may load first; where registers are few one row's have, each in its turn."""
    left = target.vector_registers - vectors
    most = min(HIGHEST, (left - 1) // vectors if target.is_short_of_registers else left // (vectors + 1))
    return [most, *(h for h in LOWER if h < most and h * vectors >= LEAST)]


def name_of(dtype: np.dtype) -> str:
    """The function's name."""
    return f"lw_small_f{8 * dtype.itemsize}"


def small_text(dtype: np.dtype, target: Target) -> str:
    """The function and those that it calls."""
    declarations, constants = set[str](), set[str]()
    texts = [_Panel(dtype, target, v, Function(declarations, constants)).text() for v in widths_of(target)]
    texts += [_Panel(dtype, target, v, Function(declarations, constants), ahead=ahead, copies=copies).text()
              for v in widths_of(target) for ahead, copies in _variants(target, v)]
    texts.append(_whole(dtype, target, Function(declarations, constants)))
    return "\n".join([*sorted(declarations), *sorted(constants), *texts])


def _variants(target: Target, vectors: int) -> list[tuple[bool, bool]]:
    """Beside the plain function of a panel: whether it asks the caches for what comes next, and whether it copies."""
    most = widest(target)
    if vectors > most:
        return []
    return [(True, False), (True, True)] if vectors == most and asks_ahead(target) else [(False, True)]


@dataclass(frozen=True)
class Ahead:
    """What tiles ask the caches for: `lines` lines of memory in each row of what begins at a pointer, rows `step` bytes apart;
    a row for 2 ** `shift` terms; the number of the first tile; for how many lines more a tile that copies asks, up to 2."""

    pointer: str
    step: str
    lines: int
    shift: int
    number: str
    more: str


def asks_ahead(target: Target) -> bool:
    """Whether tiles ask the caches for where they will store, and for the next panel: where vector registers are few products
    take as long, or longer, if they ask."""
    return not target.is_short_of_registers


def is_far(scope: Scope, dtype: np.dtype, target: Target, rows: str, columns: str) -> str:
    """Whether a result of so many rows and columns is likely to come from memory, as an i1."""
    size = scope.emit(f"mul i64 {scope.emit(f'mul i64 {rows}, {columns}')}, {dtype.itemsize}")
    return scope.emit(f"icmp ugt i64 {size}, {FAR * target.cache_bytes}")


def call_panel(scope: Scope, dtype: np.dtype, vectors: int, given: tuple[str, ...],
               steps: tuple[str, str] = ("%a.row", "%a.term"), ahead: Ahead | None = None, copy: str | None = None,
               far: str = "false") -> None:
    """Call the function of a panel with k, a, b, how far apart its terms are, c, m, the columns left, whether to add to c;
    `steps`: how far apart rows and terms of a are; `ahead`: of the widest panel; `copy`: where a copy of the panel goes, of
    which only the first tile is made then; `far`: whether c is likely to come from memory."""
    k, a, b, step, c, m, left, again = given
    more = f", ptr {copy}" if copy else ""
    if ahead:
        more += f", ptr {ahead.pointer}, i64 {ahead.step}, i64 {ahead.lines - 1}, i64 {ahead.shift}"
        more += f", i64 {ahead.number}" + f", i64 {ahead.more}" * bool(copy)
    scope.do(f"call void @{_panel_name(dtype, vectors, bool(ahead), bool(copy))}(i64 {k}, ptr {a}, i64 {steps[0]}, "
             f"i64 {steps[1]}, ptr {b}, i64 {step}, ptr {c}, i64 {m}, i64 {left}, i64 %n, i1 {again}, i1 {far}{more})")


def _panel_name(dtype: np.dtype, vectors: int, ahead: bool, copies: bool) -> str:
    return f"{name_of(dtype)}_{vectors}{'_ahead' * ahead}{'_copying' * copies}"


def widths_of(target: Target) -> list[int]:
    """How many vectors panels may have that are read where they lie."""
    return [v for v in range(1, WIDEST + 1) if heights(target, v)[0] > 1]


def held_numbers(dtype: np.dtype, target: Target) -> int:
    """How many numbers stay in the second cache beside others."""
    return target.cache_bytes // 2 // dtype.itemsize


def widest(target: Target) -> int:
    """How many vectors panels have that are copied. Where registers are few high tiles load less than wide ones, but read few
    columns at a time: what lies in rows is better read by wide ones."""
    return COPIED if target.is_short_of_registers else widths_of(target)[-1]


def panels(scope: Scope, dtype: np.dtype, target: Target, most: int, span: tuple[str, str],
           run: Callable[[Scope, int, str, str], None]) -> None:
    """Panels of some columns, at least one, of `most` vectors at most, as even as they can be: `run` is given how many one has,
    where it begins, and how many columns are left there."""
    lanes, widths = target.lanes(dtype), [v for v in widths_of(target) if v <= most]

    def panel(inner: Scope, state: list[str]) -> tuple[str, list[str]]:
        left = inner.emit(f"sub i64 {span[1]}, {state[0]}")
        vectors = inner.emit(f"udiv i64 {inner.emit(f'add i64 {left}, {lanes - 1}')}, {lanes}")
        half = inner.emit(f"lshr i64 {inner.emit(f'add i64 {vectors}, 1')}, 1")
        few, some = (inner.emit(f"icmp sle i64 {vectors}, {count}") for count in (most, 2 * most - 2))
        width = inner.emit(f"select i1 {few}, i64 {vectors}, i64 {inner.emit(f'select i1 {some}, i64 {half}, i64 {most}')}")

        def one(arm: Scope, v: int) -> Carried:
            run(arm, v, state[0], left)
            return ()
        for v in widths:
            branch(inner, inner.emit(f"icmp eq i64 {width}, {v}"), partial(one, v=v))
        following = inner.emit(f"add i64 {state[0]}, {inner.emit(f'mul i64 {width}, {lanes}')}")
        return inner.emit(f"icmp slt i64 {following}, {span[1]}"), [following]
    repeat(scope, [("i64", span[0])], panel)


def _whole(dtype: np.dtype, target: Target, function: Function) -> str:
    """Blocks of rows, in them panels of columns."""
    root, kind = function.root, memory_type(dtype)
    far = is_far(root, dtype, target, "%m", "%n")
    most = root.emit(f"select i1 {root.emit(f'icmp sle i64 %k, {SHORT}')}, i64 {ROWS[0]}, i64 {ROWS[1]}")

    def block(scope: Scope, row: str, state: list[str], wide: int) -> list[str]:
        rows = scope.call("i64", "llvm.smin.i64", [("i64", scope.emit(f"sub i64 %m, {row}")), ("i64", most)])
        a, c = (element(scope, kind, x, scope.emit(f"mul i64 {row}, {step}")) for x, step in (("%a", "%a.row"), ("%c", "%n")))

        def run(inner: Scope, v: int, at: str, left: str) -> None:
            b, sums = (element(inner, kind, x, at) for x in ("%b", c))
            call_panel(inner, dtype, v, ("%k", a, b, "%b.term", sums, rows, left, "false"), far=far)
        panels(scope, dtype, target, wide, ("0", "%n"), run)
        return []

    def blocks(scope: Scope, wide: int) -> Carried:
        loop(scope, "0", "%m", most, (), partial(block, wide=wide))
        return ()
    some, (high, *_) = root.emit("icmp sgt i64 %n, 0"), heights(target, widest(target))
    if target.is_short_of_registers:
        held = root.emit(f"icmp sle i64 {root.emit('mul i64 %n, %k')}, {held_numbers(dtype, target)}")
        many = root.emit(f"and i1 {held}, {root.emit(f'icmp sge i64 %m, {high}')}")
        branch(root, root.emit(f"and i1 {some}, {many}"), partial(blocks, wide=widest(target)))
        some = root.emit(f"and i1 {some}, {root.emit(f'xor i1 {many}, true')}")
    branch(root, some, partial(blocks, wide=widths_of(target)[-1]))
    header = f"void @{name_of(dtype)}(i64 %m, i64 %n, {_MATRICES}, i64 %b.term, ptr noalias %c)"
    return f"define {header} {ATTRIBUTES} {{\n{function.body()}\n  ret void\n}}"


class Tiles:
    """What tiles of a panel of so many vectors of columns are made of, the last of which may be cut: its function has `%a`,
    `%a.row`, `%b`, `%c`, `%m` rows, `%n`, how far these are apart in c, and `%left`, the columns left."""

    def __init__(self, dtype: np.dtype, target: Target, vectors: int, function: Function) -> None:
        self.dtype, self.target, self.vectors, self.function = dtype, target, vectors, function
        self.element, self.lanes, self.bytes = memory_type(dtype), target.lanes(dtype), dtype.itemsize
        self.kind = vector_type(self.element, self.lanes)
        left = function.root.emit(f"sub i64 %left, {(vectors - 1) * self.lanes}")
        self.mask = first_lanes(function.root, left, self.lanes)

    def left(self, scope: Scope, height: int, lower: int) -> str:
        """How many rows are left to lower tiles, at most. Of two vectors two such tiles take less time than one of all
        registers and one of few, whose sums wait for themselves."""
        most = 2 * lower - height
        if self.vectors != COPIED or not self.target.is_short_of_registers or most <= 0:
            return str(lower)
        over = scope.emit(f"urem i64 %m, {height}")
        some = scope.emit(f"icmp ult i64 {scope.emit(f'sub i64 {over}, 1')}, {most}")
        return scope.emit(f"select i1 {some}, i64 {2 * lower}, i64 {lower}")

    def rows(self, scope: Scope, height: int, at: str) -> list[str]:
        """The rows of a tile from `at` on; those past the last are that one again."""
        last = scope.emit("sub i64 %m, 1")
        return [at, *(scope.call("i64", "llvm.smin.i64", [("i64", scope.emit(f"add i64 {at}, {k}")), ("i64", last)])
                      for k in range(1, height))]

    def places(self, scope: Scope, rows: Sequence[str]) -> list[str]:
        """Where the sums of these rows are stored."""
        return [self.at(scope, self.at(scope, "%c", scope.emit(f"mul i64 {row}, %n")), str(part * self.lanes))
                for row in rows for part in range(self.vectors)]

    def store(self, scope: Scope, places: Sequence[str], sums: Sequence[str]) -> None:
        """Under a mask where not all columns of the last vector are there; where stores under masks are cheap always."""
        def stored(inner: Scope, masked: bool) -> Carried:
            for k, (place, value) in enumerate(zip(places, sums, strict=True)):
                store_first(inner, self.kind, value, place, self._mask(k % self.vectors) if masked else None)
            return ()
        if self.target.has_masks:
            stored(scope, masked=True)
            return
        whole = scope.emit(f"icmp sge i64 %left, {self.vectors * self.lanes}")
        branch(scope, whole, partial(stored, masked=False), partial(stored, masked=True))

    def columns(self, scope: Scope, right: str) -> list[str]:
        return [load_first(scope, self.kind, self.at(scope, right, str(part * self.lanes)), self._mask(part))
                for part in range(self.vectors)]

    def products(self, scope: Scope, columns: Sequence[str], places: Sequence[str], state: list[str]) -> list[str]:
        """The sums and one term more, whose factors of the rows are at some places."""
        machine, new = Machine(scope, 8 * self.bytes, self.lanes, self.target), list[str]()
        for place in places:
            factor = scope.emit(f"load {self.element}, ptr {place}, align {self.bytes}")
            one = scope.emit(f"insertelement {self.kind} poison, {self.element} {factor}, i32 0")
            factor = scope.emit(f"shufflevector {self.kind} {one}, {self.kind} poison, <{self.lanes} x i32> zeroinitializer")
            new += [machine.fma(factor, x, state[len(new) + part]) for part, x in enumerate(columns)]
            in_turn(scope, self.target, self.kind, new[-self.vectors:])
        return new

    def terms(self, left: Sequence[str], right: str, step: str, count: int, scope: Scope, first: str,
              sums: list[str]) -> list[str]:
        """The sums and some terms more, which lie together in each row of `left`, and in `right` so far apart."""
        right = self.at(scope, right, scope.emit(f"mul i64 {first}, {step}"))
        left = [self.at(scope, row, first) for row in left]
        for k in range(count):
            sums = self.products(scope, self.columns(scope, right), [self.at(scope, row, str(k)) for row in left], sums)
            right = self.at(scope, right, step)
        return sums

    def at(self, scope: Scope, base: str, place: str) -> str:
        return element(scope, self.element, base, place)

    def _mask(self, part: int) -> str | None:
        """Which lanes of a vector are columns; None: all."""
        return self.mask if part == self.vectors - 1 else None


class _Panel(Tiles):
    """The function of a panel; if it `copies`, of the first tile alone, which stores the panel's terms one after the other."""

    def __init__(self, dtype: np.dtype, target: Target, vectors: int, function: Function, *, ahead: bool = False,
                 copies: bool = False) -> None:
        super().__init__(dtype, target, vectors, function)
        self.ahead, self.copies = ahead, copies

    def text(self) -> str:
        """Tiles from the first row to the last: of a height while more rows are left than the next has."""
        root, row = self.function.root, "0"
        found = heights(self.target, self.vectors)
        if self.copies:
            self._tile(found[0], root, row, [])

        def tiles(height: int, low: str, high: str, scope: Scope, *, asks: bool = False) -> Carried:
            last, = loop(scope, low, high, str(height), [("i64", low)], partial(self._tile, height, asks=asks))
            return [("i64", last)]
        for k, (height, lower) in enumerate([] if self.copies else zip(found, [*found[1:], 0], strict=True)):
            made = partial(tiles, height, row, root.emit(f"sub i64 %m, {self.left(root, height, lower)}"))
            if k == 0 and self.vectors == widest(self.target) and asks_ahead(self.target):
                row, = branch(root, "%far", partial(made, asks=True), made)
            else:
                (_, row), = made(root)
        name, more = _panel_name(self.dtype, self.vectors, self.ahead, self.copies), ", ptr noalias %copy" * self.copies
        if self.ahead:
            more += ", ptr %ahead, i64 %ahead.step, i64 %ahead.lines, i64 %ahead.shift, i64 %number"
            more += ", i64 %more" * self.copies
        header = f"void @{name}({_MATRICES}, i64 %b.term, ptr noalias %c, i64 %m, i64 %left, i64 %n, i1 %again, " \
            f"i1 %far{more})"
        return f"define internal {header} noinline {ATTRIBUTES} {{\n{self.function.body()}\n  ret void\n}}"

    def _tile(self, height: int, scope: Scope, at: str, done: list[str], *, asks: bool = False) -> list[str]:
        """A tile's sums; rows past the last are that one again. `asks`: for the lines of the next tile's."""
        rows = self.rows(scope, height, at)
        left = [self.at(scope, "%a", scope.emit(f"mul i64 {row}, %a.row")) for row in rows]
        zeros = [(self.kind, "zeroinitializer")] * (height * self.vectors)
        ahead = self._share(scope, at, height) if self.ahead else []
        first, state = "0", [x for _, x in zeros]
        if asks:
            following = self.at(scope, "%c", scope.emit(f"mul i64 {scope.emit(f'add i64 {at}, {height}')}, %n"))
            lines = height * self.vectors * self.lanes * self.bytes // LINE
            first = scope.call("i64", "llvm.smin.i64", [("i64", "%k"), ("i64", str(lines))])
            state = loop(scope, "0", first, "1", zeros, partial(self._asking, left, ahead, following))
        if self.target.is_short_of_registers and not self.copies:
            first, state = self._together(scope, left, state)
        sums = loop(scope, first, "%k", "1", [(self.kind, x) for x in state], partial(self._term, left, ahead))
        places = self.places(scope, rows)

        def more(inner: Scope) -> Carried:
            machine = Machine(inner, 8 * self.bytes, self.lanes, self.target)
            before = [load_first(inner, self.kind, place, self._mask(k % self.vectors)) for k, place in enumerate(places)]
            return [(self.kind, machine.add(x, y)) for x, y in zip(before, sums, strict=True)]
        sums = branch(scope, "%again", more, otherwise=[(self.kind, x) for x in sums])
        self.store(scope, places, sums)
        return [scope.emit(f"add i64 {at}, {height}")]

    def _share(self, scope: Scope, at: str, height: int) -> list[str]:
        """What a tile asks for: a line of every row, the next tile for the next; where there are few tiles the first, which
        copies, for more."""
        number = scope.emit(f"add i64 %number, {scope.emit(f'udiv i64 {at}, {height}')}")
        line = scope.emit(f"and i64 {number}, %ahead.lines")
        first = scope.emit(f"getelementptr i8, ptr %ahead, i64 {scope.emit(f'mul i64 {line}, {LINE}')}")
        if not self.copies:
            return [first]
        some = scope.call("i64", "llvm.umin.i64", [("i64", "%more"), ("i64", "1")])
        return [first, *(scope.emit(f"getelementptr i8, ptr {first}, i64 {scope.emit(f'mul i64 {x}, {LINE}')}")
                         for x in (some, "%more"))]

    def _together(self, scope: Scope, left: Sequence[str], state: list[str]) -> tuple[str, list[str]]:
        """Some terms at a time, where they lie together in each row; where those that are left begin, and the sums."""
        quick, many = scope.emit("icmp eq i64 %a.term, 1"), scope.emit(f"and i64 %k, {-TOGETHER}")
        end = scope.emit(f"select i1 {quick}, i64 {many}, i64 0")
        terms = partial(self.terms, left, "%b", "%b.term", TOGETHER)
        return end, loop(scope, "0", end, str(TOGETHER), [(self.kind, x) for x in state], terms)

    def _asking(self, left: Sequence[str], ahead: Sequence[str], following: str, scope: Scope, term: str,
                state: list[str]) -> list[str]:
        """A term, while the caches are asked for a line of the next tile's sums, which come from memory row by row."""
        each = self.vectors * self.lanes * self.bytes // LINE
        row = scope.emit(f"udiv i64 {term}, {each}")
        line = scope.emit(f"sub i64 {term}, {scope.emit(f'mul i64 {row}, {each}')}")
        place = self.at(scope, following, scope.emit(f"mul i64 {row}, %n"))
        place = scope.emit(f"getelementptr i8, ptr {place}, i64 {scope.emit(f'mul i64 {line}, {LINE}')}")
        scope.run("llvm.prefetch.p0", [("ptr", place), ("i32", "1"), ("i32", "3"), ("i32", "1")])
        return self._term(left, ahead, scope, term, state)

    def _term(self, left: Sequence[str], ahead: Sequence[str], scope: Scope, term: str, state: list[str]) -> list[str]:
        if ahead:
            past = scope.emit(f"mul i64 {scope.emit(f'lshr i64 {term}, %ahead.shift')}, %ahead.step")
        for first in ahead:
            place = scope.emit(f"getelementptr i8, ptr {first}, i64 {past}")
            scope.run("llvm.prefetch.p0", [("ptr", place), ("i32", "0"), ("i32", "2"), ("i32", "1")])
        columns = self.columns(scope, self.at(scope, "%b", scope.emit(f"mul i64 {term}, %b.term")))
        if self.copies:
            to = self.at(scope, "%copy", scope.emit(f"mul i64 {term}, {widest(self.target) * self.lanes}"))
            for part, x in enumerate(columns):
                store_first(scope, self.kind, x, self.at(scope, to, str(part * self.lanes)), None)
        place = scope.emit(f"mul i64 {term}, %a.term")
        return self.products(scope, columns, [self.at(scope, row, place) for row in left], state)



def in_turn(scope: Scope, target: Target, kind: str, values: Sequence[str]) -> None:
    """Let what follows be loaded after these values are there, where vector registers are few: LLVM else loads all factors of a
    tile first, and keeps its sums in memory."""
    if target.is_short_of_registers:
        constraints, given = "x," * len(values), ", ".join(f"{kind} {x}" for x in values)
        scope.do(f'call void asm sideeffect "", "{constraints}~{{memory}}"({given})')


def element(scope: Scope, kind: str, base: str, place: str) -> str:
    """Where an element of an array is."""
    return scope.emit(f"getelementptr {kind}, ptr {base}, i64 {place}")


def first_lanes(scope: Scope, count: str, lanes: int) -> str:
    """The mask of so many lanes, or of all."""
    kind, most = f"<{lanes} x i32>", scope.call("i64", "llvm.smin.i64", [("i64", count), ("i64", str(lanes))])
    one = scope.emit(f"insertelement {kind} poison, i32 {scope.emit(f'trunc i64 {most} to i32')}, i32 0")
    many = scope.emit(f"shufflevector {kind} {one}, {kind} poison, {kind} zeroinitializer")
    return scope.emit(f"icmp slt {kind} <{', '.join(f'i32 {lane}' for lane in range(lanes))}>, {many}")


def load_first(scope: Scope, kind: str, place: str, mask: str | None) -> str:
    """The lanes of a mask, the others zero; or all."""
    each = "4" if "float" in kind else "8"
    if mask is None:
        return scope.emit(f"load {kind}, ptr {place}, align {each}")
    return scope.call(kind, f"llvm.masked.load.{suffix(kind)}.p0", [
        ("ptr", place), ("i32", each), (_masks(kind), mask), (kind, "zeroinitializer")])


def store_first(scope: Scope, kind: str, value: str, place: str, mask: str | None) -> None:
    """Store the lanes of a mask; or all."""
    each = "4" if "float" in kind else "8"
    if mask is None:
        scope.do(f"store {kind} {value}, ptr {place}, align {each}")
    else:
        scope.run(f"llvm.masked.store.{suffix(kind)}.p0", [(kind, value), ("ptr", place), ("i32", each), (_masks(kind), mask)])


def _masks(kind: str) -> str:
    return f"{kind.split(' x ')[0]} x i1>"
