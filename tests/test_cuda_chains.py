"""Chains of products on a GPU in passes: any such chain, at any size, with NaN and infinities; what rules take and leave apart;
what the nest means; what is refused; registers and shared memory."""
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.ir.expansion import expanded
from loopwright.ir.gpu_schedule import BLOCK, THREAD_X, Bind, InPasses, Threads
from loopwright.ir.nest import For, Passes
from loopwright.ir.schedule import ComputeAt, Inline, from_json, to_json
from loopwright.ir.types import BF16
from loopwright.lower.contractions import is_contraction
from loopwright.lower.cuda import emit_cuda, lower_cuda
from loopwright.lower.cuda.chain_rules import WARPS, WIDTHS
from loopwright.lower.cuda.maths import Library
from loopwright.lower.scheduling import ScheduleError, build_nest
from tests.cuda_templates import attention, sizes_of, softmax
from tests.devices import require_device
from tests.emulator import ORDERS
from tests.emulator.programs import compiled, run_program
from tests.nests import run_nest
from tests.nvrtc import compile_text
from tests.scale import SCALE, examples


@pytest.fixture(autouse=True)
def _compiler():
    require_device()


# ---- chains of every kind -----------------------------------------------------------------------
def causal(q, k, v):
    scores = np.einsum("bqd,bkd->bqk", q, k) * q.dtype.type(0.25)
    allowed = lw.numpy.arange(q.shape[1])[:, None] >= lw.numpy.arange(k.shape[1])
    return np.einsum("bqk,bkd->bqd", softmax(np.where(allowed, scores, q.dtype.type(-30000))), v)


def masked(q, k, v, mask):
    """Rows that see nothing are NaN."""
    scores = np.where(mask, np.einsum("bqd,bkd->bqk", q, k), q.dtype.type(-np.inf))
    return np.einsum("bqk,bkd->bqd", softmax(scores), v)


def biased(q, k, v, bias):
    return np.einsum("bqk,bkd->bqd", softmax(np.einsum("bqd,bkd->bqk", q, k) + bias), v)


def divided_afterwards(q, k, v):
    scores = np.einsum("bqd,bkd->bqk", q, k)
    e = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    return np.einsum("bqk,bkd->bqd", e, v) / np.sum(e, axis=-1, keepdims=True)


def by_extremes(q, k, v):
    """Two folds in one pass."""
    scores = np.einsum("bqd,bkd->bqk", q, k)
    low, high = np.min(scores, axis=-1, keepdims=True), np.max(scores, axis=-1, keepdims=True)
    return np.einsum("bqk,bkd->bqd", (scores - low) / (high - low + 1), v)


def by_two_products(q, k, v):
    """Rows of two products, as slopes of an attention are."""
    weights, slopes = softmax(np.einsum("bqd,bkd->bqk", q, k)), np.einsum("bqd,bkd->bqk", q, v)
    return np.einsum("bqk,bkd->bqd", weights * (slopes - np.sum(weights * slopes, axis=-1, keepdims=True)), k)


def in_groups(q, k, v):
    """Several query heads for each of the keys: all their rows go by the same keys."""
    scores = np.einsum("bqgd,bkd->bqgk", q, k)
    return np.einsum("bqgk,bkd->bqgd", softmax(scores), v)


def heads_inside(q, k, v):
    scores = np.einsum("qhd,khd->hqk", q, k)
    return np.einsum("hqk,khd->hqd", softmax(scores), v)


def scaled_before(q, k, v):
    """A side that is computed on the way."""
    return np.einsum("bqk,bkd->bqd", softmax(np.einsum("bqd,bkd->bqk", q * q.dtype.type(0.5), k)), v)


def shapes(b, q, k, d, v):
    return (b, q, d), (b, k, d), (b, k, v)


