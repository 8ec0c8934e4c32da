"""A candidate as loaded code: run once to be checked, run many times to be timed.

Guarantees: programs of the same arguments that are given the same `Arrays` read and write the same memory, so that where arrays
happen to lie makes none of them faster; but for arguments of which results take the memory: of these each has its own.
"""
from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence

import numpy as np

from loopwright.ir.cached import cached_property
from loopwright.ir.dataclass import dataclass
from loopwright.ir.graph import Graph
from loopwright.lower.program import lower_graph
from loopwright.lower.runtime import blas, cache, callbacks, natives, support
from loopwright.lower.runtime.cache import Entry
from loopwright.lower.runtime.dispatch_text import ERROR_WORDS
from loopwright.lower.runtime.engine import assemble, load
from loopwright.lower.runtime.linking import imported
from loopwright.lower.target import host_target
from loopwright.lower.tuning.candidates import Candidate, Kinds, filled, kinds_of

_REPEAT = """
define i32 @repeat(ptr %args, ptr %results, ptr %sizes, ptr %error, i64 %count) nounwind {
entry:
  br label %again
again:
  %k = phi i64 [ 0, %entry ], [ %next, %again ]
  %status = call i32 @entry(ptr %args, ptr %results, ptr %sizes, ptr %error)
  %next = add i64 %k, 1
  %fine = icmp eq i32 %status, 0
  %more = icmp slt i64 %next, %count
  %on = and i1 %fine, %more
  br i1 %on, label %again, label %done
done:
  ret i32 %status
}
"""


@dataclass(frozen=True)
class Arrays:
    """Memory for the parameters and the results of programs. values: the file of the arguments; "": they are drawn."""

    params: Kinds
    outputs: Kinds
    values: str = ""

    @cached_property
    def given(self) -> list[np.ndarray]:
        """The arguments."""
        return [np.asarray(x, order="C") for x in filled(self.params, self.values)]

    @cached_property
    def results(self) -> list[np.ndarray]:
        """What the program that ran last stored."""
        return [np.empty(shape, dtype) for dtype, shape in self.outputs]


class Executable:
    """A candidate's code and arrays. Results that take an argument's memory lie in it. shared: the arrays of programs that have
    these parameters and results."""

    def __init__(self, candidate: Candidate, shared: Callable[[Arrays], Arrays] = lambda own: own) -> None:
        g, sizes = candidate.parsed(), dict(candidate.sizes)
        code = _code(candidate, g)
        self.graph = g
        self.called = dict(callbacks.functions(g))
        known = {**dict(natives.functions(g)), **{name: id(f) for name, f in self.called.items()}}
        where = {name: known[name] if name in known else support.address(name) or 0 for name in code.metadata["imports"]}
        self.library = load(code.code, where, ["repeat"])
        arrays = shared(Arrays(kinds_of(g.params, sizes), kinds_of(g.results, sizes), candidate.values))
        self.given, self.donated = arrays.given, dict(code.metadata["donations"])
        self.args = [x.copy() if k in self.donated.values() else x for k, x in enumerate(self.given)]
        self.results = [self.args[self.donated[k]] if k in self.donated else x for k, x in enumerate(arrays.results)]
        self.sizes = (ctypes.c_int64 * len(g.free_symbols))(*[sizes[s] for s in g.free_symbols])
        self._pointers = _pointers(self.args), _pointers(self.results)
        self._call = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 4, ctypes.c_int64)(self.library["repeat"])

    def run(self, count: int = 1) -> float:
        """Run so many times; seconds for all. RuntimeError where the program reports an error, MemoryError for want of
        memory."""
        for a in self.donated.values():
            self.args[a][...] = self.given[a]
        error = (ctypes.c_int64 * ERROR_WORDS)()
        start = time.perf_counter()
        status = self._call(*self._pointers, self.sizes, error, count)
        seconds = time.perf_counter() - start
        if status == 2:
            raise MemoryError("the program found no memory")
        if status:
            raise RuntimeError(f"the program reported an error at one of its lines (status {status})")
        return seconds


def _code(candidate: Candidate, g: Graph) -> Entry:
    """The machine code of a candidate, g as a graph: from the disk where another process made it, as for those who time what
    others checked. With the symbols that it imports, and which results lie in which donated arguments."""
    target = host_target()
    key = cache.digest("candidate", candidate.text, repr(candidate.sizes), repr(target), str(blas.available()),
                       cache.environment(), cache.source_digest())
    entry = cache.read(key)
    if entry is None:
        made = lower_graph(g, target, blas=blas.available(), sizes=dict(candidate.sizes))
        text = made.text + _REPEAT
        entry = Entry(assemble(text, target), {"imports": imported([text]), "donations": [*made.donations.items()]})
        cache.write(key, entry)
    return entry


def _pointers(arrays: Sequence[np.ndarray]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(arrays))(*[x.ctypes.data for x in arrays])
