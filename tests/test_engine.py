"""Text to loaded code: what is refused, what stays loaded, what is found by name."""
import ctypes
import gc
import signal
import subprocess
import sys
import threading
import time

import pytest

import loopwright as lw
from loopwright.lower.runtime import emission, engine
from loopwright.lower.runtime.cache import assembled
from loopwright.lower.runtime.lazy import LLVM_LOCK
from loopwright.lower.runtime.parts import parts, quickly
from loopwright.lower.target import Target, host_target
from tests.forking import check_in_child, needs_fork, of_threads


def adding(number):
    return f"define i64 @f(i64 %x) {{\n  %y = add i64 %x, {number}\n  ret i64 %y\n}}\n"


def loaded(text, imports=None, exports=("f",)):
    return engine.load(engine.assemble(text), imports or {}, list(exports))


def run(library, x):
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(library["f"])(x)


def test_code_runs():
    assert run(loaded(adding(5)), 37) == 42


def test_text_that_does_not_parse():
    with pytest.raises(RuntimeError, match="parsing error"):
        engine.assemble("define i64 @f(i64 %x) { ret i64 %y }")


def test_text_that_does_not_verify():
    with pytest.raises(RuntimeError):
        engine.assemble("define i64 @f() {\n  ret i64 %x\nb:\n  %x = add i64 1, 1\n  ret i64 %x\n}")


def test_symbols_that_nobody_defines():
    with pytest.raises(RuntimeError, match="materialize"):
        loaded("declare i64 @lw_nowhere(i64)\ndefine i64 @f(i64 %x) {\n  %y = call i64 @lw_nowhere(i64 %x)\n  ret i64 %y\n}")


def test_long_functions_are_a_part_of_their_own():
    text = """@numbers = private unnamed_addr constant [2 x i64] [i64 30, i64 5], align 64
declare i64 @llvm.smax.i64(i64, i64)
define internal i64 @inner(i64 %x, ptr noalias %unused) nounwind {
  %a = load i64, ptr @numbers
  %b = add i64 %a, %x
  ret i64 %b
}
define i64 @long(i64 %x) nounwind noinline optnone {
  %a = call i64 @inner(i64 %x, ptr null)
  %b = call i64 @llvm.smax.i64(i64 %a, i64 1)
  %c = icmp sgt i64 %b, 0
  br i1 %c, label %yes, label %no, !prof !9
yes:
  ret i64 %b
no:
  ret i64 -1
}
define i64 @f(i64 %x) nounwind {
  %y = call i64 @long(i64 %x)
  %z = add i64 %y, 5
  ret i64 %z
}
!9 = !{!"branch_weights", i32 1000, i32 1}
"""
    (short,), long, ours = parts(text)
    assert not ours
    assert "define i64 @long(" not in short and "declare i64 @long(i64 %x)" in short and "internal" not in short
    assert "declare i64 @inner(" in long and "@numbers" not in long and "!9 = " in long
    assert run(loaded(text), 7) == 42
    assert engine.assembly(text).count("long:") == 1
    assert parts(adding(5)) == ((adding(5),), "", ())
    assert parts(adding(5).rstrip()) == ((adding(5).rstrip(),), "", ())


def test_what_only_calls_is_compiled_quickly():
    """Of the functions of a kernel the last one goes apart unless it loops."""
    inner = "define internal i64 @inner(i64 %x) nounwind {\nentry:\n  %y = add i64 %x, 2\n  ret i64 %y\n}\n\n"
    outer = ('define internal i64 @f(i64 %x) nounwind "no-trapping-math"="true" {\nentry:\n'
             "  %y = call i64 @inner(i64 %x)\n  ret i64 %y\n}\n")
    (short,), long, _ = parts(quickly(inner + outer))
    assert "define i64 @inner(" in short and "@f(" not in short and "define i64 @f(" in long
    assert run(loaded(quickly(inner + outer)), 7) == 9
    loop = outer.replace("  %y", "  br label %on\non:\n  %z = phi i64 [ 0, %entry ]\n  %y")
    assert quickly(inner + loop) == inner + loop


