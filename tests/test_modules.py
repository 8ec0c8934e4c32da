"""Compiled programs as text: what prints parses back to the same program and the same code; what is edited is another program,
or an error that names the kernel and the instruction."""
import ctypes
import importlib.util
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import loopwright as lw
from benchmarks import contest, harness
from benchmarks.workloads import WORKLOADS
from loopwright import lax
from loopwright.ir.interpreter import evaluate
from loopwright.ir.verifier import verify
from loopwright.lower.compile import compile_version
from loopwright.lower.modules import check_schedules, is_module, module_of
from loopwright.lower.program import lower_graph
from loopwright.lower.target import host_target
from tests.test_user_kernels import SCALE

EXAMPLES = Path(__file__).parent.parent / "examples"
LANES = host_target().lanes(np.dtype("float64"))
WIDE, NARROW = f"lanes={LANES}", f"lanes={LANES // 2}"
IN_OTHER_PROCESSES = ("importing", "first_result", "first_product")


def normal(*shape, dtype=np.float64):
    return np.random.default_rng(0).normal(size=shape).astype(dtype)


class Recorded(Exception):
    """What a program was compiled from."""


def first_version(run, monkeypatch):
    """The first version that `run` compiles."""
    def record(version):
        raise Recorded(version)
    monkeypatch.setattr("loopwright.versions.compile_version", record)
    with pytest.raises(Recorded) as found:
        run()
    return found.value.args[0]


def check_round_trip(version):
    program = lower_graph(version.graph, host_target(), blas=True, donated=version.donated)
    module = module_of(version.graph, program, version.fast_math)
    text = str(module)
    back = lw.parse(text)
    assert back == module and str(back) == text and is_module(back)
    verify(back)
    check_schedules(back)
    again = lower_graph(back, host_target(), blas=True)
    assert len(again.text) == len(program.text) and again.donations == program.donations


@pytest.mark.parametrize("name", [name for name in WORKLOADS if name not in IN_OTHER_PROCESSES])
def test_programs_of_the_benchmarks_are_their_text(name, monkeypatch):
    monkeypatch.setattr(harness, "QUICK", True)
    monkeypatch.setattr(contest, "optional", lambda name: None)
    monkeypatch.delitem(sys.modules, "digits", raising=False)  # whose step another test may have compiled
    check_round_trip(first_version(WORKLOADS[name], monkeypatch))


@pytest.mark.parametrize("name", ["digits", "kernels", "laplace", "pendulum", "recurrent"])
def test_programs_of_the_examples_are_their_text(name, monkeypatch):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr("sys.argv", [name])
    check_round_trip(first_version(module.main, monkeypatch))


# ---- the same function ------------------------------------------------------------------------------
def loop(x):
    return lw.lax.while_loop(lambda c: np.sum(c) < 100, lambda c: c * 1.5 + 1, x)


