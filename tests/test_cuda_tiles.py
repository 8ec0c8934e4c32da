"""Products in tiles for a GPU: tensor cores at any size, and faults planted in generated text, each of which is caught."""
import re
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright.ir.builder import build
from loopwright.ir.gpu_schedule import BLOCK, Bind, InTiles, Threads
from loopwright.ir.ops import arithmetic
from loopwright.ir.ops.contraction import dot_general
from loopwright.ir.ops.selection import convert
from loopwright.ir.parser import parse_type
from loopwright.ir.schedule import ComputeAt, Inline
from loopwright.ir.types import BF16, F32
from loopwright.lower.cuda import emit_cuda
from loopwright.lower.cuda.maths import Library
from loopwright.lower.scheduling import ScheduleError, build_nest
from tests.cuda_templates import TEMPLATES, program, sizes_of
from tests.emulator import ORDERS, Emulator, EmulatorError, require_compiler
from tests.emulator.programs import nonsense, run_kernel
from tests.nvrtc import compile_text
from tests.scale import SCALE, examples


def product(contract, left, right):
    """The greater of the product's numbers and others."""
    def greater(x, y, b):
        sums = dot_general(x, y, contract=(contract,), batch=(), dtype=F32)
        return [arithmetic.max(convert(sums, dtype=BF16, weak=False), b)]
    return build(greater, [parse_type(t) for t in (left, right, "bf16[n, p]")])


PRODUCT = product((1, 0), "bf16[n, m]", "bf16[m, p]")  # terms along the left side's memory, across that of the right side
TURNED = product((0, 1), "bf16[m, n]", "bf16[p, m]")
PLACED = (ComputeAt(0, 2), *(Inline(k) for k in range(1, len(PRODUCT.nodes))))
EDGES = (32, 64, 128)


STAGES = {32: 4, 64: 3, 128: 3, "turned": 4}


def schedule(edge, unit="mma", depth=32, threads=(32, 8), stages=2):
    root = len(PRODUCT.nodes) - 1
    tiles = InTiles(0, edge, edge, depth, unit, stages)
    return (*PLACED, Threads(*threads), Bind(root, 0, (BLOCK,)), Bind(root, 1, (BLOCK,)), tiles)


@cache
def kernels():
    """A kernel for each edge and one of turned sides, each in two stages and in a ring of more; and the source of all."""
    library, made = Library(), {}
    for edge in (*EDGES, "turned"):
        for stages in (2, STAGES[edge]):
            graph, size = (TURNED, 64) if edge == "turned" else (PRODUCT, edge)
            nest = build_nest(graph, schedule(size, stages=stages), f"product_{edge}_{stages}").nest
            made[edge, stages] = emit_cuda(nest, library)
    return made, "\n\n".join([*library.texts.values(), *(k.text for k in made.values())])


@cache
def emulator():
    require_compiler()
    return Emulator(kernels()[1], [x.name for k in kernels()[0].values() for x in k.launches])


@examples(8)
@given(st.tuples(*[st.integers(1, 150) | st.sampled_from([8, 32, 64, 128])] * 3), st.sampled_from((*EDGES, "turned")),
       st.booleans(), st.sampled_from(ORDERS), st.integers(0, 99))
def test_tensor_cores_at_any_size(shape, which, is_ring, order, seed):
    rng, (n, m, p) = np.random.default_rng(seed), shape
    x, y, b = (rng.integers(-2, 3, s).astype(BF16) for s in ((n, m), (m, p), (n, p)))
    sizes = {"n": n, "m": m, "p": p}
    sides = [x.T, y.T] if which == "turned" else [x, y]
    outs = [nonsense(PRODUCT.results[0].type, sizes)]
    found, = run_kernel(emulator(), kernels()[0][which, STAGES[which] if is_ring else 2], [*sides, b], outs, sizes, order)
    want = np.maximum((x.astype("f4") @ y.astype("f4")).astype(BF16), b)
    np.testing.assert_array_equal(found.astype("f4"), want.astype("f4"))


