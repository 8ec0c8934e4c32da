"""Compiled code means what NumPy means: every op of the table from its examples, on every width of vectors; no op is named
here but those whose rounding has a looser bound.

Bounds: everything of integers and bools, and every op of floats that NumPy rounds correctly (arithmetic, comparisons,
conversions, square roots, moves of data), bit for bit but for the sign and payload of NaN. Elementary functions: 2 units in
the last place of the true value (NumPy's at the next wider dtype, then rounded). Complex numbers: 8 units of their
modulus. What adds up many numbers: the tolerances of the op tests, here; its accuracy is tested among the traps.
"""
from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import ml_dtypes
import numpy as np
import pytest

import loopwright as lw
from loopwright.ir.attributes import extents_in, map_extents
from loopwright.ir.builder import Ref, build
from loopwright.ir.dims import symbol, symbol_of, symbols_in
from loopwright.ir.errors import ShapeError
from loopwright.ir.op import Example, Op
from loopwright.ir.ops import TABLE, linalg, special
from loopwright.ir.ops.elementwise import same_shape
from loopwright.ir.parser import parse_type
from loopwright.ir.signature import ArrayLeaf, Result, ResultContainer, Signature, Version
from loopwright.ir.types import (
    BF16,
    BOOL,
    C128,
    COMPLEX,
    F16,
    F32,
    F64,
    I8,
    I32,
    I64,
    U16,
    ArrayType,
    is_float,
    is_inexact,
    is_integer,
)
from loopwright.lower.compile import Compiled, compile_version
from tests.test_ops import TOLERANCE, concrete, draw, symbols_of

MACHINES = {"host": {}, "avx2": {"LOOPWRIGHT_VECTOR_BITS": "256"},
            "sse2 without BLAS": {"LOOPWRIGHT_VECTOR_BITS": "128", "LOOPWRIGHT_BLAS": "none"}}
ELEMENTARY = {"arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "cbrt", "cos", "cosh", "erf", "exp",
              "exp2", "expm1", "hypot", "log", "log10", "log1p", "log2", "power", "sin", "sinh", "tan", "tanh"}
UNSIGNED_ZERO = {"max", "min", "fmax", "fmin"}  # which of 0.0 and -0.0 is larger depends on NumPy's vectors
MANY_TERMS = {"reduce_sum", "reduce_prod", "cumsum", "cumprod", "dot_general", "conv", "overlap_add", "scatter_add",
              "logaddexp", "logaddexp2"}  # these two add terms that may cancel
# Slow to compile, or LAPACK's own rounding: tests/test_special.py and tests/test_linalg.py compile them.
SPECIAL = {op.name for module in (special, linalg) for op in vars(module).values() if isinstance(op, Op)}
SORTS = {"sort", "argsort", "scatter_mul"}  # of complex numbers they are refused by name
TELLING = (BOOL, I8, U16, I32, I64, F16, F32, F64)
UNITS, COMPLEX_UNITS = 2, 8
WIDER = {F16: F64, BF16: F64, F32: F64, F64: np.dtype(np.longdouble)}


@pytest.fixture(params=MACHINES)
def machine(request, monkeypatch):
    for name, value in MACHINES[request.param].items():
        monkeypatch.setenv(name, value)
    return request.param


# ---- one version per op -----------------------------------------------------------------------------
@dataclass(frozen=True)
class Program:
    """All examples of an op as one compiled version: example k has the operands slots[k]; `told` tells other sizes."""

    examples: tuple[Example, ...]
    slots: tuple[slice, ...]
    told: tuple[str, ...]
    compiled: Compiled

    def __call__(self, operands: Sequence[Sequence[np.ndarray]], sizes: Mapping[str, int]) -> list[np.ndarray]:
        flat = [x for group in operands for x in group]
        return self.compiled.call((*flat, *[np.zeros(sizes.get(s, 1), I8) for s in self.told]), {})


def is_complex(e: Example) -> bool:
    return any(parse_type(text).dtype in COMPLEX for text in e.operands)


def is_telling(e: Example) -> bool:
    """What other machines run: one or two dtypes of every width, which are compiled alike."""
    return all(parse_type(text).dtype in TELLING and "1" not in text for text in e.operands)


