"""Calls of CuPy's functions for kernels that are calls of a library; products of matrices only where cuBLASLt makes none."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from loopwright.ir.graph import Node
from loopwright.ir.types import BF16, F32
from loopwright.lower.cuda.products import library_product
from loopwright.lower.fourier import READS_PAIRS, WRITES_PAIRS
from loopwright.lower.runtime.lazy import cupyx, cupyx_linalg

Function = Callable[..., Any]


def function_of(n: Node) -> Function | None:
    """What runs a kernel by CuPy's functions, f(cupy, inputs, outputs); None where there is none for it."""
    if n.attrs["implementation"] == "gemm":
        is_exact = all(v.type.dtype == n.outputs[0].type.dtype != BF16 for v in n.inputs)
        return partial(_product, n) if is_exact else None
    function = _FUNCTIONS.get(n.attrs["implementation"])
    if function is None or any(v.type.dtype == BF16 for v in n.regions[0].nodes[0].inputs):
        return None
    return partial(_called, function, n)


def _called(function: Function, n: Node, cupy: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
    once = n.regions[0].nodes[0]
    operands = [inputs[n.regions[0].params.index(v)] for v in once.inputs]
    try:
        found = function(cupy, once, outputs, *operands)
    except np.linalg.LinAlgError as error:
        raise np.linalg.LinAlgError(f"{error} (at {once.source})") from None
    for out, x in zip(outputs, found if isinstance(found, tuple) else (found,), strict=True):
        out[...] = x


def _product(n: Node, cupy: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
    """A product of matrices with what is added to it."""
    product, once = library_product(n.regions[0]), n.regions[0].nodes[0]
    assert product is not None
    a, b, (ta, tb), batch = inputs[product.left], inputs[product.right], product.gemm.transposed, len(once.attrs["batch"])
    k = int(np.prod([a.shape[axis] for axis, _ in once.attrs["contract"]], dtype=np.int64))
    front = a.shape[:batch]
    a = cupy.swapaxes(a.reshape(*front, k, -1), -1, -2) if ta else a.reshape(*front, -1, k)
    b = cupy.swapaxes(b.reshape(*front, -1, k), -1, -2) if tb else b.reshape(*front, k, -1)
    found = cupy.matmul(a, b).reshape(outputs[0].shape)
    for number in (product.added, product.bias):
        found = found if number is None else found + inputs[number]
    outputs[0][...] = found


def _transform(cupy: Any, once: Node, outputs: Sequence[Any], x: Any) -> Any:
    kind, axis = once.attrs["kind"], once.attrs["axis"]
    points = (x if kind == "rfft" else outputs[0]).shape[axis]
    given = x.view(np.complex64 if x.dtype == F32 else np.complex128)[..., 0] if kind in READS_PAIRS else x
    out = getattr(cupy.fft, kind)(given, points, axis=axis, norm=once.attrs["norm"])
    return cupy.ascontiguousarray(out)[..., None].view(x.dtype) if kind in WRITES_PAIRS else out


def _running_product(cupy: Any, once: Node, outputs: Sequence[Any], x: Any) -> Any:
    pair = np.complex64 if x.dtype == F32 else np.complex128
    return cupy.cumprod(x.view(pair)[..., 0], axis=-1)[..., None].view(x.dtype)


def _strict(name: str, **options: str) -> Function:
    """A function of cupy.linalg that raises where NumPy's does. `options`: its arguments by the attributes they come from."""
    def run(cupy: Any, once: Node, outputs: Sequence[Any], *xs: Any) -> Any:
        with cupyx().errstate(linalg="raise"):
            found = getattr(cupy.linalg, name)(*xs, **{k: once.attrs[a] for k, a in options.items()})
        return tuple(found) if isinstance(found, tuple) else found
    return run


def _triangular(cupy: Any, once: Node, outputs: Sequence[Any], a: Any, b: Any) -> Any:
    options = {"trans": int(once.attrs["transposed"]), "lower": once.attrs["lower"], "unit_diagonal": once.attrs["unit"]}
    return cupyx_linalg().solve_triangular(a, b, **options)


def _qr(cupy: Any, once: Node, outputs: Sequence[Any], x: Any) -> Any:
    return tuple(cupy.linalg.qr(x, mode="complete" if once.attrs["full"] else "reduced"))


def _qr_triangle(cupy: Any, once: Node, outputs: Sequence[Any], x: Any) -> Any:
    return cupy.linalg.qr(x, mode="complete")[1] if once.attrs["full"] else cupy.linalg.qr(x, mode="r")


def _singular_values(cupy: Any, once: Node, outputs: Sequence[Any], x: Any) -> Any:
    with cupyx().errstate(linalg="raise"):
        return cupy.linalg.svd(x, compute_uv=False)


_FUNCTIONS: Mapping[str, Function] = {
    "transform": _transform, "running_product": _running_product,
    "cholesky": _strict("cholesky"), "solve": _strict("solve"), "eigh": _strict("eigh"), "slogdet": _strict("slogdet"),
    "svd": _strict("svd", full_matrices="full"), "pinv": _strict("pinv"), "qr": _qr,
    "eigenvalues": _strict("eigvalsh"), "singular_values": _singular_values, "qr_triangle": _qr_triangle,
    "triangular_solve": _triangular,
}
