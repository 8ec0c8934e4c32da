"""The loop of the tuner: what it keeps, between which sizes, what it tells, and how it ends."""
import json
import math
from itertools import pairwise
from unittest import mock

import numpy as np
import pytest

import loopwright as lw
from loopwright import lax, nn
from loopwright.ir.schedule import Unroll, Vectorize
from loopwright.lower import partition
from loopwright.lower.covers import alternatives
from loopwright.lower.modules import kernels_of
from loopwright.lower.target import host_target
from loopwright.lower.tuning import kernels, tuner
from loopwright.lower.tuning.ranges import corners, ranges_of
from loopwright.lower.tuning.records import Records, machine
from loopwright.lower.tuning.sites import sites_of
from loopwright.lower.tuning.workers import Outcome


def normal(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def traced(f, *args):
    """A function's graph, and the sizes of its symbols."""
    compiled = lw.jit(f)
    entry = compiled._versions.entry(compiled._versions.parameters.call(args, {}))
    return entry.draft.version.graph, entry.draft.sizes_of(args)


class Pool:
    """Workers that measure nothing: the seconds of a module are `of(its graph)`, and of one that is wrong infinite. And the
    clock of a search, which a candidate moves on by 0.01 s, however slow the machine is."""

    check_seconds = time_seconds = 20.0

    def __init__(self, of, noise=0.01):
        self.of, self.noise, self.measured = of, noise, []

    def monotonic(self):
        return 0.01 * len(self.measured)

    def measure(self, candidates, rounds, sample=0.0):
        self.measured += candidates
        found = [self.of(c.parsed()) for c in candidates]
        return [Outcome(c, (), self.noise, x) if isinstance(x, str) else Outcome(c, (x,) * 3, self.noise)
                for c, x in zip(candidates, found, strict=True)]

    here = measure


def tuned(f, args, of, seconds=2.0, listener=lambda trial, progress: None, noise=0.01, starts=(), workers=Pool):
    g, sizes = traced(f, *args)
    task, pool = tuner._Task(g, sizes, False, ()), workers(of, noise)
    with mock.patch.object(tuner, "time", pool):
        return tuner._Tuner(task, seconds, pool, listener).run(starts)


def softmax_and_more(x):
    y = nn.softmax(x)
    return np.sin(y) + np.exp(y).sum(axis=0)


def stop(when):
    if when:
        raise KeyboardInterrupt


def computed(module, *args):
    return lw.parse(str(module)).compile()(*args)


# ---- what is kept -----------------------------------------------------------------------------------
def lanes_of(g):
    return [x.lanes for n in kernels_of(g) for x in n.attrs.get("schedule", ()) if isinstance(x, Vectorize)]


def test_faster_schedules_are_found_and_compute_the_same():
    """Were vectors of 4 the best, whatever else, the tuner would come near them."""
    x = normal(33, 70)
    found = tuned(nn.softmax, (x,), lambda g: 1e-3 * (1 + sum(abs(math.log2(n / 4)) for n in lanes_of(g))), seconds=1000.0,
                  listener=lambda trial, progress: stop(progress.best < 0.9 * progress.default or progress.trials > 300))
    assert found.best is not found.default
    assert found.best_seconds < 0.9 * found.default_seconds
    np.testing.assert_allclose(computed(found.best, x), nn.softmax(x), rtol=1e-5)


def test_a_gain_within_the_noise_is_none():
    found = tuned(nn.softmax, (normal(33, 70),), lambda g: 1e-3 - 1e-7 * len(str(g)), noise=0.3)
    assert found.best is found.default and found.best_seconds == found.default_seconds


def test_what_is_slower_where_it_is_used_is_not_kept():
    """As with threads that another library keeps busy there."""
    class Elsewhere(Pool):
        def here(self, candidates, rounds, sample):
            return [Outcome(c, (1.0 if k == 0 else 1.1,) * 3, 0.01) for k, c in enumerate(candidates)]
    seen = []
    found = tuned(softmax_and_more, (normal(20, 30),), lambda g: 1e-2 / (1 + len(kernels_of(g))),
                  listener=lambda trial, progress: seen.append(progress.best), workers=Elsewhere)
    assert min(seen) < 0.9 * 1e-2 / 2  # something was the best for a while
    assert found.best is found.default and found.best_seconds == found.default_seconds == found.partition_seconds == 1.0


def test_what_was_the_best_before_is_kept_where_the_last_one_fails_there():
    g, sizes = traced(softmax_and_more, normal(20, 30))
    task = tuner._Task(g, sizes, False, ())
    covers = alternatives(g, host_target(), True, tuner.Cover())
    first, last = programs = [tuner._Program(c, task.module(c)) for c in covers[:2]]
    names = [str(p.module) for p in programs]

    class Elsewhere(Pool):
        def here(self, candidates, rounds, sample):
            times = {names[0]: 0.8, names[1]: 2.0}
            return [Outcome(c, (times.get(str(c.parsed()), 1.0),) * 3, 0.01) for c in candidates]
    times = {names[0]: 0.8, names[1]: 0.6}
    made = tuner._Tuner(task, 100.0, Elsewhere(lambda g: times.get(str(g), 1.0)), lambda trial, progress: None)
    made._begin()
    for p in programs:
        made._race([p])
    assert made.best is last and made.earlier == [first]
    made._decide()
    assert made.best is first and made.best_seconds == 0.8 and made.default_seconds == 1.0


def test_covers_of_the_graph_are_searched():
    """Were each kernel a gain, the graph would fall into more of them."""
    x = normal(20, 30)
    found = tuned(softmax_and_more, (x,), lambda g: 1e-2 / (1 + len(kernels_of(g))), seconds=1000.0,
                  listener=lambda trial, progress: stop(trial.what == "kernel" or progress.best < 0.9 * progress.default))
    assert len(kernels_of(found.best)) > len(kernels_of(found.default))
    assert found.cover.partition
    np.testing.assert_allclose(computed(found.best, x), softmax_and_more(x), rtol=1e-4)


def test_what_the_partition_does_alone_is_told():
    """Here more kernels take half of the time, and vectors of other widths a tenth less."""
    usual = []

    def of(g):
        usual.append(lanes_of(g))
        return 1e-2 / (1 + len(kernels_of(g))) * (1.0 if set(lanes_of(g)) <= set(usual[0]) else 0.9)
    found = tuned(softmax_and_more, (normal(20, 30),), of)
    assert found.best_seconds <= found.partition_seconds < found.default_seconds
    assert found.partition_seconds == of(tuner._Task(*traced(softmax_and_more, normal(20, 30)), False, ()).module(
        tuner.Cover(found.cover.partition)))


def test_a_start_is_kept_as_it_is_where_its_kernels_are_made_otherwise():
    """Of a start nobody knows the cover: what is found of its kernels goes into the start itself."""
    g, sizes = traced(softmax_and_more, normal(20, 30))
    task = tuner._Task(g, sizes, False, ())
    start = max([task.module(c) for c in alternatives(g, host_target(), True, tuner.Cover())], key=lambda g: len(kernels_of(g)))
    count, usual = len(kernels_of(start)), lanes_of(start)

    def of(g):
        return (1e-3 if len(kernels_of(g)) == count else 1e-2) * (1.0 if set(lanes_of(g)) <= set(usual) else 0.9)
    found = tuned(softmax_and_more, (normal(20, 30),), of, seconds=1000.0, starts=[start],
                  listener=lambda trial, progress: stop(progress.best < 0.095 * progress.default))
    assert len(kernels_of(found.best)) == count and found.cover is None and lanes_of(found.best) != usual
    np.testing.assert_allclose(computed(found.best, normal(20, 30)), softmax_and_more(normal(20, 30)), rtol=1e-4)


def test_a_kernel_that_cannot_run_alone_stays_as_it_is():
    def of(g):
        alone = len(kernels_of(g)) == 1
        return "KeyError: no" if alone else 1e-3
    found = tuned(softmax_and_more, (normal(20, 30),), of, seconds=1.0)
    assert found.best is found.default and all(k.default == math.inf for k in found.kernels)


def test_what_fails_costs_itself_and_says_why():
    default = []

    def of(g):
        default.append(lanes_of(g))
        return 1e-3 if lanes_of(g) == default[0] else "crashed with SIGSEGV"
    found = tuned(nn.softmax, (normal(9, 40),), of, seconds=20.0, listener=lambda trial, progress: stop(progress.trials > 30))
    failed = [t for t in found.trials if t.failure]
    assert failed and all(t.failure == "crashed with SIGSEGV" and t.seconds == math.inf for t in failed)
    assert found.best is found.default


def test_a_default_that_fails_is_told():
    with pytest.raises(RuntimeError, match="the default program cannot be measured: no"):
        tuned(np.sin, (normal(4),), lambda g: "no")


def test_a_moment_when_even_the_default_fails_decides_nothing():
    """Whatever ran beside it then is no gain."""
    default, count = [], []

    def of(g):
        default.append(str(g))
        count.append(str(g) == default[0])
        return "did not end within 3 s" if count[-1] and sum(count) > 2 else 1e-3
    found = tuned(softmax_and_more, (normal(20, 30),), of, seconds=1000.0,
                  listener=lambda trial, progress: stop(progress.trials > 30))
    assert found.best is found.default and found.default_seconds == 1e-3


def test_a_stop_keeps_what_is_known():
    x = normal(20, 30)
    found = tuned(softmax_and_more, (x,), lambda g: 1e-2 / (1 + len(kernels_of(g))),
                  listener=lambda trial, progress: stop(progress.best < 0.9 * progress.default))
    assert found.interrupted and found.best is not found.default
    assert found.ranges == ((20, 20), (30, 30))
    np.testing.assert_allclose(computed(found.best, x), softmax_and_more(x), rtol=1e-4)


def test_a_stop_keeps_nothing_that_is_slower_where_it_is_used():
    class Elsewhere(Pool):
        def here(self, candidates, rounds, sample):
            return [Outcome(c, (1.0,) * 3, 0.01) for c in candidates]
    found = tuned(softmax_and_more, (normal(20, 30),), lambda g: 1e-2 / (1 + len(kernels_of(g))), workers=Elsewhere,
                  listener=lambda trial, progress: stop(progress.best < 0.9 * progress.default))
    assert found.interrupted and found.best is found.default and found.best_seconds == found.default_seconds == 1.0


def test_progress_tells_time_kernels_and_failures():
    seen = []
    found = tuned(nn.softmax, (normal(9, 40),), lambda g: "no" if lanes_of(g) == [64] * len(lanes_of(g)) else 1e-3,
                  listener=lambda trial, progress: seen.append((trial, progress)))
    assert [t for t, _ in seen] == list(found.trials)
    last = seen[-1][1]
    assert last.trials == len(found.trials) and last.failures == sum(t.failure is not None for t in found.trials)
    kernel, = last.kernels
    assert kernel.calls == 1 and kernel.default > 0 and "exp" in kernel.ops and kernel.implementation == "generated"
    assert all(0 <= b.left <= a.left for (_, a), (_, b) in pairwise(seen))


# ---- in truth ---------------------------------------------------------------------------------------
def test_a_slow_default_is_left(monkeypatch):
    """Measured for good, in worker processes: loops without vectors give way to loops with them."""
    right = partition.default_schedule

    def slow(region, target):
        return tuple([x for x in right(region, target) if not isinstance(x, Vectorize | Unroll)])
    x = normal(200, 1000)
    g, sizes = traced(lambda x: np.exp(x) * x + 1, x)
    monkeypatch.setattr(partition, "default_schedule", slow)
    found = tuner.tune(g, sizes, seconds=100.0, on_trial=lambda trial, progress: stop(progress.best < 0.7 * progress.default))
    assert found.best is not found.default
    assert found.best_seconds < 0.7 * found.default_seconds
    assert all(t.failure is None for t in found.trials)
    np.testing.assert_allclose(computed(found.best, x), np.exp(x) * x + 1, rtol=1e-5)


def test_kernels_are_remembered_for_other_programs(tmp_path):
    """The best way of a kernel is tried first where another program has it; what failed is recorded with its reason."""
    records = Records(tmp_path / "kernels.jsonl")

    def of(g):
        return "crashed with SIGSEGV" if 64 in lanes_of(g) else 1e-3 if 32 in lanes_of(g) else 2e-3

    def sought(f, args):
        g, sizes = traced(f, *args)
        task, pool = tuner._Task(g, sizes, False, ()), Pool(of)
        found = tuner._Tuner(task, 1000.0, pool, lambda trial, progress: stop(
            progress.best < progress.default or progress.trials > 300), records).run(())
        assert found.best is not found.default
        return found
    first = sought(nn.softmax, (normal(33, 70),))
    kept = records.read()
    assert any(r.failure for r in kept) == any(t.failure for t in first.trials)
    assert any(r.failure is None and r.samples for r in kept)
    second = sought(lambda x: np.sort(nn.softmax(x)), (normal(20, 30),))
    kernel, = {t.kernel for t in first.trials if t.what == "kernel"}
    again = [t.seconds for t in second.trials if t.kernel == kernel]
    assert min(again[:kernels.BATCH]) == 1e-3


@pytest.mark.parametrize("kernels", [[0.0], [["generated"]], [["generated", 3]], [["generated", [["Unroll", {"stage": 0}]]]],
                                     [["generated", [["Unroll", 1]]]], [["generated", [4]]], [["generated", [["None", {}]]]]])
def test_a_kernel_that_is_no_record_is_left_out(tmp_path, kernels):
    records = Records(tmp_path / "kernels.jsonl")
    line = {"structure": "s", "sizes": [1], "machine": machine(), "kernels": kernels, "samples": [1e-3], "noise": 0.0,
            "failure": None, "format": 1}
    records.path.write_text(json.dumps(line) + "\n")
    assert records.made("s") == [] and len(records.ignored) + len(records.read()) == 1


# ---- sizes ------------------------------------------------------------------------------------------
def test_corners_stand_for_all_of_a_box():
    assert list(corners(())) == [()]
    assert set(corners(((1, 2), (5, 6)))) == {(1, 5), (1, 6), (2, 5), (2, 6)}
    assert list(corners(((3, 3),))) == [(3,)]
    five = list(corners(((1, 2),) * 5))
    assert len(five) == len(set(five)) == 2 + 2 * 5 and (1,) * 5 in five and (1, 1, 2, 1, 1) in five


@pytest.mark.parametrize(("slow_at", "expected"), [
    (lambda n: False, (50, 200)), (lambda n: n < 100, (100, 200)), (lambda n: n > 100, (50, 100)),
    (lambda n: n != 100, (100, 100))])
def test_ranges_end_where_the_default_is_faster(slow_at, expected):
    g, sizes = traced(np.sin, normal(100))
    best, default = (tuner._Task(g, sizes, False, ()).module(c) for c in (tuner.Cover(), tuner.Cover()))

    class Sized(Pool):
        def measure(self, candidates, rounds, sample=0.0):
            n, = [size for _, size in candidates[0].sizes]
            times = [1.0, 2.0 if slow_at(n) else 0.5]
            return [Outcome(c, (x,), 0.0) for c, x in zip(candidates, times, strict=True)]
    found, = ranges_of(g, default, best, sizes, Sized(None), seconds=1e9, each=1e-6)
    assert found == expected


def test_without_time_an_outcome_holds_where_it_was_measured():
    g, sizes = traced(np.sin, normal(100))
    module = tuner._Task(g, sizes, False, ()).module(tuner.Cover())
    assert ranges_of(g, module, module, sizes, Pool(lambda g: 1.0), seconds=0.0, each=1.0) == ((100, 100),)


def test_sites_count_trips_and_blocks():
    def f(x, w):
        return lax.scan(lambda h, row: (np.tanh(h @ w + row), None), np.zeros(5), x)[0]
    x = np.ones((7, 5))
    g, sizes = traced(f, x, np.ones((5, 5)))
    module = tuner._Task(g, sizes, False, ()).module(tuner.Cover())
    assert sorted(s.calls for s in sites_of(module, sizes))[-1] == 7

    def layers(x, w, v):
        return np.tanh(np.tanh(x @ w) @ v)
    g, sizes = traced(layers, normal(50_000, 256), normal(256, 300), normal(300, 20))
    module = tuner._Task(g, sizes, False, ()).module(tuner.Cover())
    found = list(sites_of(module, sizes))
    blocks = {s.calls for s in found}
    assert max(blocks) > 1
    assert all(math.isclose(s.calls * s.sizes[s.node.inputs[0].type.shape[0].name], 50_000, rel_tol=0.01) for s in found)
    for s in found:
        assert {v.type.rank for v in s.node.inputs} and set(s.sizes) >= set(s.node.regions[0].free_symbols)
