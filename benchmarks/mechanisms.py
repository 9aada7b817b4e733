"""What each pass of the simulated executor gives: how much longer programs run without it.

    python benchmarks/mechanisms.py                  # all programs of the suite, passes that apply
    python benchmarks/mechanisms.py -k recurrence    # some of them
    python benchmarks/mechanisms.py --goals          # the goal that each pass is there for

Programs are planned with all passes and without one (`SHARDTRACE_SKIP`), and run in turns in one
process. Figures are processor time, the least of the rounds, as a ratio; where the plan is the same
without a pass there is none (but of passes over plans that are written out as functions). "all
again" is the same as all: by so much ratios are off. `--goals` measures for each pass the program
whose goal is met with the pass and not without it; it fails where that is not so.
"""
from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

from suite import names
from suite.goals import CLASSES, PEAK
from suite.library import Library, Program
from suite.race import in_new_process
from suite.worker import Worker

import shardtrace as st
from shardtrace.ir.settings.context import config
from shardtrace.runtime.plans.draft import recording_plans
from shardtrace.runtime.plans.generated import WRITTEN
from shardtrace.runtime.plans.passes import PLANNED
from shardtrace.runtime.rewrites.pipeline import EXECUTION

PASSES = list(dict.fromkeys(
    [p.name for p in (*EXECUTION, *PLANNED, *WRITTEN) if p.may_be_skipped]))
# Programs that a pass is for: each has a goal of time over numpy's (`CLASSES`), or of memory.
ROWS = {
    "masked-gathers": "rows of a split table looked up",
    "narrow-updates": "a cache written where steps are valid",
    "join-slices": "32 layers taken by index, their gradient",
    "round-integers": "integers divided, rounded down",
    "solve-at-once": "kalman filter, 50 steps of 64 series",
    "count-from-front": "rows at clipped places",
    "induction-variables": "gaussian elimination of 64 rows",
    "rematerialize-scans": "24 layers step, scanned",
    "rematerialize": "24 layers step, unrolled, auto",
    "share-zeros": "recurrence, its gradient",
    "spread-windows": "sums over windows, their gradient",
    "interleave": "running maxima, associative scan",
    "order-products": "gated recurrence, its gradient",
    "fuse": "bfloat16, elementwise on 1M",
    "write-over": "a cache written where steps are valid",
    "index-parts": "gaussian elimination of 64 rows",
    "fold-constants": "64 steps of gradient descent, scanned",
}
MEMORY = {"rematerialize-scans", "rematerialize", "share-zeros"}        # those that are for it
ALL, AGAIN = "all", "all again"
WARM, SHORTEST = 4, 0.01            # runs before the first round; seconds of a round


def ratios(p: Program, rounds: int) -> dict[str, float]:
    """By pass that changes the plan, the time without it over the time with all."""
    lib = Library("shardtrace", p.mesh, p.explicit)
    with lib.context():
        return _ratios(Worker("shardtrace", p, lib=lib), rounds)


def _ratios(worker: Worker, rounds: int) -> dict[str, float]:
    planned: dict[str, Any] = {}
    plans: dict[str, list[str]] = {}
    # every one has a key of its own: equal passes, written otherwise, are planned anew
    skips = {ALL: " ", AGAIN: "  ", **{name: name for name in PASSES}}
    for name, skip in skips.items():
        with config.override(shardtrace_skip=skip):
            f, plans[name] = planned_of(worker)
            if name in (ALL, AGAIN, *[step.name for step in WRITTEN]) or plans[name] != plans[ALL]:
                planned[name] = f
                for _ in range(WARM):       # as a function, from the third run on
                    st.block_until_ready(f(*worker.args))
    best = _best({name: lambda f=f: st.block_until_ready(f(*worker.args))
                  for name, f in planned.items()}, skips, rounds)
    base = best.pop(ALL)
    return {name: t / base for name, t in best.items()}


def planned_of(worker: Worker) -> tuple[Any, list[str]]:
    """The function, jitted and run once, and the lines of its plans."""
    f = worker.fresh()
    with recording_plans() as recorded:
        f(*worker.args)
    return f, [line.partition("  #")[0] for what, text in recorded
               if what == "planned" and "= inlined(" not in text    # bodies of blocks
               for line in text.splitlines()]


def _best(runs: dict[str, Callable[[], Any]], skips: dict[str, str], rounds: int
          ) -> dict[str, float]:
    """The least processor seconds of each in so many rounds, in turns."""
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(rounds):
        for name, run in runs.items():
            with config.override(shardtrace_skip=skips[name]):
                first = time.process_time()
                while time.process_time() - first < SHORTEST:
                    start = time.process_time()
                    run()
                    best[name] = min(best[name], time.process_time() - start)
    return best


def over_numpy(p: Program, skip: str, rounds: int) -> tuple[float, float]:
    """Processor time over that of plain numpy: with all passes, and without one."""
    lib, plain = Library("shardtrace", p.mesh, p.explicit), Worker("numpy", p)
    with lib.context():
        worker = Worker("shardtrace", p, lib=lib)
        runs, skips = {"numpy": plain.run}, {"numpy": " ", ALL: " ", skip: skip}
        for name in (ALL, skip):
            f = worker.fresh()
            runs[name] = lambda f=f: st.block_until_ready(f(*worker.args))
            with config.override(shardtrace_skip=skips[name]):
                for _ in range(WARM):
                    runs[name]()
        best = _best(runs, skips, rounds)
    return best[ALL] / best["numpy"], best[skip] / best["numpy"]


def memory_over_numpy(p: Program, skip: str) -> tuple[float, float]:
    """Peak of the memory allocated over that of plain numpy: with all passes, and without one."""
    plain, peak, without = (
        in_new_process(sys.executable, library, p, "allocated", SHARDTRACE_SKIP=skipped)
        for library, skipped in (("numpy", ""), ("shardtrace", ""), ("shardtrace", skip)))
    return peak / plain, without / plain


def goals(rounds: int) -> int:
    """Print each pass, its program, the goal, and ratios with and without; how many are not as
    they should be."""
    wanted = {name: goal for name, column, goal in CLASSES if column == "numpy"}
    bad = 0
    for skip, name in ROWS.items():
        p = names()[name]
        goal = PEAK if skip in MEMORY else wanted[name]
        found, without = (memory_over_numpy(p, skip) if skip in MEMORY
                          else over_numpy(p, skip, rounds))
        good = found <= goal < without
        bad += not good
        print(f"{skip}: {name}{', memory' if skip in MEMORY else ''}, goal {goal:.3g}: "
              f"{found:.3g}, without {without:.3g}{'' if good else ' (!)'}", flush=True)
    return bad


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-k", action="append", help="part of the name of a program")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--goals", action="store_true", help="the goal that each pass is there for")
    options = parser.parse_args()
    if options.goals:
        sys.exit(goals(options.rounds) > 0)
    for p in names().values():
        if p.timed and (not options.k or any(k in p.name for k in options.k)):
            found = ratios(p, options.rounds)
            print(f"{p.name}: " + ", ".join(f"{name} {x:.2f}" for name, x in found.items()),
                  flush=True)


if __name__ == "__main__":
    main()
