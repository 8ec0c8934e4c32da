"""Measuring candidates in worker processes: right ones get times, and a crash, a hang, a wrong result or want of memory costs
one candidate, with its reason; records survive what lies beside them."""
import json
import os
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import loopwright as lw
from loopwright.ir.graph import Graph, Node
from loopwright.ir.schedule import Unroll, Vectorize
from loopwright.lower.modules import alone, kernels_of, rescheduled
from loopwright.lower.runtime.natives import LlvmFunction
from loopwright.lower.tuning import execution
from loopwright.lower.tuning.candidates import Candidate, arguments, difference, reference, roundings, structure_of
from loopwright.lower.tuning.execution import Executable
from loopwright.lower.tuning.records import Record, Records, machine, record_of
from loopwright.lower.tuning.timing import FEWEST_ROUNDS, centre, interleaved, is_faster
from loopwright.lower.tuning.workers import Outcome, Workers


def kernel_of(f, *args, number=0):
    """A kernel of a compiled function as a program of its own."""
    return alone(lw.schedule(f, *args).kernel(number)._node)


def doubled():
    return kernel_of(lambda x: x * 2, np.ones(300))


def with_code(g, body):
    """The same program, whose kernel is LLVM text."""
    whole, = g.nodes
    n = whole.regions[0].nodes[0]
    text = f"define void @f(ptr %x, ptr %y, i64 %n) {{\nentry:\n{body}\n}}\n"
    attrs = {"implementation": "native", "code": LlvmFunction("f", text), "extents": n.outputs[0].type.shape}
    code = Node(n.op, n.inputs, attrs, n.outputs, n.regions)
    region = Graph(whole.regions[0].params, (code,), whole.regions[0].results)
    return Graph(g.params, (Node(whole.op, whole.inputs, whole.attrs, whole.outputs, (region,)),), g.results)


LOOP = """  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %head ]
  %p = getelementptr double, ptr %x, i64 %i
  %q = getelementptr double, ptr %y, i64 %i
  %v = load double, ptr %p
  %w = fmul double %v, FACTOR
  store double %w, ptr %q
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %head, label %done
done:
  ret void"""
CRASH = "  store volatile i64 1, ptr null\n  ret void"
HANG = "  br label %again\nagain:\n  store volatile i64 1, ptr %y\n  br label %again"


@pytest.fixture(scope="module")
def workers():
    with Workers(2, check_seconds=60.0, time_seconds=60.0) as made:
        yield made


def test_one_bad_candidate_costs_itself(workers):
    g = doubled()
    codes = [LOOP.replace("FACTOR", "2.0"), LOOP.replace("FACTOR", "3.0"), CRASH]
    right, wrong, crash, again = [Candidate.of(x, {"n": 300}) for x in (*[with_code(g, code) for code in codes], g)]
    broken = Candidate(right.text.replace("implementation=", "implementation=1"), right.sizes)
    found = workers.measure([right, crash, wrong, broken, again])
    assert [o.failure is None for o in found] == [True, False, False, False, True], found
    assert [o.candidate for o in found] == [right, crash, wrong, broken, again]
    assert found[1].failure == "crashed with SIGSEGV"
    assert found[2].failure.startswith("result 0 is wrong at (0,): ")
    assert found[3].failure
    for o in (found[0], found[4]):
        assert len(o.samples) >= FEWEST_ROUNDS and 0 < o.seconds < 1e-2 and o.noise >= 0
    assert found[1].seconds == float("inf")


def test_a_candidate_that_hangs_costs_itself():
    g = doubled()
    hang, right = (Candidate.of(x, {"n": 300}) for x in (with_code(g, HANG), g))
    with Workers(1, check_seconds=2.0) as workers:
        found, = workers.measure([hang])
        assert found.failure == "did not end within 2 s"
        workers.check_seconds = 60.0
        assert workers.measure([right])[0].failure is None


