"""Memory of checkpointed chains: it grows with the square root of their length, by the plan and by the system's count."""
import subprocess
import sys

import numpy as np
import pytest

import loopwright as lw
from loopwright import lax
from loopwright.ir.dims import evaluate
from loopwright.lower.plan import plan_memory
from tests.memory import IS_COUNTED

WIDTH = 8


def layer(x, w):
    return np.tanh(x @ w)


def in_segments_of_python(segment):
    def f(ws, x):
        @lw.checkpoint
        def several(ws, x):
            for k in range(segment):
                x = layer(x, ws[k])
            return x
        for k in range(0, ws.shape[0], segment):
            x = several(ws[k:k + segment], x)
        return np.sum(x * x)
    return f


def in_segments_of_scans(segment):
    def f(ws, x):
        @lw.checkpoint
        def several(x, ws):
            return lax.scan(lambda x, w: (layer(x, w), None), x, ws)[0], None
        return np.sum(lax.scan(several, x, ws.reshape(-1, segment, WIDTH, WIDTH))[0] ** 2)
    return f


def plainly(segment):
    def f(ws, x):
        for k in range(ws.shape[0]):
            x = layer(x, ws[k])
        return np.sum(x * x)
    return f


def weights(count):
    return np.random.default_rng(count).normal(size=(count, WIDTH, WIDTH)) * 0.4


def scratch(f, *args):
    """The bytes that the plan of f has for these arguments."""
    versions = lw.jit(f)._versions
    call = versions.parameters.call(args, {})
    entry = versions.entry(call)
    return evaluate(plan_memory(entry.compiled.kernels).bytes, entry.sizes_of(call))


def layers_of_scratch(make, count, rows=1000):
    """The scratch of the gradient of a chain of `count` layers, in results of a layer."""
    f = lw.grad(make(round(count ** 0.5)))
    return scratch(f, weights(count), np.ones((rows, WIDTH))) / (8 * rows * WIDTH)


@pytest.mark.parametrize("make", [in_segments_of_python, in_segments_of_scans])
def test_checkpoints_change_no_gradient(make):
    ws, x = weights(16), np.random.default_rng(0).normal(size=(5, WIDTH))
    got, want = lw.jit(lw.value_and_grad(make(4), (0, 1)))(ws, x), lw.value_and_grad(plainly(4), (0, 1))(ws, x)
    np.testing.assert_allclose(got[0], want[0], rtol=1e-13)
    for a, b in zip(got[1], want[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-14)


def test_scratch_of_segments_grows_with_the_square_root_of_their_number():
    """From 16 to 64 to 256 layers the root doubles: scratch that is a + b sqrt(n) grows by b 4 and then by b 8."""
    small, middle, large = (layers_of_scratch(in_segments_of_scans, n) for n in (16, 64, 256))
    assert 1.5 < (large - middle) / (middle - small) < 2.5
    assert large < 4 * 16
    assert large - middle < 4 * 8


def test_scratch_of_segments_in_a_python_loop():
    small, middle, large = (layers_of_scratch(in_segments_of_python, n) for n in (16, 36, 64))
    assert (large - middle) / (middle - small) < 1.5  # of roots: 1, of lengths: 1.4
    assert large < 4 * 8 + 8
    assert layers_of_scratch(plainly, 36) > 36


MEASURED = """
import sys
import numpy as np
import loopwright as lw
from tests.memory import growth
from tests.test_checkpoint_memory import WIDTH, in_segments_of_scans, weights

count, segment, rows = 256, int(sys.argv[1]), 5_000
f = lw.jit(lw.grad(in_segments_of_scans(segment)))
ws = weights(count)
f(ws, np.ones((2, WIDTH)))
x = np.ones((rows, WIDTH))
print(growth(lambda: f(ws, x)) / x.nbytes)
"""


def layers_of_memory(segment):
    """By how much the peak of memory grows in a process that takes the gradient, in results of a layer."""
    run = subprocess.run([sys.executable, "-c", MEASURED, str(segment)], capture_output=True, text=True, timeout=300,
                         check=True)
    return float(run.stdout)


@pytest.mark.skipif(not IS_COUNTED, reason="the system does not say what memory a process had at most")
def test_the_system_counts_what_the_plan_says():
    roots = layers_of_memory(16)
    assert roots < 4 * 16 + 16
    assert layers_of_memory(256) > 256  # one segment: everything is in memory
