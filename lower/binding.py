"""Loops of a nest shared out among the blocks and threads of a GPU: each decision checked, then done.

Guarantees of a nest that `check` accepts: no two threads store one element of a result (in one loop that blocks share out);
all threads of a block reach every place where they wait for each other, the same number of times; blocks depend on each
other through what an earlier statement of the nest's body made, and on nothing else.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from loopwright.ir.gpu_schedule import BLOCK, THREAD_X, THREAD_Y
from loopwright.ir.loops import Apply, Expr, Index, Literal, Load, walk
from loopwright.ir.nest import Allocate, Contract, For, Nest, Reduction, Scan, Statement, Store
from loopwright.ir.types import F32, F64, is_float

LOOP_AXES = ((BLOCK,), (BLOCK, THREAD_X), (BLOCK, THREAD_Y), (THREAD_X,), (BLOCK, THREAD_Y, THREAD_X))
FOLD_AXES = ((THREAD_X,), (THREAD_Y,), (BLOCK, THREAD_X), (BLOCK, THREAD_Y))
SCAN_AXES = ((THREAD_X,), (BLOCK, THREAD_X), (BLOCK, THREAD_Y))
ROW_PARTS = (BLOCK, THREAD_X)  # of a loop or fold along a row that several blocks share out
WARP, MOST_THREADS = 32, 1024
MOST_COPY = 2048  # elements, of up to 16 bytes, of a block's copy of what is updated


def bind(nest: Nest, index: Index, axes: tuple[str, ...]) -> Nest:
    """The nest with the loop of this index shared out. ValueError where there is none, or its kind has no such axes."""
    found: list[tuple[tuple[str, ...], ...]] = []

    def one(s: Statement) -> Statement:
        match s:
            case For() if s.index == index:
                found.append(LOOP_AXES)
                return dataclasses.replace(s, bind=axes)
            case Reduction() if index in [k for k, _ in s.over]:
                found.append(FOLD_AXES)
                return dataclasses.replace(s, bind=axes)
            case Scan() if s.index == index:
                found.append(SCAN_AXES)
                return dataclasses.replace(s, bind=axes)
        return s

    nest = dataclasses.replace(nest, body=_changed(nest.body, one))
    if not found:
        raise ValueError("the nest has no such loop")
    if any(axes not in known for known in found):
        raise ValueError(f"this loop may have axes {' or '.join(map(str, found[0]))}")
    return nest


def share_row(nest: Nest, name: str) -> Nest:
    """The nest with a local row in shared memory. ValueError where there is no such row."""
    def one(s: Statement) -> Statement:
        if isinstance(s, Allocate) and s.buffer.name == name:
            return Allocate(dataclasses.replace(s.buffer, place="shared"))
        return s
    body = _changed(nest.body, one)
    if body == nest.body:
        raise ValueError("it is no local row")
    return dataclasses.replace(nest, body=body)


def _changed(body: Sequence[Statement], one: Callable[[Statement], Statement]) -> tuple[Statement, ...]:
    """Every statement changed, outermost first."""
    out = []
    for s in map(one, body):
        out.append(dataclasses.replace(s, body=_changed(s.body, one)) if isinstance(s, For) else s)
    return tuple(out)


# ---- legality -----------------------------------------------------------------------------------
def check(nest: Nest) -> None:
    """ValueError where the bound loops could not run at once."""
    assert nest.threads is not None
    x, y = nest.threads
    if any(n < 1 or n & (n - 1) for n in (x, y)) or not WARP <= x * y <= MOST_THREADS:
        raise ValueError(f"a block has {WARP} to {MOST_THREADS} threads, powers of two along each axis")
    _check_shape(nest.body, x, y)
    _check(nest.body, (), ())
    for s in nest.body:
        if isinstance(s, For) and s.any_order:
            _check_any_order(s, nest)


def _check_shape(body: Sequence[Statement], x: int, y: int) -> None:
    """ValueError where what threads do together takes blocks of another shape."""
    for s in body:
        if isinstance(s, Scan) and THREAD_X in s.bind and x < WARP:
            raise ValueError(f"fold {s.buffer}: whole warps along x run over it")
        if isinstance(s, Contract) and s.when is not None:
            raise ValueError(f"product {s.buffer}: threads of a block go past no blocks of a product")
        if isinstance(s, Store) and s.combine != "set" and y > 1:
            raise ValueError(f"updates of {s.buffer} are those of threads along x alone")
        if isinstance(s, For):
            if s.by_owner and (y > 1 or x < WARP):
                raise ValueError(f"loop {s.index.name}: the owners of elements are whole warps along x alone")
            if len(s.bind) == 3 and (x != WARP or y > WARP):
                raise ValueError(f"loop {s.index.name}: squares have {WARP} threads along x, and as many rows at most")
            if len(s.bind) == 3 and s.lanes > 1 and (s.lanes < WARP or s.lanes & (s.lanes - 1)):
                raise ValueError(f"loop {s.index.name}: edges of squares are powers of two, {WARP} or more")
            _check_shape(s.body, x, y)


def _check(body: Sequence[Statement], around: tuple[For, ...], taken: tuple[str, ...]) -> None:
    for s in body:
        match s:
            case For():
                _check_loop(s, around, taken)
                _check(s.body, (*around, s), taken if s.bind == _axes(around) else (*taken, *s.bind))
            case Reduction() | Scan() if s.bind:
                _check_fold(s, around, taken)
                _check(getattr(s, "also", ()), around, taken)
            case Store():
                _check_store(s, around)
            case Allocate():
                if s.buffer.place not in ("shared", "registers"):
                    raise ValueError(f"the row {s.buffer.name} has no place: it is shared memory or registers")
                if THREAD_X in taken:
                    raise ValueError(f"the row {s.buffer.name} would be one thread's alone")


def _axes(around: Sequence[For]) -> tuple[str, ...]:
    return around[-1].bind if around else ()


def _check_loop(s: For, around: tuple[For, ...], taken: tuple[str, ...]) -> None:
    if s.by_owner and (s.bind or around or not _updates_alone(s)):
        raise ValueError(f"loop {s.index.name}: owners go through updates alone, which no threads share out")
    if s.any_order and (s.bind or around or not _updates_alone(s)):
        raise ValueError(f"loop {s.index.name}: only updates alone, which no threads share out, are done in any order")
    if not s.bind:
        return
    if around and s.bind == around[-1].bind:
        if around[-1].body != (s,):
            raise ValueError(f"loop {s.index.name} is not alone in the loop around it, which has the same axes")
        return
    if len(s.bind) == 3 and not (len(s.body) == 1 and isinstance(inner := s.body[0], For) and inner.bind == s.bind):
        raise ValueError(f"loop {s.index.name}: squares are those of two loops")
    if s.bind == ROW_PARTS and is_in_row_parts(around):
        return
    if set(s.bind) & set(taken):
        raise ValueError(f"loop {s.index.name}: a loop around it has one of its axes")
    if (BLOCK in s.bind) == bool(around):
        raise ValueError(f"loop {s.index.name}: outermost loops are shared out among blocks, and no others")


def is_order_free(combine: str, dtype: np.dtype) -> bool:
    """Whether updates of this kind can be done in any order with equal bits, as `cuda.atomics` does them."""
    return combine in ("set", "add", "max", "min") or (combine == "mul" and not is_float(dtype))


def _check_any_order(s: For, nest: Nest) -> None:
    dtypes, update = {b.name: b.dtype for b in nest.buffers}, s.body[0]
    while isinstance(update, For):
        update = update.body[0]
    assert isinstance(update, Store)
    if nest.threads is None or nest.threads[1] > 1 or not 0 <= s.copy <= MOST_COPY:
        raise ValueError(f"updates in any order are those of threads along x, whose blocks copy up to {MOST_COPY} elements")
    if not is_order_free(update.combine, dtypes[update.buffer]):
        raise ValueError(f"loop {s.index.name}: {update.combine} of {dtypes[update.buffer]} depends on the order of updates")
    if s.loose and not (update.combine == "add" and dtypes[update.buffer] in (F32, F64)):
        raise ValueError(f"loop {s.index.name}: sums of f32 and f64 alone are atomic operations that depend on the order")
    read = (update.value, *update.index, *(() if update.when is None else (update.when,)))
    if any(isinstance(x, Load) and x.array == update.buffer for e in read for x in walk(e)):
        raise ValueError(f"loop {s.index.name}: updates read what others of them change")


def is_in_row_parts(around: Sequence[For]) -> bool:
    """Whether blocks share out each row of these loops: they hold a fold in parts, and nothing that one block keeps."""
    if not around or any(x.bind != (BLOCK,) or x.step != 1 for x in around):
        return False
    body = around[-1].body
    parts = [s for s in body if isinstance(s, Reduction) and s.bind == ROW_PARTS]
    others = [s for s in body if isinstance(s, Allocate | Scan) or (isinstance(s, Reduction) and s.also)
              or (isinstance(s, For | Reduction) and s.bind not in ((), ROW_PARTS))]
    return bool(parts) and not others


def _updates_alone(s: For) -> bool:
    """Whether there is one store in loops directly inside each other that no threads share out."""
    if len(s.body) != 1 or s.bind:
        return False
    inner = s.body[0]
    return _updates_alone(inner) if isinstance(inner, For) else isinstance(inner, Store)


def _check_fold(s: Reduction | Scan, around: tuple[For, ...], taken: tuple[str, ...]) -> None:
    name = s.name if isinstance(s, Reduction) else s.buffer
    if s.bind == (BLOCK, THREAD_Y):
        if not around or any(x.bind != (BLOCK, THREAD_X) for x in around):
            raise ValueError(f"fold {name}: blocks share out columns in parts inside the loop of the columns, and nowhere else")
        return
    if s.bind == ROW_PARTS and is_in_row_parts(around) and isinstance(s, Reduction):
        return
    if set(s.bind) & set(taken):
        raise ValueError(f"fold {name}: a loop around it has one of its axes")
    if BLOCK in s.bind and around:
        raise ValueError(f"fold {name}: blocks share out only a fold that stands alone")


def _check_store(s: Store, around: tuple[For, ...]) -> None:
    """Every loop that is shared out must tell by its index alone which part of the array it stores to."""
    loops = {k for x in around for k in (x.index, *(part for part, _ in x.of))}
    own = {k for e in s.index if (k := owner(e, loops)) is not None}
    own |= {x.index for x in around if x.of and all(k in own for k, _ in x.of)}
    own |= {x.origin for x in around if x.index in own and x.origin is not None}  # blocks of an index have others of it
    rows = s.buffer.startswith("t")  # of each block, and of each row of its threads
    for x in around:
        if x.bind and x.index not in own and not (rows and BLOCK in x.bind):
            raise ValueError(f"loop {x.index.name}: its iterations store to the same elements of {s.buffer}")


def owner(e: Expr, loops: set[Index]) -> Index | None:
    """The loop that decides this position alone: different iterations of it never give the same."""
    match e:
        case Index():
            return e if e in loops else None
        case Apply(fn="add" | "sub", args=(a, b)):
            if not loops & _indices(b):
                return owner(a, loops)
            return None if loops & _indices(a) else owner(b, loops)
        case Apply(fn="neg", args=(a,)) | Apply(fn="mul", args=(a, Literal())):
            scale = e.args[-1]
            return None if isinstance(scale, Literal) and scale.value == 0 else owner(a, loops)
    return None


def _indices(e: Expr) -> set[Index]:
    return {x for x in walk(e) if isinstance(x, Index)}
