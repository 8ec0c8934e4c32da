"""A program's LLVM text in modules that are compiled each in its way, at a time.

Guarantees: together the parts define what the whole defined, and each declares what it calls of the others; a function that no
other module calls is as internal as it was, and beside those that call it.

Each of LLVM's hundred passes takes its time for each function, and code without loops that runs once a call (a program's
entry, what decides whether a loop goes to all threads) is a third of a program's text. Even for functions marked `optnone` the
register allocator is the one of the whole module's level. And level 0 is quick only where no instruction names what may be
far: these functions load such addresses from their stack.

Functions of ours (what a formula does with rare arguments, tiles of sums) say by their names what they do: each is a module by
itself, whose text many programs have.
"""
from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

from loopwright.lower.runtime.pieces import NAME, Module, read
from loopwright.lower.runtime.writer import QUICKLY

SHARE = 1 << 15  # characters, which are worth a module of their own: 10 ms, where a module takes half of one more
_DATA = re.compile(r"@[\w.$]+ = (?!private|internal|external)")  # that others may name
_OURS = re.compile(r"^define internal [^@\n]*@lw_", re.MULTILINE)


class Parts(NamedTuple):
    """What is to be compiled with care, and what quickly ("" where there is nothing of that); functions of ours, with care."""

    careful: tuple[str, ...]
    quick: str
    ours: tuple[str, ...]


def parts(text: str, most: int = 1) -> Parts:
    """The modules of a text, at most so many that are compiled with care."""
    many = min(most, len(text) // SHARE)
    if many < 2 and " optnone {" not in text and _OURS.search(text) is None:
        return Parts((text,), "", ())
    module = read(text)
    quick = {name: None for name, body in module.functions.items()
             if name not in module.internal and " optnone {" in body.partition("\n")[0]}
    ours = {name: None for name in module.functions if name in module.internal and name.startswith("lw_")}
    across = {*ours, *(name for one in (*quick, *ours) for name in module.named[one])}
    for name in quick:
        module.functions[name] = _with_addresses_at_hand(module.functions[name])
    shares = _shares(module, [name for name in module.functions if name not in quick and name not in ours], many)
    shares[0][:0] = [name for name, line in module.shared.items() if _DATA.match(line)]
    return Parts(tuple([module.piece(share, across) for share in shares]), module.piece(quick, across) if quick else "",
                 tuple([module.piece([name], across) for name in ours]))


def _shares(module: Module, functions: Sequence[str], many: int) -> list[list[str]]:
    """Functions in at most so many modules of about one length, in their order."""
    together = {name: [name] for name in functions}
    for name in functions:
        for inner in module.named[name] & module.internal & together.keys():
            if together[inner] is not together[name]:
                together[name] += together[inner]
                together.update(dict.fromkeys(together[inner], together[name]))
    groups = [(sum([len(module.functions[name]) for name in group]), group)
              for group in {id(group): group for group in together.values()}.values()]
    many = max(1, min(many, sum([length for length, _ in groups]) // SHARE))
    lengths, share = [0] * many, dict[str, int]()
    for length, group in sorted(groups, key=lambda x: -x[0]):
        least = lengths.index(min(lengths))
        lengths[least] += length
        share.update(dict.fromkeys(group, least))
    return [[name for name in functions if share[name] == k] for k in range(many)]


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
