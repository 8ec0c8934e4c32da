"""A graph of a program at known sizes: its steps, and where in a block of memory its values are.

Guarantees: a step reads and writes addresses of one table (arguments, results, slots of the plan), so that what a stretch of
steps does depends on that table alone; carries are never read after their bytes were written; rows of scanned arrays are used
where they lie, or copied to where kernels may expect them.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent, evaluate, symbol_of
from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.interpreter import evaluate as run_graph
from loopwright.ir.op import Op
from loopwright.ir.ops.control import scan, switch, while_
from loopwright.ir.ops.regions import split
from loopwright.ir.types import BOOL, I64
from loopwright.lower.control import sized
from loopwright.lower.cuda.driver import Located
from loopwright.lower.cuda.emit import CudaKernel
from loopwright.lower.cuda.program import sizes_in
from loopwright.lower.kernel import kernel
from loopwright.lower.plan import Argument, Place, ResultMemory, Scratch, on_stack, plan_regions

if TYPE_CHECKING:
    from loopwright.lower.cuda.launcher import Launcher

MOST_UNROLLED = 8192  # launches of a loop that is captured as a whole
ALIGNED = 64  # bytes: slots start at multiples of it
ROW_ALIGNED = 16  # bytes: what kernels expect of arrays
Table = Sequence[int]


class Step(Protocol):
    """`launches`: how many launches and copies it is; None where the host takes part. `why`: what the host does then. `own`:
    bytes that it needs beside its workspace."""

    launches: int | None
    why: str
    own: int

    def run(self, table: Table) -> None: ...


class Frame:
    """The steps of a graph. `shared`: bytes of its larger slots, which control flow takes from its workspace; `own`: of the
    small ones, of kernels' scratch, and of what control flow inside needs; `bytes`: of all."""

    def __init__(self, launcher: Launcher, g: Graph, sizes: Mapping[str, int]) -> None:
        self.launcher, self.g, self.sizes = launcher, g, sizes
        self.plan = launcher.plan(g)
        needs = [(size, on_stack(need)) for need in self.plan.slots for size in [evaluate(need, sizes)]]
        self.shared, self.own = (aligned_total(size for size, small in needs if small is kind) for kind in (False, True))
        ends = {False: 0, True: 0}
        self.slots: list[tuple[bool, int]] = []
        for size, small in needs:
            self.slots.append((small, ends[small]))
            ends[small] += aligned(size)
        self.scratch = self.own  # where the scratch of kernels begins, one after another in the same bytes; then regions' own
        made = {n: launcher.program.made[n] for n in g.nodes if n in launcher.program.made}
        self.own += max([sum(scratch_bytes(k, sizes_in(n, k, sizes))) for n, k in made.items()], default=0)
        self.inside = self.own
        self.steps = [self._step(n) for n in g.nodes if n.regions]
        self.own += max([step.own for step in self.steps], default=0)
        self.bytes = self.shared + self.own
        self.stretches = list(_stretches(self.steps))

    @property
    def launches(self) -> int | None:
        """How many launches and copies it is; None where the host takes part."""
        counts = [step.launches for step in self.steps]
        return None if None in counts else sum(c for c in counts if c is not None)

    def _step(self, n: Node) -> Step:
        if n in self.launcher.program.made:
            return _Kernel(self, n)
        make: Callable[[Frame, Node], Step] = _Library if n.op is kernel else _CONTROL[n.op]
        return make(self, n)

    # ---- addresses -----------------------------------------------------------------------------
    def index(self, v: Value) -> int:
        """The place of a value in the table."""
        return self.at(self.plan.places[v])

    def at(self, place: Place) -> int:
        match place:
            case Argument(k):
                return k
            case ResultMemory(k):
                return len(self.g.params) + k
            case Scratch(k):
                return len(self.g.params) + len(self.g.results) + k

    def workspace(self, n: Node) -> int:
        """The place in the table of the memory of a node of control flow; that of the kernels' scratch where it needs none."""
        return self.at(self.plan.workspaces[n]) if n in self.plan.workspaces else -3

    def located(self, v: Value, table: Table) -> Located:
        """A value where it is."""
        return Located(table[self.index(v)], tuple([evaluate(n, self.sizes) for n in v.type.shape]), v.type.dtype)

    def run(self, arguments: Sequence[int], results: Sequence[int], shared: int, own: int, error: int, *,
            captures: bool = True) -> None:
        """All steps, in memory that begins at these addresses. `error`: where kernels report, on the caller's stream, which a
        capture's is not. `captures`: unless what runs is captured already."""
        slots = [(own if small else shared) + offset for small, offset in self.slots]
        table = (*arguments, *results, *slots, own + self.scratch, own + self.inside, error)
        for k, (steps, count) in enumerate(self.stretches):
            if captures and self.launcher.captures and count:
                self.launcher.replayed((self, k, table), lambda steps=steps: run_steps(steps, table))  # type: ignore[misc]
            else:
                run_steps(steps, table)

    def described(self) -> list[str]:
        """A line for each stretch."""
        return [steps[0].why if count is None else "1 launch, captured when it comes again" if count == 1 else
                f"{count} launches, captured when they come again" for steps, count in self.stretches]


