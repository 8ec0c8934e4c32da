"""`kernel`: machine code and loops of the user's own, called from any traced function.

A kernel has a signature of typed shapes, `"f32[n, k], f32[k, m] -> f32[n, m]"`, and is destination-passing: it gets its
operands and its outputs, which are allocated already, and writes these.
"""
from __future__ import annotations

import functools
import itertools
import os
import re
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from loopwright import loops
from loopwright.autodiff.calls import Function, Operand, Place, argument_names, name_of, operands, same, type_of
from loopwright.autodiff.custom import call_with_jvp, fitted, levels
from loopwright.ir.attributes import Callback
from loopwright.ir.builder import Ref, inline, innermost
from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent, evaluate, substitute, symbol_of, symbols_in
from loopwright.ir.errors import ArgumentError, DTypeError, KernelError, ParseError, ShapeError
from loopwright.ir.op import Flags
from loopwright.ir.ops.callbacks import callback_of
from loopwright.ir.ops.regions import newest
from loopwright.ir.parser import parse_type
from loopwright.ir.source import Source, user_source
from loopwright.ir.types import COMPLEX, ArrayType, is_integer
from loopwright.kernel_patterns import compete
from loopwright.lower.natives import Code, Group, LoopFunction, user_kernel
from loopwright.lower.runtime import natives
from loopwright.lower.runtime.apart import POSSIBLE, failure_apart
from loopwright.lower.runtime.natives import LibraryFunction, LlvmFunction
from loopwright.tools import ShapeDtypeStruct
from loopwright.tracer.promotion import convert
from loopwright.tracer.pytree import LEAF, Structure, flatten
from loopwright.tracer.size import sized
from loopwright.tracer.trace import trace
from loopwright.tracer.tracer import Tracer

TRIAL_SECONDS = 60.0  # for the first run of a bare pointer
MARGIN = 4096  # bytes around each array of that run, which must stay as they were
_serial = itertools.count(1)
_TYPE = re.compile(r"\s*(\w+\s*\[[^\]]*\])\s*(,|$)")


@dataclass(frozen=True)
class Signature:
    """The types of operands and results; `sizes`: their symbols, in order."""

    text: str
    operands: tuple[ArrayType, ...]
    results: tuple[ArrayType, ...]
    sizes: tuple[str, ...]


def _signature(text: str) -> Signature:
    """ArgumentError for text that is no signature."""
    if not isinstance(text, str):
        raise ArgumentError(f"{user_source()}: kernel expected a signature such as 'f32[n, k], f32[k] -> f32[n]', got "
                            f"{type(text).__name__}.")
    left, arrow, right = text.partition("->")
    where = f"{user_source()}: kernel: the signature {text!r}"
    if not arrow:
        raise ArgumentError(f"{where} has no arrow: write operands -> results, as in 'f32[n, k], f32[k] -> f32[n]'.")
    operands, results = (_types(part, where) for part in (left, right))
    if not results:
        raise ArgumentError(f"{where} has no result: a kernel writes at least one output.")
    bound = {symbol_of(n) for t in operands for n in t.shape}
    names = dict.fromkeys(re.findall(r"[A-Za-z_]\w*", re.sub(r"\w+\s*\[", "[", text)))
    used = {s for t in (*operands, *results) for n in t.shape for s in symbols_in(n)}
    if free := sorted(used - bound):
        raise ArgumentError(f"{where}: the size {free[0]} is that of no axis of an operand, so no call would tell it.")
    return Signature(text, operands, results, tuple([s for s in names if s in used]))


def _types(text: str, where: str) -> tuple[ArrayType, ...]:
    found, at = [], 0
    while text[at:].strip():
        part = _TYPE.match(text, at)
        if part is None:
            raise ArgumentError(f"{where}: expected types such as f32[n, 3], got {text[at:].strip()!r}.")
        try:
            found.append(parse_type(part[1]))
        except ParseError as error:
            raise ArgumentError(f"{where}: {str(error).splitlines()[0].partition(': ')[2]}.") from None
        at = part.end()
    return tuple(found)


