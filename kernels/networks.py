"""Sorts of many short rows as LLVM text: the lanes of vectors are rows, and a network compares their elements.

Elements become integers in their order, those at one place of as many rows as there are lanes a vector. The network is the
merge exchange of Batcher (Knuth, The Art of Computer Programming 3, 5.2.2, algorithm M), for rows of any length.

Guarantees: ascending, NaN last, without its sign; positions in the order of a stable sort, NaNs equal to each other and -0.0 to
0.0; longer rows, and fewer of them than lanes, are sorted one by one.
"""
from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from loopwright.ir.types import BF16, F16, F32, F64, SHORT

MOST = 32  # elements of a row: 191 comparisons
PAIRS = 192
BYTES = 64  # of a vector
Body = Callable[[str], None]


@cache
def sort_rows_text(dtype: np.dtype) -> tuple[str, str]:
    """Name and text of `void @lw_sort_rows_<dtype>(ptr %rows, ptr %out, ptr %temp, i64 %count, i64 %n)`: out becomes the rows,
    sorted; temp holds one. It calls `void @lw_sort_<dtype>(ptr data, ptr temp, i64 n)`."""
    name, kind, size = f"lw_sort_rows_{SHORT[dtype]}", SHORT[dtype], dtype.itemsize
    t = _Network(dtype, by_position=False)

    def store(block: _Network, row: str, lane: str) -> None:
        at = block.let(f"mul i64 {row}, %n")
        block.loop("%n", lambda k: block.put("%out", block.let(f"add i64 {at}, {k}"), k, lane))

    def alone(row: str) -> None:
        length, source, to = t.let(f"mul i64 %n, {size}"), t.row("%rows", size, row, "%n"), t.row("%out", size, row, "%n")
        t.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {source}, i64 {length}, i1 false)")
        t.do(f"call void @lw_sort_{kind}(ptr {to}, ptr %temp, i64 %n)")
    def single() -> None:
        t.do(f"call void @llvm.memcpy.p0.p0.i64(ptr %out, ptr %rows, i64 {t.let(f'mul i64 %count, {size}')}, i1 false)")
    t.body(store, alone, single)
    return name, t.text(name, "ptr %rows, ptr %out, ptr %temp, i64 %count, i64 %n",
                        ("void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)", f"void @lw_sort_{kind}(ptr, ptr, i64)"))


@cache
def argsort_rows_text(dtype: np.dtype) -> tuple[str, str]:
    """Name and text of `void @lw_argsort_rows_<dtype>(ptr %rows, ptr %out, ptr %temp, i64 %count, i64 %n)`: out becomes the i64
    positions that sort each row; temp holds those of one. It calls `void @lw_argsort_<dtype>(ptr, ptr, ptr, i64)`."""
    name, size = f"lw_argsort_rows_{SHORT[dtype]}", dtype.itemsize
    t = _Network(dtype, by_position=True)

    def store(block: _Network, row: str, lane: str) -> None:
        at = block.let(f"mul i64 {row}, %n")

        def one(k: str) -> None:
            to = block.let(f"getelementptr i64, ptr %out, i64 {block.let(f'add i64 {at}, {k}')}")
            block.do(f"store i64 {block.lane('%places', 'i64', k, lane)}, ptr {to}")
        block.loop("%n", one)

    def alone(row: str) -> None:
        source, to = t.row("%rows", size, row, "%n"), t.row("%out", 8, row, "%n")
        t.do(f"call void @lw_argsort_{SHORT[dtype]}(ptr {source}, ptr {to}, ptr %temp, i64 %n)")

    def single() -> None:
        t.do(f"call void @llvm.memset.p0.i64(ptr %out, i8 0, i64 {t.let('shl i64 %count, 3')}, i1 false)")
    t.body(store, alone, single)
    return name, t.text(name, "ptr %rows, ptr %out, ptr %temp, i64 %count, i64 %n",
                        ("void @llvm.memset.p0.i64(ptr, i8, i64, i1)", f"void @lw_argsort_{SHORT[dtype]}(ptr, ptr, ptr, i64)"))


