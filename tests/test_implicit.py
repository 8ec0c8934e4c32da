"""custom_root and custom_linear_solve: derivatives by the implicit function theorem, whatever the solver does."""

import numpy as np
import pytest

import loopwright as lw
from loopwright import lax
from loopwright import numpy as lnp

WAYS = {"plain": lambda f: f, "jit": lw.jit}
ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


def newton(f, x):
    return lax.while_loop(lambda x: np.abs(f(x)) > 1e-12, lambda x: x - f(x) / lw.grad(f)(x), x)


def divided(g, y):
    return y / g(1.0)


def dense(g, y):
    return np.linalg.solve(lw.jacfwd(g)(y), y)


def cube_root(a):
    return lax.custom_root(lambda x: x ** 3 - a, 1.0, newton, divided)


SLOPES = (lambda a: a ** (1 / 3), lambda a: a ** (-2 / 3) / 3, lambda a: -2 / 9 * a ** (-5 / 3),
          lambda a: 10 / 27 * a ** (-8 / 3))


# ---- roots ------------------------------------------------------------------------------------------
@ways
def test_every_order_forward_and_reverse(way):
    forward = reverse = cube_root
    for want in SLOPES:
        np.testing.assert_allclose([way(forward)(8.0), way(reverse)(8.0)], want(8.0), rtol=1e-10)
        forward = (lambda f: lambda a: lw.jvp(f, (a,), (1.0,))[1])(forward)
        reverse = lw.grad(reverse)
    mixed = lw.grad(lambda a: lw.jvp(lw.grad(cube_root), (a,), (1.0,))[1])
    np.testing.assert_allclose(way(mixed)(8.0), SLOPES[3](8.0), rtol=1e-10)
    np.testing.assert_allclose(way(lw.hessian(cube_root))(8.0), SLOPES[2](8.0), rtol=1e-10)


@ways
def test_batches_and_loops(way):
    a = np.array([8.0, 27.0, 0.5])
    for k, f in enumerate((cube_root, lw.grad(cube_root), lw.grad(lw.grad(cube_root)))):
        np.testing.assert_allclose(way(lw.vmap(f))(a), SLOPES[k](a), rtol=1e-9)
        np.testing.assert_allclose(way(lambda a, f=f: lax.map(f, a))(a), SLOPES[k](a), rtol=1e-9)
    np.testing.assert_allclose(way(lw.grad(lambda a: np.sum(lw.vmap(cube_root)(a))))(a), SLOPES[1](a), rtol=1e-9)
    np.testing.assert_allclose(way(lw.jacrev(lw.vmap(cube_root)))(a), np.diag(SLOPES[1](a)), rtol=1e-9)

    def repeated(a):
        return lax.fori_loop(0, 2, lambda i, x: cube_root(x), a)
    np.testing.assert_allclose(way(lw.grad(repeated))(8.0), 8.0 ** (-8 / 9) / 9, rtol=1e-9)
    np.testing.assert_allclose(way(lw.grad(lambda a: lax.cond(a > 1, cube_root, np.sin, a)))(8.0), SLOPES[1](8.0), rtol=1e-9)


def kepler(args):
    """E - e sin E = M, solved by bisection, of which no derivative could be taken."""
    e, mean = args["e"], args["M"]

    def f(x):
        return x - e * np.sin(x) - mean

    def bisect(f, _):
        def step(i, ends):
            middle = 0.5 * (ends[0] + ends[1])
            return lnp.where(f(middle) > 0, ends[0], middle), lnp.where(f(middle) > 0, middle, ends[1])
        low, high = lax.fori_loop(0, 60, step, (mean - 1.0, mean + 1.0))
        return 0.5 * (low + high)
    return lax.custom_root(f, mean, bisect, divided)


