"""Containers of arrays as a whole, by JAX's names: `loopwright.tree.map(f, tree)` and so on.

What a container is stands in `loopwright.register_pytree_node`: tuples, lists, dicts, None, named tuples, dataclasses and
registered types; everything else is a leaf. `is_leaf(x)` says which further values are leaves. Guarantees: leaves go in one
order everywhere, which is that of the arguments of `jit` and `grad`: dicts by sorted keys.
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from loopwright.ir.errors import ArgumentError
from loopwright.ir.source import user_source
from loopwright.tracer import pytree
from loopwright.tracer.pytree import LEAF, Structure, children_of

__all__ = ["all", "flatten", "leaves", "map", "reduce", "structure", "transpose", "unflatten"]

IsLeaf = Callable[[Any], bool]


def flatten(tree: Any, is_leaf: IsLeaf | None = None) -> tuple[list[Any], Structure]:
    """The leaves in order, and the structure that puts them back.

    >>> flatten({"b": 2, "a": (1, None)})
    ([1, 2], dict(['a']: tuple([0]: *, [1]: None), ['b']: *))
    """
    return pytree.flatten(tree, is_leaf)


def leaves(tree: Any, is_leaf: IsLeaf | None = None) -> list[Any]:
    """The leaves in order."""
    return flatten(tree, is_leaf)[0]


def structure(tree: Any, is_leaf: IsLeaf | None = None) -> Structure:
    """The container without its leaves; structures compare and hash by value."""
    return flatten(tree, is_leaf)[1]


def unflatten(treedef: Structure, leaves: Iterable[Any]) -> Any:
    """The container of this structure with these leaves. ArgumentError for another number of them."""
    given = list(leaves)
    if len(given) != treedef.leaf_count:
        raise ArgumentError(f"{user_source()}: the structure {treedef} has {treedef.leaf_count} leaves, got {len(given)}.")
    return pytree.unflatten(treedef, given)


def map(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: IsLeaf | None = None) -> Any:
    """f of every leaf, and of what stands at its place in the other trees, in a container like `tree`. ArgumentError where they
    have other containers above it.

    >>> map(lambda w, g: w - 2 * g, {"a": 5, "b": [7]}, {"a": 1, "b": [2]})
    {'a': 3, 'b': [3]}
    """
    found, treedef = flatten(tree, is_leaf)
    others = [_up_to(treedef, x, x) for x in rest]
    return pytree.unflatten(treedef, [f(*xs) for xs in zip(found, *others, strict=True)])


def _up_to(treedef: Structure, tree: Any, whole: Any) -> list[Any]:
    """What stands in a tree where the leaves of a structure are."""
    if treedef is LEAF:
        return [tree]
    children, meta = children_of(tree) or ((), None)
    if type(tree) is not treedef.type or meta != treedef.meta or len(children) != len(treedef.children):
        raise ArgumentError(f"{user_source()}: a tree of the structure {pytree.flatten(whole)[1]} does not fit one that has "
                            f"{treedef} in the place of {tree!r}.")
    return [x for c, s in zip(children, treedef.children, strict=True) for x in _up_to(s, c, whole)]


def reduce(function: Callable[[Any, Any], Any], tree: Any, *initializer: Any, is_leaf: IsLeaf | None = None) -> Any:
    """The leaves folded from the left.

    >>> reduce(lambda a, b: a + b, {"x": 1, "y": (2, 3)})
    6
    """
    return functools.reduce(function, leaves(tree, is_leaf), *initializer)


def all(tree: Any, *, is_leaf: IsLeaf | None = None) -> bool:
    """Whether every leaf is true."""
    return bool(functools.reduce(lambda a, b: a and bool(b), leaves(tree, is_leaf), True))


def transpose(outer_treedef: Structure, inner_treedef: Structure, pytree_to_transpose: Any) -> Any:
    """A tree of the outer structure, whose leaves are trees of the inner one, turned inside out.

    >>> transpose(structure([0, 0]), structure({"a": 0, "b": 0}), [{"a": 1, "b": 2}, {"a": 3, "b": 4}])
    {'a': [1, 3], 'b': [2, 4]}
    """
    rows = [_up_to(inner_treedef, x, x) for x in _up_to(outer_treedef, pytree_to_transpose, pytree_to_transpose)]
    columns = [pytree.unflatten(outer_treedef, [row[k] for row in rows]) for k in range(inner_treedef.leaf_count)]
    return pytree.unflatten(inner_treedef, columns)
