"""Scheduled nests to LLVM IR text with explicit vectors."""
from loopwright.lower.codegen.kernel_text import KernelText, exported
from loopwright.lower.codegen.nests import emit_nest, emitted, usual_text

__all__ = ["KernelText", "emit_nest", "emitted", "exported", "usual_text"]
