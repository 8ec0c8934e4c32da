"""Sorting, stable, NaN last, 0.0 and -0.0 equal, as NumPy's stable kind: library calls, without a loop rule. Searching what is
in that order, which is a map."""
from __future__ import annotations

from typing import Any

import numpy as np

from loopwright.ir.builder import Ref
from loopwright.ir.dims import Extent, Shape, evaluate
from loopwright.ir.errors import DTypeError, ShapeError
from loopwright.ir.loops import Apply, Expr, LoopContext, PartitionPoint
from loopwright.ir.op import Example, Op
from loopwright.ir.ops.broadcasting import operand_dtype, spread
from loopwright.ir.ops.elementwise import between
from loopwright.ir.ops.indexing import gather
from loopwright.ir.ops.reductions import widened
from loopwright.ir.ops.structural import move_axis
from loopwright.ir.types import BOOL, COMPLEX, I64, ArrayType, is_float

_EXAMPLES = (
    Example(("f64[n]",), {"axis": 0}), Example(("f64[n, 4, m]",), {"axis": 1}), Example(("f64[n, n]",), {"axis": 0}),
    Example(("f64[2, 0]",), {"axis": 1}), Example(("f64[n, 1]",), {"axis": 1}),
    *(Example((f"{d}[3, n]",), {"axis": 1}) for d in ("f16", "bf16", "f32", "c128")),
    *(Example((f"{d}[n]",), {"axis": 0}, {0: between(0, 3)}) for d in ("i8", "i64", "u32")), Example(("bool[n]",), {"axis": 0}),
)


def _same_shape(x: ArrayType, axis: int) -> Shape:
    if not 0 <= axis < x.rank:
        raise ShapeError(f"axis {axis} must be below the rank of {x}")
    return x.shape


def _sort_jvp(primals: tuple[Ref, ...], tangents: tuple[Ref, ...], out: Ref, axis: int) -> Ref:
    """A tangent goes where its primal goes."""
    last = len(out.shape) - 1
    order = move_axis(argsort(primals[0], axis=axis), axis, last)
    moved = gather(move_axis(tangents[0], axis, last), order, axes=(last,), batch=last, mode="promise_in_bounds")
    return move_axis(moved, last, axis)


def _argsort_dtype(x: ArrayType, **attrs: Any) -> np.dtype:
    return I64


sort: Op = Op(
    name="sort",
    doc="x sorted along an axis.",
    shape=_same_shape, dtype=operand_dtype,
    numpy=lambda x, axis: np.sort(widened(x), axis=axis, kind="stable").astype(x.dtype, copy=False),
    batch=lambda size, args, mapped, axis: sort(args[0], axis=axis + 1),
    jvp=_sort_jvp,
    examples=_EXAMPLES,
)
argsort: Op = Op(
    name="argsort",
    doc="The positions that sort x along an axis: i64; equal elements keep their order.",
    shape=_same_shape, dtype=_argsort_dtype,
    numpy=lambda x, axis: np.argsort(widened(x), axis=axis, kind="stable").astype(I64, copy=False),
    batch=lambda size, args, mapped, axis: argsort(args[0], axis=axis + 1),
    examples=_EXAMPLES,
)


def _top_k_shape(x: ArrayType, k: Extent) -> Shape:
    if x.rank == 0 or (isinstance(k, int) and k < 0):
        raise ShapeError(f"top_k: {x} has no rows of {k}")
    return (*x.shape[:-1], k)


