"""From the arguments of a call to signature data, symbols and leaves.

Guarantees: two calls have the same key exactly when one trace can serve both, sizes aside: same parameters given, same
containers, same dtypes, ranks and kinds of numbers, same static values by type and bits (`1`, `True` and `1.0` differ).
How a parameter was spelled, by position or by name, is no part of the key. Every dimension gets a symbol of its own;
names that a `shapes=` declaration repeats are tied by guards. Arrays may come in any layout and byte order: the key
speaks of the native one, and `native_leaf` makes it.
"""
from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from loopwright.ir.builder import is_sealed
from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent, Shape
from loopwright.ir.errors import ArgumentError, DTypeError
from loopwright.ir.signature import (
    ArrayLeaf,
    Container,
    ObjectLeaf,
    Result,
    ResultContainer,
    ResultTree,
    ScalarLeaf,
    Signature,
    Tree,
)
from loopwright.ir.source import Source, user_source
from loopwright.ir.types import BOOL, C128, F64, I64, ArrayType, is_array, is_on_device, native
from loopwright.tracer.declarations import Declaration, Symbols, Words
from loopwright.tracer.pytree import LEAF, Structure, flatten, kind_of, paths
from loopwright.tracer.size import Size
from loopwright.tracer.trace import check_array, check_dtype
from loopwright.tracer.tracer import Tracer

Label = str | int  # a parameter's name; its position where it has none
_WEAK = {int: ArrayType((), I64, True), float: ArrayType((), F64, True), complex: ArrayType((), C128, True),
         bool: ArrayType((), BOOL)}
Join = Callable[[Structure, Iterator[Any]], Any]


@dataclass(frozen=True)
class Form:
    """How a call was spelled: labels of the positional arguments, then of the keywords in their order."""

    positional: tuple[Label, ...]
    keywords: tuple[str, ...]


@dataclass
class Call:
    """The arguments of one call: leaves and structure of each traced argument, the object of each static one."""

    form: Form
    leaves: dict[Label, list[Any]] = field(default_factory=dict)
    structures: dict[Label, Structure] = field(default_factory=dict)
    statics: dict[Label, Any] = field(default_factory=dict)
    key: Any = None
    is_traced: bool = False  # to be inlined: a trace to compile is running, or some leaf is a value of a trace

    def labels(self) -> Iterator[Label]:
        """Every argument, in the order of the call."""
        yield from self.form.positional
        yield from self.form.keywords

    def flat(self, form: Form | None = None) -> list[Any]:
        """The leaves in the order of `form`, a spelling of the same arguments (the call's own when left out)."""
        form = form or self.form
        return [x for label in (*form.positional, *form.keywords) for x in self.leaves.get(label, ())]

    def rebuild(self, form: Form, leaves: Sequence[Any], join: Join) -> tuple[list[Any], dict[str, Any]]:
        """Positional and keyword arguments in `form` around other leaves; join(structure, rest) takes those it needs."""
        rest = iter(leaves)

        def one(label: Label) -> Any:
            return self.statics[label] if label in self.statics else join(self.structures[label], rest)

        return [one(label) for label in form.positional], {k: one(k) for k in form.keywords}


