"""Complex numbers in compiled code mean what they mean in NumPy: every op, special values, borders, derivatives.

Bounds: what moves or compares numbers, and sums and products of two, as NumPy up to the fusing of a product and a sum;
functions a few units in the last place of |result|, and bit for bit which parts are infinite or NaN where that is definite.
"""
from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
import loopwright.numpy as xp
from loopwright.ir.attributes import map_extents
from loopwright.ir.builder import build, innermost
from loopwright.ir.errors import DTypeError
from loopwright.ir.op import Op
from loopwright.ir.ops import TABLE
from loopwright.ir.parser import parse_type
from loopwright.ir.signature import ArrayLeaf, Result, ResultContainer, ScalarLeaf, Signature, Version
from loopwright.ir.types import C64, C128, COMPLEX, F32, F64, I8, ArrayType, is_inexact
from loopwright.ir.verifier import verify
from loopwright.lower.compile import compile_version
from loopwright.lower.complexes import RULES, without_complex
from loopwright.lower.partition import partition
from loopwright.lower.runtime import fallback
from loopwright.lower.target import host_target
from tests.scale import examples
from tests.test_ops import concrete, draw, symbols_of

UNITS = 6
PARTS = {C64: F32, C128: F64}
WITHOUT_RULE = {"sort", "argsort", "scatter_mul"}