def _top_k_numpy(x: np.ndarray, k: int) -> np.ndarray:
    order = np.argsort(widened(x)[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    return np.asarray(x.shape[-1] - 1 - order[..., :k], I64)


top_k: Op = Op(
    name="top_k",
    doc="The positions of the k greatest of each row, the last axis, which has at least as many: i64, falling; of equal ones, "
        "NaN among them, which is greater than numbers, the first come first.",
    shape=_top_k_shape, dtype=_argsort_dtype, numpy=_top_k_numpy,
    batch=lambda size, args, mapped, k: top_k(args[0], k=k),
    examples=(Example(("f64[n, 4]",), {"k": 3}), Example(("f64[n, 4]",), {"k": 4}), Example(("f64[3]",), {"k": 0}),
              Example(("f64[0, 3]",), {"k": 1}), *(Example((f"{d}[n, 5]",), {"k": 2}) for d in ("f16", "bf16", "f32")),
              *(Example((f"{d}[n, 100]",), {"k": 3}, {0: between(0, 3)}) for d in ("i8", "i64", "u32", "bool"))),
)


def _ranked_shape(x: ArrayType, ranks: ArrayType) -> Shape:
    if x.rank == 0 or ranks.rank != 1:
        raise ShapeError(f"ranked: {x} must have rows, and {ranks} one axis")
    if ranks.dtype != I64:
        raise DTypeError(f"ranked: ranks must be i64, got {ranks}")
    return (*x.shape[:-1], ranks.shape[0])


def _ranked_numpy(x: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    return np.sort(widened(x), axis=-1)[..., ranks].astype(x.dtype, copy=False)


def _ranked_jvp(primals: tuple[Ref, ...], tangents: tuple[Ref | None, ...], out: Ref) -> Ref:
    """A tangent goes where its primal goes."""
    x, ranks = primals
    t, last = tangents[0], len(x.shape) - 1
    assert t is not None
    at = gather(argsort(x, axis=last), ranks, axes=(last,), batch=0, mode="promise_in_bounds")
    return gather(t, move_axis(at, 0, last), axes=(last,), batch=last, mode="promise_in_bounds")


def _ranked_batch(size: Extent, args: tuple[Ref, ...], mapped: tuple[bool, ...]) -> Ref:
    """Of ranks that differ from row to row all are looked up in what is sorted."""
    if not mapped[1]:
        return ranked(*args)
    x, ranks = spread(size, args, mapped)
    last = len(x.shape) - 1
    found = gather(sort(x, axis=last), ranks, axes=(last,), batch=1, mode="promise_in_bounds")
    return move_axis(found, 1, last)


ranked: Op = Op(
    name="ranked",
    doc="Of each row, the last axis, what stands at some ranks if it is sorted, NaN last: x[..., n] at i64[m] of 0 to n - 1, "
        "the same for all rows.",
    shape=_ranked_shape, dtype=lambda x, ranks: x.dtype, numpy=_ranked_numpy, batch=_ranked_batch, jvp=_ranked_jvp,
    examples=(Example(("f64[n, 4]", "i64[m]"), {}, {1: between(0, 3)}), Example(("f64[3]", "i64[2]"), {}, {1: between(0, 2)}),
              Example(("f64[0, 3]", "i64[1]"), {}, {1: between(0, 2)}), Example(("f64[n, 1]", "i64[0]")),
              *(Example((f"{d}[n, 5]", "i64[2]"), {}, {1: between(0, 4)}) for d in ("f16", "bf16", "f32", "bool")),
              *(Example((f"{d}[n, 100]", "i64[3]"), {}, {0: between(0, 3), 1: between(0, 99)}) for d in ("i8", "i64", "u32"))),
)


# ---- searching ----------------------------------------------------------------------------------
def _search_shape(table: ArrayType, values: ArrayType, side: str, batch: int) -> Shape:
    if side not in ("left", "right"):
        raise ValueError(f"search: side must be 'left' or 'right', got {side!r}")
    if table.rank != batch + 1 or values.rank < batch or table.shape[:batch] != values.shape[:batch]:
        raise ShapeError(f"search: {table} must have one axis after the {batch} that it shares with {values}")
    if table.dtype in COMPLEX:
        raise DTypeError(f"search: complex numbers are in no order, got {table}")
    if table.dtype != values.dtype:
        raise DTypeError(f"search: the table and the values must have one dtype, got {table} and {values}")
    return values.shape


def _search_numpy(table: np.ndarray, values: np.ndarray, side: str, batch: int) -> np.ndarray:
    """By halving, as the loop rule: the same also of what is in no order."""
    rows = (*values.shape[:batch], -1) if values.size else (*values.shape[:batch], 0)
    wide, sought = widened(table), widened(values).reshape(rows)
    found, left = np.zeros(sought.shape, I64), table.shape[-1]
    while left:
        half = (left + 1) // 2
        x = np.take_along_axis(wide, found + (half - 1), axis=-1)
        goes_on = (x == x) & ~(sought <= x) if side == "left" else (x <= sought) | (sought != sought)
        found += np.where(goes_on, half, 0)
        left -= half
    return found.reshape(values.shape)


def _search_loop(context: LoopContext, index: tuple[Expr, ...], side: str, batch: int) -> Expr:
    k = context.fresh()
    x, sought = context.load(0, (*index[:batch], k)), context.load(1, index)

    def test(fn: str, *args: Expr) -> Expr:
        return Apply(fn, args, BOOL)
    passed = test("lt", x, sought) if side == "left" else test("le", x, sought)
    if is_float(context.types[0].dtype):
        passed = test("bitwise_and", test("eq", x, x), test("bitwise_not", test("le", sought, x))) if side == "left" else \
            test("bitwise_or", passed, test("ne", sought, sought))
    return PartitionPoint(k, context.types[0].shape[-1], passed)


def _search_batch(size: Extent, args: tuple[Ref, ...], mapped: tuple[bool, ...], side: str, batch: int) -> Ref:
    """Where only the values are mapped and there is one table, they have one more axis."""
    if batch == 0 and not mapped[0]:
        return search(*args, side=side, batch=0)
    return search(*spread(size, args, mapped), side=side, batch=batch + 1)


def _in_order(rng: np.random.Generator, t: ArrayType) -> np.ndarray:
    return np.sort(rng.integers(0, 4, [evaluate(n, {}) for n in t.shape]), axis=-1).astype(t.dtype)


search: Op = Op(
    name="search",
    doc="Where each of the values would go in a table in order, rows of it for the first `batch` axes: before what is equal to "
        "it (left) or after (right), NaN last.",
    shape=_search_shape, dtype=lambda table, values, **attrs: I64,
    numpy=_search_numpy, batch=_search_batch, loop=_search_loop,
    jvp=lambda primals, tangents, out, **attrs: None,
    examples=tuple(Example(types, {"side": side, "batch": batch}, {0: _in_order, 1: between(0, 4)})
                   for side in ("left", "right") for types, batch in (
                       (("f64[n]", "f64[m, 2]"), 0), (("f64[5]", "f64[]"), 0), (("f64[n, 3]", "f64[n]"), 1),
                       (("f64[n, m]", "f64[n, 2, 3]"), 1), (("f64[0]", "f64[n]"), 0), (("f32[n]", "f32[7]"), 0),
                       (("bf16[n]", "bf16[7]"), 0), (("f16[9]", "f16[n]"), 0), (("i8[n]", "i8[m]"), 0),
                       (("u64[n]", "u64[4]"), 0), (("bool[n]", "bool[4]"), 0))),
)
