"""Whole derivative matrices: jacfwd, jacrev, hessian, by `vmap` of a pushforward or a pullback over basis vectors."""
from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from loopwright.autodiff.calls import Function, applied, operands, part, rebuilt, type_of
from loopwright.autodiff.jvp import tangent_type, zeros
from loopwright.ir.builder import Builder, Ref, innermost
from loopwright.ir.dims import Extent
from loopwright.ir.errors import GradientError
from loopwright.ir.ops.comparison import eq
from loopwright.ir.ops.construct import iota
from loopwright.ir.ops.selection import convert
from loopwright.ir.ops.structural import reshape
from loopwright.ir.source import user_source
from loopwright.ir.tracebacks import user_frames
from loopwright.ir.types import COMPLEX, I64, ArrayType
from loopwright.tracer.pytree import Structure, flatten, paths, unflatten
from loopwright.tracer.tracer import Tracer
from loopwright.transforms import check_input, check_output, linearize_of, vjp_of, vmap


def jacfwd(f: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False) -> Function:
    """A function that gives the Jacobian of f, every column at once, by forward mode: good where inputs are few.

    The result has f's container; in place of each array it holds the container of the arguments, with arrays of shape
    (*result, *argument).

    >>> jacfwd(lambda x: x * x)(np.arange(2.0))
    array([[0., 0.],
           [0., 2.]])
    """
    why = applied("jacfwd", f)

    @functools.wraps(f, updated=())
    @user_frames()
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        some = part(f, argnums, args, kwargs, why)
        types = [type_of(x) for x in some.values]
        for t, name in zip(types, some.names, strict=True):
            check_input(t, name, why, holomorphic, allow_int=False)
            if t.dtype in COMPLEX and not holomorphic:
                raise GradientError(f"{user_source()}: {why}: {name} has type {t}: pass holomorphic=True, or use jacrev.")
        result, push, *aux = linearize_of(some, has_aux, why)
        leaves, structure = flatten(result)
        columns = [(c, _shape(some.leaves[k]))
                   for c, k in zip(_on_basis(lambda t: push(*t), types, some.structure, -1), some.places, strict=False)]
        rows = [[np.reshape(c[j], (*_shape(y), *shape)) for c, shape in columns] for j, y in enumerate(leaves)]
        found = unflatten(structure, [rebuilt(some, argnums, row) for row in rows])
        return (found, *aux) if has_aux else found
    return jacobian


def jacrev(f: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False,
           allow_int: bool = False) -> Function:
    """A function that gives the Jacobian of f, every row at once, by reverse mode: good where results are few. See jacfwd.

    >>> jacrev(lambda x: x * x)(np.arange(2.0))
    array([[0., 0.],
           [0., 2.]])
    """
    why = applied("jacrev", f)

    @functools.wraps(f, updated=())
    @user_frames()
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        some = part(f, argnums, args, kwargs, why)
        for x, name in zip(some.values, some.names, strict=True):
            check_input(type_of(x), name, why, holomorphic, allow_int)
        result, pull, *aux = vjp_of(some, has_aux, why)
        leaves, structure = flatten(result)
        types = [type_of(x) for x in operands(leaves, paths(structure, "result"), why)]
        for t in types:
            check_output(t, why, holomorphic)
        rows = _on_basis(pull, types, structure, 0)
        found = [rebuilt(some, argnums, [np.reshape(x, (*_shape(y), *_shape(x)[1:])) for x in row])
                 for row, y in zip(rows, leaves, strict=True)]
        return (unflatten(structure, found), *aux) if has_aux else unflatten(structure, found)
    return jacobian


def hessian(f: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False) -> Function:
    """A function that gives the matrix of second derivatives of f, as jacfwd of jacrev.

    >>> hessian(lambda x: x[0] * x[1])(np.ones(2))
    array([[0., 1.],
           [1., 0.]])
    """
    return jacfwd(jacrev(f, argnums, has_aux, holomorphic), argnums, has_aux, holomorphic)


def _on_basis(linear: Function, types: Sequence[ArrayType], structure: Structure, axis: int) -> list[list[Any]]:
    """For each leaf of its argument, the leaves of a linear function of every basis vector, which are along `axis`."""
    def along(k: int) -> Function:
        def one(e: Any) -> Any:
            around = innermost()
            assert around is not None
            rest = [e if i == k else Tracer(zeros(tangent_type(t), around)) for i, t in enumerate(types)]
            return flatten(linear(unflatten(structure, rest)))[0]
        return one
    return [vmap(along(k), out_axes=axis)(_basis(t)) for k, t in enumerate(types)]


def _basis(t: ArrayType) -> Any:
    """Every basis vector of the arrays of type t, along a new axis in front."""
    fixed = [n for n in t.shape if isinstance(n, int)]
    if len(fixed) == t.rank:
        return np.eye(math.prod(fixed), dtype=t.dtype).reshape(-1, *fixed) if 0 not in fixed else np.zeros((0, *fixed), t.dtype)
    around = innermost()
    assert around is not None, "symbolic sizes belong to a trace"
    return Tracer(reshape(convert(_diagonal(t.size, around), dtype=t.dtype), shape=(t.size, *t.shape)))


def _diagonal(n: Extent, into: Builder) -> Ref:
    row, column = (iota(into=into, shape=(n, n), axis=axis, dtype=I64) for axis in (0, 1))
    return eq(row, column)


def _shape(x: Any) -> tuple[Any, ...]:
    return getattr(x, "shape", ())
