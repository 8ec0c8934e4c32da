"""Slices, pads, reshapes, concatenations and contractions against NumPy on random shapes, and the cost of their loops."""
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright.ir.builder import build
from loopwright.ir.dims import symbol
from loopwright.ir.errors import DTypeError, ShapeError
from loopwright.ir.interpreter import evaluate as run
from loopwright.ir.loop_interpreter import run_loop
from loopwright.ir.loops import Apply, Expr, Index, Load, LoopContext, When
from loopwright.ir.ops.contraction import dot_general
from loopwright.ir.ops.structural import MOST_OPERANDS, concatenate, pad, reshape, reverse, slice_, transpose
from loopwright.ir.types import BF16, BOOL, F16, F32, F64, I8, I32, U8, ArrayType
from tests.scale import examples

seeds = st.integers(0, 2**32 - 1)
n, m, k = (symbol(s) for s in "nmk")


def element(op, types, **attrs) -> Expr:
    """The loop expression of op's result on these types."""
    (result,) = op.result_types(types, (), attrs)
    names = itertools.count()
    context = LoopContext(tuple(types), result, lambda a, index: Load(a, index, types[a].dtype),
                          lambda: Index(f"k{next(names)}"))
    return op.loop(context, tuple(Index(f"i{a}") for a in range(result.rank)), **attrs)


def calls(expr: Expr) -> list[str]:
    """Every elementwise op in an expression, by name."""
    match expr:
        case Apply(fn, args, _):
            return [fn, *(x for a in args for x in calls(a))]
        case Load(_, index, _):
            return [x for i in index for x in calls(i)]
        case When(cond, then, other):
            return [x for e in (cond, then, other) for x in calls(e)]
    return []


def depth(expr: Expr) -> int:
    return 1 + max(depth(expr.then), depth(expr.other)) if isinstance(expr, When) else 0


# ---- reshape ------------------------------------------------------------------------------------
def split(rng: np.random.Generator, size: int) -> tuple[int, ...]:
    """A random shape of this many elements, sizes 1 among them."""
    shape = [1] * int(rng.integers(1, 5))
    for p in (2, 2, 2, 3, 3, 5):
        if size and size % p == 0:
            shape[rng.integers(len(shape))] *= p
            size //= p
    shape[rng.integers(len(shape))] *= size
    return tuple(shape)


@examples(60)
@given(size=st.sampled_from([0, 1, 6, 12, 24, 30, 72]), seed=seeds)
def test_reshape_loops_are_numpys_reshape(size, seed):
    rng = np.random.default_rng(seed)
    x = np.arange(size).reshape(split(rng, size))
    shape = split(rng, size)
    np.testing.assert_array_equal(run_loop(reshape, [x], shape=shape), x.reshape(shape))


@pytest.mark.parametrize(("source", "shape", "remainders"), [
    ((n, m, 3), (n, m, 3), 0),
    ((n, m), (n, 1, m, 1), 0),
    ((1, n, 1), (n,), 0),
    ((n, m, k), (n, m * k), 1),  # the inner axis by a remainder, the outer by a division alone
    ((n, m * k), (n, m, k), 0),  # splitting only multiplies
    ((n, 2, 3, m), (n, 6, m), 1),
    ((n * 2, m), (n, 2, m), 0),
    ((n, 2, m, k), (n * 2, m * k), 2),
    ((n, m, k), (n * m * k,), 2),
    ((4, n), (2, 2 * n), 1),
    ((), (1, 1), 0),
    ((1,), (), 0),
])
def test_reshape_divides_only_inside_merged_axes(source, shape, remainders):
    names = calls(element(reshape, [ArrayType(source, F64)], shape=shape))
    assert names.count("remainder") == remainders
    assert ("floor_divide" in names) == (remainders > 0)


def test_reshape_of_another_size_is_refused():
    with pytest.raises(ShapeError, match=r"reshape: f64\[n, 3\] has 3\*n elements, the new shape .* has 2\*n"):
        reshape.result_types([ArrayType((n, 3), F64)], (), {"shape": (n, 2)})


