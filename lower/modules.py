"""A compiled program as one graph: its kernels with their schedules, control flow and library calls, which text can hold.

Guarantees: `module_of` gives a graph of one `program` node over the parameters and results of the function that was compiled;
its region is what machine code is made of, exactly; `parse(str(module), OPS, CLASSES)` is that graph again, and `lower_graph`
makes the same code of it.
"""
from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence

from loopwright.ir.attributes import Attributes
from loopwright.ir.errors import ScheduleError, VerificationError
from loopwright.ir.gpu_schedule import Bind, ByOwner, InAnyOrder, InPasses, InRegisters, InShared, InTiles, Threads
from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.op import Op
from loopwright.ir.ops.control import scan
from loopwright.ir.schedule import Inline, InPlace, Instruction, Interleave, Schedule
from loopwright.ir.types import COMPLEX
from loopwright.lower import covers
from loopwright.lower.control import carried_by
from loopwright.lower.covers import remade
from loopwright.lower.kernel import kernel, program
from loopwright.lower.library import IMPLEMENTATIONS
from loopwright.lower.program import Program
from loopwright.lower.scheduling import Scheduled, build_nest, nest_or_none
from loopwright.lower.versions import is_last_use, roots_of

MOST_LANES = 64
_FOR_GPU = (Threads, Bind, InShared, InRegisters, InTiles, InPasses, ByOwner, InAnyOrder)
_LOWER = __name__.rpartition(".")[0] + "."


def _ops() -> dict[str, Op]:
    """The ops that the lowering adds to the table: those of every module of this folder, all of which `program` imports."""
    modules = [m for name, m in sys.modules.items() if name.startswith(_LOWER)]
    return {x.name: x for m in modules for x in vars(m).values() if isinstance(x, Op)}


OPS: Mapping[str, Op] = _ops()
CLASSES: Mapping[str, type] = covers.CLASSES


def module_of(whole: Graph, made: Program, fast_math: bool) -> Graph:
    """The program that `whole` became, over its parameters and results."""
    return module_of_kernels(whole, made.kernels, made.donations, fast_math)


def module_of_kernels(whole: Graph, kernels: Graph, donations: Mapping[int, int], fast_math: bool) -> Graph:
    """The same from what `cover_graph` gives."""
    params, results = (tuple([Value(v.type) for v in values]) for values in (whole.params, whole.results))
    pairs = tuple([k for k, v in enumerate((*params, *results)) if v.type.dtype in COMPLEX])
    attrs = {"pairs": pairs, "donations": tuple(donations.items()), "fast_math": fast_math}
    region = Graph(kernels.params, kernels.nodes, kernels.results)
    return Graph(params, (Node(program, params, attrs, results, (region,)),), results, whole.constraints)


def alone(n: Node) -> Graph:
    """A program of one kernel, over the kernel's operands and results."""
    params, results = (tuple([Value(v.type) for v in values]) for values in (n.inputs, n.outputs))
    region = Graph(params, (Node(kernel, params, n.attrs, results, n.regions, n.source),), results)
    donations = tuple([(x.output, x.operand) for x in n.attrs.get("schedule", ()) if isinstance(x, InPlace)])
    attrs = {"pairs": (), "donations": donations, "fast_math": False}
    outer, ends = (tuple([Value(v.type) for v in values]) for values in (n.inputs, n.outputs))
    return Graph(outer, (Node(program, outer, attrs, ends, (region,), n.source),), ends)


def is_module(g: Graph) -> bool:
    """Whether g is a program already."""
    return len(g.nodes) == 1 and g.nodes[0].op is program


# ---- kernels and their schedules --------------------------------------------------------------------
def kernels_of(g: Graph) -> list[Node]:
    """The kernels of a program in their order, those of loops and branches where these stand."""
    return [k for n in g.nodes for k in ([n] if n.op is kernel else [k for r in n.regions for k in kernels_of(r)])]


def rescheduled(g: Graph, schedules: Mapping[Node, Schedule]) -> Graph:
    """g with other schedules for some of its kernels."""
    return reimplemented(g, {n: {**n.attrs, "schedule": s} for n, s in schedules.items()})


def reimplemented(g: Graph, attrs: Mapping[Node, Attributes]) -> Graph:
    """g with other implementations for some of its kernels."""
    return remade(g, lambda n: attrs.get(n, n.attrs))


def described(number: int, n: Node) -> str:
    """A kernel, for messages."""
    ops = " ".join([m.op.name for m in n.regions[0].nodes])
    return f"{f'{n.source}: ' if n.source else ''}kernel {number} ({ops})"


