"""Bayesian logistic regression on real data by the Laplace approximation: `hessian` and `vmap`.

Newton's method finds the most probable weights of a classifier of 569 tumours (scikit-learn's breast cancer data); the
Hessian there is the posterior's precision. Samples of the weights, mapped over, give predictions that know what they do
not know: where they are unsure they are wrong more often.
"""
from __future__ import annotations

import sys

import numpy as np
from sklearn.datasets import load_breast_cancer  # pip install -e '.[examples]'

import loopwright as lw

PRIOR = 0.1  # precision of each weight


def negative_log_posterior(w, x, y):
    z = x @ w
    return np.sum(np.logaddexp(0.0, z) - y * z) + 0.5 * PRIOR * np.sum(w * w)


def probability(w, x):
    return 1 / (1 + np.exp(-(x @ w)))


def main():
    data, rng = load_breast_cancer(), np.random.default_rng(0)
    x = (data.data - data.data.mean(0)) / data.data.std(0)
    x = np.concatenate([x, np.ones((len(x), 1))], axis=1)
    y = data.target.astype(float)
    order = rng.permutation(len(y))
    train, held = order[:400], order[400:]

    gradient = lw.jit(lw.grad(negative_log_posterior))
    hessian = lw.jit(lw.hessian(negative_log_posterior))
    w = np.zeros(x.shape[1])
    for k in range(12):
        slope = gradient(w, x[train], y[train])
        w = w - np.linalg.solve(hessian(w, x[train], y[train]), slope)
        print(f"iteration {k:2d}  largest slope {np.max(np.abs(slope)):.2e}")
        if np.max(np.abs(slope)) < 1e-8:
            break
    precision = hessian(w, x[train], y[train])
    factor = np.linalg.cholesky(np.linalg.inv(precision))
    samples = w + rng.normal(size=(500, len(w))) @ factor.T
    many = lw.jit(lw.vmap(probability, in_axes=(0, None)))
    found = np.mean(many(samples, x[held]), axis=0)
    wrong = (found > 0.5) != (y[held] > 0.5)
    unsure = np.minimum(found, 1 - found) > 0.1
    print(f"held-out accuracy {1 - wrong.mean():.3f}; wrong among the {unsure.sum()} unsure {wrong[unsure].mean():.3f}, "
          f"among the {np.sum(~unsure)} sure {wrong[~unsure].mean():.3f}")

    s = probability(w, x[train])
    exact = (x[train] * (s * (1 - s))[:, None]).T @ x[train] + PRIOR * np.eye(len(w))
    print(f"largest difference of the Hessian from the formula: {np.max(np.abs(precision - exact)):.1e}")
    if wrong.mean() > 0.06 or not np.allclose(precision, exact) or wrong[unsure].mean() <= wrong[~unsure].mean():
        sys.exit("expected better than 94 %, the exact Hessian, and errors where it is unsure")


if __name__ == "__main__":
    main()
