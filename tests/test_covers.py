"""Covers: decisions of the partition and ways to make kernels, as data. Whatever fits computes what NumPy does; what does not
is refused, with the reason."""
import contextlib
import random

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.ir.dims import evaluate
from loopwright.ir.errors import ScheduleError
from loopwright.ir.expansion import expanded
from loopwright.ir.schedule import Inline
from loopwright.lower import compile
from loopwright.lower.blocking import chains
from loopwright.lower.covers import RULES, Cover, alternatives, implementations, structure_of_kernel
from loopwright.lower.decisions import Again, Apart, Call, Generate, InBlocks, Join, Whole
from loopwright.lower.modules import kernels_of, module_of
from loopwright.lower.partition import partition, partitioned
from loopwright.lower.program import cover_graph, lower_graph
from loopwright.lower.target import host_target
from tests.scale import examples
from tests.test_control_programs import Program as ControlProgram
from tests.test_random_user_programs import SIZES, close, is_smooth, reference
from tests.test_random_user_programs import Program as UserProgram

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


def sketched(g, blas, cover):
    return partitioned(g, TARGET, blas=blas, decisions=cover.partition, is_scheduled=False)


def any_cover(g, blas, draw, most):
    """A cover that fits, of at most so many decisions: any that are left to choose, and some that nobody would."""
    cover, now = RULES, sketched(g, blas, RULES)
    for _ in range(most):
        about = {x.node for x in cover.partition}
        free = [t for t in now.taken if t.others and t.others[0].node not in about]
        if not free:
            break
        taken = draw.choice(free)
        node = taken.others[0].node
        x = draw.choice([*taken.others, Apart(node), Again(node), Join(node, draw.choice(free).others[0].node)])
        more = Cover((*cover.partition, x))
        with contextlib.suppress(ScheduleError):
            now = sketched(g, blas, more)
            cover = more
    firsts = [InBlocks(now.places[v], draw.choice((None, 1, 3, 32))) for v, _ in chains(now.kernels)]
    for x in (y for y in firsts if draw.random() < 0.5):
        more = Cover((*cover.partition, x))
        with contextlib.suppress(ScheduleError):
            cover_graph(g, TARGET, blas=blas, cover=more)
            cover = more
    return cover


@contextlib.contextmanager
def random_covers(seed):
    """Compile with covers that chance writes."""
    draw = random.Random(seed)

    def covering(g, target, **options):
        cover = any_cover(g, options["blas"], draw, draw.choice((1, 3, 12)))
        return lower_graph(g, target, **options, cover=cover)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compile, "lower_graph", covering)
        patch.setattr(compile.cache, "read", lambda key: None)
        patch.setattr(compile.cache, "write", lambda key, entry: None)
        yield


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


SIDE_BY_SIDE = [
    lambda x: (np.sum(x, 1), np.max(x, 1)), lambda x: (np.sum(x, 0), np.max(x, 0)), lambda x: (np.min(x), np.max(x)),
    lambda x: (np.tanh(x) + 1, np.exp(x) * 2), lambda x: (np.sum(x, 1), np.sum(np.exp(x) * 3, 1) + 1),
    lambda x: (np.mean(x, 1), np.max(x, 1) - np.min(x, 1)), lambda x: (np.mean(x, 0), np.sum(x * x, 0)),
    lambda x: (np.argmax(x, 0), np.any(x > 1, 0), np.sum(x, 0)), lambda x: (x[1:] - x[:-1], x[1:] * x[:-1]),
    lambda x: (x > 0, x.astype("f4") * 2, np.floor(x).astype("i4")),
]


@pytest.mark.parametrize("f", SIDE_BY_SIDE)
def test_kernels_with_the_same_loops_become_one(f):
    x = normal(6, 5)
    g, want = graph_of(f, x), f(x)
    assert len(ops_of(g)) == 1
    apart = next(c for c in alternatives(g, TARGET, True, RULES) if len(ops_of(g, c)) > 1)
    for cover in (Cover(()), apart):
        for got, right in zip(compiled(g, cover)(x), want, strict=True):
            np.testing.assert_allclose(got, right, rtol=1e-12)


