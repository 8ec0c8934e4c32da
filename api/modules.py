"""Programs as text: `parse` reads the text of a graph, or of a compiled function, and what it gives can be compiled."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from loopwright.ir.dims import evaluate
from loopwright.ir.errors import ArgumentError, DTypeError, ShapeError
from loopwright.ir.expansion import expanded
from loopwright.ir.graph import Graph
from loopwright.ir.guards import Guard
from loopwright.ir.interpreter import bind_sizes
from loopwright.ir.op import Op
from loopwright.ir.parser import Classes
from loopwright.ir.parser import parse as parse_graph
from loopwright.ir.signature import ArrayLeaf, Result, ResultContainer, Signature, Version
from loopwright.ir.source import user_source
from loopwright.ir.types import BOOL, COMPLEX, ArrayType
from loopwright.ir.verifier import verify
from loopwright.lower.compile import compile_version
from loopwright.lower.modules import CLASSES, OPS, check_schedules, is_module
from loopwright.lower.runtime.dispatcher import NativeFunction, set_versions
from loopwright.lower.runtime.natives import pointer_of


class Module(Graph):
    """A graph that can be compiled: what `parse` gives."""

    def compile(self, name: str = "module") -> Executable:
        """Machine code for the graph: a function of its parameters in order, as arrays and numbers, that gives its result (a
        tuple of them where there are several). The text of a compiled function (`f.lower(*args).module`) becomes that very
        code; any other graph is partitioned and scheduled as `jit` does it.

        VerificationError for a graph that is not valid, ScheduleError for a schedule that its kernel does not allow, with the
        line of the text; when it is called ArgumentError, DTypeError and ShapeError for arguments that do not fit.

        >>> import numpy as np, loopwright as lw
        >>> text = lw.jit(lambda x: np.exp(x) + 1).lower(np.zeros(3)).module
        >>> lw.parse(text).compile()(np.zeros(2))
        array([2., 2.])
        """
        return Executable(self, name)


def parse(text: str, ops: Mapping[str, Op] | None = None, classes: Classes | None = None,
          bind: Mapping[str, Any] | None = None) -> Module:
    """The graph that text spells: `str(graph)` of `make_graph`, or a stage of `f.lower(*args)`. ParseError, with line and
    column.

    bind: the Python functions, and addresses of machine code, that the program calls, by the names in the text; functions that
    a module holds under their names need none. ops and classes add ops, and dataclasses and enums of attributes, by name.

    >>> import numpy as np, loopwright as lw
    >>> double = lw.parse("graph<n>(%x0: f64[n]) { %0: f64[n] = add(%x0, %x0) return %0 }")
    >>> double.compile()(np.arange(3.0))
    array([0., 2., 4.])
    """
    bound = {name: pointer_of(x) or x for name, x in (bind or {}).items()}
    g = parse_graph(text, {**OPS, **(ops or {})}, {**CLASSES, **(classes or {})}, bound)
    return Module(g.params, g.nodes, g.results, g.constraints)


class Executable:
    """A compiled graph, as a function of its parameters in order. `graph`, `llvm` and `asm` show what it is made of."""

    def __init__(self, g: Graph, name: str) -> None:
        verify(g)
        if is_module(g):
            check_schedules(g)
        self.graph = g = g if is_module(g) else expanded(g)
        self.__name__ = name
        leaves = tuple([ArrayLeaf(v.type) for v in g.params])
        results = [Result(k) for k in range(len(g.results))]
        tree = results[0] if len(results) == 1 else ResultContainer("tuple", tuple(results))
        guards = tuple([Guard(c, user_source()) for c in g.constraints])
        donated = tuple([a for _, a in g.nodes[0].attrs["donations"]]) if is_module(g) else ()
        self._compiled = compile_version(Version(name, Signature(leaves), g, guards, tree, donated=donated))
        self._native: Any = NativeFunction()
        self._native.slow = self._slow
        set_versions(self._native, [self._compiled])

    def __call__(self, *args: Any) -> Any:
        return self._native(*args)

    def __repr__(self) -> str:
        return f"<compiled {self.__name__}: ({', '.join(str(v.type) for v in self.graph.params)})>"

    @property
    def llvm(self) -> str:
        return self._compiled.llvm

    @property
    def asm(self) -> str:
        return self._compiled.asm

    def _slow(self, *args: Any) -> Any:
        """Answer a call whose arguments are not the native arrays that compiled code takes, or do not fit."""
        params, name = self.graph.params, self.__name__
        if len(args) != len(params):
            raise ArgumentError(f"{user_source()}: {name} takes {len(params)} arrays "
                                f"({', '.join(str(v.type) for v in params)}), got {len(args)}.")
        arrays = [self._fitting(k, x, v.type) for k, (x, v) in enumerate(zip(args, params, strict=True))]
        try:
            sizes = bind_sizes(self.graph, [x.shape for x in arrays])
        except ShapeError as error:
            raise ShapeError(f"{user_source()}: {name}: {error}") from None
        for k, (x, v) in enumerate(zip(arrays, params, strict=True)):
            if x.shape != (shape := tuple([evaluate(n, sizes) for n in v.type.shape])):
                raise ShapeError(f"{user_source()}: argument {k} of {name} has shape {x.shape}, its type is {v.type}, which is "
                                 f"{shape} here.")
        return self._compiled.call(tuple(arrays), {})

    def _fitting(self, k: int, x: Any, t: ArrayType) -> np.ndarray:
        """An argument as a native array. Python numbers take the parameter's dtype."""
        kinds = (bool,) if t.dtype == BOOL else (int, bool) if not t.is_inexact else (int, bool, float)
        found = np.asarray(x, t.dtype if type(x) in (*kinds, *((complex,) if t.dtype in COMPLEX else ())) else None)
        if found.dtype.newbyteorder("=") != t.dtype:
            raise DTypeError(f"{user_source()}: argument {k} of {self.__name__} has dtype {found.dtype}, its type is {t}. "
                             f"Convert it with x.astype(...).")
        return np.require(found, t.dtype, ["C", "A"]).reshape(found.shape)
