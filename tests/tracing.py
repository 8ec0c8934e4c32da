"""Run a function on traced arrays by hand: trace it, check the text, evaluate the graph with NumPy."""
from __future__ import annotations

import numpy as np

from loopwright.ir.builder import Builder, tracing
from loopwright.ir.dims import symbol
from loopwright.ir.guards import Scope
from loopwright.ir.interpreter import evaluate
from loopwright.ir.types import ArrayType, native
from loopwright.ir.verifier import verify
from loopwright.tracer.trace import as_ref
from loopwright.tracer.tracer import Tracer


class Traced:
    """What a trace left: its graph, its scope and the outer arrays."""

    def __init__(self, f, arrays, symbolic, weak=()):
        self.arrays = [np.asarray(a) for a in arrays]
        self.scope = Scope()
        builder = self.builder = Builder(self.scope, "jit of f")
        with tracing(builder, is_floor=True):
            params = []
            for k, a in enumerate(self.arrays):
                names = [f"d{k}_{axis}" for axis in range(a.ndim)]
                if symbolic:
                    self.scope.hints.update(zip(names, a.shape, strict=True))
                shape = tuple(map(symbol, names)) if symbolic else a.shape
                params.append(Tracer(builder.param(ArrayType(shape, native(a.dtype), k in weak)), "argument"))
            out = f(*params)
            self.many = isinstance(out, (tuple, list))
            outs = list(out) if self.many else [out]
            self.graph, self.outer = builder.finish([as_ref(x, builder) for x in outs])
        verify(self.graph)

    def __call__(self, *arrays):
        values = [np.asarray(a) for a in (arrays or self.arrays)]
        outer = [a.astype(native(a.dtype)) for a in self.outer]  # the interpreter takes the machine's byte order only
        outs = [np.asarray(x) for x in evaluate(self.graph, [*values, *outer])]
        return outs if self.many else outs[0]


def run(f, *arrays, symbolic=False, weak=()):
    """f's results on these arrays, through a graph."""
    return Traced(f, arrays, symbolic, weak)()


def same(got, expected, rtol=0.0):
    """The same shape, dtype and values; NaN equals NaN."""
    expected = np.asarray(expected)
    assert got.dtype == expected.dtype, f"dtype {got.dtype}, NumPy has {expected.dtype}"
    assert got.shape == expected.shape, f"shape {got.shape}, NumPy has {expected.shape}"
    if rtol:
        np.testing.assert_allclose(got, expected, rtol=rtol, atol=rtol)
    else:
        np.testing.assert_array_equal(got, expected)
