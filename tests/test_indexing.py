"""x[key] on traced arrays is NumPy's x[key]: values, shapes, errors, whatever the key, with plain and symbolic sizes."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from tests.scale import examples
from tests.tracing import run, same


@st.composite
def shape_and_key(draw):
    shape = tuple(draw(st.lists(st.integers(0, 4), min_size=0, max_size=4)))
    index_shape = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))
    items, axis = [], 0
    ellipsis = draw(st.integers(0, len(shape) + 1))
    while axis < len(shape):
        if len(items) == ellipsis:
            items.append(Ellipsis)
            axis += draw(st.integers(0, len(shape) - axis))
            ellipsis = -1
            continue
        kind = draw(st.sampled_from(["int", "slice", "slice", "none", "array", "array", "mask", "stop"]))
        n = shape[axis]
        if kind == "stop":
            break
        if kind == "none":
            items.append(None)
            continue
        if kind == "slice":
            bound = st.none() | st.integers(-6, 6)
            items.append(slice(draw(bound), draw(bound), draw(st.sampled_from([None, 1, 2, 3, -1, -2]))))
        elif kind == "mask" and len(shape) - axis >= 1 and not index_shape:
            items.append(np.array([draw(st.booleans()) for _ in range(n)], bool))
        elif n == 0:
            items.append(slice(None))
        elif kind == "int":
            items.append(draw(st.integers(-n, n - 1)))
        else:
            cut = draw(st.integers(0, len(index_shape)))
            sizes = [m if draw(st.booleans()) else 1 for m in index_shape[cut:]]
            flat = [draw(st.integers(-n, n - 1)) for _ in range(int(np.prod(sizes)))]
            dtype = draw(st.sampled_from(["i8", "i4", "u1"])) if min(flat, default=0) >= 0 else "i8"
            items.append(np.array(flat, dtype).reshape(sizes))
        axis += 1
    key = tuple(items)
    return shape, key[0] if len(key) == 1 and draw(st.booleans()) else key


def arrays_of(key):
    return [t for t in (key if isinstance(key, tuple) else (key,)) if isinstance(t, np.ndarray)]


def outcome(f):
    try:
        return f()
    except (IndexError, ValueError) as error:
        return type(error)


@examples(300)
@given(shape_and_key(), st.booleans())
def test_reads_what_numpy_reads(case, symbolic):
    shape, key = case
    x = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    try:
        expected = x[key]
    except IndexError:
        if any(not (t.sum() if t.dtype == bool else t.size) for t in arrays_of(key)):
            return  # indices that stand beside none are not looked at: docs/numpy.md
        with pytest.raises((IndexError, ValueError)):
            run(lambda x: x[key], x, symbolic=symbolic)
        return
    same(run(lambda x: x[key], x, symbolic=symbolic), expected)


@examples(100)
@given(shape_and_key(), st.booleans())
def test_traced_index_arrays_read_the_same(case, symbolic):
    shape, key = case
    x = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    items = key if isinstance(key, tuple) else (key,)
    is_index = [isinstance(t, (int, np.ndarray)) and not (isinstance(t, np.ndarray) and t.dtype == bool) for t in items]
    arrays = [np.asarray(t) for t, yes in zip(items, is_index, strict=True) if yes]

    def f(x, *indices):
        left = iter(indices)
        return x[tuple(next(left) if yes else t for t, yes in zip(items, is_index, strict=True))]
    try:
        expected = x[key]
    except IndexError:
        return
    same(run(f, x, *arrays, symbolic=symbolic), expected)


@pytest.mark.parametrize("key", [
    np.s_[:, [0], ..., 0], np.s_[:, [0, 1], ..., [0, 1]], np.s_[:, 0, ..., [0, 1]], np.s_[..., [0], 0], np.s_[[0], 0, 1, ...],
    np.s_[0, 1, ..., [2, 0]], np.s_[[True, False], ..., 1, 1]])
def test_an_ellipsis_that_stands_for_no_axis_separates_advanced_indices(key):
    x = np.arange(24.0).reshape(2, 3, 4)
    same(run(lambda x: x[key], x), x[key])
    want, new = x.copy(), np.arange(x[key].size).reshape(x[key].shape)
    want[key] = new

    def write(x, new):
        x = x.copy()
        x[key] = new
        return x

    np.testing.assert_array_equal(lw.jit(write)(x, new), want)


def test_slices_reach_beyond_any_integer():
    x, far = np.arange(12.0).reshape(3, 4), 2 ** 70
    for f in (lambda x: x + 1 if x.shape[0] < far else x, lambda x: x[:far, -far:],
              lambda x: x[far:], lambda x: x[::far, ::-far], lambda x: x[-far:far:2, :-far]):
        g = lw.jit(f)
        for a in (x, x[:1], x[:0]):
            np.testing.assert_array_equal(g(a), f(a), strict=True)


KEYS = [lambda k: np.s_[..., k], lambda k: np.s_[:, k], lambda k: np.s_[k], lambda k: np.s_[1:3, None, k],
        lambda k: np.s_[0, :, k], lambda k: np.s_[:, k, 0], lambda k: np.s_[None, ..., k]]


@pytest.mark.parametrize("positions", [[0, 2], [2, 1, 0], [-1, -2], [-3, -1], [1], [0, 1, 3], [2, 2], [-1, 0], []])
@pytest.mark.parametrize("key", KEYS)
def test_lists_read_copies_and_are_written_to(key, positions):
    """Also those with equal steps, which are read as slices are: no views, for all that."""
    at = key(positions)

    def f(x):
        y = x[at]
        y[...] = y * 2
        z = x + 0
        z[at] = np.sum(x)
        z[at] += 1
        return x, y, z
    x = np.arange(80.0).reshape(4, 4, 5)
    for found, expected in zip(lw.jit(f)(x), f(x.copy()), strict=True):
        same(found, expected)


def test_lists_with_equal_steps_are_slices_and_so_are_a_few_positions():
    x = np.ones((3, 4))
    slices, others = ([2, 1, 0], [-2, -1], [3], [0, 1, 3], [-1, 0], [1, 1]), ([0, 1, 3, 0, 1], [np.int64(1), 0, 0])
    for positions, is_slice in (*((k, True) for k in slices), *((k, False) for k in others)):
        assert ("gather" not in str(lw.make_graph(lambda x, k=positions: x[:, k])(x))) == is_slice
    for positions in ([3, 4], [-5, -4], [-4, -5], [4], [0, 1, 4], [0, 0, -5]):
        with pytest.raises(IndexError, match="out of bounds for axis 1 with size"):
            lw.jit(lambda x, k=positions: x[:, k])(x)
