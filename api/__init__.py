"""loopwright: a tracing compiler for NumPy functions."""
