"""Fit the physics of a damped pendulum by differentiating an adaptive ODE solver: reverse mode through `while_loop`.

The solver (Bogacki and Shampine's 3(2) pair) chooses its own steps, so the number of trips depends on the parameters. The
gradient of the misfit goes through every step that was taken, without a bound given beforehand.
"""
from __future__ import annotations

import sys
import time

import numpy as np

import loopwright as lw
from loopwright import lax

TRUTH = np.array([0.35, 2.2])  # damping, gravity over length
START = np.array([1.2, 0.0])  # angle, angular velocity
TOLERANCE = 1e-7


def slope(y, p):
    return np.stack([y[1], -p[0] * y[1] - p[1] * np.sin(y[0])])


def attempt(y, h, p):
    """One step of length h: where it leads, and an estimate of its error."""
    k1 = slope(y, p)
    k2 = slope(y + h * k1 / 2, p)
    k3 = slope(y + h * k2 * 3 / 4, p)
    end = y + h * (2 * k1 + 3 * k2 + 4 * k3) / 9
    k4 = slope(end, p)
    return end, np.max(np.abs(h * (-5 * k1 + 6 * k2 + 8 * k3 - 9 * k4) / 72))


def advance(y, span, p):
    """The state after `span` seconds, and how many steps were tried."""
    def going(state):
        return state[0] < span

    def step(state):
        t, y, h, tried = state
        h = np.minimum(h, span - t)
        end, error = attempt(y, h, p)
        accepted = error <= TOLERANCE
        following = h * np.clip(0.9 * (TOLERANCE / (error + 1e-30)) ** (1 / 3), 0.2, 5.0)
        return np.where(accepted, t + h, t), np.where(accepted, end, y), following, tried + 1

    state = lax.while_loop(going, step, (0.0 * span, y, 0.01 + 0.0 * span, 0))
    return state[1], state[3]


def path(p, spans):
    """The state at the end of each span."""
    def one(y, span):
        y, tried = advance(y, span, p)
        return y, (y, tried)
    return lax.scan(one, START + 0.0 * p, spans)[1]


def misfit(p, spans, seen):
    return np.mean((path(p, spans)[0][:, 0] - seen) ** 2)


def main():
    rng = np.random.default_rng(0)
    spans = rng.uniform(0.1, 0.4, 40)
    seen = path(TRUTH, spans)[0][:, 0] + rng.normal(0, 0.01, 40)
    value_and_grad = lw.jit(lw.value_and_grad(misfit))
    hessian = lw.jit(lw.jacfwd(lw.grad(misfit)))
    p = np.array([0.1, 1.5])
    start = time.perf_counter()
    for k in range(30):
        value, gradient = value_and_grad(p, spans, seen)
        curvature = hessian(p, spans, seen)
        scale = np.trace(curvature) * (1e-3 if k > 5 else 0.3)
        p = p - np.linalg.solve(curvature + scale * np.eye(2), gradient)
        if k % 6 == 0:
            print(f"iteration {k:2d}  misfit {value:.6f}  damping {p[0]:.4f}  gravity/length {p[1]:.4f}")
    tried = lw.jit(path)(p, spans)[1]
    print(f"{np.sum(tried)} steps of the solver for {spans.sum():.1f} s of swinging; "
          f"{time.perf_counter() - start:.1f} s in all")

    step = 1e-5
    differences = [(misfit(p + step * e, spans, seen) - misfit(p - step * e, spans, seen)) / (2 * step)
                   for e in np.eye(2)]
    elsewhere = np.array([0.2, 1.9])
    wanted = [(misfit(elsewhere + step * e, spans, seen) - misfit(elsewhere - step * e, spans, seen)) / (2 * step)
              for e in np.eye(2)]
    got = value_and_grad(elsewhere, spans, seen)[1]
    print(f"gradient at {elsewhere}: {got}, by differences {np.array(wanted)}")
    print(f"found {p}, truth {TRUTH}")
    if not (np.allclose(p, TRUTH, rtol=0.03) and np.allclose(got, wanted, rtol=1e-3) and np.max(np.abs(differences)) < 1e-3):
        sys.exit("the fit is off")


if __name__ == "__main__":
    main()
