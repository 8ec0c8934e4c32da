"""Derivatives that users write, and checkpoint: what they mean under every transform, and what their errors say."""
import functools

import numpy as np
import pytest

import loopwright as lw
from loopwright import lax
from loopwright.ir.expansion import expanded
from loopwright.ir.interpreter import evaluate
from loopwright.ir.ops.recomputation import POLICIES
from loopwright.ir.verifier import verify

X = np.linspace(-1.5, 2.0, 7)


# ---- custom_jvp -------------------------------------------------------------------------------------
@lw.custom_jvp
def tripled(x):
    """Squares, with a derivative that no program could guess: 3 x."""
    return x * x


@tripled.defjvp
def _(primals, tangents):
    (x,), (t,) = primals, tangents
    return tripled(x), 3.0 * x * t


@lw.custom_jvp
def log1pexp(x):
    return np.log(1.0 + np.exp(x))


@log1pexp.defjvp
def _(primals, tangents):
    (x,), (t,) = primals, tangents
    return log1pexp(x), (1.0 - 1.0 / (1.0 + np.exp(x))) * t


def total(f):
    return lambda *args: np.sum(f(*args))


def test_the_rule_is_the_derivative():
    assert tripled(2.0) == 4.0 and tripled.__name__ == "tripled" and "guess" in tripled.__doc__
    assert lw.grad(tripled)(2.0) == 6.0
    assert lw.jvp(tripled, (2.0,), (1.5,)) == (4.0, 9.0)
    assert lw.linearize(tripled, 2.0)[1](1.5) == 9.0
    np.testing.assert_array_equal(lw.grad(total(tripled))(X), 3 * X)
    np.testing.assert_array_equal(lw.jacfwd(tripled)(X), np.diag(3 * X))
    np.testing.assert_array_equal(lw.jacrev(tripled)(X), np.diag(3 * X))


def scanned(x):
    return lax.scan(lambda c, x: (c + tripled(x), None), 0.0, x)[0]


@pytest.mark.parametrize("f", [
    lambda x: lw.jit(lw.grad(total(tripled)))(x), lambda x: lw.grad(lw.jit(total(tripled)))(x),
    lambda x: lw.vmap(lw.grad(tripled))(x), lambda x: lw.grad(total(lw.vmap(tripled)))(x),
    lambda x: lw.jit(lw.vmap(lw.grad(tripled)))(x), lambda x: lw.grad(scanned)(x), lambda x: lw.jit(lw.grad(scanned))(x),
    lambda x: lw.grad(lambda x: np.sum(lax.map(tripled, x)))(x),
    lambda x: lw.grad(lambda x: lax.cond(True, total(tripled), total(np.sin), x))(x),
    lambda x: lw.grad(total(lw.checkpoint(tripled)))(x),
])
def test_the_rule_goes_through_every_transform(f):
    np.testing.assert_allclose(f(X), 3 * X, rtol=1e-15)


def test_a_rule_that_calls_its_function_serves_every_order():
    s = 1 / (1 + np.exp(-0.5))
    expected = [s, s * (1 - s), s * (1 - s) * (1 - 2 * s), s * (1 - s) * (1 - 6 * s + 6 * s * s)]
    f = log1pexp
    for want in expected:
        f = lw.grad(f)
        np.testing.assert_allclose(f(0.5), want, rtol=1e-12)
        np.testing.assert_allclose(lw.jit(f)(0.5), want, rtol=1e-12)
    assert lw.grad(log1pexp)(1000.0) == 1.0
    np.testing.assert_allclose(lw.hessian(log1pexp)(0.5), expected[1])
    assert lw.grad(lw.grad(tripled))(2.0) == 3.0  # of 3 x, whose slope is 3
    assert lw.grad(lw.grad(lambda x: lw.grad(tripled)(x) * tripled(x)))(2.0) == pytest.approx(3 * 4 * 0 + 2 * 3 * 6 + 6 * 3)