CHAINS = {
    "plain": (attention, shapes),
    "causal": (causal, shapes),
    "masked": (masked, lambda b, q, k, d, v: (*shapes(b, q, k, d, v), ("mask", q, k))),
    "biased": (biased, lambda b, q, k, d, v: (*shapes(b, q, k, d, v), (b, 1, k))),
    "divided afterwards": (divided_afterwards, shapes),
    "by extremes": (by_extremes, shapes),
    "by two products": (by_two_products, lambda b, q, k, d, v: shapes(b, q, k, d, d)),
    "in groups": (in_groups, lambda b, q, k, d, v: ((b, q, 3, d), (b, k, d), (b, k, v))),
    "scaled before": (scaled_before, shapes),
    "heads inside": (heads_inside, lambda b, q, k, d, v: ((q, b, d), (k, b, d), (k, b, v))),
}
LARGE = (2, 20000, 20000, 64, 64)  # sizes at which such a chain is a kernel, whatever its type


def drawn(name, sizes, dtype, rng):
    made = []
    for shape in CHAINS[name][1](*sizes):
        is_mask = shape[0] == "mask"
        made.append(rng.random(shape[1:]) < 0.5 if is_mask else rng.normal(size=shape).astype(dtype))
    return made


@cache
def program(name, dtype):
    """The program of a chain, its schedule chosen for large sizes."""
    few = drawn(name, (2, 5, 6, 7, 8), dtype, np.random.default_rng(0))
    graph = expanded(lw.make_graph(CHAINS[name][0])(*few))
    large = [np.broadcast_to(np.zeros((), x.dtype), s[s[0] == "mask":])
             for x, s in zip(few, CHAINS[name][1](*LARGE), strict=True)]
    made = lower_cuda(graph, sizes_of(graph, large))
    assert len(made.made) == len(made.kernels.nodes) == 1, made.kernels
    node, = made.made
    assert any(isinstance(x, InPasses) for x in node.attrs["schedule"])
    return graph, made


def expected(name, args):
    with np.errstate(all="ignore"):
        return CHAINS[name][0](*[x if x.dtype == bool else x.astype("f8") for x in args])


SIZES = st.tuples(st.integers(1, 3), st.integers(1, 130), st.integers(1, 130), st.integers(1, 70), st.integers(1, 70)) \
    | st.sampled_from([(1, 64, 64, 16, 64), (1, 65, 128, 32, 33), (2, 1, 200, 64, 64), (1, 3, 1, 1, 140)])


@pytest.mark.parametrize(("name", "dtype"), [
    *((name, "f4") for name in CHAINS), *((name, "f2") for name in ("plain", "causal", "biased", "in groups", "scaled before")),
    *((name, "f8") for name in ("plain", "by two products"))])
def test_chains_at_any_size(name, dtype):
    graph, made = program(name, dtype)
    device = compiled(made)

    @examples(5)
    @given(SIZES, st.sampled_from(ORDERS), st.integers(0, 99))
    def check(sizes, order, seed):
        args = drawn(name, sizes, dtype, np.random.default_rng(seed))
        got, = run_program(made, device, args, sizes_of(graph, args), order)
        want = expected(name, args)
        bound = {"f2": 2e-2, "f4": 2e-5, "f8": 1e-13}[dtype] * np.abs(np.nan_to_num(want)).max(initial=1)
        np.testing.assert_allclose(got.astype("f8"), want, rtol=0, atol=bound)
    check()


def test_tiles_that_all_warps_make_together(monkeypatch):
    """As they are made where warps have no rows of their own."""
    monkeypatch.setattr("loopwright.lower.cuda.chain_rules.WARPS", Threads(32, 1))
    for name in ("causal", "in groups"):
        graph, made = program.__wrapped__(name, "f2")
        assert "lw_kept" in made.text and "lw_pair_f16" not in made.text
        args = drawn(name, (2, 70, 130, 40, 66), "f2", np.random.default_rng(0))
        got, = run_program(made, compiled(made), args, sizes_of(graph, args))
        want = expected(name, args)
        np.testing.assert_allclose(got.astype("f8"), want, rtol=0, atol=2e-2 * np.abs(want).max())


