"""Every rule of every op against NumPy, differences and each other, from the op's examples alone: no op is named here."""
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright.autodiff.jvp import push, tangent_type, zeros
from loopwright.autodiff.linearize import linearize, pull_back
from loopwright.autodiff.transpose import is_elementwise
from loopwright.ir.attributes import extents_in, map_extents
from loopwright.ir.builder import Ref, build
from loopwright.ir.dims import evaluate, symbols_in
from loopwright.ir.errors import GradientError, ShapeError
from loopwright.ir.graph import Graph
from loopwright.ir.interpreter import evaluate as run
from loopwright.ir.loop_interpreter import run_loop
from loopwright.ir.op import Example, Op
from loopwright.ir.ops import TABLE
from loopwright.ir.parser import parse_type
from loopwright.ir.types import BF16, C64, C128, F16, F32, F64, ArrayType, is_inexact
from tests.scale import examples

OPS = [pytest.param(op, id=name) for name, op in TABLE.items() if op.examples]
TOLERANCE = {F16: 2e-2, BF16: 1e-1, F32: 2e-5, C64: 2e-5, F64: 1e-9, C128: 1e-9}
STEP = 1e-6
draws = given(sizes=st.lists(st.integers(0, 4), min_size=9, max_size=9), seed=st.integers(0, 2**32 - 1))


# ---- examples as arrays ---------------------------------------------------------------------------
@dataclass(frozen=True)
class Case:
    """One example at one choice of sizes: operands, and others like them that move (directions, further rows)."""

    op: Op
    attrs: Mapping[str, Any]
    types: tuple[ArrayType, ...]
    rows: tuple[tuple[np.ndarray, ...], ...]

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        return self.rows[0]

    @property
    def result(self) -> ArrayType:
        return self.op.result_types(self.types, (), self.attrs)[0]

    def meaning(self, *arrays: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return np.asarray(self.op.numpy(*arrays, **self.attrs))

    def graph(self) -> Graph:
        return build(lambda *refs: [self.op(*refs, **self.attrs)], self.types)

    def __str__(self) -> str:
        return f"{self.op} {', '.join(map(str, self.types))} {dict(self.attrs)}"


def draw(rng: np.random.Generator, t: ArrayType) -> np.ndarray:
    """Plain numbers of a type."""
    match t.dtype.kind:
        case "b":
            return np.asarray(rng.integers(0, 2, t.shape)).astype(bool)
        case "i" | "u":
            return np.asarray(rng.integers(-4 if t.dtype.kind == "i" else 0, 5, t.shape)).astype(t.dtype)
        case "c":
            return np.asarray(rng.normal(size=t.shape) + 1j * rng.normal(size=t.shape)).astype(t.dtype)
    return np.asarray(rng.normal(size=t.shape)).astype(t.dtype)


def symbols_of(example: Example) -> list[str]:
    extents = [n for text in example.operands for n in parse_type(text).shape]
    extents += [n for a in example.attrs.values() for n in extents_in(a)]
    return sorted({s for n in extents for s in symbols_in(n)})


def cases(op: Op, sizes: list[int], seed: int) -> Iterator[Case]:
    """Every example of op at these sizes, but those whose sizes the op refuses."""
    rng = np.random.default_rng(seed)
    for example in op.examples:
        at = dict(zip(symbols_of(example), sizes[1:], strict=False))
        attrs = {k: map_extents(a, at) for k, a in example.attrs.items()}
        types = tuple(concrete(parse_type(text), at) for text in example.operands)
        try:
            op.result_types(types, (), attrs)
        except ShapeError:
            assert 0 in at.values(), f"{op}: {example} is refused at {at}"
            continue
        rows = tuple(tuple(np.asarray(example.draw.get(k, draw)(rng, t)) for k, t in enumerate(types))
                     for _ in range(max(sizes[0], 1)))
        yield Case(op, attrs, types, rows)


def concrete(t: ArrayType, sizes: Mapping[str, int]) -> ArrayType:
    return ArrayType(tuple(evaluate(n, sizes) for n in t.shape), t.dtype)


def assert_close(got: np.ndarray, want: np.ndarray, case: Case, slack: float = 1.0) -> None:
    """Equal up to rounding at the coarsest inexact dtype that takes part."""
    assert got.dtype == want.dtype and got.shape == want.shape, f"{case}: {got.dtype}{got.shape}, {want.dtype}{want.shape}"
    taking_part = [t.dtype for t in (*case.types, case.result)]
    tolerance = slack * max((TOLERANCE.get(d, 0.0) for d in taking_part), default=0.0)
    wide = np.complex128 if want.dtype.kind == "c" else np.float64 if is_inexact(want.dtype) else want.dtype
    np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=tolerance, atol=tolerance, err_msg=str(case))