def test_a_straight_through_estimator():
    @lw.custom_jvp
    def rounded(x):
        return np.round(x)
    rounded.defjvp(lambda p, t: (rounded(*p), t[0]))
    np.testing.assert_array_equal(lw.grad(lambda x: np.sum(rounded(x) * X))(X), X)
    def run(x):
        return lax.scan(lambda c, x: (rounded(c * x), c), 1.5, x)[0]
    assert np.any(lw.grad(run)(np.array([1.2, 2.1])) != 0)
    np.testing.assert_array_equal(lw.grad(run)(np.array([1.2, 2.1])), lw.jit(lw.grad(run))(np.array([1.2, 2.1])))
    assert lw.grad(lambda x: lax.while_loop(lambda c: c < 10, lambda c: rounded(c * 2.0), x))(1.2) == 16.0


def test_containers_several_arguments_and_integers():
    @lw.custom_jvp
    def f(p, n):
        return {"y": p["a"] * n, "n": n + 1}

    @f.defjvp
    def _(primals, tangents):
        (p, n), (dp, dn) = primals, tangents
        assert dn.dtype == lw.float0
        return f(p, n), {"y": 10.0 * dp["a"] + dp["b"], "n": dn}
    value = {"a": 2.0, "b": 3.0}
    assert lw.grad(lambda p: f(p, 4)["y"])(value) == {"a": 10.0, "b": 1.0}
    assert lw.jit(lw.grad(lambda p: f(p, 4)["y"]))(value) == {"a": 10.0, "b": 1.0}
    assert f(value, 4) == {"y": 8.0, "n": 5}


def test_defjvps_gives_a_rule_for_each_argument():
    @lw.custom_jvp
    def f(x, y):
        return np.sin(x) * y
    f.defjvps(lambda t, ans, x, y: 2.0 * t * np.cos(x) * y, None)
    np.testing.assert_allclose(lw.grad(f, (0, 1))(1.0, 3.0), (6 * np.cos(1.0), 0.0))
    f.defjvps(lambda t, ans, x, y: 2.0 * t * np.cos(x) * y, lambda t, ans, x, y: ans * t)
    np.testing.assert_allclose(lw.grad(f, (0, 1))(1.0, 3.0), (6 * np.cos(1.0), 3 * np.sin(1.0)))


def test_nondiff_argnums_and_keywords():
    @functools.partial(lw.custom_jvp, nondiff_argnums=(0,))
    def apply(f, x, scale=2.0):
        return f(x) * scale

    @apply.defjvp
    def _(f, primals, tangents):
        return apply(f, *primals), primals[1] * 7.0 * tangents[0]
    assert apply(np.sin, 0.0, scale=3.0) == 0.0
    assert lw.grad(lambda x: apply(np.sin, x))(1.0) == 14.0
    assert lw.grad(lambda x: apply(np.sin, x, scale=3.0))(1.0) == 21.0


def test_values_known_outside_jit_steer_functions_and_rules():
    @lw.custom_jvp
    def f(x):
        return x if x > 0 else -x

    @f.defjvp
    def _(primals, tangents):
        return f(*primals), (2.0 if primals[0] > 0 else -2.0) * tangents[0]
    assert lw.grad(f)(3.0) == 2.0 and lw.grad(f)(-3.0) == -2.0
    with pytest.raises(lw.ConcretizationError):
        lw.jit(lw.grad(f))(3.0)


def test_what_a_function_closes_over_is_an_operand_and_constant():
    def f(x, w):
        @lw.custom_jvp
        def scaled(x):
            return w * x
        scaled.defjvp(lambda p, t: (scaled(*p), 5.0 * w * t[0]))
        return scaled(x)
    assert lw.grad(f)(3.0, 2.0) == 10.0
    np.testing.assert_array_equal(lw.vmap(lw.grad(f))(X, X), 5 * X)
    np.testing.assert_array_equal(lw.jit(lw.vmap(lw.grad(f), (None, 0)))(1.0, X), 5 * X)
    with pytest.raises(lw.GradientError, match="closes over"):
        lw.grad(f, 1)(3.0, 2.0)
    assert lw.grad(lambda x, w: f(x, lax.stop_gradient(w)) + w, 1)(3.0, 2.0) == 1.0


