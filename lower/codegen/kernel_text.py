"""The text of a kernel, which modules are put together of."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace

from loopwright.ir.dataclass import dataclass


@dataclass(frozen=True)
class KernelText:
    """One kernel: its functions' text, and the lines that a module needs once: declarations and constants. `apart`: other
    functions that it calls, which are made when calls need them."""

    name: str
    text: str
    declarations: frozenset[str]
    globals: frozenset[str]
    apart: Mapping[str, Callable[[], KernelText]] = field(default_factory=dict)


def exported(made: KernelText, name: str) -> KernelText:
    """The text with one of its functions for others to call."""
    return replace(made, text=made.text.replace(f"define internal void @{name}(", f"define void @{name}("))
