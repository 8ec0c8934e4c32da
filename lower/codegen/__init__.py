"""Scheduled nests to LLVM IR text with explicit vectors."""
