"""Scatters, where updates of one element, or row, come one after another: all of such a run go into registers, in order.

An update that reads what the one before it stored waits for the store, tens of cycles where that was masked; in sorted segments
every update would. Where few do, to look for runs takes longer: a sample of the updates says which way is taken.

Guarantees: the same values, added up in the same order, and the same errors.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce

from loopwright.ir.dims import Extent
from loopwright.ir.loops import Expr, Index, Load, Local, transform
from loopwright.ir.nest import For, Store, altered
from loopwright.lower.codegen.arithmetic import emitter
from loopwright.lower.codegen.context import Context, Value
from loopwright.lower.codegen.evaluate import remember
from loopwright.lower.codegen.machine import register_type, vector_type
from loopwright.lower.codegen.memory import filled, may_be_empty, store
from loopwright.lower.codegen.spans import Span
from loopwright.lower.codegen.text import Carried, Scope, branch, loop, repeat
from loopwright.lower.updates import keys_of, row_and_update

FEWEST = 256  # updates that are worth a sample
SAMPLE = 32  # pairs of updates, one after the other
MOST = 24  # of these that are of one place where updates are done one by one

Run = Callable[[Context], None]
State = Sequence[str]


class Updates:
    """The updates of a loop over a span. vectors: does something for the vectors of a row; number: of an update at a position
    in the span, where that is not its own."""

    def __init__(self, f: For, span: Span, vectors: Callable[[For, Context, Run], None],
                 number: Callable[[Scope, str], str] = lambda _, position: position) -> None:
        self.index, self.span, self.vectors, self.number = f.index, span, vectors, number
        found = row_and_update(f)
        assert found is not None
        self.row, self.update = found
        where = [*self.update.index, *([] if self.update.when is None else [self.update.when])]
        self.keys = keys_of(where, f.index)
        self.kinds = [register_type(e.dtype) for e in self.keys]

    def run(self, context: Context, one_by_one: Run) -> None:
        """All updates."""
        def go(way: Run) -> Callable[[Scope], Carried]:
            def arm(scope: Scope) -> Carried:
                way(context.at(scope))
                return ()
            return arm
        branch(context.scope, self._follow_one_another(context), go(self._by_runs), go(partial(self._unmasked, one_by_one)))
        context.kernel.forget()

    def _unmasked(self, way: Run, context: Context) -> None:
        """Updates one by one, which need no mask, and no test for each, where the array has elements."""
        index = tuple([context.kernel.terms.of(e) for e in self.update.index])
        some = filled(context, index)
        if some is None:
            way(context)
            return

        def arm(scope: Scope, known: frozenset[Extent] = frozenset()) -> Carried:
            way(altered(context.at(scope), filled=context.filled | known))
            return ()
        branch(context.scope, some, partial(arm, known=may_be_empty(index)), arm)
        context.kernel.forget()

    # ---- which way ----------------------------------------------------------------------------------
    def _follow_one_another(self, context: Context) -> str:
        """Whether rows are short, and most updates of a sample are of the place of the one before."""
        scope, (low, high) = context.scope, self.span
        count = scope.emit(f"sub i64 {high}, {low}")
        worth = scope.emit(f"icmp sge i64 {count}, {FEWEST}")
        if self.row is not None:
            few = scope.emit(f"icmp sle i64 {context.kernel.extent(self.row.extent)}, {self.row.lanes * self.row.unroll}")
            worth = scope.emit(f"and i1 {worth}, {few}")

        def sampled(inner: Scope) -> Carried:
            apart = inner.emit(f"udiv i64 {inner.emit(f'sub i64 {count}, 1')}, {SAMPLE}")
            apart = inner.emit(f"or i64 {inner.emit(f'sub i64 {apart}, 1')}, 1")  # odd: updates in pairs are no long runs

            def body(here: Scope, number: str, state: list[str]) -> list[str]:
                at = here.emit(f"add i64 {low}, {here.emit(f'mul i64 {number}, {apart}')}")
                first = self._keys_at(context.at(here), at, "sample of")
                second = self._keys_at(context.at(here), here.emit(f"add i64 {at}, 1"), "behind sample of")
                same = here.emit(f"zext i1 {self._equal(here, first, second)} to i64")
                return [here.emit(f"add i64 {state[0]}, {same}")]
            found, = loop(inner, "0", str(SAMPLE), "1", [("i64", "0")], body)
            return [("i1", inner.emit(f"icmp sgt i64 {found}, {MOST}"))]
        follow, = branch(scope, worth, sampled, None, [("i1", "false")])
        return follow

    # ---- keys ---------------------------------------------------------------------------------------
    def _elsewhere(self, context: Context, position: str, name: str) -> tuple[Context, Callable[[Expr], Expr]]:
        """A context with an index of its own for a position of the loop, and what expressions are there."""
        other = Index(f"{name} {self.index.name}")
        return (context.bind_index(other.name, self.number(context.scope, position), context.scope),
                lambda e: transform(e, lambda x: other if x == self.index else None))

    def _keys_at(self, context: Context, position: str, name: str) -> list[str]:
        there, of = self._elsewhere(context, position, name)
        return [there.evaluate(context.kernel.terms.of(of(e))).parts[0] for e in self.keys]

    def _equal(self, scope: Scope, first: State, second: State) -> str:
        same = [scope.emit(f"icmp eq {kind} {a}, {b}") for kind, a, b in zip(self.kinds, first, second, strict=True)]
        return reduce(lambda a, b: scope.emit(f"and i1 {a}, {b}"), same)

    # ---- runs ---------------------------------------------------------------------------------------
    def _by_runs(self, context: Context) -> None:
        """All updates, of which there are some."""
        first = self._keys_at(context, self.span[0], "first of")
        repeat(context.scope, [("i64", self.span[0]), *zip(self.kinds, first, strict=True)],
               lambda scope, state: self._trip(context, scope, state))

    def _trip(self, context: Context, scope: Scope, state: State) -> tuple[str, list[str]]:
        """A run from a position whose keys are known; whether there is another, and its position and keys."""
        at, *known = state
        context.kernel.forget()
        here = context.bind_index(self.index.name, self.number(scope, at), scope)
        for e, register in zip(self.keys, known, strict=True):
            remember(here, context.kernel.terms.of(e), Value((register,), e.dtype, 1, scope))
        end, *after = repeat(scope, [("i64", at), *zip(self.kinds, known, strict=True)],
                             lambda inside, state: self._more(here.at(inside), state[0], known))
        self._add_up(here, at, end)
        context.kernel.forget()
        return scope.emit(f"icmp slt i64 {end}, {self.span[1]}"), [end, *after]

    def _more(self, context: Context, at: str, known: State) -> tuple[str, list[str]]:
        """Whether the update behind a position has these keys, too; where that is, and its keys."""
        scope = context.scope
        following = scope.emit(f"add nsw i64 {at}, 1")

        def inside(inner: Scope) -> Carried:
            keys = self._keys_at(context.at(inner), following, "next of")
            return [("i1", self._equal(inner, keys, known)), *zip(self.kinds, keys, strict=True)]
        is_there = scope.emit(f"icmp slt i64 {following}, {self.span[1]}")
        same, *keys = branch(scope, is_there, inside, None, [("i1", "false"), *zip(self.kinds, known, strict=True)])
        return same, [following, *keys]

    def _add_up(self, context: Context, begin: str, end: str) -> None:
        """The updates of a run, if they are done."""
        def done(scope: Scope) -> Carried:
            here = context.at(scope)
            if self.row is None:
                self._vectors(here, begin, end)
            else:
                self.vectors(self.row, here, lambda wide: self._vectors(wide, begin, end))
            return ()
        if self.update.when is None:
            done(context.scope)
        else:
            branch(context.scope, context.evaluate(context.kernel.terms.of(self.update.when)).parts[0], done)

    def _vectors(self, context: Context, begin: str, end: str) -> None:
        """The vectors of one stretch of a run's row."""
        update, kernel, scope = self.update, context.kernel, context.scope
        dtype = kernel.buffers[update.buffer].dtype
        emit, kind = emitter(update.combine, dtype), vector_type(register_type(dtype), context.lanes)
        kernel.wrote(update.buffer)
        before = context.spread(context.evaluate(kernel.terms.of(Load(update.buffer, update.index, dtype))))

        def body(inner: Scope, at: str, state: list[str]) -> list[str]:
            there, of = self._elsewhere(context.at(inner), at, "one of")
            value = there.spread(there.evaluate(kernel.terms.of(of(update.value))))
            return [emit(there.writer(dtype, inner), a, b) for a, b in zip(state, value, strict=True)]
        after = loop(scope, begin, end, "1", [(kind, x) for x in before], body, runs=True)
        total = Local(f"run of {self.index.name}", dtype)
        kernel.wrote(total.name)
        context = context.bind(total.name, Value(tuple(after), dtype, context.lanes, scope))
        store(context, Store(update.buffer, update.index, total))
