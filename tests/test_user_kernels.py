"""Kernels of the user's own: what they compute against NumPy, wherever a traced function may call them; their rules; their
errors."""
import ctypes
import os
import re
import shutil
import subprocess
import threading

import numpy as np
import pytest

import loopwright as lw
from loopwright import loops
from loopwright.ir.interpreter import evaluate
from loopwright.lower.natives import native
from tests.forking import needs_fork

SCALE = """
define void @scale(ptr %x, ptr %a, ptr %y, i64 %n) {
entry:
  %f = load double, ptr %a
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %body, label %done
body:
  %p = getelementptr double, ptr %x, i64 %i
  %q = getelementptr double, ptr %y, i64 %i
  %v = load double, ptr %p
  %w = fmul double %v, %f
  store double %w, ptr %q
  %next = add i64 %i, 1
  br label %head
done:
  ret void
}
"""
C = """
#include <stdint.h>
#include <stdlib.h>
void weighted(const double *x, const float *w, double *y, double *total, int64_t n, int64_t k) {
    *total = 0;
    for (int64_t i = 0; i < n; i++) {
        y[i] = 0;
        for (int64_t j = 0; j < k; j++) y[i] += x[i * k + j] * w[j];
        *total += y[i];
    }
}
void doubled(const double *x, double *y, int64_t n) { for (int64_t i = 0; i < n; i++) y[i] = 2 * x[i]; }
void conjugated(const double *x, double *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) { y[2 * i] = x[2 * i]; y[2 * i + 1] = -x[2 * i + 1]; }
}
void crash(const double *x, double *y, int64_t n) { *(volatile int *) 0 = 1; }
void leave(const double *x, double *y, int64_t n) { exit(3); }
void hang(const double *x, double *y, int64_t n) { for (;;) { __asm__ volatile(""); } }
void beyond(const double *x, double *y, int64_t n) { y[n] = 1; }
void greedy(double *x, double *y, int64_t n) { x[0] = 1; }
"""
scale = lw.kernel("f64[n], f64[] -> f64[n]", llvm=SCALE)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A shared library built from C."""
    if not (compiler := shutil.which("cc")):
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("library")
    (folder / "k.c").write_text(C)
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", folder / "libk.so", folder / "k.c"], check=True)
    return folder / "libk.so"


@lw.kernel("f32[n, k], f32[k, m] -> f32[n, m]")
def product(x, w, out):
    (n, k), (_, m) = x.shape, w.shape
    for i in loops.loop(n, parallel=True):
        for j in loops.loop(m, lanes=8):
            out[i, j] = loops.sum(x[i, p] * w[p, j] for p in loops.loop(k))


@product.deftranspose(0)
def _(ct, x, w):
    return ct @ w.T


@product.deftranspose(1)
def _(ct, x, w):
    return x.T @ ct


@lw.kernel("f64[n] -> f64[n]")
def running(x, y):
    n, = x.shape
    total = loops.local(1, np.float64)
    total[0] = 0.0
    for i in loops.loop(n):
        total[0] = total[0] + x[i]
        y[i] = np.exp(loops.where(total[0] > 1.0, 1.0, total[0]))


@lw.kernel("f64[n], i32[m] -> f64[m]")
def picked(x, at, y):
    for i in loops.loop(at.shape[0]):
        y[i] = x[at[i]]


def normal(*shape, dtype=np.float64):
    return np.random.default_rng(0).normal(size=shape).astype(dtype)


# ---- values -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("n", [0, 1, 7, 1000])
def test_llvm_text_computes_what_it_says(n):
    x = normal(n)
    np.testing.assert_array_equal(scale(x, 3.0), 3 * x)
    np.testing.assert_array_equal(lw.jit(scale)(x, 3.0), 3 * x)
    found = lw.jit(lambda x: scale(x + 1, np.sum(x)) * 2)(x)
    np.testing.assert_allclose(found, (x + 1) * np.sum(x) * 2, rtol=1e-12)


@pytest.mark.parametrize(("n", "k", "m"), [(0, 3, 4), (3, 0, 4), (1, 1, 1), (5, 7, 9), (130, 17, 70)])
def test_loops_in_python_compute_what_they_say(n, k, m):
    x, w = normal(n, k, dtype=np.float32), normal(k, m, dtype=np.float32)
    expected = x.astype(np.float64) @ w.astype(np.float64)
    for f in (product, lw.jit(product)):
        found = f(x, w)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_one_compile_serves_all_sizes():
    f = lw.jit(lambda x, w: product(np.tanh(x), w) + 1)
    for n, k, m in ((3, 4, 5), (6, 7, 8), (20, 30, 40)):
        x, w = normal(n, k, dtype=np.float32), normal(k, m, dtype=np.float32)
        np.testing.assert_allclose(f(x, w), np.tanh(x) @ w + 1, rtol=1e-4, atol=1e-4)
    assert f.compiles == 1


def test_local_arrays_and_choices():
    x = np.abs(normal(40)) / 8
    expected = np.exp(np.minimum(np.cumsum(x), 1.0))
    np.testing.assert_allclose(running(x), expected, rtol=1e-12)
    np.testing.assert_allclose(lw.jit(running)(x), expected, rtol=1e-12)


def test_folds_of_every_kind():
    @lw.kernel("f64[n, k] -> f64[n], f64[n], f64[n], bool[n], bool[n], f64[]")
    def folds(x, most, least, times, some, every, total):
        n, k = x.shape
        for i in loops.loop(n):
            most[i] = loops.max(x[i, p] for p in loops.loop(k, lanes=4))
            least[i] = loops.min(x[i, p] for p in loops.loop(k))
            times[i] = loops.prod(x[i, p] for p in loops.loop(k))
            some[i] = loops.any(x[i, p] > 1 for p in loops.loop(k))
            every[i] = loops.all(x[i, p] < 1 for p in loops.loop(k))
        total[()] = loops.sum(x[i, p] for i in loops.loop(n) for p in loops.loop(k))
    x = normal(6, 9)
    expected = (x.max(1), x.min(1), x.prod(1), (x > 1).any(1), (x < 1).all(1), x.sum())
    for f in (folds, lw.jit(folds)):
        for a, b in zip(f(x), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)


def test_indices_of_data_are_checked():
    x, at = normal(5), np.array([0, -1, 4, 2], np.int32)
    for f in (picked, lw.jit(picked)):
        np.testing.assert_array_equal(f(x, at), x[at])
        with pytest.raises(IndexError, match="index 5 is out of bounds for axis 0 with size 5"):
            f(x, np.array([0, 5], np.int32))
        with pytest.raises(IndexError, match="index -6 is out of bounds for axis 0 with size 5"):
            f(x, np.array([-6], np.int32))


def test_a_function_of_a_library(built):
    weighted = lw.kernel("f64[n, k], f32[k] -> f64[n], f64[]", library=built, symbol="weighted")
    x, w = normal(4, 3), normal(3, dtype=np.float32)
    for f in (weighted, lw.jit(weighted)):
        y, total = f(x, w)
        np.testing.assert_allclose(y, x @ w, rtol=1e-12)
        np.testing.assert_allclose(total, np.sum(x @ w), rtol=1e-12)


def test_complex_numbers_go_as_they_lie_in_memory(built):
    conjugated = lw.kernel("c128[n] -> c128[n]", library=built, symbol="conjugated")
    z = normal(5) + 1j * normal(5)
    np.testing.assert_array_equal(conjugated(z), np.conj(z))
    np.testing.assert_array_equal(lw.jit(lambda z: conjugated(z * 2) + 1)(z), np.conj(z * 2) + 1)


@needs_fork
@pytest.mark.parametrize("kind", ["integer", "ctypes", "address"])
def test_a_bare_pointer(built, kind):
    function = ctypes.CDLL(str(built)).doubled
    where = ctypes.cast(function, ctypes.c_void_p).value
    pointer = {"integer": where, "ctypes": function, "address": type("Compiled", (), {"address": where})()}[kind]
    doubled = lw.kernel("f64[n] -> f64[n]", pointer=pointer, name="doubled")
    f, x = lw.jit(lambda x: doubled(x) + 1), normal(6)
    np.testing.assert_array_equal(f(x), 2 * x + 1)
    np.testing.assert_array_equal(doubled(x), 2 * x)
    assert str(where) not in f.lower(x).graph + f.lower(x).llvm and f"{where:x}" not in f.lower(x).llvm
    assert "doubled@" in f.lower(x).graph


def test_arguments_that_are_not_contiguous_are_copied():
    x = normal(6, 8)
    for given in (x[::2, 1], x.T[3], x[::-1, 0], x[:, 2].astype(">f8")):
        np.testing.assert_array_equal(scale(given, 2.0), 2 * given)
        np.testing.assert_array_equal(lw.jit(scale)(given, 2.0), 2 * given)


def test_python_numbers_take_the_declared_dtype():
    half = lw.kernel("f32[] -> f32[]")(lambda x, y: y.__setitem__((), x[()] * 0.5))
    assert half(3) == np.float32(1.5) and half(3).dtype == np.float32
    assert lw.jit(half)(3.0) == np.float32(1.5)
    assert lw.jit(lambda: half(5))() == np.float32(2.5)


def test_sizes_may_be_computed():
    @lw.kernel("f64[n], f64[n+1] -> f64[2*n]")
    def both(x, y, out):
        n, = x.shape
        for i in loops.loop(n):
            out[2 * i], out[2 * i + 1] = x[i], y[i + 1]
    x, y = normal(4), normal(5)
    f = lw.jit(both)
    for k in (4, 2):
        np.testing.assert_array_equal(f(x[:k], y[:k + 1]), np.stack([x[:k], y[1:k + 1]], 1).ravel())
    with pytest.raises(lw.ShapeError, match=r"axis 0 of argument 1 has size 4, .* declares n \+ 1 with n = 4 from axis 0"):
        both(x, normal(4))


# ---- where it may be called -------------------------------------------------------------------------
def test_in_loops_and_branches():
    @lw.jit
    def f(x):
        def step(c, row):
            return lw.lax.cond(np.sum(row) > 0, lambda: scale(c, 0.5), lambda: c) + row, np.sum(c)
        return lw.lax.scan(step, np.zeros(3), x)
    x, c, sums = normal(7, 3), np.zeros(3), []
    for row in x:
        sums.append(c.sum())
        c = (c * 0.5 if row.sum() > 0 else c) + row
    found = f(x)
    np.testing.assert_allclose(found[0], c, rtol=1e-12)
    np.testing.assert_allclose(found[1], sums, rtol=1e-12)


def test_vmap_runs_one_element_after_the_other():
    x, a = normal(4, 5), normal(4)
    np.testing.assert_array_equal(lw.vmap(scale)(x, a), x * a[:, None])
    np.testing.assert_array_equal(lw.jit(lw.vmap(scale, in_axes=(None, 0)))(x[0], a), x[0] * a[:, None])
    twice = lw.vmap(lw.vmap(scale, in_axes=(0, None)), in_axes=(None, 0))
    np.testing.assert_array_equal(lw.jit(twice)(x, a), x * a[:, None, None])


def test_vmap_of_loops_is_one_more_loop():
    @lw.kernel("f64[n, k], i64[k] -> f64[n], f64[]")
    def picked_rows(a, at, y, total):
        n, k = a.shape
        row = loops.local(k, np.float64)
        for i in loops.loop(n, parallel=True):
            y[i] = loops.sum(a[i, at[p]] for p in loops.loop(k))
        for p in loops.loop(k):
            row[p] = a[0, p] * 2
        total[()] = loops.sum(row[p] for p in loops.loop(k, lanes=4))
    a, at = normal(3, 5, 7), np.random.default_rng(1).integers(-7, 7, (3, 7))

    def expected(a, at):
        return np.take(a, at, axis=1).sum(1), 2 * a[0].sum()
    f = lw.vmap(picked_rows)
    assert "scan(" not in str(lw.make_graph(f)(a, at))
    for g in (f, lw.jit(f)):
        for found, wanted in zip(g(a, at), zip(*map(expected, a, at), strict=True), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-12)
    twice = lw.jit(lw.vmap(lw.vmap(picked_rows, in_axes=(None, 0)), in_axes=(0, None)))(a, at)[0]
    np.testing.assert_allclose(twice, [[expected(x, i)[0] for i in at] for x in a], rtol=1e-12)
    with pytest.raises(IndexError, match="index 8 is out of bounds for axis 1 with size 7"):
        lw.jit(f)(a, np.full((3, 7), 8))


def test_a_batch_rule_takes_the_place_of_the_loop():
    square = lw.kernel("f64[n] -> f64[n]")(lambda x, y: [y.__setitem__(i, x[i] * x[i]) for i in loops.loop(x.shape[0])])
    asked = []

    @square.defbatch
    def rule(size, is_mapped, x):
        asked.append(is_mapped)
        return square(x.reshape(-1)).reshape(x.shape)
    x = normal(3, 4)
    np.testing.assert_array_equal(lw.jit(lw.vmap(square))(x), x * x)
    np.testing.assert_array_equal(lw.vmap(lw.vmap(square))(normal(2, 3, 4)), normal(2, 3, 4) ** 2)
    assert asked == [(True,)] * 3


def test_two_threads_call_one_program():
    f, x, wrong = lw.jit(lambda x, w: product(x, w)), normal(64, 64, dtype=np.float32), []
    expected = f(x, x)

    def work():
        for _ in range(100):
            if not np.array_equal(f(x, x), expected):
                wrong.append(1)
    threads = [threading.Thread(target=work) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_the_interpreter_agrees_with_compiled_code():
    f = lw.jit(lambda x, w: product(x * 2, w) + np.float32(1))
    x, w = normal(5, 4, dtype=np.float32), normal(4, 6, dtype=np.float32)
    found = f(x, w)
    graph = f.versions[0].graph
    assert any(n.op is native for n in graph.nodes)
    np.testing.assert_allclose(evaluate(graph, [x, w])[0], found, rtol=1e-6)


# ---- derivatives ------------------------------------------------------------------------------------
def test_a_bilinear_kernel_has_derivatives_of_any_order():
    x, w = normal(3, 4, dtype=np.float32), normal(4, 2, dtype=np.float32)

    def loss(f):
        return lambda x, w: np.sum(np.sin(f(x, w)))
    for g in (lw.grad, lambda f, argnums: lw.jit(lw.grad(f, argnums))):
        for k in (0, 1):
            np.testing.assert_allclose(g(loss(product), k)(x, w), g(loss(lambda x, w: x @ w), k)(x, w), rtol=1e-4, atol=1e-5)
    moved = lw.jvp(product, (x, w), (x + 1, w - 1))
    np.testing.assert_allclose(moved[1], (x + 1) @ w + x @ (w - 1), rtol=1e-4)
    second = [lw.jacfwd(lw.grad(loss(f)))(x, w) for f in (product, lambda x, w: x @ w)]
    np.testing.assert_allclose(*second, rtol=1e-3, atol=1e-4)
    rows = [lw.vmap(lw.grad(lambda r, w, f=f: np.sum(f(r[None], w) ** 2)), in_axes=(0, None))(x, w)
            for f in (product, lambda x, w: x @ w)]
    np.testing.assert_allclose(*rows, rtol=1e-4)


def test_a_jvp_rule_serves_both_modes():
    cube = lw.kernel("f64[n] -> f64[n]")(lambda x, y: [y.__setitem__(i, x[i] * x[i] * x[i]) for i in loops.loop(x.shape[0])])

    @cube.defjvp
    def rule(primals, tangents):
        x, = primals
        return cube(x), 3 * x * x * tangents[0]
    x = normal(5)
    np.testing.assert_allclose(lw.grad(lambda x: np.sum(cube(x)))(x), 3 * x ** 2, rtol=1e-12)
    np.testing.assert_allclose(lw.jit(lw.jvp, static_argnums=0)(cube, (x,), (x,))[1], 3 * x ** 3, rtol=1e-12)
    np.testing.assert_allclose(lw.jit(lw.hessian(lambda x: np.sum(cube(x))))(x), np.diag(6 * x), rtol=1e-12)
    rows = lw.jit(lw.vmap(lw.grad(lambda x: np.sum(cube(x)))))(normal(3, 2))
    np.testing.assert_allclose(rows, 3 * normal(3, 2) ** 2, rtol=1e-12)


def test_a_rule_is_given_integers_as_the_kernel_declares_them():
    @lw.kernel("f64[], f64[n] -> f64[n]")
    def times(a, x, y):
        for i in loops.loop(x.shape[0]):
            y[i] = a[()] * x[i]
    times.defjvp(lambda p, t: (times(*p), t[0] * p[1] + p[0] * t[1]))
    x = normal(3)
    np.testing.assert_array_equal(lw.grad(lambda x: np.sum(times(2, x)))(x), np.full(3, 2.0))
    slope = lw.grad(lambda x: np.sum(lw.lax.fori_loop(0, 3, lambda i, c: times(i + 1, c), x)))
    for f in (slope, lw.jit(slope)):
        np.testing.assert_array_equal(f(x), np.full(3, 6.0))


def test_integers_are_shifted():
    @lw.kernel("i32[n] -> i32[n]")
    def shifted(x, y):
        for i in loops.loop(x.shape[0], lanes=8):
            y[i] = (x[i] << 2) + (x[i] >> 1) + (1 << (x[i] & 3))
    x = np.arange(-9, 9, dtype=np.int32)
    np.testing.assert_array_equal(shifted(x), (x << 2) + (x >> 1) + (1 << (x & 3)))


def test_a_kernel_that_is_its_own_transpose():
    flip = lw.kernel("f64[n] -> f64[n]")(lambda x, y: [y.__setitem__(i, x[x.shape[0] - 1 - i]) for i in loops.loop(x.shape[0])])
    flip.deftranspose(0)(lambda ct, x: flip(ct))
    x, a = normal(4), normal(4)
    np.testing.assert_array_equal(lw.grad(lambda x: np.sum(flip(x) * a))(x), a[::-1])
    np.testing.assert_array_equal(lw.linear_transpose(flip, x)(a)[0], a[::-1])

    @lw.jit
    def f(x):
        return lw.grad(lambda x: np.sum(lw.lax.scan(lambda c, _: (flip(c) * a, None), x, None, length=3)[0]))(x)
    np.testing.assert_allclose(f(x), _by_differences(x, a), rtol=1e-6)


def _by_differences(x, a):
    def run(x):
        for _ in range(3):
            x = x[::-1] * a
        return x.sum()
    steps = 1e-6 * np.eye(len(x))
    return np.array([(run(x + d) - run(x - d)) / 2e-6 for d in steps])


def test_operands_that_are_linear_together():
    total = lw.kernel("f64[n], f64[n] -> f64[n]")(lambda x, y, z: [z.__setitem__(i, x[i] + 2 * y[i]) for i in
                                                                  loops.loop(x.shape[0])])
    total.deftranspose(0, 1)(lambda ct, x, y: (ct, 2 * ct))
    x, y = normal(3), normal(3) + 1
    for argnums in (0, 1, (0, 1)):
        found = lw.grad(lambda x, y: np.sum(total(x, y) ** 2), argnums)(x, y)
        expected = 2 * (x + 2 * y), 4 * (x + 2 * y)
        np.testing.assert_allclose(found, expected if argnums == (0, 1) else expected[argnums], rtol=1e-12)
    np.testing.assert_allclose(lw.jvp(total, (x, y), (y, x))[1], y + 2 * x, rtol=1e-12)


def test_without_rules_there_is_no_derivative():
    with pytest.raises(lw.GradientError, match=re.escape("the kernel scale has no derivative with respect to operand 0")) as e:
        lw.grad(lambda x: np.sum(scale(x, 2.0)))(normal(3))
    assert __file__ in str(e.value) and "scale.defjvp(rule)" in str(e.value)
    with pytest.raises(lw.GradientError, match="operand 1"):
        lw.jit(lw.grad(lambda a, x: np.sum(scale(x, a))))(2.0, normal(3))
    held = lw.grad(lambda x: np.sum(scale(lw.lax.stop_gradient(x), 2.0) * x))(normal(3))
    np.testing.assert_array_equal(held, 2 * normal(3))


@pytest.mark.parametrize(("rule", "error", "message"), [
    (lambda ct, x: ct[:1], lw.ShapeError, "its shape must be that of"),
    (lambda ct, x: ct.astype(np.float32), lw.DTypeError, "its dtype must be that of"),
    (lambda ct, x: (ct, ct), lw.ArgumentError, "the transpose rule of kernel f must return a cotangent")])
def test_what_a_transpose_rule_gives_is_checked(rule, error, message):
    f = lw.kernel("f64[n] -> f64[n]", name="f")(lambda x, y: [y.__setitem__(i, x[i]) for i in loops.loop(x.shape[0])])
    f.deftranspose(0)(rule)
    with pytest.raises(error, match=message):
        lw.grad(lambda x: np.sum(f(x)))(normal(3))


# ---- errors -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(("args", "error", "message"), [
    ((np.zeros(3, np.float32), 1.0), lw.DTypeError, r"f32\[3\], but .* declares f64\[n\]. Convert it with x.astype"),
    ((np.zeros((2, 3)), 1.0), lw.ShapeError, r"argument 0 has type f64\[2, 3\]"),
    ((np.zeros(3),), lw.ArgumentError, "takes 2 arrays .* got 1"),
    ((np.zeros(3), [1.0]), lw.ArgumentError, "got a container"),
    ((np.zeros(3), 1j), lw.DTypeError, "argument 1 has type weak_c128"),
    (("x", 1.0), lw.ArgumentError, "argument 0")])
def test_arguments_that_do_not_fit(args, error, message):
    for f in (scale, lambda *xs: lw.jit(lambda: scale(*xs))()):
        with pytest.raises(error, match=message) as e:
            f(*args)
        assert f"{__file__}:" in str(e.value)


def test_sizes_that_do_not_agree():
    with pytest.raises(lw.ShapeError, match=r"axis 0 of argument 1 has size 5, but .* k = 4 from axis 1 of argument 0"):
        product(normal(3, 4, dtype=np.float32), normal(5, 2, dtype=np.float32))
    f = lw.jit(lambda x, w: product(x, w))
    with pytest.raises(lw.ShapeError, match="axis 0 of argument 1 has size"):
        f(normal(3, 4, dtype=np.float32), normal(5, 2, dtype=np.float32))


@pytest.mark.parametrize(("signature", "message"), [
    ("f64[n]", "has no arrow"), ("f64[n] -> ", "has no result"), ("f64[n] -> f64[m]", "the size m is that of no axis"),
    ("f65[n] -> f64[n]", "f65 is not a dtype"),
    (5, "expected a signature"), ("x -> f64[n]", "expected types such as"), ("f64[2*n] -> f64[n]", "the size n")])
def test_signatures_that_do_not_parse(signature, message):
    with pytest.raises(lw.ArgumentError, match=message) as e:
        lw.kernel(signature)
    assert __file__ in str(e.value)


def test_what_is_not_there(built):
    with pytest.raises(lw.KernelError, match=r"the library /no/such.so cannot be loaded"):
        lw.kernel("f64[n] -> f64[n]", library="/no/such.so", symbol="f")
    with pytest.raises(lw.KernelError, match="has no function missing"):
        lw.kernel("f64[n] -> f64[n]", library=built, symbol="missing")
    with pytest.raises(lw.ArgumentError, match="symbol= must name the function"):
        lw.kernel("f64[n] -> f64[n]", library=built)
    with pytest.raises(lw.ArgumentError, match="pass one of"):
        lw.kernel("f64[n] -> f64[n]", library=built, llvm=SCALE)
    with pytest.raises(lw.ArgumentError, match="expected an address"):
        lw.kernel("f64[n] -> f64[n]", pointer="f")


@pytest.mark.parametrize(("signature", "text", "symbol", "message"), [
    ("f64[n] -> f64[n]", SCALE, None,
     r"void @scale\(ptr, ptr, i64\), but the LLVM text defines void @scale\(ptr, ptr, ptr, i64\)"),
    ("f64[n], f64[] -> f64[n]", SCALE, "skale", "the LLVM text defines scale"),
    ("f64[n], f64[] -> f64[n]", "define void @f( {", None, "LLVM refuses the text"),
    ("f64[n], f64[] -> f64[n]", "declare void @f()", None, "defines no function that it exports")])
def test_llvm_text_that_is_not_the_kernel(signature, text, symbol, message):
    with pytest.raises(lw.KernelError, match=message):
        lw.kernel(signature, llvm=text, symbol=symbol)


@needs_fork
@pytest.mark.parametrize(("symbol", "message"), [
    ("crash", "crashed with SIGSEGV in its first run"), ("leave", "ended the process with exit code 3"),
    ("beyond", "wrote outside of result 0"), ("greedy", "wrote to operand 0"), ("hang", "did not end within 0.5 s")])
def test_a_bare_pointer_first_runs_in_a_child(built, symbol, message, monkeypatch):
    monkeypatch.setattr("loopwright.user_kernels.TRIAL_SECONDS", 0.5 if symbol == "hang" else 60)
    f = lw.kernel("f64[n] -> f64[n]", pointer=getattr(ctypes.CDLL(str(built)), symbol), name=symbol)
    for call in (f, lw.jit(f)):
        with pytest.raises(lw.KernelError, match=message) as e:
            call(normal(3))
        assert f"{__file__}:" in str(e.value)


def refused(write, signature="f64[n, n] -> f64[n, n]", error=lw.KernelError):
    with pytest.raises(error) as e:
        lw.kernel(signature)(write)(np.zeros((3, 3)))
    assert f"{__file__}:" in str(e.value)
    return str(e.value)


def test_loops_that_are_refused():
    def backwards(x, y):
        for i in loops.loop(x.shape[0]):
            for j in loops.loop(x.shape[1], lanes=4):
                y[i, j] = y[i, j - 1] + x[i, j]
    assert "cannot be in lanes: its iterations may touch the same elements of y0" in refused(backwards)

    def shared(x, y):
        for i in loops.loop(x.shape[0], parallel=True):
            y[0, 0] = x[i, i]
    assert "cannot be parallel" in refused(shared)

    def inside(x, y):
        for i in loops.loop(x.shape[0]):
            for j in loops.loop(x.shape[1], parallel=True):
                y[i, j] = x[i, j]
    assert "only an outermost loop can be parallel" in refused(inside)

    def around(x, y):
        for i in loops.loop(x.shape[0], lanes=4):
            for j in loops.loop(x.shape[1]):
                y[i, j] = x[i, j]
    assert "a loop with lanes holds no other loop" in refused(around)

    def early(x, y):
        for i in loops.loop(x.shape[0]):
            y[i, 0] = x[i, 0]
            break
    assert "leaves a loop before its end" in refused(early)
    assert "stores nothing to its output y0" in refused(lambda x, y: None)
    with pytest.raises(lw.KernelError, match=r"Loop with loops\.loop\(n\)"):
        lw.jit(lw.kernel("f64[n] -> f64[n]")(lambda x, y: list(range(x.shape[0]))))(normal(3))


def test_statements_that_are_refused():
    assert "is an input of the kernel" in refused(lambda x, y: x.__setitem__((0, 0), 1.0))
    assert "an element has 2 indices, got 1" in refused(lambda x, y: x[0])
    assert "holds float64, and float32 is stored" in refused(
        lambda x, y: y.__setitem__((0, 0), loops.convert(x[0, 0], np.float32)), error=lw.DTypeError)
    assert "Elements are not promoted" in refused(lambda x, y: x[0, 0] + np.float32(1), error=lw.DTypeError)
    assert "loops.where(condition, a, b)" in refused(lambda x, y: 1 if x[0, 0] > 0 else 2)
    assert "np.add does not work" in refused(lambda x, y: np.add(x[0, 0], 1.0, dtype=np.float32))
    assert "expected an element, a size or a number, got str" in refused(lambda x, y: x[0, 0] + "1")
    with pytest.raises(lw.KernelError, match=r"in the function of a loopwright\.kernel only"):
        loops.let(1.0)
    with pytest.raises(lw.DTypeError, match="loops have no complex numbers"):
        lw.kernel("c64[n] -> c64[n]")(lambda x, y: None)


# ---- kept code --------------------------------------------------------------------------------------
def test_compiled_code_is_found_again(tmp_path, monkeypatch):
    monkeypatch.setenv("LOOPWRIGHT_CACHE_DIR", str(tmp_path))

    def made(text):
        f = lw.jit(lambda x: lw.kernel("f64[n], f64[] -> f64[n]", llvm=text)(x, 2.0) + 1)
        np.testing.assert_array_equal(f(normal(3)), (2 * normal(3) if "fmul" in text else normal(3) + 2) + 1)
        return f._versions.entries[0].compiled.from_cache
    assert [made(SCALE), made(SCALE), made(SCALE.replace("fmul", "fadd")), made(SCALE)] == [False, True, False, True]


def test_another_file_is_another_function(built, tmp_path):
    copy = tmp_path / "libk.so"
    shutil.copy(built, copy)
    codes = []
    for stamp in (1, 2):
        os.utime(copy, ns=(stamp, stamp))
        codes.append(lw.kernel("f64[n] -> f64[n]", library=copy, symbol="doubled")._code())
    assert codes[0] != codes[1] and codes[0].stamp[0] == 1
