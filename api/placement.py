"""Where arrays are: the CPU, and a GPU through CuPy where there is one."""
from __future__ import annotations

from typing import Any

import numpy as np

from loopwright.ir.errors import ArgumentError
from loopwright.ir.source import user_source
from loopwright.ir.types import is_on_device
from loopwright.lower.runtime import lazy
from loopwright.tracer.pytree import flatten, unflatten

__all__ = ["device_put", "devices", "set_checks"]


def devices() -> tuple[str, ...]:
    """Where functions can run here: "cpu", and "gpu" if CuPy finds one.

    >>> import loopwright as lw
    >>> lw.devices()[0]
    'cpu'
    """
    try:
        lazy.gpu()
    except (ImportError, RuntimeError):
        return ("cpu",)
    return ("cpu", "gpu")


def device_put(x: Any, device: str = "gpu") -> Any:
    """The arrays and numbers of a container on a device: as CuPy arrays ("gpu") or NumPy arrays ("cpu"). What is there already
    stays as it is.

    ImportError or RuntimeError, with what to do, where there is no GPU.

    >>> import numpy as np, loopwright as lw
    >>> lw.device_put({"x": np.arange(3)}, "cpu")
    {'x': array([0, 1, 2])}
    """
    if device not in ("cpu", "gpu"):
        raise ArgumentError(f"{user_source()}: device_put expected 'cpu' or 'gpu', got {device!r}.")
    leaves, structure = flatten(x)
    if device == "cpu":
        return unflatten(structure, [lazy.gpu().get(leaf) if is_on_device(leaf) else np.asarray(leaf) for leaf in leaves])
    driver = lazy.gpu()
    return unflatten(structure, [leaf if is_on_device(leaf) else driver.put(np.asarray(leaf)) for leaf in leaves])


def set_checks(when: str) -> None:
    """When an error that a kernel on a GPU met, such as an index out of range, is raised: "sync" waits for the end of each call
    and raises at once; "async", as it is at first, waits for nothing: the error is raised by the next call on the same stream,
    or before the host reads something from the device to decide on.

    >>> import loopwright as lw
    >>> lw.set_checks("async")
    """
    if when not in ("sync", "async"):
        raise ArgumentError(f"{user_source()}: set_checks expected 'sync' or 'async', got {when!r}.")
    lazy.check_at_once(when == "sync")
