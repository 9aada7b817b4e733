"""The objective of a jitted function's plan, as given in its compiler options."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...partitioner.cost.prices import Objective
from ...partitioner.pipeline import DEFAULT_OPTIONS, Options

# a compiler option -> the field of an objective
_OPTIONS = {"objective": "name", "hardware": "hardware", "memory_limit": "memory_limit"}


def judged_by(compiler_options: Mapping[str, Any] | None) -> Options:
    """The options of the partitioner. Raises ValueError for an unknown objective or device."""
    if not compiler_options:
        return DEFAULT_OPTIONS
    given = {name: value for name, value in compiler_options.items() if value is not None}
    asked = {name: given[name] for name in _OPTIONS if name in given}
    if not asked:
        return DEFAULT_OPTIONS
    checked = Objective.of(*map(asked.get, _OPTIONS, Objective.of()))._asdict()
    return DEFAULT_OPTIONS._replace(**{name: checked[_OPTIONS[name]] for name in asked})
