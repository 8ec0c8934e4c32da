"""Whole programs for a GPU through the launcher: control flow, memory, captures and errors, on the CUDA emulator."""
import random

import numpy as np
import pytest
from hypothesis import assume, given, reject
from hypothesis import strategies as st

import loopwright as lw
from loopwright import lax
from loopwright.ir.errors import DTypeError
from loopwright.lower.cuda import lower_cuda
from loopwright.lower.cuda.launcher import MOST_CAPTURED, Launcher, check_at_once, segments
from tests.cuda_templates import TEMPLATES, program, sizes_of
from tests.devices import device, emulator_alone, require_device
from tests.emulator import FORWARD, ORDERS
from tests.emulator.driver import launched
from tests.emulator.programs import Offence, compiled, run_program
from tests.programs import outcome, programs
from tests.scale import examples
from tests.test_control_programs import Program
from tests.test_cuda_programs import agree


@pytest.fixture(autouse=True)
def _device():
    require_device()


def traced(f, args):
    """The graph of a function, and its arguments, those that it captured too."""
    versions = lw.jit(f)._versions
    version = versions.draft(versions.parameters.call(args, {})).version
    return version.graph, [*args, *version.hidden]


def launcher_of(f, *args, order=FORWARD, donated=(), captures=True):
    """The launcher of a function, and the sizes of its symbols for these arguments."""
    graph, args = traced(f, args)
    sizes = sizes_of(graph, [np.asarray(x) for x in args])
    return Launcher(lower_cuda(graph, sizes, donated), device(order), captures=captures), sizes


def check(f, *args, want=None, times=1, **options):
    """The launcher, after runs whose results are NumPy's."""
    launcher, sizes = launcher_of(f, *args, **options)
    want = f(*args) if want is None else want
    for _ in range(times):
        found = launched(launcher, traced(f, args)[1], sizes)
        for a, b in zip(found, want if isinstance(want, (tuple, list)) else (want,), strict=True):
            agree(a, b, "a launched program")
    return launcher


# ---- whole programs -------------------------------------------------------------------------------
@examples(12)
@given(st.integers(0, 2**32 - 1), st.sampled_from(ORDERS))
def test_random_programs_of_loops_and_branches(seed, order):
    rng = np.random.default_rng(seed)
    p = Program(random.Random(seed).random(), 2, 3)
    args = rng.normal(size=4), rng.normal(size=(3, 4)), np.float64(rng.uniform(-1, 1)), np.int64(rng.integers(0, 4))
    check(lambda x, m, a, i: p(x, m, a, i), *args, want=p(*args), order=order, times=3)


@examples(10)
@given(programs(8), st.integers(0, 2**32 - 1), st.sampled_from(ORDERS))
def test_random_graphs_are_what_their_kernels_are(found, seed, order):
    rng = np.random.default_rng(seed)
    sizes = found.sizes(rng)
    args = found.arguments(rng, sizes)
    with np.errstate(all="ignore"):
        assume(outcome(found.graph, args) is not None)
    try:
        made = lower_cuda(found.graph, sizes)
    except DTypeError:
        reject()  # operations that complex numbers have no machine code for
    launcher = Launcher(made, device(order))
    try:
        want = run_program(made, compiled(made, flags=("-O0",)), args, sizes, order)
    except Offence:
        reject()
    for _ in range(3):
        for a, b in zip(launched(launcher, args, sizes), want, strict=True):
            assert a.dtype == b.dtype and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("name", ["map", "rows", "everything", "long columns", "updated rows", "own ways"])
def test_templates_through_the_launcher(name):
    template = TEMPLATES[name]
    graph, made = program(name)
    launcher = Launcher(made, device())
    for sizes in ((7, 33), (40, 64), (7, 33)):
        args = template.make(np.random.default_rng(0), *sizes)
        for a, b in zip(launched(launcher, args, sizes_of(graph, args)), template.meaning(args), strict=True):
            agree(a, b, name)


