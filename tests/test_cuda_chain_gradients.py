"""Gradients of chains of products on a GPU in passes: of any such chain, at any size, with NaN; nothing as large as rows times
columns is stored; what is left apart; what the nests mean; registers and shared memory."""
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.ir.expansion import expanded
from loopwright.ir.gpu_schedule import InPasses, Threads
from loopwright.ir.types import BF16
from loopwright.lower.cuda import chain_rules, emit_cuda, lower_cuda
from loopwright.lower.cuda.chain_rules import WIDTHS
from loopwright.lower.cuda.maths import Library
from loopwright.lower.scheduling import build_nest
from tests.cuda_templates import sizes_of
from tests.devices import require_device
from tests.emulator import ORDERS
from tests.emulator.programs import compiled, run_program
from tests.nests import run_nest
from tests.nvrtc import compile_text
from tests.scale import SCALE, examples
from tests.test_cuda_chains import CHAINS, LARGE, SIZES, drawn

SOFTMAXES = ("plain", "causal", "masked", "biased", "in groups", "heads inside")


@pytest.fixture(autouse=True)
def _compiler():
    require_device()


def slopes(name, has_value):
    """The gradients for queries, keys and values, after the value if that is asked for."""
    def f(ct, q, k, v, *others):
        out, back = lw.vjp(lambda *args: CHAINS[name][0](*args, *others), q, k, v)
        return (*([out] if has_value else []), *back(ct))
    return f


def arguments(name, sizes, dtype, rng):
    b, q, _, _, v = sizes
    args = drawn(name, sizes, dtype, rng)
    shape = (b, q, 3, v) if name == "in groups" else (b, q, v)
    if name == "masked":
        args[3][:, 0] = True
    return [rng.normal(size=shape).astype(dtype), *args]


@cache
def program(name, dtype, has_value):
    """The program of a gradient, its schedules chosen for large sizes."""
    few = arguments(name, (2, 5, 6, 7, 8), dtype, np.random.default_rng(0))
    graph = expanded(lw.make_graph(slopes(name, has_value))(*few))
    large = {str(n): LARGE["bqkdv".index(x)] for x, n in named(name, graph).items()}
    return graph, lower_cuda(graph, large)


def named(name, graph):
    """Which symbol of a graph is which size."""
    few = arguments(name, (2, 5, 6, 7, 8), "f4", np.random.default_rng(0))
    letters = dict(zip((2, 5, 6, 7, 8), "bqkdv", strict=True))
    return {letters[k]: n for v, x in zip(graph.params, few, strict=True) for n, k in zip(v.type.shape, x.shape, strict=True)
            if k in letters}


def expected(name, has_value, args):
    """In NumPy, in twice the precision."""
    ct, q, k, v, *others = [x if x.dtype == bool else x.astype("f8") for x in args]
    if name == "heads inside":
        q, k, v = (np.moveaxis(x, 1, 0) for x in (q, k, v))
    if name == "in groups":  # all their rows go by the same keys
        q, ct = (x.reshape(x.shape[0], -1, x.shape[3]) for x in (q, ct))
    scale = {"plain": 0.2, "causal": 0.25}.get(name, 1.0)
    scores = scale * np.einsum("bqd,bkd->bqk", q, k)
    if name == "causal":
        scores = np.where(np.tri(*scores.shape[1:], dtype=bool), scores, -30000)
    if name == "masked":
        scores = np.where(others[0], scores, -np.inf)
    if name == "biased":
        scores = scores + others[0]
    weights = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    weights /= np.sum(weights, axis=-1, keepdims=True)
    inner = weights * np.einsum("bqd,bkd->bqk", ct, v)
    inner = scale * (inner - weights * np.sum(inner, axis=-1, keepdims=True))
    back = [np.einsum("bqk,bkd->bqd", inner, k), np.einsum("bqk,bqd->bkd", inner, q), np.einsum("bqk,bqd->bkd", weights, ct)]
    if name == "heads inside":
        back = [np.moveaxis(x, 0, 1) for x in back]
    if name == "in groups":
        back[0] = back[0].reshape(args[1].shape)
    return [*([np.einsum("bqk,bkd->bqd", weights, v)] if has_value else []), *back]


