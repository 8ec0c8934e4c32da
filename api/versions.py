"""The compiled versions of one jitted function: found by key and guards, traced and compiled when none fits.

Guarantees: a version answers only calls for which its key, its guards, the types of the arrays it captured and the
contents it relies on are those of its trace; a trace that raises leaves nothing behind; no lock is held while user code
runs (two threads may trace, the first to publish wins, the other's trace is dropped before it is compiled).
"""
from __future__ import annotations

import dataclasses
import os
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from loopwright.gpu_versions import OnGPU, refuse_captured
from loopwright.ir import nans
from loopwright.ir.backward import recomputing
from loopwright.ir.builder import Ref, inline, innermost, running
from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import symbol_of
from loopwright.ir.expansion import expanded
from loopwright.ir.facts import Constraint
from loopwright.ir.guards import Guard
from loopwright.ir.residuals import Choice
from loopwright.ir.signature import Result, ResultContainer, Signature, Version
from loopwright.ir.source import user_source
from loopwright.ir.tracebacks import user_frames
from loopwright.ir.types import ArrayType, is_array, native
from loopwright.layouts import is_strided, straight
from loopwright.lower.runtime.arguments import reads_contents
from loopwright.lower.runtime.dispatcher import set_versions
from loopwright.lower.runtime.lazy import compile_version
from loopwright.tracer.promotion import newest_builder
from loopwright.tracer.pytree import Structure, flatten, paths, take, unflatten
from loopwright.tracer.signatures import (
    Call,
    Form,
    Label,
    Parameters,
    is_native,
    leaf,
    number_type,
    result_tree,
    signature,
)
from loopwright.tracer.trace import Traced, as_ref, trace
from loopwright.tracer.tracer import Tracer
from loopwright.tuned import programs_for

if TYPE_CHECKING:
    from loopwright.lower.compile import Compiled
    from loopwright.lower.tuning.stored import Program

WARN_AT, KEEP = 8, 64
Layout = tuple[tuple[int, ...], tuple[int, ...], np.dtype]
_publishing = threading.RLock()  # around compiling and publishing, never around user code
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_publishing.acquire, after_in_parent=_publishing.release, after_in_child=_publishing.release)


class _Without(threading.local):
    depth = 0  # of disable_jit, on this thread


_without = _Without()


@contextmanager
def disable_jit(disable: bool = True) -> Iterator[None]:
    """Inside, on this thread, jitted functions are ordinary Python functions: `print` shows values, a debugger steps through
    them, and nothing is compiled. disable=False changes nothing.

    >>> import numpy as np, loopwright as lw
    >>> with lw.disable_jit():
    ...     lw.jit(lambda x: x + 1 if x > 0 else x)(np.float64(2.0))
    np.float64(3.0)
    """
    if not disable:
        yield
        return
    thread = threading.get_ident()
    running.append(thread)  # compiled calls then ask Python
    _without.depth += 1
    try:
        yield
    finally:
        _without.depth -= 1
        running.remove(thread)


class RecompilationWarning(UserWarning):
    """A jitted function was compiled many times; the message names what differs from call to call."""


class DonationWarning(UserWarning):
    """The memory of a donated argument is of no use to any result; the message names it."""


@dataclass(frozen=True, eq=False)
class Draft:
    """A version before it is compiled, and what Python must know to find and call it.

    is_direct: compiled code takes the call as the user spells it; else it takes the flat leaves, and only Python calls it.
    sizes: where each symbol is read, as (leaf, axis). captured: each with its layout at the trace. residuals: what each
    backward part takes from before it; tapes: who keeps what for theirs of each trip of a loop, or of a branch.
    """

    version: Version
    is_direct: bool
    structure: Structure
    sizes: Mapping[str, tuple[int, int]]
    captured: tuple[tuple[np.ndarray, Layout], ...]
    residuals: tuple[Choice, ...]
    tapes: tuple[tuple[str, Choice], ...]

    def sizes_of(self, leaves: Sequence[Any]) -> dict[str, int]:
        """What each symbol is for these leaves, in the order of the call that was traced."""
        return {name: leaves[k].shape[axis] for name, (k, axis) in self.sizes.items()}

    def answers(self, leaves: Sequence[Any]) -> bool:
        """Whether the version holds for these leaves of a call of its key."""
        return (self.broken_guard(leaves) is None
                and all(_layout(x) == layout for x, layout in self.captured)
                and all(x.tobytes() == held for x, held in self.version.contents))

    def broken_guard(self, leaves: Sequence[Any]) -> Guard | None:
        """The first guard that the sizes of these leaves break."""
        guards = self.version.guards
        if not guards:
            return None
        sizes = self.sizes_of(leaves)
        return next((g for g in guards if not g.constraint.holds(sizes)), None)


