"""Python functions that programs call: `debug_callback` for what it does, `pure_callback` for what it gives.

Guarantees: a function gets copies, NumPy scalars for rank 0; calls for effect happen once for each time that the program
passes them, in program order, and no derivative or recomputation repeats them; what a function gives is checked against the
declared types; what it raises arrives as it is. Text names a function: `module:name` where that is where Python finds it,
else a name of this process that `parse(text, bind={name: function})` gives a function again.
"""
from __future__ import annotations

import importlib
import itertools
import json
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from loopwright.ir.attributes import Callback
from loopwright.ir.builder import Builder, Ref
from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent, Shape
from loopwright.ir.errors import ArgumentError, DTypeError, GradientError, ShapeError
from loopwright.ir.graph import Graph, Node
from loopwright.ir.op import Engine, Flags, NodeRules, Op
from loopwright.ir.ops.broadcasting import broadcast, spread
from loopwright.ir.ops.regions import types_of, unused
from loopwright.ir.ops.scanning import each
from loopwright.ir.types import ArrayType

VMAP_METHODS = ("sequential", "sequential_unrolled", "expand_dims", "broadcast_all")
_serial = itertools.count(1)
_PRINT = "print:"


# ---- names ----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Print:
    """Prints its arguments: the first `count` fill positions of the format, the others are its fields `names`."""

    format: str
    count: int
    names: tuple[str, ...] = ()

    def __call__(self, *xs: Any) -> None:
        print(self.format.format(*xs[:self.count], **dict(zip(self.names, xs[self.count:], strict=True))))


def callback_of(f: Callable[..., Any], called: Callable[..., Any] | None = None) -> Callback:
    """f as an attribute; `called` is what takes flat operands in its place where f takes them in containers."""
    if isinstance(f, Print) and called is None:
        return Callback(_PRINT + json.dumps([f.format, f.count, f.names]), f)
    name = f"{getattr(f, '__module__', None)}:{getattr(f, '__qualname__', type(f).__qualname__)}"
    if called is not None or _found(name) is not f:
        name = f"{name.partition(':')[2]}#{next(_serial)}"
    return Callback(name, called or f)


def _found(name: str) -> Any:
    """What Python finds under `module:name`, or None."""
    module, _, path = name.partition(":")
    try:
        return operator.attrgetter(path)(importlib.import_module(module))
    except (ImportError, AttributeError, ValueError, TypeError):
        return None


def function_of(callback: Callback) -> Callable[..., Any]:
    """The function that a name in a program stands for. ArgumentError where text named one that is not to be found."""
    if callback.function is not None:
        return callback.function
    if callback.name.startswith(_PRINT):
        form, count, names = json.loads(callback.name.removeprefix(_PRINT))
        return Print(form, count, tuple(names))
    found: Callable[..., Any] | None = _found(callback.name)
    if found is None:
        raise ArgumentError(f"the program calls {callback.name}, which Python finds in no module. Give the function with "
                            f"parse(text, bind={{{callback.name!r}: function}}).")
    return found


# ---- calls ----------------------------------------------------------------------------------------
def own(x: np.ndarray) -> Any:
    """An operand as the function gets it."""
    return np.array(x, order="C", copy=True)[()]


def checked(found: Any, types: Sequence[tuple[Shape, np.dtype]], name: str) -> list[np.ndarray]:
    """What a function gave, as arrays of the declared types. A Python number takes the dtype."""
    outs = found if isinstance(found, (tuple, list)) else (found,)
    if len(outs) != len(types):
        raise ShapeError(f"{name} gave {len(outs)} results, but result_shape_dtypes declares {len(types)}.")
    arrays = []
    for k, (out, (shape, dtype)) in enumerate(zip(outs, types, strict=True)):
        is_number = isinstance(out, (bool, int, float, complex)) and not isinstance(out, np.generic)
        x = np.asarray(out, dtype if is_number else None)
        if x.shape != tuple(shape):
            raise ShapeError(f"result {k} of {name} has shape {x.shape}, but result_shape_dtypes declares {tuple(shape)}.")
        if x.dtype != dtype:
            raise DTypeError(f"result {k} of {name} has dtype {x.dtype}, but result_shape_dtypes declares {dtype}. Convert it "
                             f"with .astype, or declare what the function gives.")
        arrays.append(x)
    return arrays


def _whole(x: np.ndarray, is_pairs: bool) -> np.ndarray:
    """An array of pairs as the complex numbers that it is."""
    return np.ascontiguousarray(x).view(np.result_type(x.dtype, np.complex64))[..., 0] if is_pairs else x


def whole_type(t: ArrayType, is_pairs: bool) -> ArrayType:
    """The type of complex numbers that lie in memory as pairs."""
    return ArrayType(t.shape[:-1], np.result_type(t.dtype, np.complex64)) if is_pairs else t


def whole(arrays: Sequence[np.ndarray], pairs: tuple[int, ...]) -> list[np.ndarray]:
    """Operands as users know them; `pairs` are the numbers of those that are pairs."""
    return [_whole(x, k in pairs) for k, x in enumerate(arrays)]


