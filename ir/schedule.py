"""Schedules as data: the decisions that turn a kernel's region into a loop nest, one instruction each.

A region's nodes are its stages, numbered in order. Unscheduled, every stage is a loop nest of its own over its result's
axes (and then over its reduction's indices) into an array of its own; the root is the stage of the region's first
result. A schedule is a tuple of instructions; each says what it needs, and `lower.scheduling` checks it before doing it.
Those for a GPU alone are in `gpu_schedule`.
"""
from __future__ import annotations

import dataclasses
import json
from typing import Any, get_args

from loopwright.ir.dataclass import dataclass
from loopwright.ir.gpu_schedule import Bind, ByOwner, InAnyOrder, InPasses, InRegisters, InShared, InTiles, Threads


@dataclass(frozen=True)
class Inline:
    """Compute `stage` anew wherever it is read.

    before: for i: t[i] = x[i] + 1;  for i: y[i] = t[i] * 2        after: for i: y[i] = (x[i] + 1) * 2
    """

    stage: int


@dataclass(frozen=True)
class ComputeAt:
    """Compute `stage` inside the root's loops, below the first `level` of them, which are its own leading axes.

    A stage with no axes left there is one value; else it is a local row. With `within`, the row is filled inside the
    loop of that reduction stage, which reads it first.
    before: for i: m[i] = max(x[i, :]);  for i, j: y[i, j] = x[i, j] - m[i]
    after (level 1): for i: { m = max(x[i, :]);  for j: y[i, j] = x[i, j] - m }
    """

    stage: int
    level: int
    within: int | None = None


@dataclass(frozen=True)
class Fuse:
    """Make one loop of `count` loops of `stage` from `loop` on, which every access keeps together; of other stages' loops
    that index the same arrays in their place, another. Loops count as in Vectorize; those of the root's axes and of a
    reduction do not mix.

    before: for i < n: for j < m: y[i, j] = x[i, j]                after: for f < n*m: y[f] = x[f]
    """

    stage: int
    loop: int
    count: int


@dataclass(frozen=True)
class Vectorize:
    """Run `loop` of `stage` `lanes` at a time. Loops count the stage's axes, then its reduction's indices, before any
    Fuse; only the last of either may be vectorised (of the root's axes that which is last before an Interleave; that along
    which a fold runs, where the order of its elements makes no difference).

    before: for i: y[i] = x[i] + 1                                 after: for i by 16: y[i:i+16] = x[i:i+16] + 1
    """

    stage: int
    loop: int
    lanes: int


@dataclass(frozen=True)
class Unroll:
    """Keep `factor` vectors of the vectorised loop of `stage` in flight; for a reduction, as many accumulators.

    before: for i by 16: s += x[i:i+16]        after: for i by 32: s0 += x[i:i+16]; s1 += x[i+16:i+32]
    """

    stage: int
    factor: int


@dataclass(frozen=True)
class Interleave:
    """Store every position of the root's last axis, of a small constant size, in one step of the loops before it.

    before: for i: for k < 2: y[i, k] = a[i] if k < 1 else b[i]    after: for i: { y[i, 0] = a[i];  y[i, 1] = b[i] }
    """


@dataclass(frozen=True)
class Split:
    """Go through `loop` in blocks of `size`. Loops have the names of their indices: i0, i1, ... for the root's axes, of those
    fused i0_i1; the loop from block to block is then i0_by64.

    before: for i < n: body                        after: for I < n by 64: for i in I...min(I+64, n): body
    """

    loop: str
    size: int


@dataclass(frozen=True)
class Reorder:
    """Put loops that are directly inside one another into this order, from the outside.

    before: for i: for j: body                                     after: for j: for i: body
    """

    loops: tuple[str, ...]


@dataclass(frozen=True)
class Distribute:
    """Go through `loop` in blocks of `size`, in which every inner loop, and what stands between two of them, has a loop of its
    own, with a numbered index. Rows and numbers that later ones read are kept for a whole block.

    before: for i: { for j: t[j] = f(i, j);  s = sum(t[:]);  for j: y[i, j] = t[j] / s }
    after:  for I by 64: { for i_0 in I...I+64: for j: t[i_0-I, j] = f(i_0, j);
                           for i_1 in I...I+64: s[i_1-I] = sum(t[i_1-I, :]);
                           for i_2 in I...I+64: for j: y[i_2, j] = t[i_2-I, j] / s[i_2-I] }
    """

    loop: str
    size: int


