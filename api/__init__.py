"""loopwright: a tracing compiler for NumPy functions."""
from __future__ import annotations

from loopwright import debug, lax, nn, numpy, ops, random, scipy
from loopwright.autodiff.calls import float0
from loopwright.callbacks import pure_callback
from loopwright.checks import check, debug_nans
from loopwright.custom import checkpoint, checkpoint_policies, custom_jvp, custom_vjp, remat
from loopwright.inspection import make_graph, parse
from loopwright.ir.errors import (
    ArgumentError,
    AxisNameError,
    CheckError,
    CollectiveError,
    ConcretizationError,
    DTypeError,
    GradientError,
    LeakedValueError,
    ParseError,
    ShapeDeclarationError,
    ShapeError,
    TraceStateError,
    VerificationError,
    WriteError,
)
from loopwright.jacobians import hessian, jacfwd, jacrev
from loopwright.jit import jit
from loopwright.lower.runtime.pool import set_threads
from loopwright.tools import ShapeDtypeStruct, eval_shape, hvp, linear_transpose, release_memory
from loopwright.tracer.pytree import register_pytree_node
from loopwright.tracer.size import SpecialisationWarning
from loopwright.transforms import grad, jvp, linearize, value_and_grad, vjp, vmap
from loopwright.versions import DonationWarning, RecompilationWarning, disable_jit

__version__ = "0.1.0"

__all__ = [
    "ArgumentError", "AxisNameError", "CheckError", "CollectiveError", "ConcretizationError", "DTypeError", "DonationWarning",
    "GradientError", "LeakedValueError", "ParseError", "RecompilationWarning", "ShapeDeclarationError", "ShapeDtypeStruct",
    "ShapeError", "SpecialisationWarning", "TraceStateError", "VerificationError", "WriteError", "check", "checkpoint",
    "checkpoint_policies", "custom_jvp", "custom_vjp", "debug", "debug_nans", "disable_jit", "eval_shape", "float0", "grad",
    "hessian", "hvp", "jacfwd", "jacrev", "jit", "jvp", "lax", "linear_transpose", "linearize", "make_graph", "nn", "numpy",
    "ops", "parse", "pure_callback", "random", "register_pytree_node", "release_memory", "remat", "scipy", "set_threads",
    "value_and_grad", "vjp", "vmap",
]
