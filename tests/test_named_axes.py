"""Named axes: collectives mean what NumPy says of all elements at once, in every composition of transforms."""
import sys

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright import lax
from tests.scale import examples

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 3))
DTYPES = (np.float64, np.float32, np.float16, ml_dtypes.bfloat16, np.int64, np.int8, np.uint32, np.complex128)


def over(f, **options):
    return lw.vmap(f, axis_name="i", **options)


def drawn(dtype, shape):
    x = RNG.integers(0, 9, shape)
    return (x + 1j * RNG.integers(0, 9, shape)).astype(dtype) if np.dtype(dtype).kind == "c" else x.astype(dtype)


# ---- values -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("how", [lambda f: f, lw.jit], ids=["eager", "jit"])
def test_values_of_every_dtype(dtype, how):
    x = drawn(dtype, (5, 3))
    total = np.sum(x, 0, dtype=dtype)
    for f, want in ((lambda x: lax.psum(x, "i"), np.broadcast_to(total, x.shape)),
                    (lambda x: lax.all_gather(x, "i"), np.broadcast_to(x, (5, 5, 3))),
                    (lambda x: lax.all_gather(x, "i", axis=-1), np.broadcast_to(x.T, (5, 3, 5))),
                    (lambda x: lax.all_gather(x, "i", tiled=True), np.broadcast_to(x.ravel(), (5, 15))),
                    (lambda x: lax.ppermute(x, "i", [(k, (k + 1) % 5) for k in range(5)]), np.roll(x, 1, 0))):
        found = how(over(f))(x)
        assert found.dtype == x.dtype
        np.testing.assert_array_equal(found, want)
    if np.dtype(dtype).kind != "c":
        np.testing.assert_array_equal(how(over(lambda x: lax.pmax(x, "i")))(x), np.broadcast_to(x.max(0), x.shape))
        np.testing.assert_array_equal(how(over(lambda x: lax.pmin(x, "i")))(x), np.broadcast_to(x.min(0), x.shape))


def test_means_bools_numbers_and_containers():
    x = np.array([1, 2, 6])
    np.testing.assert_array_equal(over(lambda x: lax.pmean(x, "i"))(x), [3.0, 3.0, 3.0])
    found = over(lambda x: lax.psum(x > 1, "i"))(x)
    assert found.dtype == np.int32 and found.tolist() == [2, 2, 2]
    assert over(lambda x: lax.psum(x > 1, "i"), out_axes=None)(x) == 2
    found = over(lambda x: lax.psum({"a": x, "b": (2, 0.5, np.arange(2))}, "i"), out_axes=None)(x)
    assert found["a"] == 9 and found["b"][:2] == (6, 1.5)
    np.testing.assert_array_equal(found["b"][2], [0, 3])
    assert over(lambda x: lax.pmax((x, 7), "i"), out_axes=None)(x) == (6, 7)
    assert over(lambda x: lax.psum(x, ()))(x).tolist() == [1, 2, 6]
    assert np.isnan(over(lambda x: lax.pmax(x, "i"))(np.array([1.0, np.nan]))).all()
    assert np.isnan(lw.grad(lambda x: np.sum(over(lambda x: lax.pmax(x, "i"))(x)))(np.array([1.0, np.nan]))).all()


def test_places_of_elements():
    f = lw.vmap(lw.vmap(lambda x: (lax.axis_index("i"), lax.axis_index("j"), lax.axis_index(("i", "j")), lax.axis_size("i"),
                                   lax.axis_size(("j", "i"))), axis_name="j"), axis_name="i")
    i, j, both, size, all_ = f(X)
    rows, columns = np.indices(X.shape)
    np.testing.assert_array_equal(i, rows)
    np.testing.assert_array_equal(j, columns)
    np.testing.assert_array_equal(both, rows * 3 + columns)
    assert i.dtype == np.int64 and (size == 4).all() and (all_ == 12).all()


