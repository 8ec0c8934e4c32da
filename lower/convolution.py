"""Convolutions as matrix products, where the library multiplies: windows of one image after another, times the kernel.

Guarantees: the same sums in another order; never more than the windows of one image (of one feature, in the gradient of a
kernel) are in memory beside the operands; what is copied is read and written along contiguous memory where the last axis of
the left operand allows it. A group with a single output feature has no matrix in it and stays a loop over its own sums.
"""
from __future__ import annotations

from collections.abc import Sequence

from loopwright.ir.builder import Ref, build
from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent, Shape, floordiv
from loopwright.ir.graph import Node
from loopwright.ir.ops.arithmetic import add
from loopwright.ir.ops.broadcasting import broadcast
from loopwright.ir.ops.contraction import dot_general
from loopwright.ir.ops.control import scan
from loopwright.ir.ops.convolution import FEATURE, GROUP, IMAGE, SPACE, conv
from loopwright.ir.ops.regions import blank
from loopwright.ir.ops.structural import move_axis, pad, permute, reshape, reverse, slice_
from loopwright.ir.ops.windows import overlap_add, windows
from loopwright.ir.types import F32, F64, ArrayType
from loopwright.lower.convolution_ops import by_feature, has_one_feature, in_place_of, kinds_in_memory
from loopwright.lower.overlaps import is_rows, overlap_rows


@dataclass(frozen=True)
class Named:
    """An array whose axes have names: g group, n image, c input feature, o output feature, y0.. space, k0.. the kernel's."""

    ref: Ref
    names: tuple[str, ...]

    def ordered(self, names: Sequence[str]) -> Ref:
        """The array with its axes in this order."""
        return permute(self.ref, tuple([self.names.index(a) for a in names]))

    def size(self, name: str) -> Extent:
        return self.ref.shape[self.names.index(name)]

    def dropped(self, name: str) -> Named:
        """Without an axis of size 1."""
        return Named(reshape(self.ref, shape=tuple([n for a, n in zip(self.names, self.ref.shape, strict=True) if a != name])),
                     without(self.names, name))

    def first(self, name: str) -> Named:
        """With an axis moved to the front."""
        return Named(move_axis(self.ref, self.names.index(name), 0), (name, *without(self.names, name)))


def without(names: Sequence[str], *some: str) -> tuple[str, ...]:
    """The names but some."""
    return tuple([a for a in names if a not in some])


@dataclass(frozen=True)
class Space:
    """How windows go along the spatial axes."""

    stride: tuple[int, ...]
    lhs_dilation: tuple[int, ...]
    rhs_dilation: tuple[int, ...]
    low: Shape
    count: Shape

    @property
    def names(self) -> tuple[str, ...]:
        return tuple([f"y{k}" for k in range(len(self.count))])

    @property
    def kernel(self) -> tuple[str, ...]:
        return tuple([f"k{k}" for k in range(len(self.count))])

    def windows(self, lhs: Named, rhs: Named) -> Named:
        """The windows of lhs, without axes for positions of which there is one; lhs itself where each is the element there."""
        size = tuple([rhs.size(k) for k in self.kernel])
        ones = (1,) * len(size)
        extent = tuple([lhs.size(y) for y in self.names])
        if size == self.stride == self.lhs_dilation == ones and self.low == (0,) * len(size) and self.count == extent:
            return lhs
        if size == self.lhs_dilation == ones and self.low == (0,) * len(size) and stay_inside(self.count, self.stride, extent):
            return at_steps(lhs, self.names, self.stride, self.count)
        axes, low = tuple([lhs.names.index(y) for y in self.names]), self.low
        if lhs.names[-2:] == (self.names[-1], "n") and lhs.size("n") != 1 and self.stride[-1] == self.lhs_dilation[-1] == 1:
            return self._merged(lhs, axes, size)
        if lhs.names[-1] == "n":  # along memory: positions are the first axes then, and n can be the last
            found = windows(lhs.ref, axes=axes, window=self.count, stride=self.rhs_dilation, dilation=self.stride,
                            base=self.lhs_dilation, low=low, count=size, value=0)
            renamed = dict(zip(self.names, self.kernel, strict=True))
            return Named(found, (*[renamed.get(a, a) for a in lhs.names], *self.names))
        found = windows(lhs.ref, axes=axes, window=size, stride=self.stride, dilation=self.rhs_dilation, base=self.lhs_dilation,
                        low=low, count=self.count, value=0)
        if size == ones:
            return Named(reshape(found, shape=found.shape[:len(lhs.names)]), lhs.names)
        return Named(found, (*lhs.names, *self.kernel))

    def _merged(self, lhs: Named, axes: tuple[int, ...], size: Shape) -> Named:
        """Windows of which the last axis lies in memory together with the images, as one."""
        images, (width, *_) = lhs.size("n"), lhs.ref.shape[-2:]
        row = reshape(lhs.ref, shape=(*lhs.ref.shape[:-2], width * images))
        found = windows(row, axes=axes, window=(*self.count[:-1], self.count[-1] * images),
                        stride=(*self.rhs_dilation[:-1], self.rhs_dilation[-1] * images), dilation=self.stride,
                        base=self.lhs_dilation, low=(*self.low[:-1], self.low[-1] * images), count=size, value=0)
        renamed = dict(zip(self.names, self.kernel, strict=True))
        names = (*[renamed.get(a, a) for a in without(lhs.names, "n")], *self.names, "n")
        return Named(reshape(found, shape=(*found.shape[:-1], self.count[-1], images)), names)


