"""Tuning as users meet it: `tune`, `tuning`, the environment, the command line, progress and reports. What the search itself
finds is a matter of other tests: most of these put a quick one in its place."""
import dataclasses
import io
import math
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import loopwright as lw
from loopwright.__main__ import main
from loopwright.lower.covers import Cover
from loopwright.lower.decisions import Apart
from loopwright.lower.modules import module_of_kernels
from loopwright.lower.program import cover_graph
from loopwright.lower.runtime import lazy, tuned
from loopwright.lower.target import host_target
from loopwright.lower.tuning.records import Record, Records, machine
from loopwright.lower.tuning.results import KernelReport, Progress, Trial, Tuned
from loopwright.lower.tuning.stored import RecordFile, files_in
from loopwright.tuning_plots import Point, bars, lines, scatter
from loopwright.tuning_progress import display
from loopwright.tuning_report import amount
from tests import test_docs
from tests.test_tuned_records import again, answering, is_tuned, normal, slower


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LOOPWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("LOOPWRIGHT_TUNE", raising=False)


KERNEL = KernelReport("k" * 32, ("tanh", "full", "add"), 1, 4e-6, 2e-6, 1e-6, "generated")
TRIALS = (Trial(0.5, "kernel", "k" * 32, "+Vectorize(stage=0, loop=0, lanes=4)", 2.5e-6, 3e-6),
          Trial(0.7, "kernel", "k" * 32, "+Unroll(stage=0, factor=2)", 1.5e-6, math.inf, "crashed with <SIGSEGV>"),
          Trial(0.9, "program", None, "Apart(0)", None, 5e-6))


