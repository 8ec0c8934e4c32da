"""A kernel that has bodies of its own for few columns, and for axes of one element: one is called before threads are, where
calls have such.

Guarantees: the function has no loop and no value that joins branches, so that it is compiled quickly.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import product
from loopwright.ir.nest import Nest, Ones
from loopwright.lower.codegen.context import Context
from loopwright.lower.codegen.kernel_text import KernelText
from loopwright.lower.codegen.machine import ATTRIBUTES
from loopwright.lower.codegen.scratch import OUT_OF_MEMORY
from loopwright.lower.codegen.streams import moved_bytes
from loopwright.lower.codegen.text import Arm, Carried, Function, Scope, branch
from loopwright.lower.runtime.later import CHOSEN, amx_of, few_of, place_of, squeezed_of, usual_of

MANY = 1 << 12  # elements that are worth such a body, which is compiled once


Find = Callable[[Scope], str]  # a function, in code that is about to call it


def calling(nest: Nest, name: str) -> KernelText:
    """A kernel of this name that calls the function of a nest, which is compiled when it is first called."""
    if nest.instead is not None:
        return in_unit(nest, name, made_later(amx_of(name)), made_later(usual_of(name)))
    f = Function(set(), set())
    _call(f.root, made_later(nest.name), _arguments(nest))
    return _kernel(nest, name, f)


def in_unit(nest: Nest, name: str, unit: Find, usual: Find) -> KernelText:
    """A kernel of this name that calls a function that uses a tile unit, and the usual one where that says so."""
    f = Function(set(), set())
    odd = f.slot(1, "i32", 4)
    f.root.do(f"store i32 0, ptr {odd}, align 4")
    _call(f.root, unit, [*_arguments(nest), f"ptr {odd}"])

    def otherwise(scope: Scope) -> Carried:
        _call(scope, usual, _arguments(nest))
        return ()
    branch(f.root, f.root.emit(f"icmp ne i32 {f.root.emit(f'load i32, ptr {odd}, align 4')}, 0"), otherwise, rare=True)
    return _kernel(nest, name, f)


def made_later(function: str) -> Find:
    """A function that is compiled when it is first called; null where there is no memory for it."""
    def find(scope: Scope) -> str:
        place = place_of(function)
        scope.function.constants.add(f"@{place} = external global ptr")
        return scope.call("ptr", CHOSEN, [("i1", "true"), ("ptr", f"@{place}"), ("ptr", "null")])
    return find


def _arguments(nest: Nest) -> list[str]:
    kinds = [(len(nest.buffers), "ptr %b"), (len(nest.symbols), "i64 %n")]
    return [*(f"{kind}{k}" for count, kind in kinds for k in range(count)), "ptr %error"]


def _call(scope: Scope, find: Find, given: Sequence[str]) -> None:
    body = find(scope)

    def none(inner: Scope) -> Carried:
        inner.run("lw_report", [("ptr", "%error"), ("i64", str(OUT_OF_MEMORY)), *[("i64", "0")] * 3])
        return ()

    def there(inner: Scope) -> Carried:
        inner.do(f"call void {body}({', '.join(given)})")
        return ()
    if body.startswith("@"):
        there(scope)
    else:
        branch(scope, scope.emit(f"icmp eq ptr {body}, null"), none, there, rare=True)


def _kernel(nest: Nest, name: str, f: Function) -> KernelText:
    text = f"define internal void @{name}({', '.join(_arguments(nest))}) {ATTRIBUTES} {{\n{f.body()}\n  ret void\n}}"
    return KernelText(name, text, frozenset(f.declarations), frozenset(f.constants))


def _squeezed(context: Context, name: str, ones: Ones) -> str:
    """The place of the body for the sizes that are 1; null where these do not matter. There is one for each set of them."""
    scope, kernel, first = context.scope, context.kernel, place_of(squeezed_of(name, 0))
    kernel.function.constants.add(f"@{first} = external global ptr")
    which = "0"
    bits = {symbol: 1 << k for k, symbol in enumerate(ones.symbols)}
    for symbol, bit in bits.items():
        is_one = scope.emit(f"icmp eq i64 {kernel.symbols[symbol]}, 1")
        which = scope.emit(f"or i64 {which}, {scope.emit(f'select i1 {is_one}, i64 {bit}, i64 0')}")
    groups = [sum(bits[symbol] for symbol in group) for group in ones.matter]
    all_ones = [scope.emit(f"icmp eq i64 {scope.emit(f'and i64 {which}, {bit}')}, {bit}") for bit in groups]
    matters = reduce(lambda a, b: scope.emit(f"or i1 {a}, {b}"), all_ones)
    return scope.emit(f"select i1 {matters}, ptr {scope.emit(f'getelementptr ptr, ptr @{first}, i64 {which}')}, ptr null")


@dataclass(frozen=True)
class Large:
    """A function for calls whose arrays have so many bytes together, and for which something else holds, as an i1."""

    function: str
    least: int
    holds: Callable[[Context], str] | None = None


def in_few_columns(context: Context, nest: Nest, large: Sequence[Large], given: Sequence[tuple[str, str]], usual: Arm, *,
                   apart: bool) -> None:
    """The body for as many columns as there are, of which the arguments are given; the usual one where it has none, or there is
    little to do. large: those for large arrays, the first that suits. apart: bodies are compiled when calls need them."""
    scope, slot = context.scope, context.kernel.function.slot(1, "ptr", 8)
    place, wanted = _for_few(context, nest, apart=apart) if nest.few or (nest.ones is not None and apart) else ("null", "false")
    scope.do(f"store ptr {scope.emit(f'select i1 {wanted}, ptr {place}, ptr null')}, ptr {slot}, align 8")
    if large:
        _for_large(context, large, slot)

    def chosen(inside: Scope) -> Carried:
        there = inside.emit(f"load ptr, ptr {slot}, align 8")
        body = inside.call("ptr", CHOSEN, [("i1", "true"), ("ptr", there), ("ptr", "null")])
        inside.do(f"store ptr {body}, ptr {slot}, align 8")
        return ()
    if apart:
        branch(scope, scope.emit(f"icmp ne ptr {scope.emit(f'load ptr, ptr {slot}, align 8')}, null"), chosen)
    body = scope.emit(f"load ptr, ptr {slot}, align 8")

    def other(inside: Scope) -> Carried:
        inside.do(f"call void {body}({', '.join(f'{kind} {register}' for kind, register in given)})")
        return ()
    branch(scope, scope.emit(f"icmp eq ptr {body}, null"), usual, other)


def _for_large(context: Context, large: Sequence[Large], slot: str) -> None:
    """The place of the first function that suits, to a slot without that of another: one comparison for most calls."""
    kernel, scope, least = context.kernel, context.scope, min(x.least for x in large)
    moved = kernel.extent(moved_bytes(kernel))

    def one(inside: Scope) -> Carried:
        found = "null"
        for x in reversed(large):
            name = place_of(x.function)
            kernel.function.constants.add(f"@{name} = external global ptr")
            suits = inside.emit(f"icmp sge i64 {moved}, {x.least}")
            if x.holds is not None:
                suits = inside.emit(f"and i1 {suits}, {x.holds(context.at(inside))}")
            found = inside.emit(f"select i1 {suits}, ptr @{name}, ptr {found}")
        few = inside.emit(f"load ptr, ptr {slot}, align 8")
        is_few = inside.emit(f"icmp ne ptr {few}, null")
        inside.do(f"store ptr {inside.emit(f'select i1 {is_few}, ptr {few}, ptr {found}')}, ptr {slot}, align 8")
        return ()
    branch(scope, scope.emit(f"icmp sge i64 {moved}, {least}"), one)


def _for_few(context: Context, nest: Nest, *, apart: bool) -> tuple[str, str]:
    """The place of the body, or the body, for as many columns, and axes of one element, as there are, and whether there is one
    and enough to do."""
    scope, kernel, place = context.scope, context.kernel, "null"
    for values in nest.few:
        name = few_of(nest.name, values)
        if apart:
            name = place_of(name)
            kernel.function.constants.add(f"@{name} = external global ptr")
        same = [scope.emit(f"icmp eq i64 {kernel.symbols[symbol]}, {k}") for symbol, k in values]
        fits = reduce(lambda a, b: scope.emit(f"and i1 {a}, {b}"), same)
        place = scope.emit(f"select i1 {fits}, ptr @{name}, ptr {place}")
    if nest.few_from[1] > 1:
        enough = scope.emit(f"icmp sge i64 {kernel.extent(nest.few_from[0])}, {nest.few_from[1]}")
        place = scope.emit(f"select i1 {enough}, ptr {place}, ptr null")
    if nest.ones is not None and apart:
        squeezed = _squeezed(context, nest.name, nest.ones)
        place = scope.emit(f"select i1 {scope.emit(f'icmp ne ptr {squeezed}, null')}, ptr {squeezed}, ptr {place}")
    arrays = [b for b in nest.buffers if len(b.shape) > 1] or nest.buffers
    sizes = dict.fromkeys(product(b.shape) for b in arrays)
    are_many = [scope.emit(f"icmp sge i64 {kernel.extent(n)}, {MANY}") for n in sizes]
    many = reduce(lambda a, b: scope.emit(f"or i1 {a}, {b}"), are_many)
    return place, scope.emit(f"and i1 {scope.emit(f'icmp ne ptr {place}, null')}, {many}")
