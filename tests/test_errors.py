"""docs/errors.md: every class has a section, every failing example raises it with the message that stands there, every
fix runs; and every message names the user's line."""
import doctest
import re
import threading
from pathlib import Path

import numpy as np
import pytest

import loopwright as lw
from loopwright.ir import errors
from loopwright.tracer import draws

DOCUMENT = Path(__file__).parent.parent / "docs" / "errors.md"
TEXT = DOCUMENT.read_text()
FENCE = re.compile(r"^```(python raises|python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CLASSES = {name: c for name, c in vars(errors).items() if isinstance(c, type) and issubclass(c, Exception)}
WITHOUT_LINE = ("VerificationError", "ParseError")  # about a text or a graph, not about a line of Python


def sections():
    for part in re.split(r"^(?=## )", TEXT, flags=re.MULTILINE)[1:]:
        yield part[3:part.index("\n")], TEXT.index(part), part


def examples():
    for name, start, part in sections():
        fences = list(FENCE.finditer(part))
        for k, fence in enumerate(fences):
            line = TEXT.count("\n", 0, start + fence.start(2)) + 1
            if fence[1] == "python raises":
                yield pytest.param(name, fence[2], line, fences[k + 1][2], id=f"{name}:{line}")


def fixes():
    for name, start, part in sections():
        for fence in FENCE.finditer(part):
            if fence[1] == "python":
                line = TEXT.count("\n", 0, start + fence.start(2)) + 1
                yield pytest.param(fence[2], line, id=f"{name}:{line}")


def run(code, line):
    exec(compile("\n" * (line - 1) + code, str(DOCUMENT), "exec"), {"np": np, "lw": lw, "__name__": "example"})


def test_every_class_has_a_section_with_an_example_and_is_public():
    assert [name for name, _, _ in sections()] == list(CLASSES)
    for name, _, part in sections():
        assert "```python raises" in part and "```python\n" in part, name
        assert getattr(lw, name) is CLASSES[name] and CLASSES[name].__doc__


@pytest.mark.parametrize(("name", "code", "line", "message"), list(examples()))
def test_the_example_fails_as_documented(name, code, line, message):
    with pytest.raises(CLASSES[name]) as caught:
        run(code, line)
    assert type(caught.value) is CLASSES[name]
    said = str(caught.value)
    if name not in WITHOUT_LINE:
        at = re.match(rf"{re.escape(str(DOCUMENT))}:(\d+): ", said)
        assert at and line <= int(at[1]) < line + code.count("\n"), said
    plain = " ".join(re.sub(rf"{re.escape(str(DOCUMENT))}:\d+", "FILE:LINE", said).split())
    expected = " ".join(message.split())
    assert doctest.OutputChecker().check_output(expected + "\n", plain + "\n", doctest.ELLIPSIS), plain


@pytest.mark.parametrize(("code", "line"), list(fixes()))
def test_the_fix_runs(code, line):
    run(code, line)


# ---- arguments and results ----------------------------------------------------------------------------
@pytest.mark.parametrize(("value", "said"), [
    ("text", "got str"), (object(), "got object"), ({1, 2}, "got set"), (len, "got builtin_function_or_method"),
    (b"x", "got bytes")])
def test_objects_that_are_no_data_are_refused_with_their_path(value, said):
    f = lw.jit(lambda tree: tree)
    with pytest.raises(lw.ArgumentError, match=rf"test_errors\.py:\d+: argument tree\['a'\]\[1\] of <lambda>: .*{said}"):
        f({"a": [1.0, value]})
    g = lw.jit(lambda: {"a": [1.0, value]})
    with pytest.raises(lw.ArgumentError, match=rf"test_errors\.py:\d+: result\['a'\]\[1\] of jit of <lambda>: .*{said}"):
        g()


@pytest.mark.parametrize("value", [
    np.array(["a"]), np.array([object()]), np.zeros(2, [("a", "f4")]), np.array(["2020-01-01"], "M8[D]"),
    np.array([1], "m8[s]"), np.zeros(2, np.longdouble), np.array([b"x"]), np.zeros(2, "V3"), np.datetime64("2020-01-01"),
    np.longdouble(1), np.str_("a")],
    ids=lambda x: str(x.dtype))
def test_dtypes_that_do_not_exist_are_refused_with_those_that_do(value):
    if value.dtype == np.float64:
        pytest.skip("longdouble is float64 on this machine")
    for f in (lw.jit(lambda x: x), lw.jit(lambda: value)):
        with pytest.raises(lw.DTypeError, match=r"test_errors\.py:\d+: .* is not supported\. The dtypes are bool, .*bfloat16"):
            f(*[value] * (f.__signature__.parameters != {}))


@pytest.mark.filterwarnings("ignore:.*matrix.*:PendingDeprecationWarning")
@pytest.mark.parametrize("make", [lambda: np.ma.array([1.0]), lambda: np.matrix([[1.0]])], ids=["masked", "matrix"])
def test_arrays_with_their_own_arithmetic_are_refused_by_name(make):
    value = make()
    for f in (lw.jit(lambda x: x), lw.jit(lambda *unused: value), lw.jit(lambda *unused: value + np.zeros(1))):
        with pytest.raises(lw.ArgumentError, match=f"a {type(value).__name__} is not supported"):
            f(value)
    with pytest.raises(lw.ArgumentError, match=f"a {type(value).__name__} is not supported"):
        lw.jit(lambda x: x + value)(1.0)


def test_a_failing_call_leaves_the_trace_state_as_it_was():
    for _ in range(2):
        with pytest.raises(lw.ShapeError):
            lw.jit(lambda x, y: lw.jit(lambda a, b: a + b)(x, y))(np.ones(2), np.ones(3))
        assert lw.jit(lambda x: x + 1)(1.0) == 2.0


@pytest.mark.parametrize("draw", [lambda: np.random.normal(), lambda: np.random.rand(3), lambda: np.random.shuffle([1, 2, 3]),
                                  lambda: np.random.seed(0)])
def test_the_global_random_state_is_watched(draw):
    with pytest.raises(lw.TraceStateError, match=r"lw\.random"):
        lw.jit(lambda x: (draw(), x)[1])(1.0)
    state = np.random.default_rng(0)
    assert lw.jit(lambda x: (state.normal(), x)[1])(1.0) == 1.0  # a generator of one's own is one's own affair
    assert np.isfinite(lw.grad(lambda x: x * np.random.normal())(1.0))  # drawn anew at every call


@pytest.mark.parametrize("draw", [lambda: np.random.normal(), lambda: np.random.seed(0)])
def test_what_another_thread_draws_is_its_own_affair(draw):
    """And what a trace draws is refused beside it."""
    if not isinstance(np.random.get_bit_generator().lock, draws.REENTRANT):
        pytest.skip("a thread cannot take this NumPy's lock twice")
    end = threading.Event()

    def loading():
        while not end.is_set():
            np.random.rand(50)
    thread = threading.Thread(target=loading)
    thread.start()
    try:
        for k in range(30):
            assert lw.jit(lambda x, k=k: np.tanh(x) + k)(0.0) == k
        with pytest.raises(lw.TraceStateError, match=r"lw\.random"):
            lw.jit(lambda x: (draw(), x)[1])(1.0)
    finally:
        end.set()
        thread.join()


@pytest.mark.parametrize(("f", "error", "said"), [
    (lambda x: np.sum(x, axis=1.0), TypeError, "an axis is an integer"),
    (lambda x: np.einsum("ij->ii", x), ValueError, "names an axis more than once"),
    (lambda x: np.einsum("i1->i", x), ValueError, "invalid subscript '1'"),
    (lambda x: np.tensordot(x, x, axes=([0, 1], [1])), ValueError, "names 2 axes of the first operand and 1 of the second"),
    (lambda x: np.sort(x, kind="bubble"), ValueError, "sort kind"),
    (lambda x: np.diff(x, n=-1), ValueError, "order must be non-negative"),
    (lambda x: np.interp(x, [0, 1], [1, 2, 3]), ValueError, "not of the same length"),
    (lambda x: np.repeat(x, -1), ValueError, "repeats may not contain negative values"),
    (lambda x: np.broadcast_to(x, (2 ** 70, 2, 3)), ValueError, "Maximum allowed dimension exceeded"),
    (lambda x: np.tile(x, -1), ValueError, "negative dimensions are not allowed"),
    (lambda x: np.broadcast_to(x, (-1, 2, 3)), ValueError, "negative dimensions are not allowed"),
    (lambda x: lw.random.normal(lw.random.key(0), (-1,)) + x[0, 0], ValueError, "negative dimensions are not allowed"),
    (lambda x: x.at[0].set(1.0), AttributeError, r"y = x.copy\(\); y\[i\] = v"),
    (lambda x: x.tobytes(), AttributeError, "a traced array has no attribute 'tobytes'"),
    (lambda x: len(x[0, 0]), TypeError, "len\\(\\) of unsized object"),
])
def test_what_numpy_refuses_is_refused_in_its_line(f, error, said):
    with pytest.raises(error, match=rf"test_errors.py:{f.__code__.co_firstlineno}: .*{said}"):
        lw.jit(f)(np.ones((2, 3)))


@pytest.mark.parametrize(("make", "said"), [
    (lambda: lw.jit(lambda x: x, static_argnums="x"), "names go to static_argnames="),
    (lambda: lw.grad(lambda x: x, argnums="x")(1.0), "argnums='x' must be a number"),
    (lambda: lw.grad(lambda x: x, argnums=0.0)(1.0), "argnums=0.0 must be a number"),
    (lambda: lw.grad(3.0), "grad expected a function, got float"),
    (lambda: lw.vmap(3.0), "vmap expected a function, got float"),
    (lambda: lw.hessian(None), "jacrev expected a function, got NoneType"),
    (lambda: lw.jvp(3.0, (1.0,), (1.0,)), "jvp expected a function, got float"),
])
def test_names_where_numbers_belong_are_refused(make, said):
    with pytest.raises(TypeError, match=said):
        make()
