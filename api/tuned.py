"""Programs that tuning found, where calls meet them: what a compile asks before it makes the default program.

Guarantees: nothing of the tuner is loaded, and one `stat` is all that happens, where nothing was tuned and nothing is to be;
no record, whatever it is, makes a call fail.
"""
from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from loopwright.lower.runtime import lazy
from loopwright.lower.runtime.lazy import stored_programs
from loopwright.lower.runtime.tuned import file_of

if TYPE_CHECKING:
    from loopwright.lower.tuning.stored import Program, Stored, TunedRecord
    from loopwright.tracer.signatures import Call
    from loopwright.versions import Draft, Versions

VARIABLE = "LOOPWRIGHT_TUNE"
Meeting = Callable[["Versions", "Call", "Draft"], Sequence["Program"]]  # what becomes of a function that is to be compiled


class _State(threading.local):
    meetings: tuple[Meeting, ...] = ()  # of the blocks that this thread is in, innermost last


_state = _State()


@contextmanager
def meeting(met: Meeting) -> Iterator[None]:
    """Inside, on this thread, functions that are about to be compiled are given to `met`, which gives programs for them."""
    before, _state.meetings = _state.meetings, (*_state.meetings, met)
    try:
        yield
    finally:
        _state.meetings = before


def programs_for(versions: Versions, call: Call, draft: Draft) -> Sequence[Program]:
    """The programs to try before the default one, in that order."""
    chosen = os.environ.get(VARIABLE, "")
    if chosen == "off":
        return ()
    if _state.meetings:
        return _state.meetings[-1](versions, call, draft)
    if chosen and (seconds := _seconds(chosen)):
        met: Meeting = import_module("loopwright.tuner").from_environment(seconds)
        return met(versions, call, draft)
    device = device_of(versions, call)
    path = file_of(draft.version, bool(device))
    return () if path is None else known_programs(versions, draft, [path], device=device)[0]


def device_of(versions: Versions, call: Call) -> str:
    """The name of the GPU that a call runs on; "" for one on this processor."""
    return lazy.gpu().device.name if versions.on_gpu.takes(call) else ""


def known_programs(versions: Versions, draft: Draft, files: Sequence[Path], more: Sequence[Stored] = (), *,
                   device: str = "") -> tuple[Sequence[Program], Sequence[TunedRecord]]:
    """What files hold for a version on a device, and `more`, and all records that serve; why others do not goes to the
    function's notes."""
    found, records, ignored = stored_programs(draft.version, files, more, device)
    versions.notes.update(dict.fromkeys([f"ignored {why}" for why in ignored]))
    return found, records


def _seconds(chosen: str) -> float:
    try:
        return float(chosen)
    except ValueError:
        warnings.warn(f"{VARIABLE} must be off or a number of seconds, got {chosen!r}: nothing is tuned.", RuntimeWarning,
                      stacklevel=2)
        return 0.0
