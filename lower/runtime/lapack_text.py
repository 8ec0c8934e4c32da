"""The text of the functions of `lapack.py`: each copies its matrices into column-major order, calls LAPACK, and copies back.

Guarantees: one piece of scratch memory for each call, given back on every way out; the library's threads are limited meanwhile
(blas_threads.py).
"""
from __future__ import annotations

from collections.abc import Callable

from loopwright.lower.runtime.blas_threads import MOST
from loopwright.lower.runtime.writer import Writer

ROUTINES = ("potrf", "getrf", "getrs", "syevd", "gesdd", "geqrf", "orgqr", "trsm", "gemm")
_LARGEST_32 = 2**31 - 1


def lapack_text(suffix: str, bits: int) -> str:
    """All functions for f32 or f64, for a library with integers of so many bits."""
    makers: tuple[Callable[[_Shim], None], ...] = (
        _cholesky, _solve, _slogdet, _eigh, _eigenvalues, _svd, _singular_values, _qr, _qr_triangle, _pinv, _triangular_solve)
    shims = [_Shim(suffix, bits) for _ in makers]
    texts = []
    for shim, make in zip(shims, makers, strict=True):
        make(shim)
        texts.append(shim.text)
    declared = dict.fromkeys(d for shim in shims for d in shim.w.declarations)
    return "\n".join((*declared, _flip_text(shims[0].real), *texts))


