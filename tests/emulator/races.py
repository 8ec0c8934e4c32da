"""Runs kernels under ThreadSanitizer, to which every fiber is a thread: `python -m tests.emulator.races NAME...` for templates,
`planted` for a kernel that lacks a barrier, `plainly NAME` for a template whose atomic additions are none. ThreadSanitizer must
be loaded before Python: `command` says how.
"""
import dataclasses
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

from tests.cuda_templates import TEMPLATES, program, sizes_of
from tests.emulator import FORWARD, Emulator, Guarded
from tests.emulator.programs import compiled, run_program

FLAGS = ("-O1", "-g", "-fsanitize=thread", "-DLW_RACES")
RACE = 66  # the exit status when there is one
PLANTED = """
extern "C" __global__ void __launch_bounds__(64) planted(float* y) {
    __shared__ float row[64];
    row[threadIdx.x] = (float)threadIdx.x;
    BARRIER
    y[threadIdx.x] = row[63 - threadIdx.x];
}
"""


def command(*names):
    """How to run this module, and with which environment; skips where g++ has no ThreadSanitizer."""
    library = subprocess.run(["g++", "-print-file-name=libtsan.so"], capture_output=True, text=True, check=True).stdout.strip()
    if not os.path.isabs(library):
        pytest.skip("g++ has no ThreadSanitizer")
    fixed = ["setarch", "-R"] if shutil.which("setarch") else []  # it wants memory at known places
    if fixed and subprocess.run([*fixed, "true"], capture_output=True, check=False).returncode:
        fixed = []
    options = f"exitcode={RACE} halt_on_error=1 report_signal_unsafe=0 handle_segv=0 handle_sigbus=0"
    return ([*fixed, sys.executable, "-m", "tests.emulator.races", *names],
            {"LD_PRELOAD": library, "TSAN_OPTIONS": options, "OPENBLAS_NUM_THREADS": "1"})


def main(names):
    for name in names:
        print(name, flush=True)
        if name in ("planted", "mended"):
            text = PLANTED.replace("BARRIER", "__syncthreads();" if name == "mended" else "")
            Emulator(text, ["planted"], FLAGS).launch("planted", 1, (64, 1), [Guarded(np.zeros(64, "f4"), False)])
            continue
        plain, name = name.startswith("plainly "), name.removeprefix("plainly ")
        graph, made = program(name)
        if plain:
            text = re.sub(r"atomicAdd\(\([\w ]+\*\)&(.+\]), (.+)\);", r"\1 = \1 + \2;", made.text)
            assert text != made.text, "the fault was not planted"
            made = dataclasses.replace(made, text=text)
        args = TEMPLATES[name].make(np.random.default_rng(0), *(TEMPLATES[name].raced or TEMPLATES[name].sizes))
        run_program(made, compiled(made, flags=FLAGS), args, sizes_of(graph, args), FORWARD)


if __name__ == "__main__":
    main(sys.argv[1:])
