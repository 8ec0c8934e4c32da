"""Ops that say what derivatives are."""
from __future__ import annotations

from loopwright.ir.op import Example, Op
from loopwright.ir.ops.broadcasting import operand_dtype
from loopwright.ir.ops.elementwise import no_tangent, same_shape

stop_gradient: Op = Op(
    name="stop_gradient",
    doc="x itself, held constant by every derivative.",
    shape=same_shape,
    dtype=operand_dtype,
    numpy=lambda x: x,
    batch=lambda size, args, mapped: stop_gradient(*args),
    loop=lambda context, index: context.load(0, index),
    jvp=no_tangent,
    examples=(Example(("i64[n, 3]",)), Example(("bool[]",))),  # of floats the derivative is not that of the function
)
