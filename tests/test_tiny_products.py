"""Products of tiny and small matrices of a batch: every form, against float64, in vectors of both widths, at the end of memory;
and that threads change no bit."""
import ctypes

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.ir.types import F32, F64
from loopwright.lower.codegen.tiny import MOST, OFTEN, name_of, tiny_text
from loopwright.lower.runtime import products, support
from loopwright.lower.runtime.engine import assemble, load
from loopwright.lower.target import host_target
from tests.memory import before_nobodys
from tests.scale import examples
from tests.threads import bits_of

needs_vectors = pytest.mark.skipif(host_target().vector_bits < 256, reason="no vectors that may be cut")
SIDES = st.one_of(st.integers(0, 9), st.integers(1, 40))
DTYPES = {"f32": np.dtype("f4"), "f64": np.dtype("f8")}


def matrices(rng, form, batch, m, n, k):
    """Both sides in float64, stored as the form says, and the product."""
    a, b = rng.standard_normal((batch, m, k)), rng.standard_normal((batch, k, n))
    stored = [np.ascontiguousarray(x.swapaxes(1, 2) if side == "t" else x) for x, side in zip((a, b), form, strict=True)]
    return stored, a.astype("f4").astype("f8") @ b.astype("f4").astype("f8")


@pytest.fixture(scope="module")
def at_an_end():
    """For number k a function that copies an array to where a page of its own ends, before memory that is nobody's."""
    places = [before_nobodys(1 << 20) for _ in range(3)]
    return lambda k, x: places[k](x)


@needs_vectors
@pytest.mark.parametrize("bits", ["512", "256"])
@examples(300)
@given(kind=st.sampled_from([*DTYPES]), form=st.sampled_from(products.FORMS), batch=st.integers(0, 80),
       m=SIDES, n=SIDES, k=SIDES)
def test_products_of_any_small_sizes(at_an_end, bits, kind, form, batch, m, n, k):
    sides, expected = matrices(np.random.default_rng(batch), form, batch, m, n, k)
    a, b = (at_an_end(number, x.astype("f4").astype(DTYPES[kind])) for number, x in enumerate(sides))
    c = at_an_end(2, np.full((batch, m, n), np.nan, DTYPES[kind]))
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("LOOPWRIGHT_VECTOR_BITS", bits)
        function = support.address(f"lw_product_{kind}_{form}")
    if function is not None:
        ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4, *[ctypes.c_void_p] * 3)(function)(
            batch, m, n, k, a.ctypes.data, b.ctypes.data, c.ctypes.data)
        np.testing.assert_allclose(c, expected, rtol=1e-5, atol=1e-5)


@needs_vectors
@pytest.mark.parametrize("dtype", [F32, F64])
def test_which_sizes_are_multiplied_together(dtype):
    """Of a few tables, and where the elements that a vector needs lie near each other."""
    library = load(assemble(tiny_text(dtype, host_target())), {}, [name_of(dtype)])
    f = ctypes.CFUNCTYPE(ctypes.c_bool, *[ctypes.c_int64] * 4, ctypes.c_void_p, *[ctypes.c_int64] * 2, ctypes.c_void_p,
                         *[ctypes.c_int64] * 2, ctypes.c_void_p)(library[name_of(dtype)])

    def made(batch, m, n, k):
        (a, b), expected = matrices(np.random.default_rng(0), "nn", batch, m, n, k)
        a, b, c = a.astype("f4").astype(dtype), b.astype("f4").astype(dtype), np.empty((batch, m, n), dtype)
        done = f(batch, m, n, k, a.ctypes.data, k, 1, b.ctypes.data, 1, n, c.ctypes.data)
        if done:
            np.testing.assert_allclose(c, expected, rtol=1e-5, atol=1e-5)
        return done
    has_masks = host_target().has_masks
    assert made(100, 2, 2, 2)
    assert {made(100, *sizes) for sizes in ((3, 3, 3), (4, 4, 4), (4, 1, 4), (1, 3, 3))} == {has_masks or dtype == F32}
    assert not made(100, 8, 1, 17)
    assert not made(100, MOST + 1, 1, 1)
    if has_masks or dtype == F32:
        enough = 9 if has_masks else 8 * OFTEN
        assert made(enough, 3, 3, 3) and not made(enough - 1, 3, 3, 3)


def test_what_is_no_number_stays_in_its_row_and_column():
    a, b = (np.random.default_rng(k).standard_normal((50, 3, 3)) for k in range(2))
    a[7, 1, 2], b[20, 0, 1], b[21, 1, 1] = np.nan, np.inf, -np.inf
    found = lw.jit(lambda a, b: a @ b)(a, b)
    with np.errstate(invalid="ignore"):
        expected = a @ b
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert not np.isfinite(found[7, 1]).any() and np.isfinite(found[7, [0, 2]]).all()
    assert np.isfinite(found[20][:, [0, 2]]).all() and np.isfinite(found[[0, 6, 8, 19, 22, 49]]).all()


@pytest.mark.parametrize("shapes", [((300_001, 3, 3), (300_001, 3, 1)), ((200_003, 2, 2), (200_003, 2, 2))])
def test_threads_change_no_bit(shapes):
    a, b = (np.random.default_rng(0).standard_normal(shape).astype("f4") for shape in shapes)
    found = bits_of(np.matmul, a, b)
    assert found[0] == found[1] == found[2]
    np.testing.assert_allclose(lw.jit(np.matmul)(a, b), a @ b, rtol=1e-4, atol=1e-5)