def test_no_worker_outlives_its_owner():
    """Not even one that hangs, when its owner is killed."""
    program = f"""
import sys, threading, time
from loopwright.lower.tuning.candidates import Candidate
from loopwright.lower.tuning.workers import Worker
worker = Worker()
worker._start()
worker._line(60.0, None)
worker._say({{"check": {{"text": {str(with_code(doubled(), HANG))!r}, "sizes": [["n", 300]]}}}})
print(worker._process.pid, flush=True)
time.sleep(60)
"""
    owner = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    number = int(owner.stdout.readline())
    time.sleep(1.0)  # the worker has begun
    os.kill(number, 0)
    owner.kill()
    owner.communicate()
    deadline = time.monotonic() + 20
    while _runs(number) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _runs(number)


def _runs(process):
    try:
        return "Z" not in Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def test_a_candidate_that_fails_when_it_is_timed_costs_itself(workers):
    """Code that counts its runs crashes in the tenth."""
    g = doubled()
    late = with_code(g, LOOP.replace("FACTOR", "2.0"))
    node = late.nodes[0].regions[0].nodes[0]
    text = node.attrs["code"].text.replace("entry:\n", """entry:
  %before = load i64, ptr @runs
  %now = add i64 %before, 1
  store i64 %now, ptr @runs
  %late = icmp sgt i64 %now, 9
  %where = select i1 %late, ptr null, ptr @runs
  %same = load volatile i64, ptr %where
""")
    late = Candidate.of(late, {"n": 300})
    counting = json.dumps("@runs = internal global i64 0\n" + text)
    late = Candidate(late.text.replace(json.dumps(node.attrs["code"].text), counting), late.sizes)
    right = Candidate.of(g, {"n": 300})
    found = workers.measure([right, late, right])
    assert [o.failure for o in found] == [None, "crashed with SIGSEGV", None] and all(o.samples for o in (found[0], found[2]))


def test_want_of_memory_costs_one_candidate():
    g = kernel_of(lambda x: np.exp(x), np.ones(300))
    with Workers(1, most_bytes=3 << 30) as workers:
        found = workers.measure([Candidate.of(g, {"n": n}) for n in (100, 1 << 29, 200)])
    assert [o.failure is None for o in found] == [True, False, True] and "Memory" in found[1].failure


def test_schedules_are_measured_against_each_other(workers):
    def softmax(x):
        e = np.exp(x - np.max(x, -1, keepdims=True))
        return e / np.sum(e, -1, keepdims=True)
    g = kernel_of(softmax, np.ones((40, 50)))
    n, = kernels_of(g)
    slow = rescheduled(g, {n: tuple([x for x in n.attrs["schedule"] if not isinstance(x, (Vectorize, Unroll))])})
    default, scalar = workers.measure([Candidate.of(x, {"n": 64, "m": 500}) for x in (g, slow)])
    assert default.seconds * 1.5 < scalar.seconds
    assert structure_of(g) == structure_of(slow)


def test_programs_of_several_kernels_and_in_place_results():
    whole = lw.jit(lambda x, w: np.tanh(x @ w) + 1).lower(np.ones((5, 4)), np.ones((4, 3))).module
    g = lw.parse(whole)
    made = Executable(Candidate.of(g, dict(zip(g.free_symbols, (6, 5, 7), strict=False))))
    made.run(3)
    x, w = made.given
    np.testing.assert_allclose(made.results[0], np.tanh(x @ w) + 1, rtol=1e-12)
    f = lw.jit(lambda x: x * 2 + 1, donate_argnums=0)
    g = lw.parse(f.lower(np.ones(5)).module)
    made = Executable(Candidate.of(g, {"n": 9}))
    made.run()
    made.run()
    assert made.results[0] is made.args[0]
    np.testing.assert_allclose(made.results[0], made.given[0] * 2 + 1)


@pytest.mark.parametrize("sign", [1, -1])
def test_checks_of_a_program_are_made(workers, sign):
    def f(x):
        lw.check(np.sum(x * x) * sign >= 0, "the sum is {}", np.sum(x * x))
        return x * 2
    g = lw.parse(lw.jit(f).lower(np.ones(5)).module)
    outcome, = workers.measure([Candidate.of(g, {"n": 9})], 5)
    assert (outcome.seconds > 0) if sign > 0 else "reported an error" in outcome.failure


