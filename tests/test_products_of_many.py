"""Products of one matrix and each of many, and sums of products: one call that transposes nothing, NumPy's values and gradients
for any sizes, the same bits from any number of threads, and nothing touched beside the matrices."""
import ctypes
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.ir.errors import ScheduleError
from loopwright.ir.expansion import expanded
from loopwright.lower import compile
from loopwright.lower.codegen.products import has_own, products_text
from loopwright.lower.covers import Cover
from loopwright.lower.decisions import Apart, Call, Generate
from loopwright.lower.partition import partition, partitioned
from loopwright.lower.program import lower_graph
from loopwright.lower.runtime import blas, pool, scratch, support
from loopwright.lower.runtime.engine import assemble, load
from loopwright.lower.runtime.pool_text import LOOPS
from loopwright.lower.target import Target, host_target
from tests.scale import examples
from tests.threads import bits_of

needs_own = pytest.mark.skipif(os.environ.get(blas.VARIABLE) == "none" or not has_own(np.dtype("f4"), host_target()),
                               reason="the library multiplies, or nothing")
SIDES = st.one_of(st.integers(0, 9), st.integers(10, 40), st.sampled_from([15, 16, 17, 24, 25, 64, 65, 130, 300]))
DTYPES = {"f32": np.dtype("f4"), "f64": np.dtype("f8")}

# the program of a left side and many right ones, and the axes of both
PROGRAMS = {
    "matmul": (lambda w, x: w @ x, ("mk", "bkn")),
    "of two axes": (lambda w, x: w @ x, ("mk", "abkn")),
    "of three axes": (lambda w, x: w @ x, ("mk", "acbkn")),
    "left transposed": (lambda w, x: w.T @ x, ("km", "bkn")),
    "einsum": (lambda w, x: np.einsum("ij,bjk->bik", w, x), ("mk", "bkn")),
    "einsum of a transpose": (lambda w, x: np.einsum("ji,abjk->abik", w, x), ("km", "abkn")),
    "vmap": (lw.vmap(lambda w, x: w @ x, in_axes=(None, 0)), ("mk", "bkn")),
    "vmap of vmap": (lw.vmap(lw.vmap(lambda w, x: w @ x, in_axes=(None, 0)), in_axes=(None, 0)), ("mk", "abkn")),
    "between maps": (lambda w, x: np.maximum(w @ np.tanh(x), 0), ("mk", "bkn")),
    "twice": (lambda w, x: w.T @ np.tanh(w @ x), ("mk", "bkn")),
    "right transposed": (lambda w, x: w @ np.swapaxes(x, 1, 2), ("mk", "bnk")),
    "both transposed": (lambda w, x: w.T @ np.swapaxes(x, 1, 2), ("km", "bnk")),
    "rows": (lambda w, x: np.swapaxes(x, 1, 2) @ w, ("km", "bkn")),
    "axes in another order": (lambda w, x: np.einsum("ij,bajk->abik", w, x), ("mk", "bakn")),
    "sum": (lambda w, x: np.einsum("bmk,bnk->mn", w, x), ("bmk", "bnk")),
    "sum over two axes": (lambda w, x: np.einsum("abmk,abkn->mn", w, x), ("abmk", "abkn")),
    "sum, both transposed": (lambda w, x: np.einsum("bkm,bnk->mn", w, x), ("bkm", "bnk")),
    "sum, exchanged": (lambda w, x: np.einsum("bmk,bnk->nm", w, x), ("bmk", "bnk")),
    "sum of rows": (lambda w, x: np.einsum("bkm,bkn->mn", w, x), ("bkm", "bkn")),
    "sum over axes that lie apart": (lambda w, x: np.einsum("bamk,abnk->mn", w, x), ("bamk", "abnk")),
    "of a vector": (lambda w, x: np.einsum("mk,k->m", w, x) * (w.T @ w.sum(1)).sum(), ("mk", "k")),
    "of one axis": (lambda w, x: np.einsum("km,kn->mn", w, np.swapaxes(x, 0, 1)), ("km", "nk")),
    "tensordot": (lambda w, x: np.tensordot(w, x, ((0, 2), (0, 2))), ("bmk", "bnk")),
}
SUMS = ("sum", "sum over two axes", "sum, both transposed", "sum, exchanged", "tensordot")
WHOLE = ("matmul", "of two axes", "of three axes", "left transposed", "einsum", "einsum of a transpose", "vmap", "vmap of vmap")
JITTED = {name: lw.jit(f) for name, (f, _) in PROGRAMS.items()}
MEANT = {"vmap": PROGRAMS["matmul"][0], "vmap of vmap": PROGRAMS["matmul"][0]}


