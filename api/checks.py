"""Conditions that must hold while a program runs: `check`, and `debug_nans`, which finds where the first NaN came from."""
from __future__ import annotations

from typing import Any

import numpy as np

from loopwright.autodiff.calls import operands, type_of
from loopwright.callbacks import called
from loopwright.debug import check_format
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
