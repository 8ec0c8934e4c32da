"""A residual network for small images: its results, its gradient, and how long both take to compile.

He, Zhang, Ren, Sun, "Deep Residual Learning for Image Recognition", 2016: the network for CIFAR-10, with fewer blocks.
"""
from __future__ import annotations

from typing import Any

import numpy as np

import loopwright as lw
from benchmarks.compile import cold_seconds
from benchmarks.contest import contest, gradient, jax_module, torch_gradient
from benchmarks.harness import Timing, once_each

FEATURES = 16, 16, 32, 32, 64, 64  # of each block; the image halves where they double
CLASSES, BATCH = 10, 8


def _weights() -> list[np.ndarray]:
    """Of the first layer; of each block two layers, and one for its input where features double; of the classes."""
    rng = np.random.default_rng(0)
    shapes: list[tuple[int, ...]] = [(3, 3, 3, FEATURES[0])]
    before = FEATURES[0]
    for features in FEATURES:
        shapes += [(3, 3, before, features), (3, 3, features, features), *([(1, 1, before, features)] * (features != before))]
        before = features
    drawn = [rng.normal(size=s) * np.sqrt(2 / np.prod(s[:-1])) for s in (*shapes, (before, CLASSES))]
    return [x.astype("float32") for x in drawn]


def _network(xp: Any, conv: Any):
    """Image and weights to numbers of classes; each layer is less its mean, over its deviation."""
    def layer(x, w, stride=1):
        y = conv(x, w, stride)
        centred = y - y.mean((0, 1, 2))
        return centred / xp.sqrt((centred * centred).mean((0, 1, 2)) + 1e-5)

    def positive(x):
        return xp.maximum(x, xp.zeros_like(x))

    def f(*args):
        *left, x = args
        x = positive(layer(x, left.pop(0)))
        for _ in FEATURES:
            stride = 1 if left[0].shape[2] == left[0].shape[3] else 2
            y = layer(positive(layer(x, left.pop(0), stride)), left.pop(0))
            x = positive(y + (x if stride == 1 else layer(x, left.pop(0), stride)))
        return x.mean((1, 2)) @ left.pop()
    return f


def _by_windows(library):
    """The convolutions of a library with JAX's names."""
    def conv(x, w, stride):
        return library.lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return conv


def _torch_windows(torch):
    def conv(x, w, stride):
        past = max(w.shape[0] - stride, 0)
        low, high = past // 2, past - past // 2
        y = torch.nn.functional.pad(x.permute(0, 3, 1, 2), (low, high, low, high))
        return torch.nn.functional.conv2d(y, w.permute(3, 2, 0, 1), stride=stride).permute(0, 2, 3, 1)
    return conv


def _slopes(library, network):
    return gradient(library.numpy, library.grad, network, len(_weights()))


def residual() -> list[Timing]:
    """Classes of 8 images of 32x32, the gradients by all weights, and the compile of both."""
    rng, weights = np.random.default_rng(1), _weights()
    args = *weights, rng.normal(size=(BATCH, 32, 32, 3)).astype("float32")
    cotangent = rng.normal(size=(BATCH, CLASSES)).astype("float32")
    found: list[Timing] = []
    for name, given, of in (("residual network", args, lambda library, network: network),
                            ("gradient of residual network", (*args, cotangent), _slopes)):
        def program(library, of=of):
            return of(library, _network(library.numpy, _by_windows(library)))

        def theirs(torch, optimised, of=of):
            network = optimised(_network(torch, _torch_windows(torch)))
            return network if of is not _slopes else torch_gradient(torch, network, len(weights))
        contenders = {"loopwright": lambda given=given, program=program: cold_seconds(lambda: lw.jit(program(lw))(*given))}
        if (jax := jax_module()) is not None:
            contenders["jax"] = lambda given=given, program=program: cold_seconds(
                lambda: jax.block_until_ready(jax.jit(program(jax))(*given)))
        found += contest(f"{name}, {BATCH}x32x32x3 f32", given, program(lw), jax=program, torch=theirs, in_numpy=False,
                         tolerance=1e-2, compiles=False, rounds=7)
        found += once_each(f"compile of {name}", contenders, rounds=3)
    return found


WORKLOADS = (residual,)
