"""LLVM functions as text, with structured control flow and hoisting.

Guarantees: every register is defined before its uses on every path. A `Scope` is a stretch of straight code that is
still open at its end; a nested loop or branch is written to scopes of its own and joined to the parent only when it is
complete, so code that turns out to be invariant can be appended to any enclosing scope in the meantime and lands before
the loop. A conditional scope (the body of a loop that may run zero times, an arm of a branch) is a wall for code that
may not run speculatively: loads and errors.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

RARE = "!9000"  # branch weights: the first target is seldom taken
HIDING = 85  # any constant: twice with xor it changes nothing, and LLVM no longer sees that an index moves in steps. Its
# strength reduction would take a third of all compile time to arrive at the addresses that are written here.
RARE_METADATA = f'{RARE} = !{{!"branch_weights", i32 1, i32 2000}}'
STREAMED = "!9001"  # of stores that go past the caches
STREAMED_METADATA = f"{STREAMED} = !{{i32 1}}"
Carried = Sequence[tuple[str, str]]  # (LLVM type, register or constant)


class Function:
    """What the scopes of one function share: fresh names, stack slots, and the declarations it needs."""

    def __init__(self, declarations: set[str], constants: set[str]) -> None:
        self.declarations = declarations
        self.constants = constants
        self.declared: set[str] = set()  # names in declarations
        self.slots: list[str] = []
        self.first: list[str] = []
        self.last: list[str] = []
        self.calls_such = False  # a function that has such, see `around`
        self.count = 0
        self.root = Scope(self, None, "entry", conditional=True)

    def fresh(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def label(self, hint: str) -> str:
        self.count += 1
        return f"{hint}{self.count}"

    def declare(self, result: str, name: str, arguments: Carried) -> None:
        """Let the module declare a function of these types, which a name always has."""
        if name not in self.declared:
            self.declared.add(name)
            self.declarations.add(f"declare {result} @{name}({', '.join([t for t, _ in arguments])})")

    def slot(self, count: int, element: str, align: int) -> str:
        """A stack array, reserved once for the whole function."""
        name = self.fresh()
        self.slots.append(f"  {name} = alloca [{count} x {element}], align {align}")
        return name

    def around(self, first: str, last: str) -> None:
        """Let an instruction stand before all others, and one behind them, once. No function that this one calls has such: they
        would undo what these do."""
        if "  " + first not in self.first:
            self.first.append("  " + first)
            self.last.insert(0, "  " + last)

    def body(self) -> str:
        """The function's text between its braces, up to where it returns."""
        assert not (self.first and self.calls_such)
        lines, first = with_numbers_in_registers(self.root.lines, self.constants)
        return "\n".join(["entry:", *self.slots, *self.first, *first, *lines, *self.last])


class Scope:
    """Open code. `values` remembers what was computed here, by key; see Function for what makes hoisting safe."""

    __slots__ = ("conditional", "depth", "function", "label", "lines", "parent", "start", "values")

    def __init__(self, function: Function, parent: Scope | None, label: str, conditional: bool) -> None:
        self.function = function
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.start = self.label = label  # the labels of its first and of its open block
        self.conditional = conditional
        self.lines: list[str] = []
        self.values: dict[Any, Any] = {}

    @property
    def repeats(self) -> bool:
        """Whether a loop is around it."""
        return self.parent is not None and (not self.conditional or self.parent.repeats)

    def emit(self, text: str) -> str:
        """Append an instruction; its new register."""
        function = self.function
        function.count = count = function.count + 1
        name = f"%v{count}"
        self.lines.append(f"  {name} = {text}")
        return name

    def do(self, text: str) -> None:
        """Append an instruction without a result."""
        self.lines.append("  " + text)

    def child(self, hint: str, conditional: bool) -> Scope:
        return Scope(self.function, self, self.function.label(hint), conditional)

    def call(self, result: str, name: str, arguments: Sequence[tuple[str, str]], flags: str = "") -> str:
        """Call a declared function or intrinsic; the register of its result."""
        if name not in self.function.declared:
            self.function.declare(result, name, arguments)
        return self.emit(f"call {flags}{result} @{name}({', '.join([f'{t} {v}' for t, v in arguments])})")

    def run(self, name: str, arguments: Sequence[tuple[str, str]]) -> None:
        """Call a declared function that returns nothing."""
        self.function.declare("void", name, arguments)
        self.do(f"call void @{name}({', '.join([f'{t} {v}' for t, v in arguments])})")

    def find(self, key: Any) -> Any:
        """What was computed under key here or in an enclosing scope, or None."""
        scope: Scope | None = self
        while scope is not None:
            found = scope.values.get(key)
            if found is not None:
                return found
            scope = scope.parent
        return None

    def climb(self, depth: int, walls: bool = True) -> Scope:
        """The outermost enclosing scope, no further out than depth, and (with walls) inside every conditional scope."""
        scope = self
        while scope.depth > depth and not (walls and scope.conditional):
            assert scope.parent is not None
            scope = scope.parent
        return scope


