"""The per-device executor with the time of each equation, for profiles."""
from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from ...ir.program import Equation
from ..plans.plan import TIMED
from .executor import PerDeviceRun


class TimedPerDevice(PerDeviceRun):
    """The per-device executor, each equation timed for all its devices together."""

    def equation(self, eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
        recorder = TIMED.recorder
        if recorder is None:
            return super().equation(eqn, operands)
        recorder.enter()
        start = time.perf_counter()
        try:
            return super().equation(eqn, operands)
        finally:
            recorder.leave((eqn,), start, time.perf_counter(), (True,))
