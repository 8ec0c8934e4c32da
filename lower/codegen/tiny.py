"""Products of tiny matrices of a batch as text: the lanes of a vector are elements of results, as they lie in memory.

    i1 @lw_tiny_f32(i64 count, i64 m, i64 n, i64 k, ptr a, i64 a.row, i64 a.term, ptr b, i64 b.column, i64 b.term, ptr c)
    i1 @lw_tiny_f64(...)         C[m, n] = A B for count matrices, one after the other; A's rows and terms, and B's columns and
                                 terms, so many elements apart: sides may be stored transposed. Whether it was done

A vector of results needs, of each term, elements that lie near each other on either side: a window of one to four vectors, in
which instructions find them by tables of places. Tables are made once in a call, since places repeat after as many matrices as
end where a vector does. Where elements lie too far apart, or matrices are fewer than the vectors of a table, nothing is done.

Guarantees: nothing outside the matrices is read or written; an element's sum is made term by term, as `small.py` makes it,
whatever else is in the batch. There is at least one row, column and term.
"""
from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from loopwright.lower.codegen.interleaving import Lanes, added, product
from loopwright.lower.codegen.machine import ATTRIBUTES
from loopwright.lower.codegen.small import element, first_lanes, load_first, store_first
from loopwright.lower.codegen.text import Carried, Scope, branch, loop, repeat
from loopwright.lower.target import Target

MOST = 64  # vectors of results after which places repeat: as many as a result has elements, where these are odd
WINDOWS = ((1, 1), (2, 2), (4, 2), (2, 4), (4, 4))  # vectors of either side, the first that suffice
OFTEN = 12  # times that a table's further vectors are read, where making one takes long
_BLOCKS = "i64 %begin, i64 %end, i64 %vectors, i64 %terms, ptr %a, i64 %a.block, i64 %a.term, ptr %b, i64 %b.block, " \
    "i64 %b.term, ptr %c, ptr %a.places, ptr %b.places, ptr %a.starts, ptr %b.starts, i64 %a.size, i64 %b.size, i64 %c.size"


def name_of(dtype: np.dtype) -> str:
    """The function's name."""
    return f"lw_tiny_f{8 * dtype.itemsize}"


def tiny_text(dtype: np.dtype, target: Target) -> str:
    """The function and those that it calls."""
    lanes = Lanes(dtype, target)
    possible = windows_of(lanes)
    texts = [_Blocks(lanes, windows, cut=False).text() for windows in possible]
    texts += [_Blocks(lanes, possible[-1], cut=True).text(), _Whole(lanes).text()]
    return "\n".join([*sorted(lanes.declarations), *sorted(lanes.constants), *texts])


def windows_of(lanes: Lanes) -> Sequence[tuple[int, int]]:
    """Windows that take less than matrices one by one: where an instruction finds numbers of 64 bits as halves, narrow ones."""
    return WINDOWS if lanes.target.has_masks or lanes.dtype.itemsize < 8 else WINDOWS[:2]


