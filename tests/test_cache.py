"""The object cache: whole entries or none, whoever writes at the same time; and versions that come from it."""
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.ir.builder import build
from loopwright.ir.dims import symbol
from loopwright.ir.facts import Constraint
from loopwright.ir.graph import Graph, Node
from loopwright.ir.guards import Guard
from loopwright.ir.ops import TABLE
from loopwright.ir.signature import ArrayLeaf, ObjectLeaf, Result, ResultContainer, ScalarLeaf, Signature, Version
from loopwright.ir.source import Source
from loopwright.ir.types import F32, F64, I64, ArrayType
from loopwright.lower.compile import compile_version
from loopwright.lower.runtime import cache
from loopwright.lower.runtime.cache import Entry
from loopwright.lower.runtime.canonical import version_key
from loopwright.lower.runtime.fallback import Miss
from loopwright.lower.target import host_target
from tests.scale import examples

KEY = cache.digest("a key")
ROOT = Path(__file__).parent.parent
posix_only = pytest.mark.skipif(sys.platform == "win32", reason="owners and modes are POSIX")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    path = tmp_path / "cache"
    monkeypatch.setenv(cache.VARIABLE, str(path))
    return path


def entry_file(folder):
    (path,) = folder.glob("*.object")
    return path


def test_round_trip(folder):
    entry = Entry(bytes(range(256)) * 10, {"imports": ["a", "b"], "sites": [0, -1]})
    assert cache.read(KEY) is None
    cache.write(KEY, entry)
    assert cache.read(KEY) == entry and cache.read(cache.digest("another")) is None
    assert [p.suffix for p in folder.iterdir()] == [".object"]


@examples(30)
@given(code=st.binary(max_size=300), cut=st.floats(0, 1, exclude_max=True), flip=st.floats(0, 1, exclude_max=True))
def test_damaged_entries_are_not_read(tmp_path_factory, code, cut, flip):
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("damaged")
        folder.chmod(0o700)
        patch.setenv(cache.VARIABLE, str(folder))
        cache.write(KEY, Entry(code, {"imports": []}))
        whole = entry_file(folder).read_bytes()
        entry_file(folder).write_bytes(whole[:int(cut * len(whole))])
        assert cache.read(KEY) is None
        damaged = bytearray(whole)
        damaged[int(flip * len(whole))] ^= 0x10
        entry_file(folder).write_bytes(damaged)
        assert cache.read(KEY) is None
        cache.write(KEY, Entry(code, {"imports": []}))
        assert cache.read(KEY) == Entry(code, {"imports": []})


def test_an_entry_under_a_foreign_name(folder):
    cache.write(KEY, Entry(b"code"))
    other = cache.digest("another")
    entry_file(folder).rename(folder / f"{other}.object")
    assert cache.read(other) is None


def test_key_parts_do_not_run_together():
    assert cache.digest("ab", "c") != cache.digest("a", "bc") != cache.digest("abc")


@posix_only
def test_the_directory_is_private(folder):
    cache.write(KEY, Entry(b"code"))
    assert folder.stat().st_mode & 0o777 == 0o700