@pytest.mark.parametrize("architecture", ("sm_80", "sm_90") if SCALE > 1 else ("sm_90",))
def test_tensor_cores_are_asked_for_and_keep_sums_in_registers(architecture):
    ptx, found = compile_text(kernels()[1], architecture)
    for name, r in found.items():
        assert r.stack == 0 and r.spills == 0 and r.registers <= 200 and r.shared <= 48 << 10, (name, r)
    steps = [(edge // 32) ** 2 * 2 for edge in (*EDGES, 64)]  # of a warp: 16 rows, 8 columns, and 16 terms of 32
    assert ptx.count("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32") == 2 * sum(steps)
    squares = {"x4": sum(EDGES) // 32 * 2, "x2.trans": sum(EDGES) // 32 * 2, "x4.trans": 4, "x2": 4}
    for name, count in squares.items():
        assert ptx.count(f"ldmatrix.sync.aligned.m8n8.{name}.shared.b16") == 2 * count, name
    assert ptx.count("cp.async.cg.shared.global") >= 8 and ptx.count("cp.async.wait_group 2;") == 2
    assert len(re.findall(r"ld\.global\.nc\.v4\.[bu]32|ld\.global\.nc\.v2\.[bu]64", ptx)) >= 4


@pytest.mark.parametrize(("made", "why"), [
    (schedule(64, threads=(16, 16)), "warps in two rows"),
    (schedule(16), "warps in two rows"),
    (schedule(64, depth=8), "warps in two rows"),
    (schedule(64, unit="wgmma"), "tensor cores"),
    (schedule(128, depth=64), "no more than 49152 bytes"),
    (schedule(128, stages=5), "no more than 98304 bytes"),
    (schedule(32, stages=1), "2 stages or more"),
])
def test_what_tensor_cores_do_not_do_is_refused(made, why):
    with pytest.raises(ScheduleError, match=why):
        build_nest(PRODUCT, made, "k")


# ---- faults in generated text -------------------------------------------------------------------------
def offences(name, change, sizes=(33, 35)):
    """What becomes of a template's kernel with a fault: an error of the emulator, or whether the results are right."""
    graph, made = program(name)
    (n, k), = made.made.items()
    head, body = made.text.split('extern "C" __global__', 1)
    faulty = change(body)
    assert faulty != body, "the fault was not planted"
    args = TEMPLATES[name].make(np.random.default_rng(0), *sizes)
    at, want = sizes_of(graph, args), TEMPLATES[name].meaning(args)
    faulted = Emulator(f'{head}extern "C" __global__{faulty}', [x.name for x in k.launches], ("-O0",))
    found = []
    for order in ORDERS:
        outs = [nonsense(v.type, at) for v in n.regions[0].results]
        try:
            got = run_kernel(faulted, k, [args[graph.params.index(v)] for v in n.inputs], outs, at, order)
        except EmulatorError as why:
            found.append(str(why))
            continue
        close = [np.allclose(a.astype("f8"), b.astype("f8"), rtol=1e-2, atol=1e-2) for a, b in zip(got, want, strict=True)]
        found.append("right" if all(close) else "wrong")
    return found


FAULTS = {
    "no barrier": lambda text: text.replace("__syncthreads();", ""),
    "no waiting": lambda text: re.sub(r"lw_wait_groups<\d>\(\);", "", text),
    "waiting for an older group": lambda text: re.sub(r"(lw_wait_groups<\d)>", r"\1 + 1>", text),
    "one group for all": lambda text: text.replace("lw_end_group();", "", 1),
    "copies into what is read": lambda text: re.sub(r"= (stage\d+) == 0 \? \d : \1 - 1;", r"= \1;", text),
    "rows past the end": lambda text: re.sub(r"\bi\d+ < n\d+", "true", text),
    "wide accesses of any row": lambda text: re.sub(r"n\d+ % [248] == 0", "true", text),
    "half a warp": lambda text: text.replace("0xffffffffu", "0xffffu"),
    "one part again": lambda text: re.sub(r"blockIdx.x % n\d+", "blockIdx.x % 1", text),
    "columns past the end": lambda text: re.sub(r"(if \(i\d+ < n\d+) && i\d+ < n\d+\)", r"\1)", text),
    "warps do not agree": lambda text: re.sub(r"\[\(int\)threadIdx.x / 32\]|\[threadIdx.y / 2\]", "[0]", text),
    "threads of a row do not agree": lambda text: re.sub(r"(int d\d+) = 2;", r"\1 = 1;", text),
    "copies into what is multiplied": lambda text: re.sub(r"= 1 - (stage\d+);", r"= \1;", text),
    "columns past the end count": lambda text: re.sub(r"(i\d+ < n\d+) && i\d+ \+ \d < n\d+ \?", r"\1 ?", text),
    "what is kept is not waited for": lambda text: re.sub(r"(right_stages\[stage.*?)__syncthreads\(\);", r"\1", text,
                                                          flags=re.S),
    "done by all": lambda text: re.sub(r"atomicExch\(&(y0_magnitude\[at\d+\]), 0u\)(?= *;\n +if)", r"\1", text),
    "not cleared": lambda text: re.sub(r"atomicExch\(&y0_(?:magnitude|last)\[at\d+\], 0u?\);", "", text, count=1),
    "a slot too many": lambda text: re.sub(r"(u\d+ \* 4 \+ e\d+) < n\d+", r"\1 <= 8", text),
}


@pytest.mark.parametrize(("name", "fault", "why"), [
    ("products in tiles", "no barrier", "wrong"),
    ("products in tiles", "rows past the end", "nobody's|beside an array"),
    ("products of halves", "no barrier", "wrong"),
    ("products of halves", "rows past the end", "nobody's|beside an array"),
    ("products in tiles", "no waiting", "wrong"),
    ("products in tiles", "waiting for an older group", "wrong"),
    ("products in tiles", "one group for all", "wrong"),
    ("products in tiles", "copies into what is read", "wrong"),
    ("products of halves", "no waiting", "wrong"),
    ("products of halves", "wide accesses of any row", "not aligned|past a multiple"),
    ("rows", "half a warp", "its own mask"),
    ("rows", "wide accesses of any row", "not aligned|nobody's|beside"),
    ("rows", "a slot too many", "nobody's|beside an array|wrong"),
    ("long rows", "no barrier", "wrong"),
    ("attention", "no barrier", "wrong"),
    ("attention", "columns past the end", "wrong"),
    ("attention", "what is kept is not waited for", "wrong"),
    ("attention of halves", "no barrier", "wrong"),
    ("attention of halves", "columns past the end count", "wrong"),
    ("attention of halves", "threads of a row do not agree", "wrong"),
    ("attention of halves", "no waiting", "wrong"),
    ("attention of halves", "copies into what is multiplied", "wrong"),
    ("attention in one pass", "no barrier", "wrong"),
    ("attention in one pass", "columns past the end", "wrong"),
    ("attention of halves in one pass", "no barrier", "wrong"),
    ("attention of halves in one pass", "threads of a row do not agree", "wrong"),
    ("attention of halves in one pass", "columns past the end count", "wrong"),
    ("few long rows", "one part again", "wrong"),
    ("in large squares", "no barrier", "wrong"),
    ("in large squares", "columns past the end", "nobody's|beside an array|wrong"),
    ("halves in large squares", "wide accesses of any row", "not aligned|nobody's|beside"),
    ("several columns a thread", "no barrier", "wrong"),
    ("several columns a thread", "wide accesses of any row", "not aligned|nobody's|beside"),
    ("histogram", "no barrier", "wrong"),
    ("added in any order", "done by all", "wrong"),
    ("added in copies", "not cleared", "wrong"),
    ("updated in any order", "not cleared", "wrong"),
])
def test_faults_in_generated_text_are_caught(name, fault, why):
    require_compiler()
    sizes = {"one part again": (3, 20000), "copies into what is multiplied": (33, 200)}
    found = offences(name, FAULTS[fault], sizes.get(fault, (33, 35)))
    assert all(re.search(why, x) for x in found), found


def test_without_a_fault_the_kernel_is_right():
    require_compiler()
    assert offences("products in tiles", lambda text: text + "\n") == ["right"] * len(ORDERS)
