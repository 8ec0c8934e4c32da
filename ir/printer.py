"""The text of a graph.

Guarantees: `parser.parse(print_graph(g)) == g` for every valid graph: floats, complex numbers and NaN payloads are
exact, and a symbol whose name the text could not carry (a reserved word, no identifier) is printed under another.
A broken graph prints too, with `%?` for a value that nothing defines.
"""
from __future__ import annotations

import dataclasses
import enum
import json
import math
import re
import struct
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from loopwright.ir.attributes import Attribute, Attributes, Callback, map_extents
from loopwright.ir.dims import Dim, Extent, substitute, symbol
from loopwright.ir.facts import Constraint
from loopwright.ir.types import SHORT, ArrayType

if TYPE_CHECKING:
    from loopwright.ir.graph import Graph, Node, Value

RESERVED = frozenset(("True", "False", "None", "inf", "nan", "complex", "min", "max", "floordiv", "divides", "where",
                      "return", "graph", *SHORT.values()))
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_DEFAULT_NAN = 0x7FF8000000000000
_INDENT = "  "


def print_graph(g: Graph, notes: Mapping[Node, str] | None = None) -> str:
    """The text of g; each note stands on a line of its own under its node."""
    return "\n".join(_Printer(printable_symbols(g.symbols), notes or {}).lines(g))


def print_attribute(x: Attribute) -> str:
    """The text of one attribute."""
    match x:
        case enum.Enum():
            return f"{type(x).__name__}.{x.name}"
        case None | bool() | Dim():
            return str(x)
        case int():
            return int.__repr__(x)
        case float():
            return _float(x)
        case complex():
            return f"complex({_float(x.real)}, {_float(x.imag)})"
        case str():
            return json.dumps(x)
        case np.dtype():
            return SHORT[x]
        case tuple():
            return f"({', '.join(map(print_attribute, x))}{',' if len(x) == 1 else ''})"
        case Callback():
            return f"Callback({json.dumps(x.name)})"
        case _ if dataclasses.is_dataclass(x) and not isinstance(x, type):
            fields = (f"{f.name}={print_attribute(getattr(x, f.name))}" for f in dataclasses.fields(x))
            return f"{type(x).__name__}({', '.join(fields)})"
    return f"<{type(x).__name__}>"  # no attribute: the graph is broken


def _float(x: float) -> str:
    """repr is exact for every number; a NaN shows its bits where they are not the usual ones."""
    if not math.isnan(x):
        return float.__repr__(x)
    bits, = struct.unpack("<Q", struct.pack("<d", x))
    return "nan" if bits == _DEFAULT_NAN else f"nan(0x{bits:016x})"


def printable_symbols(symbols: tuple[str, ...]) -> dict[str, Extent]:
    """The symbols that the text could not carry under their own name, each with one that it can."""
    to: dict[str, Extent] = {}
    taken = set(symbols)
    for name in symbols:
        if _IDENTIFIER.match(name) and name not in RESERVED:
            continue
        stem = re.sub(r"\W", "_", name, flags=re.ASCII)
        fresh = next(f"s_{stem}_{i}" for i in range(len(taken) + 1) if f"s_{stem}_{i}" not in taken)
        taken.add(fresh)
        to[name] = symbol(fresh)
    return to


class _Printer:
    def __init__(self, renamed: Mapping[str, Extent], notes: Mapping[Node, str]) -> None:
        self.renamed, self.notes = renamed, notes

    def lines(self, g: Graph) -> Iterator[str]:
        names = {v: f"%x{i}" for i, v in enumerate(g.params)}
        params = ", ".join(f"{names[v]}: {self.type(v.type)}" for v in g.params)
        symbols = f"<{', '.join(str(self.renamed.get(s, s)) for s in g.symbols)}>" if g.symbols else ""
        where = f" where {', '.join(map(self.constraint, g.constraints))}" if g.constraints else ""
        yield f"graph{symbols}({params}){where} {{"
        count = 0
        for node in g.nodes:
            before = dict(names) if any(v in names for v in node.outputs) else names  # a value defined twice: broken
            for v in node.outputs:
                names[v] = f"%{count}"
                count += 1
            yield from self.node(node, before, names)
        yield _INDENT + " ".join(("return", ", ".join(names.get(v, "%?") for v in g.results))).rstrip()
        yield "}"

    def node(self, n: Node, before: Mapping[Value, str], names: Mapping[Value, str]) -> Iterator[str]:
        outputs = ", ".join(f"{names[v]}: {self.type(v.type)}" for v in n.outputs)
        inputs = ", ".join(before.get(v, "%?") for v in n.inputs)
        attrs = f" {{{self.attributes(n.attrs)}}}" if n.attrs else ""
        head = f"{_INDENT}{outputs}{' = ' if outputs else ''}{n.op.name}({inputs}){attrs}"
        yield head + (" [" if n.regions else "")
        for r in n.regions:
            *body, last = self.lines(r)
            yield from (_INDENT * 2 + line for line in (*body, last + ","))
        if n.regions:
            yield _INDENT + "]"
        if n in self.notes:
            yield from (f"{_INDENT}^ {line}" for line in self.notes[n].splitlines())

    def type(self, t: ArrayType) -> str:
        return str(ArrayType(tuple([substitute(x, self.renamed) for x in t.shape]), t.dtype, t.weak))

    def attributes(self, attrs: Attributes) -> str:
        return ", ".join(f"{k}={print_attribute(map_extents(attrs[k], self.renamed))}" for k in attrs)

    def constraint(self, c: Constraint) -> str:
        return str(Constraint(c.relation, substitute(c.left, self.renamed), substitute(c.right, self.renamed)))
