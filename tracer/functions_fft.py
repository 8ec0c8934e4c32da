"""NumPy's Fourier transforms on traced arrays: n-dimensional ones are transforms of one axis after another.

Guarantees: dtypes are NumPy 2's (f32 gives c64; whole numbers count as f64; f16 is transformed at f32); an axis is cropped or
continued with zeros to n points; what NumPy refuses raises here, in its words and with the user's line.
"""
from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from loopwright.ir.builder import Ref
from loopwright.ir.dims import Extent
from loopwright.ir.ops import fft as ops
from loopwright.ir.ops.elementwise import real_part
from loopwright.ir.ops.structural import pad, section
from loopwright.ir.source import user_source
from loopwright.ir.types import COMPLEX
from loopwright.tracer.axes import as_axis, as_size, as_tracer, known_list
from loopwright.tracer.promotion import convert, kind_of, result_kind
from loopwright.tracer.size import as_extent
from loopwright.tracer.tables import FUNCTIONS, Traced, implements, xp
from loopwright.tracer.tracer import Tracer


# ---- arguments ------------------------------------------------------------------------------------
def _norm(norm: Any) -> str:
    if norm is None:
        return "backward"
    if norm not in ops.SWAPPED:
        raise ValueError(f'{user_source()}: Invalid norm value {norm}; should be "backward", "ortho" or "forward".')
    return str(norm)


def _points(x: Ref, n: Extent) -> Extent:
    """The number of points of a transform: at least 1, by proof or guard."""
    scope = x.builder.scope
    if scope.decide("<=", n, 0):
        raise ValueError(f"{user_source()}: Invalid number of FFT data points ({scope.hint(n)}) specified.")
    return scope.canonical(n)


def _resized(x: Ref, axis: int, n: Extent) -> Ref:
    """x cropped, or continued with zeros, to n positions of an axis."""
    shape, scope = x.shape, x.builder.scope
    n = scope.canonical(n)
    if shape[axis] == n:
        return x
    if scope.decide("<=", n, shape[axis]):
        return section(x, axis, 0, n)
    return pad(x, shape=(*shape[:axis], n, *shape[axis + 1:]), start=(0,) * len(shape), step=(1,) * len(shape), value=0)


def _dtypes(a: Tracer) -> tuple[np.dtype, np.dtype]:
    """The complex dtype that an array is transformed at, and NumPy's dtype for real results."""
    kind = kind_of(a)
    pair = result_kind(kind, complex)
    return pair, result_kind(real_part(kind) if kind in COMPLEX else kind, float)


# ---- one axis -------------------------------------------------------------------------------------
def _between_complex(a: Any, n: Any, axis: Any, norm: Any, inverse: bool) -> Traced:
    t = as_tracer(a)
    k = as_axis(axis, t.ndim)
    points = _points(t.ref, t.ref.shape[k] if n is None else as_size(n))
    x = convert(_resized(t.ref, k, points), _dtypes(t)[0])
    return Tracer(ops.fft(x, axis=k, inverse=inverse, norm=_norm(norm)))


@implements(np.fft.fft)
def fft(a: Any, n: Any = None, axis: Any = -1, norm: Any = None) -> Traced:
    return _between_complex(a, n, axis, norm, False)


@implements(np.fft.ifft)
def ifft(a: Any, n: Any = None, axis: Any = -1, norm: Any = None) -> Traced:
    return _between_complex(a, n, axis, norm, True)


@implements(np.fft.rfft)
def rfft(a: Any, n: Any = None, axis: Any = -1, norm: Any = None) -> Traced:
    t = as_tracer(a)
    k = as_axis(axis, t.ndim)
    points = _points(t.ref, t.ref.shape[k] if n is None else as_size(n))
    if t.dtype in COMPLEX:
        raise TypeError(f"{user_source()}: np.fft.rfft of {t.dtype}: it transforms real numbers. Use np.fft.fft, or take "
                        f"np.real(x) first.")
    x = convert(_resized(t.ref, k, points), real_part(_dtypes(t)[0]))
    return Tracer(ops.rfft(x, axis=k, norm=_norm(norm)))


@implements(np.fft.irfft)
def irfft(a: Any, n: Any = None, axis: Any = -1, norm: Any = None) -> Traced:
    t = as_tracer(a)
    k = as_axis(axis, t.ndim)
    points = _points(t.ref, (t.ref.shape[k] - 1) * 2 if n is None else as_size(n))
    pair, real = _dtypes(t)
    x = convert(_resized(t.ref, k, ops.half(points)), pair)
    return Tracer(convert(ops.irfft(x, axis=k, n=points, norm=_norm(norm)), real))


@implements(np.fft.hfft)
def hfft(a: Any, n: Any = None, axis: Any = -1, norm: Any = None) -> Traced:
    return irfft(xp.conjugate(as_tracer(a)), n, axis, ops.SWAPPED[_norm(norm)])


@implements(np.fft.ihfft)
def ihfft(a: Any, n: Any = None, axis: Any = -1, norm: Any = None) -> Traced:
    return xp.conjugate(rfft(a, n, axis, ops.SWAPPED[_norm(norm)]))


