"""Scatters on several threads: each owns some rows of the result, looks at all updates, and does those of its rows, in their
order.

It lists them, so many at a time, and then does what is listed. Rows that lie side by side, some kilobytes of them, have one
owner, so that threads seldom meet in a line, or in one that a processor asks for ahead; which owner it is goes up and down,
since most updates are often of the first rows, and of rows in order there may be few at a time.

Guarantees: every update is done by one thread; updates of one row are done in their order.
"""
from __future__ import annotations

from collections.abc import Callable

from loopwright.ir.dims import product
from loopwright.ir.nest import For, altered
from loopwright.ir.types import BOOL
from loopwright.lower.codegen.constants import constant_text
from loopwright.lower.codegen.context import Context, Mask, Owned, Value, active_only, splat_register
from loopwright.lower.codegen.forms import without_condition
from loopwright.lower.codegen.machine import vector_type
from loopwright.lower.codegen.spans import Span, masked
from loopwright.lower.codegen.text import Scope, branch, loop
from loopwright.lower.codegen.work import work_of
from loopwright.lower.updates import loop_of_owners, update_of

OWNERS_LOG = 6
OWNERS = 1 << OWNERS_LOG  # numbers of rows, of which threads own some
STRETCH_LOG = 12  # bytes of rows with one owner: processors ask for nothing ahead past the end of a page
FEWEST, FEWEST_FOR_LIGHT = 8, 512  # stretches that are worth several owners: where updates wait for memory all are
LIGHT, LIGHT_FOR_ONE = 40, 120  # work of an update that takes no longer than looking at two of them, in vectors or one by one
LANES = 8  # updates that are looked at at once
BLOCK = 2048  # updates that are looked at before those found are done
SPREAD = 0x9E3779B1  # 2^32 over the golden ratio: multiples of it are spread evenly, of any stretch of numbers

Number = Callable[[Scope, str], str]


def owned_by(context: Context, updates: For, begin: str, end: str) -> Owned:
    """The updates of rows with numbers from one to another."""
    found, scope = loop_of_owners(updates), context.scope
    assert isinstance(found, For)
    first, count = (scope.emit(f"trunc i64 {x} to i32") for x in (begin, scope.emit(f"sub i64 {end}, {begin}")))
    return Owned(found.index, first, count, _shift(context, updates))


def work_of_owners(context: Context, updates: For) -> str:
    """How much work the updates are for each number of rows; none where these are few, and one thread might have all."""
    kernel, scope = context.kernel, context.scope
    rows = kernel.extent(kernel.buffers[update_of(updates).buffer].shape[0])
    found = loop_of_owners(updates)
    assert isinstance(found, For)
    one, whole = kernel.extent(work_of(found.body)), kernel.extent(work_of((updates,)))
    each = scope.emit(f"add i64 {scope.emit(f'ashr i64 {whole}, {OWNERS_LOG}')}, 1")
    light = scope.emit(f"icmp slt i64 {one}, {LIGHT if kernel.target.has_masks else LIGHT_FOR_ONE}")
    least = scope.emit(f"select i1 {light}, i64 {FEWEST_FOR_LIGHT}, i64 {FEWEST}")
    few = scope.emit(f"icmp slt i64 {scope.emit(f'ashr i64 {rows}, {_shift(context, updates)}')}, {least}")
    return scope.emit(f"select i1 {few}, i64 0, i64 {each}")


def _shift(context: Context, updates: For) -> str:
    """The logarithm of how many rows lie side by side with one owner."""
    kernel, scope = context.kernel, context.scope
    buffer = kernel.buffers[update_of(updates).buffer]
    row = kernel.extent(product(buffer.shape[1:]) * buffer.dtype.itemsize)
    zeros = scope.call("i64", "llvm.ctlz.i64", [("i64", scope.emit(f"or i64 {row}, 1")), ("i1", "false")])
    return scope.call("i64", "llvm.smax.i64", [("i64", scope.emit(f"sub i64 {zeros}, {63 - STRETCH_LOG}")), ("i64", "0")])


