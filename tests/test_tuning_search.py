"""The search over a kernel's schedules: whatever it proposes computes what the kernel's region means, nothing comes twice, and
it finds what is quick sooner than chance does."""
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.ir.builder import build
from loopwright.ir.dims import symbol
from loopwright.ir.errors import ScheduleError
from loopwright.ir.graph import Node
from loopwright.ir.interpreter import evaluate
from loopwright.ir.ops.arithmetic import mul
from loopwright.ir.ops.broadcasting import broadcast, reduce_sum
from loopwright.ir.ops.contraction import dot_general
from loopwright.ir.schedule import (
    ComputeAt,
    Distribute,
    Inline,
    InPlace,
    Interleave,
    Pack,
    Reorder,
    Split,
    Tensorize,
    Unroll,
    Vectorize,
)
from loopwright.ir.types import F32, ArrayType
from loopwright.lower.covers import implementations
from loopwright.lower.modules import alone, check_schedule
from loopwright.lower.runtime.pool import threads
from loopwright.lower.scheduling import build_nest
from loopwright.lower.target import host_target
from loopwright.lower.tuning.candidates import Candidate, difference, reference
from loopwright.lower.tuning.edits import changed, ordered
from loopwright.lower.tuning.execution import Executable
from loopwright.lower.tuning.features import NAMES, features
from loopwright.lower.tuning.models import Roofline
from loopwright.lower.tuning.product_space import block_sizes
from loopwright.lower.tuning.search import KernelSearch
from loopwright.lower.tuning.space import Space
from tests.nests import run_nest
from tests.scale import examples

N, M = symbol("n"), symbol("m")


def softmax(x):
    e = np.exp(x - np.max(x, -1, keepdims=True))
    return e / np.sum(e, -1, keepdims=True)


def layernorm(x, gain):
    centred = x - np.mean(x, -1, keepdims=True)
    return centred / np.sqrt(np.mean(centred * centred, -1, keepdims=True) + 1e-5) * gain


def ones(*shape):
    return np.ones(shape, np.float32)


def distances(x):
    return np.sum((x[:, None, :] - x[None, :, :]) ** 2, -1)