class _Blocks:
    """Blocks of matrices, with windows of so many vectors; `cut`: at the end of what may be read and written."""

    def __init__(self, lanes: Lanes, windows: tuple[int, int], *, cut: bool) -> None:
        self.lanes, self.windows, self.cut = lanes, windows, cut
        self.function = lanes.function()

    def text(self) -> str:
        loop(self.function.root, "%begin", "%end", "1", (), self._block)
        name = f"@{name_of(self.lanes.dtype)}_{_ending(self.windows, self.cut)}"
        return f"define internal void {name}({_BLOCKS}) noinline {ATTRIBUTES} {{\n{self.function.body()}\n  ret void\n}}"

    def _block(self, scope: Scope, block: str, state: list[str]) -> list[str]:
        starts = [product(scope, block, f"%{side}.block") for side in "ab"]
        results = product(scope, block, "%vectors", str(self.lanes.count))

        def vector(inner: Scope, at: str, state: list[str]) -> list[str]:
            sides = []
            for side, start in zip("ab", starts, strict=True):
                offset = inner.emit(f"load i64, ptr {element(inner, 'i64', f'%{side}.starts', at)}")
                sides.append(added(inner, start, offset))
            place = added(inner, results, product(inner, at, str(self.lanes.count)))
            self._vector(inner, at, sides, place)
            return []
        loop(scope, "0", "%vectors", "1", (), vector, runs=True)
        return []

    def _vector(self, scope: Scope, at: str, sides: list[str], place: str) -> None:
        """One vector of results, from where its windows begin."""
        lanes, carried, windows = self.lanes, [("i64", "%terms")], list[list[str]]()
        for side, first, vectors in zip("ab", sides, self.windows, strict=True):
            index = scope.emit(f"load {lanes.whole}, ptr {element(scope, lanes.whole, f'%{side}.places', at)}, align 64")
            carried.append((lanes.whole, index))
            windows.append(self._window(scope, side, first, vectors))
        steps = [lanes.every(scope, f"%{side}.term") for side in "ab"]

        def term(inner: Scope, state: list[str]) -> tuple[str, list[str]]:
            left, *indices, total = state
            machine = lanes.machine(inner)
            x, y = (chosen(inner, lanes, window, index) for window, index in zip(windows, indices, strict=True))
            following = [machine.iadd(index, step) for index, step in zip(indices, steps, strict=True)]
            left = added(inner, left, -1)
            return inner.emit(f"icmp ne i64 {left}, 0"), [left, *following, machine.fma(x, y, total)]
        *_, total = repeat(scope, [*carried, (lanes.kind, "zeroinitializer")], term)
        mask = first_lanes(scope, scope.emit(f"sub i64 %c.size, {place}"), lanes.count) if self.cut else None
        store_first(scope, lanes.kind, total, element(scope, lanes.number, "%c", place), mask)

    def _window(self, scope: Scope, side: str, first: str, vectors: int) -> list[str]:
        lanes, found = self.lanes, list[str]()
        left = scope.emit(f"sub i64 %{side}.size, {first}") if self.cut else ""
        for part in range(vectors):
            place = element(scope, lanes.number, f"%{side}", added(scope, first, part * lanes.count))
            mask = first_lanes(scope, added(scope, left, -part * lanes.count), lanes.count) if self.cut else None
            found.append(load_first(scope, lanes.kind, place, mask))
        return found


def chosen(scope: Scope, lanes: Lanes, window: Sequence[str], index: str) -> str:
    """Elements of one, two or four vectors, by an index in each lane."""
    machine = lanes.machine(scope)
    if lanes.target.has_masks:
        end, short = ("ps", "sf") if lanes.dtype.itemsize == 4 else ("pd", "df")
        if len(window) == 1:
            return scope.call(lanes.kind, f"llvm.x86.avx512.permvar.{short}.512",
                              [(lanes.kind, window[0]), (lanes.whole, index)])
        found, size = [scope.call(lanes.kind, f"llvm.x86.avx512.vpermi2var.{end}.512",
                                  [(lanes.kind, a), (lanes.whole, index), (lanes.kind, b)])
                       for a, b in zip(window[::2], window[1::2], strict=True)], 2 * lanes.count
    else:
        found, size = [_of_eight(scope, lanes, x, index) for x in window], lanes.count
    while len(found) > 1:
        upper = machine.icompare("ne", machine.iand(index, size), 0)
        found, size = [machine.select(upper, b, a) for a, b in zip(found[::2], found[1::2], strict=True)], 2 * size
    return found[0]


def _of_eight(scope: Scope, lanes: Lanes, window: str, index: str) -> str:
    """By the instruction that moves eight numbers of 32 bits: of those of 64 it moves both halves."""
    if lanes.dtype.itemsize == 8:
        machine = lanes.machine(scope)
        low = machine.iadd(index, index)
        index = scope.emit(f"bitcast {lanes.whole} {machine.ior(low, machine.shl(machine.iadd(low, 1), 32))} to <8 x i32>")
        window = scope.emit(f"bitcast {lanes.kind} {window} to <8 x float>")
    made = scope.call("<8 x float>", "llvm.x86.avx2.permps", [("<8 x float>", window), ("<8 x i32>", index)])
    return made if lanes.dtype.itemsize == 4 else scope.emit(f"bitcast <8 x float> {made} to {lanes.kind}")


