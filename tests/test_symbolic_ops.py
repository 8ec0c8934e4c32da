"""The rules of every op on symbolic shapes: what they build verifies, and gives what they build on integer shapes."""
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright.ir.builder import build
from loopwright.ir.dims import symbol, symbol_of
from loopwright.ir.graph import Graph
from loopwright.ir.interpreter import evaluate as run
from loopwright.ir.op import Example, Op
from loopwright.ir.ops import TABLE
from loopwright.ir.parser import parse_type
from loopwright.ir.types import ArrayType
from loopwright.ir.verifier import verify
from tests.scale import examples
from tests.test_ops import Case, cases, derivative, vector_jacobian

# Without a second derivative in some operand, which GradientError says: tests/test_special.py has what they do.
REFUSING = {"zeta", "gammainc", "gammaincc", "gammainc_slope", "betainc"}
OPS = [pytest.param(op, id=name) for name, op in TABLE.items()
       if any(example.operands for example in op.examples) and name not in REFUSING]


def graph_of(op: Op, example: Example) -> Graph:
    """The op on its operands' symbolic types."""
    return build(lambda *refs: [op(*refs, **example.attrs)], [parse_type(text) for text in example.operands])


def moves(g: Graph) -> bool:
    return g.results[0].type.is_inexact and any(v.type.is_inexact for v in g.params)


def batched(op: Op, example: Example, mapped: tuple[bool, ...]) -> Graph:
    types = [parse_type(text) for text in example.operands]
    rows = [ArrayType((symbol("rows"), *t.shape), t.dtype) if m else t for t, m in zip(types, mapped, strict=True)]
    return build(lambda *refs: [op.batch(symbol("rows"), refs, mapped, **example.attrs)], rows)


@pytest.mark.parametrize("op", OPS)
def test_rules_on_symbolic_shapes_build_valid_graphs(op):
    for example in op.examples:
        g = graph_of(op, example)
        for mapped in itertools.product((True, False), repeat=len(g.params)):
            if any(mapped):
                stacked = batched(op, example, mapped)
                verify(stacked)
                assert stacked.results[0].type.shape == (symbol("rows"), *g.results[0].type.shape), example
        if moves(g):
            for graph in (derivative(g), derivative(derivative(g)), vector_jacobian(g)):
                verify(graph)


def is_bound(g: Graph) -> bool:
    """Whether the parameters' shapes tell every symbol."""
    told = {symbol_of(extent) for v in g.params for extent in v.type.shape}
    return set(g.symbols) <= told


def matching(op: Op, sizes: list[int], seed: int) -> list[tuple[Example, Case]]:
    """Each example that these sizes suit, with operands of them."""
    found = []
    for example in op.examples:
        single = Op(name=op.name, doc=op.doc, shape=op.shape, dtype=op.dtype, numpy=op.numpy, examples=(example,))
        found += [(example, case) for case in cases(single, sizes, seed)]
    return found


@pytest.mark.parametrize("op", [p for p in OPS if p.values[0].infer is None])
@examples(2)
@given(sizes=st.lists(st.integers(0, 4), min_size=9, max_size=9), seed=st.integers(0, 2**32 - 1))
def test_symbolic_derivatives_are_those_of_integer_shapes(op, sizes, seed):
    for example, case in matching(op, sizes, seed):
        g = graph_of(op, example)
        if moves(g) and is_bound(g):
            args = [np.ones(case.result.shape, case.result.dtype), *case.arrays]
            fixed = build(lambda *refs, case=case: [op(*refs, **case.attrs)], case.types)
            for got, want in zip(run(vector_jacobian(g), args), run(vector_jacobian(fixed), args), strict=True):
                np.testing.assert_array_equal(got, want, err_msg=str(case))