def test_programs_that_compute_the_like_share_their_arrays():
    """But for arguments of which results take the memory."""
    g, shared = doubled(), cache(lambda arrays: arrays)
    a, b = (Executable(Candidate.of(x, {"n": 300}), shared) for x in (g, with_code(g, LOOP.replace("FACTOR", "3.0"))))
    assert all(x is y for x, y in zip([*a.args, *a.results], [*b.args, *b.results], strict=True))
    a.run()
    np.testing.assert_array_equal(a.results[0], 2 * a.given[0])
    b.run()
    np.testing.assert_array_equal(a.results[0], 3 * a.given[0])
    f = lw.jit(lambda x: x * 2 + 1, donate_argnums=0)
    g = lw.parse(f.lower(np.ones(5)).module)
    c, d = (Executable(Candidate.of(g, {"n": 9}), shared) for _ in range(2))
    assert c.args[0] is not d.args[0] and c.given[0] is d.given[0]
    c.run()
    np.testing.assert_array_equal(d.results[0], d.given[0])


def test_who_times_a_program_does_not_lower_it_again(monkeypatch):
    """Its code is that of the process which checked it."""
    f = lw.jit(lambda x, y: (x * 2 + y, np.sum(y)), donate_argnums=0)
    candidate = Candidate.of(lw.parse(f.lower(np.ones(5), np.ones(5)).module), {"n": 9})
    first = Executable(candidate)
    monkeypatch.setattr(execution, "lower_graph", None)
    second = Executable(candidate)
    for made in (first, second):
        made.run()
        assert made.donated == {0: 0}
        np.testing.assert_allclose(made.results[0], made.given[0] * 2 + made.given[1])
        np.testing.assert_allclose(made.results[1], made.given[1].sum())


def test_numbers_keep_their_rank():
    f = lw.jit(lambda x, s: x * s)
    f(np.ones(4), np.float64(3.0))
    g = f._versions.entries[0].compiled.module
    made = Executable(Candidate.of(g, {"n": 4}))
    made.run()
    assert difference(made.results, reference(g, made.given, {"n": 4})) is None


def test_programs_are_timed_in_this_process_as_well(workers):
    g = doubled()
    quick, slow = (Candidate.of(g, {"n": n}) for n in (300, 300_000))
    first, second = workers.here([quick, slow])
    assert first.candidate is quick and first.is_faster(second) and not second.is_faster(first) and not first.is_faster(first)


def test_arguments_are_the_same_in_every_process():
    g = kernel_of(lambda x, i: x[i], np.ones(9), np.array([1, 2]))
    sizes = dict.fromkeys(g.free_symbols, 7)
    a, b = arguments(g, sizes), arguments(lw.parse(str(g)), sizes)
    assert all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
    assert difference(reference(g, a, sizes), [a[0][a[1]]]) is None


@pytest.mark.parametrize(("found", "expected", "fine"), [
    ([1.0, 2.0], [1.0, 2.0 + 1e-12], True), ([1.0, 2.0], [1.0, 2.1], False), ([np.nan, 1.0], [np.nan, 1.0], True),
    ([np.inf, 1.0], [np.inf, 1.0], True), ([np.inf, 1.0], [1.0, 1.0], False), ([1.0, 1.0], [np.nan, 1.0], False),
    ([1e9, 1e-3], [1e9, 0.0], True), ([1, 2], [1, 2], True), ([1, 2], [1, 3], False), ([], [], True),
    ([1j, 1], [1j, 1 + 1e-12j], True), ([1j, 1], [1j, 1 + 1j], False)])
def test_what_counts_as_right(found, expected, fine):
    assert (difference([np.array(found)], [np.array(expected)]) is None) == fine


