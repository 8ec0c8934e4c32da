"""Products of matrices by cuBLASLt, called by ctypes, so that they can be captured.

Numbers of structures and attributes are those of cublasLt.h of CUDA 12.9; each has the same value since 11.8. The library is
column-major: it is told of the transposes, D' = op(B)' op(A)' + C', whose rows are our columns, along which its bias goes.

Guarantees: sums have the dtype that the program says, f32 is never multiplied as TF32, and half floats are rounded once. What
suits a product is asked once for its shapes and kept; memory that it works in is the caller's.
"""
from __future__ import annotations

import ctypes
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import evaluate
from loopwright.ir.graph import Node
from loopwright.ir.types import BF16, F16, F32, F64
from loopwright.lower.cuda.products import LibraryProduct, library_product

MOST_WORKSPACE = 32 << 20  # bytes, as the manual says of Hopper
MOST_EXTENT = (1 << 31) - 1
MOST_PLANS = 512
ALIGNED = 16  # bytes of which every address is a multiple
TYPES = {F32: 0, F64: 1, F16: 2, BF16: 14}  # cudaDataType
COMPUTE = {F32: 68, F64: 70}  # cublasComputeType_t: CUBLAS_COMPUTE_32F, 64F
TRANSA, TRANSB, EPILOGUE, BIAS_POINTER = 3, 4, 7, 8  # cublasLtMatmulDescAttributes_t
EPILOGUE_BIAS = 4  # cublasLtEpilogue_t
BATCH_COUNT, BATCH_OFFSET = 5, 6  # cublasLtMatrixLayoutAttribute_t
MAX_WORKSPACE, REDUCTIONS, ALIGNMENT_A = 1, 3, 5  # cublasLtMatmulPreferenceAttributes_t, the last of four
COMPUTE_TYPE = 2  # cublasLtReductionScheme_t: parts of a sum are added in the dtype of sums, not in the result's
NOT_SUPPORTED = 15  # cublasStatus_t
Pointer = ctypes.c_void_p


class Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t, 96 bytes; its first 64 are a cublasLtMatmulAlgo_t."""

    _fields_ = (("algorithm", ctypes.c_uint64 * 8), ("workspace", ctypes.c_size_t), ("state", ctypes.c_int),
                ("waves", ctypes.c_float), ("reserved", ctypes.c_int * 4))


@dataclass(frozen=True)
class Shape:
    """All that decides how a product is made, D = op(A) op(B) + C + bias: `dtypes` of the sides and of the result."""

    dtypes: tuple[np.dtype, np.dtype]
    transposed: tuple[bool, bool]
    batch: int
    m: int
    n: int
    k: int
    is_added: bool
    has_bias: bool


class Plan:
    """What the library needs for products of one shape on one device. `workspace`: bytes."""

    def __init__(self, library: Any, handle: Any, s: Shape) -> None:
        self.library, self.made = library, list[tuple[str, Any]]()
        total = F64 if s.dtypes[1] == F64 else F32
        number = ctypes.c_double if total == F64 else ctypes.c_float
        self.operation = self._create("MatmulDesc", ctypes.c_int(COMPUTE[total]), ctypes.c_int(TYPES[total]))
        ta, tb = s.transposed
        for name, value in ((TRANSA, tb), (TRANSB, ta)):
            self._set("MatmulDesc", self.operation, name, ctypes.c_int32(value))
        if s.has_bias:
            self._set("MatmulDesc", self.operation, EPILOGUE, ctypes.c_uint32(EPILOGUE_BIAS))
            self.point_at_bias(ALIGNED)  # the heuristic looks at how it is aligned
        self.left = self._layout(s, s.dtypes[0], (s.k, s.n) if tb else (s.n, s.k))
        self.right = self._layout(s, s.dtypes[0], (s.m, s.k) if ta else (s.k, s.m))
        self.result = self._layout(s, s.dtypes[1], (s.n, s.m))
        self.found = self._ask(handle, s)
        self.workspace = self.found.workspace if self.found is not None else 0
        self.algorithm = None if self.found is None else ctypes.byref(self.found)
        self.one, self.beta = ctypes.byref(number(1)), ctypes.byref(number(int(s.is_added)))

    def _create(self, kind: str, *arguments: Any) -> Any:
        made = Pointer()
        check(getattr(self.library, f"cublasLt{kind}Create")(ctypes.byref(made), *arguments), f"cublasLt{kind}Create")
        self.made.append((kind, made))
        return made

    def _set(self, kind: str, of: Any, name: int, value: Any) -> None:
        function = getattr(self.library, f"cublasLt{kind}SetAttribute")
        check(function(of, ctypes.c_int(name), ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value))),
              f"cublasLt{kind}SetAttribute {name}")

    def _layout(self, s: Shape, dtype: np.dtype, shape: tuple[int, int]) -> Any:
        """Column-major matrices of rows and columns, one after another."""
        rows, columns = shape
        made = self._create("MatrixLayout", ctypes.c_int(TYPES[dtype]), ctypes.c_uint64(rows), ctypes.c_uint64(columns),
                            ctypes.c_int64(rows))
        self._set("MatrixLayout", made, BATCH_COUNT, ctypes.c_int32(s.batch))
        self._set("MatrixLayout", made, BATCH_OFFSET, ctypes.c_int64(rows * columns))
        return made

    def _ask(self, handle: Any, s: Shape) -> Heuristic | None:
        """The algorithm that the library takes for best; None where it has none."""
        preference = self._create("MatmulPreference")
        self._set("MatmulPreference", preference, MAX_WORKSPACE, ctypes.c_uint64(MOST_WORKSPACE))
        for side in range(4):
            self._set("MatmulPreference", preference, ALIGNMENT_A + side, ctypes.c_uint32(ALIGNED))
        if s.dtypes[1] in (F16, BF16):
            self._set("MatmulPreference", preference, REDUCTIONS, ctypes.c_uint32(COMPUTE_TYPE))
        found, count = Heuristic(), ctypes.c_int()
        status = self.library.cublasLtMatmulAlgoGetHeuristic(
            handle, self.operation, self.left, self.right, self.result, self.result, preference, ctypes.c_int(1),
            ctypes.byref(found), ctypes.byref(count))
        if status == NOT_SUPPORTED or (status == 0 and (count.value == 0 or found.state != 0)):
            return None
        check(status, "cublasLtMatmulAlgoGetHeuristic")
        return found

    def point_at_bias(self, address: int) -> None:
        self._set("MatmulDesc", self.operation, BIAS_POINTER, ctypes.c_uint64(address))

    def run(self, handle: Any, a: int, b: int, c: int, d: int, workspace: int, stream: int) -> None:
        """Launch it, for matrices at these addresses."""
        check(self.library.cublasLtMatmul(
            handle, self.operation, self.one, Pointer(b), self.left, Pointer(a), self.right, self.beta, Pointer(c), self.result,
            Pointer(d), self.result, self.algorithm, Pointer(workspace), ctypes.c_size_t(self.workspace), Pointer(stream)),
            "cublasLtMatmul")

    def __del__(self) -> None:
        for kind, made in reversed(self.made):
            getattr(self.library, f"cublasLt{kind}Destroy")(made)


class Workspaces(Protocol):
    """The caller's current stream, and memory that products on it work in."""

    def stream(self) -> int: ...

    def workspace(self, count: int) -> int: ...


