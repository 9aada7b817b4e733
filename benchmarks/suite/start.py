"""What starting costs: the import, and the way to a first result."""
from __future__ import annotations

import statistics
import subprocess


def start(python: str, library: str, rounds: int) -> dict[str, float]:
    """Seconds to import a library, and to import it and see a first result; median of processes.

    Python's own start is not part of them; numpy's import is, for all.
    """
    script = (f"import time; a = time.perf_counter(); import {library} as lib, {library}.numpy;"
              "b = time.perf_counter(); float(lib.jit(lambda x: x + 1)(1.0));"
              "c = time.perf_counter(); print(b - a, c - a)")
    found = [[float(v) for v in subprocess.run(
        [python, "-c", script], capture_output=True, text=True, check=True).stdout.split()]
        for _ in range(rounds)]
    imports, firsts = zip(*found, strict=True)
    return {"import": statistics.median(imports), "first use": statistics.median(firsts)}