def stay_inside(count: Shape, stride: tuple[int, ...], extent: Shape) -> bool:
    """Whether so many elements, the first of each axis and others at steps from there, surely are there."""
    return all((n == m and by == 1) or n in (floordiv(m + (by - 1), by), floordiv(m - 1, by) + 1)
               for n, by, m in zip(count, stride, extent, strict=True))


def at_steps(lhs: Named, names: Sequence[str], stride: tuple[int, ...], count: Shape) -> Named:
    """So many elements along some axes, at steps from the first."""
    step, some = dict(zip(names, stride, strict=True)), dict(zip(names, count, strict=True))
    if all(by == 1 and lhs.size(k) == some[k] for k, by in step.items()):
        return lhs
    return Named(slice_(lhs.ref, start=(0,) * len(lhs.names), step=tuple([step.get(k, 1) for k in lhs.names]),
                        shape=tuple([some.get(k, lhs.size(k)) for k in lhs.names])), lhs.names)


# ---- several features of each input feature ---------------------------------------------------------
def repeats_features(n: Node) -> bool:
    """Whether each group of a convolution is one input feature, and makes several."""
    return n.op is conv and n.inputs[0].type.shape[n.attrs["lhs_axes"][GROUP]] != 1 \
        and n.inputs[0].type.shape[n.attrs["lhs_axes"][FEATURE]] == 1 and not has_one_feature(n)


def by_repeated_features(n: Node) -> list[Node]:
    """The nodes that compute it on an input with each feature as often as it is read, a group for each output feature: lanes
    then run along all of these."""
    a, space = n.attrs, tuple([f"y{k}" for k in range(len(n.attrs["stride"]))])
    kinds = ("g", "o", "c", *[f"k{k}" for k in range(len(space))])

    def rule(x: Ref, y: Ref) -> list[Ref]:
        lhs = Named(x, _named(a["lhs_axes"], ("g", "n", "c", *space)))
        rhs = Named(y, _named(a["rhs_axes"], kinds))
        out = _named(a["out_axes"], ("g", "n", "o", *space))
        wide, made, single = _beside(rhs.names), _beside(out), lhs.dropped("c")
        more = _beside((*single.names, "o"))
        shape = tuple([rhs.size(k) if k == "o" else lhs.size(k) for k in more])
        again = broadcast(single.ref, shape=shape, axes=tuple([more.index(k) for k in single.names]))
        again, c = _merged(again, more), lhs.names.index("c")
        found = conv(reshape(again, shape=(*again.shape[:c], 1, *again.shape[c:])), _merged(rhs.ordered(wide), wide, one=True),
                     **{**a, "rhs_axes": tuple([wide.index(k) for k in kinds]),
                        "out_axes": tuple([made.index(k) for k in ("g", "n", "o", *space)])})
        shapes = dict(zip(out, n.outputs[0].type.shape, strict=True))
        return [Named(reshape(found, shape=tuple([shapes[k] for k in made])), made).ordered(out)]
    nodes = in_place_of(build(rule, [v.type for v in n.inputs]), n)
    return [m for x in nodes for m in (by_feature(x) if x.op is conv else [x])]


def _beside(names: Sequence[str]) -> tuple[str, ...]:
    """The names with the output features right after the groups."""
    return tuple([x for k in without(names, "o") for x in ((k, "o") if k == "g" else (k,))])


