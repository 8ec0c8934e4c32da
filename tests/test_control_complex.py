"""Complex numbers in compiled loops and branches: carries, rows, operands, results and closures, against Python's own loops."""
import numpy as np
import pytest

import loopwright as lw
from loopwright import lax
from loopwright.ir.types import COMPLEX
from loopwright.lower.complexes import without_complex
from tests.control import Ours, Plain

Z = np.array([0.5 + 1j, -1.25 - 0.5j, 0.75j])
TOLERANCE = {"complex64": 2e-6, "complex128": 1e-13}


def escaping(E, z):
    return E.while_loop(lambda s: abs(s[0]) < 10.0, lambda s: (s[0] * (1.2 + 0.5j) + z[1], s[1] + 1), (z[0], 0))


def running(E, z):
    return E.scan(lambda c, r: (c * r + 1j, c + r), z[0], z)


def running_back(E, z):
    def body(c, r):
        return (c[0] - r.real, c[1] / (r + 3), c[2] + 1), c[1] * c[0]
    return E.scan(body, (z[0].real, z[1], z[2] * 0), z, reverse=True)


def branched(E, z):
    return E.cond(abs(z[0]) > 1.0, lambda v: (v * 1j, v[0].real), lambda v: (np.conj(v) + z, v[1].imag), z)


def switched(E, z):
    return E.switch(E.np.where(z[2].imag > 0, 1, 0), [lambda v: v, lambda v: v * z[0], lambda v: v / z], z)


def inside_only(E, z):
    x = z.real
    return E.fori_loop(0, 3, lambda i, v: abs((v + 1j) * x[i]), x)


def nested(E, z):
    def outer(c, r):
        inner = E.fori_loop(0, 2, lambda i, v: E.cond(r.imag > 0, lambda: v * r + i, lambda: v - z), c)
        return inner * 0.25, E.np.sum(inner)
    return E.scan(outer, z, z)


def written(E, z):
    def body(i, v):
        w = v * 1
        w[i] = w[i] * w[0] + z[i]
        return w
    return E.fori_loop(0, 3, body, z)


PROGRAMS = (escaping, running, running_back, branched, switched, inside_only, nested, written)


def assert_close(got, want, dtype):
    got, want = (x if isinstance(x, tuple) else (x,) for x in (got, want))
    for a, b in zip(got, want, strict=True):
        if isinstance(a, tuple):
            assert_close(a, b, dtype)
            continue
        a, b = np.asarray(a), np.asarray(b)
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def stacked(each):
    return tuple(map(stacked, zip(*each, strict=True))) if isinstance(each[0], tuple) else np.stack(each)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_compiled_loops_are_those_of_python(f, dtype):
    z = Z.astype(dtype)
    compiled = lw.jit(lambda z: f(Ours, z))
    for point in (z, -z):
        assert_close(compiled(point), f(Plain, point), dtype)
    assert compiled.compiles == 1


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_batches_of_complex_loops(f):
    rows = np.stack([Z, -Z, Z * 1j])
    got = lw.jit(lw.vmap(lambda z: f(Ours, z)))(rows)
    assert_close(got, stacked([f(Plain, z) for z in rows]), "complex128")


@pytest.mark.parametrize("f", [p for p in PROGRAMS if p is not inside_only], ids=lambda f: f.__name__)
def test_tangents_of_complex_loops_are_differences(f):
    direction, step = np.array([0.5j, 1.0, -0.25 + 0.5j]), 1e-6

    def value(E, z):
        out = f(E, z)
        found = out if isinstance(out, tuple) else (out,)
        return tuple([x for x in found if not isinstance(x, tuple) and np.result_type(x).kind in "fc"])
    _, moved = lw.jit(lambda z, d: lw.jvp(lambda z: value(Ours, z), (z,), (d,)))(Z, direction)
    for got, up, down in zip(moved, value(Plain, Z + step * direction), value(Plain, Z - step * direction), strict=True):
        np.testing.assert_allclose(got, (up - down) / (2 * step), rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("f", [escaping, nested, branched, written], ids=lambda f: f.__name__)
def test_gradients_of_complex_loops_are_differences(f):
    """The gradient g of a real function: its change along d is the real part of sum(g * d), as in JAX."""
    def loss(E, z):
        out = f(E, z)
        found = out[0] if isinstance(out, tuple) else out
        return E.np.sum(found.real * 0.5 + found.imag ** 2)
    got, step = lw.jit(lw.grad(lambda z: loss(Ours, z)))(Z), 1e-6
    assert got.dtype == np.complex128
    for k in range(len(Z)):
        for way in (1.0, 1j):
            d = np.zeros(3, complex)
            d[k] = way
            want = (loss(Plain, Z + step * d) - loss(Plain, Z - step * d)) / (2 * step)
            np.testing.assert_allclose((got[k] * way).real, want, rtol=1e-7, atol=1e-8)


def test_one_compile_for_all_sizes_none_too():
    f = lw.jit(lambda z: lax.scan(lambda c, r: (c * 0.5j + r, c), z.sum() * 0 + 1j, z))
    for n in (2, 3, 7):
        z = np.arange(n) + 1j
        assert_close(f(z), Plain.scan(lambda c, r: (c * 0.5j + r, c), 1j + 0 * z.sum(), z), "complex128")
    assert f.compiles == 1
    last, rows = f(np.zeros(0, complex))
    assert last == 1j and rows.shape == (0,) and rows.dtype == np.complex128


def test_a_python_number_becomes_complex_where_the_body_makes_it_so():
    assert lw.jit(lambda z: lax.fori_loop(0, 2, lambda i, c: c * z, 1.0))(1 + 2j) == (1 + 2j) ** 2


def test_columns_of_rows_stay_where_they_are():
    z = np.arange(24.0).reshape(4, 3, 2) * (1 - 2j)
    f = lw.jit(lambda z: lax.scan(lambda c, r: (c + r, r.T @ c), z[0], z))
    assert_close(f(z), Plain.scan(lambda c, r: (c + r, r.T @ c), z[0], z), "complex128")


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_no_complex_number_is_left_at_any_depth(f):
    def dtypes(g):
        yield from (v.type.dtype for v in (*g.params, *g.results, *(v for n in g.nodes for v in n.outputs)))
        for n in g.nodes:
            for r in n.regions:
                yield from dtypes(r)
    assert set(COMPLEX).isdisjoint(dtypes(without_complex(lw.make_graph(lambda z: f(Ours, z))(Z))))
