"""What starting costs: the import, with the numpy names, and the way to a first result."""
from __future__ import annotations

import os
import statistics
import subprocess
import tempfile

from .quiet import undisturbed

SCRIPT = """
import time
clock = time.{clock}
a = clock()
import {library} as lib
b = clock()
import {library}.numpy
c = clock()
float(lib.jit(lambda x: x + 1)(1.0))
d = clock()
print(b - a, c - a, d - a)
"""


def start(python: str, library: str, rounds: int) -> dict[str, float]:
    """Seconds until a library, its numpy names and a first result are there; medians of processes.

    Python's own start is not part of them; numpy's import is. Modules are compiled beforehand, as
    they are for all but the first process that imports them.
    """
    cpu = os.environ.get("SPEED_CLOCK") == "cpu"
    script = SCRIPT.format(library=library, clock="process_time" if cpu else "perf_counter")
    with tempfile.TemporaryDirectory() as compiled:
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = compiled
        found = [undisturbed(lambda: [float(v) for v in subprocess.run(
            [python, "-c", script], capture_output=True, text=True, check=True, env=environment,
            ).stdout.split()])[0] for _ in range(rounds + 1)]
    alone, names, first = (statistics.median(c) for c in zip(*found[1:], strict=True))
    return {"import": alone, "with numpy names": names, "first result": first}
