"""CUDA text run on the CPU at random sizes, in three orders of warps: templates of schedules, transforms, random programs."""
import numpy as np
import pytest
from hypothesis import assume, given, reject
from hypothesis import strategies as st

import loopwright as lw
from loopwright.ir.errors import DTypeError
from loopwright.ir.expansion import expanded
from loopwright.lower.cuda import emit_cuda, lower_cuda
from loopwright.lower.cuda.context import MOST_NARROW
from loopwright.lower.cuda.maths import Library
from loopwright.lower.scheduling import build_nest
from tests.cuda_templates import TEMPLATES, program, sizes_of, softmax
from tests.devices import emulator_alone, require_device
from tests.emulator import FORWARD, ORDERS, SHUFFLED, Emulator
from tests.emulator.programs import Offence, compiled, nonsense, run_kernel, run_program
from tests.programs import outcome, programs
from tests.scale import examples

SIZES = st.tuples(st.integers(1, 90), st.integers(1, 90)) | st.tuples(st.integers(1, 4), st.integers(1, 5000)) \
    | st.tuples(st.integers(1, 3000), st.integers(1, 4)) \
    | st.sampled_from([(32, 64), (256, 16), (33, 32), (8, 2048), (2049, 1)])
TOLERANCE = {"f2": 2e-3, "f4": 2e-5, "f8": 1e-13}  # of the largest: of sums of 1e5 terms, of two numbers that are nearly equal


@pytest.fixture(autouse=True)
def _compiler():
    require_device()


def agree(got, want, what):
    """To some last bits of the greatest element."""
    want = np.asarray(want)
    assert got.shape == want.shape, what
    kind = f"{got.dtype.kind}{got.dtype.itemsize}"
    bound = TOLERANCE[kind] * np.abs(want).max(initial=1, where=np.isfinite(want)) if kind in TOLERANCE else 0
    np.testing.assert_allclose(got.astype("f8"), want.astype("f8"), rtol=0, atol=bound, err_msg=what)


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_at_any_size(name):
    template = TEMPLATES[name]
    graph, made = program(name)
    emulator = compiled(made)

    @examples(12)
    @given(SIZES, st.sampled_from(ORDERS), st.integers(0, 99))
    def check(sizes, order, seed):
        args = template.make(np.random.default_rng(seed), *sizes)
        want = template.meaning(args)
        got = run_program(made, emulator, args, sizes_of(graph, args), order)
        for a, b in zip(got, want, strict=True):
            agree(a, b, f"{name} at {sizes}, order {order}")
    check()


@pytest.mark.parametrize("name", [name for name in TEMPLATES if "squares" in name or "several" in name])
def test_sizes_of_whole_accesses_and_of_many_blocks(name):
    """Whose bits do not depend on how warps come, either."""
    graph, made = program(name)
    emulator = compiled(made)

    @examples(6)
    @given(st.sampled_from([(64, 128), (66, 130), (2, 1300), (1300, 2), (1500, 8), (1100, 132), (2500, 100), (600, 257)]))
    def check(sizes):
        args = TEMPLATES[name].make(np.random.default_rng(sizes[1]), *sizes)
        found = [run_program(made, emulator, args, sizes_of(graph, args), order) for order in ORDERS]
        for a, b in zip(found[0], TEMPLATES[name].meaning(args), strict=True):
            agree(a, b, f"{name} at {sizes}")
        assert all(a.tobytes() == b.tobytes() for other in found[1:] for a, b in zip(found[0], other, strict=True))
    check()


