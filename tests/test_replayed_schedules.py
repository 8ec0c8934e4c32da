"""Schedules are all there is: programs of benchmarks and examples are made again from their schedules as JSON, to the byte."""
import inspect
import runpy
import sys
from pathlib import Path

import pytest

import loopwright as lw
from benchmarks import contest, harness, maths, starting, workloads
from loopwright.ir.graph import Graph, Node
from loopwright.ir.schedule import from_json, to_json
from loopwright.lower import compile
from loopwright.lower.program import lower_kernels
from tests.scale import SCALE

EXAMPLES = Path(__file__).parent.parent / "examples"
ELSEWHERE = {f.__name__ for f in starting.WORKLOADS}  # they time fresh interpreters
LONG = {"pendulum", "digits", "compile_layers", "digits_step", "residual"}  # deep runs replay them


def replayed(g: Graph) -> Graph:
    """A partitioned graph with every schedule read back from its text."""
    nodes = []
    for n in g.nodes:
        attrs = dict(n.attrs)
        if "schedule" in attrs:
            attrs["schedule"] = from_json(to_json(attrs["schedule"]))
            regions = n.regions
        else:
            regions = tuple(replayed(r) for r in n.regions)
        nodes.append(Node(n.op, n.inputs, attrs, n.outputs, regions, n.source))
    return Graph(g.params, tuple(nodes), g.results, g.constraints)


class Lowered(Exception):
    """A program is made and checked; its machine code is not asked for."""


class Programs(list):
    """The programs that were made, each checked, and whether they are compiled then."""
    are_compiled = True


@pytest.fixture
def programs(monkeypatch, tmp_path):
    monkeypatch.setenv("LOOPWRIGHT_CACHE_DIR", str(tmp_path))
    lower_graph, found = compile.lower_graph, Programs()

    def checked(g, target, **options):
        made = lower_graph(g, target, **options)
        again = lower_kernels(replayed(made.kernels), target, g.free_symbols, fast_math=options["fast_math"], apart=True)
        assert again.text == made.text and again.later(again.apart) == made.later(made.apart)
        found.append(made)
        if not found.are_compiled:
            raise Lowered
        return made
    monkeypatch.setattr(compile, "lower_graph", checked)
    return found


def now(names):
    """Those for a run of this scale."""
    return sorted(name for name in names if SCALE > 1 or name not in LONG)


@pytest.mark.parametrize("name", now(set(workloads.WORKLOADS) - ELSEWHERE))
def test_a_workload_is_its_schedules(name, programs, monkeypatch):
    def only_lowered(workload, args, ours, *, jit=lw.jit, **peers):
        """In the place of a contest."""
        programs.are_compiled = False
        with pytest.raises(Lowered):
            jit(ours)(*args)
        programs.are_compiled = True
        return []
    module = sys.modules[workloads.WORKLOADS[name].__module__]
    for place in (module, contest):
        for old, new in (("contest", only_lowered), ("optional", lambda name: None)):
            if inspect.isfunction(getattr(place, old, None)):
                monkeypatch.setattr(place, old, new)
    monkeypatch.setattr(harness, "QUICK", True)
    monkeypatch.setattr(maths, "FUNCTIONS", maths.FUNCTIONS if SCALE > 1 else maths.FUNCTIONS[::8])
    workloads.WORKLOADS[name]()
    assert programs


@pytest.mark.parametrize("name", now(path.stem for path in EXAMPLES.glob("*.py")))
def test_an_example_is_its_schedules(name, programs, monkeypatch):
    if name == "digits":
        pytest.importorskip("sklearn", reason="the example reads its pictures")
    monkeypatch.setattr(sys, "argv", [name])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert programs
