"""`dataclass`, made for quick imports: the same classes, with one generated function each.

Guarantees: fields, defaults, equality, hashes, text, `fields`, `replace` and pattern matching are those of
`dataclasses.dataclass`; a class that is frozen refuses assignment. The standard decorator compiles up to seven functions of
text for each class, which took two fifths of the time to import the package; here only `__init__` is text.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    def dataclass(cls: type | None = None, *, frozen: bool = False, eq: bool = True, repr: bool = True, slots: bool = False,
                  kw_only: bool = False) -> Any:
        """As `dataclasses.dataclass`; the options are those that the package uses."""
        def made(cls: type) -> type:
            own = {name for name, x in vars(cls).items() if (name, x) != ("__hash__", None)}
            cls = dataclasses.dataclass(init=False, eq=False, repr=False, slots=slots, kw_only=kw_only)(cls)
            for name, method in (_methods(cls, frozen, eq, repr) | (_STATE if frozen and slots else {})).items():
                if name not in own:
                    setattr(cls, name, method)
            return cls
        return made if cls is None else made(cls)


def _methods(cls: type, frozen: bool, eq: bool, repr: bool) -> dict[str, Any]:
    fields: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(cls)
    made: dict[str, Any] = {"__init__": _initialiser(cls, fields, frozen)}
    if repr:
        made["__repr__"] = _shown
    if eq:
        made |= _comparisons(tuple([f.name for f in fields if f.compare]), frozen)
    if frozen:
        made |= {"__setattr__": _refused, "__delattr__": _refused}
    return made


def _initialiser(cls: type, fields: tuple[dataclasses.Field[Any], ...], frozen: bool) -> Callable[..., None]:
    missing = dataclasses.MISSING
    scope: dict[str, Any] = {"_set": object.__setattr__, "_missing": missing}
    parameters, lines = ["self"], []
    for f in sorted(fields, key=lambda f: bool(f.kw_only)):
        if f.kw_only and "*" not in parameters:
            parameters.append("*")
        value = f.name
        if f.default is not missing:
            scope[f"_default_{f.name}"] = f.default
            parameters.append(f"{f.name}=_default_{f.name}")
        elif f.default_factory is not missing:
            scope[f"_make_{f.name}"] = f.default_factory
            parameters.append(f"{f.name}=_missing")
            value = f"_make_{f.name}() if {f.name} is _missing else {f.name}"
        else:
            parameters.append(f.name)
        lines.append(f" _set(self, {f.name!r}, {value})" if frozen else f" self.{f.name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    exec(f"def __init__({', '.join(parameters)}):\n" + "\n".join(lines or [" pass"]), scope)
    made: Callable[..., None] = scope["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _comparisons(names: tuple[str, ...], frozen: bool) -> dict[str, Any]:
    values: Callable[[Any], Any] = attrgetter(*names) if names else lambda x: ()

    def equal(self: Any, other: object) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        a, b = values(self), values(other)
        return a is b or a == b

    def hashed(self: Any) -> int:
        return hash(values(self))

    return {"__eq__": equal, "__hash__": hashed if frozen else None}


def _shown(self: Any) -> str:
    parts = [f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr]
    return f"{type(self).__qualname__}({', '.join(parts)})"


def _refused(self: Any, name: str, *value: Any) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}" if value else f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, f.name) for f in dataclasses.fields(self)]


def _restored(self: Any, state: list[Any]) -> None:
    for f, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, f.name, value)


_STATE = {"__getstate__": _state, "__setstate__": _restored}  # what has slots and is frozen cannot be copied without
