"""From a traced version to something that can be called: lower, assemble, link; or load from the disk.

Guarantees: a version that was compiled before, in any process, is loaded without generating its text; the text,
assembly and kernels of a loaded version are made when they are asked for; an error's line is the line of this version's
own trace, also when the code came from the disk.
"""
from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from loopwright.ir.cached import cached_property
from loopwright.ir.collector import collector_paused
from loopwright.ir.errors import CheckError
from loopwright.ir.graph import Graph
from loopwright.ir.ops.checks import FAILED_AXIS, failed_message
from loopwright.ir.ops.linalg import FAILURES, FIRST_FAILURE_AXIS
from loopwright.ir.ops.selection import FIRST_NARROW_AXIS
from loopwright.ir.ops.transcendental import power
from loopwright.ir.signature import Version
from loopwright.ir.source import Source
from loopwright.ir.types import INTEGERS, is_integer
from loopwright.lower.runtime import blas, cache, fallback
from loopwright.lower.runtime.cache import Entry
from loopwright.lower.runtime.canonical import lines, version_key
from loopwright.lower.runtime.dispatcher import NativeFunction, set_versions
from loopwright.lower.runtime.engine import Library, assemble, assembly
from loopwright.lower.runtime.fallback import Miss
from loopwright.lower.runtime.later import Later, is_squeezed, kind_of
from loopwright.lower.runtime.lazy import lower_graph, module_of
from loopwright.lower.runtime.linking import assembled, imported, is_native, link, link_later, module_texts
from loopwright.lower.target import Target, host_target

if TYPE_CHECKING:
    from loopwright.lower.program import Program

_NEGATIVE_POWER = "Integers to negative integer powers are not allowed."


class Compiled:
    """One version as machine code. `call` runs it; `library` keeps the code in memory; `donations` says which results take the
    memory of which arguments."""

    def __init__(self, version: Version, target: Target, use_blas: bool, library: Library, donations: Mapping[int, int],
                 from_cache: bool) -> None:
        self.version, self.target, self.library, self.from_cache = version, target, library, from_cache
        self.donations = donations
        self._use_blas = use_blas

    @property
    def dispatch(self) -> int | None:
        """The address of the dispatch function; None where calls go through Python."""
        return self.library["dispatch"] if is_native() else None

    @cached_property
    def program(self) -> Program:
        """The text of the entry point, its kernels and error sites."""
        v = self.version
        return lower_graph(v.graph, self.target, blas=self._use_blas, fast_math=v.fast_math, donated=v.donated)

    @property
    def kernels(self) -> Graph:
        """The partitioned graph."""
        return self.program.kernels

    @property
    def _texts(self) -> tuple[str, ...]:
        names = [name for name in self.program.apart if not is_squeezed(name)]
        later = (self.program.later(names),) if names else ()
        return *later, *module_texts(self.version, self.program.text, self.donations)

    @property
    def module(self) -> Graph:
        """The whole program as a graph of one node, which text can hold and `compile_version` takes."""
        v = self.version
        return module_of(v.graph, lambda: self.program, v.fast_math)

    @property
    def llvm(self) -> str:
        """The modules: what calls may need later, but for axes of one element; kernels and entry point; dispatch function."""
        return "\n".join(self._texts)

    @property
    def asm(self) -> str:
        """The machine code as assembly text."""
        return "\n".join([assembly(text, self.target) for text in self._texts])

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The answer of this version alone; Miss when it does not fit the call."""
        if self.dispatch is None:
            entry, raise_error = self.library["entry"], self.library.keep["lw_raise"]
            return fallback.call(self.version, entry, raise_error, args, kwargs, self.donations)
        return self._alone(*args, **kwargs)

    @cached_property
    def _alone(self) -> Any:
        function = NativeFunction()
        function.slow = _Missed(self.version.name)
        set_versions(function, [self])
        function.published = ()  # no cycle: the function needs the library only
        return function


class _Missed:
    """Answers a call that the only version does not fit."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise Miss(f"this version of {self.name} does not fit the call")


