"""Passes over rows that threads keep in registers.

Of a row, thread t of X has the elements (u * X + t) * lanes + e, its slot u and lane e, where rows are multiples of the lanes:
then each slot is one access; else u * X * lanes + e * X + t. All passes share this out alike, and what is longer they compute
anew, element by element.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from loopwright.ir.dims import Extent, product
from loopwright.ir.gpu_schedule import THREAD_X
from loopwright.ir.loops import Apply, Expr, Index, Literal, Load, Local, Size, walk_all
from loopwright.ir.nest import Let, Reduction, Statement, Store
from loopwright.ir.types import is_float
from loopwright.lower.codegen.terms import Term
from loopwright.lower.cuda.context import Context
from loopwright.lower.cuda.evaluate import holds_something, place, reciprocals
from loopwright.lower.cuda.packs import (
    Over,
    Pack,
    Run,
    declare_packs,
    declare_stores,
    known_lanes,
    load_packs,
    store_lane,
    store_packs,
    strided,
    unravelled,
)
from loopwright.lower.cuda.text import Block
from loopwright.lower.registers import anew, rows_read, without_rows

MOST_TWICE = 16  # operations of a body that is written twice
Write = Callable[[Context], None]
Body = Callable[[Sequence[Statement]], Run]  # what is done for one element, given its statements


def kept_pass(context: Context, over: Over, lanes: int, found: Sequence[Pack], each: int, body: Sequence[Statement],
              written: Body, divisors: Sequence[Term] = ()) -> None:
    """A pass over rows of which threads keep `each` elements. `divisors`: those of quotients that all elements share, where the
    pass may be done twice."""
    launch = context.launch
    launch.passes.append({b.name for b in rows_read(body, launch.rows)})
    _Slots(context, over, lanes, found, each, body).write(written(body), divisors)
    for s in body:
        for x in (s, *getattr(s, "also", ())):
            if isinstance(x, Store) and x.buffer in launch.rows:
                launch.kept[x.buffer] = x.index, anew(x.value, launch.kept)  # type: ignore[assignment]
    left = [x for x in (without_rows(s, launch.kept) for s in body) if x is not None]
    if left:
        first = f"{each * launch.x} + {launch.thread(THREAD_X)}"
        strided(context, over, 1, first, str(launch.x), [], 1, written(left))


class _Slots:
    """The elements that registers hold."""

    def __init__(self, context: Context, over: Over, lanes: int, found: Sequence[Pack], each: int,
                 body: Sequence[Statement]) -> None:
        self.context, self.over, self.lanes, self.found, self.count = context, over, lanes, found, each // lanes
        self.total = product(n for _, n in over)
        launch, kind = context.launch, context.launch.index_type
        self.end = launch.extent(self.total)
        known = isinstance(self.total, int) or lanes == 1
        self.wide = self._known() if known else self._once("wide", "bool", self._multiples([self.total]))
        who = launch.thread(THREAD_X)
        self.first = self._once("first", kind, f"{self.wide} ? {who} * {lanes} : {who}")
        self.step = self._once("step", kind, f"{self.wide} ? 1 : {launch.x}")
        size, left = launch.x * lanes, f"{self.end} - {self.first}"
        slots = f"({left} + {size - 1}) / {size} * {lanes}"
        counted = slots if self.wide == "true" else f"({left} + {launch.x - 1}) / {launch.x}" if self.wide == "false" else \
            f"{self.wide} ? {slots} : ({left} + {launch.x - 1}) / {launch.x}"
        self.mine = self._once("mine", kind, f"{self.first} < {self.end} ? {counted} : 0")
        checks = [n for p in found for n in p.checks if n != self.total]
        self.packed = " && ".join(dict.fromkeys([self.wide, *([self._multiples(checks)] if checks else [])]))
        stores = [x for s in body for x in (s, *getattr(s, "also", ())) if isinstance(x, Store)]
        exprs = walk_all([x.body if isinstance(x, Reduction) else x.value for x in (*body, *stores)
                          if isinstance(x, Reduction | Let | Store)])
        self.is_straight = all(isinstance(x, Reduction | Let | Store) for x in body) and \
            all(x.when is None for x in stores) and all(map(self._is_arithmetic, exprs))
        self.is_short = sum(isinstance(e, Apply) for e in exprs) <= MOST_TWICE

    def _once(self, name: str, kind: str, text: str) -> str:
        """What all passes over rows of this size share."""
        block, key = self.context.block, ("slots", name, self.total, self.lanes)
        known = block.find(key)
        if known is None:
            known = block.values[key] = block.let(kind, text, "n")
        return known

    def _known(self) -> str:
        return "true" if self.lanes == 1 or (isinstance(self.total, int) and self.total % self.lanes == 0) else "false"

    def _multiples(self, sizes: Sequence[Extent]) -> str:
        tests = [f"{self.context.launch.extent(n)} % {self.lanes} == 0" for n in dict.fromkeys(sizes)]
        return " && ".join(tests)

    def _is_arithmetic(self, e: Expr) -> bool:
        """Whether an expression takes what is in registers before the pass, and cannot fail: it may be computed for elements
        that are not there, and twice."""
        launch = self.context.launch
        match e:
            case Load(array=array):
                is_loaded = any(isinstance(p.at, Term) and p.at.number == launch.terms.of(e).number for p in self.found)
                return is_loaded or launch.buffers[str(array)].place == "registers"
            case Apply(fn="power", dtype=dtype):
                return is_float(dtype)
        return isinstance(e, Apply | Literal | Size | Index | Local)

    def write(self, run: Run, divisors: Sequence[Term]) -> None:
        """The pass; with divisors by their reciprocals, and where one does not serve once more without."""
        context, divisors = self.context, divisors if self.is_straight and self.is_short else ()
        context.launch.forget()
        loaded = declare_packs(context, self.found, self.lanes, f"[{self.count}]")
        if loaded:
            self._either(context, lambda here: self._each_slot(here, lambda at, u: self._load(at, loaded, u)),
                         lambda here: self._each_slot(here, lambda at, u: self._load_lanes(at, loaded, u)))
        if divisors:
            near = reciprocals(context, divisors)
            rare = context.block.variable("bool", f"!({near})", "rare")
            self._each_slot(replace(context, rare=rare), lambda here, u: self._run(here, loaded, u, run))
            with context.block.inner(f"if ({rare})") as again:
                self._each_slot(context.at(again), lambda here, u: self._run(here, loaded, u, run))
        else:
            self._each_slot(context, lambda here, u: self._run(here, loaded, u, run))
        context.launch.forget()

    # ---- where -----------------------------------------------------------------------------------
    def _either(self, context: Context, wide: Write, narrow: Write) -> None:
        """What is written for rows whose slots are single accesses, and for others."""
        if self.packed == "true":
            wide(context)
            return
        with context.block.inner(f"if ({self.packed})") as inside:
            wide(context.at(inside))
        other = Block(context.block)
        narrow(context.at(other))
        context.block.otherwise(other)

    def _each_slot(self, context: Context, write: Callable[[Context, str], None]) -> None:
        u = context.block.fresh("u")
        context.block.line("#pragma unroll")
        with context.block.inner(f"for (int {u} = 0; {u} < {self.count}; ++{u})") as inside:
            write(context.at(inside), u)

    def _each_lane(self, context: Context, u: str, write: Callable[[Context, str], None], all_of_them: bool = False) -> None:
        """Those of a slot's elements that the row has, or all of them, which know whether it has them."""
        e = context.block.fresh("e")
        context.block.line("#pragma unroll")
        with context.block.inner(f"for (int {e} = 0; {e} < {self.lanes}; ++{e})") as inside:
            here = context.at(inside)
            if all_of_them:
                there = inside.let("bool", f"{u} * {self.lanes} + {e} < {self.mine}", "there")
                write(replace(self._element(here, u, e), there=there), e)
            else:
                self._if_there(here, u, e, lambda here: write(here, e))

    def _if_there(self, context: Context, u: str, e: str, write: Write) -> None:
        """Where the thread has this element of a slot, or the slot (e: "")."""
        number = f"{u} * {self.lanes} + {e}" if e else f"{u} * {self.lanes}"
        with context.block.inner(f"if ({number} < {self.mine})") as some:
            write(self._element(context.at(some), u, e))

    def _element(self, context: Context, u: str, e: str) -> Context:
        """The loops' variables of an element of a slot."""
        lane = f" + {e} * {self.step}" if e else ""
        at = f"{u} * {context.launch.x * self.lanes} + {self.first}{lane}"
        return unravelled(context, self.over, context.block.let(context.launch.index_type, at, "at"))

    # ---- what ------------------------------------------------------------------------------------
    def _load(self, context: Context, loaded: Mapping[int, str], u: str) -> None:
        self._if_there(context, u, "", lambda here: load_packs(here, self.found, self.lanes, loaded, f"[{u}]"))

    def _load_lanes(self, context: Context, loaded: Mapping[int, str], u: str) -> None:
        def write(here: Context, e: str) -> None:
            for p in self.found:
                if isinstance(p.at, Term):
                    at = place(here, here.launch.buffers[p.buffer], p.at.args)
                    some, text = holds_something(here, p.at), f"{loaded[p.at.number]}[{u}].at[{e}] = {p.buffer}[{at}];"
                    here.block.line(f"if ({some}) {text}" if some else text)
        self._each_lane(context, u, write)

    def _run(self, context: Context, loaded: Mapping[int, str], u: str, run: Run) -> None:
        stored = declare_stores(context, self.found, self.lanes)

        def write(here: Context, e: str) -> None:
            packed = {key: f"{pack}.at[{e}]" for key, pack in stored.items()}
            here = replace(here, packed=packed, slot=f"[{u} * {self.lanes} + {e}]", repeats=True)
            known_lanes(here, self.found, loaded, f"[{u}]", e)
            run(here, e)
        self._each_lane(context, u, write, self.is_straight)
        if stored:
            self._either(context, lambda here: self._if_there(here, u, "", lambda at: store_packs(
                at, self.found, self.lanes, stored)), lambda here: self._each_lane(here, u, lambda at, e: store_lane(
                    at, self.found, stored, e)))
