"""Kernels that call hand-written or library code, with the loops around them: matrix products, sorts, running products
of complex numbers, Fourier transforms, linear algebra, Python
functions, kernels that users bring, checks."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import Extent, minimum, product
from loopwright.ir.errors import DTypeError
from loopwright.ir.graph import Node
from loopwright.ir.op import Op
from loopwright.ir.ops import linalg
from loopwright.ir.ops.callbacks import debug_callback, pure_callback, whole_type
from loopwright.ir.ops.checks import FAILED_AXIS, check
from loopwright.ir.ops.contraction import dot_general
from loopwright.ir.types import DTYPES, SHORT
from loopwright.kernels.gemm import match_apart, match_gemm
from loopwright.kernels.networks import MOST
from loopwright.kernels.ranking import scratch_elements
from loopwright.kernels.selecting import scratch_bytes
from loopwright.lower import few_features as features
from loopwright.lower import groupwise as groups
from loopwright.lower import kernel_slopes as slopes
from loopwright.lower import overlaps
from loopwright.lower.convolution_ops import depthwise, few_channels, few_features, groupwise, winograd
from loopwright.lower.fourier import layouts, transform, transform_block
from loopwright.lower.natives import native, native_text
from loopwright.lower.panels import panel_product, panels
from loopwright.lower.products import running_product_text
from loopwright.lower.runtime import blas, lapack
from loopwright.lower.runtime.callbacks import symbol_of
from loopwright.lower.runtime.sizes import Sizes
from loopwright.lower.runtime.writer import Writer
from loopwright.lower.target import Target

SORTED, ABREAST = 64, 12  # units of work for an element of a row that is sorted, of a short one beside others


def library_text(n: Node, name: str, target: Target) -> tuple[str, tuple[str, ...]]:
    """`define void @name(ptr buffers..., i64 symbols..., ptr %error)`, and the shared text that it needs."""
    w = Writer()
    region = n.regions[0]
    sizes = Sizes(w, {s: f"%n{k}" for k, s in enumerate(region.symbols)})
    implementation = n.attrs["implementation"]
    emit = partial(native_text, target) if implementation == native.name else _IMPLEMENTATIONS[implementation]
    once, known = (region.nodes[0], region.params) if "code" not in n.attrs else (_in_order(n), n.inputs)
    shared = emit(w, sizes, once, [f"%p{known.index(v)}" for v in once.inputs])
    w.do("ret void")
    parameters = [*(f"ptr %p{k}" for k in range(len(region.params))), *_outputs(n),
                  *(f"i64 %n{k}" for k in range(len(region.symbols))), "ptr %error"]
    return w.body(f"void @{name}({', '.join(parameters)})", quickly=True), (*shared, *w.declarations)


def _in_order(n: Node) -> Node:
    """A kernel that is code for its whole region, with its operands as the code takes them."""
    operands = n.attrs.get("operands", range(len(n.inputs)))
    return Node(n.op, tuple([n.inputs[k] for k in operands]), n.attrs, n.outputs, n.regions, n.source)


def _outputs(n: Node) -> list[str]:
    return [f"ptr %out{k or ''}" for k in range(len(n.outputs))]


def _gemm(w: Writer, sizes: Sizes, node: Node, inputs: list[str]) -> tuple[str, ...]:
    """One call for all matrices of the batch."""
    gemm = match_gemm(node) or match_apart(node)
    assert gemm is not None
    numbers = [f"i64 {sizes.extent(x)}" for x in (gemm.batch, gemm.m, gemm.n, gemm.k)]
    form, kind = "".join("nt"[transposed] for transposed in gemm.transposed), gemm.kind
    if kind == "many":
        form = form[0]
    further: list[Extent] = []
    if (apart := gemm.apart) is not None:
        kind, further = "apart", [*apart.lines, *apart.outer, *apart.inner, apart.count]
    w.call("void", f"lw_{kind}_{gemm.suffix}_{form}", *numbers, *(f"ptr {x}" for x in (*inputs, "%out")),
           *(f"i64 {sizes.extent(x)}" for x in further))
    return ()


def _convolution(numbers: Callable[[Node], Sequence[Extent]], w: Writer, sizes: Sizes, node: Node, inputs: list[str],
                 name: str = "") -> tuple[str, ...]:
    """One call for all images; name: of the code, unless it is that of the op."""
    given = [*(f"i64 {sizes.extent(x)}" for x in numbers(node)), *(f"ptr {x}" for x in (*inputs, "%out", "%error"))]
    w.call("void", f"lw_{name or node.op.name}_{SHORT[node.outputs[0].type.dtype]}", *given)
    return ()


def _panels(w: Writer, sizes: Sizes, node: Node, inputs: list[str]) -> tuple[str, ...]:
    """One call copies the matrix."""
    shape, summed = node.inputs[0].type.shape, node.attrs["summed"]
    numbers = [f"i64 {sizes.extent(product(x))}" for x in (shape[summed:], shape[:summed])]
    rows = [] if (count := node.attrs["rows"]) is None else [f"i64 {sizes.extent(count)}"]
    w.call("void", f"lw_panels_{SHORT[node.outputs[0].type.dtype]}", *numbers, *(f"ptr {x}" for x in (*inputs, "%out")), *rows)
    return ()


def _panel_product(w: Writer, sizes: Sizes, node: Node, inputs: list[str]) -> tuple[str, ...]:
    """One call, with the right side and its copy."""
    gemm = match_gemm(Node(dot_general, node.inputs[:2], node.attrs, node.outputs))
    assert gemm is not None
    numbers = [f"i64 {sizes.extent(x)}" for x in (gemm.m, gemm.n, gemm.k)]
    side = "nt"[gemm.transposed[0]]
    w.call("void", f"lw_panel_product_{gemm.suffix}_{side}", *numbers, *(f"ptr {x}" for x in (*inputs, "%out")))
    return ()


def _each(w: Writer, sizes: Sizes, count: Extent, bases: list[str], steps: list[str], one: Callable[[list[str]], None]) -> None:
    """Call `one` with the pointers of each of `count` pieces; piece j of a base is j * step bytes after it."""
    if count == 1:
        one(bases)
    else:
        _between(w, ("0", sizes.extent(count)), bases, steps, one)


def _between(w: Writer, span: tuple[str, str], bases: list[str], steps: list[str], one: Callable[[list[str]], None]) -> None:
    """The same for the pieces of a span."""
    (low, high), i, following = span, f"%{w.fresh('i')}", f"%{w.fresh('next')}"
    again, done = w.fresh("again"), w.fresh("done")
    before = w.fresh("before")
    w.jump(before)
    w.label(before)
    w.branch(w.let(f"icmp sgt i64 {high}, {low}"), again, done)
    w.label(again)
    w.do(f"{i} = phi i64 [ {low}, %{before} ], [ {following}, %{again} ]")
    offsets = [w.let(f"mul i64 {i}, {step}") for step in steps]
    one([w.let(f"getelementptr i8, ptr {base}, i64 {offset}") for base, offset in zip(bases, offsets, strict=True)])
    w.do(f"{following} = add i64 {i}, 1")
    w.branch(w.let(f"icmp slt i64 {following}, {high}"), again, done)
    w.label(done)


@dataclass(frozen=True)
class Rows:
    """Rows that threads share out: arrays, with the bytes of a row of each; a row in numbers; the bytes of scratch that a
    thread needs; the units of work of a row."""

    count: Extent
    arrays: tuple[tuple[str, Extent], ...]
    numbers: tuple[Extent, ...]
    scratch: Extent
    work: Extent


def _share_out(w: Writer, sizes: Sizes, name: str, rows: Rows, function: str) -> tuple[str, ...]:
    """A loop of the pool over rows, and the text of its body, the same for all kernels of a name: a call with the pointers of
    the first of some rows, the scratch memory, how many they are, and the numbers."""
    given = [*(("ptr", base) for base, _ in rows.arrays), ("ptr", "%error"),
             *(("i64", sizes.extent(x)) for x in (*(step for _, step in rows.arrays), *rows.numbers, rows.scratch))]
    block = w.slot(f"[{len(given)} x i64]")
    for k, (kind, x) in enumerate(given):
        w.store(kind, x, block, 8 * k)
    count, each = sizes.extent(rows.count), sizes.extent(rows.work)
    w.call("void", "lw_loop", f"ptr @{name}", f"ptr {block}", f"i64 {count}", f"i64 {each}", "i64 1", "i64 1")
    body = Writer()
    found = [body.load(kind, "%context", 8 * k) for k, (kind, _) in enumerate(given)]
    m = len(rows.arrays)
    bases, error, steps, numbers = found[:m], found[m], found[m + 1:2 * m + 1], found[2 * m + 1:-1]
    temp = body.call("ptr", "lw_scratch_acquire", f"i64 {found[-1]}")
    full, run = body.fresh("full"), body.fresh("run")
    body.branch(body.let(f"icmp ne ptr {temp}, null"), run, full)
    body.label(full)
    body.do(f"store atomic i64 -1, ptr {error} monotonic, align 8")
    body.do("ret void")
    body.label(run)
    offsets = [body.let(f"mul i64 %begin, {step}") for step in steps]
    first = [body.let(f"getelementptr i8, ptr {base}, i64 {offset}") for base, offset in zip(bases, offsets, strict=True)]
    some = body.let("sub i64 %end, %begin")
    body.call("void", function, *(f"ptr {x}" for x in (*first, temp)), *(f"i64 {x}" for x in (some, *numbers)))
    body.call("void", "lw_scratch_release", f"ptr {temp}")
    body.do("ret void")
    return body.body(f"internal void @{name}(ptr %context, i64 %begin, i64 %end)", quickly=True), *body.declarations


def _unless_out_of_memory(w: Writer, enough: str) -> None:
    full, run = w.fresh("full"), w.fresh("run")
    w.branch(enough, run, full)
    w.label(full)
    w.store("i64", "-1", "%error")
    w.do("ret void")
    w.label(run)


def _work(n: Extent) -> Extent:
    """Units of work for a row that is sorted."""
    return n * SORTED - minimum(n, MOST) * (SORTED - ABREAST)


def _sort(w: Writer, sizes: Sizes, node: Node, inputs: list[str]) -> tuple[str, ...]:
    """Sorted rows."""
    type, kind = node.outputs[0].type, SHORT[node.outputs[0].type.dtype]
    n = type.shape[-1]
    row = n * type.dtype.itemsize
    rows = Rows(product(type.shape[:-1]), ((inputs[0], row), ("%out", row)), (n,), row, _work(n))
    return _share_out(w, sizes, f"lw_sort_{kind}_some", rows, f"lw_sort_rows_{kind}")


def _argsort(w: Writer, sizes: Sizes, node: Node, inputs: list[str]) -> tuple[str, ...]:
    """The stable order of each row, where positions fit in 32 bits."""
    type, keys = node.outputs[0].type, node.inputs[0].type.dtype
    n = type.shape[-1]
    _unless_out_of_memory(w, w.let(f"icmp ule i64 {sizes.extent(n)}, {1 << 32}"))
    arrays = (inputs[0], n * keys.itemsize), ("%out", n * 8)
    rows = Rows(product(type.shape[:-1]), arrays, (n,), n * 8, _work(n) * 2)
    return _share_out(w, sizes, f"lw_argsort_{SHORT[keys]}_some", rows, f"lw_argsort_rows_{SHORT[keys]}")


def _top_k(w: Writer, sizes: Sizes, node: Node, inputs: list[str]) -> tuple[str, ...]:
    """The greatest of each row, where positions fit in 32 bits."""
    keys, (*outer, n), k = node.inputs[0].type.dtype, node.inputs[0].type.shape, node.attrs["k"]
    _unless_out_of_memory(w, w.let(f"icmp ule i64 {sizes.extent(n)}, {1 << 32}"))
    arrays = (inputs[0], n * keys.itemsize), ("%out", k * 8)
    rows = Rows(product(outer), arrays, (n, k), scratch_bytes(k), n * SORTED)
    return _share_out(w, sizes, f"lw_top_k_{SHORT[keys]}_some", rows, f"lw_top_k_rows_{SHORT[keys]}")


def _ranked(w: Writer, sizes: Sizes, node: Node, inputs: list[str]) -> tuple[str, ...]:
    """What stands at some ranks of each row."""
    (*outer, n), m = node.inputs[0].type.shape, node.inputs[1].type.shape[0]
    kind, size = SHORT[node.inputs[0].type.dtype], node.inputs[0].type.dtype.itemsize
    arrays = (inputs[0], n * size), ("%out", m * size), (inputs[1], 0)
    rows = Rows(product(outer), arrays, (n, m), scratch_elements(n) * size, _work(n))
    return _share_out(w, sizes, f"lw_ranked_{kind}_some", rows, f"lw_ranked_rows_{kind}")


def _running_product(w: Writer, sizes: Sizes, node: Node, inputs: list[str]) -> tuple[str, ...]:
    """The running products of each row of pairs."""
    type = node.outputs[0].type
    n = type.shape[-2]
    name, text = running_product_text(type.dtype)

    def one(at: list[str]) -> None:
        w.do(f"call void @{name}(ptr {at[0]}, ptr {at[1]}, i64 {sizes.extent(n)})")

    _each(w, sizes, product(type.shape[:-2]), [inputs[0], "%out"], [sizes.extent(n * 2 * type.dtype.itemsize)] * 2, one)
    return (text,)


def _transform(w: Writer, sizes: Sizes, node: Node, inputs: list[str]) -> tuple[str, ...]:
    """One call for each block of rows; the transform of no points is zero."""
    given, made = layouts(node)
    one = transform_block(w, sizes, node)
    steps = [sizes.extent(layout.block) for layout in (given, made)]
    work, whole = sizes.extent(given.rows * node.attrs["n"]), sizes.extent(made.blocks * made.block)
    some, none, done = w.fresh("some"), w.fresh("none"), w.fresh("done")
    w.branch(w.let(f"icmp sgt i64 {work}, 0"), some, none)
    w.label(none)
    w.call("void", "llvm.memset.p0.i64", "ptr %out", "i8 0", f"i64 {whole}", "i1 false")
    w.jump(done)
    w.label(some)
    _each(w, sizes, given.blocks, [inputs[0], "%out"], steps, one)
    w.jump(done)
    w.label(done)
    return ()


def _linear_algebra(w: Writer, sizes: Sizes, node: Node, inputs: list[str]) -> tuple[str, ...]:
    """One call for all matrices of the batch; that one failed is reported when all are done."""
    call = LAPACK_CALLS[node.op]
    first = node.inputs[0].type
    if not lapack.available():
        raise DTypeError(f"{node.source}: {node.op.name} needs a LAPACK library with BLAS, and none is in use: see "
                         f"{blas.VARIABLE}. Call the function without jit.")
    numbers = [f"i64 {sizes.extent(x)}" for x in (product(first.shape[:-2]), *call.numbers(node))]
    pointers = [*(f"ptr {p}" for p in inputs), *_outputs(node)]
    answer = w.call("i64", f"lw_{node.op.name}_{SHORT[first.dtype]}_batch", numbers[0], *pointers, *numbers[1:])
    _report(w, answer, linalg.FIRST_FAILURE_AXIS - call.failure)
    return ()


def _report(w: Writer, status: str, axis: int) -> None:
    """A failure is the error of this kernel's one site; -1 is that of memory."""
    failed, full = w.let(f"icmp ne i64 {status}, 0"), w.let(f"icmp slt i64 {status}, 0")
    bad, good = w.fresh("bad"), w.fresh("good")
    w.branch(failed, bad, good)
    w.label(bad)
    w.store("i64", w.let(f"select i1 {full}, i64 -1, i64 2"), "%error")
    w.store("i64", str(axis), "%error", 16)
    w.jump(good)
    w.label(good)