MANY_TERMS = st.tuples(st.integers(1, 2), st.integers(1, 140), st.integers(1, 140), st.sampled_from(
    [0, 64, 65, 72, 100, 128, 129, 136, 193, 256, 320]), st.sampled_from([1, 8, 64, 70]))


@pytest.mark.parametrize(("name", "running", "dtype"), [
    ("plain", False, "f2"), ("by two products", False, "f2"), ("heads inside", False, "f2"), ("plain", True, "f2"),
    ("in groups", True, "f2"), ("plain", False, BF16), ("causal", False, BF16), ("masked", True, BF16)])
def test_warps_with_rows_of_their_own_at_any_number_of_terms(name, running, dtype):
    """Rows that stay in shared memory, one stage of them or two, and those that come again with each tile."""
    graph, made = (in_one_pass if running else program)(name, dtype)
    device = compiled(made)
    assert "lw_pair_" in made.text
    for r in compile_text(made.text, "sm_90")[1].values():
        assert r.stack <= 16 and r.spills <= 16, r

    @examples(4)
    @given(MANY_TERMS, st.sampled_from(ORDERS), st.integers(0, 99))
    def check(sizes, order, seed):
        args = [x if x.dtype == bool else (x / 3).astype(dtype) for x in drawn(name, sizes, "f4", np.random.default_rng(seed))]
        args[3:] = [np.ones_like(x) for x in args[3:]]
        got, = run_program(made, device, args, sizes_of(graph, args), order)
        want = expected(name, args)
        bound = (1e-1 if dtype == BF16 else 3e-2) * np.abs(want).max(initial=1)
        np.testing.assert_allclose(got.astype("f8"), want, rtol=0, atol=bound)
    check()


@pytest.mark.parametrize("dtype", ["f2", BF16])
def test_every_operation_rounds_as_it_is_written(dtype):
    """Weights of scores of one term, which the values, ones on a diagonal, show as they are."""
    graph, made = program("plain", dtype)
    rng = np.random.default_rng(0)
    q, k = rng.normal(size=(2, 70, 1)).astype(dtype), (3 * rng.normal(size=(2, 130, 1))).astype(dtype)
    q[0, 5], q[1, 7] = 60, np.nan  # subnormal weights, and none
    v = np.broadcast_to(np.eye(130), (2, 130, 130)).astype(dtype)
    got, = run_program(made, compiled(made), [q, k, v], sizes_of(graph, [q, k, v]))

    def rounded(x):
        return np.asarray(x).astype("f4").astype(dtype).astype("f4")
    scores = rounded(rounded(q.astype("f4") @ np.swapaxes(k, 1, 2).astype("f4")) * np.asarray(0.2, dtype).astype("f4"))
    e = rounded(np.exp(rounded(scores - np.max(scores, axis=-1, keepdims=True))))
    want = rounded(e / rounded(np.sum(e.astype("f8"), axis=-1, keepdims=True)))
    np.testing.assert_array_equal(got.astype("f4"), want)


@pytest.mark.parametrize("dtype", ["f4", "f2"])
def test_nan_and_infinities_stay_in_their_rows(dtype):
    graph, made = program("plain", dtype)
    q, k, v = drawn("plain", (1, 70, 80, 9, 10), dtype, np.random.default_rng(0))
    q[0, 3, 2], q[0, 66, 0], v[0, 5, 4], v[0, 79, 9] = np.nan, np.inf, np.inf, np.nan
    got, = run_program(made, compiled(made), [q, k, v], sizes_of(graph, [q, k, v]))
    with np.errstate(all="ignore"):
        want = attention(*[x.astype("f8") for x in (q, k, v)])
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(np.isinf(got), np.isinf(want))
    fine = np.isfinite(want)
    np.testing.assert_allclose(got[fine].astype("f8"), want[fine], atol=2e-2 if dtype == "f2" else 2e-5)


