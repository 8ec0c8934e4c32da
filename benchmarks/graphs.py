"""Graphs with room for other schedules and partitions than the default ones: what tuning is measured on, beside the others."""
from __future__ import annotations

import numpy as np

from benchmarks.contest import contest
from benchmarks.harness import Timing
from loopwright import lax, ops


def _normal(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def wide_matmul() -> list[Timing]:
    """96 x 3072 by 3072 x 768 float32: few rows."""
    args = _normal(96, 3072), _normal(3072, 768) / 55
    return contest("matmul, 96x3072x768 f32", args, lambda a, b: a @ b, tolerance=1e-4, jax=lambda jax: lambda a, b: a @ b,
                   torch=lambda torch, optimised: optimised(lambda a, b: a @ b))


def heads() -> list[Timing]:
    """q k^T for 12 heads of 64 at 128 positions, from arrays in which the heads lie side by side: transposes and products."""
    def program(q, k):
        return q.transpose(1, 0, 2) @ k.transpose(1, 2, 0)
    return contest("products of heads, 128x12x64 f32", (_normal(128, 12, 64), _normal(128, 12, 64)), program, tolerance=1e-4,
                   jax=lambda jax: program, torch=lambda torch, optimised: optimised(
                       lambda q, k: q.permute(1, 0, 2) @ k.permute(1, 2, 0)))


def norms() -> list[Timing]:
    """sqrt(sum(x^2)) of the columns of square matrices of 256, 1024 and 4096 float32."""
    found = []
    for n in (256, 1024, 4096):
        found += contest(f"norms of columns, {n}x{n} f32", (_normal(n, n),), lambda x: np.sqrt(np.sum(x * x, axis=0)),
                         jax=lambda jax: lambda x: jax.numpy.sqrt(jax.numpy.sum(x * x, axis=0)), tolerance=1e-4,
                         torch=lambda torch, optimised: optimised(lambda x: torch.sqrt(torch.sum(x * x, dim=0))))
    return found


def _each_group(groups):
    """A convolution of each group of channels by itself, in NumPy."""
    def f(x, w):
        (height, width), (size, _, terms, features) = x.shape[1:3], w.shape
        padded = np.pad(x, ((0, 0), *[(size // 2, size // 2)] * 2, (0, 0)))
        total = np.zeros((*x.shape[:3], groups, features // groups), x.dtype)
        for i in range(size):
            for j in range(size):
                at = padded[:, i:i + height, j:j + width].reshape(*x.shape[:3], groups, 1, terms)
                total += (at @ w[i, j].reshape(terms, groups, -1).swapaxes(0, 1))[..., 0, :]
        return total.reshape(*x.shape[:3], features)
    return f


def in_groups() -> list[Timing]:
    """Groups of channels of images convolved with their own windows, float32: each channel by itself, 32 of 112 x 112 with
    3 x 3, 192 of eight of 28 x 28 with 7 x 7; 32 groups of 8 channels of eight of 14 x 14 with 3 x 3."""
    found = []
    for shape, window, groups in (((1, 112, 112, 32), 3, 32), ((8, 28, 28, 192), 7, 192), ((8, 14, 14, 256), 3, 32)):
        channels, name = shape[-1], "x".join(map(str, shape[shape[0] == 1:]))
        kind = "depthwise conv2d" if groups == channels else f"conv2d in {groups} groups"
        args, by_hand = (_normal(*shape), _normal(window, window, channels // groups, channels)), _each_group(groups)

        def program(lax, groups=groups):
            return lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"),
                                                         feature_group_count=groups)

        def theirs(torch, optimised, groups=groups, window=window):
            f = optimised(lambda x, w: torch.nn.functional.conv2d(x, w, padding=window // 2, groups=groups))
            return lambda x, w: f(x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1)).permute(0, 2, 3, 1)
        found += contest(f"{kind}, {name} by {window}x{window} f32", args, program(lax), numpy=by_hand,
                         expected=by_hand(*(a.astype("float64") for a in args)), tolerance=1e-4,
                         jax=lambda jax, program=program: program(jax.lax), torch=theirs)
    return found


def _group_norm(xp, groups):
    def program(x, scale, shift):
        y = x.reshape(*x.shape[:-1], groups, x.shape[-1] // groups)
        centred = y - xp.mean(y, axis=(1, 2, 4), keepdims=True)
        deviation = xp.sqrt(xp.mean(centred * centred, axis=(1, 2, 4), keepdims=True) + 1e-5)
        return (centred / deviation).reshape(x.shape) * scale + shift
    return program


def group_norm() -> list[Timing]:
    """The channels of eight images of 64 x 64 x 128 float32, channels last, brought to mean 0 and deviation 1 in 32 groups."""
    args = _normal(8, 64, 64, 128), _normal(128), _normal(128)

    def theirs(torch, optimised):
        f = optimised(lambda x, scale, shift: torch.nn.functional.group_norm(x, 32, scale, shift, eps=1e-5))
        return lambda x, scale, shift: f(x.permute(0, 3, 1, 2), scale, shift).permute(0, 2, 3, 1)
    return contest("group norm, 8x64x64x128 in 32 groups f32", args, _group_norm(np, 32), tolerance=1e-4,
                   jax=lambda jax: _group_norm(jax.numpy, 32), torch=theirs)


def _mixture(xp):
    """Some thirty maps and reductions over rows, of which several read the same values."""
    def program(x, scale, shift):
        mean = xp.mean(x, axis=1, keepdims=True)
        centred = x - mean
        deviation = xp.sqrt(xp.mean(centred * centred, axis=1, keepdims=True) + 1e-5)
        h = centred / deviation * scale + shift
        gate = 1 / (1 + xp.exp(-h))
        a, b = h * gate, xp.tanh(h)
        peak = xp.max(a, axis=1, keepdims=True)
        e = xp.exp(a - peak)
        weights = e / xp.sum(e, axis=1, keepdims=True)
        mixed = weights * b + (1 - weights) * x
        energy = xp.sum(mixed * mixed, axis=1)
        return mixed / (1 + xp.abs(h)), energy, xp.mean(mixed, axis=0)
    return program


def _torch_mixture(torch):
    def program(x, scale, shift):
        deviation, mean = torch.std_mean(x, dim=1, keepdim=True, correction=0)
        h = (x - mean) / torch.sqrt(deviation * deviation + 1e-5) * scale + shift
        weights = torch.softmax(h * torch.sigmoid(h), dim=1)
        mixed = weights * torch.tanh(h) + (1 - weights) * x
        return mixed / (1 + torch.abs(h)), torch.sum(mixed * mixed, dim=1), torch.mean(mixed, dim=0)
    return program


def mixture() -> list[Timing]:
    """A layer norm, a gate, a softmax and sums of rows and columns on 2048 x 768 float32."""
    args = _normal(2048, 768), _normal(768), _normal(768)
    return contest("thirty maps and reductions, 2048x768 f32", args, _mixture(np), tolerance=1e-4,
                   jax=lambda jax: _mixture(jax.numpy), torch=lambda torch, optimised: optimised(_torch_mixture(torch)))


def messages() -> list[Timing]:
    """A step of a graph network: states of 20,000 nodes gathered along 200,000 edges, weighted by a softmax over the edges of
    each target, and added up there; 32 float32 each."""
    rng, nodes, edges = np.random.default_rng(0), 20_000, 200_000
    x, source = _normal(nodes, 32), rng.integers(0, nodes, edges)
    target = np.sort(rng.integers(0, nodes, edges))

    def program(xp, add, greatest):
        def step(x, source, target):
            scores = xp.sum(x[source] * x[target], axis=1) * 0.1
            e = xp.exp(scores - greatest(scores, target)[target])
            weights = e / add(e, target)[target]
            return add(x[source] * weights[:, None], target)
        return step

    def by_hand(at, shape, start, values):
        out = np.full(shape, start, values.dtype)
        at(out, target, values)
        return out
    numpy = program(np, lambda v, t: by_hand(np.add.at, (nodes, *v.shape[1:]), 0, v),
                    lambda v, t: by_hand(np.maximum.at, (nodes,), -np.inf, v))

    def theirs(torch, optimised):
        def add(v, t):
            return torch.zeros((nodes, *v.shape[1:]), dtype=v.dtype).index_add(0, t, v)

        def greatest(v, t):
            return torch.full((nodes,), -torch.inf, dtype=v.dtype).scatter_reduce(0, t, v, "amax")
        adapted = type("", (), {"sum": staticmethod(lambda v, axis: torch.sum(v, dim=axis)), "exp": staticmethod(torch.exp)})
        return optimised(program(adapted, add, greatest))
    return contest(
        "messages along 200,000 edges, 32 f32", (x, source, target),
        program(np, lambda v, t: ops.segment_sum(v, t, nodes), lambda v, t: ops.segment_max(v, t, nodes)), numpy=numpy,
        expected=numpy(x.astype("float64"), source, target), tolerance=1e-4, torch=theirs,
        jax=lambda jax: program(jax.numpy, lambda v, t: jax.ops.segment_sum(v, t, nodes),
                                lambda v, t: jax.ops.segment_max(v, t, nodes)))


WORKLOADS = (wide_matmul, heads, norms, in_groups, group_norm, mixture, messages)
