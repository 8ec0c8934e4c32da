"""`python -m loopwright`: tune a function of a script, look after the records of what tuning found."""
from __future__ import annotations

import argparse
import contextlib
import operator
import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from loopwright.ir.errors import TuningError
from loopwright.lower.runtime import tuned
from loopwright.lower.runtime.dispatcher import NativeFunction
from loopwright.lower.tuning.records import Records
from loopwright.lower.tuning.stored import Program, Range, RecordFile, files_in, machines, standing, useless
from loopwright.tracer.signatures import Call
from loopwright.tuned import VARIABLE, meeting
from loopwright.tuner import Tuning, TuningResult, files_of, tune, tuned_at
from loopwright.tuning_report import amount
from loopwright.versions import Draft, Versions

INTERRUPTED = 130  # the exit code of who was stopped with Ctrl-C
_ABOUT = "Tunes a function of a script, and looks after the records of what tuning found."
_TUNE = """Runs SCRIPT until it first calls its jitted function F, tunes F at the sizes of that call, and ends. What was found
is kept: from then on the script runs with it. Arguments of the script follow after --."""


def main(arguments: Sequence[str] | None = None) -> int:
    """What the command line asks for; the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    at = given.index("--") if "--" in given else len(given)
    options = _parser().parse_args(given[:at])
    options.rest = given[at + 1:]
    try:
        code: int = options.run(options)
    except (TuningError, _NotFound) as error:
        return _failed(str(error))
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m loopwright", description=_ABOUT)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    one = commands.add_parser("tune", help="tune a function of a script", description=_TUNE)
    one.add_argument("target", metavar="SCRIPT:F", help="as model.py:step")
    one.add_argument("--seconds", type=float, default=60.0, help="how long (60)")
    one.add_argument("--file", help="a file that gets the record as well")
    one.add_argument("--args", help="arguments in Python, as 'np.ones((512, 64)), 3': the script is then imported, not run")
    one.add_argument("--report", metavar="PAGE.html", help="write a page with plots")
    one.set_defaults(run=_tune)
    other = commands.add_parser("records", help="look after what tuning found")
    records = other.add_subparsers(required=True, metavar="COMMAND")
    for name, run, text in (("list", _list, "a line for each record, and what is ignored"),
                            ("show", _show, "all of the records whose structure begins so"),
                            ("merge", _merge, "put the records of files into the cache directory"),
                            ("prune", _prune, "remove what is no record, of other versions, or has a later one in its place")):
        command = records.add_parser(name, help=text, description=text)
        command.set_defaults(run=run)
        if name == "show":
            command.add_argument("structure")
        if name == "merge":
            command.add_argument("files", nargs="+")
        else:
            command.add_argument("--file", help="a file of records, in place of the cache directory")
        if name == "prune":
            command.add_argument("--foreign", action="store_true", help="remove those of other machines too")
    return parser


# ---- tune -------------------------------------------------------------------------------------------
class _Finished(BaseException):
    """The script has called the function, which is tuned: it ends here, at this call, or a later one where it catches this."""


class _NotFound(Exception):
    """What the command line names is not there: a function, a call of it, arguments, a file; what there is, in words."""


def _tune(options: argparse.Namespace) -> int:
    script, _, name = options.target.rpartition(":")
    if not os.path.isfile(script):
        return _failed(f"there is no script {script or options.target!r}: write SCRIPT:F, as model.py:step")
    os.environ.pop(VARIABLE, None)
    sys.argv = [script, *options.rest]
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    try:
        by = _tuned_by_running if options.args is None else _tuned_by_arguments
        found = by(script, name, options)
    except KeyboardInterrupt:
        return INTERRUPTED
    print(found.report(options.report))
    return INTERRUPTED if found.interrupted else 0


def _tuned_by_arguments(script: str, name: str, options: argparse.Namespace) -> TuningResult:
    """The function of the script, which is imported, with the arguments that the command line gives."""
    names = runpy.run_path(script, run_name="__tuned__")
    f = _found(SimpleNamespace(**names), name)
    if f is None:
        raise _NotFound(f"{script} has no {name}")
    try:
        args, kwargs = eval(f"_arguments({options.args})", {"np": np, **names, "_arguments": lambda *xs, **named: (xs, named)})
    except Exception as error:  # whatever the text raises is about the text
        raise _NotFound(f"--args {options.args!r} gives no arguments: {type(error).__name__}: {error}") from None
    return tune(f, *args, **kwargs, seconds=options.seconds, file=options.file, progress=True)


def _tuned_by_running(script: str, name: str, options: argparse.Namespace) -> TuningResult:
    """The function of the script, which runs until it calls it."""
    others: dict[str, None] = {}
    done: list[TuningResult] = []

    def met(versions: Versions, call: Call, draft: Draft) -> Sequence[Program]:
        if not done and _is(versions, script, name):
            found = tuned_at(versions, call, draft, options.seconds, files_of(draft, options.file), True)
            done.append(TuningResult(versions.function, (found,)))
        if done:
            raise _Finished
        others[versions.parameters.name] = None
        return as_recorded.met(versions, call, draft)
    as_recorded = Tuning(0.0, options.file, None)
    try:
        with meeting(met), contextlib.suppress(SystemExit, _Finished):
            runpy.run_path(script, run_name="__main__")
    except Exception:
        if not done:
            raise
    if done:  # also where the script caught what ends it
        return done[0]
    raise _NotFound(f"{script} ended without a call of a jitted function {name}. It compiled {', '.join(others) or 'none'}; "
                    f"what these call is part of them. --args gives arguments to a function that the script does not call.")


def _is(versions: Versions, script: str, name: str) -> bool:
    """Whether a jitted function is what the script calls by that name, or is of that name and in that script."""
    found, source = _found(sys.modules["__main__"], name), versions.parameters.source.file
    if isinstance(found, NativeFunction):
        return bool(found.__dict__["_versions"] is versions)
    is_here = os.path.exists(source) and os.path.samefile(source, script)
    return is_here and versions.parameters.name == name.rpartition(".")[2]


def _found(module: Any, name: str) -> Any:
    try:
        return operator.attrgetter(name)(module)
    except AttributeError:
        return None


# ---- records ----------------------------------------------------------------------------------------
def _list(options: argparse.Namespace) -> int:
    here = machines()
    for file in _files(options):
        read = file.read()
        current = standing(read)
        for s in read:
            r = s.record
            why = useless(r, here) or (None if s in current else "a later one is in its place")
            gain = f"{r.speedup:.2f} times, {amount(r.default)} to {amount(r.best)}" if r.module else "the default stays"
            print(f"{r.structure[:12]}  {r.name}  at {_sizes(r.sizes)} for {', '.join(map(_range, r.ranges)) or 'all'}: {gain}"
                  f"{f'  (ignored: {why})' if why else ''}")
        for where, why in file.ignored:
            print(f"{where}: ignored: {why}")
    for kernels in _kernels(options):
        measured = kernels.read()
        print(f"{kernels.path}: {len(measured)} measurements of {len({r.structure for r in measured})} kernels, to start from")
    return 0


def _show(options: argparse.Namespace) -> int:
    found = [s for file in _files(options) for s in file.read() if s.record.structure.startswith(options.structure)]
    for s in found:
        r = s.record
        print(f"{s.where}\n  structure {r.structure}\n  function  {r.name}\n  sizes     {_sizes(r.sizes)}\n"
              f"  ranges    {', '.join(map(_range, r.ranges)) or 'all'}\n  default   {amount(r.default)}\n"
              f"  best      {amount(r.best)}\n  noise     {r.noise:.1%}\n  tuned for {r.spent:.1f} s\n"
              f"  machine   {r.machine}\n  version   {r.version}\n{r.module or '  the default stays'}")
    return 0 if found else _failed(f"there is no record whose structure begins with {options.structure}")


def _merge(options: argparse.Namespace) -> int:
    folder = tuned.directory()
    if folder is None:
        return _failed("there is no cache directory")
    missing = [path for path in options.files if not os.path.isfile(path)]
    if missing:
        return _failed(f"there is no file {missing[0]}")
    for file in [RecordFile(Path(path)) for path in options.files]:
        fresh = 0
        for s in file.read():
            own = RecordFile(folder / f"{s.record.structure}{tuned.SUFFIX}")
            if all(s.record != known.record for known in own.read()):
                own.append([s.record])
                fresh += 1
        print(f"{file.path}: {fresh} records are new")
        for where, why in file.ignored:
            print(f"{where}: ignored: {why}")
    return 0


def _prune(options: argparse.Namespace) -> int:
    kept, gone = 0, 0
    files: list[RecordFile | Records] = [*_files(options), *_kernels(options)]
    for file in files:
        counts = file.prune(options.foreign)
        kept, gone = kept + counts[0], gone + counts[1]
    print(f"{kept} records stay, {gone} lines are removed")
    return 0


def _files(options: argparse.Namespace) -> list[RecordFile]:
    """The files that a command is about."""
    if options.file is None:
        return list(map(RecordFile, files_in(tuned.directory())))
    if not os.path.isfile(options.file):
        raise _NotFound(f"there is no file {options.file}")
    return [RecordFile(Path(options.file))]


def _kernels(options: argparse.Namespace) -> list[Records]:
    """The file of kernels, where the command is about the cache directory and there is one."""
    path = tuned.kernels_file()
    return [Records(path)] if options.file is None and path is not None and path.is_file() else []


def _sizes(sizes: Sequence[int]) -> str:
    return "x".join(map(str, sizes)) or "its one size"


def _range(r: Range) -> str:
    return f"{r[0]}-{'' if r[1] is None else r[1]}"


def _failed(why: str) -> int:
    print(f"loopwright: {why}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
