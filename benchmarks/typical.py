"""Programs as people write them in NumPy's names, at sizes that are not round."""
from __future__ import annotations

import numpy as np

from benchmarks.harness import Timing
from benchmarks.rows import Row, ascending, below, held, normal, plain, positive, regular

FLOATS = ("float32", "float64")
MEANS, SCALES = np.array([0.485, 0.456, 0.406], "float32"), np.array([0.229, 0.224, 0.225], "float32")  # of photographs


# ---- rows and columns -----------------------------------------------------------------------------
def _softmax(xp):
    def f(x):
        e = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
        return e / xp.sum(e, axis=-1, keepdims=True)
    return f


def _layernorm(xp):
    def f(x, gain, bias):
        centred = x - xp.mean(x, axis=-1, keepdims=True)
        return centred / xp.sqrt(xp.var(x, axis=-1, keepdims=True) + 1e-5) * gain + bias
    return f


def short_rows() -> list[Timing]:
    """Rows of 6 to 50 numbers, which fill few vectors."""
    softmax = [plain("softmax, 20000x10", (normal(20_000, 10),), _softmax, dtype=dtype,
                     torch=lambda torch: lambda x: torch.softmax(x, -1)) for dtype in FLOATS]
    return held(
        *softmax,
        plain("greatest of rows, 100,000x6", (normal(100_000, 6),), lambda xp: lambda x: xp.max(x, axis=1),
              torch=lambda torch: lambda x: torch.amax(x, 1)),
        plain("products of rows, 100,000x6", (normal(100_000, 6),), lambda xp: lambda x: xp.prod(x, axis=1),
              torch=lambda torch: lambda x: torch.prod(x, 1)),
        *(plain(f"norms of points, 100,000x{k}", (normal(100_000, k),), lambda xp: lambda x: xp.sqrt(xp.sum(x * x, axis=1)),
                torch=lambda torch: lambda x: torch.linalg.vector_norm(x, dim=1)) for k in (2, 3, 4)),
        plain("rows over their norms, 20000x24", (normal(20_000, 24),),
              lambda xp: lambda x: x / xp.sqrt(xp.sum(x * x, axis=1, keepdims=True)),
              torch=lambda torch: torch.nn.functional.normalize),
        plain("layernorm, 3000x50", (normal(3000, 50), normal(50), normal(50)), _layernorm,
              torch=lambda torch: lambda x, gain, bias: torch.nn.functional.layer_norm(x, (50,), gain, bias)))


def _moments(xp):
    return lambda x: (xp.mean(x, axis=0), xp.var(x, axis=0))


def _masked_mean(xp):
    return lambda x: xp.sum(xp.where(x > 0, x, 0), axis=1) / xp.sum(x > 0, axis=1)


