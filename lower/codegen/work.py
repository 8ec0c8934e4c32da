"""How much work a loop body is, as a size: what decides at run time between one thread and many."""
from __future__ import annotations

from collections.abc import Iterable, Sequence

from loopwright.ir.dims import Extent, floordiv, minimum, product
from loopwright.ir.loops import Apply, Expr, Load, PartitionPoint, Prefix, Reduce, When, walk, walk_all
from loopwright.ir.nest import Allocate, Contract, For, Let, Parts, Passes, Prefetch, Reduction, Scan, Statement, Store, While
from loopwright.ir.types import FLOATS
from loopwright.kernels.maths import FUNCTIONS
from loopwright.lower.codegen.arithmetic import FORMULAS
from loopwright.lower.fusing import expressions
from loopwright.lower.survey import WEIGHTS

# One unit is about a simple vectorised instruction on one element.
TRIPS = 16  # of a loop whose number of trips is data
HALVINGS = 10  # steps of a search
HEAVY = 12  # a vector maths function
PARTS, FASTER = 2, 3  # of a number; how many terms a tile unit adds in the time of vectors
APART = 20  # a load of its own for each lane, from where data says


def work_of(body: Sequence[Statement]) -> Extent:
    """Units of work of one run of the statements."""
    total: Extent = 0
    for statement in body:
        total = total + _of(statement)
    return total


def maths_weight(body: Sequence[Statement]) -> int:
    """What the formulas in the statements cost for one element, each once."""
    sites = {x for x in walk_all(expressions(body)) if isinstance(x, Apply) and x.fn in FORMULAS and x.dtype in FLOATS}
    return sum(WEIGHTS.get(x.fn, 1) for x in sites)


def _of(statement: Statement) -> Extent:
    match statement:
        case For(origin=None, step=1, extent=extent, body=body):
            return extent * work_of(body)
        case For(extent=extent, length=length, step=step, body=body):
            return _trips(extent, length, step) * work_of(body)
        case Contract(rows=rows, columns=columns, over=over, left=left, right=right):
            inside = _expression(left) + _expression(right) - 1
            all_of_them = product(_trips(b.extent, b.length) for b in (rows, columns, *over)) * inside
            return floordiv(all_of_them, FASTER) if statement.unit else all_of_them
        case Parts(terms=terms, rows=rows, times=times, columns=columns):
            count = times * _trips(rows.extent, rows.length) if rows else columns.length if columns and columns.length else 1
            return PARTS * _trips(terms.extent, terms.length) * count
        case Passes():
            raise AssertionError("a GPU alone has such passes")
        case Store(value=value, index=index):
            return _sum(map(_expression, (value, *index))) + 1
        case Let(value=value):
            return _expression(value)
        case Reduction(over=over, body=value, also=also):
            return product(n for _, n in over) * (_expression(value) + 1 + work_of(also))
        case Scan(extent=extent, body=value):
            return extent * (_expression(value) + 4)
        case While(condition=condition, following=following, body=inner):
            return TRIPS * (_sum(map(_expression, (condition, *following))) + work_of(inner))
        case Allocate() | Prefetch():
            return 0


def _trips(extent: Extent, length: Extent | None, step: int = 1) -> Extent:
    """How often a loop runs that may go through a block."""
    return floordiv((extent if length is None else minimum(extent, length)) + (step - 1), step)


def _expression(expr: Expr) -> Extent:
    seen: set[int] = set()

    def visit(e: Expr) -> Extent:
        if id(e) in seen:
            return 0
        seen.add(id(e))
        match e:
            case Apply(fn=fn, args=args):
                return _sum(map(visit, args)) + (HEAVY if fn in FUNCTIONS else 1)
            case Load(index=index):
                apart = bool(index) and any(isinstance(x, Load) for x in walk(index[-1]))
                return _sum(map(visit, index)) + (APART if apart else 1)
            case When(cond=cond, then=then, other=other):
                return _sum(map(visit, (cond, then, other))) + 1
            case Reduce(over=over, body=body):
                return product(n for _, n in over) * (visit(body) + 1)
            case Prefix(extent=extent, body=body):
                return extent * (visit(body) + 1)
            case PartitionPoint(test=test):
                return HALVINGS * visit(test)
        return 0
    return visit(expr)


def _sum(parts: Iterable[Extent]) -> Extent:
    total: Extent = 0
    for part in parts:
        total = total + part
    return total