def test_several_names_and_nesting():
    def f(x):
        return (lax.psum(x, "i"), lax.psum(x, "j"), lax.psum(x, ("i", "j")), lax.pmax(x, ("j", "i")), lax.pmean(x, ("i", "j")),
                lax.all_gather(x, ("i", "j")), lax.all_gather(x, ("j", "i")))
    a, b, c, d, e, g, h = lw.vmap(lw.vmap(f, axis_name="j"), axis_name="i")(X)
    np.testing.assert_allclose(a, np.broadcast_to(X.sum(0), X.shape))
    np.testing.assert_allclose(b, np.broadcast_to(X.sum(1)[:, None], X.shape))
    np.testing.assert_allclose(c, np.full(X.shape, X.sum()))
    np.testing.assert_array_equal(d, np.full(X.shape, X.max()))
    np.testing.assert_allclose(e, np.full(X.shape, X.mean()))
    np.testing.assert_array_equal(g, np.broadcast_to(X.ravel(), (4, 3, 12)))
    np.testing.assert_array_equal(h, np.broadcast_to(X.T.ravel(), (4, 3, 12)))
    inner = over(lambda row: over(lambda x: lax.psum(x, "i"))(row))(X)  # the innermost of a name counts
    np.testing.assert_allclose(inner, np.broadcast_to(X.sum(1)[:, None], X.shape))
    after = over(lambda row: over(lambda x: x)(row) + lax.psum(row, "i"))(X)
    np.testing.assert_allclose(after, X + X.sum(0))


def test_in_axes_and_values_that_are_the_same_for_all():
    f = over(lambda x, y: (lax.psum(x, "i"), lax.psum(y, "i"), lax.all_gather(y, "i"), lax.pmax(y, "i")), in_axes=(1, None))
    a, b, c, d = f(X, 2.5)
    np.testing.assert_allclose(a, np.broadcast_to(X.sum(1), (3, 4)))
    np.testing.assert_array_equal(b, [7.5] * 3)
    np.testing.assert_array_equal(c, np.full((3, 3), 2.5))
    np.testing.assert_array_equal(d, [2.5] * 3)
    g = lw.vmap(lambda x: (lax.psum(x, "i"), lax.axis_index("i") * x), in_axes=None, axis_size=4, axis_name="i")
    for how in (g, lw.jit(g)):
        a, b = how(2.0)
        np.testing.assert_array_equal(a, [8.0] * 4)
        np.testing.assert_array_equal(b, [0.0, 2.0, 4.0, 6.0])


@pytest.mark.parametrize("out, want", [(0, [6.0, 6.0, 6.0, 6.0]), (None, 6.0)])
def test_nothing_is_mapped_but_axis_size(out, want):
    f = lw.vmap(lambda x: x * 2, in_axes=None, out_axes=out, axis_size=4)
    np.testing.assert_array_equal(f(3.0), want)
    np.testing.assert_array_equal(lw.jit(f)(3.0), want)
    g = lw.jit(lambda x, y: lw.vmap(lambda x: x * 2, in_axes=None, axis_size=y.shape[0])(x))
    for n in (2, 5):
        np.testing.assert_array_equal(g(3.0, np.zeros(n)), [6.0] * n)
    assert g.compiles == 1
    h = lw.jit(lambda y: lw.vmap(lambda: lax.axis_index("i") * 2, axis_size=y.shape[0], axis_name="i")())
    for n in (2, 5):
        np.testing.assert_array_equal(h(np.zeros(n)), 2 * np.arange(n))
    assert h.compiles == 1


def test_one_compile_for_all_sizes():
    f = lw.jit(over(lw.grad(lambda x: lax.psum(x ** 2, "i") * x * lax.axis_size("i") + lax.all_gather(x, "i").sum()
                            + lax.pmean(x, "i") * lax.axis_index("i"))))
    for n in (2, 3, 7, 40):
        x = np.linspace(-1, 1, n)
        # the gradient of the sum over all elements of n x sum(x^2) + sum(x) + mean(x) k
        want = n * (x ** 2).sum() + 2 * n * x * x.sum() + n + (n - 1) / 2
        np.testing.assert_allclose(f(x), want, rtol=1e-12)
    assert f.compiles == 1


