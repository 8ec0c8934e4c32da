"""Random programs over every op: graphs with symbols, sizes for the symbols, and arguments full of special values.

`programs()` is a hypothesis strategy. A program grows step by step from values it already has: elementwise ops on values
of one type, movements, reductions, conversions, constants; and any op's own example, with parameters of its own.
"""
import random
from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st

from loopwright.ir.builder import Builder, Ref, tracing
from loopwright.ir.dims import evaluate, product, symbol, symbols_in
from loopwright.ir.errors import DTypeError, ShapeError
from loopwright.ir.graph import Graph
from loopwright.ir.guards import Scope
from loopwright.ir.interpreter import evaluate as run
from loopwright.ir.op import Op
from loopwright.ir.ops import TABLE
from loopwright.ir.ops.elementwise import same_shape
from loopwright.ir.parser import parse_type
from loopwright.ir.types import BOOL, COMPLEX, DTYPES, F32, F64, FLOATS, I32, I64, ArrayType

POINTWISE = [op for op in TABLE.values() if op.shape is same_shape and op.name not in ("select", "convert", "bitcast")]
WITH_EXAMPLES = [op for op in TABLE.values() if op.examples]
SPECIAL = (0.0, -0.0, 1.0, -1.0, 2.0, 0.5, np.inf, -np.inf, np.nan)
SHAPES = ("", "n", "m", "n, m", "2, n", "n, 1", "n, 3, m", "3", "n, n")
Make = Callable[[np.random.Generator, ArrayType], np.ndarray]


class Program:
    """A graph, and for each parameter how its argument is drawn (None: anything of its type)."""

    def __init__(self, graph: Graph, makes: tuple[Make | None, ...]) -> None:
        self.graph, self.makes = graph, makes

    def sizes(self, rng: np.random.Generator) -> dict[str, int]:
        """A size from 1 to 4 for each symbol."""
        return {s: int(rng.integers(1, 5)) for s in self.graph.symbols}

    def arguments(self, rng: np.random.Generator, sizes: dict[str, int]) -> list[np.ndarray]:
        """Arguments for these sizes; floats hold NaN, infinities and zeros of both signs."""
        types = [ArrayType(tuple(evaluate(x, sizes) for x in v.type.shape), v.type.dtype) for v in self.graph.params]
        return [np.asarray((make or wild)(rng, t)) for make, t in zip(self.makes, types, strict=True)]

    def __repr__(self) -> str:
        return f"\n{self.graph}\n"


def wild(rng: np.random.Generator, t: ArrayType) -> np.ndarray:
    """Any array of this type, special values included."""
    if t.dtype == BOOL:
        return np.asarray(rng.random(t.shape) < 0.5)
    if t.dtype.kind in "iu":
        info = np.iinfo(t.dtype)
        small = rng.integers(0 if info.min == 0 else -3, 4, t.shape)
        extreme = rng.choice(np.array([info.min, info.max], t.dtype), t.shape)
        return np.where(rng.random(t.shape) < 0.2, extreme, small.astype(t.dtype))
    if t.dtype in COMPLEX:
        part = ArrayType(t.shape, F64)
        out = np.empty(t.shape, t.dtype)
        out.real, out.imag = wild(rng, part), wild(rng, part)
        return out
    plain = rng.normal(size=t.shape) * rng.choice([1.0, 100.0], t.shape)
    return np.where(rng.random(t.shape) < 0.3, rng.choice(SPECIAL, t.shape), plain).astype(t.dtype)


def outcome(g: Graph, args: list[np.ndarray]) -> list[np.ndarray] | None:
    """What g gives, or None where that is an error: an integer to a negative power, an index out of range."""
    try:
        return run(g, args)
    except ShapeError:
        raise
    except (ValueError, IndexError):
        return None


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal dtype, shape and bits, where any NaN is as good as another."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype in COMPLEX:
        return same_bits(a.real, b.real) and same_bits(a.imag, b.imag)
    if a.dtype not in FLOATS:
        return bool(np.array_equal(a, b))
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    unsigned = f"u{a.dtype.itemsize}"
    return bool(np.all((a.view(unsigned) == b.view(unsigned)) | (np.isnan(a) & np.isnan(b))))


