"""Libraries cut into pieces: what each function of one needs, and nothing else, once."""
import ctypes
import re

import pytest

from loopwright.ir.types import F32, F64
from loopwright.lower.codegen.factoring import factoring_text
from loopwright.lower.codegen.products import products_text
from loopwright.lower.codegen.transposes import transposes_text
from loopwright.lower.runtime import engine, products, transposes
from loopwright.lower.runtime.cache import function_code
from loopwright.lower.runtime.pieces import pieces
from loopwright.lower.target import host_target

TEXT = """declare i64 @llvm.smax.i64(i64, i64)
declare i64 @given(i64)
@numbers = private unnamed_addr constant [2 x i64] [i64 30, i64 5], align 64
@numbers.at = internal global ptr @numbers
!9 = !{!"branch_weights", i32 1, i32 2000}
define internal i64 @both(i64 %x) nounwind {
  %p = load ptr, ptr @numbers.at
  %a = load i64, ptr %p
  %b = add i64 %a, %x
  ret i64 %b
}
define i64 @f(i64 %x) nounwind {
  %a = call i64 @both(i64 %x)
  %b = call i64 @only_f(i64 %a)
  ret i64 %b
}
define internal i64 @only_f(i64 %x) nounwind {
  %a = call i64 @llvm.smax.i64(i64 %x, i64 40)
  ret i64 %a
}
define i64 @g(i64 %x) nounwind {
  %a = call i64 @both(i64 %x)
  %b = call i64 @given(i64 %a)
  ret i64 %b
}
define i64 @h(i64 %x) nounwind {
  %a = call i64 @f(i64 %x)
  ret i64 %a
}
define internal void @nobody() {
  ret void
}
"""
DEFINED = re.compile(r"^define [^@\n]*@([\w.$]+)\(", re.MULTILINE)


def defined(text):
    return set(DEFINED.findall(text))


def test_functions_that_the_same_ones_reach_are_a_piece():
    found = pieces(TEXT)
    assert {name: [defined(piece) for piece in its] for name, its in found.items()} == {
        "f": [{"both"}, {"f", "only_f"}], "g": [{"both"}, {"g"}], "h": [{"both"}, {"f", "only_f"}, {"h"}]}
    assert found["f"] == found["h"][:2] and found["f"][0] == found["g"][0]


def test_text_that_is_not_understood_is_refused():
    with pytest.raises(ValueError, match="on lines of its own: define i64 @h"):
        pieces(TEXT + "define i64 @h(i64 %x) { ret i64 %x }\n")


def test_a_piece_holds_what_it_names():
    both, f = pieces(TEXT)["f"]
    assert "@numbers = " in both and "@numbers.at = " in both and "declare" not in both
    assert "declare i64 @both(i64 %x)" in f and "@llvm.smax" in f and "@numbers" not in f and "@given" not in f


@pytest.mark.parametrize(("name", "imports", "expected"), [("f", {}, 42), ("h", {}, 42), ("g", {"given"}, 12)])
def test_pieces_run_together(name, imports, expected):
    given = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(lambda x: x - 30)
    where = {import_: ctypes.cast(given, ctypes.c_void_p).value for import_ in imports}
    code = function_code(f"test {name}", lambda: pieces(TEXT)[name], host_target())
    library = engine.load(code, where, [name])
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(library[name])(12) == expected


def test_a_piece_is_compiled_once(monkeypatch, tmp_path):
    monkeypatch.setenv("LOOPWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    made = []

    def assemble_each(texts, target):
        made.extend(map(defined, texts))
        return engine.assemble_each(texts, target)

    monkeypatch.setattr("loopwright.lower.runtime.cache.assemble_each", assemble_each)
    for name in ("f", "h", "g", "f"):
        function_code(name, lambda name=name: pieces(TEXT)[name], host_target())
    assert made == [{"both"}, {"f", "only_f"}, {"h"}, {"g"}]


@pytest.mark.parametrize(("text", "names"), [
    *((lambda dtype=dtype: products_text(dtype, host_target()), [n for n in products.NAMES if kind in n])
      for dtype, kind in ((F32, "f32"), (F64, "f64"))),
    (lambda: factoring_text(F64, host_target()), ["lw_solve_f64_batch"]),
    (lambda: transposes_text(host_target()), [n for n in transposes.NAMES if n in transposes_text(host_target())])],
    ids=["products f32", "products f64", "factoring f64", "transposes"])
def test_our_libraries(text, names):
    """Every function's pieces define what they call, once, and make less than the whole."""
    whole = text()
    found, everywhere = pieces(whole), defined(whole)
    for name in {*names} & everywhere:
        its = [defined(piece) for piece in found[name]]
        union = set().union(*its)
        assert sum(map(len, its)) == len(union) < len(everywhere)
        assert {*re.findall(r"@([\w.$]+)", "".join(found[name]))} & everywhere == union
    assert {*names} & everywhere
