"""Random programs over the whole of the public functions, meshes, specs and transformations.

    python -m tests.fuzz --seed 7 --programs 50000 [--kinds loops,ops] [--jax]

Each program is Python source, drawn from its seed; both executors must give what the traced program
means by tests/references/, and JAX the same, where it is installed and asked for. A failure is
reduced to a few lines and printed with its seed; the counts by kind of program stand at the end.
"""
from __future__ import annotations

import argparse
import collections
import gc
import resource
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import shardtrace as st
from shardtrace.ir.ops.dialect import OPS

from .beside import Oracle, judge_beside, runs_in
from .judge import (
    ABORTED,
    BESIDE_ITSELF,
    MET,
    MORE,
    NAMES,
    REFUSED,
    RIGHT,
    SECOND,
    Outcome,
    TooSlow,
    foreign,
    judge,
    of_error,
    trace,
)
from .maker import KINDS, OPS_WITH_SAMPLES, make
from .reduce import reduced
from .slopes import judge_slopes
from .text import CLASSES, Body, Case, calls_of, transformations

SECONDS = 20
MADE_BY_PASSES = ("all_slice", "exchange_rows", "retile", "place", "random_bits_block",
                  "random_split_block", "rng_bit_generator_block", "custom_lin", "stage")
BESIDE = "refused, JAX runs it"
# What JAX takes by chance: docs/differences.md.
ONLY_JAX = ("Closing over inputs to shard_map",)


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
        self.judged: collections.Counter[tuple[str, str, str]] = collections.Counter()

    def add(self, case: Case, outcome: Outcome) -> bool:
        """Count it; True if nothing has failed in this way before."""
        self.outcomes[case.kind, outcome.kind] += 1
        if not outcome.failed:
            if outcome.sign:
                self.signs[f"{outcome.kind}: {outcome.sign}"] += 1
            return False
        key = key_of(case, outcome)
        self.signs[key] += 1
        if key in self.failures:
            return False
        self.failures[key] = Failure(case, outcome)
        return True

    def judge_was(self, case: Case, judge: str) -> None:
        """Count a judgement that nothing is wrong."""
        kinds = {*case.axis_types}
        mode = kinds.pop() if len(kinds) == 1 else "mixed"
        for made in transformations(case):
            self.judged[made, mode, judge] += 1

    def table(self) -> str:
        """Programs by kind and outcome, and what was never drawn."""
        columns = sorted({o for _, o in self.outcomes})
        rows = [["kind", *columns, "statements refused"]]
        for kind in dict.fromkeys(k for k, _ in self.outcomes):
            gone = sum(n for (k, _), n in self.refusals.items() if k == kind)
            rows.append([kind, *(str(self.outcomes[kind, o]) for o in columns), str(gone)])
        classes = sorted({(mode, judge) for _, mode, judge in self.judged})
        found = [["found right", *(f"{mode}, {judge}" for mode, judge in classes)]]
        found += [[made, *(str(self.judged[made, *c]) for c in classes)] for made in CLASSES
                  if any(m == made for m, _, _ in self.judged)]
        lines = [*aligned(rows), *aligned(found)]
        lines += [f"{n:7} {sign}" for sign, n in self.signs.most_common()]
        missing = [n for n in OPS if not MET[n] and n not in MADE_BY_PASSES]
        lines.append(f"ops in no program: {', '.join(missing) or 'none'}")
        return "\n".join(lines)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{c:>{w}}" for c, w in zip(row, widths, strict=True)) for row in rows]


def key_of(case: Case, outcome: Outcome) -> str:
    """What failures of one cause have in common: how it fails, where, and what is called."""
    return f"{outcome.kind}: {outcome.sign}: {' '.join(sorted(calls_of(case))) or 'arguments'}"


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


def survey(seed: int, count: int, kinds: Sequence[str] = KINDS, jax: Oracle | None = None,
           tell: Callable[[str], None] = lambda text: None) -> Counts:
    """Judge so many programs. tell: is given the text of each new failure, reduced."""
    counts = Counts()

    def judges_of(case: Case) -> Iterator[tuple[str, Callable[[Case], Outcome]]]:
        yield "references", judge
        if case.seed % 4 == 3:
            yield "differences", judge_slopes
        if jax and "sample(" not in case.source():
            yield "JAX", lambda c: judge_beside(c, jax)

    def all_of(case: Case, count: bool = False) -> Outcome:
        """The first failure, else what the references say."""
        first = None
        for name, judged in judges_of(case):
            found = judged(case)
            if count and found.kind == RIGHT:
                counts.judge_was(case, name)
            if first is None or found.failed or found.kind in (MORE, BESIDE_ITSELF, ABORTED):
                first = found
            if found.failed or found.kind == REFUSED:
                break
        assert first is not None
        return first

    signal.signal(signal.SIGPROF, _late)
    for number, (at, kind, op) in enumerate(programs(seed, count, kinds)):
        # Again and again: in a destructor it is lost.
        signal.setitimer(signal.ITIMER_PROF, SECONDS, 1)
        try:
            case, refused = make(at, kind, NAMES, trace, op)
            outcome = all_of(case, count=True)
            for error, part, whole in refused:
                counts.refusals[kind, type(error).__name__] += 1
                if foreign(error):
                    found = of_error(error, "written")
                    if counts.add(part, found):
                        tell(f"{part.text()}\n{found.detail}")
                elif (whole and jax and not str(error).startswith(ONLY_JAX)
                      and "sample(" not in part.source() and runs_in(part, jax)):
                    sign = f"{BESIDE}: {type(error).__name__}: {str(error).splitlines()[0][:90]}"
                    if counts.add(part, Outcome(BESIDE, sign)):
                        tell(f"{part.text()}\n{sign}")
            signal.setitimer(signal.ITIMER_PROF, 0)
            if outcome.failed:
                case, again = smallest(case, outcome, all_of)
                if counts.add(case, outcome):
                    tell(f"{case.text()}\n{outcome.kind}: {outcome.sign}\n{again.detail}")
            else:
                counts.add(case, outcome)
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
            gc.collect()
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
            tell(f"-- {number + 1} programs, {memory} MB\n{counts.table()}")
    return counts


def smallest(case: Case, outcome: Outcome, judged: Callable[[Case], Outcome]
             ) -> tuple[Case, Outcome]:
    """The case reduced, and what is said of it; as it is if that takes too long."""
    try:
        signal.setitimer(signal.ITIMER_PROF, 10 * SECONDS, 1)
        small = reduced(case, lambda c: judged(c)[:2] == outcome[:2])
        return small, judged(small)
    except TooSlow:
        return case, outcome
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--kinds", default=",".join(KINDS), help="of programs, with commas")
    parser.add_argument("--engine", default=SECOND.engine, help="that runs them besides")
    parser.add_argument("--jax", action="store_true", help="run them in JAX, too")
    given = parser.parse_args(arguments)
    SECOND.engine = given.engine
    start = time.perf_counter()
    counts = survey(given.seed, given.programs, given.kinds.split(","),
                    Oracle() if given.jax else None,
                    lambda text: print(text, "", sep="\n", flush=True))
    print(counts.table())
    print(f"{time.perf_counter() - start:.0f} s")
    return 1 if counts.failures else 0
