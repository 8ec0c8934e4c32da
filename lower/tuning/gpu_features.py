"""What a kernel for a GPU will do at some sizes, as numbers, from its nest alone, and what that takes: no code is generated.

Guarantees: a vector of `len(NAMES)` finite numbers that depends on nest, sizes and device only. Each launch counts with the
part of the device that its threads keep busy: what a few blocks do takes as long as if all did it many times.
"""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

import numpy as np

from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent, evaluate
from loopwright.ir.gpu_schedule import BLOCK, THREAD_X
from loopwright.ir.loops import Apply, Expr, Load, Prefix, Reduce, parts
from loopwright.ir.nest import Allocate, Buffer, Contract, For, Let, Nest, Passes, Reduction, Scan, Statement, Store, While
from loopwright.lower.cuda.driver import Device
from loopwright.lower.survey import WEIGHTS
from loopwright.lower.tuning.features import TRIPS, reached, steps_of

SECTOR = 32  # bytes that a warp's access moves at least
WARP = 32
SQUARE = 32  # the least edge of squares of threads that go across
MOST_BLOCKS = 1024  # of a fold in parts
ENOUGH = 0.5  # of the threads that a device holds keep it busy
LAUNCH = 3e-6  # seconds
LEAST = 1e-6  # of any kernel
LATENCY = 4e-7  # seconds until what memory is asked for is there
NEAR = 3.0  # times the memory's rate: the cache's
TOGETHER = 16.0  # products that tensor cores make in the time of one

NAMES = (
    "work", "sectors", "bytes",  # operations; bytes that accesses move, from the caches too; those that are surely met
    "busy_work", "busy_sectors", "busy_bytes",  # the same as if all the device were busy that long
    "launches", "steps",  # steps: of one thread, one after another
    "blocks", "threads", "lanes", "in_flight", "kept", "shared")  # most of them; kept, shared: bytes in registers, of a block
COLUMN = {name: k for k, name in enumerate(NAMES)}


def gpu_features(nest: Nest, sizes: Mapping[str, int], device: Device) -> np.ndarray:
    """f64[len(NAMES)]: what the nest does at these sizes."""
    total = dict.fromkeys(NAMES, 0.0)
    walk = _Walk(nest, sizes, total)
    for s in nest.body:
        walk.launch(s, device)
    assert nest.threads is not None
    total["threads"], total["bytes"] = float(math.prod(nest.threads)), sum(walk.met.values())
    return np.array([total[name] for name in NAMES])


@dataclass(frozen=True)
class DeviceModel:
    """Seconds by what takes longest: operations, bytes from the caches or from memory; and by how long threads wait."""

    device: Device

    def predict(self, x: np.ndarray) -> np.ndarray:
        """f64[n]: seconds of f64[n, features]."""
        d = self.device
        limits = [_of(x, "busy_work") / (d.processors * d.flops * d.clock / 2), _of(x, "busy_sectors") / (NEAR * d.bandwidth),
                  _of(x, "busy_bytes") / d.bandwidth]
        waiting = LATENCY * _of(x, "steps") / np.maximum(_of(x, "in_flight"), 1)
        found: np.ndarray = np.maximum.reduce(limits) + 0.1 * np.add.reduce(limits) + waiting + LAUNCH * _of(x, "launches")
        return found


def _of(x: np.ndarray, name: str) -> np.ndarray:
    found: np.ndarray = x[:, COLUMN[name]]
    return found


@dataclass(frozen=True)
class _Place:
    """Where a statement stands. points: how often it runs, all threads together; blocks, own: iterations that blocks share out,
    and the threads of each alone; extents: of the loops around it; fast: the loop that neighbouring threads go along."""

    points: float = 1.0
    blocks: float = 1.0
    own: float = 1.0
    lanes: int = 1
    extents: Mapping[str, int] = field(default_factory=dict)
    fast: str = ""

    def inside(self, name: str, extent: int, bind: tuple[str, ...] = (), lanes: int = 1) -> _Place:
        fast = "" if len(bind) == 3 else name if THREAD_X in bind else self.fast  # squares are read and stored along rows
        blocks = self.blocks * (extent if BLOCK in bind else 1)
        own = self.own * (extent if bind and BLOCK not in bind else 1)
        return _Place(self.points * extent, blocks, own, max(self.lanes, lanes), {**self.extents, name: extent}, fast)