def test_equal_inputs_give_equal_bits_and_no_rows_nothing():
    graph, made = program("plain", "f4")
    args = drawn("plain", (2, 70, 90, 20, 30), "f4", np.random.default_rng(0))
    found = [run_program(made, compiled(made), args, sizes_of(graph, args), order)[0].tobytes() for order in ORDERS]
    assert len(set(found)) == 1
    args = drawn("plain", (2, 0, 5, 6, 7), "f4", np.random.default_rng(0))
    assert run_program(made, compiled(made), args, sizes_of(graph, args))[0].shape == (2, 0, 7)


# ---- what rules take ----------------------------------------------------------------------------
def kernels(f, *args):
    return lw.jit(f).lower(*args, device="gpu").kernels


def half_attention(shape, dtype=BF16):
    def f(q, k, v):
        return lw.nn.dot_product_attention(q, k, v, is_causal=True)
    return kernels(f, *[np.ones(s, dtype) for s in (shape, (*shape[:2], 2, shape[3]), (*shape[:2], 2, shape[3]))])


def test_attention_by_name_is_one_chain():
    """Of half floats, where warps have rows of their own."""
    for heads in (2, 4):
        for dtype in (BF16, np.float16):
            text = half_attention((8, 512, heads, 64), dtype)
            assert text.count("InPasses(") == 1 and 'unit="mma"' in text and "gemm" not in text, text


def test_products_stay_apart_where_that_is_better():
    assert "InPasses" not in half_attention((1, 64, 2, 64))  # few blocks
    assert "InPasses" not in half_attention((64, 8, 2, 64))  # few rows
    args = [np.ones((16, 256, 64), "f4")] * 3
    assert "InPasses" not in kernels(attention, *args)  # the library's products of f32, and few scores
    large = [np.broadcast_to(np.float32(1), (16, 8192, 64))] * 3
    assert "InPasses" in kernels(attention, *large)


def test_schedules_are_text():
    _, made = program("causal", "f2")
    node, = made.made
    assert from_json(to_json(node.attrs["schedule"])) == node.attrs["schedule"]


# ---- what a nest means, and what is refused -----------------------------------------------------
def chain_region(name="plain", dtype="f4"):
    node, = program(name, dtype)[1].made
    return node.regions[0], node.attrs["schedule"]


def with_passes(schedule, threads=(8, 4), **changes):
    """The schedule with other tiles."""
    x = next(x for x in schedule if isinstance(x, InPasses))
    fields = {"rows": 8, "columns": 8, "width": 8, "depth": 4, "unit": "", **changes}
    others = [Threads(*threads) if isinstance(x, Threads) else x for x in schedule if not isinstance(x, InPasses)]
    return (*others, InPasses(x.stage, **fields))


@pytest.mark.parametrize("name", CHAINS)
def test_what_the_nest_means(name):
    region, schedule = chain_region(name)
    rng, sizes = np.random.default_rng(0), (2, 9, 11, 3, 10)
    args = drawn(name, sizes, "f4", rng)
    graph = program(name, "f4")[0]
    node, = program(name, "f4")[1].made
    inputs = [args[graph.params.index(v)] for v in node.inputs]
    nest = build_nest(region, with_passes(schedule), "k").nest
    at = {str(n): k for v, x in zip(region.params, inputs, strict=True) for n, k in zip(v.type.shape, x.shape, strict=True)
          if not isinstance(n, int)}
    want = expected(name, args)
    out = np.full(want.shape, np.nan, "f4")
    run_nest(nest, inputs, [out], at)
    np.testing.assert_allclose(out, want, atol=1e-4)


