"""The program of every stage as rows, and its differences from the stage before."""
from __future__ import annotations

import re
from typing import Any

from ...ir.program import Equation, Program
from ...ir.text.rows import program_rows
from ..analysis import Analysis
from .costs import collective_numbers
from .tables import Tables

_MADE_UP = re.compile(r"%\w+|(?<=\w)%\d+")      # names of the printer's own, new in each text
_NEAR = 64           # rows in which what comes again is looked for


def stage_data(e: Analysis, tables: Tables) -> list[dict[str, Any]]:
    """Each stage: its name, rows `[text, place, collective]`, and `changes`, rows of the one before
    and of this that differ: `[from, to, from here, to here]`. Stages that are alike are left out.
    """
    number = collective_numbers(e)
    found: list[dict[str, Any]] = []
    before: list[str] | None = None
    last: Program | None = None
    for name, program in e.partitioned.stages.items():
        if last is not None and program.eqns == last.eqns and program.level is last.level:
            found[-1]["name"] += f", {name}"
            continue
        last = program
        rows = program_rows(program)
        texts = [_MADE_UP.sub("%", text) for text, _ in rows]
        found.append({"name": name,
                      "rows": [_row(text, eqn, tables, number) for text, eqn in rows],
                      "changes": [] if before is None else _changes(before, texts)})
        before = texts
    return found


def _row(text: str, eqn: Equation | None, tables: Tables, number: dict[int, int]) -> list[Any]:
    if eqn is None:
        return [text, -1, -1]
    return [text, tables.place(eqn.location), number.get(id(eqn), -1)]


def _changes(before: list[str], now: list[str]) -> list[list[int]]:
    """Where two lists of rows differ, in time linear in them: what comes again is looked for in the
    rows nearby alone, since passes leave the order as it is.
    """
    found: list[list[int]] = []
    i = j = 0
    while i < len(before) or j < len(now):
        if i < len(before) and j < len(now) and before[i] == now[j]:
            i, j = i + 1, j + 1
            continue
        down, right = _nearest(before[i:i + _NEAR], now[j:j + _NEAR])
        if found and found[-1][1] == i and found[-1][3] == j:
            found[-1][1::2] = i + down, j + right
        else:
            found.append([i, i + down, j, j + right])
        i, j = i + down, j + right
    return found


def _nearest(before: list[str], now: list[str]) -> tuple[int, int]:
    """How many rows of each are other than the first that both have; all, where there is none."""
    first = {text: n for n, text in reversed(list(enumerate(now)))}
    meet = [(i + first[text], i, first[text]) for i, text in enumerate(before) if text in first]
    if meet:
        return min(meet)[1:]
    return len(before), len(now)