def arguments(name, sizes, dtype, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=[sizes[axis] for axis in axes]).astype(dtype) for axes in PROGRAMS[name][1]]


def close(dtype, terms):
    limit = (1e-5 if dtype == "f4" else 1e-13) * (4 + terms)
    return {"rtol": limit, "atol": limit}


# ---- programs -----------------------------------------------------------------------------------
@pytest.mark.filterwarnings("ignore::loopwright.RecompilationWarning")  # sizes of 0 and 1 are programs of their own
@examples(150)
@given(st.sampled_from(sorted(PROGRAMS)), SIDES, SIDES, SIDES, st.sampled_from([0, 1, 2, 3, 9, 40]), st.integers(1, 3),
       st.sampled_from(["f4", "f8"]), st.booleans())
def test_values(name, m, n, k, b, a, dtype, is_spread):
    w, x = arguments(name, {"m": m, "n": n, "k": k, "b": b, "a": a, "c": 2}, dtype)
    want = MEANT.get(name, PROGRAMS[name][0])(w.astype("f8"), x.astype("f8"))
    if is_spread:  # not contiguous
        w, x = np.asfortranarray(w), np.repeat(x, 2, axis=-1)[..., ::2]
    got = JITTED[name](w, x)
    np.testing.assert_allclose(got, want, **close(dtype, k * (max(a, 1) * max(b, 1) if "sum" in name else 1) + m))
    assert got.dtype == dtype


@needs_own
@pytest.mark.parametrize("name", [*WHOLE, *SUMS])
def test_it_is_one_call(name):
    args = arguments(name, {"m": 6, "n": 7, "k": 5, "b": 4, "a": 3, "c": 2}, "f4")
    JITTED[name](*args)
    lines = [line.strip() for line in JITTED[name].explain(*args).splitlines() if line.strip().startswith("kernel")]
    assert lines[-1].endswith("(gemm): sum_of_products" if name in SUMS else "(gemm): one_by_many")
    assert not any("transpose" in line for line in lines)


@pytest.mark.filterwarnings("ignore::loopwright.RecompilationWarning")
@pytest.mark.parametrize("name", ["matmul", "left transposed", "of two axes", "einsum", "twice", "vmap", "sum", "tensordot"])
@pytest.mark.parametrize(("m", "n", "k", "b"), [(5, 7, 3, 4), (20, 33, 17, 6), (70, 3, 66, 9), (3, 1, 4, 5), (1, 6, 1, 2)])
def test_gradients(name, m, n, k, b):
    f = MEANT.get(name, PROGRAMS[name][0])
    w, x = arguments(name, {"m": m, "n": n, "k": k, "b": b, "a": 2, "c": 2}, "f8")
    found = lw.jit(lw.grad(lambda w, x: np.sum(np.sin(PROGRAMS[name][0](w, x))), argnums=(0, 1)))(w, x)
    for side, (made, v) in enumerate(zip(found, (w, x), strict=True)):
        assert made.shape == v.shape
        step = np.random.default_rng(1).normal(size=v.shape)
        moved = [np.sum(np.sin(f(*((w, v + h * step) if side else (v + h * step, x))))) for h in (1e-6, -1e-6)]
        np.testing.assert_allclose(np.sum(made * step), (moved[0] - moved[1]) / 2e-6, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("m", "n", "k", "b"), [(60, 5, 70, 300), (100, 40, 90, 30), (300, 200, 150, 3), (64, 24, 64, 200),
                                                (500, 12, 500, 3), (50, 1, 60, 3000), (3, 3, 3, 50_000)])
@pytest.mark.parametrize("name", ["matmul", "left transposed", "sum"])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_threads_change_no_bit(name, m, n, k, b, dtype):
    args = arguments(name, {"m": m, "n": n, "k": k, "b": b}, dtype)
    found = bits_of(PROGRAMS[name][0], *args)
    assert found[0] == found[1] == found[2]
    want = PROGRAMS[name][0](*(x.astype("f8") for x in args))
    np.testing.assert_allclose(JITTED[name](*args), want, **close(dtype, k * b if name == "sum" else k))


