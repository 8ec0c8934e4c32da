"""SciPy by name, as far as JAX has it: `loopwright.scipy.linalg`, `loopwright.scipy.special` and `loopwright.scipy.stats`."""
from __future__ import annotations

from loopwright.scipy import linalg, special, stats

__all__ = ["linalg", "special", "stats"]