def test_blocks_of_rows_and_columns_are_there():
    region, schedule = chain_region()
    body, steps = build_nest(region, with_passes(schedule), "k").nest.body, []
    while isinstance(loop := body[0], For):
        steps.append((loop.step, loop.bind))
        body = loop.body
    assert steps == [(1, (BLOCK,)), (8, (BLOCK,)), (8, (BLOCK,))]
    made = body[1]
    assert isinstance(made, Passes) and [[f.monoid for f in folds] for folds in made.folds] == [["max"], ["sum"]]
    region, schedule = chain_region("by extremes")
    made = build_nest(region, with_passes(schedule), "k").nest.body[0].body[0].body[0].body[1]
    assert [sorted(f.monoid for f in folds) for folds in made.folds] == [["max", "min"]]


@pytest.mark.parametrize(("changes", "why"), [
    ({"rows": 12}, "powers of two"),
    ({"rows": 2}, "each thread has some"),
    ({"depth": 2}, "nothing to copy"),
    ({"depth": 16}, "fewer columns than terms"),
    ({"unit": "mma"}, "tensor cores"),
    ({"rows": 128, "columns": 128, "depth": 8}, "more than 49152 bytes"),
])
def test_tiles_that_do_not_suit_are_refused(changes, why):
    region, schedule = chain_region()
    with pytest.raises(ScheduleError, match=why):
        build_nest(region, with_passes(schedule, **changes), "k")


def test_what_is_no_such_chain_is_refused():
    region, schedule = chain_region()
    fold = next(x.stage for x in schedule if isinstance(x, ComputeAt))
    product = next(k for k, n in enumerate(region.nodes) if is_contraction(n))
    others = with_passes(schedule)
    for changed, why in [
        ([x for x in others if not isinstance(x, Bind)], "bound to blocks alone"),
        ([*others[:-1], InPasses(fold, 8, 8, 8, 4)], "begin with that sum"),
        ([ComputeAt(product, 2) if x == Inline(product) else x for x in others], "more than folds|one thread's alone"),
        ([*others[:-1], Bind(fold, 2, (THREAD_X,)), others[-1]], "more than folds"),
    ]:
        with pytest.raises(ScheduleError, match=why):
            build_nest(region, tuple(changed), "k")


