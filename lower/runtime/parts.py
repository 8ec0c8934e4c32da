"""LLVM text in two modules, for two levels of code generation.

Guarantees: together the parts define what the whole defined, and each declares what it calls of the other; text without
exported functions that are marked `optnone` is one part, as it was.

Each of LLVM's hundred passes takes its time for each function, and code without loops that runs once a call (a program's
entry, what decides whether a loop goes to all threads) is a third of a program's text. Even for functions marked `optnone` the
register allocator is the one of the whole module's level. And level 0 is quick only where no instruction names what may be
far: these functions load such addresses from their stack.
"""
from __future__ import annotations

import itertools
import re

from loopwright.lower.runtime.writer import QUICKLY

FUNCTION = re.compile(r"^define (internal )?([^@\n]*@([\w.$]+)\([^\n]*\))[^\n]*\{\n", re.MULTILINE)
_SHARED = re.compile(r"(?:declare [^@\n]*@([\w.$]+)\([^\n]*|@([\w.$]+) = [^\n]*|!\d+ = [^\n]*)")
NAME = re.compile(r"@([\w.$]+)")
END = "\n}\n"


def parts(text: str) -> tuple[str, str]:
    """(what is to be compiled with care, what quickly; "" where there is nothing of that)."""
    short: list[str] = []
    long: list[str] = []
    headers: tuple[dict[str, str], dict[str, str]] = {}, {}
    internal: dict[str, str] = {}  # how functions begin
    done = 0
    while (found := FUNCTION.match(text, _next_function(text, done))) is not None:
        end = text.find(END, found.end() - 1) % len(text) + len(END)  # one at the very end may lack its newline
        is_long = found[1] is None and " optnone {" in found[0]
        headers[is_long][found[3]] = found[2]
        if found[1]:
            internal[found[3]] = found[0]
        short.append(text[done:found.start() if is_long else end])
        long += [text[found.start():end]] if is_long else []
        done = end
    if not long:
        return text, ""
    rest, longs = "".join((*short, text[done:])), "".join(long)
    used = set(NAME.findall(longs))
    for name in used & internal.keys():
        rest = rest.replace(internal[name], internal[name].replace("internal ", "", 1), 1)
    called = [f"declare {header}" for name, header in headers[1].items() if f"@{name}(" in rest]
    wanted = [f"declare {header}" for name, header in headers[0].items() if name in used]
    lines = [begin + line for begin in ("declare ", "@", "!") for line in f"\n{rest}".split(f"\n{begin}")[1:]]
    wanted += [m[0] for m in map(_SHARED.match, lines) if m is not None and (m[0][0] == "!" or (m[1] or m[2]) in used)]
    return "\n".join((*called, rest)), "\n".join((*wanted, *map(_with_addresses_at_hand, long)))


def _next_function(text: str, start: int) -> int:
    """Where the next line begins that defines something; the end where none does."""
    if text.startswith("define ", start):
        return start
    before = text.find("\ndefine ", start)
    return len(text) if before < 0 else before + 1


def quickly(text: str) -> str:
    """LLVM text of functions whose last one, if it has no loop, is to be compiled quickly."""
    at = text.rfind("define internal ")
    header, _, body = text[at:].partition(" nounwind ")
    if " phi " in body:
        return text
    return f"{text[:at]}{header.replace('internal ', '', 1)} {QUICKLY} {{{body.partition('{')[2]}"


def _with_addresses_at_hand(function: str) -> str:
    """The function with every address that it names, those of LLVM's own functions aside, stored once when it starts."""
    header, *lines = function.split("\n")
    if lines[0].endswith(":"):  # the label of the first block
        header, lines = f"{header}\n{lines[0]}", lines[1:]
    names: dict[str, None] = {}
    made: list[str] = []
    number = itertools.count()

    def load(name: re.Match[str]) -> str:
        names[name[1]] = None
        made.append(f"  %near{(k := next(number))} = load ptr, ptr %far.{name[1]}")
        return f"%near{k}"

    for line in lines:
        made.append(NAME.sub(load, line) if "@" in line and "@llvm." not in line else line)
    slots = [text for name in names for text in (f"  %far.{name} = alloca ptr", f"  store ptr @{name}, ptr %far.{name}")]
    return "\n".join((header, *slots, *made))