@cache
def program(op: Op, machine: str) -> Program:
    """Examples of one name's symbols share them: all are called at the same sizes."""
    chosen = tuple([e for e in op.examples if machine == "host" or is_telling(e)])
    chosen = tuple([e for e in chosen if not (op.name in SORTS and is_complex(e))])
    groups = [[parse_type(text) for text in e.operands] for e in chosen]
    told = {symbol_of(n) for group in groups for t in group for n in t.shape}
    asked = {s for e in chosen for a in e.attrs.values() for n in extents_in(a) for s in symbols_in(n)}
    asked |= {s for group in groups for t in group for n in t.shape for s in symbols_in(n)}
    rest = tuple(sorted(asked - told))
    types = [t for group in groups for t in group] + [ArrayType((symbol(s),), I8) for s in rest or ("unused",)]
    ends = list(itertools.accumulate(map(len, groups), initial=0))
    slots = tuple(itertools.starmap(slice, itertools.pairwise(ends)))

    def rule(*refs: Ref) -> list[Ref]:
        return [op(*refs[slot], into=refs[-1].builder, **e.attrs) for e, slot in zip(chosen, slots, strict=True)]
    graph = build(rule, types)
    version = Version(op.name, Signature(tuple(map(ArrayLeaf, types))), graph, (),
                      ResultContainer("list", tuple(map(Result, range(len(graph.results))))))
    return Program(chosen, slots, rest or ("unused",), compile_version(version))


def test_complex_numbers_are_not_sorted():
    for sort in (np.sort, np.argsort):
        with pytest.raises(lw.DTypeError, match="complex"):
            lw.jit(lambda x, sort=sort: sort(x))(np.array([1j, 0]))


OPS = [pytest.param(op, id=name) for name, op in TABLE.items() if op.examples and name not in SPECIAL]
POINTWISE = [pytest.param(op, id=name) for name, op in TABLE.items() if op.shape is same_shape and name not in SPECIAL]


# ---- operands ---------------------------------------------------------------------------------------
SIZES = [(5, 17, 3, 4), (1, 1, 1, 1), (33, 2, 40, 1), (0, 3, 2, 2), (4, 0, 7, 9)]


def sized(op: Op, machine: str, sizes: Sequence[int]) -> tuple[Program, dict[str, int], list[list[ArrayType]]]:
    made = program(op, machine)
    names = sorted({s for e in made.examples for s in symbols_of(e)})
    at = dict(zip(names, sizes, strict=False))
    return made, at, [[concrete(parse_type(text), at) for text in e.operands] for e in made.examples]


def meaning(op: Op, e: Example, operands: Sequence[np.ndarray], at: Mapping[str, int]) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.asarray(op.numpy(*operands, **{k: map_extents(a, at) for k, a in e.attrs.items()}))


@pytest.mark.parametrize("op", OPS)
def test_examples_at_many_sizes(op, machine):
    rng = np.random.default_rng(0)
    for sizes in SIZES:
        made, at, types = sized(op, machine, sizes)
        if 0 in at.values() and not all(accepts(op, e, t, at) for e, t in zip(made.examples, types, strict=True)):
            continue
        operands = [[np.asarray(e.draw.get(k, draw)(rng, t)) for k, t in enumerate(group)]
                    for e, group in zip(made.examples, types, strict=True)]
        for e, given, got in zip(made.examples, operands, made(operands, at), strict=True):
            agree(op, e, given, np.asarray(got), meaning(op, e, given, at), f"{op} {e.operands} {dict(e.attrs)} at {at}")


def accepts(op: Op, e: Example, types: Sequence[ArrayType], at: Mapping[str, int]) -> bool:
    """Some ops refuse sizes of 0: the maximum of nothing."""
    try:
        op.result_types(types, (), {k: map_extents(a, at) for k, a in e.attrs.items()})
    except ShapeError:
        return False
    return True


COUNT = 24 * 24 + 37  # every pair of special values, then others, and no multiple of any vector


@pytest.mark.parametrize("op", POINTWISE)
def test_special_values_in_every_pair(op, machine):
    made, at, types = sized(op, machine, (COUNT, 2, 2))
    rng = np.random.default_rng(1)
    operands = [[np.asarray(e.draw.get(k, draw)(rng, t)) if is_drawn(op, k, t) else specials(t, k, len(group), rng)
                 for k, t in enumerate(group)] for e, group in zip(made.examples, types, strict=True)]
    for e, given, got in zip(made.examples, operands, made(operands, at), strict=True):
        agree(op, e, given, np.asarray(got), meaning(op, e, given, at), f"{op} {e.operands} {dict(e.attrs)}")