def test_a_rule_with_a_loop_over_primals_and_tangents():
    @lw.custom_jvp
    def power(x):
        return x ** 8

    @power.defjvp
    def _(primals, tangents):
        def step(c, _):
            y, t = c
            return (y * y, 2.0 * y * t), None
        return lax.scan(step, (primals[0], tangents[0]), length=3)[0]
    assert lw.jvp(power, (1.5,), (1.0,))[1] == pytest.approx(8 * 1.5 ** 7)
    assert lw.grad(power)(1.5) == pytest.approx(8 * 1.5 ** 7)
    assert lw.jit(lw.grad(power))(1.5) == pytest.approx(8 * 1.5 ** 7)
    np.testing.assert_allclose(lw.vmap(lw.grad(power))(X), 8 * X ** 7)
    assert lw.grad(lw.grad(power))(1.5) == pytest.approx(56 * 1.5 ** 6)


def test_methods():
    class Model:
        @functools.partial(lw.custom_jvp, nondiff_argnums=(0,))
        def run(self, x):
            return x

        @run.defjvp
        def _(self, primals, tangents):
            return primals[0], 4.0 * tangents[0]
    assert lw.grad(Model().run)(1.0) == 4.0


# ---- custom_vjp -------------------------------------------------------------------------------------
@lw.custom_vjp
def product(x, y):
    return x * y


product.defvjp(lambda x, y: (product(x, y), {"x": x, "y": y}), lambda kept, ct: (10.0 * ct * kept["y"], ct * kept["x"]))


def test_reverse_mode_runs_the_rules():
    assert product(2.0, 3.0) == 6.0
    assert lw.grad(product, (0, 1))(2.0, 3.0) == (30.0, 2.0)
    assert lw.jit(lw.grad(product, (0, 1)))(2.0, 3.0) == (30.0, 2.0)
    assert lw.vjp(product, 2.0, 3.0)[1](2.0) == (60.0, 4.0)
    for d in (lw.grad, lambda f, n: lw.jit(lw.grad(f, n))):
        rows = lw.vmap(d(product, (0, 1)))(X, X[::-1].copy())
        np.testing.assert_array_equal(rows, (10 * X[::-1], X))
    np.testing.assert_array_equal(lw.jacrev(product)(X, X), np.diag(10 * X))
    np.testing.assert_allclose(lw.grad(lambda x: lax.scan(lambda c, x: (product(c, x), None), 1.0, x)[0])(np.array([2.0, 3.0])),
                               [30.0, 2.0])
    assert lw.grad(lambda x: lax.while_loop(lambda c: c < 5.0, lambda c: product(c, 2.0), x))(1.0) == 8000.0


@pytest.mark.parametrize("jit", [False, True])
def test_an_argument_that_all_elements_share_gets_the_sum(jit):
    f = lambda x, w: np.sum(lw.vmap(product, (0, None))(x, w))  # noqa: E731
    g = lw.grad(f, (0, 1))
    dx, dw = (lw.jit(g) if jit else g)(X, 3.0)
    np.testing.assert_allclose(dx, np.full(7, 30.0))
    np.testing.assert_allclose(dw, np.sum(X))
    one = lw.vmap(lambda x: product(x, x), out_axes=0)(X)
    np.testing.assert_array_equal(one, X * X)


def test_higher_orders_differentiate_the_rules():
    assert lw.grad(lw.grad(product, 0), 1)(2.0, 3.0) == 10.0
    assert lw.grad(lw.grad(product, 1), 0)(2.0, 3.0) == 1.0
    inner = lw.grad(lambda x: product(x, x) * x)  # 10 x^2 + x^2 + x^2
    assert inner(2.0) == 48.0
    assert lw.grad(inner)(2.0) > 0


