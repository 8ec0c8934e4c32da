"""The native function object: what it answers, what it passes on, what it raises, and that nothing leaks."""
import contextlib
import copy
import ctypes
import dataclasses
import gc
import resource
import sys
import threading
import types
import typing
import weakref

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright.ir.dims import evaluate, floordiv, maximum, minimum, symbol, symbols_in
from loopwright.ir.facts import Constraint
from loopwright.ir.guards import Guard
from loopwright.ir.signature import ArrayLeaf, Container, ObjectLeaf, Result, ResultContainer, ScalarLeaf
from loopwright.ir.source import Source
from loopwright.ir.types import BOOL, C128, DTYPES, F32, F64, I64, ArrayType
from loopwright.lower.runtime import objects
from loopwright.lower.runtime.dispatcher import NativeFunction, set_versions
from loopwright.lower.runtime.fallback import Miss
from tests.entries import ADD_ONE, ENTRY, Loaded, copying, version_of
from tests.forking import check_in_child, needs_fork
from tests.scale import examples

N, M = symbol("n"), symbol("m")
VECTOR = ArrayType((N,), F32)
MISSED = object()


@pytest.fixture(params=[False, True], ids=["native", "python"])
def in_python(request):
    return request.param


def function_of(*loaded):
    """A function with these versions; what none answers gives MISSED."""
    function = NativeFunction()
    function.slow = lambda *args, **kwargs: MISSED
    set_versions(function, loaded)
    return function


def identity(tree, type, in_python, **more):
    """A function of one argument whose graph gives its only parameter back."""
    version = version_of([tree], [type], [type], Result(0), **more)
    return function_of(Loaded(version, copying(version.graph, [0]), in_python=in_python))


def add_one(in_python=False):
    version = version_of([ArrayLeaf(VECTOR)], [VECTOR], [VECTOR], Result(0))
    return Loaded(version, ADD_ONE, in_python=in_python)


def test_this_interpreter_is_supported():
    assert objects.unsupported() is None


def test_answers(in_python):
    f = function_of(add_one(in_python))
    for n in (0, 1, 2, 10, 1000):
        x = np.arange(n, dtype=np.float32)
        y = f(x)
        assert type(y) is np.ndarray and y.dtype == F32 and y.flags.c_contiguous and y.flags.writeable and y.flags.owndata
        np.testing.assert_array_equal(y, x + np.float32(1))


class Subclass(np.ndarray):
    pass


def misaligned(n):
    return np.frombuffer(bytearray(4 * n + 1), np.uint8)[1:].view(np.float32)


@pytest.mark.parametrize("args", [
    (), (np.zeros(3, np.float32), np.zeros(3, np.float32)), (np.zeros(3, np.float64),), (np.zeros(3, ">f4"),),
    (np.zeros((3, 1), np.float32),),
    (np.float32(1),), (np.zeros((), np.float32),), (np.zeros(6, np.float32)[::2],), (np.zeros(6, np.float32)[::-1],),
    (misaligned(3),), (np.zeros(3, np.float32).view(Subclass),), (np.ma.zeros(3, np.float32),), ([1.0, 2.0],), (None,), (1.0,)],
    ids=lambda args: repr(args)[:40])
def test_passes_on(args, in_python):
    assert function_of(add_one(in_python))(*args) is MISSED


def test_passes_on_keywords(in_python):
    f = function_of(add_one(in_python))
    assert f(x=np.zeros(3, np.float32)) is MISSED
    assert f(np.zeros(3, np.float32), y=1) is MISSED


def test_takes_readonly_and_own_results(in_python):
    f, x = function_of(add_one(in_python)), np.arange(5, dtype=np.float32)
    x.flags.writeable = False
    np.testing.assert_array_equal(f(f(x)), x + 2)


def test_call_forms(in_python):
    """Spread arguments, partial application and map reach vectorcall in different ways."""
    f, x = function_of(add_one(in_python)), np.zeros(2, np.float32)
    for y in (f(*[x]), f(*(x,), **{}), next(map(f, [x])), f.__call__(x)):
        np.testing.assert_array_equal(y, [1, 1])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (0,), (3,), (2, 0, 3), (2, 3, 4)], ids=str)