def close(got, want, units=UNITS, scale=0.0):
    """Within `units` of the last place of |want|, or of `scale` where that is larger; NaN is NaN, and infinities are equal."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.dtype == want.dtype and got.shape == want.shape, f"{got.dtype}{got.shape}, not {want.dtype}{want.shape}"
    if not is_inexact(want.dtype):
        np.testing.assert_array_equal(got, want)
        return
    wide = np.clongdouble if want.dtype in COMPLEX else np.longdouble
    a, b = got.astype(wide), want.astype(wide)
    info = np.finfo(want.dtype)
    length = np.hypot(np.where(np.isfinite(b.real), b.real, 0), np.where(np.isfinite(b.imag), b.imag, 0))
    bound = units * float(info.eps) * np.maximum(length, scale) + float(info.smallest_subnormal)
    for p, q in ((a.real, b.real), (a.imag, b.imag)):
        definite = np.isfinite(q)
        np.testing.assert_array_equal(p[~definite], q[~definite])
        with np.errstate(invalid="ignore"):
            far = np.abs(p - q)[definite] / bound[definite]
        k = int(np.argmax(far)) if far.size else 0
        assert not far.size or far[k] <= 1, f"{far[k] * units} units: {a[definite][k]}, not {b[definite][k]}"


def complex_examples(op: Op):
    return [e for e in op.examples if any(parse_type(t).dtype in COMPLEX for t in e.operands)
            or e.attrs.get("dtype") in COMPLEX]


def compiled(op: Op, e, types):
    """One example as compiled code; a last operand of one axis for each symbol tells its size."""
    told = [ArrayType((parse_type(f"i8[{s}]").shape[0],), I8) for s in symbols_of(e)]
    graph = build(lambda *xs: [op(*xs[:len(types)], into=innermost(), **e.attrs)], [*types, *told])
    verify(without_complex(graph))
    version = Version(op.name, Signature(tuple(map(ArrayLeaf, [*types, *told]))), graph, (),
                      ResultContainer("list", (Result(0),)))
    return compile_version(version)


CASES = [pytest.param(op, e, id=f"{op}-{k}") for op in TABLE.values() if op.name not in WITHOUT_RULE
         for k, e in enumerate(complex_examples(op))]


@pytest.mark.parametrize(("op", "e"), CASES)
def test_every_complex_example(op, e):
    rng = np.random.default_rng(0)
    types = [parse_type(t) for t in e.operands]
    code = compiled(op, e, types)
    for size in (5, 1, 33, 0):
        at = dict.fromkeys(symbols_of(e), size)
        operands = [np.asarray(e.draw.get(k, draw)(rng, concrete(t, at))) for k, t in enumerate(types)]
        [got] = code.call((*operands, *(np.zeros(n, np.int8) for n in at.values())), {})
        with np.errstate(all="ignore"):
            want = op.numpy(*operands, **{k: map_extents(a, at) for k, a in e.attrs.items()})
        largest = max((float(np.abs(x).max(initial=0)) for x in operands), default=0.0)
        close(np.asarray(got), np.asarray(want), 4 * UNITS, scale=largest)


def test_every_op_that_takes_complex_numbers_has_a_rule():
    accepting = {op.name for op in TABLE.values() if complex_examples(op)}
    assert accepting - WITHOUT_RULE <= {op.name for op in RULES}


@pytest.mark.parametrize("function", [np.sort, np.argsort])
def test_what_has_no_machine_code_says_so(function):
    op = TABLE[function.__name__]
    graph = build(lambda x: [op(x, axis=0)], [parse_type("c128[n]")])
    with pytest.raises(DTypeError, match=rf"{op.name} on c128\[n\]: it has no machine code for complex numbers"):
        without_complex(graph)


# ---- functions ----------------------------------------------------------------------------------------
FUNCTIONS = [np.exp, np.exp2, np.expm1, np.log, np.log2, np.log10, np.log1p, np.sqrt, np.sin, np.cos, np.tan, np.sinh, np.cosh,
             np.tanh, np.arcsin, np.arccos, np.arctan, np.arcsinh, np.arccosh, np.arctanh, np.abs, np.square, np.conj,
             np.isnan, np.isinf, np.isfinite]


def every_pair(dtype):
    """Every pair of special parts."""
    info = np.finfo(PARTS[dtype])
    half = [0.0, float(info.smallest_subnormal), 2 * float(info.tiny), 1e-10, 0.3, 0.5, 1.0, 1 + float(info.eps), 1.5, 2.0, 3.7,
            20.0, float(info.max) ** 0.5, float(info.max) / 2, float(info.max)]
    re, im = np.meshgrid(*[np.array([*half, *(-x for x in half)], PARTS[dtype])] * 2)
    z = np.empty(re.size, dtype)
    z.real, z.imag = re.ravel(), im.ravel()
    return z


def reference(function, z):
    """NumPy's function; its log1p loses all bits near 0, and overflows."""
    with np.errstate(all="ignore"):
        if function is np.log1p:
            x, y = z.real.astype(np.longdouble), z.imag.astype(np.longdouble)
            near = np.log1p(x * (x + 2) + y * y) / 2
            out = np.empty(z.shape, z.dtype)
            out.real = np.where(np.hypot(x, y) < 0.5, near, np.log(np.hypot(1 + x, y)))
            out.imag = np.arctan2(y, 1 + x)
            return out
        return function(z)


@pytest.mark.parametrize("dtype", COMPLEX, ids=str)
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_functions_at_special_values(function, dtype):
    z = every_pair(dtype)
    if function in (np.arccos, np.arccosh):  # the limit that the module states
        z = z[(z.real != 1) | (np.abs(z.imag) != np.finfo(PARTS[dtype]).smallest_subnormal)]
    if function is np.square:  # inf - inf, or fused
        z = z[np.abs(z) < float(np.finfo(PARTS[dtype]).max) ** 0.5 / 2]
    if function is np.expm1:  # NumPy's own has inf * 0
        z = z[(z.imag != 0) | (np.abs(z.real) < 30)]
    got, want = lw.jit(lambda z: function(z))(z), reference(function, z)
    close(got, want)
    if got.dtype in COMPLEX:
        for p, q in ((got.real, want.real), (got.imag, want.imag)):
            zero = (p == 0) & (q == 0) & np.isfinite(want)
            np.testing.assert_array_equal(np.signbit(p[zero]), np.signbit(q[zero]))


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_functions_of_many_numbers(function):
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(2, 2000)) * np.exp(2 * rng.normal(size=(2, 2000)))
    z = x + 1j * y
    close(lw.jit(lambda z: function(z))(z), reference(function, z))


