"""Programs for a GPU run by the emulator, with NumPy for what is no kernel; or, where tests run on a GPU, there."""
import struct

import numpy as np

from loopwright.ir.dims import evaluate as size_of
from loopwright.ir.graph import Graph
from loopwright.ir.interpreter import evaluate
from loopwright.lower.cuda.launcher import Launcher
from loopwright.lower.cuda.program import sizes_in
from loopwright.lower.kernel import kernel
from loopwright.lower.runtime import lazy
from tests.devices import ON_GPU
from tests.emulator import FORWARD, REVERSE, Emulator, EmulatorError, Guarded
from tests.emulator.driver import launched, stored


class Offence(Exception):
    """What a kernel reported: site, index, axis, size."""


def compiled(*programs, flags=("-O1",)):
    """The emulator of programs whose kernels have names of their own, or of one; or the launcher of one, on a GPU."""
    if ON_GPU:
        program, = programs
        return Launcher(program, lazy.gpu(), captures=False)
    kernels = [k for p in programs for k in dict.fromkeys(p.made.values())]
    names = dict.fromkeys(x.name for k in kernels for x in k.launches)
    return Emulator("\n".join(p.text for p in programs), names, flags)


def run_kernel(emulator, made, inputs, outputs, sizes, order=FORWARD):
    """Run a kernel's launches on arrays; the outputs, whose contents are not read, come back."""
    error = Guarded(np.zeros(4, np.int64), order == REVERSE)
    scratch = [Guarded(np.full(size_of(x.count, sizes) * x.itemsize, 0xFF, np.uint8), order == REVERSE) for x in made.scratch]
    arrays = [Guarded(x, order == REVERSE) for x in (*inputs, *outputs)]
    try:
        for x in made.launches:
            values = [*arrays, *scratch, *(sizes[s] for s in made.symbols), error, *(size_of(y, sizes) for y in x.numbers)]
            emulator.launch(x.name, size_of(x.grid, sizes), x.threads, values, size_of(x.shared, sizes), order)
        for x in scratch:
            x.array()
        for x, before in zip(arrays[:len(inputs)], inputs, strict=True):
            if x.array().tobytes() != np.asarray(before, order="C").tobytes():
                raise EmulatorError(f"{made.name} wrote to an input")
        found = [x.array() for x in arrays[len(inputs):]]
        offence = struct.unpack("<4q", error.array().tobytes())
        if offence[0]:
            raise Offence(*offence)
        return found
    finally:
        for x in (error, *scratch, *arrays):
            x.close()


def run_program(program, emulator, args, sizes, order=FORWARD):
    """The results of a program."""
    if isinstance(emulator, Launcher):
        return _on_device(emulator, args, sizes)
    env = dict(zip(program.kernels.params, map(stored, args), strict=True))
    for n in program.kernels.nodes:
        inputs = [env[v] for v in n.inputs]
        if n in program.made:
            outs = [nonsense(v.type, sizes) for v in n.regions[0].results]
            made = program.made[n]
            outs = run_kernel(emulator, made, inputs, outs, sizes_in(n, made, sizes), order)
        elif n.op is kernel:
            outs = [np.asarray(x, order="C") for x in evaluate(n.regions[0], inputs, sizes)]
        else:  # a reshape, or control flow
            outs = [np.asarray(x, order="C") for x in evaluate(Graph(n.inputs, (n,), n.outputs), inputs, sizes)]
        env.update(zip(n.outputs, outs, strict=True))
    return [env[v] for v in program.kernels.results]


def _on_device(launcher, args, sizes):
    found = launched(launcher, args, sizes)
    for flags in launcher.flags.values():
        first = next((flags.words[k:k + 4].tolist() for k in range(0, len(flags.words), 4) if flags.words[k]), None)
        flags.words[:] = 0
        if first:
            raise Offence(*first)
    return found


def nonsense(t, sizes):
    """An array that nothing was stored to."""
    shape = [size_of(n, sizes) for n in t.shape]
    return np.frombuffer(b"\xff" * (int(np.prod(shape, dtype=int)) * t.dtype.itemsize), t.dtype).reshape(shape)
