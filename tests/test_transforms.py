"""grad, value_and_grad, jvp, vjp, linearize, vmap and the Jacobians as users call them."""
import gc
import itertools
import threading

import numpy as np
import pytest

import loopwright as lw
from loopwright.ir import builder as builders
from loopwright.ir.errors import (
    ArgumentError,
    ConcretizationError,
    DTypeError,
    GradientError,
    LeakedValueError,
    ShapeError,
)
from loopwright.jacobians import hessian, jacfwd, jacrev
from loopwright.transforms import grad, jvp, linearize, value_and_grad, vjp, vmap


def close(got, want, rtol=1e-10):
    np.testing.assert_allclose(got, want, rtol=rtol, atol=1e-10)


def slope(f, x, h=1e-6):
    return (f(x + h) - f(x - h)) / (2 * h)


def forward(f):
    """The derivative by jvp."""
    return lambda x: jvp(f, (x,), (1.0,))[1]


# ---- values and Python ----------------------------------------------------------------------------------
def test_python_control_flow_sees_values():
    assert grad(lambda x: x * x if x > 0 else -x)(3.0) == 6.0
    assert grad(lambda x: x * x if x > 0 else -x)(-3.0) == -1.0

    def doubled_until_ten(x):
        while x < 10:
            x = x * 2
        return x
    assert grad(doubled_until_ten)(3.0) == 4.0
    assert jvp(doubled_until_ten, (3.0,), (1.0,)) == (12.0, 4.0)
    assert vjp(doubled_until_ten, 3.0)[1](1.0) == (4.0,)
    assert linearize(doubled_until_ten, 3.0)[1](1.0) == 4.0
    assert grad(lambda x: x * int(x))(2.5) == 2.0
    assert grad(lambda x: x ** 2 if np.float64(float(x)) > 1 else x)(2.0) == 4.0


def test_control_flow_at_every_order():
    def f(x):
        return x * x * x if x > 0 else -x * x
    assert [grad(f)(2.0), grad(grad(f))(2.0), grad(grad(grad(f)))(2.0)] == [12, 12, 6]
    assert [grad(f)(-3.0), grad(grad(f))(-3.0), grad(grad(grad(f)))(-3.0)] == [6, -2, 0]
    assert forward(grad(f))(2.0) == grad(forward(f))(2.0) == forward(forward(f))(2.0) == 12


def test_values_are_passed_down_through_nested_transforms():
    assert grad(lambda x: x * 2 if grad(lambda y: y * y * x)(x) > 3 else x)(2.0) == 2.0
    assert grad(lambda x: x * 2 if forward(lambda y: y * y * x)(x) > 9 else x)(2.0) == 1.0
    assert grad(lambda x: x * 2 if vjp(lambda y: y * x, x)[0] > 3 else x)(2.0) == 2.0
    assert grad(lambda x: vjp(lambda y: y * y if y > x - 1 else y, x * 3)[1](1.0)[0])(2.0) == 6.0


def test_vmap_and_jit_see_no_values_of_their_own():
    def f(x):
        return x * x if x > 0 else x
    for call in (lambda: vmap(f)(np.ones(3)), lambda: vmap(grad(f))(np.ones(3)),
                 lambda: grad(lambda x: vmap(f)(x)[0])(np.ones(2))):
        with pytest.raises(ConcretizationError, match=r"test_transforms\.py:\d+"):
            call()


def test_vmap_under_grad_sees_the_values_that_it_closes_over():
    xs = np.array([1.0, 2.0])
    assert grad(lambda x: (vmap(lambda a: a * x if x > 0 else a)(xs))[1])(2.0) == 2.0


