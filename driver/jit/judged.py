"""What the plan of a jitted function is judged by, as its compiler options say."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...partitioner.cost.hardware import hardware
from ...partitioner.cost.prices import check_objective
from ...partitioner.pipeline import DEFAULT_OPTIONS, Options


def judged_by(compiler_options: Mapping[str, Any] | None) -> Options:
    """The options of the partitioner. Raises ValueError for an unknown objective or device."""
    given = compiler_options or {}
    objective, device = given.get("objective"), given.get("hardware")
    if objective is None and device is None:
        return DEFAULT_OPTIONS
    if objective is not None:
        check_objective(objective)
    return Options(objective=objective, hardware=None if device is None else hardware(device))