@ways
def test_a_solver_that_cannot_be_differentiated(way):
    args = {"e": 0.3, "M": 1.2}
    x = kepler(args)
    bottom = 1 - 0.3 * np.cos(x)
    found = way(lw.grad(kepler))(args)
    np.testing.assert_allclose([found["e"], found["M"]], [np.sin(x) / bottom, 1 / bottom], rtol=1e-9)
    second = way(lw.hessian(kepler))(args)
    np.testing.assert_allclose(second["M"]["M"], -0.3 * np.sin(x) / bottom ** 3, rtol=1e-9)
    crossed = np.cos(x) / bottom ** 2 - 0.3 * np.sin(x) * np.sin(x) / bottom ** 3
    np.testing.assert_allclose([second["M"]["e"], second["e"]["M"]], crossed, rtol=1e-9)


def coupled(theta):
    """Two unknowns in a container, of different shapes: y_i = sin(u) + theta_i, u = mean(y) / 3."""
    def f(x):
        return {"y": x["y"] - np.sin(x["u"]) - theta, "u": x["u"] - np.mean(x["y"]) / 3}

    def repeated(f, x):
        def step(i, x):
            r = f(x)
            return {k: x[k] - r[k] for k in x}
        return lax.fori_loop(0, 80, step, x)

    def solved(g, b):
        n = b["y"].shape[0]

        def flat(v):
            out = g({"y": v[:n], "u": v[n]})
            return lnp.concatenate([out["y"], out["u"][None]])
        x = np.linalg.solve(lw.jacfwd(flat)(lnp.zeros(n + 1)), lnp.concatenate([b["y"], b["u"][None]]))
        return {"y": x[:n], "u": x[n]}
    return lax.custom_root(f, {"y": lnp.zeros_like(theta), "u": 0.0}, repeated, solved)


def test_containers_of_unknowns_and_symbolic_sizes():
    def loss(theta):
        found = coupled(theta)
        return np.sum(found["y"] ** 2) + found["u"]

    slope, second = lw.jit(lw.grad(loss)), lw.jit(lambda t, d: lw.jvp(lw.grad(loss), (t,), (d,))[1])
    rng = np.random.default_rng(0)
    for n in (2, 4, 5):
        theta, d = rng.normal(size=n), rng.normal(size=n)
        x = coupled(theta)
        np.testing.assert_allclose(x["u"], np.mean(np.sin(x["u"]) + theta) / 3, rtol=1e-12)
        steps = np.eye(n) * 1e-6
        want = [(loss(theta + h) - loss(theta - h)) / 2e-6 for h in steps]
        np.testing.assert_allclose(slope(theta), want, rtol=1e-6)
        want = (slope(theta + 1e-6 * d) - slope(theta - 1e-6 * d)) / 2e-6
        np.testing.assert_allclose(second(theta, d), want, rtol=1e-5, atol=1e-8)
    assert slope.compiles == 1 and second.compiles == 1
    rows = rng.normal(size=(3, 4))
    np.testing.assert_allclose(lw.vmap(lw.grad(loss))(rows), [slope(t) for t in rows], rtol=1e-9)


@ways
def test_what_else_a_solver_returns_has_no_derivative(way):
    def counted(f, x):
        def step(s):
            return s[0] - f(s[0]) / lw.grad(f)(s[0]), s[1] + 1
        x, n = lax.while_loop(lambda s: np.abs(f(s[0])) > 1e-12, step, (x, 0))
        return x, {"steps": n, "residual": f(x)}

    def f(a):
        x, aux = lax.custom_root(lambda x: x * x - a, 1.0, counted, divided, has_aux=True)
        return x + 100.0 * aux["residual"], aux["steps"]
    (value, steps), slope = way(lw.value_and_grad(f, has_aux=True))(4.0)
    assert steps > 3
    np.testing.assert_allclose([value, slope], [2.0, 0.25], rtol=1e-9)
    slopes, each = way(lw.vmap(lw.grad(f, has_aux=True)))(np.array([4.0, 1.0]))
    np.testing.assert_allclose(slopes, [0.25, 0.5], rtol=1e-9)
    assert each.tolist() == [steps, 0]


