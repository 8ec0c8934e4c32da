"""Loops that each thread leaves on a condition of its own."""
from __future__ import annotations

from dataclasses import replace

from loopwright.ir.loops import walk
from loopwright.ir.nest import While
from loopwright.lower.cuda.context import Context
from loopwright.lower.cuda.evaluate import value
from loopwright.lower.cuda.text import register_type

TRIPS, SHORT = 4, 64  # trips that are written out, each with its own way out; operations of a trip, if it is that short


def repeated(context: Context, s: While) -> Context:
    """The context after the loop, with the names of what its state came to."""
    kinds = [register_type(x.dtype) for x in s.starts]
    starts = [value(context, x) for x in s.starts]
    state = [context.block.variable(kind, x, "w") for kind, x in zip(kinds, starts, strict=True)]
    if not s.body and sum(1 for e in (s.condition, *s.following) for _ in walk(e)) <= SHORT:
        context.block.line(f"#pragma unroll {TRIPS}")
    with context.block.inner("for (;;)") as inside:
        here = replace(context.at(inside), repeats=True)
        for name, x in zip(s.names, state, strict=True):
            here = here.bind(name, x)
        inside.line(f"if (!({value(here, s.condition)})) break;")
        for loop in s.body:
            here = repeated(here, loop)
        following = [value(here, x) for x in s.following]
        held = [x if x == old or not x.isidentifier() else inside.let(kind, x)
                for kind, x, old in zip(kinds, following, state, strict=True)]
        for old, x in zip(state, held, strict=True):
            if x != old:
                inside.line(f"{old} = {x};")
    for end, x in zip(s.ends, state, strict=True):
        if end is not None:
            context = context.bind(end, x)
    return context
