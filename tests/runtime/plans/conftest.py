"""Fixtures of the tests of plans: plans made anew, and blocks so small that tests have many."""
from __future__ import annotations

from collections.abc import Iterator

import pytest

from shardtrace.ir.support import buffer_pool, threads
from shardtrace.runtime.plans import blocked, registers, tiled_fusion

from ...executors import forget_plans


@pytest.fixture
def planned_anew() -> Iterator[None]:
    """What the test runs is planned anew, and what it planned is forgotten after it."""
    forget_plans()
    yield
    forget_plans()


def _tiny(patch: pytest.MonkeyPatch) -> Iterator[None]:
    for module, name, value in ((tiled_fusion, "SINGLE", 1), (tiled_fusion, "LARGE", 1),
                                (blocked, "BLOCK", 50), (threads, "ENOUGH", 64),
                                (threads, "CORES", 2), (buffer_pool, "SMALLEST", 64),
                                (registers, "FEWEST", 1), (registers, "FEWEST_SELECTED", 1),
                                (blocked, "WIDER", 1)):
        patch.setattr(module, name, value)
    forget_plans()           # what was made ready for other sizes
    yield
    forget_plans()


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Everything is large, blocks are small, and two threads share the work."""
    yield from _tiny(monkeypatch)


@pytest.fixture(scope="module")
def tiny_once() -> Iterator[None]:
    """`tiny`, for all examples of a test."""
    with pytest.MonkeyPatch.context() as patch:
        yield from _tiny(patch)
