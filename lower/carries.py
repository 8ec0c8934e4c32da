"""What loops carry, in memory: where a trip finds a carry, where it puts the next one, and what is done between two trips.

Each kind has the buffers `current()` and `next()` of a trip, `advance()` after it, and `finish()` after the last.
"""
from __future__ import annotations

from collections.abc import Callable

from loopwright.ir.graph import Value
from loopwright.lower.functions import Frame
from loopwright.lower.plan import bytes_of

Cut = Callable[[Frame, Value, Value, str, str], None]  # a vector; as a body sees it; its buffer; where the vector will lie


class Small:
    """A carry on the stack, copied at the end of each trip: the optimiser keeps it in registers."""

    def __init__(self, frame: Frame, v: Value, initial: str, result: str, spare: str, trips: str | None) -> None:
        self.frame, self.v, self.result, self.following = frame, v, result, spare
        self.now = frame.stack(bytes_of(v))
        frame.copy(v, initial, self.now)

    def current(self) -> str:
        return self.now

    def next(self) -> str:
        return self.following

    def advance(self) -> None:
        self.frame.copy(self.v, self.following, self.now)

    def finish(self) -> None:
        self.frame.copy(self.v, self.now, self.result)


class Large:
    """A carry in two buffers that take turns, of which one is the result's. The initial value is read where it is, which may be
    the result's buffer: then the first trip writes the other one. Where the number of trips is known, and the initial value
    lies elsewhere, the last one writes the result; else it is copied if it ended in the other buffer."""

    def __init__(self, frame: Frame, v: Value, initial: str, result: str, spare: str, trips: str | None) -> None:
        self.frame, self.v, self.result = frame, v, result
        w = frame.w
        self.first, self.second = result, spare
        if trips is not None:
            odd = w.let(f"trunc i64 {trips} to i1")
            self.first = w.let(f"select i1 {odd}, ptr {result}, ptr {spare}")
            self.second = w.let(f"select i1 {odd}, ptr {spare}, ptr {result}")
        self.now, self.following = w.slot("ptr"), ""
        w.store("ptr", initial, self.now)

    def current(self) -> str:
        return self.frame.w.load("ptr", self.now)

    def next(self) -> str:
        w = self.frame.w
        in_first = w.let(f"icmp eq ptr {w.load('ptr', self.now)}, {self.first}")
        self.following = w.let(f"select i1 {in_first}, ptr {self.second}, ptr {self.first}")
        return self.following

    def advance(self) -> None:
        self.frame.w.store("ptr", self.following, self.now)

    def finish(self) -> None:
        w = self.frame.w
        last, copy, done = w.load("ptr", self.now), w.fresh("copy"), w.fresh("done")
        w.branch(w.let(f"icmp eq ptr {last}, {self.result}"), done, copy)
        w.label(copy)
        self.frame.copy(self.v, last, self.result)
        w.jump(done)
        w.label(done)


class InPlace:
    """A carry that each trip updates where it lies, in the result's bytes. It may begin there already."""

    def __init__(self, frame: Frame, v: Value, initial: str, result: str, spare: str, trips: str | None) -> None:
        self.result, w = result, frame.w
        copy, on = w.fresh("copy"), w.fresh("on")
        w.branch(w.let(f"icmp eq ptr {initial}, {result}"), on, copy)
        w.label(copy)
        frame.copy(v, initial, result)
        w.jump(on)
        w.label(on)

    def current(self) -> str:
        return self.result

    def next(self) -> str:
        return self.result

    def advance(self) -> None:
        """Nothing is to be done."""

    def finish(self) -> None:
        """The result is there."""


class Padded:
    """A vector that the body sees with more elements, as many as registers hold: on the stack, as a small one."""

    def __init__(self, cut: Cut, inner: Value, frame: Frame, v: Value, initial: str, result: str, spare: str,
                 trips: str | None) -> None:
        self.cut, self.frame, self.v, self.inner, self.result = cut, frame, v, inner, result
        self.now, self.following = padded(frame, v, inner, initial), frame.stack(bytes_of(inner))

    def current(self) -> str:
        return self.now

    def next(self) -> str:
        return self.following

    def advance(self) -> None:
        self.frame.copy(self.inner, self.following, self.now)

    def finish(self) -> None:
        self.cut(self.frame, self.v, self.inner, self.now, self.result)


