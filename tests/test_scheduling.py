"""Partition and schedules keep the meaning of every op and of random programs, and say no to what is not legal."""
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.ir.builder import build, innermost
from loopwright.ir.dims import evaluate as size_of
from loopwright.ir.dims import symbol
from loopwright.ir.interpreter import evaluate
from loopwright.ir.nest import Prefetch, Reduction, Store
from loopwright.ir.ops import TABLE
from loopwright.ir.ops.arithmetic import add, div, mul, sub
from loopwright.ir.ops.broadcasting import broadcast, reduce_sum
from loopwright.ir.ops.contraction import dot_general
from loopwright.ir.ops.reductions import reduce_max
from loopwright.ir.ops.structural import concatenate, reshape, slice_, transpose
from loopwright.ir.ops.transcendental import exp, sqrt, tanh
from loopwright.ir.parser import parse_type
from loopwright.ir.schedule import ComputeAt, Fuse, Inline, Interleave, Parallel, PrefetchRow, Vectorize, from_json, to_json
from loopwright.ir.types import F32, F64, ArrayType
from loopwright.ir.verifier import verify
from loopwright.lower.partition import partition
from loopwright.lower.scheduling import ScheduleError, build_nest
from loopwright.lower.target import Target
from tests.nests import run_nest
from tests.scale import examples
from tests.test_complex import WITHOUT_RULE
from tests.test_ops import TOLERANCE

TARGET = Target("x86_64-unknown-linux-gnu", "", "+avx2,+fma", 256)
N, M = symbol("n"), symbol("m")
ROWS = ArrayType((N, M), F32)


def softmax(x):
    e = exp(sub(x, broadcast(reduce_max(x, axes=(1,)), shape=x.shape, axes=(0,))))
    return div(e, broadcast(reduce_sum(e, axes=(1,)), shape=x.shape, axes=(0,)))


def layernorm(x):
    def mean(v):
        return mul(reduce_sum(v, axes=(1,)), broadcast(reduce_sum(v, axes=(0, 1)), shape=(v.shape[0],), axes=()))
    centred = sub(x, broadcast(mean(x), shape=x.shape, axes=(0,)))
    return div(centred, broadcast(sqrt(mean(mul(centred, centred))), shape=x.shape, axes=(0,)))


def run_partitioned(graph, arrays, sizes):
    """The partitioned graph with every generated kernel run by its nest."""
    env = dict(zip(graph.params, arrays, strict=True))
    for n in graph.nodes:
        inputs = [env[v] for v in n.inputs]
        if n.attrs.get("implementation") == "generated":
            region = n.regions[0]
            outs = [np.full([size_of(x, sizes) for x in v.type.shape], 77).astype(v.type.dtype) for v in region.results]
            run_nest(build_nest(region, n.attrs["schedule"], "k").nest, inputs, outs, sizes)
        else:
            outs = [np.ascontiguousarray(x) for x in evaluate_node(n, inputs, sizes)]
        env.update(zip(n.outputs, outs, strict=True))
    return [env[v] for v in graph.results]


def evaluate_node(n, inputs, sizes):
    if n.regions:
        return evaluate(n.regions[0], inputs, sizes)
    attrs = {k: tuple(size_of(x, sizes) for x in a) if k == "shape" else a for k, a in n.attrs.items()}
    return [n.op.numpy(*inputs, **attrs)]


def compare(graph, arrays, sizes=None):
    sizes = sizes or {str(x): n for v, a in zip(graph.params, arrays, strict=True)
                      for x, n in zip(v.type.shape, a.shape, strict=True)}
    parted = partition(graph, TARGET, blas=False)
    verify(parted)
    outs = run_partitioned(parted, [as_stored(x) for x in arrays], sizes)
    for got, want in zip(outs, evaluate(graph, arrays, sizes), strict=True):
        want = as_stored(np.asarray(want))
        assert got.dtype == want.dtype and got.shape == want.shape
        tolerance = TOLERANCE.get(want.dtype, 0)
        np.testing.assert_allclose(got.astype("f8"), want.astype("f8"), rtol=tolerance, atol=tolerance)
    return parted