class SiteErrors:
    """Raises what compiled code reported: an index out of range, an integer power with a negative exponent, a Python int
    that does not fit, a matrix that cannot be factored, a check that does not hold."""

    def __init__(self, sites: tuple[Source | None, ...], powers: tuple[Source, ...]) -> None:
        self.sites, self.powers = sites, powers

    def __call__(self, error: bytes) -> NoReturn:
        site, index, axis, size = struct.unpack("<4q", error)
        if axis == -1:  # a power has no site: its line is that of one of the graph's powers
            raise ValueError(_NEGATIVE_POWER + _at(" or ".join(map(str, self.powers))))
        if axis == FAILED_AXIS:
            raise CheckError(f"{self.sites[site - 1]}: {failed_message()}")
        where = _at(str(self.sites[site - 1] or ""))
        if axis <= FIRST_FAILURE_AXIS:
            raise np.linalg.LinAlgError(f"{FAILURES[FIRST_FAILURE_AXIS - axis]}{where}")
        if axis <= FIRST_NARROW_AXIS:
            dtype = INTEGERS[FIRST_NARROW_AXIS - axis]
            least = np.iinfo(dtype).min if dtype.itemsize < 8 else 0
            raise OverflowError(f"Python integer {index + least} out of bounds for {dtype}{where}")
        index = index - size if index < 0 else index  # as the user wrote it: compiled code has wrapped negative ones
        raise IndexError(f"index {index} is out of bounds for axis {axis} with size {size}{where}")


def _at(where: str) -> str:
    return f" (at {where})" if where else ""


def compile_version(version: Version) -> Compiled:
    """Machine code for a version. ValueError when a size of its graph is told by no argument."""
    target, use_blas = host_target(), blas.available()
    key = version_key(version, target, use_blas)
    entry = cache.read(key)
    program: Program | None = None

    def lowered() -> Program:
        v = version
        with collector_paused():
            return program or lower_graph(v.graph, target, blas=use_blas, fast_math=v.fast_math, donated=v.donated)

    if entry is None:
        program = lowered()
        texts = module_texts(version, program.text, program.donations)
        entry = Entry(assembled(texts, target), {"imports": imported(texts), "sites": _numbered(version.graph, program.sites),
                                                 "donations": list(program.donations.items()), "later": list(program.apart)})
        cache.write(key, entry)
    errors = SiteErrors(_sources(version.graph, entry.metadata["sites"]), integer_powers(version.graph))
    names = entry.metadata["later"]
    later = Later(names, lambda functions: _load_later(key, functions, lowered, target)) if names else None
    library = link(version, entry.code, entry.metadata["imports"], errors, later)
    donations = {int(k): int(a) for k, a in entry.metadata["donations"]}
    compiled = Compiled(version, target, use_blas, library, donations, from_cache=program is None)
    if program is not None:
        compiled.__dict__["program"] = program
    return compiled


def _load_later(key: str, functions: Sequence[str], lowered: Callable[[], Program], target: Target) -> Library:
    """What a program needs of that kind: from the disk, too."""
    key = cache.digest(key, kind_of(functions[0]))
    entry = cache.read(key)
    if entry is None:
        text = lowered().later(functions)
        entry = Entry(assemble(text, target), {"imports": imported([text])})
        cache.write(key, entry)
    return link_later(entry.code, entry.metadata["imports"], functions)


def _numbered(g: Graph, sites: tuple[Source | None, ...]) -> list[int]:
    """Each site's line by its number among the different lines of the graph, so that it holds when lines move."""
    number = {source: k for k, source in enumerate(dict.fromkeys(lines(g)))}
    return [number.get(source, -1) for source in sites]


def integer_powers(g: Graph) -> tuple[Source, ...]:
    """The lines of powers of integers."""
    found = [n.source for n in g.nodes if n.op is power and is_integer(n.outputs[0].type.dtype) and n.source]
    return tuple(dict.fromkeys((*found, *(source for n in g.nodes for r in n.regions for source in integer_powers(r)))))


def _sources(g: Graph, numbers: list[int]) -> tuple[Source | None, ...]:
    known = [*dict.fromkeys(lines(g)), None]
    return tuple(known[k] for k in numbers)