def is_drawn(op: Op, k: int, t: ArrayType) -> bool:
    """A negative exponent of integers is an error, which is tested by itself; complex numbers are plain ones."""
    return t.dtype in COMPLEX or (op.name == "power" and k == 1 and is_integer(t.dtype))


@np.errstate(all="ignore")
def specials(t: ArrayType, k: int, arity: int, rng: np.random.Generator) -> np.ndarray:
    """Operand k: its special values against every one of the others', then any bits."""
    values = special_values(t.dtype)
    repeats = len(values) ** max(min(arity, 2) - 1 - k, 0)
    count = int(np.prod(t.shape, dtype=int))
    head = np.resize(np.repeat(values, repeats), max(count - 37, 0))
    bits = rng.integers(0, 256, (count - len(head)) * t.dtype.itemsize).astype(np.uint8)
    tail = rng.integers(0, 2, count - len(head)).astype(bool) if t.dtype.kind == "b" else bits.view(t.dtype)
    return np.concatenate([head, tail]).reshape(t.shape)


def special_values(dtype: np.dtype) -> np.ndarray:
    if dtype.kind == "b":
        return np.array([False, True])
    if is_integer(dtype):
        info, bits = np.iinfo(dtype), 8 * dtype.itemsize
        near = [0, 1, 2, 3, 7, 10, bits - 1, bits, bits + 1, info.max, info.max - 1, info.max // 2, info.min, info.min + 1]
        return np.array(near + [-x for x in (1, 2, 3, 7, 10, bits)] * (info.min < 0), dtype)
    info = ml_dtypes.finfo(dtype)
    tiny, least, most = float(info.tiny), float(info.smallest_subnormal), float(info.max)
    above = [0.0, least, tiny / 2, tiny, 0.5, 1.0, 1.0 + float(info.eps), 1.5, 2.0, most, np.inf]
    return np.array([*above, np.nan, 3.0, *[-x for x in above]], dtype)


# ---- broadcasting and layouts -----------------------------------------------------------------------
SHAPES = [((7, 5), (5,)), ((7, 1), (1, 5)), ((), (4, 3)), ((3, 1, 2), (4, 1)), ((1,), (6,)), ((0, 3), (3,)), ((2, 3), (2, 3)),
          ((1, 1), ()), ((2, 1, 3, 1), (5, 1, 4)), ((33,), (33,))]
BINARY = [np.add, np.multiply, np.maximum, np.less, np.equal, np.logical_xor, np.true_divide, np.copysign]
REAL_ONLY = [np.maximum, np.less, np.copysign]
TYPED = ["bool", "int8", "uint16", "int32", "int64", "uint64", "float16", "float32", "float64", "complex64"]


def laid_out(x: np.ndarray, k: int) -> np.ndarray:
    """x by value in layout k: plain, reversed, strided, Fortran, byte-swapped, read-only, misaligned."""
    match k % 7:
        case 1:
            return np.flip(x).copy()[(..., *[slice(None, None, -1)] * x.ndim)]
        case 2:
            wide = np.zeros((*x.shape, 3), x.dtype)
            wide[..., 1] = x
            return wide[..., 1]
        case 3:
            return np.array(x, order="F")
        case 4:
            return x.astype(x.dtype.newbyteorder())
        case 5:
            x = x.copy()
            x.setflags(write=False)
        case 6:
            raw = np.zeros(x.nbytes + 1, np.uint8)[1:]
            raw[:] = np.frombuffer(x.tobytes(), np.uint8)
            return raw.view(x.dtype).reshape(x.shape)
    return x


@pytest.mark.parametrize("ufunc", BINARY, ids=lambda u: u.__name__)
def test_broadcast_shapes_dtypes_and_layouts(ufunc):
    """Through `jit`: each pair of shapes at pairs of dtypes, in any layout, all in one compile; then in other layouts."""
    f = lw.jit(lambda pairs: [ufunc(a, b) for a, b in pairs])
    rng = np.random.default_rng(0)
    pairs = []
    for k, (first, second) in enumerate([*SHAPES, *SHAPES]):
        a, b = TYPED[k % len(TYPED)], TYPED[(3 * k + k // len(TYPED)) % len(TYPED)]
        if "complex64" in (a, b) and ufunc in REAL_ONLY:
            continue
        pairs.append(tuple(draw(rng, ArrayType(s, np.dtype(d))) for s, d in ((first, a), (second, b))))
    with np.errstate(all="ignore"):
        expected = [ufunc(a, b) for a, b in pairs]
    for turn in (0, 3, 5):
        got = f([(laid_out(a, k + turn), laid_out(b, 3 * k + 2 * turn)) for k, (a, b) in enumerate(pairs)])
        for (a, b), x, y in zip(pairs, got, expected, strict=True):
            what = f"{ufunc.__name__} of {a.dtype}{a.shape} and {b.dtype}{b.shape}"
            assert x.dtype == y.dtype and x.shape == y.shape and type(x) is type(y), what
            np.testing.assert_array_equal(x, y, err_msg=what)
    assert f.compiles == 1


# ---- agreement --------------------------------------------------------------------------------------
def agree(op: Op, e: Example, operands: Sequence[np.ndarray], got: np.ndarray, want: np.ndarray, what: str) -> None:
    assert got.dtype == want.dtype and got.shape == want.shape, f"{what}: {got.dtype}{got.shape}, not {want.dtype}{want.shape}"
    if op.name in MANY_TERMS and is_inexact(want.dtype):
        tolerance, wide = TOLERANCE[want.dtype], C128 if want.dtype in COMPLEX else F64
        np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=tolerance, atol=tolerance, err_msg=what)
    elif want.dtype in COMPLEX or (is_float(want.dtype) and any(x.dtype in COMPLEX for x in operands)):
        with np.errstate(all="ignore"):
            near = np.abs(got - want) <= COMPLEX_UNITS * np.finfo(want.dtype).eps * np.abs(want)
        equal = all_parts(as_bits(parts(got)) == as_bits(parts(want)), want)
        assert np.all(near | equal), f"{what}: got {got}, NumPy {want}"
    elif op.name in ELEMENTARY and is_float(want.dtype):
        with np.errstate(all="ignore"):
            true = meaning(op, e, [x.astype(WIDER[want.dtype]) for x in operands], {}).astype(want.dtype)
        far = units(got, true)
        worst = int(np.argmax(far)) if far.size else 0
        assert not far.size or far.flat[worst] <= UNITS, (
            f"{what}: {far.flat[worst]} units at {[x.flat[worst] for x in operands]}: got {got.flat[worst]!r}, "
            f"true {true.flat[worst]!r}, NumPy {want.flat[worst]!r}")
        zero = (got == 0) & (want == 0)
        np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]), err_msg=f"{what}: signs of zeros")
    else:
        differs = as_bits(got) != as_bits(want)
        if op.name in UNSIGNED_ZERO:
            differs &= (got != 0) | (want != 0)
        worst = int(np.argmax(differs)) if differs.size else 0
        assert not differs.any(), (
            f"{what}: {np.sum(differs)} elements differ, the first of {[x.flat[worst] for x in operands if x.size > worst]}: "
            f"got {got.flat[worst]!r}, NumPy {want.flat[worst]!r}")