def test_scatters():
    x = RNG.normal(size=(3, 6))
    square = x[:, :3]
    np.testing.assert_allclose(over(lambda x: lax.psum_scatter(x, "i"))(square), square.sum(0))
    np.testing.assert_allclose(over(lambda x: lax.psum_scatter(x, "i", tiled=True))(x), x.sum(0).reshape(3, 2))
    found = lw.vmap(lw.vmap(lambda x: lax.psum_scatter(x, ("i", "j")), axis_name="j"), axis_name="i")(
        y := RNG.normal(size=(2, 3, 6)))
    np.testing.assert_allclose(found, y.sum((0, 1)).reshape(2, 3))


def test_permutations():
    perm = [(0, 2), (3, 0), (1, 1)]
    want = np.zeros_like(X)
    for s, t in perm:
        want[t] = X[s]
    np.testing.assert_array_equal(over(lambda x: lax.ppermute(x, "i", perm))(X), want)
    np.testing.assert_array_equal(lw.jit(over(lambda x: lax.ppermute(x, "i", perm)))(X), want)
    weights = RNG.normal(size=X.shape)
    slope = lw.grad(lambda x: np.sum(weights * over(lambda x: lax.ppermute(x, "i", perm))(x)))(X)
    np.testing.assert_allclose(slope, np.stack([weights[2], weights[1], np.zeros(3), weights[0]]))
    with pytest.raises(lw.ArgumentError, match="must name elements"):
        over(lambda x: lax.ppermute(x, "i", [(0, 4)]))(X)
    with pytest.raises(lw.ArgumentError, match="no other pair"):
        over(lambda x: lax.ppermute(x, "i", [(0, 1), (2, 1)]))(X)


GROUPS = [[0, 2], [3, 1]]


@pytest.mark.parametrize("how", [lambda f: f, lw.jit], ids=["eager", "jit"])
def test_groups_of_elements(how):
    x, partner = RNG.normal(size=(4, 6)), np.array([2, 3, 0, 1])
    in_group = [next(g for g in GROUPS if k in g) for k in range(4)]
    place = [g.index(k) for k, g in enumerate(in_group)]
    options = {"axis_index_groups": GROUPS}
    for f, want in ((lambda x: lax.psum(x, "i", **options), x + x[partner]),
                    (lambda x: lax.pmean(x, "i", **options), (x + x[partner]) / 2),
                    (lambda x: lax.pmax(x, "i", **options), np.maximum(x, x[partner])),
                    (lambda x: lax.pmin(x, "i", **options), np.minimum(x, x[partner])),
                    (lambda x: lax.all_gather(x, "i", axis=1, **options), np.stack([x[g].T for g in in_group])),
                    (lambda x: lax.all_gather(x, "i", tiled=True, **options), np.stack([x[g].ravel() for g in in_group])),
                    (lambda x: lax.psum_scatter(x, "i", tiled=True, **options),
                     np.stack([x[g].sum(0).reshape(2, 3)[p] for g, p in zip(in_group, place, strict=True)])),
                    (lambda x: lax.all_to_all(x, "i", 0, 0, tiled=True, **options),
                     np.stack([x[g].reshape(2, 2, 3)[:, p].ravel() for g, p in zip(in_group, place, strict=True)]))):
        np.testing.assert_allclose(how(over(f))(x), want)
    assert how(over(lambda x: lax.psum(1, "i", **options) + 0 * x))(x)[0, 0] == 2
    slope = how(lw.grad(lambda x: np.sum(np.arange(4.0)[:, None] * over(lambda x: lax.psum(x, "i", **options))(x))))(x)
    np.testing.assert_allclose(slope, np.repeat((np.arange(4) + partner)[:, None], 6, 1))
    for groups in ([[0, 1]], [[0, 1, 2], [3]], [[0, 1], [1, 2]]):
        with pytest.raises(lw.ArgumentError, match=r"axis_index_groups must have each of the 4 elements"):
            over(lambda x, groups=groups: lax.psum(x, "i", axis_index_groups=groups))(x)


