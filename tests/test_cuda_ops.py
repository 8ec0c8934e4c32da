"""The CUDA text of every op that has a loop rule means what NumPy means: run by the emulator, from the ops' examples.

Bounds are those of tests/test_compiled_ops.py: what NumPy rounds correctly bit for bit, elementary functions to 2 units.
"""
import itertools
from functools import cache

import numpy as np
import pytest

from loopwright.ir.attributes import extents_in
from loopwright.ir.builder import build
from loopwright.ir.dims import symbol, symbol_of, symbols_in
from loopwright.ir.expansion import expanded
from loopwright.ir.op import Op
from loopwright.ir.ops import TABLE, linalg, special
from loopwright.ir.ops.elementwise import same_shape
from loopwright.ir.parser import parse_type
from loopwright.ir.types import COMPLEX, I8, ArrayType
from loopwright.lower.cuda import lower_cuda
from tests.devices import require_device
from tests.emulator import FORWARD, ORDERS
from tests.emulator.programs import compiled, run_program
from tests.scale import SCALE
from tests.test_compiled_ops import SIZES, SORTS, accepts, agree, is_complex, is_drawn, is_telling, meaning, specials
from tests.test_ops import concrete, draw, symbols_of

SLOW = {op.name for op in vars(special).values() if isinstance(op, Op)}  # to compile: a few, below
LIBRARY = {op.name for op in vars(linalg).values() if isinstance(op, Op)}
NAMES = [name for name, op in TABLE.items() if op.examples and op.loop is not None and name not in SLOW | LIBRARY]
TOGETHER = 8  # ops in one source


def examples_of(op):
    found = [e for e in op.examples if is_telling(e) or not is_complex(e)]
    return [e for e in found if not (op.name in SORTS and is_complex(e))]


@cache
def program(names):
    """All examples of some ops as one program, and which operands each has."""
    cases = [(TABLE[name], e) for name in names for e in examples_of(TABLE[name])]
    groups = [[parse_type(text) for text in e.operands] for _, e in cases]
    told = {symbol_of(n) for group in groups for t in group for n in t.shape}
    asked = {s for _, e in cases for a in e.attrs.values() for n in extents_in(a) for s in symbols_in(n)}
    asked |= {s for group in groups for t in group for n in t.shape for s in symbols_in(n)}
    rest = sorted(asked - told) or ["unused"]
    types = [t for group in groups for t in group] + [ArrayType((symbol(s),), I8) for s in rest]
    ends = list(itertools.accumulate(map(len, groups), initial=0))
    slots = [slice(*x) for x in itertools.pairwise(ends)]

    def rule(*refs):
        return [op(*refs[slot], into=refs[-1].builder, **e.attrs) for (op, e), slot in zip(cases, slots, strict=True)]
    made = lower_cuda(expanded(build(rule, types)), {"n": 5, "m": 17})
    return cases, groups, rest, made, compiled(made)


def results(names, operands, at, order):
    _, _, rest, made, emulator = program(names)
    flat = [x for group in operands for x in group] + [np.zeros(at.get(s, 1), I8) for s in rest]
    return run_program(made, emulator, flat, at | {s: at.get(s, 1) for s in rest}, order)


@np.errstate(all="ignore")
def compared(names, operands, at, order):
    cases = program(names)[0]
    for (op, e), given, got in zip(cases, operands, results(names, operands, at, order), strict=True):
        want = meaning(op, e, given, at)
        got = got.view(want.dtype)[..., 0] if want.dtype in COMPLEX else got
        agree(op, e, given, np.asarray(got), want, f"{op} {e.operands} {dict(e.attrs)} at {at}, order {order}")


CHUNKS = [tuple(NAMES[k:k + TOGETHER]) for k in range(0, len(NAMES), TOGETHER)]


@pytest.mark.parametrize("names", CHUNKS, ids=lambda names: names[0])
def test_examples_at_many_sizes_in_three_orders(names):
    require_device()
    rng = np.random.default_rng(0)
    cases, groups, *_ = program(names)
    symbols = sorted({s for _, e in cases for s in symbols_of(e)})
    for k, sizes in enumerate(SIZES):
        at = dict(zip(symbols, sizes, strict=False))
        types = [[concrete(t, at) for t in group] for group in groups]
        if 0 in at.values() and not all(accepts(op, e, t, at) for (op, e), t in zip(cases, types, strict=True)):
            continue
        operands = [[np.asarray(e.draw.get(j, draw)(rng, t)) for j, t in enumerate(group)]
                    for (_, e), group in zip(cases, types, strict=True)]
        for order in ORDERS if SCALE > 1 else ORDERS[k % 3:k % 3 + 1]:
            compared(names, operands, at, order)


def one_nan(x: np.ndarray) -> np.ndarray:
    """Half floats with NumPy's NaN in the place of any: a GPU makes one of all, and keeps its sign."""
    return np.where(np.isnan(x), np.copysign(np.float16(np.nan), x), x) if x.dtype == np.float16 else x


POINTWISE = [chunk for chunk in CHUNKS if all(len(TABLE[name].examples[0].operands) for name in chunk)]


@pytest.mark.parametrize("names", POINTWISE, ids=lambda names: names[0])
def test_special_values_in_every_pair(names):
    require_device()
    rng = np.random.default_rng(1)
    cases, groups, *_ = program(names)
    at = {s: 613 if s == "n" else 2 for s in sorted({s for _, e in cases for s in symbols_of(e)})}
    operands = []
    for (op, e), group in zip(cases, groups, strict=True):
        types = [concrete(t, at) for t in group]
        drawn = op.shape is not same_shape or any(
            k in e.draw or is_drawn(op, k, t) or t.shape != types[0].shape for k, t in enumerate(types))
        operands.append([np.asarray(e.draw.get(k, draw)(rng, t)) if drawn else one_nan(specials(t, k, len(types), rng))
                         for k, t in enumerate(types)])
    compared(names, operands, at, FORWARD)
