"""Compiling nests on their own: the generator's text with an exported wrapper, called on NumPy arrays."""
import ctypes
from dataclasses import replace

import numpy as np

from loopwright.ir.dims import symbol
from loopwright.ir.loops import Apply, Index, Load
from loopwright.ir.nest import Buffer, For, Nest, Store
from loopwright.lower.codegen import emit_nest
from loopwright.lower.runtime import engine, support
from loopwright.lower.runtime.linking import imported
from loopwright.lower.target import Target, host_target

N = symbol("n")
I = Index("i")  # noqa: E741
POOL = """
define internal void @lw_loop(ptr %body, ptr %context, i64 %n, i64 %each, i64 %least, i64 %together) {
entry:
  %third = sdiv i64 %n, 3
  %groups = sdiv i64 %third, %together
  %whole = add i64 %groups, 1
  %grain = mul i64 %whole, %together
  br label %chunk
chunk:
  %begin = phi i64 [ 0, %entry ], [ %end, %chunk ]
  %next = add i64 %begin, %grain
  %end = call i64 @llvm.smin.i64(i64 %next, i64 %n)
  call void %body(ptr %context, i64 %begin, i64 %end)
  %more = icmp slt i64 %end, %n
  br i1 %more, label %chunk, label %done
done:
  ret void
}
"""


def target_of(bits: int, monkeypatch=None) -> Target:
    """This machine limited to vectors of so many bits."""
    if monkeypatch is None:
        return host_target()
    monkeypatch.setenv("LOOPWRIGHT_VECTOR_BITS", str(bits))
    return host_target()


def module_text(nest: Nest, target: Target) -> str:
    """A whole module: the nest, an exported wrapper, a pool that runs chunks in turn."""
    kernel = emit_nest(nest, target)
    arguments = ", ".join([*(f"ptr %b{k}" for k in range(len(nest.buffers))), *(f"i64 %n{k}" for k in range(len(nest.symbols))),
                           "ptr %error"])
    lines = {line.replace("@lw_wide_loop", "@lw_loop") for line in kernel.declarations}
    own, text = kernel.text.replace("@lw_wide_loop", "@lw_loop"), ""
    if any("@lw_loop" in line for line in lines):
        lines = {line for line in lines if "@lw_loop" not in line} | {"declare i64 @llvm.smin.i64(i64, i64)"}
        text = POOL
    return "\n".join([*sorted(lines), *sorted(kernel.globals), own, text,
                      f"define void @run({arguments}) {{\n  call void @{kernel.name}({arguments})\n  ret void\n}}"])


def compile_nest(nest: Nest, target: Target):
    """call(*arrays, sizes=()) -> the four error words."""
    text = module_text(nest, target)
    library = engine.load(engine.assemble(text, target), {name: support.address(name) for name in imported([text])}, ["run"])
    count = len(nest.buffers)
    kinds = [ctypes.c_void_p] * count + [ctypes.c_int64] * len(nest.symbols) + [ctypes.c_void_p]
    function = ctypes.CFUNCTYPE(None, *kinds)(library["run"])

    def call(*arrays, sizes=()):
        error = np.zeros(4, np.int64)
        function(*(a.ctypes.data for a in arrays), *sizes, error.ctypes.data)
        return list(error)
    call.library = library
    return call


def elementwise_nest(fn: str, dtypes, result, lanes: int, unroll: int = 1, literal=None) -> Nest:
    """y[i] = fn(x0[i], x1[i], ...)."""
    inputs = tuple(Buffer(f"x{k}", (N,), d, "input") for k, d in enumerate(dtypes))
    args = tuple(Load(b.name, (I,), b.dtype) for b in inputs) + (() if literal is None else (literal,))
    value = Apply(fn, args, result)
    loop = For(I, N, (Store("y", (I,), value),), lanes, unroll)
    return Nest("kernel", (*inputs, Buffer("y", (N,), result, "output")), ("n",), (loop,))


def run_elementwise(fn: str, arrays, result, target: Target, *, unroll: int = 1):
    """fn on arrays of one length, with the lanes that the widest dtype takes."""
    widest = max((a.dtype for a in arrays), key=lambda d: d.itemsize)
    widest = max(widest, np.dtype(result), key=lambda d: d.itemsize)
    call = compile_nest(elementwise_nest(fn, [a.dtype for a in arrays], np.dtype(result), target.lanes(widest), unroll), target)

    def apply(*values):
        values = [np.ascontiguousarray(v) for v in values]
        out = np.zeros(len(values[0]), result)
        return out, call(*values, out, sizes=(len(values[0]),))
    return apply


def without(target: Target, **changes) -> Target:
    """The target with some fields changed."""
    return replace(target, **changes)
