"""A candidate for a GPU as loaded kernels: run once to be checked, run many times to be timed by the device's own clock.

What is captured once holds many runs, so that a short program is timed and not the host that starts it.
"""
from __future__ import annotations

from collections.abc import Callable

import numpy as np

from loopwright.ir.dims import evaluate
from loopwright.lower.cuda.driver import Driver
from loopwright.lower.cuda.launcher import Launcher
from loopwright.lower.cuda.program import lower_cuda
from loopwright.lower.tuning.candidates import Candidate, arguments

TOGETHER = 16  # runs that are captured as one
MOST_LAUNCHES = 1024  # of them
LEAST_SECONDS = 1e-7  # of a run, however little it does


class DeviceExecutable:
    """A candidate's kernels and arrays. Results that take an argument's memory lie in it."""

    def __init__(self, candidate: Candidate, driver: Driver) -> None:
        g, sizes = candidate.parsed(), dict(candidate.sizes)
        self.graph = g
        program, self.driver = lower_cuda(g, sizes), driver
        self.launcher = Launcher(program, driver, captures=False)
        self.given = arguments(g, sizes, candidate.values)
        self.args = [driver.put(np.array(x, order="C")) for x in self.given]
        self.donated = program.donations
        shapes = [tuple([evaluate(n, sizes) for n in v.type.shape]) for v in g.results]
        self.made = [self.args[self.donated[k]] if k in self.donated else driver.empty(shape, v.type.dtype)
                     for k, (shape, v) in enumerate(zip(shapes, g.results, strict=True))]
        self.frame = self.launcher.frame(program.kernels, sizes)
        self.memory = driver.allocate(self.frame.bytes) if self.frame.bytes else None
        self._many: Callable[[], None] | None = None

    @property
    def results(self) -> list[np.ndarray]:
        """What the last run stored."""
        return [self.driver.get(x) for x in self.made]

    def run(self, count: int = 1) -> float:
        """Run so many times; seconds for all, by the device's clock. An error that a kernel reports is raised."""
        for a in self.donated.values():
            x = self.driver.put(np.array(self.given[a], order="C"))
            self.driver.copy(self.driver.address(self.args[a]), self.driver.address(x), x.nbytes)
        self.driver.wait()
        error = self.launcher.error_address(self.driver.stream())
        many, few = divmod(count, TOGETHER) if count >= TOGETHER and self._fits_a_capture else (0, count)
        if many and self._many is None:
            self._many = self.driver.capture(lambda: self._several(TOGETHER, error))

        def all_of_them() -> None:
            for _ in range(many):
                assert self._many is not None
                self._many()
            self._several(few, error)
        seconds = self.driver.elapsed(all_of_them)
        self.launcher.raise_reported(self.driver.stream())
        return max(seconds, LEAST_SECONDS * count)

    @property
    def _fits_a_capture(self) -> bool:
        launches = self.frame.launches
        return launches is not None and 0 < launches * TOGETHER <= MOST_LAUNCHES

    def _several(self, count: int, error: int) -> None:
        """So many runs; `error`: where kernels report, on the caller's stream, which a capture's is not."""
        addresses, results = ([self.driver.address(x) for x in xs] for xs in (self.args, self.made))
        base = self.memory.address if self.memory else 0
        for _ in range(count):
            self.frame.run(addresses, results, base, base + self.frame.shared, error, captures=False)
