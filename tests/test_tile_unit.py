"""Products of f32 in three parts of bf16 each, by the tile unit of AMX: as accurate as f32, and the usual sums where parts do
not say what the numbers are."""
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright import lax
from loopwright.ir.builder import build
from loopwright.ir.dims import symbol
from loopwright.ir.nest import Parts
from loopwright.ir.ops.arithmetic import add
from loopwright.ir.ops.contraction import dot_general
from loopwright.ir.schedule import Inline, InPlace, Pack, Reorder, Split, Tensorize, from_json, to_json
from loopwright.ir.types import BF16, F32, F64, ArrayType
from loopwright.lower.codegen.panel_tiles import parts_size
from loopwright.lower.codegen.panels import panel_columns
from loopwright.lower.program import cover_graph, lower_kernels
from loopwright.lower.rules import default_schedule
from loopwright.lower.runtime.lazy import llvm
from loopwright.lower.scheduling import ScheduleError, build_nest, with_usual
from loopwright.lower.target import TILES, Target, host_target
from loopwright.lower.tiling import every, may_fill
from tests import kernels as kernel_texts
from tests.scale import examples
from tests.test_panels import call, needs_blas, on_a_line, states, states_by_hand, surrounded
from tests.threads import bits_of

needs_tiles = pytest.mark.skipif(not host_target().has_tiles, reason="this process has no tiles of bf16")
FEATURES = ",".join(f"+{x}" for x in ("avx512f", "avx512vl", "avx512dq", "avx512bw", "fma", *sorted(TILES)))
TARGET = Target("x86_64-unknown-linux-gnu", "sapphirerapids", FEATURES, 512, has_tiles=True)
M, N, K = map(symbol, "mnk")
FORMS = {"nn": lambda x, w: x @ w, "tn": lambda x, w: x.T @ w, "nt": lambda x, w: x @ w.T, "tt": lambda x, w: x.T @ w.T}
SIDES = st.integers(1, 330)
TILED = (Inline(0), Split("i1", 64), Split("i0", 64), Reorder(("i1_by64", "i0_by64", "i0", "i1")))
IN_UNIT = Tensorize(0, (32,), 32, 16, 64, 2, unit="amx")


def region_of(f, dtype=F32):
    return build(f, [ArrayType((M, K), dtype), ArrayType((K, N), dtype)])


def product(x, w):
    return [dot_general(x, w, contract=((1, 0),), batch=(), dtype=None)]


def nest_of(region, target):
    """The kernel of a region by the rules for a target, with what is done where the unit is not used."""
    made = build_nest(region, default_schedule(region, target), "k_0")
    return with_usual(region, made, partial(default_schedule, region, replace(target, has_tiles=False)), has_unit=True).nest


def compiled(region, target=None):
    """The function for arrays of the region's symbols."""
    target = target or host_target()
    return kernel_texts.compile_nest(nest_of(region, target), target)


def near(found, x, w, more=0.0):
    """Whether a product is as near to the exact one as sums in f32 are, or nearer where the unit makes it."""
    exact, sizes = (a(x.astype("f8")) @ a(w.astype("f8")) for a in (lambda v: v, np.abs))
    bits = 20 if may_fill((x.shape[0], w.shape[1], x.shape[1])) else 18
    return bool(np.all(np.abs(found - exact) <= sizes * 2.0**-bits + more))


# ---- results ------------------------------------------------------------------------------------
@needs_tiles
@examples(40)
@given(SIDES, SIDES, SIDES, st.sampled_from(["normal", "positive", "integers", "powers"]))
def test_sums_of_any_sizes(m, n, k, kind):
    rng = np.random.default_rng(m + 1000 * n)
    make = {"normal": lambda *s: rng.normal(size=s), "positive": lambda *s: rng.random(s),
            "integers": lambda *s: rng.integers(-180, 181, s),
            "powers": lambda *s: rng.normal(size=s) * 2.0 ** rng.integers(-30, 30, s)}
    x, w = (make[kind](*s).astype("f4") for s in ((m, k), (k, n)))
    out = np.full((m, n), 77, "f4")
    assert product_of()(x, w, out, sizes=(m, k, n))[0] == 0
    assert near(out, x, w)
    if kind == "integers":
        np.testing.assert_array_equal(out, x @ w)


