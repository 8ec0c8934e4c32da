"""Solutions with derivatives of their own, by the implicit function theorem: roots of functions, and linear systems that a
function applies. Names, arguments and meaning are JAX's; `loopwright.lax` has them.

Guarantees: no derivative looks inside a solver, whatever it does; derivatives have any order, in forward and reverse mode.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from loopwright.arrays import xp
from loopwright.autodiff.calls import name_of, operands, type_of
from loopwright.autodiff.custom import call_with_jvp, emitted, fitted, levels, region
from loopwright.autodiff.jvp import tangent_type
from loopwright.ir.builder import Ref, inline, innermost
from loopwright.ir.errors import ArgumentError, DTypeError
from loopwright.ir.ops.implicit import linear_solve
from loopwright.ir.source import user_source
from loopwright.tools import linear_transpose
from loopwright.tracer.pytree import flatten, paths, unflatten
from loopwright.tracer.trace import Traced, as_ref
from loopwright.tracer.tracer import Tracer
from loopwright.transforms import jvp, linearize

Function = Callable[..., Any]
Solver = Callable[[Function, Any], Any]


class _Unknowns:
    """What a solver finds: `name`, the argument that says its containers and types."""

    def __init__(self, like: Any, name: str, why: str) -> None:
        leaves, self.structure = flatten(like)
        self.name, self.why = name, why
        names = paths(self.structure, name)
        self.values = operands(leaves, names, why)
        self.types = [tangent_type(type_of(x)) for x in self.values]
        for t, path in zip(self.types, names, strict=True):
            if not t.is_inexact:
                raise DTypeError(f"{user_source()}: {why}: {path} has type {t}, but what is solved for must be floating or "
                                 f"complex. Convert it to float.")

    def checked(self, found: Any, whose: str) -> Any:
        """What a function returned, at the types of the unknowns."""
        if innermost() is not None:
            why = f"{whose} of {self.why}"
            return self.tree(fitted(found, self.structure, self.types, "result", why, self.name))
        if flatten(found)[1] != self.structure:
            raise ArgumentError(f"{user_source()}: {whose} of {self.why} must return a result in the containers of "
                                f"{self.name}, {self.structure}, but returned {flatten(found)[1]}.")
        return found

    def solution(self, found: Any, whose: str, has_aux: bool) -> Any:
        """What a solver returned: a result, or that and something else."""
        if not has_aux:
            return self.checked(found, whose)
        if not isinstance(found, (tuple, list)) or len(found) != 2:
            raise ArgumentError(f"{user_source()}: {whose} of {self.why} with has_aux=True must return a pair (result, aux), "
                                f"got {type(found).__name__}.")
        return self.checked(found[0], whose), found[1]

    def tree(self, leaves: Sequence[Any]) -> Any:
        """Leaves in the containers of the unknowns."""
        return unflatten(self.structure, leaves)

    def region(self, f: Function, whose: str) -> Traced:
        """f as a region of the unknowns, of whose values Python sees nothing."""
        return region(lambda xs: f(self.tree(xs)), self.types, [None] * len(self.types), f"{whose} of {self.why}")


# ---- linear systems ---------------------------------------------------------------------------------
def custom_linear_solve(matvec: Function, b: Any, solve: Solver, transpose_solve: Solver | None = None,
                        symmetric: bool = False, has_aux: bool = False) -> Any:
    """solve(matvec, b), whose derivatives are those of the x with matvec(x) = b.

    matvec: a linear function of containers like b. solve(matvec, b) returns x with the structure, shapes and dtypes of b, and
    with has_aux a pair (x, anything), whose second part has no derivative. transpose_solve(vecmat, b), the same for the
    transposed system, is what reverse mode needs; symmetric=True: matvec is its own transpose, and solve serves both.
    Derivatives reach b and what matvec closes over; what only solve closes over (a preconditioner) they hold constant.
    Outside any trace solve is simply called. ArgumentError, ShapeError or DTypeError where a function returns what is not like
    b, GradientError for reverse mode without transpose_solve.

    >>> import loopwright as lw
    >>> a = np.array([[4.0, 1.0], [1.0, 3.0]])
    >>> def solution(b):
    ...     return custom_linear_solve(lambda x: a @ x, b, lambda matvec, b: np.linalg.solve(a, b), symmetric=True)
    >>> lw.jit(lw.grad(lambda b: solution(b)[0]))(np.ones(2)) * 11
    array([ 3., -1.])
    """
    why = f"custom_linear_solve of {name_of(matvec)}"
    unknowns = _Unknowns(b, "b", why)

    def solved(solver: Solver, system: Function, whose: str) -> Function:
        return lambda b: unknowns.solution(solver(system, b), whose, has_aux)
    if innermost() is None:
        return solved(solve, matvec, "solve")(b)
    made = [unknowns.region(lambda x: unknowns.checked(matvec(x), "matvec"), "matvec"),
            unknowns.region(solved(solve, matvec, "solve"), "solve")]
    if symmetric and transpose_solve is None:
        transpose_solve = solve
    if transpose_solve is not None:
        vecmat = matvec if symmetric else lambda y: linear_transpose(matvec, y)(y)[0]
        made += [unknowns.region(vecmat, "the transpose of matvec"),
                 unknowns.region(solved(transpose_solve, vecmat, "transpose_solve"), "transpose_solve")]
    count = len(unknowns.types)
    return unflatten(made[1].structure, emitted(linear_solve, unknowns.values, made, [(count, 0)] * len(made), why,
                                                vectors=count))


# ---- roots ------------------------------------------------------------------------------------------
def custom_root(f: Function, initial_guess: Any, solve: Solver, tangent_solve: Solver, has_aux: bool = False) -> Any:
    """solve(f, initial_guess), whose derivatives are those of the x with f(x) = 0, by the implicit function theorem.

    f takes and returns containers like initial_guess. solve(f, initial_guess) returns such a root, and with has_aux a pair
    (root, anything), whose second part has no derivative. tangent_solve(g, y) solves g(x) = y for a linear function g, the
    derivative of f at the root: `lambda g, y: y / g(1.0)` for a number, `lambda g, y: np.linalg.solve(jacfwd(g)(y), y)` for a
    vector. It must be linear in y, as reverse mode transposes it: iterative methods go through custom_linear_solve, and
    GradientError says where one surely should. Derivatives reach what f closes over; the guess, and what only the solvers
    close over, they hold constant. Outside any trace solve is simply called. ArgumentError, ShapeError or DTypeError where a
    function returns what is not like initial_guess.

    >>> import loopwright as lw
    >>> def newton(f, x):
    ...     return lw.lax.fori_loop(0, 20, lambda i, x: x - f(x) / lw.grad(f)(x), x)
    >>> def cube_root(a):
    ...     return custom_root(lambda x: x ** 3 - a, 1.0, newton, lambda g, y: y / g(1.0))
    >>> float(lw.grad(cube_root)(8.0)) * 12
    1.0
    """
    unknowns = _Unknowns(initial_guess, "initial_guess", f"custom_root of {name_of(f)}")

    def found(guess: Any) -> Any:
        return unknowns.solution(solve(f, guess), "solve", has_aux)
    if innermost() is None:
        return found(initial_guess)
    return _Root(f, unknowns, found, tangent_solve, has_aux).at(initial_guess)


class _Root:
    """A root, as a function of what the equations close over."""

    def __init__(self, f: Function, unknowns: _Unknowns, found: Function, tangent_solve: Solver, has_aux: bool) -> None:
        self.unknowns, self.found, self.tangent_solve, self.has_aux = unknowns, found, tangent_solve, has_aux
        self.equations = unknowns.region(lambda x: unknowns.checked(f(x), "f"), "f")

    def at(self, guess: Any) -> Any:
        """The root, where f stands."""
        settings = [Tracer(x) if isinstance(x, Ref) else x for x in self.equations.outer]
        return self._call(settings, guess)

    def _call(self, settings: list[Any], guess: Any) -> Any:
        if levels(self) < 1:
            return self.found(guess)
        return call_with_jvp(self, lambda _, guess: self.found(guess), self._rule, (settings, guess), self.unknowns.why,
                             constant=True)

    def _residual(self, settings: Sequence[Any], x: Any) -> Any:
        """f, of other values in place of those that it closes over."""
        here = innermost()
        assert here is not None
        refs = [as_ref(v, here) for v in [*flatten(x)[0], *settings]]
        return self.unknowns.tree([Tracer(y) for y in inline(self.equations.graph, refs, here)])

    def _rule(self, primals: tuple[Any, Any], tangents: tuple[Any, Any]) -> tuple[Any, Any]:
        """With F(m, x) = 0: dF/dx dx = -dF/dm dm."""
        (settings, guess), (moved, _) = primals, tangents
        result = self._call(settings, guess)
        x = result[0] if self.has_aux else result
        along = self._tangent(settings, moved, x)
        if not self.has_aux:
            return result, along
        leaves, structure = flatten(result[1])
        return result, (along, unflatten(structure, [xp.zeros_like(y) for y in leaves]))

    def _tangent(self, settings: Sequence[Any], moved: Sequence[Any], x: Any) -> Any:
        if not settings:
            return self.unknowns.tree([xp.zeros_like(y) for y in flatten(x)[0]])
        _, right = jvp(lambda *m: self._residual(m, x), tuple(settings), tuple(moved))
        _, g = linearize(lambda x: self._residual(settings, x), x)
        found = self.unknowns.checked(self.tangent_solve(g, right), "tangent_solve")
        return self.unknowns.tree([-y for y in flatten(found)[0]])

