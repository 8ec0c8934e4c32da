"""vmap where each element has its own condition and the body multiplies matrices: all at once, each as if it were alone."""
import numpy as np
import pytest

import loopwright as lw
from loopwright import lax
from loopwright.ir.rewriting import simplify
from loopwright.ir.verifier import verify

N, B = 12, 5
RNG = np.random.default_rng(3)
W = RNG.normal(size=(N, N)) / N
STARTS = RNG.normal(size=(B, N)) * np.array([0.0, 0.3, 1.0, 3.0, 30.0])[:, None]  # from no trip to many
take = lw.numpy.take


def shrinking(x, w=W):
    """A while of as many trips as the element needs."""
    return lax.while_loop(lambda v: np.sum(v * v) > 0.5, lambda v: np.tanh(w @ v) * 0.9, x)


def plain_shrinking(x, w=W):
    while np.sum(x * x) > 0.5:
        x = np.tanh(w @ x) * 0.9
    return x


def folded(x, n):
    return lax.fori_loop(0, n, lambda i, v: W @ v + take(x, i), x)


def plain_folded(x, n):
    v = x
    for i in range(n):
        v = W @ v + x[i]
    return v


def differences(f, x, step=1e-6):
    """The gradient of a real function of one array."""
    out = np.zeros(x.shape)
    for at in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[at] += step
        down[at] -= step
        out[at] = (f(up) - f(down)) / (2 * step)
    return out


def is_masked(f, *args, **axes):
    g = verify(simplify(verify(lw.make_graph(lw.vmap(f, **axes))(*args))))
    return not any(n.op.name == "scan" for n in g.nodes)


# ---- loops ----------------------------------------------------------------------------------------
def test_a_while_around_a_product_is_one_loop_for_all():
    assert is_masked(shrinking, STARTS)
    want = np.stack([plain_shrinking(x) for x in STARTS])
    for g in (lw.vmap(shrinking), lw.jit(lw.vmap(shrinking))):
        np.testing.assert_allclose(g(STARTS), want, rtol=1e-12)
        np.testing.assert_allclose(g(STARTS[:1]), want[:1], rtol=1e-12)
    np.testing.assert_allclose(lw.vmap(shrinking, in_axes=1, out_axes=1)(STARTS.T), want.T, rtol=1e-12)


def test_small_bodies_and_bodies_of_little_product_are_a_loop_for_each():
    assert not is_masked(lambda x: lax.while_loop(lambda v: v < 10.0, lambda v: v * 2.0, x), STARTS[:, 0])
    u = np.ones((3, 3))
    assert not is_masked(lambda x: lax.while_loop(lambda v: v[0] < 9.0, lambda v: np.exp(np.sin(u @ v)), x),
                         np.ones((4, 3)))  # sizes are symbols here, so they count as large
    each = np.stack([W] * B)
    assert not is_masked(lambda x, w: shrinking(x, w), STARTS, each)  # nothing is shared: nothing is gained


def test_no_element_and_one():
    f = lw.jit(lw.vmap(shrinking))
    assert f(np.zeros((0, N))).shape == (0, N)
    assert lw.vmap(shrinking)(np.zeros((0, N))).shape == (0, N)


def test_counts_of_their_own():
    counts = np.array([0, 3, 1, 7, 12])
    want = np.stack([plain_folded(x, n) for x, n in zip(STARTS, counts, strict=True)])
    assert is_masked(folded, STARTS, counts)
    for g in (lw.vmap(folded), lw.jit(lw.vmap(folded))):
        np.testing.assert_allclose(g(STARTS, counts), want, rtol=1e-12)


def test_finished_elements_read_nothing_out_of_range_and_others_fail_as_alone():
    f = lw.jit(lw.vmap(lambda x, n: lax.fori_loop(0, n, lambda i, v: W @ v + x[i], x)))
    counts = np.array([N, 3, 1, 0, 12])  # the first goes to the end, where the others would read past it
    want = np.stack([plain_folded(x, n) for x, n in zip(STARTS, counts, strict=True)])
    np.testing.assert_allclose(f(STARTS, counts), want, rtol=1e-12)
    with pytest.raises(IndexError, match=f"index {N} is out of bounds for axis 0 with size {N}"):
        f(STARTS, np.array([1, 2, N + 1, 0, 0]))