def as_stored(x):
    """Complex numbers as pairs of real ones: the same bytes, as kernels take them."""
    return np.stack([x.real, x.imag], axis=-1) if x.dtype.kind == "c" else x


def numbers(rng, t):
    if t.dtype.kind == "b":
        return rng.integers(0, 2, t.shape).astype(bool)
    if t.dtype.kind in "iu":
        return rng.integers(0, 5, t.shape).astype(t.dtype)
    x = rng.normal(size=t.shape)
    return (x + 1j * rng.normal(size=t.shape) if t.dtype.kind == "c" else x).astype(t.dtype)


CASES = [(op, k) for op in TABLE.values() for k in range(len(op.examples))]


@pytest.mark.parametrize(("op", "k"), CASES, ids=lambda x: str(x))
def test_each_op_alone(op, k):
    """With symbolic sizes, at sizes 6, 1 and 0; what NumPy refuses to compute is left to the op's own tests."""
    example, rng = op.examples[k], np.random.default_rng(0)
    types = [parse_type(t) for t in example.operands]
    if op.name in WITHOUT_RULE and types[0].dtype.kind == "c":
        return  # no machine code: test_complex.py
    graph = build(lambda *xs: [op(*xs, **example.attrs) if xs else op(into=innermost(), **example.attrs)], types)
    for size in (6, 1, 0):
        sizes = dict.fromkeys(graph.symbols, size)
        concrete = [ArrayType(tuple(size_of(x, sizes) for x in t.shape), t.dtype) for t in types]
        if size == 0 and example.draw:
            continue  # indices into nothing
        arrays = [example.draw[i](rng, t) if i in example.draw else numbers(rng, t) for i, t in enumerate(concrete)]
        try:
            evaluate(graph, arrays, sizes)
        except ValueError:
            assert size < 6, "small sizes can leave a fold without elements, or a size that does not divide"
            continue
        compare(graph, arrays, sizes)


def test_softmax_is_one_kernel():
    graph = build(lambda x: [softmax(x)], [ROWS])
    parted = compare(graph, [np.random.default_rng(1).normal(size=(3, 21)).astype("f4")])
    assert len(parted.nodes) == 1


def test_a_column_reduction_with_epilogue_is_one_kernel():
    graph = build(lambda x: [tanh(reduce_sum(mul(x, x), axes=(0,)))], [ROWS])
    assert len(compare(graph, [np.random.default_rng(1).normal(size=(3, 21)).astype("f4")]).nodes) == 1


def test_results_that_share_work_are_results_of_one_kernel():
    def f(x, y):
        a = exp(mul(x, y))
        return [a, add(a, x)]
    graph = build(f, [ROWS, ROWS])
    assert len(compare(graph, list(np.random.default_rng(1).normal(size=(2, 3, 5)).astype("f4"))).nodes) == 1


def test_a_result_that_is_a_parameter_or_comes_twice_is_copied():
    graph = build(lambda x: [x, (y := exp(x)), y], [ROWS])
    parted = compare(graph, [np.ones((2, 3), "f4")])
    assert len(set(parted.results)) == 3 and not set(parted.results) & set(parted.params)


OPS = [lambda x, y: add(x, y), lambda x, y: mul(x, tanh(y)), lambda x, y: softmax(x), lambda x, y: layernorm(add(x, y)),
       lambda x, y: sub(x, broadcast(reduce_max(y, axes=(0,)), shape=x.shape, axes=(1,))),
       lambda x, y: exp(sub(x, broadcast(reduce_max(x, axes=(0, 1)), shape=x.shape, axes=()))),
       lambda x, y: transpose(transpose(exp(y), perm=(1, 0)), perm=(1, 0)),
       lambda x, y: mul(x, broadcast(exp(reduce_sum(mul(x, y), axes=(1,))), shape=x.shape, axes=(0,)))]