def run_steps(steps: Sequence[Step], table: Table) -> None:
    for step in steps:
        step.run(table)


def _stretches(steps: Sequence[Step]) -> list[tuple[list[Step], int | None]]:
    """Steps between those in which the host takes part, which stand alone."""
    found: list[tuple[list[Step], int | None]] = []
    for step in steps:
        if found and step.launches is not None and found[-1][1] is not None:
            found[-1] = [*found[-1][0], step], found[-1][1] + step.launches
        else:
            found.append(([step], step.launches))
    return found


def aligned(count: int) -> int:
    return -(-count // ALIGNED) * ALIGNED


def aligned_total(counts: Any) -> int:
    return sum(map(aligned, counts))


def scratch_bytes(k: CudaKernel, sizes: Mapping[str, int]) -> list[int]:
    return [aligned(evaluate(x.count, sizes) * x.itemsize) for x in k.scratch]


def bytes_of(v: Value, sizes: Mapping[str, int]) -> int:
    return evaluate(v.type.size, sizes) * v.type.dtype.itemsize


# ---- kernels --------------------------------------------------------------------------------------
class _Kernel:
    """The launches of a generated kernel."""

    why, own = "", 0

    def __init__(self, frame: Frame, n: Node) -> None:
        launcher = frame.launcher
        made = launcher.program.made[n]
        sizes = sizes_in(n, made, frame.sizes)
        self.driver = launcher.driver
        self.buffers = [frame.index(v) for v in (*n.inputs, *n.outputs)]
        self.scratch = list(accumulate(scratch_bytes(made, sizes), initial=0))[:len(made.scratch)]
        self.sizes = [sizes[s] for s in made.symbols]
        self.report = 8 * launcher.reports.get(n, 0)
        found = [(launcher.functions[x.name], evaluate(x.grid, sizes), x.threads, evaluate(x.shared, sizes),
                  [evaluate(number, sizes) for number in x.numbers]) for x in made.launches]
        self.parts = [x for x in found if x[1] > 0]
        self.launches: int | None = len(self.parts)

    def run(self, table: Table) -> None:
        arguments = [*[table[k] for k in self.buffers], *[table[-3] + x for x in self.scratch], *self.sizes,
                     table[-1] + self.report]
        for function, grid, threads, shared, numbers in self.parts:
            self.driver.launch(function, grid, threads, shared, [*arguments, *numbers])


class _Library:
    """A call of a library on the device; where there is none, NumPy's on the host."""

    own = 0

    def __init__(self, frame: Frame, n: Node) -> None:
        self.frame, self.node = frame, n
        self.why = f"a library call: {n.attrs['implementation']}"
        is_empty = any(evaluate(v.type.size, frame.sizes) == 0 for v in (*n.inputs, *n.outputs))
        self.call = None if is_empty else frame.launcher.driver.library(n, frame.sizes)
        self.launches: int | None = 1 if self.call is not None and self.call.can_capture else None
        self.inputs, self.outputs = ([frame.index(v) for v in values] for values in (n.inputs, n.outputs))

    def run(self, table: Table) -> None:
        if self.call is not None:
            self.call([table[k] for k in self.inputs], [table[k] for k in self.outputs])
            return
        n, driver = self.node, self.frame.launcher.driver
        inputs, outputs = ([self.frame.located(v, table) for v in values] for values in (n.inputs, n.outputs))
        found = run_graph(n.regions[0], [driver.read(x) for x in inputs], self.frame.sizes)
        for at, x in zip(outputs, found, strict=True):
            driver.write(at, np.asarray(x, order="C"))


# ---- control flow ---------------------------------------------------------------------------------
@dataclass
class Carry:
    """A carry of a loop: where it is now, and the two buffers that take turns, `first` before the other."""

    now: int
    result: int
    spare: int
    first: int
    bytes: int

    @property
    def next(self) -> int:
        if self.now == self.result:
            return self.spare
        return self.result if self.now == self.spare else self.first


class _Control:
    """A node of control flow: its regions as frames, which take turns in the same memory."""

    launches: int | None = None
    why: str

    def __init__(self, frame: Frame, n: Node) -> None:
        self.frame, self.node, self.launcher, self.driver = frame, n, frame.launcher, frame.launcher.driver
        self.memory = plan_regions(n)
        self.frames = [self.launcher.frame(g, frame.sizes) for g in n.regions]
        self.inputs, self.outputs = ([frame.index(v) for v in values] for values in (n.inputs, n.outputs))
        self.workspace = frame.workspace(n)
        self.own = max([f.own for f in self.frames], default=0)
        self.end = aligned(evaluate(self.memory.shared, frame.sizes))  # of what is taken of the workspace
        self.spares = [self._spare(need) for need in self.memory.spare]

    def _spare(self, need: Extent) -> tuple[bool, int]:
        """The second buffer of a carry: in our own memory or in the workspace, and where there."""
        size = aligned(evaluate(need, self.frame.sizes))
        if on_stack(need):
            return True, self.reserve(size)
        self.end += size
        return False, self.end - size

    def reserve(self, count: int) -> int:
        """So many bytes of our own memory, by where they begin in it."""
        self.own += aligned(count)
        return self.own - aligned(count)

    def run_region(self, k: int, table: Table, arguments: Sequence[int], results: Sequence[int]) -> None:
        self.frames[k].run(arguments, results, table[self.workspace], table[-2], table[-1],
                           captures=self.launches is None)

    def decision(self, at: int, dtype: np.dtype) -> Any:
        """A number that the host reads, when what it waits for met no error."""
        found = self.driver.read(Located(at, (), dtype))[()]
        self.launcher.raise_reported(self.driver.stream())
        return found

    def carries(self, table: Table, initial: Sequence[int], trips: int = 1) -> list[Carry]:
        """The carries of a loop as they begin; those that stay in place are copied to where they stay. After that many `trips`
        they are where the results belong, if they did not begin there."""
        found: list[Carry] = []
        for start, k, (own, at), stays in zip(initial, self.outputs, self.spares, self.memory.in_place, strict=False):
            value, result = self.node.outputs[len(found)], table[k]
            count = bytes_of(value, self.frame.sizes)
            if stays and start != result:
                self.driver.copy(result, start, count)
            spare = result if stays else (table[-2] if own else table[self.workspace]) + at
            first = result if trips % 2 else spare
            found.append(Carry(result if stays else start, result, spare, first, count))
        return found

    def settle(self, carries: Sequence[Carry]) -> None:
        """Put the last values where the results belong."""
        for c in carries:
            if c.now != c.result:
                self.driver.copy(c.result, c.now, c.bytes)


class _Switch(_Control):
    why = "the host reads which branch is taken"

    def run(self, table: Table) -> None:
        index, *operands = [table[k] for k in self.inputs]
        self.run_region(int(self.decision(index, I64)), table, operands, [table[k] for k in self.outputs])


class _While(_Control):
    why = "the host reads whether a loop goes on"

    def __init__(self, frame: Frame, n: Node) -> None:
        super().__init__(frame, n)
        self.test = self.reserve(BOOL.itemsize)

    def run(self, table: Table) -> None:
        addresses = [table[k] for k in self.inputs]
        attrs = self.node.attrs
        test, body, initial = split(addresses, attrs["condition_constants"], attrs["body_constants"])
        carries, at = self.carries(table, initial), table[-2] + self.test
        while True:
            self.run_region(0, table, [*test, *[c.now for c in carries]], [at])
            if not self.decision(at, BOOL):
                break
            following = [c.next for c in carries]
            self.run_region(1, table, [*body, *[c.now for c in carries]], following)
            for c, to in zip(carries, following, strict=True):
                c.now = to
        self.settle(carries)


class _Scan(_Control):
    why = "a loop whose trips the host starts"

    def __init__(self, frame: Frame, n: Node) -> None:
        super().__init__(frame, n)
        self.trips, (body,) = evaluate(n.attrs["length"], frame.sizes), self.frames
        constants, carry = n.attrs["constants"], n.attrs["carry"]
        self.rows = [self._row(v) for v in body.g.params[constants + carry:]]
        self.made = [self._row(v) for v in body.g.results[carry:]]
        copies = sum(apart is not None for _, apart in (*self.rows, *self.made))
        count = None if body.launches is None else self.trips * (body.launches + copies) + 2 * carry
        self.launches = count if count is not None and count <= MOST_UNROLLED else None

    def _row(self, v: Value) -> tuple[int, int | None]:
        """The bytes of a row, and where in our own memory it is copied to if kernels cannot use it where it lies."""
        count = bytes_of(v, self.frame.sizes)
        return count, self.reserve(count) if v.type.rank and count % ROW_ALIGNED else None

    def run(self, table: Table) -> None:
        n, driver, own = self.node, self.driver, table[-2]
        constants, initial, xs = split([table[k] for k in self.inputs], n.attrs["constants"], n.attrs["carry"])
        carries = self.carries(table, initial, self.trips)
        ys = [table[k] for k in self.outputs[len(carries):]]
        for trip in reversed(range(self.trips)) if n.attrs["reverse"] else range(self.trips):
            rows = []
            for x, (count, apart) in zip(xs, self.rows, strict=True):
                rows.append(x + trip * count if apart is None else own + apart)
                if apart is not None:
                    driver.copy(own + apart, x + trip * count, count)
            made = [y + trip * count if apart is None else own + apart for y, (count, apart) in zip(ys, self.made, strict=True)]
            following = [c.next for c in carries]
            self.run_region(0, table, [*constants, *[c.now for c in carries], *rows], [*following, *made])
            for y, (count, apart) in zip(ys, self.made, strict=True):
                if apart is not None:
                    driver.copy(y + trip * count, own + apart, count)
            for c, to in zip(carries, following, strict=True):
                c.now = to
        self.settle(carries)


class _Sized:
    """What follows a number that is a size: it takes its memory when the host has read that."""

    launches: int | None = None
    own, why = 0, "the host reads a size"

    def __init__(self, frame: Frame, n: Node) -> None:
        self.frame, self.node, self.launcher = frame, n, frame.launcher
        self.name = symbol_of(n.attrs["size"])
        self.inputs, self.outputs = ([frame.index(v) for v in values] for values in (n.inputs, n.outputs))

    def run(self, table: Table) -> None:
        driver = self.launcher.driver
        count, *operands = [table[k] for k in self.inputs]
        size = max(int(driver.read(Located(count, (), I64))), 0)
        self.launcher.raise_reported(driver.stream())
        assert self.name is not None
        frame = self.launcher.frame(self.node.regions[0], {**self.frame.sizes, self.name: size})
        block = driver.allocate(frame.bytes) if frame.bytes else None
        base = block.address if block else 0
        frame.run(operands, [table[k] for k in self.outputs], base, base + frame.shared, table[-1])


_CONTROL: Mapping[Op, Callable[[Frame, Node], Step]] = {switch: _Switch, while_: _While, scan: _Scan, sized: _Sized}
