"""The core's workloads: fused elementwise chains, a row softmax, the digits step."""
from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import loopwright as lw
from benchmarks.harness import Timing, interleaved, optional

ROOT = Path(__file__).parent.parent


def elementwise() -> list[Timing]:
    """tanh(exp(-x*x)*y + sin x) on 1e6 float32."""
    def f(x, y):
        return np.tanh(np.exp(-x * x) * y + np.sin(x))
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 1_000_000)).astype("float32")
    ours = lw.jit(f)
    np.testing.assert_allclose(ours(x, y), f(x.astype("float64"), y.astype("float64")), rtol=1e-5, atol=1e-5)
    contenders = {"loopwright": lambda: ours(x, y), "numpy": lambda: f(x, y)}
    if (jax := optional("jax")) is not None:
        g = jax.jit(lambda x, y: jax.numpy.tanh(jax.numpy.exp(-x * x) * y + jax.numpy.sin(x)))
        a, b = jax.numpy.asarray(x), jax.numpy.asarray(y)
        contenders["jax"] = lambda: g(a, b).block_until_ready()
    if (torch := optional("torch")) is not None:
        s, t = torch.from_numpy(x), torch.from_numpy(y)
        contenders["torch"] = lambda: torch.tanh(torch.exp(-s * s) * t + torch.sin(s))
    return interleaved("elementwise chain, 1e6 f32", contenders)


def softmax() -> list[Timing]:
    """Row softmax of 4096 x 1024 float32."""
    def f(x):
        e = np.exp(x - np.max(x, axis=-1, keepdims=True))
        return e / np.sum(e, axis=-1, keepdims=True)
    x = np.random.default_rng(0).normal(size=(4096, 1024)).astype("float32")
    ours = lw.jit(f)
    np.testing.assert_allclose(ours(x), f(x.astype("float64")), rtol=1e-5, atol=1e-8)
    contenders = {"loopwright": lambda: ours(x), "numpy": lambda: f(x)}
    if (jax := optional("jax")) is not None:
        g, a = jax.jit(lambda x: jax.nn.softmax(x, axis=-1)), jax.numpy.asarray(x)
        contenders["jax"] = lambda: g(a).block_until_ready()
    if (torch := optional("torch")) is not None:
        s = torch.from_numpy(x)
        contenders["torch"] = lambda: torch.softmax(s, dim=-1)
    return interleaved("softmax 4096x1024 f32", contenders)


def digits_step() -> list[Timing]:
    """The demo's Adam step, compiled and written by hand in NumPy."""
    sys.path.insert(0, str(ROOT / "examples"))
    import digits
    rng = np.random.default_rng(0)
    params = digits.initial(rng)
    moments = [tuple(np.zeros_like(p) for p in layer) for layer in params]
    x = rng.random((digits.BATCH, 64)).astype("float32")
    target = np.eye(10, dtype="float32")[rng.integers(0, 10, digits.BATCH)]
    arguments = (params, moments, moments, 3.0, x, target)
    return interleaved("digits step, batch 128", {
        "loopwright": lambda: digits.step(*arguments), "numpy": lambda: digits.step_by_hand(*arguments)})


WORKLOADS = (elementwise, softmax, digits_step)
