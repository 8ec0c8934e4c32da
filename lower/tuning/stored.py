"""What tuning found, as JSON lines: of a traced graph, the program that was fastest at some sizes, and the sizes it is for.

Guarantees: a record is appended whole, also by several processes at a time, and after what a writer that died left; a line that
is no record, was damaged, or does not serve here, is left out with the reason and makes nothing fail; a program is used only
where it is one of the very graph that was traced, for this machine, and its kernels allow their schedules.
"""
from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Any

from loopwright.ir.attributes import Callback
from loopwright.ir.dataclass import dataclass
from loopwright.ir.dims import symbol
from loopwright.ir.facts import Constraint
from loopwright.ir.graph import Graph, Node, renewed, substitute_graph
from loopwright.ir.guards import Guard
from loopwright.ir.parser import parse
from loopwright.ir.signature import Version
from loopwright.ir.source import Source
from loopwright.ir.types import COMPLEX
from loopwright.ir.verifier import verify
from loopwright.lower.modules import CLASSES, OPS, check_schedules, is_module, kernels_of
from loopwright.lower.patterns import is_declared
from loopwright.lower.runtime import lazy
from loopwright.lower.runtime.cache import digest
from loopwright.lower.runtime.canonical import lines
from loopwright.lower.runtime.tuned import SUFFIX, structure
from loopwright.lower.tuning.files import append, locked, replace
from loopwright.lower.tuning.records import machine

FORMAT = 1
LARGEST = 1 << 40  # stands for no bound where ranges are compared
Range = tuple[int, int | None]  # from, up to and with; None: without a bound


@cache
def package_version() -> str:
    """The version of loopwright whose programs can be read."""
    return str(sys.modules[__name__.partition(".")[0]].__version__)


@dataclass(frozen=True)
class TunedRecord:
    """structure: of the traced graph; name: of the user's function; sizes: of the graph's symbols, in order, where it was
    measured; ranges: of each, where it holds; module: the program as text, its symbols called s0, s1, ..., or "" where none was
    faster than the default; lines: for each node of the module the first node of the traced graph of the same line, or -1;
    default, best: seconds of one call; noise: of the measuring, relative; spent: seconds of tuning."""

    structure: str
    name: str
    sizes: tuple[int, ...]
    ranges: tuple[Range, ...]
    module: str
    lines: tuple[int, ...]
    default: float
    best: float
    noise: float
    spent: float
    machine: str
    version: str
    format: int = field(default=FORMAT)

    @property
    def speedup(self) -> float:
        """How many times as fast as the default the program is, as it was measured."""
        return self.default / self.best if self.module else 1.0

    def holds(self, sizes: Sequence[int]) -> bool:
        """Whether it is for these sizes."""
        return all(low <= n and (high is None or n <= high) for n, (low, high) in zip(sizes, self.ranges, strict=True))

    @property
    def width(self) -> float:
        """How many sizes it is for, to tell a narrow range from a wide one."""
        return sum(math.log((LARGEST if high is None else max(high, 1)) / max(low, 1)) for low, high in self.ranges)


@dataclass(frozen=True)
class Stored:
    """A record, and where it stands."""

    record: TunedRecord
    where: Source


@dataclass(frozen=True, eq=False)
class Program:
    """A record's program in terms of a version's symbols and lines, and the guards that keep calls to its ranges."""

    record: TunedRecord
    where: Source
    graph: Graph
    guards: tuple[Guard, ...]


# ---- to records and back ----------------------------------------------------------------------------
def callbacks(g: Graph) -> dict[str, Callback]:
    """The Python functions, and bare pointers, that a program calls, by their names."""
    found = {x.name: x for n in g.nodes for x in n.attrs.values() if isinstance(x, Callback)}
    return found | {name: x for n in g.nodes for r in n.regions for name, x in callbacks(r).items()}


def record_of(version: Version, program: Graph, sizes: Sequence[int], ranges: Sequence[Range], *, default: float, best: float,
              noise: float, spent: float, device: str = "") -> TunedRecord:
    """The record of a program that is, or is not, faster than the version's default: `best` is less, or the same. device: the
    GPU that it is for; "": this processor."""
    module, found = "", list[int]()
    if best < default:
        first: dict[Source | None, int] = {None: -1}
        for k, source in enumerate(lines(version.graph)):
            first.setdefault(source, k)
        names = {s: symbol(f"s{k}") for k, s in enumerate(version.graph.free_symbols)}
        module, found = str(substitute_graph(renewed(program), names)), [first.get(x, -1) for x in lines(program)]
    key = structure(version, bool(device))
    return TunedRecord(key, version.name, tuple(sizes), tuple([(a, b) for a, b in ranges]), module,
                       tuple(found), default, best, noise, spent, device or machine(), package_version())


