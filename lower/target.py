"""The machine that code is generated for. Everything the generator may depend on is a field, so a target is a cache key."""
from __future__ import annotations

import ctypes
import os
import sys
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from loopwright.ir.cached import cached_property
from loopwright.ir.dataclass import dataclass
from loopwright.ir.types import BOOL
from loopwright.lower.runtime.lazy import LLVM_LOCK, llvm

SLOW = "sse4a"  # moves of bits inside a register, which take 120 ns on a virtual Zen 3; shuffles serve as well
TILES = frozenset(("amx-tile", "amx-bf16", "avx512bf16"))
FIRST, SECOND = 0, 2  # Linux's numbers for a processor's own caches of data
MOST_CACHED = 1 << 20  # bytes: where the second cache holds more, what is said of it was measured as if it held so much
ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA = 158, 0x1023, 18  # the system call, and what it is told: Linux on x86-64


@dataclass(frozen=True)
class Target:
    """`features` is LLVM's feature string (`+avx2,-sse4a`); `vector_bits` the widest register the generator may use;
    `cache_bytes` what a processor's second cache holds, or a part of it, `near_cache_bytes` what the first does; `has_tiles`
    whether this process may use the tile registers of AMX, and its products of bf16."""

    triple: str
    cpu: str
    features: str
    vector_bits: int
    cache_bytes: int = 1 << 20
    near_cache_bytes: int = 1 << 15
    has_tiles: bool = False

    @cached_property
    def enabled(self) -> frozenset[str]:
        """The names of the features that are on."""
        return frozenset(f[1:] for f in self.features.split(",") if f.startswith("+"))

    @property
    def is_x86(self) -> bool:
        return self.triple.startswith(("x86_64", "i386", "i686"))

    @property
    def is_arm64(self) -> bool:
        return self.triple.startswith(("aarch64", "arm64"))

    @cached_property
    def has_fma(self) -> bool:
        """Whether a fused multiply-add is an instruction; elsewhere LLVM would call libm."""
        return self.is_arm64 or "fma" in self.enabled

    @cached_property
    def has_masks(self) -> bool:
        """Whether masked loads, stores and gathers of 4 and 8 byte elements are cheap (AVX-512)."""
        return self.vector_bits >= 512 and {"avx512f", "avx512vl", "avx512dq", "avx512bw"} <= self.enabled

    @cached_property
    def has_avx2(self) -> bool:
        """Whether there are integers in vectors of 256 bits, loads of a vector's first elements, estimates of roots."""
        return self.has_masks or (self.is_x86 and "avx2" in self.enabled)

    @property
    def stores_words_by_parts(self) -> bool:
        """Whether the first words of a vector are soonest stored in parts, with a branch for each: a masked store of words
        takes many steps, one of numbers of 8 bytes few. Measured on Zen 3."""
        return self.cpu.startswith("znver") and not self.has_masks

    @property
    def gathers(self) -> bool:
        """Whether a gather instruction takes less time than a load for each lane: on Zen 4 it takes half as long again."""
        return self.has_masks and self.cpu != "znver4"

    @property
    def memory_bits(self) -> int:
        """The width of vectors that memory gives soonest: Zen 4 reads 512 bits in halves, and waits longer for whole ones."""
        return min(self.vector_bits, 256) if self.cpu == "znver4" else self.vector_bits

    @property
    def far_bits(self) -> int:
        """The width of vectors that memory past the second cache gives soonest: for those of 512 bits that lie across lines, as
        in NumPy's arrays, Zen 5 waits up to twice as long. From nearer caches it takes these in less time."""
        return min(self.vector_bits, 256) if self.cpu == "znver5" else self.vector_bits

    @property
    def reads_ahead(self) -> bool:
        """Whether rows come soonest where no code asks for them: Zen 4 finds them itself, and is disturbed by who asks."""
        return self.cpu == "znver4"

    @property
    def reads_one_pass_ahead(self) -> bool:
        """Whether that is so of what goes through memory once and computes little: measured on Zen 3."""
        return self.reads_ahead or self.cpu == "znver3"

    @property
    def gains_past_caches(self) -> bool:
        """Whether large results are soonest made by stores past the caches: measured on Zen 4 and 5."""
        return self.cpu in ("znver4", "znver5")

    @property
    def divides_soon(self) -> bool:
        """Whether a vector is divided in less time than by the steps of `codegen/quotients.py`: measured on Zen 5."""
        return self.cpu == "znver5"

    @property
    def estimates_roots(self) -> bool:
        """Whether there is an instruction for about 1 / sqrt(x) in f32: within 2^-14 with AVX-512, else within 1.5 2^-12."""
        return self.has_avx2

    @property
    def has_half(self) -> bool:
        """Whether float <-> half conversions are instructions."""
        return self.is_arm64 or "f16c" in self.enabled or "avx512f" in self.enabled

    @property
    def vector_registers(self) -> int:
        """How many vector registers there are."""
        return 32 if self.has_masks or self.is_arm64 else 16

    @property
    def is_short_of_registers(self) -> bool:
        """Whether tiles take all vector registers, so that each of their loads has to have its turn: x86 without AVX-512."""
        return self.is_x86 and self.vector_registers <= 16

    def lanes(self, dtype: np.dtype) -> int:
        """How many elements of dtype fill one register; at least 1."""
        return max(1, self.vector_bits // (8 if dtype == BOOL else 8 * dtype.itemsize))


def host_target() -> Target:
    """This machine. LOOPWRIGHT_VECTOR_BITS (128, 256, 512) limits the width and leaves out the features beyond it."""
    return _host_target(int(os.environ.get("LOOPWRIGHT_VECTOR_BITS", "512")))


@cache
def _host_target(limit: int) -> Target:
    with LLVM_LOCK:
        return _host_target_within(limit, llvm())


def _host_target_within(limit: int, binding: Any) -> Target:
    features: dict[str, bool] = dict(binding.get_host_cpu_features())
    triple = str(binding.get_process_triple())
    for name in features:
        if name == SLOW or (limit < 512 and name.startswith("avx512")) or (limit < 256 and _beyond_sse2(name)):
            features[name] = False
    bits = 512 if features.get("avx512f") else 256 if features.get("avx2") else 128
    text = ",".join(("+" if on else "-") + name for name, on in sorted(features.items()))
    cpu = str(binding.get_host_cpu_name()) if limit >= 512 else _plain_cpu(triple)
    caches = min(_cache_bytes(SECOND, MOST_CACHED), MOST_CACHED), _cache_bytes(FIRST, 1 << 15)
    made = Target(triple, cpu, text, min(bits, limit), *caches)
    return replace(made, has_tiles=made.has_masks and made.enabled >= TILES and _may_use_tiles())


def _may_use_tiles() -> bool:
    """Whether the system lets this process use tile registers, which it has to be asked for."""
    if not sys.platform.startswith("linux"):
        return False
    asked = ctypes.CDLL(None, use_errno=True).syscall(ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA)
    return bool(asked == 0)


def _cache_bytes(index: int, usual: int) -> int:
    """What one of a processor's caches holds, by Linux's number for it; `usual` elsewhere."""
    try:
        with open(f"/sys/devices/system/cpu/cpu0/cache/index{index}/size", encoding="ascii") as f:
            size = f.read().strip()
    except OSError:
        size = ""
    return int(size[:-1]) << 10 if size.endswith("K") and size[:-1].isdigit() else usual


def _beyond_sse2(name: str) -> bool:
    return name.startswith(("avx", "sse4", "sse3", "ssse3", "amx")) or name in (
        "fma", "f16c", "fma4", "xop", "vaes", "vpclmulqdq", "gfni", "sha512", "sm3", "sm4")


def _plain_cpu(triple: str) -> str:
    return "x86-64" if triple.startswith("x86_64") else ""
