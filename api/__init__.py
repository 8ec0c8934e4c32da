"""loopwright: a tracing compiler for NumPy functions.

Every name is imported at its first use, and with it what it needs: a program that only mentions loopwright loads nothing.
"""
from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loopwright import debug, lax, loops, nn, numpy, ops, random, scipy, tree
    from loopwright.autodiff.calls import float0
    from loopwright.callbacks import pure_callback
    from loopwright.checks import check, debug_nans
    from loopwright.custom import checkpoint, checkpoint_name, checkpoint_policies, custom_jvp, custom_vjp, remat
    from loopwright.inspection import make_graph
    from loopwright.ir.errors import (
        ArgumentError,
        AxisNameError,
        CheckError,
        CollectiveError,
        ConcretizationError,
        DTypeError,
        GradientError,
        KernelError,
        LeakedValueError,
        ParseError,
        ScheduleError,
        ShapeDeclarationError,
        ShapeError,
        TraceStateError,
        TuningError,
        VerificationError,
        WriteError,
    )
    from loopwright.jacobians import hessian, jacfwd, jacrev
    from loopwright.jitted import jit
    from loopwright.lower.runtime.pool import set_threads
    from loopwright.modules import parse
    from loopwright.placement import device_put, devices, set_checks
    from loopwright.schedules import schedule
    from loopwright.tools import ShapeDtypeStruct, eval_shape, hvp, linear_transpose, release_memory
    from loopwright.tracer.pytree import register_pytree_node
    from loopwright.tracer.size import SpecialisationWarning
    from loopwright.transforms import grad, jvp, linearize, value_and_grad, vjp, vmap
    from loopwright.tuner import tune, tuning
    from loopwright.user_kernels import kernel
    from loopwright.versions import DonationWarning, RecompilationWarning, disable_jit

__version__ = "0.1.0"

__all__ = [
    "ArgumentError", "AxisNameError", "CheckError", "CollectiveError", "ConcretizationError", "DTypeError",
    "DonationWarning", "GradientError", "KernelError", "LeakedValueError", "ParseError", "RecompilationWarning",
    "ScheduleError", "ShapeDeclarationError", "ShapeDtypeStruct", "ShapeError", "SpecialisationWarning", "TraceStateError",
    "TuningError", "VerificationError", "WriteError", "check", "checkpoint", "checkpoint_name", "checkpoint_policies",
    "custom_jvp", "custom_vjp", "debug", "debug_nans", "device_put", "devices", "disable_jit", "eval_shape", "float0",
    "grad", "hessian", "hvp", "jacfwd", "jacrev", "jit", "jvp", "kernel", "lax", "linear_transpose", "linearize", "loops",
    "make_graph", "nn", "numpy", "ops", "parse", "pure_callback", "random", "register_pytree_node", "release_memory",
    "remat", "schedule", "scipy", "set_checks", "set_threads", "tree", "tune", "tuning", "value_and_grad", "vjp", "vmap",
]

_SUBMODULES = ("debug", "lax", "loops", "nn", "numpy", "ops", "random", "scipy", "tree")
_NAMES = {
    "autodiff.calls": ("float0",),
    "callbacks": ("pure_callback",),
    "checks": ("check", "debug_nans"),
    "custom": ("checkpoint", "checkpoint_name", "checkpoint_policies", "custom_jvp", "custom_vjp", "remat"),
    "inspection": ("make_graph",),
    "ir.errors": ("ArgumentError", "AxisNameError", "CheckError", "CollectiveError", "ConcretizationError", "DTypeError",
                  "GradientError", "KernelError", "LeakedValueError", "ParseError", "ScheduleError", "ShapeDeclarationError",
                  "ShapeError", "TraceStateError", "TuningError", "VerificationError", "WriteError"),
    "jacobians": ("hessian", "jacfwd", "jacrev"),
    "jitted": ("jit",),
    "lower.runtime.pool": ("set_threads",),
    "modules": ("parse",),
    "placement": ("device_put", "devices", "set_checks"),
    "schedules": ("schedule",),
    "tools": ("ShapeDtypeStruct", "eval_shape", "hvp", "linear_transpose", "release_memory"),
    "tracer.pytree": ("register_pytree_node",),
    "tracer.size": ("SpecialisationWarning",),
    "transforms": ("grad", "jvp", "linearize", "value_and_grad", "vjp", "vmap"),
    "tuner": ("tune", "tuning"),
    "user_kernels": ("kernel",),
    "versions": ("DonationWarning", "RecompilationWarning", "disable_jit"),
}
_OWNER = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return import_module(f"{__name__}.{name}")
    if name not in _OWNER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_OWNER[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
