"""What graphs promise. Each test's docstring is the promise, in short.

Elsewhere: attributes, special floats and text in test_text.py; canonical numbering, equality and hash in test_graph.py;
invariants in test_verifier.py; rules that import no engine in test_layers.py; costs in test_rewriting.py; schedules as data,
and nests of default schedules, in test_scheduling.py.
"""
import re

import numpy as np
import pytest

import loopwright as lw
from loopwright.ir.graph import Node, Value
from loopwright.ir.interpreter import evaluate
from loopwright.ir.schedule import Instruction, from_json, to_json
from loopwright.ir.types import F32, ArrayType
from loopwright.ir.verifier import verify
from loopwright.lower.rules import default_schedule
from loopwright.lower.scheduling import build_nest
from loopwright.lower.target import host_target


def graph(f, *args):
    return lw.make_graph(f)(*args)


# ---- identity and structure -------------------------------------------------------------------------
def test_values_and_nodes_compare_by_identity():
    """Value and Node compare by identity."""
    a, b = Value(ArrayType((3,), F32)), Value(ArrayType((3,), F32))
    assert a == a and a != b and len({a, b}) == 2
    g = graph(lambda x: x + 1, np.ones(3))
    n = g.nodes[0]
    assert n == n and n != Node(n.op, n.inputs, n.attrs, n.outputs, n.regions, n.source)


def test_graphs_compare_by_structure():
    """Graph equality and hash are structural, by canonical numbering of values and symbols."""
    def one(x, y):
        return x * y + x

    def other(p, q):
        product = p * q
        return product + p
    x = np.ones((3, 4), np.float32)
    a, b = graph(one, x, x), graph(other, x, x)
    assert a is not b and a == b and hash(a) == hash(b)
    assert a == graph(one, np.ones((9, 2), np.float32), np.ones((9, 2), np.float32))
    assert a != graph(one, np.ones((3, 4)), np.ones((3, 4))) and a != graph(lambda x, y: x * y + y, x, x)


def test_text_round_trip_keeps_structure():
    """The text round trip uses that one equality."""
    for f in (lambda x: np.sum(np.tanh(x @ x.T), axis=0), lambda x: x[1:, ::-1].reshape(-1),
              lambda x: np.where(x > 0, x, np.nan), lambda x: x[[0, 1, 1]], lambda x: np.sort(x, axis=0)):
        for g in (graph(f, np.ones((3, 4))), graph(lw.grad(lambda x, f=f: np.sum(f(x))), np.ones((3, 4)))):
            again = lw.parse(str(g))
            assert again == g and hash(again) == hash(g) and str(again) == str(g)


def test_equal_layers_are_compiled_once():
    """"Compiled once per structure" uses the same equality: layers of one structure are one function of the module."""
    def network(x, weights):
        for w in weights:
            x = np.tanh(x @ w)
        return x
    rng = np.random.default_rng(0)
    x = rng.normal(size=(5, 8)).astype(np.float32)

    def functions(depth):
        weights = [rng.normal(size=(8, 8)).astype(np.float32) for _ in range(depth)]
        text = str(lw.jit(network).lower(x, weights).llvm)
        return set(re.findall(r"^define (?:internal )?void @(\w+)\(", text, re.MULTILINE))
    assert functions(12) == functions(3)


# ---- symbols ----------------------------------------------------------------------------------------
def test_a_graph_declares_its_symbols():
    """A graph declares its symbols and what is known of them; the entry binds them from the shapes of its arguments."""
    g = graph(lambda x, y: x @ y, np.ones((3, 4)), np.ones((4, 5)))
    assert len(g.symbols) == 3
    header = str(g).splitlines()[0]
    assert re.fullmatch(r"graph<n, m, \w+>\(%x0: f64\[n, m\], %x1: f64\[m, \w+\]\).* \{", header), header
    for n, m, k in ((2, 3, 4), (7, 2, 9)):
        x, y = np.arange(float(n * m)).reshape(n, m), np.arange(float(m * k)).reshape(m, k)
        np.testing.assert_array_equal(evaluate(g, [x, y])[0], x @ y)
    with pytest.raises(ValueError, match="m"):
        evaluate(g, [np.ones((3, 4)), np.ones((5, 5))])