OURS = """@numbers = private constant [2 x i64] [i64 30, i64 5]
define internal i64 @lw_thirty(i64 %x) memory(read) willreturn nounwind {
  %a = load i64, ptr @numbers
  %b = add i64 %a, %x
  ret i64 %b
}
define i64 @f(i64 %x) nounwind {
  %a = call i64 @lw_thirty(i64 %x)
  %b = add i64 %a, 5
  ret i64 %b
}
"""


def test_functions_of_ours_are_compiled_once(monkeypatch, tmp_path):
    """Programs that have them in common read their code."""
    monkeypatch.setenv("LOOPWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    (careful,), quick, (ours,) = parts(OURS)
    assert "declare i64 @lw_thirty(i64 %x) memory(read) willreturn nounwind" in careful and "@numbers" not in careful + quick
    assert "define i64 @lw_thirty" in ours and "@numbers = " in ours
    made = []
    monkeypatch.setattr(engine, "object_files", lambda jobs, target: made.extend(jobs) or emission.object_files(jobs, target))
    assert run(loaded(OURS), 7) == 42
    assert run(loaded(OURS.replace("%a, 5", "%a, 6")), 7) == 43
    assert [text.count("define") for text, _ in made] == [1, 1, 1] and "add i64 %a, 6" in made[2][0]


def test_long_text_is_several_modules():
    """Functions that stay internal are beside those that call them; data that others may name is there once."""
    names = [f"f{k}" for k in range(9)]
    inner = [f"define internal i64 @inner_f{k}(i64 %x) {{\n  %y = add i64 %x, {k}\n  ret i64 %y\n}}" for k in range(9)]
    words = f"  ; {'-' * 96}\n" * 100
    outer = [f"define i64 @{name}(i64 %x) {{\n{words}  %y = call i64 @inner_{name}(i64 %x)\n  ret i64 %y\n}}" for name in names]
    text = "\n".join(["@seen = constant i64 3", *inner, *outer])
    careful, _, _ = parts(text, 3)
    assert len(careful) == 2 and len(parts(text, 9).careful) == 2 and len(parts(text).careful) == 1
    assert [module.count("@seen = ") for module in careful] == [1, 0]
    for name in names:
        assert [f"define i64 @{name}(" in module for module in careful] == [f"@inner_{name}(" in module for module in careful]
    lw.set_threads(3)
    try:
        library = engine.load(engine.assemble(text), {}, [*names, "seen"])
    finally:
        lw.set_threads(None)
    assert [ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(library[name])(100) for name in names] == [*range(100, 109)]
    assert ctypes.c_int64.from_address(library["seen"]).value == 3


def test_modules_are_compiled_at_a_time():
    """Each file is that of its own module; the first error of any thread is the caller's."""
    jobs = [(adding(k), emission.CAREFULLY) for k in range(20)]
    lw.set_threads(4)
    try:
        files = emission.object_files([*jobs, jobs[3]], host_target())
        with pytest.raises(RuntimeError, match="undefined value '%y'"):
            emission.object_files([*jobs, ("define i64 @f(i64 %x) { ret i64 %y }", emission.CAREFULLY)], host_target())
    finally:
        lw.set_threads(None)
    assert files == [emission.object_files([job], host_target())[0] for job in [*jobs, jobs[3]]]
    assert len(set(files)) == 20


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="no signal goes to a thread here")
def test_an_interrupt_is_raised_when_all_threads_have_ended(monkeypatch):
    """Those of an interrupted compile wrote with the machines of the next, which ended the process."""
    ended = []

    def slowly(job, target, worker):
        time.sleep(1)
        ended.append(worker)
        return b""

    def interrupt():
        for _ in range(3):
            time.sleep(0.1)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
    monkeypatch.setattr(emission, "_object_file", slowly)
    monkeypatch.setattr(emission, "threads", lambda: 2)
    thread, before = threading.Thread(target=interrupt), signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            emission.object_files([(text, 1) for text in "abcd"], host_target())
        assert len({*ended}) == len(ended) == 2
    finally:
        thread.join()
        signal.signal(signal.SIGINT, before)