@pytest.mark.parametrize("how", [lambda f: f, lw.jit], ids=["eager", "jit"])
def test_exchanges(how):
    x = RNG.normal(size=(3, 2, 3, 6))
    np.testing.assert_array_equal(how(over(lambda x: lax.all_to_all(x, "i", 1, 0)))(x), x.transpose(2, 0, 1, 3))
    np.testing.assert_array_equal(how(over(lambda x: lax.all_to_all(x, "i", 1, 2)))(x), x.transpose(2, 1, 3, 0))
    np.testing.assert_array_equal(how(over(lambda x: lax.pswapaxes(x, "i", 1)))(x), x.transpose(2, 1, 0, 3))
    parts = x.reshape(3, 2, 3, 3, 2)  # element, ..., part, place
    np.testing.assert_array_equal(how(over(lambda x: lax.all_to_all(x, "i", 2, 0, tiled=True)))(x),
                                  parts.transpose(3, 0, 1, 2, 4).reshape(3, 6, 3, 2))
    np.testing.assert_array_equal(how(over(lambda x: lax.pshuffle(x, "i", [2, 0, 1])))(x), x[[2, 0, 1]])
    np.testing.assert_array_equal(how(over(lambda x: lax.pbroadcast(x, "i", 1)))(x), x[[1, 1, 1]])
    weights = RNG.normal(size=(3, 2, 3, 6))
    slope = how(lw.grad(lambda x: np.sum(weights * over(lambda x: lax.all_to_all(x, "i", 1, 1))(x))))(x)
    np.testing.assert_allclose(slope, weights.transpose(2, 1, 0, 3))
    with pytest.raises(lw.ShapeError, match=r"all_to_all: axis 0 of .* must have 3 places"):
        over(lambda x: lax.all_to_all(x, "i", 0, 0))(x)


@pytest.mark.parametrize("split, at, tiled", [(0, 0, False), (0, 1, False), (1, 0, True), (1, 1, True), (0, 0, True)])
def test_exchanges_are_those_of_jax(split, at, tiled):
    jax = pytest.importorskip("jax", reason="compares with jax.lax where that is installed")
    x = RNG.normal(size=(3, 3, 6)).astype(np.float32)
    want = jax.vmap(lambda x: jax.lax.all_to_all(x, "i", split, at, tiled=tiled), axis_name="i")(x)
    np.testing.assert_array_equal(over(lambda x: lax.all_to_all(x, "i", split, at, tiled=tiled))(x), want)
    perm = [1, 2, 0]
    np.testing.assert_array_equal(over(lambda x: lax.pshuffle(x, "i", perm))(x),
                                  jax.vmap(lambda x: jax.lax.pshuffle(x, "i", perm), axis_name="i")(x))


def test_no_elements():
    x = np.zeros((0, 2))
    assert over(lambda x: lax.psum(x, "i"))(x).shape == (0, 2)
    np.testing.assert_array_equal(over(lambda x: lax.psum(x, "i"), out_axes=None)(x), [0.0, 0.0])
    assert over(lambda x: lax.all_gather(x, "i"), out_axes=None)(x).shape == (0, 2)


# ---- transforms -------------------------------------------------------------------------------------
def softmax(x):
    top = lax.pmax(lax.stop_gradient(x), "i")
    e = np.exp(x - top)
    return e / lax.psum(e, "i")