def test_every_dtype_and_rank(dtype, shape, in_python):
    x = (np.arange(max(1, np.prod(shape, dtype=int))) - 1).astype(dtype).reshape(shape if 0 not in shape else (-1,))
    x = np.resize(x, shape) if shape else x.reshape(-1)[0].reshape(())
    x = np.asarray(x, dtype).reshape(shape)
    leaf = ArrayType(tuple(symbol(f"s{k}") for k in range(len(shape))), dtype)
    y = identity(ArrayLeaf(leaf), leaf, in_python)(x)
    assert type(y) is (np.ndarray if shape else dtype.type) and y.dtype == dtype and y.shape == shape
    assert y.tobytes() == x.tobytes()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_numpy_scalars(dtype, in_python):
    type_ = ArrayType((), dtype)
    f = identity(ScalarLeaf(type_, python=False), type_, in_python)
    x = np.array([3]).astype(dtype)[0]
    assert type(f(x)) is dtype.type and f(x) == x
    assert f(3) is MISSED and f(3.0) is MISSED and f(np.array(x)) is MISSED and f(np.zeros(1, dtype)) is MISSED
    other = next(d for d in DTYPES if d != dtype)
    assert f(np.zeros(1, other)[0]) is MISSED


@pytest.mark.parametrize("dtype,values", [
    (F64, [0.0, -0.0, 1.5, float("inf"), 5e-324]), (C128, [0j, 1 - 2j, complex("inf")]),
    (I64, [0, -1, 1, 2**62, 2**63 - 1, -2**63, 2**30, 2**31]), (BOOL, [False, True])], ids=str)
def test_python_scalars(dtype, values, in_python):
    type_ = ArrayType((), dtype)
    f = identity(ScalarLeaf(type_, python=True), type_, in_python)
    for x in values:
        y = f(x)
        assert type(y) is dtype.type and y.tobytes() == np.array(x, dtype).tobytes()
    others = [v for v in (1, 1.5, 2j, True, None, "1", np.int64(1), np.float64(1), np.True_) if type(v) is not type(values[0])]
    assert all(f(x) is MISSED for x in others)


def test_integers_beyond_64_bits_pass_on(in_python):
    type_ = ArrayType((), I64)
    f = identity(ScalarLeaf(type_, python=True), type_, in_python)
    assert f(2**63) is MISSED and f(-2**63 - 1) is MISSED and f(10**100) is MISSED


class MyFloat(float):
    pass


def test_subclasses_of_numbers_pass_on(in_python):
    f = identity(ScalarLeaf(ArrayType((), F64), python=True), ArrayType((), F64), in_python)
    assert f(MyFloat(1)) is MISSED


def test_keywords(in_python):
    real, whole = ArrayType((), F64), ArrayType((), I64)
    both = ResultContainer("tuple", (Result(0), Result(1)))
    version = version_of([ArrayLeaf(VECTOR)], [VECTOR, real, whole], [real, whole], both,
                         keywords=[("scale", ScalarLeaf(real, True)), ("power", ScalarLeaf(whole, True))])
    f, x = function_of(Loaded(version, copying(version.graph, [1, 2]), in_python=in_python)), np.zeros(3, np.float32)
    assert f(x, scale=2.5, power=3) == (2.5, 3)
    assert f(x, **{"".join(["sc", "ale"]): 2.5, "".join(["pow", "er"]): 3}) == (2.5, 3)
    assert f(x, power=3, scale=2.5) is MISSED  # another order is another form of the call
    assert f(x, scale=2.5) is MISSED and f(x, scale=2.5, powers=3) is MISSED and f(x, 2.5, 3) is MISSED
    assert f(x, scale=2.5, power=3, more=1) is MISSED


