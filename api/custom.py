"""Derivatives that users write: `custom_jvp`, `custom_vjp`; and `checkpoint`, which keeps little for reverse mode.

Names, arguments and meaning are JAX's. The function and its rules are traced together, when the function is called where
derivatives may be taken; elsewhere the function is simply called.
"""
from __future__ import annotations

import functools
import inspect
import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from loopwright.autodiff.calls import Function, name_of
from loopwright.autodiff.custom import call_checkpointed, call_with_jvp, call_with_vjp, levels
from loopwright.ir.errors import ArgumentError, GradientError
from loopwright.ir.ops.recomputation import BY_NAMES, POLICIES, Policy
from loopwright.ir.ops.recomputation import checkpoint_name as checkpoint_name_op
from loopwright.ir.source import user_source
from loopwright.ir.tracebacks import user_frames
from loopwright.tracer.pytree import flatten, unflatten
from loopwright.tracer.tracer import Tracer


def _by_names(rule: str) -> Callable[..., Policy]:
    def policy(*names: str) -> Policy:
        if not all(isinstance(name, str) for name in names):
            raise ArgumentError(f"{user_source()}: {rule} takes names, as strings: {rule}('a', 'b').")
        return rule, names
    return policy


checkpoint_policies = types.SimpleNamespace(**{name: name for name in POLICIES}, **{rule: _by_names(rule) for rule in BY_NAMES})


def _numbers(argnums: int | Sequence[int]) -> tuple[int, ...]:
    return (argnums,) if isinstance(argnums, int) else tuple(argnums)


def _numbers_of(f: Function, argnames: str | Sequence[str], why: str) -> tuple[int, ...]:
    """The positions of arguments that are given by name."""
    names = (argnames,) if isinstance(argnames, str) else tuple(argnames)
    if not names:
        return ()
    try:
        known = list(inspect.signature(f).parameters)
    except ValueError:  # a builtin that does not say
        known = []
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ArgumentError(f"{user_source()}: {why} has no argument {', '.join(unknown)}; it has "
                            f"{', '.join(known) or 'no names'}.")
    return tuple([known.index(name) for name in names])


def _positional(f: Function, args: tuple[Any, ...], kwargs: dict[str, Any], why: str) -> tuple[Any, ...]:
    """The arguments of a call by position, defaults filled in."""
    try:
        bound = inspect.signature(f).bind(*args, **kwargs)
    except ValueError:  # a builtin that does not say
        if kwargs:
            raise ArgumentError(f"{user_source()}: {why}: pass arguments by position.") from None
        return args
    bound.apply_defaults()
    if bound.kwargs:
        raise ArgumentError(f"{user_source()}: {why}: {', '.join(bound.kwargs)} can be given by keyword only, but rules take "
                            f"their arguments by position.")
    return bound.args


class _Parts:
    """Which of a call's arguments the rules are about, and which are handed to functions as they are."""

    def __init__(self, args: tuple[Any, ...], fixed: Sequence[int], why: str) -> None:
        if any(not -len(args) <= i < len(args) for i in fixed):
            raise ArgumentError(f"{user_source()}: {why}: nondiff_argnums={tuple(fixed)}, but the call has {len(args)} "
                                f"arguments.")
        self.args, self.places = args, sorted({i % len(args) for i in fixed})
        self.fixed = [args[i] for i in self.places]
        self.moving = tuple([x for i, x in enumerate(args) if i not in self.places])

    def whole(self, f: Function) -> Function:
        """f as a function of the moving arguments."""
        if not self.places:
            return f

        def partly(*moving: Any) -> Any:
            rest = iter(moving)
            return f(*[x if i in self.places else next(rest) for i, x in enumerate(self.args)])
        return partly


class _Custom(ABC):
    """What both kinds share: a function that looks like the one it wraps, binds as a method, and has rules."""

    def __init__(self, fun: Function, nondiff_argnums: int | Sequence[int] = (),
                 nondiff_argnames: str | Sequence[str] = ()) -> None:
        if not callable(fun):
            raise ArgumentError(f"{user_source()}: {type(self).__name__} expected a function, got {type(fun).__name__}.")
        functools.update_wrapper(self, fun, updated=())
        self._why = f"{type(self).__name__} function {name_of(fun)}"
        self.fun = fun
        self.nondiff_argnums = (*_numbers(nondiff_argnums), *_numbers_of(fun, nondiff_argnames, self._why))

    @abstractmethod
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function's result, with its rules where a derivative may be taken."""

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def _missing(self, method: str) -> GradientError:
        return GradientError(f"{user_source()}: {self._why} has no rules. Give them with {name_of(self.fun)}.{method}(...).")