KERNELS = {
    "rows": (softmax, ones(4, 5)),
    "stable": (lw.nn.softmax, ones(4, 5)),
    "layernorm": (layernorm, ones(4, 5), ones(5)),
    "columns": (lambda x: np.sum(x[::2] * 2, 0), ones(6, 5)),
    "transposed": (lambda x: np.transpose(x) + 1, ones(4, 5)),
    "elementwise": (lambda x, y: np.tanh(x) * y + 1, ones(4, 5), ones(4, 5)),
    "moments": (lambda x: (np.sum(x, -1) + np.sum(x * x, -1)), ones(4, 5)),
    "distances": (distances, ones(7, 3)),
    "half": (lambda x: np.sum(np.exp(x), -1), np.ones((4, 5), np.float16)),
    "channels": (lambda x: x * (1 + 2j), np.ones((4, 5), np.complex64)),
    "outer": (lambda x, y: np.tanh(x)[:, None] * y + 1, ones(4), ones(5)),
    "joined": (lambda x, y: np.concatenate([np.exp(x), y], 0) * 2, ones(4, 5), ones(3, 5)),
    "running": (lambda x: np.cumsum(x * 2, 0), ones(4, 5)),
    "edges": (lambda x, i: lw.ops.segment_max(x, i, 5), ones(6), np.zeros(6, int)),
    "convolution": (lambda x, w: np.maximum(lw.lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")), 0), ones(2, 4, 5, 4), ones(3, 3, 4, 6)),
}


def node_of(name):
    """The largest generated kernel of a function."""
    f, *args = KERNELS[name]
    kernels = [k._node for k in lw.schedule(f, *args).kernels if k.is_generated]
    return max(kernels, key=lambda n: len(n.regions[0].nodes))


def attention(q, k, v):
    return softmax(q @ k.transpose(0, 2, 1)) @ v


def attention_node():
    """A chain of products in one kernel."""
    return lw.schedule(lw.jit(attention, dynamic=False), *[ones(8, 64, 32)] * 3).kernel(0)._node


def gradient_node():
    """Its gradient in one kernel."""
    f = lw.grad(lambda *x: (attention(*x) ** 2).sum(), argnums=(0, 1, 2))
    return max((k._node for k in lw.schedule(lw.jit(f, dynamic=False), *[ones(8, 64, 32)] * 3).kernels),
               key=lambda n: len(n.regions[0].nodes))


def chain_or_node_of(name):
    return {"attention": attention_node, "gradient of attention": gradient_node}.get(name, lambda: node_of(name))()


def sizes_of(node, first=5):
    return {s: first + k for k, s in enumerate(node.regions[0].symbols)}


def computes(region, schedule, sizes):
    """The nest of the schedule gives what the region's interpreter gives."""
    rng = np.random.default_rng(1)
    args = [rng.normal(size=[n if isinstance(n, int) else sizes[str(n)] for n in v.type.shape]).astype(v.type.dtype)
            for v in region.params]
    want = evaluate(region, args, sizes)
    got = [np.full(x.shape, 77).astype(x.dtype) for x in want]
    run_nest(build_nest(region, schedule, "k").nest, args, got, sizes)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", [name for name in KERNELS if name != "convolution"])
def test_every_neighbour_computes_what_the_region_means(name):
    node = node_of(name)
    region, schedule = node.regions[0], node.attrs["schedule"]
    space = Space(region, host_target())
    made = space.replay(schedule)
    found = space.neighbours(schedule, made)
    assert len(found) == len(set(found))
    legal = [x for x in found if space.replay(x) is not None]
    assert len(legal) > 4
    for x in legal[::max(1, len(legal) // 12)]:
        computes(region, x, sizes_of(node))


@examples(12)
@given(st.sampled_from(sorted(KERNELS)), st.integers(0, 2**32 - 1), st.integers(1, 40))
def test_code_of_schedules_far_from_the_default_computes_the_same(name, seed, size):
    node, rng = node_of(name), np.random.default_rng(seed)
    space, pool, expected = Space(node.regions[0], host_target()), [node.attrs["schedule"]], None
    sizes = sizes_of(node, min(size, 8) if name == "convolution" else size)
    for _ in range(8):
        a, b = (pool[int(rng.integers(len(pool)))] for _ in range(2))
        changed = space.mutated(a, space.replay(a), rng) if rng.random() < 0.8 else space.crossed(a, b, rng)
        if space.replay(changed) is not None and changed not in pool:
            pool.append(changed)
    for schedule in pool[1::3]:
        g = alone(Node(node.op, node.inputs, {**node.attrs, "schedule": schedule}, node.outputs, node.regions))
        made = Executable(Candidate.of(g, sizes))
        made.run()
        expected = expected or reference(g, made.given, sizes)
        assert difference(made.results, expected) is None, schedule


def test_what_would_be_wrong_in_lanes_is_refused():
    with pytest.raises(ScheduleError, match="Vectorize"):
        build_nest(node_of("half").regions[0], (ComputeAt(0, 1), Vectorize(1, 0, 8)), "k")
    node = node_of("channels")
    row = next(k for k, n in enumerate(node.regions[0].nodes) if n.outputs[0].type.rank == 3)
    last = len(node.regions[0].nodes) - 1
    softmax = node_of("stable")
    rows = [k for k, n in enumerate(softmax.regions[0].nodes) if str(n.outputs[0].type.shape[1:]) == "(1,)"]
    total = next(k for k, n in enumerate(softmax.regions[0].nodes) if n.op.name == "reduce_sum")
    with pytest.raises(ScheduleError, match="not the row's axes"):  # one element is no row of the sum
        schedule = [x for x in softmax.attrs["schedule"] if x != Inline(rows[0])]
        build_nest(softmax.regions[0], (*schedule, ComputeAt(rows[0], 1, within=total)), "k")
    updates = node_of("edges")
    with pytest.raises(ScheduleError, match=r"Vectorize.*lanes may meet"):
        build_nest(updates.regions[0], (*updates.attrs["schedule"], Vectorize(len(updates.regions[0].nodes) - 1, 1, 8)), "k")
    with pytest.raises(ScheduleError, match="inside"):
        build_nest(node.regions[0], (ComputeAt(row, 2), Interleave(), Vectorize(last, 1, 8)), "k")


def test_schedules_of_chains_of_products_are_made_or_refused():
    """Nothing but ScheduleError comes of any change."""
    node, rng = attention_node(), np.random.default_rng(0)
    space, pool = Space(node.regions[0], host_target()), [node.attrs["schedule"]]
    for _ in range(200):
        old = pool[int(rng.integers(len(pool)))]
        new = space.mutated(old, space.replay(old), rng)
        pool += [new] if space.replay(new) is not None and new not in pool else []
    assert len(pool) > 40


@pytest.mark.parametrize("size", [70, 96])
def test_blocks_of_other_sizes_compute_the_same(size):
    """Those of a product, and the rows that a chain of products goes through at a time; each thread can get as many."""
    def attention(q, k, v):
        return softmax(q @ k.transpose(0, 2, 1)) @ v
    chain, product = (attention, *[ones(3, size, 40)] * 3), (lambda x, w: x @ w, ones(300, 301), ones(301, 302))
    for (f, *args), kind in ((chain, Distribute), (product, Split)):
        ways = [(k._node, a["schedule"]) for k in lw.schedule(lw.jit(f), *args).kernels
                for a in implementations(k._node, host_target(), True) if a["implementation"] == "generated"]
        node, schedule = next((n, s) for n, s in ways if any(isinstance(x, kind) for x in s))
        sizes = dict.fromkeys(node.regions[0].free_symbols, size)
        space = Space(node.regions[0], host_target(), sizes=sizes)
        found = [ordered(changed(schedule, *x)) for x in block_sizes(space, schedule, space.replay(schedule))]
        legal = [x for x in found if space.replay(x) is not None]
        assert any(isinstance(x, kind) and x.size == -(-size // threads()) for y in legal for x in y)
        for x in legal[::2]:
            g = alone(Node(node.op, node.inputs, {**node.attrs, "schedule": x}, node.outputs, node.regions))
            made = Executable(Candidate.of(g, sizes))
            made.run()
            assert difference(made.results, reference(g, made.given, sizes)) is None, x


def test_columns_are_packed_in_the_loop_over_their_own_blocks_or_around_it():
    types = [ArrayType((N, M), F32), ArrayType((M, symbol("k")), F32)]
    region = build(lambda x, w: [dot_general(x, w, contract=((1, 0),), batch=(), dtype=None)], types)
    blocks = (Split("i1", 64), Split("i0", 64), Reorder(("i0_by64", "i1_by64", "i1", "i0")), Tensorize(0, (1,), 16, 8, 32))
    with pytest.raises(ScheduleError, match="block of columns"):
        build_nest(region, (Inline(0), *blocks, Pack("right", "i1_by64"), Pack("left", "k0_by32")), "k")


@pytest.mark.parametrize("change", [(Inline(0),), (ComputeAt(0, 1, within=1), ComputeAt(1, 1))])
def test_results_that_would_not_be_stored_are_refused(change):
    def total(x):
        return reduce_sum(mul(x, x), axes=(1,))
    two = build(lambda x: (mul(x, broadcast(total(x), shape=x.shape, axes=(0,))), total(x)), [ArrayType((N, M), F32)])
    with pytest.raises(ScheduleError):
        build_nest(two, change, "k")


@examples(6)
@given(st.sampled_from(sorted(KERNELS)), st.integers(0, 2**32 - 1))
def test_features_are_finite_and_the_same_again(name, seed):
    node = node_of(name)
    space, rng, schedule = Space(node.regions[0], host_target()), np.random.default_rng(seed), node.attrs["schedule"]
    for _ in range(4):
        made = space.replay(schedule)
        a, b = (features(made.nest, sizes_of(node), host_target()) for _ in range(2))
        assert a.shape == (len(NAMES),) and np.all(np.isfinite(a)) and np.array_equal(a, b)
        changed = space.mutated(schedule, made, rng)
        schedule = changed if space.replay(changed) is not None else schedule


@examples(6)
@given(st.sampled_from(["attention", "gradient of attention", *sorted(KERNELS)]), st.integers(0, 2**32 - 1))
def test_nests_and_features_do_not_depend_on_what_came_before(name, seed):
    """Schedules that follow from each other share what instructions made of loops, and what these loops do."""
    node, rng = chain_or_node_of(name), np.random.default_rng(seed)
    space, pool = Space(node.regions[0], host_target()), [node.attrs["schedule"]]
    for _ in range(20):
        old = pool[int(rng.integers(len(pool)))]
        new = space.mutated(old, space.replay(old), rng)
        made, alone_ = space.replay(new), Space(node.regions[0], host_target()).replay(new)
        assert (made and made.nest) == (alone_ and alone_.nest)
        if made is not None:
            pool.append(new)
            assert np.array_equal(*(features(x.nest, sizes_of(node), host_target()) for x in (made, alone_)))


@pytest.mark.parametrize("name", ["rows", "layernorm", "convolution", "attention", "gradient of attention"])
def test_candidates_take_few_calls_of_functions(name):
    """Some five thousand take a millisecond: what a candidate may, its replay and its features together."""
    node, rng, calls = chain_or_node_of(name), np.random.default_rng(0), 0
    space, pool = Space(node.regions[0], host_target()), [node.attrs["schedule"]]

    def count(frame, event, argument):
        nonlocal calls
        calls += event == "call"
    for _ in range(60):
        old = pool[int(rng.integers(len(pool)))]
        new = space.mutated(old, space.replay(old), rng)
        sys.setprofile(count)
        made = space.replay(new)
        if made is not None:
            features(made.nest, sizes_of(node), host_target())
        sys.setprofile(None)
        pool += [new] if made is not None and new not in pool else []
    assert calls / 60 < 1700


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_nothing_is_proposed_twice_and_starts_come_first(name):
    node = node_of(name)
    search = KernelSearch(node, sizes_of(node, 100), [node.attrs, {"implementation": "gemm"}, node.attrs], Roofline(), seed=3)
    found = search.propose(1)
    assert found == [node.attrs]
    search.learn(found[0], 1e-3)
    assert search.best == (node.attrs, 1e-3)
    for _ in range(2):
        found += search.propose(8)
    whole = KernelSearch(node, sizes_of(node, 100), [node.attrs], Roofline(), seed=4).propose(40)
    assert whole[0] is node.attrs and node.attrs["schedule"] not in [a["schedule"] for a in whole[1:]]
    nests = [hash(search.space.replay(a["schedule"]).nest) for a in found if a["implementation"] == "generated"]
    assert len(nests) == len(set(nests)) == len(found) - 1 and found[1] == {"implementation": "gemm"}
    for schedule in [a["schedule"] for a in found[2:]]:
        lean = not any(isinstance(x, Interleave) for x in schedule)
        check_schedule(node.regions[0], schedule, name, schedule if lean else ())  # each instruction changes something


# ---- finding what is quick ------------------------------------------------------------------------
WIDE = host_target().vector_bits // 32
WANTED = {0: (WIDE // 2, 8), 4: (WIDE // 4, 4), 6: (WIDE, 1)}  # lanes and vectors in flight of each stage of a softmax


def made_up(schedule):
    """Seconds that grow with the distance to one schedule."""
    off = 0.0
    for stage, (lanes, factor) in WANTED.items():
        off += abs(np.log2(next((x.lanes for x in schedule if isinstance(x, Vectorize) and x.stage == stage), 1) / lanes))
        off += abs(np.log2(next((x.factor for x in schedule if isinstance(x, Unroll) and x.stage == stage), 1) / factor))
    return 1e-3 * (1 + off)


def by_search(node, seed, trials, model):
    search = KernelSearch(node, sizes_of(node, 1000), [node.attrs], model, seed)
    done = 0
    while done < trials and (found := search.propose(10)):
        for attrs in found:
            search.learn(attrs, made_up(attrs["schedule"]))
        done += len(found)
    return search.best[1]


def by_chance(node, seed, trials):
    rng, space, best = np.random.default_rng(seed), Space(node.regions[0], host_target()), np.inf
    for _ in range(trials):
        schedule = node.attrs["schedule"]
        for _ in range(int(rng.integers(1, 9))):
            changed = space.mutated(schedule, space.replay(schedule), rng)
            schedule = schedule if space.replay(changed) is None else changed
        best = min(best, made_up(schedule))
    return best


class NoOpinion:
    """A model that expects the same of all."""

    def predict(self, x):
        return np.ones(len(x))


def test_the_search_finds_what_is_quick_sooner_than_chance_does():
    node = node_of("rows")
    found, drawn = (sum(f(seed) for seed in range(3)) for f in (
        lambda seed: by_search(node, seed, 100, NoOpinion()), lambda seed: by_chance(node, seed, 100)))
    assert found < 0.75 * drawn
    proposed = [KernelSearch(node, sizes_of(node), [node.attrs], Roofline(), seed).propose(9) for seed in (1, 1, 2)]
    assert proposed[0] == proposed[1] != proposed[2]  # runs replay


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_no_kernel_is_faster_than_the_roofline(name):
    node, size = node_of(name), 6 if name == "convolution" else 300
    search = KernelSearch(node, sizes_of(node, size), [node.attrs], Roofline())
    made = Executable(Candidate.of(alone(node), search.sizes))
    assert 0 < search.roofline <= min(made.run(3) / 3 for _ in range(20))


def test_kernels_in_loops_and_loops_of_elements_have_neighbours_too():
    def steps(x):
        return lw.lax.fori_loop(0, 3, lambda i, y: np.tanh(y) * 2 + np.sum(y), x)

    def until(x):
        return lw.vmap(lambda a: lw.lax.while_loop(lambda s: s < 100, lambda s: s * 2 + 1, a))(x)
    for f in (steps, until):
        for k in lw.schedule(f, ones(50)).kernels:
            search = KernelSearch(k._node, sizes_of(k._node, 50), [k.attrs], Roofline())
            found = search.propose(4)
            assert found[0] == k.attrs and (len(found) == 4 or not k.is_generated)
            assert all(_in_place(a) == _in_place(k.attrs) for a in found)


def _in_place(attrs):
    return [x for x in attrs.get("schedule", ()) if isinstance(x, InPlace)]


def test_kernels_of_the_library_have_their_starts_alone():
    node = lw.schedule(lambda x, y: x @ y, ones(40, 50), ones(50, 60)).kernel(0)._node
    search = KernelSearch(node, sizes_of(node), [{"implementation": "gemm"}], Roofline())
    assert search.promise() == np.inf and search.propose(9) == [{"implementation": "gemm"}]
    search.learn({"implementation": "gemm"}, 1.0)
    assert search.propose(9) == [] and search.promise() == 0 and search.best == ({"implementation": "gemm"}, 1.0)


def test_what_failed_is_not_proposed_and_promise_fades():
    node = node_of("rows")
    slow = {**node.attrs, "schedule": tuple([x for x in node.attrs["schedule"] if not isinstance(x, Vectorize | Unroll)])}
    search = KernelSearch(node, sizes_of(node, 1000), [node.attrs, slow], Roofline())
    search.learn(slow, np.inf)
    found = search.propose(1)
    assert found == [node.attrs]
    search.learn(node.attrs, 1.0)
    first = search.promise()
    for attrs in search.propose(30):
        search.learn(attrs, 2.0)
    assert slow not in found and 0 < search.promise() < first and search.predicted(node.attrs) == pytest.approx(1.0)