# ---- declaring ------------------------------------------------------------------------------------
def kernel(signature: str, *, library: str | os.PathLike[str] | None = None, symbol: str | None = None,
           llvm: str | None = None, pointer: Any = None, name: str | None = None, instead_of: Function | None = None,
           where: str | None = None) -> Any:
    """A function of arrays that is machine code or loops of your own.

    signature: the types of operands and results, `"f32[n, k], f32[k] -> f32[n]"`: dtypes as in the text of graphs (bool, i8 ...
    i64, u8 ... u64, f16, bf16, f32, f64, c64, c128), sizes by name or number; results may have computed ones, as in
    `f32[2*n + 1]`.

    What runs is one of these:
    library, symbol: a function of a shared library, by the library's path (or a name that the system's loader finds).
    llvm: LLVM text that defines the function `symbol` (not needed where it exports one alone); it is compiled with LLVM's usual
        passes.
    pointer: a bare address of machine code: an integer, a ctypes function, or anything with an `address` (numba's `cfunc`).
        It is known to this process alone: text and the disk cache hold a name for it, and its first run is a trial in a child
        process (where the system can fork), on zeros where the arguments are not known yet.
    none: a decorator for a Python function that writes loops down (`loopwright.loops`); it gets the operands and the outputs.

    instead_of: a function of arrays with NumPy that computes the same, without loops and branches. Where a program that is
        tuned computes that, the kernel is one more way to do it: it is checked, measured, and taken where it is faster. Nothing
        else changes. `where` says for which sizes it may be: conditions such as `"n <= 64, 8 divides m"`, all of which must be
        known to hold.

    Machine code is called as `void f(const T *operand..., T *output..., int64_t size...)`: C-contiguous arrays, scalars and
    rank 0 by pointer as well, then the sizes that the signature names, in the order of their first appearance. It is called
    directly from compiled code, maybe on several threads at a time, and must write all of its outputs and nothing else.

    Arguments that are not contiguous are copied; Python numbers take the declared dtype, arrays must have it. The kernel that
    comes back is a function of the operands; it works inside `jit`, loops and `vmap` (an element at a time, unless `defbatch`
    says more), and has derivatives where `defjvp` or `deftranspose` give them.

    ArgumentError for a signature that does not parse, or that `instead_of` does not fit; KernelError for a library, symbol or
    text that is not usable; when it is called ShapeError, DTypeError, and GradientError where a derivative is asked for that
    nobody gave.

    >>> import numpy as np, loopwright as lw
    >>> @lw.kernel("f64[n, k], f64[k] -> f64[n]")
    ... def matvec(a, x, y):
    ...     n, k = a.shape
    ...     for i in lw.loops.loop(n, parallel=True):
    ...         y[i] = lw.loops.sum(a[i, p] * x[p] for p in lw.loops.loop(k, lanes=4))
    >>> lw.jit(lambda a, x: matvec(a, x) + 1)(np.ones((2, 3)), np.arange(3.0))
    array([4., 4.])
    """
    given = {"library": library, "llvm": llvm, "pointer": pointer}
    if pointer is not None and instead_of is not None:
        raise ArgumentError(f"{user_source()}: kernel: a bare pointer is known to this process alone, and what competes is "
                            f"measured in others: name a library or give LLVM text.")
    ways = [way for way, x in given.items() if x is not None]
    if len(ways) > 1:
        raise ArgumentError(f"{user_source()}: kernel: pass one of library=, llvm= and pointer=, got {' and '.join(ways)}.")
    found = _signature(signature)
    if not ways:
        if symbol is not None:
            raise ArgumentError(f"{user_source()}: kernel: symbol={symbol!r} names a function of library= or llvm=.")
        return functools.partial(_of_loops, found, name, instead_of, where)
    code = (_of_library(os.fspath(library), symbol) if library is not None else
            _of_text(llvm, symbol, found) if llvm is not None else _of_pointer(pointer, name))
    made = Kernel(name or getattr(code, "symbol", None) or code.name, found, lambda *types: code)  # type: ignore[union-attr]
    return _competing(made, instead_of, where)


