"""The core's workloads: fused elementwise chains, a row softmax, the digits step, compile times, import time."""
from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import loopwright as lw
from benchmarks.harness import Timing, interleaved, once_each, optional

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


def compile_small() -> list[Timing]:
    """First call of a small function in a warm process, nothing from the disk cache."""
    x = np.ones(10, "float32")
    count = iter(range(1, 1000))

    def ours() -> float:
        k = next(count)
        with _empty_cache():
            start = time.perf_counter()
            lw.jit(lambda x: np.tanh(x * k) + 1)(x)
            return time.perf_counter() - start

    contenders = {"loopwright": ours}
    if (jax := optional("jax")) is not None:
        def theirs() -> float:
            k = next(count)
            start = time.perf_counter()
            jax.jit(lambda x: jax.numpy.tanh(x * k) + 1)(x).block_until_ready()
            return time.perf_counter() - start
        contenders["jax"] = theirs
    ours()
    return once_each("compile of a small function", contenders, rounds=9)


def compile_layers() -> list[Timing]:
    """value_and_grad of a network of equal layers, 64 against 4: trace, transforms and machine code."""
    def run(layers: int) -> float:
        def loss(params, x):
            for w, b in params:
                x = np.tanh(x @ w + b)
            return np.sum(x * x)
        params = [(np.zeros((16, 16), "float32"), np.zeros(16, "float32")) for _ in range(layers)]
        x = np.zeros((8, 16), "float32")
        with _empty_cache():
            start = time.perf_counter()
            lw.jit(lw.value_and_grad(loss))(params, x)
            return time.perf_counter() - start
    run(2)
    return once_each("compile of 64 equal layers", {"loopwright": lambda: run(64), "of 4 layers": lambda: run(4)})


def importing() -> list[Timing]:
    """`import loopwright` and `import numpy`, each in processes of its own."""
    def run(module: str) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", f"import {module}"], check=True)
        return time.perf_counter() - start
    return once_each("import", {"loopwright": lambda: run("loopwright"), "numpy": lambda: run("numpy")}, rounds=10)


class _empty_cache:
    """A cache directory of its own for a while."""

    def __enter__(self) -> None:
        self.before = os.environ.get("LOOPWRIGHT_CACHE_DIR")
        self.folder = tempfile.TemporaryDirectory()
        os.environ["LOOPWRIGHT_CACHE_DIR"] = self.folder.name

    def __exit__(self, *exc: object) -> None:
        if self.before is None:
            del os.environ["LOOPWRIGHT_CACHE_DIR"]
        else:
            os.environ["LOOPWRIGHT_CACHE_DIR"] = self.before
        self.folder.cleanup()


WORKLOADS = (elementwise, softmax, digits_step, compile_small, compile_layers, importing)