class _Shim:
    """One function being written. Names of values are LLVM's, with their sigil."""

    def __init__(self, suffix: str, bits: int) -> None:
        self.w, self.suffix, self.bits = Writer(), suffix, bits
        self.real = "float" if suffix == "f32" else "double"
        self.size = 4 if suffix == "f32" else 8
        self.text = ""
        self.status, self.block = self.w.slot("i64"), self.w.slot("ptr")
        self.w.store("i64", "0", self.status)
        self.w.store("ptr", "null", self.block)
        self.w.call("void", "lw_blas_enter", f"i32 {MOST}")

    def end(self, name: str, *parameters: str) -> None:
        """Give memory back and answer."""
        w = self.w
        w.jump("leave")
        w.label("leave")
        w.call("void", "lw_blas_leave")
        block = w.load("ptr", self.block)
        w.branch(w.let(f"icmp eq ptr {block}, null"), "answer", "release")
        w.label("release")
        w.call("void", "lw_scratch_release", f"ptr {block}")
        w.jump("answer")
        w.label("answer")
        w.do(f"ret i64 {w.load('i64', self.status)}")
        self.text = w.body(f"i64 @lw_{name}_{self.suffix}({', '.join(parameters)})")

    # ---- numbers -------------------------------------------------------------------------------
    def add(self, a: str, b: str) -> str:
        return self.w.let(f"add i64 {a}, {b}")

    def mul(self, a: str, b: str | int) -> str:
        return self.w.let(f"mul i64 {a}, {b}")

    def extreme(self, which: str, a: str, b: str) -> str:
        return self.w.call("i64", f"llvm.{which}.i64", f"i64 {a}", f"i64 {b}")

    def equal(self, a: str, b: str) -> str:
        return self.w.let(f"icmp eq i64 {a}, {b}")

    def select(self, condition: str, a: str, b: str) -> str:
        return self.w.let(f"select i1 {condition}, i64 {a}, i64 {b}")

    # ---- control -------------------------------------------------------------------------------
    def leave_if(self, condition: str, status: str | None = None) -> None:
        """Leave where the condition holds."""
        stop, on = self.w.fresh("stop"), self.w.fresh("on")
        self.w.branch(condition, stop, on)
        self.w.label(stop)
        if status is not None:
            self.w.store("i64", status, self.status)
        self.w.jump("leave")
        self.w.label(on)

    def fail_if(self, info: str) -> None:
        """Leave where the routine failed; it answers negative numbers where it met NaN."""
        positive = self.w.call("i64", "llvm.abs.i64", f"i64 {info}", "i1 false")
        self.leave_if(self.w.let(f"icmp ne i64 {info}, 0"), positive)

    def loop(self, count: str, body: Callable[[str], None]) -> None:
        """body(i) for i below count."""
        w = self.w
        counter, head, inside, after = w.slot("i64"), w.fresh("head"), w.fresh("inside"), w.fresh("after")
        w.store("i64", "0", counter)
        w.jump(head)
        w.label(head)
        i = w.load("i64", counter)
        w.branch(w.let(f"icmp slt i64 {i}, {count}"), inside, after)
        w.label(inside)
        body(i)
        w.store("i64", self.add(i, "1"), counter)
        w.jump(head)
        w.label(after)

    # ---- memory --------------------------------------------------------------------------------
    def acquire(self, *counts: str) -> list[str]:
        """Scratch for these counts of elements, each piece aligned. Once in a function."""
        rounded = [self.w.let(f"and i64 {self.add(self.mul(c, self.size), '63')}, -64") for c in counts]
        offsets = ["0"]
        for n in rounded:
            offsets.append(self.add(offsets[-1], n))
        block = self.w.call("ptr", "lw_scratch_acquire", f"i64 {offsets.pop()}")
        self.leave_if(self.w.let(f"icmp eq ptr {block}, null"), "-1")
        self.w.store("ptr", block, self.block)
        return [self.w.let(f"getelementptr i8, ptr {block}, i64 {at}") for at in offsets]

    def element(self, base: str, i: str) -> str:
        return self.w.let(f"getelementptr {self.real}, ptr {base}, i64 {i}")

    def copy(self, target: str, source: str, count: str) -> None:
        n = self.mul(count, self.size)
        self.w.call("void", "llvm.memcpy.p0.p0.i64", f"ptr {target}", f"ptr {source}", f"i64 {n}", "i1 false")

    def flip(self, target: str, source: str, rows: str, columns: str) -> None:
        """Row-major source[rows, columns] as column-major target, or a column-major [columns, rows] as row-major."""
        self.w.do(f"call void @flip(ptr {target}, ptr {source}, i64 {rows}, i64 {columns})")

    # ---- LAPACK --------------------------------------------------------------------------------
    def by_reference(self, value: str) -> str:
        """A whole number as the library reads it."""
        slot = self.w.slot(f"i{self.bits}")
        if self.bits == 32 and not value.lstrip("-").isdigit():
            value = self.w.let(f"trunc i64 {value} to i32")
        self.w.store(f"i{self.bits}", value, slot)
        return slot

    def letter(self, condition: str, yes: str, no: str) -> str:
        slot = self.w.slot("i8")
        self.w.store("i8", self.w.let(f"select i1 {condition}, i8 {ord(yes)}, i8 {ord(no)}"), slot)
        return slot

    def name(self, letter: str) -> str:
        return self.letter("true", letter, letter)

    def lapack(self, name: str, letters: list[str], *arguments: str) -> str:
        """Call it; lengths of letters follow the arguments. `info` is last among these; its value."""
        info = self.by_reference("0")
        self.plain(name, letters, *arguments, info)
        value = self.w.load(f"i{self.bits}", info)
        return value if self.bits == 64 else self.w.let(f"sext i32 {value} to i64")

    def plain(self, name: str, letters: list[str], *arguments: str) -> None:
        every = [f"ptr {x}" for x in (*letters, *arguments)]
        self.w.call("void", f"lapack_{name}", *every, *(["i64 1"] * len(letters)))

    def check_sizes(self, *sizes: str) -> None:
        """Leave where the library's integers cannot hold a size."""
        if self.bits == 32:
            top = "0"
            for n in sizes:
                top = self.extreme("smax", top, n)
            self.leave_if(self.w.let(f"icmp sgt i64 {top}, {_LARGEST_32}"), "-1")

    def asked(self, answer: str) -> str:
        """The work space that a routine asked for, as a count of elements."""
        count = self.w.let(f"fptosi {self.real} {self.w.load(self.real, answer)} to i64")
        return self.add(count, self.add(self.w.let(f"lshr i64 {count}, 20"), "1"))  # f32 may have rounded it down


