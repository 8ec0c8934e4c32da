"""Train a small network on 1,797 real handwritten digits, written in plain NumPy and compiled by loopwright.

    make demo

One compile of the training step serves every batch size, the ragged last mini-batch of each epoch included. The same
step written by hand in NumPy (forward, backward and Adam) is timed beside it.
"""
from __future__ import annotations

import statistics
import sys
import time

import numpy as np
from sklearn.datasets import load_digits  # pip install -e '.[examples]'

import loopwright as lw

BATCH, EPOCHS, HIDDEN, RATE = 128, 40, 128, 2e-3


def initial(rng):
    """He-initialised weights of a 64-128-64-10 network, float32."""
    sizes = (64, HIDDEN, HIDDEN // 2, 10)
    return [(rng.normal(0, np.sqrt(2 / n), (n, m)).astype("float32"), np.zeros(m, "float32"))
            for n, m in zip(sizes, sizes[1:])]


def logits(params, x):
    for w, b in params[:-1]:
        x = np.maximum(x @ w + b, 0)
    w, b = params[-1]
    return x @ w + b


def loss(params, x, target):
    """Softmax cross-entropy against one-hot targets."""
    z = logits(params, x)
    z = z - np.max(z, axis=-1, keepdims=True)
    log_probability = z - np.log(np.sum(np.exp(z), axis=-1, keepdims=True))
    return -np.sum(log_probability * target) / x.shape[0]


@lw.jit
def step(params, mean, square, count, x, target):
    """One step of Adam: the new parameters and moments, and the loss."""
    value, gradient = lw.value_and_grad(loss)(params, x, target)
    new, new_mean, new_square = [], [], []
    scale = RATE * (1 - 0.999 ** count) ** 0.5 / (1 - 0.9 ** count)  # a Python number: float32 stays float32
    for layer in zip(params, gradient, mean, square):
        moved = [adam(p, g, m, s, scale) for p, g, m, s in zip(*layer)]
        for kept, part in zip((new, new_mean, new_square), zip(*moved)):
            kept.append(tuple(part))
    return new, new_mean, new_square, value


def adam(p, g, m, s, scale):
    m = 0.9 * m + 0.1 * g
    s = 0.999 * s + 0.001 * g * g
    return p - scale * m / (np.sqrt(s) + 1e-8), m, s


def step_by_hand(params, mean, square, count, x, target):
    """The same step in NumPy, its derivatives worked out by hand."""
    inputs, hidden = [x], x
    for w, b in params[:-1]:
        hidden = np.maximum(hidden @ w + b, 0)
        inputs.append(hidden)
    w, b = params[-1]
    z = hidden @ w + b
    z = z - np.max(z, axis=-1, keepdims=True)
    e = np.exp(z)
    total = np.sum(e, axis=-1, keepdims=True)
    value = -np.sum((z - np.log(total)) * target) / len(x)
    back = (e / total - target) / np.float32(len(x))
    scale = RATE * (1 - 0.999 ** count) ** 0.5 / (1 - 0.9 ** count)
    new, new_mean, new_square = [None] * len(params), [None] * len(params), [None] * len(params)
    for k in reversed(range(len(params))):
        w, b = params[k]
        gradient = (inputs[k].T @ back, np.sum(back, axis=0))
        back = (back @ w.T) * (inputs[k] > 0)
        moved = [adam(p, g, m, s, scale) for p, g, m, s in zip((w, b), gradient, mean[k], square[k])]
        new[k], new_mean[k], new_square[k] = (tuple(part) for part in zip(*moved))
    return new, new_mean, new_square, value


def batches(rng, n):
    order = rng.permutation(n)
    return [order[i:i + BATCH] for i in range(0, n, BATCH)]


def accuracy(params, x, labels):
    return float(np.mean(np.argmax(logits(params, x), axis=-1) == labels))


def train(x, target, x_held, labels_held, rng):
    params = initial(rng)
    mean = square = [tuple(np.zeros_like(p) for p in layer) for layer in params]
    count = 0
    for epoch in range(EPOCHS):
        for rows in batches(rng, len(x)):
            count += 1
            params, mean, square, value = step(params, mean, square, float(count), x[rows], target[rows])
        if epoch % 8 == 7:
            print(f"epoch {epoch + 1:3d}  loss {value:.4f}  held-out accuracy {accuracy(params, x_held, labels_held):.3f}")
    return params, mean, square, count


def milliseconds_side_by_side(functions, rounds=200):
    """Medians of interleaved calls, in ms."""
    times = [[] for _ in functions]
    for _ in range(rounds):
        for taken, f in zip(times, functions):
            start = time.perf_counter()
            f()
            taken.append((time.perf_counter() - start) * 1e3)
    return [statistics.median(taken) for taken in times]


def main():
    digits = load_digits()
    rng = np.random.default_rng(0)
    order = rng.permutation(len(digits.target))
    x = (digits.data[order] / 16).astype("float32")
    labels = digits.target[order]
    target = np.eye(10, dtype="float32")[labels]
    held = len(x) // 5
    print(f"{len(x) - held} digits to train on, {held} held out; batches of {BATCH}, the last of {(len(x) - held) % BATCH}")

    start = time.perf_counter()
    params, mean, square, count = train(x[held:], target[held:], x[:held], labels[:held], rng)
    reached = accuracy(params, x[:held], labels[:held])
    print(f"{count} steps in {time.perf_counter() - start:.1f} s; compiles of the step: {step.compiles}")

    batch = x[held:held + BATCH], target[held:held + BATCH]
    ours, by_hand = milliseconds_side_by_side([
        lambda: step(params, mean, square, float(count), *batch),
        lambda: step_by_hand(params, mean, square, float(count), *batch),
    ])
    print(f"one step: {ours:.3f} ms compiled, {by_hand:.3f} ms by hand in NumPy ({by_hand / ours:.2f}x)")

    @lw.jit
    def gradient_norms(params, x, target):
        one = lw.vmap(lw.grad(lambda p, a, t: loss(p, a[None], t[None])), in_axes=(None, 0, 0))
        return np.sqrt(sum(np.sum(g.reshape(g.shape[0], -1) ** 2, axis=1) for layer in one(params, x, target) for g in layer))

    norms = gradient_norms(params, x[:held], target[:held])
    hardest = int(np.argmax(norms))
    print(f"per-example gradient norms, held out: median {np.median(norms):.4f}, largest {norms[hardest]:.2f} "
          f"(a {labels[hardest]}, read as {int(np.argmax(logits(params, x[hardest:hardest + 1])))})")
    print(f"held-out accuracy {reached:.3f}")
    if reached < 0.97 or step.compiles != 1:
        sys.exit("expected at least 0.97, from one compile")


if __name__ == "__main__":
    main()
