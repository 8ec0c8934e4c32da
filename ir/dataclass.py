"""Dataclasses whose methods are made when a class is first used: importing the compiler imports hundreds of classes, of which a
process has instances of a few. The standard library's decorator writes and compiles six functions for each at once, which is
half of the time that the import takes.

Guarantees: fields are the standard library's, so `fields`, `replace`, `asdict` and pattern matching work; methods that a class
writes itself stay; what is frozen raises `FrozenInstanceError`; two threads may make the first instance at a time.
"""
from __future__ import annotations

import dataclasses
import reprlib
import threading
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

_lock = threading.RLock()


def _described(cls: type | None = None, /, *, frozen: bool = False, eq: bool = True, repr: bool = True,
               slots: bool = False, kw_only: bool = False) -> Any:
    """The standard library's decorator."""
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
        with _lock:
            if vars(self.cls)["__init__"] is self:
                _make(self.cls, self.frozen, self.eq)
        return self.cls.__init__.__get__(instance, owner)


def _make(cls: Any, frozen: bool, eq: bool) -> None:
    """The methods that depend on the fields, `__init__` last."""
    names: dict[str, Any] = {"_store": object.__setattr__, "_missing": dataclasses.MISSING}
    text = _init_text(cls, frozen, names)
    if eq:
        mine, others = (_tuple_text(cls, of) for of in ("self", "other"))
        text += (f"def __eq__(self, other):\n if other.__class__ is self.__class__:\n  return {mine} == {others}\n"
                 f" return NotImplemented\n")
    if eq and frozen:
        text += f"def __hash__(self):\n return hash({_tuple_text(cls, 'self')})\n"
    exec(text, names)
    names["__init__"].__annotations__ = {f.name: f.type for f in dataclasses.fields(cls) if f.init}
    own = vars(cls)
    for name in ("__hash__", "__eq__", "__init__"):
        written = name in own and not (name == "__init__" or (name == "__hash__" and own[name] is None and "__eq__" in own))
        if (method := names.get(name)) is not None and not written:
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


def _tuple_text(cls: Any, of: str) -> str:
    """What is compared and hashed."""
    return f"({''.join([f'{of}.{f.name}, ' for f in dataclasses.fields(cls) if f.compare])})"


@reprlib.recursive_repr()
def _repr(self: Any) -> str:
    shown = [f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr]
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _set_nothing(self: Any, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _delete_nothing(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