@pytest.mark.parametrize("name", [name for name in TEMPLATES if "few long rows" in name])
def test_rows_in_several_parts(name):
    graph, made = program(name)
    emulator = compiled(made)

    @examples(3)
    @given(st.tuples(st.integers(1, 5), st.integers(3000, 40000)), st.sampled_from(ORDERS), st.booleans())
    def check(sizes, order, spoilt):
        args = TEMPLATES[name].make(np.random.default_rng(sizes[1]), *sizes)
        if spoilt:
            args[0].flat[args[0].size // 2] = np.nan
        want = TEMPLATES[name].meaning(args)
        for a, b in zip(run_program(made, emulator, args, sizes_of(graph, args), order), want, strict=True):
            np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
            agree(np.nan_to_num(a), np.nan_to_num(b), f"{name} at {sizes}, order {order}")
    check()


@pytest.mark.parametrize("name", ["map", "rows", "everything", "running rows"])
def test_nothing_is_done_for_empty_arrays(name):
    graph, made = program(name)
    for sizes in ((0, 5), (5, 0)):
        args = TEMPLATES[name].make(np.random.default_rng(0), *sizes)
        if name == "rows" and sizes == (5, 0):
            continue  # the greatest of nothing is refused
        got = run_program(made, compiled(made), args, sizes_of(graph, args))
        for a, b in zip(got, TEMPLATES[name].meaning(args), strict=True):
            agree(a, b, name)


@emulator_alone
@pytest.mark.parametrize("name", ["map", "rows", "few long rows", "everything", "transposed", "halves in large squares",
                                  "bytes in squares, features first",
                                  "several columns a thread", "updated rows", "histogram",
                                  "added in any order", "updated in any order"])
def test_wide_indices_mean_the_same(name):
    graph, made = program(name)
    args = TEMPLATES[name].make(np.random.default_rng(0), 37, 45)
    sizes = sizes_of(graph, args)
    (n, k), = made.made.items()
    assert k.fits(sizes) and not k.fits(dict.fromkeys(sizes, 1 << 20))
    nest = build_nest(n.regions[0], n.attrs["schedule"], "wide").nest
    library = Library()
    wide = emit_cuda(nest, library, wide=True)
    assert wide.fits(dict.fromkeys(sizes, 1 << 40)) and "(int)" not in wide.launches[0].text.replace("(int)threadIdx", "")
    emulator = Emulator("\n".join([*library.texts.values(), wide.text]), [x.name for x in wide.launches])
    outs = [nonsense(v.type, sizes) for v in n.regions[0].results]
    found = run_kernel(emulator, wide, [args[graph.params.index(v)] for v in n.inputs], outs, sizes)
    for a, b in zip(found, TEMPLATES[name].meaning(args), strict=True):
        agree(a, b, name)


def test_sizes_of_the_call_decide_how_wide_indices_are():
    graph = expanded(lw.make_graph(lambda x: x + 1)(np.ones((3, 4), "f4")))
    few, many = (lower_cuda(graph, {"n": n, "m": 4}) for n in (3, MOST_NARROW))
    assert "const int at" in few.text and "const int at" not in many.text and "const long long at" in many.text


# ---- errors -------------------------------------------------------------------------------------
def test_an_index_out_of_range_is_reported_and_nothing_else_is_read():
    _, made = program("gathered")
    x, k = np.ones((5, 8), "f4"), np.array([1, 4, 5, -5, -6, 2, 0, 0, 0])
    with pytest.raises(Offence) as found:
        run_program(made, compiled(made), [x, k], {"n": 5, "m": 8, "k": 9, **sizes_of(program("gathered")[0], [x, k])})
    site, index, axis, size = found.value.args
    assert site > 0 and index in (5, -1) and (axis, size) == (0, 5)


def test_an_integer_to_a_negative_power_is_reported():
    made = lower_cuda(expanded(lw.make_graph(lambda x, y: x ** y)(np.ones(3, "i4"), np.ones(3, "i4"))), {"n": 3})
    base = np.array([2, 3, 4], "i4")
    found, = run_program(made, compiled(made), [base, np.array([1, 0, 3], "i4")], {"n": 3})
    np.testing.assert_array_equal(found, [2, 1, 64])
    with pytest.raises(Offence) as offence:
        run_program(made, compiled(made), [base, np.array([1, -1, 3], "i4")], {"n": 3})
    assert offence.value.args[2] == -1


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i4", "u8"])
def test_whole_powers_that_a_program_names(dtype):
    x = np.array([0, 1, 2, 3, 7, 100], dtype)
    if x.dtype.kind == "f":
        x = np.concatenate([x, -x, np.array([0.3, np.inf, -np.inf, np.nan, np.finfo(dtype).tiny, np.finfo(dtype).max], dtype)])
    for n in (-3, -1, 2, 3, 4, 7, 64) if x.dtype.kind == "f" else (1, 2, 3, 7, 64):
        made = lower_cuda(expanded(lw.make_graph(lambda x, n=n: x ** n)(x)), {"n": len(x)})
        with np.errstate(all="ignore"):
            want = (x.astype("f8") ** n).astype(dtype) if x.dtype.kind == "f" else x ** n
            found, = run_program(made, compiled(made), [x], {"n": len(x)})
            near = np.abs(found - want) <= 3 * np.spacing(np.abs(want)) if x.dtype.kind == "f" else found == want
        assert (near | (found == want) | np.isnan(found) & np.isnan(want)).all(), (n, found, want)


def test_the_last_update_in_order_wins():
    graph, made = program("updated")
    x, k, v = np.zeros(4, "f4"), np.array([1, 1, 3, 1, 3]), np.arange(5, dtype="f4")
    for order in ORDERS:
        found, = run_program(made, compiled(made), [x, k, v], sizes_of(graph, [x, k, v]), order)
        np.testing.assert_array_equal(found, [0, 3, 0, 4])


# ---- accuracy -----------------------------------------------------------------------------------
def test_sums_err_less_than_numpys():
    graph, made = program("everything")
    x = (np.random.default_rng(0).random((200, 301)) + 0.5).astype("f4")
    found, = run_program(made, compiled(made), [x], sizes_of(graph, [x]))
    true = np.sum(x.astype("f8") * x.astype("f8"))
    assert abs(float(found) - true) <= max(abs(float(np.sum(x * x)) - true), np.spacing(np.float32(true)))


def test_sums_of_products_that_are_no_contraction_err_by_two_units_at_most():
    rng = np.random.default_rng(0)
    x, y = ((rng.random((20, 3000)) + 0.5).astype("f4") for _ in range(2))

    def sums(x, y):
        return np.sum(x[:, None, :] * y[None, :, :], axis=-1)
    found, = through_emulator(sums, x, y)
    true = sums(x.astype("f8"), y.astype("f8"))
    assert np.all(np.abs(found - true) <= 2 * np.spacing(true.astype("f4")))


def test_infinities_and_nan_in_sums_are_numpys():
    graph, made = program("everything")
    for put, want in (([np.inf], np.inf), ([np.inf, np.nan], np.nan), ([1e30], np.inf)):
        x = np.ones((30, 40), "f4")
        x.flat[5:5 + len(put)] = put
        found, = run_program(made, compiled(made), [x], sizes_of(graph, [x]))
        np.testing.assert_array_equal(found, np.float32(want))


# ---- transforms ---------------------------------------------------------------------------------
def through_emulator(f, *args, order=SHUFFLED):
    graph = expanded(lw.make_graph(f)(*args))
    made = lower_cuda(graph, sizes_of(graph, args))
    return run_program(made, compiled(made), args, sizes_of(graph, args), order)


def test_gradients_and_batches():
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(13, 21)), rng.normal(size=(13, 21))
    found, = through_emulator(lw.grad(lambda x, w: lw.numpy.sum(softmax(x) * w)), x, w)
    s = softmax(x)
    agree(found, s * (w - np.sum(s * w, axis=-1, keepdims=True)), "softmax")
    found, = through_emulator(lw.grad(lambda x: lw.numpy.sum(lw.numpy.tanh(x) ** 3)), x)
    agree(found, 3 * np.tanh(x) ** 2 * (1 - np.tanh(x) ** 2), "tanh")
    for rows in (np.full((3, 70), -0.0), np.full(40_000, -0.0)):
        found, = through_emulator(lambda x: lw.numpy.cumsum(x, axis=-1), rows)
        assert np.signbit(found).all(), "running sums of -0.0"
    found, = through_emulator(lw.vmap(lambda row: lw.numpy.cumsum(row)[::-1]), x)
    agree(found, np.cumsum(x, axis=1)[:, ::-1], "vmap")
    primal, tangent = through_emulator(lambda x, t: lw.jvp(lambda x: lw.numpy.max(x, axis=0), (x,), (t,)), x, w)
    agree(primal, np.max(x, axis=0), "primal")
    agree(tangent, np.take_along_axis(w, np.argmax(x, axis=0)[None], 0)[0], "tangent")


