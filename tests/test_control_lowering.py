"""Control flow as machine code: loops and branches give what the same program gives in NumPy, one structure is compiled
once, memory is given back, and errors name the user's line."""
import time

import numpy as np
import pytest

import loopwright as lw
from loopwright.ir import schedule
from loopwright.ir.interpreter import evaluate
from loopwright.ir.parser import parse
from loopwright.ir.verifier import verify
from loopwright.lower.control import sized
from loopwright.lower.kernel import kernel
from loopwright.lower.partition import partition
from loopwright.lower.runtime import scratch
from loopwright.lower.target import host_target
from tests.loops import agree, rows_of, scan, switch, while_

LOWERED = {op.name: op for op in (kernel, sized)}
INSTRUCTIONS = {x.__name__: x for x in vars(schedule).values() if isinstance(x, type) and hasattr(x, "__dataclass_fields__")}


def stages(f, *args):
    """The partitioned graph as text."""
    return lw.jit(f).lower(*args)


# ---- scan -----------------------------------------------------------------------------------------
def running(x, a, c):
    (c,), (y,) = scan(lambda a, c, x: ((a * c + x,), (c,)), [a], [c], [x])
    return c, y


@pytest.mark.parametrize("n", [0, 1, 2, 3, 10, 1000])
def test_a_scan_of_numbers(n):
    agree(running, np.linspace(0, 1, n), 0.5, 2.0) if n else empty_scan()


def empty_scan():
    c, y = lw.jit(running)(np.zeros(0), 0.5, 2.0)
    assert c == 2.0 and y.shape == (0,)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [1, 2, 5, 6])
@pytest.mark.parametrize("n", [1, 3, 40, 700])
def test_carries_and_rows_of_every_size(n, length, reverse):
    def f(w, c, xs):
        def body(w, c, d, x):
            new = w * c + x
            return (new, d - c), (np.sum(new), new - d)
        carry, ys = scan(body, [w], [c, c + 1], [xs], reverse=reverse)
        return *carry, *ys
    rng = np.random.default_rng(n)
    agree(f, rng.normal(size=n), rng.normal(size=n), rng.normal(size=(length, n)), rtol=1e-13)


def test_one_compile_serves_every_length():
    f = lw.jit(running)
    for n in (5, 1, 0, 77):
        x = np.arange(float(n))
        c, y = f(x, 0.5, 1.0)
        if n:
            want, rows = running(x, 0.5, 1.0)
            assert c == want
            np.testing.assert_array_equal(y, rows)
    assert f.compiles == 1


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int32", "int64", "float32", "float64"])
def test_carries_of_every_dtype(dtype):
    def f(c, d, xs):
        def body(c, d, x):
            return (c ^ x if x.dtype.kind in "bui" else c + x, d | x if x.dtype.kind in "bui" else d * x), (c,)
        carry, ys = scan(body, [], [c, d], [xs])
        return *carry, *ys
    xs = (np.arange(21).reshape(7, 3) % 5).astype(dtype)
    agree(f, xs[0], xs[1], xs)
    agree(f, xs[0, 0], xs[1, 0], xs[:, 0].copy())


def test_carries_that_change_places():
    def f(a, b, c, n):
        carry, _ = scan(lambda a, b, c, x: ((b, c, a), ()), [], [a, b, c], [n])
        return carry
    for size in (1, 500):
        a, b, c = (np.full(size, v) for v in (1.0, 2.0, 3.0))
        for n in range(1, 5):
            agree(f, a, b, c, np.zeros(n))


def test_a_carry_that_stays_and_one_that_forgets():
    def f(a, xs):
        carry, ys = scan(lambda a, b, x: ((a, x), (b,)), [], [a, xs[0]], [xs])
        return *carry, *ys
    agree(f, np.arange(300.0), np.arange(1200.0).reshape(4, 300))


def test_matrix_products_inside():
    def f(w, h, xs):
        (h,), (hs,) = scan(lambda w, h, x: ((np.tanh(h @ w + x),), (h,)), [w], [h], [xs])
        return h, hs
    rng = np.random.default_rng(0)
    agree(f, rng.normal(size=(20, 20)) / 9, rng.normal(size=(6, 20)), rng.normal(size=(9, 6, 20)), rtol=1e-12)


def test_sorts_and_sums_inside():
    def f(xs):
        (c,), (order,) = scan(lambda c, x: ((np.sort(c + x)[::-1],), (np.argsort(x),)), [], [xs[0]], [xs])
        return c, order
    agree(f, np.random.default_rng(1).normal(size=(5, 90)))


