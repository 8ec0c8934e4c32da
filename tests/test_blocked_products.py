"""Products and convolutions in blocks: schedules keep the meaning and say no; compiled, they are as accurate as NumPy's."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright import lax
from loopwright.ir.builder import build
from loopwright.ir.dims import symbol
from loopwright.ir.expansion import expanded
from loopwright.ir.ops.arithmetic import add, max, mul
from loopwright.ir.ops.broadcasting import broadcast
from loopwright.ir.ops.contraction import dot_general
from loopwright.ir.ops.control import switch
from loopwright.ir.schedule import ComputeAt, Inline, InPlace, Pack, Parallel, Reorder, Split, Tensorize, from_json, to_json
from loopwright.ir.types import BF16, F32, F64, I32, ArrayType
from loopwright.lower.partition import partition
from loopwright.lower.runtime.lazy import llvm
from loopwright.lower.scheduling import ScheduleError, build_nest
from loopwright.lower.target import Target, host_target
from tests import kernels as kernel_texts
from tests.nests import run_nest
from tests.scale import examples
from tests.threads import bits_of

M, N, K = map(symbol, "mnk")
TILED = (Split("i1", 8), Split("i0", 6), Reorder(("i1_by8", "i0_by6", "i0", "i1")), Tensorize(0, (3, 2, 1), 4, 2, 5))
PACKED = (*TILED, Pack("right", "i1_by8"), Pack("left", "k0_by5"))
SIZES = st.integers(0, 11)


def biased(x, w, b):
    """relu(x @ w + b)."""
    y = dot_general(x, w, contract=((1, 0),), batch=(), dtype=None)
    return [max(add(y, broadcast(b, shape=y.shape, axes=(1,))), mul(y, y))]


REGION = build(biased, [ArrayType((M, K), F64), ArrayType((K, N), F64), ArrayType((N,), F64)])
PLACED = (ComputeAt(0, 2), *(Inline(k) for k in range(1, len(REGION.nodes))))


# ---- instructions -------------------------------------------------------------------------------
@examples(10)
@given(SIZES, SIZES, SIZES)
def test_a_product_in_blocks_means_what_it_meant(m, n, k):
    rng = np.random.default_rng(0)
    x, w, b = rng.normal(size=(m, k)), rng.normal(size=(k, n)), rng.normal(size=n)
    y, out = x @ w, np.full((m, n), 77.0)
    schedule = (*PLACED, *PACKED, Parallel(("i0_by6",)))
    assert from_json(to_json(schedule)) == schedule
    run_nest(build_nest(REGION, schedule, "k").nest, [x, w, b], [out], {"m": m, "n": n, "k": k})
    np.testing.assert_allclose(out, np.maximum(y + b, y * y), rtol=1e-12, atol=1e-12)


@examples(10)
@given(SIZES, SIZES, SIZES, st.sampled_from([(3, 2), (5, 3), (6,), (6, 4, 2)]))
def test_tiles_may_go_past_the_last_row(m, n, k, heights):
    rng = np.random.default_rng(0)
    x, w, b = rng.normal(size=(m, k)), rng.normal(size=(k, n)), rng.normal(size=n)
    y, out = x @ w, np.full((m, n), 77.0)
    schedule = (*PLACED, *TILED[:3], Tensorize(0, heights, 4, 2, 5), *PACKED[4:])
    nest = build_nest(REGION, schedule, "k").nest
    run_nest(nest, [x, w, b], [out], {"m": m, "n": n, "k": k})
    np.testing.assert_allclose(out, np.maximum(y + b, y * y), rtol=1e-12, atol=1e-12)
    made = np.full((m, n), 77.0)
    assert kernel_texts.compile_nest(nest, host_target())(x, w, b, made, sizes=(m, k, n))[0] == 0
    np.testing.assert_allclose(made, out, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("heights", [(6, 4, 3, 1), (6, 4, 1), (14, 4, 3, 1)])
def test_low_tiles_have_rows_of_high_ones(heights):
    """Rows of every rest, in blocks of two tiles and more."""
    rng, k, n = np.random.default_rng(0), 7, 9
    rows = 2 * heights[0]
    schedule = (*PLACED, Split("i1", 8), Split("i0", rows), Reorder(("i1_by8", f"i0_by{rows}", "i0", "i1")),
                Tensorize(0, heights, 4, 2, 5), *PACKED[4:])
    compiled = kernel_texts.compile_nest(build_nest(REGION, schedule, "k").nest, host_target())
    for m in range(5 * heights[0]):
        x, w, b = rng.normal(size=(m, k)), rng.normal(size=(k, n)), rng.normal(size=n)
        y, made = x @ w, np.full((m, n), 77.0)
        assert compiled(x, w, b, made, sizes=(m, k, n))[0] == 0
        np.testing.assert_allclose(made, np.maximum(y + b, y * y), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("schedule", "why"), [
    ((Split("i7", 4),), "no loop 'i7'"),
    ((Split("i1", 0),), "at least one position"),
    ((Split("i1", 8), Split("i1_by8", 16)), "from block to block itself"),
    ((Reorder(("i1", "i0", "k0")),), "directly inside one another"),
    ((Reorder(("k0", "k1")),), "no such loops"),
    ((Split("i1", 8), Reorder(("i1", "i1_by8"))), "goes through a block of i1_by8"),
    ((Tensorize(0, (2, 1), 4, 2, 5),), "does not stand in two loops"),
    ((*TILED[:3], Tensorize(0, (2, 3), 4, 2, 5)), "tiles get lower"),
    ((*TILED[:3], Tensorize(0, (3, 1), 5, 2, 5)), "whole vectors"),
    ((*TILED[:3], Tensorize(1, (3, 1), 4, 2, 5)), "does not stand"),
    (TILED, "packed sides"),
    ((*TILED, Pack("right", "i1_by8")), "packed sides"),
    ((*TILED, Pack("right", "i0_by6")), "packed for a block of columns, or for all"),
    ((*TILED, Pack("left", "i0_by6")), "a loop over other rows, which windows share"),
    ((*TILED, Pack("up", "i0_by6")), "a left and a right side"),
    ((Pack("left", "i0"),), "no product in it"),
    ((*PACKED, Parallel(("i9",))), "no loop 'i9'"),
])
def test_what_is_not_legal_is_refused_by_name(schedule, why):
    with pytest.raises(ScheduleError, match=f"{type(schedule[-1]).__name__}.*{why}|{why}"):
        build_nest(REGION, (*PLACED, *schedule), "k")


def test_blocks_that_are_packed_together_have_whole_panels():
    """Panels of all columns begin where those of each block do."""
    def schedule(block):
        return (*PLACED, Split("i1", block), Split("i0", 6), Reorder(("i0_by6", f"i1_by{block}", "i0", "i1")),
                Tensorize(0, (3, 1), 4, 2, 5), Pack("right", "i0_by6"), Pack("left", "k0_by5"))
    build_nest(REGION, schedule(8), "k")
    with pytest.raises(ScheduleError, match=r"Pack.*all blocks of whole panels"):
        build_nest(REGION, schedule(10), "k")


def test_what_is_packed_outside_a_loop_does_not_depend_on_it():
    """Of products in a batch each has a right side of its own."""
    types = ArrayType((symbol("g"), symbol("n"), symbol("k")), F32), ArrayType((symbol("g"), symbol("k"), symbol("m")), F32)
    region = build(lambda x, y: [dot_general(x, y, contract=((2, 1),), batch=((0, 0),), dtype=None)], types)

    def schedule(*order):
        return (Inline(0), Split("i2", 64), Split("i1", 24), Reorder(order), Tensorize(0, (4, 1), 16, 16, 32),
                Pack("right", "i2_by64"), Pack("left", "k0_by32"))
    build_nest(region, schedule("i0", "i2_by64", "i1_by24", "i1", "i2"), "k")
    with pytest.raises(ScheduleError, match=r"Pack.*what is packed depends on the loop i0, which is inside"):
        build_nest(region, schedule("i2_by64", "i0", "i1_by24", "i1", "i2"), "k")


def test_a_thread_computes_its_own_rows_and_no_others(monkeypatch):
    """A block of rows may reach past a thread's share."""
    monkeypatch.setattr(kernel_texts, "POOL", """
define internal void @lw_loop(ptr %body, ptr %context, i64 %n, i64 %each, i64 %least, i64 %together) {
  call void %body(ptr %context, i64 1, i64 4)
  ret void
}""")
    region = build(biased, [ArrayType((M, 30), F64), ArrayType((30, N), F64), ArrayType((N,), F64)])
    call = kernel_texts.compile_nest(build_nest(region, (*PLACED, *PACKED, Parallel(("i0_by6",))), "k").nest, host_target())
    rng, out = np.random.default_rng(0), np.full((400, 300), 77.0)
    x, w, b = rng.normal(size=(400, 30)), rng.normal(size=(30, 300)), rng.normal(size=300)
    assert call(x, w, b, out, sizes=(400, 300))[0] == 0
    y = (x @ w)[3:12]
    np.testing.assert_allclose(out[3:12], np.maximum(y + b, y * y), rtol=1e-10)
    assert (out[:3] == 77).all() and (out[12:] == 77).all()