def padded(frame: Frame, v: Value, inner: Value, at: str) -> str:
    """A buffer of the type of `inner` that begins with the elements of v, which lie at `at`; then there are zeros."""
    buffer, (kind, name, align, mask) = frame.stack(bytes_of(inner)), _lanes(frame, v, inner)
    x = frame.w.call(kind, f"llvm.masked.load.{name}.p0", f"ptr {at}", align, mask, f"{kind} zeroinitializer")
    frame.w.store(kind, x, buffer)
    return buffer


def cut(frame: Frame, v: Value, inner: Value, buffer: str, at: str) -> None:
    """Store the first elements of a buffer, those of v."""
    kind, name, align, mask = _lanes(frame, v, inner)
    x = frame.w.load(kind, buffer)
    frame.w.call("void", f"llvm.masked.store.{name}.p0", f"{kind} {x}", f"ptr {at}", align, mask)


def cut_in_halves(frame: Frame, v: Value, inner: Value, buffer: str, at: str) -> None:
    """The same where a store by a mask takes many steps: all of them, or as many as each bit of their number says. Which that
    are is the same in each trip, so that the branches cost little."""
    w, lanes, size = frame.w, int(str(inner.type.shape[0])), v.type.dtype.itemsize
    count, kind = frame.sizes.extent(v.type.shape[0]), f"<{lanes} x i{8 * size}>"
    x, whole, some, done = w.load(kind, buffer), w.fresh("whole"), w.fresh("some"), w.fresh("done")
    w.branch(w.let(f"icmp eq i64 {count}, {lanes}"), whole, some)
    w.label(whole)
    w.do(f"store {kind} {x}, ptr {at}, align {size}")
    w.jump(done)
    w.label(some)
    while lanes > 1:
        lanes //= 2
        low, high = (w.let(f"shufflevector {kind} {x}, {kind} poison, <{lanes} x i32> "
                           f"<{', '.join(f'i32 {first + k}' for k in range(lanes))}>") for first in (0, lanes))
        kind, takes, store, on = f"<{lanes} x i{8 * size}>", w.fresh("takes"), w.fresh("store"), w.fresh("on")
        w.do(f"%{takes} = icmp ne i64 {w.let(f'and i64 {count}, {lanes}')}, 0")
        w.branch(f"%{takes}", store, on)
        w.label(store)
        w.do(f"store {kind} {low}, ptr {at}, align {size}")
        w.jump(on)
        w.label(on)
        x = w.let(f"select i1 %{takes}, {kind} {high}, {kind} {low}")
        at = w.let(f"getelementptr i8, ptr {at}, i64 {w.let(f'select i1 %{takes}, i64 {lanes * size}, i64 0')}")
    w.jump(done)
    w.label(done)


def _lanes(frame: Frame, v: Value, inner: Value) -> tuple[str, str, str, str]:
    """The bytes of `inner` as a vector: its type, its name in intrinsics, an element's alignment in memory, and the mask of the
    elements of v."""
    (count,), bits = inner.type.shape, 8 * v.type.dtype.itemsize
    kind, head = f"<{count} x i64>", frame.head
    size = head.let(f"insertelement {kind} poison, i64 {frame.sizes.extent(v.type.shape[0])}, i32 0")
    size = head.let(f"shufflevector {kind} {size}, {kind} poison, <{count} x i32> zeroinitializer")
    mask = head.let(f"icmp slt {kind} <{', '.join(f'i64 {k}' for k in range(int(str(count))))}>, {size}")
    return f"<{count} x i{bits}>", f"v{count}i{bits}", f"i32 {bits // 8}", f"<{count} x i1> {mask}"


Carry = Small | Large | InPlace | Padded
