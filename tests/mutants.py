"""Texts of programs with something changed, as hostile or damaged files have it, and their judge.

    python tests/mutants.py 20000 [SEED]     counts what so many mutants come to

Corpus: the golden dumps and tests/programs, and every later stage of each. A mutant is right, or is
refused by an error of the package, in bounded time and memory; whatever else it raises is listed.
"""
from __future__ import annotations

import collections
import random
import re
import resource
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np

import shardtrace as st
from shardtrace.driver.analysis.explain import explain_program
from shardtrace.driver.execution.programs import further, run_program
from shardtrace.ir.kernels.key_data import storage_dtype
from shardtrace.ir.text.print import print_program
from shardtrace.ir.verify import verify

HERE = Path(__file__).parent
SECONDS = 10
MEMORY = 1 << 30

_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|[A-Za-z_%@][\w%]*|-?\d+(?:\.\d+)?|\S|\n')
_EXTREMES = (
    "0", "-1", "1", "2", "3", "7", "1000000007", str(2 ** 31), str(2 ** 62), str(2 ** 64),
    "9" * 300, "1e400", "nan", "inf", "-inf", "0.5", "None", "True", "()", "(0,)", "(1, 1)", "{}",
    "((), ())", "''", "'X'", "'nowhere'", '"\\x00"', '"\\u001b[2J"', "'{0.__class__}'", "f32", "i8",
    "bool", "f32[0]", "f32[2,2]", "c64", "key<fry>", "float8", "P()", "P('X')", "{...}", "[", "]",
    "{", "}", "(", ")", ",", "=", ":", "@", "#", "%a", "@f", "\\", "é", "\ufeff", "\x1b", "\x00",
    "psum", "add", "reshape", "ppermute", "all_gather", "while", "cond", "scan", "custom_vjp_call",
    "debug_print", "level local", "mesh (X=0)", "manual", "auto", "!")


def corpus() -> list[str]:
    """The texts that are changed."""
    texts: list[str] = []
    for path in sorted((HERE / "golden" / "dumps").glob("*.txt")):
        texts.extend(re.split(r"^# -- .*\n", path.read_text(), flags=re.MULTILINE)[1:])
    texts.extend(p.read_text() for p in sorted((HERE / "programs").glob("*.st")))
    found: dict[str, None] = {}
    for text in texts:
        try:
            program = st.parse_program(text)
        except st.errors.ProgramSyntaxError:
            continue                                 # a listing that is no program
        found[text] = None
        for stage in further(program).values():
            found[print_program(stage)] = None
    return list(found)


def mutant(text: str, rng: random.Random, words: list[str]) -> str:
    """The text with one to three changes: tokens deleted, repeated, swapped or replaced."""
    tokens = list(_TOKEN.finditer(text))
    spans = [(m.start(), m.end(), m[0]) for m in tokens]
    pieces: list[str] = []
    end = 0
    for a, b, word in spans:
        pieces += [text[end:a], word]
        end = b
    pieces.append(text[end:])
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        kind = rng.randrange(9)
        i = 2 * rng.randrange(len(tokens)) + 1
        if kind == 0:
            pieces[i] = ""
        elif kind == 1:
            pieces[i] += " " + pieces[i]
        elif kind == 2:
            j = 2 * rng.randrange(len(tokens)) + 1
            pieces[i], pieces[j] = pieces[j], pieces[i]
        elif kind == 3:
            pieces[i] = rng.choice(_EXTREMES)
        elif kind == 4:
            pieces[i] = rng.choice(words)
        elif kind == 5:                              # a number, where numbers are
            numbers = [k for k in range(1, len(pieces), 2) if pieces[k].lstrip("-").isdigit()]
            if numbers:
                pieces[rng.choice(numbers)] = rng.choice(_EXTREMES[:10])
        elif kind == 6:                              # a name for another of the same text
            names = [k for k in range(1, len(pieces), 2) if re.match(r"[A-Za-z%]", pieces[k])]
            if names:
                pieces[rng.choice(names)] = pieces[rng.choice(names)]
        elif kind == 7:                              # lines: deleted, swapped, repeated
            lines = "".join(pieces).split("\n")
            a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
            change = rng.randrange(3)
            if change == 0:
                del lines[a]
            elif change == 1:
                lines[a], lines[b] = lines[b], lines[a]
            else:
                lines.insert(b, lines[a])
            return "\n".join(lines)
        else:                                        # a param gone, with its value
            found = list(re.finditer(r"\w+=(?:\((?:[^()]|\([^()]*\))*\)|[\w'.-]+),? ?",
                                     "".join(pieces)))
            if found:
                m = rng.choice(found)
                whole = "".join(pieces)
                return whole[:m.start()] + whole[m.end():]
    return "".join(pieces)


def own(error: BaseException) -> bool:
    """Is it an error of the package, with a class or a place of its own?"""
    return isinstance(error, st.errors.ShardtraceError) or hasattr(error, "diagnostic")


def outcome(text: str) -> str:
    """How far a program comes: "refused", "partitioned" or "ran". Raises what is not own."""
    stage = "refused"
    try:
        program = st.parse_program(text)
        verify(program)
        stage = "verified"
        print_program(program, width=80)
        str(explain_program(program))
        local = list(further(program).values())[-1]
        stage = "partitioned"
        rng = np.random.default_rng(0)
        values = []
        for t in local.global_in or local.in_avals:
            if np.prod(t.shape, dtype=float) > 1e6:
                return stage
            values.append(rng.integers(0, 2, t.shape).astype(storage_dtype(t.dtype)))
        run_program(local, values)
        return "ran"
    except Exception as error:
        if not own(error):
            error.add_note(f"after: {stage}")
            raise
        return stage


class TooSlow(BaseException):
    """A mutant that took more than SECONDS."""


def _late(*_: Any) -> None:
    raise TooSlow


def survey(count: int, seed: int) -> tuple[collections.Counter, dict[str, tuple[str, str]]]:
    """Counts of outcomes, and for each kind of failure a text and a traceback."""
    rng, texts = random.Random(seed), corpus()
    words = sorted({w for t in texts for w in _TOKEN.findall(t)})
    counts: collections.Counter = collections.Counter()
    failures: dict[str, tuple[str, str]] = {}
    signal.signal(signal.SIGALRM, _late)
    for _ in range(count):
        text = mutant(rng.choice(texts), rng, words)
        signal.alarm(SECONDS)
        try:
            counts[outcome(text)] += 1
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            last = traceback.extract_tb(error.__traceback__)[-1]
            kind = f"{type(error).__name__} {Path(last.filename).name}:{last.lineno}"
            counts["FOREIGN"] += 1
            counts[kind] += 1
            failures.setdefault(kind, (text, "".join(traceback.format_exception(error))))
        finally:
            signal.alarm(0)
    return counts, failures


def limit_memory() -> None:
    """Allow this process MEMORY more than it has; beyond that allocations fail."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))


if __name__ == "__main__":
    start = time.perf_counter()
    limit_memory()
    counts, failures = survey(int(sys.argv[1]), int(sys.argv[2]) if sys.argv[2:] else 0)
    for text, trace in failures.values():
        print(trace, text if "-v" in sys.argv else "", sep="\n")
    for kind, n in counts.most_common():
        print(f"{n:7} {kind}")
    print(f"{time.perf_counter() - start:.0f} s, "
          f"at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MB")