def test_gradients_of_loops():
    x = np.random.default_rng(0).normal(size=(5, 3))

    def f(x):
        return lw.numpy.sum(lax.scan(lambda c, row: (np.tanh(c + row), c * row), x[0], x)[1])

    def steps(x, n):
        return lw.numpy.sum(lax.while_loop(lambda s: s[1] < n, lambda s: (np.sin(s[0]) * s[0], s[1] + 1), (x, 0))[0])

    check(lw.grad(f), x, want=lw.grad(f)(x), times=3)
    check(lw.grad(steps), x, 4, want=lw.grad(steps)(x, 4), times=3)  # the trips are counted, then they are a size


def test_rows_that_kernels_cannot_read_where_they_lie():
    x = np.arange(15, dtype="f4").reshape(5, 3)  # of 12 bytes
    ys = np.cumsum(x, axis=0)
    check(lambda x: lax.scan(lambda c, row: (c + row, c + row), np.zeros(3, "f4"), x), x, want=(ys[-1], ys), times=3)


def test_no_trips_and_nothing_in_arrays():
    check(lambda x: lax.fori_loop(0, 0, lambda i, y: y + 1, x), np.arange(3.0), want=np.arange(3.0))
    check(lambda x, n: lax.while_loop(lambda s: s[1] < n, lambda s: (s[0] * 2, s[1] + 1), (x, 0))[0], np.arange(3.0), 0,
          want=np.arange(3.0))
    check(lambda x: np.sort(x) + 1, np.zeros(0), times=2)


