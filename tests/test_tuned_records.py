"""Programs that tuning found are picked up by calls of their sizes, on their machine; what does not serve is left out, with the
reason, and no call fails of it."""
import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright import loops
from loopwright.ir.schedule import ByRows, Unroll, Vectorize
from loopwright.lower.modules import kernels_of, reimplemented, rescheduled
from loopwright.lower.patterns import ways
from loopwright.lower.runtime import tuned
from loopwright.lower.tuning.stored import RecordFile, TunedRecord, files_in, program_of, record_of, standing
from tests.scale import examples


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """Nothing that was tuned on this machine before is seen, and nothing stays."""
    monkeypatch.setenv("LOOPWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("LOOPWRIGHT_TUNE", raising=False)


def normal(*shape):
    return np.random.default_rng(0).normal(size=shape)


def slower(module):
    """The same program without vectors: another one, whose results are the same to the last bits."""
    kept = {n: tuple([x for x in n.attrs["schedule"] if not isinstance(x, (Vectorize, Unroll, ByRows))])
            for n in kernels_of(module) if n.attrs["implementation"] == "generated"}
    return rescheduled(module, kept)


def keep(f, *args, ranges=None, changed=slower, best=1e-6, **fields):
    """Store a program for what f is with these arguments, as a record of these ranges; the record and its file. f keeps what it
    has compiled."""
    versions = f._versions
    call = versions.parameters.call(args, {})
    entry = versions.entry(call)
    version = entry.draft.version
    free = version.graph.free_symbols
    sizes = entry.sizes_of(call)
    record = record_of(version, changed(entry.compiled.module), [sizes[s] for s in free],
                       ranges or [(0, None)] * len(free), default=2e-6, best=best, noise=0.01, spent=1.0)
    record = dataclasses.replace(record, **fields)
    file = RecordFile(tuned.directory() / f"{record.structure}.jsonl")
    file.append([record])
    return record, file


def answering(f, *args):
    """Of explain(), the version that answers these arguments."""
    text = f.explain(*args)
    return next(part for part in text.split("version ") if "<- answers" in part)


def is_tuned(f, *args):
    return "tuned at" in answering(f, *args) or "tuned:" in answering(f, *args)


def again(f):
    """The function, with nothing compiled."""
    return lw.jit(f.__wrapped__)


@lw.jit
def curve(x):
    return np.tanh(x) + 1


RECORD = TunedRecord("0" * 32, "curve", (7,), ((5, None),), "graph<s0>(%x0: f64[s0]) {\n  return %x0\n}", (), 2e-6, 1e-6,
                     0.01, 1.0, "here", "0.1.0")


# ---- picked up --------------------------------------------------------------------------------------
def test_a_call_within_the_ranges_runs_the_tuned_program():
    keep(again(curve), normal(7), ranges=[(5, 10)])
    f, x = again(curve), normal(7)
    np.testing.assert_allclose(f(x), np.tanh(x) + 1)
    assert f.compiles == 1 and is_tuned(f, x)
    assert "x double>" not in f.lower(x).llvm and "x double>" in f.lower(normal(11)).llvm
    for n in (4, 11, 0):
        np.testing.assert_allclose(f(normal(n)), np.tanh(normal(n)) + 1)
        assert not is_tuned(f, normal(n))
    assert f.compiles == 2 and is_tuned(f, normal(5)) and is_tuned(f, normal(10))
    found = answering(f, x)
    assert "tuned at n=7: 2.00 times as fast as the default was (2.00 us to 1.00 us)" in found and "guard: n <= 10" in found


def test_it_is_picked_up_whatever_is_called_first():
    keep(again(curve), normal(7), ranges=[(5, 10)])
    f = again(curve)
    f(normal(100))
    assert f.compiles == 2 and is_tuned(f, normal(7)) and not is_tuned(f, normal(100))


PROGRAM = """
import sys, numpy as np, loopwright as lw
@lw.jit
def f(a, b):
    return np.exp(a) @ b
x = f(np.ones((4, 3)), np.ones((3, 2)))
print(np.allclose(x, 3 * np.e), "loopwright.lower.tuning.stored" in sys.modules, "tuned at" in f.explain())
"""


def run(program):
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert not done.returncode, done.stderr
    return done.stdout


def test_another_process_picks_it_up():
    """One that finds no record, be it that there are others, loads nothing of the tuner."""
    keep(again(curve), normal(7))
    assert run(PROGRAM) == "True False False\n"

    @lw.jit
    def named_otherwise(left, right):
        return np.exp(left) @ right
    keep(named_otherwise, normal(5, 6), normal(6, 7))
    assert run(PROGRAM) == "True True True\n"


def test_records_can_be_left_aside(monkeypatch):
    keep(again(curve), normal(7))
    assert not is_tuned(lw.jit(lambda x: np.tanh(x) + 2), normal(7)) and is_tuned(lw.jit(lambda y: np.tanh(y) + 1), normal(7))
    monkeypatch.setenv("LOOPWRIGHT_TUNE", "off")
    f = again(curve)
    assert not is_tuned(f, normal(7))
    monkeypatch.setenv("LOOPWRIGHT_TUNE", "soon")
    with pytest.warns(RuntimeWarning, match="LOOPWRIGHT_TUNE must be off or a number of seconds, got 'soon'"):
        assert is_tuned(again(curve), normal(7))


def scanned(x):
    return lw.lax.scan(lambda c, r: (c * r + 1, np.sum(c)), x[0], x)


def donating(x, y):
    return x * 2 + y


HELD = normal(6)
FUNCTIONS = {
    "captured": (lambda x: x * HELD + 1, (normal(6),), {}),
    "static": (lambda x, way: np.sin(x) if way == "sin" else x, (normal(6), "sin"), {"static_argnums": 1}),
    "container": (lambda p: {"y": np.exp(p["w"]) * p["b"]}, ({"w": normal(5), "b": 2.0},), {}),
    "numbers": (lambda x, k: np.cumsum(x) * k, (normal(6), 3), {}),
    "loop": (scanned, (normal(5, 3),), {}),
    "branch": (lambda p, x: lw.lax.cond(p, np.sin, np.cos, x), (np.bool_(True), normal(3, 3)), {}),
    "complex": (lambda z: np.abs(z * np.conj(z)), (normal(8) + 1j,), {}),
    "gradient": (lambda x, w: lw.grad(lambda w: np.sum(np.tanh(x @ w) ** 2))(w), (normal(5, 4), normal(4, 3)), {}),
    "fast": (lambda x: np.sum(x * x), (normal(9),), {"fast_math": True}),
    "fixed": (lambda x: np.exp(x), (normal(9),), {"dynamic": False}),
    "count": (lambda x: np.sum(x[np.nonzero(x > 0)[0]] if False else np.where(x > 0, x, 0)), (normal(9),), {}),
    "sizes": (lambda x: x[: x.shape[0] // 2] * x.shape[0], (normal(9),), {}),
    "checked": (lambda x: (lw.check(np.all(x < 100), "too large"), np.exp(x))[1], (normal(9),), {}),
    "declared": (lambda x, y: x @ y, (normal(4, 3), normal(3)), {"shapes": ("n k", "k")}),
    "nothing": (lambda x: x * 2, (3.0,), {}),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_programs_of_every_kind_are_picked_up(name):
    f, args, options = FUNCTIONS[name]
    plain = lw.jit(f, **options)
    expected = plain(*args)
    keep(plain, *args)
    found = lw.jit(f, **options)
    got = found(*args)
    for a, b in zip(*(lw.tree.leaves(x) for x in (got, expected)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    assert is_tuned(found, *args) and not any("ignored" in line for line in found.explain().splitlines())


class Pair:
    """A container that compiled code does not walk."""

    def __init__(self, x, y):
        self.x, self.y = x, y


def test_calls_through_python_and_donated_arguments():
    lw.register_pytree_node(Pair, lambda p: ((p.x, p.y), None), lambda _, xs: Pair(*xs))

    def swapped(p):
        return Pair(np.exp(p.y), p.x)
    pair = Pair(normal(5), normal(5) + 1)
    keep(lw.jit(swapped), pair)
    f = lw.jit(swapped)
    np.testing.assert_allclose(f(pair).x, np.exp(pair.y))
    assert is_tuned(f, pair)
    keep(lw.jit(donating, donate_argnums=0), normal(5), normal(5))
    f, x = lw.jit(donating, donate_argnums=0), normal(8)
    expected = donating(x, normal(8))
    assert f(x, normal(8)) is x and np.array_equal(x, expected) and is_tuned(f, x, x.copy())
    assert not is_tuned(lw.jit(donating), x, x)  # a program that writes into its argument is another one


def test_an_error_names_the_line_of_the_users_program():
    def pick(x, i):
        y = np.exp(x)
        return y[i] * 2
    keep(lw.jit(pick), normal(5), np.array([1]))
    f = lw.jit(pick)
    with pytest.raises(IndexError, match=rf"index 9 is out of bounds for axis 0 with size 4 \(at {__file__}:"
                                         rf"{pick.__code__.co_firstlineno + 2}\)"):
        f(normal(4), np.array([9]))
    assert is_tuned(f, normal(4), np.array([1]))

    def power(k):
        return k ** (k - 3)
    keep(lw.jit(power), np.array([4]))
    f = lw.jit(power)
    with pytest.raises(ValueError, match=rf"\(at {__file__}:{power.__code__.co_firstlineno + 1}\)"):
        f(np.array([1]))
    assert is_tuned(f, np.array([4]))


def test_nans_are_found_in_tuned_programs():
    f = lw.jit(lambda x: np.log(x) + 1)
    keep(f, normal(3))
    f = again(f)
    with lw.debug_nans(), pytest.raises(FloatingPointError, match=f"{__file__}:"):
        f(np.array([1.0, -1.0]))
    assert is_tuned(f, normal(3))


def test_tuned_versions_are_no_recompilations():
    """Eight of them warn of nothing."""
    for n in range(1, 9):
        keep(again(curve), normal(n), ranges=[(n, n)])
    f = again(curve)
    f(normal(3))
    assert f.compiles == 8 and is_tuned(f, normal(8)) and not is_tuned(f, normal(9))


# ---- which one --------------------------------------------------------------------------------------
def test_narrow_ranges_go_first_and_what_is_newest_takes_the_place_of_what_was_before():
    for n, ranges, best in ((20, (10, 40), 1e-6), (30, (25, 35), 0.5e-6), (20, (10, 45), 0.8e-6)):
        keep(again(curve), normal(n), ranges=[ranges], best=best)
    f = again(curve)
    f(normal(20))
    assert f.compiles == 2
    assert "4.00 times" in answering(f, normal(30)) and "2.50 times" in answering(f, normal(20))
    assert "2.50 times" in answering(f, normal(45))


def test_where_nothing_was_faster_the_default_stays():
    record, _ = keep(again(curve), normal(20))
    f = again(curve)
    assert is_tuned(f, normal(20))
    nothing, _ = keep(again(curve), normal(20), best=2e-6)
    assert nothing.module == "" and nothing.speedup == 1.0 and record.speedup == 2.0
    assert not is_tuned(again(curve), normal(20))


# ---- left out ---------------------------------------------------------------------------------------
BROKEN = {
    "machine": ({"machine": "another one"}, "it is of another machine: another one"),
    "version": ({"version": "0.0.1"}, "it was made by loopwright 0.0.1, and this is 0.1.0"),
    "structure": ({"structure": "0" * 32}, "it is of another function"),
    "text": ({"module": "graph<s0>("}, "ParseError: line 1"),
    "sizes": ({"ranges": ((0, 1), (0, 1))}, "ValueError: it is for 2 sizes, and the function has 1"),
    "lines": ({"lines": (7, 8)}, "its lines are not those of its nodes"),
    "graph": ({"module": "graph<s0>(%x0: f64[s0]) {\n  return %x0\n}"}, "it is a program of other arguments, results"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_record_that_does_not_serve_is_left_out_with_the_reason(name):
    fields, why = BROKEN[name]
    record, file = keep(again(curve), normal(5))
    file.path.unlink()
    file.append([dataclasses.replace(record, **fields)])
    f = again(curve)
    np.testing.assert_allclose(f(normal(3)), np.tanh(normal(3)) + 1)
    assert not is_tuned(f, normal(3))
    line, = [line for line in f.explain().splitlines() if line.startswith("tuning: ")]
    assert line.startswith(f"tuning: ignored {file.path}:1: ") and why in line


@pytest.mark.parametrize(("old", "new", "why"), [
    ("Parallel(", "Tiles(), Parallel(", "ScheduleError: .*nothing is read across"),
    ("Parallel(", "InPlace(operand=0, output=0), Parallel(", "the operand and the result are not one"),
    ("tanh(", "sinh(", None),
    ("= tanh(%x0)", "= expm1()", "VerificationError"), ("f64[s0]", "f32[s0]", "VerificationError|other arguments"),
    ("{pairs=()", "{pairs=(0,)", "it is a program of other arguments, results or options")])
def test_text_that_was_edited(old, new, why):
    record, file = keep(again(curve), normal(5), changed=lambda g: g)
    assert old in record.module
    file.path.unlink()
    file.append([dataclasses.replace(record, module=record.module.replace(old, new))])
    f = again(curve)
    f(normal(3))
    notes = [line for line in f.explain().splitlines() if line.startswith("tuning: ")]
    if why is None:  # what the text computes is its author's: a cache directory is the user's alone
        assert is_tuned(f, normal(3)) and not notes
    else:
        assert not is_tuned(f, normal(3)) and len(notes) == 1
        assert re.search(why, notes[0])


def called(x):
    return x + 1


def test_python_functions_are_those_that_the_function_calls():
    """By the names that text has for them."""
    def shown(x):
        lw.debug.print("{}", np.sum(x))
        return lw.pure_callback(called, x, x) * 2
    record, file = keep(lw.jit(shown), normal(3))
    f = lw.jit(shown)
    np.testing.assert_allclose(f(normal(3)), (normal(3) + 1) * 2)
    assert is_tuned(f, normal(3)) and f"{__name__}:called" in record.module
    file.path.unlink()
    file.append([dataclasses.replace(record, module=record.module.replace(f"{__name__}:called", "os:remove"))])
    f = lw.jit(shown)
    f(normal(3))
    assert not is_tuned(f, normal(3)) and "it calls os:remove, which the function does not" in f.explain()


def halves(value):
    """A kernel that claims to compute what `half` does."""
    @lw.kernel("f64[n] -> f64[n]", instead_of=half)
    def by_hand(x, y):
        for i in loops.loop(x.shape[0], lanes=8):
            y[i] = x[i] * value


def half(x):
    return np.exp(x) * 0.5


def test_kernels_of_users_are_those_of_this_process(monkeypatch):
    """Another one by the same name is not what was measured."""
    monkeypatch.setattr("loopwright.lower.patterns._patterns", {})
    halves(3.0)

    def with_kernel(module):
        n, = kernels_of(module)
        return reimplemented(module, {n: next(ways(n, blas=True))})
    keep(lw.jit(half), normal(5), changed=with_kernel)
    f = lw.jit(half)
    np.testing.assert_allclose(f(normal(4)), normal(4) * 3)
    halves(5.0)
    f = lw.jit(half)
    np.testing.assert_allclose(f(normal(4)), np.exp(normal(4)) / 2)
    assert "it has a kernel of yours that is another one by now" in f.explain()


def test_instructions_that_change_nothing_are_no_fault():
    """A search leaves some; they were measured as they are."""
    def with_more(module):
        n, = kernels_of(module)
        return rescheduled(module, {n: (*n.attrs["schedule"], Unroll(stage=0, factor=2))})
    record, _ = keep(again(curve), normal(5), changed=with_more)
    assert "Unroll(stage=0, factor=2)" in record.module and is_tuned(again(curve), normal(5))


def test_kernels_that_a_function_calls_are_part_of_it():
    @lw.kernel("f64[n] -> f64[n]")
    def tripled(x, y):
        for i in loops.loop(x.shape[0], lanes=8):
            y[i] = x[i] * 3.0
    keep(lw.jit(lambda x: tripled(np.exp(x))), normal(5))
    f = lw.jit(lambda x: tripled(np.exp(x)))
    np.testing.assert_allclose(f(normal(4)), np.exp(normal(4)) * 3)
    assert is_tuned(f, normal(4))


def test_lines_that_are_no_records():
    record, file = keep(again(curve), normal(5))
    good = file.path.read_bytes()
    file.append([dataclasses.replace(record, best=0.0), dataclasses.replace(record, module=3)])
    bad = [b"not json", b"[1]", b'{"format": 0}', good[:200], *file.path.read_bytes().splitlines()[1:], b"\xff\xfe",
           b"[" * 100_000]
    file.path.write_bytes(b"\n".join(bad) + b"\n" + good)
    assert [s.record for s in file.read()] == [record] and file.read()[0].where.line == 9
    assert [where.line for where, _ in file.ignored] == [1, 2, 3, 4, 5, 6, 7, 8]
    f = again(curve)
    f(normal(3))
    assert is_tuned(f, normal(3)) and f.explain().count(": it is no record: ") == 8
    assert file.prune() == (1, 8) and file.path.read_bytes() == good


@given(data=st.data())
@examples(50)
def test_a_damaged_record_is_none(data, tmp_path_factory):
    """Whatever byte is another one, or is not there: what is left is the record itself, or none."""
    file = RecordFile(tmp_path_factory.mktemp("damaged") / "file.jsonl")
    file.append([RECORD])
    good = file.path.read_bytes()
    at = data.draw(st.integers(0, len(good) - 1))
    file.path.write_bytes(good[:at] + data.draw(st.binary(max_size=2)) + good[at + 1:])
    assert [s.record for s in file.read()] in ([RECORD], []) and len(file.ignored) <= 3


def test_a_file_that_cannot_be_read(tmp_path):
    _, file = keep(again(curve), normal(5))
    file.path.unlink()
    assert RecordFile(file.path).read() == []
    file.path.symlink_to(tmp_path)  # a directory is no file
    f = again(curve)
    f(normal(3))
    assert not is_tuned(f, normal(3))


# ---- files ------------------------------------------------------------------------------------------
def test_what_prune_leaves():
    record, file = keep(again(curve), normal(5))
    others = [dataclasses.replace(record, machine="m"), dataclasses.replace(record, version="0.0.1"),
              dataclasses.replace(record, sizes=(6,)), dataclasses.replace(record, best=0.5e-6)]
    file.append(others)
    assert [s.record.best for s in standing(file.read())] == [1e-6, 1e-6, 0.5e-6]
    assert file.prune() == (3, 2) and [s.record for s in file.read()] == [others[0], others[2], others[3]]
    assert file.prune(foreign=True) == (2, 1) and [s.record.best for s in file.read()] == [1e-6, 0.5e-6]
    assert files_in(tuned.directory()) == [file.path]
    file.path.write_text("none\n")
    assert file.prune() == (0, 1) and not file.path.exists() and not files_in(tuned.directory())


def test_a_writer_that_died_costs_its_own_line():
    record, file = keep(again(curve), normal(5))
    with file.path.open("ab") as handle:
        handle.write(b'{"format": 1, "stru')
    file.append([record])
    assert [s.record for s in file.read()] == [record, record] and [w.line for w, _ in file.ignored] == [2]


WRITER = """
import dataclasses, sys
from pathlib import Path
from loopwright.lower.tuning.stored import RecordFile
file = RecordFile(Path(sys.argv[1]))
record = file.read()[0].record
for k in range(40):
    file.append([dataclasses.replace(record, sizes=(int(sys.argv[2]) + k,), module=record.module + " " * 9000)])
    if k % 8 == 7:
        file.prune()
"""


def test_two_writers_at_a_time_lose_nothing():
    """Nor where they prune."""
    _, file = keep(again(curve), normal(5))
    command = [sys.executable, "-c", WRITER, str(file.path)]
    writers = [subprocess.Popen([*command, str(start)]) for start in (100, 200)]
    assert [w.wait() for w in writers] == [0, 0]
    assert sorted(s.record.sizes[0] for s in file.read()) == [5, *range(100, 140), *range(200, 240)] and not file.ignored
    assert [p.name for p in file.path.parent.iterdir()] == [file.path.name]


def test_a_record_comes_back_as_it_was():
    f = again(curve)
    record, file = keep(f, normal(5), ranges=[(2, None)])
    stored, = file.read()
    assert stored.record == record and Path(stored.where.file) == file.path
    program = program_of(stored, f.versions[0])
    assert program.graph == slower(f._versions.entries[0].compiled.module)
    assert [str(g.constraint) for g in program.guards] == ["n >= 2"]