# ---- random programs ----------------------------------------------------------------------------
@examples(10)
@given(programs(8), st.integers(0, 2**32 - 1), st.sampled_from(ORDERS))
def test_random_programs(found, seed, order):
    rng = np.random.default_rng(seed)
    sizes = found.sizes(rng)
    args = found.arguments(rng, sizes)
    with np.errstate(all="ignore"):
        want = outcome(found.graph, args)
    assume(want is not None)
    try:
        made = lower_cuda(found.graph, sizes)
    except DTypeError:
        reject()  # operations that complex numbers have no machine code for
    try:
        got = run_program(made, compiled(made, flags=("-O0",)), args, sizes, order)
    except Offence:
        return  # of a value that nobody asked for: it is computed as what reads it, or not at all
    for a, b in zip(got, want, strict=True):
        b = np.stack([b.real, b.imag], -1) if b.dtype.kind == "c" else b
        assert a.dtype == b.dtype and a.shape == b.shape
        if b.dtype.kind in "biu":
            continue  # comparisons of floats that differ in their last bits
        fine = np.isfinite(b.astype("f8")) & (np.abs(b.astype("f8")) < 1e4)
        close = np.isclose(a.astype("f8"), b.astype("f8"), rtol=2e-2 if b.dtype.itemsize < 4 else 1e-4, atol=1e-3)
        assert not b.size or np.mean(close | ~fine) > 0.8, f"{made.text}\n{a}\n{b}"


def test_the_same_bits_in_every_run():
    for name in ("everything", "rows", "softmax of few long rows", "columns", "added rows", "added in any order",
                 "added in copies"):
        graph, made = program(name)
        args = TEMPLATES[name].make(np.random.default_rng(0), 70, 90)
        runs = [run_program(made, compiled(made), args, sizes_of(graph, args), order) for order in (*ORDERS, FORWARD)]
        assert all(a.tobytes() == b.tobytes() for run in runs[1:] for a, b in zip(run, runs[0], strict=True)), name


def test_kernels_are_the_same_for_sizes_that_choose_alike():
    graph = expanded(lw.make_graph(lambda x: np.sum(x, axis=1))(np.ones((4, 200), "f4")))
    few, many, longer = ([k.text for k in lower_cuda(graph, {"n": n, "m": m}).made.values()]
                         for n, m in ((4, 200), (4000, 300), (4, 30000)))
    assert few == many != longer
