"""The examples run and pass their own checks."""
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.mark.parametrize("name", ["kernels", "laplace", "pendulum", "recurrent"])
def test_an_example_passes_its_own_check(name):
    """`make demo` runs digits.py itself."""
    done = subprocess.run([sys.executable, EXAMPLES / f"{name}.py"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
