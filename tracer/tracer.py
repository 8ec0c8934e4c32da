"""`Tracer`: a user's array inside a trace.

It wraps a `Ref` with NumPy's protocols. Guarantees: every operation is entered in a graph, none is computed; a value that
Python asks for (`if x:`, `int(x)`) is given where this trace knows values and refused, naming the user's line, where it
does not; an in-place write rebinds the tracer to a functional update and never reaches an argument, a view's base or an
outer trace.
"""
from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any
from weakref import ReferenceType, WeakValueDictionary

import numpy as np

from loopwright.ir.builder import Ref, innermost
from loopwright.ir.errors import ConcretizationError, WriteError
from loopwright.ir.source import user_source
from loopwright.ir.types import ArrayType
from loopwright.tracer.operators import Operators
from loopwright.tracer.size import Size, sized
from loopwright.tracer.tables import FUNCTIONS, call_function, call_ufunc, unsupported


def through_a_view(line: str) -> WriteError:
    """The error of `view += v` where the array would change that is a view of."""
    return WriteError(f"{line}: `y += v` on a view y of another array would write through the view. Write to the array itself "
                      f"(x[i] += v), or take a copy first (y = x[i].copy()).")


class Memory:
    """What an array and its views share.

    ref: the array's value now. version: how often it was written. members: those that Python still holds. waiting: a view
    changed by `view += v` that nothing has stored yet, what it remembers, and the line of that.
    """

    __slots__ = ("is_argument", "members", "ref", "version", "waiting")

    def __init__(self, array: Tracer, ref: Ref) -> None:
        self.ref, self.is_argument, self.version = ref, array.owner == "argument", 0
        self.members = WeakValueDictionary({id(array): array})
        self.waiting: tuple[Tracer, View, str] | None = None


class View:
    """How a view is read of the array, the version it was read at, and, for `base[key]`, the base and what the key means."""

    __slots__ = ("base", "derive", "layout_decides", "plan", "seen")

    def __init__(self, base: Tracer, derive: Callable[[Ref], Ref], layout_decides: bool, plan: Any, seen: int) -> None:
        self.base, self.derive, self.layout_decides = ReferenceType(base), derive, layout_decides
        self.plan, self.seen = plan, seen


