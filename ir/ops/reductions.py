"""Reductions over axes other than the sum: the axes vanish from the shape."""
from __future__ import annotations
