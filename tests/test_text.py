"""Graphs and their text: what is printed reads back, and what does not read says where."""
import dataclasses
import enum
import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright.ir.attributes import attribute_key
from loopwright.ir.dims import symbol
from loopwright.ir.errors import ParseError
from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.op import Op
from loopwright.ir.parser import parse, parse_extent, parse_type
from loopwright.ir.printer import print_graph
from loopwright.ir.types import DTYPES, F32, F64, ArrayType
from loopwright.ir.verifier import verify
from tests.programs import programs
from tests.scale import examples
from tests.test_dims import extents

MLP = """\
graph<n, m>(%x0: f32[n, 784], %x1: f32[784, m], %x2: f32[m]) where n >= 2, m >= 2 {
  %0: f32[n, m] = dot_general(%x0, %x1) {contract=((1, 0),), batch=()}
  %1: f32[n, m] = broadcast(%x2) {shape=(n, m), axes=(1,)}
  %2: f32[n, m] = add(%0, %1)
  %3: f32[n, m] = tanh(%2)
  return %3
}"""


class Kind(enum.Enum):
    """An attribute for the tests."""

    PLAIN = 1


@dataclasses.dataclass(frozen=True)
class Step:
    """An attribute for the tests."""

    axis: int
    kind: Kind
    parts: tuple


CLASSES = {"Kind": Kind, "Step": Step}
note = Op(name="note", doc="An op for the tests: any attributes and regions.", numpy=lambda *args, **attrs: args,
          infer=lambda types, regions, **attrs: tuple(types))


def noted(**attrs) -> Graph:
    return Graph((), (Node(note, (), attrs, ()),), ())


def read(text: str) -> Graph:
    return parse(text, ops={"note": note}, classes=CLASSES)


def test_the_form_of_a_graph():
    assert print_graph(verify(parse(MLP))) == MLP
    assert str(parse(MLP)) == MLP


@examples(150)
@given(program=programs())
def test_random_programs_read_back(program):
    assert parse(str(program.graph)) == program.graph


@examples(200)
@given(bits=st.integers(0, 2**64 - 1), more=st.floats(), whole=st.integers())
def test_numbers_are_exact(bits, more, whole):
    x = struct.unpack("<d", struct.pack("<Q", bits))[0]
    g = noted(a=x, b=(x, -more), c=complex(x, more), d=whole, e=more)
    assert read(str(g)) == g


@pytest.mark.parametrize("x", [0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, 1.7976931348623157e308, 1e16, 0.1])
def test_special_floats(x):
    g = noted(a=x, b=complex(-0.0, x))
    assert read(str(g)) == g
    assert read(str(g)) != noted(a=-x, b=complex(-0.0, x))


def test_signalling_nan_keeps_its_bits():
    x = struct.unpack("<d", struct.pack("<Q", 0xFFF0000000000001))[0]
    back = read(str(noted(a=x))).nodes[0].attrs["a"]
    assert attribute_key(back) == attribute_key(x)


attributes = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(DTYPES) | extents
    | st.builds(complex, st.floats(), st.floats()) | st.just(Kind.PLAIN),
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.builds(
        Step, axis=st.integers(), kind=st.just(Kind.PLAIN), parts=st.lists(inner, max_size=2).map(tuple)),
    max_leaves=6)


@examples(200)
@given(a=attributes, b=attributes)
def test_every_attribute_reads_back(a, b):
    g = noted(a=a, b=b)
    assert read(str(g)) == g
    assert (noted(a=a) == noted(a=b)) == (attribute_key(a) == attribute_key(b) and noted(a=a).key == noted(a=b).key)


@examples(100)
@given(x=extents)
def test_extents_read_back(x):
    assert parse_extent(str(x)) == x
    t = ArrayType((x, 3), F32, False)
    assert parse_type(str(t)) == t


def test_types():
    assert parse_type("weak_f64[]") == ArrayType((), F64, True)
    assert parse_type("f32[n, 2*n + 1]") == ArrayType((symbol("n"), symbol("n") * 2 + 1), F32)


@pytest.mark.parametrize("name", ["f32", "min", "where", "True", "n.m", "größe", "a b", "0", "divides", "inf"])
def test_symbols_that_the_text_cannot_carry(name):
    x = Value(ArrayType((symbol(name), symbol("n")), F32))
    g = Graph((x,), (Node(note, (x,), {"size": symbol(name) * 2, "n": symbol("n")}, (Value(x.type),)),), (x,))
    assert read(str(g)) == g


def test_regions_and_several_results():
    text = """\
graph<n>(%x0: f32[n], %x1: f32[n]) where n >= 2, 2 divides n, n != 6 {
  %0: f32[n], %1: f32[n] = note(%x0, %x1) {name="a \\"b\\" \\n", weak=True} [
    graph<n>(%x0: f32[n]) {
      %0: f32[n] = exp(%x0)
      return %0
    },
    graph() {
      note()
      return
    },
  ]
  return %1, %0, %x0
}"""
    g = read(text)
    assert str(g) == text and read(str(g)) == g
    assert len(g.nodes[0].outputs) == 2 and len(g.nodes[0].regions) == 2


def test_comments_and_names_are_free():
    text = MLP.replace("%3", "%out").replace("%0", "%dot").replace("{\n", "{  # a layer\n", 1)
    assert parse(text) == parse(MLP)


@pytest.mark.parametrize(("text", "line", "column", "message"), [
    ("graph(%x: f32[n]) {\n  return %x\n}", 1, 15, "declares no symbol n"),
    ("graph(%x: f32[3]) {\n  return %y\n}", 2, 10, "%y is not defined"),
    ("graph(%x: f32[3]) {\n  %0: f32[3] = sinn(%x)\n  return %0\n}", 2, 16, "there is no op sinn"),
    ("graph(%x: f32[3]) {\n  %x: f32[3] = sin(%x)\n  return %x\n}", 2, 3, "%x is defined twice"),
    ("graph(%x: f33[3]) {\n  return %x\n}", 1, 11, "f33 is not a dtype"),
    ("graph(%x: f32[3] {\n  return %x\n}", 1, 18, "expected ','"),
    ("graph(%x: f32[3]) {\n  return %x\n", 3, 1, "end of the text"),
    ("graph(%x: f32[3]) {\n  return %x\n} }", 3, 3, "expected the end of the text"),
    ("graph<n>(%x: f32[3]) {\n  return %x\n}", 3, 1, "symbol n is declared but not used"),
    ("graph(%x: f32[3]) {\n  return ?\n}", 2, 10, "unexpected character '?'"),
    ("graph<n>(%x: f32[n]) where n > 3 {\n  return %x\n}", 1, 30, "expected one of ==, !=, <=, >=, divides, got '>'"),
])
def test_errors_say_where(text, line, column, message):
    with pytest.raises(ParseError) as caught:
        parse(text)
    shown = str(caught.value).splitlines()
    assert message in shown[0] and shown[0].startswith(f"line {line}, column {column}:"), caught.value
    assert shown[1].strip() == text.splitlines()[line - 1].strip() if line <= len(text.splitlines()) else True
    assert shown[2].index("^") == 4 + column - 1
