"""The tuner for a GPU, which is the emulator: its clock is the host's, in which threads run one after another. What is found is
right and is used; what is quick on a card is not shown."""
import copy
import dataclasses
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.ir.errors import ScheduleError
from loopwright.ir.gpu_schedule import InRegisters, Threads
from loopwright.ir.graph import Node
from loopwright.ir.schedule import Reorder, Tiles, Unroll, Vectorize
from loopwright.lower.cuda import emit_cuda, lower_cuda
from loopwright.lower.cuda import program as programs
from loopwright.lower.cuda.driver import Device
from loopwright.lower.cuda.maths import Library
from loopwright.lower.cuda.rules import gpu_schedule
from loopwright.lower.modules import alone, check_schedules, kernels_of, rescheduled
from loopwright.lower.registers import perfect
from loopwright.lower.runtime import lazy
from loopwright.lower.scheduling import build_nest
from loopwright.lower.tuning.candidates import Candidate, arguments, difference, reference, roundings
from loopwright.lower.tuning.edits import ordered
from loopwright.lower.tuning.gpu_features import NAMES
from loopwright.lower.tuning.gpu_space import ways
from loopwright.lower.tuning.platforms import GPU
from loopwright.lower.tuning.search import KernelSearch
from loopwright.lower.tuning.workers import Workers
from tests.cuda_templates import TEMPLATES, program, sizes_of
from tests.devices import ON_GPU, device, emulator_alone, require_device
from tests.emulator import ORDERS, Emulator
from tests.emulator.driver import EmulatorDriver
from tests.emulator.faults import BREAKS, CRASHES, DOES_NOTHING, HANGS, FaultyDriver
from tests.emulator.programs import nonsense, run_kernel
from tests.scale import examples
from tests.test_tuned_records import again, answering

