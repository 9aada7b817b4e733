"""One library, one program, one process: answers what a driver asks, in turns with the others.

    python worker.py LIBRARY PROGRAM [--wide]

Reads requests, a JSON object a line, and answers each with one: `{"do": "trace", "times": 3}` with
the seconds of each. What is timed never includes the making of data or of the mesh.
"""
from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from suite import names
from suite.library import Library, Program, leaves, map_tree, plain_function, plain_value

SEED = 7
RUNS = 4                # of a program whose memory is measured
LATER = 3               # calls that a first one is compared with


class Worker:
    """A program of a library, made ready to be measured. lib: under whose context the caller is."""

    def __init__(self, library: str, p: Program, wide: bool = False,
                 lib: Library | None = None) -> None:
        self.program, self.plain = p, library == "numpy"
        arguments = p.arguments(np.random.default_rng(SEED))
        self.lib: Any = lib
        if self.plain:
            self.args = map_tree(plain_value, arguments)
            self.function = plain_function(p)
            return
        if lib is None:
            self.lib = Library(library, p.wide if wide and p.wide else p.mesh, p.explicit)
            self.context = self.lib.context()           # ends when nobody holds it
            self.context.__enter__()
        self.args = map_tree(self.lib.put, arguments)
        self.jitted = self.lib.root.jit(p.make(self.lib))

    def fresh(self) -> Any:
        """The function jitted again: nothing of it is known yet."""
        return self.lib.root.jit(self.program.make(self.lib))

    def run(self) -> Any:
        """One call of what a user calls, until its results are there."""
        if self.plain:
            return self.function(*self.args)
        return self.lib.root.block_until_ready(self.jitted(*self.args))

    # -- requests ----------------------------------------------------------------------------------

    def trace(self, times: int) -> list[float]:
        """Seconds to trace, each time a new function."""
        functions = [self.fresh() for _ in range(times)]
        return [timed(lambda f=f: f.trace(*self.args)) for f in functions]

    def equations(self) -> int:
        """Equations of the traced program, those of its bodies included."""
        return count_equations(self.fresh().trace(*self.args).jaxpr)

    def compile(self, times: int) -> list[float]:
        """Seconds from traced to a compiled program; no such program is known."""
        found = []
        for _ in range(times):
            stage = self._stage(forgets=True)
            found.append(timed(lambda s=stage: s.lower().compile()))
        return found

    def first(self, times: int) -> list[float]:
        """Seconds by which a new compiled program's first call takes longer than the next ones."""
        found = []
        for _ in range(times):
            compiled = self._stage(forgets=True).lower().compile()
            found.append(self._first_call_overhead(compiled))
        return found

    def again(self, times: int) -> list[float]:
        """Seconds of both, where the same lines were traced and run before."""
        self._first_call_overhead(self._stage(forgets=True).lower().compile())
        found = []
        for _ in range(times):
            stage = self._stage(forgets=False)
            start = CLOCK()
            compiled = stage.lower().compile()
            found.append(CLOCK() - start + self._first_call_overhead(compiled))
        return found

    def cold_stages(self) -> dict[str, float]:
        """Seconds of a trace, and from there to a compiled program and beyond a later call.

        To be called first, in a process that has traced nothing: no rule has been asked for.
        """
        f = self.fresh()
        start = CLOCK()
        traced = f.trace(*self.args)
        found = {"new trace": CLOCK() - start}
        start = CLOCK()
        compiled = traced.lower().compile()
        found["new first"] = CLOCK() - start
        if self.lib.root.__name__ == "shardtrace":
            found["new first"] += max(self._first_call_overhead(compiled), 0.0)
        return found

    def _stage(self, forgets: bool) -> Any:
        """A new function traced. forgets: programs partitioned before are forgotten."""
        traced = self.fresh().trace(*self.args)
        if forgets and self.lib.root.__name__ == "shardtrace":
            importlib.import_module("shardtrace.ir.support.caches").forget("driver.execution.partition_cache")
        return traced

    def _first_call_overhead(self, compiled: Any) -> float:
        wait = self.lib.root.block_until_ready
        first, *others = (timed(lambda: wait(compiled(*self.args))) for _ in range(1 + LATER))
        return first - statistics.median(others)

    def steady(self, times: int, least: float = 2e-3) -> list[float]:
        """Seconds of a call that ran before; calls of less than `least` are timed many at once."""
        one = timed(self.run)
        count = max(1, min(2000, int(least / max(one, 1e-7))))

        def several() -> None:
            for _ in range(count):
                self.run()
        return [timed(several) / count for _ in range(times)]

    def allocated(self, runs: int = RUNS) -> int:
        """Peak bytes that Python and numpy allocate for so many runs beyond their arguments.

        To be called first, as `resident`: buffers that are kept for later runs are part of it.
        """
        self.run()                          # what it imports is no part of it
        if not self.plain:
            self.lib.root.clear_caches()
        gc.collect()
        call = self._ready()
        tracemalloc.start()
        try:
            for _ in range(runs):
                call()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    def resident(self) -> int | None:
        """Bytes that the resident set grows by to its peak in such runs. On Linux only.

        In a process that ran nothing before: memory that was given back may still be resident.
        """
        call = self._ready()
        if not Path("/proc/self/clear_refs").exists():
            return None
        ctypes.CDLL(None).malloc_trim(0)    # what made the arguments is free by now
        before = _status("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")        # a new peak begins
        for _ in range(RUNS):
            call()
        return _status("VmHWM") - before

    def _ready(self) -> Callable[[], Any]:
        """A call of the compiled program, which has not run yet."""
        if self.plain:
            return self.run
        compiled = self.fresh().trace(*self.args).lower().compile()
        return lambda: self.lib.root.block_until_ready(compiled(*self.args))

    def values(self, path: str) -> int:
        """Writes the results, and says how many they are."""
        found = [plain_value(np.asarray(x)) for x in leaves(self.run())]
        np.savez(path, *found)
        return len(found)


CLOCK = time.process_time if os.environ.get("SPEED_CLOCK") == "cpu" else time.perf_counter


def _status(name: str) -> int:
    """Bytes, of a line of /proc/self/status."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0


def timed(f: Callable[[], Any]) -> float:
    """Seconds; of processor time, all threads together, where SPEED_CLOCK=cpu asks for that."""
    start = CLOCK()
    f()
    return CLOCK() - start


def count_equations(jaxpr: Any) -> int:
    """Equations of a program and of the programs in their parameters."""
    total = 0
    for eqn in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        total += 1
        for param in eqn.params.values():
            for inner in param if isinstance(param, (tuple, list)) else (param,):
                if hasattr(inner, "eqns"):
                    total += count_equations(inner)
    return total


def main() -> None:
    """Answer requests until there are none."""
    library, name, *flags = sys.argv[1:]
    answers, sys.stdout = sys.stdout, sys.stderr     # what programs print is not an answer

    def answer(value: Any) -> None:
        print(json.dumps(value), file=answers, flush=True)
    try:
        worker = Worker(library, names()[name], "--wide" in flags)
    except Exception as problem:
        answer({"error": f"{type(problem).__name__}: {str(problem).splitlines()[:1]}"})
        return
    answer({"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer({"value": getattr(worker, request.pop("do"))(**request)})
        except Exception as problem:
            answer({"error": f"{type(problem).__name__}: {' '.join(str(problem).split())[:300]}"})


if __name__ == "__main__":
    main()
