"""Orders of rows, the greatest few of each row, and what stands in the middle."""
from __future__ import annotations

import numpy as np

from benchmarks.contest import contest
from benchmarks.harness import Timing
from loopwright import lax


def orders() -> list[Timing]:
    """Stable orders of 100,000 numbers, and of 500 rows of 1,000."""
    return [*_order("float64", 100_000), *_order("float32", 500, 1000), *_order("int64", 500, 1000)]


def _order(dtype: str, *shape: int) -> list[Timing]:
    x = (np.random.default_rng(0).normal(size=shape) * 1000).astype(dtype)
    name = f"argsort, {'x'.join(map(str, shape))} {dtype[0]}{dtype[-2:]}"
    return contest(name, (x,), lambda x: np.argsort(x, axis=-1, kind="stable"),
                   expected=np.argsort(x, -1, kind="stable"), tolerance=0,
                   jax=lambda jax: lambda x: jax.numpy.argsort(x, axis=-1),
                   torch=lambda torch, optimised: optimised(lambda x: torch.argsort(x, dim=-1, stable=True)))


def greatest() -> list[Timing]:
    """The 10 greatest of each of 64 rows of 1,000 float32, and where they are."""
    x = np.random.default_rng(0).normal(size=(64, 1000)).astype("float32")

    def by_hand(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        at = np.argpartition(-x, 10, axis=-1)[:, :10]
        at = np.take_along_axis(at, np.argsort(-np.take_along_axis(x, at, -1), axis=-1), -1)
        return np.take_along_axis(x, at, -1), at
    return contest("top_k, 10 of 64x1000 f32", (x,), lambda x: lax.top_k(x, 10), numpy=by_hand, expected=by_hand(x),
                   tolerance=0, jax=lambda jax: lambda x: jax.lax.top_k(x, 10),
                   torch=lambda torch, optimised: optimised(lambda x: tuple(torch.topk(x, 10))))


def middles() -> list[Timing]:
    """The median of 100,000 float64, and three quantiles of each of 20 rows of 20,000 float32."""
    rng, levels = np.random.default_rng(0), [0.1, 0.5, 0.9]
    x, rows = rng.normal(size=100_000), rng.normal(size=(20, 20_000)).astype("float32")
    return [
        *contest("median, 100000 f64", (x,), np.median, jax=lambda jax: jax.numpy.median,
                 torch=lambda torch, optimised: optimised(lambda x: torch.quantile(x, 0.5))),
        *contest("three quantiles of rows, 20x20000 f32", (rows,), lambda x: np.quantile(x, levels, axis=1),
                 jax=lambda jax: lambda x: jax.numpy.quantile(x, jax.numpy.asarray(levels), axis=1),
                 torch=lambda torch, optimised: optimised(
                     lambda x: torch.quantile(x, torch.tensor(levels, dtype=x.dtype), dim=1))),
    ]


def short() -> list[Timing]:
    """Sorts and orders of 100,000 rows of 5, and the medians of nine images, float32."""
    rng = np.random.default_rng(0)
    x, images = rng.normal(size=(100_000, 5)).astype("float32"), rng.normal(size=(9, 256, 256)).astype("float32")
    return [
        *contest("sort of short rows, 100000x5 f32", (x,), lambda x: np.sort(x, axis=-1), expected=np.sort(x, -1), tolerance=0,
                 jax=lambda jax: lambda x: jax.numpy.sort(x, axis=-1),
                 torch=lambda torch, optimised: optimised(lambda x: torch.sort(x, dim=-1).values)),
        *_order("float32", 100_000, 5),
        *contest("medians of nine images, 256x256 f32", (images,), lambda x: np.median(x, axis=0),
                 jax=lambda jax: lambda x: jax.numpy.median(x, axis=0),
                 torch=lambda torch, optimised: optimised(lambda x: torch.median(x, dim=0).values)),
    ]


WORKLOADS = (orders, greatest, middles, short)
