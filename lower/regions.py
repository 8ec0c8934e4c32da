"""Control flow as machine code: a function for each structure, whose regions run in loops and branches of its own.

Guarantees: no Python and no allocation per trip (what a trip needs is planned once); a carry is never read after its
bytes were written: it has two buffers that take turns, or a copy at the end of the trip where it is small enough for
registers; rows of scanned arrays are read and written in place; loops that may run long ask for signals.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, reduce

from loopwright.ir.dims import product, substitute, symbol_of
from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.op import Op
from loopwright.ir.ops.control import scan, switch, while_
from loopwright.ir.ops.regions import split
from loopwright.lower.carries import Carry, InPlace, Large, Padded, Small, cut, cut_in_halves, padded
from loopwright.lower.control import blocks, carry_count, initial_carries, padded_scan, sized, strip_scan, strips
from loopwright.lower.functions import FAILED, Callee, Frame, Function
from loopwright.lower.plan import Argument, Place, Regions, ResultMemory, bytes_of, on_stack, plan_memory, plan_regions
from loopwright.lower.runtime.pool_text import WAKING
from loopwright.lower.runtime.sizes import Sizes
from loopwright.lower.runtime.writer import Writer, every

SMALL_TEXT = 20_000  # characters of a function that may become part of another
FEW_TRIPS = 1 << 16  # of small bodies: over before anybody could ask for an end
MOST_SITES = 2  # of a loop that threads share: the unknown one and another
FIRST_POLL = {True: 1024, False: 1}  # trips before the first question, by whether the body is small
POLL_OF_ROWS = 32  # where it is, but runs on many rows


def control_function(whole: Graph, name: str, called_by: Callable[[Node], Callee], *,
                     quickly: bool, has_masks: bool) -> tuple[Function, str, tuple[str, ...]]:
    """The function of the only node of `whole`, its text and the declarations it needs. quickly: compile it so; has_masks:
    stores by masks are cheap."""
    n = whole.nodes[0]
    symbols = {s: f"%n{k}" for k, s in enumerate(whole.free_symbols)}
    operands = [f"%p{whole.params.index(v)}" for v in n.inputs]
    results = [f"%r{k}" for k in range(len(n.outputs))]

    def known(head: Writer) -> dict[str, str]:
        own = {}
        if n.op is sized:
            count = head.load("i64", operands[0])
            own[str(symbol_of(n.attrs["size"]))] = head.call("i64", "llvm.smax.i64", f"i64 {count}", "i64 0")
        return symbols | own

    frame = Frame(called_by, known, inlines=n.op is not sized)
    c = _Control(name, frame, n, operands, results, has_masks=has_masks)
    _EMIT[n.op](c)
    initial = initial_carries(n)  # each may lie where its result will
    parameters = [*(f"ptr {'' if v in initial else 'noalias '}%p{k}" for k, v in enumerate(whole.params)),
                  *(f"ptr {'' if k < len(initial) else 'noalias '}{r}" for k, r in enumerate(results)),
                  "ptr %workspace", *(f"i64 {s}" for s in symbols.values()), "ptr %error"]
    text = frame.text(f"{'' if quickly else 'internal '}void @{name}({', '.join(parameters)})", quickly)
    is_small = frame.is_small and n.op is not sized and not c.others and len(text) < SMALL_TEXT
    declared = (*frame.w.declarations, *(x for _, w in c.others for x in w.declarations))
    return Function(name, tuple(frame.sites), frame.can_fail, is_small), "\n".join((*(x for x, _ in c.others), text)), declared


class _Control:
    """A node of control flow inside the function that is written for it."""

    def __init__(self, name: str, frame: Frame, n: Node, operands: list[str], results: list[str], *, has_masks: bool) -> None:
        self.name, self.frame, self.w, self.node, self.cut = name, frame, frame.w, n, cut if has_masks else cut_in_halves
        self.others: list[tuple[str, Writer]] = []  # functions that this one needs
        self.operands, self.results = operands, results
        self.memory: Regions = plan_regions(n)
        self.scratch = [frame.scratch(plan, "%workspace") for plan in self.memory.plans]

    def run(self, region: int, arguments: Sequence[str], results: Sequence[str]) -> None:
        """Emit a region on these buffers."""
        pointers = self.scratch[region] | {Argument(k): p for k, p in enumerate(arguments)}
        pointers |= {ResultMemory(k): p for k, p in enumerate(results)}
        self.frame.run(self.node.regions[region], self.memory.plans[region], pointers, region)

    def carries(self, initial: Sequence[str], trips: str | None, region: int = -1) -> list[Carry]:
        """The carries, which begin as `initial`; `trips`: how often they will change, where that is known. `region`: the body,
        which may see vectors with more elements."""
        spare = self.frame.slots(self.memory.spare, "%workspace", self.frame.sizes.extent(self.memory.shared))
        values, inner = self.node.outputs[:len(spare)], self.node.regions[region].results
        known = zip(values, inner, self.memory.spare, self.memory.in_place, strict=False)
        kinds = [partial(Padded, self.cut, u) if v.type != u.type else InPlace if stays else Small if on_stack(need) else Large
                 for v, u, need, stays in known]
        given = zip(kinds, values, initial, self.results, spare, strict=False)  # more results follow
        return [kind(self.frame, v, start, result, other, trips) for kind, v, start, result, other in given]

    def seen(self, places: Sequence[str], values: Sequence[Value], inner: Sequence[Value]) -> list[str]:
        """Where a body finds `values` that lie at these places and that it sees as `inner`."""
        return [at if v.type == u.type else padded(self.frame, v, u, at)
                for at, v, u in zip(places, values, inner, strict=False)]

    @contextmanager
    def made(self, places: Sequence[str], values: Sequence[Value], inner: Sequence[Value]) -> Iterator[list[str]]:
        """Where a body puts `inner` so that `values` come to lie at these places."""
        own = [at if v.type == u.type else self.frame.stack(bytes_of(u))
               for at, v, u in zip(places, values, inner, strict=True)]
        yield own
        for at, v, u, place in zip(own, values, inner, places, strict=True):
            if at is not place:
                self.cut(self.frame, v, u, at, place)

    def leave(self) -> None:
        """Both ways out."""
        self.w.do("ret void")
        if self.frame.can_fail:
            self.w.label(FAILED)
            self.w.do("ret void")


# ---- loops --------------------------------------------------------------------------------------
def _loop(frame: Frame, carries: Sequence[Carry], condition: Callable[[], str], body: Callable[[list[str], list[str]], None],
          *, polls: bool, has_rows: bool = False) -> None:
    """while condition(): body(buffers of the carries, buffers of the new ones). has_rows: a small body may have much to do."""
    w = frame.w
    head, trip, done = w.fresh("head"), w.fresh("trip"), w.fresh("done")
    w.jump(head)
    w.label(head)
    w.branch(condition(), trip, done)
    w.label(trip)
    body([x.current() for x in carries], [x.next() for x in carries])
    for x in carries:
        x.advance()
    if polls:
        _poll(frame, POLL_OF_ROWS if has_rows else FIRST_POLL[frame.is_small])
    w.jump(head)
    w.label(done)
    for x in carries:
        x.finish()


def _poll(frame: Frame, first: int) -> None:
    """Count down from `first`; at zero the runtime asks for signals, if it is time to, and says when to ask again, in trips."""
    w, head, ask, on = frame.w, frame.head, frame.w.fresh("ask"), frame.w.fresh("on")
    clock, left = w.slot("[3 x i64]"), w.slot("i64")
    head.do(f"store [3 x i64] [ i64 {first}, i64 0, i64 0 ], ptr {clock}")
    head.store("i64", str(first), left)
    rest = w.let(f"sub i64 {w.load('i64', left)}, 1")
    w.store("i64", rest, left)
    w.branch(w.let(f"icmp sgt i64 {rest}, 0"), on, ask)
    w.label(ask)
    again = w.call("i64", "lw_poll", f"ptr {clock}", "ptr %error")
    w.store("i64", again, left)
    frame.can_fail = True
    w.branch(w.let(f"icmp sgt i64 {again}, 0"), on, FAILED)
    w.label(on)


def _while(c: _Control) -> None:
    n, w = c.node, c.w
    for_condition, for_body, initial = split(c.operands, n.attrs["condition_constants"], n.attrs["body_constants"])
    carries, flag = c.carries(initial, None), w.slot("i8")

    def condition() -> str:
        c.run(0, [*for_condition, *(x.current() for x in carries)], [flag])
        return w.let(f"trunc i8 {w.load('i8', flag)} to i1")

    _loop(c.frame, carries, condition, lambda now, following: c.run(1, [*for_body, *now], following), polls=True)
    c.leave()


def _scan(c: _Control) -> None:
    _steps(c, 0)
    c.leave()


def _padded_scan(c: _Control) -> None:
    """By the sizes of the call, with the one body or the other."""
    w, sizes, lanes = c.w, c.frame.sizes, c.node.attrs["lanes"]
    short, long, done = w.fresh("short"), w.fresh("long"), w.fresh("done")
    w.branch(every(w, [w.let(f"icmp sle i64 {sizes.extent(x)}, {lanes}") for x in c.node.attrs["short"]]), short, long)
    for k, block in enumerate((short, long)):
        w.label(block)
        _steps(c, k)
        w.jump(done)
    w.label(done)
    c.leave()


def _strip_scan(c: _Control) -> None:
    (_padded_scan if len(c.node.regions) > 1 else _scan)(c)


def _steps(c: _Control, number: int) -> None:
    """The loop of a scan with the body of that number, whose vectors may have more elements than those of the node."""
    n, w, sizes, region, whole = c.node, c.w, c.frame.sizes, c.node.regions[number], c.node.regions[-1]
    stored = {str(n.attrs["size"]): n.attrs["total"]} if n.op is strip_scan else {}
    count = carry_count(n)
    length = sizes.extent(n.attrs["length"])
    constants, initial, xs = split(c.operands, n.attrs["constants"], count)
    constants = c.seen(constants, whole.params, region.params)
    carries, at = c.carries(initial, length, number), w.slot("i64")
    last = w.let(f"sub i64 {length}, 1")
    w.store("i64", "0", at)

    def distance(v: Value) -> str:
        return sizes.extent(substitute(bytes_of(v), stored))

    def rows(bases: Sequence[str], values: Sequence[Value], k: str) -> list[str]:
        return [w.let(f"getelementptr i8, ptr {base}, i64 {w.let(f'mul i64 {k}, {distance(v)}')}")
                for base, v in zip(bases, values, strict=True)]

    def body(now: list[str], following: list[str]) -> None:
        step, first = w.load("i64", at), len(whole.params) - len(xs)
        k = w.let(f"sub i64 {last}, {step}") if n.attrs["reverse"] else step
        inputs = c.seen(rows(xs, whole.params[first:], k), whole.params[first:], region.params[first:])
        ends = rows(c.results[count:], whole.results[count:], k)
        with c.made(ends, whole.results[count:], region.results[count:]) as made:
            c.run(number, [*constants, *now, *inputs], [*following, *made])
        w.store("i64", w.let(f"add i64 {step}, 1"), at)

    few = isinstance(n.attrs["length"], int) and n.attrs["length"] <= FEW_TRIPS
    _loop(c.frame, carries, lambda: w.let(f"icmp slt i64 {w.load('i64', at)}, {length}"), body, polls=not few,
          has_rows=n.op is strip_scan)


# ---- branches and sizes -------------------------------------------------------------------------
def _switch(c: _Control) -> None:
    w = c.w
    blocks, done = [w.fresh("branch") for _ in c.node.regions], w.fresh("done")
    cases = " ".join(f"i64 {k}, label %{block}" for k, block in enumerate(blocks))
    w.do(f"switch i64 {w.load('i64', c.operands[0])}, label %{blocks[-1]} [ {cases} ]")
    for k, block in enumerate(blocks):
        w.label(block)
        c.run(k, c.operands[1:], c.results)
        w.jump(done)
    w.label(done)
    c.leave()


def _sized(c: _Control) -> None:
    pointers: dict[Place, str] = {Argument(k): p for k, p in enumerate(c.operands[1:])}
    pointers |= {ResultMemory(k): p for k, p in enumerate(c.results)}
    c.frame.run_in_scratch(c.node.regions[0], plan_memory(c.node.regions[0]), pointers, lambda w, failed: w.do("ret void"))


def _divided_up(w: Writer, a: str, b: str) -> str:
    """The quotient of two sizes, rounded up; a, which is 0 then, where b is 0."""
    above = w.let(f"sub i64 {w.let(f'add i64 {a}, {b}')}, 1")
    return w.let(f"sdiv i64 {above}, {w.call('i64', 'llvm.smax.i64', f'i64 {b}', 'i64 1')}")


def _blocks(c: _Control) -> None:
    n = c.node
    axes = (*n.attrs["axes"], *[n.attrs["axis"]] * len(n.outputs))
    total = c.frame.sizes.extent(n.attrs["total"])
    _go_through(c.frame, n.regions[0], [*c.operands, *c.results], axes, "0", total, c.frame.sizes.extent(n.attrs["rows"]))
    c.leave()


def _even(w: Writer, total: str, most: str, together: str) -> str:
    """How many positions blocks of even size have."""
    rows = _divided_up(w, total, _divided_up(w, total, most))
    return rows if together == "1" else w.let(f"mul i64 {_divided_up(w, rows, together)}, {together}")


def _go_through(frame: Frame, region: Graph, places: Sequence[str], axes: Sequence[int | None], begin: str, end: str,
                most: str, together: str = "1", *, polls: bool = False, equal: bool = False) -> None:
    """A loop that runs a region on blocks of at most so many positions from `begin` to `end`, but of a multiple of `together`:
    of even size, or `equal` ones of `most`, of which the last goes through some positions again. Every pointer is that of
    position 0 of its axis. The region gets its memory from the system, as large as a block needs. `polls`: between blocks, too,
    signals are asked for, since what loops in them know of time ends with them."""
    w, sizes, plan = frame.w, frame.sizes, plan_memory(region)
    values = (*region.params[1:], *region.results)
    steps = [None if a is None else sizes.extent(product(v.type.shape[a + 1:]) * v.type.dtype.itemsize)
             for v, a in zip(values, axes, strict=True)]
    at, count = w.slot("i64"), w.slot("i64")
    rows = most if equal else _even(w, w.let(f"sub i64 {end}, {begin}"), most, together)
    last = w.let(f"sub i64 {end}, {rows}") if equal else ""
    w.store("i64", begin, at)

    def body(now: list[str], following: list[str]) -> None:
        start = w.load("i64", at)
        if equal:
            start = w.call("i64", "llvm.smin.i64", f"i64 {start}", f"i64 {last}")
            w.store("i64", rows, count)
        else:
            w.store("i64", w.call("i64", "llvm.smin.i64", f"i64 {rows}", f"i64 {w.let(f'sub i64 {end}, {start}')}"), count)
        moved = [base if step is None else w.let(f"getelementptr i8, ptr {base}, i64 {w.let(f'mul i64 {start}, {step}')}")
                 for base, step in zip(places, steps, strict=True)]
        given = len(region.params) - 1
        pointers: dict[Place, str] = {Argument(k): p for k, p in enumerate((count, *moved[:given]))}
        pointers |= {ResultMemory(k): p for k, p in enumerate(moved[given:])}
        frame.run(region, plan, pointers)
        w.store("i64", w.let(f"add i64 {start}, {rows}"), at)

    _loop(frame, (), lambda: w.let(f"icmp slt i64 {w.load('i64', at)}, {end}"), body, polls=polls)


def _strips(c: _Control) -> None:
    """Threads call a function of its own with shares of the positions. What could raise at two places stays on one thread, so
    that one error alone is told; so do few positions with much to do in each trip, where threads share out each kernel, and all
    positions that are one strip."""
    n, w, sizes, few = c.node, c.w, c.frame.sizes, c.node.attrs["few"]
    total, work, trip = [sizes.extent(n.attrs[x]) for x in ("total", "work", "trip")]
    words = len(n.inputs) + len(n.outputs) + len(sizes.symbols) + 1
    context = w.slot(f"[{words + 1} x i64]")
    share, frame = f"{c.name}_share", _share(c, context)
    c.frame.sites, c.frame.can_fail = frame.sites, frame.can_fail
    alone, shared, done = w.fresh("alone"), w.fresh("shared"), w.fresh("done")
    if n.attrs["equal"]:
        small, large = w.fresh("small"), w.fresh("large")
        fit = [w.let(f"icmp sle i64 {sizes.extent(x)}, {sizes.extent(most)}") for x, most in n.attrs["near"]]
        w.branch(reduce(lambda a, b: w.let(f"and i1 {a}, {b}"), fit), small, large)
        w.label(small)
        w.store("i64", total, context, 8 * words)
        w.jump(alone)
        w.label(large)
    here = Sizes(w, sizes.symbols)
    rows, least, together = [here.extent(n.attrs[x]) for x in ("rows", "least", "together")]
    w.store("i64", rows, context, 8 * words)
    is_alone = len(c.frame.sites) > MOST_SITES or w.let(
        f"and i1 {w.let(f'icmp slt i64 {total}, {few}')}, {w.let(f'icmp sge i64 {trip}, {WAKING}')}")
    w.branch("true" if is_alone is True else is_alone, alone, shared)
    w.label(alone)
    w.do(f"call void @{share}(ptr {context}, i64 0, i64 {total})")
    w.jump(done)
    w.label(shared)
    w.call("void", "lw_wide_watched_loop", f"ptr @{share}", f"ptr {context}", f"i64 {total}", f"i64 {work}", f"i64 {least}",
           f"i64 {together}", f"ptr {w.function('i64', 'lw_poll', 'ptr', 'ptr')}", "ptr %error")
    w.jump(done)
    w.label(done)
    w.do("ret void")


def _share(c: _Control, context: str) -> Frame:
    """The function of some positions, which finds all that it needs in the context."""
    n, w, symbols = c.node, c.w, c.frame.sizes.symbols
    words = [*(("ptr", x) for x in (*c.operands, *c.results, "%error")), *(("i64", x) for x in symbols.values())]
    for k, (kind, x) in enumerate(words):
        w.store(kind, x, context, 8 * k)

    def known(head: Writer) -> dict[str, str]:
        head.do(f"%error.at = getelementptr i8, ptr %context, i64 {8 * (len(words) - len(symbols) - 1)}")
        head.do("%error = load ptr, ptr %error.at")
        return {s: head.load("i64", "%context", 8 * (len(words) - len(symbols) + k)) for k, s in enumerate(symbols)}
    frame = Frame(c.frame.called_by, known, inlines=False)
    places = [frame.head.load("ptr", "%context", 8 * k) for k in range(len(n.inputs) + len(n.outputs))]
    rows, equal = frame.head.load("i64", "%context", 8 * len(words)), n.attrs["equal"]
    together = "1" if equal else frame.sizes.extent(n.attrs["together"])
    _go_through(frame, n.regions[0], places, n.attrs["axes"], "%begin", "%end", rows, together, polls=not equal, equal=equal)
    frame.w.do("ret void")
    frame.w.label(FAILED)
    frame.w.do("ret void")
    header = f"{'' if equal else 'internal '}void @{c.name}_share(ptr %context, i64 %begin, i64 %end)"
    c.others.append((frame.text(header, quickly=equal), frame.w))
    return frame


_EMIT: Mapping[Op, Callable[[_Control], None]] = {
    switch: _switch, while_: _while, scan: _scan, padded_scan: _padded_scan, sized: _sized, blocks: _blocks,
    strips: _strips, strip_scan: _strip_scan}
