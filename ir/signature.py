"""What a compiled version answers to, as plain data: the form of the call, its arrays' types, guards and results.

The tracer makes these; `lower` reads them and emits the checks. Trees mirror Python containers; leaves are arguments.
"""
from __future__ import annotations

from dataclasses import field
from typing import Any

import numpy as np

from loopwright.ir.dataclass import dataclass
from loopwright.ir.graph import Graph
from loopwright.ir.guards import Guard
from loopwright.ir.types import ArrayType


@dataclass(frozen=True)
class ArrayLeaf:
    """A native, aligned, C-contiguous ndarray of this type; `type.shape` names the symbols that its sizes bind."""

    type: ArrayType


@dataclass(frozen=True)
class ScalarLeaf:
    """A Python int, float, complex (weak) or bool, or a NumPy scalar of `type.dtype`; `python` tells which."""

    type: ArrayType
    python: bool


@dataclass(frozen=True)
class ObjectLeaf:
    """A static argument: the very object must come again (by identity; equal ones are found by the slow path)."""

    slot: int  # index into Version.objects


@dataclass(frozen=True)
class Container:
    """tuple, list, dict (items in `keys` order), none, a named tuple (`named`) or a dataclass (`record`: `keys` are its fields,
    `fixed` its static ones, each the very object). Other containers are flattened in Python before the call."""

    kind: str
    items: tuple[Tree, ...] = ()
    keys: tuple[str, ...] = ()
    type: int = -1  # of a named tuple or a record: index into Version.objects
    fixed: tuple[tuple[str, int], ...] = ()


Leaf = ArrayLeaf | ScalarLeaf | ObjectLeaf
Tree = Leaf | Container


@dataclass(frozen=True)
class Result:
    """A leaf of the result: result number `number` of the graph; rank 0 comes back as a NumPy scalar."""

    number: int


@dataclass(frozen=True)
class ResultContainer:
    """The same around results."""

    kind: str
    items: tuple[ResultTree, ...] = ()
    keys: tuple[str, ...] = ()
    type: int = -1
    fixed: tuple[tuple[str, int], ...] = ()


ResultTree = Result | ResultContainer


@dataclass(frozen=True)
class Signature:
    """The call form: positional trees, then keyword trees in the order of the call."""

    positional: tuple[Tree, ...]
    keywords: tuple[tuple[str, Tree], ...] = ()


@dataclass(frozen=True, eq=False)
class Version:
    """All that `lower.compile_version` needs.

    graph: parameters are the non-object leaves in order (positional then keywords, depth first), then `hidden`, the
    arrays that the function captured (each guarded by type and shape, read at every call). contents: captured arrays that the
    trace relied on, with the bytes that they must hold. donated: numbers of the parameters whose memory results may take.
    """

    name: str
    signature: Signature
    graph: Graph
    guards: tuple[Guard, ...]
    results: ResultTree
    hidden: tuple[np.ndarray, ...] = ()
    objects: tuple[Any, ...] = field(default=())
    contents: tuple[tuple[np.ndarray, bytes], ...] = ()
    fast_math: bool = False
    donated: tuple[int, ...] = ()
