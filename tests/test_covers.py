"""Covers: decisions of the partition and ways to make kernels, as data. Whatever fits computes what NumPy does; what does not
is refused, with the reason."""
import numpy as np
import pytest

import loopwright as lw
from loopwright.ir.errors import ScheduleError
from loopwright.ir.expansion import expanded
from loopwright.ir.schedule import Inline
from loopwright.lower.covers import RULES, Cover, alternatives, implementations, structure_of_kernel
from loopwright.lower.decisions import Again, Apart, Call, Generate, Join
from loopwright.lower.modules import kernels_of, module_of
from loopwright.lower.partition import partition
from loopwright.lower.program import lower_graph
from loopwright.lower.target import host_target

TARGET = host_target()


def normal(*shape, dtype=np.float64):
    return np.random.default_rng(0).normal(size=shape).astype(dtype)


def graph_of(f, *args):
    return expanded(lw.make_graph(f)(*args))


def lowered(g, cover=RULES, blas=True):
    return lower_graph(g, TARGET, blas=blas, cover=cover)


def ops_of(g, cover=RULES, blas=True):
    parted = partition(g, TARGET, blas=blas, decisions=cover.partition)
    return [" ".join(n.op.name for n in k.regions[0].nodes) for k in kernels_of(parted)]


def compiled(g, cover):
    return lw.parse(str(module_of(g, lowered(g, cover), False))).compile()


def softmax(x):
    e = np.exp(x - np.max(x, -1, keepdims=True))
    return e / np.sum(e, -1, keepdims=True)


def layer(x, w):
    return np.tanh(x @ w)


SOFTMAX, LAYER = graph_of(softmax, normal(4, 5)), graph_of(layer, normal(4, 5), normal(5, 6))


def test_decisions_are_obeyed():
    assert ops_of(SOFTMAX) == ["reduce_max broadcast sub exp reduce_sum broadcast div"]
    assert ops_of(SOFTMAX, Cover((Apart((3,)),))) == ["reduce_max broadcast sub exp", "reduce_sum broadcast div"]
    assert ops_of(LAYER) == ["dot_general", "tanh"]
    assert ops_of(LAYER, Cover((Generate((0,)),))) == ["dot_general tanh"]
    assert ops_of(LAYER, Cover((Generate((0,)), Apart((0,))))) == ["dot_general", "tanh"]
    g = graph_of(lambda x, w: (np.exp(x) + 1, np.sum(w * np.exp(x), axis=1)), normal(5), normal(4, 5))
    assert ops_of(g) == ["exp full add", "broadcast mul reduce_sum"]
    assert ops_of(g, Cover((Again((0,)),))) == ["exp full add", "exp broadcast mul reduce_sum"]
    assert ops_of(g, Cover((Join((0,), (2,)),))) == ops_of(g)


@pytest.mark.parametrize(("g", "decision", "why"), [
    (SOFTMAX, Again((6,)), "it is stored"),
    (SOFTMAX, Again((0,)), "only what has a value for each element alone"),
    (SOFTMAX, Join((0,), (7,)), "no one kernel computes that node"),
    (SOFTMAX, Apart((7,)), "there is no such node"),
    (SOFTMAX, Apart((0, 1, 2)), "there is no such node"),
    (SOFTMAX, Generate((0,)), "it is no product"),
    (LAYER, Join((0,), (1,)), "a library call or control flow is in no other kernel"),
    (graph_of(lambda x, w: np.exp(x) @ w, normal(4, 5), normal(5, 6)), Again((0,)), "a library call or control flow"),
    (graph_of(lambda x: (np.exp(x), np.exp(x)[::-1] * x), normal(5)), Join((0,), (2,)), "do not reach each of its elements"),
])
def test_what_does_not_fit_is_refused_with_the_reason(g, decision, why):
    with pytest.raises(ScheduleError, match=f"{type(decision).__name__}.*{why}"):
        lowered(g, Cover((decision,)))


def test_other_refusals():
    with pytest.raises(ScheduleError, match=r"Call.*there is no library"):
        lowered(LAYER, Cover((Call((0,)),)), blas=False)
    with pytest.raises(ScheduleError, match=r"Again.*says otherwise"):
        lowered(SOFTMAX, Cover((Again((3,)), Apart((3,)))))
    module = module_of(SOFTMAX, lowered(SOFTMAX), False)
    with pytest.raises(ScheduleError, match="a program already"):
        lowered(module, Cover((Apart((3,)),)))


def test_kernels_are_made_as_a_cover_says():
    kernel, = lowered(SOFTMAX).kernels.nodes
    schedule = tuple([x for x in kernel.attrs["schedule"] if not hasattr(x, "lanes")])
    cover = RULES.using(kernel, {**kernel.attrs, "schedule": schedule})
    found, = lowered(SOFTMAX, cover).kernels.nodes
    assert found.attrs["schedule"] == schedule and structure_of_kernel(found) == structure_of_kernel(kernel)
    other = graph_of(softmax, normal(4, 5, dtype=np.float32))
    assert lowered(other, cover).text == lowered(other).text
    module = module_of(SOFTMAX, lowered(SOFTMAX), False)
    assert lowered(module, cover).text == lowered(SOFTMAX, cover).text
    for attrs in ({"implementation": "generated", "schedule": (Inline(9),)}, ):
        with pytest.raises((ScheduleError, IndexError)):
            lowered(SOFTMAX, RULES.using(kernel, attrs))


def test_covers_are_json():
    kernel, = lowered(SOFTMAX).kernels.nodes
    cover = Cover((Apart((3,)), Join((1, 0, 2), (1, 0, 4)), Generate((7,)))).using(kernel, kernel.attrs)
    assert Cover.from_json(cover.to_json()) == cover
    with pytest.raises(ValueError, match="unknown decision 'Glue'"):
        Cover.from_json('{"partition": [["Glue", {"node": [0]}]], "kernels": {}}')


def test_alternatives_differ_and_compute_the_same():
    x = normal(4, 5)
    found = alternatives(SOFTMAX, TARGET, True, RULES)
    programs = {str(lowered(SOFTMAX, c).kernels) for c in (RULES, *found)}
    assert len(found) >= 4 and len(programs) == len(found) + 1
    for cover in found:
        np.testing.assert_allclose(compiled(SOFTMAX, cover)(x), softmax(x), rtol=1e-12)


def test_products_are_made_by_the_library_or_by_loops():
    product, tanh = kernels_of(lowered(LAYER).kernels)
    assert [x["implementation"] for x in implementations(product, TARGET, True)] == ["gemm", "generated"]
    assert [x["implementation"] for x in implementations(tanh, TARGET, True)] == ["generated"]
    x, w = normal(4, 5), normal(5, 6)
    cover = RULES.using(product, implementations(product, TARGET, True)[1])
    np.testing.assert_allclose(compiled(LAYER, cover)(x, w), layer(x, w), rtol=1e-12)
