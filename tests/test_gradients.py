"""Derivatives of every op through the public transforms against differences, and the table of docs/gradients.md."""
import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.ir.builder import innermost
from loopwright.tracer.promotion import lift_own
from loopwright.tracer.tracer import Tracer
from loopwright.transforms import grad, jvp, linearize, vjp, vmap
from tests.scale import examples
from tests.test_ops import OPS, cases, draw, is_smooth
from tests.test_symbolic_ops import REFUSING

STEP = 1e-6


# ---- every op -------------------------------------------------------------------------------------------
def function(case):
    """The op of a case as a function of its inexact operands; the others are fixed."""
    def f(*moving):
        rest = iter(moving)
        refs = [lift_own(next(rest)) if t.is_inexact else innermost().capture(x)
                for t, x in zip(case.types, case.arrays, strict=True)]
        return Tracer(case.op(*refs, **case.attrs))
    return f


def moving(case, row):
    return [x for t, x in zip(case.types, row, strict=True) if t.is_inexact]


def value(case, moved):
    rest = iter(moved)
    return np.asarray(case.meaning(*(next(rest) if t.is_inexact else x for t, x in zip(case.types, case.arrays, strict=True))))


def smooth(op, sizes, seed):
    return filter(is_smooth, cases(op, sizes, seed))


def close(got, want, tolerance=2e-5):
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * max(1.0, np.max(np.abs(want), initial=0)))


draws = given(sizes=st.lists(st.integers(0, 3), min_size=9, max_size=9), seed=st.integers(0, 2**32 - 1))


@pytest.mark.parametrize("op", [p for p in OPS if p.id not in REFUSING])
@examples(2)
@draws
def test_jvp_vjp_linearize_and_grad_are_differences(op, sizes, seed):
    for case in smooth(op, sizes, seed):
        f, xs = function(case), moving(case, case.arrays)
        rng = np.random.default_rng(seed)
        along = [draw(rng, t) for t in case.types if t.is_inexact]
        want = (value(case, [x + STEP * d for x, d in zip(xs, along, strict=True)])
                - value(case, [x - STEP * d for x, d in zip(xs, along, strict=True)])) / (2 * STEP)
        out, tangent = jvp(f, tuple(xs), tuple(along))
        close(out, value(case, xs), 1e-12)
        close(tangent, want)
        close(linearize(f, *xs)[1](*along), tangent, 1e-9)
        ct = draw(rng, case.result)
        back = vjp(f, *xs)[1](ct)
        paired = sum(np.sum(c * d) for c, d in zip(back, along, strict=True))
        close(np.real(paired), np.real(np.sum(ct * tangent)), 1e-8)

        def weighed(*xs, f=f, ct=ct):
            y = f(*xs)
            return np.sum(np.real(y * ct) if np.iscomplexobj(ct) else y * ct)
        for g, c in zip(grad(weighed, tuple(range(len(xs))))(*xs), back, strict=True):
            assert g.dtype == c.dtype and g.shape == c.shape
            close(g, c, 1e-9)


@pytest.mark.parametrize("op", [p for p in OPS if p.id not in REFUSING])
@examples(2)
@draws
def test_vmap_of_values_and_gradients_is_stacking(op, sizes, seed):
    sizes = [max(sizes[0], 1), *sizes[1:]]
    for case in smooth(op, sizes, seed):
        f, rows = function(case), [moving(case, row) for row in case.rows]
        stacked = [np.stack(column) for column in zip(*rows, strict=True)]
        close(vmap(f)(*stacked), np.stack([value(case, row) for row in rows]), 1e-12)

        ct = draw(np.random.default_rng(seed), case.result)

        def pulled(*xs, f=f, ct=ct):
            return vjp(f, *xs)[1](ct)
        for got, want in zip(vmap(pulled)(*stacked), zip(*[pulled(*row) for row in rows], strict=True), strict=True):
            close(got, np.stack(want), 1e-9)


