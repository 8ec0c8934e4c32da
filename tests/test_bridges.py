"""Bridges to our maths functions from functions that pass arguments on the stack."""
from dataclasses import replace

from loopwright.lower.runtime.bridges import bridged
from loopwright.lower.runtime.emission import parsed
from loopwright.lower.target import Target, host_target

TARGET = Target("x86_64-unknown-linux-gnu", "skylake-avx512", "+avx512f,+avx512vl", 512)
MATHS = """define internal intel_ocl_bicc double @lw_tanh(double %x0) nounwind {
  ret double %x0
}
declare intel_ocl_bicc <8 x double> @lw_pow(<8 x double>, <8 x double>)
declare void @many(ptr, ptr, ptr, ptr, ptr, ptr, i64)
declare void @six(ptr, ptr, ptr, ptr, ptr, i64)
"""
MANY = "  call void @many(ptr %p, ptr %p, ptr %p, ptr %p, ptr %p, ptr %p, i64 1)\n"
SIX = "  call void @six(ptr %p, ptr %p, ptr %p, ptr %p, ptr %p, i64 1)\n"
TANH = "  %y = call intel_ocl_bicc double @lw_tanh(double 1.0)\n"
POW = "  %z = call intel_ocl_bicc <8 x double> @lw_pow(<8 x double> zeroinitializer, <8 x double> splat (double 2.0))\n"


def function(name, *lines):
    return f"define void @{name}(ptr %p) nounwind {{\n{''.join(lines)}  ret void\n}}\n"


def body_of(text, name):
    return text.split(f"@{name}(ptr %p)")[1].split("\n}")[0]


def test_functions_that_do_both_have_bridges():
    text = MATHS + function("both", TANH, POW, MANY) + function("few", TANH, SIX) + function("none", MANY)
    found = bridged(text, TARGET)
    assert "call double @lw_tanh.bridge(double 1.0)" in body_of(found, "both") and "@lw_pow.bridge(" in body_of(found, "both")
    assert all(body_of(found, name) == body_of(text, name) for name in ("few", "none"))
    assert found.count("define internal double @lw_tanh.bridge(double %x0)") == 1
    assert "@lw_pow.bridge(<8 x double> %x0, <8 x double> %x1)" in found
    if host_target().is_x86:
        with parsed(found, TARGET):  # LLVM takes it
            pass


def test_so_do_those_that_are_taken_in():
    text = MATHS + function("small", TANH) + function("control_0", "  call void @small(ptr %p) alwaysinline\n", MANY)
    assert "@lw_tanh.bridge(double 1.0)" in body_of(bridged(text, TARGET), "small")


def test_other_text_stays_as_it_is():
    texts = MATHS + function("few", TANH, SIX), function("none", MANY), MATHS + function("apart", TANH) + function("none", MANY)
    assert all(bridged(text, TARGET) is text for text in texts)
    both = MATHS + function("both", TANH, MANY)
    assert bridged(both, replace(TARGET, features="+avx2")) is both  # the frame pointer stays there


def test_numbers_on_the_stack_count():
    values = ", ".join(f"double {k}.0" for k in range(9))
    declared = f"declare void @nine({', '.join(['double'] * 9)})\n"
    text = MATHS + declared + function("both", TANH, f"  call void @nine({values})\n")
    assert ".bridge" in bridged(text, TARGET)