@pytest.mark.parametrize("z", [complex(np.inf, 0), complex(np.inf, 1), complex(-np.inf, 2), complex(1, np.inf),
                               complex(np.nan, 1), complex(np.nan, np.nan)])
@pytest.mark.parametrize("function", [np.exp, np.log, np.sqrt, np.sinh, np.cosh, np.tanh, np.arcsin, np.arctan, np.abs],
                         ids=lambda f: f.__name__)
def test_functions_at_the_ends(function, z):
    with np.errstate(all="ignore"):
        close(lw.jit(lambda z: function(z))(np.array([z])), function(np.array([z])))


@pytest.mark.parametrize("dtype", COMPLEX, ids=str)
@pytest.mark.parametrize("function", [np.multiply, np.divide, np.add, np.subtract, np.equal, np.not_equal])
def test_arithmetic_of_special_values(function, dtype):
    z = every_pair(dtype)[::7]
    a, b = (x.ravel() for x in np.meshgrid(z, z))
    with np.errstate(all="ignore"):
        want = function(a, b)
        if function in (np.multiply, np.divide):  # products that NumPy fuses overflow and cancel otherwise
            info, length = np.finfo(PARTS[dtype]), np.abs(want)
            sound = (length < float(info.max) / 4) & (length > 1e6 * float(info.tiny))
            a, b, want = a[sound], b[sound], want[sound]
    close(lw.jit(lambda a, b: function(a, b))(a, b), want)


def test_division_by_zero_and_of_infinities():
    a = np.array([1 + 2j, 0j, complex(np.inf, 1), -3j, 1 + 1j])
    b = np.array([0j, 0j, 2 + 0j, complex(-0.0, 0.0), complex(np.inf, 0)])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(lw.jit(lambda a, b: a / b)(a, b), a / b)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 64, 99, -1, -5, 0.5, 2.5, 1j, 1 - 2j, 150.0])
def test_powers(n):
    rng = np.random.default_rng(0)
    z = np.array([*(rng.normal(size=40) + 1j * rng.normal(size=40)), 0j, 1 + 0j, -1 + 0j, 1j, 2 + 0j])
    with np.errstate(all="ignore"):
        want = np.power(z, complex(n))
    units = 40 * (1 + abs(n))
    close(lw.jit(lambda z: z ** complex(n))(z), want, units)
    close(lw.jit(lambda z, y: z ** y)(z, np.full(z.shape, complex(n))), want, units)
    if n == 2:
        assert lw.jit(lambda z, y: z ** y)(np.array([3 + 4j]), np.array([2 + 0j])) == [-7 + 24j]


# ---- borders ------------------------------------------------------------------------------------------
def test_layouts_and_byte_order():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(6, 8)) + 1j * rng.normal(size=(6, 8))
    f = lw.jit(lambda x: x * 2j + 1)
    for view in (z.T, z[::2, ::-3], z[:, 1:2], np.asfortranarray(z), z.astype(">c16"), z.astype(np.complex64)[1:], z[0]):
        close(f(view), view.astype(view.dtype.newbyteorder("=")) * 2j + 1)
    misaligned = np.frombuffer(b"x" + z.tobytes(), np.uint8)[1:].view(complex)
    close(f(misaligned), misaligned * 2j + 1)
    locked = z.copy()
    locked.flags.writeable = False
    close(f(locked), locked * 2j + 1)


