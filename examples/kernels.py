"""A kernel of one's own inside a traced function: a stencil in hand-written loops, with its transpose.

An image is blurred by a stencil whose loops say themselves what runs in lanes and on threads. The stencil is linear, so its
transpose is all that reverse mode needs: gradient descent recovers an image from its blurred form.
"""
from __future__ import annotations

import sys

import numpy as np

import loopwright as lw
from loopwright import loops

SHARE = 0.15  # of each neighbour


@lw.kernel("f64[n, m] -> f64[n, m]")
def blurred(x, y):
    """Each point with its four neighbours; the border counts for nothing."""
    n, m = x.shape
    for i in loops.loop(n, parallel=True):
        for j in loops.loop(m, lanes=8):
            above = loops.where(i > 0, x[i - 1, j], 0.0)
            below = loops.where(i < n - 1, x[i + 1, j], 0.0)
            before = loops.where(j > 0, x[i, j - 1], 0.0)
            after = loops.where(j < m - 1, x[i, j + 1], 0.0)
            y[i, j] = (1 - 4 * SHARE) * x[i, j] + SHARE * (above + below + before + after)


@blurred.deftranspose(0)
def _(ct, x):
    return blurred(ct)  # a symmetric stencil is its own transpose


def in_numpy(x):
    wide = np.pad(x, 1)
    return (1 - 4 * SHARE) * x + SHARE * (wide[:-2, 1:-1] + wide[2:, 1:-1] + wide[1:-1, :-2] + wide[1:-1, 2:])


def main():
    rng = np.random.default_rng(0)
    image = (rng.random((90, 140)) > 0.7).astype(float)
    seen = in_numpy(in_numpy(image))
    error = float(np.max(np.abs(blurred(blurred(image)) - seen)))

    def loss(x):
        return np.sum((blurred(blurred(x)) - seen) ** 2)

    @lw.jit
    def recovered(x, steps):
        return lw.lax.fori_loop(0, steps, lambda _, x: x - 0.5 * lw.grad(loss)(x), x)
    found = recovered(seen, 2000)
    wrong = float(np.mean((found > 0.5) != (image > 0.5)))
    print(f"largest difference from NumPy {error:.1e}; points wrong: blurred {np.mean((seen > 0.5) != (image > 0.5)):.1%}, "
          f"recovered {wrong:.1%}")
    if error > 1e-12 or wrong > 0.01:
        sys.exit("expected the stencil of NumPy, and the image back")


if __name__ == "__main__":
    main()