def _competing(made: Kernel, instead_of: Function | None, where: str | None) -> Kernel:
    if where is not None and instead_of is None:
        raise ArgumentError(f"{user_source()}: kernel {made.name}: where= says when to use the kernel instead of what "
                            f"instead_of= says, which is missing.")
    if instead_of is not None:
        compete(made, instead_of, where)
    return made


def _of_loops(signature: Signature, name: str | None, instead_of: Function | None, where: str | None,
              write: Function) -> Kernel:
    if not callable(write):
        raise ArgumentError(f"{user_source()}: kernel expected a function that writes loops, got {type(write).__name__}.")
    if any(t.dtype in COMPLEX for t in (*signature.operands, *signature.results)):
        raise DTypeError(f"{user_source()}: kernel {name_of(write)}: loops have no complex numbers. Pass real and imaginary "
                         f"parts.")

    def code(given: Sequence[ArrayType], made: Sequence[ArrayType]) -> Code:
        return LoopFunction(loops.written(write, given, made))
    found = Kernel(name or name_of(write), signature, code)
    functools.update_wrapper(found, write, updated=())
    return _competing(found, instead_of, where)


def _of_library(path: str, symbol: str | None) -> LibraryFunction:
    if symbol is None:
        raise ArgumentError(f"{user_source()}: kernel: symbol= must name the function of {path}.")
    stamp: tuple[int, ...] = ()
    if os.path.exists(path):
        path = os.path.abspath(path)
        status = os.stat(path)
        stamp = status.st_mtime_ns, status.st_size
    code = LibraryFunction(path, symbol, stamp)
    _located(natives.address, code)
    return code


def _located(f: Callable[..., Any], *args: Any) -> Any:
    """f(*args), whose KernelError gets the user's line."""
    try:
        return f(*args)
    except KernelError as error:
        raise KernelError(f"{user_source()}: {error}") from None


def _of_text(text: str, symbol: str | None, signature: Signature) -> LlvmFunction:
    defined = _located(natives.signatures, text)
    if symbol is None and len(defined) == 1:
        symbol, = defined
    if symbol not in defined:
        names = ", ".join(defined) or "no function that it exports"
        raise KernelError(f"{user_source()}: the LLVM text defines {names}; name the kernel's function with symbol=.")
    assert symbol is not None
    expected = "void", ("ptr",) * (len(signature.operands) + len(signature.results)) + ("i64",) * len(signature.sizes)
    if defined[symbol] != expected:
        (result, got), wanted = defined[symbol], expected[1]
        raise KernelError(f"{user_source()}: the signature {signature.text!r} calls for void @{symbol}({', '.join(wanted)}), "
                          f"but the LLVM text defines {result} @{symbol}({', '.join(got)}): pointers to operands and results, "
                          f"then the sizes {', '.join(signature.sizes) or '(none)'}.")
    return LlvmFunction(symbol, text)


def _of_pointer(x: Any, name: str | None) -> Callback:
    pointer = natives.pointer_of(x)
    if pointer is None:
        raise ArgumentError(f"{user_source()}: kernel: pointer= expected an address (an integer, a ctypes function or an "
                            f"object with an address), got {x!r:.60}.")
    return Callback(f"{name or 'pointer'}@{next(_serial)}", pointer)