@dataclass
class _Walk:
    nest: Nest
    sizes: Mapping[str, int]
    total: dict[str, float]
    met: dict[str, float] = field(default_factory=dict)
    here: dict[str, float] = field(default_factory=dict)  # of one launch
    reads: dict[str, float] = field(default_factory=dict)  # of one launch, the bytes of each array
    buffers: dict[str, Buffer] = field(default_factory=dict)
    is_alone: bool = False  # whether blocks share out a fold, of which each makes a part

    def __post_init__(self) -> None:
        self.buffers = {b.name: b for b in self.nest.buffers}

    def number(self, n: Extent) -> int:
        return n if isinstance(n, int) else evaluate(n, self.sizes)

    def most(self, name: str, x: float) -> None:
        self.total[name] = max(self.total[name], float(x))

    def launch(self, s: Statement, device: Device) -> None:
        """A statement that is, or is part of, a launch of its own."""
        self.here = {"work": 0.0, "sectors": 0.0, "steps": 0.0, "shared": 1.0}
        self.reads, self.is_alone = {}, isinstance(s, Reduction | Scan)
        self.statement(s, _Place())
        held = ENOUGH * device.processors * device.threads
        idle = held / min(max(self.here["shared"], 1.0), held)
        for name, x in (("work", self.here["work"]), ("sectors", self.here["sectors"])):
            self.total[name] += x
            self.total[f"busy_{name}"] += x * idle
        idle = min(idle, device.processors)  # a processor alone has more than its share of the memory
        self.total["busy_bytes"] += sum(self.reads.values()) * idle
        self.total["steps"] += self.here["steps"]
        self.total["launches"] += not isinstance(s, Let | Allocate)

    # ---- statements ------------------------------------------------------------------------------
    def body(self, statements: Sequence[Statement], at: _Place) -> None:
        for s in statements:
            self.statement(s, at)

    def statement(self, s: Statement, at: _Place) -> None:
        match s:
            case For():
                self.loop(s, at)
            case Store():
                for e in (*s.index, s.value, *([s.when] if s.when is not None else [])):
                    self.expression(e, at)
                self.access(s.buffer, s.index, at)
            case Let():
                self.expression(s.value, at)
            case Reduction():
                self.reduction(s, at)
            case Scan():
                here = at.inside(s.index.name, self.number(s.extent), s.bind)
                self.expression(s.body, here)
                self.access(s.buffer, s.at, here)
                self.threads(here, s.bind)
            case While():
                here = replace(at, points=at.points * TRIPS)
                for e in (s.condition, *s.following):
                    self.expression(e, here)
                self.body(s.body, here)
            case Allocate():
                self.buffers[s.buffer.name] = s.buffer
                size = s.buffer.dtype.itemsize * math.prod([self.number(n) for n in s.buffer.shape])
                if s.buffer.place == "registers":
                    self.total["kept"] += s.buffer.each * s.buffer.dtype.itemsize
                elif self.nest.threads is not None:
                    self.total["shared"] += size * self.nest.threads[1]
            case Contract():
                self.contract(s, at)
            case Passes():
                for folds in (*s.folds, ()):  # each pass makes the products that it asks for anew
                    for c in (*s.products, *(() if folds else (s.last,))):
                        self.contract(c, at)
                self.body((*s.body, *s.numbers), at)

    def loop(self, s: For, at: _Place) -> None:
        extent = self.number(s.extent if s.length is None else s.length)
        here = at.inside(s.index.name, -(-extent // s.step), s.bind, s.lanes)
        for name, x in (("lanes", s.lanes), ("in_flight", s.lanes * s.unroll)):
            self.most(name, x)
        self.threads(here, s.bind)
        self.body(s.body, here)

    def threads(self, at: _Place, bind: tuple[str, ...]) -> None:
        """Note how many threads work on what is here, and how many steps each has."""
        assert self.nest.threads is not None
        block = math.prod(self.nest.threads)
        if not bind:
            return
        if BLOCK in bind:
            each = {1: 1.0, 2: block * at.lanes if THREAD_X in bind else self.nest.threads[1],
                    3: float(max(at.lanes, SQUARE) ** 2)}[len(bind)]
            blocks = math.ceil(at.blocks / each)
            self.most("blocks", blocks)
            busy = float(min(blocks, MOST_BLOCKS) if self.is_alone else blocks) * block
        else:
            busy = self.total["blocks"] * block if self.total["blocks"] else min(at.own / at.lanes, block)
        self.here["shared"] = max(self.here["shared"], busy)
        self.here["steps"] = max(self.here["steps"], at.points / at.lanes / max(self.here["shared"], 1.0))

    def reduction(self, s: Reduction, at: _Place) -> None:
        here = at
        for index, extent in s.over:
            here = here.inside(index.name, self.number(extent), s.bind)
        here = replace(here, lanes=max(here.lanes, s.lanes))
        for name, x in (("lanes", s.lanes), ("in_flight", s.lanes * s.unroll)):
            self.most(name, x)
        self.expression(s.body, here)
        self.body(s.also, here)
        self.here["work"] += here.points
        self.threads(here, s.bind)

    def contract(self, s: Contract, at: _Place) -> None:
        """A tile for each block: its sides' terms from memory once, then from shared memory to registers."""
        rows, columns = (b.length or self.number(b.extent) for b in (s.rows, s.columns))
        terms, blocks = math.prod([self.number(b.extent) for b in s.over]), at.points
        assert self.nest.threads is not None
        block = math.prod(self.nest.threads)
        products = blocks * rows * columns * terms
        self.here["work"] += products / TOGETHER if s.unit else products * (1 + 1 / max(s.heights[0], 1) + 1 / max(s.lanes, 1))
        self.here["shared"] = max(self.here["shared"], blocks * block)
        self.here["steps"] += terms / max(s.depth, 1)
        self.total["kept"] += rows * columns * s.dtype.itemsize / block
        self.total["shared"] += 2 * s.depth * (rows + columns) * s.dtype.itemsize
        self.most("in_flight", s.depth * (rows + columns) / block)
        for side, e in ((s.rows, s.left), (s.columns, s.right)):
            here = at
            for b in (*s.over, side):
                parts_of = b.of or [(b.index, b.extent)]
                for index, extent in parts_of:
                    here = here.inside(index.name, self.number(extent), (THREAD_X,))
            count = blocks * terms * (rows if side is s.rows else columns)
            self.expression(e, replace(here, points=count))

    # ---- expressions -----------------------------------------------------------------------------
    def expression(self, e: Expr, at: _Place) -> None:
        """What is computed and read for an expression, parts that it shares once."""
        todo, seen = [e], {id(e)}
        work = 0
        while todo:
            x = todo.pop()
            match x:
                case Load(array, index):
                    self.access(str(array), index, at)
                case Apply(fn):
                    work += WEIGHTS.get(fn, 1)
                case Reduce():
                    here = at
                    for k, n in x.over:
                        here = here.inside(k.name, self.number(n))
                    self.expression(x.body, here)
                    continue
                case Prefix():
                    self.expression(x.body, at.inside(x.index.name, self.number(x.extent)))
                    continue
            for part in parts(x):
                if id(part) not in seen:
                    seen.add(id(part))
                    todo.append(part)
        self.here["work"] += work * at.points

    def access(self, name: str, index: Sequence[Expr], at: _Place) -> None:
        """Note a read or write: neighbouring threads move whole sectors where they go along the last axis, one where they
        all read the same, and a sector each where they go across."""
        b = self.buffers[name]
        if b.place or b.role == "local":
            return
        each, steps = b.dtype.itemsize, [steps_of(e) for e in index]
        moved = {k for axis in steps for k in axis}
        if at.fast and at.fast not in moved:
            wide = SECTOR / WARP
        else:
            along = not at.fast or (steps[-1].get(at.fast) == 1 and not any(at.fast in axis for axis in steps[:-1]))
            wide = float(each if along else SECTOR)
        self.here["sectors"] += at.points * wide
        shape = [self.number(n) for n in b.shape]
        bytes_ = reached(shape, steps, at.extents, each)
        for known in (self.met, self.reads):
            known[b.name] = max(known.get(b.name, 0.0), bytes_)
