"""Powers of -3/2 with `fast_math`, as in forces that fall with the square of a distance, by an estimate of 1 / sqrt(x): no root
is drawn, and nothing divided (`kernels/root_cube.py`).

Guarantees: a product of f32 is made so if it holds some x to the power of exactly -3/2, by whatever products, quotients, roots
and constant powers that is written, and other factors once each; powers of one x are made once, and nothing overflows before
the result does. Numbers are multiplied with what has few elements: sums of such products, or what is repeated along rows.
"""
from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from loopwright.ir.dataclass import dataclass
from loopwright.ir.elimination import remove_dead
from loopwright.ir.graph import Graph, Node, Value, readers_of
from loopwright.ir.op import Op
from loopwright.ir.ops.arithmetic import div, mul
from loopwright.ir.ops.broadcasting import broadcast, reduce_sum
from loopwright.ir.ops.construct import full, scalar
from loopwright.ir.ops.structural import reshape, transpose
from loopwright.ir.ops.transcendental import power, sqrt
from loopwright.ir.types import F32
from loopwright.kernels.root_cube import root_cube

WANTED = Fraction(-3, 2)
LINEAR = (mul, broadcast, reshape, transpose)
DEEPEST = 4  # of these, one after the other, up to a sum
MOST = 4  # factors of a product that is looked at
Powers = Mapping[Value, Fraction]


@dataclass(frozen=True)
class _Product:
    """A number times values to some powers."""

    number: float
    powers: Powers

    def times(self, other: _Product, sign: int) -> _Product | None:
        """The product with the other one to the power of 1 or -1; None where that is of too many values."""
        if sign < 0 and other.number == 0:
            return None
        number = self.number * other.number if sign > 0 else self.number / other.number
        powers = dict(self.powers)
        for v, n in other.powers.items():
            powers[v] = powers.get(v, Fraction(0)) + sign * n
        kept = {v: n for v, n in powers.items() if n}
        return _Product(number, kept) if len(kept) <= MOST else None


def with_root_cubes(g: Graph) -> Graph:
    """g with such products made by estimates."""
    made = _Rewriting(g)
    nodes = [new for n in g.nodes for new in made.node(n)]
    return remove_dead(Graph(g.params, tuple(nodes), g.results, g.constraints)) if made.cubes else g


class _Rewriting:
    """What the values before a node are products of; the powers that were made; and values that are a number times others, of
    which there are sums alone: these are made of the others."""

    def __init__(self, g: Graph) -> None:
        self.products: dict[Value, _Product] = {}
        self.repeated: set[Value] = set()
        self.cubes: dict[Value, Value] = {}
        self.readers, self.results = readers_of(g), {*g.results}
        self.scaled: dict[Value, tuple[float, Value]] = {}

    def node(self, n: Node) -> list[Node]:
        """The node, or what makes its value."""
        if n.op is broadcast:
            self.repeated.add(n.outputs[0])
        scaled = next((v for v in n.inputs if v in self.scaled), None)
        if scaled is not None:
            return self._of_scaled(n, scaled)
        found = self._product(n) if n.outputs and n.outputs[0].type.dtype == F32 else None
        if found is None:
            return [n]
        x = next((v for v, by in found.powers.items() if by == WANTED), None)
        others = [v for v in found.powers if v is not x]
        if x is None or any(found.powers[v] != 1 for v in others):
            self.products[n.outputs[0]] = found
            return [n]
        return self._made(n, x, others, 1.5 * found.number)

    def _product(self, n: Node) -> _Product | None:
        """What the node is, as far as it is a product; None of other nodes."""
        if n.op is full:
            return _Product(float(n.attrs["value"]), {})
        if n.op is mul or n.op is div:
            a, b = map(self._of, n.inputs)
            return a.times(b, 1 if n.op is mul else -1)
        if n.op is sqrt:
            return _Product(1.0, {n.inputs[0]: Fraction(1, 2)})
        if n.op is power and not self._of(n.inputs[1]).powers:
            return self._to_the_power(n.inputs[0], self._of(n.inputs[1]).number)
        return None

    def _to_the_power(self, x: Value, by: float) -> _Product | None:
        """Halves of odd numbers only of what is written: the root of x^2 is not x."""
        if 2 * by in (-3, -1, 1, 3):
            return _Product(1.0, {x: Fraction(by)})
        made: _Product | None = _Product(1.0, {})
        for _ in range(int(by) if by in (1, 2, 3) else 0):
            made = made and made.times(self._of(x), 1)
        return made if by in (1, 2, 3) else None

    def _of(self, v: Value) -> _Product:
        return self.products.get(v) or _Product(1.0, {v: Fraction(1)})

    def _made(self, n: Node, x: Value, others: list[Value], number: float) -> list[Node]:
        """The nodes that make number times others times what stands for the power."""
        made, like = list[Node](), n.outputs[0]
        if x not in self.cubes:
            self.cubes[x] = _add(made, n, root_cube, x)
        factors = [*sorted(others, key=lambda v: v not in self.repeated), self.cubes[x]]
        is_summed = self._is_summed(like, DEEPEST)
        if not is_summed:
            factors[0] = _times(made, n, factors[0], number)
        total = factors[0]
        for v in factors[1:]:
            total = _add(made, n, mul, total, v)
        if is_summed:
            self.scaled[like] = number, total
            _times(made, n, total, number)
        return _ending(made, n)

    def _is_summed(self, v: Value, deepest: int) -> bool:
        """Whether there are only sums of a value, or of products with it."""
        readers = self.readers.get(v, [])
        linear = [r.outputs[0] for r in readers if r.op in LINEAR]
        sums = [r for r in readers if r.op is reduce_sum]
        return v not in self.results and 0 < len(readers) == len(linear) + len(sums) \
            and (not linear or deepest > 0) and all(self._is_summed(x, deepest - 1) for x in linear)

    def _of_scaled(self, n: Node, v: Value) -> list[Node]:
        """A node that reads a number times another value: the same of the other, and for its sum the number after it."""
        number, other = self.scaled[v]
        made, inputs = list[Node](), list(n.inputs)
        inputs[inputs.index(v)] = other
        out = Value(n.outputs[0].type)
        new = Node(n.op, tuple(inputs), n.attrs, (out,), (), n.source)
        if n.op is reduce_sum:
            made.append(new)
            _times(made, n, out, number)
            return _ending(made, n)
        self.scaled[n.outputs[0]] = number, out
        return [new, n]


def _add(made: list[Node], n: Node, op: Op, *inputs: Value, **attrs: Any) -> Value:
    """The value of another node in the place of n."""
    out = Value(n.outputs[0].type)
    made.append(Node(op, inputs, attrs, (out,), (), n.source))
    return out


def _times(made: list[Node], n: Node, v: Value, number: float) -> Value:
    return _add(made, n, mul, v, _add(made, n, full, value=scalar(number, F32), shape=v.type.shape, dtype=F32))


def _ending(made: list[Node], n: Node) -> list[Node]:
    """The nodes, of which the last one makes what n did."""
    *before, last = made
    return [*before, Node(last.op, last.inputs, last.attrs, n.outputs, (), n.source)]