def agree(found, want, dtype):
    for a, b in zip(found, want, strict=True):
        bound = {"f2": 3e-2, "f4": 3e-5, "f8": 1e-12}[dtype] * np.abs(np.nan_to_num(b)).max(initial=1)
        np.testing.assert_allclose(a.astype("f8"), b, rtol=0, atol=bound)


@pytest.mark.parametrize(("name", "dtype", "has_value"), [
    *((name, "f4", False) for name in SOFTMAXES), ("causal", "f4", True), ("plain", "f2", False), ("causal", "f2", True),
    ("plain", "f8", False)])
def test_gradients_at_any_size(name, dtype, has_value):
    graph, made = program(name, dtype, has_value)
    device = compiled(made)

    @examples(4)
    @given(SIZES, st.sampled_from(ORDERS), st.integers(0, 99))
    def check(sizes, order, seed):
        args = arguments(name, sizes, dtype, np.random.default_rng(seed))
        with np.errstate(all="ignore"):
            want = expected(name, has_value, args)
        agree(run_program(made, device, args, sizes_of(graph, args), order), want, dtype)
    check()


@pytest.mark.parametrize(("name", "dtype"), [*((name, "f4") for name in SOFTMAXES), ("plain", "f2"), ("plain", "f8")])
@pytest.mark.parametrize("has_value", [False, True])
def test_nothing_is_as_large_as_rows_times_columns(name, dtype, has_value):
    graph, made = program(name, dtype, has_value)
    sizes = named(name, graph)
    for n in made.kernels.nodes:
        assert not any({sizes["q"], sizes["k"]} <= set(v.type.shape) for v in n.outputs), made.kernels
    chains = [n for n in made.made if any(isinstance(x, InPasses) for x in n.attrs["schedule"])]
    assert len(chains) == 3 + has_value
    if has_value:  # the gradient reads the forward part's maximum and sum
        assert [len(n.outputs) for n in chains].count(3) >= 1, made.kernels


def test_equal_inputs_give_equal_bits_and_nan_stay_where_they_are():
    graph, made = program("plain", "f4", False)
    args = arguments("plain", (2, 70, 90, 20, 30), "f4", np.random.default_rng(0))
    args[1][1, 3, 2] = np.nan
    found = [run_program(made, compiled(made), args, sizes_of(graph, args), order) for order in ORDERS]
    assert len({tuple([x.tobytes() for x in one]) for one in found}) == 1
    want = expected("plain", False, args)
    for a, b in zip(found[0], want, strict=True):
        np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
    args = arguments("plain", (2, 0, 5, 6, 7), "f4", np.random.default_rng(0))
    found = run_program(made, compiled(made), args, sizes_of(graph, args))
    assert [x.shape for x in found] == [(2, 0, 6), (2, 5, 6), (2, 5, 7)] and not found[1].any() and not found[2].any()


# ---- what rules take ----------------------------------------------------------------------------
def kernels(f, *args):
    return lw.jit(f).lower(*args, device="gpu").kernels


def test_what_others_read_or_libraries_make_better_stays_apart():
    half, single = (np.broadcast_to(np.zeros((), t), (16, 512, 64)) for t in ("f2", "f4"))
    assert kernels(slopes("plain", False), half, half, half, half).count("InPasses(") == 3
    assert "InPasses(" not in kernels(slopes("plain", False), single, single, single, single)
    few = half[:1, :40]
    assert "InPasses(" not in kernels(slopes("plain", False), few, few, few, few)

    def bias_for_each_pair(ct, q, k, bias):
        def f(q, bias):
            scores = np.einsum("bqd,bkd->bqk", q, k) + bias
            e = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
            return np.einsum("bqk,bkd->bqd", e / np.sum(e, axis=-1, keepdims=True), k)
        return lw.vjp(f, q, bias)[1](ct)
    assert "InPasses(" not in kernels(bias_for_each_pair, half, half, half, np.zeros((16, 512, 512), "f2"))