class custom_jvp(_Custom):
    """f with a derivative of your own, for forward and reverse mode, to any order.

    `f.defjvp(rule)`: rule(primals, tangents) -> (result, tangent of the result), on tuples of the arguments; the tangent must
    be linear in the tangents. Arguments that nondiff_argnums and nondiff_argnames name (functions, settings) are passed to the
    rule before these, in the order of their positions. Tangents of integers have dtype float0. GradientError where a
    derivative reaches what f closes over; ArgumentError, ShapeError or DTypeError where a rule's results do not fit those of f.

    >>> import numpy as np, loopwright as lw
    >>> @lw.custom_jvp
    ... def log1pexp(x): return np.log(1 + np.exp(x))
    >>> @log1pexp.defjvp
    ... def rule(primals, tangents):
    ...     x, = primals
    ...     return log1pexp(x), (1 - 1 / (1 + np.exp(x))) * tangents[0]
    >>> float(lw.grad(log1pexp)(100.0))
    1.0
    """

    def __init__(self, fun: Function, nondiff_argnums: int | Sequence[int] = (),
                 nondiff_argnames: str | Sequence[str] = ()) -> None:
        super().__init__(fun, nondiff_argnums, nondiff_argnames)
        self.jvp: Function | None = None

    def defjvp(self, jvp: Function) -> Function:
        """Set the rule, and give it back, so that this works as a decorator."""
        self.jvp = jvp
        return jvp

    def defjvps(self, *jvps: Function | None) -> None:
        """A rule for each argument: (tangent, result, *arguments) -> tangent of the result; None where it is zero."""
        if self.nondiff_argnums:
            raise ArgumentError(f"{user_source()}: {self._why}: defjvps has no place for nondiff_argnums. Use defjvp.")

        def rule(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
            if len(jvps) != len(primals):
                raise ArgumentError(f"{user_source()}: {self._why}: defjvps was given {len(jvps)} rules, but the call has "
                                    f"{len(primals)} arguments.")
            result = self(*primals)
            leaves, structure = flatten(result)
            totals: list[Any] = [None] * len(leaves)
            for t, jvp in zip(tangents, jvps, strict=True):
                if jvp is not None:
                    own = flatten(jvp(t, result, *primals))[0]
                    totals = [b if a is None else a + b for a, b in zip(totals, own, strict=True)]
            moved = [np.zeros_like(x) if t is None else t for x, t in zip(leaves, totals, strict=True)]
            return result, unflatten(structure, moved)
        self.jvp = rule

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.jvp is None:
            raise self._missing("defjvp")
        args = _positional(self.fun, args, kwargs, self._why)
        if levels(self) < 1:
            return self.fun(*args)
        parts = _Parts(args, self.nondiff_argnums, self._why)
        rule = functools.partial(self.jvp, *parts.fixed)
        return call_with_jvp(self, parts.whole(self.fun), rule, parts.moving, self._why)


class custom_vjp(_Custom):
    """f with a derivative of your own for reverse mode, to any order.

    `f.defvjp(forward, backward)`: forward(*args) -> (result, residuals), any container of arrays; backward(residuals,
    cotangent of the result) -> a tuple with the cotangent of each argument, None for zero or for integers. Arguments that
    nondiff_argnums and nondiff_argnames name are passed to forward as to f, and to backward before the residuals, and have no
    cotangent. GradientError for forward mode, and where a derivative reaches what f closes over; ArgumentError, ShapeError or
    DTypeError where rules return what does not fit.

    >>> import numpy as np, loopwright as lw
    >>> @lw.custom_vjp
    ... def clipped(x): return x
    >>> clipped.defvjp(lambda x: (x, None), lambda _, ct: (np.clip(ct, -1.0, 1.0),))
    >>> float(lw.grad(lambda x: 10.0 * clipped(x))(3.0))
    1.0
    """

    def __init__(self, fun: Function, nondiff_argnums: int | Sequence[int] = (),
                 nondiff_argnames: str | Sequence[str] = ()) -> None:
        super().__init__(fun, nondiff_argnums, nondiff_argnames)
        self.fwd: Function | None = None
        self.bwd: Function | None = None

    def defvjp(self, fwd: Function, bwd: Function) -> None:
        """Set the rules."""
        self.fwd, self.bwd = fwd, bwd

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.fwd is None or self.bwd is None:
            raise self._missing("defvjp")
        args = _positional(self.fun, args, kwargs, self._why)
        if levels(self) < 1:
            return self.fun(*args)
        parts = _Parts(args, self.nondiff_argnums, self._why)
        backward = functools.partial(self.bwd, *parts.fixed)
        return call_with_vjp(self, parts.whole(self.fun), parts.whole(self.fwd), backward, parts.moving, self._why)


def checkpoint(fun: Function | None = None, *, prevent_cse: bool = True, policy: Policy | None = None,
               static_argnums: int | Sequence[int] = (), static_argnames: str | Sequence[str] = ()) -> Any:
    """fun, of which reverse mode keeps the arguments only and computes the rest again: less memory for more work.

    policy: what else is kept: `checkpoint_policies.dots_saveable` (matrix products; `checkpoint_dots` is the same),
    `dots_with_no_batch_dims_saveable` (those without batch axes: of weights, not of attention; also
    `checkpoint_dots_with_no_batch_dims`), `everything_saveable`, or `nothing_saveable`, which None stands for; or by the
    names that `checkpoint_name` gave: `save_only_these_names("a", "b")`, `save_any_names_but_these(...)`,
    `save_anything_except_these_names(...)`.
    static_argnums, static_argnames: arguments that are settings, passed on as they are. prevent_cse changes nothing: what is
    computed again is never shared. Works as a decorator, with or without options; `remat` is the same.

    >>> import numpy as np, loopwright as lw
    >>> float(lw.grad(lw.checkpoint(lambda x: np.sin(np.sin(x))))(0.0))
    1.0
    """
    if fun is None:
        return functools.partial(checkpoint, policy=policy, static_argnums=static_argnums, static_argnames=static_argnames)
    f: Function = fun
    if policy is not None and policy not in POLICIES and not (isinstance(policy, tuple) and policy[0] in BY_NAMES):
        raise ArgumentError(f"{user_source()}: checkpoint: there is no policy {policy!r}; checkpoint_policies has "
                            f"{', '.join(vars(checkpoint_policies))}.")
    why = f"checkpoint of {name_of(f)}"
    fixed = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
    by_number, by_name = _numbers(static_argnums), _numbers_of(f, fixed, why)

    @functools.wraps(f, updated=())
    @user_frames()
    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        if levels(checkpointed) < 1:
            return f(*args, **kwargs)
        parts = _Parts(args, (*by_number, *[i for i in by_name if i < len(args)]), why)
        settings = {name: x for name, x in kwargs.items() if name in fixed}
        rest = {name: x for name, x in kwargs.items() if name not in fixed}

        def run(*moving: Any) -> Any:
            return parts.whole(functools.partial(f, **settings, **moving[-1]))(*moving[:-1])
        return call_checkpointed(run, (*parts.moving, rest), policy or "nothing_saveable", why)
    return checkpointed


remat = checkpoint


def checkpoint_name(x: Any, name: str) -> Any:
    """x itself, a container of arrays, under a name by which a policy of `checkpoint` can keep it. Names inside of loops and
    branches in the checkpointed function are not seen.

    >>> import numpy as np, loopwright as lw
    >>> policy = lw.checkpoint_policies.save_only_these_names("hidden")
    >>> f = lw.checkpoint(lambda x: np.sin(lw.checkpoint_name(np.exp(x), "hidden")), policy=policy)
    >>> float(lw.grad(f)(0.0)) == float(np.cos(1.0))
    True
    """
    if not isinstance(name, str):
        raise ArgumentError(f"{user_source()}: checkpoint_name: the name must be a string, got {type(name).__name__}.")
    leaves, structure = flatten(x)
    return unflatten(structure, [Tracer(checkpoint_name_op(y.ref, name=name)) if isinstance(y, Tracer) and y.type.is_inexact
                                 and not y.type.weak else y for y in leaves])