def test_what_reads_the_other_stays_apart_or_in_its_rows():
    x = normal(6, 5)
    assert len(ops_of(graph_of(lambda x: (x * 2, x[::-1] + x), x))) == 2  # the first may lie where x does
    g = graph_of(lambda x: (np.sum(x, 1), np.max(x / np.sum(x, 1, keepdims=True), 1)), x)
    assert ops_of(g) == ["reduce_sum broadcast div reduce_max"]


def test_what_rules_combine_is_kept_apart():
    """A sum over rows in the kernel that has them; kernels side by side in the body of a loop."""
    x, w = normal(200, 30), normal(30, 4)

    def rows(x, w):
        y = np.tanh(x @ w)
        return y * 2, np.sum(y, axis=0)
    g = graph_of(rows, x, w)
    at = next(t.others[0].node for t in partitioned(g, TARGET, blas=True, is_scheduled=False).taken if t.decision is None)
    apart = Cover((Apart(at),))
    assert "block_sums" in " ".join(ops_of(g)) and "block_sums" not in " ".join(ops_of(g, apart))
    assert apart in alternatives(g, TARGET, True, RULES)
    for got, want in zip(compiled(g, apart)(x, w), rows(x, w), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9)

    def moved(x):
        return lw.lax.fori_loop(0, 5, lambda i, s: (np.sin(s[1]) * 0.5, np.cos(s[0]) + 1), (x, x * 2))
    g = graph_of(moved, x)
    now = partitioned(g, TARGET, blas=True, is_scheduled=False)
    at = next(t.others[0].node for t in now.taken if t.decision is None)
    assert len(ops_of(g, Cover((Apart(at),)))) == len(ops_of(g)) + 1
    for got, want in zip(compiled(g, Cover((Apart(at),)))(x), moved(x), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)


def test_nodes_of_a_kind_are_decided_about_together():
    def layers(x, *ws):
        for w in ws:
            x = np.tanh(x @ w)
        return x
    args = normal(4, 5), normal(5, 5), normal(5, 6), normal(6, 3)
    g = graph_of(layers, *args)
    found = [c for c in alternatives(g, TARGET, True, RULES) if len(c.partition) == 3]
    assert any(all(isinstance(x, Generate) for x in c.partition) for c in found)
    for cover in found:
        np.testing.assert_allclose(compiled(g, cover)(*args), layers(*args), rtol=1e-12)


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


def network(x, w, v):
    return np.tanh(np.exp(x @ w) / np.sum(np.exp(x @ w), -1, keepdims=True) @ v) + 1


def steps(x, w):
    def step(c, r):
        c = np.tanh(c @ w + r)
        return c, (np.sum(c), np.exp(c))
    return lw.lax.scan(step, x[0], x)


