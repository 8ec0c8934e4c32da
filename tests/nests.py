"""What a nest means, one element at a time with NumPy scalars: checks schedules without generating code."""
import dataclasses

import numpy as np

from loopwright.ir.dims import evaluate
from loopwright.ir.loop_interpreter import Environment, apply, evaluate_expr
from loopwright.ir.loops import Apply, Literal, Local, Reduce, transform
from loopwright.ir.monoids import COMBINING
from loopwright.ir.nest import Allocate, Contract, For, Let, Passes, Prefetch, Reduction, Scan, Store, While
from loopwright.ir.ops import TABLE
from loopwright.ir.types import BF16


def run_nest(nest, inputs, outputs, sizes):
    """Run on arrays; outputs are written in place. Every buffer is seen at the shape the nest gives it."""
    arrays = {b.name: a.reshape([evaluate(n, sizes) for n in b.shape])
              for b, a in zip(nest.buffers, [*inputs, *outputs], strict=True)}
    with np.errstate(all="ignore"):
        _run(nest.body, Environment(arrays, {}, sizes, {}))


def _run(statements, env):
    for s in statements:
        env = _statement(s, env)
    return env


def _statement(s, env):
    match s:
        case For():
            for i in _positions(s, env, s.step):
                _run(s.body, env.at(_named_positions(s, i, env)))
        case Store():
            _store(s, env)
        case Prefetch():
            pass  # changes no value
        case Let():
            return _named(env, s.name, evaluate_expr(s.value, env))
        case Allocate(buffer):
            row = np.full([evaluate(n, env.sizes) for n in buffer.shape], 77).astype(buffer.dtype)
            return dataclasses.replace(env, arrays={**env.arrays, buffer.name: row})
        case Reduction():
            for point in _points(s.over, env.sizes):
                _run(s.also, env.at(point))
            return _named(env, s.name, evaluate_expr(Reduce(s.monoid, s.over, s.body, s.dtype), env))
        case Scan():
            _scan(s, env)
        case While():
            return _while(s, env)
        case Contract():
            _contract(s, env)
        case Passes():
            _passes(s, env)
    return env


def _positions(block, env, step=1):
    low = 0 if block.origin is None else int(evaluate_expr(block.origin, env))
    end = evaluate(block.extent, env.sizes)
    return range(low, end if block.length is None else min(low + evaluate(block.length, env.sizes), end), step)


def _named_positions(block, i, env):
    """The index, and those of the loops whose positions it numbers."""
    at = np.unravel_index(i, [max(evaluate(n, env.sizes), 1) for _, n in block.of]) if block.of else ()
    return {block.index.name: i, **{k.name: int(x) for (k, _), x in zip(block.of, at, strict=True)}}


def _contract(s, env):
    def terms(blocks, env):
        if not blocks:
            halves = [_halves(x, env, s.dtype) for x in (s.left, s.right)] if s.pairs else [[x] for x in (s.left, s.right)]
            yield from [evaluate_expr(Apply("mul", both, s.dtype), env) for both in zip(*halves, strict=True)]
            return
        for i in _positions(blocks[0], env):
            yield from terms(blocks[1:], env.at({blocks[0].index.name: i}))
    keeps = s.fresh is not None and not evaluate_expr(s.fresh, env)
    for i in _positions(s.rows, env):
        for j in _positions(s.columns, env):
            here = env.at(_named_positions(s.rows, i, env) | _named_positions(s.columns, j, env))
            at = tuple(int(evaluate_expr(x, here)) for x in s.at)
            array = env.arrays[s.buffer]
            array[at] = sum(terms(s.over, here), array[at] if keeps else s.dtype.type(0))


def _passes(s, env):
    def whole(e):
        """e with products for their names."""
        sums = {p.buffer: _sum(p, p.left, p.right) for p in s.products}
        return transform(e, lambda x: sums.get(x.name) if isinstance(x, Local) else None)

    def _sum(p, left, right):
        return Reduce("sum", tuple([(k.index, k.extent) for k in p.over]), Apply("mul", (left, right), p.dtype), p.dtype)
    column = ((s.columns.index, s.columns.extent),)
    for i in _positions(s.rows, env):
        here = env.at(_named_positions(s.rows, i, env))
        for f in (f for folds in s.folds for f in folds):
            here = _named(here, f.name, evaluate_expr(Reduce(f.monoid, column, whole(f.body), f.dtype), here))
        if evaluate_expr(s.last.columns.origin, env) == 0:
            _run(s.numbers, here)
        for j in _positions(s.last.columns, env):
            there = here.at(_named_positions(s.last.columns, j, env))
            total = evaluate_expr(_sum(s.last, whole(s.last.left), s.last.right), there)
            _run(s.body, _named(there, s.last.buffer, total))


def _halves(word, env, dtype):
    """The two numbers of 16 bits in a word: integers, or bf16 for sums of floats."""
    both = np.array([evaluate_expr(word, env)], np.int32).view(np.int16 if dtype.kind == "i" else BF16)
    return [Literal(x.item(), dtype) for x in both.astype(dtype)]


def _named(env, name, value):
    return dataclasses.replace(env, locals={**env.locals, name: value})


def _while(s, env):
    def named(env, names, values):
        return dataclasses.replace(env, locals={**env.locals, **dict(zip(names, values, strict=True))})
    state = [evaluate_expr(e, env) for e in s.starts]
    while evaluate_expr(s.condition, here := named(env, s.names, state)):
        here = _run(s.body, here)
        state = [evaluate_expr(e, here) for e in s.following]
    return named(env, [e for e in s.ends if e], [x for x, e in zip(state, s.ends, strict=True) if e])


def _points(over, sizes):
    points = [{}]
    for k, n in over:
        points = [{**p, k.name: i} for p in points for i in range(evaluate(n, sizes))]
    return points


def _store(s, env):
    if s.when is not None and not evaluate_expr(s.when, env):
        return
    at = tuple(int(evaluate_expr(i, env)) for i in s.index)
    array, value = env.arrays[s.buffer], evaluate_expr(s.value, env)
    assert all(0 <= i < n for i, n in zip(at, array.shape, strict=True))
    assert value.dtype == array.dtype, (s.buffer, value.dtype, array.dtype)
    array[at] = value if s.combine == "set" else apply(TABLE[s.combine], [array[at], value], array.dtype)


def _scan(s, env):
    total = None
    for i in range(evaluate(s.extent, env.sizes)):
        here = env.at({s.index.name: i})
        value = evaluate_expr(s.body, here)
        total = value if total is None else apply(TABLE[COMBINING[s.monoid]], [total, value], s.dtype)
        env.arrays[s.buffer][tuple(int(evaluate_expr(x, here)) for x in s.at)] = total