def test_a_product_does_not_overwrite_what_it_reads():
    region = build(biased, [ArrayType((N, N), F64), ArrayType((N, N), F64), ArrayType((N,), F64)])
    schedule = (*PLACED, *PACKED)
    with pytest.raises(ScheduleError, match="may be read after it is stored"):
        build_nest(region, (*schedule, InPlace(0)), "k")


# ---- the default --------------------------------------------------------------------------------
def kernels(f, *args, blas=False, target=None):
    graph = partition(expanded(lw.make_graph(f)(*args)), target or host_target(), blas=blas)
    return [k for k in graph.nodes if "schedule" in k.attrs]


def is_blocked(k):
    return any(isinstance(x, Tensorize) for x in k.attrs["schedule"])


def test_what_a_product_is_made_from_and_what_is_made_of_it_are_one_kernel():
    x = np.ones((9, 8), "f4")
    [kernel] = kernels(lambda x, w, b: np.maximum((x * 2) @ w.T + b, 0) + x, x, np.ones((8, 8), "f4"), np.ones(8, "f4"))
    assert is_blocked(kernel)


def test_one_kernel_holds_one_product_and_short_ones_are_plain_loops():
    x = np.ones((9, 9), "f4")
    assert [is_blocked(k) for k in kernels(lambda x: x @ x + x.T @ x, x)] == [True, True]
    assert not any(is_blocked(k) for k in kernels(lambda x, v: (x @ v, v @ x), x, x[0]))
    few = build(lambda a, b: [dot_general(a, b, contract=((1, 0),), batch=(), dtype=None)],
                [ArrayType((M, 3), F32), ArrayType((3, N), F32)])
    assert not is_blocked(partition(few, host_target(), blas=False).nodes[0])


