"""Tracebacks: the user's frames, those of what the user called, and all of them where loopwright is at fault."""
import traceback

import numpy as np
import pytest

import loopwright as lw
from loopwright import lax, versions
from loopwright.ir.source import is_own


def frames(call, kind):
    """(name, whether it is loopwright's) of the frames of the error that a call raises, from the outside, without its own."""
    with pytest.raises(kind) as caught:
        call()
    found = traceback.extract_tb(caught.value.__traceback__)
    return [(f.name, is_own(f.filename)) for f in found if f.name not in ("frames", "<lambda>")]


def inner(x):
    return x @ np.ones((7, 5))


def outer(x):
    return lax.scan(lambda c, _: (c, inner(c)), x, length=3)[1]


def test_an_error_that_explains_itself_has_the_frames_of_the_user():
    found = frames(lambda: lw.jit(outer)(np.ones((2, 3))), lw.ShapeError)
    assert found == [("outer", False), ("inner", False)]
    nested = frames(lambda: lw.jit(lw.grad(lambda x: np.sum(lw.jit(outer)(x))))(np.ones((2, 3))), lw.ShapeError)
    assert nested == found


def test_transforms_and_loops_outside_of_jit():
    assert frames(lambda: lw.grad(inner)(np.ones((2, 3))), lw.ShapeError) == [("inner", False)]
    assert frames(lambda: lw.vmap(lw.jacfwd(inner))(np.ones((4, 2, 3))), lw.ShapeError) == [("inner", False)]
    assert frames(lambda: outer(np.ones((2, 3))), ValueError) == [("outer", False), ("inner", False)]  # NumPy's own error


def test_an_error_about_the_call_itself_has_no_frames_of_its_own():
    assert frames(lambda: lw.vmap(outer)(1.0), ValueError) == []


def test_a_function_that_has_compiled_code():
    f = lw.jit(outer)
    f(np.ones((2, 7)))
    assert frames(lambda: f(np.ones((2, 3))), lw.ShapeError) == [("outer", False), ("inner", False)]


def missing(x):
    return {}["key"]


def singular(x):
    return x + np.linalg.inv(np.zeros((2, 2)))


def test_what_the_user_calls_keeps_its_frames():
    assert frames(lambda: lw.jit(missing)(1.0), KeyError) == [("missing", False)]
    found = frames(lambda: lw.jit(singular)(1.0), np.linalg.LinAlgError)
    assert found[:2] == [("singular", False), ("inv", False)]


def test_a_mistake_of_loopwright_keeps_all_frames(monkeypatch):
    """`drafted`, as if it read a list past its end."""
    code = compile("def drafted(*args): return [][0]", versions.__file__, "exec")
    made = {}
    exec(code, made)
    monkeypatch.setattr(versions, "drafted", made["drafted"])
    found = frames(lambda: lw.jit(lambda x: x + 1)(1.0), IndexError)
    assert ("draft", True) in found and found[-1] == ("drafted", True)


def test_all_frames_on_demand(monkeypatch):
    monkeypatch.setenv("LOOPWRIGHT_TRACEBACKS", "full")
    found = frames(lambda: lw.jit(outer)(np.ones((2, 3))), lw.ShapeError)
    assert sum(own for _, own in found) > 5


def interrupted(x):
    raise KeyboardInterrupt


def test_an_interruption_keeps_all_frames():
    found = frames(lambda: lw.jit(interrupted)(1.0), KeyboardInterrupt)
    assert ("draft", True) in found and found[-1] == ("interrupted", False)