def tree_version():
    a, b = ArrayLeaf(ArrayType((N,), F32)), ArrayLeaf(ArrayType((N, M), F64))
    weights = Container("dict", (b, Container("none")), ("weight", "none"))
    tree = Container("tuple", (a, weights, Container("list", (a,)), Container("tuple")))
    types_ = [a.type, b.type, a.type]
    rest = ResultContainer("list", (Result(0), ResultContainer("none"), ResultContainer("tuple")))
    result = ResultContainer("dict", (Result(1), rest, ResultContainer("tuple", (Result(2),))), ("w", "rest", "one"))
    return version_of([tree], types_, types_, result)


def tree_argument(n=3, m=4):
    return (np.arange(n, dtype=np.float32), {"weight": np.ones((n, m)), "none": None}, [np.full(n, 7, np.float32)], ())


def test_containers(in_python):
    version = tree_version()
    f = function_of(Loaded(version, copying(version.graph, [0, 1, 2]), in_python=in_python))
    x = tree_argument()
    y = f(x)
    assert list(y) == ["w", "rest", "one"] and type(y) is dict and type(y["rest"]) is list and y["rest"][1:] == [None, ()]
    assert type(y["one"]) is tuple and len(y["one"]) == 1
    for ours, theirs in ((y["w"], x[1]["weight"]), (y["rest"][0], x[0]), (y["one"][0], x[2][0])):
        np.testing.assert_array_equal(ours, theirs)
        assert not np.shares_memory(ours, theirs)


class MyTuple(tuple):
    pass


def test_containers_that_do_not_fit_pass_on(in_python):
    version = tree_version()
    f = function_of(Loaded(version, copying(version.graph, [0, 1, 2]), in_python=in_python))
    a, d, b, e = tree_argument()
    for x in [(a, d, b), (a, d, b, e, e), [a, d, b, e], MyTuple((a, d, b, e)), (a, d, [], e), (a, d, b, None),
              (a, {**d, "none": 1}, b, e), (a, {**d, "more": 1}, b, e), (a, {"weight": d["weight"]}, b, e),
              (a, {"weights": d["weight"], "none": None}, b, e), (a, d, [a.astype(np.float64)], e), (a, d, (b[0],), e),
              (a, types.MappingProxyType(d), b, e), (a[:2], d, b, e)]:
        assert f(x) is MISSED


class Pair(typing.NamedTuple):
    first: object
    second: object


class Child(Pair):
    """A type of its own, whose instances have room for more."""


@dataclasses.dataclass
class Layer:
    w: object
    b: object
    mode: str = "plain"


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    w: object
    b: object
    mode: str = "plain"


@pytest.mark.parametrize("named", [Pair, Child])
@pytest.mark.parametrize("record", [Layer, Slotted])
def test_named_tuples_and_records(named, record, in_python):
    a = ArrayLeaf(VECTOR)
    objects_ = [named, record, "mode of " + str(2)]
    fixed = (("mode", 2),)
    tree = Container("named", (Container("record", (a, a), ("w", "b"), 1, fixed), Container("none")), (), 0)
    inner = ResultContainer("named", (Result(1), ResultContainer("none")), (), 0)
    back = ResultContainer("record", (Result(0), inner), ("b", "w"), 1, fixed)
    version = version_of([tree], [VECTOR, VECTOR], [VECTOR, VECTOR], back, objects=objects_)
    f = function_of(Loaded(version, copying(version.graph, [0, 1]), in_python=in_python))
    w, b = np.arange(3, dtype=np.float32), np.ones(3, np.float32)
    x = named(record(w, b, objects_[2]), None)
    counts = [sys.getrefcount(y) for y in (w, b, named, record, objects_[2], None if in_python else x)]
    for _ in range(3):
        y = f(x)
        assert type(y) is record and type(y.w) is named and len(y.w) == 2 and y.w.second is None and y.mode is objects_[2]
        np.testing.assert_array_equal(y.b, w)
        np.testing.assert_array_equal(y.w.first, b)
    del y
    assert counts[:5] == [sys.getrefcount(y) for y in (w, b, named, record, objects_[2])]
    lacking = object.__new__(record)
    object.__setattr__(lacking, "w", w)
    object.__setattr__(lacking, "mode", objects_[2])
    for other in [(x[0], None), named(x[0], 1), named(record(w, b, "mode of " + str(2)), None), named(lacking, None),
                  named(record(w, None, objects_[2]), None), named(record(w, b[:2], objects_[2]), None), named((w, b), None),
                  (Child if named is Pair else Pair)(x[0], None), (Slotted if record is Layer else Layer)(w, b, objects_[2])]:
        assert f(other) is MISSED


