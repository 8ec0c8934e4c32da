"""Arguments as programs for JAX pass them: what they mean, and one list of those that are not taken."""
import importlib
import inspect

import numpy as np
import pytest

import loopwright as lw
from loopwright import lax
from loopwright.scipy import linalg, special

EVERYWHERE = {"out_sharding", "sharding", "accuracy"}  # of several devices; of XLA's own functions
MISSING = {
    ".ShapeDtypeStruct": {"weak_type", "manual_axis_type", "is_ref"}, ".checkpoint": {"concrete"},
    ".remat": {"concrete"}, ".debug_nans": {"new_val"}, ".grad": {"fun", "reduce_axes"},
    ".value_and_grad": {"fun", "reduce_axes"},
    ".hessian": {"fun"},
    ".jacfwd": {"fun"}, ".jacrev": {"fun"}, ".jvp": {"fun"}, ".linearize": {"fun"}, ".vjp": {"fun", "reduce_axes"},
    ".jit": {"fun", "in_shardings", "out_shardings", "keep_unused", "backend", "inline", "compiler_options"},
    ".device_put": {"donate", "src", "may_alias"}, ".devices": {"backend"},
    ".linear_transpose": {"reduce_axes"}, ".vmap": {"fun", "spmd_axis_name", "sum_match"},
    "lax.all_gather": {"to"}, "lax.mul": {"out_dtype"}, "lax.ragged_dot": {"group_offset"}, "lax.scan": {"_split_transpose"},
    "lax.igamma": {"a"}, "lax.igammac": {"a"}, "lax.igamma_grad_a": {"a"}, "lax.nextafter": {"x1", "x2"}, "lax.zeta": {"q"},
    "scipy.linalg.eigh": {"overwrite_b", "turbo", "eigvals", "type"},
    "scipy.linalg.expm": {"upper_triangular", "max_squarings"},
    "scipy.linalg.qr": {"lwork", "pivoting"}, "scipy.linalg.solve": {"debug"}, "scipy.linalg.solve_triangular": {"debug"},
    "random.PRNGKey": {"impl"}, "random.key": {"impl", "dtype"}, "random.multinomial": {"unroll"},
    "random.wrap_key_data": {"key_bits_array", "impl", "dtype"}, "debug.callback": {"partitioned"},
    "debug.print": {"partitioned", "skip_format_check", "_use_logging"},
}
MODULES = ("", "lax", "nn", "scipy.special", "scipy.linalg", "scipy.stats", "tree", "nn.initializers", "ops", "random", "debug")


def parameters(f):
    try:
        return inspect.signature(f).parameters
    except (TypeError, ValueError):
        return None


@pytest.mark.parametrize("module", MODULES)
def test_arguments_that_are_not_taken_are_named(module):
    pytest.importorskip("jax", reason="compares with JAX where that is installed")
    theirs = importlib.import_module(f"jax.{module}".rstrip("."))
    ours = lw.nn.initializers if module == "nn.initializers" else importlib.import_module(f"loopwright.{module}".rstrip("."))
    found = {}
    for name in set(dir(theirs)) & set(dir(ours)):
        if name.startswith("_") or (inspect.isclass(getattr(theirs, name)) and module in ("lax", "scipy.stats")):
            continue
        a, b = parameters(getattr(theirs, name)), parameters(getattr(ours, name))
        if a is None or b is None:
            continue
        missing = {n for n, p in a.items() if n not in b and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)} - EVERYWHERE
        if missing:
            found[f"{module}.{name}"] = missing
    assert found == {k: v for k, v in MISSING.items() if k.rpartition(".")[0] == module}


