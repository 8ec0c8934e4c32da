"""Arguments and results of jitted functions: numbers, layouts, containers, and every way to call a function."""
import copy
import dataclasses
import functools
import inspect
import pickle
import typing
from collections import OrderedDict, namedtuple
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.lower.runtime.linking import is_native
from tests.scale import examples
from tests.test_jit import same

Point = namedtuple("Point", "x y")


@lw.jit
def _doubled(x):
    """Twice x."""
    return x + x


# ---- numbers ----------------------------------------------------------------------------------------
def test_python_numbers_are_weak_traced_values():
    @lw.jit
    def f(x, s):
        return x * s

    x = np.arange(4, dtype=np.float32)
    for s in (2.0, 3.5, -1.0):
        same(f(x, s), x * np.float32(s))
    assert f.compiles == 1
    same(f(x, 3), x * 3)
    assert f.compiles == 2
    same(f(x, True), x * True)
    same(f(x, np.float64(3)), x * np.float64(3))
    same(f(x, np.int8(3)), x * np.int8(3))
    assert f.compiles == 5


def test_numbers_alone_give_numpy_scalars_of_the_default_dtype():
    same(lw.jit(lambda a, b: a + b)(1, 2), np.int64(3))
    same(lw.jit(lambda a, b: a + b)(1, 2.5), np.float64(3.5))
    same(lw.jit(lambda a: a)(7), np.int64(7))
    same(lw.jit(lambda a: a)(True), np.True_)
    same(lw.jit(lambda a: a)(np.float32(1.5)), np.float32(1.5))
    same(lw.jit(lambda a: a)(np.array(1.5)), np.float64(1.5))


def test_subclasses_of_numbers_are_numbers():
    class Degrees(float):
        pass

    class Count(int):
        pass

    f = lw.jit(lambda a: a * 2)
    same(f(Degrees(1.5)), np.float64(3.0))
    same(f(Count(3)), np.int64(6))
    same(f(1.5), np.float64(3.0))
    assert f.compiles == 2


def test_an_int_beyond_int64_says_what_to_pass():
    f = lw.jit(lambda a: a + 1)
    with pytest.raises(OverflowError, match=r"argument a of <lambda>.*np\.uint64"):
        f(1 << 63)
    same(f(np.uint64(1 << 63)), np.uint64((1 << 63) + 1))
    same(f(-(1 << 63)), np.int64(-(1 << 63) + 1))


# ---- layouts ----------------------------------------------------------------------------------------
def layouts(x, tmp_path):
    """x in every layout that NumPy has."""
    padded = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)
    padded[..., ::2] = x
    yield "strided", padded[..., ::2]
    yield "reversed", np.ascontiguousarray(x[::-1])[::-1]
    yield "fortran", np.asfortranarray(x)
    yield "transposed", np.ascontiguousarray(x.T).T
    frozen = x.copy()
    frozen.flags.writeable = False
    yield "read-only", frozen
    yield "byte-swapped", x.astype(x.dtype.newbyteorder())
    raw = np.zeros(x.nbytes + 1, np.uint8)
    misaligned = raw[1:].view(x.dtype).reshape(x.shape)
    misaligned[...] = x
    yield "misaligned", misaligned
    yield "broadcast", np.broadcast_to(x[:1], x.shape)
    mapped = np.memmap(tmp_path / "x", dtype=x.dtype, mode="w+", shape=x.shape)
    mapped[...] = x
    yield "memmap", mapped


@pytest.mark.parametrize("shape", [(4, 3), (700, 301), (70, 20, 101)])
def test_every_layout_gives_the_same_values_from_one_compile(tmp_path, shape):
    @lw.jit
    def f(x):
        return x * 2 - x[:1]

    x = np.random.default_rng(0).normal(size=shape)
    f(x)
    for name, given_x in layouts(x, tmp_path):
        expected = np.asarray(given_x).astype(x.dtype.newbyteorder("="))
        got = f(given_x)
        assert type(got) is np.ndarray and got.dtype.isnative, name
        np.testing.assert_array_equal(got, expected * 2 - expected[:1], err_msg=name)
    assert f.compiles == 1


