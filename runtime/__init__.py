"""Per-device program to values on simulated or real devices. Imports `ir` only.

`as_process` and `run_processes` stand here for programs that say `runtime.as_process`; `measure`
counts what a program moves, `profile` and `profiling` say where the time of a run goes.
"""
from typing import TYPE_CHECKING

from ..ir.lazy import late_names
from .measure import measure
from .profile import profile, profiling

if TYPE_CHECKING:
    from .processes import as_process, run_processes

__getattr__, __dir__ = late_names(__name__, {"processes": ("as_process", "run_processes")})

__all__ = ["as_process", "measure", "profile", "profiling", "run_processes"]
