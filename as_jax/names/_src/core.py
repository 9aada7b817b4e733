"""The state of tracing, as `jax._src.core` tells it."""
from __future__ import annotations

from ....ir.settings.context import STATE

__all__ = ["trace_state_clean"]


def trace_state_clean() -> bool:
    """Is nothing being traced?"""
    return STATE.interpreter is None
