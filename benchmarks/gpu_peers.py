"""Who takes part in the GPU's benchmarks: loopwright, and peers that are installed. Each is a function that makes two: a call
without arguments, and one that waits for the device. Nothing is imported before it is asked for.
"""
from __future__ import annotations

import importlib

import numpy as np

import loopwright as lw
from benchmarks.contest import check, in_f64, leaves, mapped

TORCH = {
    "elementwise": lambda t, x: t.tanh(x) * x + 1,
    "vector add": lambda t, x, y: x + y,
    "sum": lambda t, x: t.sum(x),
    "row sums": lambda t, x: t.sum(x, 1),
    "column sums": lambda t, x: t.sum(x, 0),
    "softmax": lambda t, x: t.softmax(x, 1),
    "layernorm": lambda t, x: t.nn.functional.layer_norm(x, x.shape[1:]),
    "transpose": lambda t, x: (x.T * 2).contiguous(),
    "running sum": lambda t, x: t.cumsum(x, 0),
    "gather of rows": lambda t, x, k: x[k],
    "matmul": lambda t, a, b: a @ b,
    "matmul with epilogue": lambda t, a, b, c: t.tanh(a @ b + c),
    "attention": lambda t, q, k, v: t.softmax(q @ k.mT * 0.125, -1) @ v,
    "matmul, f16": lambda t, a, b: a @ b,
    "attention, f16": lambda t, q, k, v: t.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None])[0],
}


def peer(name):
    """A module that is installed, or None."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def installed(ways):
    """Those whose module is there, by the first word of their names."""
    return {name: make for name, make in ways.items() if peer(name.split(".")[0].split(",")[0]) is not None}


# ---- cases of large arrays ---------------------------------------------------------------------------
def of_case(case, args, driver, slow):
    """The contenders of a case; `slow`: those that take seconds to compile, and the others."""
    if slow:
        ways = {"torch.compile": lambda: _torch_case(case, args)}
        if case.name in ("vector add", "softmax", "matmul") and peer("torch") is not None:
            ways["triton"] = lambda: _triton(case, args)
        return {} if case.numpy_alone else installed(ways)

    def ours(**options):
        f, there = lw.jit(lambda *xs: case.f(np, *xs), **options), lw.device_put(args)
        return lambda: f(*there), driver.wait

    def cupy():
        module = peer("cupy")
        there = [module.asarray(x) for x in args]
        return lambda: case.f(module, *there), module.cuda.get_current_stream().synchronize
    found = {"loopwright": ours, "loopwright, no CUDA graphs": lambda: ours(cuda_graphs=False)}
    peers = {"cupy": cupy, "jax.jit": lambda: _jax(lambda jax: lambda *xs: case.f(jax.numpy, *xs), args)}
    if case.exactly:
        peers["jax.jit, products of f32 as f32"] = lambda: _jax(
            lambda jax: jax.default_matmul_precision("highest")(lambda *xs: case.f(jax.numpy, *xs)), args)
    return found if case.numpy_alone else found | installed(peers)


def from_nothing(program, arrays, driver):
    """The contenders for calls with arrays of many shapes, one after another."""
    def ours():
        f = lw.jit(lambda x: program(np, x))
        return lambda: [f(x) for x in arrays], driver.wait

    def jax():
        module = peer("jax")
        there = [module.device_put(driver.get(x), module.devices("gpu")[0]) for x in arrays]
        f, last = module.jit(lambda x: program(module.numpy, x)), []
        return lambda: last.extend(f(x) for x in there), lambda: module.block_until_ready(last)
    return {"loopwright": ours} | installed({"jax.jit": jax})


def _torch_case(case, args):
    module = peer("torch")
    if case.name not in TORCH:
        raise NotImplementedError("not written for torch")
    there = [module.from_numpy(x).cuda() for x in args]
    f = module.compile(lambda *xs: TORCH[case.name](module, *xs))
    return lambda: f(*there), module.cuda.synchronize


def _triton(case, args):
    module, programs = peer("torch"), importlib.import_module("benchmarks.triton_kernels").PROGRAMS
    there = [module.from_numpy(x).cuda() for x in args]
    found = np.asarray(programs[case.name](module, *there).cpu())
    want = in_f64(lambda *xs: case.f(np, *xs), tuple(args))
    check(f"{case.name}, triton", found, want, 1e-4)
    return lambda: programs[case.name](module, *there), module.cuda.synchronize


def _jax(program, args):
    module = peer("jax")
    module.config.update("jax_enable_x64", True)
    there = mapped(lambda x: module.device_put(x, module.devices("gpu")[0]), tuple(args))
    f, last = module.jit(program(module)), []

    def run():
        last[:] = [f(*there)]
        return last[0]
    return run, lambda: module.block_until_ready(last)


# ---- workloads of the processor's benchmarks ----------------------------------------------------------
def of_entry(entry, driver, slow):
    """The contenders of a workload, whose results are compared with the expected ones before they are timed."""
    ways = {"torch.compile": lambda: _torch_entry(entry, compiles=True)} if slow else {
        "cupy": lambda: _cupy_entry(entry), "jax.jit": lambda: _jax(entry.jax, entry.args),
        "torch": lambda: _torch_entry(entry, compiles=False)}
    ways = {name: way for name, way in ways.items() if (entry.jax if "jax" in name else True)
            and (entry.torch if "torch" in name else True) and (entry.compiles or name != "torch.compile")}
    found = {} if slow else {"loopwright": lambda: _our_entry(entry, driver)}
    return {name: lambda make=make, name=name: _checked(entry, name, *make())
            for name, make in (found | installed(ways)).items()}


def _checked(entry, name, run, wait):
    found = mapped(_on_host, run())
    wait()
    who = f"{entry.workload}, {name}"
    if entry.verify is not None:
        entry.verify(who, found)
    else:
        check(who, leaves(found), leaves(entry.expected), max(10 * entry.tolerance, 1e-4))
    return run, wait


def _on_host(x):
    """An array of any contender as NumPy's."""
    if hasattr(x, "detach"):
        return x.detach().cpu().numpy()
    return x.get() if hasattr(x, "get") else np.asarray(x)


def _our_entry(entry, driver):
    f, there = entry.jit(entry.ours), lw.device_put(entry.args)
    return lambda: f(*there), driver.wait


def _cupy_entry(entry):
    module = peer("cupy")
    f, there = entry.numpy or entry.ours, mapped(module.asarray, entry.args)
    return lambda: f(*there), module.cuda.get_current_stream().synchronize


def _torch_entry(entry, compiles):
    module = peer("torch")
    module.set_default_device("cuda")
    f = entry.torch(module, module.compile if compiles else lambda f: f)
    there = mapped(lambda x: module.from_numpy(x).cuda(), entry.args)
    return lambda: f(*there), module.cuda.synchronize