def _merged(x: Ref, names: Sequence[str], one: bool = False) -> Ref:
    """The array with a group for each feature; `one`: that axis stays, with one position."""
    g = names.index("g")
    return reshape(x, shape=(*x.shape[:g], x.shape[g] * x.shape[g + 1], *([1] if one else []), *x.shape[g + 2:]))


# ---- as products ------------------------------------------------------------------------------------
def is_product(n: Node) -> bool:
    """Whether a convolution becomes matrix products."""
    if n.op is not conv or n.outputs[0].type.dtype not in (F32, F64) or n.inputs[0].type.dtype != n.outputs[0].type.dtype:
        return False
    kernel, axes = n.inputs[1].type.shape, n.attrs["rhs_axes"]
    return bool(kernel[axes[GROUP]] == 1 or kernel[axes[IMAGE]] != 1)


def as_products(n: Node) -> list[Node]:
    """The nodes that compute a convolution by matrix products."""
    a = n.attrs
    space = Space(a["stride"], a["lhs_dilation"], a["rhs_dilation"], a["low"], a["count"])
    out = _named(a["out_axes"], ("g", "n", "o", *space.names))

    def rule(x: Ref, y: Ref) -> list[Ref]:
        lhs = Named(x, _named(a["lhs_axes"], ("g", "n", "c", *space.names)))
        rhs = Named(y, _named(a["rhs_axes"], ("g", "o", "c", *space.kernel)))
        if lhs.size("g") != 1:
            return [_in_turn(lhs, rhs, space, out).ordered(out)]
        found = _in_turn(lhs.dropped("g"), rhs.dropped("g"), space, without(out, "g")).ordered(without(out, "g"))
        return [reshape(found, shape=n.outputs[0].type.shape)]
    return in_place_of(build(rule, [v.type for v in n.inputs]), n)


def _named(axes: Sequence[int], kinds: Sequence[str]) -> tuple[str, ...]:
    return tuple([kinds[axes.index(a)] for a in range(len(axes))])


# ---- of single elements -----------------------------------------------------------------------------
def _of_one_group(n: Node) -> bool:
    """Whether a convolution is of one group, begins at the first elements, and all are of one dtype, which products have."""
    if n.op is not conv or n.inputs[0].type.dtype != n.outputs[0].type.dtype or n.outputs[0].type.dtype not in (F32, F64):
        return False
    return n.inputs[0].type.shape[n.attrs["lhs_axes"][GROUP]] == 1 and not any(n.attrs["low"])


def _along(n: Node, side: int) -> Shape:
    """The sizes of the spatial axes of an operand."""
    axes = n.attrs[("lhs_axes", "rhs_axes")[side]][SPACE:]
    return tuple([n.inputs[side].type.shape[k] for k in axes])


def is_pointwise(n: Node) -> bool:
    """Whether a convolution of one group has a kernel of one position, and features last: a product of all pixels, or of those
    at its steps, which are copied."""
    if not _of_one_group(n) or {*n.attrs["lhs_dilation"]} - {1} or {*_along(n, 1)} - {1}:
        return False
    plain = {*n.attrs["stride"]} - {1} or _along(n, 0) == tuple(n.attrs["count"])
    return bool(plain) and kinds_in_memory(n.attrs["lhs_axes"])[-1] == FEATURE


def is_spread(n: Node) -> bool:
    """Whether it is such a product of pixels, which then stand at steps between zeros: the gradient of one at steps."""
    if not _of_one_group(n) or {*n.attrs["stride"]} - {1} or {*_along(n, 1)} - {1}:
        return False
    fits = stay_inside(_along(n, 0), n.attrs["lhs_dilation"], n.attrs["count"])
    return fits and kinds_in_memory(n.attrs["lhs_axes"])[-1] == FEATURE


def is_one_window(n: Node) -> bool:
    """Whether it has one window, of elements that are there, and both operands what is not summed over last in memory: the
    gradient of a kernel of one position."""
    if not _of_one_group(n) or {*n.attrs["lhs_dilation"], *n.attrs["count"]} - {1}:
        return False
    last = [kinds_in_memory(n.attrs[axes])[-1] for axes in ("lhs_axes", "rhs_axes")]
    return last == [IMAGE, IMAGE] and stay_inside(_along(n, 1), n.attrs["rhs_dilation"], _along(n, 0))


