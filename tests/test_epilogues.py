"""Large products with what is made of their elements are one kernel: right at all sizes, compiled when a call needs it."""
import numpy as np
import pytest

import loopwright as lw
from loopwright import nn
from loopwright.ir.builder import build
from loopwright.ir.ops.arithmetic import add
from loopwright.ir.ops.contraction import dot_general
from loopwright.ir.types import F32, ArrayType
from loopwright.lower.codegen.products import has_blocks
from loopwright.lower.epilogues import with_epilogues
from loopwright.lower.partition import partition
from loopwright.lower.runtime import blas
from loopwright.lower.target import host_target
from tests.bodies import asked_for
from tests.threads import bits_of

WHOLE = "_amx" if host_target().has_tiles else "_whole"  # in the name of the function of a kernel of both
needs_blas = pytest.mark.skipif(not blas.available(), reason="loops multiply")
needs_blocks = pytest.mark.skipif(not has_blocks(F32, host_target()), reason="the library makes all large products")

# the program, the axes of its arrays, and how many kernels have a product with what is made of it
PROGRAMS = {
    "relu": (lambda x, w, b: np.maximum(x @ w + b, 0), ("mk", "kn", "n"), 1),
    "gelu": (lambda x, w, b: nn.gelu(x @ w + b), ("mk", "kn", "n"), 1),
    "residual": (lambda x, w, y: y + x @ w, ("mk", "kn", "mn"), 1),
    "update": (lambda w, x, y: w - np.float32(0.1) * (x.T @ y), ("mn", "km", "kn"), 1),
    "two products": (lambda x, w, u, v: np.tanh(x @ w + u @ v), ("mk", "kn", "mk", "kn"), 1),
    "several results": (lambda x, w: (lambda y: (np.maximum(y, 0), y * 2))(x @ w), ("mk", "kn"), 1),
    "layers": (lambda x, w, v: np.tanh(np.tanh(x @ w) @ v) * 2, ("mk", "kn", "nn"), 2),
    "rounded": (lambda x, w: (x @ w).astype("float64") + 1, ("mk", "kn"), 1),
    "a result": (lambda x, w: (lambda y: (y, y * 2))(x @ w), ("mk", "kn"), 0),
    "read twice": (lambda x, w: (lambda y: (y * 2) @ w + y)(x @ w), ("mn", "nn"), 1),
    "transposed": (lambda x, w: (x @ w).T + 1, ("mk", "kn"), 1),
    "a fold": (lambda x, w: np.sum((x @ w) ** 2, 1), ("mk", "kn"), 0),
    "softmax": (lambda x, w: nn.softmax(x @ w), ("mk", "kn"), 0),
}
SIZES = [{"m": 7, "k": 5, "n": 9}, {"m": 600, "k": 40, "n": 20}, {"m": 650, "k": 66, "n": 530}, {"m": 262, "k": 70, "n": 1030},
         {"m": 1100, "k": 0, "n": 256}]


def arrays_of(axes, sizes):
    rng = np.random.default_rng(0)
    return [rng.normal(size=[sizes[a] for a in shape]).astype("float32") for shape in axes]


@needs_blas
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_compile_is_right_at_all_sizes(name):
    f, axes, _ = PROGRAMS[name]
    compiled = lw.jit(f)
    for sizes in SIZES:
        args = arrays_of(axes, sizes)
        found, expected = compiled(*args), f(*(a.astype("float64") for a in args))
        pairs = zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]
        for x, y in pairs:
            near = 1e-4 * max(1, np.max(np.abs(y), initial=0))
            np.testing.assert_allclose(x, y, rtol=1e-4, atol=near)
    assert compiled.compiles == 1


@needs_blas
@needs_blocks
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_kernel_of_both_is_compiled_by_the_first_call_that_is_large(name, monkeypatch):
    f, axes, count = PROGRAMS[name]
    made, compiled = asked_for(monkeypatch), lw.jit(f)
    for sizes in SIZES[:2]:
        compiled(*arrays_of(axes, sizes))
    assert not [x for x in made if WHOLE in x]
    for _ in range(2):
        compiled(*arrays_of(axes, SIZES[2]))
    assert len({x for x in made if WHOLE in x}) == count