def test_views_beside_other_arguments_answer_as_their_copies_do():
    @lw.jit
    def f(x, pair, y=1.0):
        return x * y + pair[0]

    x = np.arange(12.0).reshape(4, 3)
    for column in (x[:, 0], x[::-1, 1], x[:, 2].astype("f4")[::2], x.astype(">f8")[:, 1]):
        for y in (2.0, column, column[::-1]):
            f(column.copy(), (column.copy(), 0), y=y)
            before = f.compiles
            np.testing.assert_array_equal(f(column, (column, 0), y=y), column * y + column)
            assert f.compiles == before
    assert lw.grad(lambda x: np.sum(f(x[:, 0], (x[:, 1], 0))))(x).tolist() == [[1.0, 1.0, 0.0]] * 4


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8", "i2", "c16"])
@pytest.mark.parametrize("axes", [(1, 2, 0), (2, 0, 1), (0, 2, 1), (1, 0, 2), (2, 1, 0)])
def test_large_arrays_in_other_orders_of_axes(dtype, axes):
    x = np.arange(30 * 70 * 151).reshape(30, 70, 151).astype(dtype)
    f = lw.jit(lambda x: x[:, :-1] + x[:, 1:])
    for given_x in (x.transpose(axes), x[:, ::2].transpose(axes), x[:1].transpose(axes)):
        kept = given_x.copy()
        np.testing.assert_array_equal(f(given_x), kept[:, :-1] + kept[:, 1:])
        np.testing.assert_array_equal(given_x, kept)
    assert f.compiles == 1


def test_aliases_of_a_dtype_share_a_version():
    f = lw.jit(lambda x: x + 1)
    f(np.arange(3, dtype=np.int64))
    many = np.arange(12, dtype=np.longlong)
    unaligned = np.frombuffer(b"." + many.tobytes(), "u1")[1:].view("q")
    for x in (many[:3], many[::4], many[2::-1], many.reshape(3, 4)[:, 0], unaligned):
        same(f(x), x.astype(np.int64) + 1)
        same(lw.jit(lambda x, y: x + y)(x, x), x.astype(np.int64) * 2)  # the first call, too
    assert f.compiles == 1
    assert f(np.longlong(3)) == 4 and type(f(np.longlong(3))) is np.int64


# ---- results ----------------------------------------------------------------------------------------
def test_results_are_fresh_writeable_and_contiguous():
    x = np.arange(6.0).reshape(2, 3)
    a, b, c, d = lw.jit(lambda x: (x, x, x.T, x[0]))(x)
    results = [a, b, c, d]
    for got, expected in zip(results, (x, x, x.T, x[0]), strict=True):
        same(got, expected)
        assert got.flags.c_contiguous and got.flags.writeable and got.flags.owndata
        assert not np.shares_memory(got, x)
    assert not any(np.shares_memory(p, q) for i, p in enumerate(results) for q in results[:i])


@dataclass
class State:
    w: object
    step: object


CONTAINERS = [
    lambda x: x, lambda x: (x, x + 1), lambda x: [x, (x, [])], lambda x: {"b": x, "a": (x + 1, None)}, lambda x: None,
    lambda x: (), lambda x: {}, lambda x: Point(x, [x + 1]), lambda x: OrderedDict(b=x, a=x + 1),
    lambda x: State(x, {"n": x + 2}),
    lambda x: {1: x, 0: x + 1}, lambda x: {"a": x, 1: x + 1}, lambda x: (2, 3.5, True, x, np.float32(1)),
]


@pytest.mark.parametrize("f", CONTAINERS, ids=range(len(CONTAINERS)))
def test_results_keep_their_containers(f):
    g = lw.jit(f)
    for n in (3, 4):
        x = np.arange(float(n))
        assert_trees_equal(g(x), f(x))
    assert g.compiles == 1


@pytest.mark.parametrize("f", CONTAINERS, ids=range(len(CONTAINERS)))
def test_arguments_may_be_containers(f):
    leaves = []
    g = lw.jit(lambda tree: _map(lambda x: x * 2, tree))
    for n in (3, 4):
        tree = f(np.arange(float(n)))
        leaves.append(g(tree))
        assert_trees_equal(leaves[-1], _map(lambda x: np.asarray(x * 2)[()], tree))
    assert g.compiles == 1


def _map(f, tree):
    from loopwright.tracer.pytree import flatten, unflatten
    leaves, structure = flatten(tree)
    return unflatten(structure, [f(x) for x in leaves])


def assert_trees_equal(a, b):
    from loopwright.tracer.pytree import flatten
    (xs, s), (ys, t) = flatten(a), flatten(b)
    assert s == t
    for x, y in zip(xs, ys, strict=True):
        assert np.asarray(x).dtype == np.asarray(y).dtype
        np.testing.assert_array_equal(x, y)


values = st.sampled_from([1, 2.5, True, np.float32(3), np.arange(3.0), np.ones((2, 2), np.int32), np.zeros((0, 2)),
                          np.array(4)])