@pytest.mark.parametrize("x", [1 + 2j, np.complex64(1 - 2j), np.complex128(3j), np.array(2 - 1j), np.array(1j, np.complex64)])
def test_scalars_in_and_out(x):
    f = lw.jit(lambda x: (x * (1 - 1j), np.conj(x), x, np.abs(x), np.real(x), x == 1j))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = [f(x), f(x)][1]
    want = (x * (1 - 1j), np.conj(x), x, np.abs(x), np.real(x), x == 1j)
    for g, w in zip(got, want, strict=True):
        assert type(g) is type(np.asarray(w)[()])
        close(g, w)


def test_python_scalars_are_weak():
    z = np.ones(3, np.complex64)
    assert lw.jit(lambda z, s: z * s)(z, 2j).dtype == np.complex64
    assert lw.jit(lambda z, s: z * s)(z, np.complex128(2j)).dtype == np.complex128


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (1, 1), (), (2, 1, 4)])
def test_shapes(shape):
    z = np.arange(np.prod(shape, dtype=int)).reshape(shape) * (1 + 2j)
    for f in (lambda z: z * z + 1, lambda z: z, lambda z: np.sum(z), lambda z: (z.T, z), lambda z: z.reshape(-1)[::-1],
              lambda z: np.prod(z), lambda z: np.stack([z, -z]), lambda z: z.real + 1j * z.imag):
        got, want = lw.jit(f)(z), f(z)
        for g, w in zip(*(x if isinstance(x, tuple) else (x,) for x in (got, want)), strict=True):
            close(g, w)


def test_results_share_no_memory():
    z = np.ones((3, 2), complex)
    a, b, c = lw.jit(lambda z: (z, z, z * 1))(z)
    assert not any(np.shares_memory(p, q) for p, q in [(a, z), (a, b), (b, c), (c, z)])
    np.testing.assert_array_equal([a, b, c], [z] * 3)


def test_sizes_that_only_guards_and_shapes_name():
    f = lw.jit(lambda x, y: np.concatenate([x, xp.zeros(x.shape[0] + y.shape[0], complex)]) * y.shape[0])
    for n, m in ((2, 3), (5, 1), (0, 4)):
        x, y = np.full(n, 1 + 1j), np.zeros(m)
        close(f(x, y), np.concatenate([x, np.zeros(n + m, complex)]) * m)


def test_captured_arrays():
    twiddles = np.exp(2j * np.pi * np.arange(4) / 4)
    crooked = np.ones((4, 4), complex)[:, ::2]
    f = lw.jit(lambda x: (x * twiddles, x[:2] @ crooked.T))
    x = np.arange(4) + 1j
    for got, want in zip(f(x), (x * twiddles, x[:2] @ crooked.T), strict=True):
        close(got, want)


