"""Static arguments: compiled in, found again by type and value, refused by name where they cannot be."""
import enum
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest

import loopwright as lw


class Mode(enum.Enum):
    ADD = 1
    MUL = 2


@dataclass(frozen=True)
class Settings:
    power: int
    mode: Mode


def test_values_steer_python():
    @partial(lw.jit, static_argnums=(1, 2))
    def f(x, n, mode):
        for _ in range(n):
            x = x + 1 if mode is Mode.ADD else x * 2
        return x

    x = np.arange(3.0)
    np.testing.assert_array_equal(f(x, 3, Mode.ADD), x + 3)
    np.testing.assert_array_equal(f(x, 3, Mode.MUL), x * 8)
    np.testing.assert_array_equal(f(x, 3, Mode.MUL), x * 8)
    np.testing.assert_array_equal(f(np.ones(7), mode=Mode.MUL, n=3), np.full(7, 8.0))
    assert f.compiles == 2


DIFFERENT = [1, True, 1.0, 1 + 0j, "1", (1,), (True,), (1.0,), list, frozenset({1}), frozenset({True}), 0.0, -0.0, None,
             (1, (2.0,)), (1, (2,)), Mode.ADD, Settings(1, Mode.ADD), Settings(1, Mode.MUL),
             b"1", np.float32, np.dtype("f4"), ..., len]


@pytest.mark.filterwarnings("ignore::loopwright.RecompilationWarning")
def test_values_that_differ_by_type_or_bits_are_different():
    seen = []

    @partial(lw.jit, static_argnames="k")
    def f(x, k):
        seen.append(k)
        return x

    for _ in range(2):
        for k in DIFFERENT:
            f(1.0, k=k)
    assert f.compiles == len(seen) == len(DIFFERENT)
    assert [repr(k) for k in seen] == [repr(k) for k in DIFFERENT]


def test_equal_objects_share_a_version():
    f = lw.jit(lambda x, s: x ** s.power, static_argnums=1)
    for _ in range(2):
        np.testing.assert_array_equal(f(np.arange(3.0), Settings(2, Mode.ADD)), np.arange(3.0) ** 2)
    f(np.arange(3.0), Settings(int("2"), Mode["ADD"]))
    assert f.compiles == 1


def test_nan_is_found_again():
    f = lw.jit(lambda x, k: x + k, static_argnums=-1)
    for _ in range(3):
        assert np.isnan(f(1.0, float("nan")))
    assert f.compiles == 1


def test_a_static_function():
    f = lw.jit(lambda g, x: g(x), static_argnums=0)
    np.testing.assert_array_equal(f(np.exp, np.zeros(3)), np.ones(3))
    np.testing.assert_array_equal(f(np.negative, np.zeros(3)), -np.zeros(3))
    np.testing.assert_array_equal(f(np.exp, np.zeros(4)), np.ones(4))
    assert f.compiles == 2


def test_static_star_arguments_by_number():
    f = lw.jit(lambda x, *rest: x * rest[0] if rest[1] else x, static_argnums=2)
    assert f(3.0, 2.0, True) == 6.0 and f(3.0, 2.0, False) == 3.0 and f(3.0, 5.0, True) == 15.0
    assert f.compiles == 2


@pytest.mark.parametrize(("value", "said"), [
    ([1, 2], "a list, which does not hash"), ({"a": 1}, "a dict, which does not hash"),
    ((1, [2]), "a tuple, which does not hash"),
    (np.ones(2), "holds an array"), ((1, np.ones(2)), "holds an array"), ({"a": np.ones(2)}, "holds an array")])
def test_what_cannot_be_found_again_is_refused_by_name(value, said):
    f = lw.jit(lambda x, sizes: x, static_argnames="sizes")
    with pytest.raises(lw.ArgumentError, match=rf"test_static_arguments\.py:\d+: static argument sizes of <lambda> .*{said}"):
        f(1.0, value)


def test_a_traced_value_is_no_static_argument():
    inner = lw.jit(lambda x, k: x * k, static_argnames="k")
    with pytest.raises(lw.ArgumentError, match="static argument k of <lambda> holds a traced value"):
        lw.jit(lambda x: inner(x, k=x))(1.0)
    assert lw.jit(lambda x: inner(x, k=3))(2.0) == 6.0


@pytest.mark.parametrize("options", [{"static_argnames": "missing"}, {"static_argnums": 2}, {"static_argnums": (0, -3)},
                                     {"shapes": ("n", "n", "n")}, {"shapes": {"z": "n"}}, {"shapes": ("n+1",)},
                                     {"shapes": (3,)}])
def test_declarations_about_no_parameter_are_refused_at_once(options):
    with pytest.raises(ValueError, match=r"has|neither|expected"):
        lw.jit(lambda x, y: x, **options)


def test_inside_a_trace_static_arguments_keep_sizes_symbolic():
    inner = lw.jit(lambda x, n, names: x / n, static_argnames=("n", "names"))
    f = lw.jit(lambda x: inner(x, x.shape[0], ["need", "not", "hash"]))
    for n in (2, 4, 8):
        np.testing.assert_array_equal(f(np.ones(n)), np.ones(n) / n)
    assert f.compiles == 1
