"""Programs of these tests are small, so that by time their plans are a matter of latency alone.

What is tested here is that plans are the best by what they are judged by, which for small programs
is easiest to say in bytes. tests/partitioner/cost and tests/partitioner/choice/test_by_time.py have
plans that are judged by time.
"""
from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _by_bytes(by_bytes):
    pass