@cache
def ranked_rows_text(dtype: np.dtype) -> tuple[str, str]:
    """Name and text of `void @lw_ranked_rows_<dtype>(ptr %rows, ptr %out, ptr %ranks, ptr %temp, i64 %count, i64 %n, i64 %m)`:
    out becomes what stands at m ranks of each row. It calls `void @lw_ranked_<dtype>(ptr, ptr, ptr, ptr, i64, i64)`."""
    name, kind, size = f"lw_ranked_rows_{SHORT[dtype]}", SHORT[dtype], dtype.itemsize
    t = _Network(dtype, by_position=False)

    def store(block: _Network, row: str, lane: str) -> None:
        at, last = block.let(f"mul i64 {row}, %m"), block.let("sub i64 %n, 1")

        def one(j: str) -> None:
            rank = block.let(f"load i64, ptr {block.let(f'getelementptr i64, ptr %ranks, i64 {j}')}")
            k = block.call("smin", block.call("smax", rank, "0"), last)
            block.put("%out", block.let(f"add i64 {at}, {j}"), k, lane)
        block.loop("%m", one)

    def alone(row: str) -> None:
        source, to = t.row("%rows", size, row, "%n"), t.row("%out", size, row, "%m")
        t.do(f"call void @lw_ranked_{kind}(ptr {source}, ptr {to}, ptr %ranks, ptr %temp, i64 %n, i64 %m)")
    t.body(store, alone, None)
    return name, t.text(name, "ptr %rows, ptr %out, ptr %ranks, ptr %temp, i64 %count, i64 %n, i64 %m",
                        (f"void @lw_ranked_{kind}(ptr, ptr, ptr, ptr, i64, i64)",))


@cache
def top_k_rows_text(dtype: np.dtype) -> tuple[str, str]:
    """Name and text of `void @lw_top_k_rows_<dtype>(ptr %rows, ptr %out, ptr %temp, i64 %count, i64 %n, i64 %k)`: row by row,
    by `void @lw_top_k_<dtype>(ptr, ptr, ptr, i64, i64)`."""
    name, one = f"lw_top_k_rows_{SHORT[dtype]}", f"void @lw_top_k_{SHORT[dtype]}"
    t = _Network(dtype, by_position=True)

    def alone(row: str) -> None:
        source, to = t.row("%rows", dtype.itemsize, row, "%n"), t.row("%out", 8, row, "%k")
        t.do(f"call {one}(ptr {source}, ptr {to}, ptr %temp, i64 %n, i64 %k)")
    t.loop("%count", alone)
    return name, t.text(name, "ptr %rows, ptr %out, ptr %temp, i64 %count, i64 %n, i64 %k",
                        (f"{one}(ptr, ptr, ptr, i64, i64)",))