class _Growth:
    """A program under construction: what there is so far, and the steps that add to it."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.random = random.Random(draw(st.integers(0, 2**32 - 1)))  # ops come evenly, simple or not
        self.builder = Builder(Scope(), "a random program")
        self.values: list[Ref] = []
        self.makes: list[Make | None] = []

    def pick(self, items):
        return self.draw(st.sampled_from(list(items)))

    def param(self, t: ArrayType, make: Make | None = None) -> Ref:
        self.makes.append(make)
        return self.keep(self.builder.param(t))

    def keep(self, x: Ref) -> Ref:
        self.values.append(x)
        return x

    def attempt(self, op: Op, *args: Ref, **attrs) -> None:
        """Add op's result, unless these operands do not fit it."""
        try:
            self.keep(op(*args, into=self.builder, **attrs))
        except (ShapeError, DTypeError):
            return

    # ---- steps ----------------------------------------------------------------------------------
    def pointwise(self) -> None:
        op, x = self.random.choice(POINTWISE), self.pick(self.values)
        alike = [v for v in self.values if v.shape == x.shape and v.dtype == x.dtype]
        number = max((len(e.operands) for e in op.examples), default=1)
        self.attempt(op, *(x, *(self.pick(alike) for _ in range(number - 1))))

    def against_constant(self) -> None:
        """x op c and c op x, with the numbers that identities speak of."""
        op, x = self.pick([TABLE[name] for name in ("add", "sub", "mul", "div", "max")]), self.pick(self.values)
        c = self.constant(x)
        self.attempt(op, *self.pick(((x, c), (c, x), (c, c))))

    def constant(self, like: Ref) -> Ref:
        inexact = like.type.is_inexact
        value = self.pick(SPECIAL if inexact else (0, 1) if like.dtype.kind in "bu" else (0, 1, -1))
        if like.dtype in COMPLEX:
            value = complex(value, self.pick(SPECIAL))
        kind = bool if like.dtype == BOOL else int if not inexact else type(value)
        return self.keep(TABLE["full"](into=self.builder, value=kind(value), shape=like.shape, dtype=like.dtype))

    def twice(self) -> None:
        """A unary op on itself: what cancels must cancel rightly."""
        name, x = self.pick(("neg", "bitwise_not", "abs", "conj")), self.pick(self.values)
        before = len(self.values)
        self.attempt(TABLE[name], x)
        if len(self.values) > before:
            self.attempt(TABLE[name], self.values[-1])

    def choose(self) -> None:
        x = self.pick(self.values)
        p = self.keep(TABLE["full"](into=self.builder, value=self.draw(st.booleans()), shape=x.shape, dtype=BOOL))
        p = self.pick([p, *(v for v in self.values if v.shape == x.shape and v.dtype == BOOL)])
        self.attempt(TABLE["select"], p, x, self.pick([v for v in self.values if v.shape == x.shape and v.dtype == x.dtype]))

    def convert(self) -> None:
        x = self.pick(self.values)
        back = x.dtype
        self.attempt(TABLE["convert"], x, dtype=self.pick(DTYPES))
        if self.draw(st.booleans()):
            self.attempt(TABLE["convert"], self.values[-1], dtype=self.pick((back, *DTYPES)))

    def transpose(self) -> None:
        x = self.pick(self.values)
        self.attempt(TABLE["transpose"], x, perm=tuple(self.draw(st.permutations(range(x.type.rank)))))

    def reshape(self) -> None:
        x = self.pick(self.values)
        self.attempt(TABLE["reshape"], x, shape=self.pick([(product(x.shape),), (1, *x.shape), (*x.shape, 1), x.shape]))

    def broadcast(self) -> None:
        x = self.pick(self.values)
        rank, at = x.type.rank, self.draw(st.integers(0, x.type.rank))
        new = self.pick((2, 1, symbol("n"), symbol("m") + 1))
        shape = (*x.shape[:at], new, *x.shape[at:])
        self.attempt(TABLE["broadcast"], x, shape=shape, axes=tuple(a + (a >= at) for a in range(rank)))

    def slice(self) -> None:
        x = self.pick(self.values)
        if not x.type.rank:
            return
        axis = self.draw(st.integers(0, x.type.rank - 1))
        size = x.shape[axis]
        start, step, length = self.pick(((0, 1, size), (size - 1, -1, size), (0, 1, 1)))
        self.attempt(TABLE["slice"], x, start=tuple(start if a == axis else 0 for a in range(x.type.rank)),
                     step=tuple(step if a == axis else 1 for a in range(x.type.rank)),
                     shape=tuple(length if a == axis else n for a, n in enumerate(x.shape)))

    def reduce(self) -> None:
        x = self.pick([v for v in self.values if v.type.rank] or self.values)
        axes = self.draw(st.sets(st.integers(0, max(x.type.rank - 1, 0)), min_size=1))
        self.attempt(TABLE[self.pick(("reduce_sum", "reduce_max", "reduce_min", "reduce_prod"))], x, axes=tuple(sorted(axes)))

    def example(self) -> None:
        """An op's own example on parameters of its own."""
        op = self.random.choice(WITH_EXAMPLES)
        example = self.random.choice(op.examples)
        types = [parse_type(text) for text in example.operands]
        params = [self.param(t, example.draw.get(k)) for k, t in enumerate(types)]
        self.attempt(op, *params, **example.attrs)

    STEPS = (pointwise, pointwise, pointwise, example, example, example, against_constant, against_constant, twice, choose,
             convert, transpose, reshape, broadcast, slice, reduce)


@st.composite
def programs(draw: st.DrawFn, most: int = 12) -> Program:
    """A program of up to `most` steps; some of its nodes are dead, some are twins."""
    growth = _Growth(draw)
    with np.errstate(all="ignore"), tracing(growth.builder, is_floor=True):
        for _ in range(draw(st.integers(1, 2))):
            dtype = growth.pick((F64, F64, F32, I32, I64, *DTYPES))
            growth.param(ArrayType(parse_type(f"f64[{growth.pick(SHAPES)}]").shape, dtype))
        for _ in range(draw(st.integers(1, most))):
            growth.pick(growth.STEPS)(growth)
        results = draw(st.lists(st.sampled_from(growth.values), min_size=1, max_size=3))
        results.append(growth.values[-1])
        used = {s for v in growth.values for x in v.shape for s in symbols_in(x)}
        for s in sorted(used | {"n", "m"}):  # every symbol is bound by some argument
            growth.makes.append(None)
            growth.builder.param(ArrayType((symbol(s),), BOOL))
        g, captured = growth.builder.finish(results)
    assert not captured
    return Program(g, tuple(growth.makes))
