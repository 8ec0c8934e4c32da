"""From the text of an entry point to loaded code: the module's text, the symbols it needs, their addresses."""
from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from loopwright.ir.signature import Version
from loopwright.lower.runtime import natives, objects, support
from loopwright.lower.runtime.dispatch_text import bound_objects, dispatch_text
from loopwright.lower.runtime.engine import Library, load

_DECLARED = re.compile(r"declare [^@]*@([\w.$]+)\(|@([\w.$]+) = external ")


def is_native() -> bool:
    """Whether calls are dispatched by generated code."""
    return objects.unsupported() is None


def module_text(version: Version, program_text: str, donations: Mapping[int, int] = {}) -> str:
    """The program and the version's dispatch function, where this interpreter can use one. donations: which results take the
    memory of which arguments."""
    if not is_native():
        return program_text
    return f"{program_text}\n{dispatch_text(version, _declared(program_text), donations)}"


def _declared(text: str) -> set[str]:
    found = [_DECLARED.match(line) for line in text.split("\n") if line.startswith(("declare ", "@"))]
    return {m[1] or m[2] for m in found if m is not None}


def imported(text: str) -> list[str]:
    """The symbols to look up when the code is loaded; others (libc's, libm's) are the process's own."""
    return sorted(name for name in _declared(text) if name.startswith(("lw_", "Py")))


def link(version: Version, code: bytes, imports: Sequence[str], raise_error: Callable[[bytes], Any]) -> Library:
    """Load a version's object code; the library keeps alive every object that the code names."""
    bound = bound_objects(version, raise_error)
    brought = dict(natives.functions(version.graph)) if any(name.startswith(natives.PREFIX) for name in imports) else {}
    where = {name: brought[name] if name in brought else _address(name, bound) for name in imports}
    return load(code, where, ["entry", "dispatch"] if is_native() else ["entry"], bound)


def _address(name: str, bound: Mapping[str, Any]) -> int:
    if name in bound:
        return id(bound[name])
    known = support.address(name)
    return objects.address(name) if known is None else known
