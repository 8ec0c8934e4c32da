"""Before the partition: give library calls the axis orders that they take, and let contractions read transposed operands;
convolutions become such contractions where the library multiplies, and scatters of lone updates maps; what is computed of
divided arrays is computed of whole ones (`undivided.py`), and reshapes go below maps (`sinking.py`).

Guarantees: the same values; sorts run along the last axis; running folds are made at the dtype they accumulate in; a
contraction reads through a transpose wherever its result keeps its axis order, and gives its result transposed by
exchanging its operands, so that the transposes are dead if nothing else reads them; terms of sums over several axes lie
together; contractions whose operands have no axes to themselves are maps and sums.
"""
from __future__ import annotations

from collections import Counter

from loopwright.ir.elimination import remove_dead
from loopwright.ir.graph import Graph, Node, Value
from loopwright.ir.ops.arithmetic import mul
from loopwright.ir.ops.broadcasting import reduce_sum
from loopwright.ir.ops.contraction import dot_general, product_dtype
from loopwright.ir.ops.indexing import scatter, scatter_add
from loopwright.ir.ops.reductions import accumulator, cumprod, cumsum
from loopwright.ir.ops.selection import convert
from loopwright.ir.ops.sorting import argsort, sort
from loopwright.ir.ops.structural import reshape, transpose
from loopwright.ir.types import BOOL, F32, ArrayType
from loopwright.kernels.gemm import Match, match_gemm
from loopwright.lower.convolution import (
    as_products,
    by_one_window,
    by_overlapping,
    by_repeated_features,
    by_spreading,
    is_one_window,
    is_pointwise,
    is_product,
    is_spread,
    lies_apart,
    repeats_features,
)
from loopwright.lower.convolution_ops import (
    by_feature,
    by_groups,
    by_rows,
    goes_in_blocks,
    has_one_feature,
    in_blocks,
    is_of_rows,
)
from loopwright.lower.groupwise import is_groupwise
from loopwright.lower.kernel_slopes import as_kernel_slope, is_kernel_slope
from loopwright.lower.lone_updates import as_map
from loopwright.lower.sinking import sink
from loopwright.lower.stacks import is_of_stack, of_each
from loopwright.lower.undivided import undivided


def prepare(g: Graph, blas: bool, match: Match = match_gemm) -> Graph:
    """g with the rules of this module applied, in one walk; `blas` says whether matrix products may call the library, `match`
    which of them it makes."""
    producer: dict[Value, Node] = {}
    nodes: list[Node] = []
    same: dict[Value, Value] = {}
    reads = Counter(v for n in g.nodes for v in n.inputs) + Counter(g.results)
    for n in (m for given in g.nodes for m in (_as_numbers(given) if blas else [given])):
        new = [n]
        if n.op in (sort, argsort):
            new = _sort_last(n)
        elif n.op in (cumsum, cumprod) and accumulator(n.outputs[0].type.dtype) != n.outputs[0].type.dtype:
            new = _run_wide(n)
        elif is_of_stack(n, producer):
            new = of_each(n, producer)
        elif is_pointwise(n):
            new = as_products(n)
        elif is_spread(n):
            new = by_spreading(n)
        elif is_one_window(n):
            new = by_one_window(n)
        elif blas and match is match_gemm and is_kernel_slope(n):
            new = as_kernel_slope(n)
        elif blas and lies_apart(n):
            new = by_overlapping(n)
        elif goes_in_blocks(n):
            new = in_blocks(n)
        elif blas and match is match_gemm and is_of_rows(n):
            new = by_rows(n)
        elif blas and match is match_gemm and is_groupwise(n):
            new = by_groups(n)
        elif repeats_features(n):
            new = by_repeated_features(n)
        elif blas and is_product(n):
            new = as_products(n)
        elif has_one_feature(n):
            new = by_feature(n)
        elif n.op in (scatter, scatter_add):
            new = [as_map(n, producer.get(n.inputs[0]), g.facts)]
        elif n.op is dot_general:
            n = n if (by_elements := _by_elements(n)) else _read_through(n, producer, blas, match)
            new = by_elements or (_terms_together(n) if blas and match is match_gemm else []) or _sum_wide(n)
        elif n.op is transpose and reads[n.inputs[0]] == 1:
            new = _exchange(n, producer.get(n.inputs[0]), blas and match is match_gemm)
        for m in new:
            if m.op is reshape and (source := _reshaped_back(m, producer)) is not None:
                same[m.outputs[0]] = source
            producer.update((v, m) for v in m.outputs)
        nodes += [Node(m.op, tuple([same.get(v, v) for v in m.inputs]), m.attrs, m.outputs, m.regions, m.source) for m in new]
    results = tuple([same.get(v, v) for v in g.results])
    return sink(undivided(remove_dead(Graph(g.params, tuple(nodes), results, g.constraints))))


