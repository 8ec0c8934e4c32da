"""Containers come apart and go together again: any nesting, any container, readable paths."""
import copy
from collections import OrderedDict, namedtuple
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright.ir.errors import ArgumentError
from loopwright.tracer.pytree import LEAF, broadcast_prefix, flatten, paths, register_pytree_node, take, unflatten
from tests.scale import examples

Point = namedtuple("Point", "x y")


@dataclass
class Layer:
    w: object
    b: object
    name: object = field(default="dense", metadata={"static": True})


@dataclass(frozen=True, slots=True)
class Frozen:
    value: object

    def __post_init__(self):
        if isinstance(self.value, str) and self.value.startswith("leaf"):
            raise AssertionError("a container is rebuilt without its constructor")


class Pair:
    def __init__(self, first, second, tag):
        self.first, self.second, self.tag = first, second, tag

    def __eq__(self, other):
        return (self.first, self.second, self.tag) == (other.first, other.second, other.tag)


register_pytree_node(Pair, lambda p: ((p.first, p.second), p.tag), lambda tag, children: Pair(*children, tag))

leaves = st.integers(0, 9) | st.floats(allow_nan=False) | st.text(max_size=3)
trees = st.recursive(leaves | st.none(), lambda t: st.one_of(
    st.lists(t, max_size=3), st.lists(t, max_size=3).map(tuple), st.dictionaries(st.text(max_size=3), t, max_size=3),
    st.lists(st.tuples(st.text(max_size=3), t), max_size=3).map(OrderedDict), st.tuples(t, t).map(lambda p: Point(*p)),
    st.tuples(t, t).map(lambda p: Layer(*p)), t.map(Frozen), st.tuples(t, t).map(lambda p: Pair(*p, "tag"))), max_leaves=12)


@given(trees)
@examples(150)
def test_a_tree_survives_the_round_trip(tree):
    found, structure = flatten(tree)
    again = unflatten(structure, found)
    assert type(again) is type(tree) and again == tree
    assert structure.leaf_count == len(found) == len(paths(structure)) == len(set(paths(tree)))
    second = flatten(copy.deepcopy(tree))[1]
    assert second == structure and hash(second) == hash(structure)
    assert not any(isinstance(x, (tuple, list, dict)) or x is None for x in found)


@given(trees, trees)
@examples(100)
def test_structures_are_equal_exactly_when_one_takes_the_leaves_of_the_other(a, b):
    (xs, s), (ys, t) = flatten(a), flatten(b)
    if s == t:
        assert hash(s) == hash(t) and len(xs) == len(ys)
        assert flatten(unflatten(s, ys))[1] == t
    else:
        assert repr(s) != repr(t) or type(a) is not type(b) or s.children != t.children or s.meta != t.meta


def test_paths_are_what_a_user_would_write():
    tree = {"w": [1, (2, None)], "p": Point(3, Layer(4, 5)), 7: Pair(6, 7, "t")}
    found, structure = flatten({str(k): v for k, v in tree.items()})
    assert paths(structure, "params") == [
        "params['7']<child 0 of Pair>", "params['7']<child 1 of Pair>", "params['p'].x", "params['p'].y.w", "params['p'].y.b",
        "params['w'][0]", "params['w'][1][0]"]
    assert found == [6, 7, 3, 4, 5, 1, 2]
    assert paths(3, "x") == ["x"]


def test_dict_leaves_are_sorted_by_key_or_in_insertion_order_where_keys_do_not_compare():
    assert flatten({"b": 1, "a": 2}) == ([2, 1], flatten({"a": 0, "b": 0})[1])
    assert flatten({"b": 1, 0: 2})[0] == [1, 2]
    assert flatten(OrderedDict(b=1, a=2))[0] == [1, 2]
    assert flatten(OrderedDict(b=1, a=2))[1] != flatten(OrderedDict(a=2, b=1))[1]


def test_containers_of_different_kinds_differ():
    same = [(1, 2), [1, 2], Point(1, 2), Layer(1, 2), Pair(1, 2, "t"), Pair(1, 2, "u"), {"x": 1, "y": 2}, OrderedDict(x=1, y=2)]
    assert len({flatten(t)[1] for t in same}) == len(same)
    assert flatten(())[1] != flatten([])[1] != flatten({})[1] != flatten(None)[1] != LEAF


def test_static_fields_of_a_dataclass_differ_by_type_and_value():
    structures = {flatten(Layer(1, 2, name))[1] for name in ("dense", "other", 1, True, 1.0)}
    assert len(structures) == 5
    assert unflatten(flatten(Layer(1, 2, "other"))[1], [3, 4]) == Layer(3, 4, "other")


def test_static_data_that_does_not_hash_is_named():
    with pytest.raises(ArgumentError, match="Layer carries static data"):
        hash(flatten(Layer(1, 2, [3]))[1])


def test_a_subclass_of_a_container_is_a_leaf():
    class Special(dict):
        pass
    special = Special(a=1)
    assert flatten([special])[0] == [special]


def test_a_type_is_registered_once():
    for taken in (dict, Pair, type(None)):
        with pytest.raises(ValueError, match="container already"):
            register_pytree_node(taken, lambda x: ((), None), lambda aux, children: None)


def test_arrays_and_unknown_objects_are_leaves():
    x, y = np.arange(3), object()
    found, structure = flatten((x, {"y": y}, "text", {1, 2}))
    assert found[0] is x and found[1] is y and found[2:] == ["text", {1, 2}]
    assert structure.leaf_count == 4


def test_take_leaves_the_rest():
    rest = iter([1, 2, 3])
    assert take(flatten((0, 0))[1], rest) == (1, 2) and list(rest) == [3]


def test_a_prefix_speaks_for_everything_below():
    structure = flatten(({"a": 1, "b": (2, 3)}, 4))[1]
    def is_leaf(x):
        return x is None or isinstance(x, int)
    assert broadcast_prefix(0, structure, is_leaf) == [0] * 4
    assert broadcast_prefix((None, 1), structure, is_leaf) == [None, None, None, 1]
    assert broadcast_prefix(({"a": 5, "b": 6}, 7), structure, is_leaf) == [5, 6, 6, 7]
    with pytest.raises(ArgumentError, match="does not fit"):
        broadcast_prefix((1, 2, 3), structure, is_leaf)

