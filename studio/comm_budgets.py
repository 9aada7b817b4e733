"""What tests communicate: measured, held to budgets, and compared with the previous run."""
from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ..driver.analysis.budgets import assert_comm, check_limits, explained
from ..driver.execution.call_capture import unwatched
from ..ir.source.wording import duration
from ..report.explanation import Explanation
from ..report.words import quantity
from .captured_programs import CapturedPrograms

_SIZE = re.compile(r"\s*([\d_.]+(?:e\d+)?)\s*([kKMGT]?)(i?)B?\s*", re.IGNORECASE)
_PREFIXES = " KMGT"

Records = list[dict[str, Any]]


def size(value: Any) -> Any:
    """Bytes as a number: of "1 MB", "64 KiB", "1e6"; numbers unchanged."""
    if not isinstance(value, str):
        return value
    match = _SIZE.fullmatch(value)
    if not match:
        raise ValueError(f"{value!r} is no size: write a number of bytes, '24 kB', '1.5 MiB'")
    number, prefix, binary = match.groups()
    base = 1024 if binary else 1000
    return int(float(number) * base ** _PREFIXES.index(prefix.upper() or " "))


class Budgets:
    """The limits of one test, and what its functions communicate.

    limits: as of `assert_comm`. by_hand: what the test itself explains counts, and nothing else.
    """

    def __init__(self, limits: Mapping[str, Any], by_hand: bool) -> None:
        self.limits = {name: size(value) if name.startswith("max_") else value
                       for name, value in limits.items()}
        if limits:
            check_limits(**self.limits)
        self.by_hand = by_hand
        self.explanations: list[Explanation] = []
        self._seen = CapturedPrograms()

    def __call__(self, fun: Any, *args: Any, **kwargs: Any) -> Explanation:
        """The explanation of a function on arguments, or of a stage; it is held to the budget."""
        __tracebackhide__ = True             # of pytest: the test's line is what counts
        with unwatched():
            found = explained(fun, *args, **kwargs)
        self.explanations.append(found)
        if self.limits:
            assert_comm(found, **self.limits)
        return found

    def watching(self) -> contextlib.AbstractContextManager[Any]:
        """A block whose jitted functions count, unless the test explains some itself."""
        return contextlib.nullcontext() if self.by_hand else self._seen.watching()

    def check(self) -> None:
        """Raise AssertionError where a function of the test is over the budget."""
        seen = len(self._seen) + len(self.explanations)
        self.explanations += self._seen.explanations()
        if not seen and self.limits:
            raise AssertionError("the test has a budget of communication, and nothing that could "
                                 "exceed it: no jitted function ran in it" + (
                                     ", and `comm` was not called" if self.by_hand else ""))
        if not self.by_hand and self.limits:
            for found in self.explanations:
                assert_comm(found, **self.limits)

    def records(self) -> Records:
        """What was measured, for a report."""
        return [{"name": e.name, "bytes": e.received_bytes, "time": e.time, "peak": e.peak_bytes,
                 "kinds": _kinds(e)} for e in self.explanations]


def _kinds(e: Explanation) -> dict[str, int]:
    kinds: dict[str, int] = {}
    for c in e.collectives:
        kinds[c.kind] = kinds.get(c.kind, 0) + c.count
    return kinds


# -- the report ------------------------------------------------------------------------------------

def step_summary() -> str | None:
    """The file that GitHub shows of a step, to which steps append."""
    return os.environ.get("GITHUB_STEP_SUMMARY")


def rows(found: Mapping[str, Records], before: Mapping[str, Records]) -> list[tuple[str, ...]]:
    """A row for each function of each test: test, function, collectives, bytes, time, memory; what
    was otherwise in the run before stands in brackets.
    """
    made = []
    for test in sorted(found):
        known = _numbered(before.get(test, []))
        for key, r in _numbered(found[test]).items():
            old = known.pop(key, None)
            was = old or dict.fromkeys(("bytes", "time", "peak"))
            new = "" if old is not None or test not in before else " (new)"
            kinds = [_count(r["kinds"], old["kinds"] if old else None, k)
                     for k in sorted({*r["kinds"], *(old["kinds"] if old else ())})]
            made.append((test, r["name"] + new, ", ".join(kinds) or "none",
                         _change(r["bytes"], was["bytes"], _bytes),
                         _change(r["time"], was["time"], duration),
                         _change(r["peak"], was["peak"], _bytes)))
        made += [(test, f"{r['name']} (gone)", "", f"(was {_bytes(r['bytes'])})", "", "")
                 for r in known.values()]
    return made


HEADS = ("test", "function", "collectives", "received", "time", "peak memory")


def report_lines(rows: list[tuple[str, ...]]) -> Iterator[str]:
    """The report as lines for a terminal, a test's functions below its name."""
    if not rows:
        yield "no test is marked with `comm`, or uses the fixture of this name"
    last = ""
    for test, name, kinds, *figures in rows:
        if test != last:
            yield test
        last = test
        yield f"  {name}: {kinds}" + "".join(
            f", {f}{word}" for f, word in zip(figures, ("", "", " held"), strict=True) if f)


def markdown(rows: list[tuple[str, ...]]) -> str:
    """The report as a table in GitHub's Markdown."""
    lines = ["### Communication", ""]
    if not rows:
        return "\n".join([*lines, "No test has a budget of communication.", ""])
    lines += [_line(HEADS), _line(["---"] * 3 + ["---:"] * 3)]
    lines += [_line([f"`{_cell(row[0])}`", f"`{_cell(row[1])}`", *map(_cell, row[2:])])
              for row in rows]
    return "\n".join([*lines, ""])


def _line(cells: Any) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("`", "'").replace("\n", " ")


def _numbered(records: Records) -> dict[tuple[str, int], dict[str, Any]]:
    """By name, and which of this name it is."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for r in records:
        n = 0
        while (r["name"], n) in found:
            n += 1
        found[r["name"], n] = r
    return found


def _bytes(n: float) -> str:
    return quantity(n, "B")


def _count(kinds: Mapping[str, int], before: Mapping[str, int] | None, kind: str) -> str:
    now, was = kinds.get(kind, 0), None if before is None else before.get(kind, 0)
    return f"{now} {kind}" + ("" if was is None or was == now else f" (was {was})")


def _change(now: float, was: float | None, text: Any) -> str:
    if was is None or was == now:
        return text(now)
    part = f", {(now - was) / was:+.0%}" if was else ""
    return f"{text(now)} (was {text(was)}{part})"