def _python(w: Writer, sizes: Sizes, node: Node, inputs: list[str]) -> tuple[str, ...]:
    """A call of a Python function on the operands."""
    outputs = [text.split()[1] for text in _outputs(node)]
    table = [str(len(inputs)), str(len(outputs))]
    for k, (v, pointer) in enumerate(zip((*node.inputs, *node.outputs), (*inputs, *outputs), strict=True)):
        t = whole_type(v.type, k in node.attrs.get("pairs", ()))
        table += [str(DTYPES.index(t.dtype)), str(t.rank), w.let(f"ptrtoint ptr {pointer} to i64"), *map(sizes.extent, t.shape)]
    at = w.slot(f"[{len(table)} x i64]")
    for place, number in enumerate(table):
        w.store("i64", number, at, 8 * place)
    w.call("void", "lw_call_python", f"ptr {w.object(symbol_of(node))}", f"ptr {at}", "ptr %error")
    return ()


def _check(w: Writer, sizes: Sizes, node: Node, inputs: list[str]) -> tuple[str, ...]:
    """Look for an element that does not hold; where there is one Python makes the message, and this kernel's site is told."""
    found = w.call("ptr", "memchr", f"ptr {inputs[0]}", "i32 0", f"i64 {sizes.extent(node.inputs[0].type.size)}")
    failed, told, good = w.fresh("failed"), w.fresh("told"), w.fresh("good")
    w.branch(w.let(f"icmp eq ptr {found}, null"), good, failed)
    w.label(failed)
    _python(w, sizes, node, inputs)
    w.branch(w.let(f"icmp eq i64 {w.load('i64', '%error')}, 0"), told, good)
    w.label(told)
    _report(w, "1", FAILED_AXIS)
    w.jump(good)
    w.label(good)
    return ()


