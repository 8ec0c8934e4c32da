"""SciPy by name, as far as JAX has it: `loopwright.scipy.linalg`, `loopwright.scipy.special` and `loopwright.scipy.stats`.

Each is imported at its first use.
"""
from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loopwright.scipy import linalg, special, stats

__all__ = ["linalg", "special", "stats"]


def __getattr__(name: str) -> ModuleType:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