class _Network:
    """The text of one function. by_position: positions go with the elements, and tell apart what is equal."""

    def __init__(self, dtype: np.dtype, *, by_position: bool) -> None:
        self.dtype, self.by_position, self.size = dtype, by_position, dtype.itemsize
        self.key = "i64" if by_position or self.size == 8 else "i32"
        self.lanes = BYTES // (8 if self.key == "i64" else 4)
        self.vector = f"<{self.lanes} x {self.key}>"
        self.lines: list[str] = []
        self.count = 0

    # ---- writing --------------------------------------------------------------------------------
    def fresh(self) -> str:
        self.count += 1
        return f"t{self.count}"

    def let(self, text: str) -> str:
        name = f"%{self.fresh()}"
        self.lines.append(f"  {name} = {text}")
        return name

    def do(self, *lines: str) -> None:
        self.lines += [line if line.endswith(":") else "  " + line for line in lines]

    def call(self, name: str, a: str, b: str) -> str:
        return self.let(f"call i64 @llvm.{name}.i64(i64 {a}, i64 {b})")

    def loop(self, count: str, body: Body) -> None:
        """body(i) for i from 0 up to a count."""
        before, head, inside, done, i = self.fresh(), self.fresh(), self.fresh(), self.fresh(), f"%{self.fresh()}"
        following, end = f"%{self.fresh()}", self.fresh()
        self.do(f"br label %{before}", f"{before}:", f"br label %{head}", f"{head}:",
                f"{i} = phi i64 [ 0, %{before} ], [ {following}, %{end} ]")
        self.do(f"br i1 {self.let(f'icmp slt i64 {i}, {count}')}, label %{inside}, label %{done}", f"{inside}:")
        body(i)
        self.do(f"br label %{end}", f"{end}:", f"{following} = add i64 {i}, 1", f"br label %{head}", f"{done}:")

    def when(self, test: str, then: Callable[[], None], other: Callable[[], None]) -> None:
        yes, no, done = self.fresh(), self.fresh(), self.fresh()
        self.do(f"br i1 {test}, label %{yes}, label %{no}", f"{yes}:")
        then()
        self.do(f"br label %{done}", f"{no}:")
        other()
        self.do(f"br label %{done}", f"{done}:")

    def row(self, base: str, size: int, row: str, length: str) -> str:
        """Where a row of so many elements of `size` bytes is."""
        return self.let(f"getelementptr i{8 * size}, ptr {base}, i64 {self.let(f'mul i64 {row}, {length}')}")

    def place(self, base: str, kind: str, k: str, lane: str) -> str:
        """Where a lane of vector k is."""
        number = self.let(f"add i64 {self.let(f'mul i64 {k}, {self.lanes}')}, {lane}")
        return self.let(f"getelementptr {kind}, ptr {base}, i64 {number}")

    def lane(self, base: str, kind: str, k: str, lane: str) -> str:
        return self.let(f"load {kind}, ptr {self.place(base, kind, k, lane)}")

    def put(self, base: str, at: str, k: str, lane: str) -> None:
        """Store element k of a lane's row."""
        bits, whole = f"i{8 * self.size}", self.lane("%keys", self.key, k, lane)
        value = whole if bits == self.key else self.let(f"trunc {self.key} {whole} to {bits}")
        self.do(f"store {bits} {value}, ptr {self.let(f'getelementptr {bits}, ptr {base}, i64 {at}')}")

    def text(self, name: str, parameters: str, declared: tuple[str, ...]) -> str:
        slots = [f"%keys = alloca [{MOST} x {self.vector}], align {BYTES}", f"%places = alloca [{MOST} x {self.vector}], "
                 f"align {BYTES}", f"%pairs = alloca [{2 * PAIRS} x i64]"]
        kinds = sorted({"i64", self.vector.replace("<", "v").replace(" x ", "").replace(">", "")})
        declarations = [f"declare {line}" for line in declared]
        declarations += [f"declare {v} @llvm.{f}.{k}({v}, {v})" for k in kinds for f in ("smin", "smax")
                         for v in ("i64" if k == "i64" else self.vector,)]
        body = "\n".join(["entry:", *("  " + s for s in slots), *self.lines])
        return "\n".join([*declarations, _COMPARISONS, f"define void @{name}({parameters}) nounwind "
                          f'"prefer-vector-width"="512" {{\n{body}\n  ret void\n}}'])

    # ---- the function ---------------------------------------------------------------------------
    def body(self, store: Callable[[_Network, str, str], None], alone: Body, single: Callable[[], None] | None) -> None:
        """Rows side by side, of which `store` keeps what is asked of a lane's row; or each `alone`; of one element all at
        once by `single`."""
        if single is not None:
            self.when(self.let("icmp eq i64 %n, 1"), single, lambda: self.body(store, alone, None))
        elif self.dtype in (F16, BF16):
            self.loop("%count", alone)
        else:
            short, many = self.let(f"icmp ule i64 %n, {MOST}"), self.let(f"icmp sge i64 %count, {self.lanes}")
            some = self.let("icmp sge i64 %n, 1")
            fits = self.let(f"and i1 {some}, {self.let(f'and i1 {short}, {many}')}")
            self.when(fits, lambda: self._blocks(store), lambda: self.loop("%count", alone))

    def _blocks(self, store: Callable[[_Network, str, str], None]) -> None:
        comparisons = self.let("call i64 @comparisons(ptr %pairs, i64 %n)")
        last = self.let(f"sub i64 %count, {self.lanes}")
        blocks = self.let(f"udiv i64 {self.let(f'add i64 %count, {self.lanes - 1}')}, {self.lanes}")

        def block(b: str) -> None:
            first = self.call("smin", self.let(f"mul i64 {b}, {self.lanes}"), last)  # the last block may begin in one before
            self.loop(str(self.lanes), lambda lane: self._load(self.let(f"add i64 {first}, {lane}"), lane))
            self.loop("%n", self._to_keys)
            self.loop(comparisons, self._compare)
            if not self.by_position:
                self.loop("%n", self._from_keys)
            self.loop(str(self.lanes), lambda lane: store(self, self.let(f"add i64 {first}, {lane}"), lane))
        self.loop(blocks, block)

    def _load(self, row: str, lane: str) -> None:
        at, bits = self.let(f"mul i64 {row}, %n"), f"i{8 * self.size}"
        widen = "sext" if self.dtype.kind in "if" else "zext"

        def one(k: str) -> None:
            place = self.let(f"getelementptr {bits}, ptr %rows, i64 {self.let(f'add i64 {at}, {k}')}")
            value = self.let(f"load {bits}, ptr {place}")
            value = value if bits == self.key else self.let(f"{widen} {bits} {value} to {self.key}")
            self.do(f"store {self.key} {value}, ptr {self.place('%keys', self.key, k, lane)}")
        self.loop("%n", one)

    def _slots(self, k: str) -> str:
        return self.let(f"getelementptr {self.vector}, ptr %keys, i64 {k}")

    def _splat(self, value: int) -> str:
        return f"splat ({self.key} {value})"

    def _folded(self, x: str) -> str:
        """Signs and sizes as integers in the order of the numbers, and back."""
        v, bits = self.vector, 8 * self.size
        if self.dtype in (F32, F64):
            sign = self.let(f"ashr {v} {x}, {self._splat(bits - 1)}")
            return self.let(f"xor {v} {x}, {self.let(f'and {v} {sign}, {self._splat((1 << (bits - 1)) - 1)}')}")
        is_unsigned = self.dtype.kind == "u" and f"i{bits}" == self.key
        return self.let(f"xor {v} {x}, {self._splat(-(1 << (bits - 1)))}") if is_unsigned else x

    def _to_keys(self, k: str) -> None:
        """The bits of elements as integers in their order."""
        at, v, bits = self._slots(k), self.vector, 8 * self.size
        x = self.let(f"load {v}, ptr {at}")
        key = self._folded(x)
        if self.dtype in (F32, F64):
            size = self.let(f"and {v} {x}, {self._splat((1 << (bits - 1)) - 1)}")
            nan = self.let(f"icmp sgt {v} {size}, {self._splat(0x7F800000 if bits == 32 else 0x7FF << 52)}")
            if self.by_position:  # zeros are equal, and NaNs
                zero = self.let(f"icmp eq {v} {size}, zeroinitializer")
                key = self.let(f"select <{self.lanes} x i1> {zero}, {v} zeroinitializer, {v} {key}")
                size = self._splat((1 << (bits - 1)) - 1)
            key = self.let(f"select <{self.lanes} x i1> {nan}, {v} {size}, {v} {key}")
        self.do(f"store {v} {key}, ptr {at}, align {BYTES}")
        if self.by_position:
            one = self.let(f"insertelement {v} poison, i64 {k}, i32 0")
            place = self.let(f"shufflevector {v} {one}, {v} poison, <{self.lanes} x i32> zeroinitializer")
            self.do(f"store {v} {place}, ptr {self.let(f'getelementptr {v}, ptr %places, i64 {k}')}, align {BYTES}")

    def _from_keys(self, k: str) -> None:
        """The bits that integers stand for."""
        at = self._slots(k)
        x = self._folded(self.let(f"load {self.vector}, ptr {at}"))
        self.do(f"store {self.vector} {x}, ptr {at}, align {BYTES}")

    def _compare(self, c: str) -> None:
        """Exchange two vectors' elements where they are in the wrong order."""
        v, two = self.vector, self.let(f"shl i64 {c}, 1")
        numbers = [self.let(f"load i64, ptr {self.let(f'getelementptr i64, ptr %pairs, i64 {x}')}")
                   for x in (two, self.let(f"or i64 {two}, 1"))]
        places = [self._slots(x) for x in numbers]
        a, b = (self.let(f"load {v}, ptr {x}") for x in places)
        kind = f"v{self.lanes}{self.key}"
        if not self.by_position:
            for place, f in zip(places, ("smin", "smax"), strict=True):
                self.do(f"store {v} {self.let(f'call {v} @llvm.{f}.{kind}({v} {a}, {v} {b})')}, ptr {place}, align {BYTES}")
            return
        slots = [self.let(f"getelementptr {v}, ptr %places, i64 {x}") for x in numbers]
        p, q = (self.let(f"load {v}, ptr {x}") for x in slots)
        masks = f"<{self.lanes} x i1>"
        tests = ("sgt", a, b), ("eq", a, b), ("sgt", p, q)
        greater, same, behind = (self.let(f"icmp {how} {v} {x}, {y}") for how, x, y in tests)
        wrong = self.let(f"or {masks} {greater}, {self.let(f'and {masks} {same}, {behind}')}")
        for (x, y), (first, second) in (((a, b), places), ((p, q), slots)):
            for place, (m, n) in ((first, (y, x)), (second, (x, y))):
                self.do(f"store {v} {self.let(f'select {masks} {wrong}, {v} {m}, {v} {n}')}, ptr {place}, align {BYTES}")


