"""Results that are larger than caches are stored past them: in a body of its own, compiled when a call has such results."""
import numpy as np
import pytest

import loopwright as lw
from loopwright.lower.codegen import streams
from loopwright.lower.runtime.later import past_of
from loopwright.lower.target import Target, host_target
from tests.threads import bits_of

x86 = pytest.mark.skipif(not host_target().is_x86, reason="such stores are x86's")


@pytest.fixture
def soon(monkeypatch):
    """Results of a few lines are large, on every x86."""
    monkeypatch.setattr(streams, "PAST_CACHES", 1 << 12)
    monkeypatch.setattr(streams, "MOVED", 1 << 12)
    monkeypatch.setattr(Target, "gains_past_caches", property(lambda target: target.is_x86))


def softmax(x):
    e = np.exp(x - x.max(1, keepdims=True, initial=-1e30))
    return e / e.sum(1, keepdims=True)


PROGRAMS = {
    "a map": lambda x: x * 0.8125 + 3,
    "of two": lambda x: (x * 0.8126, x + 1.5),
    "a row for all": lambda x: x * 0.8127 + x[:1],
    "a column for all": lambda x: x * 0.8128 + x[:, :1],
    "a slice": lambda x: x[:, 3:] * 0.8129 - x[:, :-3],
    "in two parts": lambda x: np.concatenate([x, x * 0.8131], 1),
    "a triangle": lambda x: np.tril(x * 0.8132),
    "turned": lambda x: x.T * 0.8133,
    "the other way": lambda x: x[:, ::-1] * 0.8134,
    "then a fold": lambda x: (x * 0.8135, (x * 0.8135).sum(1)),
    "wider": lambda x: x.astype("f8") * 0.8136,
    "narrower": lambda x: (x * 8).astype("i1"),
    "a formula": lambda x: np.tanh(x * 0.8137),
    "rows": lambda x: x / (x * x).sum(1, keepdims=True),
    "rows and their sums": lambda x: (x - x.mean(1, keepdims=True), x.mean(1)),
    "a softmax": lambda x: softmax(x * 0.8138),
    "a formula of rows": lambda x: np.exp(x - x.max(1, keepdims=True)),
    "rows in two parts": lambda x: np.concatenate([x, x - x.max(1, keepdims=True)], 1),
    "rows the other way": lambda x: (x - x.sum(1, keepdims=True))[:, ::-1] * 0.8139,
}


@x86
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_values(soon, name, dtype):
    f = PROGRAMS[name]
    compiled = lw.jit(f)
    for shape in ((64, 256), (64, 512), (3, 4096), (100, 1024), (257, 300), (2000, 16), (1, 2048), (0, 512)):
        x = np.random.default_rng(1).normal(size=shape).astype(dtype)
        got, want = compiled(x), f(x)
        for a, b in zip(*((y if isinstance(y, tuple) else (y,)) for y in (got, want)), strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@x86
def test_threads_change_nothing(soon):
    x = np.random.default_rng(2).normal(size=(1100, 1024)).astype("f")
    for f in (lambda x, y: (x * 0.8141 + y, x - y), lambda x, y: softmax(x * y)):
        first, *others = bits_of(f, x, x[::-1].copy())
        assert all(other == first for other in others)


@x86
@pytest.mark.parametrize("shape", [(64, 512), (333, 1024), (1, 4096)])
def test_gradients_of_rows(soon, shape):
    def layernorm(x, scale):
        centred = x - x.mean(1, keepdims=True)
        return centred / np.sqrt((centred ** 2).mean(1, keepdims=True) + 1e-5) * scale
    x, c = np.random.default_rng(3).normal(size=(2, *shape))
    scale = np.linspace(0.5, 2, shape[1])
    programs = (lambda x, c: (softmax(x) * c).sum(), (x, c)), (lambda x, s, c: (layernorm(x, s) * c).sum(), (x, scale, c))
    for f, args in programs:
        gradient = lw.jit(lw.grad(f))
        assert past_of("kernel_0") in gradient.lower(*args).llvm
        step, rest = np.random.default_rng(4).normal(size=shape) * 1e-6, args[1:]
        slope = (f(x + step, *rest) - f(x - step, *rest)) / 2
        np.testing.assert_allclose((gradient(*args) * step).sum(), slope, rtol=1e-5, atol=1e-12)


@x86
def test_which_kernels_have_such_bodies(soon):
    x = np.ones((64, 512), "f")

    def has_one(f):
        return past_of("kernel_0") in lw.jit(f).lower(x).llvm
    assert has_one(PROGRAMS["a map"]) and has_one(PROGRAMS["a row for all"])
    assert not has_one(PROGRAMS["a formula"])
    assert not has_one(PROGRAMS["a triangle"])
    assert has_one(PROGRAMS["rows"]) and has_one(PROGRAMS["a softmax"])
    assert not has_one(PROGRAMS["a formula of rows"])
    assert not has_one(lambda x: np.concatenate([x, x * 0.8152], 1))


def test_other_processors_have_none(monkeypatch):
    monkeypatch.setattr(Target, "gains_past_caches", property(lambda target: False))
    assert "_past" not in lw.jit(lambda x: x * 0.8151).lower(np.ones((64, 512), "f")).llvm
