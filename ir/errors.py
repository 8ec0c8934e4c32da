"""The errors that users meet. Each has a page in docs/errors.md with a failing example."""
from __future__ import annotations


class ShapeError(ValueError):
    """Operand shapes that do not fit, with sizes and symbols."""


class DTypeError(TypeError):
    """An operation that is not defined for a dtype, or a dtype that loopwright does not have."""


class ArgumentError(TypeError):
    """An argument, result or captured object that is not an array, number or registered container."""


class ConcretizationError(TypeError):
    """A traced value without a concrete one was asked for its truth, its number or its array."""


class LeakedValueError(RuntimeError):
    """A traced value was used after its trace ended."""


class WriteError(TypeError):
    """An in-place write that cannot be a functional update."""


class AxisNameError(NameError):
    """A collective over a name that no `vmap` around it has given to its axis."""


class CollectiveError(ValueError):
    """A collective that not all elements of its axis reach together."""


class CheckError(ValueError):
    """A `check` whose condition did not hold when the program ran."""


class KernelError(RuntimeError):
    """A kernel that a user brings which cannot be loaded, is not what its signature says, or crashed in its first run."""


class ScheduleError(ValueError):
    """A schedule instruction that its kernel does not allow."""


class TuningError(RuntimeError):
    """A function that cannot be tuned: its program cannot run in the processes that measure."""


class GradientError(TypeError):
    """A derivative that does not exist: integer input, non-scalar output, or an op without a rule."""


class ShapeDeclarationError(ValueError):
    """A call that breaks the `shapes=` declaration of a jitted function, or a trace that needs more than it allows."""


class TraceStateError(RuntimeError):
    """A trace that changed state which a compiled call could not repeat."""


class VerificationError(AssertionError):
    """A graph that breaks an invariant of the IR: a bug in loopwright, or in hand-written IR text."""


class ParseError(ValueError):
    """IR text that does not parse, with its line and column."""
