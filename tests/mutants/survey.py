"""Texts of programs with something changed, as hostile or damaged files have it, and their judge.

    python -m tests.mutants 20000 [SEED]     counts what so many mutants come to

Corpus: corpus.py, with the dumps of the examples. A mutant is right, or is refused by
an error of the package, in bounded time and memory, by the library, on both executors, and by every
command of `shardtrace`; whatever else it raises is listed.
"""
from __future__ import annotations

import collections
import contextlib
import importlib
import io
import random
import re
import resource
import signal
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import shardtrace as st
from shardtrace.cli.problems import Problem
from shardtrace.driver.analysis.explain import explain_program
from shardtrace.driver.execution.programs import further, run_program
from shardtrace.ir.kernels.key_data import storage_dtype
from shardtrace.ir.program import Program
from shardtrace.ir.text.print import print_program
from shardtrace.ir.verify import verify

command = importlib.import_module("shardtrace.cli.main")
SECONDS = 10                      # of processor time
MEMORY = 1 << 30
MOST = 1e6                        # elements of a parameter that are still made
SINGLE_THREAD = 1e5                       # of all parameters, on all devices: those run one by one

_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|[A-Za-z_%@][\w%]*|-?\d+(?:\.\d+)?|\S|\n')
_PARAM = re.compile(r"\w+=(?:\((?:[^()]|\([^()]*\))*\)|[\w'.-]+)")
_PARAMS = re.compile(r"(?<= = )\w+(\[.*\])(?= )")
_CALL = re.compile(r"(?<= = )[a-z_]\w*(?:\[.*\])?.*$", re.MULTILINE)
_TYPE = re.compile(r"\b(?:[a-z]+\d+|bool|key<\w+>)\[[^\]]*\](?:\{[^}]*\})?")
_EXTREMES = (
    "0", "-1", "1", "2", "3", "7", "1000000007", str(2 ** 31), str(2 ** 62), str(2 ** 64),
    "9" * 300, "1e400", "nan", "inf", "-inf", "0.5", "None", "True", "()", "(0,)", "(1, 1)", "{}",
    "((), ())", "''", "'X'", "'nowhere'", '"\\x00"', '"\\u001b[2J"', "'{0.__class__}'", "f32", "i8",
    "bool", "f32[0]", "f32[2,2]", "c64", "key<fry>", "float8", "P()", "P('X')", "{...}", "[", "]",
    "{", "}", "(", ")", ",", "=", ":", "@", "#", "%a", "@f", "\\", "é", "\ufeff", "\x1b", "\x00",
    "psum", "add", "reshape", "ppermute", "all_gather", "while", "cond", "scan", "custom_vjp_call",
    "debug_print", "level local", "mesh (X=0)", "manual", "auto", "!")
_TYPES = ("f32", "bf16", "f64", "i32", "i8", "u4", "bool", "c64", "key<fry>", "f8_e4m3fn")
_CONTROL = "\x00\x07\x1b\r\x0b\x7f\x9b\u2028\u202e\ud800\ufeff"


