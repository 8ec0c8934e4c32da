"""What a user's kernel computes, as a pattern that it competes for: `kernel(..., instead_of=f)`."""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from loopwright.autodiff.calls import name_of
from loopwright.ir.dims import symbols_in
from loopwright.ir.errors import ArgumentError, ParseError
from loopwright.ir.expansion import expanded
from loopwright.ir.facts import Constraint
from loopwright.ir.graph import Graph
from loopwright.ir.guards import Scope
from loopwright.ir.parser import parse_constraints
from loopwright.ir.source import user_source
from loopwright.ir.types import COMPLEX
from loopwright.lower.patterns import Pattern, register
from loopwright.tracer.trace import trace

if TYPE_CHECKING:
    from loopwright.user_kernels import Kernel

FIRST_HINT = 101  # sizes that a pattern is traced at: apart from each other, so that none is taken for another


def compete(kernel: Kernel, f: Callable[..., Any], where: str | None) -> None:
    """Let a kernel be measured where programs that are tuned compute what f does. ArgumentError where f does not fit the
    kernel's signature, or cannot be a pattern."""
    who = f"{user_source()}: kernel {kernel.name}: instead_of={name_of(f)}"
    signature = kernel.signature
    if any(t.dtype in COMPLEX for t in (*signature.operands, *signature.results)):
        raise ArgumentError(f"{who}: a kernel of complex numbers is called, and does not compete.")
    g = _traced(f, kernel, who)
    found, declared = ([(v.dtype, v.shape) for v in types] for types in ([v.type for v in g.results], signature.results))
    if found != declared:
        gives = ", ".join(str(v.type) for v in g.results)
        raise ArgumentError(f"{who} gives {gives}, and {signature.text!r} declares {', '.join(map(str, signature.results))}.")
    read = {v for n in g.nodes for v in n.inputs}
    if len({*g.results} - {*g.params}) < len(g.results):
        raise ArgumentError(f"{who} gives an operand, or one result twice: each result is to be computed.")
    if unread := [k for k, v in enumerate(g.params) if v not in read]:
        raise ArgumentError(f"{who} does not read operand {unread[0]}: the kernel would be given nothing for it.")
    if inner := next((n.op.name for n in g.nodes if n.regions), None):
        raise ArgumentError(f"{who} has control flow ({inner}): patterns are of operations on arrays alone.")
    register(Pattern(kernel.name, g, _conditions(where, kernel, who), kernel.implementing))


def _traced(f: Callable[..., Any], kernel: Kernel, who: str) -> Graph:
    """What f does with arrays of the kernel's operand types."""
    signature = kernel.signature
    scope = Scope({s: FIRST_HINT + 2 * k for k, s in enumerate(signature.sizes)})
    why = f"instead_of of kernel {kernel.name}"
    made = trace(lambda args: f(*args), signature.operands, scope=scope, is_floor=True, why=why)
    if made.outer:
        raise ArgumentError(f"{who} reads an array from outside: what the kernel gets are its operands alone.")
    if asked := [g for g in scope.guards if not _is_plain(g.constraint)]:
        raise ArgumentError(f"{who} depends on sizes: {asked[0]}. Write numbers for them into the signature.")
    return expanded(Graph(made.graph.params, made.graph.nodes, made.graph.results))


def _is_plain(c: Constraint) -> bool:
    """Whether a constraint only says that there are elements."""
    return c.relation == "<=" and c.left == 1


def _conditions(where: str | None, kernel: Kernel, who: str) -> tuple[Constraint, ...]:
    if where is None:
        return ()
    try:
        found = parse_constraints(where)
    except (ParseError, TypeError) as error:
        raise ArgumentError(f"{who}: where={where!r} is no list of conditions such as 'n <= 64, 8 divides m': "
                            f"{str(error).splitlines()[0]}") from None
    for c in found:
        if unknown := sorted((symbols_in(c.left) | symbols_in(c.right)) - set(kernel.signature.sizes)):
            raise ArgumentError(f"{who}: where={where!r} speaks of {unknown[0]}, which is no size of "
                                f"{kernel.signature.text!r}.")
    return tuple(found)
