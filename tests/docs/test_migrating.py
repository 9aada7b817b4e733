"""docs/migrating.md tells the truth: each line of its tables is run, old and new side by side."""
from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pytest

import shardtrace as st

from ..paths import DOCS

TEXT = (DOCS / "migrating.md").read_text()
STILL_RUNS, GONE = TEXT.split("## What is gone")
SETUP = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)[0]


def _rows(text: str) -> list[tuple[str, str]]:
    """(then, now) of every row of the tables of a text."""
    rows = [[cell.strip().strip("`") for cell in line.strip("|\n").split(" | ")]
            for line in re.findall(r"^\|.*$", text, re.MULTILINE)]
    return [(row[0], row[1].strip("| ")) for row in rows
            if row[0] not in ("then", "---") and not row[0].startswith("---")]


pytestmark = pytest.mark.usefixtures("kept_config")


def _run(line: str) -> Any:
    """The value of an expression, what a statement assigned to `y`, or what an import bound."""
    names: dict[str, Any] = {}
    exec(SETUP, names)
    before = set(names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            code = compile(line, "<docs/migrating.md>", "eval")
        except SyntaxError:
            exec(line, names)
            bound = line.rsplit(" ", 1)[1] if line.startswith("from ") else "y"
            return names[bound] if bound in names else names[(set(names) - before).pop()]
        return eval(code, names)


def _comparable(value: Any) -> Any:
    if isinstance(value, st.Array):
        return np.asarray(value).tolist(), value.dtype, value.sharding
    return value


@pytest.mark.parametrize(("then", "now"), [row for row in _rows(STILL_RUNS) if row[1]])
def test_the_old_line_gives_what_the_new_one_gives(then: str, now: str) -> None:
    old, new = _run(then), _run(now)
    if callable(new) and not isinstance(new, type):     # functions: of the same meaning
        assert callable(old)
    else:
        assert _comparable(old) == _comparable(new)


@pytest.mark.parametrize(("then", "now"), [row for row in _rows(STILL_RUNS) if not row[1]])
def test_flags_that_can_go_warn(then: str, now: str) -> None:
    with pytest.warns(DeprecationWarning, match="Remove this line"):
        exec(then, {"st": st})


@pytest.mark.parametrize(("then", "now"), _rows(GONE))
def test_what_is_gone_raises_and_its_successor_runs(then: str, now: str) -> None:
    with pytest.raises((AttributeError, RuntimeError, ValueError)):
        _run(then)
    _run(now)


def test_there_are_rows_in_every_table() -> None:
    assert len(_rows(STILL_RUNS)) > 30
    assert len(_rows(GONE)) >= 7
