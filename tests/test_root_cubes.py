"""Powers of -3/2 with fast_math, which AVX and AVX-512 estimate: against float64."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.lower.root_cubes import with_root_cubes
from loopwright.lower.target import host_target
from tests.scale import examples

estimates = pytest.mark.skipif(not host_target().estimates_roots, reason="the processor has no AVX2")
LIMIT = 2.0 ** -21  # relative: eight units of float32


def inverse(x):
    return 1 / np.sqrt(x)


PROGRAMS = {
    "quotient": lambda x, m: m / (x * np.sqrt(x)),
    "root first": lambda x, m: m / (np.sqrt(x) * x),
    "power": lambda x, m: m * x ** -1.5,
    "alone": lambda x, m: x ** -1.5,
    "cube of a root": lambda x, m: m / np.sqrt(x) ** 3,
    "products of a root": lambda x, m: m / (np.sqrt(x) * np.sqrt(x) * np.sqrt(x)),
    "products of an inverse": lambda x, m: m * inverse(x) * inverse(x) * inverse(x),
    "numbers": lambda x, m: 3 * m / (x ** 1.5 * 2),
    "two": lambda x, m: m / (x * np.sqrt(x)) + 2 * x ** -1.5,
    "a root beside it": lambda x, m: m / (x * np.sqrt(x)) + np.sqrt(x),
}


@estimates
@pytest.mark.parametrize("name", PROGRAMS)
def test_values(name):
    f = PROGRAMS[name]

    @examples(15)
    @given(st.integers(1, 70), st.integers(0, 2 ** 32 - 1))
    def check(n, seed):
        rng = np.random.default_rng(seed)
        x, m = (10 ** rng.uniform(-12, 14, n)).astype("f4"), rng.uniform(0.1, 2, n).astype("f4")
        want = f(x.astype("f8"), m.astype("f8"))
        got = lw.jit(f, fast_math=True)(x, m)
        assert got.dtype == np.float32
        assert (np.abs(got - want) <= LIMIT * np.abs(want)).all()
    check()


@estimates
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "a root beside it"])
def test_no_root_is_drawn(name):
    ones = np.ones(5, "f4")
    text = lw.jit(PROGRAMS[name], fast_math=True).lower(ones, ones).llvm
    assert ".rsqrt" in text and "llvm.sqrt" not in text and "fdiv" not in text
    assert ".rsqrt" not in lw.jit(PROGRAMS[name]).lower(ones, ones).llvm


@pytest.mark.parametrize("f", [
    lambda x, m: m / (np.sqrt(x) * m), lambda x, m: x * np.sqrt(x), lambda x, m: 1 / np.sqrt(x * x * x),
    lambda x, m: m / x ** 3, lambda x, m: m * m / (x * np.sqrt(x)),
])
def test_others_stay(f):
    graph = lw.make_graph(f)(np.ones(5, "f4"), np.ones(5, "f4"))
    assert with_root_cubes(graph) is graph


def test_double_precision_stays():
    graph = lw.make_graph(PROGRAMS["quotient"])(np.ones(5), np.ones(5))
    assert with_root_cubes(graph) is graph


def forces(p, m):
    d = p[None] - p[:, None]
    r2 = np.sum(d * d, -1) + 1e-3
    return np.sum((m[None] / (r2 * np.sqrt(r2)))[:, :, None] * d, 1)


@estimates
@pytest.mark.parametrize("far", [1.0, 1e7])
def test_forces_of_distant_bodies(far):
    """Squares of distances have cubes that overflow long before they do."""
    rng = np.random.default_rng(0)
    p, m = (far * rng.normal(size=(50, 3))).astype("f4"), rng.uniform(size=50).astype("f4")
    got, want = lw.jit(forces, fast_math=True)(p, m), forces(p.astype("f8"), m.astype("f8"))
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * np.abs(want).max())


@estimates
def test_the_module_says_so():
    x = np.linspace(0.5, 2, 9, dtype="f4")
    text = lw.jit(lambda x: x ** -1.5, fast_math=True).lower(x).module
    assert "root_cube(" in text
    np.testing.assert_allclose(lw.parse(text).compile()(x), x.astype("f8") ** -1.5, rtol=LIMIT)
