"""Part of loopwright."""
