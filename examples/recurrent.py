"""Train a gated recurrent network by `scan`: it reads each handwritten digit row by row, eight pixels at a time.

The loop over rows is one loop in the compiled step, forward and backward, and one compile serves the ragged last batch.
"""
from __future__ import annotations

import sys
import time

import numpy as np
from sklearn.datasets import load_digits  # pip install -e '.[examples]'

import loopwright as lw
from loopwright import lax

HIDDEN, BATCH, EPOCHS, RATE = 48, 96, 30, 4e-3


def initial(rng):
    def weights(n, m):
        return rng.normal(0, 1 / np.sqrt(n), (n, m)).astype("float32")
    return {"in": weights(8, 3 * HIDDEN), "hidden": weights(HIDDEN, 2 * HIDDEN), "new": weights(HIDDEN, HIDDEN),
            "bias": np.zeros(3 * HIDDEN, "float32"), "out": weights(HIDDEN, 10), "out_bias": np.zeros(10, "float32")}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def logits(p, images):
    """images: f32[n, 8, 8] -> f32[n, 10], after the last row."""
    def row(h, x):
        gates = x @ p["in"] + p["bias"]
        both = sigmoid(gates[:, :2 * HIDDEN] + h @ p["hidden"])
        update, reset = both[:, :HIDDEN], both[:, HIDDEN:]
        candidate = np.tanh(gates[:, 2 * HIDDEN:] + (reset * h) @ p["new"])
        return update * h + (1 - update) * candidate, None
    start = np.zeros((images.shape[0], HIDDEN), "float32", like=images)
    last, _ = lax.scan(row, start, np.swapaxes(images, 0, 1))
    return last @ p["out"] + p["out_bias"]


def loss(p, images, target):
    z = logits(p, images)
    z = z - np.max(z, axis=-1, keepdims=True)
    return -np.sum((z - np.log(np.sum(np.exp(z), axis=-1, keepdims=True))) * target) / images.shape[0]


@lw.jit
def step(p, mean, square, count, images, target):
    value, gradient = lw.value_and_grad(loss)(p, images, target)
    mean = {k: 0.9 * mean[k] + 0.1 * gradient[k] for k in p}
    square = {k: 0.999 * square[k] + 0.001 * gradient[k] ** 2 for k in p}
    rate = RATE * (1 - 0.999 ** count) ** 0.5 / (1 - 0.9 ** count)
    return {k: p[k] - rate * mean[k] / (np.sqrt(square[k]) + 1e-8) for k in p}, mean, square, value


def main():
    digits, rng = load_digits(), np.random.default_rng(0)
    order = rng.permutation(len(digits.target))
    images, labels = (digits.images[order] / 16).astype("float32"), digits.target[order]
    target = np.eye(10, dtype="float32")[labels]
    held = len(images) // 5
    p = initial(rng)
    mean = square = {k: np.zeros_like(v) for k, v in p.items()}
    predict, count, start = lw.jit(logits), 0, time.perf_counter()
    for epoch in range(EPOCHS):
        order = held + rng.permutation(len(images) - held)
        for i in range(0, len(order), BATCH):
            count += 1
            rows = order[i:i + BATCH]
            p, mean, square, value = step(p, mean, square, float(count), images[rows], target[rows])
        if epoch % 6 == 5:
            right = np.mean(np.argmax(predict(p, images[:held]), axis=1) == labels[:held])
            print(f"epoch {epoch + 1:2d}  loss {value:.4f}  held-out accuracy {right:.3f}")
    print(f"{count} steps in {time.perf_counter() - start:.1f} s; compiles of the step: {step.compiles}")
    if right < 0.94 or step.compiles != 1:
        sys.exit("expected at least 0.94, from one compile")


if __name__ == "__main__":
    main()