def test_a_result_twice_shares_no_memory(in_python):
    result = ResultContainer("tuple", (Result(0), Result(0), Result(0)))
    version = version_of([ArrayLeaf(VECTOR)], [VECTOR], [VECTOR], result)
    x = np.arange(4, dtype=np.float32)
    y = function_of(Loaded(version, copying(version.graph, [0]), in_python=in_python))(x)
    assert all(np.array_equal(v, x) for v in y)
    assert not any(np.shares_memory(y[i], v) for i in range(3) for v in (x, *y[i + 1:]))


def test_results_that_nobody_asked_for(in_python):
    version = version_of([ArrayLeaf(VECTOR)], [VECTOR], [VECTOR, VECTOR], ResultContainer("none"))
    f = function_of(Loaded(version, copying(version.graph, [0, 0]), in_python=in_python))
    assert f(np.zeros(3, np.float32)) is None


def test_static_objects_are_known_by_identity(in_python):
    mode = "mode of " + str(1)
    version = version_of([ArrayLeaf(VECTOR), ObjectLeaf(0)], [VECTOR], [VECTOR], Result(0), objects=[mode])
    f, x = function_of(Loaded(version, copying(version.graph, [0]), in_python=in_python)), np.zeros(2, np.float32)
    np.testing.assert_array_equal(f(x, mode), x)
    assert f(x, "mode of " + str(1)) is MISSED


def test_captured_arrays_are_read_at_every_call(in_python):
    w = np.arange(3, dtype=np.float32)
    fixed = ArrayType((3,), F32)
    version = version_of([], [fixed], [fixed], Result(0), hidden=[w])
    f = function_of(Loaded(version, copying(version.graph, [0]), in_python=in_python))
    np.testing.assert_array_equal(f(), [0, 1, 2])
    w += 10
    np.testing.assert_array_equal(f(), [10, 11, 12])
    w.resize(4, refcheck=False)
    assert f() is MISSED
    w.resize(3, refcheck=False)
    np.testing.assert_array_equal(f(), [10, 11, 12])


def test_captured_arrays_of_any_layout(in_python):
    base = np.arange(12, dtype=np.float32).reshape(3, 4)
    for w in (base.T, base[:, ::-1], base[::2].astype(">f4"), np.broadcast_to(np.float32(3), (2, 3))):
        fixed = ArrayType(w.shape, F32)
        version = version_of([], [fixed], [fixed], Result(0), hidden=[w])
        f = function_of(Loaded(version, copying(version.graph, [0]), in_python=in_python))
        np.testing.assert_array_equal(f(), w)
        base += 1
        np.testing.assert_array_equal(f(), w)


def test_versions_are_tried_in_order(in_python):
    double = ArrayType((N,), F64)
    version = version_of([ArrayLeaf(double)], [double], [double], Result(0))
    f = function_of(add_one(in_python), Loaded(version, copying(version.graph, [0]), in_python=in_python))
    np.testing.assert_array_equal(f(np.ones(2)), [1, 1])
    np.testing.assert_array_equal(f(np.ones(2, np.float32)), [2, 2])
    assert f(np.ones(2, np.int8)) is MISSED
    set_versions(f, [])
    assert f(np.ones(2)) is MISSED


