"""Gradients of convolutions by their kernels, which hand-written code makes: see `codegen/kernel_slopes.py`.

Guarantees: the same sums in another order; no window is copied.
"""
from __future__ import annotations

from loopwright.ir.dims import Extent
from loopwright.ir.graph import Node, Value
from loopwright.ir.ops.convolution import FEATURE, GROUP, IMAGE, SPACE, conv
from loopwright.ir.ops.structural import transpose
from loopwright.ir.types import F32, F64
from loopwright.lower.convolution_ops import ALL_AXES, kinds_in_memory, spatial_pair

kernel_slopes = ALL_AXES.library_op("kernel_slopes", "A convolution that is the gradient of one by its kernel, by hand-written "
                                                     "code; attributes are those of `conv`.")


def is_kernel_slope(n: Node) -> bool:
    """Whether a convolution of one group sums over images and pixels, as the gradient by a kernel does, with features last in
    memory, in the kernel last or last but one, and windows whose rows lie together."""
    if n.op is not conv or n.outputs[0].type.dtype not in (F32, F64) or n.inputs[0].type.dtype != n.outputs[0].type.dtype:
        return False
    a, space = n.attrs, tuple([SPACE + k for k in range(len(n.attrs["count"]))])
    orders = [kinds_in_memory(a[name]) for name in ("lhs_axes", "rhs_axes", "out_axes")]
    natural = [(FEATURE, *space, IMAGE)] * 2
    return len(space) in (1, 2) and orders[:2] == natural and {*a["lhs_dilation"], a["stride"][-1]} == {1} \
        and orders[2] in ((*space, IMAGE, FEATURE), (*space, FEATURE, IMAGE)) \
        and n.inputs[0].type.shape[a["lhs_axes"][GROUP]] == 1


def as_kernel_slope(n: Node) -> list[Node]:
    """The nodes that compute it: the code writes features last."""
    axes, y = list(n.attrs["out_axes"]), n.outputs[0]
    if axes[IMAGE] < axes[FEATURE]:
        return [Node(kernel_slopes, n.inputs, n.attrs, n.outputs, (), n.source)]
    perm = list(range(y.type.rank))
    perm[axes[IMAGE]], perm[axes[FEATURE]] = axes[FEATURE], axes[IMAGE]
    axes[IMAGE], axes[FEATURE] = axes[FEATURE], axes[IMAGE]
    made = Value(y.type.with_shape(tuple([y.type.shape[a] for a in perm])))
    return [Node(kernel_slopes, n.inputs, {**n.attrs, "out_axes": tuple(axes)}, (made,), (), n.source),
            Node(transpose, (made,), {"perm": tuple(perm)}, (y,), (), n.source)]


def numbers(n: Node) -> tuple[Extent, ...]:
    """What the code is told. An image with one axis is one row."""
    a, (image, slopes, _) = n.attrs, (v.type.shape for v in (*n.inputs, *n.outputs))
    (images, channels), features = (image[a["lhs_axes"][k]] for k in (FEATURE, IMAGE)), slopes[a["rhs_axes"][IMAGE]]
    height, width = spatial_pair([image[k] for k in a["lhs_axes"][SPACE:]])
    high, wide = spatial_pair([slopes[k] for k in a["rhs_axes"][SPACE:]])
    rows, columns, down, right = (x for name in ("count", "rhs_dilation") for x in spatial_pair(a[name]))
    spread, _ = spatial_pair(a["stride"])
    above, before = spatial_pair(a["low"], 0)
    return images, height, width, channels, rows, columns, features, high, wide, down, right, above, before, spread
