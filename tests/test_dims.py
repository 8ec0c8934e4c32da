"""Sizes against integers: polynomials mean what their arithmetic means, and the prover answers only what is so."""
import math
import time

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from loopwright.ir.dims import Dim, evaluate, floordiv, maximum, minimum, modulo, substitute, symbol, symbol_of, symbols_in
from loopwright.ir.facts import Constraint, Facts
from loopwright.ir.guards import Scope
from loopwright.ir.types import F32, ArrayType
from tests.scale import examples

NAMES = ("n", "m", "k")
n, m, k = map(symbol, NAMES)

sizes = st.fixed_dictionaries({name: st.integers(0, 12) for name in NAMES})
positive = st.fixed_dictionaries({name: st.integers(1, 12) for name in NAMES})


def _combine(inner):
    pairs = st.tuples(inner, inner)
    return st.one_of(
        pairs.map(lambda p: p[0] + p[1]), pairs.map(lambda p: p[0] - p[1]), pairs.map(lambda p: p[0] * p[1]),
        pairs.map(lambda p: minimum(*p)), pairs.map(lambda p: maximum(*p)),
        st.tuples(inner, st.integers(1, 4)).map(lambda p: floordiv(*p)),
        st.tuples(inner, st.integers(1, 4)).map(lambda p: modulo(*p)),
        st.tuples(inner, st.sampled_from((n, m, k))).map(lambda p: floordiv(*p)))


extents = st.recursive(st.integers(-3, 6) | st.sampled_from((n, m, k)), _combine, max_leaves=5)
pairs = st.tuples(extents, extents)


@examples(300)
@given(pair=pairs, at=positive)
def test_arithmetic_is_that_of_integers(pair, at):
    a, b = pair
    x, y = evaluate(a, at), evaluate(b, at)
    assert evaluate(a + b, at) == x + y
    assert evaluate(a - b, at) == x - y
    assert evaluate(a * b, at) == x * y
    assert evaluate(minimum(a, b), at) == min(x, y)
    assert evaluate(maximum(a, b), at) == max(x, y)
    if y != 0 and b != 0:
        assert evaluate(floordiv(a, b), at) == x // y
        assert evaluate(modulo(a, b), at) == x % y


@examples(200)
@given(triple=st.tuples(extents, extents, extents))
def test_polynomials_are_canonical(triple):
    a, b, c = triple
    assert a + b == b + a and a * b == b * a
    assert (a + b) + c == a + (b + c) and (a * b) * c == a * (b * c)
    assert a * (b + c) == a * b + a * c
    assert a - a == 0 and hash(a + b) == hash(b + a)
    assert minimum(a, b) == minimum(b, a) and maximum(a, b) == maximum(b, a)


@examples(200)
@given(x=extents, y=extents, at=positive)
def test_substitution_is_evaluation(x, y, at):
    try:
        expected = evaluate(x, {**at, "n": evaluate(y, at)})
        found = evaluate(substitute(x, {"n": y}), at)
    except ZeroDivisionError:
        assume(False)
    assert found == expected
    assert substitute(x, {}) == x and substitute(x, {s: symbol(s) for s in symbols_in(x)}) == x


@examples(100)
@given(x=extents)
def test_a_dim_is_never_a_plain_integer(x):
    assert isinstance(x, int) or (isinstance(x, Dim) and bool(symbols_in(x)))
    assert symbol_of(x) is None or x == symbol(symbol_of(x))


relations = st.sampled_from(("==", "<=", "<", "divides"))
HOLDS = {"==": lambda a, b: a == b, "!=": lambda a, b: a != b, "<=": lambda a, b: a <= b, "<": lambda a, b: a < b,
         "divides": lambda a, b: a != 0 and b % a == 0}


def truth(relation, a, b, at):
    """Whether it is so; None where a size is divided by zero, which is no size at all."""
    try:
        return HOLDS[relation](evaluate(a, at), evaluate(b, at))
    except ZeroDivisionError:
        return None


def facts_at(known, at):
    """Facts that are so at these sizes: of each pair the relations that hold between its sizes."""
    facts = Facts()
    for relation, (a, b) in known:
        for left, right in ((a, b), (b, a)):
            if truth(relation, left, right, at):
                facts.learn(Constraint(relation, left, right))
                break
    return facts


knowledge = st.lists(st.tuples(st.sampled_from(("==", "!=", "<=", "divides")), pairs | st.tuples(
    st.sampled_from((n, m, k)), st.sampled_from((n, m, k)) | st.integers(0, 6))), min_size=1, max_size=4)


@examples(300)
@given(relation=relations, pair=pairs, at=sizes)
def test_proofs_hold_for_all_sizes(relation, pair, at):
    answer = Facts().prove(relation, *pair)
    assert answer is None or truth(relation, *pair, at) in (answer, None)


@examples(300)
@given(known=knowledge, relation=relations, pair=pairs, at=sizes)
def test_proofs_hold_where_the_facts_do(known, relation, pair, at):
    facts = facts_at(known, at)
    answer = facts.prove(relation, *pair)
    assert answer is None or truth(relation, *pair, at) in (answer, None), facts