# ---- the table of the documentation ---------------------------------------------------------------------
ROW = re.compile(r"^\| `(?P<expression>[^`]+)` \| `(?P<at>[^`]+)` \| `(?P<gradient>[^`]+)` \|", re.MULTILINE)
TEXT = (Path(__file__).parent.parent / "docs" / "gradients.md").read_text()
ROWS = [pytest.param(*m.groups(), id=f"{m['expression']} at {m['at']}") for m in ROW.finditer(TEXT)]


def row(expression, at, gradient):
    """The function of a row, its arguments, and their gradients."""
    where = eval(f"dict({at})", {"np": np})
    f = eval(f"lambda {', '.join(where)}: {expression}", {"np": np})
    want = eval(f"({gradient},)", {"np": np})
    assert len(want) == len(where)
    return f, tuple(where.values()), want


def total(f):
    return lambda *xs: np.real(np.sum(f(*xs)))


def test_the_table_is_read():
    assert len(ROWS) == TEXT.count("\n| `") > 30


@pytest.mark.parametrize("expression, at, gradient", ROWS)
def test_gradients_are_those_of_the_documentation(expression, at, gradient):
    f, xs, want = row(expression, at, gradient)
    every = tuple(range(len(xs)))
    for g, w in zip(grad(total(f), every)(*xs), want, strict=True):
        np.testing.assert_array_equal(g, w)
    rows = [np.stack([x, x]) for x in xs]
    for g, w in zip(vmap(grad(total(f), every))(*rows), want, strict=True):
        np.testing.assert_array_equal(g, np.stack([w, w]))


@pytest.mark.parametrize("expression, at, gradient", ROWS)
def test_compiled_gradients_are_those_of_the_documentation(expression, at, gradient):
    f, xs, want = row(expression, at, gradient)
    found = lw.jit(grad(total(f), tuple(range(len(xs)))))(*map(np.asarray, xs))
    for g, w in zip(found, want, strict=True):
        np.testing.assert_array_equal(g, w)


@pytest.mark.parametrize("expression, at, gradient", ROWS)
def test_forward_mode_agrees_with_the_documentation(expression, at, gradient):
    f, xs, want = row(expression, at, gradient)
    for k, (x, w) in enumerate(zip(xs, want, strict=True)):
        for i in np.ndindex(np.shape(x)):
            basis = [np.zeros(np.shape(y), np.asarray(y).dtype) for y in xs]
            basis[k][i] = 1
            _, t = jvp(total(f), tuple(map(np.asarray, xs)), tuple(basis))
            np.testing.assert_array_equal(t, np.real(np.asarray(w)[i]))


@pytest.mark.parametrize("expression, at, gradient", [r for r in ROWS if "where" in r.values[0]])
def test_masks_hold_at_second_and_third_order(expression, at, gradient):
    f, xs, _ = row(expression, at, gradient)
    (x,) = xs
    rows = np.stack([x, x + 0.7, x + 1.7])

    def slope(f):
        return grad(lambda x: np.sum(f(x)))
    for g in (slope(slope(f))(x), slope(slope(slope(f)))(x), vmap(slope(slope(f)))(rows), slope(vmap(slope(f)))(rows),
              slope(lambda x: jvp(slope(f), (x,), (x,))[1])(x), slope(lambda x: jvp(f, (x,), (x,))[1])(x),
              slope(lambda x: lw.jacfwd(slope(f))(x))(x)):
        assert np.all(np.isfinite(g))


# ---- masks over chains ----------------------------------------------------------------------------------
SINGULAR = {"sqrt": np.sqrt, "log": np.log, "reciprocal": lambda x: 1 / x, "power": lambda x: np.power(x, 0.3),
            "log1p": lambda x: np.log1p(x - 1), "cbrt": np.cbrt}