@dataclass(frozen=True)
class Tensorize:
    """Make the sum of products `stage` in registers: `heights[0]` rows by `columns` columns in `lanes`, where rows are left of
    the next heights; `depth` terms at a time, so that the columns' factors stay in the first cache. It stands in a loop over a
    block of rows and, inside, one over a block of columns; what follows it has lanes, and `unroll` vectors in flight. pairs: a
    sum in i32 of products of integers of at most 16 bits, or in f32 of bf16, goes two terms at a time, `depth` such pairs.
    unit "amx": a sum in f32 is made by the processor's tile unit, of three bf16 for each number, or, in pairs, of bf16 as they
    are, `depth` terms at a time; tiles are 32 by 32.

    The last of `heights` is 1, or all tiles are as high as the lowest of `heights` with which there are no more of them than
    with the first: rows past the end are made, too, of zeros.

    before: for i in I...I+168: for j in J...J+512: { s = sum(a[i, :] * b[:, j]);  y[i, j] = f(s) }
    after:  for K by 256: for j0 in J... by 32: for i in I... by 14: t[i-I, j-J] += a[i, K:K+256] @ b[K:K+256, j]
            for i in I...I+168: for j in J...J+512 by 16: y[i, j:j+16] = f(t[i-I, j-J:j-J+16])
    """

    stage: int
    heights: tuple[int, ...]
    columns: int
    lanes: int
    depth: int
    unroll: int = 1
    pairs: bool = False
    unit: str = ""


@dataclass(frozen=True)
class Pack:
    """Copy what a tensorized product reads on one `side`, left (rows) or right (columns), inside `loop`, in the order in which
    its tiles read it; what computes those elements is done on the way.

    before: for J by 512: for I by 168: for K: for j0: t += a[...] @ b[...]
    after:  for J by 512: { p[...] = b[:, J:J+512];  for I by 168: for K: for j0: t += a[...] @ p[...] }      (right, J)

    Inside a loop around that over the columns' blocks, the right side is copied for all of them; inside no loop (""), once;
    inside that over blocks of terms, for a block of both. For a unit both sides are divided into parts (`nest.Parts`); the left
    one may be so inside the loop over blocks of rows, if all that this one holds is a loop over a block of other rows whose
    windows share them (lines of an image), with all terms:

    before: for Y by 8: for I by 256: for y in Y...Y+8: for K: for j0: t += x[y + ky, ...] @ p[...]
    after:  for Y by 8: for I by 256: { q[...] = x[Y:Y+10, ...];
                                        for y in Y...Y+8: for K: for j0: t += q[y-Y + ky, ...] @ p[...] }

    Where the loop holds several products, `product` is the stage of one.
    """

    side: str
    loop: str
    product: int | None = None


@dataclass(frozen=True)
class Skip:
    """Go past the blocks of a tensorized and packed product `stage` that masks leave out: where all of a block's sums are
    replaced by something else in whatever reads them, and where all terms of one side are zeros that a mask makes, while the
    other side is finite, which is found out first.

    before: for j0 by 64: t += a[...] @ p[...];  for i: for j: y[i, j] = select(j <= i, t[i, j], -inf)
    after:  for j0 by 64: if j0 <= I+29: t += a[...] @ p[...];  for i: for j: y[i, j] = select(j <= i, t[i, j], -inf)
    """

    stage: int


@dataclass(frozen=True)
class Parallel:
    """Let the pool share out the root's outermost loop, or loops by name.

    before: for i: body                                            after: parallel for i: body
    """

    loops: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rfactor:
    """Where the reduction `stage` stands in no loop, let the pool share out its points: blocks of them are folded each by
    itself, then what they gave. Few points are folded as they are.

    before: for k < n: s += x[k]
    after:  parallel for K by B: { t[K/B] = 0;  for k in K...min(K+B, n): t[K/B] += x[k] };  for K by B: s += t[K/B]
    """

    stage: int


