"""Random NumPy programs under random stacks of up to three transforms, against NumPy and differences of it.

The expectation never comes from this package: programs run in NumPy's extended precision, and each derivative in a stack is
a fourth-order central difference. Points where differences of two widths disagree (kinks) are left out.
"""
import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import loopwright as lw
from tests.scale import examples

N = 4
DIRECTION = np.array([0.3, -1.1, 0.7, 0.2])
ROWS = np.array([[0.5], [1.0], [-0.7]])
WEIGHTS = np.random.default_rng(0).normal(size=(N, N)) * 0.5
PLACES = np.array([2, 0, 0, 3])


# ---- steps: vector of N -> vector of N ------------------------------------------------------------------
def written(x, key, value):
    y = x.copy()
    y[key] = value
    return y


def added(x, c):
    y = x * 1.0
    y[1:3] += x[:2] * c
    y[::2] *= x[1] + c
    return y


def softmax(x):
    e = np.exp(x - np.max(x))
    return e / np.sum(e)


def turned(x, c):
    z = np.exp(1j * c * x) * (x + 0.5j)
    return np.real(z) + np.imag(z * z) * 0.1 + np.abs(z)


STEPS = (
    lambda x, c: np.sin(x), lambda x, c: np.cos(x) * c, lambda x, c: np.tanh(x) * c, lambda x, c: np.exp(-x * x),
    lambda x, c: np.log(1.5 + np.tanh(x)), lambda x, c: x / (1.0 + x * x), lambda x, c: np.sqrt(1.0 + x * x),
    lambda x, c: np.maximum(x, c), lambda x, c: np.minimum(x, np.sin(x) + c), lambda x, c: np.where(x > c, x * c, np.sin(x)),
    lambda x, c: np.abs(x) * c, lambda x, c: -x + c, lambda x, c: x ** 3 * 0.1, lambda x, c: np.power(1.5 + np.tanh(x), x * c),
    lambda x, c: np.arctan2(x, 2.0 + c), lambda x, c: np.hypot(x, c), lambda x, c: np.log1p(x * x),
    lambda x, c: np.arctan(x * c),
    lambda x, c: np.expm1(np.tanh(x)) * np.sign(x - c), lambda x, c: np.cosh(np.tanh(x)), lambda x, c: np.clip(x, -c, c * 2),
    lambda x, c: np.where(x > 0, np.sqrt(np.abs(x)) * x, 0.0), lambda x, c: np.square(x) * 0.2 + np.floor(x),
    lambda x, c: np.remainder(x, 1.7) * c, lambda x, c: np.fmax(x, c * 0.5) + np.fmin(x, c), lambda x, c: np.logaddexp(x, c),
    lambda x, c: WEIGHTS @ x, lambda x, c: x @ WEIGHTS * c, lambda x, c: x[PLACES], lambda x, c: x[::-1] * c,
    lambda x, c: np.take(x, [3, 1, 1, 0]) + x, lambda x, c: written(x, 1, np.sum(x * x) * 0.3),
    lambda x, c: written(x, slice(1, 3), x[0:2] * c), lambda x, c: written(x, PLACES, np.sin(x)), added,
    lambda x, c: np.concatenate([x[2:], x[:2] * c]), lambda x, c: np.transpose(np.reshape(x, (2, 2))).reshape(-1) * x,
    lambda x, c: x - np.max(x), lambda x, c: x * np.mean(x), lambda x, c: x * np.min(x) + c, lambda x, c: softmax(x),
    lambda x, c: np.sum(x[:, None] * np.sin(x)[None, :] * c, axis=1), lambda x, c: np.cumsum(x) * 0.5,
    lambda x, c: np.cumprod(np.tanh(x) + c), lambda x, c: np.sort(x) * c, lambda x, c: x[np.argsort(-x)] + x,
    lambda x, c: np.prod(np.tanh(x) + 1.2) * x, lambda x, c: (x - np.mean(x)) / np.sqrt(np.var(x) + c),
    lambda x, c: np.var(x) + x * c,
    lambda x, c: np.roll(x, 1) - x * c, lambda x, c: np.stack([x, np.sin(x)], axis=1)[:, 0] + x, lambda x, c: np.flip(x) * x,
    lambda x, c: np.diff(np.pad(x, (1, 0))), lambda x, c: np.broadcast_to(np.sum(x), (N,)) * 0.3 + x,
    lambda x, c: np.einsum("i,ij,j->j", x, WEIGHTS, np.tanh(x)), lambda x, c: np.outer(x, np.sin(x)).max(axis=0),
    lambda x, c: np.trace(np.outer(x, x) * WEIGHTS) * 0.3 + x, turned,
    lambda x, c: np.sum(np.tril(np.outer(x, x)), axis=0) * 0.3,
    lambda x, c: x[x.argmax()] * c + np.where(np.isfinite(x), x, 0.0), lambda x, c: np.tensordot(WEIGHTS, x, ((0,), (0,))),
)


def program(rng):
    """A random chain of steps; now and then two chains that meet."""
    parts = [(STEPS[rng.integers(len(STEPS))], float(rng.uniform(0.3, 1.2))) for _ in range(rng.integers(1, 5))]
    joined = rng.random() < 0.3

    def f(x):
        y = x
        for step, c in parts:
            y = step(y, c)
        return y * x + np.tanh(y) if joined else y
    return f