BODIES = {
    "softmax": softmax,
    "psum": lambda x: lax.psum(x * x, "i") * np.sin(x),
    "pmean": lambda x: (x - lax.pmean(x, "i")) ** 2 / (1 + lax.pmean(x * x, "i")),
    "pmax": lambda x: lax.pmax(x * x, "i") * x,
    "pmin": lambda x: lax.pmin(np.sin(x), "i") * x + x,
    "gather": lambda x: np.cumsum(lax.all_gather(x, "i") ** 2)[1] * x,
    "scatter": lambda x: lax.psum_scatter(np.sin(lax.all_gather(x, "i") * x), "i"),
    "permute": lambda x: lax.ppermute(x * x, "i", [(0, 1), (1, 3), (3, 2)]) * x,
    "index": lambda x: x ** 2 * lax.axis_index("i") / lax.axis_size("i"),
    "inside jit": lambda x: lw.jit(lambda y: lax.psum(y * x, "i") * y)(x),
    "inside grad": lambda x: lw.grad(lambda y: lax.psum(y ** 3, "i") * y)(x),
    "inside scan": lambda x: lax.scan(lambda c, k: (c + lax.psum(c * c, "i") * k, lax.pmean(c, "i")), x, np.ones(3) / 9)[0],
    "inside cond": lambda x: lax.cond(lax.psum(x, "i") > 0, lambda y: lax.psum(y * y, "i") * y, lambda y: lax.pmean(y, "i") + y,
                                      x),
    "inside while": lambda x: lax.while_loop(lambda c: lax.pmax(c * c, "i") < 50, lambda c: c + lax.psum(c * c, "i"), x),
    "inside checkpoint": lw.checkpoint(lambda x: np.sin(lax.psum(x * x, "i")) * x),
}


def central(f, x, step=1e-5):
    found = np.zeros_like(x)
    for k in np.ndindex(*x.shape):
        d = np.zeros_like(x)
        d[k] = step
        found[k] = (f(x + d) - f(x - d)) / (2 * step)
    return found


