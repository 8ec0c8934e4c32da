"""Convolutions that are ops of their own in a program of kernels: on arrays without axes of size 1, in groups, by hand-written
code; and which convolutions become these without a product.

Guarantees: the same sums in another order; nothing is moved in memory.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Shape, product
from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.loops import Expr, Literal, LoopContext
from loopwright.ir.op import Op
from loopwright.ir.ops.broadcasting import reduce_sum
from loopwright.ir.ops.convolution import FEATURE, GROUP, IMAGE, SPACE, conv
from loopwright.ir.ops.structural import inverse, reshape
from loopwright.ir.types import F32, F64, I64, ArrayType

T = TypeVar("T")


def without_axis(of: tuple[T, ...], axis: int) -> tuple[T, ...]:
    """All but one."""
    return (*of[:axis], *of[axis + 1:])


@dataclass(frozen=True)
class _Squeezed:
    """Convolutions on arrays without an axis of size 1: of the left operand, the kernel and the result the one of this kind
    (None: with all). The rules are those of `conv`, asked about the arrays with all axes."""

    kinds: tuple[int | None, int | None, int | None]

    def axes(self, attrs: Any) -> list[int | None]:
        """Which axis each of the three is without."""
        names = ("lhs_axes", "rhs_axes", "out_axes")
        return [None if kind is None else attrs[name][kind] for kind, name in zip(self.kinds, names, strict=True)]

    def shapes(self, types: Sequence[ArrayType], attrs: Any) -> list[Shape]:
        """The shapes without the axis, of some with it."""
        return [t.shape if a is None else without_axis(t.shape, a) for t, a in zip(types, self.axes(attrs), strict=False)]

    def whole(self, types: Sequence[ArrayType], attrs: Any) -> tuple[ArrayType, ...]:
        """The types with the axis, of some without it."""
        return tuple([t if a is None else t.with_shape((*t.shape[:a], 1, *t.shape[a:]))
                      for t, a in zip(types, self.axes(attrs), strict=False)])

    def shape(self, lhs: ArrayType, rhs: ArrayType, **attrs: Any) -> Shape:
        whole = self.whole((lhs, rhs), attrs)
        return self.shapes((*whole, *conv.result_types(whole, (), attrs)), attrs)[2]

    def dtype(self, lhs: ArrayType, rhs: ArrayType, **attrs: Any) -> np.dtype:
        return conv.result_types(self.whole((lhs, rhs), attrs), (), attrs)[0].dtype

    def numpy(self, lhs: np.ndarray, rhs: np.ndarray, **attrs: Any) -> np.ndarray:
        *operands, out = self.axes(attrs)
        whole = [x if a is None else np.expand_dims(x, a) for x, a in zip((lhs, rhs), operands, strict=True)]
        found: np.ndarray = conv.numpy(*whole, **attrs)
        return found if out is None else np.squeeze(found, out)

    def loop(self, context: LoopContext, index: tuple[Expr, ...], **attrs: Any) -> Expr:
        axes, types = self.axes(attrs), self.whole((*context.types, context.result), attrs)

        def load(k: int, at: tuple[Expr, ...]) -> Expr:
            a = axes[k]
            return context.load(k, at if a is None else without_axis(at, a))
        out = axes[2]
        assert conv.loop is not None
        at = index if out is None else (*index[:out], Literal(0, I64), *index[out:])
        return conv.loop(LoopContext(types[:2], types[2], load, context.fresh), at, **attrs)

    def op(self, name: str, doc: str) -> Op:
        return Op(name=name, doc=doc, shape=self.shape, dtype=self.dtype, numpy=self.numpy, loop=self.loop)

    def library_op(self, name: str, doc: str) -> Op:
        """One that is no loop."""
        return Op(name=name, doc=doc, shape=self.shape, dtype=self.dtype, numpy=self.numpy)

    def nodes(self, n: Node, op: Op) -> list[Node]:
        """A convolution as `op`, between reshapes."""
        types = [v.type for v in (*n.inputs, *n.outputs)]
        small = [Value(t.with_shape(shape)) for t, shape in zip(types, self.shapes(types, n.attrs), strict=True)]
        given = [v if v.type == x.type else x for v, x in zip(n.inputs, small, strict=False)]
        before = [Node(reshape, (v,), {"shape": x.type.shape}, (x,), (), n.source)
                  for v, x in zip(n.inputs, given, strict=True) if v is not x]
        return [*before, Node(op, tuple(given), n.attrs, (small[2],), (), n.source),
                Node(reshape, (small[2],), {"shape": types[2].shape}, n.outputs, (), n.source)]


_ONE_GROUP, _ONE_FEATURE = _Squeezed((GROUP, GROUP, GROUP)), _Squeezed((None, IMAGE, FEATURE))
one_group = _ONE_GROUP.op("one_group", "A convolution of one group, on arrays without an axis for groups; attributes are those "
                                       "of `conv`.")
few_features = _ONE_GROUP.library_op("few_features", "One of few output features, by hand-written code.")
few_channels = _ONE_GROUP.library_op("few_channels", "One of few input channels, by hand-written code.")
winograd = _ONE_GROUP.library_op("winograd", "One with windows of 3x3, by hand-written code that multiplies less.")
one_feature = _ONE_FEATURE.op("one_feature", "A convolution with one output feature in each group, on a kernel and a result "
                                             "without an axis for it; attributes are those of `conv`.")
depthwise = _ONE_FEATURE.library_op("depthwise", "One with channels apart from each other, by hand-written code.")


ALL_AXES = _Squeezed((None, None, None))
grouped = ALL_AXES.op("grouped", "A convolution of any number of groups as sums of its own; attributes "
                                                      "are those of `conv`.")
groupwise = ALL_AXES.library_op("groupwise", "One by hand-written code.")


def kinds_in_memory(axes: tuple[int, ...]) -> tuple[int, ...]:
    """The kinds of axes but the groups, in the order of memory."""
    return tuple([k for k in inverse(axes) if k != GROUP])


def spatial_pair(sizes: Sequence[T], one: int = 1) -> tuple[T | int, T | int]:
    """A number for each of two spatial axes, of the last or of both."""
    *first, last = sizes
    return first[0] if first else one, last


def has_one_feature(n: Node) -> bool:
    """Whether each group of a convolution has one output feature: lanes then run along the axis before, often the groups."""
    return n.op is conv and n.inputs[1].type.shape[n.attrs["rhs_axes"][IMAGE]] == 1


def by_feature(n: Node) -> list[Node]:
    """The nodes that compute it as sums of their own."""
    return _ONE_FEATURE.nodes(n, one_feature)


def is_of_rows(n: Node) -> bool:
    """Whether a convolution is of rows of numbers with one (`np.convolve`): of one feature, which is not last in memory."""
    if n.op is not conv or n.outputs[0].type.dtype not in (F32, F64) or n.inputs[0].type.dtype != n.outputs[0].type.dtype:
        return False
    a, (lhs, rhs) = n.attrs, (v.type.shape for v in n.inputs)
    ones = lhs[a["lhs_axes"][GROUP]] == lhs[a["lhs_axes"][FEATURE]] == rhs[a["rhs_axes"][IMAGE]] == 1
    return ones and a["lhs_dilation"] == a["rhs_dilation"] == (1,) and all(
        without_kind(a[name]) == (IMAGE, SPACE) for name in ("lhs_axes", "out_axes"))


def without_kind(axes: tuple[int, ...]) -> tuple[int, ...]:
    """The kinds of axes but groups and features, in the order of memory."""
    return tuple([k for k in kinds_in_memory(axes) if k != FEATURE])


def by_rows(n: Node) -> list[Node]:
    """The nodes that compute it with its feature last in memory, which moves nothing."""
    a, last, x, y = n.attrs, (0, 1, 3, 2), n.inputs[0], n.outputs[0]
    given, made = (Value(v.type.with_shape((1, v.type.shape[axes[IMAGE]], v.type.shape[axes[SPACE]], 1)))
                   for v, axes in ((x, a["lhs_axes"]), (y, a["out_axes"])))
    inner = Node(conv, (given, n.inputs[1]), {**a, "lhs_axes": last, "out_axes": last}, (made,), (), n.source)
    return [Node(reshape, (x,), {"shape": given.type.shape}, (given,), (), n.source), *_ONE_GROUP.nodes(inner, few_features),
            Node(reshape, (made,), {"shape": y.type.shape}, (y,), (), n.source)]


# ---- in blocks --------------------------------------------------------------------------------------
MOST_POSITIONS = 64  # of a kernel whose windows are copied in rows


def goes_in_blocks(n: Node) -> bool:
    """Whether a convolution is a product of rows of pixels and features, each side contiguous in memory: of one group, with
    features last, and a kernel of few positions."""
    if n.op is not conv or n.outputs[0].type.dtype not in (F32, F64) or n.inputs[0].type.dtype != n.outputs[0].type.dtype:
        return False
    (lhs, rhs), a = (v.type.shape for v in n.inputs), n.attrs
    positions = product(rhs[k] for k in a["rhs_axes"][SPACE:])
    if lhs[a["lhs_axes"][GROUP]] != 1 or (isinstance(positions, int) and positions > MOST_POSITIONS):
        return False
    of_lhs, of_out = (kinds_in_memory(a[name]) for name in ("lhs_axes", "out_axes"))
    return len(lhs) > SPACE and of_lhs[-1] == FEATURE and of_out[-2:] == (len(lhs) - 1, FEATURE)


def whole_shapes(n: Node) -> list[Shape]:
    """The shapes of the operands of a convolution of one group, and of its result, with axes for groups."""
    return [t.shape for t in _ONE_GROUP.whole([v.type for v in (*n.inputs, *n.outputs)], n.attrs)]


def shapes_of_one_feature(n: Node) -> list[Shape]:
    """The shapes of the operands of a convolution with one output feature in each group, with axes for these."""
    return [t.shape for t in _ONE_FEATURE.whole([v.type for v in n.inputs], n.attrs)]


def terms_of(n: Node) -> Shape:
    """How many input features and positions of the kernel a convolution of one group sums over."""
    _, kernel = _ONE_GROUP.whole([v.type for v in n.inputs], n.attrs)
    return tuple([kernel.shape[a] for a in n.attrs["rhs_axes"][FEATURE:]])


def in_blocks(n: Node) -> list[Node]:
    """The nodes that compute it."""
    return _ONE_GROUP.nodes(n, one_group)


def in_groups(n: Node) -> list[Node]:
    """The node that computes it as sums of its own, in all groups."""
    return [Node(grouped, n.inputs, n.attrs, n.outputs, (), n.source)]


def by_groups(n: Node) -> list[Node]:
    """The node that computes it by hand-written code."""
    return [Node(groupwise, n.inputs, n.attrs, n.outputs, (), n.source)]


def by_image(n: Node) -> list[Node]:
    """The nodes that compute a convolution of one group with the features of its left operand, which are the images of a
    gradient with respect to a kernel, as groups, and add up what these make."""
    a, (v,) = n.attrs, n.outputs
    exchanged = {**a, **{name: (a[name][FEATURE], a[name][IMAGE], a[name][GROUP], *a[name][SPACE:])
                         for name in ("lhs_axes", "rhs_axes")}}
    axis = a["out_axes"][GROUP]
    made = Value(grouped.result_types(tuple([x.type for x in n.inputs]), (), exchanged)[0])
    total = Value(v.type.with_shape((*v.type.shape[:axis], *v.type.shape[axis + 1:])))
    return [Node(grouped, n.inputs, exchanged, (made,), (), n.source),
            Node(reduce_sum, (made,), {"axes": (axis,)}, (total,), (), n.source),
            Node(reshape, (total,), {"shape": v.type.shape}, (v,), (), n.source)]


def in_place_of(g: Graph, n: Node) -> list[Node]:
    """The nodes of a graph in the place of n."""
    to: dict[Value, Value] = dict(zip(g.params, n.inputs, strict=True)) | dict(zip(g.results, n.outputs, strict=True))
    return [Node(m.op, tuple([to.get(v, v) for v in m.inputs]), m.attrs, tuple([to.get(v, v) for v in m.outputs]), m.regions,
                 n.source) for m in g.nodes]
