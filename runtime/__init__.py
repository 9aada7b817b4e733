"""Runs per-device programs, on simulated or real devices. Imports `ir` and `arrays`.

There are two executors: simulation/ plans a program on numpy for all devices at once, per_device/
runs it on each device alone. Before it is planned, a program goes through the passes of rewrites/;
a plan (plans/) consists of calls of numpy (calls/).

`as_process` and `run_processes` stand here for programs that say `runtime.as_process`; `measure`
counts what a program moves, `profile` and `profiling` say where the time of a run goes.
"""
from typing import TYPE_CHECKING

from ..ir.support.lazy import lazy_names
from .measure import measure
from .profile import profile, profiling

if TYPE_CHECKING:
    from ..arrays.processes.simulated import as_process, run_processes

__getattr__, __dir__ = lazy_names(
    __name__, {"..arrays.processes.simulated": ("as_process", "run_processes")})

__all__ = ["as_process", "measure", "profile", "profiling", "run_processes"]
