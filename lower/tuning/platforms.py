"""Where programs run, as far as the tuner knows: what can be chosen there, what that will cost, and who runs it.

Guarantees: the loop of the tuner, its searches and its records ask a `Platform` and nothing else of the machine.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from loopwright.ir.attributes import Attributes
from loopwright.ir.cost import flops
from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import evaluate
from loopwright.ir.graph import Graph, Node
from loopwright.ir.nest import Nest
from loopwright.ir.schedule import InPlace
from loopwright.lower.covers import Cover, alternatives, implementations
from loopwright.lower.cuda.driver import Device
from loopwright.lower.cuda.products import library_product
from loopwright.lower.cuda.program import HOST, alternatives_cuda, cover_cuda
from loopwright.lower.modules import module_of_kernels
from loopwright.lower.program import cover_graph
from loopwright.lower.runtime import blas
from loopwright.lower.runtime.threads import threads
from loopwright.lower.target import host_target
from loopwright.lower.tuning import features, gpu_features
from loopwright.lower.tuning.gpu_space import GPU_RULES, ways
from loopwright.lower.tuning.models import Roofline, least_seconds
from loopwright.lower.tuning.records import machine
from loopwright.lower.tuning.space import Space

Sizes = Mapping[str, int]


class Model(Protocol):
    def predict(self, x: np.ndarray) -> np.ndarray:
        """f64[n]: seconds of f64[n, features]."""


class Platform(Protocol):
    @property
    def machine(self) -> str:
        """Tells machines apart whose times differ: records of others are of no use."""

    @property
    def origin(self) -> str:
        """What runs programs in a worker process, as `module:name` of what gives its driver; "": the processor."""

    def module(self, g: Graph, sizes: Sizes, donated: Sequence[int], fast_math: bool, cover: Cover) -> Graph:
        """The program of a graph that a cover makes, good at these sizes. ScheduleError where it makes none."""

    def alternatives(self, g: Graph, cover: Cover, sizes: Sizes, fast_math: bool) -> list[Cover]:
        """Covers that differ from one by a decision."""

    def implementations(self, n: Node, sizes: Sizes) -> list[Attributes]:
        """Ways to make a kernel, of which the first is how it is made now."""

    def space(self, region: Graph, sizes: Sizes) -> Space:
        """The schedules of a region, at these sizes."""

    def features(self, nest: Nest, sizes: Sizes) -> np.ndarray:
        """What a nest does."""

    def model(self) -> Model:
        """What features cost."""

    def least_seconds(self, region: Graph, sizes: Sizes, known: Sequence[np.ndarray]) -> float:
        """Seconds below which no kernel of the region gets; `known`: features of some of its nests."""


class Processor:
    """The CPU that this runs on."""

    machine, origin = property(lambda self: machine()), ""

    def module(self, g: Graph, sizes: Sizes, donated: Sequence[int], fast_math: bool, cover: Cover) -> Graph:
        kernels, donations = cover_graph(g, host_target(), blas=blas.available(), donated=donated, cover=cover,
                                         fast_math=fast_math)
        return module_of_kernels(g, kernels, donations, fast_math)

    def alternatives(self, g: Graph, cover: Cover, sizes: Sizes, fast_math: bool) -> list[Cover]:
        return alternatives(g, host_target(), blas.available(), cover, sizes, fast_math)

    def implementations(self, n: Node, sizes: Sizes) -> list[Attributes]:
        return implementations(n, host_target(), blas.available())

    def space(self, region: Graph, sizes: Sizes) -> Space:
        return Space(region, host_target(), sizes=sizes)

    def features(self, nest: Nest, sizes: Sizes) -> np.ndarray:
        return features.features(nest, sizes, host_target())

    def model(self) -> Model:
        return Roofline(threads())

    def least_seconds(self, region: Graph, sizes: Sizes, known: Sequence[np.ndarray]) -> float:
        met = min([float(x[features.COLUMN["bytes"]]) for x in known], default=0.0)
        widths = [v.type.dtype.itemsize for n in region.nodes for v in (*n.inputs, *n.outputs)]
        target = host_target()
        return least_seconds(evaluate(flops(region), sizes), met, target.vector_bits // (8 * min(widths)), target, threads())


@dataclass(frozen=True)
class GPU:
    """A GPU, by what its driver says of it."""

    device: Device
    origin: str

    @property
    def machine(self) -> str:
        return self.device.name

    def module(self, g: Graph, sizes: Sizes, donated: Sequence[int], fast_math: bool, cover: Cover) -> Graph:
        return module_of_kernels(g, *cover_cuda(g, sizes, donated, fast_math, cover), fast_math)

    def alternatives(self, g: Graph, cover: Cover, sizes: Sizes, fast_math: bool) -> list[Cover]:
        return alternatives_cuda(g, sizes, cover, fast_math)

    def implementations(self, n: Node, sizes: Sizes) -> list[Attributes]:
        region = n.regions[0]
        in_place = tuple([x for x in n.attrs.get("schedule", ()) if isinstance(x, InPlace)])
        found: list[Attributes] = [n.attrs]
        if all(m.op.loop is not None for m in region.nodes):
            schedules = [(*schedule, *in_place) for schedule in ways(region, sizes)]
            found += [{"implementation": "generated", "schedule": schedule} for schedule in schedules]
        if not in_place and library_product(region) is not None:
            found.append({"implementation": "gemm"})
        return [x for k, x in enumerate(found) if x not in found[:k]]

    def space(self, region: Graph, sizes: Sizes) -> Space:
        return Space(region, HOST, GPU_RULES, sizes)

    def features(self, nest: Nest, sizes: Sizes) -> np.ndarray:
        return gpu_features.gpu_features(nest, sizes, self.device)

    def model(self) -> Model:
        return gpu_features.DeviceModel(self.device)

    def least_seconds(self, region: Graph, sizes: Sizes, known: Sequence[np.ndarray]) -> float:
        d, met = self.device, min([float(x[gpu_features.COLUMN["bytes"]]) for x in known], default=0.0)
        operations = evaluate(flops(region), sizes) / (d.processors * d.flops * d.clock * gpu_features.TOGETHER)
        moved = min(met, d.cache) / (gpu_features.NEAR * d.bandwidth) + max(met - d.cache, 0) / d.bandwidth
        return max(operations, moved, gpu_features.LEAST)


PROCESSOR = Processor()
