"""Loops with a greatest number of trips: more trips raise CheckError, and reverse mode keeps few values.

Guarantees: the loop's values, in the same trips; its body is traced once. A loop of at most n trips is a loop over segments of
about sqrt(n) trips, each a checkpoint: reverse mode keeps what each segment starts from, and of one segment at a time what it
reads of each trip. It does so for the trips that there are.
"""
from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from loopwright.autodiff.calls import Operand
from loopwright.checks import check
from loopwright.custom import checkpoint
from loopwright.ir.builder import Ref, inline, innermost
from loopwright.ir.errors import ArgumentError, CheckError
from loopwright.ir.source import user_source
from loopwright.ir.types import ArrayType
from loopwright.tracer.control import Regions
from loopwright.tracer.promotion import convert, lift_own
from loopwright.tracer.tables import xp
from loopwright.tracer.tracer import Tracer

Function = Callable[..., Any]


def checked_bound(max_steps: Any, why: str) -> int:
    """max_steps as an integer. ArgumentError where it is none, or negative."""
    try:
        most = operator.index(max_steps)
    except TypeError:
        raise ArgumentError(f"{user_source()}: {why}: max_steps must be an integer that is known when the function is traced, "
                            f"got {type(max_steps).__name__}.") from None
    if most < 0:
        raise ArgumentError(f"{user_source()}: {why}: max_steps must not be negative, got {most}.")
    return most


def _message(most: int, why: str) -> str:
    return f"{why} needs more than max_steps={most} trips. Give a greater max_steps, or leave it out."


def counted(cond_fun: Function, most: int, why: str) -> Function:
    """cond_fun of a loop in Python, which may hold `most` times."""
    times = 0

    def holds(val: Any) -> Any:
        nonlocal times
        going = cond_fun(val)
        times += bool(going)
        if times > most:
            raise CheckError(f"{user_source()}: {_message(most, why)}")
        return going
    return holds


def in_segments(loop: Function, test: Regions, step: Regions, values: Sequence[Operand], types: Sequence[ArrayType], most: int,
                why: str) -> list[Tracer]:
    """The last carry of a while_loop, which `loop` is, of these regions. The carry here: trips so far, whether the condition
    holds, then that of the loop."""
    segment = math.isqrt(max(most - 1, 0)) + 1  # the root, rounded up

    def trip(state: tuple[Any, ...]) -> tuple[Any, ...]:
        then = _called(step, state[2:])
        return state[0] + 1, *_called(test, then), *then

    @checkpoint
    def several(state: tuple[Any, ...]) -> Any:
        stop = xp.minimum(state[0] + segment, most)
        return loop(lambda s: s[1] & (s[0] < stop), trip, state)
    start = _started(values, types)
    state = loop(lambda s: s[1] & (s[0] < most), several, (0, *_called(test, start), *start))
    check(~state[1], _message(most, why).replace("{", "{{").replace("}", "}}"))
    return list(state[2:])


def _called(made: Regions, xs: Sequence[Tracer]) -> list[Tracer]:
    """The results of a region whose operands are these."""
    here = innermost()
    assert here is not None
    return [Tracer(y) for y in inline(made.graphs[0], [*made.outer, *(x.ref for x in xs)], here)]


def _started(values: Sequence[Operand], types: Sequence[ArrayType]) -> list[Tracer]:
    """The initial carry at the types of the carry."""
    here = innermost()
    assert here is not None
    return [Tracer(convert(x if isinstance(x, Ref) else lift_own(x, here), t.dtype, weak=t.weak))
            for x, t in zip(values, types, strict=True)]