def deepest(first: Scope, *rest: Scope) -> Scope:
    """The innermost of nested scopes."""
    for scope in rest:
        if scope.depth > first.depth:
            first = scope
    return first


# ---- constants ------------------------------------------------------------------------------------
MOST_IN_REGISTERS = 16  # of 32, and of 16 some that lie on the stack: of more, loops that need registers pay for it
ZEROS = frozenset(("0", "0x0000000000000000"))
_BYTES = {"float": 4, "double": 8, "i8": 1, "i16": 2, "i32": 4, "i64": 8}
_SPLAT = re.compile(rf"(splat \(({'|'.join(_BYTES)}) (-?\w+)\))")
_SHIFT = re.compile(r"  %\w+ = (?:shl|lshr|ashr) ")
_RARE_ARM = re.compile(rf"  br i1 [^,]+, label %(\w+), label %(\w+), !prof {RARE}$")
_LANES = {element: re.compile(rf"<(\d+) x {element}>") for element in _BYTES}


def with_numbers_in_registers(lines: Sequence[str], texts: set[str]) -> tuple[list[str], list[str]]:
    """The lines with every vector of one number in a register, and what fills those when the function starts, where they are
    few enough; the numbers lie in one place, which is added to `texts`. LLVM would find the address of each number anew in
    the loop that uses it: where code may be far from data that is one more instruction and one more register. Zeros are in no
    place, and to select them is often part of another instruction; shifts have their numbers in the instruction; arms of
    branches that are seldom taken keep theirs."""
    found: dict[tuple[str, str, str], str] = {}  # element, lanes, number
    made, arm_ends = list(lines), dict[str, str]()  # of rare arms, whose end is a label
    inside = ""
    for k, line in enumerate(lines):
        if inside:
            inside = "" if line == inside else inside
        elif (arm := _RARE_ARM.match(line)) is not None:
            arm_ends[f"{arm[1]}:"] = f"{arm[2]}:"
        elif line in arm_ends:
            inside = arm_ends.pop(line)
        elif "splat (" in line and not _SHIFT.match(line):
            for whole, element, number in dict.fromkeys(_SPLAT.findall(line)):
                if number in ZEROS:
                    made[k] = made[k].replace(whole, "zeroinitializer")
                    continue
                width = _LANES[element].search(line)
                assert width is not None, line
                name = found.setdefault((element, width[1], number), f"%k{len(found)}")
                made[k] = made[k].replace(whole, name)
            if len(found) > MOST_IN_REGISTERS:
                return list(lines), []
    if not found:
        return made, []
    numbers = sorted({(element, number) for element, _, number in found}, key=lambda x: (-_BYTES[x[0]], x))
    kind, values = f"<{{ {', '.join(e for e, _ in numbers)} }}>", f"<{{ {', '.join(f'{e} {x}' for e, x in numbers)} }}>"
    place = f"@numbers_{sha256(values.encode()).hexdigest()[:16]}"
    texts.add(f"{place} = private unnamed_addr constant {kind} {values}, align 64\n"
              f"{place}.at = internal global ptr {place}")  # what is loaded is an address like any other: not found anew
    first = [f"  %k = load ptr, ptr {place}.at"]
    for k, (element, _) in enumerate(numbers):
        first += [f"  %k.at{k} = getelementptr {kind}, ptr %k, i32 0, i32 {k}",
                  f"  %k.of{k} = load {element}, ptr %k.at{k}, !invariant.load !{{}}"]
    for (element, lanes, number), name in found.items():
        vector, k = f"<{lanes} x {element}>", numbers.index((element, number))
        first += [f"  {name}.one = insertelement {vector} poison, {element} %k.of{k}, i32 0",
                  f"  {name} = shufflevector {vector} {name}.one, {vector} poison, <{lanes} x i32> zeroinitializer"]
    return made, first


Arm = Callable[[Scope], Carried]