@needs_own
def test_a_gradient_is_one_call_for_each_side():
    """Where a matrix is multiplied with each of many."""
    rng = np.random.default_rng(0)
    w, x = rng.normal(size=(3, 4)), rng.normal(size=(6, 4, 5))
    f = lw.jit(lw.grad(lambda w, x: np.sum(np.tanh(w @ x)), argnums=(0, 1)))
    f(w, x)
    text = f.explain(w, x)
    assert text.count(": one_by_many") == 2 and text.count(": sum_of_products") == 1 and "transpose" not in text


def test_what_is_no_number_stays_in_its_matrix_and_column():
    rng = np.random.default_rng(0)
    for n in (3, 40):
        w, x = rng.normal(size=(20, 30)), rng.normal(size=(9, 30, n))
        x[4, 7, 2] = np.nan
        found = np.isnan(lw.jit(np.matmul)(w, x))
        assert found[4, :, 2].all() and found.sum() == 20


# ---- what is decided ----------------------------------------------------------------------------
def kernels_of(g, target, *decisions):
    return [(n.attrs["implementation"], *(m.op.name for m in n.regions[0].nodes))
            for n in partition(g, target, blas=True, decisions=decisions).nodes if n.regions]


def mapped(w, x):
    return np.tanh(w @ x)


MANY = expanded(lw.make_graph(mapped)(np.ones((3, 4)), np.ones((5, 4, 6))))
CALLED = ("gemm", "one_by_many")


@needs_own
def test_decisions_of_products_hold():
    """One of the product that rows of many are, or of its transpose, leaves these; one of both together is obeyed."""
    target = host_target()
    assert kernels_of(MANY, target) == [CALLED, ("generated", "tanh")]
    made = partitioned(MANY, target, blas=True, is_scheduled=False).taken
    (call, generate), = [sorted(t.others, key=lambda x: isinstance(x, Generate)) for t in made if isinstance(t.decision, Call)]
    assert kernels_of(MANY, target, call) == [CALLED, ("generated", "tanh")]
    assert kernels_of(MANY, target, generate) == [("generated", "one_by_many", "tanh")]
    at, = call.node
    assert CALLED not in kernels_of(MANY, target, Apart((at,)))
    assert CALLED not in kernels_of(MANY, target, Call((at - 1,)))
    with pytest.raises(ScheduleError, match="Apart"):
        kernels_of(MANY, target, Apart((at + 7,)))


@needs_own
def test_loops_make_the_same():
    made, rng = partitioned(MANY, host_target(), blas=True, is_scheduled=False).taken, np.random.default_rng(0)
    cover = Cover(tuple([x for t in made for x in t.others if isinstance(x, Generate)]))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(compile, "lower_graph", lambda g, target, **options: lower_graph(g, target, **options, cover=cover))
        patched.setattr(compile.cache, "read", lambda key: None)
        patched.setattr(compile.cache, "write", lambda key, entry: None)
        w, x = rng.normal(size=(3, 4)), rng.normal(size=(5, 4, 6))
        f = lw.jit(mapped)
        np.testing.assert_allclose(f(w, x), mapped(w, x), rtol=1e-12)
        assert "one_by_many tanh" in f.explain(w, x)


@pytest.mark.parametrize(("target", "with_blas"), [
    (host_target(), False), (Target("x86_64-unknown-linux-gnu", "x86-64", "", 128), True)])
def test_others_have_no_such_call(target, with_blas):
    made = partition(MANY, target, blas=with_blas)
    assert "one_by_many" not in str(made)


# ---- the functions ------------------------------------------------------------------------------
def multiply(name, kind, shapes, sizes, made, address=support.address):
    """What a function makes of sides inside NaN, and that nothing around the result was written; and the sides in float64."""
    dtype, rng, sides = DTYPES[kind], np.random.default_rng(sum(sizes)), []
    for shape in shapes:
        whole = np.full(int(np.prod(shape)) + 64, np.nan, dtype)
        whole[32:-32] = rng.standard_normal(shape).astype(dtype).reshape(-1)
        sides.append(whole[32:-32].reshape(shape))
    c = np.full(int(np.prod(made)) + 64, np.nan, dtype)
    f = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4, *[ctypes.c_void_p] * 3)(address(name))
    f(*sizes, *(x.ctypes.data for x in sides), c.ctypes.data + 32 * c.itemsize)
    assert np.isnan(c[:32]).all() and np.isnan(c[-32:]).all()
    return c[32:-32].reshape(made), *(v.astype("f8") for v in sides)


