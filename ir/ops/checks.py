"""check: a condition that must hold when the program runs.

Guarantees: a condition that does not hold ends the program with CheckError, whose message names the line of the check and, of
a condition with axes (or under vmap), the first index where it fails; arguments of the message are those of that element.
"""
from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from loopwright.ir.builder import Ref
from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent
from loopwright.ir.errors import CheckError, DTypeError
from loopwright.ir.graph import Graph, Node
from loopwright.ir.op import Engine, Flags, NodeRules, Op
from loopwright.ir.ops.broadcasting import spread
from loopwright.ir.ops.callbacks import nothing, whole
from loopwright.ir.types import BOOL, ArrayType

FAILED_AXIS = -64  # what the error record's axis is where a check failed
Mapped = tuple[tuple[bool, ...], ...]


@dataclass(frozen=True)
class Failure:
    """What a check says. mapped: for each axis that batching put in front of the predicate, which arguments have it too."""

    message: str
    names: tuple[str, ...]
    mapped: Mapped

    def text(self, holds: np.ndarray, args: Sequence[Any]) -> str:
        """The message for the first element that does not hold."""
        at = tuple([int(k) for k in np.unravel_index(int(np.argmin(holds)), holds.shape)])
        own = [np.asarray(x)[tuple([i for i, level in zip(at, self.mapped, strict=False) if level[k]])]
               for k, x in enumerate(args)]
        count = len(own) - len(self.names)
        said = self.message.format(*own[:count], **dict(zip(self.names, own[count:], strict=True)))
        return f"{said} (first fails at index {at[0] if len(at) == 1 else at})" if at else said

    def __call__(self, holds: np.ndarray, *args: Any) -> None:
        """Keep the message until the error that compiled code reports is raised, on this thread."""
        _failed.text = self.text(np.asarray(holds), args)


class _Failed(threading.local):
    text = ""


_failed = _Failed()


def failed_message() -> str:
    """What the check said that failed last on this thread."""
    return _failed.text


def _infer(types: Sequence[ArrayType], regions: tuple[Graph, ...], **attrs: Any) -> tuple[ArrayType, ...]:
    if not types or types[0].dtype != BOOL:
        raise DTypeError(f"check: the condition must be bool, got {types[0] if types else 'nothing'}")
    return ()


def _numpy(holds: np.ndarray, *args: np.ndarray, message: str, names: tuple[str, ...], mapped: Mapped,
           pairs: tuple[int, ...] = ()) -> tuple[()]:
    if not holds.all():
        raise CheckError(Failure(message, names, mapped).text(holds, whole((holds, *args), pairs)[1:]))
    return ()


def _batch(engine: Engine, size: Extent, n: Node, args: list[Ref], mapped: Flags) -> tuple[list[Ref], list[bool]]:
    """One check of all elements."""
    holds = spread(size, (args[0],), (mapped[0],))
    return check.all(*holds, *args[1:], **{**n.attrs, "mapped": (tuple(mapped[1:]), *n.attrs["mapped"])}), []


def _python(n: Node) -> tuple[str, Failure]:
    said = [n.attrs[name] for name in ("message", "names", "mapped")]
    return f"check:{json.dumps(said)}", Failure(*said)


check = Op(
    name="check",
    doc="Ends the program with CheckError unless all elements of operand 0 hold. The other operands fill the message: the last "
        "of them its fields `names`. `mapped`: see Failure; `pairs`: operands that are complex numbers in pairs.",
    infer=_infer,
    numpy=_numpy,
    effect=True,
    python=_python,
    rules=NodeRules(jvp=nothing, linearize=nothing, batch=_batch, reach=lambda n, flags, through: []),
)
