"""Random NumPy programs as users write them, jitted once and called at many sizes, against NumPy itself.

The programs that once went wrong stand here by themselves, each at the sizes that showed it.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from tests.scale import examples

# Each a function of arrays and the shapes of its arguments at successive calls.
ONCE_WRONG: dict[str, tuple[Callable[..., Any], tuple[tuple[tuple[int, ...], ...], ...]]] = {
    "a quotient of sizes that is 1": (lambda x: np.squeeze(x[::2][::-1]) * 1, (((31,),), ((1,),), ((0,),), ((2,),), ((3,),))),
    "a quotient of sizes beside 1": (lambda x: np.squeeze(x[1::3, None, :]) * 1, (((2, 2),), ((3, 2),), ((5, 2),), ((0, 2),))),
    "a quotient of sizes broadcast": (lambda x, y: np.maximum(x[1::3, :-3], y),
                                      (((2, 4), (1, 2, 2, 1)), ((4, 10), (2, 1, 7)), ((4, 10), (2, 1, 1)))),
    "a quotient that is 1 beside a vector": (lambda x, y: np.hypot(x[1::3], y), (((9,), (3,)), ((2,), (9,)), ((5,), (2,)))),
    "a step to an only element": (lambda x: np.minimum(x[2::3], x[:1]), (((1,),), ((3,),), ((4,),), ((0,),))),
    "sizes equal by bounds": (lambda x, y: x @ np.concatenate([x[1:], y[:1]]), (((0,), (0,)), ((5,), (1,)), ((1,), (4,)))),
    "a quotient of sums": (lambda x: np.reshape(x[1:], (-1, x[1:].shape[0])), (((2,),), ((31,),), ((3,),))),
    "a quotient of products of sums": (lambda x: np.reshape(x[1:], (-1, x.shape[0] - 1)),
                                       (((2, 3),), ((4, 5),), ((7, 1),), ((7, 0),))),
    "a quotient by a sum": (lambda x: np.reshape(x, (-1, x.shape[0] - 1)), (((2, 3),), ((3, 4),), ((7, 6),), ((7, 0),))),
    "a reduction of rows of matrices that have a value of their own": (
        lambda x: np.any(np.exp(x - np.max(x, axis=(1, 2), keepdims=True)) > 0.4, axis=-1),
        (((3, 5, 8),), ((2, 1, 33),), ((1, 9, 1),))),
    "axes of a number": (lambda x: np.cumsum(x, axis=-1) + np.sum(x, axis=0) + np.argmax(x, axis=-1) + np.max(x, axis=0)
                         + np.repeat(x, 1, axis=-1) + np.take(x, 0, axis=0) + np.argsort(x, axis=-1),
                         (((),), ((3,),), ((),))),
    "a sum of products that is 1 beside a vector": (lambda x: x[[0, -1], [0, 0]] - np.append(x, x)[1:] * 0.5,
                                                    (((1, 1),), ((1, 3),), ((1, 1),))),
    "sums of sizes that are 1": (lambda x, y: np.squeeze(np.append(x, y)[1:]) + np.arange(3.0),
                                 (((1, 1), (1, 1)), ((2, 1), (1, 2)))),
    "fourth powers of a batch of matrices": (lambda x: (lambda y: x @ (y @ y))(x @ x),
                                             (((2, 3, 3),), ((0, 3, 3),), ((9, 2, 2),))),
    "an axis of an einsum that turns out to be 1": (lambda x, y: np.einsum("ij,jk->k", x * y, y),
                                                    (((5, 1), (5, 1)), ((2, 2), (2, 2)))),
    "a reduction of all axes of a short root": (
        lambda x: np.sum((x.mean(-1, keepdims=True) ** 2)[..., None] * x.mean(-1, keepdims=True)[..., None, :], axis=-1) * 0.2,
        (((4, 2, 1),), ((4, 2, 3),), ((0, 2, 1),))),
}


@pytest.mark.parametrize("name", ONCE_WRONG)
def test_programs_that_were_wrong_once(name: str) -> None:
    f, calls = ONCE_WRONG[name]
    jitted = lw.jit(f)
    rng = np.random.default_rng(0)
    for shapes in calls:
        args = [rng.normal(size=shape) for shape in shapes]
        try:
            want = f(*args)
        except ValueError:
            with pytest.raises(ValueError):
                jitted(*args)
            continue
        got = jitted(*args)
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


# ---- random programs ----------------------------------------------------------------------------
SIZES = (0, 1, 2, 3, 8, 9, 15, 16, 17, 31, 33)
SHAPES = (("n",), ("m", "n"), ("n", "m"), ("n",), ("m",), ("k", "m", "n"), (), ("n", 3), ("m", 1), ("n", "n"))
DTYPES = (np.float64, np.float64, np.float64, np.float32, np.int64, np.bool_)

# What a statement may say: x and y are values, a an axis of x, k whether reductions keep it.
ALONE = ("np.sin({x})", "np.tanh({x}) * 0.5", "np.exp(-np.abs({x}))", "{x} * 2", "np.square({x}) * 0.1", "{x}.copy()",
         "1.0 / (1.5 + np.abs({x}))", "np.where({x} > 0.3, {x}, -1)", "np.log1p(np.abs({x}))", "{x}.astype(np.float32)")
TOGETHER = ("{x} + {y}", "{x} * {y}", "np.maximum({x}, {y})", "{x} / (1.1 + np.abs({y}))", "np.where({x} > {y}, {x}, {y})",
            "np.arctan2({x}, 1.0 + np.abs({y}))", "np.concatenate([{x}, {y}, {x}], axis={a})", "np.stack([{x}, {y}], axis={a})",
            "np.concatenate([{x}[1:], {y}[:1]])", "({x} @ {y}) * 0.2", "np.sum({x}[..., None] * {y}[..., None, :], axis=-1)")
ALONG = ("np.sum({x}, axis={a}, keepdims={k})", "np.max({x}, axis={a}, keepdims={k})", "np.mean({x}, axis={a}, keepdims={k})",
         "np.var({x}, axis={a}, keepdims={k})", "np.any({x} > 0.4, axis={a}, keepdims={k})", "np.argmax({x}, axis={a})",
         "np.cumsum({x}, axis={a}) * 0.3", "np.cumprod(np.tanh({x}) + 0.5, axis={a})", "np.sort({x}, axis={a})",
         "{x} - np.max({x}, axis={a}, keepdims=True)", "{x} / (1 + np.sum(np.abs({x}), axis={a}, keepdims=True))",
         "np.exp({x} - np.max({x}, axis=None, keepdims=True))", "np.flip({x}, axis={a})", "np.roll({x}, 2, axis={a})",
         "np.diff({x}, axis={a})", "np.repeat({x}, 2, axis={a})", "np.expand_dims({x}, {a})", "np.swapaxes({x}, 0, {a})")
MOVED = ("{x}[1:]", "{x}[:-1] * 3", "{x}[..., ::-1]", "{x}[..., ::2]", "{x}[1::3]", "{x}[0]", "{x}[..., -1]", "{x}[:, None]",
         "{x}.T", "np.reshape({x}, -1)", "np.reshape({x}, (-1, {x}.shape[0]))", "np.pad({x}, 1)", "np.pad({x}, 2, mode='wrap')",
         "np.squeeze({x})", "np.broadcast_to({x}, (3,) + {x}.shape)", "{x}[np.array([0, -1, 0])]", "np.outer({x}, {x}[:2])",
         "np.take_along_axis({x}, np.argmax({x}, axis=-1, keepdims=True), axis=-1)")
WRITES = ("{x}[0] = {y}", "{x}[1:] += {y}[:-1]", "{x}[::2] *= 0.5", "{x}[..., -1] = {y}", "{x}[{x} > 0.5] = 0.25",
          "{x}[...] -= {y}")
FORMS = (ALONE, TOGETHER, ALONG, MOVED, TOGETHER)


class Program:
    """Statements that run in NumPy at the sizes of `args`, which they were drawn at: names, shapes and source."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.shapes = [SHAPES[rng.integers(len(SHAPES))] for _ in range(rng.integers(2, 5))]
        self.dtypes = [np.dtype(DTYPES[rng.integers(len(DTYPES))]) for _ in self.shapes]
        self.values = {f"x{k}": v for k, v in enumerate(self.arguments({"n": 9, "m": 5, "k": 2}))}
        self.lines: list[str] = []
        self.fresh: list[str] = []  # copies, which may be written
        wanted = int(rng.integers(3, 16))
        for _ in range(20 * wanted):
            if len(self.lines) < wanted:
                self._draw()
        made = [name for name in self.values if name not in self.parameters]
        self.results = [made[-1 - int(rng.integers(min(6, len(made))))] for _ in range(rng.integers(1, 4))] if made else ["x0"]

    @property
    def parameters(self) -> list[str]:
        return [f"x{k}" for k in range(len(self.shapes))]

    def arguments(self, sizes: dict[str, int]) -> list[np.ndarray]:
        drawn = [self.rng.normal(size=[sizes.get(str(n), n) for n in shape]) for shape in self.shapes]
        return [(np.rint(2 * v) if d.kind == "i" else v > 0 if d.kind == "b" else v).astype(d)
                for v, d in zip(drawn, self.dtypes, strict=True)]

    def _draw(self) -> None:
        rng, names, name = self.rng, list(self.values), f"v{len(self.lines)}"
        x = names[-1 - min(int(rng.exponential(3)), len(names) - 1)]
        alike = [v for v in names if self.values[v].shape == self.values[x].shape]
        y = alike[rng.integers(len(alike))] if rng.random() < 0.6 else names[rng.integers(len(names))]
        if self.fresh and rng.random() < 0.2:
            name = self.fresh[rng.integers(len(self.fresh))]
            return self._take(name, WRITES[rng.integers(len(WRITES))].format(x=name, y=y))
        forms = FORMS[rng.integers(len(FORMS))]
        form = forms[rng.integers(len(forms))]
        rank = max(self.values[x].ndim, 1)
        self._take(name, f"{name} = " + form.format(x=x, y=y, a=int(rng.integers(-rank, rank)), k=bool(rng.random() < 0.4)))
        if form == "{x}.copy()" and name in self.values:
            self.fresh.append(name)
        return None

    def _take(self, name: str, line: str) -> None:
        """Keep a line if NumPy runs it, and gives numbers of a moderate size."""
        space = {"np": np, **{k: v.copy() for k, v in self.values.items()}}
        try:
            with np.errstate(all="ignore"):
                exec(line, space)
        except (ValueError, IndexError, TypeError):
            return
        value = np.asarray(space[name])
        if value.size <= 4000 and value.ndim <= 4 and np.all(np.abs(value * 1.0) < 1e3):
            self.values[name] = value
            self.lines.append(line)

    @property
    def source(self) -> str:
        body = "\n".join(f"    {line}" for line in self.lines)
        return f"def f({', '.join(self.parameters)}):\n{body}\n    return {', '.join(self.results)},\n"

    def function(self) -> Callable[..., Any]:
        space: dict[str, Any] = {"np": np}
        exec(compile(self.source, "<program>", "exec"), space)
        return space["f"]