class Tracer(Operators):
    """A traced array.

    owner: "argument" (of a transform: protected from writes), "local" (may be written), "view" (of another array) or "alone"
    (a view of an array that nothing else can read: may be written).
    contiguous: NumPy would surely hold it in C order, so that its reshapes are surely views.
    home: the trace whose function made it; only there it may be written.
    """

    __slots__ = ("__weakref__", "_memory", "_ref", "_view", "contiguous", "home", "owner")

    def __init__(self, ref: Ref, owner: str = "local", contiguous: bool = False) -> None:
        self._ref, self.owner, self.contiguous = ref, owner, contiguous
        self._memory: Memory | None = None
        self._view: View | None = None
        self.home = innermost()

    # ---- the value ------------------------------------------------------------------------------
    @property
    def ref(self) -> Ref:
        """The value as it is now: a view is read again after its array was written. LeakedValueError after its trace."""
        if self._memory is not None:
            self._read_again(self._memory)
        if not self._ref.builder.alive:
            raise self._ref.builder.leaked()
        return self._ref

    def _read_again(self, memory: Memory) -> None:
        if memory.waiting is not None:
            raise through_a_view(memory.waiting[2])
        view = self._view
        if view is None or view.seen == memory.version:
            return
        if view.layout_decides:
            raise WriteError(
                f"{user_source()}: an array was written after it was reshaped, and the reshaped one is read again. Whether "
                f"that is a view or a copy in NumPy depends on the memory layout, which a trace does not know. Reshape "
                f"after the write, or take x.reshape(...).copy() before it.")
        self._ref, view.seen = view.derive(memory.ref), memory.version

    def set_ref(self, ref: Ref) -> None:
        """Rebind an array that is no view to a new value; its views will be read again."""
        self._ref = ref
        if self._memory is not None:
            self._memory.ref = ref
            self._memory.version += 1

    def made(self, derive: Callable[[Ref], Ref], is_view: bool = True, layout_decides: bool = False,
             plan: Any = None) -> Tracer:
        """The array that `derive` makes of this one: a view of it, or new."""
        ref = derive(self.ref)
        if not is_view:
            return Tracer(ref)
        self.claim()
        memory = self._memory = self._memory or Memory(self, self._ref)
        out = Tracer(ref, "view")
        out._memory = memory
        if self._view is None:
            out._view = View(self, derive, layout_decides, plan, memory.version)
        else:
            inner = self._view.derive
            out._view = View(self, lambda array: derive(inner(array)), layout_decides or self._view.layout_decides, plan,
                             memory.version)
        memory.members[id(out)] = out
        return out

    def claim(self) -> bool:
        """Make this view an array, if Python holds neither its array nor another view of that; whether it was made one."""
        memory = self._memory
        if self._view is None or memory is None or memory.is_argument or memory.waiting or len(memory.members) > 1:
            return False
        self._ref, self._memory, self._view, self.owner = self.ref, None, None, "alone"
        return True

    # ---- `x[i] += v`, which Python does as view = x[i]; view += v; x[i] = view -------------------
    def wait(self, ref: Ref) -> None:
        """Take a value, which must be stored into the array before anyone reads the array or a view."""
        assert self._memory is not None and self._view is not None
        self._ref, self._memory.waiting = ref, (self, self._view, str(user_source()))

    def waited(self, value: Any) -> tuple[Any, str] | None:
        """The plan and the line of `value`, if it is a view `self[key]` that waits for its store; it does no longer."""
        memory = self._memory
        if memory is None or memory.waiting is None:
            return None
        waiting, view, line = memory.waiting
        if waiting is not value or view.base() is not self:
            return None
        memory.waiting = None
        return view.plan, line

    @property
    def type(self) -> ArrayType:
        """The type of the value."""
        return self.ref.type

    # ---- attributes -----------------------------------------------------------------------------
    @property
    def shape(self) -> tuple[Any, ...]:
        """Plain ints, and a `Size` for each symbolic size."""
        ref = self.ref
        scope = ref.builder.scope
        return tuple([n if isinstance(n, int) else Size(n, scope) for n in ref.shape])

    @property
    def dtype(self) -> np.dtype:
        return self.ref.value.type.dtype

    @property
    def ndim(self) -> int:
        return len(self.ref.value.type.shape)

    @property
    def size(self) -> Size | int:
        return sized(self.ref.type.size, self.ref.builder.scope)

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> Size | int:
        return self.size * self.itemsize

    @property
    def T(self) -> Any:
        return FUNCTIONS[np.transpose](self)

    @property
    def mT(self) -> Any:
        return FUNCTIONS[np.matrix_transpose](self)

    @property
    def real(self) -> Any:
        return FUNCTIONS[np.real](self)

    @property
    def imag(self) -> Any:
        return FUNCTIONS[np.imag](self)

    # ---- NumPy's protocols ----------------------------------------------------------------------
    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *args: Any, **kwargs: Any) -> Any:
        return call_ufunc(ufunc, method, args, kwargs)

    def __array_function__(self, function: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        return call_function(function, args, kwargs)

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        builder, value = self.ref.builder, self.ref.value
        has_slope = self.ref.type.is_inexact and not builder.is_of_sizes(value)  # np.eye(3)[labels] works under grad
        if not has_slope and (known := builder.concrete(value)) is not None:
            return np.array(known, *args, **kwargs)
        raise ConcretizationError(
            f"{user_source()}: a traced {self._describe()} was asked for its NumPy array: np.array(x), np.asarray(x), a "
            f"store into a real ndarray, an index into one, or a function without NumPy's protocols did that. Inside a trace "
            f"the value is not known, or its derivative would be lost. Use lw.numpy.array(x) or x.copy() for a traced copy, "
            f"lw.numpy.asarray(table)[x] for table[x], make arrays that you store into with lw.numpy.zeros(...) or "
            f"np.zeros_like(x), or move the call out of the traced function.")

    # ---- concrete values ------------------------------------------------------------------------
    def concrete(self, asked: str) -> Any:
        """The array that this is in this call. ConcretizationError, naming what was asked for, when the trace has none."""
        ref = self.ref
        value = ref.builder.concrete(ref.value)
        if value is None:
            where = ref.builder.why or "this trace"
            raise ConcretizationError(
                f"{user_source()}: {asked} needs the number that a traced {self._describe()} is, but {where} runs the "
                f"function once for all values (jit and vmap know types and sizes only). Three ways out: choose with "
                f"np.where(condition, a, b); pass the value as a static argument if it is a Python constant of the program; "
                f"or move this line out of the jit or vmap (under grad alone, values are known).")
        return value

    def _describe(self) -> str:
        ref = self._ref
        return f"{ref.dtype} array of shape {ref.builder.scope.describe(ref.shape)}"

    def __bool__(self) -> bool:
        if self.ndim and self.size == 0:
            raise ValueError(f"{user_source()}: the truth value of an empty array is ambiguous. Use `array.size > 0`.")
        if self.ndim and self.size != 1:
            raise ValueError(f"{user_source()}: the truth value of an array with more than one element is ambiguous. "
                             f"Use np.any(x) or np.all(x).")
        return bool(self.concrete("a Python truth test (if, while, and, or, not, assert)"))

    def _number(self, asked: str) -> Any:
        if self.ndim:
            raise TypeError(f"{user_source()}: only 0-dimensional arrays can be converted to Python scalars; "
                            f"this one has shape {self.shape}")
        return np.asarray(self.concrete(asked))[()]

    def __int__(self) -> int:
        return int(self._number("int(x)"))

    def __float__(self) -> float:
        return float(self._number("float(x), or a store of x into a real ndarray (make that with lw.numpy.zeros),"))

    def __complex__(self) -> complex:
        return complex(self._number("complex(x)"))

    def __index__(self) -> int:
        if self.dtype.kind not in "iu" or self.ndim:
            raise TypeError(f"{user_source()}: only integer scalar arrays can be converted to a scalar index")
        return operator.index(self._number("an index or a size made from data"))

    def __round__(self, digits: int | None = None) -> Any:
        """Of a number, as of NumPy's; of an array a TypeError, as NumPy's."""
        if self.ndim:
            raise TypeError(f"{user_source()}: round(x) takes numbers, got {self._describe()}; np.round takes arrays.")
        return round(self._number("round(x)")) if digits is None else FUNCTIONS[np.round](self, digits)

    def item(self, *at: Any) -> Any:
        """The element as a Python number, where the trace knows values."""
        return np.asarray(self.concrete("x.item()")).item(*at)

    def tolist(self) -> Any:
        return np.asarray(self.concrete("x.tolist()")).tolist()

    def __getattr__(self, name: str) -> Any:
        """What no traced array has: an AttributeError that says so of its line."""
        if name.startswith("_"):  # NumPy and others ask for protocols
            raise AttributeError(name, name=name, obj=self)
        instead = " Write y = x.copy(); y[i] = v for x.at[i].set(v), y[i] += v for .add(v)." if name == "at" else ""
        raise AttributeError(f"{user_source()}: a traced array has no attribute {name!r}.{instead}", name=name, obj=self)

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError(f"{user_source()}: len() of unsized object")
        return int(self.shape[0])

    def __iter__(self) -> Iterator[Any]:
        """Over the first axis; a symbolic size is fixed to this call's."""
        if not self.ndim:
            raise TypeError(f"{user_source()}: iteration over a 0-d array")
        return iter([self[i] for i in range(len(self))])

    def __repr__(self) -> str:
        return f"Tracer<{self._ref.type}>"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(self.concrete("format(x)"), spec) if spec else str(self)

    def __copy__(self) -> Tracer:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> Tracer:
        return self.copy()

    def __reduce__(self) -> Any:
        raise TypeError(f"{user_source()}: a traced value exists only inside its trace and cannot be pickled.")

    # ---- indexing -------------------------------------------------------------------------------
    def __getitem__(self, key: Any) -> Any:
        return FUNCTIONS[operator.getitem](self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        FUNCTIONS[operator.setitem](self, key, value)

    def __contains__(self, x: Any) -> bool:
        return bool((self == x).any())

    # ---- methods --------------------------------------------------------------------------------
    def astype(self, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True, copy: bool = True) -> Any:
        return FUNCTIONS[np.astype](self, dtype, copy=copy, casting=casting)

    def copy(self, order: str = "C") -> Tracer:
        """A local array of the same value, which may be written."""
        return Tracer(self.ref, contiguous=order == "C")

    def reshape(self, *shape: Any, order: str = "C", copy: bool | None = None) -> Any:
        return FUNCTIONS[np.reshape](self, shape[0] if len(shape) == 1 else shape, order=order, copy=copy)

    def transpose(self, *axes: Any) -> Any:
        return FUNCTIONS[np.transpose](self, (axes[0] if len(axes) == 1 else axes) if axes else None)

    def flatten(self, order: str = "C") -> Any:
        return FUNCTIONS[np.ravel](self, order).copy()

    def dot(self, other: Any) -> Any:
        return FUNCTIONS[np.dot](self, other)

    def fill(self, value: Any) -> None:
        self[...] = value

    def view(self, *args: Any) -> Any:
        raise unsupported("x.view", "x.astype(dtype) converts values; x[...] is a view of the same dtype.")

    def sort(self, axis: int = -1, kind: str | None = None, **kwargs: Any) -> None:
        """In place, as NumPy's method."""
        self[...] = FUNCTIONS[np.sort](self, axis=axis, kind=kind, **kwargs)
