"""The default schedules have the properties that make their kernels fast, and keep the meaning over sizes."""
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.ir.expansion import expanded
from loopwright.ir.schedule import ComputeAt, Unroll, Vectorize
from loopwright.lower.partition import partition
from loopwright.lower.target import host_target
from tests.scale import examples


def schedules(f, *args):
    """Of the generated kernels, in order: the nodes of the region by name, and the schedule."""
    graph = partition(expanded(lw.make_graph(f)(*args)), host_target(), blas=True)
    return [([n.op.name for n in k.regions[0].nodes], k.attrs["schedule"]) for k in graph.nodes
            if k.attrs.get("implementation") == "generated"]


def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def agree(found, expected, dtype):
    """To some last bits of the greatest element."""
    assert found.dtype == dtype
    tolerance = (1e-5 if dtype == "f4" else 1e-13) * np.abs(expected).max(initial=1)
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


# ---- rows that are kept -------------------------------------------------------------------------
def scaled(x):
    return softmax(np.tanh(x) * 2 + x)


def twice(x):
    return softmax(np.exp(softmax(np.sin(x)) + x))


def reversed_first(x):
    y = np.tanh(x)
    return y - np.sum(y[..., ::-1] * x, axis=-1, keepdims=True)


def all_products(x):
    y = np.tanh(x)
    return y * np.sum(y[:, :, None] * x[:, None, :], axis=(1, 2))[:, None]


ROWS = [scaled, twice, reversed_first, all_products]


def test_a_row_is_filled_by_the_first_reduction_that_reads_it_through_other_stages():
    [(names, schedule)] = schedules(scaled, np.ones((3, 40), "f4"))
    assert ComputeAt(names.index("tanh"), 1, within=names.index("reduce_max")) in schedule


def test_a_row_with_a_loop_of_its_own_has_lanes():
    [(names, schedule)] = schedules(all_products, np.ones((3, 40), "f4"))
    stage = names.index("tanh")
    assert ComputeAt(stage, 1) in schedule
    assert any(isinstance(x, Vectorize) and (x.stage, x.loop) == (stage, 1) for x in schedule)
    assert any(isinstance(x, Unroll) and x.stage == stage for x in schedule)


@examples(25)
@given(st.sampled_from(ROWS), st.integers(0, 5), st.integers(1, 70), st.sampled_from(["f4", "f8"]))
def test_rows_that_are_kept_have_the_right_values(f, n, m, dtype):
    x = np.random.default_rng(n * 100 + m).normal(size=(n, m)).astype(dtype)
    agree(JITTED[f](x), f(x.astype("f8")), dtype)


JITTED = {f: lw.jit(f) for f in ROWS}