def check_schedules(g: Graph, is_written: bool = True, for_gpu: bool = False) -> None:
    """ScheduleError where a kernel of a program does not allow an instruction, or works in memory that it is not given. Of one
    that somebody wrote each instruction must change something. for_gpu: a program for a GPU, which has threads."""
    numbers = {n: k for k, n in enumerate(kernels_of(g))}
    for n, number in numbers.items():
        if not for_gpu and n.attrs["implementation"] not in IMPLEMENTATIONS:
            raise ScheduleError(f"{described(number, n)}: there is no implementation {n.attrs['implementation']!r}.")
        if n.attrs["implementation"] == "generated":
            schedule = n.attrs["schedule"]
            if for_gpu:
                _check_on_gpu(n.regions[0], schedule, described(number, n))
                continue
            interleaves = any(isinstance(x, Interleave) for x in schedule)  # vectors of such loops are asked for where none is
            new = schedule if is_written and not interleaves else ()
            check_schedule(n.regions[0], schedule, described(number, n), new)
    whole = g.nodes[0]
    if (*g.params, *g.results) != (*whole.inputs, *whole.outputs):
        raise VerificationError(f"the graph around a program takes its operands and returns its results, in their order\n{g}")
    region = whole.regions[0]
    _check_places(region, [(region.params[a], region.results[k]) for k, a in whole.attrs["donations"]], numbers)


def _check_places(g: Graph, shared: Sequence[tuple[Value, Value]], numbers: Mapping[Node, int]) -> None:
    """ScheduleError unless kernels work in place just where a parameter and a result of the graph are `shared`, one buffer, or
    in what only they still read."""
    for n in g.nodes:
        if n.op is not kernel:
            for k, region in enumerate(n.regions):
                _check_places(region, [(v, region.results[j]) for j, v in carried_by(n, k).items()], numbers)
    roots = roots_of(g)
    allowed = {v for v, r in shared if roots.get(r) is v}
    for k, n in enumerate(g.nodes):
        for x in n.attrs.get("schedule", ()) if n.op is kernel else ():
            if isinstance(x, InPlace):
                v = n.inputs[x.operand]
                root = roots.get(v, v)
                if (root in g.params and root not in allowed) or not is_last_use(g, k, v):
                    raise ScheduleError(f"{described(numbers[n], n)}: InPlace: the operand and the result are not one buffer "
                                        f"here. They are where a loop carries the one to the other, where a result takes the "
                                        f"memory of a donated argument, and where nothing else reads what a kernel made.")


def check_schedule(region: Graph, instructions: Schedule, who: str, new: Sequence[Instruction] = ()) -> None:
    """The same for one kernel; `who` it is, for messages. Those that are `new` must change something."""
    for x in instructions:
        if isinstance(x, _FOR_GPU):
            raise ScheduleError(f"{who}: {x}: it is for a GPU, and this program is one for the CPU.")
        _check_numbers(region, x, who)
    try:
        made = build_nest(region, instructions, "trial")
    except ScheduleError as error:
        raise ScheduleError(f"{who}: {error}") from None
    for x in instructions:
        _check_loops(region, made, x, who)
    for x in new:
        if not _says_nothing(x) and nest_or_none(region, tuple([y for y in instructions if y is not x])) == made.nest:
            raise ScheduleError(f"{who}: {x}: it changes nothing. Vectors run along the last axis of a stage, or the last "
                                f"loop of its reduction; what an instruction names must be a loop of its own.")


def _check_on_gpu(region: Graph, instructions: Schedule, who: str) -> None:
    for x in instructions:
        _check_numbers(region, x, who)
    if not any(isinstance(x, Threads) for x in instructions):
        raise ScheduleError(f"{who}: it has no threads, and this program is one for a GPU.")
    try:
        build_nest(region, instructions, "trial")
    except ScheduleError as error:
        raise ScheduleError(f"{who}: {error}") from None


def _check_numbers(region: Graph, x: Instruction, who: str) -> None:
    stages, numbers = len(region.nodes), dataclasses.asdict(x)
    if not 0 <= numbers.get("stage", 0) < stages:
        raise ScheduleError(f"{who}: {x}: there is no such stage; there are {stages}, numbered from 0.")
    lanes = numbers.get("lanes", 1)
    if lanes < 1 or lanes & (lanes - 1) or lanes > MOST_LANES:
        raise ScheduleError(f"{who}: {x}: lanes must be a power of two up to {MOST_LANES}.")
    if not 1 <= numbers.get("factor", 1) <= MOST_LANES:
        raise ScheduleError(f"{who}: {x}: a factor is from 1 to {MOST_LANES}.")


def loops_of(region: Graph, made: Scheduled, stage: int) -> int:
    """How many loops a stage has: its axes, then those of its reduction."""
    return region.nodes[stage].outputs[0].type.rank + len(made.folds.get(stage, ()))


def _check_loops(region: Graph, made: Scheduled, x: Instruction, who: str) -> None:
    numbers = dataclasses.asdict(x)
    if {"stage", "loop"} <= numbers.keys() and region.nodes[0].op is not scan:
        count = loops_of(region, made, numbers["stage"])
        if not 0 <= numbers["loop"] <= count - numbers.get("count", 1):
            raise ScheduleError(f"{who}: {x}: stage {numbers['stage']} has {count} loops, numbered from 0: its axes, then "
                                f"those of its reduction.")


def _says_nothing(x: Instruction) -> bool:
    """Whether the instruction may stand where it is the rule anyway."""
    return isinstance(x, Inline) or 1 in (getattr(x, "factor", 0), getattr(x, "lanes", 0))
