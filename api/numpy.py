"""NumPy by name: `import loopwright.numpy as lnp`.

Every public name of NumPy is here. On plain arrays a function is NumPy's own and runs at once; where an operand is traced,
and in creation functions inside a trace, it is the same function on traced values. So what NumPy's protocols cannot reach
works here: creation from symbolic sizes, lists of traced values, and operands that NumPy's function does not dispatch on.
`docs/numpy.md` lists them.
"""
from __future__ import annotations

from typing import Any

import numpy as _numpy

from loopwright import namespace as _namespace

__all__ = [name for name in _numpy.__all__ if not name.startswith("_") and name not in ("test", "f2py")]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'loopwright.numpy' has no attribute {name!r}")
    value = globals()[name] = _namespace.wrapped(getattr(_numpy, name))
    return value


def __dir__() -> list[str]:
    return __all__