def test_a_product_after_what_its_loops_store_is_plain_loops():
    """The step of a mixture's estimate: means, which the product reads too, are stored where it is computed."""
    def f(x, r):
        n = np.sum(r, 0)
        mean = (r.T @ x) / n[:, None]
        return mean, np.einsum("nk,nkd->kd", r, (x[:, None] - mean) ** 2) / n[:, None]
    rng = np.random.default_rng(0)
    for n in (50, 700):
        x, r = rng.normal(size=(n, 4)), rng.random((n, 5))
        for got, want in zip(lw.jit(f)(x, r), f(x, r), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("target", [
    Target("x86_64-unknown-linux-gnu", "", "+avx512f,+avx512vl,+avx512dq,+avx512bw,+fma", 512),
    Target("x86_64-unknown-linux-gnu", "", "+avx2,+fma", 256), Target("x86_64-unknown-linux-gnu", "", "", 128),
    Target("aarch64-unknown-linux-gnu", "", "+neon", 128)])
def test_sums_and_factors_of_a_tile_fit_the_registers(target):
    [kernel] = kernels(lambda x: x @ x, np.ones((9, 9), "f4"), target=target)
    [tile] = [x for x in kernel.attrs["schedule"] if isinstance(x, Tensorize)]
    registers = 32 if target.vector_bits == 512 or target.is_arm64 else 16
    vectors = tile.columns // tile.lanes
    assert tile.heights[0] * vectors + vectors + 1 <= registers and tile.lanes == target.vector_bits // 32


# ---- values -------------------------------------------------------------------------------------
ROWS = st.integers(0, 40) | st.sampled_from([84, 128, 170])
COLUMNS = st.integers(0, 40) | st.sampled_from([64, 65, 129, 1030])
TERMS = st.integers(0, 40) | st.sampled_from([255, 256, 257, 513])


@pytest.fixture(scope="module")
def without_library():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOOPWRIGHT_BLAS", "none")
        yield


def near(found, exact, theirs):
    """Not ten times further from the exact result than NumPy's, which may be lucky, or some last bits."""
    assert found.dtype == theirs.dtype and found.shape == theirs.shape
    bound = 10 * np.abs(theirs - exact).max(initial=0) + 8 * np.finfo(found.dtype).eps * np.abs(exact).max(initial=0)
    assert np.abs(found - exact).max(initial=0) <= bound


PRODUCTS = {
    "plain": (lambda a, b: a @ b, (False, False)), "left": (lambda a, b: a.T @ b, (True, False)),
    "right": (lambda a, b: a @ b.T, (False, True)), "both": (lambda a, b: a.T @ b.T, (True, True)),
    "epilogue": (lambda a, b: np.tanh(a @ b) + b[:1].sum(), (False, False)),
    "prologue": (lambda a, b: (2 - a) @ np.maximum(b, 0), (False, False)),
}
COMPILED = {name: lw.jit(f) for name, (f, _) in PRODUCTS.items()}
CASES = [*((name, "f4") for name in PRODUCTS), ("plain", "f8"), ("epilogue", "f8")]


@examples(80)
@given(st.sampled_from(CASES), ROWS, COLUMNS, TERMS)
def test_products_are_as_accurate_as_numpys(without_library, case, m, n, k):
    (name, dtype), (f, transposed) = case, PRODUCTS[case[0]]
    rng = np.random.default_rng(m * 1000 + n)
    a, b = rng.normal(size=(m, k) if not transposed[0] else (k, m)), rng.normal(size=(k, n) if not transposed[1] else (n, k))
    a, b = a.astype(dtype), b.astype(dtype)
    exact = f(a.astype(np.longdouble if dtype == "f8" else "f8"), b.astype(np.longdouble if dtype == "f8" else "f8"))
    near(COMPILED[name](a, b), exact, f(a, b))


@pytest.mark.parametrize(("f", "dtype"), [(lambda a, b: a @ b, "f2"), (lambda a, b: np.maximum(a @ b, 0), "f2"), (
    lambda a, b: np.matmul(a, b, dtype="f4"), "f2")])
def test_half_floats_are_multiplied_in_blocks_of_f32(f, dtype):
    rng = np.random.default_rng(4)
    a, b = rng.normal(size=(70, 130)).astype(dtype), rng.normal(size=(130, 40)).astype(dtype)
    assert any(map(is_blocked, kernels(f, a, b, blas=False)))
    near(lw.jit(f)(a, b), f(a.astype("f8"), b.astype("f8")), f(a, b))


INTEGERS = {"plain": lambda a, b: a @ b, "wide": lambda a, b: a.astype("i4") @ b.astype("i4").T.copy().T + 1}
BF16_PRODUCT = lw.jit(lambda a, b: a @ b)
INTEGER_PRODUCTS = {name: lw.jit(f) for name, f in INTEGERS.items()}


@examples(40)
@given(st.sampled_from(list(INTEGERS)), ROWS, COLUMNS, TERMS, st.sampled_from(["i1", "u1", "i2", "u8"]))
def test_products_of_integers_wrap_as_numpys(name, m, n, k, dtype):
    """Of all values of the dtype."""
    rng, info = np.random.default_rng(m * 1000 + n), np.iinfo(dtype)
    a, b = (rng.integers(info.min, info.max, shape, dtype, endpoint=True) for shape in ((m, k), (k, n)))
    found, expected = INTEGER_PRODUCTS[name](a, b), INTEGERS[name](a, b)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_products_of_integers_are_blocks():
    a = np.ones((20, 30), "i1")
    for f in INTEGERS.values():
        [kernel] = kernels(f, a, a.T.copy(), blas=True)
        assert is_blocked(kernel)


@examples(8)
@given(SIZES, SIZES, SIZES, st.sampled_from(["i1", "u1", "i2", BF16]))
def test_pairs_of_terms_mean_what_terms_do(m, n, k, dtype):
    dtype, rng = np.dtype(dtype), np.random.default_rng(0)
    sums = F32 if dtype == BF16 else I32
    region = build(lambda x, w: [dot_general(x, w, contract=((1, 0),), batch=(), dtype=sums)],
                   [ArrayType((M, K), dtype), ArrayType((K, N), dtype)])
    schedule = (Inline(0), *TILED[:3], Tensorize(0, (3, 2, 1), 4, 2, 2, 1, True), Pack("right", "i1_by8"),
                Pack("left", "k0_pairs_by2"))
    low, high = (-99, 99) if dtype == BF16 else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    x, w = (rng.integers(low, high, shape, endpoint=True).astype(dtype) for shape in ((m, k), (k, n)))
    out = np.full((m, n), 77, sums)
    run_nest(build_nest(region, schedule, "k").nest, [x, w], [out], {"m": m, "n": n, "k": k})
    np.testing.assert_array_equal(out, x.astype(sums) @ w.astype(sums))


@pytest.mark.parametrize(("features", "bits", "instruction"), [
    ("+avx512f,+avx512vl,+avx512dq,+avx512bw,+avx512vnni,+fma", 512, "vpdpwssd"),
    ("+avx512f,+avx512vl,+avx512dq,+avx512bw,+avx512bf16,+fma", 512, "vdpbf16ps"),
    ("+avx512f,+avx512vl,+avx512dq,+avx512bw,+fma", 512, "vpmaddwd"), ("+avx2,+fma", 256, "vpmaddwd"), ("", 128, "pmaddwd")])
def test_pairs_are_an_instruction_of_every_x86(features, bits, instruction):
    """Only assembled: no machine is asked."""
    target = Target("x86_64-unknown-linux-gnu", "", features, bits)
    dtype, sums = ("i1", "i4") if instruction != "vdpbf16ps" else (BF16, "f4")
    a = np.ones((20, 30), dtype)
    [kernel] = kernels(lambda a, b: a.astype(sums) @ b.astype(sums), a, a.T.copy(), target=target)
    nest = build_nest(kernel.regions[0], kernel.attrs["schedule"], "k").nest
    binding = llvm()
    machine = binding.Target.from_triple(target.triple).create_target_machine(cpu="x86-64", features=features)
    assert f"\t{instruction}\t" in machine.emit_assembly(binding.parse_assembly(kernel_texts.module_text(nest, target)))


@pytest.mark.parametrize(("features", "ours"), [("+avx512f,+avx512vl,+avx512dq,+avx512bw,+avx512bf16,+fma", True),
                                                ("+avx512f,+avx512vl,+avx512dq,+avx512bw,+fma", False)])
def test_products_of_bf16_are_ours_where_an_instruction_sums_them(features, ours):
    """No library multiplies bf16; one for f32 takes twice the time of that instruction."""
    target, a = Target("x86_64-unknown-linux-gnu", "", features, 512), np.ones((20, 30), BF16)
    assert any(map(is_blocked, kernels(lambda a, b: a @ b, a, a.T.copy(), blas=True, target=target))) == ours
    assert not any(map(is_blocked, kernels(lambda a, b: a @ b, a.astype("f4"), a.T.astype("f4"), blas=True, target=target)))


@examples(30)
@given(SIZES, SIZES, SIZES)
def test_products_of_bf16_are_summed_in_f32(m, n, k):
    rng = np.random.default_rng(m + 100 * n)
    a, b = rng.normal(size=(m, k)).astype(BF16), rng.normal(size=(k, n)).astype(BF16)
    exact = a.astype("f8") @ b.astype("f8")
    bound = np.abs(a.astype("f8")) @ np.abs(b.astype("f8")) * (k or 1) * 2.0**-23
    found = BF16_PRODUCT(a, b)
    assert found.dtype == (a @ b).dtype
    assert np.all(np.abs(found.astype("f8") - exact) <= bound + np.abs(exact) * (2.0**-8 if found.dtype == BF16 else 0))


def test_pairs_are_of_short_numbers_alone():
    region = build(lambda x, w: [dot_general(x, w, contract=((1, 0),), batch=(), dtype=None)], [ArrayType((M, K), I32),
                                                                                               ArrayType((K, N), I32)])
    with pytest.raises(ScheduleError, match="at most 16 bits"):
        build_nest(region, (Inline(0), *TILED[:3], Tensorize(0, (3, 2, 1), 4, 2, 2, 1, True)), "k")


BATCHED = [
    ((2, 0, 33, 20), (2, 0, 20, 17), lambda a, b: a @ b), ((3, 20, 33), (33, 40), lambda a, b: a @ b + 1),
    ((2, 3, 20, 33), (2, 3, 40, 33), lambda a, b: a @ np.swapaxes(b, -1, -2)),
    ((5, 70, 33), (5, 33, 40), lambda a, b: np.maximum(a @ b, 0)), ((30, 4, 5), (4, 5, 60), lambda a, b: np.tensordot(a, b)),
    ((6, 20, 7), (7, 40), lambda a, b: np.einsum("bik,kj->ibj", a, b)),
]


@pytest.mark.parametrize(("left", "right", "f"), BATCHED)
def test_batches_and_several_axes(without_library, left, right, f):
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=left), rng.normal(size=right)
    near(lw.jit(f)(a, b), f(a.astype(np.longdouble), b.astype(np.longdouble)), f(a, b))


