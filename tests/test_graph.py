"""Graphs compare by structure; the interpreter checks what it is given; attributes compare by bits."""
import struct

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from loopwright.ir.attributes import attribute_key
from loopwright.ir.builder import build
from loopwright.ir.dims import symbol, symbols_in
from loopwright.ir.errors import ArgumentError, ShapeError
from loopwright.ir.graph import Graph, Node, Value, substitute_graph
from loopwright.ir.interpreter import bind_sizes, evaluate
from loopwright.ir.ops import TABLE
from loopwright.ir.parser import parse
from loopwright.ir.types import F32, F64, I64, ArrayType
from loopwright.ir.verifier import verify
from tests.programs import outcome, programs, same_bits
from tests.scale import examples

n, m = symbol("n"), symbol("m")
x, y = ArrayType((n, m), F64), ArrayType((m, n), F64)


def full(value, dtype=F64) -> Graph:
    out = Value(ArrayType((3,), dtype))
    return Graph((), (Node(TABLE["full"], (), {"value": value, "shape": (3,), "dtype": dtype}, (out,)),), (out,))


@examples(100)
@given(program=programs(), names=st.permutations(("p", "q", "r", "s", "t", "u", "v")))
def test_names_of_symbols_do_not_matter(program, names):
    g = program.graph
    renamed = substitute_graph(g, {s: symbol(f"{name}_") for s, name in zip(g.symbols, names, strict=False)})
    assert renamed == g and hash(renamed) == hash(g)
    assert len(renamed.symbols) == len(g.symbols)


def test_swapped_names_are_equal_only_where_roles_are():
    def square(a, b):
        return build(lambda v, w: [TABLE["reshape"](v, shape=(a * b,))], [ArrayType((a, b), F64), ArrayType((a,), F64)])
    assert square(n, m) == square(m, n)
    other = build(lambda v, w: [TABLE["reshape"](v, shape=(n * m,))], [ArrayType((n, m), F64), ArrayType((m,), F64)])
    assert square(n, m) != other


@examples(100)
@given(a=st.integers(0, 2**64 - 1), b=st.integers(0, 2**64 - 1))
def test_constants_differ_by_any_bit(a, b):
    p, q = (struct.unpack("<d", struct.pack("<Q", bits))[0] for bits in (a, b))
    assert (full(p) == full(q)) == (a == b)


def test_equal_numbers_of_different_kinds_differ():
    assert full(0.0) != full(-0.0)
    assert full(1, I64) != full(1.0, I64) != full(True, I64) != full(1, I64)
    assert full(float("nan")) == full(float("nan"))
    assert attribute_key(complex(0.0, -0.0)) != attribute_key(complex(0.0, 0.0))


def test_every_part_counts():
    text = "graph<n, m>(%x: f64[n, m], %y: f64[n, m]) where n >= 2 {\n  %0: f64[n, m] = sub(%x, %y)\n  return %0, %x\n}"
    g = parse(text)
    assert parse(text) == g and hash(parse(text)) == hash(g)
    for old, new in (("n >= 2", "n >= 3"), ("sub(%x, %y)", "sub(%y, %x)"), ("sub(", "add("), ("%0, %x", "%x, %0"),
                     (" where n >= 2", ""), ("f64", "f32"), (", %x\n", "\n"), ("%y: f64[n, m]", "%y: f64[n, n]")):
        assert parse(text.replace(old, new)) != g, new


def test_symbols_stand_in_order_of_appearance():
    g = build(lambda v, w: [TABLE["broadcast"](w, shape=(symbol("a"), m), axes=(1,))], [x, ArrayType((m,), F64)])
    assert g.symbols == ("n", "m", "a")


@examples(60)
@given(program=programs(), seed=st.integers(0, 2**32 - 1))
def test_sizes_can_be_put_in(program, seed):
    rng = np.random.default_rng(seed)
    sizes = program.sizes(rng)
    args = program.arguments(rng, sizes)
    concrete = verify(substitute_graph(program.graph, sizes))
    assert concrete.symbols == ()
    before = outcome(program.graph, args)
    assume(before is not None)
    assert all(same_bits(a, b) for a, b in zip(before, evaluate(concrete, args), strict=True))


# ---- the interpreter ----------------------------------------------------------------------------
product = build(lambda a, b: [TABLE["dot_general"](a, b, contract=((1, 0),), batch=())], [x, y])


@pytest.mark.parametrize("shape", [(2, 3), (0, 3), (3, 0), (1, 1), (5, 2)])
def test_it_is_numpy(shape):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=shape), rng.normal(size=shape[::-1])
    np.testing.assert_allclose(evaluate(product, [a, b])[0], a @ b, rtol=1e-13)
    np.testing.assert_allclose(evaluate(product, [b.T, a.T])[0], b.T @ a.T, rtol=1e-13)


def test_it_checks_its_arguments():
    a = np.ones((2, 3))
    with pytest.raises(ArgumentError, match="2 parameters, got 1"):
        evaluate(product, [a])
    with pytest.raises(ArgumentError, match="argument 1 has dtype float32"):
        evaluate(product, [a, a.T.astype(F32)])
    with pytest.raises(ShapeError, match="argument 1 has shape"):
        evaluate(product, [a, np.ones((3, 4))])
    with pytest.raises(ShapeError, match="argument 0 has rank 1"):
        evaluate(product, [np.ones(2), a])


def test_it_checks_constraints():
    g = parse("graph<n>(%x: f64[n]) where n >= 2, 3 divides n {\n  return %x\n}")
    assert evaluate(g, [np.ones(6)])[0].shape == (6,)
    for size, message in ((1, "n >= 2"), (4, "3 divides n")):
        with pytest.raises(ShapeError, match=message):
            evaluate(g, [np.ones(size)])


def test_sizes_inside_polynomials_are_checked_and_symbols_need_an_axis():
    g = parse("graph<n>(%x: f64[2*n + 1], %y: f64[n]) {\n  return %x\n}")
    assert bind_sizes(g, [(5,), (2,)]) == {"n": 2}
    with pytest.raises(ShapeError, match="argument 0 has shape"):
        evaluate(g, [np.ones(4), np.ones(2)])
    alone = parse("graph<n>(%x: f64[2*n + 1]) {\n  return %x\n}")
    with pytest.raises(ShapeError, match="no argument axis is exactly n"):
        evaluate(alone, [np.ones(5)])
    assert evaluate(alone, [np.ones(5)], {"n": 2})[0].shape == (5,)


def test_sizes_reach_attributes():
    g = build(lambda v: [TABLE["size_value"](into=v.builder, size=n * m + 1), TABLE["iota"](into=v.builder, shape=(n,), axis=0,
                                                                                            dtype=I64)], [x])
    size, positions = evaluate(g, [np.zeros((3, 4))])
    assert size == 13 and positions.tolist() == [0, 1, 2]


def test_scalars_and_0d():
    g = build(lambda a, b: [TABLE["add"](a, b)], [ArrayType((), F64)] * 2)
    out, = evaluate(g, [1.5, np.array(2.0)])
    assert isinstance(out, np.ndarray) and out.shape == () and out == 3.5


def test_no_warning_is_raised():
    g = build(lambda a: [TABLE["log"](a), TABLE["div"](a, a), TABLE["mul"](a, a)], [ArrayType((2,), F64)])
    log, quotient, square = evaluate(g, [np.array([0.0, 1e300])])
    assert log[0] == -np.inf and np.isnan(quotient[0]) and square[1] == np.inf


def test_symbols_in_polynomials():
    assert symbols_in(n * m + 3) == {"n", "m"}