@dataclass(frozen=True, eq=False)
class Entry:
    """A compiled version: its draft, its code, and the call that it was made for. tuned: the program that is in place of the
    default one; the draft then has its guards, and the graph as traced."""

    draft: Draft
    compiled: Compiled
    key: Any
    form: Form
    statics: Mapping[Label, Any]
    structures: Mapping[Label, Structure]
    tuned: Program | None = None

    def matches(self, call: Call) -> bool:
        """Whether this version answers a call of its key."""
        return self.draft.answers(call.flat(self.form))

    def broken_guard(self, call: Call) -> Guard | None:
        """The first guard that the call's sizes break."""
        return self.draft.broken_guard(call.flat(self.form))

    def sizes_of(self, call: Call) -> dict[str, int]:
        """What each symbol is in a call."""
        return self.draft.sizes_of(call.flat(self.form))

    def run(self, call: Call) -> Any:
        """Call the compiled code; where NaNs are watched for, look into a result that holds one."""
        if not nans.is_watching():
            return self._run(call)
        given = [np.array(x) for x in (*call.flat(self.form), *self.draft.version.hidden)]
        sizes, found = self.sizes_of(call), self._run(call)
        if nans.holds_nan(flatten(found)[0]):
            nans.explain(self.draft.version.graph, given, sizes, self.draft.version.name)
        return found

    def _run(self, call: Call) -> Any:
        """Call the compiled code, on native copies where arguments have another layout."""
        leaves = [straight(x) for x in call.flat(self.form)]
        if not self.draft.is_direct:
            return unflatten(self.draft.structure, self.compiled.call(tuple(leaves), {}))
        rest = iter(leaves)

        def one(label: Label) -> Any:  # static arguments and fields as they were: compiled code knows them by identity
            return self.statics[label] if label in self.statics else take(self.structures[label], rest)

        args = tuple([one(label) for label in self.form.positional])
        return self.compiled.call(args, {k: one(k) for k in self.form.keywords})


