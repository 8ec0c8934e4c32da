"""As much of cuBLASLt as products ask for: what cublasLt.h and its manual say, and the refusals that they name.

Matrices are column-major and epilogues count rows of D. What is asked of it is done when the stream comes to it, from what is
at the addresses then; a capture keeps addresses and the values of descriptors, as the library's does.
"""
import ctypes
from dataclasses import dataclass, field

import numpy as np

from loopwright.ir.types import BF16
from tests.emulator import cupy

SUCCESS, INVALID_VALUE, NOT_SUPPORTED = 0, 7, 15
TYPES = {0: np.dtype("f4"), 1: np.dtype("f8"), 2: np.dtype("f2"), 14: BF16}
KINDS = {(68, 0): {(0, 0), (2, 2), (2, 0), (14, 14), (14, 0)}, (70, 1): {(1, 1)}}  # (compute, scale): (A and B, C and D)
ATTRIBUTES = {  # by descriptor: bytes of each attribute
    "MatmulDesc": {2: 4, 3: 4, 4: 4, 7: 4, 8: 8, 10: 8, 26: 4}, "MatrixLayout": {0: 4, 1: 4, 2: 8, 3: 8, 4: 8, 5: 4, 6: 8},
    "MatmulPreference": {0: 4, 1: 8, 3: 4, 5: 4, 6: 4, 7: 4, 8: 4}}
TRANSA, TRANSB, EPILOGUE, BIAS = 3, 4, 7, 8
ORDER, ROWS, COLUMNS, LEADING, COUNT, OFFSET = 1, 2, 3, 4, 5, 6
WORKSPACE, REDUCTIONS, ALIGNMENT = 1, 3, 5
ONLY_COMPUTE_TYPE = 2


@dataclass
class Descriptor:
    kind: str
    of: tuple
    attributes: dict = field(default_factory=dict)