def program_of(stored: Stored, version: Version, on_gpu: bool = False) -> Program:
    """The record's program for a version of its structure, for a GPU or the processor. ValueError, or an error of the text,
    where it does not serve."""
    record, whole, free = stored.record, version.graph, version.graph.free_symbols
    if len(record.ranges) != len(free) or len(record.sizes) != len(free):
        raise ValueError(f"it is for {len(record.ranges)} sizes, and the function has {len(free)}")
    known = callbacks(whole)
    bound = {name: x.function for name, x in known.items() if x.function is not None}
    parsed = parse(record.module, OPS, CLASSES, bound)
    if strange := callbacks(parsed).keys() - known.keys():
        raise ValueError(f"it calls {', '.join(sorted(strange))}, which the function does not")
    g = substitute_graph(renewed(parsed), {f"s{k}": symbol(s) for k, s in enumerate(free)})
    verify(g)
    if not is_module(g) or not _fits(g, version):
        raise ValueError("it is a program of other arguments, results or options")
    if any("code" in n.attrs and not is_declared(n) for n in kernels_of(g)):
        raise ValueError("it has a kernel of yours that is another one by now, or is not declared (lw.kernel with instead_of=)")
    check_schedules(g, is_written=False, for_gpu=on_gpu)
    sources = [*lines(whole), None]
    if any(not -1 <= k < len(sources) for k in record.lines) or len(record.lines) != g.size():
        raise ValueError("its lines are not those of its nodes")
    located = _located(g, iter([sources[k] for k in record.lines]))
    return Program(record, stored.where, located, _guards(record, free, stored.where))


def _fits(g: Graph, version: Version) -> bool:
    attrs, whole = g.nodes[0].attrs, version.graph
    pairs = tuple([k for k, v in enumerate((*whole.params, *whole.results)) if v.type.dtype in COMPLEX])
    types = [[v.type for v in values] for values in (g.params, g.results)]
    donated = {a for _, a in attrs["donations"]}
    return (types == [[v.type for v in values] for values in (whole.params, whole.results)]
            and attrs["pairs"] == pairs and attrs["fast_math"] == version.fast_math and donated <= set(version.donated))


def _located(g: Graph, sources: Iterator[Source | None]) -> Graph:
    """g with these lines for its nodes, those of regions after the node that has them."""
    nodes = []
    for n in g.nodes:
        source = next(sources)
        nodes.append(Node(n.op, n.inputs, n.attrs, n.outputs, tuple([_located(r, sources) for r in n.regions]), source))
    return Graph(g.params, tuple(nodes), g.results, g.constraints)


def _guards(record: TunedRecord, free: Sequence[str], where: Source) -> tuple[Guard, ...]:
    found = []
    for name, (low, high) in zip(free, record.ranges, strict=True):
        found += [Constraint("<=", low, symbol(name))] if low > 0 else []
        found += [Constraint("<=", symbol(name), high)] if high is not None else []
    return tuple([Guard(c, where) for c in found])


# ---- the choice -------------------------------------------------------------------------------------
def standing(found: Iterable[Stored]) -> list[Stored]:
    """Those records that no later one of the same graph, sizes and machine takes the place of, oldest first."""
    last: dict[Any, Stored] = {}
    for s in found:
        key = s.record.structure, s.record.sizes, s.record.machine
        last.pop(key, None)
        last[key] = s
    return list(last.values())


def machines() -> set[str]:
    """What records that serve here may be of: this processor, and the GPU if there is one."""
    found = {machine()}
    with contextlib.suppress(ImportError, RuntimeError):  # where there is none
        found.add(lazy.gpu().device.name)
    return found


def useless(record: TunedRecord, here: Collection[str]) -> str | None:
    """Why a record does not serve one of these machines, and this version of loopwright; None where it does."""
    if record.version != package_version():
        return f"it was made by loopwright {record.version}, and this is {package_version()}"
    return f"it is of another machine: {record.machine}" if record.machine not in here else None


