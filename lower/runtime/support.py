"""The functions that compiled code may call besides Python's and libc's, by name; each is loaded when first named."""
from __future__ import annotations

from collections.abc import Callable

from loopwright.lower.runtime import (
    blas,
    callbacks,
    fourier,
    lapack,
    later,
    pool,
    products,
    results,
    scratch,
    signals,
    sorting,
    transposes,
)
from loopwright.lower.runtime.pool_text import LOOPS

_FUNCTIONS: dict[str, Callable[[str], int | None]] = {
    **dict.fromkeys((*LOOPS, later.CHOSEN), lambda name: pool.library()[name]),
    **dict.fromkeys(scratch.IMPORTS, lambda name: scratch.library()[name]),
    "lw_new_array": lambda name: results.library()[name],
    "lw_poll": lambda name: signals.library()[name],
    "lw_call_python": lambda name: callbacks.library()[name],
    "lw_gemm_f32": blas.address,
    "lw_gemm_f64": blas.address,
    **dict.fromkeys(products.NAMES, products.address),
    **dict.fromkeys(transposes.NAMES, transposes.address),
    **dict.fromkeys(lapack.NAMES, lapack.address),
    **dict.fromkeys((*fourier.NAMES, fourier.RAISED), fourier.address),
}


def address(name: str) -> int | None:
    """The address of a runtime function; None for names that are not one (or not available on this machine)."""
    find = sorting.address if name.rpartition("_")[0] in sorting.FUNCTIONS else _FUNCTIONS.get(name)
    return None if find is None else find(name)
