"""Scatters of one update to each row of a constant are maps, and mean the same."""
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.ir.builder import build
from loopwright.ir.dims import symbol
from loopwright.ir.interpreter import evaluate
from loopwright.ir.ops.construct import full
from loopwright.ir.ops.indexing import MODES, scatter, scatter_add
from loopwright.ir.types import F64, I64, ArrayType
from tests.scale import examples

N, M, K = symbol("n"), symbol("m"), symbol("k")
# base, batch axes, indexed axes, the shapes of the updates and of the indices
FORMS = {"rows": ((N, M), 1, (1,), (N,), (N,)), "columns kept": ((N, M, K), 1, (1,), (N, 1, K), (N, 1)),
         "one place": ((M,), 0, (0,), (), ()), "two axes": ((N, M, K), 1, (2, 1), (N,), (N,)),
         "known": ((N, 3), 1, (1,), (N, 1), (N, 1))}


def placing(form, mode, op, value):
    shape, batch, axes, updates, indices = FORMS[form]
    types = [ArrayType(updates, F64), *[ArrayType(indices, I64)] * len(axes), ArrayType(shape, F64)]

    def f(u, *rest):
        base = full(into=u.builder, value=value, shape=shape, dtype=F64)
        return [op(base, u, *rest[:-1], axes=axes, batch=batch, mode=mode)]
    return build(f, types)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("mode", MODES)
@examples(4)
@given(st.integers(0, 4), st.integers(0, 20), st.integers(0, 3), st.sampled_from([(scatter, -1.5), (scatter_add, 2.0)]))
def test_lone_updates_mean_what_the_scatter_means(form, mode, n, m, k, how):
    op, value = how
    g, sizes = placing(form, mode, op, value), {"n": n, "m": m, "k": k}
    rng = np.random.default_rng(n + 10 * m + 100 * k)
    shapes = [tuple(sizes.get(str(x), x) for x in v.type.shape) for v in g.params]
    args = [rng.normal(size=shapes[0]), *(rng.integers(-m - 2, m + 2, s) for s in shapes[1:-1]), np.zeros(shapes[-1])]
    compiled = COMPILED.setdefault((form, mode, op), lw.parse(str(g)).compile())
    try:
        want, = evaluate(g, args, {s: sizes[s] for s in g.symbols})
    except IndexError:
        if args[0].size == 0:  # nothing is read there: no index is looked at
            np.testing.assert_array_equal(compiled(*args), np.full(args[-1].shape, value))
            return
        with pytest.raises(IndexError):
            compiled(*args)
        return
    np.testing.assert_array_equal(compiled(*args), want)


COMPILED = {}


def test_the_gradient_of_a_cross_entropy_is_one_kernel():
    def f(x, labels):
        return -np.mean(np.take_along_axis(lw.nn.log_softmax(x), labels[:, None], 1))
    x, labels = np.random.default_rng(0).normal(size=(7, 40)), np.arange(7) * 5
    g = lw.jit(lw.grad(f))
    assert g.lower(x, labels).kernels.count("= kernel(") == 1
    y = np.exp(x) / np.sum(np.exp(x), axis=1, keepdims=True)
    np.testing.assert_allclose(g(x, labels), (y - np.eye(40)[labels]) / 7, atol=1e-15)
    np.testing.assert_allclose(lw.jit(lw.vmap(lw.grad(f)))(x[None], labels[None])[0], (y - np.eye(40)[labels]) / 7, atol=1e-15)
    with pytest.raises(IndexError, match="index 40 is out of bounds"):
        g(x, labels + 10)



def test_what_a_row_has_one_of_does_not_widen_lanes():
    def f(x, labels):
        return -np.mean(np.take_along_axis(lw.nn.log_softmax(x), labels[:, None], 1))
    x = np.zeros((3, 50), "f4")
    lanes = [set(re.findall(r"lanes=(\d+)", lw.jit(g).lower(*args).kernels))
             for g, args in ((lw.grad(f), (x, np.zeros(3, "i8"))), (lw.nn.softmax, (x,)))]
    assert lanes[0] == lanes[1]
