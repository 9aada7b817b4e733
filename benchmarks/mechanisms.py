"""What each pass of the simulated executor gives: how much longer programs run without it.

    python benchmarks/mechanisms.py                  # all programs of the suite, passes that apply
    python benchmarks/mechanisms.py -k recurrence    # some of them

Programs are planned with all passes and without one (`SHARDTRACE_SKIP`), and run in turns in one
process. Figures are processor time, the least of the rounds, as a ratio; where the plan is the same
without a pass there is none (but of passes over plans that are written out as functions). "all
again" is the same as all: by so much ratios are off.
"""
from __future__ import annotations

import argparse
import time
from typing import Any

from suite import names
from suite.library import Library, Program
from suite.worker import Worker

import shardtrace as st
from shardtrace.ir.settings.context import config
from shardtrace.runtime.plans.draft import recording_plans
from shardtrace.runtime.plans.generated import WRITTEN
from shardtrace.runtime.plans.passes import PLANNED
from shardtrace.runtime.rewrites.pipeline import EXECUTION

PASSES = list(dict.fromkeys(
    [p.name for p in (*EXECUTION, *PLANNED, *WRITTEN) if p.may_be_skipped]))
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
            f = worker.fresh()
            with recording_plans() as told:
                f(*worker.args)
            plans[name] = [line.partition("  #")[0] for what, text in told
                           if what == "planned" and "= inlined(" not in text    # bodies of blocks
                           for line in text.splitlines()]
            if name in (ALL, AGAIN, *[step.name for step in WRITTEN]) or plans[name] != plans[ALL]:
                planned[name] = f
                for _ in range(WARM):       # as a function, from the third run on
                    st.block_until_ready(f(*worker.args))
    best = dict.fromkeys(planned, float("inf"))
    for _ in range(rounds):
        for name, f in planned.items():
            with config.override(shardtrace_skip=skips[name]):
                first = time.process_time()
                while time.process_time() - first < SHORTEST:
                    start = time.process_time()
                    st.block_until_ready(f(*worker.args))
                    best[name] = min(best[name], time.process_time() - start)
    base = best.pop(ALL)
    return {name: t / base for name, t in best.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-k", action="append", help="part of the name of a program")
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    for p in names().values():
        if p.timed and (not options.k or any(k in p.name for k in options.k)):
            found = ratios(p, options.rounds)
            print(f"{p.name}: " + ", ".join(f"{name} {x:.2f}" for name, x in found.items()),
                  flush=True)


if __name__ == "__main__":
    main()
