"""Scheduled nests to LLVM IR text with explicit vectors."""
from loopwright.lower.codegen.emit import KernelText, emit_nest, exported

__all__ = ["KernelText", "emit_nest", "exported"]