# ---- perturbations do not mix ---------------------------------------------------------------------------
def test_classic_cases_of_perturbation_confusion():
    assert grad(lambda x: x * grad(lambda y: x + y)(2.0))(3.0) == 1
    assert grad(lambda x: x * grad(lambda y: x * y)(2.0))(3.0) == 6
    assert forward(lambda x: x * forward(lambda y: x + y)(1.0))(1.0) == 1
    assert forward(lambda x: x * grad(lambda y: x * y * y)(1.0))(1.0) == 4
    assert grad(lambda x: x * forward(lambda y: x * y * y)(1.0))(1.0) == 4
    close(grad(lambda x: grad(lambda y: np.sin(x) * y * y)(x))(0.7), 2 * np.cos(0.7) * 0.7 + 2 * np.sin(0.7))
    close(grad(lambda x: grad(lambda y: grad(lambda z: x * y * z * z)(y))(x))(2.0), slope(lambda x: 4 * x * x, 2.0))


def test_the_same_value_as_argument_and_by_closure_counts_once_each():
    assert grad(lambda x: grad(lambda y: x * y)(x))(3.0) == 1.0
    assert grad(lambda x: vjp(lambda y: x * y, x)[1](x)[0])(3.0) == 6.0
    assert grad(lambda x: jvp(lambda y: x * y, (x,), (x,))[1])(3.0) == 6.0
    assert grad(lambda x: linearize(lambda y: x * y * y, x)[1](1.0))(3.0) == 12.0


def test_closures_over_arrays_and_outer_values():
    w = np.arange(3.0)
    close(grad(lambda x: np.sum(w * x * x))(np.ones(3)), 2 * w)
    rows = vmap(lambda a: grad(lambda b: np.sum(a * b * b * w))(np.ones(3)))(np.eye(3))
    close(rows, 2 * np.eye(3) * w)
    close(vmap(lambda a: vmap(lambda b: a * b)(w))(w), np.outer(w, w))


def test_pullbacks_and_pushforwards_are_differentiable_and_reusable():
    y, pull = vjp(lambda x: x * x * x, 2.0)
    assert y == 8 and pull(1.0) == (12,) and pull(2.0) == (24,)
    assert grad(lambda ct: pull(ct * ct)[0])(3.0) == 72.0
    close(vmap(lambda ct: pull(ct)[0])(np.arange(3.0)), [0, 12, 24])
    _, push = linearize(lambda x: x * x * x, 2.0)
    close(vmap(push)(np.arange(3.0)), [0, 12, 24])
    assert grad(lambda x: vjp(lambda y: y * y * y, x)[1](1.0)[0])(2.0) == 12.0


def test_a_pullback_keeps_what_it_needs_when_arguments_are_overwritten():
    x = np.array([1.0, 2.0])
    y, pull = vjp(lambda x: x * x, x)
    _, push = linearize(lambda x: x * x, x)
    x[:] = 7
    close(pull(np.ones(2))[0], [2, 4])
    close(push(np.ones(2)), [2, 4])
    close(y, [1, 4])


# ---- complex --------------------------------------------------------------------------------------------
def test_complex_gradients_are_jax_s():
    """df/dx - i df/dy, so that a step along the conjugate of the gradient descends."""
    z = 1.5 - 0.5j
    close(grad(lambda z: np.real(z * z))(z), 2 * z)
    close(grad(lambda z: np.abs(z) ** 2)(z), 2 * np.conj(z))
    close(grad(lambda z: np.imag(z))(z), -1j)
    close(grad(lambda z: np.sin(z) * z, holomorphic=True)(z), np.cos(z) * z + np.sin(z))
    for f in (lambda z: np.real(np.exp(z) * z), lambda z: np.abs(np.sin(z)), lambda z: np.imag(z) * np.real(z)):
        want = slope(f, z) - 1j * slope(lambda h, f=f: f(z + 1j * h), 0.0)
        close(grad(f)(z), want, 1e-6)


def test_complex_errors():
    with pytest.raises(GradientError, match="holomorphic=True"):
        grad(lambda z: z * z)(1j)
    with pytest.raises(GradientError, match="expected a complex dtype"):
        grad(lambda z: z * z, holomorphic=True)(1.0)
    with pytest.raises(GradientError, match="needs a complex result"):
        grad(lambda z: np.abs(z), holomorphic=True)(1j)


