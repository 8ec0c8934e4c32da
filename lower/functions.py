"""One function of a program under construction: it runs partitioned graphs over buffers that it knows by pointer.

Guarantees: sizes and the places of scratch slots are worked out once, when the function starts, so that loops only add
pointers; a call that can fail is followed by a check that leaves at the first error, with the error's site moved to the
numbers of this function.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent
from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.source import Source
from loopwright.lower.control import is_control
from loopwright.lower.plan import Place, Plan, Scratch, on_stack, rounded
from loopwright.lower.runtime.sizes import Sizes
from loopwright.lower.runtime.writer import Writer

FAILED = "failed"
OUT_OF_MEMORY, INTERRUPTED = "-1", "-2"  # what the error's first number is where it is no site; see runtime.signals

Path = tuple[tuple[int, int], ...]  # from a node to one inside it: the numbers of a region and of a node in it, at each level
Pointers = Mapping[Place, str]


@dataclass(frozen=True)
class Function:
    """An internal function: `void @name(ptr inputs..., ptr outputs..., i64 sizes..., ptr %error)`, with `ptr %workspace`
    before the sizes where it is control flow. `sites`: where each of its error sites is (site 0 is unknown); it may meet
    errors without a site too. `is_small`: little enough to become part of a loop that calls it."""

    name: str
    sites: tuple[Path, ...]
    can_fail: bool
    is_small: bool


@dataclass(frozen=True)
class Callee:
    """What a node calls: a function, with these values and sizes. A function of control flow takes a workspace too."""

    function: Function
    inputs: tuple[Value, ...]
    sizes: tuple[Extent, ...]


def source_at(n: Node, path: Path) -> Source | None:
    """The user's line of the node at that path."""
    for region, k in path:
        n = n.regions[region].nodes[k]
    return n.source


class Frame:
    """The function's text: `w` writes its blocks, `head` what is worked out when it starts."""

    def __init__(self, called_by: Callable[[Node], Callee], symbols: Callable[[Writer], dict[str, str]], *,
                 inlines: bool) -> None:
        self.called_by, self.inlines = called_by, inlines
        self.w = Writer()
        self.head = self.w.prologue()
        self.sizes = Sizes(self.head, symbols(self.head))
        self.sites: list[Path] = [()]
        self.can_fail = False
        self.is_small = True
        self.w.label("start")

    # ---- memory --------------------------------------------------------------------------------
    def slots(self, needs: Sequence[Extent], base: str, offset: str = "0") -> list[str]:
        """A pointer for each slot: small ones on the stack, the others one after the other behind `base`."""
        found: list[str] = []
        for need in needs:
            if on_stack(need):
                found.append(self.stack(need))
                continue
            found.append(self.head.let(f"getelementptr i8, ptr {base}, i64 {offset}"))
            offset = self.head.let(f"add i64 {offset}, {self.sizes.extent(rounded(need))}")
        return found

    def stack(self, need: Extent) -> str:
        """Memory on the stack."""
        return self.w.slot(f"[{max(int(str(need)), 1)} x i8]", align=16 if int(str(need)) <= 16 else 64)

    def scratch(self, plan: Plan, base: str) -> dict[Place, str]:
        """The pointers of a plan's slots."""
        return {Scratch(k): at for k, at in enumerate(self.slots(plan.slots, base))}

    def copy(self, v: Value, source: str, target: str) -> None:
        """The bytes of v."""
        count = self.sizes.extent(v.type.size * v.type.dtype.itemsize)
        self.w.call("void", "llvm.memcpy.p0.p0.i64", f"ptr {target}", f"ptr {source}", f"i64 {count}", "i1 false")

    def run_in_scratch(self, g: Graph, plan: Plan, pointers: Pointers, leave: Callable[[Writer, bool], None]) -> None:
        """Run a graph in memory that is taken when the function starts and given back on every way out. `leave`
        writes the end of the function, told whether it met an error."""
        w, head, block = self.w, self.head, "null"
        if plan.bytes != 0:
            block = head.call("ptr", "lw_scratch_acquire", f"i64 {self.sizes.extent(plan.bytes)}")
            head.branch(head.let(f"icmp eq ptr {block}, null"), "full", "enough")
            head.label("full")
            head.store("i64", OUT_OF_MEMORY, "%error")
            leave(head, True)
            head.label("enough")
        self.run(g, plan, {**pointers, **self.scratch(plan, block)})
        failed = [FAILED] if self.can_fail else []
        for way in ("", *failed):
            if way:
                w.label(way)
            if block != "null":
                w.call("void", "lw_scratch_release", f"ptr {block}")
            leave(w, bool(way))
        self.can_fail = self.can_fail or block != "null"

    def text(self, header: str, quickly: bool = False) -> str:
        """`define header` with all that was written; see `Writer.body`."""
        self.head.jump("start")
        return self.w.body(header, quickly)

    # ---- calls ---------------------------------------------------------------------------------
    def run(self, g: Graph, plan: Plan, pointers: Pointers, region: int = 0) -> None:
        """The nodes of a graph in order. `region`: its number in the node that this function is."""
        for k, n in enumerate(g.nodes):
            if n.regions:
                self._call(n, (region, k), plan, pointers)

    def _call(self, n: Node, at: tuple[int, int], plan: Plan, pointers: Pointers) -> None:
        callee = self.called_by(n)
        f = callee.function
        buffers = [f"ptr {pointers[plan.places[v]]}" for v in (*callee.inputs, *n.outputs)]
        workspace = [f"ptr {pointers[plan.workspaces[n]] if n in plan.workspaces else 'null'}"] if is_control(n) else []
        sizes = [f"i64 {self.sizes.extent(x)}" for x in callee.sizes]
        inline = " alwaysinline" if self.inlines and f.is_small else ""
        self.is_small = self.is_small and f.is_small
        self.w.do(f"call void @{f.name}({', '.join((*buffers, *workspace, *sizes, 'ptr %error'))}){inline}")
        if f.can_fail:
            self._check(f, at)

    def _check(self, f: Function, at: tuple[int, int]) -> None:
        """Leave if the function met an error; its site becomes one of ours."""
        w, base = self.w, len(self.sites) - 1
        self.sites += [(at, *path) for path in f.sites[1:]]
        first = w.load("i64", "%error")
        on, bad = w.fresh("on"), w.fresh("bad")
        self.can_fail = True
        w.branch(w.let(f"icmp eq i64 {first}, 0"), on, bad if base else FAILED)
        if base:
            w.label(bad)
            known = w.let(f"icmp sgt i64 {first}, 1")
            w.store("i64", w.let(f"add i64 {first}, {w.let(f'select i1 {known}, i64 {base}, i64 0')}"), "%error")
            w.jump(FAILED)
        w.label(on)
