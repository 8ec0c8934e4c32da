"""Dataclasses whose methods are made at first use behave as the standard library's do."""
import copy
import dataclasses
import inspect
import pickle
import threading
from functools import partial

import pytest

from loopwright.ir.dataclass import dataclass


def pair(decorate):
    """The classes that a decorator makes."""
    @decorate(frozen=True)
    class Point:
        """Frozen."""

        x: int
        y: int = 2
        names: list[str] = dataclasses.field(default_factory=list, compare=False)
        hidden: int = dataclasses.field(default=0, repr=False)
        unhashed: int = dataclasses.field(default=0, hash=False)

    @decorate
    class Counter:
        """Not frozen, and called when it was made."""

        low: int
        seen: dict[str, int] = dataclasses.field(default_factory=dict)
        sum: int = dataclasses.field(init=False, default=7)

        def __post_init__(self):
            self.low += 1

    @decorate(frozen=True)
    class Further(Point):
        """With fields of another."""

        z: int = 3

    @decorate(frozen=True, eq=False)
    class Alone:
        """Equal to itself alone."""

        x: int

    @decorate(frozen=True, kw_only=True)
    class Named:
        """By name alone."""

        x: int
        y: int = 1

    @decorate(frozen=True)
    class Own:
        """With methods of its own."""

        x: int

        def __eq__(self, other):
            return True

        def __hash__(self):
            return 5

        def __repr__(self):
            return "mine"

    return Point, Counter, Further, Alone, Named, Own


OURS, THEIRS = pair(dataclass), pair(dataclasses.dataclass)


def outcome(run):
    """What a call gives, or the error that it raises."""
    try:
        return repr(run())
    except Exception as error:
        return type(error), str(error)


def test_what_instances_do():
    def facts(classes):
        point, counter, further, alone, named, own = classes
        p, c = point(1), counter(3)
        yield from (lambda: p, lambda: point(1, names=["a"]), lambda: point(x=4, y=5, hidden=6).hidden, lambda: further(1, z=9),
                    lambda: c, lambda: (c.low, c.sum, c.seen), lambda: named(x=1), lambda: own(2), lambda: alone(2).x)
        yield from (lambda: point(), lambda: point(1, 2, [], 0, 5), lambda: named(1), lambda: counter(1, sum=3))
        yield from (lambda: p == point(1), lambda: p == point(1, 3), lambda: p == point(1, names=["other"]))
        yield from (lambda: p == (1, 2), lambda: further(1) == p, lambda: alone(1) == alone(1), lambda: own(1) == own(2),
                    lambda: counter(1) == counter(1))
        yield from (lambda: hash(p) == hash(point(1)), lambda: hash(p) == hash(further(1)), lambda: hash(own(1)),
                    lambda: hash(p) == hash(point(1, unhashed=2)), lambda: p == point(1, unhashed=2),
                    lambda: hash(c))
        yield from (lambda: setattr(p, "x", 2), lambda: delattr(p, "x"), lambda: setattr(c, "low", 9), lambda: c.low)
        yield from (lambda: dataclasses.replace(p, y=8), lambda: dataclasses.asdict(further(1)), lambda: copy.copy(p),
                    lambda: [f.name for f in dataclasses.fields(further)], lambda: point.__match_args__,
                    lambda: point(1).names is p.names)
    for ours, theirs in zip(facts(OURS), facts(THEIRS), strict=True):
        assert outcome(ours) == outcome(theirs)


def test_fields_and_signature_are_known_before_there_is_an_instance():
    point, other = pair(dataclass)[0], THEIRS[0]
    assert [f.name for f in dataclasses.fields(point)] == ["x", "y", "names", "hidden", "unhashed"]
    assert dataclasses.is_dataclass(point)
    assert list(inspect.signature(point).parameters) == list(inspect.signature(other).parameters)
    assert point.__init__.__annotations__ == {k: v for k, v in other.__init__.__annotations__.items() if k != "return"}


def test_methods_put_on_a_class_later_stay():
    @dataclass(frozen=True)
    class Point:
        """Hashed otherwise."""

        x: int
    Point.__hash__ = lambda self: 11
    assert hash(Point(1)) == 11


@dataclass(frozen=True)
class Kept:
    """Found by its name."""

    x: int


def test_pickled_and_read_again():
    assert pickle.loads(pickle.dumps(Kept(3))) == Kept(3)


@pytest.mark.parametrize("attempt", range(20))
def test_many_threads_make_the_first_instance(attempt):
    point, made = pair(dataclass)[2], []
    begin = threading.Barrier(8)

    def make(k):
        begin.wait()
        made.append(point(k, z=k))
    threads = [threading.Thread(target=partial(make, k)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(p.x for p in made) == list(range(8)) and all(p == point(p.x, z=p.x) for p in made)
