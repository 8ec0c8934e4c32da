"""What a new process pays: to import, and to come to its first result."""
from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping

from benchmarks.harness import Timing, once_each, optional

IMPORT = {"loopwright": "import loopwright", "numpy": "import numpy", "jax": "import jax", "torch": "import torch",
          "numba": "import numba"}
FIRST_RESULT = {
    "loopwright": "import numpy as np, loopwright as f; f.jit(lambda x: x + 1)(np.arange(3.0))",
    "numpy": "import numpy as np; (lambda x: x + 1)(np.arange(3.0))",
    "jax": "import jax; jax.jit(lambda x: x + 1)(jax.numpy.arange(3.0))",
    "numba": "import numpy as np, numba; numba.njit(lambda x: x + 1)(np.arange(3.0))",
}
FIRST_PRODUCT = {
    "loopwright": "import numpy as np, loopwright as f; f.jit(lambda x: x @ x)(np.ones((99, 99), 'f4'))",
    "numpy": "import numpy as np; (lambda x: x @ x)(np.ones((99, 99), 'f4'))",
    "jax": "import jax; jax.jit(lambda x: x @ x)(jax.numpy.ones((99, 99), 'f4'))",
}


def importing() -> list[Timing]:
    """The import alone."""
    return _in_processes("import", IMPORT)


def first_result() -> list[Timing]:
    """Import, compile and call a small function; loopwright finds the compiled code of earlier processes on disk."""
    return _in_processes("import and first x + 1", FIRST_RESULT)


def first_product() -> list[Timing]:
    """Import, compile and call a product of matrices; loopwright finds nothing on disk."""
    return _in_processes("import and first x @ x, nothing compiled before", FIRST_PRODUCT, anew=True)


def _in_processes(workload: str, programs: Mapping[str, str], *, anew: bool = False) -> list[Timing]:
    """Each program in processes of its own, with byte-code written; `anew`: no process finds what others compiled."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        environment |= {"PYTHONPYCACHEPREFIX": folder, "LOOPWRIGHT_CACHE_DIR": os.path.join(folder, "cache")}

        def run(program: str) -> float:
            if anew:
                shutil.rmtree(environment["LOOPWRIGHT_CACHE_DIR"], ignore_errors=True)
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", program], check=True, env=environment)
            return time.perf_counter() - start
        present = {name: program for name, program in programs.items() if optional(name) is not None}
        for program in present.values():
            run(program)
        return once_each(workload, {name: lambda p=program: run(p) for name, program in present.items()}, rounds=15)


WORKLOADS = (importing, first_result, first_product)