@ways
def test_guesses_and_what_only_solvers_close_over_are_constant(way):
    def f(a, guess, damping):
        def damped(g, x):
            return lax.fori_loop(0, 200, lambda i, x: x - damping * g(x) / lw.grad(g)(x), x)
        return lax.custom_root(lambda x: x * x - a, guess, damped, divided)
    np.testing.assert_allclose(way(lw.grad(f, (0, 1, 2)))(4.0, 3.0, 0.5), [0.25, 0.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(way(lambda *x: lw.jvp(f, x, (1.0, 1.0, 1.0))[1])(4.0, 3.0, 0.5), 0.25)
    fixed = lw.grad(lambda g: lax.custom_root(lambda x: x - 1.0, g, lambda f, x: x - f(x), divided))
    assert way(fixed)(5.0) == 0.0


@ways
def test_named_axes_checkpoints_jit_and_integers(way):
    def shared(a):
        return lax.custom_root(lambda x: x ** 3 - lax.psum(a, "i"), 1.0, newton, divided)
    a, slope = np.array([8.0, 27.0]), 35.0 ** (-2 / 3) / 3
    np.testing.assert_allclose(way(lw.vmap(shared, axis_name="i"))(a), [35.0 ** (1 / 3)] * 2)
    np.testing.assert_allclose(way(lw.vmap(lw.grad(shared), axis_name="i"))(a), [2 * slope] * 2)
    np.testing.assert_allclose(way(lw.grad(lambda a: np.sum(lw.vmap(shared, axis_name="i")(a))))(a), [2 * slope] * 2)
    np.testing.assert_allclose(way(lw.grad(lw.grad(lw.checkpoint(cube_root))))(8.0), -1 / 144)

    def any_root(a, n):
        return lax.custom_root(lw.jit(lambda x: x ** n - a), 1.5, newton, divided)
    np.testing.assert_allclose(way(lw.vmap(lw.grad(any_root)))(np.array([8.0, 16.0]), np.array([3, 4])), [1 / 12, 1 / 32])

    def nested(a):
        return lax.custom_root(lambda x: x - cube_root(cube_root(a) + 0 * x), 1.0, lambda f, x: x - f(x), divided)
    np.testing.assert_allclose(way(lw.grad(nested))(8.0), 8.0 ** (-8 / 9) / 9, rtol=1e-9)


# ---- linear systems -----------------------------------------------------------------------------------
def conjugate_gradients(matvec, b):
    def step(s):
        x, r, p, rr = s
        ap = matvec(p)
        alpha = rr / (p @ ap)
        x, r = x + alpha * p, r - alpha * ap
        new = r @ r
        return x, r, r + (new / rr) * p, new
    return lax.while_loop(lambda s: s[3] > 1e-26, step, (lnp.zeros_like(b), b, b, b @ b))[0]


def spd(a, b):
    return lax.custom_linear_solve(lambda x: a @ (a.T @ x) + x, b, conjugate_gradients, symmetric=True)


def general(a, b):
    def solve(_, b):
        return np.linalg.solve(a, b)
    return lax.custom_linear_solve(lambda x: a @ x, b, solve, lambda _, b: np.linalg.solve(a.T, b))


def by_matvec(a, b):
    """The solvers know the system only by what it does to vectors."""
    return lax.custom_linear_solve(lambda x: a @ x, b, dense, dense)


DENSE = {"spd": (spd, lambda a, b: np.linalg.solve(a @ a.T + lnp.eye(a.shape[0]), b)),
         "general": (general, np.linalg.solve), "by_matvec": (by_matvec, np.linalg.solve)}


@ways
@pytest.mark.parametrize("name", DENSE)
def test_systems_are_those_of_dense_matrices(way, name):
    f, g = DENSE[name]
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(3, 3)) + 2 * np.eye(3), rng.normal(size=3)
    da, db = rng.normal(size=(3, 3)), rng.normal(size=3)

    def both(f):
        def loss(a, b):
            return np.sum(f(a, b) ** 3)
        second = lw.grad(lambda a, b: np.sum(lw.jvp(lw.grad(loss, (0, 1)), (a, b), (da, db))[1][0] * da), (0, 1))
        return [f(a, b), lw.jvp(f, (a, b), (da, db))[1], *way(lw.grad(loss, (0, 1)))(a, b), way(lw.jacrev(f))(a, b),
                way(lw.jacfwd(f, 1))(a, b), *way(second)(a, b), way(lw.hessian(loss, 1))(a, b)]
    for x, y in zip(both(f), both(g), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-7 * np.abs(y).max())


@ways
@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0), (2, 1)])
def test_batches_of_systems(way, name, axes):
    f = DENSE[name][0]
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(4, 3, 3)) + 2 * np.eye(3), rng.normal(size=(4, 3))
    every = [np.moveaxis(x, 0, k) if k is not None else x[0] for x, k in zip((a, b), axes, strict=True)]
    rows = [(a[i if axes[0] is not None else 0], b[i if axes[1] is not None else 0]) for i in range(4)]
    np.testing.assert_allclose(way(lw.vmap(f, axes))(*every), [f(*r) for r in rows], rtol=1e-9)
    slope = lw.grad(lambda a, b: np.sum(f(a, b) ** 2), (0, 1))
    for k, found in enumerate(way(lw.vmap(slope, axes))(*every)):
        np.testing.assert_allclose(found, [slope(*r)[k] for r in rows], rtol=1e-7, atol=1e-9)
    whole = way(lw.grad(lambda a, b: np.sum(lw.vmap(f, axes)(a, b) ** 2), 1))(*every)
    np.testing.assert_allclose(whole, np.sum([slope(*r)[1] for r in rows], 0) if axes[1] is None
                               else np.stack([slope(*r)[1] for r in rows], axes[1]), rtol=1e-7, atol=1e-9)


