"""Derivatives and batching. Importing it enters every walk, so that each can reach the others inside regions."""
from __future__ import annotations

from loopwright.autodiff import batching as batching
from loopwright.autodiff import jvp as jvp
from loopwright.autodiff import transpose as transpose
