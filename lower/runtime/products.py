"""Products of matrices for compiled code: see lower/codegen/products.py. Each is compiled when first called."""
from __future__ import annotations

from loopwright.ir.types import F32, F64
from loopwright.lower.runtime import blas, pool, scratch
from loopwright.lower.runtime.engine import Library, load
from loopwright.lower.runtime.lazy import products_code
from loopwright.lower.runtime.once import once
from loopwright.lower.runtime.pool_text import LOOPS
from loopwright.lower.target import Target, host_target

FORMS = ("nn", "nt", "tn", "tt")  # which sides are stored transposed
NAMES = tuple(name for kind in ("f32", "f64") for name in (
    *(f"lw_{what}_{kind}_{form}" for what in ("product", "apart") for form in FORMS), f"lw_panels_{kind}",
    *(f"lw_{what}_{kind}" for what in ("few_features", "few_channels", "groupwise", "winograd", "kernel_slopes",
                                       "overlap_rows")),
    *(f"lw_summed_{kind}_{form}" for form in FORMS if form != "tn"),
    *(f"lw_{what}_{kind}_{side}" for what in ("many", "panel_product") for side in "nt")))


def address(name: str) -> int | None:
    """The address of one of these functions; None where there is no BLAS, which makes large products."""
    found = blas.found()
    return None if found is None else _library(found, name, host_target())[name]


@once
def _library(found: blas.Blas, name: str, target: Target) -> Library:
    """The compiled function, over the BLAS that was found."""
    dtype = F32 if "f32" in name else F64
    gemm = f"lw_gemm_f{8 * dtype.itemsize}"
    loops = {loop: pool.library()[loop] for loop in (*LOOPS, "lw_parallel_for")}
    imports = {gemm: blas.library(found)[gemm], **loops, **scratch.imports()}
    return load(products_code(name, dtype, target), imports, [name])
