"""Reads of arrays that were written piece by piece: the same elements as NumPy's, from the piece alone where sizes tell."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.ir.parser import parse
from loopwright.ir.rewriting import simplify
from loopwright.lower.written import by_pieces
from tests.scale import examples
from tests.test_rewriting import body


def written(name, start, shape, of="%x"):
    """The lines of `of[start...] = name`, of a value of this shape: what is left is named with an r."""
    attrs = f"{{shape=(n, m), start=({start}), step=(1, 1), value="
    return (f"%{name}t: bool[{shape}] = full() {{value=True, shape=({shape}), dtype=bool}}",
            f"%{name}p: bool[n, m] = pad(%{name}t) {attrs}False}}",
            f"%{name}v: f64[n, m] = pad(%{name}) {attrs}0}}",
            f"%{name}r: f64[n, m] = select(%{name}p, %{name}v, {of})")


PARAMS = "%x: f64[n, m], %a: f64[2, m], %b: f64[2, m], %c: f64[1, m]"


def read(start, shape, of, step="1, 1"):
    return f"%r: f64[{shape}] = slice({of}) {{start=({start}), step=({step}), shape=({shape})}}"


def graph(*lines, result="%r"):
    return parse(str(body(*lines, result=result, params=PARAMS)).replace("{\n", "where n >= 9, m >= 4 {\n", 1))


@pytest.mark.parametrize(("lines", "wanted"), [
    ((*written("a", "1, 0", "2, m"), read("1, 0", "2, m", "%ar")), "%a"),  # what was written
    ((*written("a", "1, 0", "2, m"), read("2, 1", "1, 2", "%ar")), read("1, 1", "1, 2", "%a")),  # some of it
    ((*written("a", "1, 0", "2, m"), read("3, 0", "2, m", "%ar")), read("3, 0", "2, m", "%x")),  # what was not
    ((*written("a", "1, 0", "2, m"), *written("b", "5, 0", "2, m", "%ar"), read("2, 0", "1, m", "%br")),
     read("1, 0", "1, m", "%a")),  # before a write
    ((*written("a", "1, 0", "2, m"), read("2, 0", "2, m", "%ar", "-1, 1")),
     read("1, 0", "2, m", "%a", "-1, 1")),  # backwards
    (("%s: f64[4, m] = concatenate(%a, %b) {axis=0}", read("2, 0", "1, m", "%s")), read("0, 0", "1, m", "%b")),
    (("%s: f64[9, m] = pad(%a) {shape=(9, m), start=(2, 0), step=(3, 1), value=0.5}", read("5, 0", "1, m", "%s")),
     read("1, 0", "1, m", "%a")),
    (("%s: f64[9, m] = pad(%a) {shape=(9, m), start=(2, 0), step=(3, 1), value=0.5}", read("3, 0", "2, m", "%s", "3, 1")),
     "%r: f64[2, m] = full() {value=0.5, shape=(2, m), dtype=f64}"),  # between elements
])
def test_what_one_part_has_is_read_there(lines, wanted):
    expected = graph(result=wanted) if wanted.startswith("%a") else graph(wanted)
    assert by_pieces(graph(*lines)) == expected


@pytest.mark.parametrize("lines", [
    (*written("a", "1, 0", "2, m"), read("2, 0", "2, m", "%ar")),  # of two parts
    (*written("a", "n-2, 0", "2, m"), read("7, 0", "1, m", "%ar")),  # n may be 9, or 10
    ("%s: f64[4, m] = concatenate(%a, %b) {axis=0}", read("1, 0", "2, m", "%s")),
])
def test_what_several_parts_have_is_read_as_it_was(lines):
    assert by_pieces(graph(*lines)) == graph(*lines)


def test_what_is_written_again_is_written_once():
    first, wider = written("c", "2, 0", "1, m"), written("b", "1, 0", "2, m", "%cr")
    assert by_pieces(graph(*first, *wider, result="%br")) == graph(*written("b", "1, 0", "2, m"), result="%br")
    apart = written("b", "4, 0", "2, m", "%cr")
    assert by_pieces(graph(*first, *apart, result="%br")) == graph(*first, *apart, result="%br")


def test_sums_in_place_are_sums():
    """Every step reads and writes the same row: the row is written once."""
    def f(x, y):
        x = x.copy()
        for k in range(30):
            x[2, :5] += y[k] * y[:5]
        return x
    x, y = np.random.default_rng(0).normal(size=(4, 6)), np.arange(30.0)
    made = str(by_pieces(simplify(lw.make_graph(f)(x, y))))
    assert made.count("select(") == 1
    want = x.copy()
    for k in range(30):
        want[2, :5] += y[k] * y[:5]
    np.testing.assert_array_equal(lw.jit(f)(x, y), want)


def test_thousands_of_writes_are_looked_through():
    def f(x, y):
        x = x.copy()
        x[0] = 2 * y
        for k in range(2000):
            x[k % 50 + 1] = y + k
        return x[0]
    x = np.arange(60.0)
    made = by_pieces(simplify(lw.make_graph(f)(x, 3.0)))
    assert "select(" not in str(made) and len(made.nodes) < 4
    assert lw.jit(f)(x, 3.0) == 6.0


SLICES = st.builds(slice, st.integers(-7, 7), st.integers(-7, 7), st.sampled_from((1, 1, 1, 2, 3, -1, -2)))
PLACES = st.tuples(SLICES, SLICES) | st.tuples(st.integers(-6, 5), SLICES) | st.tuples(SLICES, st.integers(-7, 6))
STEPS = st.lists(st.tuples(PLACES, PLACES, st.sampled_from(("number", "elements", "copy", "sum"))), min_size=1, max_size=8)


@examples(150)
@given(steps=STEPS)
def test_programs_of_writes_and_reads(steps):
    def f(x, y):
        x, total = x.copy(), 0.0
        for k, (to, of, how) in enumerate(steps):
            if how == "number":
                x[to] = k
            elif how == "elements":
                x[to] = 2 * y[to]
            elif how == "copy" and x[to].shape == x[of].shape:
                x[to] = x[of] + k
            elif how == "sum":
                x[to] *= 0.5
            total = total + np.sum(x[of])
        return x, total, x[steps[0][0]] + 1
    rng = np.random.default_rng(0)
    x, y = rng.integers(-9, 9, (6, 7)).astype(float), rng.integers(-9, 9, (6, 7)).astype(float)
    for found, wanted in zip(lw.jit(f)(x, y), f(x, y), strict=True):
        np.testing.assert_array_equal(found, wanted)
    np.testing.assert_allclose(lw.jit(lw.grad(lambda x: f(x, y)[1]))(x), lw.grad(lambda x: f(x, y)[1])(x), rtol=1e-12)