# ---- calling --------------------------------------------------------------------------------------
class Kernel:
    """What `kernel` makes: a function of its operands, with rules where they are given."""

    def __init__(self, name: str, signature: Signature,
                 code: Callable[[Sequence[ArrayType], Sequence[ArrayType]], Code]) -> None:
        self.name, self.signature, self._code = name, signature, code
        self.source: Source = user_source()
        self.__name__ = self.__qualname__ = name
        self.linear: tuple[Group, ...] = ()
        self._jvp: Function | None = None
        self._batch: Function | None = None
        self._transpose: dict[Group, Function] = {}
        self._callback: Callback | None = None
        self._is_tried = False

    def __repr__(self) -> str:
        return f"<kernel {self.name}: {self.signature.text}>"

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    # ---- rules ---------------------------------------------------------------------------------
    def defjvp(self, rule: Function) -> Function:
        """Set the derivative: rule(primals, tangents) -> (result, tangent of the result), on tuples, as for `custom_jvp`. The
        tangent must be linear in the tangents; other kernels in it need `deftranspose` for reverse mode. Works as a
        decorator."""
        self._jvp = rule
        return rule

    def deftranspose(self, *operands: int) -> Callable[[Function], Function]:
        """Say that the kernel is linear in these operands together while others are held, and set its transpose:
        rule(cotangent, *args) -> the cotangent of the operand (a tuple for several), where args has a `ShapeDtypeStruct` for
        each of them; for a kernel of several results `cotangent` is a tuple. A decorator, to be used once for each group of
        operands: once for each factor of a product."""
        count = len(self.signature.operands)
        if not operands or any(not 0 <= k < count for k in operands):
            raise ArgumentError(f"{user_source()}: deftranspose takes numbers of operands, and {self.name} has {count}.")
        if taken := [k for group in self.linear for k in group if k in operands and group != operands]:
            raise ArgumentError(f"{user_source()}: operand {taken[0]} of {self.name} has a deftranspose rule already.")

        def keep(rule: Function) -> Function:
            self._transpose[operands] = rule
            self.linear = tuple(self._transpose)
            return rule
        return keep

    def defbatch(self, rule: Function) -> Function:
        """Say what `vmap` makes of the kernel: rule(axis_size, is_mapped, *args) -> the results with the mapped axis in front,
        where is_mapped says which of args have it in front. Works as a decorator."""
        self._batch = rule
        return rule

    # ---- calls ---------------------------------------------------------------------------------
    def __call__(self, *args: Any) -> Any:
        why = f"kernel {self.name}"
        if self._jvp is not None and levels(self) >= 1:
            floating = [_floating(x, t) for x, t in zip(args, self.signature.operands, strict=False)]
            return call_with_jvp(self, self._emitted, self._jvp, (*floating, *args[len(floating):]), why)
        return self._emitted(*args)

    def _emitted(self, *args: Any) -> Any:
        why, declared = f"kernel {self.name}", self.signature.operands
        if len(args) != len(declared):
            raise ArgumentError(f"{user_source()}: {why} takes {len(declared)} arrays ({self.signature.text}), got "
                                f"{len(args)}.")
        leaves, structure = flatten(args)
        if any(c is not LEAF for c in structure.children):
            raise ArgumentError(f"{user_source()}: {why} takes arrays and numbers, got a container or None.")
        names = argument_names(structure)
        values = operands(leaves, names, why)
        found = [self._fitting(type_of(x), t, name) for x, t, name in zip(values, declared, names, strict=True)]
        env = self._sizes(found, names)
        place = Place(values, why)
        refs = [convert(r, t.dtype) if r.type.dtype != t.dtype or r.type.weak else r
                for r, t in zip(place.refs(values), declared, strict=True)]
        made = [ArrayType(tuple([substitute(n, env) for n in t.shape]), t.dtype) for t in self.signature.results]
        code = self._code([r.type for r in refs], made)
        sizes = tuple([env[s] for s in self.signature.sizes])
        if isinstance(code, Callback) and not self._is_tried:
            self._try(code, place, values, refs, made, sizes)
        attrs = {"name": self.name, "code": code, "extents": sizes, "shapes": tuple([t.shape for t in made]),
                 "dtypes": tuple([t.dtype for t in made]), "rules": self._named()}
        outs = place.results(place.builder.bind_all(user_kernel, refs, attrs))[0]
        return outs[0] if len(outs) == 1 else tuple(outs)

    def _fitting(self, found: ArrayType, declared: ArrayType, name: str) -> ArrayType:
        where = (f"{user_source()}: kernel {self.name}: {name} has type {found}, but {self.signature.text!r} declares "
                 f"{declared}.")
        fits = (declared.dtype in COMPLEX or found.dtype not in COMPLEX) and (declared.is_inexact or not found.is_inexact)
        if found.dtype != declared.dtype and not (found.weak and fits):
            raise DTypeError(f"{where} Convert it with x.astype(...), or declare a kernel for this dtype.")
        if found.rank != declared.rank:
            raise ShapeError(f"{where} Reshape it.")
        return found

    def _sizes(self, found: Sequence[ArrayType], names: Sequence[str]) -> dict[str, Extent]:
        """What each symbol of the signature is in this call. ShapeError where operands do not agree."""
        env: dict[str, Extent] = {}
        origin: dict[str, str] = {}
        every = [(n, size, f"axis {axis} of {name}") for t, f, name in zip(self.signature.operands, found, names, strict=True)
                 for axis, (n, size) in enumerate(zip(t.shape, f.shape, strict=True))]
        for n, size, where in every:
            if (s := symbol_of(n)) is not None and s not in env:
                env[s], origin[s] = size, where
        for n, size, where in every:
            expected = substitute(n, env)
            if not same(size, expected):
                told = ", ".join(f"{s} = {env[s]} from {origin[s]}" for s in sorted(symbols_in(n)))
                raise ShapeError(f"{user_source()}: kernel {self.name}: {where} has size {size}, but {self.signature.text!r} "
                                 f"declares {n}{f' with {told}' if told else ''}.")
        return env

    def _named(self) -> Callback:
        """This kernel as the rules of a node."""
        if self._callback is None:
            self._callback = callback_of(self)
        return self._callback

    def _try(self, code: Callback, place: Place, values: Sequence[Operand], refs: Sequence[Ref], made: Sequence[ArrayType],
             sizes: Sequence[Extent]) -> None:
        """Run a bare pointer in a child first. KernelError if that does not end well."""
        self._is_tried = True
        if not POSSIBLE:
            return
        scope = place.builder.scope

        def number(n: Extent) -> int:
            return evaluate(scope.canonical(n), scope.hints)
        given = [np.ascontiguousarray(x) if isinstance(x, np.ndarray) else
                 np.zeros([number(n) for n in r.shape], r.dtype) if isinstance(x, Ref) else np.asarray(x, r.dtype)
                 for x, r in zip(values, refs, strict=True)]
        outs = [np.zeros([number(n) for n in t.shape], t.dtype) for t in made]
        counts = [number(n) for n in sizes]
        where = natives.address(code)
        failure = failure_apart(lambda: _trial(where, [*given, *outs], len(given), counts), TRIAL_SECONDS)
        if failure is not None:
            self._is_tried = False
            shapes = ", ".join(str(ArrayType(x.shape, x.dtype)) for x in given)
            raise KernelError(f"{user_source()}: kernel {self.name}: the function at {where:#x} {failure} in its first run, on "
                              f"{shapes}. Check that it is void f(pointers to operands and results, then int64 sizes "
                              f"{', '.join(self.signature.sizes) or '(none)'}), as {self.signature.text!r} says.")

    def implementing(self, params: Sequence[ArrayType], results: Sequence[ArrayType]) -> dict[str, Any] | None:
        """What a compiled program says of this kernel where it computes such results of such values; None where its signature
        does not fit them."""
        declared, found = (*self.signature.operands, *self.signature.results), (*params, *results)
        if len(params) != len(self.signature.operands) or [(t.dtype, t.rank) for t in declared] != [
                (t.dtype, t.rank) for t in found]:
            return None
        pairs = [(n, size) for t, f in zip(declared, found, strict=True) for n, size in zip(t.shape, f.shape, strict=True)]
        env: dict[str, Extent] = {}
        for n, size in pairs:
            if (s := symbol_of(n)) is not None:
                env.setdefault(s, size)
        if any(substitute(n, env) != size for n, size in pairs):
            return None
        return {"implementation": "native", "code": self._code(params, results),
                "extents": tuple([env[s] for s in self.signature.sizes])}

    # ---- rules, as walks over graphs ask for them ----------------------------------------------
    def transpose(self, group: Group, args: Sequence[Ref | ArrayType], cotangents: Sequence[Ref]) -> list[Ref]:
        """The cotangents of a group's operands, which are given as types."""
        wanted = [args[k] for k in group]
        known = [a for a in args if isinstance(a, Ref)]
        into, why = newest([*cotangents, *known]), f"the transpose rule of kernel {self.name}"

        def run(xs: list[Tracer]) -> Any:
            cts, rest = xs[:len(cotangents)], iter(xs[len(cotangents):])
            given = [_struct(a, into.scope) if isinstance(a, ArrayType) else next(rest) for a in args]
            found = self._transpose[group](cts[0] if len(cts) == 1 else tuple(cts), *given)
            every = (found,) if len(group) == 1 else found
            types = [t for t in wanted if isinstance(t, ArrayType)]
            return fitted(every, flatten(group)[1], types, "cotangent", why, "those operands")
        return _inlined(run, [*cotangents, *known], why)

    def batch(self, size: Extent, args: Sequence[Ref], mapped: Flags, results: Sequence[ArrayType]) -> list[Ref] | None:
        """Results of these types, with one more axis in front; None: one element after the other."""
        rule = self._batch
        if rule is None:
            return None
        into, why = newest(args), f"the batch rule of kernel {self.name}"

        def run(xs: list[Tracer]) -> Any:
            found = rule(size if isinstance(size, int) else sized(size, into.scope), tuple(mapped), *xs)
            types = [t.with_shape((size, *t.shape)) for t in results]
            return fitted(found, _structure(len(results)), types, "result", why,
                          "the kernel's results")
        return _inlined(run, args, why)