@ways
def test_transposes_linear_maps_and_no_elements(way):
    a, b = np.array([[3.0, 1.0], [0.5, 2.0]]), np.array([1.0, 2.0])
    turned = way(lambda ct: lw.linear_transpose(lambda b: general(a, b), b)(ct)[0])
    np.testing.assert_allclose(turned(b), np.linalg.solve(a.T, b))
    np.testing.assert_allclose(way(lambda d: lw.linearize(lambda b: general(a, b), b)[1](d))(b), np.linalg.solve(a, b))
    assert way(lw.vmap(general, (None, 0)))(a, np.zeros((0, 2))).shape == (0, 2)


def test_one_compile_for_all_sizes_and_inside_scan():
    def walk(a, b):
        return np.sum(lax.scan(lambda c, k: (spd(a, c) + k, None), b, lnp.arange(3.0))[0] ** 2)
    f = lw.jit(lw.grad(walk, (0, 1)))
    rng = np.random.default_rng(2)
    for n in (2, 3, 5):
        a, b = rng.normal(size=(n, n)), rng.normal(size=n)

        def plain(a, b):
            for k in range(3):
                b = np.linalg.solve(a @ a.T + np.eye(len(b)), b) + k
            return np.sum(b ** 2)
        want = [[(plain(a, b + h) - plain(a, b - h)) / 2e-6 for h in np.eye(n) * 1e-6]]
        np.testing.assert_allclose(f(a, b)[1], want[0], rtol=1e-5, atol=1e-8)
        for i, j in ((0, 0), (1, 0), (n - 1, 1)):
            h = np.zeros((n, n))
            h[i, j] = 1e-6
            np.testing.assert_allclose(f(a, b)[0][i, j], (plain(a + h, b) - plain(a - h, b)) / 2e-6, rtol=1e-5, atol=1e-8)
    assert f.compiles == 1