made = {}


def product_of(target=None):
    """The compiled product, made once for each target."""
    if target not in made:
        made[target] = compiled(region_of(product), target)
    return made[target]


@needs_tiles
@pytest.mark.parametrize("odd", [np.inf, -np.inf, np.nan, 3e38, 1e16, 1e-31, -1e-38, 1e-45])
@pytest.mark.parametrize("side", [0, 1])
def test_numbers_that_parts_do_not_say(odd, side):
    """One of them is enough for all sums to be made as they are without the unit, bit by bit."""
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=s).astype("f4") for s in ((96, 160), (160, 64)))
    (x, w)[side][50, 30] = odd
    found, usual = np.zeros((96, 64), "f4"), np.zeros((96, 64), "f4")
    product_of()(x, w, found, sizes=(96, 160, 64))
    product_of(replace(host_target(), has_tiles=False))(x, w, usual, sizes=(96, 160, 64))
    np.testing.assert_array_equal(found.view("u4"), usual.view("u4"))


@needs_tiles
@pytest.mark.parametrize("edge", [2.0**-102, 2.0**-100 * 1.9999999, 2.0**51, -0.0])
def test_the_smallest_and_the_largest_numbers_that_parts_say(edge):
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=s).astype("f4") for s in ((96, 160), (160, 64)))
    x[50, 30] = edge
    found, usual = np.zeros((96, 64), "f4"), np.zeros((96, 64), "f4")
    product_of()(x, w, found, sizes=(96, 160, 64))
    product_of(replace(host_target(), has_tiles=False))(x, w, usual, sizes=(96, 160, 64))
    assert near(found, x, w)
    assert np.any(found.view("u4") != usual.view("u4"))


@needs_tiles
def test_products_below_the_normal_numbers_lose_no_more_than_these():
    """Two numbers that parts say may have a product that the unit takes for zero."""
    x, w = (np.full(s, 2.0**-70 * 1.2345, "f4") for s in ((96, 160), (160, 64)))
    found = np.zeros((96, 64), "f4")
    product_of()(x, w, found, sizes=(96, 160, 64))
    assert near(found, x, w, 6 * 160 * 2.0**-126)


@needs_tiles
@pytest.mark.parametrize(("m", "n", "k"), [(7, 64, 64), (64, 7, 64), (64, 64, 7), (33, 65, 33), (1, 1, 1), (0, 40, 40),
                                           (40, 40, 0)])
def test_sizes_that_do_not_fill_tiles_are_multiplied_as_usual(m, n, k):
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=s).astype("f4") for s in ((m, k), (k, n)))
    found, usual = np.full((m, n), 77, "f4"), np.full((m, n), 77, "f4")
    product_of()(x, w, found, sizes=(m, k, n))
    product_of(replace(host_target(), has_tiles=False))(x, w, usual, sizes=(m, k, n))
    np.testing.assert_array_equal(found.view("u4"), usual.view("u4"))


# ---- programs -----------------------------------------------------------------------------------
@needs_tiles
@examples(15)
@given(st.sampled_from(sorted(FORMS)), st.integers(90, 420), st.integers(60, 300), st.integers(60, 600))
def test_matrices_however_they_lie(form, m, n, k):
    rng = np.random.default_rng(k)
    x, w = (rng.normal(size=s).astype("f4") for s in ((m, k), (k, n)))
    given = [np.ascontiguousarray(a.T) if side == "t" else a for a, side in zip((x, w), form, strict=True)]
    assert near(lw.jit(FORMS[form])(*given), x, w)