def _floating(x: Any, t: ArrayType) -> Any:
    """An integer without a dtype at the one declared, so that rules are given tangents of it."""
    is_number = type(x) is int or (isinstance(x, Tracer) and is_integer(x.dtype) and x.type.weak)
    if not (is_number and t.is_inexact):
        return x
    return t.dtype.type(x) if isinstance(x, int) else x.astype(t.dtype)


def _struct(t: ArrayType, scope: Any) -> ShapeDtypeStruct:
    return ShapeDtypeStruct([n if isinstance(n, int) else sized(n, scope) for n in t.shape], t.dtype)


def _structure(count: int) -> Structure:
    """That of a kernel's results: one, or a tuple."""
    return LEAF if count == 1 else flatten(tuple(range(count)))[1]


def _inlined(run: Function, args: Sequence[Ref], why: str) -> list[Ref]:
    """A rule traced on values, and put where they live."""
    into = newest(args)
    made = trace(run, [x.type for x in args], scope=into.scope, is_floor=True, why=why)
    return inline(made.graph, [*args, *made.outer], innermost() or into)


def _trial(where: int, arrays: Sequence[np.ndarray], inputs: int, sizes: Sequence[int]) -> str | None:
    """Call a function on arrays with margins; what it wrote where it must not."""
    blocks = [np.full(x.nbytes + 2 * MARGIN, 0xA5, np.uint8) for x in arrays]
    inside = [b[MARGIN:MARGIN + x.nbytes] for b, x in zip(blocks, arrays, strict=True)]
    for place, x in zip(inside, arrays, strict=True):
        place[...] = np.frombuffer(x.tobytes(), np.uint8)
    natives.run(where, inside, sizes)
    for k, (b, place, x) in enumerate(zip(blocks, inside, arrays, strict=True)):
        what = f"operand {k}" if k < inputs else f"result {k - inputs}"
        if not ((b[:MARGIN] == 0xA5).all() and (b[MARGIN + x.nbytes:] == 0xA5).all()):
            return f"wrote outside of {what}"
        if k < inputs and place.tobytes() != x.tobytes():
            return f"wrote to {what}"
    return None