def test_gradients_of_products_in_blocks(without_library):
    rng = np.random.default_rng(2)
    x, w = rng.normal(size=(40, 33)), rng.normal(size=(33, 20))

    def loss(w):
        return np.sum(np.tanh(x @ w) ** 2)
    y = np.tanh(x @ w)
    np.testing.assert_allclose(lw.jit(lw.grad(loss))(w), x.T @ (2 * y * (1 - y * y)), rtol=1e-12, atol=1e-13)  # of sums near 0


@pytest.mark.parametrize("columns", [90, 1100, 1403])
def test_equal_bits_on_any_number_of_threads(columns, without_library):
    """They share out rows, or columns where each has many of them."""
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(300, 200)).astype("f4"), rng.normal(size=(200, columns)).astype("f4")
    f, _ = PRODUCTS["epilogue"]
    found = bits_of(f, a, b)
    assert found[0] == found[1] == found[2]
    np.testing.assert_allclose(COMPILED["epilogue"](a, b), f(a, b), rtol=1e-4, atol=1e-4)


# ---- convolutions -------------------------------------------------------------------------------
def convolved(x, w, stride, padding, dilation):
    """By one product for each position of the kernel."""
    x = np.pad(x, ((0, 0), padding[0], padding[1], (0, 0)))
    rows, columns = ((x.shape[1 + k] - (w.shape[k] - 1) * dilation[k] - 1) // stride[k] + 1 for k in (0, 1))
    places = [(slice(i, i + rows * stride[0], stride[0]), slice(j, j + columns * stride[1], stride[1]))
              for i in range(0, w.shape[0] * dilation[0], dilation[0]) for j in range(0, w.shape[1] * dilation[1], dilation[1])]
    return sum(x[:, *place] @ kernel for place, kernel in zip(places, w.reshape(-1, *w.shape[2:]), strict=True))


WINDOWS = [((1, 1), (1, 1), (1, 1)), ((2, 1), (0, 2), (1, 1)), ((3, 2), (1, 0), (1, 1)), ((1, 1), (2, 1), (2, 3)),
           ((2, 2), (0, 0), (1, 1)), ((2, 2), (3, 1), (1, 2))]
CONVOLUTIONS = [lw.jit(lambda x, w, b, stride=stride, low=low, high=high, dilation=dilation: np.maximum(
    lax.conv_general_dilated(x, w, stride, ((low, high), (high, low)), rhs_dilation=dilation,
                             dimension_numbers=("NHWC", "HWIO", "NHWC")) + b, 0),
    static_argnames=("stride", "low", "high", "dilation")) for stride, (low, high), dilation in WINDOWS]


@examples(30)
@given(st.integers(0, len(WINDOWS) - 1), st.tuples(*[st.integers(2, 4)] * 2), st.tuples(*[st.integers(10, 32)] * 2),
       st.integers(2, 40), st.integers(2, 140), st.sampled_from(["f4", "f8"]))
def test_convolutions_are_as_accurate_as_products(k, window, image, features, out, dtype):
    rng = np.random.default_rng(features)
    stride, (low, high), dilation = WINDOWS[k]
    x, w, b = (rng.normal(size=s).astype(dtype) for s in ((2, *image, features), (*window, features, out), (out,)))

    def expected(x, w, b):
        return np.maximum(convolved(x, w, stride, ((low, high), (high, low)), dilation) + b, 0)
    wide = np.longdouble if dtype == "f8" else "f8"
    near(CONVOLUTIONS[k](x, w, b), expected(*(a.astype(wide) for a in (x, w, b))), expected(x, w, b))


def test_a_convolution_with_bias_and_relu_is_one_kernel_with_or_without_the_library():
    """With it a kernel of few features has code of its own beside it."""
    x, w, b = np.ones((2, 9, 9, 5), "f4"), np.ones((3, 3, 5, 7), "f4"), np.ones(7, "f4")

    def f(x, w, b):
        return np.maximum(lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")) + b, 0)
    [kernel] = kernels(f, x, w, b)
    graph = partition(expanded(lw.make_graph(f)(x, w, b)), host_target(), blas=True)
    [usual], *_ = [r.nodes for n in graph.nodes for r in n.regions if n.op is switch]
    assert is_blocked(kernel) and is_blocked(usual) and kernel.regions == usual.regions
