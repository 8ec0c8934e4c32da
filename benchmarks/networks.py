"""Steps of training, attention, and recurrent networks, with their gradients."""
from __future__ import annotations

import sys
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np

import loopwright as lw
from benchmarks.contest import contest, gradient, torch_gradient
from benchmarks.harness import Timing, interleaved
from loopwright import lax, nn

ROOT = Path(__file__).parent.parent
RATE = 0.1


def _normal(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


# ---- training -----------------------------------------------------------------------------------
def digits_step() -> list[Timing]:
    """The demo's Adam step, compiled and written by hand in NumPy."""
    sys.path.insert(0, str(ROOT / "examples"))
    import digits
    rng = np.random.default_rng(0)
    params = digits.initial(rng)
    moments = [tuple(np.zeros_like(p) for p in layer) for layer in params]
    x = rng.random((digits.BATCH, 64)).astype("float32")
    target = np.eye(10, dtype="float32")[rng.integers(0, 10, digits.BATCH)]
    arguments = (params, moments, moments, 3.0, x, target)
    return interleaved("digits step, batch 128", {
        "loopwright": lambda: digits.step(*arguments), "numpy": lambda: digits.step_by_hand(*arguments)})


def mlp_arguments() -> tuple:
    """Layers 784-512-512-10, a batch of 128 examples, their labels as rows of 0 and 1."""
    rng, sizes = np.random.default_rng(0), (784, 512, 512, 10)
    layers = tuple((rng.normal(size=(m, n)).astype("float32") / m ** 0.5, np.zeros(n, "float32"))
                   for m, n in pairwise(sizes))
    return layers, _normal(128, 784), np.eye(10, dtype="float32")[rng.integers(0, 10, 128)]


def mlp_step(xp, grad, log_softmax):
    """One step down the gradient of the cross entropy."""
    def loss(layers, x, target):
        *hidden, (w, b) = layers
        for m, c in hidden:
            x = xp.maximum(x @ m + c, 0)
        return -xp.mean(xp.sum(log_softmax(x @ w + b) * target, axis=-1))

    def step(layers, x, target):
        slopes = grad(loss)(layers, x, target)
        return tuple((w - RATE * dw, b - RATE * db) for (w, b), (dw, db) in zip(layers, slopes, strict=True))
    return step


def _mlp_step_by_hand(layers, x, target):
    """The same in NumPy, the gradients written out."""
    seen = [x]
    for w, b in layers[:-1]:
        seen.append(np.maximum(seen[-1] @ w + b, 0))
    w, b = layers[-1]
    scores = seen[-1] @ w + b
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    slope, new = (e / e.sum(axis=-1, keepdims=True) - target) / len(x), []
    for (w, b), h in zip(reversed(layers), reversed(seen), strict=True):
        new.append((w - RATE * (h.T @ slope), b - RATE * slope.sum(axis=0)))
        slope = (slope @ w.T) * (h > 0)
    return tuple(reversed(new))


def _torch_mlp_step(torch, optimised):
    def loss(layers, x, target):
        *hidden, (w, b) = layers
        for m, c in hidden:
            x = torch.relu(torch.addmm(c, x, m))
        return torch.nn.functional.cross_entropy(torch.addmm(b, x, w), target)
    loss = optimised(loss)

    def step(layers, x, target):
        watched = [tuple(p.detach().requires_grad_() for p in layer) for layer in layers]
        slopes = torch.autograd.grad(loss(watched, x, target), [p for layer in watched for p in layer])
        moved = [p - RATE * s for p, s in zip((p for layer in layers for p in layer), slopes, strict=True)]
        return tuple(zip(moved[::2], moved[1::2], strict=True))
    return step


def mlp() -> list[Timing]:
    """A step of training a network 784-512-512-10 on 128 examples, float32."""
    args = mlp_arguments()
    layers, x, target = args
    wide = tuple((w.astype("float64"), b.astype("float64")) for w, b in layers)
    return contest("MLP training step, 784-512-512-10, batch 128 f32", args, mlp_step(np, lw.grad, nn.log_softmax),
                   numpy=_mlp_step_by_hand, expected=_mlp_step_by_hand(wide, x.astype("float64"), target), tolerance=1e-4,
                   jax=lambda jax: mlp_step(jax.numpy, jax.grad, jax.nn.log_softmax), torch=_torch_mlp_step)


# ---- attention ----------------------------------------------------------------------------------
def _attention(softmax):
    return lambda q, k, v: softmax(q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5) @ v


def _softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def _attention_slopes(q, k, v, w, kept=None):
    scale = q.shape[-1] ** -0.5
    s = q @ k.swapaxes(-1, -2) * scale
    p = _softmax(s if kept is None else np.where(kept, s, -np.inf))
    dp = w @ v.swapaxes(-1, -2)
    ds = p * (dp - np.sum(dp * p, axis=-1, keepdims=True)) * scale
    return ds @ k, ds.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ w


def _with_gradients(name, args, program, slopes, flash):
    """An attention and its gradients; program(library, softmax)."""
    wide, ours = [a.astype("float64") for a in args], program(lw.numpy, nn.softmax)
    forward = contest(name, args[:3], ours, numpy=program(np, _softmax), expected=lambda: program(np, _softmax)(*wide[:3]),
                      tolerance=1e-4, jax=lambda jax: program(jax.numpy, jax.nn.softmax), torch=flash)
    return forward + contest(f"gradient of {name}", args, gradient(np, lw.grad, ours, 3), numpy=slopes,
                             expected=lambda: slopes(*wide), tolerance=1e-4,
                             jax=lambda jax: gradient(jax.numpy, jax.grad, program(jax.numpy, jax.nn.softmax), 3),
                             torch=lambda torch, optimised: torch_gradient(torch, flash(torch, optimised), 3))


def attention() -> list[Timing]:
    """softmax(q k^T / 8) v for 4 sequences, 8 heads, 512 positions of 64 float32, and the gradients."""
    args = tuple(np.random.default_rng(0).normal(size=(4, 4, 8, 512, 64)).astype("float32"))
    return _with_gradients("attention, 4x8x512x64 f32", args, lambda _, softmax: _attention(softmax), _attention_slopes,
                           lambda torch, optimised: optimised(torch.nn.functional.scaled_dot_product_attention))


def _causal(xp, softmax):
    """Attention in which no position sees those after it."""
    def f(q, k, v):
        s = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
        return softmax(xp.where(xp.arange(s.shape[-1]) <= xp.arange(s.shape[-2])[:, None], s, -np.inf)) @ v
    return f


def causal_attention() -> list[Timing]:
    """Causal attention of 12 heads, 1000 positions of 64 float32, and the gradients; PyTorch's as it is."""
    args = tuple(np.random.default_rng(0).normal(size=(4, 1, 12, 1000, 64)).astype("float32"))
    return _with_gradients(
        "causal attention, 12x1000x64 f32", args, _causal, lambda *args: _attention_slopes(*args, np.tri(1000, dtype=bool)),
        lambda torch, _: partial(torch.nn.functional.scaled_dot_product_attention, is_causal=True))


# ---- recurrent networks -------------------------------------------------------------------------
def _recurrent(scan, tanh):
    """All states of h = tanh(h w + x_t)."""
    def states(h, w, x):
        def step(h, x):
            h = tanh(h @ w + x)
            return h, h
        return scan(step, h, x)[1]
    return states


def _recurrent_loop(h, w, x):
    out = np.empty_like(x)
    for t in range(len(x)):
        out[t] = h = np.tanh(h @ w + x[t])
    return out


def _recurrent_slopes(h, w, x, cotangent):
    states = _recurrent_loop(h, w, x)
    slope, dw, dx = np.zeros_like(h), np.zeros_like(w), np.empty_like(x)
    for t in reversed(range(len(x))):
        dx[t] = slope = (slope + cotangent[t]) * (1 - states[t] ** 2)
        dw += (states[t - 1] if t else h).T @ slope
        slope = slope @ w.T
    return slope, dw, dx


def _torch_recurrent(torch):
    def states(h, w, x):
        out = []
        for step in x:
            h = torch.tanh(torch.addmm(step, h, w))
            out.append(h)
        return torch.stack(out)
    return states


def rnn() -> list[Timing]:
    """A network h = tanh(h w + x_t) over 512 steps: batch 32, 128 states, float32, and its gradients.

    torch.compile takes no part: it unrolls the loop."""
    args = _normal(32, 128), _normal(128, 128) / 12, _normal(512, 32, 128), _normal(512, 32, 128) / 64
    wide = [a.astype("float64") for a in args]
    ours = _recurrent(lax.scan, np.tanh)
    forward = contest("scan RNN, 512x32x128 f32", args[:3], ours, numpy=_recurrent_loop,
                      expected=lambda: _recurrent_loop(*wide[:3]), tolerance=1e-3,
                      jax=lambda jax: _recurrent(jax.lax.scan, jax.numpy.tanh),
                      torch=lambda torch, optimised: _torch_recurrent(torch), compiles=False)
    return forward + contest(
        "gradient of scan RNN, 512x32x128 f32", args, gradient(np, lw.grad, ours, 3), numpy=_recurrent_slopes,
        expected=lambda: _recurrent_slopes(*wide), tolerance=1e-3, compiles=False,
        jax=lambda jax: gradient(jax.numpy, jax.grad, _recurrent(jax.lax.scan, jax.numpy.tanh), 3),
        torch=lambda torch, optimised: torch_gradient(torch, _torch_recurrent(torch), 3))


WORKLOADS = (digits_step, mlp, attention, causal_attention, rnn)