@pytest.mark.parametrize("f", [
    lambda x: x[x > 0], lambda x: np.nonzero(x), lambda x: np.unique(x), lambda x: np.argwhere(x > 0),
    lambda x: np.flatnonzero(x), lambda x: np.compress(x[0] > 0, x, axis=1), lambda x: np.extract(x > 0, x),
])
def test_no_op_makes_a_symbol_from_data(f):
    """Shapes that depend on values are refused under jit and vmap, naming `where` (or `size=`)."""
    x = np.arange(6.0).reshape(2, 3) - 2
    for transform in (lw.jit, lw.vmap, lambda f: lw.jit(lw.grad(lambda x: np.sum(f(x))))):
        with pytest.raises(lw.ConcretizationError, match=r"np\.where|size="):
            transform(f)(x)


def test_value_dependent_shapes_under_grad():
    """Under un-jitted grad values are known, so shapes may depend on them."""
    x = np.arange(6.0).reshape(2, 3) - 2
    np.testing.assert_array_equal(lw.grad(lambda x: np.sum(x[x > 0] ** 2))(x), np.where(x > 0, 2 * x, 0))
    np.testing.assert_array_equal(lw.grad(lambda x: np.sum(x[np.nonzero(x < 0)] * 3))(x), np.where(x < 0, 3.0, 0))
    np.testing.assert_array_equal(lw.grad(lw.grad(lambda s: np.sum((s * x)[x * s > 0] ** 2)))(1.0), np.sum(2 * x[x > 0] ** 2))


# ---- what remains in a graph ------------------------------------------------------------------------
def test_no_python_object_remains():
    """A graph is data: it reads back from its text alone and runs in a state that knows nothing of the function."""
    held = {"scale": 3.0}

    def f(x):
        return np.sum(np.exp(-x * held["scale"]), axis=0)
    text = str(graph(lw.vmap(lw.grad(lambda x: np.sum(f(x)))), np.ones((2, 3))))
    held["scale"] = np.nan
    x = np.random.default_rng(0).normal(size=(4, 3))
    np.testing.assert_allclose(evaluate(lw.parse(text), [x])[0], -3 * np.exp(-3 * x), rtol=1e-14)


def test_every_stage_verifies_and_prints():
    """One path: trace, simplify, partition; each stage is a graph that verifies, prints and reads back."""
    lowered = lw.jit(lambda x, w: np.mean((np.tanh(x @ w) - 1) ** 2)).lower(np.ones((5, 3)), np.ones((3, 2)))
    g = lw.parse(str(lowered.graph))
    verify(g)
    kernels = str(lowered.kernels)
    assert "kernel" in kernels and "tanh" in kernels
    assert "define" in str(lowered.llvm) and len(str(lowered.asm)) > 100


def test_a_default_schedule_is_a_list_of_instructions():
    """The generator takes only a scheduled nest; default schedules are lists of instructions, as a person would write them."""
    f = lw.jit(lambda x: np.exp(x - np.max(x, axis=1, keepdims=True)) / np.sum(x, axis=0))
    f(np.ones((3, 4)))
    kernels = [n for n in f._versions.entries[0].compiled.kernels.nodes if n.regions]
    assert kernels
    for n in kernels:
        region = n.regions[0]
        schedule = default_schedule(region, host_target())
        assert all(isinstance(x, Instruction) for x in schedule)
        assert from_json(to_json(schedule)) == schedule  # one written down and read back is the same
        assert build_nest(region, schedule, "k").nest == build_nest(region, from_json(to_json(schedule)), "k").nest
        build_nest(region, (), "k")  # and none at all is one as well
