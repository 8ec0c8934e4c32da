"""LLVM text in two modules, for two levels of code generation.

Guarantees: together the parts define what the whole defined, and each declares what it calls of the other; text without
exported functions that are marked `optnone` is one part, as it was.

Straight-line code that runs once a call, as long as a program, would cost LLVM more than all kernels: even for functions
marked `optnone` its register allocator is the one of the whole module's level.
"""
from __future__ import annotations

import re

_LONG = re.compile(r"^define (?!internal )[^\n]* optnone \{\n.*?^\}\n?", re.MULTILINE | re.DOTALL)
_HEADER = re.compile(r"^define (?:internal )?([^@\n]*@([\w.$]+)\([^\n]*\))[^\n]*\{$", re.MULTILINE)
_SHARED = re.compile(r"^(?:declare [^@\n]*@([\w.$]+)\(|@([\w.$]+) = |(![\d]+) = )[^\n]*$", re.MULTILINE)
_NAME = re.compile(r"@([\w.$]+)|(![\d]+)")


def parts(text: str) -> tuple[str, str]:
    """(what is to be compiled with care, the long functions; "" where there are none)."""
    long = "\n".join(_LONG.findall(text))
    if not long:
        return text, ""
    short = _LONG.sub("", text)
    shared = [(m.group(1) or m.group(2) or m.group(3), m.group(0)) for m in _SHARED.finditer(short)]
    in_short, in_long = _headers(short), _headers(long)
    used = _names(long)
    wanted = [f"declare {header}" for name, header in in_short.items() if name in used]
    wanted += [line for name, line in shared if name in used]
    called = _names(short) & in_long.keys()
    short = _HEADER.sub(lambda m: m.group(0).replace("internal ", "", 1) if m.group(2) in used else m.group(0), short)
    return "\n".join((*(f"declare {in_long[name]}" for name in sorted(called)), short)), "\n".join((*wanted, long))


def _headers(text: str) -> dict[str, str]:
    return {m.group(2): m.group(1) for m in _HEADER.finditer(text)}


def _names(text: str) -> set[str]:
    return {first or second for first, second in _NAME.findall(text)}