_COMPARISONS = """define internal i64 @comparisons(ptr %pairs, i64 %n) nounwind {
entry:
  %less = sub i64 %n, 1
  %zeros = call i64 @llvm.ctlz.i64(i64 %less, i1 false)
  %bits = sub i64 64, %zeros
  %top.bit = sub i64 %bits, 1
  %top = shl i64 1, %top.bit
  %many = icmp sgt i64 %n, 1
  br i1 %many, label %round, label %out
round:
  %p = phi i64 [ %top, %entry ], [ %p.half, %rounded ]
  %count = phi i64 [ 0, %entry ], [ %count.now, %rounded ]
  br label %pass
pass:
  %q = phi i64 [ %top, %round ], [ %q.half, %again ]
  %r = phi i64 [ 0, %round ], [ %p, %again ]
  %d = phi i64 [ %p, %round ], [ %d.next, %again ]
  %count.pass = phi i64 [ %count, %round ], [ %count.now, %again ]
  %end = sub i64 %n, %d
  br label %each
each:
  %i = phi i64 [ 0, %pass ], [ %i.next, %counted ]
  %count.now = phi i64 [ %count.pass, %pass ], [ %count.next, %counted ]
  %inside = icmp slt i64 %i, %end
  br i1 %inside, label %look, label %passed
look:
  %bit = and i64 %i, %p
  %asked = icmp eq i64 %bit, %r
  br i1 %asked, label %note, label %counted
note:
  %two = shl i64 %count.now, 1
  %first = getelementptr i64, ptr %pairs, i64 %two
  %second = getelementptr i64, ptr %first, i64 1
  %other = add i64 %i, %d
  store i64 %i, ptr %first
  store i64 %other, ptr %second
  %noted = add i64 %count.now, 1
  br label %counted
counted:
  %count.next = phi i64 [ %count.now, %look ], [ %noted, %note ]
  %i.next = add i64 %i, 1
  br label %each
passed:
  %is.last = icmp eq i64 %q, %p
  br i1 %is.last, label %rounded, label %again
again:
  %d.next = sub i64 %q, %p
  %q.half = lshr i64 %q, 1
  br label %pass
rounded:
  %p.half = lshr i64 %p, 1
  %is.more = icmp ne i64 %p.half, 0
  br i1 %is.more, label %round, label %out
out:
  %found = phi i64 [ 0, %entry ], [ %count.now, %rounded ]
  ret i64 %found
}
declare i64 @llvm.ctlz.i64(i64, i1)"""
