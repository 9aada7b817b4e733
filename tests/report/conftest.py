"""What explains a plan is tested on plans of small programs that are judged by bytes: by time they
would be a matter of latency. Changes are searched for a third of the time that users wait, which is
enough for most tests of what is proposed first: the cases that a file names in `WHOLE_SEARCH` need
all of it.
"""
from __future__ import annotations

import pytest

from shardtrace.report.advice import trials


@pytest.fixture(autouse=True)
def _by_bytes(by_bytes):
    pass


@pytest.fixture(autouse=True)
def _third_of_the_search(request, monkeypatch) -> None:
    whole = getattr(request.module, "WHOLE_SEARCH", ())
    if not any(case in request.node.name for case in whole):
        monkeypatch.setattr(trials, "RATE", trials.RATE / 3)
