"""All workloads by name, in the order of the table."""
from __future__ import annotations

import os
import platform
from importlib import metadata

from benchmarks import (
    call,
    compile,
    graphs,
    irregular,
    learning,
    maps,
    maths,
    networks,
    products,
    reductions,
    residual,
    scan,
    sorting,
    starting,
    stores,
    typical,
)

WORKLOADS = {f.__name__: f for f in (
    *call.WORKLOADS, *maps.WORKLOADS, *maths.WORKLOADS, *reductions.WORKLOADS, *products.WORKLOADS, *networks.WORKLOADS,
    *graphs.WORKLOADS, *irregular.WORKLOADS, *sorting.WORKLOADS, *typical.WORKLOADS, *learning.WORKLOADS, *stores.WORKLOADS,
    *compile.WORKLOADS, *residual.WORKLOADS, *scan.WORKLOADS, *starting.WORKLOADS)}


def versions() -> dict[str, str]:
    """Of Python and the contenders."""
    found = {d.name: d.version for d in metadata.distributions()}
    names = [n for n in ("loopwright", "numpy", "jax", "torch", "numba") if n in found]
    return {"processors": str(os.cpu_count()), "python": platform.python_version(), **{n: found[n] for n in names}}
