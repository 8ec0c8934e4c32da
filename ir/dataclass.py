"""Dataclasses whose methods are made when a class is first used.

Who imports the compiler imports hundreds of classes, and makes instances of a few. The standard library's decorator writes and
compiles six functions for each class at once, which is half of the time that the import takes.

Guarantees: fields are the standard library's, so `fields`, `replace`, `asdict` and pattern matching work; methods that a class
writes itself stay; what is frozen raises `FrozenInstanceError`; two threads may make the first instance at a time (both make
methods, which are alike), and no lock is held meanwhile, for which a child of a fork would wait.
"""
from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]


def _described(cls: type | None = None, /, *, frozen: bool = False, eq: bool = True, repr: bool = True,
               slots: bool = False, kw_only: bool = False) -> Any:
    """As the standard library's decorator does it."""
    if cls is None:
        return lambda made: _described(made, frozen=frozen, eq=eq, repr=repr, slots=slots, kw_only=kw_only)
    if slots:  # another class, which is made at once
        return dataclasses.dataclass(cls, frozen=frozen, eq=eq, repr=repr, slots=True, kw_only=kw_only)
    described: Any = dataclasses.dataclass(cls, init=False, repr=False, eq=False, kw_only=kw_only)
    own = vars(cls)
    if repr and "__repr__" not in own:
        described.__repr__ = _repr
    if frozen:
        described.__setattr__, described.__delattr__ = _set_nothing, _delete_nothing
    if eq and "__hash__" not in own and not frozen:
        described.__hash__ = None
    if "__init__" not in own:
        described.__init__ = _Unmade(described, frozen, eq)
    return described


if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    dataclass = _described


class _Unmade:
    """Stands for the `__init__` of a class until somebody asks for it."""

    def __init__(self, cls: Any, frozen: bool, eq: bool) -> None:
        self.cls, self.frozen, self.eq = cls, frozen, eq

    def __get__(self, instance: object, owner: type) -> Any:
        if vars(self.cls)["__init__"] is self:
            _make(self.cls, self.frozen, self.eq)
        return self.cls.__init__.__get__(instance, owner)


def _make(cls: Any, frozen: bool, eq: bool) -> None:
    """The methods that depend on the fields, `__init__` last."""
    names: dict[str, Any] = {"_store": object.__setattr__, "_missing": dataclasses.MISSING}
    text = _init_text(cls, frozen, names)
    if eq:
        text += _eq_text([f.name for f in dataclasses.fields(cls) if f.compare])
    if eq and frozen:
        text += _hash_text([f.name for f in dataclasses.fields(cls) if (f.compare if f.hash is None else f.hash)])
    exec(text, names)
    names["__init__"].__annotations__ = {f.name: f.type for f in dataclasses.fields(cls) if f.init}
    for name in ("__hash__", "__eq__", "__init__"):
        is_its_own = name != "__init__" and vars(cls).get(name) is not None
        if (method := names.get(name)) is not None and not is_its_own:
            method.__qualname__, method.__module__ = f"{cls.__qualname__}.{name}", cls.__module__
            setattr(cls, name, method)


def _init_text(cls: Any, frozen: bool, names: dict[str, Any]) -> str:
    """The text of `__init__`; `names` gets the defaults that it names."""
    fields, given, lines = dataclasses.fields(cls), dict[bool, list[str]]({False: [], True: []}), list[str]()
    for f in fields:
        value = f.name
        if f.default_factory is not dataclasses.MISSING:
            names[f"_make_{f.name}"] = f.default_factory
            value = f"_make_{f.name}() if {f.name} is _missing else {f.name}" if f.init else f"_make_{f.name}()"
        elif not f.init:
            continue
        names[f"_default_{f.name}"] = f.default
        has_default = f.default is not dataclasses.MISSING or f.default_factory is not dataclasses.MISSING
        if f.init:
            given[bool(f.kw_only)].append(f"{f.name}=_default_{f.name}" if has_default else f.name)
        lines.append(f" _store(self, {f.name!r}, {value})" if frozen else f" self.{f.name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    parameters = ", ".join(("self", *given[False], *(("*", *given[True]) if given[True] else ())))
    return "\n".join((f"def __init__({parameters}):", *(lines or [" pass"]), ""))


def _eq_text(names: Sequence[str]) -> str:
    return (f"def __eq__(self, other):\n if other.__class__ is self.__class__:\n"
            f"  return {_tuple_text('self', names)} == {_tuple_text('other', names)}\n return NotImplemented\n")


def _hash_text(names: Sequence[str]) -> str:
    return f"def __hash__(self):\n return hash({_tuple_text('self', names)})\n"


def _tuple_text(of: str, names: Sequence[str]) -> str:
    return f"({''.join([f'{of}.{name}, ' for name in names])})"


@reprlib.recursive_repr()
def _repr(self: Any) -> str:
    shown = [f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr]
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _set_nothing(self: Any, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _delete_nothing(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
