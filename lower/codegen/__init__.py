"""Scheduled nests to LLVM IR text with explicit vectors."""
from loopwright.lower.codegen.emit import emit_nest, emitted
from loopwright.lower.codegen.kernel_text import KernelText, exported

__all__ = ["KernelText", "emit_nest", "emitted", "exported"]