# ---- what the nests mean ------------------------------------------------------------------------
@pytest.mark.parametrize("name", SOFTMAXES[:5])
def test_what_the_nests_mean(name):
    graph, made = program(name, "f4", False)
    args = arguments(name, (2, 9, 11, 3, 10), "f4", np.random.default_rng(0))
    sizes, known = sizes_of(graph, args), dict(zip(made.kernels.params, args, strict=True))
    for n in made.made:
        few = [replace(x, rows=8, columns=8, width=8, depth=4) if isinstance(x, InPasses) else
               Threads(8, 4) if isinstance(x, Threads) else x for x in n.attrs["schedule"]]
        nest = build_nest(n.regions[0], tuple(few), "k").nest
        at = {own: sizes[s] for own, s in zip(made.made[n].symbols, n.regions[0].symbols, strict=True)}
        outs = [np.full([sizes[str(k)] for k in v.type.shape], np.nan, "f4") for v in n.outputs]
        run_nest(nest, [known[v] for v in n.inputs], outs, at)
        known.update(zip(n.outputs, outs, strict=True))
    agree([known[v] for v in made.kernels.results], expected(name, False, args), "f4")


# ---- attention by name --------------------------------------------------------------------------
def by_name(has_value):
    """Scores and their slopes are f32 here, so tensor cores make all products but those with these slopes."""
    def f(ct, q, k, v):
        out, back = lw.vjp(lambda *args: lw.nn.dot_product_attention(*args, is_causal=True), q, k, v)
        return (*([out] if has_value else []), *back(ct))
    return f


