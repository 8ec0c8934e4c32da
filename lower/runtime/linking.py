"""From the text of an entry point to loaded code: the modules' texts, the symbols they need, their addresses."""
from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from loopwright.ir.signature import Version
from loopwright.lower.runtime import natives, objects, support
from loopwright.lower.runtime.dispatch_text import bound_objects, dispatch_text, weights_text
from loopwright.lower.runtime.engine import Library, assemble, known_code, load
from loopwright.lower.runtime.later import Later
from loopwright.lower.target import Target

_DECLARED = re.compile(r"declare [^@\n]*@([\w.$]+)\(|@([\w.$]+) = external ")


def is_native() -> bool:
    """Whether calls are dispatched by generated code."""
    return objects.unsupported() is None


def module_texts(version: Version, program_text: str, donations: Mapping[int, int] = {}) -> tuple[str, ...]:
    """The program, and the version's dispatch function where this interpreter can use one. donations: which results take the
    memory of which arguments."""
    if not is_native():
        return (program_text,)
    return f"{weights_text(version.graph)}\n{program_text}", dispatch_text(version, donations)


def assembled(texts: Sequence[str], target: Target) -> bytes:
    """The object code of such modules. Many versions share a dispatch function, which takes longer to compile than a small
    kernel."""
    program, *dispatch = texts
    return assemble(program, target) + known_code(dispatch, target)


def imported(texts: Sequence[str]) -> list[str]:
    """The symbols to look up when the code is loaded; others (libc's, libm's) are the process's own."""
    lines = [begin + line for text in texts for begin in ("declare ", "@") for line in f"\n{text}".split(f"\n{begin}")[1:]]
    found = {m[1] or m[2] for line in lines if (m := _DECLARED.match(line))}
    return sorted(name for name in found if name.startswith(("lw_", "Py")))


def link(version: Version, code: bytes, imports: Sequence[str], raise_error: Callable[[bytes], Any],
         later: Later | None = None) -> Library:
    """Load a version's object code; the library keeps alive every object that the code names. `later`: what is compiled when it
    is needed."""
    bound = bound_objects(version, raise_error)
    brought = dict(natives.functions(version.graph)) if any(name.startswith(natives.PREFIX) for name in imports) else {}
    if later is not None:
        brought, bound = {**brought, **later.addresses()}, {**bound, "later": later}
    where = {name: brought[name] if name in brought else _address(name, bound) for name in imports}
    return load(code, where, ["entry", "dispatch"] if is_native() else ["entry"], bound)


def link_later(code: bytes, imports: Sequence[str], names: Sequence[str]) -> Library:
    """Load functions that a program needs later."""
    return load(code, {name: _address(name, {}) for name in imports}, names)


def _address(name: str, bound: Mapping[str, Any]) -> int:
    if name in bound:
        return id(bound[name])
    known = support.address(name)
    return objects.address(name) if known is None else known
