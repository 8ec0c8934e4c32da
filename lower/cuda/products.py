"""Products of matrices on a GPU: one call of cuBLASLt with what it can add, or tiles of our own with all that is around them.

Guarantees: the same values, up to the order in which products add; what the library adds it adds in the program's order and
precision. Which of both is taken is reckoned from what was measured on one.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import evaluate
from loopwright.ir.errors import ScheduleError
from loopwright.ir.gpu_schedule import InTiles
from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.loops import Prefix, Reduce, Scatter
from loopwright.ir.ops.arithmetic import add
from loopwright.ir.ops.broadcasting import broadcast
from loopwright.ir.ops.control import scan
from loopwright.ir.ops.selection import convert
from loopwright.ir.schedule import InPlace
from loopwright.ir.types import BF16, F16, F32, F64, ArrayType
from loopwright.kernels.gemm import Gemm, match_product
from loopwright.lower.cuda.rules import gpu_schedule
from loopwright.lower.kernel import MOST_NODES, kernel, region_of
from loopwright.lower.survey import own_cost, survey

# What a card does in a second, as measured on an H200; only the ratios decide.
MOVED = 4.0e12  # bytes between kernels and memory
APPLIED = 3.0e13  # operations of f32
LIBRARY = {"halves": 7.5e14, "f32": 5.0e13, "f64": 5.0e13}  # additions and multiplications of products
TILES = {"halves": 2.1e14, "f32": 3.4e13, "f64": 1.3e13}
SHARE = {128: 1.0, 64: 0.7, 32: 0.35}  # of it, by the edge of a tile
PROCESSORS = 132
LAUNCH, CALL = 2e-6, 4e-6  # seconds of a kernel beside its work, and of the library, which may need two for a product


@dataclass(frozen=True)
class LibraryProduct:
    """A product as cuBLASLt makes it: gemm(left, right) + added + bias, rounded once. `bias`: along the last axes, those of
    the right side. All by their numbers among a region's parameters."""

    gemm: Gemm
    left: int
    right: int
    added: int | None = None
    bias: int | None = None

    def __str__(self) -> str:
        return " + ".join(["gemm", *(["sums"] if self.added is not None else []), *(["bias"] if self.bias is not None else [])])


def library_product(region: Graph) -> LibraryProduct | None:
    """What a region is as one call of the library, or None. relu and gelu are not taken: nothing is said of what becomes of
    NaN there, nor of how exact they are."""
    made = next((n for n in region.nodes if match_product(n)), None)
    gemm = None if made is None else match_product(made)
    number = {v: k for k, v in enumerate(region.params)}
    if made is None or gemm is None or len(region.results) != 1 or not all(v in number for v in made.inputs):
        return None
    found = LibraryProduct(gemm, number[made.inputs[0]], number[made.inputs[1]])
    now, reads, spread = made.outputs[0], Counter(v for n in region.nodes for v in n.inputs), dict[Value, Node]()
    for n in region.nodes:
        if n.op is broadcast and n.inputs[0] in number:
            spread[n.outputs[0]] = n
        elif n is not made:
            step = _with(found, n, now, made, number, spread) if n.inputs.count(now) == reads[now] == 1 else None
            if step is None:
                return None
            found, now = step, n.outputs[0]
    return found if now is region.results[0] else None


def _with(found: LibraryProduct, n: Node, now: Value, made: Node, number: Mapping[Value, int],
          spread: Mapping[Value, Node]) -> LibraryProduct | None:
    """A product with what a node does to it after all else; None where the library does not do that."""
    if n.op is convert and now is made.outputs[0] and n.outputs[0].type.dtype == made.inputs[0].type.dtype:
        return found
    if n.op is not add or found.bias is not None or now.type.dtype not in (F32, F64):
        return None
    other, = [v for v in n.inputs if v is not now]
    if other in spread:
        bias, axes = spread[other].inputs[0], spread[other].attrs["axes"]
        columns = made.inputs[1].type.rank - len(made.attrs["batch"]) - len(made.attrs["contract"])
        last = tuple(range(now.type.rank - columns, now.type.rank))
        is_bias = axes == last and bias.type.shape == tuple([now.type.shape[a] for a in last])
        return replace(found, bias=number[bias]) if is_bias else None
    fits = other in number and other.type == now.type and found.added is None
    return replace(found, added=number[other]) if fits else None


# ---- which way ------------------------------------------------------------------------------------
def with_products(g: Graph, sizes: Mapping[str, int]) -> Graph:
    """Kernels with each product of matrices as one call of the library, with what it adds; or, where that is reckoned to take
    less at these sizes, as tiles together with the kernels around it."""
    nodes = [n if n.op is kernel or not n.regions else
             Node(n.op, n.inputs, n.attrs, n.outputs, tuple([with_products(r, sizes) for r in n.regions]), n.source)
             for n in g.nodes]
    chosen = _Chosen(nodes, g.results, sizes)
    for n in nodes:
        if n.attrs.get("implementation") == "gemm":
            chosen.choose(n)
    return Graph(g.params, tuple(chosen.nodes), g.results, g.constraints)