@ways
def test_complex_systems_containers_and_aux(way):
    rng = np.random.default_rng(3)
    a = rng.normal(size=(3, 3)) + 1j * rng.normal(size=(3, 3))
    b, inverse = rng.normal(size=3) + 1j * rng.normal(size=3), np.linalg.inv(a)

    def f(s, b):
        def solve(_, b):
            return {"x": inverse @ b["x"] / s}, 7
        return lax.custom_linear_solve(lambda x: {"x": s * (a @ x["x"])}, {"x": b}, solve,
                                       lambda m, b: ({"x": inverse.T @ b["x"] / s}, 7), has_aux=True)

    def loss(s, b, solution=lambda s, b: f(s, b)[0]["x"]):
        return np.sum(np.abs(solution(s, b)) ** 2)
    x, aux = way(f)(2.0, b)
    assert aux == 7
    np.testing.assert_allclose(x["x"], np.linalg.solve(2 * a, b))
    got = way(lw.grad(loss, (0, 1)))(2.0, b)
    want = lw.grad(lambda s, b: loss(s, b, lambda s, b: inverse @ b / s), (0, 1))(2.0, b)
    np.testing.assert_allclose(got[0], want[0])
    np.testing.assert_allclose(got[1], want[1])


@ways
def test_an_iterative_tangent_solve(way):
    """Within custom_root it is a custom_linear_solve, which transposes."""
    def f(b):
        def tangent(g, y):
            return lax.custom_linear_solve(g, y, conjugate_gradients, symmetric=True)

        def solve(f, x):
            return lax.fori_loop(0, 200, lambda i, x: x - 0.2 * f(x), x)
        return lax.custom_root(lambda x: x ** 3 + 2 * x - b, lnp.zeros_like(b), solve, tangent)
    b = np.array([0.5, 1.0, 2.0])
    x = f(b)
    np.testing.assert_allclose(way(lw.jacrev(f))(b), np.diag(1 / (3 * x * x + 2)), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(way(lw.grad(lambda b: np.sum(lw.grad(lambda b: np.sum(f(b)))(b))))(b),
                               -6 * x / (3 * x * x + 2) ** 3, rtol=1e-9)


# ---- errors -------------------------------------------------------------------------------------------
linear, root = lax.custom_linear_solve, lax.custom_root


def same(f, b):
    return b


def half(b):
    return linear(lambda x: x * 2.0, b, lambda m, b: b / 2.0)


@pytest.mark.parametrize("f, error, message", [
    (lambda b: linear(lambda x: (x, x), b, same), lw.ArgumentError,
     r"matvec of custom_linear_solve of <lambda> must return a result in the containers of b, .*, but returned"),
    (lambda b: linear(lambda x: x[:2], b, same), lw.ShapeError, r"matvec of custom_linear_solve.*f64\[2\].*f64\[n\]"),
    (lambda b: linear(lambda x: x, b, lambda m, b: b.astype("f4")), lw.DTypeError,
     r"solve of custom_linear_solve.*f32\[n\].*f64\[n\].*astype"),
    (lambda b: linear(lambda x: x, b, same, has_aux=True), lw.ArgumentError, r"has_aux=True must return a pair"),
    (lambda b: linear(lambda x: x * x, b, same, same), lw.GradientError, "linear"),
    (lambda b: linear(lambda x: x, (b, 1), same), lw.DTypeError, r"b\[1\] has type i64\[\].*Convert it to float"),
    (lambda b: root(lambda x: x[:2] - b[:2], b, same, dense), lw.ShapeError, r"f of custom_root.*f64\[2\].*f64\[n\]"),
    (lambda b: root(lambda x: {"a": x}, b, same, dense), lw.ArgumentError, "in the containers of initial_guess"),
    (lambda b: root(lambda x: x - b, b, lambda f, x: (x, x), dense), lw.ArgumentError, "solve of custom_root"),
    (lambda b: root(lambda x: x - b, b, lambda f, x: x, dense, has_aux=True), lw.ArgumentError, "must return a pair"),
    (lambda b: root(lambda x: x - b, b, same, lambda g, y: y[0]), lw.ShapeError, r"tangent_solve of custom_root.*f64\[\]"),
    (lambda b: root(lambda x: x - b[0], 1, same, divided), lw.DTypeError, r"initial_guess has type i64\[\]"),
])
def test_functions_that_do_not_fit(f, error, message):
    with pytest.raises(error, match=message) as caught:
        lw.jit(f)(np.ones(3))
    assert "test_implicit.py:" in str(caught.value)
    if error is lw.ArgumentError:
        with pytest.raises(error, match=message):
            lw.jvp(f, (np.ones(3),), (np.ones(3),))


def test_reverse_mode_needs_the_transposed_system():
    f = lw.grad(lambda b: np.sum(half(b)))
    with pytest.raises(lw.GradientError, match=r"test_implicit\.py:\d+.*Pass transpose_solve="):
        f(np.ones(3))
    np.testing.assert_array_equal(lw.jvp(half, (np.ones(3),), (np.ones(3),))[1], 0.5)


def test_a_loop_that_the_tangents_steer_is_refused():
    """Its derivative at zero would be that of no trip at all."""
    f = lw.grad(lambda b: np.sum(lax.custom_root(lambda x: 2.0 * x - b, b, lambda f, x: b / 2, conjugate_gradients)))
    with pytest.raises(lw.GradientError, match=r"test_implicit\.py:\d+.*custom_linear_solve"):
        f(np.ones(3))
    inside = lw.grad(lambda b: np.sum(lax.custom_root(lambda x: 2.0 * x - b, b, lambda f, x: b / 2, lambda g, y: lax.scan(
        lambda c, _: (conjugate_gradients(g, y), None), y, None, length=2)[0])))
    with pytest.raises(lw.GradientError, match="how often this loop runs"):
        inside(np.ones(3))


def test_the_text_reads_back():
    g = lw.make_graph(lw.grad(lambda b: np.sum(spd(np.eye(3), b))))(np.ones(3))
    assert lw.parse(str(g)) == g and "linear_solve(" in str(g)


# ---- JAX ----------------------------------------------------------------------------------------------
def test_as_in_jax():
    jax = pytest.importorskip("jax", reason="compared with JAX only where it is installed")

    def programs(np, lax, jacobian, grad):
        def root(a):
            def f(x):
                return x ** 3 + a * x - np.sum(a)

            def solve(f, x):
                return lax.fori_loop(0, 60, lambda i, x: x - 0.2 * f(x), x)
            return lax.custom_root(f, np.zeros_like(a), solve, lambda g, y: np.linalg.solve(jacobian(g)(y), y))

        def system(a):
            m = np.outer(a, a) + np.diag(a) + 2 * np.diag(np.ones(3)) + np.triu(np.outer(a, a))
            return lax.custom_linear_solve(lambda x: m @ x, a * a, lambda mv, b: np.linalg.solve(m, b),
                                           lambda vm, b: np.linalg.solve(m.T, b))
        return [lambda a: np.sum(root(a) ** 2), lambda a: np.sum(system(a) ** 3), lambda a: np.sum(system(root(a)))]
    a = np.array([0.7, 1.1, 0.4])
    with jax.enable_x64(True):
        theirs = programs(jax.numpy, jax.lax, jax.jacfwd, jax.grad)
        for f, g in zip(programs(lnp, lax, lw.jacfwd, lw.grad), theirs, strict=True):
            np.testing.assert_allclose(lw.jit(f)(a), g(a), rtol=1e-10)
            np.testing.assert_allclose(lw.jit(lw.grad(f))(a), jax.grad(g)(a), rtol=1e-9)
            np.testing.assert_allclose(lw.jit(lw.hessian(f))(a), jax.hessian(g)(a), rtol=1e-8, atol=1e-10)
            np.testing.assert_allclose(lw.jacrev(lw.jacrev(f))(a), jax.jacrev(jax.jacrev(g))(a), rtol=1e-8, atol=1e-10)
            rows = np.stack([a, a[::-1]])
            want = jax.vmap(jax.grad(g))(jax.numpy.array(rows))
            np.testing.assert_allclose(lw.jit(lw.vmap(lw.grad(f)))(rows), want, rtol=1e-9)