trees = st.recursive(values | st.none(), lambda t: st.one_of(
    st.lists(t, max_size=2), st.lists(t, max_size=2).map(tuple), st.dictionaries(st.sampled_from("abc"), t, max_size=2),
    st.tuples(t, t).map(lambda p: Point(*p)), st.tuples(t, t).map(lambda p: State(*p))), max_leaves=5)


@given(st.lists(trees, max_size=2), st.dictionaries(st.sampled_from(["p", "q"]), trees, max_size=2))
@examples(25)
def test_any_arguments_come_back_as_they_went_in(args, kwargs):
    f = lw.jit(lambda *args, **kwargs: [args, kwargs])
    for _ in range(2):
        assert_trees_equal(f(*args, **kwargs), [tuple(args), kwargs])
        assert_trees_equal(f(*args, **dict(reversed(kwargs.items()))), [tuple(args), kwargs])
    assert f.compiles == 1


def test_dicts_of_any_order_share_a_version():
    f = lw.jit(lambda d: d["a"] - d["b"])
    x, y = np.arange(3.0), np.ones(3)
    same(f({"a": x, "b": y}), x - y)
    same(f({"b": y, "a": x}), x - y)
    assert f.compiles == 1


# ---- ways to call -----------------------------------------------------------------------------------
def test_the_spelling_of_a_call_makes_no_version():
    @lw.jit
    def f(x, y, *, scale):
        return (x - y) * scale

    x, y = np.arange(3.0), np.ones(3)
    for got in (f(x, y, scale=2.0), f(x, y=y, scale=2.0), f(y=y, x=x, scale=2.0), f(scale=2.0, x=x, y=y)):
        same(got, (x - y) * 2.0)
    assert f.compiles == 1


def test_defaults_are_the_functions_own():
    offset = np.array([10.0, 20.0, 30.0])

    @lw.jit
    def f(x, k=3, offset=offset):
        return x * k + offset

    x = np.arange(3.0)
    same(f(x), x * 3 + offset)
    same(f(x, 4), x * 4 + offset)
    same(f(x, offset=np.zeros(3)), x * 3)
    offset += 1  # a default array is read at every call, as Python does
    same(f(x), x * 3 + offset)
    assert f.compiles == 3


def test_star_arguments():
    @lw.jit
    def f(first, *rest, **named):
        for r in rest:
            first = first + r
        for k in sorted(named):
            first = first * named[k]
        return first

    x = np.arange(3.0)
    same(f(x), x)
    same(f(x, x, 1.0, a=2.0, b=x), (x + x + 1.0) * 2.0 * x)
    same(f(x, x, 1.0, b=x, a=2.0), (x + x + 1.0) * 2.0 * x)
    assert f.compiles == 2


def test_positional_only_parameters():
    @lw.jit
    def f(x, /, **named):
        return x + named["x"]

    same(f(1.0, x=2.0), np.float64(3.0))
    same(f(2.0, x=2.0), np.float64(4.0))
    assert f.compiles == 1


def test_a_wrong_call_is_pythons_error_and_leaves_nothing():
    @lw.jit
    def f(x, y):
        return x + y

    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        f(1.0)
    with pytest.raises(TypeError, match="unexpected keyword"):
        f(1.0, 2.0, z=3.0)
    assert f.compiles == 0 and f.versions == ()


class Model:
    scale = 3.0

    def __init__(self, w):
        self.w = w

    @functools.partial(lw.jit, static_argnames="self")
    def predict(self, x):
        """The prediction."""
        return x * self.w * self.scale


@dataclass
class Affine:
    w: object
    b: object

    @lw.jit
    def __call__(self, x):
        return x * self.w + self.b


def test_methods():
    w, x = np.arange(3.0), np.ones(3)
    model = Model(w)
    same(model.predict(x), x * w * 3.0)
    w += 1  # a captured array is read at every call
    same(model.predict(x), x * w * 3.0)
    assert Model.predict.compiles == 1
    layer = Affine(np.arange(3.0), 1.0)
    same(layer(x), x * layer.w + 1.0)
    layer.w, layer.b = np.ones(5), 2.0
    same(layer(np.ones(5)), np.full(5, 3.0))
    assert Affine.__call__.compiles == 1


def test_a_jitted_function_looks_like_the_function():
    assert _doubled.__name__ == "_doubled" and _doubled.__doc__ == "Twice x." and _doubled.__module__ == __name__
    assert str(inspect.signature(_doubled)) == "(x)" and _doubled.__wrapped__(2) == 4
    assert "jitted _doubled" in repr(_doubled)
    assert Model.predict.__doc__ == "The prediction."