@examples(300)
@given(known=knowledge, x=extents, at=sizes)
def test_canonical_sizes_are_equal_where_the_facts_hold(known, x, at):
    facts = facts_at(known, at)
    value = truth("<=", x, 0, at) is not None and evaluate(x, at)
    assume(value is not False)
    assert evaluate(facts.canonical(x), at) == value
    low = facts.lower(x)
    assert low is None or low <= value


@pytest.mark.parametrize(("relation", "a", "b"), [
    ("<=", 0, n), ("<=", n, n + 1), ("<=", n, 2 * n), ("<=", 0, floordiv(n, 2)), ("<", n, n + 1),
    ("<=", 0, n * m), ("divides", 2, 2 * n), ("divides", 3, 3 * n * m + 6), ("==", n * 2, n + n),
    ("<=", 3, maximum(n, 3)), ("<=", 0, minimum(n, m)),
])
def test_what_must_be_proved(relation, a, b):
    assert Facts().prove(relation, a, b) is True


@pytest.mark.parametrize(("known", "relation", "a", "b", "answer"), [
    (Constraint("<=", 2, n), "==", n, 1, False),
    (Constraint("<=", 2, n), "<=", 4, 2 * n, True),
    (Constraint("==", n, m), "==", n * 2, m + n, True),
    (Constraint("==", n, 2 * m), "divides", 2, n, True),
    (Constraint("divides", k, n), "divides", k, n, True),
    (Constraint("divides", 4, n), "==", 4 * floordiv(n, 4), n, True),
    (Constraint("!=", n, m), "==", n, m, False),
    (Constraint("!=", n, 0), "<=", 1, n, True),
    (Constraint("<=", n, m), "<=", n, m + 1, True),
    (Constraint("<=", n, m), "<", m, n, False),
])
def test_what_facts_must_prove(known, relation, a, b, answer):
    facts = Facts()
    facts.learn(known)
    assert facts.prove(relation, a, b) is answer


def test_divisors_follow_equalities():
    facts = Facts()
    for c in (Constraint("divides", k, n), Constraint("==", n, m)):
        facts.learn(c)
    assert facts.prove("==", k * floordiv(n, k), m) is True
    assert facts.prove("==", k * floordiv(m, k), n) is True
    assert facts.prove("divides", k, m) is True


MANY = [symbol(f"s{i}") for i in range(60)]


@examples(60)
@given(st.lists(st.tuples(st.integers(0, 59), st.integers(0, 59)), max_size=150), st.integers(0, 59), st.booleans())
def test_sizes_that_equalities_connect_have_one_name(pairs, bounded, divided):
    """As sets that are joined; a bound of one is a bound of all, and types and products go along."""
    facts, group = Facts(), list(range(60))
    facts.learn(Constraint("<=", 5, MANY[bounded]))
    if divided:
        facts.learn(Constraint("divides", 3, MANY[bounded]))
    types = [ArrayType((x, x * MANY[0]), F32) for x in MANY]
    for a, b in pairs:
        facts.canonical_type(types[a])
        facts.learn(Constraint("==", MANY[a], MANY[b]))
        group = [group[b] if g == group[a] else g for g in group]
    for i, x in enumerate(MANY):
        for j, y in enumerate(MANY):
            assert (facts.canonical(x) == facts.canonical(y)) is (group[i] == group[j])
            assert (facts.canonical_type(types[i]) == facts.canonical_type(types[j])) is (group[i] == group[j])
        assert facts.prove("<=", 5, x) is (True if group[i] == group[bounded] else None)


@pytest.mark.parametrize("new_first", [False, True])
def test_thousands_of_equal_sizes_are_one_in_no_time(new_first):
    facts, first, start = Facts(), symbol("first"), time.process_time()
    names = [symbol(f"t{i}") for i in range(5000)]
    for x in names:
        facts.learn(Constraint("==", x, first) if new_first else Constraint("==", first, x))
    assert len({facts.canonical(x) for x in (first, *names)}) == 1
    assert time.process_time() - start < 3  # a minute if each took all those before along


@examples(120)
@given(asked=st.lists(st.tuples(relations, pairs), min_size=1, max_size=4), at=positive)
def test_a_scope_answers_with_the_hint_and_guards_it(asked, at):
    scope = Scope(dict(at))
    for relation, pair in asked:
        expected = truth(relation, *pair, at)
        assume(expected is not None)
        assert scope.decide(relation, *pair) is expected
        count = len(scope.guards)
        assert scope.decide(relation, *pair) is expected
        assert len(scope.guards) == count or relation == "divides" or not _is_plain(pair)
    assert all(g.constraint.holds(at) for g in scope.guards)


def _is_plain(pair):
    """A question on one symbol and a number: the second time it must follow from the guard of the first."""
    return sum(symbol_of(x) is not None for x in pair) == 1 and any(isinstance(x, int) for x in pair)


def test_constraints_print_as_they_are_written():
    assert str(Constraint("<=", 2, n)) == "n >= 2"
    assert str(Constraint("<=", n, m)) == "n <= m"
    assert str(Constraint("divides", 2, n)) == "2 divides n"


def test_text_of_polynomials():
    assert str(n * m + 2 * n + 1) == "m*n + 2*n + 1"
    assert str(floordiv(n, 2) - m) == "floordiv(n, 2) - m"
    assert math.prod((n, m)) == n * m
