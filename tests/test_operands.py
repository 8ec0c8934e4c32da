"""Products of arrays in which heads lie side by side read them there: one kernel, NumPy's values for any sizes."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.ir.dims import symbol
from loopwright.ir.graph import Node, Value
from loopwright.ir.ops.contraction import dot_general
from loopwright.ir.types import ArrayType
from loopwright.kernels.gemm import match_apart
from loopwright.lower.codegen.products import has_own
from loopwright.lower.target import host_target
from tests.scale import examples
from tests.threads import bits_of

# of t positions against s, h heads of d numbers: the program, and the shapes of its arguments
PROGRAMS = {
    "scores": (lambda q, k: q.transpose(1, 0, 2) @ k.transpose(1, 2, 0), ("thd", "shd")),
    "values": (lambda p, v: p @ v.transpose(1, 0, 2), ("hts", "shd")),
    "terms first": (lambda a, b: a.transpose(1, 2, 0) @ b.transpose(1, 0, 2), ("thd", "ths")),
    "both turned": (lambda a, b: a.transpose(1, 2, 0) @ b.transpose(1, 2, 0), ("thd", "sht")),
    "scores of a batch": (lambda q, k: q.transpose(0, 2, 1, 3) @ k.transpose(0, 2, 3, 1), ("bthd", "bshd")),
    "a batch inside": (lambda q, k: q.transpose(2, 0, 1, 3) @ k.transpose(2, 0, 3, 1), ("bthd", "bshd")),
    "einsum": (lambda q, k: np.einsum("bthd,bshd->bhts", q, k), ("bthd", "bshd")),
    "einsum of values": (lambda p, v: np.einsum("bhts,bshd->bhtd", p, v), ("bhts", "bshd")),
    "rows of two axes": (lambda q, k: np.tensordot(q.transpose(2, 0, 1, 3)[0], k, ((2,), (1,))), ("bthd", "sd")),
}
JITTED = {name: lw.jit(f) for name, (f, _) in PROGRAMS.items()}


def arguments(name, sizes, dtype, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=[sizes[axis] for axis in axes]).astype(dtype) for axes in PROGRAMS[name][1]]


def kernels(f, *args):
    f(*args)
    return [line.strip() for line in f.explain(*args).splitlines() if line.strip().startswith("kernel")]


@pytest.mark.filterwarnings("ignore::loopwright.RecompilationWarning")  # sizes of 0 and 1 are programs of their own
@examples(30)
@given(st.sampled_from(sorted(PROGRAMS)), st.sampled_from([0, 1, 2, 5, 17, 100, 300]), st.sampled_from([1, 3, 8, 64, 290]),
       st.integers(1, 4), st.sampled_from([1, 2, 5, 33, 64, 140]), st.integers(1, 3), st.sampled_from(["f4", "f8"]))
def test_values(name, t, s, h, d, b, dtype):
    args = arguments(name, {"t": t, "s": s, "h": h, "d": d, "b": b}, dtype)
    want = PROGRAMS[name][0](*(x.astype("f8") for x in args))
    got = JITTED[name](*args)
    limit = (1e-5 if dtype == "f4" else 1e-13) * 10 * (1 + max(t, s, d)) ** 0.5
    np.testing.assert_allclose(got, want, rtol=limit, atol=limit)
    assert got.dtype == dtype


@pytest.mark.skipif(not has_own(np.dtype("f4"), host_target()), reason="the library multiplies, which reads whole matrices")
@pytest.mark.parametrize("name", sorted(PROGRAMS.keys() - {"a batch inside", "rows of two axes"}))
def test_nothing_is_transposed_before(name):
    args = arguments(name, {"t": 7, "s": 6, "h": 3, "d": 5, "b": 2}, "f4")
    found = kernels(JITTED[name], *args)
    assert found[-1].endswith("(gemm): dot_general") and not any("transpose" in line for line in found)


def test_threads_do_not_change_bits():
    args = arguments("scores", {"t": 200, "s": 130, "h": 7, "d": 64}, "f4")
    try:
        lw.set_threads(2)
        whole = JITTED["scores"](*args)
        lw.set_threads(1)
        np.testing.assert_array_equal(JITTED["scores"](*args), whole)
    finally:
        lw.set_threads(None)


@pytest.mark.parametrize("n", [3, 7, 40])
def test_threads_do_not_change_bits_of_what_is_copied(n):
    """Rows of one product of few columns: which way makes them is not a matter of how many a thread takes."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(600, 2, 500)).astype("f4"), rng.normal(size=(500, 2, n)).astype("f4")
    for x, y in ((a, b), (a[:, :1], b[:, :1])):
        found = bits_of(lambda a, b: a.transpose(1, 0, 2) @ b.transpose(1, 0, 2), x.copy(), y.copy())
        assert found[0] == found[1] == found[2]