# ---- derivatives of graphs --------------------------------------------------------------------------
def derivative(g: Graph) -> Graph:
    """g's parameters, then tangents of the inexact ones -> tangents of the results, zeros made explicit."""
    types = [v.type for v in g.params]
    moving = [tangent_type(t) for t in types if t.is_inexact]

    def rule(*refs: Ref) -> list[Ref]:
        primals, rest = refs[:len(types)], iter(refs[len(types):])
        tangents = [next(rest) if t.is_inexact else None for t in types]
        results, moved = push(g, primals, tangents, refs[0].builder)
        return [zeros(y.type, y.builder) if t is None else t for y, t in zip(results, moved, strict=True)]

    return build(rule, [*types, *moving])


def vector_jacobian(g: Graph) -> Graph:
    """A cotangent of the one result, then g's parameters -> cotangents of the inexact parameters."""
    def rule(ct: Ref, *primals: Ref) -> list[Ref]:
        into = ct.builder
        active = [x.type.is_inexact for x in primals]
        _, linear = linearize(g, primals, active, into)
        cotangents = pull_back(linear, [ct], into)
        return [zeros(x.type, into) if c is None else c for x, c in zip(primals, cotangents, strict=True) if x.type.is_inexact]

    return build(rule, [tangent_type(g.results[0].type), *(v.type for v in g.params)])


def is_smooth(case: Case) -> bool:
    """Whether differences are worth taking: everything inexact is in double precision, and something moves."""
    inexact = [t.dtype for t in (*case.types, case.result) if t.is_inexact]
    return case.result.is_inexact and any(t.is_inexact for t in case.types) and set(inexact) <= {F64, C128}


def direction(rng: np.random.Generator, g: Graph, shapes: list[np.ndarray]) -> list[np.ndarray | None]:
    return [draw(rng, ArrayType(x.shape, x.dtype)) if v.type.is_inexact else None
            for v, x in zip(g.params, shapes, strict=True)]


def assert_derivative(g: Graph, arrays: list[np.ndarray], case: Case, rng: np.random.Generator,
                      slack: float) -> list[np.ndarray]:
    """g's derivative along a random direction is its central difference; the operands of the derivative come back."""
    along = direction(rng, g, arrays)

    def moved(h: float) -> np.ndarray:
        return run(g, [x if d is None else np.asarray(x + h * d) for x, d in zip(arrays, along, strict=True)])[0]

    difference = (moved(STEP) - moved(-STEP)) / (2 * STEP)
    point = [*arrays, *(d for d in along if d is not None)]
    assert_close(run(derivative(g), point)[0], np.asarray(difference), case, slack)
    return point


def pairing(a: np.ndarray, b: np.ndarray) -> float:
    """The bilinear product that transposes keep; of complex numbers the real part, without conjugates."""
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    return float(np.sum(a.astype(wide) * b.astype(wide)).real)


# ---- the rules ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("op", OPS)
@examples(6)
@draws
def test_types_are_those_of_the_numpy_meaning(op, sizes, seed):
    for case in cases(op, sizes, seed):
        arrays = [x.copy() for x in case.arrays]
        with np.errstate(all="ignore"):
            out = op.numpy(*arrays, **case.attrs)
        outs = out if isinstance(out, tuple) else (out,)
        types = op.result_types(case.types, (), case.attrs)
        assert [(np.shape(y), y.dtype) for y in outs] == [(t.shape, t.dtype) for t in types], case
        for x, before in zip(arrays, case.arrays, strict=True):
            np.testing.assert_array_equal(x, before, err_msg=f"{case} wrote its operand")


@pytest.mark.parametrize("op", OPS)
@examples(6)
@draws
def test_symbolic_types_hold_for_every_size(op, sizes, seed):
    for example in op.examples:
        at = dict(zip(symbols_of(example), sizes, strict=False))
        symbolic = op.result_types([parse_type(text) for text in example.operands], (), example.attrs)
        attrs = {k: map_extents(a, at) for k, a in example.attrs.items()}
        try:
            types = op.result_types([concrete(parse_type(text), at) for text in example.operands], (), attrs)
        except ShapeError:
            continue  # this size is refused: there is no type to agree with
        assert [concrete(t, at).shape for t in symbolic] == [t.shape for t in types], example


@pytest.mark.parametrize("op", OPS)
@examples(5)
@draws
def test_loop_rule_is_the_numpy_meaning(op, sizes, seed):
    if op.loop is None:
        return  # a library call
    for case in cases(op, sizes, seed):
        with np.errstate(all="ignore"):
            assert_close(run_loop(op, case.arrays, **case.attrs), case.meaning(*case.arrays), case)


def has_every_derivative(case: Case) -> bool:
    """Whether no rule refuses a derivative to second order; those that do have tests of their own (test_special.py)."""
    try:
        derivative(derivative(case.graph()))
    except GradientError:
        return False
    return True


@pytest.mark.parametrize("op", OPS)
@examples(4)
@draws
def test_derivatives_to_second_order_are_differences(op, sizes, seed):
    for case in filter(is_smooth, cases(op, sizes, seed)):
        if not has_every_derivative(case):
            continue
        rng = np.random.default_rng(seed)
        g = case.graph()
        point = assert_derivative(g, list(case.arrays), case, rng, 1e4)
        assert_derivative(derivative(g), point, case, rng, 1e5)


