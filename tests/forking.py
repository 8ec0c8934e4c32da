"""What a forked child does, with an end: a child that hangs fails its test and shows where it hung."""
from __future__ import annotations

import faulthandler
import os
import signal
import tempfile
import time
import traceback
from collections.abc import Callable
from typing import IO

import pytest

SECONDS = 60.0

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
of_threads = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")


def check_in_child(check: Callable[[], object]) -> None:
    """Fork; the child runs `check` and ends. AssertionError with the child's traceback if it raised, hung or died."""
    with tempfile.TemporaryFile() as report:
        child = os.fork()
        if child == 0:
            _run(check, report)
        deadline = time.monotonic() + SECONDS
        while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
            time.sleep(0.001)
        if hung := ended[0] == 0:
            os.kill(child, signal.SIGABRT)  # which faulthandler answers with the stacks
            time.sleep(1)
            os.kill(child, signal.SIGKILL)
            ended = os.waitpid(child, 0)
        report.seek(0)
        assert ended[1] == 0, f"the child {'hung' if hung else 'failed'}:\n{report.read().decode(errors='replace')}"


def _run(check: Callable[[], object], report: IO[bytes]) -> None:
    code = 1
    try:
        faulthandler.enable(report)
        check()
        code = 0
    except BaseException:
        report.write(traceback.format_exc().encode())
        report.flush()
    finally:
        os._exit(code)