@pytest.mark.parametrize("name", BODIES)
def test_derivatives_in_every_order(name):
    """A gradient inside the vmap sums over all elements that a cotangent comes from: it is that of the sum of all results."""
    body, x = BODIES[name], np.array([0.3, -0.4, 0.9, 0.55])

    def total(x):
        return np.sum(over(body)(x))
    want = central(total, x)
    for f in (lw.grad(total), over(lw.grad(body)), lw.jit(lw.grad(total)), lw.jit(over(lw.grad(body))),
              lw.grad(lw.jit(total)), over(lw.jit(lw.grad(body)))):
        np.testing.assert_allclose(f(x), want, rtol=1e-7, atol=1e-8)
    t = np.array([1.0, 0.5, -2.0, 0.1])
    slope = (over(body)(x + 1e-6 * t) - over(body)(x - 1e-6 * t)) / 2e-6
    for f in (lambda x, t: lw.jvp(over(body), (x,), (t,))[1], over(lambda x, t: lw.jvp(body, (x,), (t,))[1])):
        np.testing.assert_allclose(f(x, t), slope, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(lw.jit(f)(x, t), slope, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", ["psum", "softmax", "gather", "scatter", "inside scan", "inside checkpoint", "inside while"])
def test_second_derivatives(name):
    body, x = BODIES[name], np.array([0.3, -0.4, 0.9, 0.55])
    first = over(lw.grad(body))
    want = central(lambda x: np.sum(np.arange(4.0) * first(x)), x)
    got = lw.grad(lambda x: np.sum(np.arange(4.0) * first(x)))(x)
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(lw.jit(lw.grad(lambda x: np.sum(np.arange(4.0) * first(x))))(x), want, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", [n for n in BODIES if n != "permute"])
def test_another_vmap_outside_inside_and_between(name):
    body, x = BODIES[name], RNG.normal(size=(4, 2, 3)) / 2
    want = np.stack([np.stack([over(body)(x[:, a, b]) for b in range(3)], -1) for a in range(2)], 1)

    def many(order):
        f = body
        for axis in order:  # from the innermost on
            f = lw.vmap(f, axis_name="i") if axis == "i" else lw.vmap(f)
        return f
    if "cond" not in name and "while" not in name:  # with the others inside, each would have its own predicate
        np.testing.assert_allclose(many("iaa")(np.moveaxis(x, 0, -1)), np.moveaxis(want, 0, -1), rtol=1e-12)
    np.testing.assert_allclose(many("aia")(np.moveaxis(x, 0, 1)), np.moveaxis(want, 0, 1), rtol=1e-12)
    np.testing.assert_allclose(many("aai")(x), want, rtol=1e-12)
    np.testing.assert_allclose(lw.jit(many("aai"))(x), want, rtol=1e-12)


def test_functions_with_rules():
    @lw.custom_jvp
    def f(x):
        return lax.psum(x * x, "i") * x
    f.defjvp(lambda p, t: (f(*p), 3 * lax.psum(t[0], "i")))
    np.testing.assert_allclose(over(f)(X), X * (X * X).sum(0))
    np.testing.assert_allclose(over(lambda x: lw.jvp(f, (x,), (x,))[1])(X), np.broadcast_to(3 * X.sum(0), X.shape))
    np.testing.assert_allclose(over(lw.grad(lambda x: np.sum(f(x))))(X), np.full(X.shape, 12.0))

    @lw.custom_vjp
    def g(x):
        return lax.psum(x, "i")
    g.defvjp(lambda x: (g(x), x), lambda x, ct: (lax.psum(ct, "i") * x * lax.axis_index("i"),))
    want = 4 * X * np.arange(4)[:, None]
    np.testing.assert_allclose(over(lw.grad(lambda x: np.sum(g(x))))(X), want)
    np.testing.assert_allclose(lw.grad(lambda x: np.sum(over(g)(x)))(X), want)
    np.testing.assert_allclose(lw.jit(over(lw.grad(lambda x: np.sum(g(x)))))(X), want)


def test_a_predicate_of_collectives_is_one_for_all():
    f = over(lambda x: lax.while_loop(lambda c: lax.psum(c, "i") < 100.0, lambda c: c * 2, x), out_axes=0)
    np.testing.assert_allclose(f(np.array([1.0, 2.0])), [64.0, 128.0])
    graph = lw.make_graph(f)(np.array([1.0, 2.0]))
    assert [n.op.name for n in graph.nodes if n.regions] == ["while"]  # no loop for each element


def test_jacobians_across_elements():
    x = np.array([0.3, -0.4, 0.9, 0.55])
    found = over(lambda x: lw.jacfwd(lambda y: lax.all_gather(y, "i") * y)(x))(x)
    # every element moves at once along its own tangent: d (x_j x_i) = x_j + x_i
    np.testing.assert_allclose(found, x[:, None] + x[None, :])


@given(st.lists(st.sampled_from(["psum", "pmean", "pmax", "gather", "scan", "jit", "index", "sin"]), min_size=1, max_size=5),
       st.integers(1, 5))
@examples(25)
def test_random_chains(steps, count):
    """A chain of collectives, against the same chain on all elements in NumPy."""
    each = {"psum": lambda x: lax.psum(x, "i") + x, "pmean": lambda x: lax.pmean(x, "i") * x,
            "pmax": lambda x: lax.pmax(x, "i") - x,
            "gather": lambda x: lax.all_gather(x, "i")[0] + x, "jit": lw.jit(lambda x: lax.psum(x * x, "i") - x),
            "scan": lambda x: lax.scan(lambda c, _: (c + lax.pmin(c, "i"), None), x, None, length=2)[0],
            "index": lambda x: x + lax.axis_index("i"), "sin": np.sin}
    whole = {"psum": lambda x: x.sum() + x, "pmean": lambda x: x.mean() * x, "pmax": lambda x: x.max() - x,
             "gather": lambda x: x[0] + x, "jit": lambda x: (x * x).sum() - x,
             "scan": lambda x: x + x.min() + (x + x.min()).min(), "index": lambda x: x + np.arange(len(x)), "sin": np.sin}

    def chain(x):
        for s in steps:
            x = each[s](x)
        return x
    x = np.linspace(-0.7, 0.8, count)
    want = x
    for s in steps:
        want = whole[s](want)
    np.testing.assert_allclose(over(chain)(x), want, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(lw.jit(over(chain))(x), want, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(over(lw.grad(chain))(x), lw.grad(lambda x: np.sum(over(chain)(x)))(x), rtol=1e-9, atol=1e-9)


# ---- errors -----------------------------------------------------------------------------------------
def test_unknown_names():
    with pytest.raises(lw.AxisNameError, match=r"test_named_axes\.py:\d+: pmax: .* axis 'k': the names here are 'i', 'j'"):
        lw.vmap(lw.vmap(lambda x: lax.pmax(x, "k"), axis_name="j"), axis_name="i")(X)
    with pytest.raises(lw.AxisNameError, match="no axis has a name here"):
        lax.psum(1.0, "i")
    with pytest.raises(NameError):
        lw.vmap(lambda x: lax.axis_index("i"))(X)
    with pytest.raises(lw.AxisNameError):  # a name ends with its vmap, also after an error
        lax.axis_size("i")
    with pytest.raises(lw.ArgumentError, match="names an axis twice"):
        over(lambda x: lax.psum(x, ("i", "i")))(X)
    with pytest.raises(lw.ShapeError, match="must have 4 places"):
        over(lambda x: lax.psum_scatter(x, "i"))(X)


def test_elements_that_part_ways():
    x = np.arange(3.0)
    line = {}

    def branch(x):
        line["psum"] = here() + 1
        return lax.psum(x, "i")

    def nested(x):
        return lax.scan(lambda c, _: (branch(c), None), x, None, length=2)[0]

    for f in (lambda x: lax.cond(x > 1, branch, lambda x: x, x),
              lambda x: lax.while_loop(lambda c: c < 5, lambda c: c + branch(c), x),
              lambda x: lax.cond(x > 1, nested, lambda x: x, x),
              lambda x: lax.while_loop(lambda c: branch(c) < x, lambda c: c + 1, x)):
        for g in (over(f), lw.jit(over(f)), over(lw.grad(f))):
            with pytest.raises(lw.CollectiveError) as caught:
                g(x)
            said = str(caught.value)
            assert f"test_named_axes.py:{line['psum']}: psum" in said and said.count("test_named_axes.py:") == 2, said


def here():
    return sys._getframe(1).f_lineno


def test_out_axes_that_do_not_fit():
    with pytest.raises(lw.ArgumentError, match="out_axes is None for a result that depends"):
        over(lambda x: x, out_axes=None)(X)
    np.testing.assert_array_equal(lw.vmap(lambda x: 7.0, out_axes=0)(X), [7.0] * 4)
    np.testing.assert_array_equal(lw.vmap(lambda x: np.arange(2.0), out_axes=1)(X), [[0.0] * 4, [1.0] * 4])
    with pytest.raises(lw.ShapeError, match="out of range"):
        lw.vmap(lambda x: 7.0, out_axes=1)(X)


# ---- JAX --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", [n for n in BODIES if n not in ("inside jit", "inside grad", "inside checkpoint", "permute")])
def test_jax_where_it_is_installed(name):
    """The same bodies with JAX's functions in place of ours."""
    jax = pytest.importorskip("jax", reason="compares with jax.lax where that is installed")
    body, x = BODIES[name], np.array([0.3, -0.4, 0.9, 0.55])
    ours = over(body)(x), None if name in ("pmax", "pmin") else over(lw.grad(body))(x)
    globals_ = {**body.__globals__, "lax": jax.lax, "np": jax.numpy}
    theirs = type(body)(body.__code__, globals_, body.__name__, body.__defaults__, body.__closure__)
    with jax.enable_x64(True):
        np.testing.assert_allclose(ours[0], jax.vmap(theirs, axis_name="i")(x), rtol=1e-12)
        if ours[1] is not None and name != "inside while":
            np.testing.assert_allclose(ours[1], jax.vmap(jax.grad(theirs), axis_name="i")(x), rtol=1e-10)
