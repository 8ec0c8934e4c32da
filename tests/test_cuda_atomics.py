"""Updates in any order on a GPU: equal bits in every order, NumPy's results, and sums that are rounded once."""
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright.ir.builder import build
from loopwright.ir.gpu_schedule import BLOCK, THREAD_X, Bind, InAnyOrder, Threads
from loopwright.ir.interpreter import evaluate
from loopwright.ir.ops import indexing
from loopwright.ir.parser import parse_type
from loopwright.ir.types import BF16
from loopwright.lower.binding import is_order_free
from loopwright.lower.cuda import emit_cuda
from loopwright.lower.cuda.maths import Library
from loopwright.lower.scheduling import ScheduleError, build_nest
from tests.cuda_templates import program
from tests.emulator import ORDERS, SHUFFLED, Emulator, require_compiler
from tests.emulator.programs import nonsense, run_kernel
from tests.nvrtc import compile_text
from tests.scale import SCALE, examples

OPS = {"set": indexing.scatter, "add": indexing.scatter_add, "mul": indexing.scatter_mul, "max": indexing.scatter_max,
       "min": indexing.scatter_min}
DTYPES = {"f4": "f32", "f8": "f64", "f2": "f16", "bf16": "bf16", "i4": "i32", "i8": "i64", "u4": "u32", "u8": "u64", "i1": "i8",
          "u2": "u16", "?": "bool"}
ROWS = (Threads(64), Bind(0, 0, (BLOCK, THREAD_X)), Bind(0, 1, (BLOCK, THREAD_X)))
COPIES = (0, 40)


@cache
def region(how, dtype):
    name = DTYPES[dtype]
    return build(lambda x, v, k: [OPS[how](x, v, k, axes=(0,), batch=0, mode="fill" if how == "max" else "clip")],
                 [parse_type(t) for t in (f"{name}[n, 3]", f"{name}[m, 3]", "i64[m]")])


def number(dtype):
    return BF16 if dtype == "bf16" else np.dtype(dtype)


def known(how, dtype):
    return is_order_free(how, number(dtype))


@cache
def kernels(dtype):
    """A kernel for each way and size of copies, and the source of all."""
    library, made = Library(), {}
    for how in [how for how in OPS if known(how, dtype)]:
        for copy in COPIES:
            nest = build_nest(region(how, dtype), (*ROWS, InAnyOrder(copy)), f"{how}_{copy}").nest
            made[how, copy] = emit_cuda(nest, library)
    return made, "\n\n".join([*library.texts.values(), *(k.text for k in made.values())])


@cache
def emulator(dtype):
    require_compiler()
    return Emulator(kernels(dtype)[1], [x.name for k in kernels(dtype)[0].values() for x in k.launches])


def run(dtype, which, args, order):
    sizes = {"n": len(args[0]), "m": len(args[2])}
    outs = [nonsense(region(which[0], dtype).results[0].type, sizes)]
    return run_kernel(emulator(dtype), kernels(dtype)[0][which], args, outs, sizes, order)[0]


def numbers(rng, dtype, shape, spoilt=False):
    if dtype == "?":
        return rng.random(shape) < 0.5
    if dtype[0] in "iu":
        low, high = (np.iinfo(dtype).min, np.iinfo(dtype).max)
        return rng.integers(low, high, shape, dtype=dtype, endpoint=True)
    x = rng.normal(size=shape) * np.exp2(rng.integers(-9, 9, shape))
    if spoilt:
        at = rng.random(shape) < 0.1
        x[at] = rng.choice([np.inf, -np.inf, np.nan, 0.0, -0.0], at.sum())
    return x.astype(number(dtype))


CASES = [(dtype, how) for dtype in DTYPES for how in OPS if known(how, dtype)]


@pytest.mark.parametrize(("dtype", "how"), CASES)
def test_updates_are_numpys_in_any_order(dtype, how):
    @examples(6)
    @given(st.sampled_from([1, 2, 13, 14, 40]), st.integers(0, 300), st.sampled_from(COPIES), st.booleans(), st.integers(0, 99))
    def check(n, m, copy, spoilt, seed):
        rng = np.random.default_rng(seed)
        args = [numbers(rng, dtype, (n, 3), spoilt), numbers(rng, dtype, (m, 3), spoilt), rng.integers(-n - 2, n + 2, m)]
        found = [run(dtype, (how, copy), args, order) for order in ORDERS]
        assert all(x.tobytes() == found[0].tobytes() for x in found)
        with np.errstate(all="ignore"):
            if how == "add" and dtype in ("f4", "f8", "f2", "bf16"):
                agree_with_sum(found[0], args, dtype)
            else:
                want = evaluate(region(how, dtype), args, {})[0]
                assert want.dtype == found[0].dtype
                np.testing.assert_array_equal(*(x.astype("f4") if dtype == "bf16" else x for x in (found[0], want)))
    check()


