"""`jit`: a NumPy function as compiled code, one compile for all sizes.

The object that `jit` returns is native (loopwright.lower.runtime.dispatcher): a call that fits a compiled version never
enters Python. What is Python about it stands here: it binds as a method, pickles and copies by its qualified name, and
shows what was compiled.
"""
from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from loopwright.ir.errors import ArgumentError
from loopwright.ir.signature import Version
from loopwright.ir.source import user_source
from loopwright.lower.runtime.dispatcher import NativeFunction
from loopwright.tracer.signatures import Parameters
from loopwright.versions import Versions

if TYPE_CHECKING:
    from loopwright.inspection import Lowered, LoweredForGPU


def jit(f: Callable[..., Any] | None = None, *, static_argnums: int | Sequence[int] = (),
        static_argnames: str | Sequence[str] = (), donate_argnums: int | Sequence[int] = (),
        donate_argnames: str | Sequence[str] = (), shapes: Any = None, dynamic: bool = True, fast_math: bool = False,
        device: str | None = None, cuda_graphs: bool = True) -> Any:
    """Compile f, a function of arrays and numbers written in NumPy, when it is first called.

    One compile serves all sizes: `f.compiles` counts them, `f.explain(*args)` says what made a second one necessary.
    Arguments may be arrays, numbers, and containers of them; results are fresh arrays. Arrays that are not C-contiguous,
    aligned and in this machine's byte order are copied before each call; containers other than tuples, lists and dicts are
    taken apart in Python. Works as a decorator, with or without options.

    f.compiles, f.versions: how many native compiles there were, and what was compiled; f.explain(*args), f.lower(*args): what
    is inside, as text. Inside another trace (jit in jit, in grad, in vmap) the function is inlined and sees no values.

    Raises ArgumentError or DTypeError for arguments and results that are no data, ShapeDeclarationError, ConcretizationError
    and the other errors of docs/errors.md while it traces; a call that raised leaves nothing behind.

    static_argnums, static_argnames: parameters that are settings, not data: hashable values that are compiled in.
    donate_argnums, donate_argnames: arguments whose arrays results may be made in: the result is then that same array object,
        and nothing is allocated. Do not use such an array afterwards: NumPy cannot mark it as gone, it holds the result (or
        what was written before an error). An array that is read-only, a view, overlaps another argument or is not contiguous
        is copied instead. One that no result can take is named by a DonationWarning when the function is compiled.
    shapes: names for the sizes of the array arguments, `("n k", "k m")`: checked at every call, and a trace that would hold
        for one size only is an error. `_` names nothing, an integer fixes a size, None declares nothing for an argument.
    dynamic: False compiles for each shape anew.
    fast_math: let floating-point operations be contracted and reordered, softmaxes on a GPU be scaled as they go, and
        convolutions of windows of 3x3 have Winograd's form: errors in float32 are some 3e-6 of the largest sums of absolute
        values nearby, and infinite values make NaN there, as do inverses of roots of 0 and infinity. NaN and infinities mean
        elsewhere what they do without it, where each operation rounds as NumPy's does; functions such as `exp` are as accurate.
    device: None runs where the arrays are: NumPy's on the CPU, CuPy's on the GPU, and both at once are refused. "gpu" copies
        NumPy arrays to the GPU at each call; "cpu" takes no others ([docs/gpu.md](docs/gpu.md)).
    cuda_graphs: False launches the kernels one by one on a GPU, and captures none of them in CUDA graphs.

    >>> import numpy as np, loopwright as lw
    >>> @lw.jit
    ... def total(x): return np.sum(x * x)
    >>> float(total(np.arange(4.0)))
    14.0
    """
    if f is None:
        return functools.partial(jit, static_argnums=static_argnums, static_argnames=static_argnames,
                                 donate_argnums=donate_argnums, donate_argnames=donate_argnames, shapes=shapes,
                                 dynamic=dynamic, fast_math=fast_math, device=device, cuda_graphs=cuda_graphs)
    if not callable(f):
        raise ArgumentError(f"{user_source()}: jit expected a function, got {type(f).__name__}.")
    if device not in (None, "cpu", "gpu"):
        raise ArgumentError(f"{user_source()}: jit expected device='cpu', device='gpu' or None, got {device!r}.")
    parameters = Parameters(f, static_argnums, static_argnames, shapes, dynamic)
    versions = Versions(f, parameters, fast_math, parameters.labels(donate_argnums, donate_argnames, "donate"),
                        device, cuda_graphs)
    function: Any = NativeFunction()
    functools.update_wrapper(function, f)
    function.__dict__["_versions"] = versions
    versions.publish_to(function)
    _keep_signature(function, f)
    return function


def _keep_signature(function: Any, f: Callable[..., Any]) -> None:
    try:
        function.__signature__ = inspect.signature(f)
    except (TypeError, ValueError):  # a builtin that does not say
        return


def _qualified_name(self: Any) -> str:
    """Pickle and copy find a jitted function where Python finds the decorated name."""
    return str(self.__qualname__)


def _explain(self: Any, *args: Any, **kwargs: Any) -> str:
    """The versions compiled, their guards with the user's lines, their kernels with costs. With arguments: compiles for
    them if need be, marks the version that answers them, and gives costs in numbers."""
    return str(import_module("loopwright.explanation").explain(self._versions, args, kwargs))


def _lower(self: Any, *args: Any, device: str = "cpu", **kwargs: Any) -> Lowered | LoweredForGPU:
    """The graph, kernels, LLVM text and assembly for these arguments, as text. device="gpu": the graph, kernels and CUDA text
    (docs/gpu.md)."""
    found: Lowered | LoweredForGPU = import_module("loopwright.inspection").lowered(self._versions, args, kwargs, device)
    return found


def _compiles(self: Any) -> int:
    """How many native compiles there have been."""
    return int(self._versions.compiles)


def _all_versions(self: Any) -> tuple[Version, ...]:
    """What was compiled, programs that tuning found first, then oldest first."""
    return tuple([entry.draft.version for entry in self._versions.entries])


def _repr(self: Any) -> str:
    return f"<jitted {self._versions.parameters.name}, compiled {self.compiles} times>"


for _name, _member in {"__reduce__": _qualified_name, "__repr__": _repr, "explain": _explain, "lower": _lower,
                       "compiles": property(_compiles), "versions": property(_all_versions)}.items():
    setattr(NativeFunction, _name, _member)