@dataclass(frozen=True)
class PrefetchRow:
    """While the reduction `stage` runs over a row, ask the caches for the next row of all that has been read of this one, for
    one further on where nothing else goes over rows; the root's loop over a row, if it has one, asks for its own next row.

    before: for i: { s = sum(x[i, :]);  for j: y[i, j] = ... }
    after:  for i: { s = sum(x[i, :]), prefetching x[i+1, :];  for j: { prefetch y[i+1, j];  y[i, j] = ... } }
    """

    stage: int


@dataclass(frozen=True)
class ByRows:
    """Where lanes run along the root's only loop and reductions are loops inside, go through what is reduced row by row, with
    the accumulators of a stripe of the root in cache.

    before: for j by 16: { s = 0;  for i: s += x[i, j:j+16];  y[j:j+16] = s }
    after:  for J by 2048: { t[:] = 0;  for i: for j in J...J+2048 by 16: t[j:j+16] += x[i, j:j+16];  for j: y[j] = t[j] }
    """


@dataclass(frozen=True)
class ShortRows:
    """Where the rows that the outermost loop goes past have fewer than `below` elements, run that loop `lanes` at a time, with
    what is done for a row in loops inside, which keep nothing of it. Which it is, is asked at run time. A loop that does more
    than fold rows and go through them is left as it is.

    before: for i: { m = max(x[i, k] for k by 16);  for j by 16: y[i, j:j+16] = x[i, j:j+16] - m }
    after:  if n < 16: for i by 16: { m = max(x[i:i+16, k] for k);  for j: y[i:i+16, j] = x[i:i+16, j] - m }
            else: as before
    """

    lanes: int
    below: int


@dataclass(frozen=True)
class FewColumns:
    """Where the root's last axis, of symbolic size, has at most 8 positions, for a symbol from 1 to 4, store them all in one
    step of the loops before it, of which the last has `lanes`, with `unroll` vectors in flight, and fills a good part of one;
    where it is known to have as few, the last axis of what is read may be the symbolic one. Which size it is, is asked at run
    time.

    before: for i < m: for k < n: y[i, k] = x[i, n - 1 - k]
    after:  if n == 2 and m >= 4: for i < m by 16: { y[i:i+16, 0] = x[i:i+16, 1];  y[i:i+16, 1] = x[i:i+16, 0] }
            else if n == 3 and m >= 4: ...
            else: as before
    """

    lanes: int
    unroll: int


@dataclass(frozen=True)
class FewSteps:
    """Where the last axis of `operand`, of symbolic size, has at most 8 positions, for a symbol from 1 to 4, do the same with
    its size known: lanes that step over it load all of it. Which size it is, is asked at run time.

    before: for i by 16: y[i:i+16] = x[i:i+16, 0], one by one
    after:  if n == 2: for i by 16: y[i:i+16] = x[i:i+16, 0:2][:, 0]
            else if n == 3: ...
            else: as before
    """

    operand: int


@dataclass(frozen=True)
class FewTerms:
    """Where the sizes of a convolution's sum, that of `stage`, are symbols and turn out to be those of a little window of few
    features, spell the sum out: lanes run along the root's last axis, with `unroll` vectors and `factor` positions of the loop
    before it in flight. Which sizes these are, is asked at run time.

    before: for rows and columns in tiles: y[i, j] = sum(x[i + k, c] * w[k, c, j] for k < m for c < n)
    after:  if n == 3 and m == 3: for i by 6: for j by 64: y[i:i+6, j:j+64] = x[i:i+6, 0] * w[0, 0, j:j+64] + ...
            else if n == 3 and m == 5: ...
            else: as before
    """

    stage: int
    lanes: int
    unroll: int
    factor: int


@dataclass(frozen=True)
class FewInRows:
    """Where the last axis of what is folded to one number a row, of symbolic size, turns out to have 2 to 4 positions, do the
    same with its size known, by a schedule that the rules write for that: lanes run from row to row. Which size it is, is asked
    at run time.

    before: for i < m: { s = 0;  for k < n by 16, masked: s += x[i, k];  y[i] = s }
    after:  if n == 2: for i by 16: y[i:i+16] = x[i:i+16, 0] + x[i:i+16, 1]
            else if n == 3: ...
            else: as before
    """