@pytest.mark.parametrize("op", OPS)
@examples(4)
@draws
def test_reverse_mode_is_the_transpose_of_forward_mode(op, sizes, seed):
    for case in filter(is_smooth, cases(op, sizes, seed)):
        if not has_every_derivative(case):
            continue
        rng = np.random.default_rng(seed)
        g = case.graph()
        ct = draw(rng, case.result)
        along = [d for d in direction(rng, g, list(case.arrays)) if d is not None]
        forward = run(derivative(g), [*case.arrays, *along])[0]
        back = run(vector_jacobian(g), [ct, *case.arrays])
        want, got = pairing(ct, forward), sum(pairing(c, d) for c, d in zip(back, along, strict=True))
        assert math.isclose(got, want, rel_tol=1e-8, abs_tol=1e-8), f"{case}: {got} {want}"


@pytest.mark.parametrize("op", OPS)
@examples(4)
@draws
def test_transposes_keep_the_inner_product(op, sizes, seed):
    for case in cases(op, sizes, seed):
        for k in op.linear:
            if k < len(case.types) and case.types[k].is_inexact and case.result.is_inexact:
                assert_transposed(case, k, np.random.default_rng(seed))


def assert_transposed(case: Case, k: int, rng: np.random.Generator) -> None:
    """<ct, f(d)> == <transpose(ct), d> in operand k."""
    op, unknown = case.op, case.op.linear if case.op.jointly else (k,)
    d, ct = draw(rng, case.types[k]), draw(rng, case.result)
    others = [np.zeros_like(x) if i in unknown else x for i, x in enumerate(case.arrays)]
    forward = case.meaning(*others[:k], d, *others[k + 1:])

    def rule(ct: Ref, *refs: Ref) -> list[Ref]:
        return [op.transpose[k](ct, *(r.type if i in unknown else r for i, r in enumerate(refs)), **case.attrs)]

    (back,) = run(build(rule, [case.result, *case.types]), [ct, *case.arrays])
    assert (back.shape, back.dtype) == (d.shape, d.dtype), f"{case}: transpose {k} is {back.dtype}{back.shape}"
    scale = max(TOLERANCE[case.types[k].dtype], TOLERANCE[case.result.dtype])
    size = float(np.sum(np.abs(ct.astype(np.complex128) * forward.astype(np.complex128)))) + 1
    assert math.isclose(pairing(ct, forward), pairing(back, d), rel_tol=0, abs_tol=4 * scale * size), f"{case}, operand {k}"


@pytest.mark.parametrize("op", [p for p in OPS if p.values[0].jointly and not is_elementwise(p.values[0])])
@examples(4)
@draws
def test_masks_move_through_sums(op, sizes, seed):
    """What the transpose of a jointly linear op makes of a mask is nowhere zero where a masked cotangent arrives."""
    rng = np.random.default_rng(seed)
    for case in cases(op, sizes, seed):
        for k in op.linear:
            if k < len(case.types) and case.types[k].is_inexact:
                def rule(ct: Ref, *refs: Ref, case: Case = case, k: int = k) -> list[Ref]:
                    args = [r.type if i in case.op.linear else r for i, r in enumerate(refs)]
                    return [case.op.transpose[k](ct, *args, **case.attrs)]
                g = build(rule, [case.result, *case.types])
                mask = (rng.random(case.result.shape) < 0.4).astype(case.result.dtype)
                (places,), (arriving,) = (run(g, [ct, *case.arrays]) for ct in (mask, mask * draw(rng, case.result)))
                assert np.all((places != 0) | (arriving == 0)), f"{case}, operand {k}"


@pytest.mark.parametrize("op", OPS)
@examples(4)
@draws
def test_batching_is_stacking(op, sizes, seed):
    for case in cases(op, sizes, seed):
        for mapped in itertools.product((True, False), repeat=len(case.types)):
            if any(mapped):
                assert_batched(case, mapped, sizes[0])


def assert_batched(case: Case, mapped: tuple[bool, ...], size: int) -> None:
    """The batch rule on rows that are stacked, against each row alone. Size 0 has the right shape."""
    args = [np.stack([row[k] for row in case.rows])[:size] if m else x
            for k, (x, m) in enumerate(zip(case.arrays, mapped, strict=True))]

    def rule(*refs: Ref) -> list[Ref]:
        return [case.op.batch(size, refs, mapped, **case.attrs)]

    want = [case.meaning(*(row[k] if m else case.arrays[k] for k, m in enumerate(mapped))) for row in case.rows]
    (got,) = run(build(rule, [ArrayType(x.shape, x.dtype) for x in args]), args)
    assert_close(got, np.stack(want)[:size], case)


@pytest.mark.parametrize("op", [pytest.param(op, id=name) for name, op in TABLE.items()])
def test_every_op_states_its_rules(op):
    assert op.doc
    assert op.examples or op.infer is not None, "an op without regions has examples"
    for example in op.examples:
        types = [parse_type(text) for text in example.operands]
        inexact = any(t.is_inexact for t in types) and op.result_types(types, (), example.attrs)[0].is_inexact
        assert not inexact or op.jvp is not None or op.linear, f"{op} has no derivative for {example}"


