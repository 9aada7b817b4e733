"""Per-device program to values on simulated or real devices. Imports `ir` only.

`as_process` and `run_processes` stand here for programs that say `runtime.as_process`; `measure`
counts what a program moves, `profile` and `profiling` say where the time of a run goes.
"""
from .measure import measure
from .processes import as_process, run_processes
from .profile import profile, profiling

__all__ = ["as_process", "measure", "profile", "profiling", "run_processes"]
