"""Pytrees: containers of arrays, taken apart into leaves and put together again.

Guarantees: `unflatten(structure, leaves)` rebuilds the very types that `flatten` met; equal structures are equal by
value and hash alike; dict leaves go in sorted-key order (insertion order where keys do not compare), so two dicts of
the same keys have one structure. Everything that is no known container is a leaf: whether a leaf makes sense is the
caller's question.

Containers: tuple, list, dict, OrderedDict, None, namedtuples, dataclass instances (fields with `metadata={"static":
True}` belong to the structure), and whatever `register_pytree_node` was told. The exact type counts, not its bases.
"""
from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from functools import partial
from inspect import getattr_static
from types import MemberDescriptorType
from typing import Any

import numpy as np

from loopwright.ir.errors import ArgumentError
from loopwright.ir.source import user_source

_NONE = type(None)


class Structure:
    """A container without its leaves: its type, what else rebuilds it (keys, field names, aux data), its children."""

    __slots__ = ("_hash", "children", "meta", "type")

    def __init__(self, type: type, meta: Any, children: tuple[Structure, ...]) -> None:
        self.type, self.meta, self.children = type, meta, children
        self._hash: int | None = None

    @property
    def leaf_count(self) -> int:
        """The number of leaves below."""
        return 1 if self is LEAF else sum([c.leaf_count for c in self.children])

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Structure) and self.type is other.type and self.meta == other.meta
                                 and self.children == other.children)

    def __hash__(self) -> int:
        if self._hash is None:
            try:
                self._hash = hash((self.type, self.meta, self.children))
            except TypeError as error:
                raise ArgumentError(f"a container of type {self.type.__name__} carries static data that does not hash "
                                    f"({error}). Make it hashable, or make it a leaf.") from error
        return self._hash

    def __repr__(self) -> str:
        if self is LEAF:
            return "*"
        if self.type is _NONE:
            return "None"
        parts = ", ".join(f"{path}: {child}" for path, child in zip(_steps(self), self.children, strict=True))
        return f"{self.type.__name__}({parts})"


LEAF = Structure(object, None, ())
_NOTHING = Structure(_NONE, None, ())
_Parts = tuple[Iterable[Any], Any]  # children, meta
_registered: dict[type, tuple[Callable[[Any], _Parts], Callable[[Any, Sequence[Any]], Any]]] = {}


def register_pytree_node(type: type, flatten: Callable[[Any], _Parts], unflatten: Callable[[Any, Sequence[Any]], Any]) -> None:
    """Make `type` a container: flatten(x) -> (children, aux); unflatten(aux, children) -> x. aux must hash and compare.
    ValueError for a type that is a container already. Dataclasses and named tuples are containers without this.

    >>> import numpy as np, loopwright as lw
    >>> class Segment:
    ...     def __init__(self, start, end):
    ...         self.start, self.end = start, end
    >>> lw.register_pytree_node(Segment, lambda s: ((s.start, s.end), None), lambda aux, ends: Segment(*ends))
    >>> lw.grad(lambda s: np.sum((s.end - s.start) ** 2))(Segment(np.zeros(2), np.ones(2))).end
    array([2., 2.])
    """
    if type in _BUILT_IN or type in _registered:
        raise ValueError(f"{user_source()}: {type.__name__} is a pytree container already.")
    _registered[type] = flatten, unflatten


def flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], Structure]:
    """The leaves in order, and the structure that puts them back. is_leaf: which further values are leaves."""
    leaves: list[Any] = []
    return leaves, _flatten(tree, leaves) if is_leaf is None else _flatten_until(tree, leaves, is_leaf)


def unflatten(structure: Structure, leaves: Iterable[Any]) -> Any:
    """The container of this structure with these leaves."""
    rest = iter(leaves)
    tree = take(structure, rest)
    assert next(rest, _NOTHING) is _NOTHING, "more leaves than the structure has"
    return tree


def paths(tree: Any, prefix: str = "") -> list[str]:
    """How a user would write each leaf after `prefix`: `['w'][0]`, `.bias`. Takes a tree or its Structure."""
    structure = tree if isinstance(tree, Structure) else flatten(tree)[1]
    return list(_paths(structure, prefix))


def broadcast_prefix(prefix: Any, structure: Structure, is_leaf: Callable[[Any], bool]) -> list[Any]:
    """One entry for each leaf of structure. `prefix` is a tree that may end early: what is_leaf accepts stands for every
    leaf below. ArgumentError where its containers are not those of structure."""
    if is_leaf(prefix):
        return [prefix] * structure.leaf_count
    parts = _parts_of(prefix)
    children, meta = parts(prefix) if parts is not None and prefix is not None else ((), None)
    children = list(children)
    if type(prefix) is not structure.type or meta != structure.meta or len(children) != len(structure.children):
        raise ArgumentError(f"{prefix!r} does not fit the arguments or results it speaks of, whose structure is {structure}.")
    return [x for c, s in zip(children, structure.children, strict=True) for x in broadcast_prefix(c, s, is_leaf)]


def _flatten(x: Any, leaves: list[Any]) -> Structure:
    kind = type(x)
    parts = None if kind in _PLAIN_LEAVES else _parts_of(x)
    if parts is None:
        leaves.append(x)
        return LEAF
    if kind is _NONE:
        return _NOTHING
    children, meta = parts(x)
    return Structure(kind, meta, tuple([_flatten(c, leaves) for c in children]))


