"""Statistics of samples by SciPy's and JAX's names: modes, ranks, standard errors and densities by kernels.

Guarantees: sizes may be symbolic; NaN in a sample makes NaN, but that a mode may be NaN and `sem` can omit it.
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from loopwright import random
from loopwright.arrays import Array, inexact, quiet, real, xp
from loopwright.ir.errors import ShapeError
from loopwright.ir.source import user_source
from loopwright.ir.types import F64, I64, is_inexact
from loopwright.scipy import special
from loopwright.tracer.axes import as_axis
from loopwright.tracer.pytree import register_pytree_node
from loopwright.tracer.tracer import Tracer

__all__ = ["ModeResult", "gaussian_kde", "mode", "rankdata", "sem"]


def _lines(a: Any, axis: int | None) -> tuple[Array, int]:
    """The array with an axis of samples last, and where that was; without an axis all in one line."""
    x = a if isinstance(a, Tracer) else xp.asarray(a)
    if axis is None or not x.ndim:
        return xp.ravel(x), 0
    at = as_axis(axis, x.ndim)
    return xp.moveaxis(x, at, -1), at


def _policy(name: str, nan_policy: str, *known: str) -> None:
    if nan_policy not in known:
        raise ValueError(f"{user_source()}: stats.{name}: nan_policy must be {' or '.join(map(repr, known))}, got "
                         f"{nan_policy!r}.")


def _runs(x: Array) -> tuple[Array, Array, Array]:
    """Sorted lines: which elements begin a run of equal ones, and for each the first and last position of its run."""
    differs = x[..., 1:] != x[..., :-1]
    if is_inexact(x.dtype):
        differs = differs & ~(xp.isnan(x[..., 1:]) & xp.isnan(x[..., :-1]))
    edge = xp.ones_like(x[..., :1], dtype=bool)
    begins, ends = xp.concatenate([edge, differs], axis=-1), xp.concatenate([differs, edge], axis=-1)
    places = xp.broadcast_to(xp.arange(x.shape[-1]), x.shape)
    first = xp.maximum.accumulate(xp.where(begins, places, 0), axis=-1)
    backwards = xp.where(ends, places, x.shape[-1])[..., ::-1]
    return begins, first, xp.minimum.accumulate(backwards, axis=-1)[..., ::-1]


# ---- modes, ranks, standard errors ----------------------------------------------------------------------------
class ModeResult(NamedTuple):
    """What `mode` gives."""

    mode: Any
    count: Any


@quiet
def mode(a: Any, axis: int | None = 0, nan_policy: str = "propagate", keepdims: bool = False) -> ModeResult:
    """The most frequent number along an axis, the least of equally frequent ones, and how often it is there.

    >>> mode(np.array([2, 4, 1, 1, 3, 4, 4])).mode
    np.int64(4)
    """
    _policy("mode", nan_policy, "propagate")
    x, at = _lines(a, axis)
    if x.shape[-1] == 0:
        raise ShapeError(f"{user_source()}: stats.mode: no numbers lie along axis {axis} of shape {np.shape(a)}.")
    x = xp.sort(x, axis=-1)
    _, first, last = _runs(x)
    count = last - first + 1
    best = xp.argmax(count, axis=-1)[..., None]
    found = [xp.take_along_axis(y, best, axis=-1) for y in (x, count)]
    if axis is None:
        found = [y.reshape((1,) * np.ndim(a) if keepdims else ()) for y in found]
    else:
        found = [xp.moveaxis(y, -1, at) if keepdims else y[..., 0] for y in found]
    return ModeResult(*[y if isinstance(y, Tracer) else np.asarray(y)[()] for y in found])


@quiet
def rankdata(a: Any, method: str = "average", *, axis: int | None = None, nan_policy: str = "propagate") -> Array:
    """Ranks along an axis, or in the array in one line, from 1 on. method: what equal numbers get: the "average", "min" or
    "max" of their places, their place among different numbers ("dense"), or one place after another ("ordinal").

    >>> rankdata(np.array([1, 3, 2, 3]))
    array([1. , 3.5, 2. , 3.5])
    """
    _policy("rankdata", nan_policy, "propagate")
    x, at = _lines(a, axis)
    order = xp.argsort(x, axis=-1, kind="stable")
    back = xp.argsort(order, axis=-1, kind="stable")
    begins, first, last = _runs(xp.take_along_axis(x, order, axis=-1))
    ranks = {"average": lambda: (first + last) / 2 + 1, "min": lambda: first + 1, "max": lambda: last + 1,
             "dense": lambda: xp.cumsum(begins, axis=-1),
             "ordinal": lambda: 1 + xp.broadcast_to(xp.arange(x.shape[-1]), x.shape)}
    if method not in ranks:
        raise ValueError(f"{user_source()}: stats.rankdata: method must be one of {', '.join(ranks)}, got {method!r}.")
    out = xp.take_along_axis(ranks[method](), back, axis=-1)
    out = out.astype(F64 if method == "average" or is_inexact(x.dtype) else I64)
    if is_inexact(x.dtype):
        out = xp.where(xp.any(xp.isnan(x), axis=-1, keepdims=True), math.nan, out)
    return out if axis is None else xp.moveaxis(out, -1, at)


@quiet
def sem(a: Any, axis: int | None = 0, ddof: int = 1, nan_policy: str = "propagate", *, keepdims: bool = False) -> Array:
    """The standard error of the mean: the standard deviation, with ddof degrees of freedom taken away, over the root of the
    number of samples. nan_policy: "propagate", or "omit" for the numbers that are not NaN."""
    _policy("sem", nan_policy, "propagate", "omit")
    x = inexact(a)
    options: dict[str, Any] = {"axis": axis, "keepdims": keepdims}
    if nan_policy == "omit":
        count = xp.sum(~xp.isnan(x), **options)
        return xp.nanstd(x, ddof=ddof, **options) / xp.sqrt(count.astype(x.dtype))
    count = xp.sum(xp.ones_like(x), **options)
    return xp.std(x, ddof=ddof, **options) / xp.sqrt(count)


# ---- densities --------------------------------------------------------------------------------------------------
class gaussian_kde:
    """The density that normal distributions around the points of a data set have together.

    dataset: [n] numbers, or [d, n] points as columns. bw_method: the width, as a factor of the data's own: "scott" (the
    default), "silverman", a number, or a function of this object. weights: [n], of the points. A container of arrays: it may be
    an argument and a result of functions that are compiled, batched and differentiated.

    >>> round(float(gaussian_kde(np.array([-1.0, 0.0, 1.0])).pdf(0.0)[0]), 6)
    0.318156
    """

    neff: Any
    dataset: Any
    weights: Any
    covariance: Any
    inv_cov: Any

    @quiet
    def __init__(self, dataset: Any, bw_method: Any = None, weights: Any = None) -> None:
        data = real("gaussian_kde", dataset) if weights is None else real("gaussian_kde", dataset, weights)[0]
        self.dataset = xp.atleast_2d(data)
        if self.n < 2:
            raise ShapeError(f"{user_source()}: stats.gaussian_kde takes at least two points, got shape {self.dataset.shape}.")
        given = xp.ones_like(self.dataset[0]) if weights is None else real("gaussian_kde", weights, dataset)[0]
        if given.ndim != 1 or given.shape[0] != self.n:
            raise ShapeError(f"{user_source()}: stats.gaussian_kde: weights must be one for each of {self.n} points, got shape "
                             f"{given.shape}.")
        self.weights = given / xp.sum(given)
        self.neff = 1 / xp.sum(self.weights ** 2)
        factor = self._factor(bw_method)
        away = self.dataset - (self.dataset @ self.weights)[:, None]
        spread = (away * self.weights) @ away.T / (1 - xp.sum(self.weights ** 2))
        self.covariance, self.inv_cov = spread * factor ** 2, xp.linalg.inv(spread) / factor ** 2

    def _factor(self, bw_method: Any) -> Any:
        if bw_method is None or (isinstance(bw_method, str) and bw_method == "scott"):
            return self.neff ** (-1 / (self.d + 4))
        if isinstance(bw_method, str):
            if bw_method != "silverman":
                raise ValueError(f"{user_source()}: stats.gaussian_kde: bw_method must be 'scott', 'silverman', a number or a "
                                 f"function, got {bw_method!r}.")
            return (self.neff * (self.d + 2) / 4) ** (-1 / (self.d + 4))
        return bw_method(self) if callable(bw_method) else bw_method

    @property
    def d(self) -> Any:
        """The dimension of the points."""
        return self.dataset.shape[0]

    @property
    def n(self) -> Any:
        """The number of the points."""
        return self.dataset.shape[1]

    def _points(self, points: Any) -> Array:
        x = xp.atleast_2d(real("gaussian_kde", points, self.dataset)[0])
        if x.shape[0] != self.d:
            if x.shape[0] != 1 or x.shape[1] != self.d:
                raise ShapeError(f"{user_source()}: stats.gaussian_kde: points must be columns of {self.d} numbers, got shape "
                                 f"{x.shape}.")
            x = x.T
        return x

    @quiet
    def logpdf(self, x: Any) -> Array:
        """[m]: the logarithm of the density at points [m], or [d, m]."""
        x, factor = self._points(x), xp.linalg.cholesky(self.inv_cov)
        moved, centres = factor.T @ x, factor.T @ self.dataset
        squares = xp.sum((moved[:, :, None] - centres[:, None, :]) ** 2, axis=0)
        norm = xp.sum(xp.log(xp.diagonal(factor))) - 0.5 * self.d * math.log(2 * math.pi)
        return special.logsumexp(norm - 0.5 * squares, axis=1, b=self.weights)

    def evaluate(self, points: Any) -> Array:
        """[m]: the density at points [m], or [d, m]."""
        return xp.exp(self.logpdf(points))

    pdf = __call__ = evaluate

    @quiet
    def integrate_gaussian(self, mean: Any, cov: Any) -> Array:
        """The integral of the density times that of a normal distribution."""
        mean, cov = real("gaussian_kde", mean, cov)
        mean, cov = xp.reshape(mean, (-1,)), xp.atleast_2d(cov)
        if mean.shape[0] != self.d or cov.shape != (self.d, self.d):
            raise ShapeError(f"{user_source()}: stats.gaussian_kde: mean and covariance must be of {self.d} dimensions, got "
                             f"shapes {mean.shape} and {cov.shape}.")
        return xp.sum(self.weights * self._overlaps(cov, mean[:, None])[:, 0])

    @quiet
    def integrate_kde(self, other: gaussian_kde) -> Array:
        """The integral of the product of two such densities."""
        if other.d != self.d:
            raise ShapeError(f"{user_source()}: stats.gaussian_kde: the other density has {other.d} dimensions, not {self.d}.")
        return self.weights @ self._overlaps(other.covariance, other.dataset) @ other.weights

    def _overlaps(self, cov: Array, points: Array) -> Array:
        """[n, m]: the density of a normal distribution, of the sum of both covariances, of point less data."""
        factor = xp.linalg.inv(xp.linalg.cholesky(self.covariance + cov))
        away = (factor @ self.dataset)[:, :, None] - (factor @ points)[:, None, :]
        norm = xp.prod(xp.diagonal(factor)) / (2 * math.pi) ** (0.5 * self.d)
        return norm * xp.exp(-0.5 * xp.sum(away * away, axis=0))

    @quiet
    def integrate_box_1d(self, low: Any, high: Any) -> Array:
        """The integral of the density of numbers from low to high."""
        if self.d != 1:
            raise ShapeError(f"{user_source()}: stats.gaussian_kde: integrate_box_1d is for numbers, not for "
                             f"points of {self.d}.")
        scaled = [(end - self.dataset[0]) / xp.sqrt(self.covariance[0, 0]) for end in (low, high)]
        return xp.sum(self.weights * (special.ndtr(scaled[1]) - special.ndtr(scaled[0])))

    def resample(self, key: Any, shape: Sequence[Any] = ()) -> Array:
        """[d, *shape]: points drawn from the density, by JAX's key."""
        which, noise = random.split(key)
        places = random.choice(which, self.n, shape=shape, p=self.weights)
        zeros = xp.zeros_like(self.covariance[0])
        away = random.multivariate_normal(noise, zeros, self.covariance, shape=shape, dtype=self.dataset.dtype)
        return self.dataset[:, places] + away.T


_PARTS = ("neff", "dataset", "weights", "covariance", "inv_cov")


def _restored(_: None, children: Sequence[Any]) -> gaussian_kde:
    kde = object.__new__(gaussian_kde)
    for name, value in zip(_PARTS, children, strict=True):
        setattr(kde, name, value)
    return kde


register_pytree_node(gaussian_kde, lambda kde: ([getattr(kde, name) for name in _PARTS], None), _restored)
