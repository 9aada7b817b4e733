"""Tables as tests: one test looks at all rows of a table, and reports every row that fails.

Beside what it does a test takes about three milliseconds of two processes. Where most rows of a
table take less, the table is one test, written as with `pytest.mark.parametrize`:

    @rows("x, root", [(4, 2), (9, 3), (16, 4)])
    def test_roots(x, root):
        assert math.sqrt(x) == root

What else the test takes are fixtures, which all rows share. Rows that one wants to pick by name
(`-k dot_general`), such as ops, rewrites and docstrings, stay tests of their own.
"""
from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def rows(names: str, table: Iterable[Any], label: Callable[..., object] | None = None
         ) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator: the test runs for each row, and fails with the errors of all rows that fail.

    names: of the parameters, with commas. table: for each row a tuple of values, or the value of
    the only parameter. label: what to call a row in messages, from its values; by default these.
    A row may be skipped; the test is where all are.
    """
    parameters, table = [name.strip() for name in names.split(",")], list(table)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def on_rows(**fixtures: Any) -> None:
            failed: list[BaseException] = []
            skipped: list[BaseException] = []
            for row in table:
                values = row if len(parameters) > 1 else (row,)
                try:
                    test(**dict(zip(parameters, values, strict=True)), **fixtures)
                except pytest.skip.Exception as reason:
                    skipped.append(reason)
                except (Exception, pytest.fail.Exception) as error:
                    shown = label(*values) if label else ", ".join(map(str, values))
                    error.add_note(f"in the row {shown}")
                    failed.append(error)
            if len(failed) > 1:
                raise BaseExceptionGroup(f"{len(failed)} of {len(table)} rows", failed)
            for error in [*failed, *skipped] if failed or len(skipped) == len(table) else ():
                raise error

        own = inspect.signature(test)
        on_rows.__signature__ = own.replace(parameters=[        # type: ignore[attr-defined]
            p for name, p in own.parameters.items() if name not in parameters])
        return on_rows
    return decorate