def test_static_containers_integers_and_none():
    @lw.custom_vjp
    def take(table, k, unused):
        return table["a"][k]
    take.defvjp(lambda t, k, u: (take(t, k, u), (t["a"], k)),
                lambda kept, ct: ({"a": np.where(np.arange(3) == kept[1], 2.0 * ct, kept[0] * 0.0)}, None, None))
    got = lw.grad(take, (0, 2))({"a": np.arange(3.0)}, 1, 5.0)
    np.testing.assert_array_equal(got[0]["a"], [0.0, 2.0, 0.0])
    assert got[1] == 0.0


def test_nondiff_argnums_of_custom_vjp():
    @functools.partial(lw.custom_vjp, nondiff_argnums=(0, 2))
    def apply(f, x, n):
        return f(x)
    apply.defvjp(lambda f, x, n: (f(x), x), lambda f, n, x, ct: (ct * n,))
    assert lw.grad(lambda x: apply(np.sin, x, 3))(1.0) == 3.0


def test_forward_mode_of_custom_vjp_is_refused():
    for call in (lambda: lw.jvp(product, (1.0, 2.0), (1.0, 1.0)), lambda: lw.jacfwd(product)(1.0, 2.0),
                 lambda: lw.jit(lw.jacfwd(product))(1.0, 2.0), lambda: lw.linearize(product, 1.0, 2.0)[1](1.0, 1.0),
                 lambda: lw.grad(lambda x: lw.jvp(lambda y: product(y, x), (x,), (1.0,))[1])(1.0)):
        with pytest.raises(lw.GradientError, match="forward mode"):
            call()


def test_closed_over_values_of_custom_vjp():
    def f(x, w):
        @lw.custom_vjp
        def scaled(x):
            return w * x
        scaled.defvjp(lambda x: (w * x, x), lambda x, ct: (3.0 * w * ct,))
        return scaled(x)
    np.testing.assert_array_equal(lw.vmap(lw.grad(f))(X, X), 3 * X)
    np.testing.assert_array_equal(lw.jit(lw.vmap(lw.grad(f)))(X, X), 3 * X)
    with pytest.raises(lw.GradientError, match="closes over"):
        lw.grad(f, 1)(3.0, 2.0)


# ---- errors -----------------------------------------------------------------------------------------
def a_jvp(rule):
    f = lw.custom_jvp(lambda x: {"y": x * 2.0})
    f.defjvp(rule)
    return lambda x: np.sum(f(x)["y"])


@pytest.mark.parametrize(("rule", "error", "said"), [
    (lambda p, t: p[0], lw.ArgumentError, "must return a pair"),
    (lambda p, t: (p[0], t[0]), lw.ArgumentError, r"dict\(\['y'\]: \*\), but returned \*"),
    (lambda p, t: ({"y": p[0]}, {"y": np.sum(t[0])}), lw.ShapeError, r"tangent\['y'\] has type f64\[\].*f64\["),
    (lambda p, t: ({"y": p[0]}, {"y": t[0].astype(np.float32)}), lw.DTypeError, r"f32\[.*f64\["),
    (lambda p, t: ({"y": p[0] > 0}, {"y": t[0]}), lw.DTypeError, r"result\['y'\] has type bool\["),
    (lambda p, t: ({"y": p[0]}, {"y": t[0] * t[0]}), lw.GradientError, "must be linear in the tangents, but mul"),
])
def test_rules_of_custom_jvp_that_do_not_fit(rule, error, said):
    for g in (lw.grad(a_jvp(rule)), lw.jit(lw.grad(a_jvp(rule)))):
        with pytest.raises(error, match=said) as caught:
            g(X)
        assert "test_custom_rules.py" in str(caught.value)