def mutant(text: str, rng: random.Random, others: Sequence[str]) -> str:
    """The text with one to three changes, some with pieces of other texts."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        text = rng.choice(_CHANGES)(text, rng, rng.choice(others))
    return text


def _tokens(text: str) -> list[str]:
    """Its tokens, at odd places, and what is between them."""
    pieces, end = [], 0
    for m in _TOKEN.finditer(text):
        pieces += [text[end:m.start()], m[0]]
        end = m.end()
    return [*pieces, text[end:]]


def _token(text: str, rng: random.Random, other: str) -> str:
    """A token deleted, repeated, or replaced by an extreme one or one of another text."""
    pieces, words = _tokens(text), _tokens(other)
    if len(pieces) < 2 or len(words) < 2:
        return text
    i = 2 * rng.randrange(len(pieces) // 2) + 1
    pieces[i] = rng.choice(("", pieces[i] + " " + pieces[i], rng.choice(_EXTREMES),
                            words[2 * rng.randrange(len(words) // 2) + 1]))
    return "".join(pieces)


def _swap(text: str, rng: random.Random, _: str) -> str:
    """Two tokens swapped, or one name for another."""
    pieces = _tokens(text)
    alike = [i for i in range(1, len(pieces), 2)
             if rng.random() < 0.5 or re.match(r"[A-Za-z%]", pieces[i])]
    if alike:
        i, j = rng.choice(alike), rng.choice(alike)
        pieces[i], pieces[j] = pieces[j], rng.choice((pieces[i], pieces[j]))
    return "".join(pieces)


def _number(text: str, rng: random.Random, _: str) -> str:
    """A number made another."""
    return _replaced(re.compile(r"(?<![\w.])-?\d+(?![\w.])"), text, rng,
                     lambda m: rng.choice((*_EXTREMES[:16], str(int(m[0][:9]) + 1),
                                           str(int(m[0][:9]) * 2), "-" + m[0])))


def _lines(text: str, rng: random.Random, other: str) -> str:
    """Lines deleted, swapped, repeated, or come from another text."""
    lines, more = text.split("\n"), other.split("\n")
    a, b, change = rng.randrange(len(lines)), rng.randrange(len(lines)), rng.randrange(5)
    if change == 0:
        del lines[a:a + rng.choice((1, 1, 2, 5))]
    elif change == 1:
        lines[a], lines[b] = lines[b], lines[a]
    elif change == 2:
        lines[b:b] = lines[a:a + rng.choice((1, 1, 3))]
    elif change == 3:
        lines.insert(b, rng.choice(more))
    else:
        lines[a:] = more[rng.randrange(len(more)):]
    return "\n".join(lines)


def _param(text: str, rng: random.Random, other: str) -> str:
    """A param gone, repeated, or replaced by one of another text; or all params of an equation."""
    if rng.random() < 0.3:
        return _replaced(_PARAMS, text, rng, lambda m: _one(_PARAMS, other, rng, 1), 1)
    return _replaced(_PARAM, text, rng, lambda m: rng.choice((
        "", f"{m[0]}, {m[0]}", _one(_PARAM, other, rng), f"{m[0].split('=')[0]}="
        f"{rng.choice(_EXTREMES)}", f"{m[0].split('=')[0]}="
        f"{_one(_PARAM, other, rng).partition('=')[2]}")))


def _call(text: str, rng: random.Random, other: str) -> str:
    """What an equation computes replaced by what one of another text does; or by another op."""
    if rng.random() < 0.5:
        return _replaced(_CALL, text, rng, lambda m: _one(_CALL, other, rng))
    op = re.compile(r"(?<= = )[a-z_]\w*")
    return _replaced(op, text, rng, lambda m: _one(op, other, rng))


def _type(text: str, rng: random.Random, other: str) -> str:
    """A type with another dtype, dimension, spec or set of axes; or one of another text."""
    def changed(m: re.Match[str]) -> str:
        dtype, _, dims = m[0].partition("[")
        inside, _, after = dims.partition("]")
        parts = inside.split(",") if inside else []
        axes = rng.choice(("X", "Y", "(X,Y)", "nowhere", "X:(1)2", ""))
        change = rng.randrange(6)
        if change == 0:
            dtype = rng.choice(_TYPES)
        elif change == 1:
            parts.insert(rng.randrange(len(parts) + 1), rng.choice(("0", "1", "2", "1000000007")))
        elif change == 2 and parts:
            del parts[rng.randrange(len(parts))]
        elif change == 3 and parts:
            i = rng.randrange(len(parts))
            parts[i] = parts[i].split("@")[0] + "@" + axes
        elif change == 4:
            after = rng.choice(("{V:X}", "{U:Y}", "{R:X}", "{V:(X,Y)}", "{U:X,V:X}", "{V:Z}", ""))
        else:
            return _one(_TYPE, other, rng)
        return f"{dtype}[{','.join(parts)}]{after}"

    return _replaced(_TYPE, text, rng, changed)


def _nested(text: str, rng: random.Random, _: str) -> str:
    """A token in many brackets, or a program in a program many times."""
    depth = rng.choice((2, 30, 300, 3000))
    begin, end = rng.choice((("(", ")"), ("(", ",)"), ("[", "]"), ("{", "}"), ("((),", ")"),
                             ("{\n", "\n}"), ("\\", "")))
    if rng.random() < 0.3:
        start = text.find("{\n")
        return text[:start + 2] + text[start + 2:].replace("{\n", "{\n" * depth, 1)
    return _replaced(_TOKEN, text, rng, lambda m: begin * depth + m[0] + end * depth)


def _characters(text: str, rng: random.Random, _: str) -> str:
    """Characters that no terminal should see, or a piece cut out."""
    i = rng.randrange(len(text) + 1)
    if rng.random() < 0.3:
        return text[:i] + text[i + rng.choice((1, 10, 100, len(text))):]
    return text[:i] + rng.choice(_CONTROL) * rng.choice((1, 1, 500)) + text[i:]


def _replaced(pattern: re.Pattern[str], text: str, rng: random.Random, by: Any, group: int = 0
              ) -> str:
    found = list(pattern.finditer(text))
    if not found:
        return text
    m = rng.choice(found)
    return text[:m.start(group)] + by(m) + text[m.end(group):]


def _one(pattern: re.Pattern[str], text: str, rng: random.Random, group: int = 0) -> str:
    found = list(pattern.finditer(text))
    return rng.choice(found)[group] if found else ""


_CHANGES = (_token, _token, _swap, _number, _number, _lines, _param, _param, _call, _type, _type,
            _nested, _characters)


# -- judging ---------------------------------------------------------------------------------------

class Internal(Exception):
    """What was raised after the verifier was not foreseen, though it came as an error of ours."""


def own(error: BaseException) -> bool:
    """Is it an error of the package, with a class or a place of its own?"""
    return isinstance(error, st.errors.ShardtraceError) or hasattr(error, "diagnostic")


def outcome(text: str) -> str:
    """How far a program comes, from "refused" (no program) to "ran alone" (on the per-device
    executor too). Raises what is not own."""
    stage = "refused"
    try:
        program = st.parse_program(text)
        stage = "invalid"
        verify(program)
        stage = "verified"
        print_program(program, width=80)
        str(explain_program(program))
        local = list(further(program).values())[-1]
        stage = "partitioned"
        values = arguments(local)
        if values is None:
            return stage
        try:
            run_program(local, values)
            stage = "ran"
            if sum(v.size for v in values) * local.mesh.size > SINGLE_THREAD:
                return stage
            run_program(local, values, "per_device")
        except TooSlow:
            if not loops(local):
                raise
            return "ran for long"
        return "ran alone"
    except Exception as error:
        if not own(error):
            error.add_note(f"after: {stage}")
            raise
        if "INTERNAL: " in str(error) and error.__cause__ is not None:
            raise Internal from error.__cause__
        return stage


def loops(program: Program) -> bool:
    """May it run for as long as a number in it says?"""
    return any(e.op.name in ("scan", "while") for e in program.walk())


def arguments(local: Program) -> list[np.ndarray] | None:
    """A value for each parameter, None where they would be large."""
    rng, values = np.random.default_rng(0), []
    for t in local.global_in or local.in_avals:
        if np.prod(t.shape, dtype=float) > MOST:
            return None
        values.append(rng.integers(0, 2, t.shape).astype(storage_dtype(t.dtype)))
    return values


COMMANDS = (
    ("show",), ("show", "--brief"), ("show", "--json"), ("trace",), ("partition",),
    ("partition", "--stage", "resolved", "--no-locations"), ("run",), ("run", "--compare"),
    ("run", "--executor", "per_device"), ("run", "--profile"), ("explain", "--suggest", "0"),
    ("explain", "--suggest", "1", "--trials", "2"), ("explain", "--json", "--suggest", "0"),
    ("explain", "--table", "--suggest", "0"), ("fmt", "--check"), ("fmt", "--diff"),
    ("collectives",), ("collectives", "--json"), ("check", "--warnings"), ("why", "x"),
    ("why", "y.0"), ("diff", "OTHER"), ("reduce", "--most", "20", "--collective", "all-reduce"),
    ("reduce", "--most", "20", "--error", "a"), ("reduce", "--most", "5", "--differs"),
    ("reduce", "--most", "20", "--warning", "padding"))


def commanded(text: str, words: Sequence[str], folder: Path, other: str) -> str:
    """What `shardtrace` comes to with a file of this text: its verb and exit status.

    Raises what the command tells of, where that is no error of the package.
    """
    (folder / "p.st").write_text(text, errors="surrogatepass")
    (folder / "other.st").write_text(other)
    verb, *options = [str(folder / "other.st") if w == "OTHER" else w for w in words]
    positional = [w for w in options[:1] if verb in ("why", "diff")]
    told: list[BaseException] = []

    def tell(options: Any, message: str, status: int) -> int:
        problem = sys.exc_info()[1]
        assert problem is not None
        cause = problem.__cause__ or problem
        if not (own(cause) or isinstance(cause, Problem | OSError)):
            told.append(cause)
        return before(options, message, status)

    before, command._print_problem = command._print_problem, tell
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            status = command.main([verb, str(folder / "p.st"), *positional,
                                   *options[len(positional):], "--no-progress"])
    finally:
        command._print_problem = before
    if told:
        raise told[0]
    for character in said.getvalue():
        assert character in "\n\t" or character.isprintable(), f"{verb} shows {character!r}"
    return f"{verb}: {status}"


class TooSlow(BaseException):
    """A mutant that took more than SECONDS."""


def _late(*_: Any) -> None:
    raise TooSlow


def survey(count: int, seed: int, groups: Sequence[Sequence[str]]
           ) -> tuple[collections.Counter, dict[str, tuple[str, str]]]:
    """Counts of outcomes, and for each kind of failure a text and a traceback."""
    rng = random.Random(seed)
    counts: collections.Counter = collections.Counter()
    failures: dict[str, tuple[str, str]] = {}
    before = signal.signal(signal.SIGPROF, _late)
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(count):
            texts = rng.choice(groups)
            text = mutant(rng.choice(texts), rng, texts)
            words = rng.choice(COMMANDS) if rng.random() < 0.4 else None
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            try:
                counts[outcome(text) if words is None else
                       commanded(text, words, Path(folder), rng.choice(texts))] += 1
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                cause = error.__cause__ if isinstance(error, Internal) else error
                assert cause is not None
                last = traceback.extract_tb(cause.__traceback__)[-1]
                kind = f"{type(cause).__name__} {Path(last.filename).name}:{last.lineno}"
                counts["FOREIGN"] += 1
                counts[kind] += 1
                failures.setdefault(kind, (text, f"{words}\n" + "".join(
                    traceback.format_exception(error))))
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
    signal.signal(signal.SIGPROF, before)
    return counts, failures


def limit_memory() -> None:
    """Allow this process MEMORY more than it has; beyond that allocations fail."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))