def atoms():
    names = st.sampled_from([N, M, symbol("k")]) | st.integers(-3, 5)
    return st.recursive(names, lambda x: st.builds(lambda op, a, b: op(a, b), st.sampled_from(
        [lambda a, b: a + b, lambda a, b: a * b, lambda a, b: a - b, minimum, maximum,
         lambda a, b: floordiv(a, b if b != 0 else 1)]), x, x), max_leaves=6)


CUBE = ArrayType((N, M, symbol("k")), F32)


@examples(40)
@given(relation=st.sampled_from(["==", "!=", "<=", "divides"]), a=atoms(), b=atoms(), sizes=st.lists(
    st.tuples(*[st.integers(0, 5)] * 3), min_size=3, max_size=8))
def test_guards_hold_natively_as_in_python(relation, a, b, sizes):
    constraint = Constraint(relation, a, b)
    version = version_of([ArrayLeaf(CUBE)], [CUBE], [], ResultContainer("none"), guards=[Guard(constraint, Source("here", 1))])
    f = function_of(Loaded(version, copying(version.graph, [])))
    for shape in sizes:
        try:
            expected = constraint.holds(dict(zip("nmk", shape, strict=True)))
        except ZeroDivisionError:
            expected = False
        assert (f(np.zeros(shape, np.float32)) is None) == expected


@examples(40)
@given(extents=st.lists(atoms(), max_size=3), shape=st.tuples(*[st.integers(1, 4)] * 3))
def test_result_shapes(extents, shape):
    sizes = dict(zip("nmk", shape, strict=True))
    try:
        expected = tuple(evaluate(x, sizes) for x in extents)
    except ZeroDivisionError:
        return
    if any(not 0 <= x < 1000 for x in expected):
        return
    assert all(symbols_in(x) <= set("nmk") for x in extents)
    version = version_of([ArrayLeaf(CUBE)], [CUBE], [ArrayType(tuple(extents), F32)], Result(0))
    y = function_of(Loaded(version, copying(version.graph, [])))(np.zeros(shape, np.float32))
    assert y.shape == expected


def test_shapes_of_parameters_are_checked(in_python):
    """A leaf binds its own names; what the graph says of the same axes must hold: repeated, fixed and computed sizes."""
    leaf, param = ArrayType((N, M, symbol("k")), F32), ArrayType((N, N + 1, 3), F32)
    version = version_of([ArrayLeaf(leaf)], [param], [], ResultContainer("none"))
    f = function_of(Loaded(version, copying(version.graph, []), in_python=in_python))
    assert f(np.zeros((4, 5, 3), np.float32)) is None
    for shape in ((4, 4, 3), (4, 5, 2), (5, 5, 3)):
        assert f(np.zeros(shape, np.float32)) is MISSED


def test_a_size_that_no_argument_tells():
    version = version_of([ArrayLeaf(ArrayType((2 * N,), F32))], [ArrayType((2 * N,), F32)], [], ResultContainer("none"))
    with pytest.raises(ValueError, match="no argument of f tells the size n"):
        Loaded(version, copying(version.graph, []))


class Reported(Exception):
    pass


def report(error):
    raise Reported(np.frombuffer(error, np.int64).tolist())


FAILING = f"""define {ENTRY} {{
  store i64 4, ptr %error
  %index = getelementptr i64, ptr %error, i64 1
  store i64 -7, ptr %index
  %axis = getelementptr i64, ptr %error, i64 2
  store i64 2, ptr %axis
  %size = getelementptr i64, ptr %error, i64 3
  store i64 5, ptr %size
  ret i32 STATUS
}}
"""


def failing(status, result, in_python):
    version = version_of([ArrayLeaf(VECTOR)], [VECTOR], [result], Result(0))
    return function_of(Loaded(version, FAILING.replace("STATUS", str(status)), report, in_python=in_python))


@pytest.mark.parametrize("n", [3, 100_000])
def test_errors_of_kernels(n, in_python):
    x = np.zeros(n, np.float32)
    with pytest.raises(Reported) as caught:
        failing(1, VECTOR, in_python)(x)
    assert caught.value.args == ([4, -7, 2, 5],)
    with pytest.raises(MemoryError):
        failing(2, VECTOR, in_python)(x)


