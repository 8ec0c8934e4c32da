"""Formulas as functions of their own: the same bits as in place, one text for all who call, and a text that grows slowly."""
import numpy as np
import pytest

import loopwright as lw
from loopwright.ir.types import F16, F32, F64
from loopwright.lower.codegen import outlines
from loopwright.lower.codegen.arithmetic import FORMULAS
from loopwright.lower.target import host_target
from loopwright.scipy import stats
from tests.kernels import run_elementwise, target_of

ARITY = {**dict.fromkeys(("arctan2", "power", "hypot", "fmod", "remainder", "floor_divide", "zeta", "gammainc", "gammaincc",
                          "gammainc_slope"), 2), "betainc": 3}
EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, np.inf, -np.inf, np.nan, 1e-40, 1e5, 1e9, 1e22, -1e30, 3e38]
FEW = ("exp", "log", "sin", "tanh", "power", "floor_divide")


def arguments(fn, dtype):
    rng = np.random.default_rng(len(fn))
    each = [np.concatenate([rng.permutation(EDGES), rng.normal(size=25) * 3, rng.random(25)]) for _ in range(ARITY.get(fn, 1))]
    with np.errstate(all="ignore"):
        return [x.astype(dtype) for x in each]


def check_same_bits(fn, dtype, target, monkeypatch):
    args = arguments(fn, dtype)
    found = []
    for most in (10**6, -1):
        monkeypatch.setattr(outlines, "MOST_IN_PLACE", most)
        found.append(run_elementwise(fn, args, dtype, target)(*args)[0])
    assert found[0].tobytes() == found[1].tobytes(), [
        (*x, a, b) for *x, a, b in zip(*args, *found, strict=True) if a.tobytes() != b.tobytes()][:5]


@pytest.mark.parametrize("fn", FORMULAS)
def test_a_call_gives_the_bits_that_the_formula_gives_in_place(fn, monkeypatch):
    check_same_bits(fn, F64, target_of(512), monkeypatch)


@pytest.mark.parametrize("bits", [512, 256, 128])
@pytest.mark.parametrize("dtype", [F16, F32], ids=str)
def test_a_call_gives_those_bits_on_every_width(dtype, bits, monkeypatch):
    for fn in FEW:
        check_same_bits(fn, dtype, target_of(bits, monkeypatch), monkeypatch)


def chain(x, count):
    for k in range(count):
        x = np.sin(x) + np.tanh(x) * (0.5 + k / count)
    return x


def test_a_long_program_computes_what_numpy_computes():
    x = np.linspace(-3, 3, 37)
    f = lw.jit(lambda x: chain(x, 40))
    np.testing.assert_allclose(f(x), chain(x, 40), rtol=1e-10)
    x = x.astype("float32")
    np.testing.assert_allclose(f(x), chain(x.astype("float64"), 40), rtol=1e-3)


def test_a_kernel_of_few_formulas_has_them_in_its_text():
    text = lw.jit(lambda x: np.exp(np.tanh(x))).lower(np.ones(40)).llvm
    assert "@lw_exp_v" not in text and "@lw_tanh_v" not in text


def test_a_long_body_stands_once_where_masks_are_cheap():
    def f(x):
        return np.exp(np.sin(x)) + np.tanh(x) * np.log1p(x * x) + np.cosh(x)
    if not host_target().has_masks:
        pytest.skip("single vectors have a loop of their own here")
    assert lw.jit(f).lower(np.ones(40)).llvm.count("roundeven.v8f64(<8 x double> %") < 8
    g = lw.jit(f)
    for n in (0, 1, 7, 8, 9, 64, 100):
        x = np.linspace(-2, 2, n)
        np.testing.assert_allclose(g(x), f(x), rtol=1e-13)


def test_a_formula_stands_once_in_a_module():
    text = lw.jit(lambda x: chain(x, 200)).lower(np.ones(40)).llvm
    assert sum(line.startswith("define internal") and " @lw_tanh_" in line for line in text.splitlines()) == 1


def test_the_text_of_a_module_grows_with_its_operations():
    lines = [lw.jit(lambda x, n=n: chain(x, n)).lower(np.ones(40)).llvm.count("\n") for n in (100, 400)]
    assert lines[1] < 4 * lines[0]
    assert lines[1] < 30 * 4 * 400


def test_rare_arguments_of_sines_in_a_long_program():
    """The way through many bits of 2 / pi is a function of its own too."""
    def f(x):
        return sum((np.sin(y) + np.cos(y) + np.tan(y) for y in (x / 3, x / 5, x / 7)), np.sin(x))
    x = np.array([1e300, 1e9, -1e22, 3.0, np.inf, np.nan, 0.0, -0.0])
    with np.errstate(invalid="ignore"):
        wanted = f(x)
    np.testing.assert_allclose(lw.jit(f)(x), wanted, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("bits", [512, 256, 128])
def test_vectors_stay_beside_calls_for_one_number(bits, monkeypatch):
    """What a scalar's formula leaves in registers, where vectors lie around the call."""
    monkeypatch.setenv("LOOPWRIGHT_VECTOR_BITS", str(bits))
    x = np.linspace(-11, 10, 23)
    for method in ("logpdf", "logcdf", "logsf"):
        formula = getattr(stats.truncnorm, method)
        found = lw.jit(lambda x, f=formula: f(x, -np.inf, np.inf))(x)
        np.testing.assert_allclose(found, formula(x, -np.inf, np.inf), rtol=1e-9)
