"""The emulator as a device on which kernels go wrong, each in the way that the number of its threads says."""
import os
import time

from tests.emulator.driver import EmulatorDriver

CRASHES, HANGS, BREAKS, DOES_NOTHING = 512, 1024, 128, 64


class FaultyDriver(EmulatorDriver):
    """What BREAKS touches memory that is not there: as on a device, all that the process asks of it fails from then on."""

    origin = "tests.emulator.faults:FaultyDriver"
    is_broken = False

    def launch(self, function, grid, threads, shared, arguments):
        if threads[0] == CRASHES:
            os.abort()
        if threads[0] == HANGS:
            time.sleep(600)
        self.is_broken = self.is_broken or threads[0] == BREAKS
        self.wait()
        if threads[0] != DOES_NOTHING:
            super().launch(function, grid, threads, shared, arguments)

    def wait(self):
        if self.is_broken:
            raise RuntimeError("an illegal memory access was encountered")
        super().wait()