def _flip_text(real: str) -> str:
    """The transpose in tiles of 16."""
    return f"""
define internal void @flip(ptr %target, ptr %source, i64 %rows, i64 %columns) nounwind {{
entry:
  %none.rows = icmp sle i64 %rows, 0
  %none.columns = icmp sle i64 %columns, 0
  %none = or i1 %none.rows, %none.columns
  br i1 %none, label %out, label %band
band:
  %i0 = phi i64 [ 0, %entry ], [ %i1, %band.end ]
  %i1 = add i64 %i0, 16
  %i.end = call i64 @llvm.smin.i64(i64 %i1, i64 %rows)
  br label %tile
tile:
  %j0 = phi i64 [ 0, %band ], [ %j1, %tile.end ]
  %j1 = add i64 %j0, 16
  %j.end = call i64 @llvm.smin.i64(i64 %j1, i64 %columns)
  br label %row
row:
  %i = phi i64 [ %i0, %tile ], [ %i.next, %row.end ]
  %from.row = mul i64 %i, %columns
  br label %one
one:
  %j = phi i64 [ %j0, %row ], [ %j.next, %one ]
  %from.at = add i64 %from.row, %j
  %from = getelementptr {real}, ptr %source, i64 %from.at
  %value = load {real}, ptr %from
  %to.row = mul i64 %j, %rows
  %to.at = add i64 %to.row, %i
  %to = getelementptr {real}, ptr %target, i64 %to.at
  store {real} %value, ptr %to
  %j.next = add i64 %j, 1
  %more.j = icmp slt i64 %j.next, %j.end
  br i1 %more.j, label %one, label %row.end
row.end:
  %i.next = add i64 %i, 1
  %more.i = icmp slt i64 %i.next, %i.end
  br i1 %more.i, label %row, label %tile.end
tile.end:
  %more.tiles = icmp slt i64 %j1, %columns
  br i1 %more.tiles, label %tile, label %band.end
band.end:
  %more.bands = icmp slt i64 %i1, %rows
  br i1 %more.bands, label %band, label %out
out:
  ret void
}}"""


# ---- the functions ----------------------------------------------------------------------------------
def _cholesky(s: _Shim) -> None:
    """A row-major lower triangle is a column-major upper one: U^T U = a, in place."""
    s.leave_if(s.equal("%n", "0"))
    s.check_sizes("%n")
    s.copy("%out", "%a", s.mul("%n", "%n"))
    n = s.by_reference("%n")
    s.w.store("i64", s.lapack("potrf", [s.name("U")], n, "%out", n), s.status)

    def row(i: str) -> None:
        first = s.add(i, "1")
        rest = s.mul(s.w.let(f"sub i64 %n, {first}"), s.size)
        s.w.call("void", "llvm.memset.p0.i64", f"ptr {s.element('%out', s.add(s.mul(i, '%n'), first))}", "i8 0", f"i64 {rest}",
                 "i1 false")
    s.loop("%n", row)
    s.end("cholesky", "ptr %a", "ptr %out", "i64 %n")


