"""The emulator finds what it is there for: each fault is planted, and each must be found; without it the kernel is right."""
import mmap
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from loopwright.lower.cuda.context import DIVISOR
from tests.cuda_templates import TEMPLATES
from tests.emulator import FORWARD, ORDERS, REVERSE, Emulator, EmulatorError, Guarded, races, require_compiler
from tests.emulator.driver import EmulatorDriver
from tests.scale import SCALE

ROOT = Path(__file__).parent.parent
REVERSED = """
extern "C" __global__ void __launch_bounds__(96) reversed(const float* __restrict__ x, float* y, long long n,
                                                          long long* error) {
    __shared__ float row[96];
    const int i = (int)threadIdx.x;
    row[i] = i < n ? x[i] : 0.0f;
    BARRIER
    if (i < n) y[i] = row[n - 1 - i];
}
"""
SUMMED = """
extern "C" __global__ void __launch_bounds__(64) summed(const float* __restrict__ x, float* y) {
    float v = x[threadIdx.x];
    GUARD
    for (int d = 16; d > 0; d /= 2) v = v + __shfl_xor_sync(MASK, v, d);
    y[threadIdx.x] = v;
}
"""


def launched(text, name, threads, arrays, numbers=(), order=FORWARD, grid=1):
    """The arrays afterwards."""
    emulator = Emulator(text, [name])
    held = [Guarded(x, order == REVERSE) for x in arrays]
    try:
        emulator.launch(name, grid, threads, [*held, *numbers], order=order)
        return [x.array() for x in held]
    finally:
        for x in held:
            x.close()


def run_reversed(text, n, order, size=None):
    x, y, error = np.arange(n, dtype="f4"), np.zeros(size or n, "f4"), np.zeros(4, "i8")
    emulator = Emulator(text, ["reversed"])
    held = [Guarded(a, order == REVERSE) for a in (x, y, error)]
    try:
        emulator.launch("reversed", 1, (96, 1), [held[0], held[1], n, held[2]], order=order)
        return held[1].array()
    finally:
        for a in held:
            a.close()


@pytest.fixture(autouse=True)
def _compiler():
    require_compiler()


@pytest.mark.parametrize("order", ORDERS)
def test_right_kernels_run(order):
    text = REVERSED.replace("BARRIER", "__syncthreads();")
    np.testing.assert_array_equal(run_reversed(text, 96, order), np.arange(96)[::-1])
    good = SUMMED.replace("MASK", "0xffffffffu").replace("GUARD", "")
    x = np.arange(64, dtype="f4")
    found = launched(good, "summed", (64, 1), [x, np.zeros(64, "f4")], order=order)[1]
    np.testing.assert_array_equal(found, np.repeat([x[:32].sum(), x[32:].sum()], 32))


@pytest.mark.parametrize("order", ORDERS)
def test_a_missing_barrier_shows_in_every_order(order):
    """Each warp goes as far as it can before the next begins, so it reads what the others have not stored: NaN."""
    found = run_reversed(REVERSED.replace("BARRIER", ""), 96, order)
    assert np.isnan(found).any()


def test_shared_memory_is_nonsense_before_it_is_stored_to():
    text = REVERSED.replace("BARRIER", "__syncthreads();").replace("row[i] = ", "if (i != 5) row[i] = ")
    assert np.flatnonzero(np.isnan(run_reversed(text, 96, FORWARD))).tolist() == [90]


@pytest.mark.parametrize(("barrier", "why"), [
    ("if (i < 40) __syncthreads();", "left while 40 wait"),
    ("if (i < 40) { __syncthreads(); } else {\n __syncthreads(); }", "wait for each other at lines"),
    ("if (i >= 64) return; __syncthreads();", "32 threads left while 64 wait"),
])
@pytest.mark.parametrize("order", ORDERS)
def test_threads_that_do_not_meet_are_reported(barrier, why, order):
    with pytest.raises(EmulatorError, match=why):
        run_reversed(REVERSED.replace("BARRIER", barrier), 96, order)


@pytest.mark.parametrize(("mask", "guard", "why"), [
    ("0xffffu", "", "is not of its own mask"),
    ("0xffffffffu", "if (threadIdx.x < 8) return;", "is not there"),
    ("(threadIdx.x % 32 < 16 ? 0xffffu : 0xffff0000u)", "", "which is read, is not of the mask"),
])
def test_bad_masks_are_reported(mask, guard, why):
    text = SUMMED.replace("MASK", mask).replace("GUARD", guard)
    with pytest.raises(EmulatorError, match=why):
        launched(text, "summed", (64, 1), [np.ones(64, "f4"), np.ones(64, "f4")])


@pytest.mark.parametrize(("order", "planted"), [
    (FORWARD, "x[i + 96]"), (REVERSE, "x[i - 1]"), (FORWARD, "x[i + (1LL << 45)]")])
def test_reads_outside_arrays_are_reported(order, planted):
    text = REVERSED.replace("BARRIER", "__syncthreads();").replace("x[i]", planted)
    with pytest.raises(EmulatorError, match="memory that is nobody's"):
        run_reversed(text, 96, order)


