"""Tracing: arrays as users see them, and the functions that run on them. Importing it fills the tables of NumPy's functions."""
from __future__ import annotations

from loopwright.tracer import functions_create as functions_create
from loopwright.tracer import functions_fft as functions_fft
from loopwright.tracer import functions_join as functions_join
from loopwright.tracer import functions_linalg as functions_linalg
from loopwright.tracer import functions_linear as functions_linear
from loopwright.tracer import functions_nan as functions_nan
from loopwright.tracer import functions_numeric as functions_numeric
from loopwright.tracer import functions_order as functions_order
from loopwright.tracer import functions_reduce as functions_reduce
from loopwright.tracer import functions_select as functions_select
from loopwright.tracer import functions_shape as functions_shape
from loopwright.tracer import indexing as indexing
from loopwright.tracer import ufuncs as ufuncs
from loopwright.tracer import writing as writing
