"""SciPy by name, as far as JAX has it: `loopwright.scipy.linalg`."""
from __future__ import annotations

from loopwright.scipy import linalg

__all__ = ["linalg"]