def test_results_too_large(in_python):
    huge = ArrayType((N * (1 << 50),), F32)
    with pytest.raises((MemoryError, ValueError)):
        failing(0, huge, in_python)(np.zeros(3, np.float32))


def resident():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def refcounts(things):
    return [sys.getrefcount(x) for x in things]


def leak_cases():
    version = tree_version()
    trees = function_of(Loaded(version, copying(version.graph, [0, 1, 2])))
    twice = version_of([ArrayLeaf(VECTOR)], [VECTOR], [VECTOR, VECTOR], ResultContainer("list", (Result(0), Result(0))))
    w = np.arange(12, dtype=np.float32).reshape(3, 4).T
    crooked = version_of([], [ArrayType((4, 3), F32)], [ArrayType((4, 3), F32)], Result(0), hidden=[w])
    number = ArrayType((), I64)
    huge, x, big = ArrayType((N * (1 << 50),), F32), np.zeros(9, np.float32), np.zeros(20_000, np.float32)
    return {
        "answer": (function_of(add_one()), (x,)), "without the lock": (function_of(add_one()), (big,)),
        "miss": (function_of(add_one()), (x.astype(np.float64),)), "trees": (trees, (tree_argument(),)),
        "trees without the lock": (trees, (tree_argument(200, 100),)), "other trees": (trees, ((x, {}, [], ()),)),
        "twice": (function_of(Loaded(twice, copying(twice.graph, [0, 0]))), (x,)),
        "captured": (function_of(Loaded(crooked, copying(crooked.graph, [0]))), ()),
        "numbers": (identity(ScalarLeaf(number, True), number, False), (12345678901,)),
        "index error": (failing(1, VECTOR, False), (x,)), "no memory": (failing(2, VECTOR, False), (x,)),
        "allocation fails": (failing(0, huge, False), (x,)),
    }


@pytest.mark.parametrize("case", leak_cases().items(), ids=lambda case: case[0])
def test_nothing_leaks(case):
    function, args = case[1]
    watched = [F32, F64, I64, np.ndarray, None, function, *args, *[leaf for a in args if type(a) is tuple for leaf in a]]

    def call(times):
        for _ in range(times):
            with contextlib.suppress(Reported, MemoryError, ValueError):
                function(*args)

    call(200)
    gc.collect()
    references, held, memory = refcounts(watched), len(gc.get_objects()), resident()
    call(40_000 if case[0] != "trees without the lock" else 3000)
    grown = resident() - memory
    gc.collect()
    assert all(abs(a - b) < 20 for a, b in zip(refcounts(watched), references, strict=True))
    assert grown < 2 << 20 and len(gc.get_objects()) - held < 50


class Holder:
    pass


@pytest.mark.parametrize("place", ["slow", "table", "published", "attribute"])
def test_cycles_are_collected(place):
    f, holder = NativeFunction(), Holder()
    holder.f = f
    setattr(f, place, (holder,))
    gone = weakref.ref(f), weakref.ref(holder)
    del f, holder
    gc.collect()
    assert gone[0]() is None and gone[1]() is None


def test_code_goes_with_its_function():
    held = Holder()
    version = version_of([ArrayLeaf(VECTOR), ObjectLeaf(0)], [VECTOR], [VECTOR], Result(0), objects=[held])
    f = function_of(Loaded(version, copying(version.graph, [0])))
    f(np.zeros(3, np.float32), held)
    gone = weakref.ref(held)
    del version, held
    assert gone() is not None
    del f
    gc.collect()
    assert gone() is None


def test_a_finalizer_in_the_same_cycle_may_still_call():
    class Last:
        def __del__(self):
            results.append(self.f(np.zeros(2, np.float32)))

    results, last = [], Last()
    last.f = function_of(add_one())
    last.f.back = last
    del last
    gc.collect()
    np.testing.assert_array_equal(results, [[1, 1]])


