"""Scheduled nests as CUDA text: the kernels of a program for a GPU."""
from loopwright.lower.cuda.emit import CudaKernel, emit_cuda
from loopwright.lower.cuda.program import CudaProgram, lower_cuda
from loopwright.lower.cuda.rules import gpu_schedule

__all__ = ["CudaKernel", "CudaProgram", "emit_cuda", "gpu_schedule", "lower_cuda"]
