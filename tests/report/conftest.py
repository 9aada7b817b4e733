"""What explains a plan is tested on plans of small programs that are judged by bytes: by time they
would be a matter of latency."""
from __future__ import annotations

import pytest

from shardtrace.ir.context import config


@pytest.fixture(autouse=True)
def _by_bytes():
    with config.override(shardtrace_objective="bytes"):
        yield