def test_writes_outside_arrays_are_reported():
    text = REVERSED.replace("BARRIER", "__syncthreads();")
    with pytest.raises(EmulatorError, match="memory that is nobody's"):
        run_reversed(text.replace("y[i] =", "y[i + 4] ="), 96, FORWARD)
    with pytest.raises(EmulatorError, match="beside an array"):  # in the 16 bytes that alignment leaves
        run_reversed(text, 95, FORWARD, size=94)


def test_the_emulator_goes_on_after_a_fault():
    text = REVERSED.replace("BARRIER", "__syncthreads();")
    with pytest.raises(EmulatorError):
        run_reversed(text.replace("x[i]", "x[i + (1LL << 45)]"), 96, FORWARD)
    np.testing.assert_array_equal(run_reversed(text, 96, FORWARD), np.arange(96)[::-1])


def under_thread_sanitizer(*names):
    line, environment = races.command(*names)
    done = subprocess.run(line, env=os.environ | environment, cwd=ROOT, capture_output=True, text=True, check=False)
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("ThreadSanitizer finds no place for its memory here")
    assert done.stdout.split("\n")[:-1] == [*names], done.stderr
    return done


def test_races_are_found_and_templates_have_none():
    """Under ThreadSanitizer, to which every fiber is a thread, whatever order they ran in; it leaves at the first race."""
    names = [*TEMPLATES] if SCALE > 1 else [
        "everything", "rows", "few long rows", "products of halves", "attention", "added rows", "histogram",
        "updated in any order"]
    for k in range(0, len(names), 10):  # it counts up to 8128 threads, each fiber of each kernel as one
        done = under_thread_sanitizer(*names[k:k + 10])
        assert done.returncode == 0, done.stderr
    done = under_thread_sanitizer("mended", "planted")
    assert done.returncode == races.RACE and "data race" in done.stderr and "planted::row" in done.stderr


@pytest.mark.parametrize("name", ["histogram", "added in any order"])
def test_additions_that_are_not_atomic_are_races(name):
    done = under_thread_sanitizer(f"plainly {name}")
    assert done.returncode == races.RACE and "data race" in done.stderr


COUNTED = """
extern "C" __global__ void __launch_bounds__(64) counted(int* y) {
    const int place = atomicAdd(&y[0], 1);
    y[1 + place] = (int)threadIdx.x;
    STEP
}
"""


@pytest.mark.parametrize("order", ORDERS)
def test_atomic_operations_lose_nothing_and_let_others_go_on(order):
    found = launched(COUNTED.replace("STEP", "atomicMax(&y[65], (int)threadIdx.x);"), "counted", (64, 1), [np.zeros(66, "i4")],
                     order=order)[0]
    assert found[0] == 64 and sorted(found[1:65]) == list(range(64)) and found[65] == 63
    torn = COUNTED.replace("STEP", "int old = y[65]; atomicAdd(&y[65], 0); y[65] = old + 1;")
    assert launched(torn, "counted", (64, 1), [np.zeros(66, "i4")], order=order)[0][65] < 64


def test_text_that_does_not_compile_is_shown():
    with pytest.raises(EmulatorError, match="nothing"):
        Emulator('extern "C" __global__ void bad(float* x) { x[0] = nothing; }', ["bad"])


def test_memory_comes_again_whatever_else_the_process_maps():
    driver, beside, seen = EmulatorDriver(), [], []
    for _ in range(5):
        held = [driver.allocate(100), driver.allocate(100), driver.allocate(9000)]
        seen.append([x.address for x in held])
        del held
        beside.append(mmap.mmap(-1, 3 * mmap.PAGESIZE))  # it would lie where ours did, had that been unmapped
    assert len(set(seen[1])) == 3 and all(x == seen[1] for x in seen[1:])  # the first were in the order that the system chose


def test_quotients_by_products_are_quotients():
    """What stands for divisions by sizes in tiles, at all sizes that indices have."""
    rng = np.random.default_rng(0)
    n = np.concatenate([np.arange(1, 40), 2 ** np.arange(31), rng.integers(1, 2**31, 500) >> rng.integers(0, 31, 500)])
    n = np.minimum(np.maximum(n, 1), 2**31 - 1)
    x = np.stack([rng.integers(0, 2**31, n.size), n - 1, n, np.minimum(2 * n - 1, 2**31 - 1), np.full(n.size, 2**31 - 1)])
    text = DIVISOR + """
extern "C" __global__ void __launch_bounds__(64) divided(const int* x, const int* n, int* y, long long count) {
    const int k = (int)blockIdx.x * 64 + (int)threadIdx.x;
    if (k < count) y[k] = lw_quotient(x[k], lw_divisor_of(n[k]));
}
"""
    given = [x.astype("i4").ravel(), np.broadcast_to(n, x.shape).astype("i4").ravel(), np.zeros(x.size, "i4")]
    found = launched(text, "divided", (64, 1), given, [x.size], grid=-(-x.size // 64))[2]
    np.testing.assert_array_equal(found, (x // n).ravel())
