"""What each workload aims at on one thread: a ratio to the best peer of the same run, or seconds."""
from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Goal:
    """At most `ratio` times the best peer, or at most `seconds`."""

    ratio: float | None = None
    seconds: float | None = None


GOALS = {
    "call, x + 1, 10 f32": Goal(seconds=0.12e-6),
    "chain of maps, 1e3 f32": Goal(0.4),
    "chain of maps, 1e6 f32": Goal(0.4),
    "chain of maps, 1e7 f32": Goal(0.4),
    "Black-Scholes, 1e6 f64": Goal(0.5),
    "sum over axis 0, 4096x4096 f32": Goal(0.95),
    "sum over axis 1, 4096x4096 f32": Goal(1.0),
    "logsumexp, 4096x1000 f32": Goal(0.7),
    "softmax, 4096x1024 f32": Goal(0.6),
    "gradient of softmax, 4096x1024 f32": Goal(0.4),
    "layernorm, 4096x1024 f32": Goal(1.0),
    "gradient of layernorm, 4096x1024 f32": Goal(0.35),
    "matmul, 64 f32": Goal(0.8),
    "matmul, 256 f32": Goal(1.05),
    "matmul, 1024 f32": Goal(1.05),
    "matmul, 2048 f32": Goal(1.05),
    "matmul + bias + gelu, 512x1024x1024 f32": Goal(0.95),
    "conv2d + bias + relu, 8x56x56x64 by 3x3x64 f32": Goal(0.95),
    "conv2d + bias + relu with fast_math, 8x56x56x64 by 3x3x64 f32": Goal(0.5),
    "MLP training step, 784-512-512-10, batch 128 f32": Goal(0.9),
    "attention, 4x8x512x64 f32": Goal(0.85),
    "gradient of attention, 4x8x512x64 f32": Goal(0.6),
    "transpose (2, 0, 1) + add, 256^3 f32": Goal(0.75),
    "n-body, 2048 f32": Goal(1.8),
    "n-body with fast_math, 2048 f32": Goal(0.8),
    "mandelbrot, 512^2 x 200 f32": Goal(0.1),
    "scan RNN, 512x32x128 f32": Goal(0.6),
    "gradient of scan RNN, 512x32x128 f32": Goal(0.6),
    "50 lengths of a softmax chain, compiled before": Goal(0.5),
    "50 lengths of a softmax chain, with compiles": Goal(5.0),
    "compile of a small function": Goal(seconds=15e-3),
    "compile of an MLP step": Goal(seconds=300e-3),
}