class Product:
    """A product by the library, at known sizes."""

    can_capture = True

    def __init__(self, lock: threading.Lock, handle: Any, plan: Plan, product: LibraryProduct, memory: Workspaces) -> None:
        self.lock, self.handle, self.plan, self.product, self.memory = lock, handle, plan, product, memory

    def __call__(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        p, plan, memory, to = self.product, self.plan, self.memory, outputs[0]
        with self.lock:
            if p.bias is not None:
                plan.point_at_bias(inputs[p.bias])
            plan.run(self.handle, inputs[p.left], inputs[p.right], to if p.added is None else inputs[p.added], to,
                     memory.workspace(plan.workspace) if plan.workspace else 0, memory.stream())


class Products:
    """Products of matrices by the library, where it is found. `workspace`: the most bytes that any so far works in."""

    def __init__(self, cupy: Any, library: Any | None) -> None:
        self.cupy, self.library, self.workspace = cupy, library, 0
        self._handles: dict[int, Any] = {}  # by device
        self._plans: OrderedDict[tuple[int, Shape], Plan] = OrderedDict()
        self.lock = threading.Lock()  # around what is said to the library of a plan, until it is launched

    def call(self, n: Node, sizes: Mapping[str, int], memory: Workspaces) -> Product | None:
        """A product at these sizes, of which none is 0; None where the library makes none."""
        product = library_product(n.regions[0])
        assert product is not None
        gemm = product.gemm
        shape = self._shape(n, product, [evaluate(x, sizes) for x in (gemm.batch, gemm.m, gemm.n, gemm.k)])
        with self.lock:
            plan = self._plan(shape)
            return None if plan is None else Product(self.lock, self._handle(), plan, product, memory)

    def _shape(self, n: Node, product: LibraryProduct, extents: Sequence[int]) -> Shape:
        region = n.regions[0]
        dtypes = region.params[product.left].type.dtype, region.results[0].type.dtype
        batch, m, columns, k = extents
        return Shape(dtypes, product.gemm.transposed, batch, m, columns, k, product.added is not None, product.bias is not None)

    def _plan(self, s: Shape) -> Plan | None:
        """The plan of a shape; None where there is none."""
        if self.library is None or max(s.batch, s.m, s.n, s.k) > MOST_EXTENT:
            return None
        handle, key = self._handle(), (self.cupy.cuda.runtime.getDevice(), s)
        if key not in self._plans:
            self._plans[key] = Plan(self.library, handle, s)
            self.workspace = max(self.workspace, self._plans[key].workspace)
            if len(self._plans) > MOST_PLANS:
                self._plans.popitem(last=False)
        self._plans.move_to_end(key)
        return self._plans[key] if self._plans[key].found is not None else None

    def _handle(self) -> Any:
        device = self.cupy.cuda.runtime.getDevice()
        if device not in self._handles:
            assert self.library is not None
            self._handles[device] = Pointer()
            check(self.library.cublasLtCreate(ctypes.byref(self._handles[device])), "cublasLtCreate")
        return self._handles[device]


def check(status: int, what: str) -> None:
    if status != 0:
        raise RuntimeError(f"{what} failed with cuBLAS status {status}.")
