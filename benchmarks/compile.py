"""How long programs take to trace, to differentiate and to compile: small ones, equal layers, thousands of operations."""
from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import loopwright as lw
from benchmarks import harness, networks
from benchmarks.harness import Timing, once_each, optional
from loopwright import nn

OPERATIONS = 5000


class empty_cache:
    """A cache directory of its own for a while: nothing comes from the disk."""

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


def cold_seconds(run: Callable[[], object]) -> float:
    """How long it takes with nothing on the disk."""
    with empty_cache():
        start = time.perf_counter()
        run()
        return time.perf_counter() - start


def compile_small() -> list[Timing]:
    """First call of a small function in a warm process, nothing from the disk cache."""
    x, count = np.ones(10, "float32"), iter(range(1, 1000))

    def ours() -> float:
        k = next(count)
        return cold_seconds(lambda: lw.jit(lambda x: np.tanh(x * k) + 1)(x))

    contenders = {"loopwright": ours}
    if (jax := optional("jax")) is not None:
        def theirs() -> float:
            k = next(count)
            return cold_seconds(lambda: jax.jit(lambda x: jax.numpy.tanh(x * k) + 1)(x).block_until_ready())
        contenders["jax"] = theirs
    ours()
    return once_each("compile of a small function", contenders, rounds=9)


def compile_mlp() -> list[Timing]:
    """First call of a training step of a network of three layers, trace and gradient included."""
    args = networks.mlp_arguments()
    contenders = {"loopwright": lambda: cold_seconds(lambda: lw.jit(networks.mlp_step(np, lw.grad, nn.log_softmax))(*args))}
    if (jax := optional("jax")) is not None:
        contenders["jax"] = lambda: cold_seconds(lambda: jax.block_until_ready(
            jax.jit(networks.mlp_step(jax.numpy, jax.grad, jax.nn.log_softmax))(*args)))
    return once_each("compile of an MLP step", contenders, rounds=7)


def compile_layers() -> list[Timing]:
    """value_and_grad of a network of equal layers, 64 against 4: trace, transforms and machine code."""
    def run(layers: int) -> float:
        def loss(params: Any, x: Any) -> Any:
            for w, b in params:
                x = np.tanh(x @ w + b)
            return np.sum(x * x)
        params = [(np.zeros((16, 16), "float32"), np.zeros(16, "float32")) for _ in range(layers)]
        x = np.zeros((8, 16), "float32")
        return cold_seconds(lambda: lw.jit(lw.value_and_grad(loss))(params, x))
    run(2)
    return once_each("compile of 64 equal layers", {"loopwright": lambda: run(64), "of 4 layers": lambda: run(4)})


def _chain(operations: int, xp: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Maps of two vectors, in turns of six operations, each of which is used twice or is far from its last use."""
    def f(x: Any, y: Any) -> Any:
        for _ in range(operations // 6):
            z = xp.sin(x) * y
            w = xp.maximum(z, x) - 0.5
            x, y = y + w * 0.25, z
        return xp.sum(x * y)
    return f, (np.linspace(0, 1, 100, dtype="float32"), np.linspace(1, 2, 100, dtype="float32"))


def _network(operations: int, xp: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Layers of five operations, with a way around each."""
    def f(params: Any, x: Any) -> Any:
        for w, b in params:
            x = x + xp.tanh(x @ w + b) * 0.1
        return xp.sum(x * x)
    params = [(np.eye(8, dtype="float32"), np.zeros(8, "float32")) for _ in range(operations // 5)]
    return f, (params, np.ones((4, 8), "float32"))


def _ours(build: Callable[..., Any], operations: int) -> dict[str, Callable[[], object]]:
    f, args = build(operations, np)
    gradient = lw.grad(f)
    return {
        "trace": lambda: lw.make_graph(f)(*args),
        "grad": lambda: lw.make_graph(gradient)(*args),
        "grad of grad": lambda: lw.make_graph(lw.grad(lambda *a: _first(gradient(*a))))(*args),
        "compile": lambda: lw.jit(lambda *a: f(*a))(*args),
        "compile of grad": lambda: lw.jit(lambda *a: gradient(*a))(*args)}


def _theirs(jax: Any, build: Callable[..., Any], operations: int) -> dict[str, Callable[[], object]]:
    f, args = build(operations, jax.numpy)
    gradient = jax.grad(f)
    return {
        "trace": lambda: jax.make_jaxpr(lambda *a: f(*a))(*args),
        "grad": lambda: jax.make_jaxpr(lambda *a: gradient(*a))(*args),
        "grad of grad": lambda: jax.make_jaxpr(jax.grad(lambda *a: _first(gradient(*a))))(*args),
        "compile": lambda: jax.block_until_ready(jax.jit(lambda *a: f(*a))(*args)),
        "compile of grad": lambda: jax.block_until_ready(jax.jit(lambda *a: gradient(*a))(*args))}


def _first(gradient: Any) -> Any:
    """A number that depends on the whole gradient."""
    leaf = gradient
    while isinstance(leaf, tuple | list):
        leaf = leaf[0]
    return (leaf * leaf).sum()


def _long(name: str, build: Callable[..., Any]) -> list[Timing]:
    operations = 60 if harness.QUICK else OPERATIONS
    contenders = {"loopwright": _ours(build, operations)}
    if (jax := optional("jax")) is not None:
        contenders["jax"] = _theirs(jax, build, operations)
    found: list[Timing] = []
    for what in contenders["loopwright"]:
        timed = {who: lambda run=runs[what]: cold_seconds(run) for who, runs in contenders.items()}
        found += once_each(f"{what}, {name} of {operations}", timed, rounds=3 if "compile" not in what else 1)
    return found


def compile_chain() -> list[Timing]:
    """A chain of maps of thousands of operations: traced, differentiated, compiled."""
    return _long("chain", _chain)


def compile_network() -> list[Timing]:
    """A network of thousands of operations, with as many parameters: the same."""
    return _long("network", _network)


def _factor(a: Any) -> Any:
    """Cholesky's factor, row by row in place."""
    a = a.copy()
    for i in range(a.shape[0]):
        for j in range(i):
            a[i, j] -= a[i, :j] @ a[j, :j]
            a[i, j] /= a[j, j]
        a[i, i] -= a[i, :i] @ a[i, :i]
        a[i, i] = np.sqrt(a[i, i])
    return a


def _factor_at(a: Any) -> Any:
    """The same as JAX has it."""
    for i in range(a.shape[0]):
        for j in range(i):
            a = a.at[i, j].add(-(a[i, :j] @ a[j, :j]))
            a = a.at[i, j].divide(a[j, j])
        a = a.at[i, i].add(-(a[i, :i] @ a[i, :i]))
        a = a.at[i, i].set(a[i, i] ** 0.5)
    return a


def compile_in_place() -> list[Timing]:
    """Loops of Python over single elements, which are read and written again: every step is a part of the program."""
    size = 4 if harness.QUICK else 12
    a = np.eye(size, dtype="float32") * size + 1
    contenders = {"loopwright": lambda: cold_seconds(lambda: lw.jit(lambda a: _factor(a))(a))}
    if (jax := optional("jax")) is not None:
        contenders["jax"] = lambda: cold_seconds(lambda: jax.jit(lambda a: _factor_at(a))(a).block_until_ready())
    return once_each(f"compile of Cholesky in place, {size}x{size}", contenders, rounds=3)


WORKLOADS = (compile_small, compile_mlp, compile_layers, compile_chain, compile_network, compile_in_place)