def _complex(*shape: int):
    return lambda rng: (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype("complex64")


def _greatest(xp):
    return lambda x: xp.nanmax(xp.where(x > 0.5, xp.nan, x), axis=0)


def statistics() -> list[Timing]:
    """Means, variances, extremes, running sums and maxima, medians and orders over either axis."""
    return held(
        *(plain(f"sum of complex numbers over axis {axis}, 777x1234", (_complex(777, 1234),),
                lambda xp, axis=axis: lambda z: xp.sum(z, axis), torch=lambda torch, axis=axis: lambda z: torch.sum(z, axis),
                tolerance=1e-4) for axis in (0, 1)),
        plain("means and variances of columns, 2000x333", (normal(2000, 333),), _moments,
              torch=lambda torch: lambda x: torch.var_mean(x, 0, correction=0)[::-1]),
        plain("masked means of rows, 777x1234", (normal(777, 1234),), _masked_mean, torch=_masked_mean),
        plain("argmax of rows, 777x1234", (normal(777, 1234),), lambda xp: lambda x: xp.argmax(x, axis=1),
              torch=lambda torch: lambda x: torch.argmax(x, 1)),
        *(plain(f"cumsum over axis {axis}, 777x1234", (normal(777, 1234),), lambda xp, axis=axis: lambda x: xp.cumsum(x, axis),
                torch=lambda torch, axis=axis: lambda x: torch.cumsum(x, axis), tolerance=1e-4) for axis in (0, 1)),
        *(plain(f"running maxima over axis {axis}, 777x1234", (normal(777, 1234),),
                lambda xp, axis=axis: lambda x: xp.maximum.accumulate(x, axis=axis),
                torch=lambda torch, axis=axis: lambda x: torch.cummax(x, axis).values) for axis in (0, 1)),
        plain("greatest numbers of columns with NaN, 777x1234", (normal(777, 1234),), _greatest),
        plain("medians of rows, 200x1001", (normal(200, 1001),), lambda xp: lambda x: xp.median(x, axis=1),
              torch=lambda torch: lambda x: torch.median(x, 1).values),
        plain("sort of rows, 100x3333", (normal(100, 3333),), lambda xp: lambda x: xp.sort(x, axis=-1),
              torch=lambda torch: lambda x: torch.sort(x).values))


# ---- elements -------------------------------------------------------------------------------------
def _adam(xp):
    def f(p, slope, m, v):
        m, v = 0.9 * m + 0.1 * slope, 0.999 * v + 0.001 * slope * slope
        return p - 1e-3 * m / (xp.sqrt(v) + 1e-8), m, v
    return f


def _rotated(xp):
    def f(x, cosine, sine):
        a, b = x[..., :32], x[..., 32:]
        return xp.concatenate([a * cosine - b * sine, a * sine + b * cosine], -1)
    return f


def _laplacian(xp):
    return lambda x: x[2:, 1:-1] + x[:-2, 1:-1] + x[1:-1, 2:] + x[1:-1, :-2] - 4 * x[1:-1, 1:-1]


def elements() -> list[Timing]:
    """Maps: powers, divisions and remainders by numbers that the program names, bytes, neighbours, a step of Adam, rotary
    embeddings."""
    def powers(xp):
        return lambda x: x ** 4 + x ** -2

    def quotients(xp):
        return lambda x: x // 7 + x % 10
    def quotients_of_both(xp):
        return lambda x, y: x // y + x % 10
    def turns(xp):
        return lambda x: (x + 3) % 6.25 - 3
    weights = normal(1_000_000), normal(1_000_000), normal(1_000_000), positive(1_000_000)
    return held(
        *(plain("x ** 4 + x ** -2, 3e5", (positive(300_000),), powers, torch=powers, dtype=dtype) for dtype in FLOATS),
        plain("x // 7 + x % 10, 3e5", (below(1000, 300_000, dtype="int32"),), quotients, torch=quotients, dtype="int32"),
        plain("x // y + x % 10, 3e5", (below(1000, 300_000), below(100, 300_000, least=1)), quotients_of_both,
              torch=quotients_of_both, dtype="int64"),
        *(plain("(x + 3) % 6.25 - 3, 3e5", (normal(300_000),), turns, torch=turns, dtype=dtype) for dtype in FLOATS),
        plain("bytes of an image to float32, 224x224x3", (below(256, 224, 224, 3, dtype="uint8"),),
              lambda xp: lambda x: (x.astype("float32") / 255 - 0.5) * 2, dtype="uint8",
              torch=lambda torch: lambda x: (x.float() / 255 - 0.5) * 2),
        plain("channels brought to mean 0, 224x224x3 u8 to", (below(256, 224, 224, 3, dtype="uint8"),),
              lambda xp: lambda x: (x.astype("float32") / 255 - MEANS) / SCALES,
              torch=lambda torch: lambda x: (x.float() / 255 - torch.from_numpy(MEANS)) / torch.from_numpy(SCALES)),
        plain("channels in the other order, 224x224x3", (below(256, 224, 224, 3, dtype="uint8"),),
              lambda xp: lambda x: x[:, :, ::-1] | 1, dtype="uint8", torch=lambda torch: lambda x: x.flip(2) | 1),
        plain("Laplacian, 1000x1000", (normal(1000, 1000),), _laplacian, torch=_laplacian),
        plain("Adam, 1e6", weights, _adam, torch=_adam),
        plain("rotary embedding, 8x4x512x64", (normal(8, 4, 512, 64), normal(512, 32), normal(512, 32)), _rotated,
              torch=_rotated))


# ---- places ---------------------------------------------------------------------------------------
def lookups() -> list[Timing]:
    """Rows by index, and places in a table."""
    return held(
        plain("20,000 rows by index, 5000x64", (normal(5000, 64), below(5000, 20_000)), lambda xp: lambda x, i: x[i],
              torch=lambda torch: lambda x, i: x[i]),
        plain("100,000 rows by index, 5000x3", (normal(5000, 3), below(5000, 100_000)), lambda xp: lambda x, i: x[i],
              torch=lambda torch: lambda x, i: x[i]),
        plain("300,000 numbers by index, 256", (normal(256), below(256, 300_000, dtype="int32")),
              lambda xp: lambda x, i: x[i] * 2, torch=lambda torch: lambda x, i: x[i] * 2),
        plain("searchsorted, 20,000 in 1000", (ascending(1000), normal(20_000)),
              lambda xp: lambda table, x: xp.searchsorted(table, x),
              torch=lambda torch: lambda table, x: torch.searchsorted(table, x)),
        plain("interp, 20,000 in 1000", (normal(20_000), ascending(1000), normal(1000)),
              lambda xp: lambda x, table, values: xp.interp(x, table, values), tolerance=1e-4))


def _windows(xp):
    return lambda x: xp.stack([x[i:i + 254, j:j + 254] for i in range(3) for j in range(3)], -1)


def _enlarged(xp):
    return lambda x: xp.maximum(xp.repeat(xp.repeat(x, 2, 0), 2, 1), 0)


def _turned(xp):
    return lambda x, y: xp.transpose(x, (0, 2, 1)) + y


def moved() -> list[Timing]:
    """Data moved: small matrices transposed, stacks of columns, images with every pixel repeated, padding."""
    small = (100, 20, 30), (100, 30, 20)
    return held(
        plain("100 transposes of 20x30 + add", tuple(normal(*n) for n in small), _turned,
              torch=lambda torch: lambda x, y: x.transpose(1, 2) + y),
        plain("100 transposes of 20x30 + add", tuple(below(100, *n, dtype="uint8") for n in small), _turned,
              torch=lambda torch: lambda x, y: x.transpose(1, 2) + y, dtype="uint8"),
        plain("stack of 3x3 windows, 256x256", (normal(256, 256),), _windows, torch=_windows),
        plain("every pixel 2x2 times, 500x500", (normal(500, 500),), _enlarged,
              torch=lambda torch: lambda x: x.repeat_interleave(2, 0).repeat_interleave(2, 1).clamp(min=0)),
        plain("pad by reflection, 1e5", (normal(100_000),), lambda xp: lambda x: xp.pad(x, 8, mode="reflect")))


def _extremes(xp):
    return lambda x: (xp.min(x), xp.max(x))


def _both(xp):
    return lambda x: (xp.sin(x), xp.cos(x))


def _compared(xp):
    return lambda x, y: (x < y, x > y, x == y)


def together() -> list[Timing]:
    """What reads one array: extremes of all, two functions, three comparisons; arrays side by side, and what was repeated."""
    ten = tuple(normal(100, 100) for _ in range(10))
    return held(
        plain("least and greatest, 2000x1000", (normal(2000, 1000),), _extremes,
              torch=lambda torch: lambda x: (x.min(), x.max())),
        plain("sine and cosine, 1e6", (normal(1_000_000),), _both, torch=_both),
        plain("three comparisons, 1e6", (normal(1_000_000), normal(1_000_000)), _compared, torch=_compared),
        plain("ten arrays side by side, 100x100", ten, lambda xp: lambda *xs: xp.concatenate(xs, 1),
              torch=lambda torch: lambda *xs: torch.cat(xs, 1)),
        Row("gradient by what is repeated, 300x1000", (normal(300, 1000),),
            lambda library: library.grad(lambda x: library.numpy.sum(library.numpy.repeat(x, 2, 1) ** 2)), lambda x: 4 * x))


# ---- images and points ----------------------------------------------------------------------------
def _classes(xp):
    def f(x):
        e = xp.exp(x - xp.max(x, axis=1, keepdims=True))
        return e / xp.sum(e, axis=1, keepdims=True)
    return f


def _normed_channels(xp):
    return lambda x: (x - xp.mean(x, axis=(2, 3), keepdims=True)) / xp.sqrt(xp.var(x, axis=(2, 3), keepdims=True) + 1e-5)


def _slopes_of_classes(library):
    softmax = _classes(library.numpy)
    return library.grad(lambda x, w: library.numpy.sum(softmax(x) * w))


def _torch_slopes_of_classes(torch):
    def f(x, w):
        x = x.detach().requires_grad_()
        return torch.autograd.grad((torch.softmax(x, 1) * w).sum(), x)[0]
    return f


def _variation(library):
    xp = library.numpy

    def f(u):
        down, right = xp.diff(u, axis=0)[:, :-1], xp.diff(u, axis=1)[:-1]
        return xp.sum(xp.sqrt(down * down + right * right + 1e-6))
    return library.grad(f)


def _variation_by_hand(u):
    down, right = np.diff(u, axis=0)[:, :-1], np.diff(u, axis=1)[:-1]
    length, slope = np.sqrt(down * down + right * right + 1e-6), np.zeros_like(u)
    slope[1:, :-1] += down / length
    slope[:-1, 1:] += right / length
    slope[:-1, :-1] -= (down + right) / length
    return slope


def planes() -> list[Timing]:
    """Classes of pixels, channels brought to mean 0 and variance 1, the slope of an image's total variation."""
    return held(
        plain("softmax over 19 classes, 4x19x128x128", (normal(4, 19, 128, 128),), _classes,
              torch=lambda torch: lambda x: torch.softmax(x, 1)),
        Row("gradient of softmax over 19 classes, 4x19x128x128", (normal(4, 19, 128, 128), normal(4, 19, 128, 128)),
            _slopes_of_classes, torch=_torch_slopes_of_classes),
        plain("channels normalised, 16x32x28x28", (normal(16, 32, 28, 28),), _normed_channels,
              torch=lambda torch: lambda x: torch.nn.functional.instance_norm(x), tolerance=1e-4),
        *(Row("gradient of total variation, 512x512", (normal(512, 512),), _variation, _variation_by_hand, dtype=dtype)
          for dtype in FLOATS))


def _spread(xp):
    return lambda x, w: xp.sum((x - w) ** 2)


def _farthest(xp):
    return lambda x, w: xp.max(xp.abs(x - w))


def _centred(xp):
    def f(x):
        y = x * 2 + 1
        return y, xp.mean(y, axis=0)
    return f


def _pairs(xp):
    return lambda x, y: xp.sum(xp.stack([x, y], -1) * 2)


def points() -> list[Timing]:
    """Points of three coordinates, which a plain `jit` learns from the call: sums of all, means beside what is stored."""
    return held(
        *(plain("squared distances to a point, 50000x3", (normal(50_000, 3), normal(3)), _spread, torch=_spread, dtype=dtype)
          for dtype in FLOATS),
        plain("greatest distance to a point, 50000x3", (normal(50_000, 3), normal(3)), _farthest,
              torch=lambda torch: lambda x, w: (x - w).abs().max()),
        plain("points moved, and their mean, 50000x3", (normal(50_000, 3),), _centred,
              torch=lambda torch: lambda x: (y := x * 2 + 1, y.mean(0)), tolerance=1e-4),
        plain("sum of pairs, 1e5", (normal(100_000), normal(100_000)), _pairs,
              torch=lambda torch: lambda x, y: (torch.stack([x, y], -1) * 2).sum(), tolerance=1e-2))


# ---- linear algebra -------------------------------------------------------------------------------
def _distances(xp):
    return lambda x, y: xp.sqrt(xp.sum((x[:, None] - y[None]) ** 2, axis=-1))


def small_products() -> list[Timing]:
    """All pairs of points, products of three operands, of small matrices, and of a matrix with itself."""
    def product(xp):
        return lambda x, y: x @ y

    def contraction(xp):
        return lambda x, y, z: xp.einsum("bij,bjk,bk->bi", x, y, z)
    return held(
        plain("pairwise distances, 500x600x16", (normal(500, 16), normal(600, 16)), _distances,
              torch=lambda torch: torch.cdist),
        plain("cross products, 100,000x3", (normal(100_000, 3), normal(100_000, 3)), lambda xp: lambda x, y: xp.cross(x, y),
              torch=lambda torch: torch.linalg.cross),
        *(plain("einsum bij,bjk,bk->bi, 64x40x30x25", (normal(64, 40, 30), normal(64, 30, 25), normal(64, 25)), contraction,
                torch=contraction, dtype=dtype, tolerance=1e-4) for dtype in FLOATS),
        *(plain(f"10,000 products, {m}x{n} by {n}x{k}", (normal(10_000, m, n), normal(10_000, n, k)), product, torch=product)
          for m, n, k in ((2, 2, 2), (3, 3, 3), (4, 4, 1))),
        plain("200 products, 20x30x25", (normal(200, 20, 30), normal(200, 30, 25)), product, torch=product, tolerance=1e-4),
        *(plain(f"x.T @ x, 5000x{n}", (normal(5000, n),), lambda xp: lambda x: x.T @ x, torch=lambda torch: lambda x: x.T @ x,
                tolerance=1e-4) for n in (50, 300)))


def vectors() -> list[Timing]:
    """Few rows, or few columns, times matrices; matrices times vectors, with terms along their rows and down their columns."""
    def along(xp):
        return lambda x, w: x @ w

    def down(xp):
        return lambda x, v: v @ x
    def turned(xp):
        return lambda x, w: x @ w.T
    sizes, few = ((1000, 3000), (3000, 1000), (10_000, 50)), ((1, 2048, 2048), (2, 2048, 2048), (4, 1000, 3000), (3000, 500, 8))
    return held(
        *(plain(f"x @ w, {m}x{k} by {k}x{n}", (normal(m, k), normal(k, n)), along, torch=along, dtype=dtype, tolerance=1e-4)
          for m, k, n in few for dtype in FLOATS),
        plain("points @ r.T, 100000x3 by 3x3", (normal(100_000, 3), normal(3, 3)), turned, torch=turned),
        plain("complex x @ w, 777x1234", (_complex(777, 1234), _complex(1234)), along, torch=along, tolerance=1e-4),
        plain("complex x.T @ w, 400x500", (_complex(400, 500), _complex(400)), lambda xp: lambda x, w: x.T @ w, tolerance=1e-4,
              torch=lambda torch: lambda x, w: x.T @ w),
        *(plain(f"complex x @ w, {m}x500 by 500x{n}", (_complex(m, 500), _complex(500, n)), along, torch=along, tolerance=1e-4)
          for m, n in ((500, 4), (4, 500), (500, 500))),
        plain("complex vdot, 2e5", (_complex(200_000), _complex(200_000)), lambda xp: xp.vdot, tolerance=1e-3,
              torch=lambda torch: torch.vdot),
        *(plain(f"x @ w, {m}x{n}", (normal(m, n), normal(n)), along, torch=along, tolerance=1e-4) for m, n in sizes),
        *(plain(f"v @ x, {m}x{n}", (normal(m, n), normal(m)), down, torch=down, tolerance=1e-4) for m, n in sizes))


def small_systems() -> list[Timing]:
    """Determinants, inverses and solutions of many small matrices."""
    def determinants(xp):
        return lambda a: xp.linalg.det(a)

    def inverses(xp):
        return lambda a: xp.linalg.inv(a)

    def solutions(xp):
        return lambda a, b: xp.linalg.solve(a, b)
    return held(
        *(plain("2000 determinants, 3x3", (regular(2000, 3, 3),), determinants, torch=determinants, dtype=dtype)
          for dtype in FLOATS),
        plain("2000 inverses, 3x3", (regular(2000, 3, 3),), inverses, torch=inverses),
        plain("500 systems, 6x6", (regular(500, 6, 6), normal(500, 6, 1)), solutions, torch=solutions, tolerance=1e-4))


WORKLOADS = (short_rows, statistics, elements, lookups, moved, together, planes, points, small_products, vectors, small_systems)