@examples(60)
@given(st.lists(st.tuples(st.integers(0, len(OPS) - 1), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=7),
       st.integers(1, 3), st.sampled_from([(1, 1), (2, 3), (3, 1), (1, 5)]), st.booleans())
def test_random_programs(steps, results, shape, total):
    def f(x, y):
        values = [x, y]
        for op, a, b in steps:
            values.append(OPS[op](values[a % len(values)], values[b % len(values)]))
        return [reduce_sum(v, axes=(0, 1)) if total else v for v in values[-results:]]
    graph = build(f, [ArrayType((N, M), F64)] * 2)
    compare(graph, list(np.random.default_rng(0).normal(size=(2, *shape)) / 4))


def part(x, n):
    return slice_(x, start=(0,) * x.type.rank, step=(1,) * x.type.rank, shape=(n, *x.shape[1:]))


def rows(x, v):
    return mul(x, broadcast(v, shape=x.shape, axes=(0,)))


SHARED = {
    "a part of a result": lambda x: (lambda y: [part(y, 2), y])(exp(x)),
    "a part of row sums": lambda x: (lambda y: [exp(part(y, 2)), y])(reduce_sum(x, axes=(1,))),
    "a part of column sums": lambda x: (lambda y: [exp(part(y, 2)), y])(reduce_sum(x, axes=(0,))),
    "rows by a part of row sums": lambda x: (lambda y: [rows(part(x, 2), part(y, 2)), y])(reduce_sum(x, axes=(1,))),
    "more than a result": lambda x: (lambda y: [concatenate(y, x, axis=0), y])(exp(x)),
    "more than row sums": lambda x: (lambda y: [concatenate(y, y, axis=0)])(reduce_sum(x, axes=(1,))),
    "more rows of which some are costly": lambda x: [softmax(concatenate(exp(x), x, axis=0))],
    "more rows of which some have a factor": lambda x: (lambda y: [softmax(concatenate(rows(x, y), x, axis=0))])(
        exp(reduce_sum(x, axes=(1,)))),
}


@pytest.mark.parametrize("case", SHARED)
def test_loops_compute_a_shared_value_only_if_they_span_it(case):
    graph = build(lambda x: SHARED[case](x), [ArrayType((5, 6), F64)])
    compare(graph, [np.random.default_rng(0).normal(size=(5, 6)) / 4], {})


def region_of(f):
    return build(lambda x: [f(x)], [ROWS])


def test_a_choice_along_a_short_last_axis_is_a_store_for_each():
    def f(x, y):
        return [concatenate(reshape(exp(x), shape=(N, M, 1)), reshape(mul(x, y), shape=(N, M, 1)), axis=2)]
    parted = compare(build(f, [ROWS, ROWS]), list(np.random.default_rng(1).normal(size=(2, 3, 21)).astype("f4")))
    [n] = parted.nodes
    schedule = n.attrs["schedule"]
    assert Interleave() in schedule and any(isinstance(x, Vectorize) and x.loop == 1 for x in schedule)
    assert from_json(to_json(schedule)) == schedule
    with pytest.raises(ScheduleError, match="no small constant size"):
        build_nest(region_of(exp), (Interleave(),), "k")


def test_folds_that_are_computed_anew_inside_a_pass_that_fills_a_row():
    """Every pair of places taken out of a weighted softmax: refused, or the same numbers."""
    def weighted(x):
        e, largest = exp(x), broadcast(reduce_max(x, axes=(1,)), shape=x.shape, axes=(0,))
        return div(e, broadcast(reduce_sum(mul(e, largest), axes=(1,)), shape=x.shape, axes=(0,)))
    region = region_of(weighted)
    whole = partition(region, TARGET, blas=False).nodes[0]
    places = [x for x in whole.attrs["schedule"] if isinstance(x, ComputeAt)]
    x, sizes = np.random.default_rng(0).normal(size=(3, 4)).astype("float32"), {"n": 3, "m": 4}
    expected, = evaluate(region, [x], sizes)
    assert any(place.within is not None for place in places)
    for taken in [{a, b} for a in places for b in places]:
        schedule = tuple(y for y in whole.attrs["schedule"] if isinstance(y, Inline | ComputeAt) and y not in taken)
        try:
            nest = build_nest(whole.regions[0], schedule, "k").nest
        except ScheduleError:
            continue
        out = np.full((3, 4), 77, "float32")
        run_nest(nest, [x], [out], sizes)
        np.testing.assert_allclose(out, expected, rtol=1e-4)


def test_illegal_instructions_are_refused():
    region = region_of(softmax)
    with pytest.raises(ScheduleError, match="placed once"):
        build_nest(region, (Inline(0), ComputeAt(0, 1)), "k")
    with pytest.raises(ScheduleError, match="placed once"):
        build_nest(region, (Inline(99),), "k")
    with pytest.raises(ScheduleError, match="axes"):
        build_nest(region, (ComputeAt(0, 2),), "k")
    bias = build(lambda x, b: [add(x, broadcast(b, shape=x.shape, axes=(1,)))], [ROWS, ArrayType((M,), F32)])
    with pytest.raises(ScheduleError, match="together"):
        build_nest(bias, (Fuse(1, 0, 2),), "k")
    total = build(lambda x: [reduce_sum(x, axes=(0, 1))], [ROWS])
    with pytest.raises(ScheduleError, match="outermost"):
        build_nest(total, (Parallel(),), "k")
    with pytest.raises(ScheduleError, match="rows"):
        build_nest(total, (PrefetchRow(0),), "k")
    with pytest.raises(ScheduleError, match="no reduction"):
        build_nest(region, (PrefetchRow(2),), "k")


def test_the_last_of_several_passes_over_a_row_asks_for_the_next_row():
    [kernel] = partition(region_of(softmax), TARGET, blas=False).nodes
    nest = build_nest(kernel.regions[0], kernel.attrs["schedule"], "k").nest
    asked = [x for s in nest.body[0].body if isinstance(s, Reduction) for x in s.also if isinstance(x, Prefetch)]
    assert [(x.buffer, x.write) for x in asked] == [("x0", False)]
    stores = nest.body[0].body[-1].body
    assert [(type(x), x.buffer) for x in stores] == [(Prefetch, "y0"), (Store, "y0")]


def test_the_only_pass_over_a_row_asks_for_a_row_further_on():
    [kernel] = partition(build(lambda x: [reduce_sum(x, axes=(1,))], [ROWS]), TARGET, blas=False).nodes
    nest = build_nest(kernel.regions[0], kernel.attrs["schedule"], "k").nest
    asked = [x for s in nest.body[0].body if isinstance(s, Reduction) for x in s.also if isinstance(x, Prefetch)]
    assert [(x.buffer, x.row, x.write) for x in asked] == [("x0", 16 * ROWS.shape[1], False)]


def test_schedules_are_json():
    region = partition(region_of(softmax), TARGET, blas=False).nodes[0]
    schedule = region.attrs["schedule"]
    assert from_json(to_json(schedule)) == schedule and json.loads(to_json(schedule))
    assert any(isinstance(x, Vectorize) for x in schedule)
    with pytest.raises(ValueError, match="unknown schedule instruction 'Tile'"):
        from_json('[["Tile", {}]]')


def test_products_take_and_give_transposed_matrices():
    """x.T @ y and (x @ y).T are one library call each, with no transpose beside it."""
    t = (1, 0)

    def f(x, y):
        return [transpose(dot_general(transpose(x, perm=t), y, contract=((1, 0),), batch=()), perm=t)]

    graph = build(f, [ArrayType((N, N), F64)] * 2)
    parted = partition(graph, TARGET, blas=True)
    assert [n.attrs["implementation"] for n in parted.nodes] == ["gemm"]
    x, y = np.random.default_rng(0).normal(size=(2, 4, 4))
    np.testing.assert_allclose(evaluate(parted, [x, y], {"n": 4})[0], (x.T @ y).T)


def test_a_fold_that_is_read_at_a_position_that_is_data_is_no_interleaved_root():
    @lw.jit
    def f(x):
        found = np.any(x > 0.4, axis=-1, keepdims=True)
        return np.take_along_axis(found, np.argmax(found, axis=-1, keepdims=True), axis=-1)

    for shape in ((1, 1), (3, 5), (17, 2)):
        x = np.random.default_rng(0).random(shape)
        np.testing.assert_array_equal(f(x), np.any(x > 0.4, axis=-1, keepdims=True))
