"""Random bits: each word of threefry's block is an op. No tangents."""
from __future__ import annotations

import numpy as np

from loopwright.ir.ops.elementwise import between, elementwise
from loopwright.ir.threefry import NumpyWords, threefry
from loopwright.ir.types import U32

_words = between(0, 2 ** 32)


def _first(*words: np.ndarray) -> np.ndarray:
    return np.asarray(threefry(NumpyWords(), *words)[0])


def _second(*words: np.ndarray) -> np.ndarray:
    return np.asarray(threefry(NumpyWords(), *words)[1])


threefry_first = elementwise(
    "threefry_first", _first, 4, (U32,), draw=_words,
    doc="The first word of the block of a counter under a key; operands: the key's two words, the counter's two.",
)
threefry_second = elementwise(
    "threefry_second", _second, 4, (U32,), draw=_words,
    doc="The second word of the block of a counter under a key; operands: the key's two words, the counter's two.",
)
