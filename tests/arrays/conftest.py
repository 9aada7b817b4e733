"""Fixtures of the tests of arrays that several processes share."""
from __future__ import annotations

from collections.abc import Iterator

import pytest

from shardtrace.ir.settings.context import config


@pytest.fixture
def impatient_processes(eight_devices: None) -> Iterator[None]:
    """Eight devices; processes that wait for others give up soon."""
    with config.override(shardtrace_process_timeout=3.0):
        yield