@pytest.mark.parametrize("dtype", [np.bool_, np.int32, np.float32, np.float64, np.complex64, np.complex128])
def test_conversions(dtype):
    z = np.array([0j, 1.7 - 2j, -3.2 + 0j, 2j, complex(0.0, -0.0)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        close(lw.jit(lambda z: z.astype(dtype))(z), z.astype(dtype))
        back = z.astype(dtype)
    close(lw.jit(lambda x: x.astype(complex))(back), back.astype(complex))


def test_calls_through_python():
    """As interpreters call whose objects generated code cannot read."""
    graph = build(lambda x, s: [TABLE["mul"](x, x), TABLE["exp"](s)], [parse_type("c64[n, 2]"), parse_type("c128[]")])
    tree = ResultContainer("tuple", (Result(0), Result(1)))
    signature = Signature((ArrayLeaf(graph.params[0].type), ScalarLeaf(graph.params[1].type, True)))
    version = Version("f", signature, graph, (), tree)
    code = compile_version(version)
    x = (np.arange(6).reshape(3, 2) * (1 - 1j)).astype(np.complex64)
    for got in (code.call((x, 1j), {}), fallback.call(version, code.library["entry"], None, (x, 1j), {})):
        close(got[0], x * x)
        close(got[1], np.exp(1j))


@pytest.mark.parametrize("bits", ["128", "256", "host"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int8, np.int64])
def test_every_second_element(dtype, bits, monkeypatch):
    """Parts lie two elements apart, as steps of 2 do in any array: nothing between or beyond them is touched."""
    if bits != "host":
        monkeypatch.setenv("LOOPWRIGHT_VECTOR_BITS", bits)
    read = lw.jit(lambda x: (x[:, ::2] * 2, x[:, 1::2] + x[:, 1::2]))
    write = lw.jit(lambda x: (np.stack([x, -x], axis=-1), np.stack([x.T, x.T, -x.T], axis=-1), x[..., None] * 2))
    for n in (1, 2, 16, 17, 33, 64, 131):
        x = np.arange(3 * n).reshape(3, n).astype(dtype)
        for got, want in zip(read(x), (x[:, ::2] * 2, x[:, 1::2] * 2), strict=True):
            np.testing.assert_array_equal(got, want)
        expected = np.stack([x, -x], axis=-1), np.stack([x.T, x.T, -x.T], axis=-1), x[..., None] * 2
        for got, want in zip(write(x), expected, strict=True):
            np.testing.assert_array_equal(got, want)


# ---- programs -------------------------------------------------------------------------------------------
def test_fourier_matrix_is_the_fourier_transform():
    def dft(x):
        n = x.shape[-1]
        k = xp.arange(n)
        return x @ np.exp(-2j * np.pi * k[:, None] * k / n)
    f, rng = lw.jit(dft), np.random.default_rng(0)
    for n in (1, 4, 17, 64):
        x = rng.normal(size=(3, n)) + 1j * rng.normal(size=(3, n))
        np.testing.assert_allclose(f(x), np.fft.fft(x), rtol=1e-10, atol=1e-10 * n)


@pytest.mark.parametrize("f", [
    lambda a, b: a @ b, lambda a, b: a.T @ np.conj(b).T, lambda a, b: np.einsum("ij,jk->ki", a, b),
    lambda a, b: np.vdot(a, b.T),
    lambda a, b: np.trace(a @ b), lambda a, b: np.linalg.norm(a), lambda a, b: np.var(a, axis=0), lambda a, b: np.outer(a, b),
    lambda a, b: np.where(a.real > 0, a, np.conj(a)), lambda a, b: np.cumsum(a, axis=0) + np.cumprod(a, axis=0),
    lambda a, b: np.prod(a, axis=1) * np.prod(b), lambda a, b: np.angle(a), lambda a, b: a[np.array([2, 0, -1])],
    lambda a, b: np.pad(a, 1, constant_values=2j), lambda a, b: np.full_like(a, 3 - 1j) * a, lambda a, b: np.round(a, 2),
    lambda a, b: np.sign(a), lambda a, b: np.roll(a, 1) - np.flip(a), lambda a, b: np.isclose(a, a),
])
def test_functions_of_arrays(f):
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=s) + 1j * rng.normal(size=s) for s in ((4, 5), (5, 4)))
    np.testing.assert_allclose(lw.jit(f)(a, b), f(a, b), rtol=1e-12, atol=1e-12)


def test_updates():
    def f(x, i):
        x = x * 1
        x[i] = 3 + 1j
        x[0] += 1j
        return x
    x, i = np.arange(5) * (1 - 1j), np.array([1, 3, 1])
    close(lw.jit(f)(x, i), f(x, i))
    with pytest.raises(IndexError, match="index 7 is out of bounds"):
        lw.jit(f)(x, np.array([0, 7, 1]))


UNARY = [np.conj, np.exp, np.tanh, np.sqrt, lambda x: x * 1j, lambda x: x / (2 + x * np.conj(x)), lambda x: x - np.mean(x),
         lambda x: np.abs(x) * x, lambda x: x.real - 1j * x.imag, lambda x: x[::-1], lambda x: np.cumsum(x, axis=0) / 3,
         lambda x: np.log(x + 10), lambda x: x ** 2 / 2, lambda x: np.where(x.imag > 0, x, 1j), lambda x: x.T.reshape(x.shape)]