def test_imported_functions_and_data():
    cell = ctypes.c_int64(30)
    inner = loaded(adding(5))
    text = """@cell = external global i64
declare i64 @inner(i64)
define i64 @f(i64 %x) {
  %a = load i64, ptr @cell
  %b = add i64 %a, %x
  %c = call i64 @inner(i64 %b)
  ret i64 %c
}
"""
    assert run(loaded(text, {"cell": ctypes.addressof(cell), "inner": inner["f"]}), 7) == 42


def test_libm_is_found():
    text = "define double @f(double %x) {\n  %y = frem double %x, 3.0\n  ret double %y\n}\n"
    library = loaded(text)
    assert ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(library["f"])(10.5) == 1.5


def test_many_libraries_live_and_go():
    code = engine.assemble(adding(1))
    libraries = [engine.load(code, {}, ["f"]) for _ in range(engine.LIBRARIES_PER_ENGINE + 20)]
    assert all(run(library, 1) == 2 for library in (libraries[0], libraries[-1]))
    held = len(engine._loaded)
    count = len(libraries)
    last = libraries[-1]
    del libraries
    gc.collect()
    another = loaded(adding(2))
    assert len(engine._loaded) <= held - count + 2 and run(last, 1) == 2 and run(another, 1) == 3


def test_what_goes_while_another_thread_compiles_does_not_wait_for_it():
    """The collector may run in a thread that compiles for the one that holds the lock, and waits for it."""
    library = loaded(adding(1))
    number = int(library._token)
    with LLVM_LOCK:
        thread = threading.Thread(target=library.__setattr__, args=("_token", None))
        thread.start()
        thread.join(60)
        assert not thread.is_alive() and number in engine._loaded
    loaded(adding(2))
    assert number not in engine._loaded


def test_threads_compile():
    answers = {}

    def work(k):
        answers[k] = [run(loaded(adding(10 * k + j)), 0) for j in range(10)]

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert answers == {k: [10 * k + j for j in range(10)] for k in range(4)}


@needs_fork
@of_threads
def test_a_child_forked_while_another_thread_compiles():
    stop = threading.Event()

    def work():
        while not stop.is_set():
            loaded(adding(1))

    def check():
        assert run(loaded(adding(2)), 1) == 3

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(10):
            check_in_child(check)
    finally:
        stop.set()
        thread.join()


def test_assembly_is_text():
    assert "ret" in engine.assembly(adding(1))


def test_another_target_assembles():
    host = host_target()
    plain = Target(host.triple, "x86-64" if host.is_x86 else "", "", 128)
    assert engine.assemble(adding(1), plain)


def test_importing_does_not_load_llvm():
    script = ("import sys, loopwright.lower.runtime.dispatcher as d, loopwright.lower.runtime.pool\n"
              "f = d.NativeFunction()\nf.slow = lambda x: x + 1\nassert f(1) == 2\nassert 'llvmlite' not in sys.modules")
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize("kind", ["main", "daemon thread"])
def test_the_process_ends_in_peace(kind):
    """Compiled code may be running in a daemon thread when the interpreter ends."""
    script = f"""
import ctypes, threading, time
from loopwright.lower.runtime import engine
from tests.forking import check_in_child, needs_fork, of_threads
text = '''define void @f() {{
entry:
  br label %again
again:
  br label %again
}}
'''
library = engine.load(engine.assemble(text), {{}}, ["f"])
if {kind!r} != "main":
    threading.Thread(target=ctypes.CFUNCTYPE(None)(library["f"]), daemon=True).start()
    time.sleep(0.05)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_text_is_assembled_once(monkeypatch, tmp_path):
    monkeypatch.setenv("LOOPWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    first = assembled(adding(3))
    monkeypatch.setattr("loopwright.lower.runtime.cache.assemble_each", None)
    assert assembled(adding(3)) == first


@pytest.mark.skipif(not host_target().is_x86, reason="other machines address data in other words")
def test_code_addresses_its_constants_in_full():
    """A linker may put them further from the code than 2 GiB in a process that holds much."""
    table = "@table = private constant [2 x i64] [i64 3, i64 4]\n"
    body = "  %p = getelementptr i64, ptr @table, i64 %x\n  %y = load i64, ptr %p\n  ret i64 %y\n"
    text = f"{table}define i64 @f(i64 %x) {{\n{body}}}\n"
    assert "rip" not in engine.assembly(text) and run(loaded(text), 1) == 4
