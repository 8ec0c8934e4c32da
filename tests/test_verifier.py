"""Each invariant that the verifier lists, broken once."""
import numpy as np
import pytest

from loopwright.ir.dims import symbol
from loopwright.ir.errors import VerificationError
from loopwright.ir.facts import Constraint
from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.op import Op
from loopwright.ir.ops import TABLE
from loopwright.ir.parser import parse
from loopwright.ir.types import F32, F64, I32, ArrayType
from loopwright.ir.verifier import verify

n, m = symbol("n"), symbol("m")
VECTOR = ArrayType((n,), F64)
sin, add = TABLE["sin"], TABLE["add"]
region_op = Op(name="region_op", doc="An op with a region, for the tests.", numpy=lambda *args, **attrs: args,
               infer=lambda types, regions, **attrs: tuple(v.type for r in regions for v in r.results))


def node(op=sin, inputs=(), attrs=None, output=VECTOR, regions=()):
    return Node(op, tuple(inputs), attrs or {}, (Value(output),), regions)


def fails(g: Graph, message: str) -> str:
    with pytest.raises(VerificationError) as caught:
        verify(g)
    assert message in str(caught.value), caught.value
    assert str(caught.value).count("graph") >= 1
    return str(caught.value)


def test_a_valid_graph_comes_back():
    x = Value(VECTOR)
    one = node(inputs=(x,))
    g = Graph((x,), (one,), one.outputs)
    assert verify(g) is g


def test_a_value_is_defined_before_it_is_used():
    x = Value(VECTOR)
    first, second = node(inputs=(x,)), node(inputs=(x,))
    late = Node(sin, second.outputs, {}, first.outputs)
    text = fails(Graph((x,), (late, second), late.outputs), "operand 0 is not defined before this node")
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if line.strip().startswith("^"))
    assert "sin(%?)" in lines[at - 1]


def test_a_value_is_defined_once():
    x = Value(VECTOR)
    one = node(inputs=(x,))
    fails(Graph((x,), (one, one), one.outputs), "output 0 is defined twice")
    fails(Graph((x, x), (), (x,)), "parameter 1 is parameter 0 again")
    fails(Graph((x,), (Node(sin, (x,), {}, (x,)),), (x,)), "output 0 is defined twice")


def test_a_graph_uses_only_its_own_values():
    x, free = Value(VECTOR), Value(VECTOR)
    fails(Graph((x,), (node(add, (x, free)),), (x,)), "operand 1 is not defined")
    fails(Graph((x,), (), (free,)), "result 0 is not a value of its graph")


def test_regions_are_closed():
    x = Value(VECTOR)
    inner = node(inputs=(x,))
    outer = node(region_op, (x,), regions=(Graph((), (inner,), inner.outputs),))
    fails(Graph((x,), (outer,), outer.outputs), "in a region: operand 0 is not defined")


def test_a_region_uses_symbols_of_the_graph_around_it():
    x = Value(VECTOR)
    inner = node(TABLE["full"], attrs={"value": 0.0, "shape": (m,), "dtype": F64}, output=ArrayType((m,), F64))
    total = node(TABLE["reduce_sum"], inner.outputs, {"axes": (0,)}, ArrayType((), F64))
    outer = node(region_op, (x,), output=ArrayType((), F64), regions=(Graph((), (inner, total), total.outputs),))
    fails(Graph((x,), (outer,), outer.outputs), "a region uses m")


@pytest.mark.parametrize("wrong", [
    ArrayType((n,), F32), ArrayType((m,), F64), ArrayType((n, 1), F64), ArrayType((n,), F64, True)])
def test_outputs_have_the_inferred_types(wrong):
    x = Value(VECTOR)
    one = node(inputs=(x,), output=wrong)
    fails(Graph((x,), (one,), one.outputs), f"output 0 is declared {wrong}, sin gives f64[n]")


def test_the_number_of_outputs():
    x = Value(VECTOR)
    fails(Graph((x,), (Node(sin, (x,), {}, ()),), (x,)), "gives 1 results, the node has 0")


@pytest.mark.parametrize("attribute", [[1], {"a": 1}, np.float32(1.0), lambda: 0, (1, [2]), object()])
def test_attributes_are_in_the_closed_set(attribute):
    x = Value(VECTOR)
    one = node(region_op, (x,), {"note": attribute}, regions=(Graph((x,), (), (x,)),))
    fails(Graph((x,), (one,), one.outputs), "attribute note")


def test_operands_must_suit_the_op():
    x, y = Value(VECTOR), Value(ArrayType((n,), I32))
    fails(Graph((x, y), (node(add, (x, y)),), (x,)), "add refuses its operands")
    fails(Graph((x,), (node(add, (x,)),), (x,)), "add takes 2 operands, got 1")
    fails(Graph((x,), (node(sin, (x,), {"axis": 0}),), (x,)), "sin does not take these")
    fails(Graph((x,), (node(TABLE["transpose"], (x,), {"axis": 0}),), (x,)), "transpose does not take these")
    fails(Graph((x,), (node(TABLE["reduce_sum"], (x,), {"axes": (3,)}, ArrayType((), F64)),), (x,)), "refuses its operands")
    fails(Graph((x,), (node(TABLE["reduce_sum"], (x,), {}, ArrayType((), F64)),), (x,)), "does not take these")


@pytest.mark.parametrize("extent", [-1, 1.5, True, np.int64(3), "n"])
def test_extents_are_sizes(extent):
    fails(Graph((Value(ArrayType((extent,), F64)),), (), ()), "parameter 0: extent")


def test_dtypes_are_known():
    fails(Graph((Value(ArrayType((), np.dtype("float128"))),), (), ()), "is not a dtype of the IR")


def test_constraints_have_known_relations():
    x = Value(VECTOR)
    fails(Graph((x,), (), (x,), (Constraint("<", n, 3),)), "constraint relation '<'")


def test_types_are_compared_under_the_facts():
    text = """graph<n, h, m>(%x: f64[n], %y: f64[m]) where h divides n, n == m {
      %0: f64[h, floordiv(n, h)] = reshape(%x) {shape=(h, floordiv(n, h))}
      %1: f64[n] = reshape(%0) {shape=(m,)}
      %2: f64[m] = add(%1, %y)
      return %2
    }"""
    verify(parse(text))
    fails(parse(text.replace(" where h divides n, n == m", "")), "refuses its operands")
