"""Stores: by the threads that have an element of their own, and of threads that all do the same by the first."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from loopwright.ir.nest import Store
from loopwright.lower.cuda import arithmetic
from loopwright.lower.cuda.context import Context
from loopwright.lower.cuda.evaluate import evaluate, place, value
from loopwright.lower.cuda.text import register_type


def guarded(context: Context, write: Callable[[Context], None]) -> None:
    """What only some threads do."""
    conditions = [*(x for x in (context.there, context.active) if x), *(f"{axis} == 0" for axis in context.free)]
    if not conditions:
        write(context)
        return
    with context.block.inner(f"if ({' && '.join(conditions)})") as inside:
        write(context.at(inside))


def store(context: Context, s: Store) -> None:
    """buffer[index] = value, where `when` holds."""
    launch = context.launch
    if id(s) in context.packed:
        x = arithmetic.to_memory(launch.library, value(context, s.value), launch.buffers[s.buffer].dtype)
        context.block.line(f"{context.packed[id(s)]} = {x};")
        return
    if launch.buffers[s.buffer].place == "registers":
        context.block.line(f"{s.buffer}{context.slot} = {value(context, s.value)};")
        launch.wrote(s.buffer)
        return
    if launch.buffers[s.buffer].role == "local":  # each row of threads has its own
        context = replace(context, active="")

    def write(here: Context) -> None:
        if s.when is None:
            _write(here, s)
            return
        with here.block.inner(f"if ({value(here, s.when)})") as inside:
            _write(here.at(inside), s)
    guarded(context, write)
    launch.wrote(s.buffer)


def _write(context: Context, s: Store) -> None:
    launch = context.launch
    x = evaluate(context, launch.terms.of(s.value))
    target = f"{s.buffer}[{place(context, launch.buffers[s.buffer], tuple(map(launch.terms.of, s.index)))}]"
    written(context, s, target, x)


def written(context: Context, s: Store, target: str, x: str) -> None:
    """Store a value there, or what the store's function makes of it and what is there."""
    dtype, library = context.launch.buffers[s.buffer].dtype, context.launch.library
    if s.combine != "set":
        kind = register_type(dtype)
        old = context.block.let(kind, arithmetic.from_memory(library, target, dtype))
        x = context.block.let(kind, arithmetic.applied(library, s.combine, dtype, [old, x]))
    context.block.line(f"{target} = {arithmetic.to_memory(library, x, dtype)};")