def reference(f: Callable[..., Any], args: list[np.ndarray]) -> list[np.ndarray] | None:
    """What NumPy gives, or None where it raises."""
    try:
        with np.errstate(all="ignore"):
            return [np.asarray(v) for v in f(*[a.copy() for a in args])]
    except (ValueError, IndexError, TypeError):  # a store into what is a number at these sizes
        return None


def close(got: Any, want: np.ndarray, tolerance: float) -> bool:
    scale = 1.0 + np.max(np.abs(want[np.isfinite(want)] * 1.0), initial=0.0)
    with np.errstate(invalid="ignore"):
        return np.allclose(np.asarray(got) * 1.0, want * 1.0, rtol=tolerance, atol=tolerance * scale, equal_nan=True)


def is_smooth(f: Callable[..., Any], args: list[np.ndarray], wants: list[np.ndarray], tolerance: float) -> bool:
    """Whether a rounding more or less in the arguments leaves NumPy's results where they are."""
    for sign in (-1, 1):
        moved = [(a * (1 + sign * tolerance * 1e-4)).astype(a.dtype) if a.dtype.kind == "f" else a for a in args]
        near = reference(f, moved)
        if near is None or not all(close(v, want, tolerance / 4) for v, want in zip(near, wants, strict=True)):
            return False
    return True


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, about means of nothing
@examples(100)
@given(seed=st.integers(0, 2**32 - 1))
def test_random_programs_at_many_sizes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    program = Program(rng)
    f = program.function()
    jitted = lw.jit(f)
    dtypes = {v.dtype for v in program.values.values()}  # functions of truths are of half precision
    tolerance = 5e-2 if np.dtype(np.float16) in dtypes else 2e-3 if np.dtype(np.float32) in dtypes else 1e-8
    for _ in range(4):
        args = program.arguments({name: int(rng.choice(SIZES)) for name in "nmk"})
        wants = reference(f, args)
        if wants is None:
            continue
        try:
            gots = jitted(*args)
        except lw.WriteError:  # a view that was written through a reshape, whose meaning depends on the layout
            return
        for got, want in zip(gots, wants, strict=True):
            assert (np.shape(got), np.asarray(got).dtype) == (want.shape, want.dtype), program.source
        if not all(close(got, want, tolerance) for got, want in zip(gots, wants, strict=True)):
            assert not is_smooth(f, args, wants, tolerance), f"{program.source}{[a.shape for a in args]}"
