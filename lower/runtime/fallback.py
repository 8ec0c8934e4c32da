"""A call of a compiled version in Python: for interpreters whose objects generated code cannot read, and as its oracle.

Guarantees: answers, misses and raises as the dispatch function of `dispatch_text` does; only slower.
"""
from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from loopwright.ir.dims import evaluate, symbol_of
from loopwright.ir.signature import ArrayLeaf, Container, ObjectLeaf, Result, ResultTree, ScalarLeaf, Tree, Version
from loopwright.ir.types import ArrayType
from loopwright.lower.runtime.arguments import is_straight
from loopwright.lower.runtime.dispatch_text import ERROR_WORDS

_PYTHON_TYPES: dict[str, type] = {"f": float, "i": int, "c": complex, "b": bool}
_CONTAINERS: dict[str, type] = {"tuple": tuple, "list": list, "dict": dict, "none": type(None)}
_NOTHING = object()  # where an object lacks a field


class Miss(LookupError):
    """A call that does not fit a version: another form, type, layout or size."""


def call(version: Version, entry: int, raise_error: Callable[[bytes], Any],
         args: tuple[Any, ...], kwargs: dict[str, Any], donations: Mapping[int, int] = {}) -> Any:
    """The version's answer through `@entry` at this address; `donations`: results that are the very arrays of arguments, by
    number. Miss when it does not fit the call."""
    arrays = _parameters(version, args, kwargs)
    sizes = _bind(version, arrays)
    if not all(g.constraint.holds(sizes) for g in version.guards):
        raise Miss(version.name)
    graph = version.graph
    for a in donations.values():
        arrays[a] = _donated(arrays[a], [x for k, x in enumerate(arrays) if k != a])
    results = [arrays[donations[k]] if k in donations else np.empty([evaluate(x, sizes) for x in r.type.shape], r.type.dtype)
               for k, r in enumerate(graph.results)]
    error = (ctypes.c_int64 * ERROR_WORDS)()
    function = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 4)(entry)
    symbols = (ctypes.c_int64 * len(graph.free_symbols))(*(sizes[s] for s in graph.free_symbols))
    status = function(_pointers(arrays), _pointers(results), symbols, error)
    if status == 1:
        raise_error(bytes(error)[:32])
    if status == 3:
        ctypes.pythonapi.PyErr_Restore(*map(ctypes.c_void_p, error[4:]))
    if status != 0:
        raise MemoryError
    return _pack(version, version.results, results, set())


def _donated(x: np.ndarray, others: list[np.ndarray]) -> np.ndarray:
    """An argument that may be written and shares no memory with another, else a copy of it."""
    alone = x.flags.owndata and x.flags.writeable and not any(np.may_share_memory(x, y) for y in others)
    return x if alone else x.copy()


def _pointers(arrays: list[np.ndarray]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(arrays))(*(x.__array_interface__["data"][0] for x in arrays))


def _parameters(version: Version, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[np.ndarray]:
    signature = version.signature
    if len(args) != len(signature.positional) or tuple(kwargs) != tuple(name for name, _ in signature.keywords):
        raise Miss(version.name)
    out: list[np.ndarray] = []
    for tree, given in zip(_trees(version), [*args, *kwargs.values()], strict=True):
        _flatten(version, tree, given, out)
    for array, param in zip(version.hidden, version.graph.params[len(out):], strict=True):
        if array.dtype.newbyteorder("=") != param.type.dtype or array.ndim != param.type.rank:
            raise Miss(version.name)
        out.append(np.require(array, param.type.dtype, ["C", "A"]))
    if any(x.tobytes() != held for x, held in version.contents):
        raise Miss(version.name)
    return out


def _trees(version: Version) -> list[Tree]:
    return [*version.signature.positional, *(tree for _, tree in version.signature.keywords)]


def _flatten(version: Version, tree: Tree, given: Any, out: list[np.ndarray]) -> None:
    match tree:
        case ArrayLeaf(type):
            if not (_is_exactly(given, np.ndarray) and given.dtype == type.dtype and given.ndim == type.rank
                    and is_straight(given)):
                raise Miss(version.name)
            out.append(given)
        case ScalarLeaf(type, python):
            out.append(_scalar(version, type, python, given))
        case ObjectLeaf(slot):
            if given is not version.objects[slot]:
                raise Miss(version.name)
        case Container("record"):
            if not _is_exactly(given, version.objects[tree.type]):
                raise Miss(version.name)
            if any(getattr(given, name, _NOTHING) is not version.objects[slot] for name, slot in tree.fixed):
                raise Miss(version.name)
            for item, name in zip(tree.items, tree.keys, strict=True):
                _flatten(version, item, getattr(given, name, _NOTHING), out)
        case Container(kind, items, keys):
            wanted = version.objects[tree.type] if kind == "named" else _CONTAINERS[kind]
            if not _is_exactly(given, wanted) or (kind != "none" and len(given) != len(items)):
                raise Miss(version.name)
            if kind == "dict" and not all(key in given for key in keys):
                raise Miss(version.name)
            for k, item in enumerate(items):
                _flatten(version, item, given[keys[k] if kind == "dict" else k], out)


def _is_exactly(x: Any, wanted: type) -> bool:
    return type(x) is wanted


def _scalar(version: Version, type: ArrayType, python: bool, given: Any) -> np.ndarray:
    if not _is_exactly(given, _PYTHON_TYPES[type.dtype.kind] if python else type.dtype.type):
        raise Miss(version.name)
    try:
        return np.array(given, type.dtype)
    except OverflowError as error:  # an int beyond 64 bits
        raise Miss(version.name) from error


def _bind(version: Version, arrays: list[np.ndarray]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    pending = []
    shapes = [t.shape for tree in _trees(version) for t in _types(tree)]
    shapes += [array.shape for array in version.hidden]
    for array, ours, param in zip(arrays, shapes, version.graph.params, strict=True):
        for value, *extents in zip(array.shape, ours, param.type.shape, strict=True):
            for x in extents:
                name = symbol_of(x)
                if name is not None and name not in sizes:
                    sizes[name] = value
                else:
                    pending.append((x, value))
    if not all(evaluate(x, sizes) == value for x, value in pending):
        raise Miss(version.name)
    return sizes


def _types(tree: Tree) -> list[ArrayType]:
    match tree:
        case ArrayLeaf(type) | ScalarLeaf(type):
            return [type]
        case Container(items=items):
            return [t for item in items for t in _types(item)]
    return []


def _pack(version: Version, tree: ResultTree, results: list[np.ndarray], packed: set[int]) -> Any:
    if isinstance(tree, Result):
        array = results[tree.number]
        if array.ndim == 0:
            return array[()]
        if tree.number in packed:  # the same result twice: results share no memory
            return array.copy()
        packed.add(tree.number)
        return array
    items = [_pack(version, item, results, packed) for item in tree.items]
    match tree.kind:
        case "none":
            return None
        case "dict":
            return dict(zip(tree.keys, items, strict=True))
        case "tuple":
            return tuple(items)
        case "named":
            return tuple.__new__(version.objects[tree.type], items)
        case "record":
            made: Any = object.__new__(version.objects[tree.type])
            for name, x in (*zip(tree.keys, items, strict=True), *((name, version.objects[slot]) for name, slot in tree.fixed)):
                object.__setattr__(made, name, x)
            return made
    return items
