"""Matrix products in loops, where the library works better on other operands than those of each trip.

Guarantees: the same values, up to the order in which a product adds; what a loop keeps grows by no more than a few times
what it reads and writes already.

- A product of a row and a matrix that stays is made once for all rows, before the loop: a few large products take less time
  than many small ones. `h @ W + x @ U` over rows x leaves `h @ W` in the loop.
- A matrix that stays and is read transposed on the right, as gradients do, is transposed once before the loop: libraries
  are slow at small products of that kind.
"""
from __future__ import annotations

from loopwright.ir.dims import Extent, summed
from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.ops.contraction import dot_general
from loopwright.ir.ops.control import scan
from loopwright.ir.ops.regions import split
from loopwright.ir.ops.structural import transpose
from loopwright.kernels.gemm import match_gemm
from loopwright.lower.preparation import prepare

MOST_GROWTH = 4  # times the rows that a loop reads and writes: what products for all rows may take


def hoist(g: Graph) -> Graph:
    """g with products that the library makes moved out of its loops."""
    nodes = [m for n in g.nodes for m in (_Loop(g, n).hoisted() if n.op is scan else (n,))]
    return Graph(g.params, tuple(nodes), g.results, g.constraints) if len(nodes) > len(g.nodes) else g


class _Loop:
    """A scan that is being taken apart: nodes that come before it, operands and parameters that it gets, nodes that stay."""

    def __init__(self, g: Graph, n: Node) -> None:
        self.g, self.node = g, n
        self.body = prepare(n.regions[0], blas=True)  # products that read transposed operands themselves
        self.constants, self.carry, self.rows = split(self.body.params, n.attrs["constants"], n.attrs["carry"])
        self.outer = dict(zip(self.body.params, n.inputs, strict=True))
        self.before: list[Node] = []
        self.more_constants: dict[Value, Value] = {}  # the region's parameter: the loop's operand
        self.more_rows: dict[Value, Value] = {}
        self.turned: dict[Value, Value] = {}  # constants that are transposed already

    def hoisted(self) -> tuple[Node, ...]:
        """The nodes that do what the loop did, itself the last of them."""
        kept = [m for n in self.body.nodes if (m := self._rewritten(n)) is not None]
        if not self.before:
            return (self.node,)
        params = [*self.constants, *self.more_constants, *self.carry, *self.rows, *self.more_rows]
        operands = [self.outer[v] if v in self.outer else self.more_constants.get(v) or self.more_rows[v] for v in params]
        region = Graph(tuple(params), tuple(kept), self.body.results, self.body.constraints)
        attrs = {**self.node.attrs, "constants": len(self.constants) + len(self.more_constants)}
        loop = Node(scan, tuple(operands), attrs, self.node.outputs, (region,), self.node.source)
        return (*self.before, loop)

    def _rewritten(self, n: Node) -> Node | None:
        """n as it stays in the loop, None where it does not."""
        product = match_gemm(n)
        if product is None or n.attrs["batch"]:
            return n
        if self._for_all_rows(n):
            return None
        left, right = n.inputs
        several = left.type.rank > len(n.attrs["contract"])  # rows of the product
        return self._untransposed(n) if product.transposed[1] and several and right in self.constants else n

    def _for_all_rows(self, n: Node) -> bool:
        """Whether n now comes before the loop, for all rows; its value is a row of that."""
        (left, right), contract, v = n.inputs, n.attrs["contract"], n.outputs[0]
        if left in self.constants and right.type.rank == len(contract):  # of a matrix and a vector
            left, right, contract = right, left, tuple([(b, a) for a, b in contract])
        if left not in self.rows or right not in self.constants or not self._may_keep(v.type.size):
            return False
        whole = Value(v.type.with_shape((self.node.attrs["length"], *v.type.shape)))
        attrs = {**n.attrs, "contract": tuple([(a + 1, b) for a, b in contract])}
        made = Node(dot_general, (self.outer[left], self.outer[right]), attrs, (whole,), (), n.source)
        if match_gemm(made) is None:
            return False
        self.before.append(made)
        self.more_rows[v] = whole
        return True

    def _may_keep(self, size: Extent) -> bool:
        kept = summed(v.type.size for v in (*self.rows, *self.body.results[len(self.carry):]))
        total = summed([size, *(v.type.size for v in self.more_rows)])
        return self.g.facts.prove("<=", total, kept * MOST_GROWTH) is True

    def _untransposed(self, n: Node) -> Node:
        """n reading its right operand with the axes that it sums over in front."""
        (left, right), contract = n.inputs, n.attrs["contract"]
        summed_over = [b for _, b in contract]
        perm = (*summed_over, *(a for a in range(right.type.rank) if a not in summed_over))
        if right not in self.turned:
            t = right.type.with_shape(tuple([right.type.shape[a] for a in perm]))
            self.turned[right], outer = Value(t), Value(t)
            self.before.append(Node(transpose, (self.outer[right],), {"perm": perm}, (outer,), (), n.source))
            self.more_constants[self.turned[right]] = outer
        attrs = {**n.attrs, "contract": tuple([(a, k) for k, (a, _) in enumerate(contract)])}
        return Node(dot_general, (left, self.turned[right]), attrs, n.outputs, (), n.source)
