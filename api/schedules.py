"""Schedules by hand: `schedule(f, *args)` shows the kernels that f becomes, and changes how they run."""
from __future__ import annotations

import dataclasses
import functools
import json
import os
import re
from collections.abc import Callable
from typing import Any, get_args

from loopwright.ir import schedule as instructions
from loopwright.ir.attributes import Attributes
from loopwright.ir.errors import ArgumentError, ScheduleError
from loopwright.ir.graph import Graph, Node
from loopwright.ir.schedule import InPlace, Instruction, Reorder
from loopwright.ir.schedule import Schedule as Instructions
from loopwright.ir.signature import Version
from loopwright.ir.source import user_source
from loopwright.jitted import jit
from loopwright.lower.compile import compile_version
from loopwright.lower.covers import structure_of_kernel
from loopwright.lower.modules import check_schedule, described, kernels_of, loops_of, reimplemented
from loopwright.lower.rules import default_schedule
from loopwright.lower.runtime.dispatcher import NativeFunction
from loopwright.lower.scheduling import build_nest
from loopwright.lower.target import host_target
from loopwright.modules import Module
from loopwright.user_kernels import Kernel
from loopwright.versions import Entry, Versions

_PLACING = ("Inline", "ComputeAt", "AddAlong")  # kinds of which a stage has one
_KINDS: dict[str, Any] = {
    re.sub(r"(?<=.)([A-Z])", r"_\1", kind.__name__).lower(): kind for kind in get_args(Instruction)}


def schedule(f: Callable[..., Any], *args: Any, **kwargs: Any) -> Schedules:
    """The kernels that f becomes for arguments like these, each with its schedule, to be looked at and changed.

    `print` shows them. `.kernel(k)` is one of them, with a method for each instruction of a schedule, by its name in small
    letters: `.vectorize(stage, loop, lanes)`, `.unroll(stage, factor)`, `.parallel()`, `.compute_at(stage, level)`, ... Each
    is checked at once (ScheduleError names the kernel and the instruction), takes the place of an earlier one of its kind for
    the same loop, and gives the kernel again, so that calls chain. The stage is the kernel's last one, and the loop the
    stage's last, unless they are said. `.compile()` gives f with these schedules, `.save(path)` and `.load(path)` keep them,
    by the structure of kernels.

    >>> import numpy as np, loopwright as lw
    >>> s = lw.schedule(lambda x: np.exp(x) + 1, np.ones(100))
    >>> s.kernel(0).vectorize(lanes=4).unroll(factor=2).schedule[-3:]
    (Vectorize(stage=2, loop=0, lanes=4), Unroll(stage=2, factor=2), Parallel(loops=()))
    >>> s.compile()(np.zeros(2))
    array([2., 2.])
    """
    function = f if isinstance(f, NativeFunction) else jit(f)
    return Schedules(function, args, kwargs)


