"""Attention: its definition in NumPy says the values, differences the slopes."""

import numpy as np
import pytest

import loopwright as lw
from loopwright import nn

RNG = np.random.default_rng(0)
B, T, S, N, H = 2, 5, 7, 4, 3
Q, K, V = RNG.normal(size=(B, T, N, H)), RNG.normal(size=(B, S, N, H)), RNG.normal(size=(B, S, N, H))
BIAS, MASK = RNG.normal(size=(1, N, T, S)), RNG.random((B, 1, T, S)) > 0.3
LENGTHS = {"query_seq_lengths": np.array([5, 3], np.int32), "key_value_seq_lengths": np.array([4, 7], np.int32)}
CASES = {
    "plain": {}, "bias": {"bias": BIAS}, "mask": {"mask": MASK}, "both": {"bias": BIAS[0], "mask": MASK},
    "causal": {"is_causal": True}, "scale": {"scale": 0.3}, "lengths": LENGTHS, "window": {"local_window_size": (1, 2)},
    "all": {"bias": BIAS, "mask": MASK, "is_causal": True, "local_window_size": 3, **LENGTHS},
}


def defined(q, k, v, bias=None, mask=None, scale=None, is_causal=False, query_seq_lengths=None, key_value_seq_lengths=None,
            local_window_size=None):
    k, v = (np.repeat(x, q.shape[2] // x.shape[2], 2) for x in (k, v))
    logits = np.einsum("btnh,bsnh->bnts", q, k) * (1 / np.sqrt(q.shape[3]) if scale is None else scale)
    logits = logits if bias is None else logits + bias
    allowed = np.ones(logits.shape, bool) if mask is None else np.broadcast_to(mask, logits.shape).copy()
    rows, columns = np.arange(q.shape[1])[:, None], np.arange(k.shape[1])
    if is_causal:
        allowed &= columns <= rows
    if local_window_size is not None:
        back, forth = np.broadcast_to(local_window_size, 2)
        allowed &= (rows - columns <= back) & (columns - rows <= forth)
    if query_seq_lengths is not None:
        allowed &= (rows < query_seq_lengths[:, None, None, None]) & (columns < key_value_seq_lengths[:, None, None, None])
    logits = np.where(allowed, logits, -1e30)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    out = np.einsum("bnts,bsnh->btnh", weights / weights.sum(-1, keepdims=True), v)
    if query_seq_lengths is not None:
        out *= (np.arange(q.shape[1]) < query_seq_lengths[:, None])[:, :, None, None]
    return out


@pytest.mark.parametrize("heads", [N, 2])
@pytest.mark.parametrize("case", CASES)
def test_values_and_slopes(case, heads):
    k, v, options = K[:, :, :heads], V[:, :, :heads], CASES[case]
    want = defined(Q, k, v, **options)

    def f(q, k, v):
        return nn.dot_product_attention(q, k, v, **options)
    for how in (f, lw.jit(f)):
        np.testing.assert_allclose(how(Q, k, v), want, rtol=1e-12, atol=1e-14)
    narrow = f(*[x.astype(np.float32) for x in (Q, k, v)])
    assert narrow.dtype == np.float32
    np.testing.assert_allclose(narrow, want, rtol=1e-4, atol=1e-5)
    weight, h = RNG.normal(size=want.shape), 1e-6
    directions = [RNG.normal(size=x.shape) for x in (Q, k, v)]
    slopes = lw.jit(lw.grad(lambda *xs: np.sum(weight * f(*xs)), (0, 1, 2)))(Q, k, v)
    ahead, behind = (np.sum(weight * defined(*[x + s * h * d for x, d in zip((Q, k, v), directions, strict=True)], **options))
                     for s in (1, -1))
    inner = sum(np.sum(s * d) for s, d in zip(slopes, directions, strict=True))
    np.testing.assert_allclose(inner, (ahead - behind) / (2 * h), rtol=1e-6)


def test_one_trace_serves_all_lengths_and_batches():
    f = lw.jit(lambda q, k, v: nn.dot_product_attention(q, k, v, is_causal=True))
    for t in (4, 6, 9):
        q, k = RNG.normal(size=(3, t, 2, t + 1)), RNG.normal(size=(3, t, 2, t + 1))
        np.testing.assert_allclose(f(q, k, k), defined(q, k, k, is_causal=True), rtol=1e-12)
    assert f.compiles == 1
    np.testing.assert_allclose(lw.vmap(nn.dot_product_attention)(Q, K, V), defined(Q, K, V), rtol=1e-12)
    np.testing.assert_allclose(nn.dot_product_attention(Q[0], K[0], V[0]), defined(Q[:1], K[:1], V[:1])[0], rtol=1e-12)


def test_residuals_and_rows_that_see_nothing():
    out, residual = nn.dot_product_attention(Q, K, V, return_residual=True)
    logits = np.einsum("btnh,bsnh->btns", Q, K) / np.sqrt(H)
    np.testing.assert_allclose(residual, np.log(np.exp(logits).sum(-1)), rtol=1e-12)
    nothing = nn.dot_product_attention(Q, K, V, mask=np.zeros((1, 1, T, S), bool))
    np.testing.assert_allclose(nothing, np.broadcast_to(V.mean(1)[:, None], nothing.shape), rtol=1e-12)
    half = nn.dot_product_attention(*[x.astype(np.float16) for x in (Q, K, V)])
    assert half.dtype == np.float16
    np.testing.assert_allclose(half, out, rtol=2e-2, atol=4e-3)


@pytest.mark.parametrize("change, error, message", [
    ({"key": K[:, :-1]}, lw.ShapeError, "key and value must have one shape"),
    ({"query": Q[..., :2]}, lw.ShapeError, "must have the batch and size of key"),
    ({"key": K[:, :, :3], "value": V[:, :, :3]}, lw.ShapeError, "a multiple of its heads"),
    ({"mask": np.ones((T, S))}, lw.DTypeError, "mask must be bool"),
    ({"bias": np.ones((1, 1, 1, T, S))}, lw.ShapeError, "bias must go together"),
], ids=range(5))
def test_errors(change, error, message):
    with pytest.raises(error, match=message) as caught:
        nn.dot_product_attention(**{"query": Q, "key": K, "value": V, **change})
    assert "test_attention.py" in str(caught.value)


@pytest.mark.parametrize("heads", [N, 2])
@pytest.mark.parametrize("case", CASES)
def test_values_are_those_of_jax(case, heads):
    jax = pytest.importorskip("jax", reason="compares with jax.nn where that is installed")
    args, options = [x.astype(np.float32) for x in (Q, K[:, :, :heads], V[:, :, :heads])], dict(CASES[case])
    if "bias" in options:
        options["bias"] = options["bias"].astype(np.float32)
    want = jax.nn.dot_product_attention(*args, **options)
    np.testing.assert_allclose(nn.dot_product_attention(*args, **options), want, rtol=2e-4, atol=2e-5)