def branch(scope: Scope, condition: str, then: Arm, other: Arm | None = None, otherwise: Carried = (), *,
           rare: bool = False) -> list[str]:
    """if condition: then() else: other() (or the values `otherwise`); the joined results. `rare`: condition seldom holds."""
    yes = scope.child("then", conditional=True)
    first = then(yes)
    no = scope.child("else", conditional=True) if other is not None else None
    second = other(no) if other is not None and no is not None else otherwise
    join, before = scope.function.label("join"), scope.label
    if rare:
        scope.function.constants.add(RARE_METADATA)
    scope.do(f"br i1 {condition}, label %{yes.start}, label %{no.start if no else join}" + (f", !prof {RARE}" if rare else ""))
    for arm in (yes, no):
        if arm is not None:
            scope.lines.append(f"{arm.start}:")
            scope.lines += arm.lines
            scope.lines.append(f"  br label %{join}")
    scope.lines.append(f"{join}:")
    scope.label = join
    return [scope.emit(f"phi {kind} [ {a}, %{yes.label} ], [ {b}, %{no.label if no else before} ]")
            for (kind, a), (_, b) in zip(first, second, strict=True)]


Body = Callable[[Scope, str, list[str]], list[str]]


def loop(scope: Scope, low: str, high: str, step: str, carried: Carried, body: Body, *, runs: bool = False) -> list[str]:
    """for index in low, low + step, ... < high: carried = body(scope, index, carried); the carried values at the end.

    What does not depend on the loop can be placed in a scope that runs once, only if the loop runs at all. runs: it does.
    """
    once = scope if runs or _runs(low, high) else scope.child("once", conditional=True)
    inside = once.child("loop", conditional=False)
    function = scope.function
    index, phis = function.fresh(), [function.fresh() for _ in carried]
    new = body(inside, index, phis)
    hidden = inside.emit(f"xor i64 {inside.emit(f'xor i64 {index}, {HIDING}')}, {HIDING}")
    following = inside.emit(f"add nsw i64 {hidden}, {step}")
    more = inside.emit(f"icmp slt i64 {following}, {high}")
    before, done = scope.label, function.label("done")
    if once is not scope:
        nonempty = scope.emit(f"icmp slt i64 {low}, {high}")
        scope.do(f"br i1 {nonempty}, label %{once.start}, label %{done}")
        scope.lines.append(f"{once.start}:")
        scope.lines += once.lines
    scope.lines += [f"  br label %{inside.start}", f"{inside.start}:",
                    f"  {index} = phi i64 [ {low}, %{once.label} ], [ {following}, %{inside.label} ]"]
    scope.lines += [f"  {phi} = phi {kind} [ {first}, %{once.label} ], [ {last}, %{inside.label} ]"
                    for phi, (kind, first), last in zip(phis, carried, new, strict=True)]
    scope.lines += inside.lines
    scope.lines += [f"  br i1 {more}, label %{inside.start}, label %{done}", f"{done}:"]
    scope.label = done
    if once is scope:
        return new
    return [scope.emit(f"phi {kind} [ {first}, %{before} ], [ {last}, %{inside.label} ]")
            for (kind, first), last in zip(carried, new, strict=True)]


def alone(scope: Scope, body: Callable[[Scope], list[str]]) -> list[str]:
    """What body gives in a scope of its own, which remembers no value of another turn."""
    inside = scope.child("turn", conditional=False)
    found = body(inside)
    scope.lines += [f"  br label %{inside.start}", f"{inside.start}:", *inside.lines]
    scope.label = inside.label
    return found


def _runs(low: str, high: str) -> bool:
    return low.isdigit() and high.isdigit() and int(low) < int(high)


def repeat(scope: Scope, carried: Carried, body: Callable[[Scope, list[str]], tuple[str, list[str]]]) -> list[str]:
    """do (condition, carried) = body(scope, carried) while condition; the carried values at the end."""
    inside = scope.child("again", conditional=False)
    phis = [scope.function.fresh() for _ in carried]
    condition, new = body(inside, phis)
    done = scope.function.label("done")
    scope.lines += [f"  br label %{inside.start}", f"{inside.start}:"]
    scope.lines += [f"  {phi} = phi {kind} [ {first}, %{scope.label} ], [ {last}, %{inside.label} ]"
                    for phi, (kind, first), last in zip(phis, carried, new, strict=True)]
    scope.lines += [*inside.lines, f"  br i1 {condition}, label %{inside.start}, label %{done}", f"{done}:"]
    scope.label = done
    return new
