"""The CUDA text itself: golden texts of templates, and what NVIDIA's compiler makes of all: no spills, no stack, wide accesses.

LOOPWRIGHT_GOLDEN=write rewrites the golden texts in tests/vectors/cuda: look at the difference.
"""
import os
import re
from pathlib import Path

import numpy as np
import pytest

import loopwright as lw
from loopwright.ir.expansion import expanded
from loopwright.lower.cuda import lower_cuda
from tests.cuda_templates import TEMPLATES, program, softmax
from tests.nvrtc import CompileError, compile_text
from tests.scale import SCALE
from tests.test_cuda_ops import CHUNKS
from tests.test_cuda_ops import program as program_of_ops

GOLDEN = Path(__file__).parent / "vectors" / "cuda"
SHOWN = ["map", "short rows", "rows of two axes", "rows to numbers", "columns", "several columns a thread",
         "everything", "few long rows", "running rows", "transposed", "in large squares", "halves in large squares",
         "squares of the first and last axes",
         "gathered", "added rows", "histogram", "added in any order",
         "own ways", "products in batches", "products of halves",
         "attention of halves", "attention in one pass", "slopes of attention of halves"]
ARCHITECTURES = ("sm_80", "sm_90")


@pytest.mark.parametrize("name", SHOWN)
def test_golden_texts(name):
    path = GOLDEN / f"{name.replace(' ', '_')}.cu"
    text = program(name)[1].text
    if os.environ.get("LOOPWRIGHT_GOLDEN") == "write":
        GOLDEN.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


# ---- what the compiler makes of it --------------------------------------------------------------
def check_resources(text, architecture, most=255, word=0):
    """The PTX text of kernels that keep everything in registers. `word`: bytes that ptxas may put aside for itself."""
    ptx, found = compile_text(text, architecture)
    names = re.findall(r"__launch_bounds__\([\d, ]+\) (\w+)\(", text)
    assert set(names) == set(found)
    for name, r in found.items():
        assert r.stack <= 2 * word and r.spills <= word and r.registers <= most, f"{name} on {architecture}: {r}"
    return ptx


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_need_no_stack_and_access_16_bytes(name):
    text = program(name)[1].text
    several = re.search(r" p1\[", text)  # tiles of several products beside the sums
    most = 224 if several else 168 if "tx0[" in text or "_sums[" in text else 80  # rows or sums in registers
    for architecture in ARCHITECTURES if SCALE > 1 else ARCHITECTURES[len(name) % 2:][:1]:
        word = 12 if name == "attention of halves in one pass" else 0  # sixteen warps at once, which was the quickest
        ptx = check_resources(text, architecture, most=most, word=word)
        wide = re.findall(r"(?:ld|st)\.(?:global|global\.nc|shared)\.(?:v4\.[fbu]32|v2\.[fbu]64)|cp\.async\.cg", ptx)
        least = 0 if not TEMPLATES[name].wide else 1 if "tx0[" in text else 2  # rows in registers are read once
        assert len(wide) >= least, f"{name}: {len(wide)} accesses of 16 bytes"


@pytest.mark.parametrize("names", CHUNKS if SCALE > 1 else [CHUNKS[2], CHUNKS[-1]], ids=lambda names: names[0])
def test_every_op_needs_no_stack(names):
    """But for one word of 4 bytes on sm_90, at 32 to 48 of 255 registers, which is no value of the program's: of the smaller of
    two u16 under CUDA 13.5 but not 13.4, of powers of f64 and erf of f16 under both."""
    text = program_of_ops(names)[3].text
    for architecture in ARCHITECTURES if SCALE > 1 else ARCHITECTURES[:1]:
        check_resources(text, architecture, most=255, word=4 if architecture == "sm_90" else 0)


def test_text_that_does_not_compile_is_an_error():
    with pytest.raises(CompileError, match="nothing"):
        compile_text('extern "C" __global__ void bad(float* x) { x[0] = nothing; }', "sm_80")


# ---- what there is to read ----------------------------------------------------------------------
def cuda(f, *args):
    return lw.jit(f).lower(*args, device="gpu").cuda


def test_lower_gives_one_source_and_compiles_nothing():
    f = lw.jit(softmax)
    found = f.lower(np.ones((30, 40), "f4"), device="gpu")
    assert found.cuda.count("__global__") == 1 and "Threads(x=32, y=8)" in found.kernels and "exp" in found.graph
    assert f.compiles == 0


def test_kernels_of_equal_structure_are_one():
    def layers(x, ws):
        for w in ws:
            x = np.tanh(x @ w)
        return x
    text = cuda(layers, np.ones((4, 8), "f4"), [np.ones((8, 8), "f4")] * 3)
    assert text.count("__global__") == 1 and text.count("// kernel_0<<<") == 3


def test_what_is_no_kernel_is_named():
    text = cuda(lambda x: np.linalg.cholesky(x @ x) + np.linalg.inv(x), np.ones((4, 4)))
    for name in ("gemm (cuBLASLt)", "cholesky", "solve"):
        assert re.search(rf"// library call, no kernel: {re.escape(name)}.*f64\[", text), f"{name} in\n{text}"
    text = cuda(lambda x: lw.lax.while_loop(lambda c: np.sum(c) < 5, lambda c: c * 2, x), np.ones(40, "f4"))
    assert "// while, run by the host: " in text and "//   kernel_0" in text


def test_sizes_are_arguments():
    text = cuda(lambda x: x + 1, np.ones((3, 5), "f4"))
    assert "long long size_n" in text and "long long size_m" in text


def test_complex_numbers_are_pairs():
    assert "y0[1 + " in cuda(lambda z: z * z, np.ones(5, "c8")) or "* 2 + 1" in cuda(lambda z: z * z, np.ones(5, "c8"))


def test_devices_are_told_apart():
    with pytest.raises(lw.ArgumentError, match=r"device='cpu' or device='gpu', got 'tpu'"):
        lw.jit(lambda x: x).lower(np.ones(3), device="tpu")
    assert lw.jit(lambda x: x + 1).lower(np.ones(3), device="cpu").llvm


def test_stages_of_the_other_device_are_named():
    f = lw.jit(lambda x: x + 1)
    on_cpu, on_gpu = f.lower(np.ones(3)), f.lower(np.ones(3), device="gpu")
    for made, name, message in ((on_cpu, "cuda", r"there are graph, .*, asm\. f\.lower\(\*args, device='gpu'\) has"),
                                (on_gpu, "llvm", r"there are graph, kernels, cuda\. f\.lower\(\*args\) has")):
        with pytest.raises(AttributeError, match=f"test_cuda_text.py:.* no stage '{name}'; {message}"):
            getattr(made, name)


def test_products_of_matrices_are_not_unrolled_into_threads():
    graph = expanded(lw.make_graph(lambda x, y: x @ y)(np.ones((3, 4)), np.ones((4, 5))))
    assert not lower_cuda(graph, {}).made
