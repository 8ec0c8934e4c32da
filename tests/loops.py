"""Control flow written once: on traced arrays it becomes a node with regions, on arrays it is a loop in Python."""
from __future__ import annotations

import numpy as np

import loopwright as lw
from loopwright import lax
from loopwright.ir.builder import innermost
from loopwright.ir.graph import fresh_symbol
from loopwright.ir.ops import control
from loopwright.ir.ops.construct import iota
from loopwright.ir.types import I64
from loopwright.tracer.tracer import Tracer


def is_traced(*groups):
    return any(isinstance(x, Tracer) for group in groups for x in group)


def scan(body, constants, carry, xs, reverse=False):
    """body(*constants, *carry, *rows) -> (new carry, rows of ys), as two tuples. -> (carry, ys), as two lists."""
    if is_traced(constants, carry, xs):
        def step(c, rows):
            new, ys = body(*constants, *c, *rows)
            return tuple(new), tuple(ys)
        carry, ys = lax.scan(step, tuple(carry), tuple(xs), reverse=reverse)
        return list(carry), list(ys)
    rows, carry, length = [], list(carry), len(xs[0])
    for i in reversed(range(length)) if reverse else range(length):
        carry, y = body(*constants, *carry, *(x[i] for x in xs))
        carry = list(carry)
        rows.append([np.array(v) for v in y])
    rows = rows[::-1] if reverse else rows
    return carry, [np.array(ys) for ys in zip(*rows, strict=True)]


def while_(condition, body, constants, carry):
    """condition(*constants, *carry) -> bool, body(*constants, *carry) -> the new carry."""
    if is_traced(constants, carry):
        return list(lax.while_loop(lambda c: condition(*constants, *c), lambda c: tuple(body(*constants, *c)), tuple(carry)))
    while condition(*constants, *carry):
        carry = body(*constants, *carry)
    return list(carry)


def switch(index, branches, *operands):
    """branches[index](*operands) -> a tuple."""
    if is_traced([index], operands):
        return list(lax.switch(index, branches, *operands))
    return list(branches[int(index)](*operands))


def rows_of(count, f, *operands):
    """f(rows, *operands) with an i64 array 0, 1, ... of `count` rows, a number that is known only at run time. The results of
    f must not have that size."""
    if not is_traced([count], operands):
        return f(np.arange(count, dtype=np.int64), *operands)
    size = fresh_symbol()
    control.trips(count.ref, size=size)
    rows = Tracer(iota(into=innermost(), shape=(size,), axis=0, dtype=I64), contiguous=True)
    return f(rows, *operands)


def agree(f, *args, rtol=0.0):
    """The compiled function gives NumPy's values, on every call."""
    compiled = lw.jit(f)
    expected = f(*args)
    for _ in range(2):
        for got, want in zip(compiled(*args), expected, strict=True):
            want = np.asarray(want)
            assert got.dtype == want.dtype and got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)
    return compiled
