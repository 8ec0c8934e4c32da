"""Which device tests of GPU programs run on: the emulator; with LOOPWRIGHT_TEST_DEVICE=gpu (`make test-gpu`) a GPU, and where
there is none they skip with the reason."""
import os

import pytest

from loopwright.lower.runtime import lazy
from tests.emulator import FORWARD, require_compiler
from tests.emulator.driver import EmulatorDriver

ON_GPU = os.environ.get("LOOPWRIGHT_TEST_DEVICE") == "gpu"
emulator_alone = pytest.mark.skipif(ON_GPU, reason="looks into the emulator")


def require_device():
    """Skip where what tests run on is missing."""
    if not ON_GPU:
        require_compiler()
        return
    try:
        lazy.gpu()
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"no GPU: {error}")


def device(order=FORWARD, flags=("-O0",)):
    """A driver. The order of warps is the emulator's."""
    return lazy.gpu() if ON_GPU else EmulatorDriver(order, flags)
