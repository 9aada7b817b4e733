"""The `compiler_options` of a jitted function: what its plan is judged by. XLA's change nothing."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...ir.diagnostics.diagnostic import fail
from ...ir.diagnostics.errors import JaxRuntimeError
from ...ir.settings.xla import COMPILE_OPTIONS
from ...partitioner.cost.prices import Objective
from ...partitioner.pipeline import DEFAULT_OPTIONS, Options

# a compiler option -> the field of an objective
_OPTIONS = {"objective": "name", "hardware": "hardware", "memory_limit": "memory_limit"}


def checked_options(compiler_options: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The options. Raises JaxRuntimeError for one that is neither ours nor XLA's."""
    for name in compiler_options or ():
        if name not in _OPTIONS and name not in COMPILE_OPTIONS and not name.startswith("xla_"):
            fail(JaxRuntimeError, f"No such compile option: {name!r}", code="compile-option",
                 help=f"options are {', '.join(map(repr, _OPTIONS))}; those of XLA are taken and "
                      "change nothing")
    return compiler_options or {}


def planning_options(compiler_options: Mapping[str, Any] | None) -> Options:
    """The options of the partitioner. Raises ValueError for an unknown objective or device.

    Names that nobody knows are met when a function is compiled (`checked_options`).
    """
    if not compiler_options:
        return DEFAULT_OPTIONS
    asked = {name: compiler_options[name] for name in _OPTIONS
             if compiler_options.get(name) is not None}
    if not asked:
        return DEFAULT_OPTIONS
    checked = Objective.of(*map(asked.get, _OPTIONS, Objective.of()))._asdict()
    return DEFAULT_OPTIONS._replace(**{name: checked[_OPTIONS[name]] for name in asked})