# ---- while ----------------------------------------------------------------------------------------
def collatz(n):
    branches = [lambda n: (n // 2,), lambda n: (3 * n + 1,)]
    return while_(lambda n, k: n > 1, lambda n, k: (*switch(n % 2, branches, n), k + 1), [], [n, n * 0])


def test_a_while_of_integers_with_a_branch_inside():
    for n in (1, 2, 7, 27, 97):
        agree(collatz, np.int64(n))


@pytest.mark.parametrize("size", [1, 30, 1000])
def test_a_while_with_large_carries(size):
    def f(x, limit):
        return while_(lambda limit, x, y, k: np.sum(np.abs(x)) < limit, lambda limit, x, y, k: (x + y, x, k + 1),
                      [limit], [x, x * 0.5, np.int64(0) + 0 * limit.astype(np.int64)])
    x = np.linspace(-1, 1, size) + 0.01
    for limit in (0.0, 1.0, 1e3 * size, 1e5 * size):
        agree(f, x, np.float64(limit), rtol=1e-13)


def test_a_flag_as_carry():
    def f(x):
        return while_(lambda go, x: go, lambda go, x: (x < 50, x * 2), [], [x < 50, x])
    agree(f, np.float64(3))
    agree(f, np.float64(60))


# ---- updates in place -----------------------------------------------------------------------------
def set_at(x, i, v):
    x = x.copy()
    x[i] = v
    return x


UPDATES = {  # whether they are made in place: slices at places known when traced are elementwise maps, and are not
    "one number": (True, lambda x, i: set_at(x, i, x[i] * 2 + x[i - 1])),
    "a constant place": (True, lambda x, i: set_at(x, 0, x[0] + x[i])),
    "read before": (True, lambda x, i: set_at(x, i, np.sum(x) * 0.1)),
    "a row of others": (False, lambda x, i: set_at(x, slice(1, 3), x[2:4] + i)),
    "a traced row": (True, lambda x, i: set_at(x, i + np.arange(2), x[i - 1 + np.arange(2)] * 1.5)),
    "many places": (True, lambda x, i: set_at(x, np.array([1, 2, 1]), x[np.array([0, 1, 3])] * 0.5 + i)),
    "added to": (False, lambda x, i: set_at(x, slice(None, None, 2), x[::2] * 0.5 + x[0])),
    "read after": (False, lambda x, i: (lambda y: y + np.sum(x) * 0.01)(set_at(x, i, 1.0))),
    "twice": (True, lambda x, i: set_at(set_at(x, i, x[i - 1]), i - 1, x[i])),
}


@pytest.mark.parametrize("size", [6, 300])
@pytest.mark.parametrize("name", UPDATES)
def test_updates_of_a_carry(name, size):
    is_in_place, update = UPDATES[name]

    def f(x, i):
        (y, k), ys = scan(lambda x, k, i: ((update(x, i), k + x[i]), (x[0],)), [], [x, 0 * x[0]], [i])
        z, n = while_(lambda x, n: n > 0, lambda x, n: (update(x, n), n - 1), [], [x, i[-1]])
        return y, k, *ys, z, n
    x, i = np.linspace(1, 2, size), np.arange(1, 5)
    before = x.copy()
    compiled = agree(f, x, i, rtol=1e-13)
    np.testing.assert_array_equal(x, before)
    assert ("InPlace" in str(compiled.lower(x, i).kernels)) == is_in_place


def test_updates_in_nested_loops():
    def f(x, n):
        def element(i, x, j):
            return (set_at(x, (i, j), x[i, j] + x[i - 1, j] * 0.5),), ()

        def row(x, i):
            (x,), _ = scan(element, [i], [x], [np.arange(3) + 0 * i])
            return (x,), ()
        (y,), _ = scan(row, [], [x], [n])
        return y, np.sum(x)
    x, n = np.arange(15.0).reshape(5, 3), np.arange(1, 5)
    compiled = agree(f, x, n)
    assert str(compiled.lower(x, n).kernels).count("InPlace") == 1


def test_an_update_costs_the_same_however_long_the_array_is():
    def f(x, i):
        (y,), _ = scan(lambda x, i: ((set_at(x, i, x[i] + 1),), ()), [], [x], [i])
        return y
    compiled, i = lw.jit(f), np.arange(2000) % 100
    taken = []
    for n in (100, 100_000):
        x = np.zeros(n)
        compiled(x, i)
        rounds = []
        for _ in range(5):
            start = time.perf_counter()
            compiled(x, i)
            rounds.append(time.perf_counter() - start)
        taken.append(min(rounds))
    assert taken[1] < 20 * taken[0] + 1e-3  # a copy of the array per trip would take a thousand times as long


# ---- branches -------------------------------------------------------------------------------------
def test_each_branch():
    def f(k, x, y):
        return switch(k, [lambda x, y: (x + y, np.sum(x)), lambda x, y: (y, x[0]), lambda x, y: (np.sort(x), np.max(y))], x, y)
    x, y = np.array([3.0, 1.0, 2.0]), np.array([-1.0, 5.0, 0.0])
    compiled = lw.jit(f)
    for k in (0, 1, 2):
        for got, want in zip(compiled(np.int64(k), x, y), f(k, x, y), strict=True):
            np.testing.assert_array_equal(got, want)
    assert compiled.compiles == 1


# ---- nests ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("size", [1, 400])
def test_loops_inside_loops(size):
    def f(x, xs):
        def outer(x, c, n, row):
            (c,), (ys,) = scan(lambda x, c, y: ((c * 0.5 + y,), (np.sum(c) + x[0],)), [x], [c + row], [row * x])
            c, n = while_(lambda c, n: np.sum(c) > 0.1, lambda c, n: (c * 0.3, n + 1), [], [c, n])
            return (c, n), (ys, c * 1.0, n)
        carry, ys = scan(outer, [x], [x, np.int64(0)], [xs])
        return *carry, *ys
    rng = np.random.default_rng(3)
    agree(f, rng.uniform(size=size), rng.uniform(size=(6, size)), rtol=1e-12)


def test_a_while_in_a_while_in_a_branch():
    def slow_product(a, b):
        def body(a, i, t):
            t, _ = while_(lambda a, t, j: j < a, lambda a, t, j: (t + 1, j + 1), [a], [t, 0 * a])
            return i - 1, t
        _, total = while_(lambda a, i, t: i > 0, body, [a], [b, 0 * a])
        return (total,)

    def f(k, a, b):
        return switch(k, [slow_product, lambda a, b: (a * b,)], a, b)
    for k in (0, 1):
        agree(f, np.int64(k), np.int64(13), np.int64(11))


# ---- sizes known at run time ----------------------------------------------------------------------
def halvings(x):
    """How often x can be halved before it is below 1, then as many rows, folded."""
    _, count = while_(lambda x, k: x >= 1, lambda x, k: (x / 2, k + 1), [], [x, (0 * x).astype(np.int64)])
    y, = rows_of(count, lambda rows, x: (np.sum(rows * x) + scan(lambda c, r: ((c + r,), ()), [], [x], [rows * 2.0])[0][0],), x)
    return y, count


@pytest.mark.parametrize("x", [0.3, 1.0, 2.0, 1000.0, 1e9])
def test_arrays_with_a_row_per_trip(x):
    agree(halvings, np.float64(x))


def test_arrays_with_a_row_per_trip_inside_a_loop():
    def f(xs):
        (c,), (ys,) = scan(lambda c, x: ((c + halvings(x + c)[0],), (halvings(x)[1],)), [], [np.float64(0) * xs[0]], [xs])
        return c, ys
    agree(f, np.array([0.5, 3.0, 1e4, 0.1, 7.0]))


@pytest.fixture
def one_thread():
    """Two threads ask for memory in an order that differs from call to call, which decides what is kept."""
    lw.set_threads(1)
    yield
    lw.set_threads(None)


@pytest.mark.usefixtures("one_thread")
def test_scratch_of_such_arrays_is_given_back():
    def f(x, n, k):
        def use(rows, x, k):
            wide = rows[:, None] + x
            return np.sum(np.sort(wide, axis=0)[::-1] * wide), x[k]
        return rows_of(n, use, x, k)
    compiled, x = lw.jit(f), np.arange(30.0)
    scratch.trim()  # what other tests left could be given up for what is used here
    compiled(x, np.int64(300), np.int64(0))
    kept = scratch.kept()
    assert kept > 0
    for _ in range(3):
        compiled(x, np.int64(300), np.int64(3))
        with pytest.raises(IndexError):
            compiled(x, np.int64(300), np.int64(30))
        assert scratch.kept() == kept
    got = compiled(x, np.int64(-5), np.int64(2))
    assert got[0] == 0 and got[1] == 2
    with pytest.raises(MemoryError):
        compiled(x, np.int64(1 << 50), np.int64(0))
    assert compiled(x, np.int64(300), np.int64(3))[1] == 3


# ---- errors ---------------------------------------------------------------------------------------
def test_an_index_out_of_range_leaves_the_loop_with_its_line():
    def body(x, i, t):
        return i + 1, t + x[i]  # the line

    @lw.jit
    def f(x, n):
        return while_(lambda x, i, t: i < t.shape[0] + 1000000, lambda x, i, t: body(x, i, t), [x], [n, x * 0])

    where = f"{__name__.split('.')[-1]}.py:{body.__code__.co_firstlineno + 1}"
    for _ in range(3):
        with pytest.raises(IndexError, match=rf"index 7 is out of bounds for axis 0 with size 7 .*{where}\)"):
            f(np.arange(7.0), np.int64(0))


def test_the_line_is_right_for_each_of_two_loops_that_share_code():
    def f(x, i, j):
        def first(x, c, k):
            return (c + x[k],), ()  # line one

        def second(x, c, k):
            return (c + x[k],), ()  # line two
        a, _ = scan(first, [x], [x[0]], [i])
        b, _ = scan(second, [x], [x[0]], [j])
        return a[0], b[0]
    compiled, at = lw.jit(f), f.__code__.co_firstlineno
    x, fine, bad = np.arange(4.0), np.array([1, 2]), np.array([1, 4])
    compiled(x, fine, fine)
    with pytest.raises(IndexError, match=f"index 4 .*:{at + 2}\\)"):
        compiled(x, bad, fine)
    with pytest.raises(IndexError, match=f"index 4 .*:{at + 5}\\)"):
        compiled(x, fine, bad)
    assert compiled.lower(x, fine, fine).llvm.count("define internal void @control_") == 1


def test_checks_of_a_branch_not_taken_do_not_fire():
    def f(k, x, i):
        return switch(k, [lambda x, i: (x[i],), lambda x, i: (x[0],)], x, i)
    compiled, x = lw.jit(f), np.arange(3.0)
    assert compiled(np.int64(1), x, np.int64(99))[0] == 0
    with pytest.raises(IndexError):
        compiled(np.int64(0), x, np.int64(99))


# ---- what is compiled -----------------------------------------------------------------------------
def nest(x, xs):
    def body(w, c, row):
        (new,), _ = scan(lambda c, y: ((c * 0.5 + y,), ()), [], [c], [row + w])
        return (new,), (np.sort(c),)
    (c,), (ys,) = scan(body, [x], [x], [xs])
    _, total = while_(lambda c, n, t: n < 5, lambda c, n, t: (n + 1, t + np.sum(c)), [c], [np.int64(0), 0 * c[0]])
    return c, ys, total


def test_kernels_of_regions_print_parse_and_mean_the_same():
    x, xs = np.arange(50.0), np.arange(150.0).reshape(3, 50)

    def f(x, xs):
        c, ys, _ = nest(x, xs)
        return c, ys, halvings(c[3])[0]
    graph = lw.make_graph(f)(x, xs)
    parted = verify(partition(graph, host_target(), blas=False))
    assert parse(str(parted), LOWERED, INSTRUCTIONS) == parted
    for got, want in zip(evaluate(parted, [x, xs]), evaluate(graph, [x, xs]), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-13)


def test_memory_is_taken_once_for_all_trips():
    text = stages(nest, np.arange(50.0), np.arange(150.0).reshape(3, 50)).llvm
    loops = [part for part in text.split("\ndefine ") if part.startswith("internal void @control_")]
    assert len(loops) >= 2 and not any("lw_scratch_acquire" in part for part in loops)
    assert "Py" not in "".join(loops)


def test_equal_loops_are_compiled_once():
    def f(x, y):
        a, _ = scan(lambda c, r: ((c * 2 + r,), ()), [], [x[0]], [x])
        b, _ = scan(lambda c, r: ((c * 2 + r,), ()), [], [y[0]], [y])
        return a[0], b[0]
    text = stages(f, np.ones(3), np.ones(4)).llvm
    assert text.count("define internal void @control_") == 1


def body_kernels(f, *args):
    """How many kernels the body of each loop has."""
    graph = partition(lw.make_graph(f)(*args), host_target(), blas=False)
    loops = [n for n in graph.nodes if n.regions and n.op is not kernel]
    return [sum(n.op is kernel for n in loop.regions[-1].nodes) for loop in loops]


def mixed(c, w, x):
    """Two carries over the same positions, of which the second reads the first, and what the first was."""
    (a, b), (was,) = scan(lambda w, a, b, x: ((a * w + x, b + np.cos(a) * w), (a,)), [w], [c, c[::-1]], [x])
    return a, b, was


@pytest.mark.parametrize("n", [0, 1, 5, 100])
def test_maps_over_the_same_positions_are_one_kernel_of_the_body(n):
    c, w, x = np.linspace(0, 1, n), np.linspace(1, 2, n), np.arange(7.0 * n).reshape(7, n) / 9
    agree(mixed, c, w, x, rtol=1e-12)
    assert body_kernels(mixed, c, w, x)[:1] == [1] if n > 1 else True


def test_the_gradient_of_a_loop_over_vectors_has_two_kernels():
    def cost(c, w, x):
        (c,), (cs,) = scan(lambda w, c, x: ((c * w + x,), (c * w + x,)), [w], [c], [x])
        return np.sum(cs ** 2)
    c, w, x = np.linspace(0, 1, 5), np.linspace(0.1, 0.9, 5), np.arange(35.0).reshape(7, 5) / 9
    slope = lw.grad(cost, argnums=(0, 1))
    assert body_kernels(slope, c, w, x) == [1, 1]
    for k, got in enumerate(lw.jit(slope)(c, w, x)):
        for j in range(5):
            step = np.eye(5)[j] * 1e-6
            ends = [cost(*[a + sign * step if i == k else a for i, a in enumerate((c, w, x))]) for sign in (1, -1)]
            np.testing.assert_allclose(got[j], (ends[0] - ends[1]) / 2e-6, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("step", [
    lambda w, a, b, x: ((a + x, b * np.sum(a + x)), (b,)),  # a sum between them
    lambda w, a, b, x: ((a + x, b * (a + x)[::-1]), (a,)),  # read from the other end
    lambda w, a, b, x: ((b, a), (np.cumsum(a) + b,)),
    lambda w, a, b, x: ((np.sort(a + b), a - x), (b * w,)),
    lambda w, a, b, x: ((np.where(a > b, a, x), np.where(a > b, w, b)), (a > b,)),
])
def test_groups_that_wait_for_others_and_read_elsewhere(step):
    def f(w, a, b, x):
        (a, b), (y,) = scan(step, [w], [a, b], [x])
        return a, b, y
    rng = np.random.default_rng(0)
    agree(f, *rng.normal(size=(3, 9)) / 3, rng.normal(size=(6, 9)) / 3, rtol=1e-11)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 7, 8, 9, 13, 15, 16, 17])
def test_declared_short_vectors(n):
    """Vectors of known size stay in registers: none is stored under a mask."""
    def f(c, w, x):
        (a, b), (ys,) = scan(lambda w, a, b, x: ((a * w + x, b[::-1] - np.sum(a * a) * x), (a + b,)), [w], [c, c], [x])
        return a, b, ys
    rng = np.random.default_rng(0)
    args = rng.normal(size=n) / 3, rng.uniform(size=n) / 3, rng.normal(size=(6, n)) / 3
    compiled = lw.jit(f, shapes=(f"{n}", f"{n}", f"t {n}"))
    for got, want in zip(compiled(*args), f(*args), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
    assert "masked.store" not in compiled.lower(*args).llvm or n > 16
    slope = lw.jit(lw.grad(lambda *a: np.sum(f(*a)[2] ** 2)), shapes=(f"{n}", f"{n}", f"t {n}"))(*args)
    d = rng.normal(size=n)
    ends = [np.sum(f(args[0] + t * d, *args[1:])[2] ** 2) for t in (1e-6, -1e-6)]
    np.testing.assert_allclose(np.sum(slope * d), (ends[0] - ends[1]) / 2e-6, rtol=1e-6, atol=1e-7)


def test_explain_shows_what_a_loop_runs():
    x, xs = np.arange(50.0), np.arange(150.0).reshape(3, 50)
    text = lw.jit(nest).explain(x, xs)
    assert "(scan):" in text and "(while):" in text and "sort" in text and "flops" in text
    assert "(sized):" in lw.jit(halvings).explain(np.float64(9))
