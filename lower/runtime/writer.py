"""Writing one LLVM function as text: fresh names, blocks, and the declarations of what it uses."""
from __future__ import annotations

import itertools

_LIKELY = 900  # a metadata number that no other text of a module uses
LIKELY_TEXT = f'!{_LIKELY} = !{{!"branch_weights", i32 1000, i32 1}}'  # what `likely` refers to, once a module


LONG = 400  # lines
QUICKLY = "nounwind noinline optnone"  # the attributes of functions that LLVM does not optimise; see parts.py


class Writer:
    """Straight-line appending; `body` puts the stack slots first, then the prologue, and gives the text."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._first: list[str] = []
        self._slots: list[str] = []
        self._declared: dict[str, str] = {}
        self._count = itertools.count()

    def fresh(self, hint: str = "v") -> str:
        """A name not used before, without its sigil."""
        return f"{hint}.{next(self._count)}"

    def let(self, instruction: str) -> str:
        """Append an instruction; the name of its value."""
        name = f"%{self.fresh()}"
        self._lines.append(f"  {name} = {instruction}")
        return name

    def do(self, instruction: str) -> None:
        """Append an instruction without a value."""
        self._lines.append(f"  {instruction}")

    def label(self, name: str) -> None:
        """Start a block."""
        self._lines.append(f"{name}:")

    def slot(self, type: str, align: int = 8) -> str:
        """Stack memory, allocated at entry."""
        name = f"%{self.fresh('slot')}"
        self._slots.append(f"  {name} = alloca {type}, align {align}")
        return name

    def prologue(self) -> Writer:
        """A writer of what stands before everything written here, so that every block may use it."""
        head = Writer()
        head._lines, head._slots, head._declared, head._count = self._first, self._slots, self._declared, self._count
        return head

    def field(self, base: str, offset: int) -> str:
        """The address `offset` bytes after base."""
        return self.let(f"getelementptr i8, ptr {base}, i64 {offset}") if offset else base

    def load(self, type: str, base: str, offset: int = 0) -> str:
        """What lies there."""
        return self.let(f"load {type}, ptr {self.field(base, offset)}")

    def store(self, type: str, value: str, base: str, offset: int = 0) -> None:
        """Put a value there."""
        self.do(f"store {type} {value}, ptr {self.field(base, offset)}")

    def call(self, result: str, name: str, *arguments: str) -> str:
        """Call a function by name, declaring it; arguments are `type value`. The value's name; "" for void."""
        types = ", ".join(a.rsplit(" ", 1)[0] for a in arguments)
        self._declared[name] = f"declare {result} @{name}({types})"
        text = f"call {result} @{name}({', '.join(arguments)})"
        if result == "void":
            self.do(text)
            return ""
        return self.let(text)

    def keep(self, reference: str) -> None:
        """One more reference to a Python object: here where its count is an ordinary one, else in Python."""
        count, one, other, done = self.load("i32", reference), self.fresh("count"), self.fresh("immortal"), self.fresh("kept")
        self.do(f"br i1 {self.let(f'icmp sgt i32 {count}, 0')}, label %{one}, label %{other}, !prof !{_LIKELY}")
        self.label(one)
        self.store("i32", self.let(f"add i32 {count}, 1"), reference)
        self.jump(done)
        self.label(other)
        self.call("void", "Py_IncRef", f"ptr {reference}")
        self.jump(done)
        self.label(done)

    def function(self, result: str, name: str, *types: str) -> str:
        """The address of a function, declaring it."""
        self._declared[name] = f"declare {result} @{name}({', '.join(types)})"
        return f"@{name}"

    def object(self, name: str) -> str:
        """The address of a Python object, by symbol."""
        self._declared[name] = f"@{name} = external global i8"
        return f"@{name}"

    def likely(self, condition: str, otherwise: str) -> None:
        """Go on where the condition holds, else to that block."""
        onwards = self.fresh("on")
        self.do(f"br i1 {condition}, label %{onwards}, label %{otherwise}, !prof !{_LIKELY}")
        self.label(onwards)

    def branch(self, condition: str, then: str, otherwise: str) -> None:
        """A two-way branch."""
        self.do(f"br i1 {condition}, label %{then}, label %{otherwise}")

    def jump(self, to: str) -> None:
        """An unconditional branch."""
        self.do(f"br label %{to}")

    def each(self, table: str, count: int, name: str) -> None:
        """Call a function `void (ptr)` with each of `count` pointers that lie one after the other: a loop."""
        if not count:
            return
        at, again, done = self.slot("i64"), self.fresh("again"), self.fresh("done")
        self.store("i64", "0", at)
        self.jump(again)
        self.label(again)
        k = self.load("i64", at)
        self.call("void", name, f"ptr {self.load('ptr', self.let(f'getelementptr ptr, ptr {table}, i64 {k}'))}")
        following = self.let(f"add i64 {k}, 1")
        self.store("i64", following, at)
        self.branch(self.let(f"icmp ult i64 {following}, {count}"), again, done)
        self.label(done)


    @property
    def declarations(self) -> tuple[str, ...]:
        """What the text declares."""
        return tuple(self._declared.values())

    def body(self, header: str, quickly: bool = False) -> str:
        """`define header` with what was written, without the declarations. Long straight-line code, and what is to be
        compiled `quickly`, is not optimised: it runs once a call, and would cost LLVM more than all the kernels."""
        attributes = QUICKLY if quickly or len(self._first) + len(self._lines) > LONG else "nounwind"
        return "\n".join((f"define {header} {attributes} {{", *self._slots, *self._first, *self._lines, "}"))


def every(writer: Writer, conditions: list[str]) -> str:
    """The conjunction; `true` when there is nothing to ask."""
    out = ""
    for c in conditions:
        out = writer.let(f"and i1 {out}, {c}") if out else c
    return out or "true"
