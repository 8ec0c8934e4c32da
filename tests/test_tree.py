"""`loopwright.tree`: containers as a whole, by JAX's names."""
from collections import OrderedDict, namedtuple
from dataclasses import dataclass

import numpy as np
import pytest

import loopwright as lw
from loopwright import tree

Pair = namedtuple("Pair", "first second")


@dataclass
class Point:
    x: object
    y: object


TREES = [1, None, (), [], {}, (1, [2, None], {"b": 3, "a": (4,)}), Pair(1, [2]), OrderedDict(b=1, a=2), Point(1, {"k": 2}),
         {1: "x", "a": 2}]


@pytest.mark.parametrize("t", TREES, ids=repr)
def test_what_is_taken_apart_is_put_together(t):
    found, treedef = tree.flatten(t)
    assert tree.unflatten(treedef, found) == t and tree.leaves(t) == found and tree.structure(t) == treedef
    assert tree.map(lambda x: x, t) == t
    assert tree.unflatten(treedef, iter(found)) == t
    with pytest.raises(lw.ArgumentError, match=r"leaves, got"):
        tree.unflatten(treedef, [*found, 0])


def test_map_takes_what_stands_at_the_place_of_each_leaf():
    a = {"b": (1, None, [2]), "a": 3}
    assert tree.map(lambda x, y: (x, y), a, {"a": "p", "b": ("q", None, [{"r": 1}])}) == {
        "b": ((1, "q"), None, [(2, {"r": 1})]), "a": (3, "p")}
    assert tree.map(lambda x, y, z: x + y + z, Pair(1, 2), Pair(10, 20), Pair(100, 200)) == Pair(111, 222)
    assert tree.map(len, [(1, 2), (3,)], is_leaf=lambda x: isinstance(x, tuple)) == [2, 1]
    assert tree.map(lambda x: x is None, [None, 1], is_leaf=lambda x: x is None) == [True, False]
    for other in ({"a": 1}, {"a": 1, "c": (1, None, [2])}, {"a": 1, "b": [1, None, [2]]}, {"a": 1, "b": (1, 2, [2])}, 5):
        with pytest.raises(lw.ArgumentError, match=r"test_tree\.py:\d+: a tree of the structure"):
            tree.map(lambda x, y: x, a, other)


def test_folds_and_transposes():
    assert tree.reduce(lambda a, b: a - b, [1, (2, 3)]) == -4 and tree.reduce(lambda a, b: [*a, b], (1, 2), []) == [1, 2]
    with pytest.raises(TypeError):
        tree.reduce(lambda a, b: a, ())
    assert tree.all([1, (True, None)]) is True and tree.all({"a": 0}) is False and tree.all(()) is True
    t = {"x": (1, [2]), "y": (3, [4])}
    turned = tree.transpose(tree.structure({"x": 0, "y": 0}), tree.structure((0, [0])), t)
    assert turned == ({"x": 1, "y": 3}, [{"x": 2, "y": 4}])
    assert tree.transpose(tree.structure((0, [0])), tree.structure({"x": 0, "y": 0}), turned) == t


def test_under_transforms():
    weights = {"w": np.arange(3.0), "b": (1.0, np.ones((2, 2)))}

    def step(weights, rate):
        slopes = lw.grad(lambda t: tree.reduce(lambda a, x: a + np.sum(x ** 2), t, 0.0))(weights)
        return tree.map(lambda w, g: w - rate * g, weights, slopes)

    for f in (step, lw.jit(step)):
        got = f(weights, 0.25)
        assert tree.structure(got) == tree.structure(weights)
        for a, b in zip(tree.leaves(got), tree.leaves(weights), strict=True):
            np.testing.assert_array_equal(a, b * 0.5)


def test_jax_where_it_is_installed():
    jax = pytest.importorskip("jax", reason="the meaning is JAX's")
    for t in TREES[:-3]:
        assert tree.leaves(t) == jax.tree.leaves(t)
        assert tree.map(lambda x: [x], t) == jax.tree.map(lambda x: [x], t)
