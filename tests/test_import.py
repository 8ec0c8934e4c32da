"""`import loopwright` is quick: each public name is imported, with all that it needs, at its first use."""
import ast
import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import loopwright as lw


def run(program: str) -> str:
    environment = os.environ | {"PYTHONWARNINGS": "error"}
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment).stdout


def test_the_import_alone_loads_nothing_else():
    program = "import sys, loopwright\nprint({m.partition('.')[0] for m in sys.modules} & {'numpy', 'llvmlite', 'ml_dtypes'})"
    assert run(program) == "set()\n"


def test_code_from_the_disk_needs_no_compiler(tmp_path, monkeypatch):
    monkeypatch.setenv("LOOPWRIGHT_CACHE_DIR", str(tmp_path))
    program = """
import sys, numpy as np, loopwright as lw
assert lw.jit(lambda x: x + 1)(np.arange(3.0)).tolist() == [1, 2, 3]
compiler = {"loopwright.lower.program", "loopwright.lower.codegen", "loopwright.explanation", "numpy.random"}
print(sorted(compiler & {*sys.modules}))
"""
    first, second = run(program), run(program)
    assert first == "['loopwright.lower.codegen', 'loopwright.lower.program']\n"
    assert second == "[]\n"


@pytest.mark.parametrize(("number", "answer"), [
    ("np.random.default_rng(0).integers(1, 2)", "[1.]"), ("np.random.randint(0, 10)", "refused"),
    ("np.random.bytes(1)[0]", "refused"), ("np.random.standard_normal()", "refused")])
def test_random_numbers_that_a_trace_loads(number, answer):
    """NumPy loads them when they are first named; a generator of one's own is no use of the global one."""
    program = f"""
import numpy as np, loopwright as lw
try:
    print(lw.jit(lambda x: x + {number})(np.zeros(1)))
except lw.TraceStateError:
    print("refused")
"""
    assert run(program) == f"{answer}\n"


def test_a_name_is_itself_whatever_was_imported_before():
    """No module of the package takes the place of a public function of its name."""
    program = """
import importlib, pkgutil, types, loopwright as lw
for module in pkgutil.walk_packages(lw.__path__, "loopwright."):
    importlib.import_module(module.name)
print(sorted(n for n in lw.__all__ if isinstance(getattr(lw, n), types.ModuleType)))
"""
    assert run(program) == f"{sorted(lw._SUBMODULES)}\n"


def test_what_type_checkers_see_is_what_there_is():
    tree = ast.parse(Path(lw.__file__).read_text())
    block, = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {alias.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert sorted(seen) == lw.__all__ == sorted({*lw._OWNER, *lw._SUBMODULES})
    assert {name: module for name, module in seen.items() if name in lw._OWNER} == {
        name: f"loopwright.{module}" for name, module in lw._OWNER.items()}


@pytest.mark.parametrize("name", lw.__all__)
def test_every_name_is_there(name):
    found = getattr(lw, name)
    assert found is getattr(lw, name) and name in dir(lw)
    assert isinstance(found, ModuleType) == (name in lw._SUBMODULES)


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match="module 'loopwright' has no attribute 'jitt'"):
        lw.jitt  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'jitt'"):
        exec("from loopwright import jitt")


def test_classes_pickle_and_filters_of_warnings_find_them():
    assert pickle.loads(pickle.dumps(lw.ShapeError("sizes"))).args == ("sizes",)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", category=lw.RecompilationWarning)
    assert run("import sys\nsys.warnoptions.append('error::loopwright.DonationWarning')\nimport warnings\n"
               "warnings._processoptions(sys.warnoptions)\nprint(warnings.filters[0][2])") == (
        "<class 'loopwright.versions.DonationWarning'>\n")


def test_two_threads_may_both_be_first():
    program = """
import threading, loopwright as lw
found, start = [], threading.Barrier(4)
def use(name):
    start.wait()
    found.append((name, getattr(lw, name)))
threads = [threading.Thread(target=use, args=(name,)) for name in ("jit", "grad", "jit", "numpy")]
for t in threads: t.start()
for t in threads: t.join()
print(len(found), all(x is getattr(lw, name) for name, x in found))
"""
    assert run(program) == "4 True\n"


def test_star_import():
    scope: dict = {}
    exec("from loopwright import *", scope)
    assert scope["jit"] is lw.jit
    np.testing.assert_array_equal(scope["jit"](lambda x: x + 1)(np.arange(3.0)), [1, 2, 3])