@pytest.mark.parametrize("outer, inner", list(itertools.product(SINGULAR, SINGULAR)))
def test_chains_of_singular_functions_stay_masked(outer, inner):
    def f(x):
        return np.sum(np.where(x > 0.1, SINGULAR[outer](np.abs(SINGULAR[inner](x))) * x, 0.0))
    x = np.array([0.0, -1.0, 0.5, 2.5])
    g = grad(f)(x)
    want = (SINGULAR[outer](np.abs(SINGULAR[inner](x[2:] + STEP))) * (x[2:] + STEP)
            - SINGULAR[outer](np.abs(SINGULAR[inner](x[2:] - STEP))) * (x[2:] - STEP)) / (2 * STEP)
    assert g[0] == g[1] == 0
    np.testing.assert_allclose(g[2:], want, rtol=1e-6, atol=1e-6)
    assert np.all(np.isfinite(grad(lambda x: np.sum(grad(f)(x)))(x)))


def test_masks_of_masks_go_deeper_than_pythons_calls():
    def f(x):
        y = x * x
        for k in range(600):
            y = np.where(y > 0.01 * k, y, 0.0) + np.where(y < -0.2, y, 0.0)
        return np.sum(y)
    np.testing.assert_allclose(grad(f)(np.array([-3.0, 0.5, 2.0, 4.0])), [-6.0, 0.0, 0.0, 8.0])


def test_smooth_functions_have_second_derivatives_where_their_formulas_have_kinks():
    """log(exp(x) + exp(y)) is computed from max and abs, which are not smooth at x == y; it is."""
    for x in (0.0, 1.5):
        second = lw.hessian(lambda v: np.logaddexp(v[0], v[1]))(np.array([x, x]))
        np.testing.assert_allclose(second, [[0.25, -0.25], [-0.25, 0.25]], atol=1e-15)
        second = lw.jit(lw.hessian(lambda v: np.logaddexp2(v[0], v[1])))(np.array([x, x]))
        np.testing.assert_allclose(second, np.log(2) * np.array([[0.25, -0.25], [-0.25, 0.25]]), atol=1e-15)
    np.testing.assert_allclose(lw.jit(lw.grad(lw.grad(np.sinc)))(0.0), -np.pi**2 / 3)  # not of where(x == 0, 1, ...)


@pytest.mark.parametrize("dtype, tolerance", [("f8", 1e-13), ("f4", 1e-5)])
def test_derivatives_invert_a_repeated_divisor_once(dtype, tolerance):
    rng = np.random.default_rng(0)
    x, w, y = rng.normal(size=(3, 5)), rng.normal(size=(3, 5)), np.array([0.5, -2.0, 3.0])

    def f(x, y):
        return np.sum(w.astype(dtype) * x / y[:, None] + x / np.max(x))
    args, top = (x.astype(dtype), y.astype(dtype)), x == np.max(x)
    assert not re.findall(r", .*\] = div", lw.jit(grad(f, argnums=(0, 1))).lower(*args).graph)
    want = w / y[:, None] + 1 / np.max(x) - top * np.sum(x) / np.max(x) ** 2, np.sum(-w * x, axis=1) / y ** 2
    for g in (grad(f, argnums=(0, 1)), lw.jit(grad(f, argnums=(0, 1)))):
        for found, expected in zip(g(*args), want, strict=True):
            np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * 10)
    second = lw.jit(grad(lambda y: np.sum(grad(f, argnums=1)(args[0], y))))(args[1])
    np.testing.assert_allclose(second, np.sum(2 * w * x, axis=1) / y ** 3, rtol=tolerance, atol=tolerance * 10)
    _, moved = jvp(f, args, (np.zeros_like(args[0]), np.ones_like(args[1])))
    np.testing.assert_allclose(moved, np.sum(want[1]), rtol=tolerance, atol=tolerance * 10)


def test_derivatives_by_a_repeated_divisor_at_the_ends_of_the_range():
    f = lw.jit(grad(lambda x, y: np.sum(x / y[:, None]), argnums=(0, 1)))
    x, y = np.array([[1.0], [0.0], [1.0]]), np.array([np.inf, 0.0, 1e-200])
    by_x, by_y = f(x, y)
    np.testing.assert_allclose(by_x, [[0.0], [np.inf], [1e200]])
    np.testing.assert_allclose(by_y, [0.0, np.nan, -np.inf])
    np.testing.assert_allclose(f(np.array([[1e-200]]), np.array([1e-200]))[1], [-1e200])  # no power of the divisor is made