@dataclass(frozen=True)
class LapackCall:
    """What a function of `runtime.lapack` is given besides matrices, and which failure its answer means."""

    numbers: Callable[[Node], tuple[Extent, ...]]
    failure: int


def _order(n: Node) -> tuple[Extent, ...]:
    return (n.inputs[0].type.shape[-1],)


def _right_sides(n: Node) -> tuple[Extent, ...]:
    flags = [int(n.attrs[name]) for name in ("lower", "transposed", "unit") if name in n.attrs]
    return (*n.inputs[1].type.shape[-2:], *flags)


def _rows_and_columns(n: Node) -> tuple[Extent, ...]:
    return (*n.inputs[0].type.shape[-2:], *(int(f) for f in n.attrs.values()))


LAPACK_CALLS: Mapping[Op, LapackCall] = {
    linalg.cholesky: LapackCall(_order, linalg.NOT_POSITIVE),
    linalg.solve: LapackCall(_right_sides, linalg.SINGULAR),
    linalg.triangular_solve: LapackCall(_right_sides, linalg.SINGULAR),
    linalg.slogdet: LapackCall(_order, linalg.SINGULAR),
    linalg.eigh: LapackCall(_order, linalg.NO_EIGENVALUES),
    linalg.eigenvalues: LapackCall(_order, linalg.NO_EIGENVALUES),
    linalg.svd: LapackCall(_rows_and_columns, linalg.NO_SINGULAR_VALUES),
    linalg.singular_values: LapackCall(_rows_and_columns, linalg.NO_SINGULAR_VALUES),
    linalg.pinv: LapackCall(_rows_and_columns, linalg.NO_SINGULAR_VALUES),
    linalg.qr: LapackCall(_rows_and_columns, linalg.SINGULAR),
    linalg.qr_triangle: LapackCall(_rows_and_columns, linalg.SINGULAR),
}
_IMPLEMENTATIONS: Mapping[str, Callable[[Writer, Sizes, Node, list[str]], tuple[str, ...]]] = {
    "gemm": _gemm, **{op.name: partial(_convolution, features.numbers) for op in (few_features, few_channels, winograd)},
    groupwise.name: partial(_convolution, groups.numbers),
    depthwise.name: partial(_convolution, groups.numbers_of_channels, name=groupwise.name),
    slopes.kernel_slopes.name: partial(_convolution, slopes.numbers),
    overlaps.overlap_rows.name: partial(_convolution, overlaps.numbers),
    panels.name: _panels, panel_product.name: _panel_product,
    "sort": _sort, "argsort": _argsort, "top_k": _top_k, "ranked": _ranked, "running_product": _running_product,
    transform.name: _transform,
    **{op.name: _linear_algebra for op in LAPACK_CALLS},
    debug_callback.name: _python, pure_callback.name: _python, check.name: _check,
}
IMPLEMENTATIONS = frozenset(("generated", native.name, *_IMPLEMENTATIONS))
MAY_RAISE = frozenset((transform.name,))  # implementations that may leave an exception pending in this thread