# ---- registers and shared memory ----------------------------------------------------------------
@pytest.mark.parametrize("architecture", ("sm_80", "sm_90") if SCALE > 1 else ("sm_90",))
@pytest.mark.parametrize("dtype", ["f4", "f2"])
def test_sums_stay_in_registers(dtype, architecture):
    region, schedule = chain_region("causal", dtype)
    x, library, tested = schedule[-1], Library(), WIDTHS if SCALE > 1 else (max(WIDTHS),)
    tiles = [(Threads(32, 8) if x.unit else Threads(16, 16), rows, width, x.depth // 2 if x.unit else x.depth)
             for rows in (32, 64) for width in tested]
    tiles += [(WARPS, rows, width, x.depth) for rows in (64, 128) for width in tested if x.unit and rows * width < 1 << 14]
    others = [y for y in schedule[:-1] if not isinstance(y, Threads)]
    made = [emit_cuda(build_nest(region, (*others, threads, InPasses(x.stage, rows, x.columns, width, depth, x.unit)),
                                 f"passes_{threads.y}_{rows}_{width}").nest, library) for threads, rows, width, depth in tiles]
    ptx, found = compile_text("\n\n".join([*library.texts.values(), *(k.text for k in made)]), architecture)
    assert len(found) == len(tiles)
    for name, r in found.items():
        most = 255 if name.startswith("passes_4") else 200  # of 128 threads twice as many
        assert r.stack == 0 and r.spills == 0 and r.registers <= most and r.shared <= 48 << 10, (name, r)
    assert ("mma.sync.aligned.m16n8k16" in ptx) == (dtype == "f2")


# ---- in one pass --------------------------------------------------------------------------------
SOFTMAXES = ("plain", "causal", "masked", "biased", "divided afterwards", "in groups", "heads inside")


@cache
def in_one_pass(name, dtype):
    """A softmax that goes in one pass, as a function that allows it does."""
    few = drawn(name, (2, 5, 6, 7, 8), dtype, np.random.default_rng(0))
    graph = expanded(lw.make_graph(CHAINS[name][0])(*few))
    large = [np.broadcast_to(np.zeros((), x.dtype), s[s[0] == "mask":])
             for x, s in zip(few, CHAINS[name][1](16, 512, 512, 64, 64), strict=True)]
    made = lower_cuda(graph, sizes_of(graph, large), fast_math=True)
    node, = made.made
    assert any(isinstance(x, InPasses) and x.running for x in node.attrs["schedule"])
    return graph, made


@pytest.mark.parametrize(("name", "dtype"), [
    *((name, "f4") for name in SOFTMAXES), ("plain", "f2"), ("causal", "f2"), ("plain", "f8")])
def test_softmaxes_in_one_pass(name, dtype):
    graph, made = in_one_pass(name, dtype)
    device = compiled(made)

    @examples(5)
    @given(SIZES, st.sampled_from(ORDERS), st.integers(0, 99), st.sampled_from([0, 70]))
    def check(sizes, order, seed, hidden):
        args = drawn(name, sizes, dtype, np.random.default_rng(seed))
        if name == "masked":
            args[3][:, :hidden] = False  # a tile that rows see nothing of, before others
        args[0][..., :1] *= 3
        got, = run_program(made, device, args, sizes_of(graph, args), order)
        want = expected(name, args)
        bound = {"f2": 3e-2, "f4": 5e-5, "f8": 1e-12}[dtype] * np.abs(np.nan_to_num(want)).max(initial=1)
        np.testing.assert_allclose(got.astype("f8"), want, rtol=0, atol=bound)
    check()


@pytest.mark.parametrize("dtype", ["f4", "f2"])
def test_rows_with_nan_and_infinities_in_one_pass(dtype):
    graph, made = in_one_pass("plain", dtype)
    q, k, v = drawn("plain", (1, 70, 80, 9, 10), dtype, np.random.default_rng(0))
    q[0, 3, 2], q[0, 66, 0], v[0, 5, 4], v[0, 79, 9] = np.nan, np.inf, np.inf, np.nan
    got, = run_program(made, compiled(made), [q, k, v], sizes_of(graph, [q, k, v]))
    with np.errstate(all="ignore"):
        want = attention(*[x.astype("f8") for x in (q, k, v)])
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    fine = np.isfinite(want)
    np.testing.assert_allclose(got[fine].astype("f8"), want[fine], atol=3e-2 if dtype == "f2" else 5e-5)


def test_functions_that_do_not_allow_it_round_as_they_are_written():
    args = [np.ones((16, 512, 64), "f4")] * 3
    texts = [lw.jit(attention, fast_math=fast).lower(*args, device="gpu").kernels for fast in (True, False)]
    assert ["running=True" in text for text in texts] == [True, False] and "InPasses" not in texts[1]
    halves = [np.ones((16, 512, 64), "f2")] * 3
    texts = [lw.jit(attention, fast_math=fast).lower(*halves, device="gpu").kernels for fast in (True, False)]
    assert ["running=True" in text for text in texts] == [True, False] and "InPasses" in texts[1]


@pytest.mark.parametrize("name", ["by extremes", "by two products"])
def test_what_is_no_softmax_is_refused(name):
    region, schedule = chain_region(name)
    with pytest.raises(ScheduleError, match="a maximum and then a sum"):
        build_nest(region, with_passes(schedule, running=True), "k")


@pytest.mark.parametrize(("name", "dtype"), [("causal", "f4"), ("causal", "f2")])
def test_one_pass_keeps_its_sums_in_registers(name, dtype):
    made = in_one_pass(name, dtype)[1]
    for r in compile_text(made.text, "sm_90")[1].values():
        assert r.stack <= 40 and r.spills <= 40 and r.registers <= 255 and r.shared <= 48 << 10, r  # ten words, at most
