"""Random programs over the whole of the public functions, meshes, specs and transformations.

    python tests/fuzz.py --seed 7 --programs 50000 [--kinds loops,ops] [--jax]

Each program is Python source, drawn from its seed; both executors must give what the traced program
means by tests/references.py, and JAX the same, where it is installed and asked for. A failure is
reduced to a few lines and printed with its seed; the counts by kind of program stand at the end.
"""
from __future__ import annotations

import argparse
import collections
import gc
import importlib
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from fuzz_judge import (
    MET,
    NAMES,
    REFUSED,
    Outcome,
    TooSlow,
    foreign,
    judge,
    judge_beside,
    names_of,
    of_error,
    runs_in,
    trace,
)
from fuzz_maker import KINDS, OPS_WITH_SAMPLES, make
from fuzz_reduce import reduced
from fuzz_text import Body, Case

import shardtrace as st
from shardtrace.ir.dialect import OPS

SECONDS = 20
MADE_BY_PASSES = ("all_slice", "exchange_rows", "retile", "place", "random_bits_block",
                  "random_split_block", "rng_bit_generator_block", "custom_lin", "stage")
BESIDE = "refused, JAX runs it"


class Failure(NamedTuple):
    """The first program of those that fail in one way."""
    case: Case
    outcome: Outcome


class Counts:
    """What so many programs come to."""

    def __init__(self) -> None:
        self.outcomes: collections.Counter[tuple[str, str]] = collections.Counter()
        self.refusals: collections.Counter[tuple[str, str]] = collections.Counter()
        self.signs: collections.Counter[str] = collections.Counter()
        self.failures: dict[str, Failure] = {}

    def add(self, case: Case, outcome: Outcome) -> bool:
        """Count it; True if nothing has failed in this way before."""
        self.outcomes[case.kind, outcome.kind] += 1
        if outcome.sign:
            self.signs[f"{outcome.kind}: {outcome.sign}"] += 1
        if not outcome.failed or outcome.sign + case.kind in self.failures:
            return False
        self.failures[outcome.sign + case.kind] = Failure(case, outcome)
        return True

    def table(self) -> str:
        """Programs by kind and outcome, and what was never drawn."""
        columns = sorted({o for _, o in self.outcomes})
        rows = [["kind", *columns, "statements refused"]]
        for kind in dict.fromkeys(k for k, _ in self.outcomes):
            gone = sum(n for (k, _), n in self.refusals.items() if k == kind)
            rows.append([kind, *(str(self.outcomes[kind, o]) for o in columns), str(gone)])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(f"{c:>{w}}" for c, w in zip(row, widths, strict=True)) for row in rows]
        lines += [f"{n:7} {sign}" for sign, n in self.signs.most_common()]
        missing = [n for n in OPS if not MET[n] and n not in MADE_BY_PASSES]
        lines.append(f"ops in no program: {', '.join(missing) or 'none'}")
        return "\n".join(lines)


def _late(*_: Any) -> None:
    raise TooSlow


def programs(seed: int, count: int, kinds: Sequence[str]) -> Iterator[tuple[int, str, str]]:
    """Seeds, kinds and, for programs of ops, the op: all of these in turn."""
    ops = 0
    for i in range(count):
        kind, op = kinds[i % len(kinds)], ""
        if kind == "ops":
            op = OPS_WITH_SAMPLES[(seed + ops) % len(OPS_WITH_SAMPLES)]
            ops += 1
        yield seed + i, kind, op


def survey(seed: int, count: int, kinds: Sequence[str] = KINDS, jax: Any = None,
           tell: Callable[[str], None] = lambda text: None) -> Counts:
    """Judge so many programs. tell: is given the text of each new failure, reduced."""
    counts = Counts()
    theirs = names_of(jax) if jax else {}

    def all_of(case: Case) -> Outcome:
        found = judge(case)
        if jax and not found.failed and found.kind != REFUSED and "sample(" not in case.source():
            found = judge_beside(case, jax, theirs)
        return found

    signal.signal(signal.SIGPROF, _late)
    for number, (at, kind, op) in enumerate(programs(seed, count, kinds)):
        # Again and again: in a destructor it is lost.
        signal.setitimer(signal.ITIMER_PROF, SECONDS, 1)
        try:
            case, refused = make(at, kind, NAMES, trace, op)
            outcome = all_of(case)
            for error, part, whole in refused:
                counts.refusals[kind, type(error).__name__] += 1
                if foreign(error):
                    found = of_error(error, "written")
                    if counts.add(part, found):
                        tell(f"{part.text()}\n{found.detail}")
                elif (whole and jax and "sample(" not in part.source()
                      and runs_in(part, jax, theirs)):
                    sign = f"{BESIDE}: {type(error).__name__}: {str(error).splitlines()[0][:90]}"
                    if counts.add(part, Outcome(BESIDE, sign)):
                        tell(f"{part.text()}\n{sign}")
            signal.setitimer(signal.ITIMER_PROF, 0)
            if counts.add(case, outcome):
                signal.setitimer(signal.ITIMER_PROF, 10 * SECONDS, 1)
                tell(reduced_text(case, outcome, all_of))
        except TooSlow:
            counts.outcomes[kind, "slow"] += 1
            counts.signs[f"slow: seed {at}, {kind}"] += 1
        except Exception as error:
            error.add_note(f"seed {at}, {kind} {op}")
            signal.setitimer(signal.ITIMER_PROF, 0)
            if not foreign(error):
                raise
            case = Case(at, kind, (), (), (), Body("f", []))
            found = of_error(error, "written")
            if counts.add(case, found):
                tell(f"seed {at}, {kind} {op}\n{found.detail}")
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        if number % 500 == 499:
            st.clear_caches()
            if jax:
                jax.clear_caches()
            gc.collect()
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
            tell(f"-- {number + 1} programs, {memory} MB\n{counts.table()}")
    return counts


def reduced_text(case: Case, outcome: Outcome, judged: Callable[[Case], Outcome]) -> str:
    small = reduced(case, lambda c: judged(c)[:2] == outcome[:2])
    return f"{small.text()}\n{outcome.kind}: {outcome.sign}\n{judged(small).detail}"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--kinds", default=",".join(KINDS), help="of programs, with commas")
    parser.add_argument("--jax", action="store_true", help="run them in JAX, too")
    given = parser.parse_args(arguments)
    start = time.perf_counter()
    counts = survey(given.seed, given.programs, given.kinds.split(","),
                    importlib.import_module("jax") if given.jax else None,
                    lambda text: print(text, "", sep="\n", flush=True))
    print(counts.table())
    print(f"{time.perf_counter() - start:.0f} s")
    return 1 if counts.failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
