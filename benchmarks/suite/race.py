"""Libraries against each other: one process each, a program at a time, measured in turns.

Every round asks each process for a little of everything, so that what else the machine does falls
on all alike; what other machines of its host disturb is measured again. Figures are medians over
rounds.
"""
from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .library import Program
from .quiet import undisturbed

WORKER = Path(__file__).parent / "worker.py"
SETTLE = 0.1            # seconds; threads of BLAS and of JAX spin for a while after their work
QUICK = 0.3             # seconds; what takes less is done more often in a round
COMPILED = "shardtrace, llvm"            # by an interpreter that has the extra
WARM_UP = 100           # calls after which loops are compiled that will be
WIDTH_ROUNDS = 5        # the least, of processes over few and over many devices


class Process:
    """A worker with its interpreter; see worker.py for what it answers.

    latest: the one that answered last. The next one waits until its threads are at rest.
    """

    latest: Process | None = None

    def __init__(self, python: str, library: str, p: Program, wide: bool = False,
                 **environment: str) -> None:
        devices = int(np.prod(list((p.wide if wide and p.wide else p.mesh).values())))
        environment = {**os.environ, "SHARDTRACE_NUM_DEVICES": str(devices), **environment}
        if library == "jax":
            environment |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS":
                            f"--xla_force_host_platform_device_count={devices}"}
        self.process = subprocess.Popen(
            [python, str(WORKER), library.partition(",")[0], p.name, *(["--wide"] if wide else [])],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        self.error = self._answer().get("error", "")

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"error": "the process ended"}

    def ask(self, do: str, **request: Any) -> Any:
        """The answer; None, and `error` set, where it failed."""
        if self.error:
            return None
        if Process.latest is not self:
            Process.latest = self
            time.sleep(SETTLE)
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **request}) + "\n")
        self.process.stdin.flush()
        answer = self._answer()
        self.error = answer.get("error", "")
        return answer.get("value")

    def measure(self, found: Times, what: str, times: int) -> None:
        """Add the seconds that it answers, in the least disturbed of some tries."""
        seconds, share = undisturbed(lambda: self.ask(what, times=times))
        found.add(what, seconds, share)

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


@dataclass
class Times:
    """Of one program in one library: seconds by what was measured, bytes, and what went wrong.

    best: figures are minima instead of medians (for a machine that does other things too).
    stolen: for each measurement the part of a core that other machines of the host took.
    """
    samples: dict[str, list[float]] = field(default_factory=dict)
    best: bool = False
    equations: int = 0
    allocated: int = 0
    resident: int = 0
    error: str = ""
    stolen: list[float] = field(default_factory=list)

    def add(self, what: str, seconds: list[float] | None, share: float) -> None:
        self.samples.setdefault(what, []).extend(seconds or ())
        self.stolen.append(round(share, 4))

    def median(self, what: str) -> float | None:
        """The median; with `best` the minimum, for what does not vary by itself."""
        found = self.samples.get(what)
        if not found:
            return None
        return min(found) if self.best and what != "first" else statistics.median(found)

    @property
    def first_result(self) -> float | None:
        """From traced to the first result, beyond a run: compiling, and what a first call adds."""
        compiling, first = self.median("compile"), self.median("first")
        return None if compiling is None or first is None else compiling + max(first, 0.0)