def by_spreading(n: Node) -> list[Node]:
    """The nodes that make the product, and put it between zeros."""
    a, ones = n.attrs, (1,) * len(n.attrs["count"])
    space = Space(ones, ones, ones, a["low"], _along(n, 0))
    out = without(_named(a["out_axes"], ("g", "n", "o", *space.names)), "g")

    def rule(x: Ref, y: Ref) -> list[Ref]:
        lhs, rhs = _operands(n, x, y)
        found = _product(lhs.dropped("g"), rhs.dropped("g"), space, out).ordered(out)
        by, count = (dict(zip(space.names, one, strict=True)) for one in (a["lhs_dilation"], a["count"]))
        shape = tuple([count.get(k, m) for k, m in zip(out, found.shape, strict=True)])
        wide = found if {*a["lhs_dilation"]} == {1} else pad(
            found, shape=shape, start=(0,) * len(out), step=tuple([by.get(k, 1) for k in out]), value=0)
        return [reshape(wide, shape=n.outputs[0].type.shape)]
    return in_place_of(build(rule, [v.type for v in n.inputs]), n)


def lies_apart(n: Node) -> bool:
    """Whether a convolution of one group has its elements at steps between zeros: the gradient of one at steps."""
    if n.op is not conv or n.inputs[0].type.dtype != n.outputs[0].type.dtype or n.outputs[0].type.dtype not in (F32, F64):
        return False
    one = n.inputs[0].type.shape[n.attrs["lhs_axes"][GROUP]] == 1 and {*n.attrs["stride"]} == {1}
    return one and max(n.attrs["lhs_dilation"], default=1) > 1 and 0 not in _along(n, 1)


def by_overlapping(n: Node) -> list[Node]:
    """The nodes that multiply each element with the whole kernel, and add up where these lie on each other: no zeros."""
    a = n.attrs
    names, within = ([f"{k}{axis}" for axis in range(len(a["count"]))] for k in "yk")
    out = without(_named(a["out_axes"], ("g", "n", "o", *names)), "g")

    def image(one: Named, kernel: Named) -> Ref:
        pair = one.names.index("c"), kernel.names.index("c")
        product = dot_general(one.ref, kernel.ref, contract=(pair,), batch=(), dtype=None)
        found = Named(product, (*without(one.names, "c"), *without(kernel.names, "c")))
        beside = without(out, *without(out, *found.names))
        reach = tuple([(kernel.size(k) - 1) * d - low for k, d, low in zip(within, a["rhs_dilation"], a["low"], strict=True)])
        given = {"stride": a["lhs_dilation"], "dilation": a["rhs_dilation"], "base": (1,) * len(names), "low": reach,
                 "extent": a["count"], "window": tuple(map(kernel.size, within)), "count": tuple(map(one.size, names))}
        if is_rows(len(names), a["rhs_dilation"]) and found.names == (*names, *within, "o") and beside == (*names, "o"):
            return overlap_rows(found.ref, **given)
        return overlap_add(found.ordered((*beside, *within)), axes=tuple(map(beside.index, names)), **given)

    def rule(x: Ref, y: Ref) -> list[Ref]:
        lhs, rhs = (one.dropped("g") for one in _operands(n, x, y))
        for k in within:
            rhs = Named(reverse(rhs.ref, rhs.names.index(k)), rhs.names) if rhs.size(k) != 1 else rhs
        lhs = lhs.first("n")
        region = build(lambda y, x: [image(Named(x, lhs.names[1:]), Named(y, rhs.names))], [rhs.ref.type, _row(lhs)])
        images, = scan.all(rhs.ref, lhs.ref, regions=(region,), length=lhs.size("n"), reverse=False, constants=1, carry=0)
        found = Named(images, ("n", *without(out, "n"))).ordered(out)
        return [reshape(found, shape=n.outputs[0].type.shape)]
    return in_place_of(build(rule, [v.type for v in n.inputs]), n)


def by_one_window(n: Node) -> list[Node]:
    """The nodes that make one product, over features and positions."""
    names, within = ([f"{k}{axis}" for axis in range(len(n.attrs["count"]))] for k in "yk")
    out = _named(n.attrs["out_axes"], ("g", "n", "o", *names))

    def rule(x: Ref, y: Ref) -> list[Ref]:
        lhs, rhs = (one.dropped("g") for one in _operands(n, x, y))
        lhs = at_steps(lhs, names, n.attrs["rhs_dilation"], _along(n, 1))
        pairs = [(lhs.names.index(a), rhs.names.index(b)) for a, b in (("c", "c"), *zip(names, within, strict=True))]
        found = Named(dot_general(lhs.ref, rhs.ref, contract=tuple(sorted(pairs)), batch=(), dtype=None), ("n", "o"))
        return [reshape(found.ordered([k for k in out if k in "no"]), shape=n.outputs[0].type.shape)]
    return in_place_of(build(rule, [v.type for v in n.inputs]), n)