@needs_own
@pytest.mark.parametrize("bits", ["512", "256"])
@examples(300)
@given(kind=st.sampled_from([*DTYPES]), side=st.sampled_from("nt"), batch=st.sampled_from([0, 1, 2, 3, 7, 30, 65]), m=SIDES,
       n=SIDES, k=SIDES)
def test_products_of_any_sizes(bits, kind, side, batch, m, n, k):
    batch = batch if m * n * k < 1 << 18 else min(batch, 3)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("LOOPWRIGHT_VECTOR_BITS", bits)
        found, w, x = multiply(f"lw_many_{kind}_{side}", kind, ((k, m) if side == "t" else (m, k), (batch, k, n)),
                               (batch, m, n, k), (batch, m, n))
    near = (1e-6 if kind == "f32" else 1e-14) * (4 + k)
    np.testing.assert_allclose(found, (w.T if side == "t" else w) @ x, rtol=near, atol=near)


@needs_own
@pytest.mark.parametrize("bits", ["512", "256"])
@examples(300)
@given(kind=st.sampled_from([*DTYPES]), form=st.sampled_from(["nn", "nt", "tt"]), m=SIDES, n=SIDES, k=SIDES,
       batch=st.sampled_from([0, 1, 2, 3, 7, 30, 65, 400]))
def test_sums_of_any_sizes(bits, kind, form, batch, m, n, k):
    batch = batch if batch * m * n * k < 1 << 24 else min(batch, 3)
    shapes = [(batch, *(shape[::-1] if side == "t" else shape)) for side, shape in zip(form, ((m, k), (k, n)), strict=True)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("LOOPWRIGHT_VECTOR_BITS", bits)
        found, *sides = multiply(f"lw_summed_{kind}_{form}", kind, shapes, (batch, m, n, k), (m, n))
    a, b = (x.swapaxes(1, 2) if side == "t" else x for side, x in zip(form, sides, strict=True))
    near = (1e-6 if kind == "f32" else 1e-14) * (4 + k * batch)
    np.testing.assert_allclose(found, (a @ b).sum(0), rtol=near, atol=near)


@needs_own
@pytest.mark.parametrize("kind", DTYPES)
def test_they_need_no_memory(kind):
    """Without any the products are made one by one, or number by number."""
    dtype, none = DTYPES[kind], ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)(lambda size: None)
    gemm, loops = f"lw_gemm_{kind}", {name: pool.library()[name] for name in (*LOOPS, "lw_parallel_for")}
    imports = {gemm: blas.library(blas.found())[gemm], **loops, **scratch.imports(),
               "lw_scratch_acquire": ctypes.cast(none, ctypes.c_void_p).value}
    names = [f"lw_many_{kind}_t", f"lw_many_{kind}_n", f"lw_summed_{kind}_nt", f"lw_summed_{kind}_tt"]
    library = load(assemble(products_text(dtype, host_target())), imports, names)
    for batch, m, n, k in ((5, 70, 7, 80), (100, 40, 6, 50), (60, 33, 20, 40)):
        sizes, near = (batch, m, n, k), (1e-6 if kind == "f32" else 1e-14) * k * batch
        for name in names:
            left = (k, m) if name.endswith("t") and "nt" not in name else (m, k)
            if "many" in name:
                found, w, x = multiply(name, kind, (left, (batch, k, n)), sizes, (batch, m, n), library.__getitem__)
                expected = (w if left == (m, k) else w.T) @ x
            else:
                found, w, x = multiply(name, kind, ((batch, *left), (batch, n, k)), sizes, (m, n), library.__getitem__)
                expected = ((w if left == (m, k) else w.swapaxes(1, 2)) @ x.swapaxes(1, 2)).sum(0)
            np.testing.assert_allclose(found, expected, rtol=near, atol=near)
