"""Conditions that must hold while a program runs: `check`, and `debug_nans`, which finds where the first NaN came from."""
from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from loopwright.autodiff.calls import operands, type_of
from loopwright.callbacks import called
from loopwright.debug import check_format
from loopwright.ir import nans
from loopwright.ir.builder import running
from loopwright.ir.errors import ArgumentError, CheckError, DTypeError
from loopwright.ir.ops import checks as ops
from loopwright.ir.source import user_source
from loopwright.ir.types import BOOL


def check(pred: Any, message: str, /, *args: Any, **kwargs: Any) -> None:
    """Raise CheckError with `message.format(*args, **kwargs)` unless pred holds when the program runs.

    pred: one bool, or an array of which every element must hold: the error then names the first that does not, as it names
    the first element of a `vmap`. args, kwargs: arrays and numbers for the message. The check is part of compiled code: while
    it holds, Python is not asked. Where it fails the call gives nothing. Derivatives keep it, and do not repeat it.
    DTypeError where pred is not bool, ArgumentError where the message does not fit the arguments.

    >>> import numpy as np, loopwright as lw
    >>> @lw.jit
    ... def root(x):
    ...     lw.check(np.all(x >= 0), "the least x is {}", np.min(x))
    ...     return np.sqrt(x)
    >>> root(np.array([4.0, 9.0]))
    array([2., 3.])
    """
    why = "check"
    if not isinstance(message, str):
        raise ArgumentError(f"{user_source()}: check: the message must be a string, got {type(message).__name__}.")
    check_format(message, args, kwargs, why)
    names = ["the condition", *(f"argument {k}" for k in range(len(args))), *kwargs]
    values = operands([pred, *args, *kwargs.values()], names, why)
    if type_of(values[0]).dtype != BOOL:
        raise DTypeError(f"{user_source()}: check: the condition must be bool, got {type_of(values[0])}. Compare (x > 0), or "
                         f"reduce with np.all or np.any.")
    failure = ops.Failure(message, tuple(kwargs), ())

    def now(holds: Any, *rest: Any) -> None:
        if not np.all(holds):
            raise CheckError(f"{user_source()}: {failure.text(np.asarray(holds), rest)}")

    called(ops.check, values, now, lambda: {"message": message, "names": tuple(kwargs), "mapped": ()})


@contextmanager
def debug_nans(enable: bool = True) -> Iterator[None]:
    """Inside, on this thread, a jitted function or a transform whose result holds a NaN raises FloatingPointError, which names
    the operation that made the NaN, its line, and what it was given. Also a decorator: `@debug_nans()`.

    The call that gave it is computed again by NumPy, one operation after another: until a NaN turns up only the calls cost
    more, for they go through Python. A NaN that was in the arguments is no error. enable=False changes nothing.

    >>> import numpy as np, loopwright as lw
    >>> with lw.debug_nans():
    ...     lw.jit(lambda x: np.log(x) * 2)(np.array([1.0, -1.0]))
    Traceback (most recent call last):
    FloatingPointError: <doctest loopwright.checks.debug_nans[1]>:2: log made a NaN at index 1 of its result from -1.0
    """
    if not enable:
        yield
        return
    thread = threading.get_ident()
    running.append(thread)  # compiled calls then ask Python
    try:
        with nans.watched():
            yield
    finally:
        running.remove(thread)
