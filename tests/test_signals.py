"""A signal ends a loop of compiled code, whoever is in it, and other threads run beside one."""
import subprocess
import sys
import textwrap

import pytest

FOREVER = """
    import os, signal, sys, threading, time
    import numpy as np
    {before}
    import loopwright as lw
    from tests.loops import rows_of, scan, while_

    @lw.jit
    def f(x, limit):
        {body}

    f({arguments}, np.float64(-1))
    before = f({arguments}, np.float64(-1))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it otherwise
    for _ in range(2):
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        start = time.perf_counter()
        try:
            f({arguments}, np.float64(np.inf))
        except KeyboardInterrupt:
            assert time.perf_counter() - start < 1.5, "too late"
            assert time.perf_counter() - start > 0.4, "too early"
        else:
            raise AssertionError("not interrupted")
        after = f({arguments}, np.float64(-1))
        assert all(np.array_equal(a, b) for a, b in zip(before, after))
    print("interrupted")
"""
LOOPS = {
    "numbers": ("return while_(lambda l, x: x < l, lambda l, x: (x * 0.5,), [limit], [x])", "np.float64(0)"),
    "arrays": ("return while_(lambda l, x: np.sum(x) < l, lambda l, x: (np.sqrt(x) * 0.5,), [limit], [x])", "np.ones(100000)"),
    "strips": ("return rows_of(np.where(limit < 0, 5, 1 << 40), "
               "lambda rows, x: scan(lambda s, k: ((np.sin(s),), ()), [], [x], [rows])[0], x)", "np.ones((64, 64))"),
    "a nest": ("down = lambda y: while_(lambda y: y > 1, lambda y: (y - 1,), [], [y + 1000])[0]; "
               "return while_(lambda l, x: x < l, lambda l, x: (down(x) * 0,), [limit], [x])", "np.float64(0)"),
    "an inner loop": ("halve = lambda l, c: while_(lambda l, c: c < l, lambda l, c: (c * 0.5,), [l], [c]); "
                      "return scan(lambda l, c, x: (halve(l, c), ()), [limit], [x[0]], [x])[0]", "np.zeros(3)"),
}
ELEMENTS = "return lw.vmap(lambda y: while_(lambda l, y: y < l, lambda l, y: (y * 0.5,), [limit], [y])[0])(x)"
LOOPS |= {f"element {k}": (ELEMENTS, f"np.where(np.arange(100000) == {k}, 0, np.inf)") for k in (0, 50000, 99999)}
LOOPS["all elements"] = ELEMENTS, "np.zeros(100000)"


def interrupted(name, script=FOREVER, before=""):
    """Run the script on that loop in a process of its own: it must end well and say nothing."""
    body, arguments = LOOPS[name]
    text = textwrap.dedent(script).format(body=body, arguments=arguments, before=before)
    ended = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=False)
    assert ended.stdout.strip() == "interrupted" and not ended.stderr, ended.stderr


@pytest.mark.parametrize("name", LOOPS)
def test_ctrl_c_ends_a_loop(name):
    interrupted(name)


@pytest.mark.parametrize("name", [name for name in LOOPS if "element" in name])
def test_ctrl_c_ends_a_loop_of_several_threads(name):
    """Whoever is in it: the caller, who asks for signals, or a worker, for whom the caller waits."""
    interrupted(name, before="os.environ['LOOPWRIGHT_NUM_THREADS'] = '3'")


def test_ctrl_c_ends_a_loop_that_python_called():
    interrupted("numbers", before="from loopwright.lower.runtime import objects; objects.unsupported = lambda: 'a trial'")


TICKER = """
    ticks, done = [], False

    def tick():
        while not done:
            ticks.append(1)
            time.sleep(0.005)

    ticker = threading.Thread(target=tick)
    ticker.start()
"""
TICKED = """
    done = True
    ticker.join()
    assert len(ticks) > 20, len(ticks)  # of 200 on an idle machine, none if nobody else ran
"""


def test_other_threads_run_while_a_loop_does():
    interrupted("numbers", FOREVER.replace("    for _ in range(2):", f"{TICKER}    for _ in range(2):") + TICKED)
