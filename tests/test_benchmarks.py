"""The benchmarks run, check results, and the page shows what was measured, whole."""
import json
import re

import numpy as np
import pytest

import loopwright as lw
from benchmarks import contest, frozen, harness, learning, maths, report, scaling, typical
from benchmarks.goals import GOALS
from benchmarks.harness import Timing
from benchmarks.workloads import WORKLOADS


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(harness, "QUICK", True)
    monkeypatch.setattr(contest, "optional", lambda name: None)  # the peers have warnings of their own


@pytest.mark.parametrize("name", ["sums", "dense", "mlp"])
def test_a_workload_runs(quick, name):
    found = WORKLOADS[name]()
    assert {t.contender for t in found} >= {"loopwright", "numpy"}
    assert {t.workload for t in found} <= set(GOALS)


@pytest.mark.parametrize("workload", [*typical.WORKLOADS, *learning.WORKLOADS])
def test_every_row_gives_what_numpy_gives(quick, workload):
    found = workload()
    assert {t.workload for t in found if t.contender == "loopwright"} == {t.workload for t in found}


def test_every_function_of_vector_maths_is_timed_in_both_widths(quick):
    found = WORKLOADS["maths"]()
    assert len({t.workload for t in found}) == 2 * len(maths.FUNCTIONS)
    assert {t.contender for t in found} == {"loopwright", "numpy", "roofline"}


def test_another_process_takes_turns(quick, monkeypatch, tmp_path):
    monkeypatch.setenv("LOOPWRIGHT_TUNE", "off")
    workload = "norms of columns, 256x256 f32"
    line = frozen.compared(str(tmp_path), frozen.entries()[workload], 0.0)  # nothing is installed there: it is this very one
    assert re.fullmatch(re.escape(workload) + r"( +[\d.e+]+ [mun]?s){2} +[\d.]+", line)


def test_one_thread_and_several_take_turns(quick, monkeypatch):
    said = []
    e, = scaling.entries(["logsumexp, 4096x1000"])
    monkeypatch.setattr(lw, "set_threads", said.append)
    row = scaling.compared(e, 2)
    assert row.workload == "logsumexp, 4096x1000 f32" and row.low <= row.gain <= row.high and row.one > 0 < row.several
    assert said == [1, 1, 2, 1, 2]


def test_what_threads_gain_is_enough_by_itself_or_beside_copies():
    ms = 1e-3
    rows = [report.Scaling("a", 4 * ms, 2 * ms, 2.0, 1.9, 2.1, 0.1), report.Scaling("b", 4 * ms, 3 * ms, 1.3, 1.2, 1.4, 0.9),
            report.Scaling("c", 4 * ms, 3 * ms, 1.3, 1.2, 1.4, 0.8)]
    assert report.scaling_section("2", rows).splitlines()[4:] == [
        "| a | 4 ms | 2 ms | 2.00 | 1.90 to 2.10 | 10% | met |", "| b | 4 ms | 3 ms | 1.30 | 1.20 to 1.40 | 90% | met |",
        "| c | 4 ms | 3 ms | 1.30 | 1.20 to 1.40 | 80% | **missed** |"]
    one = {"processor": "p"}
    kept = report.with_scaling(report.merged([], [timing("a", "loopwright", 1.0)], 1, one), rows[:2], 2, one)
    again = report.with_scaling(kept, [report.Scaling("a", 1.0, 1.0, 1.0, 1.0, 1.0, 0.0)], 2, one)
    assert [(x["workload"], x["gain"]) for x in again[0]["scaling"]["2"]] == [("a", 1.0), ("b", 1.3)]
    assert again[0]["runs"] == kept[0]["runs"] and len(kept[0]["runs"]["1"]) == 1


def test_a_wrong_contender_is_found_out(quick):
    x = np.arange(6, dtype="float32")
    with pytest.raises(AssertionError, match="twice, numpy"):
        contest.contest("twice", (x,), lambda x: x * 2, numpy=lambda x: x * 3)


def timing(workload, contender, median, threads=1):
    return Timing(workload, contender, median, median * 0.9, median * 1.1)


def test_a_summary_shows_the_best_peer_and_lost_rows():
    ms = 1e-3
    text = report.summary([
        timing("matmul, 64 f32", "loopwright", 3 * ms), timing("matmul, 64 f32", "numpy", 2 * ms),
        timing("matmul, 64 f32", "jax", 1 * ms), timing("matmul, 64 f32", "roofline", 1.5 * ms),
        timing("compile of a small function", "loopwright", 9 * ms),
        timing("watched", "loopwright", 1 * ms), timing("watched", "declared", ms / 2), timing("watched", "c", 4 * ms)])
    assert text.splitlines()[2:] == [
        "| matmul, 64 f32 | 3 ms | 2.7 ms to 3.3 ms | jax | 1 ms | 3.00 | 0.8 | **missed** | 50% |",
        "| compile of a small function | 9 ms | 8.1 ms to 9.9 ms |  |  |  | 15 ms | met |  |",
        "| watched | 1 ms | 900 us to 1.1 ms | c | 4 ms | 0.25 |  | faster |  |"]


def test_what_tuning_gains_is_told_beside_the_default_and_the_best_peer():
    text = report.tuned_summary([timing("a", who, x) for who, x in (
        ("loopwright", 4.0), ("loopwright tuned", 3.0), ("numpy", 2.0), ("jax", 5.0))])
    assert text.splitlines()[2:] == ["| a | 4 s | 3 s | 0.75 | 1.50 (numpy) | **slower** |  |"]


def test_a_search_is_told_beside_what_it_found(quick, monkeypatch):
    monkeypatch.setattr(harness, "TUNE", 1.0)
    found = {t.contender: t for t in contest.contest("twice", (np.ones(9),), lambda x: x * 2)}
    assert found.keys() >= {"loopwright", "loopwright tuned"}
    assert re.search(r"\d+ candidates a minute, replay and features \d+\.\d\d ms, text \d+ ms$", found["loopwright tuned"].note)


def test_a_run_replaces_its_own_workloads_on_its_machine_only():
    one, two = {"processor": "p", "numpy": "2"}, {"processor": "q", "numpy": "2"}
    old = report.merged([], [timing("a", "loopwright", 1.0), timing("b", "loopwright", 1.0)], 1, one)
    new = report.merged(old, [timing("a", "loopwright", 2.0)], 1, one)
    assert [(t["workload"], t["median"]) for t in new[0]["runs"]["1"]] == [("b", 1.0), ("a", 2.0)]
    assert set(report.merged(new, [timing("a", "loopwright", 2.0)], 2, one)[0]["runs"]) == {"1", "2"}
    both = report.merged(new, [timing("a", "loopwright", 2.0)], 2, two)
    assert [(x["machine"], set(x["runs"])) for x in both] == [(two, {"2"}), (one, {"1"})]
    later = report.merged(both, [timing("a", "loopwright", 2.0)], 2, {**two, "numpy": "3"})
    assert [x["machine"]["numpy"] for x in later] == ["3", "2"] and later[1] == both[1]


def test_the_page_shows_the_results_and_every_goal():
    results, text = json.loads(report.RESULTS.read_text()), report.PAGE.read_text()
    assert report.page(text, results) == text
    shown = set(re.findall(r"^\| ([^|]+) \|", text, re.MULTILINE))
    assert set(GOALS) <= shown
