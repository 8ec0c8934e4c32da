"""What the rules of schedules read of a region: where each stage is read, and what one element of it costs."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Shape, product
from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.loops import Apply, Expr, Index, Load, PartitionPoint, Prefix, Reduce, Scatter, When, parts, walk
from loopwright.ir.ops.structural import concatenate
from loopwright.ir.types import BF16, F16, F64
from loopwright.lower.composition import Position, fresh_indices, reads
from loopwright.lower.instructions import MOST_INTERLEAVED, is_short
from loopwright.lower.partials import block_sums
from loopwright.lower.row_products import operand_positions, row_products

# Cost of one scalar operation, in adds; what is not listed costs 1.
WEIGHTS = {
    **dict.fromkeys(("div", "sqrt", "floor_divide", "remainder", "fmod"), 5),
    **dict.fromkeys(("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "tanh", "sinh", "cosh",
                     "arcsin", "arccos", "arctan", "arcsinh", "arccosh", "arctanh", "arctan2", "erf", "cbrt", "hypot"), 15),
    **dict.fromkeys(("power", "root_cube", "erfc", "erfcx", "erfinv", "ndtri", "i0e", "i1e"), 30),
    **dict.fromkeys(("lgamma", "digamma"), 60),
    **dict.fromkeys(("threefry_first", "threefry_second"), 35),  # which share their rounds, of 75 operations
    **dict.fromkeys(("zeta", "gammainc", "gammaincc", "gammainc_slope", "betainc"), 400),
}
EXPENSIVE = 15
SEARCH = 60  # a search by halving: some ten loads that wait for one another


def own_cost(e: Expr) -> int:
    """The cost of one element of an op's own expression, its loads and index arithmetic aside."""
    return sum(map(_weight, walk(e)))


def _weight(e: Expr) -> int:
    """The cost of one operation, if e is one: roots of double precision take twice as long as others."""
    if isinstance(e, PartitionPoint):
        return SEARCH
    weight = WEIGHTS.get(e.fn, 1) if isinstance(e, Apply) else 0
    return 2 * weight if isinstance(e, Apply) and e.fn == "sqrt" and e.dtype == F64 else weight


@dataclass
class Reading:
    """What the rules know of one stage: at which indices it is read, and its own expression at its own axes."""

    node: Node
    expr: Expr
    readers: list[tuple[int, Position]] = field(default_factory=list)


@dataclass
class Survey:
    """Where each stage of a region is read, followed back from the root through everything that is computed inline."""

    region: Graph
    index: tuple[Index, ...]
    stages: list[Reading]
    level: int
    loops: int  # the number of the root's axes that are loops: all, or all but one that is interleaved
    along: frozenset[Value]  # what is read from one position of an innermost loop to the next

    @property
    def root(self) -> Reading:
        return next(s for s in self.stages if s.node.outputs[0] is self.region.results[0])


def root_index(region: Graph) -> tuple[Index, ...]:
    """The loop variables of the root's axes."""
    return tuple(Index(f"i{a}") for a in range(region.results[0].type.rank))