# ---- slice and pad ------------------------------------------------------------------------------
def window(rng: np.random.Generator, size: int) -> tuple[int, int, int]:
    """A random (start, step, number) inside an axis of this size."""
    number = int(rng.integers(0, size + 1))
    if number == 0:
        return int(rng.integers(-2, size + 2)), int(rng.choice([-2, -1, 1, 3])), 0
    step = int(rng.integers(1, max((size - 1) // max(number - 1, 1), 1) + 1))
    start = int(rng.integers(0, size - step * (number - 1)))
    return (start, step, number) if rng.integers(2) else (start + step * (number - 1), -step, number)


@examples(80)
@given(shape=st.lists(st.integers(0, 6), min_size=0, max_size=3), seed=seeds)
def test_slices_and_pads_are_what_their_positions_say(shape, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape)
    start, step, number = (tuple(c) for c in zip(*(window(rng, s) for s in shape), strict=True)) if shape else ((), (), ())
    at = np.ix_(*(np.array([s + d * i for i in range(c)], int) for s, d, c in zip(start, step, number, strict=True)))
    taken = {"start": start, "step": step, "shape": number}
    np.testing.assert_array_equal(slice_.numpy(x, **taken), x[at] if shape else x)
    np.testing.assert_array_equal(run_loop(slice_, [x], **taken), x[at] if shape else x)
    small = rng.normal(size=number)
    want = np.full(shape, -2.5)
    if shape:
        want[at] = small
    else:
        want = small
    put = {"shape": tuple(shape), "start": start, "step": step, "value": -2.5}
    np.testing.assert_array_equal(pad.numpy(small, **put), want)
    np.testing.assert_array_equal(run_loop(pad, [small], **put), want)


@pytest.mark.parametrize(("start", "step", "number"), [(0, 1, 6), (5, 1, 1), (-1, 1, 1), (4, -1, 6), (0, 3, 3), (0, 1, -1)])
def test_a_slice_outside_its_axis_is_refused(start, step, number):
    with pytest.raises(ShapeError, match="slice: axis 0"):
        slice_.result_types([ArrayType((5,), F64)], (), {"start": (start,), "step": (step,), "shape": (number,)})


def test_a_slice_provably_outside_a_symbolic_axis_is_refused():
    with pytest.raises(ShapeError, match=r"slice: axis 0 of size n has no n \+ 1 positions"):
        slice_.result_types([ArrayType((n,), F64)], (), {"start": (0,), "step": (1,), "shape": (n + 1,)})


def test_a_step_of_zero_is_refused():
    with pytest.raises(ShapeError, match="zero"):
        slice_.result_types([ArrayType((5,), F64)], (), {"start": (0,), "step": (0,), "shape": (2,)})


@pytest.mark.parametrize("dtype", [BOOL, U8, I32, BF16, F16, F32])
def test_pads_keep_the_dtype(dtype):
    x = np.ones(2, dtype)
    out = pad.numpy(x, shape=(4,), start=(1,), step=(1,), value=1)
    assert out.dtype == dtype
    assert run_loop(pad, [x], shape=(4,), start=(1,), step=(1,), value=1).tolist() == out.tolist()


def test_pads_test_only_what_can_fail():
    assert calls(element(pad, [ArrayType((n, 3), F64)], shape=(n, 5), start=(0, 0), step=(1, 1), value=0)) == ["lt"]
    assert calls(element(pad, [ArrayType((n,), F64)], shape=(n + 2,), start=(2,), step=(1,), value=0)).count("lt") == 1


@pytest.mark.parametrize("size", [0, 1, 4])
def test_reverse_of_any_size(size):
    x = np.arange(float(size))
    g = build(lambda r: [reverse(r, 0)], [ArrayType((size,), F64)])
    np.testing.assert_array_equal(run(g, [x])[0], x[::-1])


# ---- concatenate and transpose --------------------------------------------------------------------
def test_concatenations_find_their_operand_by_halves():
    types = [ArrayType((n,), F64)] * 100
    assert depth(element(concatenate, types, axis=0)) == 7


def test_concatenation_of_many():
    parts = [np.arange(float(i % 3)) for i in range(70)]
    np.testing.assert_array_equal(run_loop(concatenate, parts, axis=0), np.concatenate(parts))
    with pytest.raises(ShapeError, match=f"takes 1 to {MOST_OPERANDS} operands"):
        concatenate.result_types([ArrayType((1,), F64)] * (MOST_OPERANDS + 1), (), {"axis": 0})


def test_concatenations_that_do_not_fit():
    with pytest.raises(ShapeError, match="operand 1 is f64\\[2, 4\\]"):
        concatenate.result_types([ArrayType((2, 3), F64), ArrayType((2, 4), F64)], (), {"axis": 0})
    with pytest.raises(DTypeError, match="operand 1 has dtype float32"):
        concatenate.result_types([ArrayType((2,), F64), ArrayType((2,), F32)], (), {"axis": 0})


def test_a_transpose_needs_a_permutation():
    with pytest.raises(ShapeError, match="each axis"):
        transpose.result_types([ArrayType((2, 3), F64)], (), {"perm": (0, 0)})


# ---- contraction --------------------------------------------------------------------------------
def dimensions(rng: np.random.Generator):
    """Random dimension numbers with shapes that fit, and the einsum that means the same."""
    batch, contract, left, right = (int(c) for c in rng.integers(0, 3, 4))
    ls, rs = list(rng.permutation(batch + contract + left)), list(rng.permutation(batch + contract + right))
    pairs = [(int(a), int(b)) for a, b in zip(ls[:batch + contract], rs[:batch + contract], strict=True)]
    shapes = [[int(s) for s in rng.integers(0, 4, len(axes))] for axes in (ls, rs)]
    letters = [list("abcdefgh"[:len(ls)]), list("ijklmnop"[:len(rs)])]
    for a, b in pairs:
        shapes[1][b], letters[1][b] = shapes[0][a], letters[0][a]
    free = [[x for x in letters[s] if x not in letters[1 - s]] for s in (0, 1)]
    out = [letters[0][a] for a, _ in pairs[:batch]] + free[0] + free[1]
    einsum = f"{''.join(letters[0])},{''.join(letters[1])}->{''.join(out)}"
    return {"batch": tuple(pairs[:batch]), "contract": tuple(pairs[batch:]), "dtype": None}, shapes, einsum


@examples(80)
@given(seed=seeds)
def test_contractions_over_any_dimension_numbers_are_einsums(seed):
    rng = np.random.default_rng(seed)
    attrs, shapes, einsum = dimensions(rng)
    a, b = (rng.normal(size=s) for s in shapes)
    want = np.einsum(einsum, a, b)
    assert dot_general.result_types([ArrayType(x.shape, F64) for x in (a, b)], (), attrs)[0].shape == want.shape
    np.testing.assert_allclose(dot_general.numpy(a, b, **attrs), want, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(run_loop(dot_general, [a, b], **attrs), want, rtol=1e-12, atol=1e-12)


@examples(40)
@given(seed=seeds)
def test_transposes_and_batches_over_any_dimension_numbers(seed):
    rng = np.random.default_rng(seed)
    attrs, shapes, einsum = dimensions(rng)
    a, b, da, db = (rng.normal(size=s) for s in (*shapes, *shapes))
    ct = rng.normal(size=np.einsum(einsum, a, b).shape)
    ta, tb, tc = (ArrayType(x.shape, F64) for x in (a, b, ct))
    back = build(lambda c, x, y: [dot_general.transpose[0](c, ta, y, **attrs), dot_general.transpose[1](c, x, tb, **attrs)],
                 [tc, ta, tb])
    for got, d, along in zip(run(back, [ct, a, b]), (da, db), ((da, b), (a, db)), strict=True):
        assert np.isclose(np.sum(got * d), np.sum(ct * np.einsum(einsum, *along)))
    rows = (a, da), (b, db)
    for mapped in ((True, True), (True, False), (False, True)):
        args = [np.stack(pair) if is_mapped else pair[0] for pair, is_mapped in zip(rows, mapped, strict=True)]
        g = build(lambda *refs, mapped=mapped: [dot_general.batch(2, refs, mapped, **attrs)],
                  [ArrayType(x.shape, F64) for x in args])
        want = np.stack([np.einsum(einsum, *(pair[r * is_mapped] for pair, is_mapped in zip(rows, mapped, strict=True)))
                         for r in (0, 1)])
        np.testing.assert_allclose(run(g, args)[0], want, rtol=1e-12, atol=1e-12)


MATMUL = {"contract": ((1, 0),), "batch": ()}


def test_small_integers_wrap_and_a_wider_result_shows_the_sums():
    x = np.full((1, 3), 100, np.int8)
    sums = np.int64(3 * 100 * 100)
    narrow, wide = (dot_general.numpy(x, x.T, **MATMUL, dtype=d) for d in (None, I32))
    assert narrow.dtype == I8 and narrow[0, 0] == sums.astype(np.int8)
    assert wide.dtype == I32 and wide[0, 0] == sums
    assert run_loop(dot_general, [x, x.T], **MATMUL, dtype=None).tolist() == narrow.tolist()
    assert run_loop(dot_general, [x, x.T], **MATMUL, dtype=I32).tolist() == wide.tolist()


@pytest.mark.parametrize("dtype", [F16, BF16])
def test_half_precision_accumulates_in_f32_and_rounds_once(dtype):
    x = np.ones((1, 4096), dtype)
    x[0, 0] = 2048.0
    got = dot_general.numpy(x, np.ones((4096, 1), dtype), **MATMUL, dtype=None)
    assert got.dtype == dtype and got[0, 0] == np.float32(2048 + 4095).astype(dtype)


def test_bool_contractions_are_any_of_and():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 2, (3, 4)).astype(bool), rng.integers(0, 2, (4, 5)).astype(bool)
    want = np.matmul(a, b)
    np.testing.assert_array_equal(dot_general.numpy(a, b, **MATMUL, dtype=None), want)
    np.testing.assert_array_equal(run_loop(dot_general, [a, b], **MATMUL, dtype=None), want)


def test_contractions_that_do_not_fit():
    with pytest.raises(ShapeError, match=r"axis 1 of f64\[n, 3\] pairs with axis 0 of f64\[4, m\].*got 3 and 4"):
        dot_general.result_types([ArrayType((n, 3), F64), ArrayType((4, m), F64)], (), {**MATMUL, "dtype": None})
    with pytest.raises(ShapeError, match="must be distinct"):
        dot_general.result_types([ArrayType((2, 2), F64)] * 2, (), {"contract": ((1, 0),), "batch": ((1, 1),), "dtype": None})
    with pytest.raises(DTypeError, match="one dtype"):
        dot_general.result_types([ArrayType((2, 2), F64), ArrayType((2, 2), F32)], (), {**MATMUL, "dtype": None})
