"""Seeing inside: graphs of functions, and the stages of what was compiled, as text."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, NoReturn

from loopwright.ir.dataclass import dataclass
from loopwright.ir.errors import ArgumentError
from loopwright.ir.graph import Graph
from loopwright.ir.source import user_source
from loopwright.lower.runtime.lazy import lower_cuda
from loopwright.tracer.pytree import take
from loopwright.tracer.signatures import Parameters
from loopwright.tracer.trace import trace
from loopwright.versions import Versions

__all__ = ["Lowered", "LoweredForGPU", "lowered", "make_graph"]


def make_graph(f: Callable[..., Any], *, static_argnums: int | Sequence[int] = (), static_argnames: str | Sequence[str] = (),
               shapes: Any = None, dynamic: bool = True) -> Callable[..., Graph]:
    """A function of f's arguments that gives the graph of f for them, as traced: one symbol per size, nothing computed.

    Captured arrays are its trailing parameters. `print` shows it and `parse` reads that text back. The options are those of
    `jit`, and so are the errors.

    >>> import numpy as np, loopwright as lw
    >>> print(lw.make_graph(lambda x: np.sqrt(x) * 2)(np.ones(3)))
    graph<n>(%x0: f64[n]) {
      %0: f64[n] = sqrt(%x0)
      %1: f64[n] = full() {value=2.0, shape=(n,), dtype=f64}
      %2: f64[n] = mul(%0, %1)
      return %2
    }
    """
    parameters = Parameters(f, static_argnums, static_argnames, shapes, dynamic)

    def graph(*args: Any, **kwargs: Any) -> Graph:
        call = parameters.call(args, kwargs)
        parameters.check_declaration(call, lambda a, b: a == b)
        types, symbols = parameters.types(call)

        def run(tracers: list[Any]) -> Any:
            positional, keywords = call.rebuild(call.form, tracers, take)
            return f(*positional, **keywords)

        traced = trace(run, types, scope=symbols.scope, is_floor=True, is_sealed=True, why=f"make_graph of {parameters.name}")
        symbols.check_free(parameters.name)
        return traced.graph
    return graph


@dataclass(frozen=True)
class Lowered:
    """The stages of one version as text: the simplified graph, its kernels, LLVM text, assembly of this machine. `module` is
    the whole compiled program, kernels with their schedules: `parse(module).compile()` is that program again, and may be edited
    before."""

    graph: str
    kernels: str
    module: str
    llvm: str
    asm: str

    def __getattr__(self, name: str) -> NoReturn:
        raise _no_stage(self, name, "cuda", "f.lower(*args, device='gpu') has the CUDA text")


@dataclass(frozen=True)
class LoweredForGPU:
    """The stages of one version for a GPU as text: the simplified graph, its kernels, and CUDA text with all of them, which
    begins with what runs when. Made on any machine; nothing is compiled or run."""

    graph: str
    kernels: str
    cuda: str

    def __getattr__(self, name: str) -> NoReturn:
        raise _no_stage(self, name, "module llvm asm", "f.lower(*args) has the stages for this machine's processor")


def _no_stage(made: Any, name: str, others: str, where: str) -> AttributeError:
    stages = ", ".join(f.name for f in fields(made))
    return AttributeError(f"{user_source()}: there is no stage {name!r}; there are {stages}."
                          f"{f' {where}.' if name in others.split() else ''}", name=name, obj=made)


def lowered(versions: Versions, args: Sequence[Any], kwargs: Mapping[str, Any], device: str) -> Lowered | LoweredForGPU:
    """See `jit`'s `lower`."""
    if device not in ("cpu", "gpu"):
        raise ArgumentError(f"{user_source()}: lower expected device='cpu' or device='gpu', got {device!r}.")
    if device == "gpu":
        return _lowered_for_gpu(versions, args, kwargs)
    entry = versions.entry(versions.parameters.call(args, kwargs))
    compiled = entry.compiled
    return Lowered(str(entry.draft.version.graph), str(compiled.kernels), str(compiled.module), compiled.llvm, compiled.asm)


def _lowered_for_gpu(versions: Versions, args: Sequence[Any], kwargs: Mapping[str, Any]) -> LoweredForGPU:
    call = versions.parameters.call(args, kwargs)
    draft, leaves = versions.draft(call), call.flat()
    sizes = {name: leaves[k].shape[axis] for name, (k, axis) in draft.sizes.items()}
    program = lower_cuda(draft.version.graph, sizes, fast_math=draft.version.fast_math)
    return LoweredForGPU(str(draft.version.graph), str(program.kernels), program.text)