@posix_only
@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777])
def test_a_directory_that_others_may_write_is_refused_with_one_warning(folder, mode):
    folder.mkdir()
    folder.chmod(mode)
    with pytest.warns(RuntimeWarning, match="writable by nobody else"):
        cache.write(KEY, Entry(b"code"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.read(KEY) is None
        cache.write(KEY, Entry(b"code"))
    assert not list(folder.iterdir())


@posix_only
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_somebody_else_is_refused(folder):
    folder.mkdir(mode=0o700)
    os.chown(folder, 12345, -1)
    with pytest.warns(RuntimeWarning, match="must belong to this user"):
        assert cache.read(KEY) is None


def test_a_directory_that_cannot_be_made(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "file" / "cache"))
    with pytest.warns(RuntimeWarning, match="cannot use the cache directory"):
        cache.write(KEY, Entry(b"code"))
    assert cache.read(KEY) is None


def test_a_directory_that_vanishes(folder):
    cache.write(KEY, Entry(b"code"))
    entry_file(folder).unlink()
    folder.rmdir()
    assert cache.read(KEY) is None
    cache.write(KEY, Entry(b"code"))
    assert cache.read(KEY) == Entry(b"code")


def test_a_disk_that_takes_nothing(folder, monkeypatch):
    def full(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache.os, "replace", full)
    with pytest.warns(RuntimeWarning, match="No space left"):
        cache.write(KEY, Entry(b"code"))
    assert not list(folder.iterdir())
    cache.write(KEY, Entry(b"code"))  # and no second warning


@pytest.mark.parametrize("platform,variables,expected", [
    ("linux", {"XDG_CACHE_HOME": "/x/cache"}, "/x/cache/loopwright"),
    ("linux", {"XDG_CACHE_HOME": "relative"}, "/home/me/.cache/loopwright"),
    ("linux", {}, "/home/me/.cache/loopwright"), ("darwin", {}, "/home/me/Library/Caches/loopwright"),
    ("win32", {"LOCALAPPDATA": "/local"}, "/local/loopwright"), ("win32", {}, "/home/me/AppData/Local/loopwright")])
def test_where_it_lies(monkeypatch, platform, variables, expected):
    for name in (cache.VARIABLE, "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(cache.sys, "platform", platform)
    monkeypatch.setattr(cache.Path, "home", lambda: Path("/home/me"))
    monkeypatch.setattr(cache, "_is_safe", lambda path: True)
    monkeypatch.setattr(cache, "_checked", {})
    assert cache.directory() == Path(expected)


def test_pruning_removes_what_was_not_used_for_longest(folder):
    keys = [cache.digest(str(k)) for k in range(10)]
    for k, key in enumerate(keys):
        cache.write(key, Entry(bytes(1000)))
        os.utime(folder / f"{key}.object", (k, k))
    (folder / ".unfinished-old").write_bytes(b"half")
    os.utime(folder / ".unfinished-old", (0, 0))
    (folder / ".unfinished-new").write_bytes(b"half")
    cache.read(keys[0])
    cache.prune(folder, most=8000)
    left = {p.name for p in folder.iterdir()}
    assert f"{keys[0]}.object" in left and f"{keys[9]}.object" in left and f"{keys[1]}.object" not in left
    assert ".unfinished-new" in left and ".unfinished-old" not in left
    assert sum(p.stat().st_size for p in folder.glob("*.object")) <= 6000


WRITERS = """
import sys
from loopwright.lower.runtime import cache
from loopwright.lower.runtime.cache import Entry
seed = int(sys.argv[1])
for turn in range(150):
    key = cache.digest(str(turn % 5))
    code = bytes([turn % 5]) * 50_000
    found = cache.read(key)
    assert found is None or found == Entry(code, {"turn": turn % 5}), (seed, turn)
    cache.write(key, Entry(code, {"turn": turn % 5}))
    if turn % 40 == seed:
        cache.prune(cache.directory(), most=100_000)
"""


def test_processes_write_at_the_same_time(folder):
    processes = [subprocess.Popen([sys.executable, "-W", "error", "-c", WRITERS, str(k)], cwd=ROOT) for k in range(4)]
    assert [p.wait(60) for p in processes] == [0] * 4
    assert not [p for p in folder.iterdir() if p.suffix != ".object"]


N, M = symbol("n"), symbol("m")


def version(names=("n", "m"), *, dtype=F32, lines=(1, 2), op="add", guards=(), name="f", constant=1.0, **more):
    """x[n, m] op x, then times a constant; `lines` are the user's lines of the two."""
    n, m = map(symbol, names)
    type_ = ArrayType((n, m), dtype)

    def rule(x):
        one = TABLE["full"](into=x.builder, value=constant, shape=(n, m), dtype=dtype)
        return [TABLE["mul"](TABLE[op](x, x), one)]

    g = build(rule, [type_])
    nodes = tuple(Node(v.op, v.inputs, v.attrs, v.outputs, v.regions, Source("file.py", lines[k % len(lines)]))
                  for k, v in enumerate(g.nodes))
    return Version(name, Signature((ArrayLeaf(type_),)), Graph(g.params, nodes, g.results), tuple(guards), Result(0), **more)


def key(v):
    return version_key(v, host_target(), True)


def at_least(low, size):
    return [Guard(Constraint("<=", low, size), Source("x", 1))]


def test_keys_of_the_same_code_are_equal():
    plain = key(version())
    others = version(), version(("a", "b")), version(("m", "n")), version(lines=(7, 9)), version(name="g")
    assert all(key(v) == plain for v in others)
    assert key(version(guards=at_least(2, N))) == key(version(("k", "l"), guards=at_least(2, symbol("k"))))


def test_keys_of_different_code_differ():
    versions = [version(), version(dtype=F64), version(op="mul"), version(lines=(3, 3)), version(constant=-0.0),
                version(constant=0.0), version(constant=2.0), version(guards=at_least(2, N)), version(guards=at_least(3, N)),
                version(guards=at_least(2, M)), version(fast_math=True)]
    g, leaf = version().graph, ArrayLeaf(ArrayType((N, M), F32))
    versions += [Version("f", Signature((leaf,)), g, (), tree)
                 for tree in (ResultContainer("tuple", (Result(0),)), ResultContainer("list", (Result(0),)),
                              ResultContainer("dict", (Result(0),), ("a",)), ResultContainer("dict", (Result(0),), ("b",)))]
    versions += [Version("f", Signature((), (("x", leaf),)), g, (), Result(0)),
                 Version("f", Signature((leaf, ObjectLeaf(0))), g, (), Result(0), objects=(3,))]
    number = build(lambda x: [x], [ArrayType((), I64)])
    versions += [Version("f", Signature((ScalarLeaf(ArrayType((), I64), python),)), number, (), Result(0))
                 for python in (True, False)]
    keys = [key(v) for v in versions] + [version_key(version(), host_target(), False)]
    assert len(set(keys)) == len(keys)


def test_keys_are_the_same_in_every_process(monkeypatch):
    monkeypatch.setattr(cache, "source_digest", lambda: "these sources")
    script = ("from tests.test_cache import Constraint, Guard, N, Source, cache, key, version; "
              "cache.source_digest = lambda: 'these sources'; "
              "print(key(version(guards=[Guard(Constraint('<=', 2, N), Source('x', 1))])))")
    seen = {subprocess.run([sys.executable, "-c", script], cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": seed}, check=True,
                           capture_output=True, text=True).stdout.strip() for seed in ("1", "2")}
    assert seen == {key(version(guards=[Guard(Constraint("<=", 2, N), Source("x", 1))]))}


def test_a_version_from_the_disk(folder, monkeypatch):
    v, x = version(constant=3.0), np.arange(6, dtype=np.float32).reshape(2, 3)
    first = compile_version(v)
    assert not first.from_cache
    again = compile_version(version(("p", "q"), constant=3.0, lines=(5, 6)))
    assert again.from_cache
    for compiled in (first, again):
        np.testing.assert_array_equal(compiled.call((x,), {}), (x + x) * 3)
        with pytest.raises(Miss):
            compiled.call((x.astype(np.float64),), {})
    assert "define" in again.llvm and "@dispatch" in again.llvm
    assert "entry" in again.asm and again.kernels == first.kernels


def test_functions_that_are_called_alike_share_their_dispatch_function():
    x = np.ones(5, np.float32)
    functions = lw.jit(lambda x: x + 1), lw.jit(lambda x: np.tanh(np.tanh(x) * 3)), lw.jit(lambda x: np.exp(x)[::-1] @ x + x)
    assert len({f.lower(x).llvm.split("@weights = external")[1] for f in functions}) == 1
    assert len({f.lower(x).llvm.split("@weights = constant")[1].split("\n")[0] for f in functions}) > 1


@pytest.mark.parametrize("damage", [lambda data: data[:len(data) // 2], lambda data: b"",
                                    lambda data: data[:-1] + bytes([data[-1] ^ 1]), lambda data: data * 2])
def test_a_damaged_version_is_compiled_again(folder, damage):
    x = np.ones((2, 2), np.float32)
    compile_version(version())
    for path in folder.glob("*.object"):
        path.write_bytes(damage(path.read_bytes()))
    again = compile_version(version())
    assert not again.from_cache and again.call((x,), {}).sum() == 8
    assert compile_version(version()).from_cache


def test_no_address_and_no_path_is_stored(folder):
    """Objects of this process are symbols; the user's lines are numbers."""
    compile_version(version(objects=(object(),)))
    for path in folder.glob("*.object"):
        data = path.read_bytes()
        told = json.loads(data.split(b"\n")[2])
        assert b"file.py" not in data and set(told["metadata"]) <= {"imports", "sites", "donations", "later"}


def test_a_broken_environment_is_another_key(monkeypatch):
    before = key(version())
    monkeypatch.setattr(cache, "source_digest", lambda: "other sources")
    assert key(version()) != before


def picking():
    return lw.jit(lambda x, i: x[i] + 1)


def picking_elsewhere():
    return lw.jit(lambda a, k: a[k] + 1)


def test_errors_of_code_from_the_disk_name_this_functions_line(folder):
    x = np.arange(5, dtype=np.float32)
    for k, make in enumerate((picking, picking_elsewhere)):
        f = make()
        np.testing.assert_array_equal(f(x, np.array([1, -1])), [2, 5])
        assert f._versions.entries[0].compiled.from_cache == (k == 1)
        for _ in range(2):  # through Python, then through the native call
            with pytest.raises(IndexError, match=r"index 7 is out of bounds for axis 0 with size 5") as caught:
                f(x, np.array([0, 7]))
            assert f"test_cache.py:{make.__code__.co_firstlineno + 1}" in str(caught.value)


def test_negative_integer_powers_raise(folder):
    f = lw.jit(lambda x, n: x ** n)
    np.testing.assert_array_equal(f(np.array([2, 3]), np.array([3, 0])), [8, 1])
    with pytest.raises(ValueError, match="Integers to negative integer powers are not allowed"):
        f(np.array([2, 3]), np.array([3, -1]))
