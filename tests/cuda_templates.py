"""Functions that between them take every template of the GPU's schedules, with arguments of any size, and NumPy's results."""
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import loopwright as lw
from loopwright.ir.expansion import expanded
from loopwright.lower.cuda import lower_cuda


@dataclass(frozen=True)
class Template:
    """`make(rng, n, m)` draws arguments; `sizes`: the n and m that schedules are chosen for; `wide`: whether its lanes make
    accesses of 16 bytes; `expected`: NumPy's own function where `f` is not one; `raced`: the n and m at which races are looked
    for, if others; `fast_math`: whether it may round otherwise than it is written; `times`: schedules are chosen for sizes so
    many times those of the arguments."""

    f: Any
    make: Any
    sizes: tuple[int, int]
    wide: bool = True
    expected: Any = None
    raced: tuple[int, int] | None = None
    fast_math: bool = False
    times: int = 1

    def meaning(self, args):
        """NumPy's results, in twice the precision."""
        wide = [x.astype("f8") if x.dtype.kind == "f" else x for x in args]
        with np.errstate(all="ignore"):
            found = (self.expected or self.f)(*wide)
        return found if isinstance(found, tuple) else (found,)


@cache
def program(name):
    """The template's program, and the graph's symbols in the order of the arguments' sizes."""
    t = TEMPLATES[name]
    args = t.make(np.random.default_rng(0), *t.sizes)
    graph = expanded(lw.make_graph(t.f)(*args))
    sizes = {name: t.times * n for name, n in sizes_of(graph, args).items()}
    return graph, lower_cuda(graph, sizes, fast_math=t.fast_math)


def sizes_of(graph, args):
    """The sizes that the arguments tell."""
    return {str(n): k for v, x in zip(graph.params, args, strict=True) for n, k in zip(v.type.shape, np.shape(x), strict=True)
            if not isinstance(n, int)}


def matrix(dtype):
    return lambda rng, n, m: [rng.normal(size=(n, m)).astype(dtype)]


def vector(dtype):
    return lambda rng, n, m: [rng.normal(size=n).astype(dtype)]


def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def layernorm(x):
    centred = x - np.mean(x, axis=-1, keepdims=True)
    return centred / np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + 1e-5)


def softmax_slopes(s, g):
    return s * (g - np.sum(s * g, axis=-1, keepdims=True))


def normalised(x, scale, shift):
    return layernorm(x) * scale + shift


def layernorm_slopes(x, g):
    size = np.sqrt(np.mean((x - np.mean(x, -1, keepdims=True)) ** 2, -1, keepdims=True) + 1e-5)
    h = layernorm(x)
    return (g - np.mean(g, -1, keepdims=True) - h * np.mean(g * h, -1, keepdims=True)) / size


def logsumexp(x):
    m = np.max(x, axis=-1, keepdims=True)
    return np.log(np.sum(np.exp(x - m), axis=-1)) + m[:, 0]


def convolved(x, w):
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    return np.maximum(np.einsum("ncyxij,ocij->noyx", windows, w), 0)


def convolved_last(x, w):
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))), (3, 3), (1, 2))
    return 2 * np.einsum("nyxcij,ijco->nyxo", windows, w)


def attention(q, k, v):
    scores = np.einsum("bqd,bkd->bqk", q, k) * q.dtype.type(0.2)
    return np.einsum("bqk,bkd->bqd", softmax(scores), v)


def heads(dtype):
    return lambda rng, n, m: [rng.normal(size=s).astype(dtype) for s in ((2, n, 24), (2, m, 24), (2, m, 40))]


def attention_slopes(ct, q, k, v):
    return lw.vjp(attention, q, k, v)[1](ct)