# ---- vmap -----------------------------------------------------------------------------------------------
def test_vmap_axes():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 3, 4)), rng.normal(size=(4, 3))
    for axis in (-3, -2, -1, 0, 1, 2):
        want = np.stack([np.sin(s) * 2 for s in np.moveaxis(x, axis, 0)])
        close(vmap(lambda s: np.sin(s) * 2, in_axes=axis)(x), want)
        for out in (-3, -2, -1, 0, 1, 2):
            close(vmap(np.sin, in_axes=axis, out_axes=out)(x), np.moveaxis(np.sin(np.moveaxis(x, axis, 0)), 0, out))
    close(vmap(lambda s, t: s * t, in_axes=(1, -1))(x, y), np.stack([x[:, k] * y[:, k] for k in range(3)]))
    close(vmap(lambda s, t: s * t, in_axes=(None, 0), out_axes=1)(y, x[:, :1, :1]), np.stack([y * s for s in x[:, :1, :1]], 1))
    close(vmap(vmap(lambda a, b: a * b, (None, 0)), (0, None))(x[0, 0], y[:, 0]), np.outer(x[0, 0], y[:, 0]))
    assert vmap(lambda s: s * 2)(np.zeros((0, 3))).shape == (0, 3)


def test_vmap_over_containers():
    tree = {"a": np.arange(6.0).reshape(2, 3), "b": (np.ones((3, 2)), 5.0)}
    out = vmap(lambda t, s: {"sum": t["a"] + s, "scaled": t["b"][0] * t["b"][1], "fixed": t["b"][1]},
               in_axes=({"a": 0, "b": (1, None)}, None), out_axes={"sum": 1, "scaled": 0, "fixed": None})(tree, 1.0)
    close(out["sum"], tree["a"].T + 1)
    close(out["scaled"], np.ones((2, 3)) * 5)
    assert out["fixed"] == 5
    close(vmap(lambda t: t["a"], in_axes=({"a": 0, "b": None},))(tree), tree["a"])
    assert vmap(lambda x, mode: x * len(mode), in_axes=(0, None))(np.ones(2), "abc").tolist() == [3, 3]
    assert vmap(lambda x, *, y: x * y)(np.arange(2.0), y=np.arange(2.0)).tolist() == [0, 1]


def test_results_that_do_not_depend_on_the_axis_repeat():
    x = np.ones(3)
    assert vmap(lambda x: 2.0)(x).tolist() == [2, 2, 2]
    assert vmap(lambda x: np.arange(2.0), out_axes=1)(x).shape == (2, 3)
    assert vmap(lambda x: (x, 1), out_axes=(0, None))(x)[1] == 1
    assert vmap(lambda: 1.5, axis_size=2)().tolist() == [1.5, 1.5]
    assert vmap(lambda x: x, in_axes=None, axis_size=2)(3.0).tolist() == [3, 3]


def test_vmap_errors():
    x, y = np.ones((2, 3)), np.ones((4, 3))
    with pytest.raises(ShapeError, match=r"axis 0 of argument 0 has size 2 and axis 0 of argument 1\['a'\] has size 4"):
        vmap(lambda x, y: x)(x, {"a": y})
    with pytest.raises(ShapeError, match="axis_size has size 3 and axis 0 of argument 0 has size 2"):
        vmap(lambda x: x, axis_size=3)(x)
    with pytest.raises(ShapeError, match="has no axis 2 to map over"):
        vmap(lambda x: x, in_axes=2)(x)
    with pytest.raises(ShapeError, match="has no axis 0 to map over"):
        vmap(lambda x: x)(2.0)
    with pytest.raises(ShapeError, match=r"test_transforms\.py:\d+.*out_axes 3 is out of range for a result of rank 2: "
                                         r"result is f64\[3\] for each of 4 elements. Choose an axis from -2 to 1"):
        vmap(lambda x: x, out_axes=3)(np.ones((4, 3)))
    with pytest.raises(ShapeError, match=r"out_axes 1 .* rank 1: result\['a'\]\[1\] is f64\[\]"):
        lw.jit(vmap(lambda x: {"a": (x, 1.0)}, out_axes={"a": (0, 1)}))(x)
    with pytest.raises(ArgumentError, match="nothing is mapped"):
        vmap(lambda x: x, in_axes=None)(x)
    with pytest.raises(ArgumentError, match="out_axes is None for a result that depends"):
        vmap(lambda x: x, out_axes=None)(x)
    with pytest.raises(ArgumentError, match=r"test_transforms\.py:\d+.*result\['a'\]\[1\], which is f64\[5\] for each of 4"):
        vmap(lambda x: {"a": (1.0, x)}, out_axes=None)(np.ones((4, 5)))
    with pytest.raises(ArgumentError, match="in_axes"):
        vmap(lambda x, y: x, in_axes=(0,))(x, y)
    with pytest.raises(ArgumentError, match="in_axes"):
        vmap(lambda x: x, in_axes=("0",))(x)
    with pytest.raises(ArgumentError, match="argument 0: expected an array"):
        vmap(lambda x: x)("abc")


