"""Convolutions of arrays with any number of spatial axes, with JAX's names, arguments and meaning.

Guarantees: sizes may be symbolic; kernels are not turned around, as in machine learning; sums of f16 and bf16 are made in
f32; each derivative is a convolution again. What is asked of a kernel's sizes is whether one is 1, which becomes a guard.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from loopwright.arrays import xp
from loopwright.ir.builder import Ref
from loopwright.ir.dims import Extent, floordiv
from loopwright.ir.errors import ArgumentError, ShapeError
from loopwright.ir.guards import Scope
from loopwright.ir.ops.convolution import conv as conv_op
from loopwright.ir.source import user_source
from loopwright.tracer.axes import as_size, known_list
from loopwright.tracer.promotion import as_dtype, convert, reshape, result_type, shape_of
from loopwright.windows import Axis, Padding, entered, integers, placed

Labels = Sequence[str] | None


# ---- which axis is which --------------------------------------------------------------------------
class ConvDimensionNumbers(NamedTuple):
    """Which axis is which: (batch, feature, *space) of lhs and of the result, (output feature, input feature, *space) of the
    kernel."""

    lhs_spec: tuple[int, ...]
    rhs_spec: tuple[int, ...]
    out_spec: tuple[int, ...]


_KINDS = ("NC", "OI", "NC")


def conv_dimension_numbers(lhs_shape: Sequence[Any], rhs_shape: Sequence[Any], dimension_numbers: Any) -> ConvDimensionNumbers:
    """Which axis is which, from three strings such as ("NHWC", "HWIO", "NHWC"): N batch, C feature, I and O the kernel's input
    and output features, any other letters space, in the order of the kernel's. None: ("NCHW", "OIHW", "NCHW") and its like.

    >>> conv_dimension_numbers((1, 8, 8, 3), (3, 3, 3, 4), ("NHWC", "HWIO", "NHWC")).rhs_spec
    (3, 2, 0, 1)
    """
    rank = len(lhs_shape)
    if len(rhs_shape) != rank or rank < 2:
        raise ShapeError(f"{user_source()}: a convolution takes two arrays of one rank, at least 2: batch, feature and space, "
                         f"got ranks {rank} and {len(rhs_shape)}.")
    if isinstance(dimension_numbers, ConvDimensionNumbers):
        return dimension_numbers
    if dimension_numbers is None:
        return ConvDimensionNumbers(*[tuple(range(rank))] * 3)
    texts = tuple(dimension_numbers)
    if len(texts) != 3 or not all(isinstance(t, str) for t in texts):
        raise ArgumentError(f"{user_source()}: dimension_numbers must be three strings, such as ('NHWC', 'HWIO', 'NHWC'), got "
                            f"{dimension_numbers!r}.")
    space = [c for c in texts[1] if c not in "OI"]
    for text, kinds in zip(texts, _KINDS, strict=True):
        if sorted(text) != sorted((*kinds, *space)) or len(text) != rank:
            raise ArgumentError(f"{user_source()}: {text!r} of dimension_numbers {texts} must have {rank} letters: {kinds[0]} "
                                f"and {kinds[1]} once, and each spatial letter of the kernel once.")
    return ConvDimensionNumbers(*[tuple([text.index(c) for c in (*kinds, *space)])
                                  for text, kinds in zip(texts, _KINDS, strict=True)])


# ---- convolutions -----------------------------------------------------------------------------------
def conv_general_dilated(lhs: Any, rhs: Any, window_strides: Sequence[int], padding: Padding,
                         lhs_dilation: Sequence[int] | None = None, rhs_dilation: Sequence[int] | None = None,
                         dimension_numbers: Any = None, feature_group_count: Any = 1, batch_group_count: Any = 1,
                         precision: Any = None, preferred_element_type: Any = None) -> Any:
    """The sums over input features and positions of the windows of lhs times the kernel rhs.

    Arrays are lhs[batch, feature, *space] and rhs[output feature, input feature, *space] in the order that dimension_numbers
    says (see conv_dimension_numbers); everything else has one entry for each spatial axis, in the kernel's order. padding:
    "SAME", "SAME_LOWER", "VALID" or pairs (low, high), which may be negative. lhs_dilation: how far apart elements of lhs are,
    rhs_dilation: how far apart those that one window takes. feature_group_count: lhs and result features are in that many
    groups, each convolved on its own; batch_group_count: the batch is, with a group of output features for each.
    preferred_element_type: the result's dtype. precision: accepted; sums are always made at full precision.
    ShapeError for sizes that do not fit, ArgumentError for settings.

    >>> import numpy as np
    >>> conv_general_dilated(np.arange(5.0)[None, None], np.array([[[1.0, 0.0, -1.0]]]), (1,), "VALID")
    array([[[-2., -2., -2.]]])
    """
    why = "a convolution"
    lhs, rhs = _array(lhs), _array(rhs)
    spec = conv_dimension_numbers(shape_of(lhs), shape_of(rhs), dimension_numbers)
    groups = as_size(feature_group_count), as_size(batch_group_count)
    pads = [] if isinstance(padding, str) else [n for p in known_list(padding) for n in p]
    here, refs = entered([lhs, rhs], [*groups, *[as_size(n) for n in pads]], why)
    dtype = result_type(lhs, rhs)
    x, kernel = (convert(r, dtype) for r in refs)
    scope, space = here.builder.scope, len(spec.rhs_spec) - 2
    if isinstance(padding, str) and lhs_dilation is not None and any(n != 1 for n in known_list(lhs_dilation)):
        raise ArgumentError(f"{user_source()}: {why}: padding={padding!r} has no meaning with lhs_dilation. Give the padding "
                            f"as pairs (low, high), or use conv_transpose.")
    for a in spec.rhs_spec[2:]:
        scope.decide("==", kernel.shape[a], 1)
    axes = [Axis(*one) for one in zip(
        (x.shape[a] for a in spec.lhs_spec[2:]), (kernel.shape[a] for a in spec.rhs_spec[2:]),
        integers(window_strides, space, 1, "window_strides", why), integers(lhs_dilation, space, 1, "lhs_dilation", why),
        integers(rhs_dilation, space, 1, "rhs_dilation", why), strict=True)]
    low, count = placed(axes, padding, scope, why)
    out = _grouped(x, kernel, spec, groups, scope, stride=tuple([a.stride for a in axes]),
                   lhs_dilation=tuple([a.base for a in axes]), rhs_dilation=tuple([a.dilation for a in axes]), low=low,
                   count=count, dtype=None if preferred_element_type is None else as_dtype(preferred_element_type))
    return here.results([out])[0][0]


def _array(x: Any) -> Any:
    """An operand, of which lists may stand for an array."""
    return xp.asarray(x) if isinstance(x, (list, tuple)) else x


def _grouped(x: Ref, kernel: Ref, spec: ConvDimensionNumbers, groups: tuple[Extent, Extent], scope: Scope, **attrs: Any) -> Ref:
    """The op, whose operands have an axis of groups: in front of features, or of the batch; the result's in front of its
    features."""
    lhs, rhs, out = spec
    batches = groups[1]
    number = _number_of_groups(x, kernel, spec, groups, scope)
    apart = lhs[0 if batches != 1 else 1]
    inner = floordiv(x.shape[apart], number) if batches != 1 else kernel.shape[rhs[1]]
    left = reshape(x, (*x.shape[:apart], number, inner, *x.shape[apart + 1:]))
    outputs = kernel.shape[rhs[0]]
    right = reshape(kernel, (*kernel.shape[:rhs[0]], number, floordiv(outputs, number), *kernel.shape[rhs[0] + 1:]))
    found = conv_op(left, right, lhs_axes=_with_group(lhs, apart), rhs_axes=_with_group(rhs, rhs[0]),
                    out_axes=_with_group(out, out[1]), **attrs)
    return reshape(found, (*found.shape[:out[1]], outputs, *found.shape[out[1] + 2:]))


def _with_group(axes: Sequence[int], at: int) -> tuple[int, ...]:
    """The axes where one more stands in front of axis `at`, and that one first."""
    return (at, *(a + (a >= at) for a in axes))


def _number_of_groups(x: Ref, kernel: Ref, spec: ConvDimensionNumbers, groups: tuple[Extent, Extent], scope: Scope) -> Extent:
    """How many groups there are, where sizes fit."""
    features, batches = groups
    why = f"{user_source()}: a convolution of {x.type} with the kernel {kernel.type}"
    if features != 1 and batches != 1:
        raise ArgumentError(f"{why}: feature_group_count={features} and batch_group_count={batches}: one of them must be 1.")
    number = batches if features == 1 else features
    if not scope.decide("<=", 1, number):
        raise ArgumentError(f"{why}: a number of groups must be positive, got {number}.")
    outputs, inputs = (kernel.shape[a] for a in spec.rhs_spec[:2])
    if features != 1:
        scope.decide("==", inputs, 1)  # one feature by itself, as most groups are
        inputs = scope.canonical(inputs)
    if number != 1:
        scope.decide("==", outputs, number)
        outputs = scope.canonical(outputs)
    if not scope.equate(x.shape[spec.lhs_spec[1]], inputs * features):
        raise ShapeError(f"{why}: lhs has {x.shape[spec.lhs_spec[1]]} features, and must have those of the kernel's input, "
                         f"{inputs}, in each of {features} groups. Which axis is which, dimension_numbers says.")
    for what, n in (("output features", outputs), ("elements of the batch", x.shape[spec.lhs_spec[0]] if batches != 1 else 0)):
        if number != 1 and n != 0 and not scope.decide("divides", number, n):
            raise ShapeError(f"{why}: {n} {what} cannot be split into {number} groups of one size.")
    return scope.canonical(number)


def conv(lhs: Any, rhs: Any, window_strides: Sequence[int], padding: Padding, precision: Any = None,
         preferred_element_type: Any = None) -> Any:
    """conv_general_dilated of lhs[batch, feature, *space] with the kernel rhs[output feature, input feature, *space].

    >>> import numpy as np
    >>> conv(np.ones((1, 1, 3, 3)), np.ones((1, 1, 2, 2)), (1, 1), "SAME")[0, 0]
    array([[4., 4., 2.],
           [4., 4., 2.],
           [2., 2., 1.]])
    """
    return conv_general_dilated(lhs, rhs, window_strides, padding, preferred_element_type=preferred_element_type)


def conv_with_general_padding(lhs: Any, rhs: Any, window_strides: Sequence[int], padding: Padding,
                              lhs_dilation: Sequence[int] | None, rhs_dilation: Sequence[int] | None, precision: Any = None,
                              preferred_element_type: Any = None) -> Any:
    """conv, with dilations. See conv_general_dilated.

    >>> import numpy as np
    >>> conv_with_general_padding(np.ones((1, 1, 3)), np.ones((1, 1, 2)), (1,), [(1, 1)], (2,), None)
    array([[[1., 1., 1., 1., 1., 1.]]])
    """
    return conv_general_dilated(lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation,
                                preferred_element_type=preferred_element_type)


# ---- transposed convolutions ------------------------------------------------------------------------
_LAYOUTS = {2: ("NC", "IO", "NC"), 3: ("NHC", "HIO", "NHC"), 4: ("NHWC", "HWIO", "NHWC"), 5: ("NHWDC", "HWDIO", "NHWDC")}


def conv_transpose(lhs: Any, rhs: Any, strides: Sequence[int], padding: Padding, rhs_dilation: Sequence[int] | None = None,
                   dimension_numbers: Any = None, transpose_kernel: bool = False, precision: Any = None,
                   preferred_element_type: Any = None, use_consistent_padding: bool = False) -> Any:
    """A convolution with fractional strides: it makes `strides` times as many elements of each spatial axis.

    dimension_numbers: (batch, *space, feature) and the kernel (*space, input, output) unless given. padding: "SAME" or "VALID"
    of the convolution that this undoes; pairs are the padding of this one, or of that one with use_consistent_padding.
    transpose_kernel: turn the kernel around and exchange its features, so that this is that convolution's gradient.

    >>> import numpy as np
    >>> conv_transpose(np.ones((1, 3, 1)), np.ones((2, 1, 1)), (2,), "VALID")[0, :, 0]
    array([1., 1., 1., 1., 1., 1.])
    """
    why = "conv_transpose"
    lhs, rhs = _array(lhs), _array(rhs)
    rank = len(shape_of(lhs))
    if dimension_numbers is None and rank not in _LAYOUTS:
        raise ArgumentError(f"{user_source()}: {why}: pass dimension_numbers for arrays with {rank} axes.")
    spec = conv_dimension_numbers(shape_of(lhs), shape_of(rhs), dimension_numbers or _LAYOUTS[rank])
    space = spec.rhs_spec[2:]
    by = integers(strides, len(space), 1, "strides", why)
    apart = integers(rhs_dilation, len(space), 1, "rhs_dilation", why)
    pads: Any = padding
    if use_consistent_padding or padding in ("SAME", "VALID"):
        each = [padding] * len(space) if isinstance(padding, str) else padding
        pads = [_undone((rhs.shape[a] - 1) * d + 1, s, p) for a, d, s, p in zip(space, apart, by, each, strict=True)]
    if transpose_kernel:
        rhs = xp.swapaxes(xp.flip(rhs, space), spec.rhs_spec[0], spec.rhs_spec[1])
    return conv_general_dilated(lhs, rhs, (1,) * len(space), pads, by, apart, spec,
                                preferred_element_type=preferred_element_type)


def _undone(reach: Any, stride: int, padding: Any) -> tuple[Any, Any]:
    """The padding (low, high) that undoes a convolution, whose windows reach so far."""
    if padding == "SAME":
        whole = reach + stride - 2
        low = reach - 1 if stride > reach - 1 else (whole + 1) // 2
    elif padding == "VALID":
        whole = reach + stride - 2 + (reach - stride if reach > stride else 0)
        low = reach - 1
    else:
        low, high = (reach - 1 - p for p in padding)
        whole = low + high
    return low, whole - low
