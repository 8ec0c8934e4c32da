"""LLVM text taken apart: a library in pieces, so that what one of its functions calls is compiled without the rest.

Guarantees: a piece holds the functions that the same exported functions reach, so that the pieces of one define all that it
calls, and together they define no function twice; each has its own copies of the constants that it names.
"""
from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Set
from dataclasses import field

from loopwright.ir.cached import cached_property
from loopwright.ir.dataclass import dataclass

FUNCTION = re.compile(r"^define (internal )?([^@\n]*@([\w.$]+)\([^\n]*?) \{\n", re.MULTILINE)
NAME = re.compile(r"@([\w.$]+)")
END = "\n}\n"
_DEFINITION_ONLY = re.compile(r" (?:noinline|optnone)\b")


@dataclass
class Module:
    """What a text holds, by name, in its order."""

    shared: dict[str, str] = field(default_factory=dict)  # declarations and constants; metadata by their lines
    functions: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)  # of functions, for pieces that call them
    internal: set[str] = field(default_factory=set)

    @cached_property
    def named(self) -> Mapping[str, set[str]]:
        """The names that each one's text has, its own among them."""
        return {name: {*NAME.findall(lines)} for name, lines in (self.shared | self.functions).items()}

    def piece(self, members: Iterable[str], exported: Set[str]) -> str:
        """The text of some functions and constants, after what they name: constants, and declarations of what is defined
        elsewhere. Of the internal ones those that are `exported` are so no longer."""
        own = dict.fromkeys(members)
        of_shared = {name: self.named[name] for name in self.shared}
        wanted = reached((name for member in own for name in self.named[member]), of_shared)
        declared = [f"declare {header}" for name, header in self.headers.items() if name in wanted and name not in own]
        lines = [line for name, line in self.shared.items() if name in wanted or line.startswith("!")]
        return "\n".join([*declared, *lines, *(self._body(name, exported) for name in own if name in self.functions)])

    def _body(self, name: str, exported: Set[str]) -> str:
        body = self.functions[name]
        return body.replace("internal ", "", 1) if name in self.internal and name in exported else body


def read(text: str) -> Module:
    """The module that a text says, whose functions end with a brace on a line of its own. ValueError where one does not."""
    module = Module()
    for part in f"{text}\n".split(END):
        before, _, body = f"\n{part}".partition("\ndefine ")
        for line in filter(None, before.split("\n")):
            found = None if line.startswith("!") else NAME.search(line)
            module.shared[line if found is None else found[1]] = line
        if not body:
            continue
        if (head := FUNCTION.match(function := f"define {body}{END}")) is None:
            raise ValueError(f"a function does not begin and end on lines of its own: {function.strip()}")
        is_internal, header, name = head.groups()
        module.functions[name], module.headers[name] = function, _DEFINITION_ONLY.sub("", header)
        if is_internal:
            module.internal.add(name)
    return module


def reached(names: Iterable[str], named: Mapping[str, Iterable[str]]) -> set[str]:
    """These names, and all that those which they lead to name."""
    seen, left = set[str](), [*names]
    while left:
        if (one := left.pop()) not in seen:
            seen.add(one)
            left += named.get(one, ())
    return seen


def pieces(text: str) -> dict[str, tuple[str, ...]]:
    """The pieces that each exported function needs."""
    module = read(text)
    users = {name: list[str]() for name in module.functions}
    exported = [name for name in module.functions if name not in module.internal]
    for export in exported:
        for name in reached([export], module.named) & users.keys():
            users[name].append(export)
    together = defaultdict[tuple[str, ...], list[str]](list)
    for name, its in users.items():
        together[tuple(its)].append(name)
    made = {group: module.piece(members, module.internal) for group, members in together.items()}
    return {export: tuple(piece for group, piece in made.items() if export in group) for export in exported}