BINARY = [np.add, np.subtract, np.multiply, lambda x, y: x / (y * np.conj(y) + 1), lambda x, y: x * np.sum(y, axis=0) / 5]


@examples(25)
@given(st.lists(st.tuples(st.integers(0, len(UNARY) + len(BINARY) - 1), st.integers(0, 9), st.integers(0, 9)),
                min_size=1, max_size=6), st.sampled_from([(3, 4), (1, 1), (2, 9)]), st.integers(0, 9))
def test_random_programs(steps, shape, seed):
    def f(x, y):
        values = [x, y]
        for op, a, b in steps:
            p, q = values[a % len(values)], values[b % len(values)]
            values.append(UNARY[op](p) if op < len(UNARY) else BINARY[op - len(UNARY)](p, q))
        return tuple(values[-2:])
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(2, *shape)) / 2 + 1j * rng.normal(size=(2, *shape)) / 2
    for got, want in zip(lw.jit(f)(x, y), f(x, y), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)


# ---- transforms -------------------------------------------------------------------------------------------
LOSSES = [lambda z: np.sum(np.abs(z) ** 2), lambda z: np.sum(np.real(z * z * np.conj(z))), lambda z: np.sum(np.abs(np.exp(z))),
          lambda z: np.real(np.prod(z)), lambda z: np.sum(np.abs(np.cumprod(z))), lambda z: np.sum(np.imag(np.log(z) * z)),
          lambda z: np.sum(np.abs(z[:, None] * np.conj(z) + 1)), lambda z: np.real(np.sum(z ** 3 / (z + 4)))]


@pytest.mark.parametrize("f", LOSSES)
def test_gradients_under_jit_are_those_without(f):
    z = np.array([1 + 2j, -0.5 + 0.3j, 0.7 - 1.1j])
    np.testing.assert_allclose(lw.jit(lw.grad(f))(z), lw.grad(f)(z), rtol=1e-12)
    # df = re(sum(grad * dz)): the gradient is df/dx - i df/dy.
    h, dz = 1e-6, np.array([0.3 - 1j, 1j, -0.4 + 0.2j])
    slope = (f(z + h * dz) - f(z - h * dz)) / (2 * h)
    np.testing.assert_allclose(np.sum(lw.jit(lw.grad(f))(z) * dz).real, slope, rtol=1e-7)


def test_holomorphic_gradients_and_vmap():
    z = np.array([1 + 2j, -0.5 + 0.3j, 0.7 - 1.1j])
    slopes = lw.jit(lw.vmap(lw.grad(lambda z: np.sin(z) * z, holomorphic=True)))(z)
    np.testing.assert_allclose(slopes, np.cos(z) * z + np.sin(z), rtol=1e-12)


def test_nothing_complex_is_left():
    graph = lw.make_graph(lambda x: np.exp(x) @ np.conj(x).T)(np.ones((3, 4), complex))
    kernels = partition(graph, host_target(), blas=True)
    regions = [kernels, *(r for n in kernels.nodes for r in n.regions)]
    assert not any(v.type.dtype in COMPLEX for g in regions for n in g.nodes for v in (*n.inputs, *n.outputs))
    assert [v.type.dtype for v in (*kernels.params, *kernels.results)] == [F64, F64]


@pytest.mark.parametrize("f", [lambda z: np.sum(z, 0), lambda z: np.sum(z * z, 0), lambda z: np.sum(np.real(z), 0),
                               lambda z: np.sum(z, (0, 1)), lambda z: np.sum(z, 1)])