def race(p: Program, pythons: Mapping[str, str], rounds: int, best: bool = False
         ) -> dict[str, Times]:
    """The times of a program in each library (`pythons`: its interpreter, by library).

    Results are compared with numpy's first: a library that is off by more than `p.equal` has an
    error and no times.
    """
    workers = {name: Process(python, name, p) for name, python in pythons.items()}
    times = {name: Times(best=best, error=w.error) for name, w in workers.items()}
    try:
        _compare(p, workers, times)
        running = {name: w for name, w in workers.items() if not times[name].error}
        compilers = {name: w for name, w in running.items() if name not in ("numpy", COMPILED)}
        for name, w in compilers.items():
            times[name].equations = w.ask("equations") or 0
        # What takes long is done less often; the slowest of all decides for all.
        trial = {name: w.ask("compile", times=1) or [0.0] for name, w in compilers.items()}
        slow = max((seconds for seconds, in trial.values()), default=0.0)
        compiles = rounds if slow < 1 else min(rounds, 3) if slow < 5 else 1
        each = 3 if slow < QUICK else 1
        if COMPILED in running:
            running[COMPILED].ask("steady", times=WARM_UP)
        runs = {name: _calls_per_round(w) for name, w in running.items()}
        for turn in range(rounds):
            for name, w in running.items():
                w.measure(times[name], "steady", times=runs[name])
            for name, w in compilers.items():
                w.measure(times[name], "trace", times=5)
                if turn < compiles:
                    w.measure(times[name], "compile", times=each)
                    if name != "jax":
                        w.measure(times[name], "first", times=each)
                        w.measure(times[name], "again", times=each)
        for name, w in running.items():
            times[name].error = w.error
    finally:
        for w in workers.values():
            w.close()
    for _ in range(min(compiles, 3)):
        for name in compilers:
            found, share = undisturbed(
                lambda name=name: in_new_process(pythons[name], name, p, "cold_stages"))
            for what, seconds in (found or {}).items():
                times[name].add(what, [seconds], share)
    for name, t in times.items():
        # XLA's buffers are not seen from Python.
        if name not in ("jax", COMPILED) and not t.error:
            t.allocated = in_new_process(pythons[name], name, p, "allocated") or 0
            t.resident = in_new_process(pythons[name], name, p, "resident") or 0
    return times


def _calls_per_round(w: Process) -> int:
    """How many calls a round times: as many as take about `QUICK`, three to nine."""
    seconds = min(w.ask("steady", times=2) or [QUICK])
    return max(3, min(9, int(QUICK / max(seconds, 1e-6))))


def in_new_process(python: str, library: str, p: Program, what: str, **environment: str) -> Any:
    """The answer of a process that has not run anything before; None where it fails. environment:
    further variables of it.
    """
    w = Process(python, library, p, **environment)
    try:
        return w.ask(what)
    finally:
        w.close()


def widths(p: Program, python: str, rounds: int, best: bool = False) -> dict[str, Times]:
    """Steady runs of shardtrace over the devices of `p.mesh` and of `p.wide`, in turns.

    Every round has processes of its own, in which buffers lie elsewhere: with the same work in
    both, that decides which is faster.
    """
    times = {name: Times(best=best) for name in ("few", "many")}
    for _ in range(max(rounds, WIDTH_ROUNDS)):
        workers = {name: Process(python, "shardtrace", p, wide=name == "many") for name in times}
        try:
            for _ in range(2):
                for name, w in workers.items():
                    w.measure(times[name], "steady", times=_calls_per_round(w))
                    times[name].error = w.error
        finally:
            for w in workers.values():
                w.close()
    return times


def _compare(p: Program, workers: Mapping[str, Process], times: dict[str, Times]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found: dict[str, list[np.ndarray]] = {}
        for name, w in workers.items():
            path = str(Path(folder) / f"{name}.npz")
            if w.ask("values", path=path):
                with np.load(path) as data:
                    found[name] = list(data.values())
            times[name].error = w.error
    wanted = found.get("numpy", [])
    for name, values in found.items():
        off = difference(wanted, values)
        if off > p.equal:
            times[name].error = f"results differ from numpy's by {off:.2g} of the largest"


def difference(wanted: list[np.ndarray], values: list[np.ndarray]) -> float:
    """Largest difference of two lists of results, as a part of the largest absolute value."""
    if [x.shape for x in wanted] != [x.shape for x in values]:
        return float("inf")
    worst = 0.0
    for a, b in zip(wanted, values, strict=True):
        if a.size:
            off = np.abs(a.astype(np.float64) - b).max() / (np.abs(a).max() + 1e-30)
            worst = max(worst, float(off) if np.isfinite(off) else float("inf"))
    return worst