# ---- functions with rules ---------------------------------------------------------------------------------
def test_arguments_without_derivatives_by_name():
    @lw.custom_jvp
    def plain(x, n):
        return x ** n
    assert plain.nondiff_argnums == ()

    def power(x, n, scale):
        return scale * x ** n
    f = lw.custom_jvp(power, nondiff_argnames=("n",))

    @f.defjvp
    def rule(n, primals, tangents):
        x, scale = primals
        return f(x, n, scale), n * x ** (n - 1) * scale * tangents[0] + x ** n * tangents[1]
    assert lw.grad(f)(3.0, 2, 5.0) == 30.0 and lw.grad(lambda s: f(3.0, n=2, scale=s))(5.0) == 9.0
    assert lw.jit(lw.grad(lambda x: f(x, 2, 5.0)))(3.0) == 30.0
    g = lw.custom_vjp(power, nondiff_argnums=(1,), nondiff_argnames="scale")
    g.defvjp(lambda x, n, scale: (scale * x ** n, x), lambda n, scale, x, ct: (100.0 * ct,))
    assert lw.grad(g)(3.0, 2, 5.0) == 100.0 and g(3.0, 2, 5.0) == 45.0
    with pytest.raises(lw.ArgumentError, match=r"test_jax_arguments.py.*has no argument m; it has x, n, scale"):
        lw.custom_jvp(power, nondiff_argnames="m")


def test_settings_of_checkpoints_by_name():
    @lw.checkpoint(static_argnames=("kind",), prevent_cse=False)
    def f(x, kind="sin"):
        assert isinstance(kind, str)
        return getattr(np, kind)(x)
    for call in (lambda x: f(x), lambda x: f(x, "exp"), lambda x: f(x, kind="exp")):
        want = np.cos(0.5) if call(0.0) == 0 else np.exp(0.5)
        assert lw.grad(call)(0.5) == pytest.approx(want)
        assert lw.jit(lw.grad(call))(0.5) == pytest.approx(want)
    with pytest.raises(lw.ArgumentError, match="has no argument kid"):
        lw.checkpoint(f, static_argnames="kid")


# ---- control flow, indexing, linear algebra, special functions -----------------------------------------------
@pytest.mark.parametrize("how", [lambda f: f, lw.jit], ids=["eager", "jit"])
def test_an_operand_by_name(how):
    assert how(lambda p, x: lax.cond(p, lambda x: x + 1, lambda x: x - 1, operand=x))(True, 3.0) == 4.0
    assert how(lambda p, x: lax.cond(p, lambda _: x, lambda _: -x, operand=None))(False, 3.0) == -3.0
    assert how(lambda i, x: lax.switch(i, [np.sin, np.cos], operand=x))(1, 0.0) == 1.0


def test_negative_starts_may_be_clamped():
    x = np.arange(6)
    for start in (-2, np.int64(-2)):
        for jit in (lambda f: f, lw.jit):
            got = jit(lambda i: lax.dynamic_slice(x, (i,), (2,), allow_negative_indices=False))(start)
            np.testing.assert_array_equal(got, [0, 1])
            np.testing.assert_array_equal(jit(lambda i: lax.dynamic_slice_in_dim(x, i, 2))(start), [4, 5])
    got = lax.dynamic_update_slice(np.zeros((3, 3)), np.ones((1, 1)), (-1, -1), allow_negative_indices=(True, False))
    assert got[2, 0] == 1 and got.sum() == 1
    assert lax.dynamic_index_in_dim(x, -9, allow_negative_indices=False, keepdims=False) == 0


def test_settings_of_scipy_that_change_nothing():
    a, b = np.array([[4.0, 1.0], [1.0, 3.0]]), np.array([1.0, 2.0])
    want = np.linalg.solve(a, b)
    np.testing.assert_allclose(linalg.solve(a, b, overwrite_a=True, check_finite=False), want)
    np.testing.assert_allclose(linalg.cho_solve(linalg.cho_factor(a, check_finite=False), b, overwrite_b=True), want)
    np.testing.assert_allclose(linalg.solve_triangular(linalg.cholesky(a, check_finite=False), linalg.solve_triangular(
        linalg.cholesky(a), b, trans=1, check_finite=False)), want)
    assert linalg.svd(a, compute_uv=False, lapack_driver="gesvd").shape == (2,)


def test_operands_of_special_functions_by_name():
    assert special.gammainc(a=2.0, x=0.5) == special.gammainc(2.0, 0.5) == special.gammainc(2.0, x=0.5)
    assert lw.jit(lambda x: special.betainc(1.5, 2.5, x=x))(0.3) == pytest.approx(special.betainc(a=1.5, b=2.5, x=0.3))
    for wrong in ((lambda: special.erf(y=1.0)), (lambda: special.gammainc(2.0)), (lambda: special.erf(1.0, x=1.0))):
        with pytest.raises(TypeError, match=r"test_jax_arguments.py.* each once"):
            wrong()
