"""What was measured, as JSON lines: one record a line, of a candidate at its sizes on a machine.

Guarantees: records are appended whole; a line that is no record, or of another format, is left out with the reason, and makes
nothing fail; what a process alone can know (bare pointers) is not written.
"""
from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, field
from functools import cache
from pathlib import Path
from typing import Any

from loopwright.ir.attributes import Attributes, Callback, attributes_key
from loopwright.ir.dataclass import dataclass
from loopwright.ir.graph import Graph
from loopwright.ir.schedule import from_json, to_json
from loopwright.lower.modules import kernels_of
from loopwright.lower.target import host_target
from loopwright.lower.tuning.candidates import structure_of
from loopwright.lower.tuning.files import append, locked, replace
from loopwright.lower.tuning.timing import centre
from loopwright.lower.tuning.workers import Outcome

FORMAT = 1
PLAIN = ("generated", "gemm")  # implementations that an instruction list, or nothing, tells the rest of


@dataclass(frozen=True)
class Record:
    """structure: what is computed; sizes: of its symbols, in order; kernels: of each its implementation and schedule; samples:
    seconds of one run, fastest rounds included; noise: of the measuring; failure: why there are no samples."""

    structure: str
    sizes: tuple[int, ...]
    machine: str
    kernels: tuple[Any, ...]
    samples: tuple[float, ...] = ()
    noise: float = 0.0
    failure: str | None = None
    format: int = field(default=FORMAT)

    @property
    def seconds(self) -> float:
        """The time of one run; infinite for a failure."""
        return centre(self.samples) if self.samples and self.failure is None else float("inf")

    def attributes(self) -> Attributes | None:
        """How the only kernel was made; None where there are several, or more than a schedule makes it."""
        if len(self.kernels) != 1 or self.kernels[0][0] not in PLAIN:
            return None
        implementation, schedule = self.kernels[0]
        made: Attributes = {"implementation": implementation}
        return {**made, "schedule": from_json(json.dumps(schedule))} if implementation == "generated" else made


@cache
def machine() -> str:
    """This machine, as far as times depend on it."""
    target = host_target()
    return f"{target.triple} {target.cpu}, vectors of {target.vector_bits} bits, {os.cpu_count()} processors"


def record_of(outcome: Outcome, where: str = "") -> Record | None:
    """The record of an outcome on a machine ("": this one); None where it calls a bare pointer."""
    g = outcome.candidate.parsed()
    if any(isinstance(n.attrs.get("code"), Callback) for n in _nodes(g)):
        return None
    kernels = tuple([[n.attrs["implementation"], json.loads(to_json(n.attrs.get("schedule", ())))] for n in kernels_of(g)])
    sizes = tuple([size for _, size in outcome.candidate.sizes])
    return Record(structure_of(g), sizes, where or machine(), kernels, outcome.samples, outcome.noise, outcome.failure)


def _nodes(g: Graph) -> Iterator[Any]:
    for n in g.nodes:
        yield n
        for region in n.regions:
            yield from _nodes(region)


@dataclass
class Records:
    """A file of records. `ignored`: the lines that were left out when it was read, with reasons."""

    path: Path
    ignored: list[tuple[int, str]] = field(default_factory=list)

    def append(self, record: Record) -> None:
        """Write a record at the end, in one piece."""
        append(self.path, _line(record))

    def read(self) -> list[Record]:
        """All records of this format, oldest first."""
        self.ignored.clear()
        try:
            text = self.path.read_text("utf-8", errors="replace")
        except FileNotFoundError:
            return []
        except OSError as error:
            self.ignored.append((0, str(error)))
            return []
        found = []
        for number, line in enumerate(text.splitlines(), 1):
            try:
                found.append(_parsed(json.loads(line)))
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                self.ignored.append((number, (str(error) or type(error).__name__).splitlines()[0]))
        return found

    def prune(self, foreign: bool = False) -> tuple[int, int]:
        """Leave out what is no record, or was measured again later, and with `foreign` what is of other machines: how many
        lines stay, and how many went."""
        with locked(self.path):
            read = self.read()
            last = {(r.structure, r.sizes, r.machine, json.dumps(r.kernels)): r for r in read}
            kept = [r for r in last.values() if not foreign or r.machine == machine()]
            replace(self.path, b"".join(map(_line, kept)))
        return len(kept), len(read) + len(self.ignored) - len(kept)

    def made(self, structure: str, where: str = "") -> list[tuple[Attributes, bool]]:
        """How kernels of a structure were made on a machine ("": this one), each way once, the latest last, and whether it
        worked."""
        found: dict[Any, tuple[Attributes, bool]] = {}
        for r in self.read():
            if (r.structure, r.machine) == (structure, where or machine()) and (attrs := _attributes(r)) is not None:
                found.pop(key := attributes_key(attrs), None)
                found[key] = attrs, r.failure is None
        return list(found.values())

    def best(self, structure: str, sizes: tuple[int, ...]) -> Record | None:
        """The fastest record of what is computed, at these sizes, on this machine."""
        alike = [r for r in self.read() if (r.structure, r.sizes, r.machine) == (structure, sizes, machine())]
        return min((r for r in alike if r.failure is None and r.samples), key=lambda r: r.seconds, default=None)


def _line(record: Record) -> bytes:
    return json.dumps(asdict(record)).encode() + b"\n"


def _attributes(r: Record) -> Attributes | None:
    try:
        return r.attributes()
    except ValueError:  # an instruction of another version: the record is of no use here
        return None


def _parsed(x: Mapping[str, Any]) -> Record:
    if not isinstance(x, dict) or x.get("format") != FORMAT:
        raise ValueError(f"the format is not {FORMAT}")
    if not all(isinstance(s, (int, float)) and s > 0 for s in x["samples"]):
        raise ValueError("samples must be seconds")
    if not all(isinstance(k, list) and len(k) == 2 and isinstance(k[0], str) and isinstance(k[1], list) for k in x["kernels"]):
        raise ValueError("a kernel is an implementation and a list of instructions")
    return Record(str(x["structure"]), tuple(map(int, x["sizes"])), str(x["machine"]), tuple(x["kernels"]), tuple(x["samples"]),
                  float(x["noise"]), x["failure"])
