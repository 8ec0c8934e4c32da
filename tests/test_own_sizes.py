"""Kernels take what their sizes are, in an order of their own, so that what is written or sized otherwise is one function."""
import re

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.ir.expansion import expanded
from loopwright.ir.interpreter import evaluate
from loopwright.lower.kernel import in_order, region_of
from loopwright.lower.own_sizes import with_own_sizes
from loopwright.lower.program import lower_graph
from loopwright.lower.target import host_target
from tests.scale import examples


def kernels(f, *args, sizes=None):
    """The functions of kernels that a program has."""
    g = expanded(lw.make_graph(f)(*args))
    text = lower_graph(g, host_target(), blas=True, sizes=dict(zip(g.symbols, sizes or (), strict=False))).text
    return re.findall(r"define[^@]* @(kernel_\d+)\(", text)


def softmax(x):
    e = np.exp(x - np.max(x, axis=0))
    return e / np.sum(e, axis=0)


def pyramid(x):
    """The same of columns, of half of their rows, and of less than a quarter: a sort is always a kernel alone."""
    return [softmax(np.sort(y, axis=0)) for y in (x, x[::2], x[3::2][::2])]


HEIGHTS = lw.jit(pyramid)


def test_rows_of_every_height_are_one_kernel():
    alone = kernels(lambda x: softmax(np.sort(x, axis=0)), np.ones((9, 4), "f4"))
    moved = kernels(lambda x: [y + 1 for y in (x[::2], x[3::2][::2])], np.ones((9, 4), "f4"))
    assert len(kernels(pyramid, np.ones((9, 4), "f4"))) == len(alone) + len(moved)


@given(st.integers(1, 70), st.integers(1, 40), st.integers(0, 9))
@examples(60)
def test_results_are_numpys(n, m, seed):
    x = np.random.default_rng(seed).normal(size=(n + 3, m)).astype("f4")
    for found, y in zip(HEIGHTS(x), pyramid(x), strict=True):
        np.testing.assert_allclose(found, y, rtol=1e-5, atol=1e-6)


def above_below(x):
    above = np.sum(x * x, axis=0)
    return above / (np.mean(np.abs(x), axis=0) + 1)


def below_above(x):
    below = np.mean(np.abs(x), axis=0) + 1
    return np.sum(x * x, axis=0) / below


def test_the_order_of_statements_is_no_matter():
    x, y = np.ones((9, 4), "f4"), np.ones((5, 7), "f4")
    assert kernels(lambda x, y: (above_below(x), below_above(y)), x, y) == ["kernel_0"]


def test_kernels_of_unlike_known_sizes_are_two():
    def f(x, y):
        return np.transpose(x, (1, 0, 2)) + 1, np.transpose(y, (1, 0, 2)) + 1
    args = np.ones((4, 3, 5), "f4"), np.ones((6, 7, 8), "f4")
    assert len(kernels(f, *args)) == len(kernels(f, *args, sizes=(1, 3, 5, 1, 3, 5))) == 1
    assert len(kernels(f, *args, sizes=(4, 3, 1, 6, 7, 8))) == 2


def sizes_of(f, *args):
    """What the sizes of a program's last node are, from its own."""
    g = lw.make_graph(f)(*args)
    return [str(x) for x in with_own_sizes(region_of(g.nodes[-1:], g.results)[0])[1]]


def test_a_size_that_the_kernel_meets_elsewhere_stays():
    x = np.ones(9, "f4")
    assert sizes_of(lambda x: np.sin(x[::2]), x) == ["floordiv(n + 1, 2)"]
    assert sizes_of(lambda x: x[::2], x) == ["n"]
    assert sizes_of(lambda x: np.sin(x[3::2]), x) == [str(lw.make_graph(lambda x: x[3::2])(x).results[0].type.shape[0])]


def test_a_region_in_order_computes_what_it_did():
    def f(x):
        s = np.sum(x * x, axis=0)
        return x / s + np.max(x), np.mean(x), s
    g = expanded(lw.make_graph(f)(np.ones((3, 4))))
    ordered, x = in_order(g), np.random.default_rng(0).normal(size=(5, 6))
    assert {*ordered.nodes} == {*g.nodes} and in_order(ordered) == ordered
    for found, expected in zip(evaluate(ordered, [x], {}), f(x), strict=True):
        np.testing.assert_allclose(found, expected)
