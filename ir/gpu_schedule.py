"""Schedule instructions for a GPU alone: what its blocks, warps and threads share out, and where they keep what they read."""
from __future__ import annotations

from loopwright.ir.dataclass import dataclass

BLOCK, THREAD_X, THREAD_Y = "blockIdx.x", "threadIdx.x", "threadIdx.y"


@dataclass(frozen=True)
class Threads:
    """For a GPU: blocks have x by y threads, of which 32 after one another along x, then y, are a warp.

    before: for i: body                                            after: for each block of x * y threads: for i: body
    """

    x: int
    y: int = 1


@dataclass(frozen=True)
class Bind:
    """Share out `loop` of `stage`, counted as in Vectorize, among the blocks or threads along `axes`, of BLOCK, THREAD_X and
    THREAD_Y. Loops directly inside each other with the same axes are shared out as one; a reduction's are combined, in
    registers of a warp and shared memory of a block; between blocks in a second kernel. Lanes of a reduction along THREAD_Y
    are columns: a thread folds so many neighbours; rows that are unrolled are read before the first is folded. A running fold's
    are gone through once for what parts come to, and in a second kernel from what comes before each.

    before: for i: y[i] = x[i] + 1
    after (BLOCK, THREAD_X): i = blockIdx.x * blockDim.x + threadIdx.x;  y[i] = x[i] + 1
    before: for i: { s = 0;  for k: s += x[i, k];  y[i] = s }
    after (BLOCK; and THREAD_X for k): i = blockIdx.x;  s = 0;  for k from threadIdx.x by blockDim.x: s += x[i, k];
        s = the sum of s over the block;  if threadIdx.x == 0: y[i] = s
    """

    stage: int
    loop: int
    axes: tuple[str, ...]


@dataclass(frozen=True)
class InShared:
    """Keep the local row of `stage` in the memory that the threads of a block share.

    before: t = row in cache;  for j: t[j] = exp(x[i, j])
    after:  __shared__ t;  for j from threadIdx.x by blockDim.x: t[j] = exp(x[i, j]);  wait for the block
    """

    stage: int


@dataclass(frozen=True)
class InRegisters:
    """Keep a row that several passes read, a stage's (t3) or a parameter's (x0), in registers of the threads that share out
    its passes, `each` elements a thread. What is left of longer rows is computed or read anew in each pass.

    before: s = max(x0[i, :]);  for j: y[i, j] = x0[i, j] - s
    after:  r = the elements of x0[i, :] that are this thread's;  s = the max of r over the block;  for each of r: y = r - s
    """

    row: str
    each: int


@dataclass(frozen=True)
class InTiles:
    """Make the sum of products `stage` for tiles of `rows` by `columns`, one to each block: its threads copy `depth` terms of
    both sides to shared memory at a time, while they multiply those before, and have their share of the sums in registers. All
    the root's loops are bound to blocks, with the sum, and stores, inside them: rows are those that one side alone depends on,
    columns those of the other, the last loop among them. unit "mma": warps multiply 16 by 16 by 8 numbers at once, f16 or bf16
    with sums in f32; half as many warps as there are, side by side, have the upper rows of a tile, the others the lower.
    stages: copies of a depth; with more than two, what is only copied is on its way for all but two of them while one is
    multiplied.

    before: for i: for j: { s = sum(a[i, :] * b[:, j]);  y[i, j] = f(s) }
    after:  for I by 128: for J by 128: { t = a[I:I+128, :] @ b[:, J:J+128];  for i in I...I+128: for j in J...J+128:
            y[i, j] = f(t[i-I, j-J]) }
    """

    stage: int
    rows: int
    columns: int
    depth: int
    unit: str = ""
    stages: int = 2


@dataclass(frozen=True)
class InPasses:
    """Make a chain of products, which ends in the sum `stage`, for `rows` rows and `width` columns of its result in each block,
    in passes over all terms of that sum, `columns` at a time: of the products that the rows are computed from a tile is made,
    as by InTiles with this depth and unit, in each pass anew; threads fold what is computed from it, or, in the last pass,
    leave that in shared memory and multiply it by what the other side has there. All loops but the last are bound to blocks;
    rows are those on which no right side depends.

    before: for i: { m = max(sum(a[i, :] * b[j, :]) for j)
                     for k: y[i, k] = sum((sum(a[i, :] * b[j, :]) - m) * c[j, k] for j) }
    after:  for I by 64: for K by 64: { for J by 64: { t = a[I:I+64, :] @ b[J:J+64, :].T;  m[i] = max(m[i], t[i-I, :]) };
            for J by 64: { t = a[I:I+64, :] @ b[J:J+64, :].T;  y[I:I+64, K:K+64] += (t - m) @ c[J:J+64, K:K+64] } }

    running: a softmax (a maximum, a sum of exponentials of differences from it, products of their quotients) goes in one pass:
    what was summed with a lesser maximum is scaled, and the products are divided at the end. This rounds otherwise than what
    is written, and is for functions that allow it (`fast_math`).
    after:  for J by 64: { t = ...;  M = max(m, t);  e = exp(t - M);  l = l * exp(m - M) + sum(e);  y = y * exp(m - M) + e @ c;
            m = M };  y = y / l
    """

    stage: int
    rows: int
    columns: int
    width: int
    depth: int
    unit: str = ""
    running: bool = False


@dataclass(frozen=True)
class ByOwner:
    """Let each warp of a GPU own a stretch of the root, which is a scatter: it looks at all updates, one in each lane, and does
    those of its stretch, in order.

    before: for k: y[t[k]] += v[k]
    after:  for each warp w: for K by 32: for k in K...K+32, where t[k] is in stretch w: y[t[k]] += v[k]
    """


@dataclass(frozen=True)
class InAnyOrder:
    """Share out the updates of the root, which is a scatter, among all threads of a GPU, whichever comes first: by atomic
    operations of which every order gives the same bits. Integers are added, and what is greatest or least is found, as they
    are; floats are added as integers, multiples of a power of two that is found first; of what is set the last one counts,
    which is found first. A block works in a `copy` of its own in shared memory where the root has so many elements at most.
    loose: floats are added as they are, in the order in which threads come: for functions that allow it (`fast_math`).

    before: for k: y[t[k]] += v[k]
    after:  for k from all threads: atomically y[t[k]] += v[k]
    """

    copy: int = 0
    loose: bool = False