def test_it_is_an_object_like_others():
    class Owner:
        method = function_of(add_one())

    f = Owner.__dict__["method"]
    f.note = 3
    assert f.note == 3 and f.__dict__ == {"note": 3} and weakref.ref(f)() is f and callable(f)
    assert Owner.method is f and Owner().method.__func__ is f
    f.slow = lambda *args: args
    owner = Owner()
    assert owner.method(5) == (owner, 5)
    bound = owner.method
    assert bound(5) == (owner, 5)
    del f.slow
    with pytest.raises(SystemError):
        f(5)


def test_slow_gets_exactly_the_call():
    f = function_of(add_one())
    f.slow = lambda *args, **kwargs: (args, kwargs)
    assert f(1, *[2, 3], a=4, **{"b": 5}) == ((1, 2, 3), {"a": 4, "b": 5})
    with pytest.raises(ZeroDivisionError):
        f.slow = lambda: 1 // 0
        f()


def test_alone(in_python):
    loaded = add_one(in_python)
    np.testing.assert_array_equal(loaded.call((np.zeros(1, np.float32),), {}), [1])
    with pytest.raises(Miss):
        loaded.call((1,), {})


WAITING = f"""define {ENTRY} {{
entry:
  %flag = load ptr, ptr %args
  br label %wait
wait:
  %now = load atomic i32, ptr %flag seq_cst, align 4
  %go = icmp eq i32 %now, 2
  br i1 %go, label %done, label %tell
tell:
  store atomic i32 1, ptr %flag seq_cst, align 4
  %second = getelementptr i8, ptr %flag, i64 4
  %pair = cmpxchg ptr %second, i32 1, i32 2 seq_cst seq_cst
  %asked = extractvalue {{ i32, i1 }} %pair, 1
  br i1 %asked, label %done, label %wait
done:
  ret i32 0
}}
"""


@dataclasses.dataclass
class Only:
    only: object

    def clear(self):
        self.only = None


@pytest.mark.parametrize("kind", [list, Only])
def test_a_version_replaced_while_it_runs(kind):
    """The code, the table and an array that only a list, or a record, holds outlive the call."""
    big = ArrayType((N,), np.dtype(np.int32))
    kept = Container("list", (ArrayLeaf(big),)) if kind is list else Container("record", (ArrayLeaf(big),), ("only",), 0)
    version = version_of([kept], [big], [], ResultContainer("none"), objects=[Only])
    f = function_of(Loaded(version, WAITING))
    array = np.zeros(100_000, np.int32)
    argument, answers = kind([array]) if kind is list else kind(array), []
    thread = threading.Thread(target=lambda: answers.append(f(argument)))
    thread.start()
    while ctypes.c_int32.from_address(array.ctypes.data).value != 1:
        pass
    set_versions(f, [add_one()])
    argument.clear()
    address, gone = array.ctypes.data, weakref.ref(array)
    del array, version
    gc.collect()
    assert gone() is not None
    ctypes.c_int32.from_address(address + 4).value = 1
    thread.join(10)
    assert answers == [None]
    gc.collect()
    assert gone() is None
    np.testing.assert_array_equal(f(np.zeros(1, np.float32)), [1])


def test_threads_call_one_function():
    f, failures = function_of(add_one()), []

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(300):
            x = rng.random(rng.integers(0, 40_000)).astype(np.float32)
            if not np.array_equal(f(x), x + np.float32(1)):
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


@needs_fork
def test_a_forked_child_calls_and_compiles():
    f, x = function_of(add_one()), np.zeros(3, np.float32)

    def check():
        assert f(x).sum() == 3 and function_of(add_one())(x).sum() == 3
    check_in_child(check)


def test_bfloat16_results_are_scalars_of_ml_dtypes():
    type_ = ArrayType((), np.dtype(ml_dtypes.bfloat16))
    y = identity(ArrayLeaf(type_), type_, False)(np.array(1.5, ml_dtypes.bfloat16))
    assert type(y) is ml_dtypes.bfloat16 and y == 1.5 and copy.copy(y) == y
