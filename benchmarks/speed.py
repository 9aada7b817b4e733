"""How fast: tracing, partitioning, dispatch and simulated runs, as ratios within one run.

    python benchmarks/speed.py                        # against plain numpy
    python benchmarks/speed.py --jax PYTHON           # and against JAX, which that Python has
    python benchmarks/speed.py -k mlp --quick         # some programs, few repeats
    python benchmarks/speed.py --jax PYTHON --write docs/performance.md --json out.json

Each library runs in a process of its own, a program at a time, and all are measured in turns.
Every figure is a median; ratios travel better between machines than times.
"""
from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from suite import names
from suite.document import document
from suite.machine import machine
from suite.race import COMPILED, race, widths
from suite.report import Report, show
from suite.situations import situations
from suite.start import start

HERE = Path(__file__).parent
SUBJECTS = ("programs", "devices", "equations", "mesh", "axes", "start", "situations")


def measure(options: argparse.Namespace) -> Report:
    """Everything that was asked for, printed on stderr as it is found."""
    pythons = {"shardtrace": sys.executable, "numpy": sys.executable}
    if options.jax:
        pythons["jax"] = options.jax
    if options.llvm:
        pythons[COMPILED] = options.llvm
    rounds = 3 if options.quick else options.repeats
    figures = {"figures": f"{'minima' if options.best else 'medians'} of {rounds} rounds, "
               f"{'processor' if options.cpu else 'wall'} time"}
    versions = {"llvmlite" if library == COMPILED else library: python
                for library, python in pythons.items()}
    report = Report(machine(versions) | figures, time.strftime("%Y-%m-%d"))
    if options.load:
        before = Report.from_data(json.loads(options.load.read_text()))
        report.programs, report.widths = before.programs, before.widths
        report.growth, report.start = before.growth, before.start
        report.situations = before.situations
    wanted = [p for p in names().values()
              if not options.k or any(k in p.name for k in options.k)]

    def tell(text: str) -> None:
        print(text, file=sys.stderr, flush=True)
        if options.json:                    # what is found is kept if the rest is broken off
            options.json.write_text(json.dumps(report.data(), indent=1) + "\n")
    if "programs" in options.only:
        for p in wanted:
            report.programs[p.name] = race(p, pythons, rounds, options.best)
            tell(report.program_line(p.name))
    if "devices" in options.only:
        for p in wanted:
            if p.wide:
                report.widths[p.name] = widths(p, sys.executable, rounds, options.best)
                tell(report.width_line(p.name))
    for subject in ("equations", "mesh", "axes"):
        if subject in options.only and not options.k:
            report.growth[subject] = growth(subject, rounds)
            tell(f"{subject}: {report.growth[subject]}")
    if "start" in options.only and not options.k:
        report.start = {library: start(python, library, rounds)
                        for library, python in pythons.items()
                        if library in ("shardtrace", "jax")}
        tell(f"start: {report.start}")
    if "situations" in options.only and not options.k:
        report.situations = situations(pythons, rounds)
        tell(f"situations: {report.situations}")
    return report


def growth(subject: str, rounds: int) -> dict[str, dict[str, float]]:
    """Seconds by row and size, of a process that measures this subject alone."""
    run = subprocess.run([sys.executable, str(HERE / "suite" / "growth.py"), subject, str(rounds)],
                         stdout=subprocess.PIPE, text=True, check=True)
    lines: list[dict[str, Any]] = [json.loads(line) for line in run.stdout.splitlines()]
    return {line["row"]: line["sizes"] for line in lines}


def main() -> None:
    """Measure, show, and write what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--jax", metavar="PYTHON", help="compare with JAX, run by this Python")
    parser.add_argument("--llvm", metavar="PYTHON",
                        help="run also by this Python, which has shardtrace's extra `llvm`")
    parser.add_argument("-k", nargs="+", default=[], metavar="NAME",
                        help="only programs whose name has one of these")
    parser.add_argument("--repeats", type=int, default=7, help="rounds (default 7)")
    parser.add_argument("--quick", action="store_true", help="three rounds")
    parser.add_argument("--best", action="store_true",
                        help="minima instead of medians, where other work disturbs")
    parser.add_argument("--cpu", action="store_true",
                        help="processor time of all threads instead of the clock's, likewise")
    parser.add_argument("--only", nargs="*", choices=SUBJECTS, default=SUBJECTS,
                        help="what to measure (default: everything)")
    parser.add_argument("--load", type=Path, metavar="FILE",
                        help="keep the figures of that file for what is not measured now")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the document")
    options = parser.parse_args()
    if options.cpu:
        os.environ["SPEED_CLOCK"] = "cpu"
    report = measure(options)
    show(report)
    if options.write:
        options.write.write_text(document(report))


if __name__ == "__main__":
    main()
