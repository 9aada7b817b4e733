"""What is shown is of plans as users get them, judged by time."""
from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _by_bytes():
    pass
