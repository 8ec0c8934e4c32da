"""Expensive maps of rows that no fold of the row makes are kernels of their own, with lanes from row to row."""
import numpy as np

import loopwright as lw
from loopwright.lower.partition import partition
from loopwright.lower.target import host_target


def _kernels(f, *args) -> list:
    return [n for n in partition(lw.make_graph(f)(*args), host_target(), blas=False).nodes if n.op.name == "kernel"]


def test_a_map_of_rows_has_lanes_along_them() -> None:
    x, y = np.random.default_rng(0).normal(size=(2, 50, 3))
    def f(x, y):
        return np.exp(x[:, 0])[:, None] * y
    assert [n.outputs[0].type.rank for n in _kernels(f, x, y)] == [1, 2]
    assert np.allclose(lw.jit(f)(x, y), f(x, y), rtol=1e-14)


def test_what_folds_a_row_stays_with_the_row() -> None:
    x = np.random.default_rng(0).normal(size=(50, 3))
    def f(x):
        return x - np.log(np.sum(np.exp(x), axis=1))[:, None]
    assert len(_kernels(f, x)) == 1
    assert np.allclose(lw.jit(f)(x), f(x), rtol=1e-14)


def test_cheap_maps_and_numbers_stay() -> None:
    x = np.random.default_rng(0).normal(size=(50, 3))
    assert len(_kernels(lambda x: (x[:, 0] * 2)[:, None] * x, x)) == 1
    assert len(_kernels(lambda x, a: np.exp(a) * x, x, np.float64(2))) == 1


def test_jacobians_of_each_row() -> None:
    def spherical(p):
        r, t, f = p[0], p[1], p[2]
        return np.stack([r * np.sin(t) * np.cos(f), r * np.sin(t) * np.sin(f), r * np.cos(t)])
    x = np.random.default_rng(0).normal(size=(40, 3))
    found = lw.jit(lw.vmap(lw.jacfwd(spherical)))(x)
    assert np.allclose(found, np.stack([lw.jacrev(spherical)(row) for row in x]), rtol=1e-12)
