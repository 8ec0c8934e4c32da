"""Products of matrices, with what follows them, and convolutions."""
from __future__ import annotations

import numpy as np

import loopwright as lw
from benchmarks.contest import contest
from benchmarks.harness import Timing
from loopwright import lax, nn


def _normal(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def matmul() -> list[Timing]:
    """Products of square matrices of 64 to 2048 float32."""
    found = []
    for n in (64, 256, 1024, 2048):
        found += contest(f"matmul, {n} f32", (_normal(n, n), _normal(n, n).T.copy()), lambda a, b: a @ b,
                         jax=lambda jax: lambda a, b: a @ b, tolerance=1e-4,
                         torch=lambda torch, optimised: optimised(lambda a, b: a @ b))
    return found


def _gelu(x):
    """nn.gelu in NumPy."""
    return 0.5 * x * (1 + np.tanh(x.dtype.type((2 / np.pi) ** 0.5) * (x + x.dtype.type(0.044715) * x * x * x)))


def dense() -> list[Timing]:
    """gelu(x @ w + b) for 512 x 1024 by 1024 x 1024 float32."""
    x, w, b = args = _normal(512, 1024), _normal(1024, 1024) / 32, _normal(1024)
    return contest("matmul + bias + gelu, 512x1024x1024 f32", args, lambda x, w, b: nn.gelu(x @ w + b),
                   numpy=lambda x, w, b: _gelu(x @ w + b), tolerance=1e-4,
                   expected=_gelu(x.astype("float64") @ w.astype("float64") + b),
                   jax=lambda jax: lambda x, w, b: jax.nn.gelu(x @ w + b),
                   torch=lambda torch, optimised: optimised(
                       lambda x, w, b: torch.nn.functional.gelu(torch.addmm(b, x, w), approximate="tanh")))


def epilogues() -> list[Timing]:
    """A residual, y + x @ w, and a step down a gradient, w - rate * (x.T @ y), float32."""
    rate, step = np.float32(0.1), "w - rate * (x.T @ y), 784x128x512 f32"
    found = contest("y + x @ w, 1024x256x1024 f32", (_normal(1024, 1024), _normal(1024, 256), _normal(256, 1024) / 16),
                    lambda y, x, w: y + x @ w, tolerance=1e-4, jax=lambda jax: lambda y, x, w: y + x @ w,
                    torch=lambda torch, optimised: optimised(torch.addmm))
    return found + contest(step, (_normal(784, 512), _normal(128, 784), _normal(128, 512)),
                           lambda w, x, y: w - rate * (x.T @ y), tolerance=1e-4,
                           jax=lambda jax: lambda w, x, y: w - rate * (x.T @ y),
                           torch=lambda torch, optimised: optimised(lambda w, x, y: torch.addmm(w, x.T, y, alpha=-0.1)))


def _convolved(x, w, b):
    """A convolution as nine products, in NumPy."""
    height, width = x.shape[1:3]
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    return np.maximum(sum(padded[:, i:i + height, j:j + width] @ w[i, j] for i in range(3) for j in range(3)) + b, 0)


def _torch_convolution(torch, optimised):
    """Channels last in memory, as ours are."""
    f = optimised(lambda x, w, b: torch.relu(torch.nn.functional.conv2d(x, w, b, padding=1)))
    return lambda x, w, b: f(x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1), b).permute(0, 2, 3, 1)


def convolution() -> list[Timing]:
    """relu(conv(x) + b): 8 images of 56 x 56 with 64 channels, windows of 3 x 3, 64 channels out, float32: rounded as sums of
    products are, and with fast_math."""
    args = _normal(8, 56, 56, 64), _normal(3, 3, 64, 64) / 24, _normal(64)
    expected, found = _convolved(*(a.astype("float64") for a in args)), list[Timing]()

    def program(lax, maximum):
        return lambda x, w, b: maximum(lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")) + b, 0)
    for name, fast in (("conv2d + bias + relu", False), ("conv2d + bias + relu with fast_math", True)):
        found += contest(f"{name}, 8x56x56x64 by 3x3x64 f32", args, program(lax, np.maximum), numpy=_convolved,
                         expected=expected, tolerance=1e-4, jit=lambda f, fast=fast: lw.jit(f, fast_math=fast),
                         jax=lambda jax: program(jax.lax, jax.numpy.maximum), torch=_torch_convolution)
    return found


def slopes_of_weights() -> list[Timing]:
    """x.T @ y: few terms and a large result, and more terms and few columns; similarities of 3000 vectors of 64 numbers."""
    found = []
    for k, m, n, dtype in ((32, 5000, 1000, "f32"), (256, 2000, 80, "f32"), (256, 2000, 80, "f64")):
        args = tuple([_normal(k, size).astype(dtype.replace("f", "float")) for size in (m, n)])
        found += contest(f"x.T @ y, {k}x{m} by {k}x{n} {dtype}", args, lambda x, y: x.T @ y, tolerance=1e-4,
                         jax=lambda jax: lambda x, y: x.T @ y, torch=lambda torch, optimised: optimised(lambda x, y: x.T @ y))
    x = _normal(3000, 64)
    return found + contest("similarities, 3000x64 by 3000x64 f32", (x, x[::-1].copy()), lambda x, y: x @ y.T, tolerance=1e-4,
                           jax=lambda jax: lambda x, y: x @ y.T,
                           torch=lambda torch, optimised: optimised(lambda x, y: x @ y.T))


WORKLOADS = (matmul, dense, epilogues, convolution, slopes_of_weights)
