"""Maps of arrays larger than the near caches, in vectors half as wide: bodies of their own, compiled when a call needs them."""
import numpy as np
import pytest

import loopwright as lw
from loopwright.lower.codegen import far, streams
from loopwright.lower.runtime.later import far_of
from loopwright.lower.target import Target, host_target
from tests.threads import bits_of

pytestmark = pytest.mark.skipif(host_target().vector_bits < 256, reason="narrower vectors are half of nothing wide")


@pytest.fixture
def soon(monkeypatch):
    """Arrays of a few lines are far, on every processor."""
    monkeypatch.setattr(far, "FAR", 1 << 12)
    monkeypatch.setattr(Target, "far_bits", property(lambda target: target.vector_bits // 2))


PROGRAMS = {
    "a map": lambda x: x * 0.6125 + 3,
    "neighbours": lambda x: x[:, 1:] - x[:, :-1] * 0.6126,
    "a stencil": lambda x: x[1:-1, 1:-1] * 0.6127 + x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:],
    "of two": lambda x: (x * 0.6128, x + 1.5),
    "a column for all": lambda x: x * 0.6129 + x[:, :1],
    "a triangle": lambda x: np.tril(x * 0.6131),
    "turned": lambda x: x.T * 0.6132,
    "the other way": lambda x: x[:, ::-1] * 0.6133,
    "wider": lambda x: x.astype("f8") * 0.6134,
    "narrower": lambda x: (x * 0.9).astype("i1"),
    "a truth": lambda x: x * 0.6135 > 0,
    "in two parts": lambda x: np.concatenate([x, x * 0.6136], 1),
}


@pytest.mark.parametrize("past", [False, True])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i2"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_values(soon, name, dtype, past, monkeypatch):
    if past:
        monkeypatch.setattr(streams, "PAST_CACHES", 1 << 12)
        monkeypatch.setattr(streams, "MOVED", 1 << 12)
        monkeypatch.setattr(Target, "gains_past_caches", property(lambda target: target.is_x86))
    f = PROGRAMS[name]
    compiled = lw.jit(f)
    for shape in ((64, 256), (3, 4096), (100, 1025), (257, 300), (2000, 17), (1, 2048), (0, 512)):
        x = (np.random.default_rng(1).normal(size=shape) * 9).astype(dtype)
        got, want = compiled(x), f(x)
        for a, b in zip(*((y if isinstance(y, tuple) else (y,)) for y in (got, want)), strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=1e-6)


def test_rounding_is_that_of_wide_vectors(soon):
    x = np.random.default_rng(2).normal(size=(300, 301))
    assert np.array_equal(lw.jit(lambda x: x[1:] * 0.6137 / x[:-1])(x), x[1:] * 0.6137 / x[:-1])


def test_threads_change_nothing(soon):
    x = np.random.default_rng(3).normal(size=(1100, 1024)).astype("f")
    first, *others = bits_of(lambda x, y: (x[1:] * 0.6141 + y[:-1], x - y), x, x[::-1].copy())
    assert all(other == first for other in others)


def test_which_kernels_have_such_bodies(soon):
    x = np.ones((64, 512), "f")

    def has_one(f):
        return far_of("kernel_0") in lw.jit(f).lower(x).llvm
    assert has_one(PROGRAMS["a map"]) and has_one(PROGRAMS["a stencil"])
    assert not has_one(lambda x: np.exp(x * 0.6142))
    assert not has_one(lambda x: (x * 0.6143).sum(1))
    assert not has_one(lambda x: x - (x * 0.6144).max(1, keepdims=True))


def test_what_chooses_among_bodies_is_compiled_quickly(soon):
    text = lw.jit(lambda x: x * 0.6146 + 1).lower(np.ones((64, 512), "f")).llvm
    [header] = [line for line in text.splitlines() if line.startswith("define ") and "@kernel_0(" in line]
    assert "optnone" in header


def test_other_processors_have_none(monkeypatch):
    monkeypatch.setattr(Target, "far_bits", property(lambda target: target.vector_bits))
    assert "_far" not in lw.jit(lambda x: x * 0.6145).lower(np.ones((64, 512), "f")).llvm