CARD = GPU(Device("a card", 132, 1.98e9, 256, 3.35e12, 50 << 20), "")
LARGE = ("convolution", "products in batches")  # whose neighbours take the emulator long
SLOW = Threads(32) if ON_GPU else Threads(1024)
NAMED = sorted(name for name in TEMPLATES if not name.startswith(LARGE))


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    require_device()
    monkeypatch.setenv("LOOPWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("LOOPWRIGHT_TUNE", raising=False)


@pytest.fixture
def gpu(monkeypatch):
    driver = device()
    monkeypatch.setattr(lazy, "gpu", lambda: driver)
    return driver


@pytest.fixture
def slow_rules(monkeypatch):
    """Far more threads than elements, which take one each: what the emulator's clock sees. On a card, small blocks of them."""
    def slow(region, sizes, fast_math=False):
        found = gpu_schedule(region, sizes, fast_math)
        return tuple([SLOW if isinstance(x, Threads) else x for x in found if not isinstance(x, Vectorize | Unroll)])
    monkeypatch.setattr(programs, "gpu_schedule", slow)


@lw.jit
def curve(x):
    return np.tanh(x) + 1


def normal(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("f4")


# ---- use --------------------------------------------------------------------------------------------
def test_a_slow_default_is_replaced_and_later_calls_have_what_was_found(gpu, slow_rules, monkeypatch):
    n = 1 << 24 if ON_GPU else 50
    f, x = again(curve), normal(n)
    there = lw.device_put(x)
    before = f(there)
    result = lw.tune(f, there, seconds=12)
    one, = result.found
    assert result.function is f and result.speedup > 1.2 and one.ranges, result.report()
    assert one.record.machine == gpu.device.name and {t.what for t in one.tuned.trials} >= {"kernel", "program"}
    schedule = kernels_of(one.tuned.best)[0].attrs["schedule"]
    assert SLOW not in schedule and any(isinstance(x, Threads) for x in schedule)
    for g in (f, again(curve)):  # by the record, as in other processes
        np.testing.assert_array_equal(g(there).get(), before.get())
        assert f"tuned at n={n}" in answering(g, there) and "runs these sizes" in answering(g, there)
    far = f(lw.device_put(normal(5000)))  # beyond its range on the emulator: the default
    np.testing.assert_allclose(far.get(), np.tanh(normal(5000)) + 1, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(f(x), np.tanh(x) + 1, rtol=1e-6, atol=1e-6)
    assert "tuned" not in f.explain(x).split("on the GPU")[0]  # calls on the CPU have their own
    other = copy.copy(gpu)
    other.__class__ = type("Other", (type(gpu),), {"device": dataclasses.replace(gpu.device, name="another card")})
    monkeypatch.setattr(lazy, "gpu", lambda: other)
    f = again(curve)
    f(lw.device_put(x))
    assert f"it is of another machine: {gpu.device.name}" in f.explain(lw.device_put(x)) and "tuned at" not in f.explain()


def test_blocks_tune_what_they_meet_there(gpu, slow_rules):
    f, there = again(curve), lw.device_put(normal(20))
    with lw.tuning(seconds=5) as found:
        f(there)
    assert [x.name for x in found.results] == ["curve"] and found.results[0].record.machine == gpu.device.name


def test_several_sizes_donated_arguments_and_numbers(gpu):
    step = lw.jit(lambda w, g, rate: w - rate * g, donate_argnums=0, shapes=("n", "n", ""))
    w, g = lw.device_put(normal(8)), lw.device_put(normal(8))
    result = lw.tune(step, w, g, 0.5, seconds=4, ranges={"n": (4, 16)})
    assert [x.sizes["n"] for x in result.found] == [4, 8, 16]
    found = step(w, g, 0.5)
    assert found is w
    np.testing.assert_allclose(w.get(), normal(8) / 2, rtol=1e-6)
    with pytest.raises(lw.TuningError, match="start: schedules by hand are for the CPU"):
        lw.tune(curve, g, start=lw.schedule(curve, normal(8)))


# ---- robust -----------------------------------------------------------------------------------------
def module_of(f, *args):
    """A function's program for a GPU, and its sizes."""
    versions = lw.jit(f)._versions
    call = versions.parameters.call(args, {})
    draft = versions.draft(call)
    sizes = draft.sizes_of(call.flat())
    return CARD.module(draft.version.graph, sizes, (), False, programs.RULES), sizes


def with_threads(g, count):
    n, = kernels_of(g)
    return rescheduled(g, {n: tuple([Threads(count) if isinstance(x, Threads) else x for x in n.attrs["schedule"]])})


@emulator_alone
def test_what_goes_wrong_on_a_device_costs_one_candidate():
    g, sizes = module_of(lambda x: x * 2, normal(300))
    right, crash, hang, breaks, nothing, again = [Candidate.of(with_threads(g, n), sizes) for n in (
        256, CRASHES, HANGS, BREAKS, DOES_NOTHING, 32)]
    with Workers(1, check_seconds=60.0, time_seconds=60.0, origin=FaultyDriver.origin) as workers:
        found = workers.measure([right, crash, breaks, nothing, again], 5)
        assert [o.failure is None for o in found] == [True, False, False, False, True], found
        assert found[1].failure == "crashed with SIGABRT"
        assert found[2].failure == "RuntimeError: an illegal memory access was encountered"
        assert found[3].failure.startswith("result 0 is wrong at (0,): nan")
        assert all(0 < o.seconds < 1 for o in (found[0], found[4]))
        workers.check_seconds = 3.0
        hung, = workers.measure([hang], 5)
        assert hung.failure == "did not end within 3 s"


@emulator_alone
def test_a_program_that_means_something_else_is_rejected(gpu):
    """An index out of range is reported as it is where programs run; another meaning is told by the numbers."""
    g, sizes = module_of(lambda x, k: x[k], normal(9), np.arange(4))
    other, _ = module_of(lambda x: x * 3, normal(9))
    with Workers(1, check_seconds=60.0, time_seconds=60.0, origin=EmulatorDriver.origin) as workers:
        first, second = workers.measure([Candidate.of(g, sizes), Candidate.of(other, {"n": 9})], 5)
        assert first.failure is None and second.failure is None
        text = Candidate.of(g, sizes).text
        wrong, = workers.measure([Candidate(text, (("n", 0), ("m", 4)))], 5)
        assert "IndexError" in wrong.failure or "index" in wrong.failure


def test_records_of_schedules_that_a_gpu_cannot_run_are_refused():
    g, _ = module_of(lambda x: x * 2, normal(300))
    check_schedules(g, is_written=False, for_gpu=True)
    with pytest.raises(ScheduleError, match="it is for a GPU"):
        check_schedules(g, is_written=False)
    n, = kernels_of(g)
    odd = kernels_of(with_threads(g, 24))[0].attrs["schedule"]
    for schedule, why in (((), "no threads"), (odd, "powers of two")):
        with pytest.raises(ScheduleError, match=why):
            check_schedules(rescheduled(g, {n: schedule}), is_written=False, for_gpu=True)


# ---- the space --------------------------------------------------------------------------------------
def kernels(name):
    """The generated kernels of a template, each once."""
    return list({n.regions[0].key: n for n in program(name)[1].made}.values())


@pytest.mark.parametrize("name", NAMED)
def test_every_template_has_neighbours(name):
    for n in kernels(name):
        space, schedule = CARD.space(n.regions[0], {}), n.attrs["schedule"]
        found = space.neighbours(schedule, space.replay(schedule))
        legal = [made for x in found if (made := space.replay(x)) is not None]
        assert len(found) == len(set(found)) and len(legal) > 2
        assert all(made.nest.threads for made in legal)


@pytest.mark.parametrize(("name", "rows"), [
    ("squares of axes that are made one", "i0"), ("squares of the first and last axes", "i0"), ("transposed inside", "i1"),
    ("bytes in squares, features first", "i1"), ("features last in squares", "i1_i2")])
def test_squares_are_of_the_loop_along_which_arrays_are_read(name, rows):
    """Those of the rules, which the tuner finds again from elements in the order of memory."""
    n = kernels(name)[0]
    space, squares = CARD.space(n.regions[0], {}), n.attrs["schedule"]
    over, _ = perfect(space.replay(squares).nest.body[0])
    assert Tiles() in squares and over[-2][0].name == rows
    plain = next(x for x in space.neighbours(squares, space.replay(squares)) if Tiles() not in x and space.replay(x))
    assert not any(isinstance(x, Reorder) for x in plain)
    assert ordered(squares) in space.neighbours(plain, space.replay(plain))


@examples(10)
@given(st.sampled_from(NAMED), st.integers(0, 2**32 - 1), st.sampled_from(ORDERS),
       st.sampled_from([(33, 70), (5, 300), (70, 3), (1, 1)]))
def test_schedules_far_from_the_default_compute_what_the_region_means(name, seed, order, size):
    rng = np.random.default_rng(seed)
    n = kernels(name)[0]
    region, library = n.regions[0], Library()
    told = sizes_of(program(name)[0], TEMPLATES[name].make(np.random.default_rng(0), *size))
    sizes = {s: told[s] for s in region.symbols}
    space = CARD.space(region, sizes)
    pool = [n.attrs["schedule"], *ways(region, sizes)]
    for _ in range(12):
        a, b = (pool[int(rng.integers(len(pool)))] for _ in range(2))
        new = space.mutated(a, space.replay(a), rng) if rng.random() < 0.8 else space.crossed(a, b, rng)
        made = space.replay(new)
        pool += [new] if made is not None and made.nest.threads and new not in pool else []
    chosen = [pool[int(k)] for k in rng.permutation(len(pool))[:4]]
    texts = [emit_cuda(build_nest(region, schedule, f"k{k}").nest, library) for k, schedule in enumerate(chosen)]
    emulator = Emulator("\n".join([*library.texts.values(), *(k.text for k in texts)]),
                        [x.name for k in texts for x in k.launches], ("-O0",))
    args = arguments(alone(n), sizes)
    want, rounded = reference(region, args, sizes), roundings(region, args, sizes)
    for schedule, k in zip(chosen, texts, strict=True):
        outs = run_kernel(emulator, k, args, [nonsense(v.type, sizes) for v in region.results], sizes, order)
        assert difference(outs, want, rounded) is None, schedule


@pytest.mark.parametrize("name", [name for name in NAMED if "halves" in name])
def test_no_access_is_of_more_than_16_bytes(name):
    """Also where what is narrow in memory is computed with in wider registers."""
    n = kernels(name)[0]
    sizes = dict.fromkeys(n.regions[0].symbols, 1)
    for k, schedule in enumerate(ways(n.regions[0], sizes)):
        text = emit_cuda(build_nest(n.regions[0], schedule, f"k{k}").nest, Library()).text
        for kind, lanes in re.findall(r"lw_pack<([\w ]+), (\d+)>", text):
            assert {"float": 4, "unsigned short": 2, "unsigned char": 1}[kind] * int(lanes) <= 16, schedule


@pytest.mark.parametrize(("name", "wrong", "why"), [
    ("transposed", Threads(16, 16), "squares have 32 threads"), ("transposed", Threads(64, 8), "squares have 32 threads"),
    ("running rows", Threads(16, 8), "whole warps along x"), ("updated", Threads(128, 2), "warps along x alone")])
def test_blocks_of_a_shape_that_templates_do_not_take_are_refused(name, wrong, why):
    n = kernels(name)[-1]
    schedule = tuple([wrong if isinstance(x, Threads) else x for x in n.attrs["schedule"]])
    with pytest.raises(ScheduleError, match=why):
        build_nest(n.regions[0], schedule, "k")


def test_rows_of_one_pass_keep_as_many_elements():
    n = kernels("rows")[0]
    kept = [x for x in n.attrs["schedule"] if isinstance(x, InRegisters)]
    assert len(kept) > 1
    fewer = tuple([dataclasses.replace(x, each=2 * x.each) if x == kept[0] else x for x in n.attrs["schedule"]])
    with pytest.raises(ScheduleError, match="threads keep more or fewer"):
        build_nest(n.regions[0], fewer, "k")


# ---- what is expected -------------------------------------------------------------------------------
def described(name, schedule, sizes):
    n = kernels(name)[0]
    return CARD.features(build_nest(n.regions[0], schedule, "k").nest, dict(zip(n.regions[0].symbols, sizes, strict=False)))


@pytest.mark.parametrize("name", NAMED)
def test_features_are_finite_the_same_again_and_never_below_the_roofline(name):
    for n in kernels(name):
        sizes = dict.fromkeys(n.regions[0].symbols, 300)
        search = KernelSearch(n, sizes, [n.attrs], CARD.model(), platform=CARD)
        rows = np.stack([p.features for p in search.points.values()])
        assert rows.shape[1] == len(NAMES) and np.all(np.isfinite(rows)) and np.all(rows >= 0)
        assert np.array_equal(rows[0], CARD.features(build_nest(n.regions[0], n.attrs["schedule"], "k").nest, sizes))
        assert 0 < search.roofline <= CARD.model().predict(rows).min()


def test_the_model_knows_what_a_card_is_slow_at():
    """Few threads, and neighbours that read far from each other."""
    def of(name, schedule, sizes):
        return CARD.model().predict(described(name, schedule, sizes)[None])[0]
    n = kernels("transposed")[-1]
    squares, straight = n.attrs["schedule"], gpu_schedule(n.regions[0], dict.fromkeys(n.regions[0].symbols, 8))
    assert of("transposed", squares, (4096, 4096)) < of("transposed", straight, (4096, 4096))
    n = kernels("everything")[0]
    blocks, alone = (gpu_schedule(n.regions[0], dict.fromkeys(n.regions[0].symbols, size)) for size in (1 << 24, 16))
    assert blocks != alone and of("everything", blocks, (1 << 24,) * 2) < of("everything", alone, (1 << 24,) * 2)


def test_starts_of_a_search_are_templates_of_other_sizes():
    n = kernels("rows")[0]
    found = ways(n.regions[0], dict.fromkeys(n.regions[0].symbols, 300))
    assert len(found) >= 3 and len({next(x for x in s if isinstance(x, Threads)) for s in found}) > 1
    first = KernelSearch(n, dict.fromkeys(n.regions[0].symbols, 300), CARD.implementations(n, {}), CARD.model(), platform=CARD)
    assert first.propose(1)[0]["schedule"] == n.attrs["schedule"]


def test_products_compete_with_the_library():
    g, _ = module_of(lambda x, y: x @ y, normal(64, 64), normal(64, 64))
    ways_of = CARD.implementations(kernels_of(g)[0], {"n": 64, "m": 64, "k": 64})
    assert {a["implementation"] for a in ways_of} == {"generated", "gemm"} and ways_of[0] == {"implementation": "gemm"}


def test_partitions_are_decided_there_too():
    def f(x):
        y = np.exp(x)
        return y / y.sum(axis=1, keepdims=True), np.tanh(y).sum(axis=0)
    versions = lw.jit(f)._versions
    draft = versions.draft(versions.parameters.call((normal(20, 30),), {}))
    g, sizes = draft.version.graph, {"n": 20, "m": 30}
    made = [CARD.module(g, sizes, (), False, cover) for cover in CARD.alternatives(g, programs.RULES, sizes, False)]
    assert len({len(kernels_of(m)) for m in made}) > 1
    for m in made[:3]:
        candidate = Candidate.of(m, sizes)
        again = lower_cuda(candidate.parsed(), dict(candidate.sizes))
        assert [n.attrs for n in kernels_of(again.kernels)] == [n.attrs for n in kernels_of(m)]
        assert isinstance(again.kernels.nodes[0], Node)


def test_partitions_know_what_fast_math_allows():
    """A softmax between products of f32 is one kernel then: there is less to decide."""
    x = np.ones((16, 512, 64), "f4")
    versions = lw.jit(TEMPLATES["attention"].f, fast_math=True)._versions
    g = versions.draft(versions.parameters.call((x, x, x), {})).version.graph
    sizes = {str(n): k for v in g.params for n, k in zip(v.type.shape, x.shape, strict=True)}
    plain, fast = (CARD.alternatives(g, programs.RULES, sizes, allowed) for allowed in (False, True))
    assert plain and set(map(str, plain)) != set(map(str, fast))
    counts = [len(kernels_of(CARD.module(g, sizes, (), True, cover))) for cover in (programs.RULES, *fast)]  # all of them fit
    assert counts[0] == 1