# ---- for what it does -------------------------------------------------------------------------------
def nothing(engine: Engine, n: Node, primals: list[Ref], tangents: list[Ref | None],
            behind: Builder | None = None) -> tuple[list[Ref], list[Ref | None]]:
    """The derivative of a node without results: the node, once."""
    target = max((x.builder for x in primals), key=lambda b: b.serial)
    return target.bind_all(n.op, primals, n.attrs), []


def one_by_one(size: Extent, n: Node, args: list[Ref], mapped: Flags) -> tuple[list[Ref], list[bool]]:
    """A node for one element after another."""
    params, results = unused(types_of(n.inputs)), unused(types_of(n.outputs))
    g = Graph(tuple(params), (Node(n.op, tuple(params), n.attrs, tuple(results), (), n.source),), tuple(results))
    return each(size, g, args, mapped), [True] * len(results)


def _debug(*arrays: np.ndarray, callback: Callback, pairs: tuple[int, ...] = ()) -> tuple[()]:
    function_of(callback)(*map(own, whole(arrays, pairs)))
    return ()


debug_callback = Op(
    name="debug_callback",
    doc="Calls a Python function with the operands and gives nothing. `pairs`: operands that are complex numbers in pairs.",
    infer=lambda types, regions, **attrs: (),
    numpy=_debug,
    effect=True,
    foreign=True,
    python=lambda n: (n.attrs["callback"].name, function_of(n.attrs["callback"])),
    rules=NodeRules(jvp=nothing, linearize=nothing, reach=lambda n, flags, through: [],
                    batch=lambda engine, size, n, args, mapped: one_by_one(size, n, args, mapped)),
)


# ---- for what it gives ------------------------------------------------------------------------------
def _pure(*arrays: np.ndarray, callback: Callback, shapes: tuple[tuple[int, ...], ...], dtypes: tuple[np.dtype, ...],
          vmap_method: str | None, pairs: tuple[int, ...] = ()) -> tuple[np.ndarray, ...]:
    is_pair = [len(arrays) + k in pairs for k in range(len(shapes))]
    declared = [whole_type(ArrayType(s, d), p) for s, d, p in zip(shapes, dtypes, is_pair, strict=True)]
    found = function_of(callback)(*map(own, whole(arrays, pairs)))
    outs = checked(found, [(t.shape, t.dtype) for t in declared], callback.name)
    return tuple([np.array(x, order="C").view(d).reshape(s) for x, s, d in zip(outs, shapes, dtypes, strict=True)])


def _no_derivative(engine: Engine, n: Node, primals: list[Ref], tangents: list[Ref | None],
                   behind: Builder | None = None) -> tuple[list[Ref], list[Ref | None]]:
    if any(v.type.is_inexact for v in n.outputs):
        raise GradientError(f"{n.source}: pure_callback of {n.attrs['callback'].name} has no derivative: nothing is known of "
                            f"what the function computes. Give one with custom_jvp or custom_vjp around the call, or hold its "
                            f"arguments constant with lax.stop_gradient.")
    target = max((x.builder for x in primals), key=lambda b: b.serial)
    return target.bind_all(n.op, primals, n.attrs), [None] * len(n.outputs)


def _batch(engine: Engine, size: Extent, n: Node, args: list[Ref], mapped: Flags) -> tuple[list[Ref], list[bool]]:
    method = n.attrs["vmap_method"]
    if method is None:
        raise ArgumentError(f"{n.source}: vmap reaches pure_callback of {n.attrs['callback'].name}, which does not say what "
                            f"the function does with more axes. Pass vmap_method=, one of {', '.join(VMAP_METHODS)}.")
    if method.startswith("sequential"):
        return one_by_one(size, n, args, mapped)
    if method == "broadcast_all":
        args = spread(size, tuple(args), tuple(mapped))
    else:
        args = [a if m else broadcast(a, shape=(1, *a.shape), axes=tuple(range(1, len(a.shape) + 1)))
                for a, m in zip(args, mapped, strict=True)]
    attrs = {**n.attrs, "shapes": tuple([(size, *s) for s in n.attrs["shapes"]])}
    return pure_callback.all(*args, **attrs), [True] * len(n.outputs)


pure_callback = Op(
    name="pure_callback",
    doc="What a Python function gives for the operands: results of these shapes and dtypes. `pairs`: operands, and after them "
        "results, that are complex numbers in pairs.",
    infer=lambda types, regions, shapes, dtypes, **attrs: tuple(map(ArrayType, shapes, dtypes)),
    numpy=_pure,
    foreign=True,
    python=lambda n: (n.attrs["callback"].name, function_of(n.attrs["callback"])),
    rules=NodeRules(jvp=_no_derivative, linearize=_no_derivative, batch=_batch,
                    reach=lambda n, flags, through: [any(flags)] * len(n.outputs)),
)
