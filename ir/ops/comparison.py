"""Questions about elements: the results are bool and have no tangents. `x > y` is `lt(y, x)`."""
from __future__ import annotations

import numpy as np

from loopwright.ir.ops.elementwise import INEXACT, ORDERED, between, elementwise, truth
from loopwright.ir.types import DTYPES, FLOATS

_few = between(0, 3)  # small numbers, so that integers are often equal

eq = elementwise("eq", np.equal, 2, DTYPES, doc="x == y; NaN equals nothing.", result=truth, draw=_few)
ne = elementwise("ne", np.not_equal, 2, DTYPES, doc="x != y; NaN differs from everything.", result=truth, draw=_few)
lt = elementwise("lt", np.less, 2, ORDERED, doc="x < y; false for NaN; False < True.", result=truth, draw=_few)
le = elementwise("le", np.less_equal, 2, ORDERED, doc="x <= y; false for NaN; False < True.", result=truth, draw=_few)

isnan = elementwise("isnan", np.isnan, 1, INEXACT, doc="Whether x, or a part of complex x, is NaN.", result=truth)
isinf = elementwise("isinf", np.isinf, 1, INEXACT, doc="Whether x, or a part of complex x, is infinite.", result=truth)
isfinite = elementwise("isfinite", np.isfinite, 1, INEXACT, doc="Whether x is neither NaN nor infinite in any part.",
                       result=truth)
signbit = elementwise("signbit", np.signbit, 1, FLOATS, doc="The sign bit: true for -0.0 and negative NaN.", result=truth)