def _as_numbers(n: Node) -> list[Node]:
    """A product of matrices of truths as one of numbers, which the library makes: it is true where their sum is not zero."""
    if n.op is not dot_general or n.outputs[0].type.dtype != BOOL:
        return [n]
    made, operands, a = n.outputs[0], n.inputs, n.attrs
    if not a["contract"] or any(v.type.rank <= len(a["contract"]) + len(a["batch"]) for v in operands):
        return [n]
    *wide, total = (Value(ArrayType(v.type.shape, F32)) for v in (*operands, made))
    numbers = [Node(convert, (v,), {"dtype": F32, "weak": False}, (x,), (), n.source)
               for v, x in zip(operands, wide, strict=True)]
    return [*numbers, Node(dot_general, tuple(wide), {**a, "dtype": None}, (total,), (), n.source),
            Node(convert, (total,), {"dtype": BOOL, "weak": False}, (made,), (), n.source)]


def _reshaped_back(n: Node, producer: dict[Value, Node]) -> Value | None:
    """What a reshape gives the shape back that it had before another reshape."""
    before = producer.get(n.inputs[0])
    if before is None or before.op is not reshape or before.inputs[0].type != n.outputs[0].type:
        return None
    return before.inputs[0]


def _sort_last(n: Node) -> list[Node]:
    """sort(x, axis) = swap(sort(swap(x), last)), swap exchanging axis and last."""
    axis, last = n.attrs["axis"], n.inputs[0].type.rank - 1
    if axis == last:
        return [n]
    perm = tuple(last if a == axis else axis if a == last else a for a in range(last + 1))
    x, y = n.inputs[0], n.outputs[0]
    shape = tuple(x.type.shape[a] for a in perm)
    swapped, ordered = Value(x.type.with_shape(shape)), Value(y.type.with_shape(shape))
    return [Node(transpose, (x,), {"perm": perm}, (swapped,), (), n.source),
            Node(n.op, (swapped,), {**n.attrs, "axis": last}, (ordered,), (), n.source),
            Node(transpose, (ordered,), {"perm": perm}, (y,), (), n.source)]


def _run_wide(n: Node) -> list[Node]:
    """A running fold of f16 is one of f32 between conversions: each is then a stage that can be scheduled."""
    x, y = n.inputs[0], n.outputs[0]
    dtype = accumulator(x.type.dtype)
    wide, folded = Value(ArrayType(x.type.shape, dtype)), Value(ArrayType(y.type.shape, dtype))
    return [Node(convert, (x,), {"dtype": dtype}, (wide,), (), n.source),
            Node(n.op, (wide,), n.attrs, (folded,), (), n.source),
            Node(convert, (folded,), {"dtype": y.type.dtype}, (y,), (), n.source)]


def _by_elements(n: Node) -> list[Node]:
    """A product of which neither operand has an axis to itself (`einsum("bi,bi->b")`, two vectors) is a sum of products of
    elements, which fuses with what is around it. Not where sums are wider than their terms."""
    (x, y), batch, contract, dtype = n.inputs, n.attrs["batch"], n.attrs["contract"], n.outputs[0].type.dtype
    pairs = (*batch, *contract)
    alike = x.type.dtype == dtype == product_dtype(dtype) != BOOL
    if not alike or {x.type.rank, y.type.rank} != {len(pairs)}:
        return []
    before, factors = [], []
    for side, v in enumerate((x, y)):
        perm = tuple([pair[side] for pair in pairs])
        if perm != tuple(range(v.type.rank)):
            factor = Value(v.type.with_shape(tuple([v.type.shape[a] for a in perm])))
            before.append(Node(transpose, (v,), {"perm": perm}, (factor,), (), n.source))
            v = factor
        factors.append(v)
    if not contract:
        return [*before, Node(mul, tuple(factors), {}, n.outputs, (), n.source)]
    made = Value(factors[0].type)
    return [*before, Node(mul, tuple(factors), {}, (made,), (), n.source),
            Node(reduce_sum, (made,), {"axes": tuple(range(len(batch), len(pairs)))}, n.outputs, (), n.source)]


