"""Transposed memory, all pairs, loops that end elsewhere for every element, and arrays of ever new lengths."""
from __future__ import annotations

import numpy as np

import loopwright as lw
from benchmarks.compile import cold_seconds
from benchmarks.contest import check, contest, jax_module
from benchmarks.harness import Timing, interleaved, once_each, optional
from loopwright import lax


def transposed() -> list[Timing]:
    """transpose(x, (2, 0, 1)) + y of 256 x 256 x 256 float32; all axes the other way round."""
    x, y = np.random.default_rng(0).normal(size=(2, 256, 256, 256)).astype("float32")

    def program(xp, order):
        return lambda x, y: xp.transpose(x, order) + y

    def row(order, size, *args):
        return contest(f"transpose {order} + add, {size} f32", args, program(np, order),
                       jax=lambda jax: program(jax.numpy, order),
                       torch=lambda torch, optimised: optimised(lambda x, y: x.permute(order) + y))
    return row((2, 0, 1), "256^3", x, y) + row((2, 1, 0), "64x128x256", x[:64, :128].copy(), y[:, :128, :64].copy())


# ---- all pairs ----------------------------------------------------------------------------------
def _forces(xp):
    """Accelerations of bodies that attract one another: by broadcasting, as NumPy programs say it."""
    def f(p, m):
        x, y, z = p[:, 0], p[:, 1], p[:, 2]
        dx, dy, dz = x[None] - x[:, None], y[None] - y[:, None], z[None] - z[:, None]
        r2 = dx * dx + dy * dy + dz * dz + 1e-3
        w = m[None] / (r2 * xp.sqrt(r2))
        return xp.stack([xp.sum(w * dx, 1), xp.sum(w * dy, 1), xp.sum(w * dz, 1)], 1)
    return f


def _numba_forces(numba):
    def f(p, m):
        n = len(m)
        x, y, z, out = p[:, 0].copy(), p[:, 1].copy(), p[:, 2].copy(), np.empty((n, 3), np.float32)
        for i in range(n):
            ax = ay = az = np.float32(0)
            for j in range(n):
                dx, dy, dz = x[j] - x[i], y[j] - y[i], z[j] - z[i]
                r2 = dx * dx + dy * dy + dz * dz + np.float32(1e-3)
                w = m[j] / (r2 * np.sqrt(r2))
                ax += w * dx
                ay += w * dy
                az += w * dz
            out[i, 0], out[i, 1], out[i, 2] = ax, ay, az
        return out
    return {"numba": numba.njit(error_model="numpy")(f), "numba fastmath": numba.njit(error_model="numpy", fastmath=True)(f)}


def bodies() -> list[Timing]:
    """Forces among 2048 bodies, float32: rounded as NumPy does, and with fast_math."""
    rng = np.random.default_rng(0)
    args = rng.normal(size=(2048, 3)).astype("float32"), rng.uniform(size=2048).astype("float32")
    found = []
    for name, fast in (("n-body, 2048 f32", False), ("n-body with fast_math, 2048 f32", True)):
        found += contest(name, args, _forces(np), jit=lambda f, fast=fast: lw.jit(f, fast_math=fast), numba=_numba_forces,
                         jax=lambda jax: _forces(jax.numpy), tolerance=1e-4,
                         torch=lambda torch, optimised: optimised(_forces(torch)))
    return found


# ---- loops per element --------------------------------------------------------------------------
STEPS = 200


def _escape(lax, vmap):
    """How many steps z = z^2 + c stays within 2, for every c."""
    def one(a, b):
        def within(s):
            x, y, n = s
            return (n < STEPS) & (x * x + y * y <= 4)

        def step(s):
            x, y, n = s
            return x * x - y * y + a, 2 * x * y + b, n + 1
        return lax.while_loop(within, step, (a * 0, b * 0, np.int32(0)))[2]
    return vmap(vmap(one))


def _escape_by_masks(a, b):
    x, y, n = np.zeros_like(a), np.zeros_like(b), np.zeros(a.shape, np.int32)
    live = np.ones(a.shape, bool)
    for _ in range(STEPS):
        live &= x * x + y * y <= 4
        n += live
        x, y = np.where(live, x * x - y * y + a, x), np.where(live, 2 * x * y + b, y)
    return n


def _numba_escape(numba):
    def f(cr, ci):
        out = np.empty(cr.shape, np.int32)
        for i in range(cr.shape[0]):
            for j in range(cr.shape[1]):
                a, b, n = cr[i, j], ci[i, j], 0
                x = y = np.float32(0)
                while n < STEPS and x * x + y * y <= np.float32(4):
                    x, y = x * x - y * y + a, np.float32(2) * x * y + b
                    n += 1
                out[i, j] = n
        return out
    return {"numba": numba.njit(error_model="numpy")(f), "numba fastmath": numba.njit(error_model="numpy", fastmath=True)(f)}


def mandelbrot() -> list[Timing]:
    """512 x 512 points, at most 200 steps, float32. Contracted products move a few points across the edge."""
    b, a = np.meshgrid(np.linspace(-1.25, 1.25, 512), np.linspace(-2, 0.5, 512), indexing="ij")
    args = a.astype("float32"), b.astype("float32")
    expected = _escape_by_masks(*args)

    def close(who, found):
        assert np.mean(np.asarray(found) != expected) < 0.01, f"{who}: too many points differ"
    return contest("mandelbrot, 512^2 x 200 f32", args, _escape(lax, lw.vmap), numpy=_escape_by_masks, verify=close, rounds=7,
                   jax=lambda jax: _escape(jax.lax, jax.vmap), numba=_numba_escape)


# ---- lengths ------------------------------------------------------------------------------------
def _probabilities(xp):
    def f(x):
        x = xp.tanh(x) * 2 + x
        e = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
        return e / xp.sum(e, axis=-1, keepdims=True)
    return f


def lengths() -> list[Timing]:
    """A map and a softmax of 64 rows of 50 different lengths, all 50 calls: compiled before, and compiled on the way.

    torch.compile takes no part with compiles: it takes seconds."""
    rng, f = np.random.default_rng(0), _probabilities(np)
    xs = [rng.normal(size=(64, n)).astype("float32") for n in range(500, 1500, 20)]
    ours = lw.jit(f)
    for x in xs:
        check("lengths", ours(x), f(x.astype("float64")), 1e-5)
    assert ours.compiles == 1

    def fresh():
        g = lw.jit(lambda x: f(x))
        return [g(x) for x in xs]
    warm = {"loopwright": lambda: [ours(x) for x in xs], "numpy": lambda: [f(x) for x in xs]}
    cold = {"loopwright": fresh, "numpy": warm["numpy"]}
    if (torch := optional("torch")) is not None:
        theirs = [torch.from_numpy(x) for x in xs]
        warm["torch"] = cold["torch"] = lambda: [torch.softmax(torch.tanh(x) * 2 + x, -1) for x in theirs]
    if (jax := jax_module()) is not None:
        arrays, g = [jax.numpy.asarray(x) for x in xs], jax.jit(_probabilities(jax.numpy))
        warm["jax"] = lambda: jax.block_until_ready([g(x) for x in arrays])

        def jax_fresh():
            h = jax.jit(lambda x: _probabilities(jax.numpy)(x))
            return jax.block_until_ready([h(x) for x in arrays])
        cold["jax"] = jax_fresh
    timed = {name: lambda run=run: cold_seconds(run) for name, run in cold.items()}
    return interleaved("50 lengths of a softmax chain, compiled before", warm) + \
        once_each("50 lengths of a softmax chain, with compiles", timed)


WORKLOADS = (transposed, bodies, mandelbrot, lengths)
