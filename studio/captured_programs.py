"""The functions that a block of user code jits and calls, explained when it has ended."""
from __future__ import annotations

from typing import Any

from ..driver.analysis.explain import explain_program, explain_stage
from ..driver.caches import clear_caches
from ..driver.execution.call_capture import EagerCall, unwatched, watching
from ..driver.jit.stages import Traced
from ..report.explanation import Explanation


class CapturedPrograms:
    """The programs of a block."""

    def __init__(self) -> None:
        self._items: list[Traced | EagerCall] = []

    def watching(self) -> Any:
        """The block. What was traced before is traced again in it, so that it is seen."""
        clear_caches()
        return watching(self._items.append)

    def __len__(self) -> int:
        """How many programs there are that have not been explained."""
        return len(self._items)

    def explanations(self, hardware: str | None = None) -> list[Explanation]:
        """Explanations of the programs since the last call: of each jitted function, and of what
        communicated outside of any.
        """
        items, self._items = self._items, []
        found: list[Explanation] = []
        with unwatched():
            for item in items:
                if isinstance(item, Traced):
                    found.append(explain_stage(item.lower(), hardware))
                elif any(s is not None for s in item.specs):
                    e = explain_program(item.program, hardware, in_shardings=item.specs)
                    found += [e] if e.collectives else []
        return found