def _solve(s: _Shim) -> None:
    s.leave_if(s.equal(s.mul("%n", "%k"), "0"))
    s.check_sizes("%n", "%k")
    a, x, pivots = s.acquire(s.mul("%n", "%n"), s.mul("%n", "%k"), s.mul("%n", 8 // s.size))
    s.flip(a, "%a", "%n", "%n")
    s.flip(x, "%b", "%n", "%k")
    n, k = s.by_reference("%n"), s.by_reference("%k")
    info = s.lapack("getrf", [], n, n, a, n, pivots)
    s.fail_if(info)
    s.lapack("getrs", [s.name("N")], n, k, a, n, pivots, x, n)
    s.flip("%out", x, "%k", "%n")
    s.end("solve", "ptr %a", "ptr %b", "ptr %out", "i64 %n", "i64 %k")


def _slogdet(s: _Shim) -> None:
    """The product of the diagonal of U; each exchange of rows changes the sign."""
    w = s.w
    w.store(s.real, "1.0", "%sign")
    w.store(s.real, "0.0", "%log")
    s.leave_if(s.equal("%n", "0"))
    s.check_sizes("%n")
    a, pivots = s.acquire(s.mul("%n", "%n"), s.mul("%n", 8 // s.size))
    s.flip(a, "%a", "%n", "%n")
    n = s.by_reference("%n")
    s.lapack("getrf", [], n, n, a, n, pivots)

    def one(i: str) -> None:
        pivot = w.load(f"i{s.bits}", w.let(f"getelementptr i{s.bits}, ptr {pivots}, i64 {i}"))
        pivot = pivot if s.bits == 64 else w.let(f"sext i32 {pivot} to i64")
        is_swap = w.let(f"icmp ne i64 {pivot}, {s.add(i, '1')}")
        d = w.load(s.real, s.element(a, s.add(s.mul(i, "%n"), i)))
        turned = w.let(f"select i1 {is_swap}, {s.real} -1.0, {s.real} 1.0")
        above, below = (w.let(f"select i1 {w.let(f'fcmp {c} {s.real} {d}, 0.0')}, {s.real} 1.0, {s.real} 0.0")
                        for c in ("ugt", "olt"))
        own = w.let(f"fsub {s.real} {above}, {below}")
        sign = w.let(f"fmul {s.real} {w.load(s.real, '%sign')}, {w.let(f'fmul {s.real} {own}, {turned}')}")
        w.store(s.real, sign, "%sign")
        size = w.call(s.real, f"llvm.fabs.{s.suffix}", f"{s.real} {d}")
        log = w.call(s.real, f"llvm.log.{s.suffix}", f"{s.real} {size}")
        w.store(s.real, w.let(f"fadd {s.real} {w.load(s.real, '%log')}, {log}"), "%log")
    s.loop("%n", one)
    is_zero = w.let(f"fcmp oeq {s.real} {w.load(s.real, '%sign')}, 0.0")  # also where a zero pivot met an infinite one
    lowest = "0xFFF0000000000000"
    w.store(s.real, w.let(f"select i1 {is_zero}, {s.real} {lowest}, {s.real} {w.load(s.real, '%log')}"), "%log")
    s.end("slogdet", "ptr %a", "ptr %sign", "ptr %log", "i64 %n")


def _eigh(s: _Shim) -> None:
    v = _decomposed(s, "V")
    s.flip("%vectors", v, "%n", "%n")
    s.end("eigh", "ptr %a", "ptr %values", "ptr %vectors", "i64 %n")


def _eigenvalues(s: _Shim) -> None:
    _decomposed(s, "N")
    s.end("eigenvalues", "ptr %a", "ptr %values", "i64 %n")


def _decomposed(s: _Shim, job: str) -> str:
    """The eigenvalues where they belong, and the place of the vectors, if the job is to find them."""
    s.leave_if(s.equal("%n", "0"))
    s.check_sizes("%n")
    n, answer, whole = s.by_reference("%n"), s.w.slot(s.real), s.w.slot(f"i{s.bits}")
    letters, ask = [s.name(job), s.name("L")], s.by_reference("-1")
    s.lapack("syevd", letters, n, answer, n, answer, answer, ask, whole, ask)
    work, integers = s.asked(answer), s.w.load(f"i{s.bits}", whole)
    integers = integers if s.bits == 64 else s.w.let(f"sext i32 {integers} to i64")
    v, place, order = s.acquire(s.mul("%n", "%n"), work, s.mul(integers, 8 // s.size))
    s.flip(v, "%a", "%n", "%n")
    info = s.lapack("syevd", letters, n, v, n, "%values", place, s.by_reference(work), order, s.by_reference(integers))
    s.fail_if(info)
    return v


def _identity(s: _Shim, target: str, n: str) -> None:
    count = s.mul(s.mul(n, n), s.size)
    s.w.call("void", "llvm.memset.p0.i64", f"ptr {target}", "i8 0", f"i64 {count}", "i1 false")
    s.loop(n, lambda i: s.w.store(s.real, "1.0", s.element(target, s.add(s.mul(i, n), i))))


def _if_empty(s: _Shim, is_empty: str, then: Callable[[], None]) -> None:
    """Do something and leave where there is nothing to factor."""
    empty, on = s.w.fresh("empty"), s.w.fresh("on")
    s.w.branch(is_empty, empty, on)
    s.w.label(empty)
    then()
    s.w.jump("leave")
    s.w.label(on)


def _svd(s: _Shim) -> None:
    is_full, least = s.w.let("icmp ne i64 %full, 0"), s.extreme("smin", "%m", "%n")
    rank_u, rank_v = s.select(is_full, "%m", least), s.select(is_full, "%n", least)

    def nothing() -> None:
        _identity(s, "%u", s.select(is_full, "%m", "0"))
        _identity(s, "%vt", s.select(is_full, "%n", "0"))
    _if_empty(s, s.equal(least, "0"), nothing)
    s.check_sizes("%m", "%n")
    m, n, kv = (s.by_reference(x) for x in ("%m", "%n", rank_v))
    job, answer, ask = s.letter(is_full, "A", "S"), s.w.slot(s.real), s.by_reference("-1")
    s.lapack("gesdd", [job], m, n, answer, m, answer, answer, m, answer, kv, answer, ask, answer)
    work = s.asked(answer)
    a, u, vt, place, order = s.acquire(s.mul("%m", "%n"), s.mul("%m", rank_u), s.mul(rank_v, "%n"), work,
                                       s.mul(least, 64 // s.size))
    s.flip(a, "%a", "%m", "%n")
    info = s.lapack("gesdd", [job], m, n, a, m, "%s", u, m, vt, kv, place, s.by_reference(work), order)
    s.fail_if(info)
    s.flip("%u", u, rank_u, "%m")
    s.flip("%vt", vt, "%n", rank_v)
    s.end("svd", "ptr %a", "ptr %u", "ptr %s", "ptr %vt", "i64 %m", "i64 %n", "i64 %full")


def _singular_values(s: _Shim) -> None:
    least = s.extreme("smin", "%m", "%n")
    s.leave_if(s.equal(least, "0"))
    s.check_sizes("%m", "%n")
    m, n, one, job = s.by_reference("%m"), s.by_reference("%n"), s.by_reference("1"), s.name("N")
    answer, ask = s.w.slot(s.real), s.by_reference("-1")
    s.lapack("gesdd", [job], m, n, answer, m, answer, answer, one, answer, one, answer, ask, answer)
    work = s.asked(answer)
    a, place, order = s.acquire(s.mul("%m", "%n"), work, s.mul(least, 64 // s.size))
    s.flip(a, "%a", "%m", "%n")
    s.fail_if(s.lapack("gesdd", [job], m, n, a, m, "%s", answer, one, answer, one, place, s.by_reference(work), order))
    s.end("singular_values", "ptr %a", "ptr %s", "i64 %m", "i64 %n", "i64 %full")


def _qr(s: _Shim) -> None:
    """Householder reflections in place, then q made from them."""
    is_full, least = s.w.let("icmp ne i64 %full, 0"), s.extreme("smin", "%m", "%n")
    columns = s.select(is_full, "%m", least)
    _if_empty(s, s.equal(least, "0"), lambda: _identity(s, "%q", s.select(is_full, "%m", "0")))
    s.check_sizes("%m", "%n")
    m, n, k, kq = (s.by_reference(x) for x in ("%m", "%n", least, columns))
    answer, other, ask = s.w.slot(s.real), s.w.slot(s.real), s.by_reference("-1")
    s.lapack("geqrf", [], m, n, answer, m, answer, answer, ask)
    s.lapack("orgqr", [], m, kq, k, answer, m, answer, other, ask)
    work = s.extreme("smax", s.asked(answer), s.asked(other))
    a, tau, place = s.acquire(s.mul("%m", s.extreme("smax", "%n", columns)), least, work)
    size = s.by_reference(work)
    s.flip(a, "%a", "%m", "%n")
    s.lapack("geqrf", [], m, n, a, m, tau, place, size)
    _upper(s, a, columns)
    s.lapack("orgqr", [], m, kq, k, a, m, tau, place, size)
    s.flip("%q", a, columns, "%m")
    s.end("qr", "ptr %a", "ptr %q", "ptr %r", "i64 %m", "i64 %n", "i64 %full")


def _qr_triangle(s: _Shim) -> None:
    least = s.extreme("smin", "%m", "%n")
    s.leave_if(s.equal(least, "0"))
    s.check_sizes("%m", "%n")
    m, n, answer = s.by_reference("%m"), s.by_reference("%n"), s.w.slot(s.real)
    s.lapack("geqrf", [], m, n, answer, m, answer, answer, s.by_reference("-1"))
    work = s.asked(answer)
    a, tau, place = s.acquire(s.mul("%m", "%n"), least, work)
    s.flip(a, "%a", "%m", "%n")
    s.lapack("geqrf", [], m, n, a, m, tau, place, s.by_reference(work))
    _upper(s, a, s.select(s.w.let("icmp ne i64 %full, 0"), "%m", least))
    s.end("qr_triangle", "ptr %a", "ptr %r", "i64 %m", "i64 %n", "i64 %full")


def _upper(s: _Shim, a: str, rows: str) -> None:
    """So many rows of the upper triangle of a factored matrix, to r."""
    w = s.w

    def row(i: str) -> None:
        def one(j: str) -> None:
            value = w.load(s.real, s.element(a, s.add(s.mul(j, "%m"), i)))
            kept = w.let(f"select i1 {w.let(f'icmp sle i64 {i}, {j}')}, {s.real} {value}, {s.real} 0.0")
            w.store(s.real, kept, s.element("%r", s.add(s.mul(i, "%n"), j)))
        s.loop("%n", one)
    s.loop(rows, row)


def _pinv(s: _Shim) -> None:
    """v s^-1 u^T in row-major order is u s^-1 v^T in column-major order."""
    w = s.w
    least = s.extreme("smin", "%m", "%n")
    s.leave_if(s.equal(least, "0"))
    s.check_sizes("%m", "%n")
    m, n, k, job = s.by_reference("%m"), s.by_reference("%n"), s.by_reference(least), s.name("S")
    answer, ask = w.slot(s.real), s.by_reference("-1")
    s.lapack("gesdd", [job], m, n, answer, m, answer, answer, m, answer, k, answer, ask, answer)
    work = s.asked(answer)
    a, values, u, vt, place, order = s.acquire(s.mul("%m", "%n"), least, s.mul("%m", least), s.mul(least, "%n"), work,
                                               s.mul(least, 64 // s.size))
    s.flip(a, "%a", "%m", "%n")
    info = s.lapack("gesdd", [job], m, n, a, m, values, u, m, vt, k, place, s.by_reference(work), order)
    s.fail_if(info)
    limit = w.let(f"fmul {s.real} {w.load(s.real, '%rcond')}, {w.load(s.real, values)}")

    def column(j: str) -> None:
        value = w.load(s.real, s.element(values, j))
        is_large = w.let(f"fcmp ogt {s.real} {value}, {limit}")
        inverse = w.let(f"select i1 {is_large}, {s.real} {w.let(f'fdiv {s.real} 1.0, {value}')}, {s.real} 0.0")

        def one(i: str) -> None:
            at = s.element(u, s.add(s.mul(j, "%m"), i))
            w.store(s.real, w.let(f"fmul {s.real} {w.load(s.real, at)}, {inverse}"), at)
        s.loop("%m", one)
    s.loop(least, column)
    ones, zero = w.slot(s.real), w.slot(s.real)
    w.store(s.real, "1.0", ones)
    w.store(s.real, "0.0", zero)
    s.plain("gemm", [s.name("N"), s.name("N")], m, n, k, ones, u, m, vt, k, zero, "%out", m)
    s.end("pinv", "ptr %a", "ptr %rcond", "ptr %out", "i64 %m", "i64 %n")


def _triangular_solve(s: _Shim) -> None:
    """a x = b says x^T a^T = b^T, and row-major matrices are their transposes: in place, with no copy but that of b."""
    w = s.w
    s.leave_if(s.equal(s.mul("%n", "%k"), "0"))
    s.check_sizes("%n", "%k")
    s.copy("%out", "%b", s.mul("%n", "%k"))
    one = w.slot(s.real)
    w.store(s.real, "1.0", one)
    flags = [w.let(f"icmp ne i64 {x}, 0") for x in ("%lower", "%transposed", "%unit")]
    names = (("U", "L"), ("T", "N"), ("U", "N"))
    letters = [s.name("R"), *(s.letter(f, yes, no) for f, (yes, no) in zip(flags, names, strict=True))]
    n, k = s.by_reference("%n"), s.by_reference("%k")
    s.plain("trsm", letters, k, n, one, "%a", n, "%out", k)
    s.end("triangular_solve", "ptr %a", "ptr %b", "ptr %out", "i64 %n", "i64 %k", "i64 %lower", "i64 %transposed", "i64 %unit")