FUNCTIONS = {
    "chain": (lambda x, w: (np.exp(x @ w) + 1, np.sum(x, axis=0)), (normal(5, 4), normal(4, 3))),
    "softmax": (lambda x: np.exp(x - np.max(x, -1, keepdims=True)) / np.sum(np.exp(x), -1, keepdims=True), (normal(6, 7),)),
    "complex": (lambda z, x: (z * np.conj(z) + x, np.fft.fft(z)), (normal(8) + 1j, 2.0)),
    "loop": (loop, (np.abs(normal(5)),)),
    "scan": (lambda x: lw.lax.scan(lambda c, r: (c * r + 1, np.sum(c)), x[0], x), (normal(6, 3),)),
    "branch": (lambda p, x: lw.lax.cond(p, np.sin, lambda x: x @ x.T @ x, x), (np.bool_(True), normal(3, 3))),
    "predicate": (lambda x: lw.lax.cond(np.sum(x) > 0, np.sin, np.cos, x), (normal(5, 4),)),
    "gradient": (lambda x, w: lw.grad(lambda w: np.sum(np.tanh(x @ w) ** 2))(w), (normal(5, 4), normal(4, 3))),
    "sizes": (lambda x: x[: x.shape[0] // 2] * x.shape[0], (normal(9),)),
    "indices": (lambda x, i: x[i], (normal(9), np.array([1, -2, 3]))),
    "solve": (lambda a, b: np.linalg.solve(a @ a.T, b), (normal(3, 3), normal(3))),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_program_from_its_text_gives_the_same_bits(name):
    f, args = FUNCTIONS[name]
    compiled = lw.jit(f)
    text = compiled.lower(*args).module
    found, expected = lw.parse(text).compile()(*args), compiled(*args)
    for a, b in zip(*(x if isinstance(x, tuple) else (x,) for x in (found, expected)), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    for a, b in zip(evaluate(lw.parse(text), [np.asarray(x) for x in args]), found if isinstance(found, tuple) else (found,),
                    strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-12)


def test_other_sizes_and_other_layouts():
    f = lw.jit(lambda x, w: np.tanh(x @ w))
    module = lw.parse(f.lower(normal(5, 4), normal(4, 3)).module).compile()
    for x, w in ((normal(7, 2), normal(2, 6)), (normal(0, 2), normal(2, 6)), (normal(6, 5).T, normal(12, 8)[::2, ::2])):
        np.testing.assert_array_equal(module(x, w), f(x, w))


def test_donated_arguments_stay_donated():
    f = lw.jit(lambda x: x * 2, donate_argnums=0)
    module = lw.parse(f.lower(normal(3)).module).compile()
    x = normal(5)
    assert module(x) is x and np.array_equal(x, 2 * normal(5))


def test_fast_math_stays():
    text = lw.jit(lambda x: np.sum(x * x), fast_math=True).lower(normal(3)).module
    assert "fast_math=True" in text and "fmul reassoc" in lw.parse(text).compile().llvm


def test_an_error_names_the_line_of_the_text():
    text = lw.jit(lambda x, i: x[i]).lower(normal(3), np.array([1])).module
    module = lw.parse(text).compile("pick")
    with pytest.raises(IndexError, match=r"index 7 is out of bounds for axis 0 with size 3 \(at <text>:\d+\)"):
        module(normal(3), np.array([7]))


def test_kernels_of_users_are_in_the_text():
    scale = lw.kernel("f64[n], f64[] -> f64[n]", llvm=SCALE)
    rows = lw.kernel("f64[n, k] -> f64[n]")(
        lambda x, y: [y.__setitem__(i, lw.loops.sum(x[i, p] for p in lw.loops.loop(x.shape[1], lanes=4)))
                      for i in lw.loops.loop(x.shape[0], parallel=True)])
    f = lw.jit(lambda x: scale(rows(x), 3.0) + 1)
    text = f.lower(normal(4, 5)).module
    assert 'implementation="native"' in text and "LoopFunction(body=" in text and "define void @scale" in text
    np.testing.assert_array_equal(lw.parse(text).compile()(normal(6, 3)), f(normal(6, 3)))


def test_what_text_cannot_hold_is_bound_by_name():
    absolute = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(
        lambda x, y, n: ctypes.memmove(y, x, 8 * n) and None)
    copy = lw.kernel("f64[n] -> f64[n]", pointer=absolute, name="copy")
    text = lw.jit(lambda x: copy(x) * lw.pure_callback(lambda x: x, x, x)).lower(normal(3)).module
    names = re.findall(r'Callback\("([^"]+)"\)', text)
    pointer, = [n for n in names if n.startswith("copy@")]
    function, = [n for n in names if "lambda" in n]
    bound = {pointer: absolute, function: lambda x: x + 1}
    np.testing.assert_array_equal(lw.parse(text, bind=bound).compile()(normal(3)), normal(3) * (normal(3) + 1))
    with pytest.raises(lw.KernelError, match=r"give it with parse\(text, bind=|Give it with"):
        lw.parse(text, bind={function: lambda x: x}).compile()


def test_graphs_as_traced_compile_too():
    g = lw.make_graph(lambda x: lw.grad(lambda x: np.sum(np.sin(x) ** 2))(x))(normal(3))
    np.testing.assert_allclose(lw.parse(str(g)).compile()(normal(4)), np.sin(2 * normal(4)), rtol=1e-12)


def test_compiled_text_is_found_on_disk(tmp_path, monkeypatch):
    monkeypatch.setenv("LOOPWRIGHT_CACHE_DIR", str(tmp_path))
    text = lw.jit(lambda x: np.exp(x)).lower(normal(3)).module
    assert [lw.parse(t).compile()._compiled.from_cache for t in (text, text, text.replace(WIDE, NARROW))] == [
        False, True, False]


# ---- edited -----------------------------------------------------------------------------------------
def edited(old, new, count=1):
    text = lw.jit(lambda x: np.exp(x) + np.sum(x, axis=1)[:, None]).lower(normal(3, 4)).module
    assert old in text
    return lw.parse(text.replace(old, new, count)).compile()


def test_an_edited_schedule_is_other_code():
    wide, narrow = edited(WIDE, WIDE), edited(WIDE, NARROW, 9)
    assert f"<{LANES} x double>" in wide.llvm and f"<{LANES} x double>" not in narrow.llvm
    assert f"<{LANES // 2} x double>" in narrow.llvm
    x = normal(5, 9)
    np.testing.assert_allclose(narrow(x), wide(x), rtol=1e-13)


def test_an_edited_program_computes_something_else():
    np.testing.assert_allclose(edited("= exp(", "= sin(")(normal(3, 4)), np.sin(normal(3, 4)) + normal(3, 4).sum(1)[:, None])


@pytest.mark.parametrize(("old", "new", "message"), [
    ("Parallel(loops=())", "Tiles()", r"Tiles\(\): nothing is read across"),
    ("lanes=", "lanes=3", r"Vectorize\(stage=\d, loop=\d, lanes=3\d+\): lanes must be a power of two"),
    ("Vectorize(stage=", "Vectorize(stage=1", r"Vectorize\(stage=1\d, loop=1, lanes=\d+\): there is no such stage"),
    ("loop=1, lanes", "loop=0, lanes", r"loop=0, lanes=\d+\): it changes nothing"),
    ("loop=1, lanes", "loop=2, lanes", r"loop=2, lanes=\d+\): stage \d has 2 loops"),
    ("factor=", "factor=70", "a factor is from 1 to 64"),
    ("Parallel(loops=())", "Parallel(loops=()), Threads(x=32, y=1)", "it is for a GPU"),
    ("Parallel(loops=())", "Parallel(loops=()), InPlace(operand=0, output=0)", "InPlace")])
def test_a_wrong_schedule_names_the_kernel_and_the_instruction(old, new, message):
    with pytest.raises(lw.ScheduleError, match=rf"^<text>:\d+: kernel 0 \([a-z_ ]+\): .*{message}"):
        edited(old, new)


def test_work_in_place_is_where_the_program_says_so():
    text = lw.jit(lambda x: x * 2).lower(normal(3)).module
    with pytest.raises(lw.ScheduleError, match="the operand and the result are not one buffer here"):
        lw.parse(text.replace("Parallel(loops=())", "Parallel(loops=()), InPlace(operand=0, output=0)")).compile()


def test_a_number_that_is_returned_as_it_came_parses_back():
    text = lw.jit(lambda x, a: (x * a, a)).lower(normal(3), 2.0).module
    assert lw.parse(text).compile()(np.ones(3), np.asarray(2.0))[1] == 2.0


def updated_thrice(y, i, v):
    def body(k, y):
        y = y.copy()
        y[i + k] += v
        return y
    return lax.fori_loop(0, 3, body, y)


def test_updates_in_place_parse_back_and_stay_in_their_order():
    y, i, v = np.zeros((50, 40), "f4"), np.arange(9) % 4, normal(9, 40).astype("f4")
    f = lw.jit(updated_thrice)
    text = f.lower(y, i, v).module
    assert "InPlace" in text
    want = f(y, i, v)
    np.testing.assert_array_equal(lw.parse(text).compile()(y, i, v), want)
    with pytest.raises(lw.ScheduleError, match="updates of a scatter come in their order"):
        lw.parse(text.replace("InPlace(", "Parallel(loops=()), InPlace(")).compile()


@pytest.mark.parametrize(("old", "new", "message"), [
    ("Vectorize(", "Vectorise(", "there is no Vectorise; did you mean Vectorize"),
    (f"loop=1, {WIDE}", WIDE, "Vectorize has the fields stage, loop, lanes, got stage, lanes"),
    ("= exp(", "= expp(", "there is no op expp")])
def test_text_that_is_none(old, new, message):
    with pytest.raises(lw.ParseError, match=rf"^line \d+, column \d+: {message}"):
        edited(old, new)


@pytest.mark.parametrize(("old", "new", "error", "message"), [
    ("{axes=(1,)}", "{axes=(5,)}", lw.VerificationError, "reduce_sum"),
    ("donations=", "donation=", lw.VerificationError, "donation"),
    ("implementation=", "implemented=", lw.VerificationError, "implementation"),
    ("schedule=", "scheduled=", lw.VerificationError, "what is generated needs a schedule"),
    ('"generated"', '"generate"', lw.ScheduleError, r"kernel 0 \(.*\): there is no implementation 'generate'")])
def test_a_program_that_is_not_valid(old, new, error, message):
    with pytest.raises(error, match=message):
        edited(old, new)


def test_what_is_around_a_program_takes_and_returns_what_it_does():
    text = lw.jit(lambda x, y: (x - y, y + 1)).lower(normal(3), normal(3)).module
    head, _, tail = text.rpartition("return %0, %1")
    exchanged = text.replace("program(%x0, %x1)", "program(%x1, %x0)")
    for changed in (f"{head}return{tail}", f"{head}return %1, %0{tail}", exchanged):
        assert changed != text
        with pytest.raises(lw.VerificationError, match="the graph around a program"):
            lw.parse(changed).compile()


@pytest.mark.parametrize(("args", "error", "message"), [
    ((normal(3),), lw.ShapeError, "argument 0 has rank 1"), ((), lw.ArgumentError, "takes 2 arrays"),
    ((normal(3, 4).astype("f4"), 1.0), lw.DTypeError, "argument 0 of f has dtype float32"),
    ((normal(3, 4), "x"), lw.DTypeError, "argument 1 of f has dtype"),
    ((normal(3, 4), normal(5)), lw.ShapeError, "f: argument 1 has shape")])
def test_arguments_that_do_not_fit(args, error, message):
    text = lw.jit(lambda x, y: x * y).lower(normal(3, 4), normal(4)).module
    f = lw.parse(text).compile("f")
    args = args if len(args) != 1 else (*args, normal(4))
    with pytest.raises(error, match=message) as e:
        f(*args)
    assert f"{__file__}:" in str(e.value)


def test_a_program_on_the_interpreter_and_from_disk_is_one_version():
    version = lw.jit(lambda x: x + 1)
    text = version.lower(normal(3)).module
    made = lw.parse(text).compile()
    assert made._compiled.module == lw.parse(text) and repr(made) == "<compiled module: (f64[n])>" and "ret" in made.asm
    assert compile_version(version.versions[0]).module == lw.parse(text)