def test_pickle_and_copy_by_name():
    assert pickle.loads(pickle.dumps(_doubled)) is _doubled
    assert copy.copy(_doubled) is _doubled and copy.deepcopy([_doubled])[0] is _doubled
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(lw.jit(lambda x: x))


def test_anything_callable_can_be_jitted():
    x = np.arange(1.0, 4.0)
    same(lw.jit(np.negative)(x), -x)
    same(lw.jit(functools.partial(np.add, 1.0))(x), 1.0 + x)
    same(lw.jit(lw.jit(lambda x: x * 2))(x), x * 2)

    class Adder:
        def __call__(self, x):
            return x + 5
    same(lw.jit(Adder())(x), x + 5)
    with pytest.raises(lw.ArgumentError, match="expected a function, got int"):
        lw.jit(3)


def test_options_by_decorator():
    @lw.jit(static_argnames=("k",))
    def f(x, k):
        return x * k if k > 1 else x
    same(f(2.0, k=3), np.float64(6.0))
    same(f(2.0, k=1), np.float64(2.0))


# ---- named tuples and dataclasses, by compiled code -------------------------------------------------
class Running(typing.NamedTuple):
    mean: object
    count: object


@dataclasses.dataclass
class Dense:
    w: object
    b: object
    act: str = dataclasses.field(default="relu", metadata={"static": True})
    state: object = None


class Copied:
    """What a dataclass's attribute is made anew by."""

    def __set_name__(self, owner, name):
        self.name = f"_{name}"

    def __get__(self, instance, owner=None):
        return self if instance is None else getattr(instance, self.name).copy()

    def __set__(self, instance, value):
        setattr(instance, self.name, value)


@dataclasses.dataclass
class Fresh:
    x: object
    x = Copied()


def unasked(f, monkeypatch):
    """What no compiled version answered by itself, as it comes."""
    asked = []
    monkeypatch.setattr(f, "slow", lambda *args, slow=f.slow: (asked.append(args), slow(*args))[1])
    return asked


def test_named_tuples_and_dataclasses_go_through_compiled_code(monkeypatch):
    @lw.jit
    def f(layer, x):
        y = x @ layer.w + layer.b
        y = np.maximum(y, 0) if layer.act == "relu" else y
        return dataclasses.replace(layer, state=Running(layer.state.mean + y.mean(0), layer.state.count + 1)), y

    rng = np.random.default_rng(0)
    w, b, x = rng.normal(size=(4, 3)), rng.normal(size=3), rng.normal(size=(5, 4))
    layers = [Dense(w, b, "relu", Running(np.zeros(3), 0)), Dense(w, b, "none", Running(np.zeros(3), 0))]
    for layer in layers:
        f(layer, x)
    asked = unasked(f, monkeypatch)
    for layer in layers:
        after, y = f(layer, x)
        expected = np.maximum(x @ w + b, 0) if layer.act == "relu" else x @ w + b
        np.testing.assert_allclose(y, expected, rtol=1e-14)
        assert type(after) is Dense and type(after.state) is Running and after.act is layer.act and after.state.count == 1
        np.testing.assert_allclose(after.state.mean, expected.mean(0), rtol=1e-14)
        assert after.w is not w and np.array_equal(after.w, w)
    assert not asked or not is_native()
    f(Dense(w, b, "".join(["re", "lu"]), Running(np.zeros(3), 0)), x)  # equal, not the same: Python finds it
    assert asked and f.compiles == 2


def test_dataclasses_whose_attributes_are_made_anew_are_taken_apart_in_python(monkeypatch):
    f = lw.jit(lambda p: p.x + 1)
    p = Fresh(np.arange(3.0))
    f(p)
    asked = unasked(f, monkeypatch)
    np.testing.assert_array_equal(f(p), p.x + 1)
    assert asked and f.compiles == 1


class Backwards(Running):
    """A named tuple whose children are not its items."""

    def __iter__(self):
        return iter((self[1], self[0]))


def test_named_tuples_that_iterate_otherwise_are_taken_apart_in_python(monkeypatch):
    f, t = lw.jit(lambda t: t.mean - t.count), Backwards(np.arange(3.0), np.ones(3))
    expected = f(t)
    asked = unasked(f, monkeypatch)
    np.testing.assert_array_equal(f(t), expected)
    assert asked and f.compiles == 1


def test_dataclasses_that_lack_a_field_say_so():
    f, p = lw.jit(lambda p: p.w + 1), Dense(np.zeros(2), np.zeros(2))
    f(p)
    del p.b
    with pytest.raises(AttributeError, match="'b'"):
        f(p)
