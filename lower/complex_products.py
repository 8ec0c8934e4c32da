"""Products of complex arrays, as products of real ones.

Where one side lies in memory it is read as it lies, pairs of parts beside each other, by one real product: terms along it, by
twice as many columns of the other side, or terms down it, by twice as many rows. Transposes and conjugates of what lies in
memory are remembered, not made. Elsewhere four real products make the parts.

Guarantees: each part of a result is the sum of the same products of parts, in another order.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from loopwright.ir.builder import Ref
from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import maximum, minimum, product
from loopwright.ir.op import Op
from loopwright.ir.ops import construct, contraction, structural
from loopwright.ir.ops.control import switch
from loopwright.ir.ops.elementwise import real_part
from loopwright.ir.ops.masking import region
from loopwright.ir.ops.structural import permute, reshape, section
from loopwright.lower.pairs import Pair, Part, Whole, as_pair, joined, whole

Pairs = tuple[tuple[int, int], ...]  # axes of two operands
Known = Part | Pair


def bilinear(op: Op) -> Callable[..., Pair]:
    """Four real products."""
    def rule(x: Known, y: Known, dtype: np.dtype | None = None, **attrs: Any) -> Pair:
        part = None if dtype is None else real_part(dtype)
        x, y = as_pair(x), as_pair(y)

        def product(a: Part, b: Part) -> Part:
            return Part(op(a.ref, b.ref, dtype=part, **attrs))
        return Pair(product(x.re, y.re) - product(x.im, y.im), product(x.re, y.im) + product(x.im, y.re))
    return rule


FOUR_PRODUCTS = bilinear(contraction.dot_general)


@dataclass(frozen=True)
class Seen(Pair):
    """An array that lies in memory, seen with its axes in another order, or conjugated."""

    of: Whole
    order: tuple[int, ...]
    conjugated: bool

    def again(self, pairs: Ref) -> Seen:
        """Another array seen so."""
        of = whole(pairs)
        z = _turned(of, self.order)
        return Seen(z.re, -z.im if self.conjugated else z.im, of, self.order, self.conjugated)


def _seen(x: Pair) -> Seen | None:
    """How an array that lies in memory is seen; None of one that does not."""
    return x if isinstance(x, Seen) else Seen(x.re, x.im, x, tuple(range(len(x.re.ref.shape))), False) \
        if isinstance(x, Whole) else None


def _turned(x: Pair, perm: tuple[int, ...]) -> Pair:
    return Pair(*[Part(structural.transpose(p.ref, perm=perm)) for p in (x.re, x.im)])


def transpose(x: Pair, perm: tuple[int, ...]) -> Pair:
    z, seen = _turned(x, perm), _seen(x)
    return z if seen is None else Seen(z.re, z.im, seen.of, tuple([seen.order[k] for k in perm]), seen.conjugated)


def conj(x: Pair) -> Pair:
    z, seen = Pair(x.re, -x.im), _seen(x)
    return z if seen is None else Seen(z.re, z.im, seen.of, seen.order, not seen.conjugated)


def dot_general(x: Known, y: Known, contract: Pairs, batch: Pairs, dtype: np.dtype | None = None) -> Known:
    """Of an array that lies in memory, terms along it on the left or down it on the right: one real product, which reads it
    as it lies. A vector may stand on either side."""
    x, y, part = as_pair(x), as_pair(y), None if dtype is None else real_part(dtype)
    sides = [] if batch else [(x, y, contract)]
    if sides and len(contract) in (len(x.re.ref.shape), len(y.re.ref.shape)):
        sides.append((y, x, tuple([(b, a) for a, b in contract])))
    for left, right, terms in sides:
        along, down = _along(left, [a for a, _ in terms]), _down(right, [b for _, b in terms])
        if along is not None:
            return _terms_along(along, right, terms, part) if down is None else _shorter(along, down, terms, part)
        if down is not None:
            return _terms_down(left, down, terms, part)
    return FOUR_PRODUCTS(x, y, contract=contract, batch=batch, dtype=dtype)


def _along(x: Pair, terms: Sequence[int]) -> Seen | None:
    """An array that lies in memory, its other axes in their order and these behind them; None of another."""
    return _split(x, terms, len(x.re.ref.shape) - len(terms))


def _down(x: Pair, terms: Sequence[int]) -> Seen | None:
    """An array that lies in memory, these axes first and its others in their order; None of another."""
    return _split(x, terms, 0)


def _split(x: Pair, terms: Sequence[int], first: int) -> Seen | None:
    seen = _seen(x)
    if seen is None or len(terms) == len(seen.order):
        return None
    free, contracted = [a for k, a in enumerate(seen.order) if k not in terms], {seen.order[k] for k in terms}
    return seen if free == sorted(free) and contracted == {*range(first, first + len(terms))} else None


def _shorter(x: Seen, y: Seen, contract: Pairs, dtype: np.dtype | None) -> Pair:
    """The form that copies less, which may be known at the call alone: the right side for the one, the left side and both
    parts of results for the other."""
    kept, made = (product([n for k, n in enumerate(z.re.ref.shape) if k not in [c[side] for c in contract]])
                  for side, z in enumerate((x, y)))
    terms = product([x.re.ref.shape[a] for a, _ in contract])
    which = minimum(maximum(2 * terms * made - terms * kept - 4 * kept * made, 0), 1)
    if which == 0:
        return _terms_along(x, y, contract, dtype)
    if which == 1:
        return _terms_down(x, y, contract, dtype)

    def arm(form: Callable[..., Pair], a: Ref, b: Ref) -> list[Ref]:
        return [joined(form(x.again(a), y.again(b), contract, dtype))]
    refs, builder = [x.of.pairs, y.of.pairs], x.re.ref.builder
    arms = tuple([region(partial(arm, form), [r.type for r in refs], builder.scope) for form in (_terms_along, _terms_down)])
    return whole(*builder.bind_all(switch, [construct.size_value(into=builder, size=which), *refs], {}, arms))


def _terms_along(x: Seen, y: Pair, contract: Pairs, dtype: np.dtype | None) -> Pair:
    """Twice as many terms by twice as many columns: each term's rows are (re, im) for its real part, and (-im, re) for its
    imaginary part."""
    pairs = sorted([(x.order[a], b) for a, b in contract])
    count, rest = len(pairs), [b for b in range(len(y.re.ref.shape)) if b not in [b for _, b in pairs]]
    order = (*[b for _, b in pairs], *rest)
    z = y if order == tuple(range(len(order))) else Pair(*[Part(permute(p.ref, order)) for p in (y.re, y.im)])
    z = Pair(z.re, -z.im) if x.conjugated else z
    rows = structural.concatenate(*[reshape(r, shape=(*r.shape[:count], 1, *r.shape[count:]))
                                    for r in (joined(z), joined(Pair(-z.im, z.re)))], axis=count)
    terms = (*((a, k) for k, (a, _) in enumerate(pairs)), (len(x.order), count))
    made = whole(contraction.dot_general(x.of.pairs, rows, contract=terms, batch=(), dtype=dtype))
    return conj(made) if x.conjugated else made


def _terms_down(x: Pair, y: Seen, contract: Pairs, dtype: np.dtype | None) -> Pair:
    """Twice as many rows, the real and the imaginary parts, by all parts of the right side."""
    pairs = sorted([(y.order[b], a) for a, b in contract])
    rest = [a for a in range(len(x.re.ref.shape)) if a not in [a for _, a in pairs]]
    parts = [permute(p.ref, (*rest, *[a for _, a in pairs])) for p in (x.re, x.im)]
    rows = structural.concatenate(*[reshape(p, shape=(1, *p.shape)) for p in parts], axis=0)
    terms = tuple([(1 + len(rest) + k, b) for k, (b, _) in enumerate(pairs)])
    found = contraction.dot_general(rows, y.of.pairs, contract=terms, batch=(), dtype=dtype)
    by_re, by_im = (whole(reshape(section(found, 0, k, 1), shape=found.shape[1:])) for k in (0, 1))
    if y.conjugated:
        return Pair(by_re.re + by_im.im, by_im.re - by_re.im)
    return Pair(by_re.re - by_im.im, by_re.im + by_im.re)