def _flatten_until(x: Any, leaves: list[Any], is_leaf: Callable[[Any], bool]) -> Structure:
    found = None if is_leaf(x) else children_of(x)
    if found is None:
        leaves.append(x)
        return LEAF
    if x is None:
        return _NOTHING
    children, meta = found
    return Structure(type(x), meta, tuple([_flatten_until(c, leaves, is_leaf) for c in children]))


def children_of(x: Any) -> tuple[list[Any], Any] | None:
    """The children of a container and what else rebuilds it; None for a leaf."""
    if x is None:
        return [], None
    if (parts := _parts_of(x)) is None:
        return None
    children, meta = parts(x)
    return list(children), meta


def _parts_of(x: Any) -> Callable[[Any], _Parts] | None:
    """How to take a container apart; None for a leaf."""
    kind = type(x)
    if (parts := _BUILT_IN.get(kind)) is not None:
        return parts
    if (found := _registered.get(kind)) is not None:
        return found[0]
    if isinstance(x, tuple) and hasattr(kind, "_fields"):
        return _named_parts
    return _dataclass_parts if hasattr(kind, "__dataclass_fields__") else None


def take(s: Structure, leaves: Iterator[Any]) -> Any:
    """The container of this structure around the next leaves of an iterator."""
    if s is LEAF:
        return next(leaves)
    children = [take(c, leaves) for c in s.children]
    kind = s.type
    if kind is tuple:
        return tuple(children)
    if kind is list:
        return children
    if kind is _NONE:
        return None
    if kind is dict or kind is OrderedDict:
        return kind(zip(s.meta, children, strict=True))
    if kind in _registered:
        return _registered[kind][1](s.meta, children)
    if issubclass(kind, tuple):
        return tuple.__new__(kind, children)
    return _rebuilt_dataclass(s, children)


def kind_of(s: Structure) -> str:
    """What compiled code knows a container as: tuple, list, dict, none, a named tuple, or the record that a dataclass is whose
    fields are plain attributes; "" for others."""
    if s.type in _registered or s.type is OrderedDict:
        return ""
    if s.type in _BUILT_IN:
        return "none" if s.type is _NONE else s.type.__name__
    kind: Any = s.type
    if not isinstance(s.meta, Fields):
        return "named" if kind.__iter__ is tuple.__iter__ else ""
    is_plain = kind.__getattribute__ is object.__getattribute__
    return "record" if is_plain and all(map(partial(_is_plain, kind), (*s.meta.names, *s.meta.values))) else ""


def _is_plain(kind: type, name: str) -> bool:
    """Whether an attribute of instances is what was stored there: no property stands in the class."""
    found = getattr_static(kind, name, None)
    return isinstance(found, MemberDescriptorType) or not hasattr(type(found), "__set__")


def _sequence_parts(x: Sequence[Any]) -> _Parts:
    return x, None


def _dict_parts(x: dict[Any, Any]) -> _Parts:
    try:
        keys = tuple(sorted(x))
    except TypeError:
        keys = tuple(x)
    return [x[k] for k in keys], keys


def _ordered_parts(x: OrderedDict[Any, Any]) -> _Parts:
    return x.values(), tuple(x)


def _named_parts(x: Any) -> _Parts:
    return x, x._fields


class Fields:
    """The names of a dataclass's children, and its static fields. These are equal only where types and values are: 1, True and
    1.0 differ."""

    __slots__ = ("names", "values")

    def __init__(self, names: tuple[str, ...], values: dict[str, Any]) -> None:
        self.names, self.values = names, values

    def _key(self) -> Any:
        return self.names, tuple([(name, type(v), v) for name, v in self.values.items()])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fields) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


def _dataclass_parts(x: Any) -> _Parts:
    names, static = [], {}
    for f in fields(x):
        if f.metadata.get("static"):
            static[f.name] = getattr(x, f.name)
        else:
            names.append(f.name)
    return [getattr(x, name) for name in names], Fields(tuple(names), static)


def _rebuilt_dataclass(s: Structure, children: list[Any]) -> Any:
    # Not through __init__: a __post_init__ that checks or converts arrays was never meant to see traced values.
    x: Any = object.__new__(s.type)
    for name, value in (*zip(s.meta.names, children, strict=True), *s.meta.values.items()):
        object.__setattr__(x, name, value)
    return x


_BUILT_IN: dict[type, Callable[[Any], _Parts]] = {
    tuple: _sequence_parts, list: _sequence_parts, dict: _dict_parts, OrderedDict: _ordered_parts, _NONE: _sequence_parts}
_PLAIN_LEAVES = frozenset({np.ndarray, bool, int, float, complex, str})  # a shortcut for the common ones


def _steps(s: Structure) -> list[str]:
    if s.type in (dict, OrderedDict):
        return [f"[{k!r}]" for k in s.meta]
    if s.type in (tuple, list):
        return [f"[{i}]" for i in range(len(s.children))]
    if s.type in _registered:
        return [f"<child {i} of {s.type.__name__}>" for i in range(len(s.children))]
    names = s.meta.names if isinstance(s.meta, Fields) else s.meta or ()
    return [f".{name}" for name in names]


def _paths(s: Structure, prefix: str) -> Iterator[str]:
    if s is LEAF:
        yield prefix
        return
    for step, child in zip(_steps(s), s.children, strict=True):
        yield from _paths(child, prefix + step)