@dataclass(frozen=True)
class FewUpdates:
    """Where the root is a scatter that combines rows, of symbolic size, with what is there, and these turn out to have 1 to 8
    elements, or 16, do the same with their size known, in one vector of as few lanes as hold it, or some at once: what was
    stored under a mask is slow to read back, with all that it may have covered. Which size it is, is asked at run time.

    before: for k: for j by 16, masked: y[t[k], j] += v[k, j]
    after:  if n == 1: for k: y[t[k], 0] += v[k, 0]
            else if n == 2: for k: y[t[k], 0:2] += v[k, 0:2]
            else if n == 3: for k: for j by 4, masked: y[t[k], j] += v[k, j]
            else if n == 4: ...
            else: as before
    """


@dataclass(frozen=True)
class ByColumns:
    """Where the root's only axis, of symbolic size, across which folds go, turns out to have 2 to 4 positions, fold for each of
    them by itself, with lanes along the fold, by a schedule that the rules write for that. So where the last axis of what is
    folded to a number has 2 to 8, or that of rows which are added up along the root's loops (`AddAlong`), whose sums are then
    made apart. Which size it is, is asked at run time.

    before: for j < n by 16: { s = 0;  for i: s += x[i, j:j+16];  y[j:j+16] = s }
    after:  if n == 2: { s = t = 0;  for i by 16: { s += x[i:i+16, 0];  t += x[i:i+16, 1] };  y[0] = sum(s);  y[1] = sum(t) }
            else if n == 3: ...
            else: as before
    before: s = 0;  for i, j: s += x[i, j] * w[j]
    after:  if m == 2: { s = 0;  for i by 16: s += x[i:i+16, 0] * w[0] + x[i:i+16, 1] * w[1] }
            else if m == 3: ...
    before: for i, j: { y[i, j] = e[i, j];  p[i // 32, j] += e[i, j] }
    after:  if m == 2: { for i by 16: y[i:i+16, 0:2] = e[i:i+16, 0:2];  for I: p[I, 0] = sum(y[32*I + k, 0] for k < 32); ... }
            else if m == 3: ...
    """


@dataclass(frozen=True)
class Squeeze:
    """Where the size of an innermost loop, of a fold, of what lies side by side in memory, or of the loop that threads share
    out, is a symbol and turns out to be 1, do the same without all axes of one element, by a schedule that the rules write for
    that. Which sizes these are, is asked at run time.

    before: for i < n: for j < m: y[i, j] = x[i, m - 1 - j]
    after:  if m == 1: for i by 16: y[i:i+16] = x[i:i+16]
            else: as before
    before: for j by 16: { s = 0;  for i < n: s += x[i, j:j+16];  y[j:j+16] = s }
    after:  if m == 1: { s = 0;  for i by 64: s += x[i:i+64];  y = sum(s) }
            else if n == 1: for j by 16: y[j:j+16] = x[j:j+16]
            else: as before
    """


@dataclass(frozen=True)
class AddAlong:
    """Add `stage`, whose elements are sums of blocks of the root's rows, or of products over all of them, up in the root's own
    loops, which go past all that it reads.

    before: for i, j: y[i, j] = e[i, j];  for I, j: p[I, j] = sum(e[32*I + k, j] for k < 32)
    after: for i, j: { y[i, j] = e[i, j];  p[i // 32, j] += e[i, j] }
    before: for i, j: y[i, j] = f(x[i, :], j);  for k, j: p[k, j] = sum(x[i, k] * z[i, j] for i)
    after: p[:] = 0;  for i: { for j: y[i, j] = f(x[i, :], j);  for k, j: p[k, j] += x[i, k] * z[i, j] }
    """

    stage: int


@dataclass(frozen=True)
class OnePass:
    """Fold reduction `stage` in the loops of the reduction that is kept just before it, on which it does not depend.

    before: for k: s += x[i, k];  for k: t += x[i, k] * y[k]       after: for k: { s += x[i, k];  t += x[i, k] * y[k] }
    """

    stage: int