@dataclass(frozen=True)
class _Way:
    """How a product and its neighbours may be computed: kernels that are gone, those that do their work, and the seconds of
    both and of the neighbours that stay."""

    gone: tuple[Node, ...]
    made: Node
    seconds: float


class _Chosen:
    """The kernels of a graph, as products are chosen one after another."""

    def __init__(self, nodes: Sequence[Node], results: Sequence[Value], sizes: Mapping[str, int]) -> None:
        self.nodes, self.results, self.sizes = list(nodes), results, sizes

    def choose(self, n: Node) -> None:
        """Put the cheapest way to compute a product in its place."""
        n = self._rounded(n)
        producer = {v: m for m in self.nodes for v in m.outputs}
        after = self._alone(n.outputs[0])
        before = [m for v in n.inputs for m in [producer.get(v)] if m is not None and _is_free(m) and self._alone(v) is n
                  and _is_map(m)]
        after = after if after is not None and _is_free(after) else None
        around = [*before, *([after] if after else [])]
        ways = [_Way((n,), n, self._seconds(n) + sum(map(self._seconds, around)))]
        if after and (made := _joined([n, after], "gemm")) and library_product(made.regions[0]):
            ways.append(_Way((n, after), made, self._seconds(made) + sum(map(self._seconds, before))))
        for parts in ([n, *around[len(before):]], [*before, n], [*before, n, *around[len(before):]]):
            if len(parts) > 1 and (tiled := self._tiled(parts)) is not None:
                left = sum(self._seconds(m) for m in around if m not in parts)
                ways.append(_Way(tuple(parts), tiled[0], tiled[1] + left))
        best = min((w for w in ways if self._may_wait(w.gone)), key=lambda w: w.seconds)
        if best.made is not n:
            self.nodes = [best.made if m is best.gone[-1] else m for m in self.nodes
                          if m is best.gone[-1] or m not in best.gone]

    def _rounded(self, n: Node) -> Node:
        """A product of half floats as one that is rounded to them, if all that reads it rounds it."""
        v, dtype = n.outputs[0], n.inputs[0].type.dtype
        readers = [m for m in self.nodes if v in m.inputs]
        if dtype not in (F16, BF16) or v in self.results or not readers or not all(_rounds(m, v, dtype) for m in readers):
            return n
        lone = next((m for m in readers if len(m.regions[0].nodes) == 1), None)
        rounded = lone.outputs[0] if lone else Value(ArrayType(v.type.shape, dtype))
        (once,), params, whole = n.regions[0].nodes, n.regions[0].params, Value(rounded.type)
        last = Node(convert, once.outputs, {"dtype": dtype}, (whole,), (), n.source)
        made = Node(kernel, n.inputs, n.attrs, (rounded,), (Graph(params, (once, last), (whole,)),), n.source)
        put = {n: made, **{m: _without_rounding(m, v, rounded) for m in readers}}
        self.nodes = [put.get(m, m) for m in self.nodes if m is not lone]
        return made

    def _alone(self, v: Value) -> Node | None:
        """The one kernel that reads a value, which is no result."""
        readers = [m for m in self.nodes if v in m.inputs]
        return readers[0] if len(readers) == 1 and v not in self.results else None

    def _may_wait(self, parts: Sequence[Node]) -> bool:
        """Whether nothing is written in place between the first of some kernels and the last."""
        first, last = (self.nodes.index(m) for m in (min(parts, key=self.nodes.index), parts[-1]))
        return not any(isinstance(x, InPlace) for m in self.nodes[first:last] for x in m.attrs.get("schedule", ()))

    # ---- seconds -------------------------------------------------------------------------------
    def _seconds(self, n: Node) -> float:
        """What a kernel takes: the library's product, or a map."""
        product = library_product(n.regions[0]) if n.attrs["implementation"] == "gemm" else None
        beside = LAUNCH if product is None else CALL
        if product is None:
            work = _cost(n.regions[0]) * evaluate(n.outputs[0].type.size, self.sizes) / APPLIED
        else:
            gemm = product.gemm
            work = 2 * evaluate(gemm.batch * gemm.m * gemm.n * gemm.k, self.sizes) / LIBRARY[_kind(n.regions[0])]
        return max(self._bytes(n) / MOVED, work) + beside

    def _bytes(self, n: Node) -> int:
        return sum(evaluate(v.type.size, self.sizes) * v.type.dtype.itemsize for v in {*n.inputs, *n.outputs})

    def _tiled(self, parts: Sequence[Node]) -> tuple[Node, float] | None:
        """Kernels as one in tiles, and its seconds; None where there is no such kernel."""
        whole = _joined(parts, "generated")
        product, = [m for m in parts if m.attrs["implementation"] == "gemm"]
        once = product.regions[0].nodes[0]
        gemm = match_product(once)
        if whole is None or gemm is None:
            return None
        try:
            schedule = gpu_schedule(whole.regions[0], self.sizes)
        except ScheduleError:
            return None  # its loops do not go through what is made before
        tile = next((x for x in schedule if isinstance(x, InTiles)), None)
        if tile is None:
            return None
        batch, m, n, k = (evaluate(x, self.sizes) for x in (gemm.batch, gemm.m, gemm.n, gemm.k))
        high, wide = -(-m // tile.rows), -(-n // tile.columns)
        waves = -(-batch * high * wide // PROCESSORS)
        rate = TILES[_kind(whole.regions[0])] * SHARE[min(tile.rows, tile.columns)] / PROCESSORS
        again = {once.inputs[0]: m * k * wide, once.inputs[1]: k * n * high}
        sides = dict(zip(product.inputs, product.regions[0].params, strict=True))
        applied = sum(_cost(p.regions[0]) * again[sides[p.outputs[0]]] * batch for p in parts if p.outputs[0] in sides)
        work = waves * 2 * tile.rows * tile.columns * k / rate + applied / APPLIED
        return whole, max(self._bytes(whole) / MOVED, work) + LAUNCH


def _rounds(n: Node, v: Value, dtype: np.dtype) -> bool:
    """Whether all that a kernel of ours does with a value is to round it."""
    if not _is_free(n):
        return False
    region = n.regions[0]
    readers = [m for m in region.nodes if region.params[n.inputs.index(v)] in m.inputs]
    return all(m.op is convert and m.outputs[0].type.dtype == dtype for m in readers) \
        and (len(region.nodes) == 1 or not any(m.outputs[0] in region.results for m in readers))


def _without_rounding(n: Node, v: Value, rounded: Value) -> Node:
    """A kernel that reads a value rounded."""
    region, k = n.regions[0], n.inputs.index(v)
    old, new = region.params[k], Value(rounded.type)
    same = {m.outputs[0]: new for m in region.nodes if old in m.inputs}
    nodes = tuple([Node(m.op, tuple([same.get(x, x) for x in m.inputs]), m.attrs, m.outputs, m.regions, m.source)
                   for m in region.nodes if old not in m.inputs])
    params, inputs = ((*xs[:k], x, *xs[k + 1:]) for xs, x in ((region.params, new), (n.inputs, rounded)))
    whole = Graph(params, nodes, region.results, region.constraints)
    return Node(n.op, inputs, {**n.attrs, "schedule": ()}, n.outputs, (whole,), n.source)


def _is_free(n: Node) -> bool:
    """Whether a kernel of ours may become part of another."""
    if n.attrs.get("implementation") != "generated" or n.regions[0].nodes[0].op is scan:
        return False
    return not any(isinstance(x, InPlace) for x in n.attrs["schedule"])


def _is_map(n: Node) -> bool:
    """Whether a kernel makes each element of one array by itself."""
    return len(n.outputs) == 1 and not any(isinstance(x.expr, Reduce | Prefix | Scatter) for x in survey(n.regions[0]).stages)


def _cost(region: Graph) -> int:
    """Of one element of a map."""
    return sum(own_cost(x.expr) for x in survey(region).stages)


def _kind(region: Graph) -> str:
    made = next(n for n in region.nodes if match_product(n))
    return {F32: "f32", F64: "f64"}.get(made.inputs[0].type.dtype, "halves")


def _joined(parts: Sequence[Node], implementation: str) -> Node | None:
    """Kernels that follow one another as one, which gives what the last gives; None where that would be too many nodes. Its
    schedule is not made yet."""
    same: dict[Value, Value] = {}
    nodes: list[Node] = []
    for part in parts:
        region = part.regions[0]
        same.update(zip((*region.params, *region.results), (*part.inputs, *part.outputs), strict=True))
        for m in region.nodes:
            for v in m.outputs:
                same.setdefault(v, Value(v.type))
            inputs, outputs = (tuple([same[v] for v in values]) for values in (m.inputs, m.outputs))
            nodes.append(Node(m.op, inputs, m.attrs, outputs, m.regions, m.source))
    if len(nodes) > MOST_NODES:
        return None
    region, outside = region_of(nodes, parts[-1].outputs)
    attrs = {"implementation": implementation, **({"schedule": ()} if implementation == "generated" else {})}
    return Node(kernel, outside, attrs, parts[-1].outputs, (region,), parts[-1].source)