# ---- Jacobians ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("jacobian", [jacfwd, jacrev])
def test_jacobians(jacobian):
    a = np.arange(6.0).reshape(2, 3)
    close(jacobian(lambda x: np.sin(a @ x))(np.ones(3)), np.cos(a @ np.ones(3))[:, None] * a)
    assert jacobian(lambda x: x * 2.0)(np.ones((2, 3))).shape == (2, 3, 2, 3)
    assert jacobian(lambda x: x * x)(3.0) == 6
    found = jacobian(lambda x, y: {"p": x * y["s"], "q": np.sum(x)}, argnums=(0, 1))(np.arange(2.0), {"s": 3.0})
    close(found["p"][0], 3 * np.eye(2))
    close(found["p"][1]["s"], [0, 1])
    close(found["q"][0], [1, 1])
    assert found["q"][1]["s"] == 0
    j, aux = jacobian(lambda x: (x * x, x + 1), has_aux=True)(np.ones(2))
    close(j, 2 * np.eye(2))
    close(aux, [2, 2])
    close(vmap(jacobian(lambda x: x * x))(a), np.stack([2 * np.diag(row) for row in a]))
    assert all(x.flags.c_contiguous and x.flags.writeable for x in (j, found["p"][0]))


def test_hessians():
    q = np.array([[1.0, 2], [3, 4]])
    close(hessian(lambda x: x @ q @ x)(np.ones(2)), q + q.T)
    h = hessian(lambda p: p["a"] * p["a"] * np.sum(p["b"]))({"a": 2.0, "b": np.ones(3)})
    assert h["a"]["a"] == 6 and h["a"]["b"].tolist() == [4, 4, 4] and h["b"]["a"].tolist() == [4, 4, 4]
    assert h["b"]["b"].shape == (3, 3) and not h["b"]["b"].any()
    close(jacrev(jacfwd(lambda x: np.sum(x * x * x)))(np.arange(2.0)), 6 * np.diag([0, 1.0]))


# ---- composition ----------------------------------------------------------------------------------------
def scalar(x):
    return np.sin(x) * x + np.exp(-x * x)


ONE = {  # scalar function -> scalar function
    "grad": grad, "jvp": forward, "vjp": lambda f: lambda x: vjp(f, x)[1](1.0)[0],
    "linearize": lambda f: lambda x: linearize(f, x)[1](1.0), "value_and_grad": lambda f: lambda x: value_and_grad(f)(x)[1],
    "jacfwd": jacfwd, "jacrev": jacrev,
}


@pytest.mark.parametrize("first, second", list(itertools.product(ONE, ONE)))
def test_second_derivatives_by_every_pair(first, second):
    f = ONE[second](ONE[first](scalar))
    x = 0.7
    want = 2 * np.cos(x) - x * np.sin(x) + (4 * x * x - 2) * np.exp(-x * x)
    close(f(x), want)
    xs = np.array([0.7, -0.2, 1.1])
    each = [f(s) for s in xs]
    close(vmap(f)(xs), each)
    close(vmap(ONE[second](lambda s: vmap(ONE[first](scalar))(s * np.ones(1))[0]))(xs), each)
    third = slope(f, x)
    close(grad(f)(x), third, 1e-6)
    close(forward(f)(x), third, 1e-6)
    close(grad(lambda xs: np.sum(vmap(f)(xs)))(xs), [slope(f, s) for s in xs], 1e-6)