class Versions:
    """What one jitted function has compiled. `slow` is what the native function calls when no version answers."""

    def __init__(self, f: Callable[..., Any], parameters: Parameters, fast_math: bool,
                 donated: frozenset[Label] = frozenset(), device: str | None = None, cuda_graphs: bool = True) -> None:
        self.f, self.parameters, self.fast_math, self.donated = f, parameters, fast_math, donated
        if both := sorted(map(str, donated & parameters.static)):
            raise ValueError(f"{parameters.name}: {', '.join(both)} cannot be both static and donated.")
        self.why = f"jit of {parameters.name}"
        self.entries: tuple[Entry, ...] = ()
        self.compiles = 0
        self.notes: dict[str, None] = {}  # what explain() says of tuning
        self.on_gpu = OnGPU(self, device, cuda_graphs)
        self._function: weakref.ref[Any] | None = None  # weak: the function holds its versions

    def slow(self, *args: Any, **kwargs: Any) -> Any:
        """Answer a call that no published version took."""
        with user_frames():
            return self._answer(args, kwargs)

    def _answer(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if _without.depth:
            return self.f(*args, **kwargs)
        if self.entries and innermost() is None and any(map(is_strided, args)) and (function := self.function) is not None:
            return function(*[straight(x) if is_strided(x) else x for x in args], **kwargs)  # compiled code may take copies
        if innermost() is None and (answer := self.on_gpu.again(args, kwargs)) is not None:
            return answer[0]
        call = self.parameters.call(args, kwargs)
        if call.is_traced:
            return self._inlined(call)
        if self.on_gpu.takes(call):
            return self.on_gpu.run(call)
        if innermost() is not None:  # values run here: what is compiled may answer, what is not may close over the trace
            found = self.find(call)
            return found.run(call) if found else self._inlined(call)
        return self.entry(call).run(call)

    def entry(self, call: Call) -> Entry:
        """The version for a call, compiled if need be."""
        if self.parameters.shapes:
            self.parameters.check_declaration(call, lambda a, b: a == b)
        if (found := self.find(call)) is not None:
            return found
        draft = self.draft(call)
        refuse_captured(draft.version, self.parameters.name)
        return self._publish(call, draft, programs_for(self, call, draft))

    def find(self, call: Call) -> Entry | None:
        """A compiled version that answers this call."""
        return next((e for e in self.entries if e.key == call.key and e.matches(call)), None)

    def draft(self, call: Call) -> Draft:
        """Trace the function for a call."""
        types, symbols = self.parameters.types(call)
        traced = trace(self._around(call), types, scope=symbols.scope, is_floor=True, is_sealed=True, why=self.why)
        symbols.check_free(self.parameters.name)
        return drafted(call, types, traced, self.parameters.name, self.fast_math, self.donated)

    def _around(self, call: Call) -> Callable[[list[Tracer]], Any]:
        def run(tracers: list[Tracer]) -> Any:
            args, kwargs = call.rebuild(call.form, tracers, take)
            return self.f(*args, **kwargs)
        return run

    def _publish(self, call: Call, draft: Draft, programs: Sequence[Program]) -> Entry:
        with _publishing:
            self._adopt(call, draft, programs)
            if (first := self.find(call)) is not None:
                return first
            blame = self._blame(call)
            entry = Entry(draft, compile_version(draft.version), call.key, call.form, call.statics, call.structures)
            self._keep([*self.entries, entry])
            are_many = sum(e.tuned is None for e in self.entries) == WARN_AT  # of several threads one sees this number
        self._warn_of_donations(call, entry)
        if are_many:
            at = user_source()
            warnings.warn_explicit(f"{self.parameters.name} has {WARN_AT} compiled versions; {blame}", RecompilationWarning,
                                   at.file, at.line)
        return entry

    def retune(self, call: Call, draft: Draft, programs: Sequence[Program], structure: str) -> None:
        """Take these tuned programs of the draft's graph, whose structure that is, in place of those that there were."""
        with _publishing:
            self.entries = tuple([e for e in self.entries if e.tuned is None or e.tuned.record.structure != structure])
            self._adopt(call, draft, programs)
            self._offer()

    def _adopt(self, call: Call, draft: Draft, programs: Sequence[Program]) -> None:
        """Compile the programs that are not there yet, in their order before every default one."""
        known = {(e.key, e.tuned.record, _constraints(e.draft)) for e in self.entries if e.tuned is not None}
        made = []
        for program in programs:
            version = dataclasses.replace(draft.version, guards=(*draft.version.guards, *program.guards))
            guarded = dataclasses.replace(draft, version=version)
            if (call.key, program.record, _constraints(guarded)) in known:
                continue
            try:
                compiled = compile_version(dataclasses.replace(version, graph=program.graph))
            except Exception as error:  # a record's program must not make the call fail: the default one answers it
                self.notes[f"ignored {program.where}: it does not compile: {type(error).__name__}: {error}"] = None
                continue
            made.append(Entry(guarded, compiled, call.key, call.form, call.statics, call.structures, program))
        if made:
            self._keep([*made, *self.entries])

    def _keep(self, entries: Sequence[Entry]) -> None:
        """Take these versions, some of them new, and offer them: tuned ones first, the oldest gone if there are too many."""
        self.compiles += len({*entries}.difference(self.entries))
        tuned = [e for e in entries if e.tuned is not None][:KEEP]
        self.entries = (*tuned, *[e for e in entries if e.tuned is None][-KEEP:])
        self._offer()

    def _warn_of_donations(self, call: Call, entry: Entry) -> None:
        """Name the donated arrays that no result takes the memory of."""
        version = entry.draft.version
        spare = sorted(set(version.donated).difference(entry.compiled.donations.values()))
        if spare:
            names = [path for label in call.labels() if label in call.structures
                     for path in paths(call.structures[label], self.parameters.described(label))]
            at = user_source()
            shown = ", ".join([f"{names[k]} ({version.graph.params[k].type})" for k in spare])
            warnings.warn_explicit(f"{self.parameters.name}: no result can take the memory of donated {shown}: none has its "
                                   f"shape and dtype and is made after it is read for the last time. Do not donate it.",
                                   DonationWarning, at.file, at.line)

    def publish_to(self, function: Any) -> None:
        """Make this the native function that answers calls by itself where a version fits."""
        self._function = weakref.ref(function)
        function.slow = self.slow

    @property
    def function(self) -> Any:
        """The native function, while there is one."""
        return self._function() if self._function is not None else None

    def _offer(self) -> None:
        if (function := self.function) is not None:
            direct = [e.compiled for e in self.entries if e.draft.is_direct and reads_contents(e.draft.version)]
            set_versions(function, direct, busy=running)  # while a trace runs calls are Python's, which may inline them

    def _blame(self, call: Call) -> str:
        """What made this call another version, for the warning."""
        own = [e for e in self.entries if e.key == call.key and e.tuned is None]
        guards = [g for e in own if (g := e.broken_guard(call)) is not None]
        if guards:
            return (f"the guard `{guards[-1].constraint}`, asked at {guards[-1].source}, does not hold for the new sizes. "
                    f"f.explain() lists every version and guard.")
        if not self.parameters.dynamic:
            return "dynamic=False compiles each shape anew. Leave it out to compile once for all sizes."
        return ("the calls differ in dtypes, ranks, containers or static arguments. Values that change often should be "
                "ordinary arguments. f.explain() lists every version.")

    def _inlined(self, call: Call) -> Any:
        """The function inside a running trace: traced by itself, sealed, then entered where the arguments live."""
        leaves = call.flat()
        into = newest_builder(leaves)
        if not into.alive:
            raise into.leaked()
        if self.parameters.shapes:
            self.parameters.check_declaration(call, lambda a, b: into.scope.decide("==", a, b))
        made = trace(self._around(call), [_type_of(x) for x in leaves], scope=into.scope, is_floor=True, is_sealed=True,
                     why=self.why)
        results = inline(made.graph, [*[as_ref(x, into) for x in leaves], *made.outer], innermost() or into)
        return unflatten(made.structure, [Tracer(r, contiguous=True) for r in results])


def drafted(call: Call, types: Sequence[ArrayType], traced: Traced, name: str, fast_math: bool,
            donated: frozenset[Label] = frozenset()) -> Draft:
    """The version that a finished trace makes for calls like this one."""
    assert not any(isinstance(x, Ref) for x in traced.outer), "a trace outside every other captured a traced value"
    found = signature(call, types) if is_native(traced.structure) else None
    if found is not None:
        form, objects = found
        results = result_tree(traced.structure, objects)
    else:
        leaves = tuple([leaf(x, t) for x, t in zip(call.flat(), types, strict=True)])
        form, objects = Signature(leaves), []
        results = ResultContainer("tuple", tuple([Result(k) for k in range(len(traced.graph.results))]))
    arrays = tuple([cast(np.ndarray, x) for x in traced.outer if is_array(x)])
    scope = traced.builder.scope
    graph, choices = recomputing(expanded(traced.graph), scope.hints)
    version = Version(name=name, signature=form, graph=graph, guards=tuple(scope.guards), results=results,
                      hidden=arrays, contents=_changeable(scope.contents), objects=tuple(objects), fast_math=fast_math,
                      donated=_donated(call, donated))
    sizes = {s: (k, axis) for k, t in enumerate(types) for axis, n in enumerate(t.shape) if (s := symbol_of(n))}
    return Draft(version, found is not None, traced.structure, sizes, tuple([(x, _layout(x)) for x in arrays]),
                 tuple(choices), tuple(scope.choices))


def _donated(call: Call, donated: frozenset[Label]) -> tuple[int, ...]:
    """The numbers of the leaves that are arrays of donated arguments."""
    labels = [label for label in call.labels() for _ in call.leaves.get(label, ())]
    return tuple([k for k, (label, x) in enumerate(zip(labels, call.flat(), strict=True))
                  if label in donated and is_array(x) and x.ndim])


def _changeable(contents: Sequence[tuple[np.ndarray, bytes]]) -> tuple[tuple[np.ndarray, bytes], ...]:
    """Those arrays that something but the trace still refers to: nobody can write to one that the function made for itself."""
    free = (np.zeros(1), b"")  # referred to by one tuple alone, as such an array is
    counts = [sys.getrefcount(x) for x, _ in (free, *contents)]
    return tuple([c for c, count in zip(contents, counts[1:], strict=True) if count > counts[0] or c[0].base is not None])


def _constraints(draft: Draft) -> tuple[Constraint, ...]:
    return tuple([g.constraint for g in draft.version.guards])


def _layout(x: np.ndarray) -> Layout:
    return x.shape, x.strides, x.dtype


def _type_of(x: Any) -> ArrayType:
    if isinstance(x, Tracer):
        return x.type
    return ArrayType(x.shape, native(x.dtype)) if is_array(x) else number_type(x)
