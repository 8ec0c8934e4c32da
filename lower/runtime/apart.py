"""Running something in a forked child, whose death is an answer.

Guarantees: whatever the child does (crash, hang, exit), this process goes on, and is told in words; the child writes no core
file and runs nothing of this process's exit.
"""
from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable

if sys.platform != "win32":
    import resource

POSSIBLE = hasattr(os, "fork")
_FAILED = 70


def failure_apart(check: Callable[[], str | None], seconds: float) -> str | None:
    """What went wrong when a child ran `check`: what it gave, its signal, or that it took longer; None if nothing did."""
    told, tell = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which the child does not use
        child = os.fork()
    if child == 0:
        _run(check, tell)
    os.close(tell)
    try:
        status = _ended(child, time.monotonic() + seconds)
        if status is None:
            return f"did not end within {seconds:g} s"
        if os.WIFSIGNALED(status):
            return f"crashed with {signal.Signals(os.WTERMSIG(status)).name}"
        said = os.read(told, 1 << 16).decode(errors="replace")
        return said or (f"ended the process with exit code {os.WEXITSTATUS(status)}" if status else None)
    finally:
        os.close(told)


def _run(check: Callable[[], str | None], tell: int) -> None:
    """In the child: never returns."""
    code = _FAILED
    try:
        faulthandler.disable()
        if sys.platform != "win32":
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        said = check()
        os.write(tell, (said or "")[:1 << 15].encode())
        code = 0
    except BaseException as error:
        os.write(tell, f"raised {type(error).__name__}: {error}"[:1 << 15].encode())
    finally:
        os._exit(code)


def _ended(child: int, deadline: float) -> int | None:
    """The status of a child; None where it had to be killed."""
    wait = 0.0005
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
        time.sleep(wait)
        wait = min(2 * wait, 0.02)