def test_what_others_read_is_transposed():
    @lw.jit
    def f(q, k):
        turned = k.transpose(1, 2, 0)
        return q.transpose(1, 0, 2) @ turned, turned
    q, k = arguments("scores", {"t": 7, "s": 6, "h": 3, "d": 5}, "f4")
    for got, want in zip(f(q, k), (q.transpose(1, 0, 2) @ k.transpose(1, 2, 0), k.transpose(1, 2, 0)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    same = lw.jit(lambda x: (lambda y: y @ y)(x.transpose(1, 0, 2)))
    x = q[:5].transpose(0, 1, 2)
    np.testing.assert_allclose(same(x), x.transpose(1, 0, 2) @ x.transpose(1, 0, 2), rtol=1e-5, atol=1e-5)


def changed(x, v, b, i=0, reshapes=False):
    """x with another matrix i, and a product of what it was."""
    was = x.reshape(-1, *v.shape).transpose(1, 0, 2) if reshapes else x.transpose(1, 0, 2)
    y = x.copy()
    y[i] = v
    return y, was @ b


@pytest.mark.parametrize("reshapes", [False, True])
@pytest.mark.parametrize("kind", ["donated", "donated to a loop", "a trip's", "a trip's of two updates"])
def test_what_an_update_stores_over_is_transposed_before(kind, reshapes):
    """The product runs after the update, the transpose before it."""
    rng = np.random.default_rng(0)
    x, v, b = rng.normal(size=(6, 3, 5)), rng.normal(size=(3, 5)), rng.normal(size=(3, 5, 4))

    def once(x, v, b, i=0):
        return changed(x, v, b, i, reshapes)

    def carried(x, v, b):
        return lw.lax.fori_loop(0, 3, lambda i, c: changed(c, v + i, b)[0], x), once(x, v, b)[1]

    def trips(x, v, b):
        return lw.lax.scan(lambda c, i: once(c, v, b, i), x, np.arange(3))

    def twice(x, v, b):
        def step(c, i):
            y, was = once(c, v, b, i)
            y[i + 1] += v
            return y, was
        return lw.lax.scan(step, x, np.arange(3))
    f = {"donated": once, "donated to a loop": carried, "a trip's": trips, "a trip's of two updates": twice}[kind]
    want = f(x, v, b)
    got = lw.jit(f, donate_argnums=(0,) if kind.startswith("donated") else ())(x.copy(), v, b)
    for a, w in zip(got, want, strict=True):
        np.testing.assert_allclose(a, w, rtol=1e-12)


def test_loops_and_gradients_read_so_too():
    def loss(q, k):
        return np.sum(np.tanh(q.transpose(1, 0, 2) @ k.transpose(1, 2, 0)) ** 2)

    def steps(q, k):
        return lw.lax.scan(lambda c, x: (c + loss(c, k) * 1e-3, x), q, np.arange(3.0))[0]
    q, k = arguments("scores", {"t": 7, "s": 6, "h": 3, "d": 5}, "f8")
    for f in (steps, lw.grad(loss, argnums=0), lw.grad(loss, argnums=1)):
        np.testing.assert_allclose(lw.jit(f)(q, k), f(q, k), rtol=1e-10, atol=1e-12)


def test_which_products_lie_apart():
    """Axes of a group lie together; the last of each side is a free or a summed one."""
    b, h, t, s, d = (symbol(x) for x in "bhtsd")

    def of(left, right, batch, contract, dtype="float32"):
        inputs = Value(ArrayType(left, np.dtype(dtype))), Value(ArrayType(right, np.dtype(dtype)))
        attrs = {"batch": batch, "contract": contract, "dtype": None}
        types = dot_general.result_types([v.type for v in inputs], (), attrs)
        return match_apart(Node(dot_general, inputs, attrs, (Value(types[0]),)))
    found = of((b, t, h, d), (b, s, h, d), ((0, 0), (2, 2)), ((3, 3),))
    assert found.transposed == (False, True) and (found.batch, found.m, found.n, found.k) == (b * h, t, s, d)
    assert found.apart.lines == (h * d, h * d) and found.apart.count == h
    assert found.apart.inner == (d, d) and found.apart.outer == (t * h * d, s * h * d)
    assert of((h, t, d), (h, d, s), ((0, 0),), ((2, 1),)) is None  # contiguous
    assert of((t, d, h), (s, d, h), ((2, 2),), ((1, 1),)) is None  # heads are last
    assert of((t, h, d), (s, h, d), ((1, 1),), ((2, 2),), "int32") is None
    assert of((b, t, h, s, d), (b, h, s, d), ((0, 0), (2, 1), (3, 2)), ((4, 3),)) is None  # nothing is free on the right
