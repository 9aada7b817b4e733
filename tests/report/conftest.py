"""What explains a plan is tested on plans of small programs that are judged by bytes: by time they
would be a matter of latency."""
from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _by_bytes(by_bytes):
    pass