# ---- errors ---------------------------------------------------------------------------------------------
def test_gradient_errors_name_the_line_and_the_fix():
    here = r"test_transforms\.py:\d+: "
    with pytest.raises(GradientError, match=here + r"grad of f: argument 0 has type weak_i64\[\], .*astype\(float\)"):
        def f(x):
            return x
        grad(f)(3)
    with pytest.raises(GradientError, match=here + r".*argument 1\['a'\] has type bool\[2\]"):
        grad(lambda x, y: x, argnums=1)(1.0, {"a": np.array([True, False])})
    with pytest.raises(GradientError, match=here + r".*needs a scalar.*f64\[3\], of shape \(3,\).*vjp"):
        grad(lambda x: x)(np.ones(3))
    with pytest.raises(GradientError, match=here + r".*needs one scalar.*has_aux"):
        grad(lambda x: (x, x))(1.0)
    with pytest.raises(GradientError, match=here + r".*real floating result.*i64"):
        grad(lambda x: 3)(1.0)
    with pytest.raises(GradientError, match=here + r".*real floating result.*bool"):
        grad(lambda x: x > 0)(1.0)
    with pytest.raises(ArgumentError, match=here + r".*argument 0: expected an array.*str"):
        grad(lambda x: x)("3")


def test_tangents_and_cotangents_must_match():
    x = np.ones(3, np.float32)
    with pytest.raises(DTypeError, match=r"tangent of argument 0 has type f64\[3\], but its dtype must be that of f32\[3\]"):
        jvp(np.sin, (x,), (np.ones(3),))
    with pytest.raises(ShapeError, match=r"the tangent of argument 0\['a'\] has type f32\[2\]"):
        jvp(lambda t: t["a"], ({"a": x},), ({"a": x[:2]},))
    with pytest.raises(ArgumentError, match="expected tangents in the containers"):
        jvp(np.sin, (x,), (x, x))
    with pytest.raises(ArgumentError, match="primals and tangents are tuples"):
        jvp(np.sin, x, x)
    with pytest.raises(DTypeError, match="integers have no tangents"):
        jvp(lambda n: n * 1.0, (3,), (1,))
    pull = vjp(np.sin, x)[1]
    with pytest.raises(DTypeError, match=r"the cotangent of result has type f64\[3\]"):
        pull(np.ones(3))
    with pytest.raises(ShapeError, match="the cotangent of result"):
        pull(1.0)
    with pytest.raises(ArgumentError, match="expected cotangents in the containers"):
        pull((x,))
    push = linearize(np.sin, x)[1]
    with pytest.raises(ShapeError, match="the tangent of argument 0"):
        push(x[:1])
    assert jvp(np.sin, (np.float32(0),), (1.0,))[1].dtype == np.float32  # a Python number takes the dtype


# ---- traces end well ------------------------------------------------------------------------------------
TRANSFORMS = {
    "grad": lambda f: grad(f)(1.0), "jvp": lambda f: jvp(f, (1.0,), (1.0,)), "vjp": lambda f: vjp(f, 1.0),
    "linearize": lambda f: linearize(f, 1.0), "vmap": lambda f: vmap(f)(np.ones(2)),
}


@pytest.mark.parametrize("run", TRANSFORMS.values(), ids=TRANSFORMS)
def test_an_exception_leaves_the_state_clean(run):
    kept = []

    def f(x):
        kept.append(x)
        raise KeyError("mine")
    collecting = gc.isenabled()
    with pytest.raises(KeyError, match="mine"):
        run(f)
    assert builders.innermost() is None and gc.isenabled() == collecting
    assert builders._state.floor is None and builders._state.source is None
    with pytest.raises(LeakedValueError):
        kept[0] * 2.0
    assert grad(lambda x: x * x)(3.0) == 6