# ---- transforms: of a function of vectors, by an engine -------------------------------------------------
class Differences:
    """Derivatives of NumPy functions, in extended precision."""

    def __init__(self, h):
        self.h = np.longdouble(h)

    def along(self, f, x, d):
        h = self.h
        return (8 * (f(x + h * d) - f(x - h * d)) - (f(x + 2 * h * d) - f(x - 2 * h * d))) / (12 * h)

    def grad(self, f):
        return lambda x: np.stack([self.along(f, x, e) for e in np.eye(N, dtype=np.longdouble)])

    def value_and_grad(self, f):
        return lambda x: (f(x), self.grad(f)(x))

    def jvp(self, f, primals, tangents):
        return f(*primals), self.along(f, primals[0], np.longdouble(tangents[0]))

    def linearize(self, f, x):
        return f(x), lambda d: self.along(f, x, np.longdouble(d))

    def vjp(self, f, x):
        return f(x), lambda ct: (self.grad(lambda y: np.sum(f(y) * ct))(x),)

    def jacfwd(self, f):
        return lambda x: self.grad(f)(x).T

    jacrev = jacfwd

    def vmap(self, f, in_axes=0, out_axes=0):
        return lambda x: np.stack([f(row) for row in np.moveaxis(x, in_axes, 0)], axis=out_axes)

    def jit(self, f):
        return f


def beside_value(E, f):
    def g(x):
        value, gradient = E.value_and_grad(lambda y: np.sum(f(y) * x))(x)
        return value * 0.2 + gradient
    return g


TRANSFORMS = {
    "grad": lambda E, f: E.grad(lambda y: np.sum(f(y))),
    "closing grad": lambda E, f: lambda x: x * E.grad(lambda y: np.sum(f(x * y)))(x),
    "value_and_grad": beside_value,
    "jvp": lambda E, f: lambda x: E.jvp(f, (x,), (DIRECTION,))[1],
    "vjp": lambda E, f: lambda x: E.vjp(f, x)[1](DIRECTION)[0],
    "linearize": lambda E, f: lambda x: E.linearize(f, x)[1](DIRECTION),
    "jacfwd": lambda E, f: lambda x: E.jacfwd(f)(x) @ DIRECTION,
    "jacrev": lambda E, f: lambda x: DIRECTION @ E.jacrev(f)(x),
    "vmap": lambda E, f: lambda x: np.sum(E.vmap(f)(x[None, :] * ROWS), axis=0),
    "vmap of columns": lambda E, f: lambda x: E.vmap(f, in_axes=1, out_axes=-1)(x[:, None] * ROWS.T)[:, 1] * x[0],
    "jit": lambda E, f: E.jit(f),
}
COSTLY = {"grad", "closing grad", "value_and_grad", "vjp", "jacfwd", "jacrev"}  # for differences: one per element


def stacked(engine, f, names):
    for name in names:
        f = TRANSFORMS[name](engine, f)
    return f


def expectation(f, names, x):
    """By differences of two widths, which must agree; None where the function is not smooth."""
    x = x.astype(np.longdouble)
    order = sum(name not in ("jit", "vmap", "vmap of columns") for name in names)
    with np.errstate(all="ignore"):
        wide, narrow = (np.asarray(stacked(Differences(h), f, names)(x)) for h in ((2e-3, 1e-3) if order else (1.0,) * 2))
    scale = np.max(np.abs(narrow), initial=1.0)
    fine = np.all(np.isfinite(narrow)) and scale < 1e6 and np.max(np.abs(wide - narrow), initial=0.0) < 1e-6 * scale
    return narrow.astype(float) if fine else None


PAIRS = list(itertools.product(TRANSFORMS, TRANSFORMS))
DRAWN = math.ceil(360 / len(PAIRS))


@pytest.mark.parametrize("first, second", PAIRS)
@examples(DRAWN)
@given(seed=st.integers(0, 2**32 - 1))
def test_every_pair_of_transforms_on_random_programs(first, second, seed):
    rng = np.random.default_rng(seed)
    f, x = program(rng), rng.normal(size=N)
    third = [name for name in TRANSFORMS if name != "jit" and not (name in COSTLY and {first, second} <= COSTLY)]
    names = [first, second, *([third[rng.integers(len(third))]] if rng.random() < 0.3 else [])]
    want = expectation(f, names, x)
    assume(want is not None)
    got = stacked(lw, f, names)(x)
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6 * np.max(np.abs(want), initial=1.0), err_msg=str(names))


@examples(60)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_order_of_vmap_and_grad_does_not_matter(seed):
    rng = np.random.default_rng(seed)
    f, xs = program(rng), rng.normal(size=(3, N))
    gradient = lw.grad(lambda x: np.sum(f(x)))
    want = np.stack([gradient(x) for x in xs])
    with np.errstate(all="ignore"):
        assume(np.all(np.isfinite(want)))
    scale = np.max(np.abs(want), initial=1.0)
    for g in (lw.vmap(gradient), lw.grad(lambda xs: np.sum(lw.vmap(f)(xs))),
              lambda xs: lw.vjp(lw.vmap(f), xs)[1](np.ones((3, N)))[0]):
        np.testing.assert_allclose(g(xs), want, rtol=1e-9, atol=1e-9 * scale)


def test_every_step_runs_in_plain_numpy():
    for step in STEPS:
        assert np.shape(step(np.linspace(-1, 1, N), 0.5)) == (N,)
