"""Classes made for quick imports behave as those of the standard library's decorator."""
import copy
import dataclasses
import itertools
import pickle

import pytest

from loopwright.ir import records

OPTIONS = [dict(zip(("frozen", "eq", "repr", "slots", "kw_only"), chosen, strict=True))
           for chosen in itertools.product((False, True), repeat=5)]


def pair(**options):
    """The same class, made by either decorator."""
    def build(decorator):
        @decorator(**options)
        class Point:
            x: int
            y: object = 2
            rest: list = dataclasses.field(default_factory=list)
            line: int = dataclasses.field(default=0, compare=False, repr=False)

            def __post_init__(self):
                object.__setattr__(self, "rest", self.rest)
        return Point
    return build(dataclasses.dataclass), build(records.dataclass)


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "-".join(k for k, v in o.items() if v) or "plain")
def test_as_the_standard_decorator(options):
    for made in (first := pair(**options)):
        a, b, c = made(x=1), made(x=1, line=5), made(x=1, y=float("nan"))
        assert (a == b) is options["eq"] and a != c and c == c
        assert (a.x, a.y, a.rest, a.line) == (1, 2, [], 0) and a.rest is not b.rest
        assert [f.name for f in dataclasses.fields(a)] == ["x", "y", "rest", "line"] and dataclasses.is_dataclass(a)
        assert dataclasses.replace(a, y=7).y == 7 and dataclasses.asdict(a)["x"] == 1
        assert ("Point(x=1, y=2, rest=[])" in repr(a)) is options["repr"]
        assert hasattr(a, "__dict__") is not options["slots"]
        with pytest.raises(TypeError, match="missing"):
            made()
        with pytest.raises(TypeError):
            made(x=1, unknown=2)
        if options["kw_only"]:
            with pytest.raises(TypeError):
                made(1)
        else:
            match made(1, 3):
                case made(x, y):
                    assert (x, y) == (1, 3)
        assert made.__init__.__qualname__.endswith("Point.__init__")
        duplicate = copy.copy(b)
        assert (duplicate.x, duplicate.line) == (1, 5)
        if options["frozen"]:
            for change in (lambda a=a: setattr(a, "x", 2), lambda a=a: delattr(a, "x")):
                with pytest.raises(dataclasses.FrozenInstanceError):
                    change()
        else:
            a.x = 9
            assert a.x == 9
    assert (first[0].__hash__ is None) == (first[1].__hash__ is None)


def test_hashes_agree_with_equality():
    @records.dataclass(frozen=True)
    class One:
        x: object

    @records.dataclass(frozen=True)
    class Other(One):
        y: int = 0

    assert hash(One((1, 2))) == hash(One((1, 2))) and len({One(1), One(1), Other(1), Other(1, 1)}) == 3
    assert One(1) != Other(1) and Other(1, 0) == Other(1)


def test_methods_of_the_class_are_kept():
    @records.dataclass(frozen=True)
    class Named:
        name: str
        __hash__ = None

        def __repr__(self):
            return self.name

        def __eq__(self, other):
            return True

    assert repr(Named("a")) == "a" and Named("a") == Named("b") and hash(Named("a")) == hash(Named("a"))


def test_types_can_be_pickled():
    from loopwright.ir.types import F32, ArrayType
    t = ArrayType((3, 4), F32)
    assert pickle.loads(pickle.dumps(t)) == t