class Parameters:
    """What `jit` knows about the function that it wraps: names, which are static, and declared shapes."""

    def __init__(self, f: Callable[..., Any], static_argnums: int | Sequence[int], static_argnames: str | Sequence[str],
                 shapes: Any, dynamic: bool) -> None:
        self.names, self.keyword_names, self.has_rest, self.has_keywords = _names_of(f)
        self.name = getattr(f, "__name__", type(f).__name__)
        code = getattr(inspect.unwrap(f), "__code__", None)
        self.source = Source(code.co_filename, code.co_firstlineno) if code else user_source()
        self.dynamic = dynamic
        self.static = self.labels(static_argnums, static_argnames, "static")
        self.shapes = {label: Declaration(entry, self.described(label), self.name, self.source)
                       for label, entry in self._entries(shapes)}
        self.declared = frozenset(name for d in self.shapes.values() for name in d.names)

    def labels(self, numbers: int | Sequence[int], names: str | Sequence[str], what: str) -> frozenset[Label]:
        """The parameters that `what`_argnums and `what`_argnames name. ValueError for one that is not there."""
        return frozenset((*self._numbered(numbers, what), *self._named(names, what)))

    def _numbered(self, numbers: int | Sequence[int], what: str) -> Iterator[Label]:
        for i in (numbers,) if isinstance(numbers, int) else tuple(numbers):
            if isinstance(i, str):
                raise TypeError(f"{what}_argnums: {self.name} got {i!r}, which is no number; names go to {what}_argnames=.")
            at = i + len(self.names) if i < 0 else i
            if at < 0 or (at >= len(self.names) and not self.has_rest):
                raise ValueError(f"{what}_argnums: {self.name} has {len(self.names)} positional parameters, got number {i}.")
            yield self._label(at)

    def _named(self, names: str | Sequence[str], what: str) -> Iterator[Label]:
        for name in (names,) if isinstance(names, str) else tuple(names):
            if name not in self.keyword_names and not self.has_keywords:
                raise ValueError(f"{what}_argnames: {self.name} has no parameter {name!r}; "
                                 f"it has {', '.join(self.keyword_names) or 'none by name'}.")
            yield name

    def _entries(self, shapes: Any) -> Iterator[tuple[Label, Any]]:
        if isinstance(shapes, Mapping):
            entries: list[tuple[Label, Any]] = list(shapes.items())
        else:
            by_position = () if shapes is None else (shapes,) if isinstance(shapes, str) else shapes
            entries = [(self._label(i), x) for i, x in enumerate(by_position)]
        for label, entry in entries:
            known = label in self.names or label in self.keyword_names
            if not known and not (self.has_rest if isinstance(label, int) else self.has_keywords):
                raise ValueError(f"shapes: {self.name} has no {self.described(label)}.")
            yield label, entry

    def _label(self, position: int) -> Label:
        return self.names[position] if position < len(self.names) else position

    def call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
        """Take a call apart. Raises ArgumentError or DTypeError, with the path of what does not fit.

        Inside a trace that will be compiled nothing is found again: static arguments need not hash, and sizes stay symbolic.
        """
        call = Call(Form(tuple([self._label(i) for i in range(len(args))]), tuple(kwargs)))
        call.is_traced = is_sealed()
        key: list[tuple[Any, ...]] = []
        for label, x in zip(call.labels(), (*args, *kwargs.values()), strict=True):
            if label in self.static:
                call.statics[label] = x
                key.append((label, None, self._static_key(label, x, call.is_traced)))
                continue
            leaves, structure = flatten(x)
            call.leaves[label], call.structures[label] = leaves, structure
            key.append((label, structure, self._leaf_keys(label, leaves, structure, call)))
        call.key = None if call.is_traced else frozenset(key)
        return call

    def _leaf_keys(self, label: Label, leaves: list[Any], structure: Structure, call: Call) -> Any:
        keys = []
        for k, x in enumerate(leaves):
            if isinstance(x, (Tracer, Size)):
                call.is_traced = True
                continue
            try:
                keys.append(_leaf_key(x, self.dynamic))
            except (ArgumentError, DTypeError, OverflowError) as error:
                path = paths(structure, self.described(label))[k]
                raise type(error)(f"{user_source()}: {path} of {self.name}: {error}") from None
        return tuple(keys)

    def _static_key(self, label: Label, x: Any, is_traced: bool) -> Any:
        where = f"{user_source()}: static {self.described(label)} of {self.name}"
        for y in flatten(x)[0]:
            if isinstance(y, Tracer) or is_array(y):
                raise ArgumentError(f"{where} holds {'a traced value' if isinstance(y, Tracer) else 'an array'}, but a static "
                                    f"argument is compiled in and found again by its value. Make it an ordinary argument.")
        if is_traced:
            return None
        key = static_key(x)
        try:
            hash(key)
        except TypeError:
            raise ArgumentError(f"{where} is a {type(x).__name__}, which does not hash, so no later call could find what was "
                                f"compiled for it. Pass a hashable value, such as a tuple for a list.") from None
        return key

    def described(self, label: Label) -> str:
        """An argument for messages."""
        return f"argument {label}" if isinstance(label, str) else f"argument number {label}"

    def types(self, call: Call) -> tuple[list[ArrayType], Symbols]:
        """A type per leaf in the order of the call, and the symbols that its sizes bind."""
        symbols = Symbols(self.declared, self.source)
        out = []
        for label in call.labels():
            if label in call.structures:
                words = self._words(label, call.structures[label])
                out += [self._type(x, w, symbols) for x, w in zip(call.leaves[label], words, strict=True)]
        return out, symbols

    def _words(self, label: Label, structure: Structure) -> Sequence[Words | None]:
        declaration = self.shapes.get(label)
        return declaration.per_leaf(structure) if declaration else [None] * structure.leaf_count

    def _type(self, x: Any, words: Words | None, symbols: Symbols) -> ArrayType:
        if not is_array(x):
            return number_type(x)
        shape: Shape = x.shape
        if self.dynamic:
            shape = tuple([symbols.extent(n, w) for n, w in zip(x.shape, words or ("_",) * x.ndim, strict=True)])
        return ArrayType(shape, native(x.dtype))

    def check_declaration(self, call: Call, same: Callable[[Extent, Extent], bool]) -> None:
        """Raise ShapeDeclarationError where this call breaks the declaration; same(a, b) compares two sizes."""
        bound: dict[str, tuple[Extent, str]] = {}
        for label, declaration in self.shapes.items():
            if label in call.structures:
                declaration.check(call.leaves[label], call.structures[label], bound, same)


