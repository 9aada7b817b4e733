"""A test of all rows of a table (tests/rows.py) fails with each row that fails, and says which."""
from __future__ import annotations

import inspect

import pytest

from ..rows import rows


def test_all_rows_run_and_those_that_fail_are_told() -> None:
    seen: list[tuple[int, int]] = []

    @rows("x, root", [(4, 2), (9, 4), (16, 4), (25, 4)])
    def roots(x: int, root: int) -> None:
        seen.append((x, root))
        assert root * root == x

    with pytest.raises(BaseExceptionGroup, match="2 of 4 rows") as found:
        roots()
    assert [e.__notes__ for e in found.value.exceptions] == [
        ["in the row 9, 4"], ["in the row 25, 4"]]
    assert len(seen) == 4


def test_one_row_that_fails_is_the_error_of_the_test() -> None:
    @rows("x", [1, 2, 3], label=lambda x: f"number {x}")
    def odd_or_missing(x: int) -> None:
        if x == 3:
            pytest.skip("never looked at")
        if x == 2:
            pytest.fail("even")

    with pytest.raises(pytest.fail.Exception, match="even") as found:
        odd_or_missing()
    assert found.value.__notes__ == ["in the row number 2"]


def test_a_table_without_a_row_that_runs_is_skipped() -> None:
    @rows("x", [1, 2])
    def missing(x: int) -> None:
        pytest.skip("not here")

    with pytest.raises(pytest.skip.Exception):
        missing()


def test_what_is_no_column_is_a_fixture() -> None:
    @rows("x", [1, 2])
    @rows("y", [3, 4])
    def pairs(x: int, y: int, found: list[tuple[int, int]]) -> None:
        found.append((x, y))

    assert list(inspect.signature(pairs).parameters) == ["found"]
    found: list[tuple[int, int]] = []
    pairs(found=found)
    assert found == [(1, 3), (1, 4), (2, 3), (2, 4)]
