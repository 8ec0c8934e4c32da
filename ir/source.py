"""Where in the user's program a trace stands."""
from __future__ import annotations

import os
import sys
from dataclasses import field
from functools import lru_cache

from loopwright.ir.dataclass import dataclass

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_OWN = tuple(folder + os.sep for folder in (
    *(os.path.join(_ROOT, name) for name in ("ir", "tracer", "autodiff", "kernels", "lower")),
    *sys.modules[__name__.partition(".")[0]].__path__))  # the folder of the public surface, where it is installed
_LIBRARIES = (f"{os.sep}numpy{os.sep}", "functools.py", "contextlib.py")


@dataclass(frozen=True, slots=True)
class Source:
    """A file and a line of the user's program. `pull`: of what a walk of cotangents back through a program emitted, the number
    of that walk (later ones have greater numbers); else 0. It is no part of the line."""

    file: str
    line: int
    pull: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    def in_pull(self, number: int) -> Source:
        """The same line, of a walk back."""
        return self if number == self.pull else _source(self.file, self.line, number)


_source = lru_cache(maxsize=1 << 12)(Source)  # programs stand on few lines for long


def is_own(file: str) -> bool:
    """Whether a file is loopwright's."""
    return os.path.abspath(file).startswith(_OWN)


class _Inside(dict[str, bool]):
    """Whether a file is loopwright's or a library's, worked out once: a trace asks for every frame."""

    def __missing__(self, file: str) -> bool:
        self[file] = found = is_own(file) or any(part in file for part in _LIBRARIES)
        return found


_inside = _Inside()


def is_inside(file: str) -> bool:
    """Whether a file is loopwright's, or one that stands between the user's and it: NumPy's, Python's for decorators."""
    return _inside[file]


def user_source(own: int = 1) -> Source:
    """The innermost frame outside loopwright and NumPy. `own`: how many frames from here are known to be inside."""
    frame = sys._getframe(own)
    while _inside[frame.f_code.co_filename] and (caller := frame.f_back) is not None:
        frame = caller
    return _source(frame.f_code.co_filename, frame.f_lineno)