def survey(region: Graph, columns: int = MOST_INTERLEAVED, channels: int = 0) -> Survey:
    """Follow the reads from the root back to the parameters. `columns`: of how many of them at most a stack is spelled out;
    `channels`: likewise of what is read in another order than it is stored in."""
    index = root_index(region)
    number = {n.outputs[0]: k for k, n in enumerate(region.nodes)}
    at: dict[Value, dict[Position, None]] = {v: {index[:v.type.rank]: None} for v in region.results}
    stages: list[Reading | None] = [None] * len(region.nodes)
    readers: list[list[tuple[int, Position]]] = [[] for _ in region.nodes]
    fresh, last = fresh_indices(), index[-1] if index else None
    inner, moving = {last}, set(region.results)
    along = False  # whether something is chosen by, or read at, the position along the last axis
    uneven, apart = False, False  # whether something is read in another order than the root is stored in, and at far places
    for k, node in reversed(list(enumerate(region.nodes))):
        v = node.outputs[0]
        own = (*index[:v.type.rank], *(Index(f"a{a}") for a in range(len(index), v.type.rank)))
        if node.op is block_sums and v is not region.results[0]:  # read where the root's loops are
            at.setdefault(node.inputs[0], {})[index] = None
            readers[number[node.inputs[0]]].append((k, index)) if node.inputs[0] in number else None
            stages[k] = Reading(node, Load(0, index, v.type.dtype), readers[k])
            continue
        if node.op is row_products:
            for side, position in zip(node.inputs, operand_positions(index), strict=True):
                at.setdefault(side, {})[position] = None
                readers[number[side]].append((k, position)) if side in number else None
            stages[k] = Reading(node, Load(0, index, v.type.dtype), readers[k])
            continue
        here = expr, _ = reads(node, own, fresh)
        for position in at.get(v, {}):
            there, read = here if position == own else reads(node, position, fresh)
            inner.update(x.over[-1][0] for x in walk(there) if isinstance(x, Reduce | Scatter) and x.over)
            along = along or _chooses(there, last)
            for operand, found in read:
                producer = node.inputs[operand]
                if any(not inner.isdisjoint(walk(x)) for x in found):
                    moving.add(producer)
                if producer not in number:
                    along = along or any(last in walk(x) for x in found)
                    uneven = uneven or (found != index and any(isinstance(y, Index) for x in found for y in walk(x)))
                    apart = apart or _lie_apart(producer.type.shape, found, index[-2:-1])
                if producer in number:
                    at.setdefault(producer, {})[found] = None
                    readers[number[producer]].append((k, found))
        stages[k] = Reading(node, expr, readers[k])
    kept = [s for s in stages if s is not None]
    levels = [s.node.outputs[0].type.rank for s in kept if isinstance(s.expr, Reduce)]
    most = columns if not along else channels if uneven and not apart else 0
    short = _interleaves(region, index, fresh, columns) or (not levels and _repeats(kept, region, most))
    loops = len(index) - (len(index) not in levels and short)
    return Survey(region, index, kept, min(levels, default=loops), loops, frozenset(moving))


def _chooses(e: Expr, by: Index | None) -> bool:
    """Whether an expression depends on an index other than by what it reads there."""
    return e == by or (not isinstance(e, Load) and any(_chooses(x, by) for x in parts(e)))


def _lie_apart(shape: Shape, position: Position, pixels: Position) -> bool:
    """Whether neighbours along an index, if there is one, are read at places far apart: neither side by side nor with a few
    numbers between."""
    moved = [k for k, x in enumerate(position) if not set(pixels).isdisjoint(walk(x))]
    return bool(moved) and moved != [len(shape) - 1] and not is_short(shape)


def _repeats(stages: list[Reading], region: Graph, columns: int) -> bool:
    """Whether the columns of a short last axis may be spelled out, one beside the other."""
    shape = region.results[0].type.shape
    folds = any(isinstance(s.expr, Prefix | Scatter) for s in stages)
    return is_short(shape, columns) and len(region.results) == 1 and len(shape) > 1 and not folds


def stacks_columns(n: Node, most: int) -> bool:
    """Whether a node puts together so many columns at most, each of one element of a row."""
    return n.op is concatenate and n.attrs["axis"] == n.outputs[0].type.rank - 1 and is_short(n.outputs[0].type.shape, most) \
        and all(v.type.shape[-1] == 1 for v in n.inputs)


def _interleaves(region: Graph, index: Position, fresh: Callable[[], Index], columns: int) -> bool:
    """Whether the root does no more than choose by the position along a short last axis, or has one position there: then
    each is a store, and lanes run along the axis before."""
    root = next(n for n in region.nodes if n.outputs[0] is region.results[0])
    shape = root.outputs[0].type.shape
    is_spelled = is_short(shape) or stacks_columns(root, columns)
    if not is_spelled or any(v.type.rank == len(index) for v in region.results[1:]):
        return False
    e = reads(root, index, fresh)[0]
    if shape[-1] == 1:
        return len(index) > 1 and not isinstance(e, Reduce | Prefix | Scatter)
    return isinstance(e, When) and any(x == index[-1] for x in walk(e.cond))


def widest(s: Survey, in_memory: bool = False, rows: int | None = None, *, across: bool = False) -> int:
    """Bytes of the widest element computed with in lanes, or as it lies in memory; a bool is one byte. Single numbers are no
    vectors, nor is what each row of an innermost loop reads one of (the number of a row that is looked up), nor what a row has
    one of where lanes run along rows, whose loops are so many. across: lanes may go from row to row as well."""
    region = s.region
    values = [*region.params, *(n.outputs[0] for n in region.nodes)]
    if rows is None:
        rows = s.level if s.level < s.loops else 0
    values = [v for v in values if v.type.rank > rows and product(v.type.shape[rows:]) != 1] \
        or [v for v in values if v.type.rank] or values
    if not across:
        values = [v for v in values if v in s.along] or values
    halves = () if in_memory else (F16, BF16)  # these compute in f32
    return max(4 if v.type.dtype in halves else v.type.dtype.itemsize for v in values)