def _operands(n: Node, x: Ref, y: Ref) -> tuple[Named, Named]:
    """The operands with names for their axes."""
    space = range(len(n.attrs["count"]))
    return (Named(x, _named(n.attrs["lhs_axes"], ("g", "n", "c", *[f"y{k}" for k in space]))),
            Named(y, _named(n.attrs["rhs_axes"], ("g", "o", "c", *[f"k{k}" for k in space]))))


def _in_turn(lhs: Named, rhs: Named, space: Space, out: tuple[str, ...]) -> Named:
    """One image after another, or one feature where those are further apart in memory, added up."""
    along = "n" if lhs.names.index("n") < lhs.names.index("c") else "c"
    if along == "n" and lhs.size("n") == 1:
        return _product(lhs, rhs, space, out)
    if lhs.names[-1] == "c" and all(rhs.size(k) == 1 for k in space.kernel):
        return _product(lhs, rhs, space, out)
    lhs = lhs.first(along)
    if along == "n":
        return _each_image(lhs, rhs, space, out)
    return _each_feature(lhs, rhs.first("c"), space, out)


def _each_image(lhs: Named, rhs: Named, space: Space, out: tuple[str, ...]) -> Named:
    names: list[tuple[str, ...]] = []

    def body(kernel: Ref, image: Ref) -> list[Ref]:
        found = _product(Named(image, lhs.names[1:]), Named(kernel, rhs.names), space, without(out, "n"))
        names.append(found.names)
        return [found.ref]
    region = build(body, [rhs.ref.type, _row(lhs)])
    images, = scan.all(rhs.ref, lhs.ref, regions=(region,), length=lhs.size("n"), reverse=False, constants=1, carry=0)
    return Named(images, ("n", *names[0]))


def _each_feature(lhs: Named, rhs: Named, space: Space, out: tuple[str, ...]) -> Named:
    names: list[tuple[str, ...]] = []

    def product(feature: Ref, kernel: Ref) -> Ref:
        found = _product(Named(feature, lhs.names[1:]), Named(kernel, rhs.names[1:]), space, out)
        names.append(found.names)
        return found.ref
    rows = [_row(lhs), _row(rhs)]
    total, = [v.type for v in build(lambda *row: [product(*row)], rows).results]
    region = build(lambda carry, *row: [add(carry, product(*row))], [total, *rows])
    found, = scan.all(blank(total, lhs.ref.builder), lhs.ref, rhs.ref, regions=(region,), length=lhs.size("c"), reverse=False,
                      constants=0, carry=1)
    return Named(found, names[0])


def _row(x: Named) -> ArrayType:
    return x.ref.type.with_shape(x.ref.shape[1:])


def _product(lhs: Named, rhs: Named, space: Space, out: tuple[str, ...]) -> Named:
    """The windows of lhs times the kernel as one matrix product, the side that `out` begins with on the left."""
    seen = space.windows(lhs, rhs)
    for k in without(space.kernel, *seen.names):
        rhs = rhs.dropped(k)
    front = tuple([a for a in seen.names if a == "g"])
    rows = tuple([a for a in lhs.names if a in ("n", *space.names)])
    positions, features = without(rhs.names, "g", "o", "c"), tuple([a for a in rhs.names if a == "c"])
    if lhs.names[-1:] == features:
        summed = (*sorted(positions), *features)
        patches = Named(seen.ordered((*front, *rows, *summed)), (*front, *rows, *summed))
    else:
        summed = (*features, *sorted(positions))
        patches = Named(seen.ordered((*front, *summed, *rows)), (*front, *summed, *rows))
    names = (*front, *summed, "o") if rhs.names[-1] == "o" else (*front, "o", *summed)
    kernel = Named(rhs.ordered(names), names)
    sides = (kernel, patches) if out.index("o") < min([out.index(a) for a in rows], default=0) else (patches, kernel)
    pairs = [tuple([(sides[0].names.index(a), sides[1].names.index(a)) for a in some]) for some in (summed, front)]
    found = dot_general(*[x.ref for x in sides], contract=pairs[0], batch=pairs[1], dtype=None)
    return Named(found, (*front, *[a for x in sides for a in without(x.names, *front, *summed)]))