class Search:
    """In place of the tuner's: the program without vectors, said to be twice as fast. It keeps what it was asked."""

    def __init__(self):
        self.asked = []
        self.gain, self.cover, self.interrupted = 2.0, Cover(), False

    def __call__(self, g, sizes, *, seconds, fast_math=False, donated=(), starts=(), records=None, values=None, on_trial,
                 platform):
        self.asked.append((sizes, seconds, starts))
        self.values = values
        made = cover_graph(g, host_target(), blas=True, donated=donated)
        default = module_of_kernels(g, *made, fast_math)
        for trial in TRIALS:
            on_trial(trial, Progress(seconds - trial.at, 6e-6, 6e-6 / self.gain, (KERNEL,), 3, 1))
        best = slower(default) if self.gain > 1 else default
        ranges = tuple([(max(sizes[s] // 2, 1), 2 * sizes[s]) for s in g.free_symbols])
        return Tuned(sizes, default, best, self.cover, 6e-6, 6e-6 / self.gain, 4e-6, 0.015, 1.25, TRIALS, (KERNEL,), ranges,
                     self.interrupted)


@pytest.fixture
def search(monkeypatch):
    made = Search()
    monkeypatch.setattr("loopwright.lower.tuning.tuner.tune", made)
    return made


@lw.jit
def curve(x):
    return np.tanh(x) + 1


def records():
    return [s.record for path in files_in(tuned.directory()) for s in RecordFile(path).read()]


# ---- tune -------------------------------------------------------------------------------------------
def test_a_function_that_was_tuned_is_faster_itself(search):
    f, x = again(curve), normal(20)
    f(x)
    result = lw.tune(f, x, seconds=5)
    assert result.function is f and result.speedup == 2.0 and not result.interrupted
    np.testing.assert_array_equal(search.values, [x])
    assert is_tuned(f, normal(10)) and is_tuned(f, normal(40)) and not is_tuned(f, normal(41)) and not is_tuned(f, normal(9))
    np.testing.assert_allclose(f(x), np.tanh(x) + 1)
    one, = result.found
    assert one.sizes == {"n": 20} and one.ranges == {"n": (10, 40)} and search.asked[0][0] == {"n": 20}
    assert 4.5 < search.asked[0][1] <= 5 and repr(result) == "<curve, tuned: 2.00 times as fast>"
    assert [repr(x) for x in result.found] == ["<curve (n=20), tuned: 2.00 times as fast>"]
    record, = records()
    assert record == one.record and record.name == "curve" and record.spent == 1.25 and record.noise == 0.015
    assert is_tuned(again(curve), x)


def test_what_was_found_before_is_a_start_and_is_replaced(search):
    f, x = again(curve), normal(20)
    f(x)
    lw.tune(f, x)
    assert not search.asked[0][2]
    search.gain = 3.0
    lw.tune(f, x)
    default = f._versions.entries[-1]
    assert default.tuned is None and list(search.asked[1][2]) == [slower(default.compiled.module)]
    assert "3.00 times" in answering(f, x)
    assert sum(e.tuned is not None for e in f._versions.entries) == 1 and len(records()) == 2
    search.gain = 1.0
    assert lw.tune(f, x).speedup == 1.0 and not is_tuned(f, x) and not is_tuned(again(curve), x)


def test_schedules_by_hand_are_a_start(search):
    f, x = lw.jit(lambda x: np.tanh(x) - 1, shapes=("rows",)), normal(20)
    by_hand = lw.schedule(lambda y: np.tanh(y) - 1, normal(5))
    by_hand.kernel(0).vectorize(lanes=4)
    lw.tune(f, x, start=by_hand)
    start, = search.asked[0][2]
    assert start == by_hand.module and start.free_symbols == ("rows",)
    with pytest.raises(lw.ArgumentError, match="start: the schedules are of curve for other arguments, or of another function"):
        lw.tune(f, x, start=lw.schedule(curve, x))


def test_programs_of_other_traces_stay(search):
    """Sizes that give another graph have programs of their own, which tuning again takes from nobody."""
    f = lw.jit(lambda x: np.tanh(x) if x.shape[0] > 10 else np.exp(x))
    lw.tune(f, normal(100))
    lw.tune(f, normal(5))
    lw.tune(f, normal(100))
    assert is_tuned(f, normal(100)) and is_tuned(f, normal(5)) and len(records()) == 3


def test_functions_that_are_not_jitted(search):
    def f(x, *, k):
        return np.exp(x) * k
    result = lw.tune(f, normal(6), k=2.0)
    assert result.function is not f and is_tuned_call(result.function, normal(6), k=2.0)
    np.testing.assert_allclose(result.function(normal(6), k=2.0), np.exp(normal(6)) * 2)


def is_tuned_call(f, *args, **kwargs):
    return any("tuned at" in part for part in f.explain(*args, **kwargs).split("version ") if "<- answers" in part)


def test_a_file_takes_the_record_elsewhere(search, tmp_path, monkeypatch):
    path = tmp_path / "kept" / "curve.jsonl"
    lw.tune(again(curve), normal(20), file=path)
    monkeypatch.setenv("LOOPWRIGHT_CACHE_DIR", str(tmp_path / "another"))
    f = again(curve)
    assert not is_tuned(f, normal(20))
    with lw.tuning(seconds=0, file=path) as found:
        f = again(curve)
        f(normal(20))
    assert is_tuned(f, normal(20)) and not found.results and len(search.asked) == 1
    assert main(["records", "merge", str(path)]) == 0 and is_tuned(again(curve), normal(20))


def test_nothing_is_lost_where_the_disk_does_not_take_it(search, tmp_path):
    (tmp_path / "file").write_text("")
    f = again(curve)
    with pytest.warns(RuntimeWarning, match="what tuning found is not kept in"):
        lw.tune(f, normal(20), file=tmp_path / "file" / "below.jsonl")
    assert is_tuned(f, normal(20))


def test_nothing_is_lost_where_there_is_no_place_on_disk(search, monkeypatch):
    monkeypatch.setattr("loopwright.lower.runtime.cache.directory", lambda: None)
    f = again(curve)
    lw.tune(f, normal(20), ranges={"n": (10, 1000)})
    assert all(is_tuned(f, normal(n)) for n in (10, 100, 1000)) and not is_tuned(f, normal(40))


def test_ranges_are_tuned_at_three_sizes(search):
    f = lw.jit(lambda x, w: np.tanh(x @ w), shapes=("n k", "k m"))
    result = lw.tune(f, normal(5, 3), normal(3, 2), ranges={"n": (4, 64), "k": (10, 10)}, seconds=30)
    assert [dict(x.sizes) for x in result.found] == [{"n": n, "k": 10, "m": 2} for n in (4, 16, 64)]
    assert sum(seconds for _, seconds, _ in search.asked) > 30 and len(records()) == 3 and search.values is None
    for n, expected in ((2, True), (20, True), (100, True), (1, False), (129, False)):
        assert is_tuned(f, normal(n, 10), normal(10, 2)) == expected, n
    assert lw.tune(f, normal(5, 3), normal(3, 2), ranges={"n": (7, 7)}).found[0].sizes["n"] == 7


@pytest.mark.parametrize(("ranges", "message"), [
    ({"k": (1, 2)}, "curve has no size 'k'; its sizes are n"), ({"n": (3, 2)}, "n must have a least size above 0"),
    ({"n": (0, 2)}, "n must have a least size above 0")])
def test_ranges_that_are_none(search, ranges, message):
    with pytest.raises(lw.ArgumentError, match=message):
        lw.tune(again(curve), normal(3), ranges=ranges)


def test_what_cannot_be_tuned(search, monkeypatch):
    shown = lw.jit(lambda x: lw.pure_callback(lambda y: y, x, x) * 2)
    with pytest.raises(lw.TuningError, match=r"test_tune.py:\d+: <lambda> cannot be tuned: it calls .*#\d+, which this"):
        lw.tune(shown, normal(3))
    with pytest.raises(lw.TuningError, match="curve cannot be tuned while it is traced"):
        lw.jit(lambda x: lw.tune(curve, x).function(x))(normal(3))
    monkeypatch.setitem(sys.modules, "cupy", None)  # it cannot be imported
    lazy.gpu.cache_clear()
    with pytest.raises(ImportError, match=r"loopwright\[gpu\]"):
        lw.tune(lw.jit(np.exp, device="gpu"), normal(3))
    with lw.tuning() as found:
        assert shown(normal(3)).shape == (3,)
    assert not found.results and "tuning: not tuned: " in shown.explain()

    def fails(*args, **kwargs):
        raise RuntimeError("the default program cannot be measured: it crashed")
    monkeypatch.setattr("loopwright.lower.tuning.tuner.tune", fails)
    with pytest.raises(lw.TuningError, match="curve cannot be tuned: the default program cannot be measured: it crashed"):
        lw.tune(again(curve), normal(3))


# ---- blocks and the environment ---------------------------------------------------------------------
def test_a_block_tunes_what_it_meets_once(search):
    f, g = again(curve), lw.jit(lambda x: np.sum(x * x))
    g(normal(3))
    with lw.tuning(seconds=7) as found:
        f(normal(20))
        f(normal(30))
        g(normal(4))
    assert [x.name for x in found.results] == ["curve"] and is_tuned(f, normal(20)) and not is_tuned(g, normal(3))
    assert search.asked[0][:2] == ({"n": 20}, 7) and found.speedup == 2.0 and "curve (n=20)" in found.report()
    with lw.tuning():
        again(curve)(normal(30))  # a record has this size
        again(curve)(normal(50))  # none has this one
    assert [sizes for sizes, _, _ in search.asked] == [{"n": 20}, {"n": 50}]
    again(curve)(normal(500))
    assert len(search.asked) == 2


def test_what_is_not_faster_is_not_tuned_again(search):
    search.gain = 1.0
    for _ in range(2):
        with lw.tuning():
            f = again(curve)
            f(normal(20))
    assert len(search.asked) == 1 and not is_tuned(f, normal(20))


def test_the_environment_asks_for_it(search, monkeypatch):
    monkeypatch.setenv("LOOPWRIGHT_TUNE", "2.5")
    f = again(curve)
    f(normal(20))
    assert search.asked[0][:2] == ({"n": 20}, 2.5) and is_tuned(f, normal(20))
    monkeypatch.setenv("LOOPWRIGHT_TUNE", "off")
    f = again(curve)
    with lw.tuning():
        f(normal(20))
    assert len(search.asked) == 1 and not is_tuned(f, normal(20))


def test_a_fault_of_the_tuner_is_no_fault_of_the_call(monkeypatch):
    def broken(*args, **kwargs):
        raise KeyError("broken")
    monkeypatch.setattr("loopwright.lower.tuning.tuner.tune", broken)
    f = again(curve)
    with lw.tuning(), pytest.warns(RuntimeWarning, match="curve is not tuned: KeyError: 'broken'"):
        np.testing.assert_allclose(f(normal(3)), np.tanh(normal(3)) + 1)
    assert "tuning: not tuned: KeyError" in f.explain()


def test_an_interrupt_keeps_what_was_found(search):
    search.interrupted = True
    f = again(curve)
    result = lw.tune(f, normal(20), ranges={"n": (10, 1000)})
    assert result.interrupted and len(search.asked) == 1 and is_tuned(f, normal(10)) and "(interrupted)" in result.report()
    f = lw.jit(lambda x: np.exp(x) - 1)
    with pytest.raises(KeyboardInterrupt), lw.tuning():
        f(normal(20))
    assert is_tuned(f, normal(20)) and len(records()) == 2


# ---- reports and progress -----------------------------------------------------------------------------
def test_the_report_in_words(search):
    text = lw.tune(again(curve), normal(20)).report()
    assert text == textwrap.dedent("""\
        curve (n=20): 2.00 times as fast, 6 us to 3 us
          3 trials, of which 1 failed, in 1.2 s; noise 1.5%
          for n from 10 to 40
          kernel                                    runs    default       best  times  roofline  made by
          tanh full add                                1       4 us       2 us   2.00      50%  generated
          failed 1 times: crashed with <SIGSEGV>""")
    search.cover = Cover((Apart((0,)),))
    assert "2.00 times as fast, 6 us to 3 us; its partition alone 1.50 times\n" in lw.tune(again(curve), normal(20)).report()
    search.gain = 1.0
    assert "curve (n=20): nothing is faster than the default, which takes 6 us" in lw.tune(curve, normal(20)).report()


class Page(HTMLParser):
    """The tags of a page, and what they refer to."""

    def __init__(self, text):
        super().__init__()
        self.open, self.seen, self.references = [], [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.references += [value for name, value in attrs if name in ("src", "href")]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attrs):
        self.seen.append(tag)


def test_the_report_as_a_page(search, tmp_path):
    result = lw.tune(lw.jit(lambda x: np.tanh(x) + 1), normal(20))
    path = tmp_path / "report.html"
    assert result.report(path) == result.report()
    text = path.read_text()
    page = Page(text)
    assert page.seen.count("svg") == 4 and not page.references and "<script" not in text
    assert "&lt;lambda&gt; (n=20)" in text and "crashed with &lt;SIGSEGV&gt;" in text and "2.00 times as fast" in text
    for drawing in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ElementTree.fromstring(drawing)


@pytest.mark.parametrize("values", [[], [1.0], [0.0, 1.0], [1.0, 1.0, 1.0], [1e-9, 1e3], [2.0, 2.1, 2.2], [1e-6, 3e-6]])
def test_plots_of_few_and_of_far_values(values):
    points = [Point(k, v, f"<{v}>") for k, v in enumerate(values)]
    drawn = [lines({"a & b": points}, "x", "y"), bars([("row", (v, v / 2)) for v in values], ("a", "b"), "x", amount, 1.0)]
    if all(v > 0 for v in values):
        drawn.append(scatter([Point(v, 2 * v) for v in values], "x", "y"))
    for text in drawn:
        assert bool(text) == bool(values)
        for number in re.findall(r' (?:x|y|cx|cy|x1|x2|width)="([^"]+)"', text):
            assert -1 <= float(number) <= 721, text
        if text:
            ElementTree.fromstring(text)


@pytest.mark.parametrize(("seconds", "text"), [(1.5, "1.5 s"), (0.0123, "12.3 ms"), (1e-6, "1 us"), (2.5e-8, "25 ns"),
                                               (math.inf, "-"), (1234.0, "1234 s")])
def test_times_in_words(seconds, text):
    assert amount(seconds) == text


def test_plain_lines_now_and_then():
    file = io.StringIO()
    with display("f", {"n": 3}, 60.0, True, file) as shown:
        for left in (50.0, 49.9):
            shown(TRIALS[0], Progress(left, 4e-6, 2e-6, (KERNEL,), 7, 2))
    assert file.getvalue() == ("f (n=3): measuring the default, 60 s left\n"
                               "f (n=3): 2.00 times as fast (4 us to 2 us), 50 s left, 7 trials, 2 failed; "
                               "tanh full add: 2.00 times as fast, 50% of the roofline\n")
    with display("f", {}, 60.0, None, file) as shown:  # no terminal, and nobody asked
        shown(TRIALS[0], Progress(40.0, 4e-6, 2e-6, (), 7, 2))
    assert file.getvalue().count("\n") == 2


def test_a_table_on_a_terminal(monkeypatch):
    pytest.importorskip("rich", reason="the tune extra brings it; without it there are plain lines")
    monkeypatch.setenv("COLUMNS", "160")
    file = io.StringIO()
    file.isatty = lambda: True
    with display("f", {"n": 3}, 60.0, None, file) as shown:
        shown(TRIALS[1], Progress(50.0, 4e-6, 4e-6, (), 1, 1))
        time.sleep(0.3)
        shown(TRIALS[0], Progress(49.0, 4e-6, 2e-6, (KERNEL,), 7, 2))
    text = file.getvalue()
    assert "tanh full add" in text and "2.00" in text and "crashed with <SIGSEGV>" in text and "49 s left" in text


# ---- the command line -------------------------------------------------------------------------------
SCRIPT = """
import sys
import numpy as np
import loopwright as lw


@lw.jit
def before(x):
    return x + 1


@lw.jit
def step(w, x, scale=1.0):
    return np.tanh(before(x) @ w) * scale


class Model:
    @lw.jit
    def forward(self_is_an_array):
        return np.exp(self_is_an_array)


renamed = lw.jit(lambda x: np.sum(np.exp(x)))


def plain(x, k):
    return np.log(x) * k


def main():
    x = np.ones((int(sys.argv[1]) if len(sys.argv) > 1 else 8, 4))
    before(x)
    step(np.ones((4, 2)), x)
    Model.forward(x)
    renamed(x)
    print("the end")


if __name__ == "__main__":
    main()
"""


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", list(sys.argv))
    monkeypatch.setattr("sys.path", list(sys.path))
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


@pytest.mark.parametrize(("arguments", "sizes"), [
    (["step"], {"n": 4, "m": 2, "p": 8}), (["step", "--", "20"], {"n": 4, "m": 2, "p": 20}),
    (["Model.forward"], {"n": 8, "m": 4}), (["renamed"], {"n": 8, "m": 4}),
    (["plain", "--args", "np.ones(5), k=3.0"], {"n": 5}), (["step", "--args", "np.ones((3, 1)), np.ones((7, 3))"], {
        "n": 3, "m": 1, "p": 7})])
def test_a_function_of_a_script(search, script, capsys, arguments, sizes):
    name, *options = arguments
    at = options.index("--") if "--" in options else len(options)
    assert main(["tune", f"{script}:{name}", "--seconds", "9", *options[:at], *options[at:]]) == 0
    told = capsys.readouterr()
    assert sorted(search.asked[0][0].values()) == sorted(sizes.values()) and 8 < search.asked[0][1] <= 9
    assert "2.00 times as fast, 6 us to 3 us" in told.out and "the end" not in told.out
    assert "left, 3 trials, 1 failed" in told.err and len(records()) == 1


def test_other_functions_of_the_script_are_as_they_were(search, script, capsys, tmp_path):
    """Those before it run, and records serve them."""
    page, file = tmp_path / "page.html", tmp_path / "r.jsonl"
    assert main(["tune", f"{script}:renamed", "--report", str(page), "--file", str(file)]) == 0
    assert "nothing" not in capsys.readouterr().out and page.exists() and file.exists()
    assert len(search.asked) == 1 and [r.name for r in records()] == ["<lambda>"]


@pytest.mark.parametrize(("target", "message"), [
    ("SCRIPT:plain", "ended without a call of a jitted function plain. It compiled before, step, forward, <lambda>"),
    ("SCRIPT:none", "ended without a call of a jitted function none"), ("none.py:f", "there is no script 'none.py'"),
    ("SCRIPT", "write SCRIPT:F")])
def test_a_function_that_is_not_there(search, script, capsys, target, message):
    assert main(["tune", target.replace("SCRIPT", str(script))]) == 2 and message in capsys.readouterr().err
    assert not search.asked
    assert main(["tune", f"{script}:none", "--args", "1.0"]) == 2 and "script.py has no none" in capsys.readouterr().err


def test_a_script_that_catches_everything(search, script, capsys):
    catching = "    try:\n        renamed(x)\n    except:\n        print('caught')\n"
    script.write_text(script.read_text().replace("    renamed(x)\n", catching))
    assert main(["tune", f"{script}:renamed"]) == 0
    told = capsys.readouterr().out
    assert "caught" in told and "2.00 times as fast" in told and len(search.asked) == len(records()) == 1


@pytest.mark.parametrize(("arguments", "message"), [
    (["tune", "SCRIPT:plain", "--args", "np.ones(4"], "--args 'np.ones(4' gives no arguments: SyntaxError"),
    (["tune", "SCRIPT:plain", "--args", "unknown"], "gives no arguments: NameError: name 'unknown'"),
    (["records", "list", "--file", "none.jsonl"], "there is no file none.jsonl"),
    (["records", "prune", "--file", "none.jsonl"], "there is no file none.jsonl")])
def test_what_the_command_line_names_and_is_not_there(script, capsys, arguments, message):
    assert main([x.replace("SCRIPT", str(script)) for x in arguments]) == 2
    assert message in capsys.readouterr().err


def test_records_are_listed_shown_merged_and_pruned(search, capsys, tmp_path):
    assert main(["records", "list"]) == 0 and not capsys.readouterr().out
    path = tmp_path / "kept.jsonl"
    for gain in (2.0, 3.0, 1.0):
        search.gain = gain
        lw.tune(again(curve), normal(20 if gain > 1 else 50), file=path)
    record = records()[0]
    assert main(["records", "list"]) == 0
    told = capsys.readouterr().out.splitlines()
    head = f"{record.structure[:12]}  curve  at 20 for 10-40: "
    assert told == [f"{head}2.00 times, 6 us to 3 us  (ignored: a later one is in its place)",
                    f"{head}3.00 times, 6 us to 2 us",
                    f"{record.structure[:12]}  curve  at 50 for 25-100: the default stays"]
    assert main(["records", "show", record.structure[:6]]) == 0
    told = capsys.readouterr().out
    assert "function  curve" in told and "graph<s0>" in told and "noise     1.5%" in told and "the default stays" in told
    assert main(["records", "show", "none"]) == 2 and "no record whose structure begins with none" in capsys.readouterr().err
    with path.open("a") as file:
        file.write("no record\n")
    RecordFile(path).append([dataclasses.replace(record, machine="another")])
    assert main(["records", "merge", str(path)]) == 0
    assert f"{path}: 1 records are new\n{path}:4: ignored: it is no record" in capsys.readouterr().out
    assert main(["records", "list", "--file", str(path)]) == 0 and "it is of another machine" in capsys.readouterr().out
    for options, stay, removed in (([], 3, 1), (["--foreign"], 2, 1), (["--file", str(path)], 3, 2)):
        assert main(["records", "prune", *options]) == 0
        assert capsys.readouterr().out == f"{stay} records stay, {removed} lines are removed\n"
    assert main(["records", "merge", "none"]) == 2 and "there is no file none" in capsys.readouterr().err


def test_measurements_of_kernels_are_counted_and_pruned(capsys):
    kernels = Records(tuned.kernels_file())
    first = Record("s", (3,), machine(), (["gemm", []],), (2e-6,))
    for record in (first, dataclasses.replace(first, samples=(1e-6,)), dataclasses.replace(first, machine="another"),
                   dataclasses.replace(first, structure="t", failure="crashed")):
        kernels.append(record)
    with kernels.path.open("a") as file:
        file.write("no record")
    assert main(["records", "list"]) == 0
    assert capsys.readouterr().out == f"{kernels.path}: 4 measurements of 2 kernels, to start from\n"
    assert main(["records", "prune"]) == 0 and capsys.readouterr().out == "3 records stay, 2 lines are removed\n"
    assert main(["records", "prune", "--foreign"]) == 0 and capsys.readouterr().out == "2 records stay, 1 lines are removed\n"
    assert [r.samples for r in kernels.read()] == [(1e-6,), (2e-6,)]


# ---- documents --------------------------------------------------------------------------------------
def test_the_document_runs(search, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    test_docs.test_the_code_of_a_document_runs("docs/tuning.md", capsys)
    assert Page(Path("tuning.html").read_text()).seen


# ---- with the search itself -------------------------------------------------------------------------
def test_tuning_gives_programs_that_serve(tmp_path):
    """Whatever is found, calls of any size stay right, here and in the next process."""
    @lw.jit
    def f(x, w):
        return np.exp(x - np.max(x, axis=1, keepdims=True)) @ w
    x, w = normal(200, 60), normal(60, 20)
    result = lw.tune(f, x, w, seconds=6, file=tmp_path / "r.jsonl")
    one, = result.found
    assert one.tuned.seconds < 40 and result.speedup >= 1 and len(records()) == 1
    assert not any(line.startswith("tuning: ignored") for line in f.explain().splitlines())
    assert is_tuned(f, x, w) == (result.speedup > 1)
    for n, k, m in ((200, 60, 20), (100, 30, 10), (400, 120, 40), (7, 3, 1)):
        a, b = normal(n, k), normal(k, m)
        np.testing.assert_allclose(f(a, b), np.exp(a - a.max(1, keepdims=True)) @ b, rtol=1e-9)
    result.report(tmp_path / "page.html")
    assert "table" in Page((tmp_path / "page.html").read_text()).seen


INTERRUPTED = """
import numpy as np, loopwright as lw
@lw.jit
def f(x):
    return np.sum(np.tanh(x) * x, axis=0)
f(np.ones((300, 200)))
"""


def test_ctrl_c_keeps_what_was_found(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(INTERRUPTED)
    listening = ("import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
                 "runpy.run_module('loopwright', run_name='__main__')")  # a background job ignores it otherwise
    command = [sys.executable, "-c", listening, "tune", f"{path}:f", "--seconds", "300"]
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        for expected in ("measuring the default, 300 s left", " times as fast ("):
            line = run.stderr.readline()
            assert line.startswith("f (n=300, m=200): ") and expected in line
        os.kill(run.pid, signal.SIGINT)
        out, error = run.communicate(timeout=60)
    assert run.returncode == 130 and "f (n=300, m=200): " in out and "(interrupted)" in out, error
    record, = records()
    assert record.sizes == (300, 200) and Path(tuned.directory() / f"{record.structure}.jsonl").exists()
