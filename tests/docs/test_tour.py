"""The tour and the cells of tests/docs/tour_cells print what JAX prints.

What JAX printed was recorded by tests/record/tour.py, so these tests need no jax. Text must be
equal, and floats close; of an error message its class and key phrase, since ours say more.
"""
from __future__ import annotations

import functools
import importlib
import math
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from ..copies import copies
from ..paths import EXAMPLES, GOLDEN, TESTS
from . import run_cells

TOUR = EXAMPLES / "sharding_tour.py"
CELLS = TESTS / "docs" / "tour_cells"

BOX = re.compile("[─│┌┐└┘├┤┬┴┼]")
ERROR_LINE = re.compile(r"^(\w+(?:Error|Exception)): (.*)$", re.MULTILINE)
TOKEN = re.compile(r"\d+\.\d*(?:e[-+]?\d+)?|\d+e[-+]?\d+|\w+|[^\w\s]")
DEVICE_WORDS = ", device_kind=cpu, num_cores=None, platform=cpu"


def _golden_of(source: pathlib.Path) -> pathlib.Path:
    folder = GOLDEN if source == TOUR else GOLDEN / "tour_cells"
    return folder / f"{source.stem}.txt"


@pytest.fixture(scope="module")
def outcomes() -> Iterator[Callable[[pathlib.Path], dict]]:
    """What each cell of a file does under shardtrace; one process a file, as it fixes devices."""
    folder = str(pathlib.Path(run_cells.__file__).parent)
    with copies(f"import sys; sys.path.insert(0, {folder!r})\n"
                "import run_cells, shardtrace.numpy") as run:
        @functools.cache
        def of(source: pathlib.Path) -> dict:
            status, out, complaints = run(
                f"import pathlib, run_cells; run_cells.show(pathlib.Path({str(source)!r}))")
            assert status == 0, complaints
            return {outcome.name: outcome for outcome in run_cells.parse(out)}
        yield of


def _all_cells() -> list:
    return [
        pytest.param(source, expected, id=f"{source.stem}: {expected.name}")
        for source in (TOUR, *sorted(CELLS.glob("*.py")))
        for expected in run_cells.parse(_golden_of(source).read_text())
    ]


def key_phrase(message: str) -> str:
    """The part of an error message that ours must contain."""
    message = message.splitlines()[0] if message else ""
    message = re.split(r"\. |:$| Got |, got ", message.replace(DEVICE_WORDS, ""))[0]
    return re.sub(r"^shard_map applied to the function '\w+'", "", message).rstrip(". ")


def difference(expected: str, got: str) -> str | None:
    """Why two printed texts differ, or None. Floats may differ in the last digits."""
    if expected == got:
        return None
    drawn = [[line for line in text.splitlines() if BOX.search(line)] for text in (expected, got)]
    if drawn[0] != drawn[1]:
        return "the drawings differ"
    plain = ["\n".join(line for line in text.splitlines() if not BOX.search(line))
             for text in (expected, got)]
    want, have = (TOKEN.findall(text) for text in plain)
    if len(want) != len(have):
        return "the texts differ"
    for a, b in zip(want, have, strict=True):
        if a == b:
            continue
        if not ("." in a or "e-" in a) or not re.fullmatch(r"[\d.]+(e[-+]?\d+)?", b):
            return f"{a!r} became {b!r}"
        if not math.isclose(float(a), float(b), rel_tol=2e-4, abs_tol=2e-6):
            return f"{a} became {b}"
    if "." not in plain[0] and plain[0].split() != plain[1].split():
        return "the texts differ"
    return None


def split_error(output: str) -> tuple[str, tuple[str, str] | None]:
    """Output before a printed error, and the error's class and first line."""
    found = ERROR_LINE.search(output)
    return (output, None) if found is None else (output[: found.start()], found.groups())


@pytest.mark.parametrize(("source", "expected"), _all_cells())
def test_cell_prints_what_jax_prints(source: pathlib.Path, expected, outcomes) -> None:
    cell = _source_of(source, expected.name)
    needed = re.search(r"^# needs: (.*)$", cell, re.MULTILINE)
    if needed and not _exists(needed[1]):
        pytest.skip(f"{needed[1]} is not there yet")
    got = outcomes(source)[expected.name]
    shown = f"\nexpected:\n{run_cells.render([expected])}\ngot:\n{run_cells.render([got])}"
    before, printed_error = split_error(expected.output)
    got_before, got_error = split_error(got.output)
    reason = difference(before, got_before)
    assert reason is None, reason + shown
    if printed_error is not None:
        assert got_error is not None and got_error[0] == printed_error[0], shown
        assert key_phrase(printed_error[1]) in got_error[1].replace(DEVICE_WORDS, ""), shown
    if expected.error_classes:
        wanted = re.search(r"^# phrase: (.*)$", cell, re.MULTILINE)
        phrase = wanted[1] if wanted else key_phrase(expected.error_text)
        assert expected.error_classes[0] in got.error_classes, shown
        assert phrase in got.error_text.replace(DEVICE_WORDS, ""), shown
    else:
        assert not got.error_classes, shown


def _exists(name: str) -> bool:
    """Is `lax.scan` (say) a public name?"""
    *modules, attribute = name.split(".")
    return hasattr(importlib.import_module(".".join(["shardtrace", *modules])), attribute)


def _source_of(source: pathlib.Path, name: str) -> str:
    cells = run_cells.split_cells(source.read_text())
    return next(cell.source for cell in cells if cell.name == name)


def test_own_steps_of_the_tour_print_what_they_printed(golden, outcomes) -> None:
    """Steps 6 and 7 (types while tracing, the three dumps) have no counterpart in jax."""
    theirs = {outcome.name for outcome in run_cells.parse(_golden_of(TOUR).read_text())}
    own = [outcome for name, outcome in outcomes(TOUR).items() if name not in theirs]
    assert len(own) >= 8
    golden("sharding_tour_own.txt", run_cells.render(own))


def test_tour_runs_as_a_script() -> None:
    done = subprocess.run([sys.executable, str(TOUR)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "LOCAL True" in done.stdout
