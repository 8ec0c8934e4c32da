"""IR text to graphs: the inverse of `printer`.

Guarantees: `parse(print_graph(g)) == g`; every error is a ParseError with line, column and a caret. The form is checked
and every name is resolved; what the form says is checked by `verifier.verify`. `# ...` is a comment.

    graph   := "graph" ["<" symbol, ... ">"] "(" [value ":" type], ... ")" ["where" constraint, ...] "{" node* return "}"
    node    := [value ":" type, ... "="] op "(" value, ... ")" ["{" name "=" attribute, ... "}"] ["[" graph, ... "]"]
    return  := "return" [value, ...]
    type    := ["weak_"] dtype "[" extent, ... "]"
    extent  := sums, differences and products of integers, symbols, and floordiv, min and max of two extents
    constraint := extent ("==" | "!=" | "<=" | ">=" | "divides") extent
    attribute  := number | extent | string | True | False | None | dtype | tuple | complex(re, im) | nan(0xbits)
                | Callback(string) | Class(field=attribute, ...) | Enum.MEMBER
"""
from __future__ import annotations

import enum
import json
import re
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, NoReturn, TypeVar

from loopwright.ir.attributes import Attribute, Callback
from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent, floordiv, maximum, minimum, symbol
from loopwright.ir.errors import ParseError
from loopwright.ir.facts import Constraint
from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.op import Op
from loopwright.ir.ops import TABLE
from loopwright.ir.source import Source
from loopwright.ir.types import BY_SHORT, ArrayType

_T = TypeVar("_T")
Classes = Mapping[str, type]

_TOKEN = re.compile(r"""
    (?P<space>[ \t\r\n]+|\#[^\n]*)
  | (?P<float>-?inf\b|nan\b|-?\d+\.\d*(?:[eE][+-]?\d+)?|-?\d+[eE][+-]?\d+)
  | (?P<bits>0x[0-9a-fA-F]+)
  | (?P<int>\d+)
  | (?P<value>%[A-Za-z0-9_]+)
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<string>"(?:[^"\\\n]|\\.)*")
  | (?P<mark><=|>=|==|!=|[-+*(){}\[\]<>,:=.])
""", re.VERBOSE)
_FUNCTIONS: dict[str, Callable[[Extent, Extent], Extent]] = {"floordiv": floordiv, "min": minimum, "max": maximum}
_CONSTANTS = {"True": True, "False": False, "None": None}


def parse(text: str, ops: Mapping[str, Op] | None = None, classes: Classes | None = None,
          bind: Mapping[str, Callable[..., Any]] | None = None) -> Graph:
    """The graph that text spells. `ops` and `classes` add ops, and dataclasses and enums of attributes, by name; `bind` gives
    the functions that the program calls, by the names in the text: those that a module holds under its name need none."""
    return _Parser(text, {**TABLE, **(ops or {})}, classes or {}, bind or {}).whole(_Parser.graph)


def parse_type(text: str) -> ArrayType:
    """The type that text spells, as `f32[n, 3]`; any symbol may appear."""
    return _Parser(text, {}, {}).whole(_Parser.type)


def parse_extent(text: str) -> Extent:
    """The size that text spells, as `2*n + 1`; any symbol may appear."""
    return _Parser(text, {}, {}).whole(_Parser.extent)


def parse_constraints(text: str) -> list[Constraint]:
    """The constraints that text spells, as `n <= 64, 8 divides m`; any symbol may appear."""
    parser = _Parser(text, {}, {})
    return parser.whole(lambda p: [p.constraint(), *(p.constraint() for _ in iter(lambda: p.skip(","), False))])


def parse_attribute(text: str, classes: Classes) -> Attribute:
    """The attribute that text spells; `classes` as for `parse`."""
    return _Parser(text, {}, classes).whole(_Parser.attribute)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int