class CublasLt:
    """`made`: living descriptors by handle. `calls`: (m, n, k, batch, epilogue, beta) of D' as it was launched. `lacks(key)`:
    whether there is no algorithm for such a product."""

    def __init__(self, lacks=lambda key: False, workspace=4096):
        self.made, self.calls, self.asked, self.lacks, self.workspace = {}, [], [], lacks, workspace
        for kind in ATTRIBUTES:
            setattr(self, f"cublasLt{kind}Destroy", self._destroy)
            setattr(self, f"cublasLt{kind}SetAttribute", lambda *args, kind=kind: self._set(kind, *args))

    def cublasLtCreate(self, handle):
        handle._obj.value = 7
        return SUCCESS

    # ---- descriptors -----------------------------------------------------------------------------
    def _make(self, to, kind, *of, **attributes):
        to._obj.value = 1000 + len(self.made) + len(self.asked)
        while to._obj.value in self.made:
            to._obj.value += 1
        self.made[to._obj.value] = Descriptor(kind, of, dict(attributes))
        return SUCCESS

    def cublasLtMatmulDescCreate(self, to, compute, scale):
        found = self._make(to, "MatmulDesc", compute.value, scale.value)
        self.made[to._obj.value].attributes = {TRANSA: 0, TRANSB: 0, EPILOGUE: 1, BIAS: 0}
        return found

    def cublasLtMatrixLayoutCreate(self, to, dtype, rows, columns, leading):
        assert [type(x) for x in (rows, columns, leading)] == [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int64]
        found = self._make(to, "MatrixLayout", dtype.value)
        self.made[to._obj.value].attributes = {ORDER: 0, ROWS: rows.value, COLUMNS: columns.value, LEADING: leading.value,
                                               COUNT: 1, OFFSET: 0}
        return found

    def cublasLtMatmulPreferenceCreate(self, to):
        found = self._make(to, "MatmulPreference")
        self.made[to._obj.value].attributes = {WORKSPACE: 0, REDUCTIONS: 7, **dict.fromkeys(range(5, 9), 256)}
        return found

    def _set(self, kind, of, name, value, size):
        assert isinstance(name, ctypes.c_int) and isinstance(size, ctypes.c_size_t)
        if ATTRIBUTES[kind].get(name.value) != size.value or ctypes.sizeof(value._obj) != size.value:
            return INVALID_VALUE
        assert self.made[of.value].kind == kind
        self.made[of.value].attributes[name.value] = value._obj.value
        return SUCCESS

    def _destroy(self, of):
        del self.made[of.value]
        return SUCCESS

    # ---- products --------------------------------------------------------------------------------
    def _problem(self, operation, *layouts):
        """Types, sizes of D = op(A) op(B), leading dimensions, batches; None where they do not fit each other."""
        op = self.made[operation.value]
        at = [self.made[x.value] for x in layouts]
        types = tuple([x.of[0] for x in at])
        a, b, c, d = [x.attributes for x in at]
        shapes = [(x[ROWS], x[COLUMNS]) for x in (a, b, c, d)]
        (m, k), (k2, n) = (s[::-1] if op.attributes[t] else s for s, t in zip(shapes, (TRANSA, TRANSB), strict=False))
        fits = k == k2 and shapes[2] == shapes[3] == (m, n) and min(m, n, k) > 0
        fits = fits and all(x[LEADING] >= x[ROWS] and x[ORDER] == 0 for x in (a, b, c, d))
        fits = fits and len({x[COUNT] for x in (a, b, c, d)}) == 1 and types[0] == types[1] and types[2] == types[3]
        if not fits or (op.attributes[EPILOGUE] == 4 and not op.attributes[BIAS]) or op.attributes[EPILOGUE] not in (1, 4):
            return None
        key = (op.of, types[0], types[2], op.attributes[TRANSA], op.attributes[TRANSB], m, n, k, a[COUNT],
               op.attributes[EPILOGUE], tuple([(x[LEADING], x[OFFSET]) for x in (a, b, c, d)]))
        return key

    def cublasLtMatmulAlgoGetHeuristic(self, handle, operation, a, b, c, d, preference, count, found, returned):
        key, asked = self._problem(operation, a, b, c, d), self.made[preference.value].attributes
        assert handle.value == 7 and count.value == 1 and ctypes.sizeof(found._obj) == 96
        if key is None:
            return INVALID_VALUE
        if key[1:3] not in KINDS.get(key[0], ()):
            return NOT_SUPPORTED
        assert key[2] not in (2, 14) or asked[REDUCTIONS] == ONLY_COMPUTE_TYPE, "partial sums would be rounded to half floats"
        if self.lacks(key) or asked[WORKSPACE] < self.workspace:
            returned._obj.value = 0
            return SUCCESS
        self.asked.append((key, min(asked[x] for x in range(ALIGNMENT, ALIGNMENT + 4))))
        found._obj.algorithm[0], found._obj.workspace = len(self.asked), self.workspace
        found._obj.state, returned._obj.value = SUCCESS, 1
        return SUCCESS

    def cublasLtMatmul(self, handle, operation, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d, d_layout, algorithm,
                       workspace, size, stream):
        key = self._problem(operation, a_layout, b_layout, c_layout, d_layout)
        expected, aligned = self.asked[algorithm._obj.algorithm[0] - 1]
        bias = self.made[operation.value].attributes[BIAS]
        if key is None or key != expected or any((x.value or 0) % aligned for x in (a, b, c, d)) or bias % aligned:
            return INVALID_VALUE
        if size.value < self.workspace or not workspace.value or workspace.value % 16:
            return INVALID_VALUE
        number = {0: ctypes.c_float, 1: ctypes.c_double}[key[0][1]]
        assert isinstance(alpha._obj, number) and isinstance(beta._obj, number) and handle.value == 7
        a, b, c, d, alpha, beta = a.value, b.value, c.value, d.value, alpha._obj.value, beta._obj.value
        self.calls.append((*key[5:9], key[9], beta))
        cupy._do(stream.value or 0, lambda: self._multiply(key, a, b, c, d, bias, alpha, beta))
        return SUCCESS

    def _multiply(self, key, a, b, c, d, bias, alpha, beta):
        (_, scale), given, made, ta, tb, m, n, k, count, epilogue, steps = key
        wide = TYPES[scale]
        for j in range(count):
            shapes = ((k, m) if ta else (m, k), (n, k) if tb else (k, n), (m, n), (m, n))
            left, right, add, out = (_matrix(at, TYPES[kind], shape, step, j) for at, kind, shape, step in zip(
                (a, b, c, d), (given, given, made, made), shapes, steps, strict=True))
            left, right = (left.T if ta else left).astype(wide), (right.T if tb else right).astype(wide)
            found = wide.type(alpha) * (left @ right)
            if beta:  # C is not read where it is nothing
                found = found + wide.type(beta) * add.astype(wide)
            if epilogue == 4:
                found = found + _matrix(bias, TYPES[made], (m, 1), (m, 0), 0).astype(wide)
            out[...] = found.astype(TYPES[made])


def _matrix(at, dtype, shape, step, number):
    """The column-major matrix of a batch."""
    (rows, columns), (leading, offset) = shape, step
    held = (ctypes.c_uint8 * (leading * columns * dtype.itemsize)).from_address(at + number * offset * dtype.itemsize)
    return np.frombuffer(held, np.uint8).view(dtype).reshape(columns, leading).T[:rows]
