"""Contractions: products summed over paired axes."""
from __future__ import annotations
