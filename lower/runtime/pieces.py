"""A library's LLVM text in pieces, so that what one of its functions calls is compiled without the rest.

Guarantees: a piece holds the functions that the same exported functions reach, so that the pieces of one define all that it
calls, and together they define no function twice; each has its own copies of the constants that it names.
"""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from loopwright.lower.runtime.parts import END, FUNCTION, NAME


@dataclass
class _Library:
    """What a text holds, by name."""

    shared: dict[str, str] = field(default_factory=dict)  # declarations and constants; metadata by their lines
    functions: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)  # of functions, for pieces that call them
    exported: list[str] = field(default_factory=list)


def pieces(text: str) -> dict[str, tuple[str, ...]]:
    """The pieces that each exported function needs."""
    library = _read(text)
    named = {name: {*NAME.findall(lines)} for name, lines in (library.shared | library.functions).items()}
    users = {name: list[str]() for name in library.functions}
    for export in library.exported:
        for name in _reached([export], named) & users.keys():
            users[name].append(export)
    together = defaultdict[tuple[str, ...], list[str]](list)
    for name, its in users.items():
        together[tuple(its)].append(name)
    made = {group: _piece(members, library, named) for group, members in together.items()}
    return {export: tuple(piece for group, piece in made.items() if export in group) for export in library.exported}


def _read(text: str) -> _Library:
    library = _Library()
    for part in f"{text}\n".split(END):
        before, _, body = f"\n{part}".partition("\ndefine ")
        for line in filter(None, before.split("\n")):
            found = None if line.startswith("!") else NAME.search(line)
            library.shared[line if found is None else found[1]] = line
        if (head := FUNCTION.match(function := f"define {body}{END}")) is not None:
            is_internal, library.headers[head[3]], name = head.groups()
            library.functions[name] = function.replace("internal ", "", 1) if is_internal else function
            library.exported += [] if is_internal else [name]
    return library


def _reached(names: Iterable[str], named: Mapping[str, Iterable[str]]) -> set[str]:
    seen, left = set[str](), [*names]
    while left:
        if (one := left.pop()) not in seen:
            seen.add(one)
            left += named.get(one, ())
    return seen


def _piece(members: list[str], library: _Library, named: Mapping[str, Iterable[str]]) -> str:
    """The text of some functions, after what they name: constants, and declarations of what is defined elsewhere."""
    of_shared = {name: named[name] for name in library.shared}
    wanted = _reached((name for member in members for name in named[member]), of_shared)
    declared = [f"declare {header}" for name, header in library.headers.items() if name in wanted and name not in members]
    lines = [line for name, line in library.shared.items() if name in wanted or line.startswith("!")]
    return "\n".join([*declared, *lines, *(library.functions[name] for name in members)])