@pytest.mark.parametrize(("forward", "backward", "error", "said"), [
    (lambda x: x, lambda r, ct: (ct,), lw.ArgumentError, "pair"),
    (lambda x: ((x, x), None), lambda r, ct: (ct,), lw.ArgumentError, "but returned"),
    (lambda x: (x * 2, None), lambda r, ct: ct, lw.ArgumentError, "tuple with one cotangent for each of 1 arguments"),
    (lambda x: (x * 2, None), lambda r, ct: (ct, ct), lw.ArgumentError, "got 2 entries"),
    (lambda x: (x * 2, None), lambda r, ct: ([ct],), lw.ArgumentError, "containers of the arguments"),
    (lambda x: (x * 2, None), lambda r, ct: (np.sum(ct),), lw.ShapeError,
     r"cotangent of argument 0 has type f64\[\], but its shape must be that of f64\[7\]. Reshape it"),
    (lambda x: (x * 2, None), lambda r, ct: (ct.astype(np.complex128),), lw.DTypeError, "c128"),
])
def test_rules_of_custom_vjp_that_do_not_fit(forward, backward, error, said):
    f = lw.custom_vjp(lambda x: x * 2)
    f.defvjp(forward, backward)
    with pytest.raises(error, match=said) as caught:
        lw.grad(total(f))(X)
    assert "test_custom_rules.py:" in str(caught.value)


def test_missing_rules_and_other_mistakes():
    with pytest.raises(lw.GradientError, match=r"Give them with f\.defjvp"):
        lw.custom_jvp(f := named("f"))(1.0)
    with pytest.raises(lw.GradientError, match=r"Give them with f\.defvjp"):
        lw.custom_vjp(f)(1.0)
    with pytest.raises(lw.ArgumentError, match="expected a function"):
        lw.custom_jvp(3)
    g = lw.custom_jvp(lambda x: x, nondiff_argnums=(0,))
    with pytest.raises(lw.ArgumentError, match="defjvps"):
        g.defjvps(None)
    with pytest.raises(lw.ArgumentError, match="no policy"):
        lw.checkpoint(np.sin, policy="some")


def named(name):
    def f(x):
        return x
    f.__name__ = name
    return f


# ---- checkpoint -------------------------------------------------------------------------------------
def layer(x, w):
    return np.tanh(lw.checkpoint_name(np.tanh(x @ w), "inner") @ w)


W = np.random.default_rng(0).normal(size=(3, 3)) * 0.4


@pytest.mark.parametrize("policy", [
    None, *POLICIES, lw.checkpoint_policies.save_only_these_names("inner", "other"),
    lw.checkpoint_policies.save_any_names_but_these("other"), lw.checkpoint_policies.save_anything_except_these_names("inner")])
def test_checkpoint_changes_no_value(policy):
    h = lw.checkpoint(layer, policy=policy)
    def loss(f):
        return lambda x, w: np.sum(f(f(x, w), w=w) ** 2)
    x = np.ones((2, 3))
    for t in (lambda f: lw.grad(f, (0, 1)), lambda f: lw.jit(lw.grad(f, (0, 1))), lambda f: lw.hessian(f, 1),
              lambda f: lw.jacfwd(lw.jacfwd(f)), lambda f: lw.vmap(lw.grad(f, 1), (0, None)),
              lambda f: lw.jit(lw.value_and_grad(f)), lambda f: lw.jit(lw.hessian(f))):
        for got, want in zip(t(loss(h))(x, W), t(loss(layer))(x, W), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)
    def run(f):
        return lambda w: np.sum(lax.scan(lambda c, _: (f(c, w), None), x, length=4)[0])
    np.testing.assert_allclose(lw.jit(lw.grad(run(h)))(W), lw.grad(run(layer))(W), rtol=1e-10)


def residuals_of(policy):
    """The operands of the backward node, and how often it multiplies matrices."""
    h = lw.checkpoint(layer, policy=policy)
    g = verify(lw.make_graph(lw.grad(lambda x, w: np.sum(h(x, w)), 1))(np.ones((2, 3)), W))
    assert lw.parse(str(g)) == g
    backward = [n for n in g.nodes if n.op.name == "checkpoint"][-1]
    return len(backward.inputs), sum(n.op.name == "dot_general" for n in backward.regions[0].nodes)


def test_what_checkpoint_keeps():
    assert residuals_of(None) == (3, 5)  # x, w, the cotangent; two products again, three of the backward pass
    assert residuals_of("dots_saveable") == (5, 3)
    assert residuals_of("checkpoint_dots") == residuals_of("dots_with_no_batch_dims_saveable") == (5, 3)
    assert residuals_of("everything_saveable")[1] == 3


