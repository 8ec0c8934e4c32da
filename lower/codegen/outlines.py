"""Functions of a kernel over a range of a loop, which the pool runs: each finds what it reads in a block on its caller's stack.

Guarantees: where there is little work the function is called where it is.
"""
from __future__ import annotations

from collections.abc import Callable

from loopwright.ir.loops import Load
from loopwright.ir.nest import Buffer, Nest, Store
from loopwright.lower.codegen.context import Context, Kernel, Value
from loopwright.lower.codegen.evaluate import evaluate, remember
from loopwright.lower.codegen.machine import ATTRIBUTES
from loopwright.lower.codegen.memory import store
from loopwright.lower.codegen.sharing import Given, Inside
from loopwright.lower.codegen.streams import fence
from loopwright.lower.codegen.terms import Terms
from loopwright.lower.codegen.text import Carried, Function, Scope, branch
from loopwright.lower.codegen.work import maths_weight
from loopwright.lower.runtime.pool_text import THRESHOLD
from loopwright.lower.target import Target

FAST = "reassoc nsz arcp contract afn "  # with `fast_math`: NaN and infinities stay, as masks are made of
MOST_IN_PLACE = 120  # weight of the formulas that a kernel has in its own text (an exponential: 15); beyond it, it calls them


def stored(context: Context, statement: Store) -> None:
    """Do a store. What a row of this nest has there is known from now on: a masked store is slow to read back."""
    store(context, statement)
    kernel, buffer = context.kernel, context.kernel.buffers[statement.buffer]
    value = kernel.terms.of(statement.value)
    if buffer.role == "local" and statement.when is None and statement.combine == "set" and buffer.name not in value.buffers:
        there = kernel.terms.of(Load(statement.buffer, statement.index, buffer.dtype))
        remember(context, there, context.evaluate(value))


class Outlines:
    """The functions of one nest under construction, those over ranges before those that call them."""

    def __init__(self, nest: Nest, target: Target, fast_math: bool, streamed: frozenset[str]) -> None:
        self.nest, self.target, self.streamed = nest, target, streamed
        self.flags = FAST if fast_math else ""
        self.declarations: set[str] = set()
        self.constants: set[str] = set()
        self.functions: list[str] = []
        self.terms = Terms()
        self.symbols = {name: f"%n{k}" for k, name in enumerate(nest.symbols)}
        self.maths_apart = maths_weight(nest.body) > MOST_IN_PLACE

    def kernel(self, buffers: dict[str, Buffer], pointers: dict[str, str]) -> Kernel:
        """A fresh function that sees these buffers."""
        return Kernel(self.nest.name, Function(self.declarations, self.constants), self.terms, self.target, self.flags,
                      buffers, self.symbols, pointers, evaluate, stored, self.maths_apart)

    def on_threads(self, context: Context, code: tuple[str, str], sizes: tuple[str, ...],
                    in_chunks: Callable[[Scope, Given], None]) -> None:
        """A function and its block, for so many indices with so much work each: here, or, where that is enough, by threads."""
        scope, (function, block), (n, each, *_) = context.scope, code, sizes

        def here(inside: Scope) -> Carried:  # a direct call: inside loops LLVM may put the body in its place
            inside.do(f"call void {function}(ptr {block}, i64 0, i64 {n})")
            return ()

        def there(inside: Scope) -> Carried:
            in_chunks(inside, [("ptr", function), ("ptr", block), *(("i64", x) for x in sizes)])
            return ()
        few = scope.emit(f"icmp slt i64 {scope.emit(f'mul i64 {n}, {each}')}, {THRESHOLD}")
        branch(scope, few, here, there)
        context.kernel.forget()

    def arguments(self) -> list[tuple[str, str]]:
        """(type, register) of this nest's parameters."""
        return [*(("ptr", f"%b{k}") for k in range(len(self.nest.buffers))), *(("i64", n) for n in self.symbols.values()),
                ("ptr", "%error")]

    def outlined(self, context: Context, given: Given, run: Inside, name: str = "") -> tuple[str, str]:
        """A function over [begin, end), and the block on this one's stack where it finds what it reads, and what is given."""
        kernel, scope = context.kernel, context.scope
        shared = [(name, value) for name, value in context.bindings.items() if not value.varies]
        local = [name for name in kernel.pointers if kernel.buffers[name].role == "local"]
        number = len(self.functions)
        name = name or f"{self.nest.name}_range{number}"
        self.functions.append("")  # its place: outlined functions stand before their caller
        self.functions[number] = self._range_function(context, name, shared, local, given, run)
        words = [*self.arguments(), *(("ptr", kernel.pointers[n]) for n in local),
                 *((value.kind, value.parts[0]) for _, value in shared), *given]
        block = kernel.function.slot(len(words), "i64", 8)
        for k, (kind, register) in enumerate(words):
            scope.do(f"store {kind} {register}, ptr {_word(scope, block, k)}, align 8")
        return f"@{name}", block

    def _range_function(self, context: Context, name: str, shared: list[tuple[str, Value]], local: list[str], further: Given,
                        run: Inside) -> str:
        outer = context.kernel
        buffers = {b.name: b for b in self.nest.buffers} | {n: outer.buffers[n] for n in local}
        pointers = {b.name: f"%b{k}" for k, b in enumerate(self.nest.buffers)} | {n: f"%l{k}" for k, n in enumerate(local)}
        kernel = self.kernel(buffers, pointers)
        bindings = {n: Value((f"%s{k}",), v.dtype, 1, kernel.root) for k, (n, v) in enumerate(shared)}
        given = [*self.arguments(), *(("ptr", f"%l{k}") for k in range(len(local))),
                 *((v.kind, f"%s{k}") for k, (_, v) in enumerate(shared)),
                 *((kind, f"%g{k}") for k, (kind, _) in enumerate(further))]
        for k, (kind, register) in enumerate(given):
            kernel.root.lines.append(f"  {register} = load {kind}, ptr {_word(kernel.root, '%context', k)}, align 8")
        context = Context(kernel, kernel.root, bindings, streamed=self.streamed)
        run(context, [f"%g{k}" for k in range(len(further))], "%begin", "%end")
        outer.function.calls_such |= bool(kernel.function.first)
        if self.streamed:
            fence(context)
        return definition(f"@{name}(ptr %context, i64 %begin, i64 %end)", kernel)


def definition(header: str, kernel: Kernel) -> str:
    """A kernel's function as text."""
    return f"define internal void {header} {ATTRIBUTES} {{\n{kernel.function.body()}\n  ret void\n}}"


def _word(scope: Scope, block: str, number: int) -> str:
    """The address of the word with this number."""
    return scope.emit(f"getelementptr i64, ptr {block}, i64 {number}") if number else block