@needs_tiles
@examples(15)
@given(st.sampled_from(sorted(FORMS)), st.integers(64, 191), st.integers(500, 1100), st.integers(500, 900),
       st.sampled_from([None, np.inf, 1e30, 1e-38]))
def test_few_rows(form, m, n, k, odd):
    """Of these the columns' parts are not kept."""
    rng = np.random.default_rng(k)
    x, w = (rng.normal(size=s).astype("f4") for s in ((m, k), (k, n)))
    if odd is not None:
        w[k - 1, n // 2] = odd
    given = [np.ascontiguousarray(a.T) if side == "t" else a for a, side in zip((x, w), form, strict=True)]
    found = lw.jit(FORMS[form])(*given)
    if odd is not None:
        np.testing.assert_allclose(found[:, n // 2], x.astype("f8") @ w[:, n // 2].astype("f8"), rtol=1e-4, atol=1e-4)
    others = np.delete(np.arange(n), n // 2)
    assert near(found[:, others], x, w[:, others])


@needs_tiles
@examples(25)
@given(st.sampled_from(sorted(FORMS)), SIDES, SIDES, SIDES)
def test_matrices_of_bf16(form, m, n, k):
    rng = np.random.default_rng(k)
    x, w = (rng.normal(size=s).astype(BF16) for s in ((m, k), (k, n)))
    given = [np.ascontiguousarray(a.T) if side == "t" else a for a, side in zip((x, w), form, strict=True)]
    found = lw.jit(lambda *a: lax.dot_general(*a, (((form[0] == "n",), (form[1] == "t",)), ((), ())),
                                              preferred_element_type=np.float32))(*given)
    assert found.dtype == np.float32
    assert near(found, x, w)
    exact = x.astype("f8") @ w.astype("f8")
    sizes = np.abs(x.astype("f8")) @ np.abs(w.astype("f8"))
    assert np.all(np.abs(lw.jit(FORMS[form])(*given).astype("f8") - exact) <= np.abs(exact) * 2.0**-8 + sizes * 2.0**-18)


@needs_tiles
@pytest.mark.parametrize("odd", [np.inf, np.nan, 1e30, 1e-39])
def test_bf16_are_multiplied_as_they_are(odd):
    """Infinities and NaN are what they are, and denormals are zeros, as the instruction for vectors has it."""
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=s).astype(BF16) for s in ((64, 96), (96, 64)))
    x[5, 7] = odd
    clean = np.where(np.abs(x.astype("f8")) < 2.0**-126, 0, x.astype("f8"))
    found, exact = lw.jit(lambda x, w: x @ w)(x, w).astype("f8"), clean @ w.astype("f8")
    np.testing.assert_array_equal(np.isnan(found), np.isnan(exact))
    np.testing.assert_allclose(found, exact, rtol=2.0**-7, atol=2.0**-7)


@needs_tiles
def test_convolutions_of_bf16():
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=s).astype(BF16) for s in ((2, 20, 32, 32), (3, 3, 32, 32)))
    f = lw.jit(lambda x, w: convolution(x.astype("f4"), w.astype("f4"), (1, 1), "SAME", (1, 1)))
    exact = convolution_of_f8(x.astype("f8"), w.astype("f8"))
    np.testing.assert_allclose(f(x, w), exact, rtol=1e-4, atol=1e-4)


def convolution_of_f8(x, w):
    return lw.jit(lambda x, w: convolution(x, w, (1, 1), "SAME", (1, 1)))(x, w)


def convolution(x, w, stride, padding, spread):
    return lax.conv_general_dilated(x, w, stride, padding, rhs_dilation=spread, dimension_numbers=("NHWC", "HWIO", "NHWC"))


@needs_tiles
@examples(25)
@given(st.integers(1, 3), st.integers(14, 36), st.integers(14, 36), st.sampled_from([32, 50, 64]),
       st.sampled_from([16, 40, 70]), st.sampled_from([(1, 1), (3, 3), (2, 5)]),
       st.sampled_from([(1, 1), (2, 2), (1, 2), (2, 1)]), st.sampled_from(["SAME", "VALID"]),
       st.sampled_from([(1, 1), (2, 1), (1, 3)]))
