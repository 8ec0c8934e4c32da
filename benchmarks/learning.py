"""Programs as people write them in JAX's names: gradients, convolutions, pooling, segments, loops and random bits.

NumPy's are written by hand, where that is short.
"""
from __future__ import annotations

import numpy as np

from benchmarks.contest import torch_gradient
from benchmarks.harness import Timing
from benchmarks.rows import Row, below, held, normal, signs


# ---- slopes ---------------------------------------------------------------------------------------
def _logistic(library):
    def loss(w, x, y):
        return library.numpy.mean(library.numpy.logaddexp(0, -y * (x @ w)))
    return library.grad(loss)


def _logistic_by_hand(w, x, y):
    return -(y / (1 + np.exp(y * (x @ w)))) @ x / len(y)


def _torch_slope(of):
    """The gradient by the first argument of a number that torch computes."""
    def made(torch):
        loss = of(torch)

        def run(w, *rest):
            watched = w.detach().requires_grad_()
            return torch.autograd.grad(loss(watched, *rest), watched)[0]
        return run
    return made


def _classes(library):
    def loss(x, labels):
        return -library.numpy.mean(library.numpy.take_along_axis(library.nn.log_softmax(x), labels[:, None], 1))
    return library.grad(loss)


def _classes_by_hand(x, labels):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    y = e / np.sum(e, axis=-1, keepdims=True)
    y[np.arange(len(y)), labels] -= 1
    return y / len(y)


def _embedded(library):
    return library.grad(lambda table, i, y: library.numpy.sum(table[i] * y))


def _embedded_by_hand(table, i, y):
    slope = np.zeros_like(table)
    np.add.at(slope, i, y)
    return slope


def slopes() -> list[Timing]:
    """Gradients of a logistic regression, of a cross entropy of few classes, and of rows by index."""
    return held(
        Row("gradient of logistic regression, 5000x50", (normal(50), normal(5000, 50), signs(5000)),
            _logistic, _logistic_by_hand, _torch_slope(
                lambda torch: lambda w, x, y: torch.nn.functional.softplus(-y * (x @ w)).mean()), tolerance=1e-4),
        Row("gradient of cross entropy, 5000x10", (normal(5000, 10), below(10, 5000)), _classes, _classes_by_hand,
            _torch_slope(lambda torch: torch.nn.functional.cross_entropy)),
        Row("gradient of 4096 rows by index, 5000x64", (normal(5000, 64), below(5000, 4096), normal(4096, 64)),
            _embedded, _embedded_by_hand, _torch_slope(lambda torch: lambda table, i, y: (table[i] * y).sum())))


# ---- images ---------------------------------------------------------------------------------------
def _strided(library):
    """Windows of 3 x 3 at every second place."""
    return lambda x, w: library.lax.conv_general_dilated(x, w, (2, 2), ((1, 1), (1, 1)),
                                                         dimension_numbers=("NHWC", "HWIO", "NHWC"))


def _strided_slopes(library):
    def against(x, w, y):
        return library.numpy.sum(_strided(library)(x, w) * y)
    return library.grad(against, argnums=(0, 1))


def _torch_strided(torch):
    """Features last in memory, as ours are."""
    conv = torch.nn.functional.conv2d
    return lambda x, w: conv(x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1), stride=2, padding=1).permute(0, 2, 3, 1)


def _patches(library):
    """Windows of 16 x 16 side by side, as a vision transformer begins."""
    return lambda x, w: library.lax.conv_general_dilated(x, w, (16, 16), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def _torch_patches(torch):
    conv = torch.nn.functional.conv2d
    return lambda x, w: conv(x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1), stride=16).permute(0, 2, 3, 1)


def _layer(library):
    """As many pixels as before."""
    return lambda x, w: library.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def _torch_layer(torch):
    conv = torch.nn.functional.conv2d
    return lambda x, w: conv(x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1), padding="same").permute(0, 2, 3, 1)


