"""Tracebacks for users: without the frames of loopwright between theirs.

Guarantees: an error that says what is wrong in a program keeps the user's frames alone; one that Python or another library
raises under the user's function keeps that library's, too. Any other error inside loopwright is a bug, and keeps all frames, as
every error does where the environment has LOOPWRIGHT_TRACEBACKS=full.
"""
from __future__ import annotations

import os
import re
from contextlib import ContextDecorator
from types import TracebackType

from loopwright.ir import errors
from loopwright.ir.source import is_inside, is_own

_NAMES_A_LINE = re.compile(r".+:\d+: ")


class user_frames(ContextDecorator):
    """A context, or a decorator of functions, in which a user's function runs: the traceback of an error that leaves it is the
    user's."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if isinstance(error, Exception) and os.environ.get("LOOPWRIGHT_TRACEBACKS") != "full":
            error.__traceback__ = _shortened(traceback, _is_explained(error))


def _is_explained(error: Exception) -> bool:
    """Whether an error of loopwright says what is wrong in the user's program."""
    is_ours = type(error).__module__ == errors.__name__ and not isinstance(error, errors.VerificationError)
    return is_ours or _NAMES_A_LINE.match(str(error)) is not None


def _shortened(traceback: TracebackType | None, is_explained: bool) -> TracebackType | None:
    """A traceback without loopwright's frames, and a library's that it called; the whole where one of them raised what is not
    explained."""
    entries = []
    at = traceback
    while at is not None:
        entries.append(at)
        at = at.tb_next
    files = [entry.tb_frame.f_code.co_filename for entry in entries]
    users = [k for k, file in enumerate(files) if not is_inside(file)]
    beyond = range(users[-1] + 1 if users else 0, len(files))  # what the user called last
    is_own_error = any(is_own(files[k]) for k in beyond)
    if is_own_error and not is_explained:
        return traceback
    kept = [entries[k] for k in (users if is_own_error else (*users, *beyond))]
    for entry, after in zip(kept, [*kept, None][1:], strict=False):
        entry.tb_next = after
    return kept[0] if kept else None