def attention_slopes_in_numpy(ct, q, k, v):
    weights = softmax(np.einsum("bqd,bkd->bqk", q, k) * 0.2)
    slopes = np.einsum("bqd,bkd->bqk", ct, v) * weights
    slopes -= weights * np.sum(slopes, axis=-1, keepdims=True)
    back = [np.einsum("bqk,bkd->bqd", slopes, k), np.einsum("bqk,bqd->bkd", slopes, q)]
    return *[0.2 * x for x in back], np.einsum("bqk,bqd->bkd", weights, ct)


def slopes_of_heads(dtype):
    return lambda rng, n, m: [(rng.normal(size=s) / 2).astype(dtype) for s in ((2, n, 40), (2, n, 24), (2, m, 24), (2, m, 40))]


def slopes_of_groups(ct, q, k, v):
    """Two query heads for each of the keys; scores and their slopes are f32."""
    return lw.vjp(lw.nn.dot_product_attention, q, k, v)[1](ct)


def slopes_of_groups_in_numpy(ct, q, k, v):
    found = [attention_slopes_in_numpy(ct[:, :, h], q[:, :, h] * 5 / np.sqrt(q.shape[3]), k[:, :, h // 2], v[:, :, h // 2])
             for h in range(4)]
    dq, dk, dv = (np.stack(x, 2) for x in zip(*found, strict=True))
    return dq * 5 / np.sqrt(q.shape[3]), dk[:, :, ::2] + dk[:, :, 1::2], dv[:, :, ::2] + dv[:, :, 1::2]


def windows_of(x, size):
    near = size // 2
    padded = np.pad(x, ((0, 0), (0, 0), (near, near), (near, near)))
    return np.lib.stride_tricks.sliding_window_view(padded, (size, size), (2, 3))


def convolved_in_groups(x, w):
    groups = x.shape[1] // w.shape[1]
    seen = windows_of(x, w.shape[-1])
    parts = [np.einsum("ncyxij,ocij->noyx", a, b)
             for a, b in zip(np.split(seen, groups, 1), np.split(w, groups, 0), strict=True)]
    return np.concatenate(parts, 1)


def in_groups(count):
    return lambda x, w: lw.lax.conv_general_dilated(x, w, (1, 1), "SAME", feature_group_count=count)


def kernel_slopes(count, *shape):
    def slopes(x, g):
        return lw.vjp(lambda w: in_groups(count)(x, w), lw.numpy.zeros(shape, dtype="float32"))[1](g)[0]
    return slopes


def kernel_slopes_in_numpy(count, size):
    def slopes(x, g):
        pairs = zip(np.split(windows_of(x, size), count, 1), np.split(g, count, 1), strict=True)
        return np.concatenate([np.einsum("ncyxij,noyx->ocij", a, b) for a, b in pairs])
    return slopes


def images(*features):
    """Two images for each number of features, of n by m pixels."""
    return lambda rng, n, m: [rng.normal(size=(2, c, n, m)).astype("f4") for c in features]


def updated(x, k, v):
    x = np.array(x)
    x[k] = v
    return x


def added(x, k, v):
    x = np.array(x)
    np.add.at(x, k, v)
    return x


def added_traced(x, k, v):
    x = x.copy()
    np.add.at(x, k, v)
    return x


def updated_traced(x, k, v):
    x = x.copy()
    x[k] = v
    return x


def places(rng, n, m):
    return [rng.normal(size=(n, m)).astype("f4"), rng.integers(-n, n, 7), rng.normal(size=(7, m)).astype("f4")]


def many_places(dtype, high=9):
    """Few elements, many updates."""
    return lambda rng, n, m: [rng.integers(-high, high, (n, 2)).astype(dtype), rng.integers(-n, n, 5 * m + 200),
                              rng.integers(-high, high, (5 * m + 200, 2)).astype(dtype)]


def escapes(c):
    return lw.lax.while_loop(lambda s: (s[0] * s[0] < 4) & (s[1] < 60), lambda s: (s[0] * s[0] + c, s[1] + 1), (c, 0))[1]


def escapes_in_numpy(c):
    z, found = c.copy(), np.zeros(c.shape, "i8")
    for _ in range(60):
        going = z * z < 4
        z, found = np.where(going, z * z + c, z), found + going
    return found


TEMPLATES = {
    "map": Template(lambda x, y: x * y + 1, lambda rng, n, m: [rng.normal(size=(n, m)).astype("f4"),
                                                               rng.normal(size=m).astype("f4")], (40, 64)),
    "map of f64": Template(lambda x: x * 2 - 1, vector("f8"), (4000, 1)),
    "map of halves": Template(lambda x, p: np.where(p, x, x * 2), lambda rng, n, m: [
        rng.normal(size=n).astype("f2"), rng.random(n) < 0.5], (4000, 1)),
    "elementary": Template(lambda x: np.exp(x) + np.sin(x), vector("f4"), (4000, 1)),
    "integers": Template(lambda x, y: (x // y) + (x % y) - (x << 3), lambda rng, n, m: [
        rng.integers(-50, 50, n).astype("i4"), rng.integers(-3, 4, n).astype("i4")], (4000, 1),
        expected=lambda x, y: np.where(y == 0, 0, x // np.where(y == 0, 1, y)) + np.where(y == 0, 0, x % np.where(y == 0, 1, y))
        - (x << 3)),
    "short rows": Template(lambda x: np.sum(x, axis=1), matrix("f4"), (500, 8), wide=False),
    "rows": Template(softmax, matrix("f4"), (40, 200)),
    "long rows": Template(softmax, matrix("f4"), (3, 3000)),
    "longer rows": Template(layernorm, matrix("f8"), (2, 20000)),
    "rows of halves": Template(softmax, matrix("f2"), (40, 500)),
    "slopes of softmax": Template(softmax_slopes, lambda rng, n, m: [rng.normal(size=(n, m)).astype("f4") for _ in range(2)],
                                  (20, 700)),
    "normalised rows": Template(normalised, lambda rng, n, m: [rng.normal(size=s).astype("f4") for s in ((n, m), m, m)],
                                (3, 2000)),
    "slopes of normalised rows": Template(
        lambda x, g: lw.vjp(lambda x: layernorm(x), x)[1](g)[0], lambda rng, n, m: [
            rng.normal(size=(n, m)).astype("f8") for _ in range(2)], (20, 300), expected=layernorm_slopes),
    "logarithms of sums": Template(logsumexp, matrix("f4"), (40, 900)),
    "rows of two axes": Template(lambda x: x / np.sqrt(np.mean(x * x, axis=(1, 2), keepdims=True)), lambda rng, n, m: [
        rng.normal(size=(n, 5, m)).astype("f4")], (20, 64)),
    "rows to numbers": Template(lambda x: (np.argmax(x, axis=1), np.max(x, axis=1)), matrix("f4"), (40, 200)),
    "everything in one pass": Template(lambda x: np.sum(x * x) / np.max(x * x), matrix("f8"), (300, 200)),
    "rows in one pass": Template(lambda x: np.sum(x, axis=1) * np.max(x, axis=1), matrix("f4"), (40, 200)),
    "few long rows": Template(lambda x: np.sum(x, axis=1), matrix("f4"), (3, 70000)),
    "softmax of few long rows": Template(softmax, matrix("f4"), (3, 70000)),
    "logarithms of sums of few long rows": Template(logsumexp, matrix("f8"), (3, 70000)),
    "moments of few long rows": Template(lambda x: (np.mean(x, axis=(1, 2)), np.var(x, axis=(1, 2))), lambda rng, n, m: [
        rng.normal(size=(n, 4, m)).astype("f8")], (3, 20000)),
    "the first greatest of few long rows": Template(lambda x: (np.argmax(x, axis=1), np.max(x, axis=1)), matrix("f4"),
                                                    (3, 70000)),
    "columns": Template(lambda x: np.sum(x, axis=0), matrix("f4"), (300, 100), wide=False),
    "long columns": Template(lambda x: np.sum(x, axis=0), matrix("f4"), (3000, 40), wide=False),
    "chained long columns": Template(lambda x: np.var(x, axis=0), matrix("f8"), (3000, 40), wide=False),
    "the first least of columns": Template(lambda x: np.argmin(x, axis=0), matrix("f4"), (3000, 5), wide=False),
    "chained columns": Template(lambda x: np.var(x, axis=0), matrix("f8"), (300, 100), wide=False),
    "several columns a thread": Template(lambda x: np.sum(x, axis=0) + 1, matrix("f4"), (3000, 100), times=32, wide=False),
    "several columns of halves a thread": Template(lambda x: (np.max(x, axis=0), np.min(x, axis=0)), matrix("f2"), (3000, 100),
                                                   times=32),
    "several columns of two axes a thread": Template(lambda x, w: np.sum(x * w, axis=0), lambda rng, n, m: [
        rng.normal(size=s) for s in ((n, 3, m), m)], (1000, 4), times=32),
    "the first greatest of several columns a thread": Template(lambda x: np.argmax(x, axis=0), matrix("f8"), (3000, 100),
                                                               times=32),
    "chained columns, several a thread": Template(lambda x: np.var(x, axis=0), matrix("f4"), (3000, 100), times=32),
    "everything": Template(lambda x: np.sum(x * x), matrix("f4"), (300, 200)),
    "everything twice": Template(lambda x: np.var(x), matrix("f4"), (300, 200)),
    "the first greatest": Template(lambda x: np.argmax(x), vector("f4"), (40000, 1)),
    "running rows": Template(lambda x: np.cumsum(x, axis=1), matrix("f8"), (5, 700), wide=False),
    "a long running sum": Template(lambda x: np.cumsum(x * 2), vector("f8"), (40000, 1), wide=False),
    "running columns": Template(lambda x: np.cumsum(x, axis=0), matrix("f8"), (50, 70), wide=False),
    "running columns in parts": Template(lambda x: np.cumsum(x, axis=0), matrix("f4"), (1300, 70), wide=False),
    "transposed": Template(lambda x: np.transpose(x) * 2, matrix("f4"), (100, 70), wide=False),
    "transposed inside": Template(lambda x: np.transpose(x, (0, 2, 1)) + 1, lambda rng, n, m: [
        rng.normal(size=(3, n, m)).astype("f2")], (100, 70), wide=False),
    "in large squares": Template(lambda x: np.transpose(x) * 2, matrix("f4"), (100, 70), times=32, wide=False),
    "halves in large squares": Template(lambda x, y: np.transpose(x) * y, lambda rng, n, m: [
        rng.normal(size=s).astype("f2") for s in ((n, m), (m, n))], (100, 70), times=32, wide=False),
    "bytes in large squares": Template(lambda x: np.swapaxes(x, 1, 2) + np.int8(1), lambda rng, n, m: [
        rng.integers(-99, 99, (2, n, m)).astype("i1")], (100, 70), times=32, wide=False),
    "doubles in large squares": Template(lambda x, y: np.transpose(x) - y, lambda rng, n, m: [
        rng.normal(size=(n, m)), rng.normal(size=n)], (100, 70), times=32, wide=False),
    "squares past an array": Template(lambda x, y: np.concatenate([np.transpose(x), np.transpose(y)], axis=1) * 2,
                                      lambda rng, n, m: [rng.normal(size=s).astype("f4") for s in ((n, m), (2 * n, m))],
                                      (100, 70), wide=False),
    "halves in squares past an array": Template(lambda x: np.pad(np.transpose(x), ((0, 6), (0, 10))) + 1, matrix("f2"),
                                                (100, 70), times=32, wide=False),
    "squares of axes that are made one": Template(lambda x: np.transpose(x, (2, 0, 1)) + 1, lambda rng, n, m: [
        rng.normal(size=(n, 2, m)).astype("f4")], (100, 70), times=32, wide=False),
    "squares of the first and last axes": Template(lambda x: np.swapaxes(x, 0, 2) * 2, lambda rng, n, m: [
        rng.normal(size=(n, 3, m)).astype("f4")], (100, 70), times=32, wide=False),
    "halves in squares of the first and last axes": Template(lambda x, y: np.swapaxes(x, 0, 2) * y, lambda rng, n, m: [
        rng.normal(size=s).astype("f2") for s in ((n, 2, m), (m, 2, n))], (100, 70), times=32, wide=False),
    "bytes in squares, features first": Template(lambda x, y: np.moveaxis(x, 3, 1) + y, lambda rng, n, m: [
        rng.integers(-60, 60, s).astype("i1") for s in ((2, 3, n, m), n)], (100, 70), times=8, wide=False),
    "features last in squares": Template(lambda x, y: np.moveaxis(x, 1, 3) * y, lambda rng, n, m: [
        rng.normal(size=s).astype("f2") for s in ((2, m, 2, n), m)], (100, 70), wide=False),
    "doubles in squares of five axes": Template(lambda x, y: np.transpose(x, (4, 2, 1, 3, 0)) - y, lambda rng, n, m: [
        rng.normal(size=s) for s in ((n, 2, 1, 2, m), n)], (100, 70), wide=False),
    "squares of one of two operands": Template(lambda x, y: np.swapaxes(x, 0, 2) * np.swapaxes(y, 1, 2), lambda rng, n, m: [
        rng.normal(size=s).astype("f4") for s in ((n, 2, m), (m, n, 2))], (100, 70), wide=False),
    "squares of three axes past an array": Template(
        lambda x, y: np.concatenate([np.swapaxes(x, 0, 2), np.swapaxes(y, 0, 2)], axis=2) * 2, lambda rng, n, m: [
            rng.normal(size=s).astype("f4") for s in ((n, 2, m), (2 * n, 2, m))], (100, 70), wide=False),
    "gathered": Template(lambda x, k: x[k] + 1, lambda rng, n, m: [
        rng.normal(size=(n, m)).astype("f4"), rng.integers(-n, n, 9)], (40, 64)),
    "updated rows": Template(updated_traced, places, (40, 64), expected=updated),
    "added rows": Template(added_traced, places, (40, 64), expected=added),
    "updated": Template(updated_traced, lambda rng, n, m: [rng.normal(size=n).astype("f4"), rng.integers(-n, n, m),
                                                           rng.normal(size=m).astype("f4")], (40, 64), expected=updated),
    "histogram": Template(added_traced, many_places("i4"), (40, 64), expected=added),
    "added in any order": Template(added_traced, many_places("f4"), (400, 100), expected=added),
    "added in copies": Template(added_traced, many_places("f8", 1 << 20), (40, 64), expected=added),
    "added in the order of threads": Template(added_traced, lambda rng, n, m: [
        rng.normal(size=(n, 2)).astype("f4"), rng.integers(-n, n, 5 * m + 200), rng.normal(size=(5 * m + 200, 2)).astype("f4")],
        (40, 64), expected=added, fast_math=True),
    "updated in any order": Template(updated_traced, many_places("f2"), (40, 64), expected=updated),
    "own ways": Template(lambda x: lw.vmap(escapes)(x), lambda rng, n, m: [rng.uniform(-2, 1, n).astype("f4")], (300, 1),
                         wide=False, expected=escapes_in_numpy),
    "products in tiles": Template(lambda x, y, b: np.maximum(x @ y + b, 0), lambda rng, n, m: [
        rng.integers(-9, 9, s).astype("i4") for s in ((n, m), (m, 200), 200)], (9000, 64)),
    "products of halves": Template(lambda x, y: np.minimum(x @ y, 9), lambda rng, n, m: [
        rng.normal(size=s).astype("f2") for s in ((n, m), (m, 36))], (40, 64), wide=False),
    "products with what is around": Template(lambda x, y, b: np.maximum((x * 2) @ y + b, 0), lambda rng, n, m: [
        rng.normal(size=s).astype("f4") for s in ((n, m), (m, 200), 200)], (16000, 32)),
    "products of f64, turned": Template(lambda x, y: np.maximum(x.T @ (1 - y), 0), lambda rng, n, m: [
        rng.normal(size=s) for s in ((m, n), (m, 40))], (3000, 64)),
    "products in batches": Template(lambda x, y: np.matmul(x, np.swapaxes(y, 1, 2)) * 2, lambda rng, n, m: [
        rng.integers(-9, 9, s).astype("i8") for s in ((2, n, m), (2, 20, m))], (40, 64)),
    "convolution": Template(lambda x, w: np.maximum(lw.lax.conv_general_dilated(x, w, (1, 1), "SAME"), 0), lambda rng, n, m: [
        rng.normal(size=s).astype("f4") for s in ((2, 3, n, m), (18, 3, 3, 3))], (60, 50), wide=False, expected=convolved),
    "convolution, features last": Template(
        lambda x, w: lw.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")) * 2,
        lambda rng, n, m: [rng.normal(size=s).astype("f4") for s in ((2, n, m, 8), (3, 3, 8, 20))], (60, 50), wide=False,
        expected=convolved_last),
    "convolution of halves": Template(in_groups(1), lambda rng, n, m: [rng.normal(size=s).astype("f2") for s in (
        (2, 6, n, m), (18, 6, 3, 3))], (60, 50), wide=False, expected=convolved_in_groups),
    "convolution in groups": Template(in_groups(2), lambda rng, n, m: [rng.normal(size=s).astype("f4") for s in (
        (2, 6, n, m), (20, 3, 3, 3))], (60, 50), wide=False, expected=convolved_in_groups),
    "convolution of each feature": Template(in_groups(4), lambda rng, n, m: [rng.normal(size=s).astype("f4") for s in (
        (2, 4, n, m), (4, 1, 5, 5))], (60, 50), wide=False, expected=convolved_in_groups),
    "slopes of a kernel": Template(kernel_slopes(1, 18, 3, 3, 3), images(3, 18), (60, 50), wide=False,
                                   expected=kernel_slopes_in_numpy(1, 3)),
    "slopes of a kernel in groups": Template(kernel_slopes(2, 20, 3, 3, 3), images(6, 20), (60, 50), wide=False,
                                             expected=kernel_slopes_in_numpy(2, 3)),
    "attention": Template(attention, heads("f4"), (20000, 20000), raced=(70, 90)),
    "attention of halves": Template(attention, heads("f2"), (2048, 2048), raced=(70, 90)),
    "attention in one pass": Template(attention, heads("f4"), (2048, 2048), raced=(70, 90), fast_math=True),
    "attention of halves in one pass": Template(attention, heads("f2"), (2048, 2048), raced=(70, 90), fast_math=True),
    "slopes of attention": Template(attention_slopes, slopes_of_heads("f4"), (20000, 20000),
                                    expected=attention_slopes_in_numpy, raced=(70, 90)),
    "slopes of attention of halves": Template(slopes_of_groups, lambda rng, n, m: [
        (rng.normal(size=s) / 2).astype("f2") for s in ((1, n, 4, 24), (1, n, 4, 24), (1, m, 2, 24), (1, m, 2, 24))],
        (20000, 20000), expected=slopes_of_groups_in_numpy, raced=(70, 90)),
    "products of integers": Template(lambda x, y: x @ y, lambda rng, n, m: [
        rng.integers(-9, 9, (n, m)).astype("i4"), rng.integers(-9, 9, (m, 5)).astype("i4")], (40, 64), wide=False),
}