def by_name_in_numpy(ct, q, k, v, has_value):
    def whole(x):
        return np.repeat(x, q.shape[2] // k.shape[2], axis=2)
    scores = np.einsum("bqhd,bkhd->bhqk", q, whole(k)) / np.sqrt(q.shape[3])
    scores = np.where(np.tri(*scores.shape[2:], dtype=bool), scores, -1e30)
    weights = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    weights /= np.sum(weights, axis=-1, keepdims=True)
    inner = weights * np.einsum("bqhd,bkhd->bhqk", ct, whole(v))
    inner = (inner - weights * np.sum(inner, axis=-1, keepdims=True)) / np.sqrt(q.shape[3])
    dk, dv = np.einsum("bhqk,bqhd->bkhd", inner, q), np.einsum("bhqk,bqhd->bkhd", weights, ct)
    dk, dv = (x.reshape(*k.shape[:3], -1, x.shape[3]).sum(3) for x in (dk, dv))
    return [*([np.einsum("bhqk,bkhd->bqhd", weights, whole(v))] if has_value else []),
            np.einsum("bhqk,bkhd->bqhd", inner, whole(k)), dk, dv]


@cache
def program_by_name(dtype, groups, has_value):
    few = [np.zeros(s, dtype) for s in ((3, 5, 4, 7), (3, 5, 4, 7), (3, 6, groups, 7), (3, 6, groups, 7))]
    graph = expanded(lw.make_graph(by_name(has_value))(*few))
    sizes = {str(n): {3: 8, 5: 512, 7: 64, 6: 512}.get(k, k) for v, x in zip(graph.params, few, strict=True)
             for n, k in zip(v.type.shape, x.shape, strict=True)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chain_rules, "MOST_STORED", 0)  # products with slopes that are no half floats go without warps' own rows
        return graph, lower_cuda(graph, sizes)


@pytest.mark.parametrize(("dtype", "groups", "has_value"), [
    ("f2", 4, False), (BF16, 4, True), ("f2", 2, False), (BF16, 2, True)])
def test_attention_by_name(dtype, groups, has_value):
    graph, made = program_by_name(np.dtype(dtype), groups, has_value)
    chains = [n for n in made.made if any(isinstance(x, InPasses) for x in n.attrs["schedule"])]
    assert len(chains) == 3 + has_value and "gemm" not in str(made.kernels), made.kernels
    device = compiled(made)

    @examples(4)
    @given(st.integers(1, 130), st.integers(1, 130), st.integers(1, 70), st.sampled_from(ORDERS), st.integers(0, 99))
    def check(q, k, d, order, seed):
        rng = np.random.default_rng(seed)
        shapes = [(1, q, 4, d)] * 2 + [(1, k, groups, d)] * 2
        args = [(rng.normal(size=s) / 2).astype(dtype) for s in shapes]
        want = by_name_in_numpy(*[x.astype("f8") for x in args], has_value)
        for a, b in zip(run_program(made, device, args, sizes_of(graph, args), order), want, strict=True):
            bound = (1e-2 if dtype == "f2" else 4e-2) * np.abs(b).max(initial=1)
            np.testing.assert_allclose(a.astype("f8"), b, rtol=0, atol=bound)
    check()


TESTED = WIDTHS if SCALE > 1 else (max(WIDTHS),)  # the largest tiles, of which registers run out first


def tiles_of(x, rows, width):
    """An instruction of a schedule, of half floats with so many rows, and the tiles that rules take with this width."""
    if isinstance(x, InPasses):
        return replace(x, rows=rows, width=width, columns=32 if x.depth == 64 and width > 64 else 64)
    return x


@pytest.mark.parametrize("architecture", ("sm_80", "sm_90") if SCALE > 1 else ("sm_90",))
def test_products_with_and_without_tensor_cores_stay_in_registers(architecture):
    library, made = Library(), []
    for k, n in enumerate(program_by_name(np.dtype(BF16), 2, True)[1].made):
        for width in TESTED if any(isinstance(x, InPasses) for x in n.attrs["schedule"]) else ():
            schedule = [tiles_of(x, 64, width) for x in n.attrs["schedule"]]
            made.append(emit_cuda(build_nest(n.regions[0], tuple(schedule), f"by_name_{k}_{width}").nest, library))
    _, found = compile_text("\n\n".join([*library.texts.values(), *(k.text for k in made)]), architecture)
    assert len(found) == 4 * len(TESTED)
    for kernel, r in found.items():
        assert r.stack == 0 and r.spills == 0 and r.registers <= 255 and r.shared <= 48 << 10, (kernel, r)


# ---- registers and shared memory ----------------------------------------------------------------
@pytest.mark.parametrize("architecture", ("sm_80", "sm_90") if SCALE > 1 else ("sm_80",))
@pytest.mark.parametrize(("name", "dtype"), [("causal", "f4"), ("causal", "f2"), ("masked", "f2")])
def test_sums_stay_in_registers(name, dtype, architecture):
    library, made = Library(), []
    for k, n in enumerate(program(name, dtype, False)[1].made):
        for rows in (64,) if dtype == "f2" else (32, 64):
            for width in TESTED:
                schedule = [tiles_of(x, rows, width) for x in n.attrs["schedule"]]
                made.append(emit_cuda(build_nest(n.regions[0], tuple(schedule), f"slopes_{k}_{rows}_{width}").nest, library))
    ptx, found = compile_text("\n\n".join([*library.texts.values(), *(k.text for k in made)]), architecture)
    assert len(found) == (3 if dtype == "f2" else 6) * len(TESTED)
    for kernel, r in found.items():
        assert r.stack == 0 and r.spills == 0 and r.registers <= 255 and r.shared <= 48 << 10, (kernel, r)
    assert ("mma.sync.aligned.m16n8k16" in ptx) == (dtype == "f2")