class _Parser:
    def __init__(self, text: str, ops: Mapping[str, Op], classes: Classes,
                 bind: Mapping[str, Callable[..., Any]] | None = None) -> None:
        self.text, self.ops, self.classes, self.bind = text, ops, classes, bind or {}
        self.symbols: set[str] | None = None  # those the graph declares; None: any
        self.starts = [0, *(i + 1 for i, c in enumerate(text) if c == "\n")]
        self.tokens = list(self._tokens())
        self.next = 0

    def _tokens(self) -> Iterator[_Token]:
        at = 0
        while at < len(self.text):
            found = _TOKEN.match(self.text, at)
            if found is None:
                self.fail(f"unexpected character {self.text[at]!r}", at)
            if found.lastgroup != "space":
                yield _Token(found.lastgroup or "", found.group(), at)
            at = found.end()
        yield _Token("end", "end of text", len(self.text))

    # ---- reading --------------------------------------------------------------------------------
    def fail(self, message: str, at: int) -> NoReturn:
        line = self.line(at)
        start = self.starts[line - 1]
        shown = self.text[start:].split("\n", 1)[0]
        raise ParseError(f"line {line}, column {at - start + 1}: {message}\n    {shown}\n    {' ' * (at - start)}^")

    def line(self, at: int) -> int:
        return bisect_right(self.starts, at)

    @property
    def token(self) -> _Token:
        return self.tokens[self.next]

    def wrong(self, expected: str) -> NoReturn:
        shown = "the end of the text" if self.token.kind == "end" else repr(self.token.text)
        self.fail(f"expected {expected}, got {shown}", self.token.at)

    def take(self, kind: str, expected: str) -> _Token:
        """The next token, which must be of this kind."""
        token = self.token
        if token.kind != kind:
            self.wrong(expected)
        self.next += 1
        return token

    def see(self, text: str) -> bool:
        return self.token.text == text and self.token.kind != "string"

    def skip(self, text: str) -> bool:
        """Whether the next token is this one; takes it if so."""
        found = self.see(text)
        self.next += found
        return found

    def need(self, text: str) -> None:
        if not self.skip(text):
            self.wrong(repr(text))

    def listed(self, item: Callable[[], _T], close: str) -> list[_T]:
        """item, item, ... up to and with `close`; a trailing comma is allowed."""
        found: list[_T] = []
        while not self.skip(close):
            found.append(item())
            if not self.see(close):
                self.need(",")
        return found

    def whole(self, rule: Callable[[_Parser], _T]) -> _T:
        found = rule(self)
        if self.token.kind != "end":
            self.wrong("the end of the text")
        return found

    # ---- graphs ---------------------------------------------------------------------------------
    def graph(self) -> Graph:
        self.need("graph")
        outer = self.symbols
        self.symbols = set(self._declared(outer)) if self.skip("<") else set()
        self.need("(")
        env: dict[str, Value] = {}
        params = tuple(self.listed(lambda: self.defined(env), ")"))
        constraints = [self.constraint()] if self.skip("where") else []
        while constraints and self.skip(","):
            constraints.append(self.constraint())
        self.need("{")
        nodes: list[Node] = []
        while not self.see("return"):
            nodes.append(self.node(env))
        self.need("return")
        results = tuple(self._results(env))
        g = Graph(params, tuple(nodes), results, tuple(constraints))
        unused = self.symbols - set(g.symbols)
        if unused:
            self.fail(f"symbol {min(unused)} is declared but not used", self.token.at)
        self.need("}")
        self.symbols = outer
        return g

    def _declared(self, outer: set[str] | None) -> list[str]:
        def one() -> str:
            token = self.take("name", "a symbol")
            if outer is not None and token.text not in outer:
                self.fail(f"the graph around this region declares no symbol {token.text}", token.at)
            return token.text
        return self.listed(one, ">")

    def _results(self, env: Mapping[str, Value]) -> list[Value]:
        found = [] if self.see("}") else [self.used(env)]
        while found and self.skip(","):
            found.append(self.used(env))
        return found

    def defined(self, env: dict[str, Value]) -> Value:
        token = self.take("value", "a value such as %0")
        if token.text in env:
            self.fail(f"{token.text} is defined twice", token.at)
        self.need(":")
        env[token.text] = value = Value(self.type())
        return value

    def used(self, env: Mapping[str, Value]) -> Value:
        token = self.take("value", "a value such as %0")
        if token.text not in env:
            self.fail(f"{token.text} is not defined before it is used", token.at)
        return env[token.text]

    def node(self, env: dict[str, Value]) -> Node:
        source = Source("<text>", self.line(self.token.at))
        made: dict[str, Value] = {}
        while self.token.kind == "value":
            if self.token.text in env:
                self.fail(f"{self.token.text} is defined twice", self.token.at)
            self.defined(made)
            if not self.skip(","):
                break
        if made:
            self.need("=")
        name = self.take("name", "an op")
        if name.text not in self.ops:
            self.fail(f"there is no op {name.text}", name.at)
        self.need("(")
        inputs = tuple(self.listed(lambda: self.used(env), ")"))
        attrs = dict(self.listed(self.named_attribute, "}")) if self.skip("{") else {}
        regions = tuple(self.listed(self.graph, "]")) if self.skip("[") else ()
        env.update(made)
        return Node(self.ops[name.text], inputs, attrs, tuple(made.values()), regions, source)

    # ---- types and sizes ------------------------------------------------------------------------
    def type(self) -> ArrayType:
        token = self.take("name", "a type such as f32[n, 3]")
        short = token.text.removeprefix("weak_")
        if short not in BY_SHORT:
            self.fail(f"{short} is not a dtype; there are {', '.join(BY_SHORT)}", token.at)
        self.need("[")
        return ArrayType(tuple(self.listed(self.extent, "]")), BY_SHORT[short], short != token.text)

    def constraint(self) -> Constraint:
        left = self.extent()
        relation = self.token.text
        if relation not in ("==", "!=", "<=", ">=", "divides"):
            self.wrong("one of ==, !=, <=, >=, divides")
        self.next += 1
        right = self.extent()
        return Constraint("<=", right, left) if relation == ">=" else Constraint(relation, left, right)

    def extent(self) -> Extent:
        sign = -1 if self.skip("-") else 1
        total = self.term() * sign
        while self.see("+") or self.see("-"):
            sign = -1 if self.see("-") else 1
            self.next += 1
            total = total + self.term() * sign
        return total

    def term(self) -> Extent:
        found = self.factor()
        while self.skip("*"):
            found = found * self.factor()
        return found

    def factor(self) -> Extent:
        token = self.token
        if token.kind == "int":
            self.next += 1
            return int(token.text)
        name = self.take("name", "a size").text
        if name in _FUNCTIONS and self.skip("("):
            pair = self.listed(self.extent, ")")
            if len(pair) != 2:
                self.fail(f"{name} takes two sizes, got {len(pair)}", token.at)
            return _FUNCTIONS[name](*pair)
        if self.symbols is not None and name not in self.symbols:
            self.fail(f"the graph declares no symbol {name}", token.at)
        return symbol(name)

    # ---- attributes -----------------------------------------------------------------------------
    def named_attribute(self) -> tuple[str, Attribute]:
        name = self.take("name", "an attribute's name").text
        self.need("=")
        return name, self.attribute()

    def attribute(self) -> Attribute:
        token = self.token
        match token.kind:
            case "string":
                return json.loads(self.take("string", "").text)
            case "float":
                return self.float()
            case "name" if token.text in _CONSTANTS or token.text in BY_SHORT:
                self.next += 1
                return _CONSTANTS[token.text] if token.text in _CONSTANTS else BY_SHORT[token.text]
            case "name" if token.text == "complex":
                return self.complex()
            case "name" if token.text == "Callback":
                return self.callback()
            case "name" if token.text in self.classes and self.tokens[self.next + 1].text in ("(", "."):
                return self.object()
            case "name" if token.text not in _FUNCTIONS and self.tokens[self.next + 1].text == "(":
                near = get_close_matches(token.text, self.classes, 1)
                self.fail(f"there is no {token.text}{f'; did you mean {near[0]}?' if near else ''}", token.at)
        return self.tuple() if self.skip("(") else self.extent()

    def tuple(self) -> Attribute:
        return tuple(self.listed(self.attribute, ")"))

    def float(self) -> float:
        text = self.take("float", "a floating-point number").text
        if text == "nan" and self.skip("("):
            bits = int(self.take("bits", "the bits of a NaN").text, 16)
            self.need(")")
            return float(struct.unpack("<d", struct.pack("<Q", bits))[0])
        return float(text)

    def complex(self) -> complex:
        self.next += 1
        self.need("(")
        parts = self.listed(self.float, ")")
        if len(parts) != 2:
            self.fail(f"complex takes two numbers, got {len(parts)}", self.token.at)
        return complex(*parts)

    def callback(self) -> Callback:
        self.next += 1
        self.need("(")
        name = json.loads(self.take("string", "the name of a function").text)
        self.need(")")
        return Callback(name, self.bind.get(name))

    def object(self) -> Attribute:
        """Class(field=attribute, ...) or Enum.MEMBER."""
        token = self.take("name", "a class")
        cls = self.classes[token.text]
        if issubclass(cls, enum.Enum):
            self.need(".")
            return cls[self.take("name", "a member").text]
        self.need("(")
        given = dict(self.listed(self.named_attribute, ")"))
        try:
            return cls(**given)
        except TypeError:
            fields = ", ".join(getattr(cls, "__dataclass_fields__", ()))
            self.fail(f"{token.text} has the fields {fields or '(none)'}, got {', '.join(given) or 'none'}", token.at)
