"""`hlo`: the collectives of a compiled program, read from a dump of XLA's."""
from __future__ import annotations

import argparse
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from ...ir.diagnostics.diagnostic import visible
from ...ir.support.lazy import lazy_import
from ..arguments import add_hardware
from ..output import Output
from ..problems import Problem
from ..targets import standard_input

_report = lazy_import("...interop.hlo.report", __package__)
_read = lazy_import("...interop.hlo.read", __package__)
_progress = lazy_import("rich.progress")
_console = lazy_import("rich.console")

_LARGE = 4 << 20        # bytes from which progress is shown


def add_options(sub: argparse.ArgumentParser) -> None:
    """The options of the command."""
    sub.add_argument("file", metavar="DUMP.txt",
                     help="HLO text after optimisation, as --xla_dump_to writes it, or `as_text` "
                          "of what JAX compiled; - for standard input")
    add_hardware(sub, "that times are modelled for")


def hlo(options: argparse.Namespace) -> None:
    """Print what a dump exchanges."""
    output = Output(options)
    try:
        found = _report.report_of(_lines(options), options.hardware or "v5p")
    except _read.HloError as error:
        raise Problem(f"{visible(options.file)}: {visible(str(error))}") from error
    if output.as_json:
        output.json(found.to_dict())
    else:
        output.as_it_is(found.text(output.width).rstrip())


def _lines(options: argparse.Namespace) -> Iterator[str]:
    """The lines of the file, one after another, with a bar where there are many."""
    if options.file == "-":
        yield from standard_input().splitlines()
        return
    path = Path(options.file)
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise Problem(f"{visible(options.file)} is no regular file")
        if options.no_progress or status.st_size < _LARGE:
            with open(path, encoding="utf-8", errors="replace") as file:
                yield from file
        else:
            with _progress.open(path, encoding="utf-8", errors="replace", description="reading",
                                transient=True, console=_console.Console(stderr=True)) as file:
                yield from file
    except OSError as error:
        raise Problem(f"cannot read {visible(options.file)}: {error.strerror}") from error