def signature(call: Call, types: Sequence[ArrayType]) -> tuple[Signature, list[Any]] | None:
    """The call form as data with the objects that it names; None where a container is not one that compiled code walks."""
    if not all(is_native(s) for s in call.structures.values()):
        return None
    objects: list[Any] = []
    rest = iter([leaf(x, t) for x, t in zip(call.flat(), types, strict=True)])

    def tree(label: Label) -> Tree:
        if label in call.statics:
            return ObjectLeaf(_slot(call.statics[label], objects))
        return _tree(call.structures[label], rest, objects)

    positional = tuple([tree(label) for label in call.form.positional])
    return Signature(positional, tuple([(k, tree(k)) for k in call.form.keywords])), objects


def leaf(x: Any, t: ArrayType) -> ArrayLeaf | ScalarLeaf:
    """The signature leaf of an argument of this type."""
    if is_array(x):
        return ArrayLeaf(t)
    return ScalarLeaf(t, python=not isinstance(x, np.generic))


def is_native(s: Structure) -> bool:
    """Whether compiled code takes this container apart, or makes it, by itself."""
    if s is LEAF:
        return True
    kind = kind_of(s)
    if kind == "dict" and not all(type(k) is str for k in s.meta):
        return False
    return bool(kind) and all(is_native(c) for c in s.children)


def _tree(s: Structure, leaves: Iterator[ArrayLeaf | ScalarLeaf], objects: list[Any]) -> Tree:
    if s is LEAF:
        return next(leaves)
    return Container(kind_of(s), tuple([_tree(c, leaves, objects) for c in s.children]), *_made_of(s, objects))


def result_tree(s: Structure, objects: list[Any], numbers: Iterator[int] | None = None) -> ResultTree:
    """The result containers around result numbers 0, 1, ..., for a structure that `is_native`; `objects` get what they name."""
    numbers = numbers if numbers is not None else itertools.count()
    if s is LEAF:
        return Result(next(numbers))
    items = tuple([result_tree(c, objects, numbers) for c in s.children])
    return ResultContainer(kind_of(s), items, *_made_of(s, objects))


def _made_of(s: Structure, objects: list[Any]) -> tuple[tuple[str, ...], int, tuple[tuple[str, int], ...]]:
    """The keys, the type and the static fields of a container."""
    match kind_of(s):
        case "dict":
            return s.meta, -1, ()
        case "named":
            return (), _slot(s.type, objects), ()
        case "record":
            fixed = tuple([(name, _slot(x, objects)) for name, x in s.meta.values.items()])
            return s.meta.names, _slot(s.type, objects), fixed
    return (), -1, ()