def programs(version: Version, files: Sequence[Path],
             more: Sequence[Stored] = (), device: str = "") -> tuple[list[Program], list[TunedRecord], list[str]]:
    """The programs that files hold for a version, and `more` that they may lack, in the order in which calls try them: narrow
    ranges first, then what is newest; all records that serve, those that keep the default among them; and why others do not.
    device: the GPU that they are for; "": this processor."""
    key = structure(version, bool(device))
    found: list[Stored] = []
    ignored: list[str] = []
    for file in map(RecordFile, files):
        own = file.path.stem == key
        read = [s for s in file.read() if s.record.structure == key or own]
        ignored += [f"{where}: {why}" for where, why in file.ignored]
        for s in read:
            why = "it is of another function" if s.record.structure != key else useless(s.record, [device or machine()])
            if why is None:
                found.append(s)
            else:
                ignored.append(f"{s.where}: {why}")
    found += [s for s in more if s.record.structure == key and all(s.record != known.record for known in found)]
    left, made = standing(found)[::-1], []
    for s in sorted([s for s in left if s.record.module], key=lambda s: s.record.width):
        try:
            made.append(program_of(s, version, bool(device)))
        except Exception as error:  # whatever text it is, the user's call goes on; why is told
            ignored.append(f"{s.where}: {reason(error)}")
            left.remove(s)
    return made, [s.record for s in left], ignored


def reason(error: Exception) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no more is known'}"


# ---- files ------------------------------------------------------------------------------------------
class RecordFile:
    """A file of records. `ignored`: the lines that were left out when it was last read, with reasons."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ignored: list[tuple[Source, str]] = []

    def read(self) -> list[Stored]:
        """All records, oldest first; none where there is no file."""
        self.ignored.clear()
        try:
            text = self.path.read_text("utf-8", errors="replace")
        except FileNotFoundError:
            return []
        except OSError as error:
            self.ignored.append((Source(str(self.path), 0), str(error)))
            return []
        found = []
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip():
                where = Source(str(self.path), number)
                try:
                    found.append(Stored(_parsed(json.loads(line)), where))
                except (ValueError, TypeError, KeyError, RecursionError) as error:
                    self.ignored.append((where, f"it is no record: {reason(error)}"))
        return found

    def append(self, records: Iterable[TunedRecord]) -> None:
        """Write records at the end, in one piece. OSError where the disk does not let us."""
        append(self.path, b"".join(map(_line, records)))

    def prune(self, foreign: bool = False) -> tuple[int, int]:
        """Leave out what is no record, is of other versions of loopwright, or has a later one in its place, and with `foreign`
        what is of other machines: how many lines stay, and how many went."""
        with locked(self.path):
            read, here = self.read(), machines() if foreign else ()
            right = [s for s in read if s.record.version == package_version() and not (foreign and useless(s.record, here))]
            kept = standing(right)
            replace(self.path, b"".join([_line(s.record) for s in kept]))
        return len(kept), len(read) + len(self.ignored) - len(kept)


def files_in(folder: Path | None) -> list[Path]:
    """The files of records in a folder."""
    return sorted(folder.glob("*" + SUFFIX)) if folder is not None and folder.is_dir() else []


def _line(record: TunedRecord) -> bytes:
    fields = dataclasses.asdict(record)
    return json.dumps({**fields, "seal": _seal(fields)}).encode() + b"\n"


def _seal(fields: dict[str, Any]) -> str:
    """What tells a line that was damaged, or changed by hand: a program that is not what was checked may compute anything."""
    return digest(json.dumps(fields))[:16]


def _parsed(x: Any) -> TunedRecord:
    """A record from its JSON. ValueError, TypeError or KeyError for what is none."""
    if not isinstance(x, dict) or x.get("format") != FORMAT:
        raise ValueError(f"the format is not {FORMAT}")
    if x.pop("seal", None) != _seal(x):
        raise ValueError("it is not as it was written")
    structure, name, module, machine, version = texts = [x[n] for n in ("structure", "name", "module", "machine", "version")]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("a field that should be text is not")
    default, best, noise, spent = (float(x[n]) for n in ("default", "best", "noise", "spent"))
    if not (0 < best < math.inf and 0 < default < math.inf):
        raise ValueError("times must be seconds")
    ranges = tuple([(int(low), None if high is None else int(high)) for low, high in x["ranges"]])
    sizes, lines = (tuple([int(k) for k in x[n]]) for n in ("sizes", "lines"))
    return TunedRecord(structure, name, sizes, ranges, module, lines, default, best, noise, spent, machine, version)
