"""Tracing: arrays as users see them, and the functions that run on them. Importing it fills the tables of NumPy's functions."""
from __future__ import annotations

from loopwright.tracer import indexing as indexing
from loopwright.tracer import ufuncs as ufuncs
from loopwright.tracer import writing as writing