PROGRAMS = {
    "softmax": (softmax, (normal(4, 5),)),
    "a network": (network, (normal(60, 5), normal(5, 6), normal(6, 3))),
    "a loop": (steps, (normal(4, 5), normal(5, 5))),
    "a branch": (lambda x: lw.lax.cond(x[0] > 0, lambda x: np.sin(np.cos(x)), lambda x: x - np.sum(x), x), (normal(4),)),
    "gradients": (lw.grad(lambda w, x, v: np.sum(network(x, w, v))), (normal(5, 6), normal(60, 5), normal(6, 3))),
    "complex numbers": (lambda z: (z * np.exp(z) / np.sum(z), np.abs(z)), (normal(5) + 1j,)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_rules_decide_can_be_said(name):
    f, args = PROGRAMS[name]
    g = graph_of(f, *args)
    made, taken = partitioned(g, TARGET, blas=True), partitioned(g, TARGET, blas=True, is_scheduled=False).taken
    cover = Cover(tuple([t.decision for t in taken if t.decision is not None]))
    assert cover.partition and partition(g, TARGET, blas=True, decisions=cover.partition) == made.kernels
    pays = dict(chains(made.kernels))
    for v in pays:
        x = InBlocks(made.places[v]) if pays[v] else Whole(made.places[v])
        with contextlib.suppress(ScheduleError):  # too small to be divided
            assert lowered(g, Cover((*cover.partition, x))).kernels == lowered(g).kernels


@pytest.mark.parametrize("name", PROGRAMS)
def test_alternatives_compute_the_same(name):
    f, args = PROGRAMS[name]
    g = graph_of(f, *args)
    found = alternatives(g, TARGET, True, RULES)
    assert len({str(cover_graph(g, TARGET, blas=True, cover=c)[0]) for c in (RULES, *found)}) == len(found) + 1
    wants = lw.tree.leaves(f(*args))
    for cover in random.Random(0).sample(found, min(len(found), 4)):
        gots = compiled(g, cover)(*args)
        for got, want in zip(gots if isinstance(gots, tuple) else (gots,), wants, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)


def test_chains_run_in_blocks_or_whole():
    f, args = PROGRAMS["a network"]
    g, called = graph_of(f, *args), Call((0,))  # else all of it is one kernel
    whole, divided, by_rule = (lowered(g, Cover((called, *x))) for x in ((Whole((0,)),), (InBlocks((0,), 7),), ()))
    assert [n.op.name for n in whole.kernels.nodes] == ["kernel"] * 4
    loop, = divided.kernels.nodes
    assert loop.op.name == "blocks" and evaluate(loop.attrs["rows"], {"n": 60}) == 7
    assert by_rule.kernels != divided.kernels
    np.testing.assert_allclose(compiled(g, Cover((called, InBlocks((0,), 7))))(*args), f(*args), rtol=1e-12)
    plain = graph_of(lambda x: np.exp(x - np.max(x, -1, keepdims=True))[::1] * 2, normal(100, 7))
    for whose, decisions, why in ((g, (called, InBlocks((8,))), "no chain"), (plain, (Whole((99,)),), "no kernel is made"),
                                  (g, (called, InBlocks((0,)), Whole((0,))), "says otherwise")):
        with pytest.raises(ScheduleError, match=why):
            lowered(whose, Cover(decisions))
    with pytest.raises(ScheduleError, match="donated"):
        lower_graph(graph_of(lambda x, w: np.tanh(x @ w) @ w, normal(50, 4), normal(4, 4)), TARGET, blas=True, donated=(0,),
                    cover=Cover((InBlocks((0,)),)))


def test_covers_are_json():
    kernel, = lowered(SOFTMAX).kernels.nodes
    decisions = Apart((3,)), Join((1, 0, 2), (1, 0, 4)), Generate((7,)), InBlocks((8,), 3), Whole((9,))
    cover = Cover(decisions).using(kernel, kernel.attrs)
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


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, about means of nothing
@examples(20)
@given(seed=st.integers(0, 2**32 - 1))
@example(seed=238)  # columns that are spelled out, of which blocks would take some
def test_random_programs_under_random_covers(seed):
    rng = np.random.default_rng(seed)
    program = UserProgram(rng)
    f, dtypes = program.function(), {v.dtype for v in program.values.values()}
    tolerance = 5e-2 if np.dtype(np.float16) in dtypes else 2e-3 if np.dtype(np.float32) in dtypes else 1e-8
    jitted = lw.jit(f)
    for _ in range(2):
        args = program.arguments({name: int(rng.choice(SIZES)) for name in "nmk"})
        wants = reference(f, args)
        if wants is None:
            continue
        try:
            with random_covers(seed):
                gots = jitted(*args)
        except lw.WriteError:  # a view that was written through a reshape, whose meaning depends on the layout
            return
        if not all(close(got, want, tolerance) for got, want in zip(gots, wants, strict=True)):
            assert not is_smooth(f, args, wants, tolerance), f"{program.source}{[a.shape for a in args]}"


@examples(8)
@given(seed=st.integers(0, 10**9), depth=st.integers(1, 3))
def test_random_loops_and_branches_under_random_covers(seed, depth):
    program, rng = ControlProgram(seed, depth, 5), np.random.default_rng(seed)
    x, m, a, i = rng.uniform(-1, 1, 4), rng.uniform(-1, 1, (3, 4)), np.float64(rng.uniform(-1, 1)), np.int64(rng.integers(0, 4))
    with random_covers(seed):
        gots = lw.jit(program)(x, m, a, i)
    for got, want in zip(gots, program(x, m, a, i), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)