@dataclass(frozen=True)
class Tiles:
    """Go through the root's last two loops in square tiles of as many lanes as the last has, where an array is read across
    them: it is read along its own last axis, and transposed in registers.

    before: for i: for j by 16: y[i, j:j+16] = x[j, i], x[j+1, i], ...
    after:  for I by 16: for j by 16: { t = x[j:j+16, I:I+16].T;  for i in I...I+16: y[i, j:j+16] = t[i-I] }
    """


@dataclass(frozen=True)
class Jam:
    """Make `factor` positions at once of the loop whose body is the root's loop of vectors: folds there go past their points
    once for all, and read once what is the same for all. Positions whose windows leave an array are made one by one.

    before: for i: for j by 16: y[i, j] = sum(x[i + k, j] * w[k, j] for k)
    after:  for i by 2: for j by 16: { for k: { s += x[i + k, j] * w[k, j];  t += x[i + 1 + k, j] * w[k, j] }
                                       y[i, j] = s;  y[i + 1, j] = t }
    """

    factor: int


@dataclass(frozen=True)
class InRuns:
    """Where the root is a scatter that combines, do updates of one element, or row, that come one after another together: what
    is there is read before the first, and stored after the last.

    before: for k: for j by 16: y[t[k], j:j+16] += v[k, j:j+16]
    after:  for k, e, where t[k] == ... == t[e-1]: for j by 16: { s = y[t[k], j:j+16];  for q in k...e: s += v[q, j:j+16];
            y[t[k], j:j+16] = s }
    """


@dataclass(frozen=True)
class InPlace:
    """Let result number `output` lie in the bytes of the region's parameter number `operand`: the caller gives the same buffer
    for both. A root that updates a copy of the parameter then updates the parameter itself; elsewhere each element is read
    before it is stored, and not afterwards. Nothing may read what a store may have changed.

    before: for i: y[i] = x[i];  y[k] = v                          after: x[k] = v
    before: for i: y[i] = x[i] * 2                                 after: for i: x[i] = x[i] * 2
    """

    operand: int
    output: int = 0


@dataclass(frozen=True)
class ParallelUpdates:
    """Let the threads share out the updates of the root, which is a scatter, by the rows that they go to: each looks at all
    updates, and does those of its rows, in their order.

    before: for k: y[t[k]] += v[k]
    after:  in parallel, for owners w: for k, where w owns t[k]: y[t[k]] += v[k]
    """


Instruction = Inline | ComputeAt | Fuse | Vectorize | Unroll | Interleave | Split | Reorder | Distribute | Tensorize | Pack \
    | Skip | Parallel | Rfactor | PrefetchRow | ByRows | ShortRows | FewColumns | FewSteps | FewTerms | FewInRows \
    | FewUpdates | ByColumns | Squeeze | AddAlong | OnePass | Tiles | Jam | InRuns | InPlace | Threads | Bind | InShared \
    | InRegisters | InTiles | InPasses | ByOwner | InAnyOrder | ParallelUpdates
Schedule = tuple[Instruction, ...]
_KINDS: dict[str, type[Instruction]] = {kind.__name__: kind for kind in get_args(Instruction)}


def to_json(schedule: Schedule) -> str:
    """A schedule as JSON text: a list of [name, fields]."""
    return json.dumps([[type(x).__name__, dataclasses.asdict(x)] for x in schedule])


def from_json(text: str) -> Schedule:
    """The schedule that `to_json` wrote. ValueError for an instruction that is not known, and for what is none."""
    return tuple(map(_instruction, json.loads(text)))


def _instruction(part: Any) -> Instruction:
    if not (isinstance(part, list) and len(part) == 2 and isinstance(part[0], str) and isinstance(part[1], dict)):
        raise ValueError(f"{part!r} is no schedule instruction, which is its name and its fields")
    name, fields = part
    if name not in _KINDS:
        raise ValueError(f"unknown schedule instruction {name!r}; known: {', '.join(_KINDS)}")
    try:
        return _KINDS[name](**_tuples(fields))
    except TypeError as error:
        raise ValueError(f"schedule instruction {name}: {error}") from error


def _tuples(fields: dict[str, Any]) -> Any:
    """JSON has lists where instructions have tuples."""
    return {name: tuple(x) if isinstance(x, list) else x for name, x in fields.items()}