def zeros(x, y):
    """The sum of a softmax's gradient over rows: none but for roundings."""
    total = np.sum(x, axis=1, keepdims=True)
    return np.sum(x * (y - np.sum(x * y, axis=1, keepdims=True) / total) / total, axis=1), x + y


def test_sums_that_cancel_are_right_but_for_their_roundings(workers):
    x = np.ones((5, 70), "f4")
    g = lw.parse(lw.jit(zeros).lower(x, x).module)
    sizes = dict(zip(g.free_symbols, (5, 70), strict=True))
    args = arguments(g, sizes)
    found, rounded = reference(g, args, sizes), roundings(g, args, sizes)
    exactly = [np.zeros(5, "f4"), found[1]]
    assert difference(exactly, found) is not None and difference(exactly, found, rounded) is None
    wrong = [np.full(5, 1e-3, "f4"), found[1]], [found[0], found[1] * np.float32(1 + 1e-3)]
    assert all(difference(x, found, rounded) is not None for x in wrong)
    in_another_order, = workers.measure([Candidate.of(g, sizes)], 5)
    assert in_another_order.failure is None


def shares(x, y):
    """Rows over their sums, some of which come near 0 where terms have both signs; and which elements are positive."""
    return x / np.sum(x, axis=1, keepdims=True) * y, np.where(x > 0, y, -y)


def test_quotients_by_sums_that_cancel_are_right_but_for_their_roundings():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6, 512)).astype("f4")
    x[:, -1] -= np.sum(x, axis=1) + np.float32([0.5, 0.5, 1e-5, 0.5, 0.5, 0.5])
    y = rng.normal(size=x.shape).astype("f4")
    g = lw.parse(lw.jit(shares).lower(x, y).module)
    sizes = dict(zip(g.free_symbols, x.shape, strict=True))
    found, rounded = reference(g, [x, y], sizes), roundings(g, [x, y], sizes)
    backwards = shares(x[:, ::-1], y[:, ::-1])[0][:, ::-1]
    assert difference([backwards, found[1]], found) is not None, "nothing cancels"
    assert difference([backwards, found[1]], found, rounded) is None
    flipped = found[1].copy()
    flipped[3, 5] *= -1
    assert difference([found[0], flipped], found, rounded) is not None


# ---- timing -----------------------------------------------------------------------------------------
def clocked(seconds, drift=None):
    """A contender that takes so long a run, and how often it was called."""
    calls = []

    def run(count):
        calls.append(count)
        return count * seconds * (drift() if drift else 1)
    return run, calls


def test_slow_contenders_leave_early():
    runs, calls = zip(*[clocked(s) for s in (1e-3, 1.2e-3, 1.5e-3, 3e-3, 5e-3)], strict=True)
    found = interleaved(runs, rounds=20)
    assert [len(s) for s in found.samples] == [20, 20, 5, FEWEST_ROUNDS, 1]
    assert found.noise == 0 and all(found.faster(0, k) for k in (1, 2, 3, 4)) and not found.faster(1, 0)
    assert len(calls[0]) == 2 + 2 * 20  # it is its own peer


def test_samples_of_many_runs_begin_warm():
    run, calls = clocked(1e-3)
    interleaved([run], rounds=3, sample=5e-3)
    assert calls == [1, 1, *[1, 5] * 6]


def test_what_differs_less_than_the_noise_is_the_same():
    rng = np.random.default_rng(0)
    runs = [clocked(s, lambda: 1 + abs(rng.normal()) * 0.2)[0] for s in (1e-3, 1.01e-3)]
    found = interleaved(runs, rounds=21)
    assert 0.01 < found.noise < 0.5 and not found.faster(0, 1) and not found.faster(1, 0)
    assert centre([3.0, 1.0, 100.0, 2.0]) == 1.5


def test_who_is_fast_in_some_rounds_alone_is_not_faster():
    assert is_faster([1.0] * 10, [2.0] * 10, 0.0) and not is_faster([1.0] * 10, [1.005] * 10, 0.0)
    assert not is_faster([1.0] * 6 + [3.0] * 4, [2.0] * 10, 0.01)


