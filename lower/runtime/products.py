"""Products of matrices for compiled code: see lower/codegen/products.py. A library for each dtype, compiled once."""
from __future__ import annotations

from functools import cache

import numpy as np

from loopwright.ir.types import F32, F64
from loopwright.lower.runtime import blas, pool, scratch
from loopwright.lower.runtime.engine import Library, load
from loopwright.lower.runtime.lazy import products_entry
from loopwright.lower.target import Target, host_target

FORMS = ("nn", "nt", "tn", "tt")  # which sides are stored transposed
NAMES = tuple(name for kind in ("f32", "f64") for name in (
    *(f"lw_{what}_{kind}_{form}" for what in ("product", "apart") for form in FORMS), f"lw_panels_{kind}",
    f"lw_few_features_{kind}", f"lw_winograd_{kind}", f"lw_kernel_slopes_{kind}", f"lw_overlap_rows_{kind}",
    *(f"lw_summed_{kind}_{form}" for form in FORMS if form != "tn"),
    *(f"lw_{what}_{kind}_{side}" for what in ("many", "panel_product") for side in "nt")))


def address(name: str) -> int | None:
    """The address of one of these functions; None where there is no BLAS, which makes large products."""
    found = blas.found()
    return None if found is None else library(found, F32 if "f32" in name else F64, host_target())[name]


@cache
def library(found: blas.Blas, dtype: np.dtype, target: Target) -> Library:
    """The compiled functions of one dtype, over the BLAS that was found."""
    entry, gemm = products_entry(dtype, target), f"lw_gemm_f{8 * dtype.itemsize}"
    loops = {name: pool.library()[name] for name in ("lw_loop", "lw_wide_loop", "lw_parallel_for")}
    imports = {gemm: blas.library(found)[gemm], **loops, **scratch.imports()}
    return load(entry.code, imports, [name for name in NAMES if name in entry.metadata["exports"]])