def test_products_with_batch_axes_are_computed_again():
    def products(policy):
        h = lw.checkpoint(lambda x, w: np.sum(np.sin(np.sin(np.einsum("bij,bjk->bik", x, x)) @ w)), policy=policy)
        g = lw.make_graph(lw.grad(h))(np.ones((2, 3, 3)), W)
        backward = [n for n in g.nodes if n.op.name == "checkpoint"][-1].regions[0]
        return sum(n.op.name == "dot_general" for n in backward.nodes)
    assert products("dots_saveable") == products("checkpoint_dots") == 3
    assert products("dots_with_no_batch_dims_saveable") == products("checkpoint_dots_with_no_batch_dims") == 4
    assert products("nothing_saveable") == products(None) == 5


def test_what_is_kept_by_name():
    named = lw.checkpoint_policies
    assert residuals_of(named.save_only_these_names("inner")) == (4, 4)  # the outer product is computed again
    assert residuals_of(named.save_only_these_names("other")) == residuals_of(named.save_only_these_names()) == (3, 5)
    assert residuals_of(named.save_any_names_but_these("other")) == (4, 4)
    assert residuals_of(named.save_any_names_but_these("inner")) == (3, 5)
    assert residuals_of(named.save_anything_except_these_names("inner"))[1] == 3
    with pytest.raises(lw.ArgumentError, match="takes names, as strings"):
        named.save_only_these_names(3)
    with pytest.raises(lw.ArgumentError, match="the name must be a string"):
        lw.checkpoint_name(1.0, 2)
    assert lw.checkpoint_name({"a": 1, "b": X}, "name")["b"] is X


def test_compiled_code_computes_it_again():
    h = lw.checkpoint(layer)
    f = lambda x, w: np.sum(h(x, w))  # noqa: E731
    g = lw.make_graph(lw.value_and_grad(f, 1))(np.ones((2, 3)), W)
    done = verify(expanded(g))
    assert all(n.op.expand is None for n in done.nodes)
    assert sum(n.op.name == "dot_general" for n in done.nodes) == 2 + 5
    for got, want in zip(evaluate(done, [np.ones((2, 3)), W]), evaluate(g, [np.ones((2, 3)), W]), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)


def test_checkpoint_of_settings():
    @functools.partial(lw.remat, static_argnums=(1,))
    def f(x, kind):
        return np.sin(x) if kind == "sin" else x
    assert lw.grad(f)(1.0, "sin") == pytest.approx(np.cos(1.0))
    assert lw.jit(lw.grad(lambda x: f(x, "other")))(1.0) == 1.0


# ---- beside JAX -------------------------------------------------------------------------------------
def derivatives_of_a_program(m, np_):
    f = m.custom_jvp(lambda x, y: np_.sin(x) * y)
    f.defjvp(lambda p, t: (f(*p), 2.0 * np_.cos(p[0]) * p[1] * t[0] + f(p[0], 3.0) * t[1]))
    g = m.custom_vjp(lambda x, y: np_.exp(x * y))
    g.defvjp(lambda x, y: (g(x, y), (x, y, g(x, y))), lambda r, ct: (ct * r[1] * r[2] * 3.0, ct * r[0] + r[2]))

    def loss(x, y):
        rows = m.vmap(lambda a: g(f(a, y), y))(x)
        return np_.sum(rows * m.checkpoint(f)(x, y)) + f(y, g(y, y))
    return [*m.grad(loss, (0, 1))(X, 0.7), *m.jit(m.grad(loss, (0, 1)))(X, 0.7),
            *m.jacrev(m.grad(loss, (0, 1)), 1)(X, 0.7)]


def test_the_same_program_in_jax():
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    found = [derivatives_of_a_program(m, np_) for m, np_ in ((lw, np), (jax, jax.numpy))]
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, np.asarray(theirs), rtol=1e-10)
