"""Fixtures that all tests share: golden texts, a clean thread state, hypothesis profiles.

    pytest --update-golden          write what is printed now into tests/golden, then read the diff
    pytest --hypothesis-profile=thorough
"""
from __future__ import annotations

import difflib
from collections.abc import Callable

import hypothesis
import pytest

from .paths import GOLDEN

hypothesis.settings.register_profile("quick", max_examples=25, deadline=None)
hypothesis.settings.register_profile("thorough", max_examples=1000, deadline=None)
hypothesis.settings.load_profile("quick")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="accept the texts printed now")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden("name.txt", text)`: text must equal tests/golden/name.txt."""
    update = request.config.getoption("--update-golden")

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            return
        assert path.exists(), f"{path} is missing; run pytest --update-golden and read it"
        kept = path.read_text()
        if kept != text:
            diff = difflib.unified_diff(kept.splitlines(), text.splitlines(), "golden", "now", "")
            pytest.fail("\n".join(diff), pytrace=False)

    return check
