"""Control flow written once: on traced arrays it becomes a node with regions, on arrays it is a loop in Python."""
from __future__ import annotations

import numpy as np

from loopwright.ir.builder import innermost
from loopwright.ir.graph import fresh_symbol
from loopwright.ir.ops import control
from loopwright.ir.ops.construct import iota
from loopwright.ir.types import I64
from loopwright.tracer.trace import as_ref, trace
from loopwright.tracer.tracer import Tracer


def region(f, types):
    """The graph of f, which must use nothing but its arguments."""
    traced = trace(lambda params: tuple(f(*params)), types, is_floor=True, is_sealed=True, why="a test")
    assert not traced.outer
    return traced.graph


def refs_of(xs):
    """Traced values of numbers and arrays."""
    return [r if hasattr(r := as_ref(x, innermost()), "type") else innermost().capture(r) for x in xs]


def is_traced(*groups):
    return any(isinstance(x, Tracer) for group in groups for x in group)


def tracers(refs):
    return [Tracer(r, contiguous=True) for r in refs]


def scan(body, constants, carry, xs, length=None, reverse=False):
    """body(*constants, *carry, *rows) -> (new carry, rows of ys), as two tuples. -> (carry, ys), as two lists."""
    if length is None:
        length = xs[0].shape[0]
    if not is_traced(constants, carry, xs):
        return scan_in_numpy(body, constants, carry, xs, length, reverse)
    refs, (c, k) = refs_of([*constants, *carry, *xs]), (len(constants), len(carry))
    rows = [r.type.with_shape(r.type.shape[1:]) for r in refs[c + k:]]
    g = region(lambda *a: [y for part in body(*a) for y in part], [*(r.type for r in refs[:c + k]), *rows])
    extent = refs[c + k].type.shape[0] if xs else length
    out = tracers(control.scan.all(*refs, regions=(g,), length=extent, reverse=reverse, constants=c, carry=k))
    return out[:k], out[k:]


def scan_in_numpy(body, constants, carry, xs, length, reverse):
    rows = []
    carry = list(carry)
    for i in reversed(range(length)) if reverse else range(length):
        carry, y = body(*constants, *carry, *(x[i] for x in xs))
        carry = list(carry)
        rows.append([np.array(v) for v in y])
    rows = rows[::-1] if reverse else rows
    return carry, [np.array(ys) for ys in zip(*rows, strict=True)]


def while_(condition, body, constants, carry):
    """condition(*constants, *carry) -> bool, body(*constants, *carry) -> the new carry."""
    if not is_traced(constants, carry):
        while condition(*constants, *carry):
            carry = body(*constants, *carry)
        return list(carry)
    refs = refs_of([*constants, *constants, *carry])
    types = [r.type for r in refs[len(constants):]]
    regions = region(lambda *a: (condition(*a),), types), region(body, types)
    return tracers(control.while_.all(*refs, regions=regions, condition_constants=len(constants), body_constants=len(constants)))


def switch(index, branches, *operands):
    """branches[index](*operands) -> a tuple."""
    if not is_traced([index], operands):
        return list(branches[int(index)](*operands))
    refs = refs_of([index, *operands])
    regions = tuple([region(f, [r.type for r in refs[1:]]) for f in branches])
    return tracers(control.switch.all(*refs, regions=regions))


def rows_of(count, f, *operands):
    """f(rows) with an i64 array 0, 1, ... of `count` rows, where count is a number that is known only at run time. f may use
    `operands` as its further arguments; its results must not have that size."""
    if not is_traced([count], operands):
        return f(np.arange(count, dtype=np.int64), *operands)
    size = fresh_symbol()
    ref, = refs_of([count])
    control.trips(ref, size=size)
    rows = Tracer(iota(into=innermost(), shape=(size,), axis=0, dtype=I64), contiguous=True)
    return f(rows, *operands)