def own_updates(context: Context, f: For, span: Span, do: Callable[[Context, For, str, Number], None]) -> None:
    """Those updates of a loop over a span that are the thread's. do: so many, of the numbers that positions have."""
    kernel, lanes = context.kernel, LANES if context.kernel.target.has_masks else 1
    listed = kernel.function.slot(BLOCK + lanes, "i64", 64)

    def place(inner: Scope, position: str) -> str:
        return inner.emit(f"getelementptr i64, ptr {listed}, i64 {position}")

    def number(inner: Scope, position: str) -> str:
        return inner.emit(f"load i64, ptr {place(inner, position)}")

    def block(inner: Scope, first: str, _: list[str]) -> list[str]:
        end = inner.call("i64", "llvm.smin.i64", [("i64", inner.emit(f"add i64 {first}, {BLOCK}")), ("i64", span[1])])

        def look(each: Scope, at: str, state: list[str]) -> list[str]:
            kernel.forget()
            here = context.bind_index(f.index.name, at, each)
            if lanes > 1:
                here = masked(altered(here, lanes=lanes, vector=f.index.name), f.index.name, end, inner)
            own, numbers = _are_own(here, f), here.index_vector(f.index.name).parts[0] if lanes > 1 else at
            return [_add_to(each, place(each, state[0]), state[0], numbers, own, lanes)]
        count, = loop(inner, first, end, str(lanes), [("i64", "0")], look, runs=True)
        kernel.forget()
        do(altered(context.at(inner), owned=None), without_condition(f), count, number)
        return []
    kernel.forget()
    loop(context.scope, *span, str(BLOCK), (), block)
    kernel.forget()


def _add_to(scope: Scope, place: str, count: str, numbers: str, own: str, lanes: int) -> str:
    """How many there are with those of some numbers that are own, which go to a place."""
    if lanes == 1:
        scope.do(f"store i64 {numbers}, ptr {place}")
        return scope.emit(f"add i64 {count}, {scope.emit(f'zext i1 {own} to i64')}")
    kind, mask = vector_type("i64", lanes), f"<{lanes} x i1>"
    found = scope.call(kind, f"llvm.x86.avx512.mask.compress.v{lanes}i64",
                       [(kind, numbers), (kind, "zeroinitializer"), (mask, own)])
    scope.do(f"store {kind} {found}, ptr {place}, align 8")
    several = scope.call(f"i{lanes}", f"llvm.ctpop.i{lanes}", [(f"i{lanes}", scope.emit(f"bitcast {mask} {own} to i{lanes}"))])
    return scope.emit(f"add i64 {count}, {scope.emit(f'zext i{lanes} {several} to i64')}")


def _are_own(context: Context, f: For) -> str:
    """Whether updates are to be done, and of rows that the thread owns."""
    update, kernel, owned, lanes = update_of(f), context.kernel, context.owned, context.lanes
    assert owned is not None

    def of_rows(here: Context) -> str:
        def same(kind: str, register: str) -> str:
            return splat_register(kernel.root, kind, register, lanes)
        scope, wide, narrow = here.scope, vector_type("i64", lanes), vector_type("i32", lanes)
        row, = here.spread(here.evaluate(kernel.terms.of(update.index[0])))
        shifted = scope.emit(f"lshr {wide} {row}, {same('i64', owned.shift)}")
        stretch = scope.emit(f"trunc {wide} {shifted} to {narrow}")
        spread = scope.emit(f"mul {narrow} {stretch}, {constant_text(SPREAD, 'i32', lanes)}")
        number = scope.emit(f"lshr {narrow} {spread}, {constant_text(32 - OWNERS_LOG, 'i32', lanes)}")
        above = scope.emit(f"sub {narrow} {number}, {same('i32', owned.first)}")
        return scope.emit(f"icmp ult {narrow} {above}, {same('i32', owned.count)}")

    if lanes > 1:
        active = context.active()
        assert active is not None
        if update.when is not None:
            active = active_only(context, context.scope, context.spread(context.evaluate(kernel.terms.of(update.when))))
            context = altered(context, mask=Mask(Value(active, BOOL, lanes, context.scope), context.mask))
        return context.scope.emit(f"and <{lanes} x i1> {of_rows(context)}, {active[0]}")
    if update.when is None:
        return of_rows(context)
    when = context.evaluate(kernel.terms.of(update.when)).parts[0]
    own, = branch(context.scope, when, lambda scope: [("i1", of_rows(context.at(scope)))], None, [("i1", "false")])
    return own
