"""Vector maths: sequences of machine-neutral operations, one source for every width and backend."""
from __future__ import annotations
FUNCTIONS = {}