def agree_with_sum(found, args, dtype):
    """As near as one rounding of the sum, and one of what it is added to, allow; f64 has nothing wider to add both words in, so
    that the sum is rounded twice."""
    base, terms, k = (np.asarray(x, np.longdouble if x.dtype.kind != "i" else None) for x in args)
    k = np.clip(np.where(k < 0, k + len(base), k), 0, len(base) - 1)
    want, most = base.copy(), np.abs(base)
    np.add.at(want, k, terms)
    np.maximum.at(most, k, np.abs(terms))
    units = {"f4": 2.0 ** -23, "f8": 2.0 ** -52, "f2": 2.0 ** -10, "bf16": 2.0 ** -7}[dtype]
    fine = np.isfinite(want)
    np.testing.assert_array_equal(np.where(fine, 0, found.astype("f8")), np.where(fine, 0, want.astype("f8")))
    size = 1.5 * np.abs(want) + np.abs(base) if dtype == "f8" else np.maximum(np.abs(want), 2.0 ** -14)
    bound = units * size + 2.0 ** -40 * (most if dtype != "f8" else 2.0 ** -40 * most)
    assert np.all(np.abs(found.astype(np.longdouble) - want)[fine] <= bound[fine])


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_sums_of_floats_keep_what_order_would_lose(dtype):
    """Terms from the largest to the least of a float, in an order in which adding one after another loses them all."""
    big, least = np.finfo(dtype).max / 8, np.finfo(dtype).smallest_subnormal
    for terms, want in (([big, 1, -big], 0), ([least] * 5, 5 * least), ([1e8, 1, -1e8, 1], 2),
                        ([big] * 20, np.inf), ([-0.0, -0.0], -0.0), ([-0.0, 0.0], 0.0), ([3, -3], 0.0)):
        x, v, k = np.full((1, 3), -0.0, dtype), np.array(terms, dtype)[:, None].repeat(3, 1), np.zeros(len(terms), "i8")
        for copy in COPIES:
            found = run(dtype, ("add", copy), [x, v, k], SHUFFLED)
            np.testing.assert_array_equal(found, np.full((1, 3), want, dtype))
            np.testing.assert_array_equal(np.signbit(found), np.signbit(np.full((1, 3), want)))


def test_many_blocks_have_copies_of_few_elements():
    rng = np.random.default_rng(0)
    x, k = np.zeros((10, 3), "i4"), rng.integers(0, 10, 4000)
    v, w = rng.integers(-9, 9, (4000, 3)).astype("i4"), rng.normal(size=(4000, 3))
    found = [run("i4", ("add", copy), [x, v, k], order) for copy in COPIES for order in ORDERS]
    np.add.at(x, k, v)
    for y in found:
        np.testing.assert_array_equal(y, x)
    found = [run("f8", ("add", copy), [np.ones((10, 3)), w, k], order) for copy in COPIES for order in ORDERS]
    assert all(y.tobytes() == found[0].tobytes() for y in found)
    agree_with_sum(found[0], [np.ones((10, 3)), w, k], "f8")


def test_functions_with_fast_math_add_floats_as_they_come():
    fast, exact = (program(name)[1].text for name in ("added in the order of threads", "added in any order"))
    assert "atomicAdd((float*)&" in fast and "lw_whole" not in fast and "atomicAdd((float*)&" not in exact


@pytest.mark.parametrize("architecture", ("sm_80", "sm_90") if SCALE > 1 else ("sm_80",))
@pytest.mark.parametrize("dtype", DTYPES)
def test_text_needs_no_stack(dtype, architecture):
    _, found = compile_text(kernels(dtype)[1], architecture)
    for name, r in found.items():
        assert r.stack == 0 and r.spills == 0 and r.registers <= 64 and r.shared <= 48 << 10, (name, r)


def test_what_depends_on_the_order_is_refused():
    build_nest(region("add", "f8"), (*ROWS, InAnyOrder(8, loose=True)), "k")
    for how, dtype, schedule, why in (
            ("add", "f2", (*ROWS, InAnyOrder(loose=True)), "sums of f32 and f64 alone"),
            ("max", "f4", (*ROWS, InAnyOrder(loose=True)), "sums of f32 and f64 alone"),
            ("mul", "f4", (*ROWS, InAnyOrder()), "mul of float32 depends on the order"),
            ("add", "f4", (*ROWS, InAnyOrder(1 << 20)), "copy up to 2048"),
            ("add", "f4", (Threads(32, 8), *ROWS[1:], InAnyOrder()), "threads along x"),
            ("add", "f4", (*ROWS, Bind(0, 3, (BLOCK, THREAD_X)), InAnyOrder()), "no threads share out")):
        with pytest.raises(ScheduleError, match=why):
            build_nest(region(how, dtype), schedule, "k")