# ---- several axes ---------------------------------------------------------------------------------
Steps = Sequence[tuple[Any, int]]  # the points (None: as of one axis) and the axis of each transform


def _steps(t: Tracer, s: Any, axes: Any) -> Steps:
    """What NumPy makes of s and axes. Each transform calls this itself: a warning counts the frames to the user's line."""
    sizes = None if s is None else list(known_list(s))
    if sizes is not None and axes is None:
        warnings.warn(f"{user_source()}: `axes` should not be `None` if `s` is not `None` (deprecated in NumPy 2.0): the last "
                      f"{len(sizes)} axes are transformed. Say axes=(...).", DeprecationWarning, stacklevel=5)
    if sizes is not None and None in sizes:
        warnings.warn(f"{user_source()}: None in `s` is deprecated in NumPy 2.0. Say -1 for a whole axis.", DeprecationWarning,
                      stacklevel=5)
    default = range(t.ndim) if sizes is None else range(-len(sizes), 0)
    places = [as_axis(a, t.ndim) for a in (default if axes is None else known_list(axes))]
    sizes = [t.shape[a] for a in places] if sizes is None else sizes
    if len(sizes) != len(places):
        raise ValueError(f"{user_source()}: Shape and axes have different lengths.")
    return [(t.shape[a] if isinstance(n, int) and n == -1 else n, a) for n, a in zip(sizes, places, strict=True)]


def _last(steps: Steps) -> tuple[Any, int]:
    if not steps:
        raise IndexError(f"{user_source()}: a transform of real numbers needs at least one axis")
    return steps[-1]


def _each(x: Traced, steps: Steps, norm: Any, inverse: bool) -> Traced:
    for n, axis in steps:
        x = _between_complex(x, n, axis, norm, inverse)
    return x


@implements(np.fft.fftn)
def fftn(a: Any, s: Any = None, axes: Any = None, norm: Any = None) -> Traced:
    t = as_tracer(a)
    return _each(t, _steps(t, s, axes)[::-1], norm, False)


@implements(np.fft.ifftn)
def ifftn(a: Any, s: Any = None, axes: Any = None, norm: Any = None) -> Traced:
    t = as_tracer(a)
    return _each(t, _steps(t, s, axes)[::-1], norm, True)


@implements(np.fft.rfftn)
def rfftn(a: Any, s: Any = None, axes: Any = None, norm: Any = None) -> Traced:
    t = as_tracer(a)
    steps = _steps(t, s, axes)
    return _each(rfft(t, *_last(steps), norm), steps[-2::-1], norm, False)


@implements(np.fft.irfftn)
def irfftn(a: Any, s: Any = None, axes: Any = None, norm: Any = None) -> Traced:
    t = as_tracer(a)
    steps = _steps(t, s, axes)
    n, axis = _last(steps)
    return irfft(_each(t, steps[:-1], norm, True), None if s is None else n, axis, norm)


@implements(np.fft.fft2)
def fft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: Any = None) -> Traced:
    return fftn(a, s, axes, norm)


@implements(np.fft.ifft2)
def ifft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: Any = None) -> Traced:
    return ifftn(a, s, axes, norm)


@implements(np.fft.rfft2)
def rfft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: Any = None) -> Traced:
    return rfftn(a, s, axes, norm)


@implements(np.fft.irfft2)
def irfft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: Any = None) -> Traced:
    return irfftn(a, s, axes, norm)


# ---- frequencies ----------------------------------------------------------------------------------
def _shifted(x: Any, axes: Any, sign: int) -> Traced:
    t = as_tracer(x)
    given = range(t.ndim) if axes is None else known_list(axes)
    places = [as_axis(a, t.ndim) for a in (given if isinstance(given, (tuple, list, range)) else (given,))]
    return xp.roll(t, [sign * (t.shape[a] // 2) for a in places], tuple(places))


@implements(np.fft.fftshift)
def fftshift(x: Any, axes: Any = None) -> Traced:
    return _shifted(x, axes, 1)


@implements(np.fft.ifftshift)
def ifftshift(x: Any, axes: Any = None) -> Traced:
    return _shifted(x, axes, -1)


def _number(n: Any) -> Any:
    """A number of points as a plain or symbolic size."""
    if as_extent(n) is None:
        raise ValueError(f"{user_source()}: n should be an integer")
    return n


@implements(np.fft.fftfreq)
def fftfreq(n: Any, d: Any = 1.0, device: None = None) -> Traced:
    """k / (n d), where the second half of the k are negative."""
    count = _number(n)
    k = FUNCTIONS[np.arange](count)
    return xp.where(k < (count - 1) // 2 + 1, k, k - count) * (1.0 / (count * d))


@implements(np.fft.rfftfreq)
def rfftfreq(n: Any, d: Any = 1.0, device: None = None) -> Traced:
    count = _number(n)
    return FUNCTIONS[np.arange](count // 2 + 1) * (1.0 / (count * d))
