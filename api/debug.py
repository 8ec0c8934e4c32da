"""Looking into running programs, with JAX's names: `loopwright.debug.print` and `loopwright.debug.callback`.

Guarantees: each call happens once for each time that the program passes it, in program order, also in loops and branches, under
`vmap` (for one element after another) and under derivatives (which neither repeat nor drop it). Outside every trace it happens
at once; in a trace that sees values (`grad` outside `jit`) when the trace is run, at its end.
"""
from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from loopwright.callbacks import called, taken_apart
from loopwright.ir.errors import ArgumentError
from loopwright.ir.ops.callbacks import Print, callback_of, debug_callback
from loopwright.ir.source import user_source

__all__ = ["callback", "print"]


class _Fields(string.Formatter):
    """Formats nothing: only asks whether a format has its arguments, and uses them all."""

    def format_field(self, value: Any, format_spec: str) -> str:
        return ""

    def check_unused_args(self, used_args: Any, args: Any, kwargs: Any) -> None:
        spare = [str(k) for k in (*range(len(args)), *kwargs) if k not in used_args]
        if spare:
            raise ValueError(f"argument {', '.join(spare)} is not used")


def check_format(form: str, args: Sequence[Any], kwargs: Mapping[str, Any], why: str) -> None:
    """ArgumentError unless a format fits its arguments."""
    try:
        _Fields().vformat(form, args, kwargs)
    except (ValueError, IndexError, KeyError, AttributeError, TypeError) as error:
        raise ArgumentError(f"{user_source()}: {why}: the format {form!r} does not fit the arguments: {error}. Every field "
                            f"needs an argument and every argument a field; write {{{{ and }}}} for braces.") from None


def print(fmt: str, /, *args: Any, ordered: bool = False, **kwargs: Any) -> None:
    """Print `fmt.format(*args, **kwargs)` when the program runs, where the arguments are arrays, not traced values.

    Arguments are containers of arrays and numbers, or other objects, which are passed as they are. `ordered` is taken for
    JAX's sake: prints keep their order in any case. ArgumentError where the format does not fit the arguments.

    >>> import numpy as np, loopwright as lw
    >>> @lw.jit
    ... def f(x):
    ...     lw.debug.print("x = {}, sum {s:.1f}", x, s=np.sum(x))
    ...     return x * 2
    >>> f(np.arange(3.0))
    x = [0. 1. 2.], sum 3.0
    array([0., 2., 4.])
    """
    check_format(fmt, args, kwargs, "debug.print")
    _emit(Print(fmt, len(args), tuple(kwargs)), (*args, *kwargs.values()), {}, "debug.print")


def callback(callback: Callable[..., Any], *args: Any, ordered: bool = False, **kwargs: Any) -> None:
    """Call `callback(*args, **kwargs)` when the program runs, with arrays for traced values; its result is dropped.

    The function gets copies, and NumPy scalars for rank 0. What it raises stops the call and arrives there as it is. It may
    call jitted functions, that which called it included. `ordered` is taken for JAX's sake.

    >>> import numpy as np, loopwright as lw
    >>> seen = []
    >>> f = lw.jit(lambda x: lw.debug.callback(seen.append, x) or x + 1)
    >>> float(f(1.0)), seen
    (2.0, [np.float64(1.0)])
    """
    if not callable(callback):
        raise ArgumentError(f"{user_source()}: debug.callback expected a function, got {type(callback).__name__}.")
    _emit(callback, args, kwargs, f"debug.callback of {getattr(callback, '__name__', type(callback).__name__)}")


def _emit(f: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], why: str) -> None:
    parts = taken_apart(f, args, kwargs, why)
    called(debug_callback, parts.values, parts.run, lambda: {"callback": callback_of(f, None if parts.is_flat else parts.run)})