def _slot(x: Any, objects: list[Any]) -> int:
    """The place of this very object among those that a version names."""
    for k, known in enumerate(objects):
        if known is x:
            return k
    objects.append(x)
    return len(objects) - 1


def number_type(x: Any) -> ArrayType:
    """The type of a Python number (weak, but bool), a NumPy scalar, or a symbolic size as a number."""
    if isinstance(x, np.generic):
        return ArrayType((), native(x.dtype))
    return _WEAK[int if isinstance(x, Size) else _number_kind(x)]


def _number_kind(x: Any) -> type:
    return next(kind for kind in (bool, int, float, complex) if isinstance(x, kind))


def _leaf_key(x: Any, dynamic: bool) -> Any:
    if isinstance(x, np.ndarray):
        check_array(x)
        return native(x.dtype), x.ndim if dynamic else x.shape
    if isinstance(x, np.generic):
        check_array(np.asarray(x))
        return "scalar", native(x.dtype)
    if is_on_device(x):
        check_dtype(x)
        return native(x.dtype), x.ndim if dynamic else x.shape
    if not isinstance(x, (int, float, complex)):
        raise ArgumentError(
            f"expected an array, a number or a container of them, got {type(x).__name__}. Convert it, register its type with "
            f"register_pytree_node, or name the argument in static_argnames= if it is a setting rather than data.")
    kind = _number_kind(x)
    if isinstance(x, int) and not -(1 << 63) <= x < 1 << 63:
        raise OverflowError(f"the Python int {x} does not fit int64. Pass np.uint64(x) or a float.")
    return kind


def is_native_array(x: np.ndarray) -> bool:
    """Whether compiled code reads x as it is: an exact ndarray, C-contiguous, aligned, of one of our dtype objects."""
    return type(x) is np.ndarray and x.flags.c_contiguous and x.flags.aligned and native(x.dtype) is x.dtype


def native_leaf(x: Any) -> Any:
    """x as compiled code takes it: itself where that is possible, else a copy (or the plain number of a subclass)."""
    if isinstance(x, np.ndarray):
        if is_native_array(x):
            return x
        if x.flags.c_contiguous and x.flags.aligned and x.dtype.isnative:
            return x.view(native(x.dtype), np.ndarray)
        copy = np.array(x, dtype=native(x.dtype), order="C", copy=True, subok=False)
        return copy.view(native(x.dtype))  # it has an alias where x has
    if isinstance(x, np.generic):
        return x if native(x.dtype).num == x.dtype.num else native(x.dtype).type(x)
    return _number_kind(x)(x)


def static_key(x: Any) -> Any:
    """A key that tells 1, True and 1.0, and 0.0 and -0.0, apart, also inside tuples and frozen sets."""
    kind = type(x)
    if kind is float:
        return kind, x.hex()
    if kind is complex:
        return kind, x.real.hex(), x.imag.hex()
    if kind is tuple:
        return kind, tuple([static_key(y) for y in x])
    if kind is frozenset:
        return kind, frozenset([static_key(y) for y in x])
    return kind, x


def _names_of(f: Callable[..., Any]) -> tuple[tuple[Label, ...], tuple[str, ...], bool, bool]:
    """Labels of the positional parameters, names that may come by keyword, whether there is *args, and **kwargs."""
    try:
        found = list(inspect.signature(f).parameters.values())
    except (TypeError, ValueError):  # a builtin that does not say
        return (), (), True, True
    both = inspect.Parameter.POSITIONAL_OR_KEYWORD
    positional = [p for p in found if p.kind in (both, inspect.Parameter.POSITIONAL_ONLY)]
    names = tuple([p.name if p.kind is both else i for i, p in enumerate(positional)])
    by_name = tuple([p.name for p in found if p.kind in (both, inspect.Parameter.KEYWORD_ONLY)])
    return (names, by_name, any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in found),
            any(p.kind is inspect.Parameter.VAR_KEYWORD for p in found))
