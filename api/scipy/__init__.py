"""SciPy by name, as far as JAX has it: `loopwright.scipy.special` and `loopwright.scipy.stats`."""
from __future__ import annotations

from loopwright.scipy import special, stats

__all__ = ["special", "stats"]
