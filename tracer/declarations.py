"""Declared shapes: `jit(shapes=("n k", "k m"))` names the sizes of arguments.

A name binds across arguments and must be one size at every call; an integer fixes a size; `_` says nothing. Entries
mirror containers (`[...]`, `{...}`), None declares nothing, and a mapping from parameter names does for a tuple.
"""
from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from loopwright.ir.dims import Extent, symbol
from loopwright.ir.errors import ShapeDeclarationError
from loopwright.ir.facts import Constraint
from loopwright.ir.guards import Guard, Scope
from loopwright.ir.source import Source, user_source
from loopwright.tracer.pytree import LEAF, Structure, paths
from loopwright.tracer.tracer import Tracer

Word = str | int
Words = tuple[Word, ...]  # the declaration of one array
_LETTERS = "nmkpqrstuvwabcdeh"


class Declaration:
    """The declared shapes of one argument, as nested lists and dicts of `Words`."""

    def __init__(self, entry: Any, path: str, function: str, source: Source) -> None:
        self.entry, self.path, self.function, self.source = _parsed(entry), path, function, source
        self.names = frozenset(_names_in(self.entry))

    def per_leaf(self, structure: Structure) -> list[Words | None]:
        """The declaration of every leaf. Raises ShapeDeclarationError where the containers differ."""
        return list(self._matched(self.entry, structure))

    def _matched(self, entry: Any, structure: Structure) -> Iterator[Words | None]:
        if entry is None or (structure is LEAF and isinstance(entry, tuple)):
            yield from [entry] * structure.leaf_count
            return
        if isinstance(entry, dict) and structure.type is dict:
            if unknown := [k for k in entry if k not in structure.meta]:
                raise self._broken(self.path, f"a dict with {unknown[0]!r}", f"keys {structure.meta}")
            entry = [entry.get(k) for k in structure.meta]
        if not isinstance(entry, list) or structure is LEAF or len(entry) != len(structure.children):
            raise self._broken(self.path, shown(entry), repr(structure))
        for item, child in zip(entry, structure.children, strict=True):
            yield from self._matched(item, child)

    def check(self, leaves: list[Any], structure: Structure, bound: dict[str, tuple[Extent, str]],
              same: Callable[[Extent, Extent], bool]) -> None:
        """Raise ShapeDeclarationError where the leaves do not fit. `bound` holds each name's size and where it came from."""
        for x, words, path in zip(leaves, self.per_leaf(structure), paths(structure, self.path), strict=True):
            if words is not None:
                self._check_leaf(x, words, path, bound, same)

    def _check_leaf(self, x: Any, words: Words, path: str, bound: dict[str, tuple[Extent, str]],
                    same: Callable[[Extent, Extent], bool]) -> None:
        shape = x.ref.shape if isinstance(x, Tracer) else np.shape(x)
        if len(shape) != len(words):
            raise self._broken(path, f"{shown(words)} ({len(words)} axes)", f"shape {shape}")
        for axis, (word, size) in enumerate(zip(words, shape, strict=True)):
            if isinstance(word, int):
                if not same(size, word):
                    raise self._broken(path, shown(words), f"shape {shape}")
            elif word != "_":
                first, origin = bound.setdefault(word, (size, f"axis {axis} of {path}"))
                if not same(size, first):
                    raise self._broken(path, f"{shown(words)} with {word} = {first} from {origin}", f"shape {shape}")

    def _broken(self, path: str, expected: str, got: str) -> ShapeDeclarationError:
        return ShapeDeclarationError(
            f"{user_source()}: {path} of {self.function}: declared {expected}, got {got}. Pass arrays that fit shapes=, "
            f"or change the declaration at {self.source}.")


class Symbols:
    """Names for the sizes of one trace: one symbol per dimension, declared names first, ties between them as guards."""

    def __init__(self, taken: frozenset[str], source: Source) -> None:
        self.scope, self.taken, self.source = Scope(), taken, source
        self.declared: set[str] = set()
        self.names: dict[str, Iterator[str]] = {}  # for sizes that are declared so: those that were not tried yet

    def extent(self, size: int, word: Word) -> Extent:
        """The extent of a dimension that is `size` in this call."""
        if isinstance(word, int):
            return word
        name = word if word != "_" and word not in self.scope.hints else self._fresh(word)
        self.scope.hints[name] = size
        if word != "_":
            self.declared.add(name)
        if word not in ("_", name):
            tie = Constraint("==", symbol(word), symbol(name))
            self.scope.facts.learn(tie)
            self.scope.guards.append(Guard(tie, self.source))
        return symbol(name)

    def _fresh(self, word: str) -> str:
        if word not in self.names:
            letters = _LETTERS if word == "_" else [f"{word}_"]
            self.names[word] = (f"{letter}{turn or ''}" for turn in itertools.count() for letter in letters)
        names, taken, hints = self.names[word], self.taken, self.scope.hints
        while (name := next(names)) in taken or name in hints:
            pass
        return name

    def check_free(self, function: str) -> None:
        """Raise ShapeDeclarationError where the trace fixed a size that the declaration leaves free."""
        for guard in self.scope.guards if self.declared else ():
            c = guard.constraint
            if c.relation == "==" and guard.source is not self.source and {str(c.left), str(c.right)} & self.declared:
                raise ShapeDeclarationError(
                    f"{guard.source}: {function} was declared with shapes= at {self.source} for any sizes, but this line needs "
                    f"{c}. Write the size or the common name into shapes=, or do not ask for its value here.")


def shown(entry: Any) -> str:
    """A declaration for messages."""
    return repr(" ".join(map(str, entry))) if isinstance(entry, tuple) else f"a {type(entry).__name__} of {len(entry)}"


def _parsed(entry: Any) -> Any:
    if entry is None:
        return None
    if isinstance(entry, str):
        return tuple([_word(word) for word in entry.split()])
    if isinstance(entry, Mapping):
        return {k: _parsed(x) for k, x in entry.items()}
    if isinstance(entry, (tuple, list)):
        return [_parsed(x) for x in entry]
    raise ValueError(f"shapes: expected text such as 'n k', None, or a container of them, got {entry!r}.")


def _word(word: str) -> Word:
    if word.isdecimal():
        return int(word)
    if not word.isidentifier():
        raise ValueError(f"shapes: {word!r} is neither a name, an integer nor _.")
    return word


def _names_in(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    elif isinstance(entry, (tuple, list)):
        for x in entry:
            yield from _names_in(x)
    elif isinstance(entry, dict):
        yield from _names_in(list(entry.values()))
