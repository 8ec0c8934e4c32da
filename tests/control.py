"""Programs with control flow, written once for three engines: this package, plain Python loops, and JAX where it is installed.

A program takes the engine and calls its `np`, `cond`, `scan`, ... In `Plain` these are Python loops over NumPy arrays of any
precision, so differences of them are an expectation of their own. In `Jax` a while is a scan, because JAX has no reverse mode
through `while`; what its transforms make is run by NumPy.
"""
import numpy as np

import loopwright as lw
from loopwright import lax
from tests.jax_evaluation import evaluate


class Ours:
    """loopwright itself."""

    np = np
    cond, switch, scan, map = (staticmethod(f) for f in (lax.cond, lax.switch, lax.scan, lax.map))
    while_loop, fori_loop, associative_scan = (staticmethod(f) for f in (lax.while_loop, lax.fori_loop, lax.associative_scan))
    grad, value_and_grad, jvp, vjp, linearize, jacfwd, jacrev, vmap, jit = (staticmethod(f) for f in (
        lw.grad, lw.value_and_grad, lw.jvp, lw.vjp, lw.linearize, lw.jacfwd, lw.jacrev, lw.vmap, lw.jit))


class Plain:
    """Python's own control flow. Derivatives are those of the engine that it is mixed with."""

    np = np

    @staticmethod
    def cond(pred, true_fun, false_fun, *operands):
        return true_fun(*operands) if pred else false_fun(*operands)

    @staticmethod
    def switch(index, branches, *operands):
        return branches[min(max(int(index), 0), len(branches) - 1)](*operands)

    @staticmethod
    def while_loop(cond_fun, body_fun, val):
        while cond_fun(val):
            val = body_fun(val)
        return val

    @staticmethod
    def fori_loop(lower, upper, body_fun, val):
        for i in range(int(lower), int(upper)):
            val = body_fun(i, val)
        return val

    @staticmethod
    def scan(f, init, xs, reverse=False):
        ys = []
        for x in xs[::-1] if reverse else xs:
            init, y = f(init, x)
            ys.append(y)
        return init, np.stack(ys[::-1] if reverse else ys)

    @staticmethod
    def map(f, xs):
        return np.stack([f(x) for x in xs])

    @staticmethod
    def associative_scan(f, xs):
        out = [xs[0]]
        for x in xs[1:]:
            out.append(f(out[-1], x))
        return np.stack(out)


def jax_engine(most_trips):
    """JAX as an engine, or None where it is not installed. A while there is a scan of this many trips that may do nothing."""
    try:
        import jax
    except ImportError:
        return None
    jax.config.update("jax_enable_x64", True)
    jnp, control = jax.numpy, jax.lax

    def trips(cond_fun, body_fun, val, count):
        def trip(k, v):
            return control.cond(cond_fun(k, v), lambda v: body_fun(k, v), lambda v: v, v)
        return control.fori_loop(0, count, trip, jax.tree.map(jnp.asarray, val))

    class Jax(Plain):
        np = jnp
        grad, value_and_grad, jvp, vjp, linearize, jacfwd, jacrev, vmap, jit = (staticmethod(f) for f in (
            jax.grad, jax.value_and_grad, jax.jvp, jax.vjp, jax.linearize, jax.jacfwd, jax.jacrev, jax.vmap, lambda f: f))
        cond, switch, scan, map, associative_scan = (staticmethod(f) for f in (
            control.cond, control.switch, control.scan, control.map, control.associative_scan))

        @staticmethod
        def run(f, x):
            """f(x), a dense array."""
            made = jax.make_jaxpr(f)(x)
            return np.asarray(evaluate(made.jaxpr, made.consts, [x])[0])

        @staticmethod
        def while_loop(cond_fun, body_fun, val):
            return trips(lambda k, v: cond_fun(v), lambda k, v: body_fun(v), val, most_trips)

        @staticmethod
        def fori_loop(lower, upper, body_fun, val):
            return trips(lambda k, v: lower + k < upper, lambda k, v: body_fun(lower + k, v), val,
                         upper - lower if isinstance(upper, int) else most_trips)

    return Jax
