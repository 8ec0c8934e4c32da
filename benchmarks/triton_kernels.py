"""Programs of the GPU's benchmarks in Triton, as its tutorials write them: imported only where it is installed."""
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


@triton.jit
def _softmax(x, out, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    inside = at < columns
    found = tl.load(x + row * columns + at, mask=inside, other=-float("inf"))
    e = tl.exp(found - tl.max(found, axis=0))
    tl.store(out + row * columns + at, e / tl.sum(e, axis=0), mask=inside)


@triton.jit
def _matmul(a, b, c, m, n, k, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, GROUP: tl.constexpr):
    high, wide = tl.cdiv(m, ROWS), tl.cdiv(n, COLUMNS)
    number = tl.program_id(0)
    first = number // (GROUP * wide) * GROUP
    rows_here = min(high - first, GROUP)
    row, column = first + number % (GROUP * wide) % rows_here, number % (GROUP * wide) // rows_here
    i, j, t = row * ROWS + tl.arange(0, ROWS), column * COLUMNS + tl.arange(0, COLUMNS), tl.arange(0, DEPTH)
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for start in range(0, k, DEPTH):
        s = start + t
        left = tl.load(a + i[:, None] * k + s[None, :], mask=(i[:, None] < m) & (s[None, :] < k), other=0.0)
        right = tl.load(b + s[:, None] * n + j[None, :], mask=(s[:, None] < k) & (j[None, :] < n), other=0.0)
        total += tl.dot(left, right, input_precision="ieee")
    tl.store(c + i[:, None] * n + j[None, :], total, mask=(i[:, None] < m) & (j[None, :] < n))


def vector_add(torch, x, y):
    """x + y"""
    out, n = torch.empty_like(x), x.numel()
    _add[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)
    return out


def softmax(torch, x):
    """Of each row, which one program keeps."""
    out, (rows, columns) = torch.empty_like(x), x.shape
    _softmax[(rows,)](x, out, columns, BLOCK=triton.next_power_of_2(columns))
    return out


def matmul(torch, a, b):
    """a @ b in f32, not TF32."""
    (m, k), n = a.shape, b.shape[1]
    out = torch.empty((m, n), dtype=a.dtype, device=a.device)
    grid = (triton.cdiv(m, 64) * triton.cdiv(n, 64),)
    _matmul[grid](a, b, out, m, n, k, ROWS=64, COLUMNS=64, DEPTH=32, GROUP=8)
    return out


PROGRAMS = {"vector add": vector_add, "softmax": softmax, "matmul": matmul}