class _Whole:
    """The function: it makes the tables, and calls what goes through the blocks."""

    def __init__(self, lanes: Lanes) -> None:
        self.lanes, self.function, self.windows = lanes, lanes.function(), windows_of(lanes)
        self.places = {side: self.function.slot(MOST, lanes.whole, 64) for side in "ab"}
        self.starts = {side: self.function.slot(MOST, "i64", 8) for side in "ab"}

    def text(self) -> str:
        root, count = self.function.root, self.lanes.count
        self.matrix = {side: product(root, x, "%terms") for side, x in zip("ab", ("%m", "%n"), strict=True)}
        size = product(root, "%m", "%n")
        shift = root.call("i64", "llvm.cttz.i64", [("i64", root.emit(f"or i64 {size}, {count}")), ("i1", "true")])
        self.vectors, self.together = root.emit(f"lshr i64 {size}, {shift}"), root.emit(f"lshr i64 {count}, {shift}")
        self.size = size
        many = "%count" if self.lanes.target.has_masks else added(root, root.emit(f"udiv i64 %count, {OFTEN}"), 1)
        most = root.call("i64", "llvm.smin.i64", [("i64", many), ("i64", str(MOST))])
        fits = root.emit(f"icmp sle i64 {self.vectors}, {most}")
        done, = branch(root, fits, self._with_tables, otherwise=[("i1", "false")])
        header = f"i1 @{name_of(self.lanes.dtype)}(i64 %count, i64 %m, i64 %n, i64 %terms, ptr %a, i64 %a.row, i64 %a.term, " \
            "ptr %b, i64 %b.column, i64 %b.term, ptr %c)"
        return f"define {header} {ATTRIBUTES} {{\n{self.function.body()}\n  ret i1 {done}\n}}"

    def _with_tables(self, scope: Scope) -> Carried:
        found = loop(scope, "0", self.vectors, "1", [("i64", "0")] * 4, self._places)
        widths, starts = found[:2], dict(zip("ab", found[2:], strict=True))
        fitting = [scope.emit(f"icmp sle i64 {x}, {self.windows[-1][0] * self.lanes.count}") for x in widths]
        fits = scope.emit(f"and i1 {fitting[0]}, {fitting[1]}")
        branch(scope, fits, partial(self._run, widths, starts))
        return [("i1", fits)]

    def _places(self, scope: Scope, at: str, most: list[str]) -> list[str]:
        """Where the factors of a vector's first terms lie, from the first of them; how wide windows are up to here, and where
        the last begins, on either side."""
        lanes, kind = self.lanes, self.lanes.whole
        bits, machine = f"i{8 * lanes.dtype.itemsize}", self.lanes.machine(scope)
        steps = f"<{', '.join(f'{bits} {x}' for x in range(lanes.count))}>"
        number = machine.iadd(steps, lanes.every(scope, product(scope, at, str(lanes.count))))
        matrix, inside = self._divided(scope, number, self.size)
        row, column = self._divided(scope, inside, "%n")
        widths, starts = list[str](), list[str]()
        for side, index, step in (("a", row, "%a.row"), ("b", column, "%b.column")):
            place = machine.iadd(self._times(scope, matrix, self.matrix[side]), self._times(scope, index, step))
            first, last = (scope.call(bits, f"llvm.vector.reduce.{x}.v{lanes.count}{bits}", [(kind, place)])
                           for x in ("smin", "smax"))
            first, last = (x if bits == "i64" else scope.emit(f"zext i32 {x} to i64") for x in (first, last))
            scope.do(f"store {kind} {machine.isub(place, lanes.every(scope, first))}, "
                     f"ptr {element(scope, kind, self.places[side], at)}, align 64")
            scope.do(f"store i64 {first}, ptr {element(scope, 'i64', self.starts[side], at)}")
            terms = product(scope, scope.emit("sub i64 %terms, 1"), f"%{side}.term")
            widths.append(added(scope, scope.emit(f"sub i64 {added(scope, last, terms)}, {first}"), 1))
            starts.append(first)
        return [scope.call("i64", "llvm.smax.i64", [("i64", x), ("i64", y)])
                for x, y in zip(most, [*widths, *starts], strict=True)]

    def _divided(self, scope: Scope, number: str, by: str) -> tuple[str, str]:
        """Quotients and remainders of small numbers: a half more than a number is far enough from a whole quotient."""
        machine, lanes = self.lanes.machine(scope), self.lanes
        exact = scope.emit(f"uitofp i64 {by} to {lanes.number}")
        one = scope.emit(f"insertelement {lanes.kind} poison, {lanes.number} {exact}, i32 0")
        every = scope.emit(f"shufflevector {lanes.kind} {one}, {lanes.kind} poison, <{lanes.count} x i32> zeroinitializer")
        ratio = machine.div(machine.add(scope.emit(f"sitofp {lanes.whole} {number} to {lanes.kind}"), 0.5), every)
        whole = scope.emit(f"fptosi {lanes.kind} {ratio} to {lanes.whole}")
        return whole, machine.isub(number, self._times(scope, whole, by))

    def _times(self, scope: Scope, x: str, step: str) -> str:
        return self.lanes.machine(scope).imul(x, self.lanes.every(scope, step))

    # ---- blocks -----------------------------------------------------------------------------------
    def _run(self, widths: list[str], starts: dict[str, str], scope: Scope) -> Carried:
        """Blocks whose windows end inside the matrices, with windows as narrow as they can be; then the others."""
        lanes = self.lanes
        blocks = {side: product(scope, self.together, x) for side, x in self.matrix.items()}
        sizes = {side: product(scope, "%count", x) for side, x in (*self.matrix.items(), ("c", self.size))}
        places = ", ".join(f"ptr {x}" for x in (*self.places.values(), *self.starts.values()))

        def call(inner: Scope, begin: str, end: str, windows: tuple[int, int], cut: bool) -> None:
            inner.do(f"call void @{name_of(lanes.dtype)}_{_ending(windows, cut)}(i64 {begin}, i64 {end}, "
                     f"i64 {self.vectors}, i64 %terms, ptr %a, i64 {blocks['a']}, i64 %a.term, ptr %b, i64 {blocks['b']}, "
                     f"i64 %b.term, ptr %c, {places}, i64 {sizes['a']}, i64 {sizes['b']}, i64 {sizes['c']})")

        def inside(inner: Scope, side: str, vectors: int) -> str:
            """How many of the first blocks have such windows that end inside the matrices."""
            left = inner.emit(f"sub i64 {sizes[side]}, {added(inner, starts[side], vectors * lanes.count)}")
            whole = added(inner, inner.emit(f"sdiv i64 {left}, {blocks[side]}"), 1)
            return inner.emit(f"select i1 {inner.emit(f'icmp sge i64 {left}, 0')}, i64 {whole}, i64 0")

        def run(windows: tuple[int, int], inner: Scope) -> Carried:
            safe = inner.emit(f"udiv i64 %count, {self.together}")
            for side, vectors in zip("ab", windows, strict=True):
                safe = inner.call("i64", "llvm.smin.i64", [("i64", safe), ("i64", inside(inner, side, vectors))])
            call(inner, "0", safe, windows, False)
            return [("i64", safe)]

        def choose(possible: Sequence[tuple[int, int]], inner: Scope) -> Carried:
            windows, *others = possible
            if not others:
                return run(windows, inner)
            tests = [inner.emit(f"icmp sle i64 {x}, {v * lanes.count}") for x, v in zip(widths, windows, strict=True)]
            found, = branch(inner, inner.emit(f"and i1 {tests[0]}, {tests[1]}"), partial(run, windows), partial(choose, others))
            return [("i64", found)]
        (_, safe), = choose(self.windows, scope)
        whole = scope.emit(f"add i64 %count, {scope.emit(f'sub i64 {self.together}, 1')}")
        call(scope, safe, scope.emit(f"udiv i64 {whole}, {self.together}"), self.windows[-1], True)
        return ()


def _ending(windows: tuple[int, int], cut: bool) -> str:
    return f"{windows[0]}{windows[1]}{'_cut' * cut}"