@pytest.mark.parametrize("run", TRANSFORMS.values(), ids=TRANSFORMS)
def test_leaked_values_say_so(run):
    kept = []

    def f(x):
        kept.append(x)
        return x * 2.0
    run(f)
    with pytest.raises(LeakedValueError, match=r"test_transforms\.py:\d+: a value traced inside \w+ of f was used after"):
        kept[0] + 1.0
    with pytest.raises(LeakedValueError):
        grad(lambda x: x * kept[0])(1.0)
    with pytest.raises(LeakedValueError):
        grad(lambda x: kept[0])(1.0)


def test_an_inner_value_used_by_the_outer_trace_is_a_leak():
    def f(x):
        kept = []
        grad(lambda y: (kept.append(y * x), y)[1])(1.0)
        return kept[0] * x
    with pytest.raises(LeakedValueError):
        grad(f)(2.0)


def test_threads_trace_at_the_same_time():
    found = {}

    def work(k):
        found[k] = [grad(grad(lambda x: x * x * x * k))(float(n)) for n in range(20)]
    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all(found[k] == [6.0 * k * n for n in range(20)] for k in range(4))


# ---- with jit -------------------------------------------------------------------------------------------
def loss(w, x):
    return np.sum(np.tanh(x @ w) ** 2)


def test_transforms_inside_and_around_jit():
    rng = np.random.default_rng(0)
    w, x = rng.normal(size=3), rng.normal(size=(4, 3))
    want = grad(loss)(w, x)
    close(lw.jit(grad(loss))(w, x), want)
    close(grad(lw.jit(loss))(w, x), want)
    close(lw.jit(lambda w, x: grad(lw.jit(loss))(w, x))(w, x), want)
    rows = vmap(grad(loss), in_axes=(None, 0))(w, x[:, None])
    close(rows.sum(0), want)
    for f in (lw.jit(vmap(grad(loss), (None, 0))), vmap(lw.jit(grad(loss)), (None, 0)), vmap(grad(lw.jit(loss)), (None, 0))):
        close(f(w, x[:, None]), rows)
    close(lw.jit(hessian(loss))(w, x), hessian(loss)(w, x))
    close(lw.jit(lambda w, t: jvp(lambda w: loss(w, x), (w,), (t,))[1])(w, w), np.sum(want * w))


def test_one_compile_serves_every_size():
    f = lw.jit(grad(loss))
    g = lw.jit(vmap(grad(loss), (None, 0)))
    h = lw.jit(jacfwd(lambda x: x * x))
    for n, m in [(2, 3), (5, 4), (7, 2)]:
        x, w = np.ones((n, m)) * 0.3, np.ones(m) * 0.1
        close(f(w, x), grad(loss)(w, x))
        close(g(w, x[:, None]), vmap(grad(loss), (None, 0))(w, x[:, None]))
        close(h(w), np.diag(2 * w))
    assert f.compiles == g.compiles == h.compiles == 1


def test_vmap_sizes_under_jit_are_guarded_and_compared():
    f = lw.jit(vmap(lambda a, b: a * b))
    close(f(np.ones(3), np.arange(3.0)), np.arange(3.0))
    close(f(np.ones(5), np.arange(5.0)), np.arange(5.0))
    with pytest.raises(ShapeError, match="mapped sizes must be equal"):
        f(np.ones(3), np.ones(4))


def test_values_stay_hidden_inside_jit():
    def f(x):
        return x if x > 0 else -x
    for call in (lambda: grad(lw.jit(f))(1.0), lambda: lw.jit(grad(f))(1.0)):
        with pytest.raises(ConcretizationError, match=r"test_transforms\.py"):
            call()


def test_jit_closing_over_outer_values():
    def product(x):
        return grad(lambda y: lw.jit(lambda z: z * x * y)(y))(x)
    assert product(3.0) == 18.0
    assert grad(product)(3.0) == 12.0
    close(vmap(grad(product))(np.array([1.0, 2.0])), [4, 8])