def _terms_together(n: Node) -> list[Node]:
    """A contraction whose terms lie between other axes, or apart (one matrix times each of a batch, `einsum("nir,njr->ij")`),
    as a product of matrices: the terms are the last axes. Blocks would keep copies that are larger than the operands."""
    pairs, count = len(n.attrs["batch"]), len(n.attrs["contract"])
    if not count or match_gemm(n) or n.attrs["batch"] != tuple((a, a) for a in range(pairs)):
        return []
    before, inputs, contract = list[Node](), list[Value](), list[tuple[int, ...]]()
    for side, v in enumerate(n.inputs):
        terms = tuple([p[side] for p in n.attrs["contract"]])
        first, last = range(pairs, pairs + count), range(v.type.rank - count, v.type.rank)
        if terms not in (tuple(first), tuple(last)):
            perm = (*(a for a in range(v.type.rank) if a not in terms), *terms)
            moved = Value(v.type.with_shape(tuple([v.type.shape[a] for a in perm])))
            before.append(Node(transpose, (v,), {"perm": perm}, (moved,), (), n.source))
            v, terms = moved, tuple(last)
        inputs.append(v)
        contract.append(terms)
    attrs = {**n.attrs, "contract": tuple(zip(*contract, strict=True))}
    made = Node(n.op, tuple(inputs), attrs, n.outputs, n.regions, n.source)
    return [*before, made] if match_gemm(made) else []


def _sum_wide(n: Node) -> list[Node]:
    """A product of half floats is one of f32 that is then converted, one of small integers one of i32: a stage of its own."""
    dtype = product_dtype(n.outputs[0].type.dtype)
    if dtype == n.outputs[0].type.dtype:
        return [n]
    made = Value(ArrayType(n.outputs[0].type.shape, dtype))
    return [Node(dot_general, n.inputs, {**n.attrs, "dtype": dtype}, (made,), (), n.source),
            Node(convert, (made,), {"dtype": n.outputs[0].type.dtype}, n.outputs, (), n.source)]


def _exchange(n: Node, product: Node | None, blas: bool) -> list[Node]:
    """transpose(dot_general(x, y)) is dot_general(y, x) if it does nothing but exchange x's free axes with y's. If x's
    is put between y's, that is done afterwards: blocks of y's first axis go through both."""
    if product is None or product.op is not dot_general:
        return [n]
    pairs = len(product.attrs["batch"])
    left = product.inputs[0].type.rank - pairs - len(product.attrs["contract"])
    rank, perm = n.outputs[0].type.rank, n.attrs["perm"]
    flipped = {name: tuple((b, a) for a, b in product.attrs[name]) for name in ("batch", "contract")}
    exchanged = (*range(pairs), *range(pairs + left, rank), *range(pairs, pairs + left))
    if perm == exchanged:
        return [Node(dot_general, product.inputs[::-1], {**product.attrs, **flipped}, n.outputs, (), n.source)]
    place = perm.index(0)
    if not blas or left != 1 or pairs or place == 0 or perm != (*range(1, place + 1), 0, *range(place + 1, rank)):
        return [n]
    made = Value(n.outputs[0].type.with_shape(tuple([product.outputs[0].type.shape[a] for a in exchanged])))
    put = (*range(place), rank - 1, *range(place, rank - 1))
    return [Node(dot_general, product.inputs[::-1], {**product.attrs, **flipped}, (made,), (), product.source),
            Node(transpose, (made,), {"perm": put}, n.outputs, (), n.source)]


def _read_through(n: Node, producer: dict[Value, Node], blas: bool, match: Match) -> Node:
    """dot_general(transpose(x), y) is dot_general(x, y) with x's axes renumbered, if its free axes keep their order: unless
    the library could then no longer multiply."""
    inputs, pairs = list(n.inputs), [list(n.attrs["batch"]), list(n.attrs["contract"])]
    for side in (0, 1):
        source = producer.get(inputs[side])
        if source is None or source.op is not transpose:
            continue
        perm = source.attrs["perm"]
        paired = {p[side] for group in pairs for p in group}
        free = [perm[a] for a in range(len(perm)) if a not in paired]
        if free != sorted(free):
            continue
        inputs[side] = source.inputs[0]
        pairs = [[(perm[p[0]], p[1]) if side == 0 else (p[0], perm[p[1]]) for p in group] for group in pairs]
    attrs = {**n.attrs, "batch": tuple(pairs[0]), "contract": tuple(pairs[1])}
    through = Node(n.op, tuple(inputs), attrs, n.outputs, n.regions, n.source)
    return n if blas and match(n) and not match(through) else through
