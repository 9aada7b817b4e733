"""Programs of up to six operations type-check, or are refused, as in JAX: results, weak flags,
classes and key phrases of errors. What JAX gives is recorded, see `typed_programs.py`."""
from __future__ import annotations

import warnings

import pytest

from . import typed_programs

CASES = typed_programs.cases()
CHUNK = 50


@pytest.mark.parametrize("start", range(0, len(CASES), CHUNK))
def test_programs_have_the_types_and_errors_of_jax(start: int) -> None:
    wrong = []
    for case in CASES[start:start + CHUNK]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")      # types that lose a split come with a warning
            found = typed_programs.trace("shardtrace", case)
        want, error = case["result"], found.get("raised")
        if error is None:
            good = found == want
        else:
            classes = [c.__name__ for c in type(error).__mro__]
            good = want.get("error") in classes and want["phrase"] in " ".join(str(error).split())
        if not good:
            wrong.append(f"{case['mesh']} {case['axis_types']} {case['inputs']}\n  "
                         + "\n  ".join(case["program"]) + f"\n  JAX: {want}\n  here: {found}")
    assert not wrong, "\n\n".join(wrong)


def test_the_corpus_covers_every_kind_of_axis() -> None:
    kinds = {tuple(sorted(set(c["axis_types"]))) for c in CASES}
    assert kinds >= {("Explicit",), ("Auto", "Explicit")}
    assert sum("error" in c["result"] for c in CASES) > len(CASES) // 5
