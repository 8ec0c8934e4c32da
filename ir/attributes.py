"""Attributes of nodes: a closed set of plain values, with a bit-exact key and substitution of sizes.

The set: bool, int, float, complex, str, None, np.dtype, Dim, Callback, enums, frozen dataclasses of these, and tuples.
"""
from __future__ import annotations

import dataclasses
import enum
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Any

import numpy as np

from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Dim, Extent, substitute
from loopwright.ir.types import SIZELESS


@dataclass(frozen=True)
class Callback:
    """A Python function that a program calls. Equal names are the same function; text carries the name alone."""

    name: str
    function: Callable[..., Any] | None = field(default=None, compare=False)


Attribute = Any  # the closed set above; Python cannot spell "a frozen dataclass of attributes"
Attributes = Mapping[str, Attribute]


def attribute_key(x: Attribute) -> Any:
    """A hashable key, equal exactly when the attributes are the same bits: 0.0 and -0.0 differ, 1, 1.0 and True differ."""
    kind = type(x)
    if kind is tuple:  # most attributes are one of these four
        return tuple([attribute_key(y) for y in x])
    if kind is int or kind is bool:
        return kind, x
    if kind is str:
        return x
    match x:
        case float():
            return float, struct.pack("<d", x)
        case complex():
            return complex, struct.pack("<dd", x.real, x.imag)
        case int():
            return kind, x
        case tuple():  # a named one
            return tuple([attribute_key(y) for y in x])
        case None | str() | np.dtype() | Dim() | enum.Enum():
            return x
        case Callback():
            return Callback, x.name
        case _ if dataclasses.is_dataclass(x):
            return type(x), tuple([attribute_key(getattr(x, f.name)) for f in dataclasses.fields(x)])
    raise TypeError(f"{type(x).__name__} is not an attribute: {x!r}")


def attributes_key(attrs: Attributes) -> Any:
    """The key of a node's attributes, in name order."""
    return tuple([(name, attribute_key(attrs[name])) for name in sorted(attrs)]) if attrs else ()


def map_extents(x: Attribute, to: Mapping[str, Extent]) -> Attribute:
    """x with symbols replaced, however nested."""
    kind = type(x)
    if kind in SIZELESS:
        return x
    if kind is Dim:
        return substitute(x, to)
    match x:
        case tuple():
            return tuple([y if type(y) in SIZELESS else map_extents(y, to) for y in x])
        case Callback() | np.dtype():
            return x
        case _ if dataclasses.is_dataclass(x) and not isinstance(x, type):
            return dataclasses.replace(x, **{f.name: map_extents(getattr(x, f.name), to) for f in dataclasses.fields(x)})
    return x


def has_extents(x: Attribute) -> bool:
    """Whether a symbolic size may be in x: False only where there is none."""
    kind = type(x)
    return kind not in SIZELESS and (kind is not tuple or any(has_extents(y) for y in x if type(y) not in SIZELESS))


def extents_in(x: Attribute) -> Iterator[Dim]:
    """Every symbolic size in x, however nested."""
    if type(x) in SIZELESS:
        return
    match x:
        case tuple():
            for y in x:
                yield from extents_in(y)
        case Dim():
            yield x
        case Callback() | np.dtype():
            return
        case _ if dataclasses.is_dataclass(x) and not isinstance(x, type):
            for f in dataclasses.fields(x):
                yield from extents_in(getattr(x, f.name))