def test_convolutions(images, high, wide, channels, features, window, stride, padding, spread):
    rng = np.random.default_rng(high)
    x, w = (rng.normal(size=s).astype("f4") for s in ((images, high, wide, channels), (*window, channels, features)))
    f = lw.jit(convolution, static_argnums=(2, 3, 4))
    found, exact, sizes = (f(*a, stride, padding, spread) for a in
                           ((x, w), (x.astype("f8"), w.astype("f8")), (np.abs(x).astype("f8"), np.abs(w).astype("f8"))))
    assert np.all(np.abs(found - exact) <= sizes * 2.0**-20)


@needs_tiles
@pytest.mark.parametrize("odd", [np.nan, 1e30])
def test_convolutions_of_numbers_that_parts_do_not_say(odd):
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=s).astype("f4") for s in ((2, 20, 32, 32), (3, 3, 32, 32)))
    x[1, 7, 9, 3] = odd
    found = lw.jit(lambda x, w: convolution(x, w, (1, 1), "SAME", (1, 1)))(x, w)
    exact = convolution_of_f8(x.astype("f8"), w.astype("f8"))
    assert np.isnan(found).sum() == (9 * 32 if np.isnan(odd) else 0)
    np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-3)


def attention(q, k, v, mask):
    scores = q @ np.swapaxes(k, -1, -2) / 8
    scores = np.where(mask, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


@needs_tiles
@pytest.mark.parametrize(("heads", "rows", "size"), [(2, 128, 64), (3, 100, 40), (1, 257, 32)])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_and_its_gradients(heads, rows, size, causal):
    rng = np.random.default_rng(0)
    q, k, v, ct = (rng.normal(size=(heads, rows, size)).astype("f4") for _ in range(4))
    mask = np.tril(np.ones((rows, rows), bool)) if causal else np.ones((rows, rows), bool)
    f = lw.jit(lambda q, k, v, ct: lw.vjp(lambda *a: attention(*a, mask), q, k, v)[1](ct))
    value = lw.jit(attention)
    wide = [a.astype("f8") for a in (q, k, v, ct)]
    np.testing.assert_allclose(value(q, k, v, mask), attention(*wide[:3], mask), rtol=0, atol=1e-5)
    for found, exact in zip(f(q, k, v, ct), f(*wide), strict=True):
        np.testing.assert_allclose(found, exact, rtol=0, atol=2e-5)


@needs_tiles
@pytest.mark.parametrize("rows", [200, 600])
def test_masks_leave_out_blocks_of_parts(rows):
    """Blocks of terms that are zeros are not divided either; infinite values behind the mask have no say."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(2, rows, 64)).astype("f4") for _ in range(3))

    def causal(q, k, v):
        n = lw.numpy.arange(q.shape[1])
        return attention(q, k, v, n[None, :] <= n[:, None])
    text = lw.jit(causal).lower(q, k, v).llvm
    assert "lw_amx_rows3" in text
    for value in (1.0, 1e30):
        v[:, -1, 0] = value
        wide = [a.astype("f8") for a in (q, k, v)]
        np.testing.assert_allclose(lw.jit(causal)(q, k, v), causal(*wide), rtol=1e-5, atol=1e-5)


@needs_tiles
@needs_blas
def test_results_do_not_depend_on_threads():
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=s).astype("f4") for s in ((700, 300), (300, 500)))
    y, v = (rng.normal(size=s).astype("f4") for s in ((100, 800), (800, 700)))
    a, b = (rng.normal(size=s).astype("f4") for s in ((130, 1003), (130, 300)))
    image, window = (rng.normal(size=s).astype("f4") for s in ((3, 30, 31, 32), (3, 3, 32, 48)))
    for f, args in ((lambda x, w: x @ w, (x, w)), (lambda x, w: x @ w, (y, v)), (lambda x, w: np.maximum(x @ w, 0) + 1, (x, w)),
                    (lambda x, w: x.T @ w, (a, b)), (lambda x, w: np.exp(x.T @ w / 100), (a, b)),
                    (lambda x, w: x.T @ w, (np.where(a > 2.5, np.float32(3e38), a), b)),
                    (lambda x, w: convolution(x, w, (1, 1), "SAME", (1, 1)), (image, window))):
        one, *others = bits_of(f, *args)
        assert all(x == one for x in others)


@needs_tiles
@needs_blas
def test_explain_names_the_unit():
    f, words = lw.jit(lambda x, w: x @ w), "by the tile unit (AMX), where three bf16 say each number"
    for m, n, k, said in ((300, 400, 500, True), (100, 700, 800, True), (100, 60, 800, False), (20, 30, 40, False)):
        args = np.ones((m, k), "f4"), np.ones((k, n), "f4")
        assert (words in f.explain(*args)) == said
        assert words not in f.explain(*(a.astype("f8") for a in args))
    g = lw.jit(lambda x, w: convolution(x, w, (1, 1), "SAME", (1, 1)))
    assert "where tiles are full and" in g.explain(np.ones((2, 20, 32, 32), "f4"), np.ones((3, 3, 32, 32), "f4"))


@needs_tiles
def test_what_is_made_in_place_is_made_without_the_unit():
    rng = np.random.default_rng(0)
    x, w, r = (rng.normal(size=s).astype("f4") for s in ((2, 20, 32, 32), (3, 3, 32, 32), (2, 20, 32, 32)))
    exact = convolution_of_f8(x.astype("f8"), w.astype("f8")) + r
    f = lw.jit(lambda x, w, r: convolution(x, w, (1, 1), "SAME", (1, 1)) + r, donate_argnums=(2,), dynamic=False)
    found = f(x, w, r)
    assert found is r
    np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-4)


@needs_tiles
def test_errors_are_told_of_sums_alone():
    """Positions made of sums are in range; what the unit leaves where a number is none that parts say may not be."""
    rng = np.random.default_rng(0)
    x, w = (rng.integers(0, 2, s).astype("f4") for s in ((2, 20, 32, 32), (1, 1, 32, 32)))
    w[0, 0, 0, 0] = 1e-35
    table = np.arange(40.0)
    f = lw.jit(lambda x, w, table: table[np.astype(convolution(x, w, (1, 1), "SAME", (1, 1)), np.int64)])
    sums = convolution_of_f8(x.astype("f8"), w.astype("f8"))
    np.testing.assert_array_equal(f(x, w, table), table[np.astype(sums + 1e-9, np.int64)])


# ---- matrices that stay -------------------------------------------------------------------------
@needs_tiles
@needs_blas
@examples(15)
@given(st.integers(32, 300), st.integers(16, 150), st.integers(32, 290), st.sampled_from([None, "matrix", "row"]))
def test_copies_of_matrices_have_parts(m, n, k, odd):
    """One row that parts do not say is multiplied by itself; a matrix of which they do not say all has none."""
    wide = panel_columns(F32, host_target())
    line = -(-n // wide) * wide * k
    a, b, c = (surrounded(s, np.dtype("f4")) for s in ((m, k), (k, n), (m, n)))
    copied, around = on_a_line(line + parts_size(n, k), np.dtype("f4"))
    if odd == "matrix":
        b[k // 2, n // 2] = np.inf
    call("lw_panels_f32", n, k, b, copied, m)
    assert (copied[line] == 0) == (odd != "matrix" and may_fill((16, n, k)))
    call("lw_panel_product_f32_n", m, n, k, a, b, copied, c)
    assert all(np.isnan(x[:32]).all() and np.isnan(x[-32:]).all() for x in (c.base, around))
    fine = np.arange(n) != (n // 2 if odd == "matrix" else n)
    assert near(c[:, fine], a, b[:, fine])
    assert odd != "matrix" or np.isinf(c[:, n // 2]).all()
    if odd == "row":
        a[m // 2, k // 2], before = 1e-35, c.copy()
        call("lw_panel_product_f32_n", m, n, k, a, b, copied, c)
        others = np.arange(m) != m // 2
        np.testing.assert_array_equal(c[others], before[others])
        assert near(c, a, b)


@needs_tiles
@needs_blas
@pytest.mark.parametrize("odd", [None, 1e25])
def test_loops_by_such_matrices(odd):
    rng = np.random.default_rng(0)
    h, w, x = (rng.normal(scale=0.1, size=s).astype("f4") for s in ((48, 96), (96, 96), (9, 48, 96)))
    if odd is not None:
        h[3, 2] = odd
    found, exact = lw.jit(states)(h, w, x), states_by_hand(h.astype("f8"), w.astype("f8"), x.astype("f8"))
    np.testing.assert_allclose(found, exact.reshape(found.shape), rtol=0, atol=1e-5)


# ---- schedules ----------------------------------------------------------------------------------
@pytest.mark.parametrize("right", ["i1_by64", "k0_by64"])
def test_a_schedule_with_the_unit_is_data(right):
    schedule = (*TILED, IN_UNIT, Pack("right", right), Pack("left", "k0_by64"))
    assert from_json(to_json(schedule)) == schedule
    nest = build_nest(region_of(product), schedule, "k").nest
    assert len([s for s in every(nest.body) if isinstance(s, Parts)]) == 2


@pytest.mark.parametrize(("step", "dtype", "why"), [
    (replace(IN_UNIT, unit="abacus"), F32, "abacus has tiles"), (replace(IN_UNIT, heights=(16,)), F32, "32 by 32"),
    (replace(IN_UNIT, depth=40), F32, "that many terms"), (replace(IN_UNIT, columns=64), F32, "32 by 32"),
    (IN_UNIT, F64, "sums are in f32")])
def test_what_the_unit_does_not_do(step, dtype, why):
    with pytest.raises(ScheduleError, match=why):
        build_nest(region_of(product, dtype), (*TILED, step), "k")


def test_what_is_read_again_is_not_stored_over():
    region = build(lambda x, w, b: [add(b, *product(x, w))],
                   [ArrayType(s, F32) for s in ((M, K), (K, N), (M, N))])
    schedule = default_schedule(region, TARGET)
    assert any(isinstance(x, Tensorize) and x.unit for x in schedule)
    with pytest.raises(ScheduleError, match="read again"):
        build_nest(region, (*schedule, InPlace(2)), "k")


def test_the_text_is_that_of_the_unit():
    """Only assembled: no machine is asked."""
    binding = llvm()
    machine = binding.Target.from_triple(TARGET.triple).create_target_machine(cpu=TARGET.cpu, features=TARGET.features)
    text = kernel_texts.module_text(nest_of(region_of(product), TARGET), TARGET)
    assembly = machine.emit_assembly(binding.parse_assembly(text))
    assert all(f"\t{x}\t" in assembly for x in ("tdpbf16ps", "tileloadd", "tilestored", "ldtilecfg", "vfmadd231ps"))


def test_a_program_of_another_machine_goes_without_the_unit():
    image, window = np.ones((2, 20, 32, 32), "f4"), np.ones((3, 3, 32, 32), "f4")
    g = lw.make_graph(lambda x, w: convolution(x, w, (1, 1), "SAME", (1, 1)))(image, window)
    kernels, _ = cover_graph(g, TARGET, blas=True)
    text = {target.has_tiles: lower_kernels(kernels, target, g.free_symbols).text
            for target in (TARGET, replace(TARGET, has_tiles=False))}
    assert "lw_amx_products" in text[True] and "lw_amx" not in text[False]


def test_other_numbers_are_not_for_the_unit():
    assert not any(isinstance(s, Parts) for s in every(nest_of(region_of(product, F64), TARGET).body))