def test_numbers_of_every_kind_go_by_value():
    args = np.arange(3.0), 2, 0.5, True, 1 + 2j, np.float32(3), np.int8(-4), np.uint64(2**63), np.bool_(False), 7, 8
    check(lambda x, a, b, c, d, e, f, g, h, i, j: (x + a + b + c, x * d.real, x * e, f + 1, g // 2, h | c, x * i + j), *args)


def test_complex_numbers_are_pairs():
    x = np.random.default_rng(0).normal(size=(4, 5)) + 1j
    launcher, sizes = launcher_of(lambda x: (x * 2j, np.abs(x)), x)
    doubled, size = launched(launcher, [x], sizes)
    np.testing.assert_allclose(doubled.view(complex)[..., 0], x * 2j)
    np.testing.assert_allclose(size, np.abs(x))


def test_python_functions_are_called_in_order():
    seen = []

    def f(x):
        lw.debug.callback(lambda v: seen.append(float(v)), np.sum(x))
        y = lw.pure_callback(lambda v: v * 3, lw.ShapeDtypeStruct((3,), "f8"), x)
        lw.debug.callback(lambda v: seen.append(float(v)), np.sum(y))
        return y
    check(f, np.ones(3), want=np.full(3, 3.0))
    assert seen == [3, 9]


# ---- captures -------------------------------------------------------------------------------------
def chain(x):
    for _ in range(3):
        x = np.cumsum(x * 2, axis=1)[:, ::-1]
    return x


@emulator_alone
def test_launches_are_captured_when_they_come_again():
    driver = check(chain, np.ones((3, 5)), times=4).driver
    assert driver.log[-1].startswith("replay") and not any(name.startswith("kernel") for name in driver.log[-2:])
    assert check(chain, np.ones((3, 5)), times=4, captures=False).replays == 0


def test_a_replay_is_for_its_own_addresses():
    launcher, sizes = launcher_of(chain, np.ones((3, 5)))
    driver, held = launcher.driver, []
    for k in range(6):
        x, y = driver.put(np.full((3, 5), float(k))), driver.empty((3, 5), "f8")
        held += [x, y] if k % 2 else []  # so that addresses change
        for _ in range(3):
            launcher([driver.address(x)], [driver.address(y)], sizes)
            agree(driver.get(y), chain(np.full((3, 5), float(k))), "new addresses")
    assert launcher.replays > 0


def test_numbers_may_change_between_replays():
    launcher, sizes = launcher_of(lambda x, a: chain(x * a), np.ones((3, 5)), 2.0)
    for a in (2.0, 3.0, 4.0, 5.0):
        agree(launched(launcher, [np.ones((3, 5)), a], sizes)[0], chain(np.full((3, 5), a)), "a number")
    assert launcher.replays >= 2


def test_few_captures_are_kept():
    launcher, _ = launcher_of(chain, np.ones((3, 5)))
    for n in range(2, MOST_CAPTURED + 8):
        for _ in range(2):
            launched(launcher, [np.ones((3, n))], dict(zip(launcher.program.kernels.free_symbols, (3, n), strict=True)))
    assert len(launcher._captured) <= MOST_CAPTURED


@emulator_alone
def test_why_a_stretch_ends():
    launcher, sizes = launcher_of(lambda x: np.cumsum(np.linalg.qr(np.cumsum(x, axis=1))[1], axis=0) @ x.T,
                                  np.ones((3, 5)))
    lines = segments(launcher, sizes)
    assert lines == ["1 launch, captured when it comes again", "a library call: qr_triangle",
                     "2 launches, captured when they come again"]


@pytest.mark.parametrize(("shape", "dtype"), [((9000, 3), "f4"), ((40, 900, 5), "f8"), ((3000, 12), "i8"), ((300, 16), "f4"),
                                              ((0, 3), "f8"), ((1, 7), "f4")])
def test_columns_of_which_few_lie_beside_one_another(shape, dtype):
    x = np.random.default_rng(0).normal(scale=9, size=shape).astype(dtype)
    axis = len(shape) - 2
    for order in ORDERS:
        check(lambda x: (np.sum(x * x, axis) + 1, np.sum(x, axis)), x, order=order)
    if shape[axis]:
        check(lambda x: (np.max(x, axis), np.argmax(x, axis)), x)
    wide = [t.threads for k in launcher_of(lambda x: np.sum(x, axis), x)[0].program.made.values() for t in k.launches]
    assert all(a * b == 256 and a >= min(shape[-1], 16) for a, b in wide)


@pytest.mark.parametrize(("shape", "axis"), [((3000, 3), 0), ((700, 40), 0), ((4, 900, 7), 1), ((257, 33), 0), ((0, 3), 0)])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i8"])
def test_running_folds_along_columns_in_parts(shape, axis, dtype):
    x = np.random.default_rng(0).normal(scale=9, size=shape).astype(dtype)
    for order in ORDERS:
        check(lambda x: (np.cumsum(x, axis), np.maximum.accumulate(x[::-1], axis)), x, order=order)
    kernels = launcher_of(lambda x: np.cumsum(x, axis), x)[0].program.made.values()
    assert [len(k.launches) for k in kernels] == [2 if shape[axis] > 256 else 1]


def test_products_are_captured_with_what_is_around_them():
    x, w = np.random.default_rng(0).normal(size=(2, 4, 4))
    launcher = check(lambda x, w: np.tanh(x @ w + 1) @ w.T, x, w, times=4)
    assert launcher.replays > 0
    check(lambda x, w: np.tanh(x @ w + 1), np.zeros((0, 4)), w, times=3)
    check(lambda x, w: x @ w, np.zeros((3, 0)), np.zeros((0, 4)), want=np.zeros((3, 4)), times=3)


# ---- memory ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("order", ORDERS)
def test_donated_memory_holds_the_result(order):
    x, g = np.arange(12.0).reshape(3, 4), np.ones((3, 4))
    launcher, _ = launcher_of(lambda x, g: x - 0.5 * np.tanh(g), x, g, order=order, donated=(0,))
    assert launcher.program.donations == {0: 0}
    check(lambda x, g: x - 0.5 * np.tanh(g), x, g, order=order, donated=(0,), times=3)
    check(lambda x: np.exp(x - np.max(x, axis=1, keepdims=True)), x, order=order, donated=(0,))
    check(lambda x: np.transpose(x[::-1])[::-1].T, x, order=order, donated=(0,))


# ---- errors ---------------------------------------------------------------------------------------
def gathered(x, k):
    return x[k]


def test_an_error_is_raised_by_the_next_call():
    args = np.arange(4.0), np.array([0, 7])
    launcher, sizes = launcher_of(gathered, *args)
    launched(launcher, args, sizes)
    with pytest.raises(IndexError, match=r"index 7 is out of bounds for axis 0 with size 4 .*test_launcher"):
        launched(launcher, args, sizes)
    fine = np.array([0, 3])
    agree(launched(launcher, [args[0], fine], sizes)[0], args[0][fine], "after the error")


@emulator_alone
def test_an_error_belongs_to_its_stream():
    args, fine = (np.arange(4.0), np.array([0, 7])), np.array([0, 3])
    launcher, sizes = launcher_of(gathered, *args)
    launched(launcher, args, sizes)
    launcher.driver.number = 1  # another stream
    launched(launcher, [args[0], fine], sizes)
    launcher.driver.number = 0
    other, more = launcher_of(lambda x: x + 1, np.ones(3))
    with pytest.raises(IndexError):  # by any program on that stream
        launched(other, [np.ones(3)], more)


def test_an_error_is_raised_at_once_where_that_is_asked_for():
    args = np.arange(4.0), np.array([0, 7])
    launcher, sizes = launcher_of(gathered, *args)
    check_at_once(True)
    try:
        with pytest.raises(IndexError):
            launched(launcher, args, sizes)
    finally:
        check_at_once(False)


def test_an_error_is_raised_before_the_host_decides():
    args = np.arange(4.0), np.array([0, 7])
    launcher, sizes = launcher_of(lambda x, k: lax.cond(np.sum(x[k]) > 0, lambda x: x, lambda x: -x, x), *args)
    with pytest.raises(IndexError):
        launched(launcher, args, sizes)


def test_errors_of_powers_and_libraries_have_their_lines():
    launcher, sizes = launcher_of(lambda x, y: x ** y, np.array([2, 3]), np.array([1, -1]))
    launched(launcher, [np.array([2, 3]), np.array([1, -1])], sizes)
    with pytest.raises(ValueError, match=r"negative integer powers.*test_launcher"):
        launched(launcher, [np.array([2, 3]), np.array([1, 1])], sizes)
    with pytest.raises(np.linalg.LinAlgError, match="test_launcher"):
        check(lambda x: np.linalg.cholesky(x), -np.eye(3), want=np.eye(3))


def test_sizes_that_only_the_run_tells_have_wide_indices():
    graph, _ = traced(lambda x: x + 1, [np.ones(3)])
    told, untold = (next(iter(lower_cuda(graph, sizes).made.values())) for sizes in ({"n": 3}, {}))
    assert told.narrow and untold.narrow == ()


def test_kernels_of_equal_structure_have_their_own_sizes():
    x, y = np.ones((3, 40)), np.ones((7, 900))
    launcher = check(lambda x, y: (np.sum(np.sin(x), axis=1), np.sum(np.sin(y), axis=1)), x, y)
    assert len(launcher.program.made) > len({*launcher.program.made.values()})


# ---- exact shortcuts --------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", ["f4", "f8", "f2"])
@examples(6)
@given(st.integers(0, 2**32 - 1), st.integers(1, 70))
def test_quotients_of_a_row_by_one_number_round_as_divisions(dtype, seed, width):
    """They are products with its reciprocal, where that is as good: here for numbers of all sizes, zeros of both signs too."""
    rng, kind = np.random.default_rng(seed), np.dtype(dtype)
    bits = np.dtype(f"u{kind.itemsize}")
    x = rng.integers(0, np.iinfo(bits).max, (9, width), bits, endpoint=True).view(kind)
    x[4:] = rng.standard_normal((5, width))
    x[::2, ::3] = np.copysign(0, x[1, 0])

    def f(x):
        return x / np.max(np.abs(x), axis=1, keepdims=True)
    with np.errstate(all="ignore"):
        want = f(x)
    launcher, sizes = launcher_of(f, x)
    found, = launched(launcher, traced(f, [x])[1], sizes)
    same = (found.view(bits) == want.view(bits)) | (np.isnan(found) & np.isnan(want))
    assert same.all(), (x[~same][:3], found[~same][:3], want[~same][:3])