def test_arguments_may_be_given(workers, tmp_path):
    """What a program computes of them is checked, and timed: indices that are no small numbers, bytes of bf16."""
    def f(x, k, h):
        return x[k], h + h
    x, k = np.arange(5000.0), np.random.default_rng(0).integers(0, 5000, 1000)
    h = np.ones(7, ml_dtypes.bfloat16)
    jitted = lw.jit(f)
    jitted(x, k, h)
    module = jitted._versions.entries[0].compiled.module
    path = str(tmp_path / "given.npz")
    np.savez(path, x, k, h)
    candidate = Candidate.of(module, jitted._versions.entries[0].draft.sizes_of((x, k, h)), path)
    for a, b in zip(arguments(module, dict(candidate.sizes), path), (x, k, h), strict=True):
        np.testing.assert_array_equal(a, b)
    outcome, = workers.measure([candidate])
    assert outcome.failure is None and outcome.samples


def test_results_may_be_shared(workers, tmp_path):
    """Candidates that name a file are compared with the results of the first of them, however they are partitioned."""
    g, path = doubled(), str(tmp_path / "results.npz")
    wrong = with_code(g, LOOP.replace("FACTOR", "3.0"))
    outcome, = workers.measure([Candidate.of(g, {"n": 300}, expected=path)])
    assert outcome.failure is None and [f.name for f in tmp_path.iterdir()] == ["results.npz"]
    found = workers.measure([Candidate.of(x, {"n": 300}, expected=path) for x in (g, wrong)])
    assert found[0].failure is None and found[1].failure.startswith("result 0 is wrong at (0,): ")
    np.savez(path, np.zeros(300))
    outcome, = workers.measure([Candidate.of(g, {"n": 300}, expected=path)])
    assert outcome.failure.startswith("result 0 is wrong")


# ---- records ----------------------------------------------------------------------------------------
def test_records_are_kept_and_found(tmp_path):
    g, records = doubled(), Records(tmp_path / "deep" / "records.jsonl")
    candidate = Candidate.of(g, {"n": 300})
    for seconds in (3e-6, 2e-6, 4e-6):
        records.append(record_of(Outcome(candidate, (seconds,) * 5, 0.01)))
    records.append(record_of(Outcome(candidate, failure="crashed with SIGSEGV")))
    best = records.best(structure_of(g), (300,))
    assert best.seconds == 2e-6 and best.machine == machine() and best.kernels[0][0] == "generated"
    assert records.best(structure_of(g), (301,)) is None and records.best("other", (300,)) is None
    assert [r.failure for r in records.read()] == [None, None, None, "crashed with SIGSEGV"] and not records.ignored
    assert records.read()[0] == record_of(Outcome(candidate, (3e-6,) * 5, 0.01))
    assert os.stat(records.path).st_mode & 0o077 == 0


def test_lines_that_are_no_records_are_left_out_with_a_reason(tmp_path):
    records = Records(tmp_path / "records.jsonl")
    good = record_of(Outcome(Candidate.of(doubled(), {"n": 300}), (1e-6,)))
    records.append(good)
    with records.path.open("a") as file:
        file.write('{"format": 0}\n[1]\nnot json\n' + '{"structure": "trunc')
    assert records.read() == [good]
    assert [n for n, _ in records.ignored] == [2, 3, 4, 5] and all(reason for _, reason in records.ignored)
    assert Records(tmp_path / "none.jsonl").read() == []
    assert (folder := Records(tmp_path)).read() == [] and "directory" in folder.ignored[0][1]
    assert Record("s", (), "m", ()).seconds == float("inf")


def test_bare_pointers_stay_out_of_records():
    g = doubled()
    text = str(with_code(g, CRASH))
    start = text.index("LlvmFunction(")
    end = text.index(")", text.index('ret void', start)) + 1
    candidate = Candidate(text[:start] + 'Callback("p@1")' + text[end:], (("n", 300),))
    assert record_of(Outcome(candidate, (1e-6,))) is None