def _layer_slope(library):
    """By the windows alone."""
    return library.grad(lambda w, x, y: library.numpy.sum(_layer(library)(x, w) * y))


def layers() -> list[Timing]:
    """Convolutions of few and of many features, and their gradients by windows."""
    found = []
    for shape, size, features in (((4, 64, 64, 32), 3, 3), ((2, 48, 50, 24), 5, 12), ((8, 32, 32, 32), 3, 32),
                                  ((4, 40, 13, 48), 3, 80), ((8, 64, 64, 3), 7, 32)):
        image, windows = normal(*shape), normal(size, size, shape[-1], features)
        name = f"conv2d, {'x'.join(map(str, shape))} by {size}x{size}x{features}"
        found += held(
            Row(name, (image, windows), _layer, torch=_torch_layer, tolerance=1e-4),
            Row(f"gradient of {name}", (windows, image, normal(*shape[:-1], features)), _layer_slope, tolerance=1e-4,
                torch=_torch_slope(lambda torch: lambda w, x, y: (_torch_layer(torch)(x, w) * y).sum())))
    return found


def _network(library):
    """Two convolutions, each with the largest of four pixels of what it gives."""
    def half(x, w):
        n, height, width, _ = x.shape
        y = library.numpy.tanh(_layer(library)(x, w) / 8)
        return library.numpy.max(y.reshape(n, height // 2, 2, width // 2, 2, w.shape[3]), (2, 4))
    return lambda first, second, x: half(half(x, first), second)


def _network_slopes(library):
    def against(first, second, x, y):
        return library.numpy.sum(_network(library)(first, second, x) * y)
    return library.grad(against, argnums=(0, 1))


def _torch_network(torch):
    def half(x, w):
        windows = torch.nn.functional.conv2d(x, w.permute(3, 2, 0, 1), padding="same")
        return torch.nn.functional.max_pool2d(torch.tanh(windows / 8), 2)
    return lambda first, second, x: half(half(x.permute(0, 3, 1, 2), first), second).permute(0, 2, 3, 1)


def _pooled(size: tuple[int, ...]):
    """The greatest of windows of this size."""
    return lambda library: lambda x: library.lax.reduce_window(x, -np.inf, library.lax.max, size, size, "VALID")


def images() -> list[Timing]:
    """Pooling, patches, convolutions with strides and their gradients by images and by windows, and a network of both."""
    found = held(Row(
        "gradients of 2 convolutions with pooling, 32x32x32x3",
        (normal(3, 3, 3, 32), normal(3, 3, 32, 64), normal(32, 32, 32, 3), normal(32, 8, 8, 64)),
        _network_slopes, tolerance=1e-2,  # of pixels that are nearly as large the largest is another as they are rounded
        torch=lambda torch: torch_gradient(torch, _torch_network(torch), 2)))
    for images_, windows, results in (((4, 112, 112, 3), (3, 3, 3, 32), (4, 56, 56, 32)),
                                      ((8, 28, 28, 64), (3, 3, 64, 128), (8, 14, 14, 128))):
        name = "conv2d with strides of 2, " + "x".join(map(str, images_)) + f" by 3x3x{windows[-1]}"
        found += held(
            Row(name, (normal(*images_), normal(*windows)), _strided, torch=_torch_strided, tolerance=1e-4),
            Row(f"gradients of {name}", (normal(*images_), normal(*windows), normal(*results)), _strided_slopes, tolerance=1e-4,
                torch=lambda torch: torch_gradient(torch, _torch_strided(torch), 2)))
    return found + held(
        Row("patches of 16x16, 8x224x224x3 to 768", (normal(8, 224, 224, 3), normal(16, 16, 3, 768)), _patches,
            torch=_torch_patches, tolerance=1e-4),
        Row("max_pool 2x2, 16x56x56x32", (normal(16, 56, 56, 32),), _pooled((1, 2, 2, 1)),
            lambda x: x.reshape(16, 28, 2, 28, 2, 32).max(axis=(2, 4)),
            lambda torch: lambda x: torch.nn.functional.max_pool2d(x.permute(0, 3, 1, 2), 2).permute(0, 2, 3, 1)),
        Row("max_pool 2x2, channels first, 16x32x56x56", (normal(16, 32, 56, 56),), _pooled((1, 1, 2, 2)),
            lambda x: x.reshape(16, 32, 28, 2, 28, 2).max(axis=(3, 5)),
            lambda torch: lambda x: torch.nn.functional.max_pool2d(x, 2)))


# ---- segments -------------------------------------------------------------------------------------
def _sums_by_hand(count):
    def f(x, i):
        out = np.zeros((count, x.shape[1]), x.dtype)
        np.add.at(out, i, x)
        return out
    return f


def _torch_sums(torch, count):
    return lambda x, i: torch.zeros(count, x.shape[1]).index_add(0, i, x)


def _clusters(library):
    """Sums of the points nearest to each centre."""
    xp = library.numpy
    return lambda x, c: library.ops.segment_sum(x, xp.argmin(xp.sum((x[:, None] - c) ** 2, -1), 1), 16)


def _clusters_by_hand(x, c):
    return _sums_by_hand(16)(x, np.argmin(np.sum((x[:, None] - c) ** 2, -1), 1))


def segments() -> list[Timing]:
    """Sums of the rows of each of many groups, in any order and group by group, and of those nearest to each of 16 centres."""
    found = []
    for width, groups in ((1, 1000), (8, 1000), (64, 10_000)):
        found += held(Row(
            f"segment sums, 100,000x{width} to {groups}", (normal(100_000, width), below(groups, 100_000)),
            lambda library, groups=groups: lambda x, i: library.ops.segment_sum(x, i, groups), _sums_by_hand(groups),
            lambda torch, groups=groups: _torch_sums(torch, groups), tolerance=1e-4))
    return found + held(
        Row("segment sums, 100,000x8 to 1000, sorted", (normal(100_000, 8), lambda rng: np.sort(rng.integers(0, 1000, 10**5))),
            lambda library: lambda x, i: library.ops.segment_sum(x, i, 1000), _sums_by_hand(1000),
            lambda torch: _torch_sums(torch, 1000), tolerance=1e-4),
        Row("step of k-means, 20000x8 to 16", (normal(20_000, 8), normal(16, 8)), _clusters, _clusters_by_hand,
            lambda torch: lambda x, c: _torch_sums(torch, 16)(x, torch.cdist(x, c).argmin(1)), tolerance=1e-4))


# ---- steps ----------------------------------------------------------------------------------------
def _cell(xp):
    """A step of an LSTM."""
    def sigmoid(x):
        return 1 / (1 + xp.exp(-x))

    def step(wx, wh, b, h, c, x):
        i, f, g, o = xp.split(x @ wx + h @ wh + b, 4, -1)
        c = sigmoid(f) * c + sigmoid(i) * xp.tanh(g)
        return sigmoid(o) * xp.tanh(c), c
    return step


def _lstm(library):
    step = _cell(library.numpy)

    def states(wx, wh, b, start, xs):
        def one(carry, x):
            h, c = step(wx, wh, b, *carry, x)
            return (h, c), h
        return library.lax.scan(one, (start, start), xs)[1]
    return states


def _lstm_by_hand(wx, wh, b, start, xs):
    step, h, c, out = _cell(np), start, start, []
    for x in xs:
        h, c = step(wx, wh, b, h, c, x)
        out.append(h)
    return np.stack(out)


def _lstm_slopes(library):
    return library.grad(lambda *args: library.numpy.sum(_lstm(library)(*args)), argnums=(0, 1, 2))


def _torch_lstm(torch):
    def states(wx, wh, b, start, xs):
        state = start[None], start[None]
        return torch.lstm(xs, state, [wx.T, wh.T, b, torch.zeros_like(b)], True, 1, 0.0, False, False, False)[0]
    return states


def _torch_lstm_slopes(torch):
    def run(*args):
        watched = [x.detach().requires_grad_() for x in args[:3]]
        return torch.autograd.grad(_torch_lstm(torch)(*watched, *args[3:]).sum(), watched)
    return run


def _warmed(xp):
    """A step of the heat equation on a torus."""
    return lambda x: x + 0.1 * (xp.roll(x, 1, 0) + xp.roll(x, -1, 0) + xp.roll(x, 1, 1) + xp.roll(x, -1, 1) - 4 * x)


def _moved(xp):
    """A step of Runge and Kutta with Lorenz's equations, of systems side by side."""
    def slope(y):
        return xp.stack([10 * (y[1] - y[0]), y[0] * (28 - y[2]) - y[1], y[0] * y[1] - 8 / 3 * y[2]])

    def step(y):
        a = slope(y)
        b = slope(y + 0.005 * a)
        c = slope(y + 0.005 * b)
        return y + 0.01 / 6 * (a + 2 * b + 2 * c + slope(y + 0.01 * c))
    return step


def _in_a_loop(step, times):
    """A step, repeated by a library with JAX's names."""
    return lambda library: lambda x: library.lax.fori_loop(0, times, lambda i, x: step(library.numpy)(x), x)


def _by_hand(step, times):
    """A step, repeated by Python."""
    def of(xp):
        def f(x):
            for _ in range(times):
                x = step(xp)(x)
            return x
        return f
    return of


def steps() -> list[Timing]:
    """A small LSTM and its gradients, and steps of the heat equation and of ordinary ones."""
    weights = tuple(lambda rng, shape=shape: rng.normal(size=shape) / 10 for shape in ((32, 256), (64, 256), (256,)))
    args = *weights, lambda rng: np.zeros((16, 64)), normal(100, 16, 32)
    heat, systems = _by_hand(_warmed, 20), _by_hand(_moved, 100)
    return held(
        Row("LSTM, 100 steps of 16x32 to 64", args, _lstm, _lstm_by_hand, _torch_lstm, tolerance=1e-4),
        Row("gradients of LSTM, 100 steps of 16x32 to 64", args, _lstm_slopes, torch=_torch_lstm_slopes, tolerance=1e-4),
        Row("20 steps of heat, 256x256", (normal(256, 256),), _in_a_loop(_warmed, 20), heat(np), heat),
        Row("100 steps of Lorenz's equations, 3x1000", (normal(3, 1000),), _in_a_loop(_moved, 100), systems(np), systems,
            dtype="float64", tolerance=1))


# ---- random numbers -------------------------------------------------------------------------------
def random_numbers() -> list[Timing]:
    """Uniform and normal numbers by a key. NumPy's and torch's are those of their own generators."""
    def key(rng):
        return np.array([0, 7], "uint32")

    def like(mean, deviation):
        def verify(who, found):
            x = np.asarray(found)
            assert abs(x.mean() - mean) < 0.01 and abs(x.std() - deviation) < 0.01 and x.dtype == np.float32, who
        return verify
    rng = np.random.default_rng(0)
    return held(
        Row("uniform numbers, 3e5", (key,), lambda library: lambda key: library.random.uniform(key, (300_000,), "float32"),
            lambda key: rng.random(300_000, "float32"), lambda torch: lambda key: torch.rand(300_000),
            verify=like(0.5, 12 ** -0.5)),
        Row("normal numbers, 1e5", (key,), lambda library: lambda key: library.random.normal(key, (100_000,), "float32"),
            lambda key: rng.standard_normal(100_000, "float32"), lambda torch: lambda key: torch.randn(100_000),
            verify=like(0, 1)))


WORKLOADS = (slopes, images, layers, segments, steps, random_numbers)