class Schedules:
    """The kernels of a compiled function with their schedules. See `schedule`."""

    def __init__(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        versions: Versions = f._versions
        self._function, self._versions = f, versions
        self._entry = versions.entry(versions.parameters.call(args, kwargs))
        self._graph = self._entry.compiled.module
        self._nodes = kernels_of(self._graph)
        self._attrs: dict[Node, Attributes] = {}  # of kernels that were changed

    @property
    def kernels(self) -> list[KernelSchedule]:
        """All kernels, in their order."""
        return [self.kernel(k) for k in range(len(self._nodes))]

    def kernel(self, k: int) -> KernelSchedule:
        """Kernel number k."""
        if not -len(self._nodes) <= k < len(self._nodes):
            raise ArgumentError(f"{user_source()}: there are {len(self._nodes)} kernels, numbered from 0, got number {k}.")
        return KernelSchedule(self, k % len(self._nodes))

    def __len__(self) -> int:
        return len(self._nodes)

    def __str__(self) -> str:
        return "\n".join(map(str, self.kernels))

    __repr__ = __str__

    @property
    def version(self) -> Version:
        """What the program is of, as it was traced."""
        return self._entry.draft.version

    @property
    def module(self) -> Module:
        """The whole program with these schedules: its text is `str(module)`."""
        g = reimplemented(self._graph, self._attrs)
        return Module(g.params, g.nodes, g.results, g.constraints)

    def compile(self) -> Callable[..., Any]:
        """The function with these schedules. Calls that another version of it would answer (other dtypes, or sizes for which
        its trace does not hold) are answered by the function as it was."""
        version = dataclasses.replace(self._entry.draft.version, graph=self.module)
        draft = dataclasses.replace(self._entry.draft, version=version)
        entry = dataclasses.replace(self._entry, draft=draft, compiled=compile_version(version))
        return _Scheduled(self._function, self._versions, entry)

    # ---- kept ----------------------------------------------------------------------------------
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all schedules as JSON lines, one a kernel: its structure, its ops, its schedule."""
        with open(path, "w", encoding="utf-8") as file:
            for k in self.kernels:
                if k.is_generated:
                    record = {"structure": k.structure, "ops": k.ops, "schedule": json.loads(instructions.to_json(k.schedule))}
                    file.write(json.dumps(record) + "\n")

    def load(self, path: str | os.PathLike[str]) -> Schedules:
        """Take the schedules that `save` wrote for kernels of the same structure. ScheduleError for one that does not fit,
        ArgumentError for a file that holds none for any kernel here."""
        with open(path, encoding="utf-8") as file:
            records = [line for line in file if line.strip()]
        try:
            known = {r["structure"]: instructions.from_json(json.dumps(r["schedule"])) for r in map(json.loads, records)}
        except (ValueError, TypeError, KeyError) as error:
            raise ArgumentError(f"{user_source()}: {os.fspath(path)} is no file of schedules, as `save` writes it: "
                                f"{type(error).__name__}: {error}.") from None
        found = [k for k in self.kernels if k.is_generated and k.structure in known]
        if not found:
            raise ArgumentError(f"{user_source()}: {os.fspath(path)} holds schedules of {len(records)} kernels, and none of "
                                f"them is one of these: they are of another function, or of another version of loopwright.")
        for k in found:
            k.set(known[k.structure])
        return self


class KernelSchedule:
    """One kernel and its schedule; a method for each instruction, by its name in small letters, changes it."""

    def __init__(self, whole: Schedules, number: int) -> None:
        self._whole, self.number = whole, number
        self._node = whole._nodes[number]

    @property
    def is_generated(self) -> bool:
        """Whether a schedule makes the kernel, and not a library."""
        return bool(self.attrs["implementation"] == "generated")

    @property
    def attrs(self) -> Attributes:
        """How the kernel is made: its `implementation`, and what that needs."""
        return self._whole._attrs.get(self._node, self._node.attrs)

    @property
    def region(self) -> Graph:
        """What the kernel computes: stage k is the graph's node number k."""
        return self._node.regions[0]

    @property
    def ops(self) -> list[str]:
        """The names of the stages' operations."""
        return [n.op.name for n in self.region.nodes]

    @property
    def structure(self) -> str:
        """The same for equal kernels in every process, whatever their sizes are called."""
        return structure_of_kernel(self._node)

    @property
    def schedule(self) -> Instructions:
        """The instructions as they stand."""
        return tuple(self.attrs.get("schedule", ()))

    def __str__(self) -> str:
        head = f"{described(self.number, self._node)}: {self.attrs['implementation']}"
        body = [f"  {line}" for line in str(self.region).splitlines()]
        return "\n".join([head, *body, *(f"  {x}" for x in self.schedule)])

    __repr__ = __str__

    # ---- changes -------------------------------------------------------------------------------
    def set(self, schedule: Instructions) -> KernelSchedule:
        """Take a whole schedule in place of this one. ScheduleError where the kernel does not allow it."""
        if not self.is_generated:
            implementation = self.attrs["implementation"]
            raise ScheduleError(f"{user_source()}: {described(self.number, self._node)} calls {implementation}: no schedule "
                                f"makes it.")
        if _in_place(schedule) != _in_place(self.schedule):
            raise ScheduleError(f"{user_source()}: {described(self.number, self._node)}: InPlace says where the program keeps "
                                f"its values, and is not to be changed: donate an argument (donate_argnums) for that.")
        new = [x for x in schedule if x not in self.schedule]
        check_schedule(self.region, schedule, f"{user_source()}: {described(self.number, self._node)}", new)
        self._whole._attrs[self._node] = {**self.attrs, "schedule": schedule}
        return self

    def use(self, what: str | Kernel) -> KernelSchedule:
        """Let something else make the kernel: one of your own (`lw.kernel`) whose signature fits, "generated" loops with the
        schedule that rules give them, or again what the program was compiled with, by its name. ScheduleError where that does
        not fit. That a kernel of your own computes the same is yours to know."""
        original, region = self._node.attrs, self.region
        found: Attributes | None = None
        if isinstance(what, Kernel):
            found = what.implementing([v.type for v in region.params], [v.type for v in region.results])
        elif what == original["implementation"]:
            found = original
        elif what == "generated" and all(n.op.loop is not None for n in self.region.nodes):
            found = {"implementation": "generated", "schedule": default_schedule(self.region, host_target())}
        if found is None or _in_place(found.get("schedule", ())) != _in_place(original.get("schedule", ())):
            given, made = (", ".join(str(v.type) for v in values) for values in (region.params, region.results))
            raise ScheduleError(f"{user_source()}: {described(self.number, self._node)} cannot be made by {what!r}: it is "
                                f"{given} -> {made}.")
        self._whole._attrs[self._node] = found
        return self

    def remove(self, name: str, **fields: Any) -> KernelSchedule:
        """Leave out the instructions of a kind, or those of them that have these fields: `.remove("parallel")`."""
        kind = _KINDS.get(name)
        out = [x for x in self.schedule if type(x) is kind and all(getattr(x, f) == v for f, v in fields.items())]
        if not out:
            raise ScheduleError(f"{user_source()}: {described(self.number, self._node)}: there is no {name} to remove; "
                                f"there are {', '.join(map(str, self.schedule))}.")
        return self.set(tuple([x for x in self.schedule if x not in out]))

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_KINDS})

    def __getattr__(self, name: str) -> Callable[..., KernelSchedule]:
        kind = _KINDS.get(name)
        if kind is None:
            raise AttributeError(f"there is no schedule instruction {name!r}; there are {', '.join(_KINDS)}")

        @functools.wraps(kind, updated=())
        def method(*args: Any, **kwargs: Any) -> KernelSchedule:
            return self._with(self._made(kind, args, kwargs))
        return method

    def _made(self, kind: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Instruction:
        """An instruction, with the root's stage and a stage's last loop where they are not said."""
        names = [f.name for f in dataclasses.fields(kind)]
        given = dict(zip(names, args, strict=False)) | kwargs
        if "stage" in names and self.is_generated:
            root = next(k for k, n in enumerate(self.region.nodes) if self.region.results[0] in n.outputs)
            stage = given.setdefault("stage", root)
            if "loop" in names and "loop" not in given and 0 <= stage < len(self.region.nodes):
                now = build_nest(self.region, self.schedule, "trial")
                given["loop"] = loops_of(self.region, now, stage) - given.get("count", 1)
        try:
            made: Instruction = kind(**given)
        except TypeError as error:
            raise ArgumentError(f"{user_source()}: {kind.__name__}({', '.join(names)}): {error}.") from None
        return made

    def _with(self, x: Instruction) -> KernelSchedule:
        """Add an instruction at the end, or where one stands that it contradicts."""
        old = self.schedule
        first = next((k for k, y in enumerate(old) if _replaces(x, y)), len(old))
        before, after = ([y for y in part if not _replaces(x, y)] for part in (old[:first], old[first:]))
        return self.set((*before, x, *after))


def _in_place(schedule: Instructions) -> set[Instruction]:
    return {x for x in schedule if isinstance(x, InPlace)}


def _replaces(x: Instruction, y: Instruction) -> bool:
    """Whether x says anew what y said: the same kind of thing of the same stage and loop."""
    family = [_PLACING if type(i).__name__ in _PLACING else type(i) for i in (x, y)]
    alike = all(getattr(x, name, None) == getattr(y, name, None) for name in ("stage", "loop", "operand", "side"))
    other_loops = isinstance(x, Reorder) and isinstance(y, Reorder) and set(x.loops) != set(y.loops)
    return family[0] == family[1] and alike and not other_loops


class _Scheduled:
    """A function whose calls are answered by one version where that fits, else by the function as it was."""

    def __init__(self, f: Callable[..., Any], versions: Versions, entry: Entry) -> None:
        functools.update_wrapper(self, f)
        self._function, self._versions, self._entry = f, versions, entry

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        call = self._versions.parameters.call(args, kwargs)
        if call.is_traced or call.key != self._entry.key or not self._entry.matches(call):
            return self._function(*args, **kwargs)
        return self._entry.run(call)