@needs_blas
@needs_blocks
def test_known_sizes_are_asked_here():
    def kernels(m, n):
        def program(x, w, y):
            return [add(dot_general(x, w, contract=((1, 0),), batch=(), dtype=None), y)]
        g = build(program, [ArrayType(shape, F32) for shape in ((m, 300), (300, n), (m, n))])
        made = with_epilogues(partition(g, host_target(), blas=True), host_target())
        return [n.attrs["implementation"] for n in made.nodes]
    assert kernels(1000, 1000) == ["generated"]
    assert kernels(100, 5000) == kernels(5000, 100) == kernels(256, 256) == ["gemm", "generated"]


@needs_blas
@needs_blocks
@pytest.mark.parametrize("name", ["relu", "update"])
def test_explain_says_so(name):
    f, axes, _ = PROGRAMS[name]
    compiled = lw.jit(f)
    for sizes, said in ((SIZES[0], False), (SIZES[2], True)):
        args = arrays_of(axes, sizes)
        compiled(*args)
        assert ("are one kernel, in the place of two" in compiled.explain(*args)) == said
    assert "one kernel, in the place of two, where it is large" in compiled.explain()


@needs_blas
def test_a_result_in_donated_memory_is_stored_after_the_product_has_read_it():
    x = arrays_of(["nn"], {"n": 600})[0]
    f = lw.jit(lambda x: np.tanh(x @ x * 0.05), donate_argnums=0)
    given = x.copy()
    assert f(given) is given
    np.testing.assert_allclose(given, np.tanh(x.astype("float64") @ x * 0.05), rtol=1e-4, atol=1e-4)


@needs_blas
@pytest.mark.parametrize("loop", [
    lambda step, x: lw.lax.fori_loop(0, 3, lambda k, x: step(x), x),
    lambda step, x: lw.lax.while_loop(lambda state: state[0] < 3, lambda state: (state[0] + 1, step(state[1])), (0, x))[1],
    lambda step, x: lw.lax.scan(lambda x, k: (step(x), None), x, None, length=3)[0]])
@pytest.mark.parametrize("step", [lambda x: np.tanh(x @ x * 0.03), lambda x: x - np.float32(0.001) * (x.T @ x),
                                  lambda x: x + np.tanh(x @ x * 0.03) @ x * np.float32(0.01)])
def test_loops_have_them(loop, step):
    x = arrays_of(["nn"], {"n": 520})[0]
    found, expected = lw.jit(lambda x: loop(step, x))(x), x.astype("float64")
    for _ in range(3):
        expected = step(expected)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4 * np.max(np.abs(expected)))


@needs_blas
def test_what_is_updated_in_place_is_multiplied_before():
    x = arrays_of(["nn"], {"n": 520})[0] / 8

    def f(x, loop):
        def step(k, state):
            x, total = state
            y = x @ x
            x[k] = 9
            return x, total + np.tanh(y * np.float32(0.01) + x[0, 0] * 0)
        return loop(step, (x, np.zeros_like(x)))

    def plain(step, state):
        for k in range(3):
            state = step(k, (state[0].copy(), state[1]))
        return state
    found = lw.jit(lambda x: f(x, lambda step, state: lw.lax.fori_loop(0, 3, step, state)))(x)
    for a, b in zip(found, f(x.astype("float64"), plain), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@needs_blas
@needs_blocks
def test_what_somebody_has_scheduled_is_left_alone():
    f, axes, _ = PROGRAMS["relu"]
    args = arrays_of(axes, SIZES[2])
    s = lw.schedule(f, *args)
    s.kernel(1).vectorize(stage=len(s.kernel(1).ops) - 1, loop=1, lanes=4)
    assert WHOLE in lw.jit(f).lower(*args).llvm and WHOLE not in lw.parse(str(s.module)).compile().llvm
    np.testing.assert_allclose(s.compile()(*args), f(*(a.astype("float64") for a in args)), rtol=1e-4, atol=1e-4)


@needs_blas
@pytest.mark.parametrize("name", ["relu", "update"])
def test_threads_change_no_bit(name):
    f, axes, _ = PROGRAMS[name]
    found = bits_of(f, *arrays_of(axes, SIZES[2]))
    assert found[0] == found[1] == found[2]