@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_sums_across_memory_go_by_rows(f, dtype):
    """Each with the other part beside it: memory is read once, and never down its columns."""
    rng = np.random.default_rng(0)
    z = (rng.normal(size=(23, 37, 5)) + 1j * rng.normal(size=(23, 37, 5))).astype(dtype)
    compiled = lw.jit(f)
    np.testing.assert_allclose(compiled(z), f(z), rtol=1e-4 if dtype == "c8" else 1e-12, atol=1e-5)
    flat = z.reshape(23, -1)
    kernels = lw.jit(lambda z: np.sum(z, 0)).lower(flat).kernels
    assert kernels.count("schedule=") == kernels.count("ByRows()") == 1
    assert "ByRows()" in lw.jit(lambda z: np.sum(z * z, 0)).lower(flat).kernels


@pytest.mark.parametrize(("subscripts", "left", "right"), [
    ("ij,j->i", (7, 11), (11,)), ("ij,j->i", (40, 300), (300,)), ("j,ji->i", (11,), (11, 7)), ("j,ji->i", (300,), (300, 40)),
    ("ijk,jk->i", (5, 3, 4), (3, 4)), ("ijk,kj->i", (5, 3, 4), (4, 3)), ("jk,jkil->il", (3, 4), (3, 4, 5, 2)),
    ("kj,jki->i", (4, 3), (3, 4, 5)), ("ji,j->i", (11, 7), (11,)), ("j,ij->i", (11,), (7, 11)), ("ij,j->i", (7, 0), (0,)),
    ("i,i->", (9,), (9,)), ("ij,j->i", (0, 4), (4,))])
@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_matrices_by_vectors_are_one_real_product(subscripts, left, right, dtype):
    rng = np.random.default_rng(0)
    x, y = ((rng.normal(size=s) + 1j * rng.normal(size=s)).astype(dtype) for s in (left, right))
    near = {"rtol": 1e-4 if dtype == "c8" else 1e-12, "atol": 1e-4 if dtype == "c8" else 1e-12}
    f = lw.jit(lambda x, y: np.einsum(subscripts, x, y))
    np.testing.assert_allclose(f(x, y), np.einsum(subscripts, x, y), **near)
    g = lw.jit(lambda x, y: np.einsum(subscripts, x * 2, np.conj(y)))
    np.testing.assert_allclose(g(x, y), np.einsum(subscripts, x * 2, np.conj(y)), **near)
    if subscripts in ("ij,j->i", "j,ji->i"):
        assert f.lower(x, y).kernels.count("dot") == 1


MOVES = {
    "stack": lambda x, y: np.stack([x, y], -1),
    "stack three": lambda x, y: np.stack([x, y, x], -1),
    "stack first": lambda x, y: np.stack([x, y * 2]),
    "side by side": lambda x, y: np.concatenate([x, y, x[:, :1]], 1),
    "below": lambda x, y: np.concatenate([x, y]),
    "tile": lambda x, y: np.tile(x, (2, 3)),
    "repeat": lambda x, y: np.repeat(x, 2, 1),
    "roll": lambda x, y: np.roll(x, 2, 1),
    "shape": lambda x, y: (x * y).reshape(-1),
    "cut": lambda x, y: x[1:, ::2].real + y[1:, ::2].imag,
}


@pytest.mark.parametrize("name", MOVES)
@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_moves_of_pairs(name, dtype):
    rng, f = np.random.default_rng(0), MOVES[name]
    compiled, pulled = lw.jit(f), lw.jit(lambda x, y: lw.vjp(lambda x: f(x, y), x)[1](np.ones_like(f(x, y)))[0])
    for shape in ((3, 4), (1, 1), (5, 1), (20, 33)):
        x, y = ((rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype) for _ in range(2))
        np.testing.assert_allclose(compiled(x, y), f(x, y), rtol=1e-6, strict=True)
        slope = lw.vjp(lambda x, y=y: f(x, y), x)[1](np.ones_like(f(x, y)))[0]  # by NumPy, op by op
        np.testing.assert_allclose(pulled(x, y), slope, rtol=1e-6)
