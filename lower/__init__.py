"""From the graph to machine code: partition, schedule, memory plan, generation, loading."""
from loopwright.lower.compile import Compiled, compile_version
from loopwright.lower.program import Program, lower_graph
from loopwright.lower.target import Target, host_target

__all__ = ["Compiled", "Program", "Target", "compile_version", "host_target", "lower_graph"]