def parts(x: np.ndarray) -> np.ndarray:
    """Real and imaginary parts along a last axis."""
    return np.stack([x.real, x.imag], axis=-1) if x.dtype in COMPLEX else x[..., None]


def all_parts(equal: np.ndarray, like: np.ndarray) -> np.ndarray:
    return np.all(equal, axis=-1).reshape(like.shape)


def as_bits(x: np.ndarray) -> np.ndarray:
    """Bits, with one NaN."""
    if not is_float(x.dtype):
        return x
    x = np.array(x)
    x[np.isnan(x)] = np.nan
    return x.view(f"i{x.dtype.itemsize}")


def units(got: np.ndarray, true: np.ndarray) -> np.ndarray:
    """How many floating-point numbers lie between; NaN is far from everything but NaN."""
    def ordered(x: np.ndarray) -> np.ndarray:
        bits = x.view(f"i{x.dtype.itemsize}").astype(np.int64)
        return np.where(bits < 0, np.int64(np.iinfo(f"i{x.dtype.itemsize}").min) - bits, bits)
    a, b = ordered(got), ordered(true)
    opposite = (a < 0) != (b < 0)
    distance = np.where(opposite, np.abs(a.astype(float)) + np.abs(b.astype(float)), np.abs(a - b).astype(float))
    nans = np.isnan(got).astype(int) + np.isnan(true)
    return np.where(nans == 2, 0.0, np.where(nans == 1, np.inf, distance))
