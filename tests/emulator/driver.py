"""The CUDA emulator as a device: what the launcher asks of one, over guarded memory; and arrays there, as CuPy's are.

A captured graph holds the addresses that it was made with, as on a device: a replay with others in mind is wrong here too.
"""
import ctypes
import time

import numpy as np

from loopwright.ir.dims import evaluate
from loopwright.ir.interpreter import evaluate as evaluate_graph
from loopwright.lower.cuda.driver import Device, Located
from tests.emulator import FORWARD, REVERSE, Emulator, Guarded, Places


class Memory(Guarded):
    """Bytes that are nonsense at first and given back when the last reference goes."""

    def __init__(self, count, places, at_start=False):
        super().__init__(np.full(count, 0xFF, np.uint8), at_start, places)

    def __del__(self):
        self.array()  # raises where bytes beside it were written
        self.close()


class Flags:
    def __init__(self, count):
        self.words = np.zeros(count, np.int64)
        self.address = self.words.ctypes.data


class Array:
    """An array in the emulator's memory: as much of CuPy's as arguments need. `like`: one of NumPy's over the same bytes."""

    def __init__(self, memory, like):
        self.memory, self.like = memory, like
        self.shape, self.dtype, self.ndim, self.strides = like.shape, like.dtype, like.ndim, like.strides
        self.size, self.nbytes = like.size, like.nbytes

    @property
    def address(self):
        return self.like.__array_interface__["data"][0]

    @property
    def __cuda_array_interface__(self):
        return {"shape": self.shape, "typestr": self.dtype.str, "data": (self.address, False), "version": 3}

    def __array__(self, *args, **kwargs):
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")

    def __getitem__(self, key):
        """A view."""
        return Array(self.memory, self.like[key])

    def get(self):
        return np.array(self.like, order="C")


class Product:
    can_capture = True

    def __init__(self, driver, n, sizes):
        self.driver, self.node, self.sizes = driver, n, sizes

    def __call__(self, inputs, outputs):
        self.driver._do("library gemm", lambda: self._run(inputs, outputs[0]))

    def _run(self, inputs, output):
        g = self.node.regions[0]
        shapes = [tuple([evaluate(n, self.sizes) for n in v.type.shape]) for v in (*self.node.inputs, *self.node.outputs)]
        located = [Located(at, shape, v.type.dtype)
                   for at, shape, v in zip((*inputs, output), shapes, (*g.params, *g.results), strict=True)]
        args = [np.frombuffer(ctypes.string_at(x.address, x.bytes), x.dtype).reshape(x.shape) for x in located[:-1]]
        found, = evaluate_graph(g, args)
        self.driver.write(located[-1], np.asarray(found, located[-1].dtype).reshape(located[-1].shape))


class EmulatorDriver:
    """See `lower.cuda.driver.Driver`. `log`: what was done, by name, replays too."""

    def __init__(self, order=FORWARD, flags=("-O0",)):
        self.order, self.options, self.places = order, flags, Places()
        self.log, self.noted, self.number = [], None, 0

    origin, kind = "tests.emulator.driver:EmulatorDriver", Array
    device = Device("the emulator", 1, 1e8, 1, 1e9, 1 << 20, 1024)

    def elapsed(self, run):
        """What it takes here, one thread after another."""
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    def load(self, text, names):
        self.emulator = Emulator(text, names, self.options)
        return {name: (self.emulator, name) for name in names}

    def _do(self, name, action):
        if self.noted is not None:
            self.noted.append((name, action))
            return
        self.log.append(name)
        action()

    def launch(self, function, grid, threads, shared, arguments):
        emulator, name = function
        arguments = list(arguments)
        self._do(name, lambda: emulator.launch(name, grid, threads, arguments, shared, self.order))

    def library(self, n, sizes):
        """Products of matrices are NumPy's, of what is at the addresses then; other libraries are missing."""
        return Product(self, n, sizes) if n.attrs["implementation"] == "gemm" else None

    def capture(self, run):
        assert self.noted is None, "a capture in a capture"
        self.noted = []
        try:
            run()
            noted = self.noted
        finally:
            self.noted = None

        def replay():
            self.log.append(f"replay of {len(noted)}")
            for _, action in noted:
                action()
        return replay

    def stream(self):
        return self.number

    def allocate(self, count):
        assert self.noted is None, "memory was asked for in a capture"
        return Memory(count, self.places, self.order == REVERSE)

    def flags(self, count):
        return Flags(count)

    def copy(self, to, source, count):
        self._do("copy", lambda: ctypes.memmove(to, source, count))

    def read(self, x):
        assert self.noted is None, "the host read in a capture"
        self.log.append("read")
        return np.frombuffer(ctypes.string_at(x.address, x.bytes), x.dtype).reshape(x.shape).copy()

    def write(self, to, x):
        assert x.dtype == to.dtype and x.shape == to.shape, f"{x.dtype}{x.shape} for {to}"
        ctypes.memmove(to.address, np.ascontiguousarray(x).tobytes(), to.bytes)

    def wait(self):
        self.log.append("wait")

    # ---- arrays ----------------------------------------------------------------------------------
    def empty(self, shape, dtype):
        dtype, count = np.dtype(dtype), int(np.prod(shape, dtype=int))
        memory = Memory(count * dtype.itemsize, self.places, self.order == REVERSE)
        held = memory.bytes[memory.start:memory.stop]
        return Array(memory, held.view(dtype).reshape(shape))

    def native(self, x):
        return x if x.like.flags.c_contiguous and x.address % 16 == 0 else self.put(x.get())

    def address(self, x):
        return x.address

    def is_alone(self, x):
        return x.nbytes == x.memory.like.size

    def put(self, x):
        made = self.empty(np.shape(x), x.dtype)
        made.like[...] = x
        return made

    def get(self, x):
        return x.get()


def launched(launcher, args, sizes):
    """The results of a program through its launcher, for NumPy arrays; numbers go by value."""
    driver, program = launcher.driver, launcher.program
    held = [np.asarray(x) if np.ndim(x) == 0 else driver.put(stored(x)) for x in args]
    outs = [held[program.donations[k]] if k in program.donations
            else driver.empty([evaluate(n, sizes) for n in v.type.shape], v.type.dtype)
            for k, v in enumerate(program.kernels.results)]
    launcher([driver.address(x) if isinstance(x, driver.kind) else x.tobytes() for x in held],
             [driver.address(x) for x in outs], sizes)
    for x, before in zip(held, args, strict=True):
        if isinstance(x, driver.kind) and not any(x is y for y in outs):
            assert driver.get(x).tobytes() == stored(before).tobytes(), "an argument was written"
    return [driver.get(x) for x in outs]


def stored(x):
    """Complex numbers as pairs of real ones."""
    x = np.asarray(x)
    return np.stack([x.real, x.imag], axis=-1) if x.dtype.kind == "c" else x
