"""Derivatives and batching: walks over graphs that emit where their arguments live, and the calls they serve."""
