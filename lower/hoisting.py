"""Matrix products in loops, where the library works better on other operands than those of each trip.

Guarantees: the same values, up to the order in which a product adds; what a loop keeps grows by no more than a few times
what it reads and writes already.

- A product of a row and a matrix that stays is made once for all rows, before the loop: a few large products take less time
  than many small ones. `h @ W + x @ U` over rows x leaves `h @ W` in the loop.
- A matrix that stays and is read transposed on the right, as gradients do, is transposed once before the loop: libraries
  are slow at small products of that kind.
- A sum of products, to which each trip adds one and which nothing reads before the end, as gradients of weights are, is one
  product of all trips' operands, after the loop. So are sums over what these products read, as gradients of biases are: rows of
  the loop need not meet for them.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from loopwright.ir.dims import Extent, summed
from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.ops.arithmetic import add
from loopwright.ir.ops.broadcasting import reduce_sum
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
    """A scan that is being taken apart: nodes that come before and after it, operands and parameters that it gets, results that
    it gives, nodes that stay."""

    def __init__(self, g: Graph, n: Node) -> None:
        self.g, self.node = g, n
        self.body = prepare(n.regions[0], blas=True)  # products that read transposed operands themselves
        self.constants, self.carry, self.rows = split(self.body.params, n.attrs["constants"], n.attrs["carry"])
        self.outer = dict(zip(self.body.params, n.inputs, strict=True))
        self.before: list[Node] = []
        self.after: list[Node] = []
        self.more_constants: dict[Value, Value] = {}  # the region's parameter: the loop's operand
        self.more_rows: dict[Value, Value] = {}
        self.made = dict(zip(self.body.results[len(self.carry):], n.outputs[len(self.carry):], strict=True))  # rows
        self.more_made: dict[Value, Value] = {}
        self.sums: set[Value] = set()  # carries that are made after the loop
        self.turned: dict[Value, Value] = {}  # constants that are transposed already

    def hoisted(self) -> tuple[Node, ...]:
        """The nodes that do what the loop did."""
        kept = [m for n in self.body.nodes if (m := self._rewritten(n)) is not None]
        kept = self._without_sums(kept)
        if not self.before and not self.after:
            return (self.node,)
        count = len(self.carry)
        stay = [k for k, v in enumerate(self.carry) if v not in self.sums]
        params = [*self.constants, *self.more_constants, *(self.carry[k] for k in stay), *self.rows, *self.more_rows]
        operands = [self.outer[v] if v in self.outer else self.more_constants.get(v) or self.more_rows[v] for v in params]
        results = [*(self.body.results[k] for k in stay), *self.body.results[count:], *self.more_made]
        outputs = [*(self.node.outputs[k] for k in stay), *self.node.outputs[count:], *self.more_made.values()]
        region = Graph(tuple(params), tuple(kept), tuple(results), self.body.constraints)
        attrs = {**self.node.attrs, "constants": len(self.constants) + len(self.more_constants), "carry": len(stay)}
        loop = Node(scan, tuple(operands), attrs, tuple(outputs), (region,), self.node.source)
        return (*self.before, loop, *self.after)

    # ---- sums of all trips --------------------------------------------------------------------------
    def _without_sums(self, kept: Sequence[Node]) -> list[Node]:
        """The nodes but those whose products, and sums of what these read, are now added up after the loop."""
        results = self.body.results[:len(self.carry)]
        read = Counter(v for n in kept for v in n.inputs) + Counter(self.body.results)
        producer = {v: n for n in kept for v in n.outputs}
        adding = {k: producer[v] for k, (before, v) in enumerate(zip(self.carry, results, strict=True))
                  if v in producer and producer[v].op is add and read[v] == 1 and read[before] == 1
                  and before in producer[v].inputs}
        gone = set[Node]()
        for made in (self._product_of_all_trips, self._sum_of_all_trips):
            for k, last in adding.items():
                term = last.inputs[1 - last.inputs.index(self.carry[k])]
                first = producer.get(term)
                if first is None or read[term] != 1 or last in gone:
                    continue
                total = made(first)
                if total is not None:
                    v, initial = self.node.outputs[k], self.outer[self.carry[k]]
                    self.after += [total, Node(add, (initial, total.outputs[0]), last.attrs, (v,), (), last.source)]
                    self.sums.add(self.carry[k])
                    gone |= {last, first}
        return [n for n in kept if n not in gone]

    def _product_of_all_trips(self, n: Node) -> Node | None:
        """The sum of the products that n makes, as one product."""
        if match_gemm(n) is None or n.attrs["batch"]:
            return None
        wholes = [self._of_all_trips(v) for v in n.inputs]
        new = {v: x for v, x in zip(n.inputs, wholes, strict=True) if x is not None and not self._is_there(v)}
        if any(x is None for x in wholes) or (new and not self._may_keep(summed(v.type.size for v in new))):
            return None
        attrs = {**n.attrs, "contract": ((0, 0), *((a + 1, b + 1) for a, b in n.attrs["contract"]))}
        made = Node(dot_general, tuple([x for x in wholes if x is not None]), attrs, (Value(n.outputs[0].type),), (), n.source)
        if match_gemm(made) is None:
            return None
        self.more_made |= new
        return made

    def _sum_of_all_trips(self, n: Node) -> Node | None:
        """The sum of the sums that n makes of what is there for all trips, as one sum: of a loop that lost a product."""
        whole = self._of_all_trips(n.inputs[0]) if n.op is reduce_sum and self.after and self._is_there(n.inputs[0]) else None
        if whole is None:
            return None
        return Node(reduce_sum, (whole,), {**n.attrs, "axes": (0, *(a + 1 for a in n.attrs["axes"]))},
                    (Value(n.outputs[0].type),), (), n.source)

    def _is_there(self, v: Value) -> bool:
        return v in self.rows or v in self.more_rows or v in self.made or v in self.more_made

    def _of_all_trips(self, v: Value) -> Value | None:
        """What a value is in all trips, which the loop may have to give; None for what stays."""
        if v in self.constants or v in self.more_constants:
            return None
        known = self.outer if v in self.rows else next((x for x in (self.more_rows, self.made, self.more_made) if v in x), None)
        return Value(v.type.with_shape((self.node.attrs["length"], *v.type.shape))) if known is None else known[v]

    # ---- products -----------------------------------------------------------------------------------
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
        kept = summed(v.type.size for v in (*self.rows, *self.made))
        total = summed([size, *(v.type.size for v in (*self.more_rows, *self.more_made))])
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