def test_inner_loops_of_finished_elements_end():
    """The inner loop ends only for a state at which the outer still runs."""
    def f(x):
        def outer(v):
            start = np.where(v[0] < 10.0, 3.0, 11.0)
            inner = lax.while_loop(lambda u: u != 0.0, lambda u: np.where(u > 10.0, u, u - 1.0), start)
            return W @ v * inner + v + 2.0
        return lax.while_loop(lambda v: v[0] < 10.0, outer, x)

    def alone(x):
        while x[0] < 10:
            x = x + 2.0  # the inner loop gives 0
        return x
    x = np.arange(4.0)[:, None] * 5 + np.ones(N)
    assert is_masked(f, x)
    np.testing.assert_allclose(lw.jit(lw.vmap(f))(x), np.stack([alone(v) for v in x]))


# ---- derivatives ----------------------------------------------------------------------------------
def test_gradients_through_all_at_once_are_differences():
    def loss(xs, w):
        return np.sum(np.sin(lw.vmap(shrinking, in_axes=(0, None))(xs, w)))

    def alone(xs, w):
        return sum(np.sum(np.sin(plain_shrinking(x, w))) for x in xs)
    for g in (lw.grad(loss, argnums=(0, 1)), lw.jit(lw.grad(loss, argnums=(0, 1)))):
        dx, dw = g(STARTS, W)
        np.testing.assert_allclose(dx, differences(lambda x: alone(x, W), STARTS), rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(dw, differences(lambda w: alone(STARTS, w), W), rtol=1e-6, atol=1e-8)
    moved = lw.jit(lambda x, d: lw.jvp(lw.vmap(shrinking), (x,), (d,))[1])(STARTS, np.cos(STARTS))
    step = 1e-6
    want = [plain_shrinking(x + step * np.cos(x)) - plain_shrinking(x - step * np.cos(x)) for x in STARTS]
    np.testing.assert_allclose(moved, np.stack(want) / (2 * step), rtol=1e-6, atol=1e-9)


def test_gradients_of_each_are_those_alone():
    def loss(x):
        return np.sum(shrinking(x) ** 2)
    want = np.stack([differences(lambda v: np.sum(plain_shrinking(v) ** 2), x) for x in STARTS])
    for g in (lw.vmap(lw.grad(loss)), lw.jit(lw.vmap(lw.grad(loss)))):
        np.testing.assert_allclose(g(STARTS), want, rtol=1e-6, atol=1e-9)


def test_no_nan_from_elements_that_are_done():
    """Past its end an element would take the root of a negative number, behind and before a product of matrices."""
    half = np.eye(N) * 0.5

    def f(x):
        return np.sum(lax.while_loop(lambda v: v[0] > 1.0, lambda v: half @ np.sqrt(half @ v - 0.45) + 0.3, x))

    def alone(x):
        while x[0] > 1.0:
            x = 0.5 * np.sqrt(0.5 * x - 0.45) + 0.3
        return np.sum(x)
    x = np.array([1.2, 0.5, 40.0, 0.95, -3.0])[:, None] + np.zeros(N)
    want = np.stack([differences(alone, v) for v in x])
    assert is_masked(f, x)
    for g in (lw.grad(lambda x: np.sum(lw.vmap(f)(x))), lw.jit(lw.grad(lambda x: np.sum(lw.vmap(f)(x)))), lw.vmap(lw.grad(f))):
        np.testing.assert_allclose(g(x), want, rtol=1e-6, atol=1e-9)


def test_second_derivatives():
    def f(x):
        return np.sum(np.sin(shrinking(x)))
    one, v = STARTS[:4], np.cos(STARTS[:4])

    def product(g):
        return lambda x: lw.jvp(lw.grad(g), (x,), (v,))[1]
    got = lw.jit(product(lambda x: np.sum(lw.vmap(f)(x))))(one)
    step = 1e-5
    want = [lw.grad(f)(x + step * d) - lw.grad(f)(x - step * d) for x, d in zip(one, v, strict=True)]
    np.testing.assert_allclose(got, np.stack(want) / (2 * step), rtol=1e-5, atol=1e-8)


def test_two_axes():
    def f(x, s):
        return lax.while_loop(lambda v: np.sum(v * v) > 0.5, lambda v: np.tanh(W @ v) * s, x)
    scales = np.array([0.5, 0.9, 0.2])
    both = lw.vmap(lw.vmap(f, in_axes=(None, 0)), in_axes=(0, None))
    want = np.empty((B, 3, N))
    for i, x in enumerate(STARTS):
        for j, s in enumerate(scales):
            v = x
            while np.sum(v * v) > 0.5:
                v = np.tanh(W @ v) * s
            want[i, j] = v
    for g in (both, lw.jit(both)):
        np.testing.assert_allclose(g(STARTS, scales), want, rtol=1e-12)


# ---- branches -------------------------------------------------------------------------------------
def layered(n, x, w=W):
    return lax.switch(n, [lambda v: np.sqrt(w @ v), lambda v: w @ (w @ v), lambda v: np.log(w @ v + take(v, n))], x)


def plain_layered(n, x, w=W):
    return [lambda v: np.sqrt(w @ v), lambda v: w @ (w @ v), lambda v: np.log(w @ v + v[n])][n](x)


@pytest.mark.parametrize("which", [[0, 1, 2, 1, 0], [1, 1, 1, 1, 1], [2, 2, 0, 2, 2]])
def test_branches_of_products_run_once_for_all_that_take_them(which):
    which, w = np.array(which), np.abs(W)
    x = np.abs(STARTS) + 0.1
    x[which == 1] *= -1  # the other branches have NaN there
    want = np.stack([plain_layered(n, v, w) for n, v in zip(which, x, strict=True)])
    assert np.all(np.isfinite(want)) and is_masked(layered, which, x, w, in_axes=(0, 0, None))
    mapped = lw.vmap(layered, in_axes=(0, 0, None))
    for g in (mapped, lw.jit(mapped)):
        np.testing.assert_allclose(g(which, x, w), want, rtol=1e-12)

    def loss(x, w):
        return np.sum(np.sin(mapped(which, x, w)))

    def alone(x, w):
        return sum(np.sum(np.sin(plain_layered(n, v, w))) for n, v in zip(which, x, strict=True))
    for g in (lw.grad(loss, argnums=(0, 1)), lw.jit(lw.grad(loss, argnums=(0, 1)))):
        dx, dw = g(x, w)
        np.testing.assert_allclose(dx, differences(lambda v: alone(v, w), x), rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(dw, differences(lambda v: alone(x, v), w), rtol=1e-5, atol=1e-7)
    each = lw.jit(lw.vmap(lw.grad(lambda v, n: np.sum(np.sin(layered(n, v, w))))))(x, which)
    np.testing.assert_allclose(each, differences(lambda v: alone(v, w), x), rtol=1e-5, atol=1e-7)


def test_branches_inside_loops_that_end_at_different_times():
    def f(x):
        return lax.while_loop(lambda v: np.sum(v * v) > 0.5,
                              lambda v: lax.cond(v[0] > 0, lambda: np.tanh(W @ v) * 0.5, lambda: W @ np.sin(v) * 0.5), x)

    def alone(v):
        while np.sum(v * v) > 0.5:
            v = np.tanh(W @ v) * 0.5 if v[0] > 0 else W @ np.sin(v) * 0.5
        return v
    np.testing.assert_allclose(lw.jit(lw.vmap(f))(STARTS), np.stack([alone(x) for x in STARTS]), rtol=1e-12)
    got = lw.jit(lw.grad(lambda x: np.sum(lw.vmap(f)(x) ** 2)))(STARTS)
    want = np.stack([differences(lambda v: np.sum(alone(v) ** 2), x) for x in STARTS])
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-9)
