"""Passes: named steps from program to program, listed in order where a stage of the work is done.

The partitioner's are in partitioner/passes.py, those by which the simulated executor prepares a
per-device program in runtime/rewrites/pipeline.py, those over the calls that it plans, from draft
to draft, in runtime/plans/passes.py. Each has one form, is verified, timed
(`--time-passes`) and dumped under its name, and those that are not needed for right results can be
left out by `SHARDTRACE_SKIP=name,...`: to find the one that is to blame.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .support.named_tuple import NamedTuple


class Pass(NamedTuple):
    """A step: `run(program, ...)` gives a program with equal results, which the verifier accepts.

    stage: the stage that it belongs to, which its last pass leaves, in dumps and by name. doc: what
    is so afterwards. ops: where there is none of these in a program the step has nothing to do;
    empty: it always may have. inside: it goes into the programs that equations hold, too. (Those
    that may be left out: `SKIPPABLE`, support/environment.py.)
    """
    name: str
    stage: str
    run: Callable[..., Any]
    doc: str = ""
    ops: frozenset[str] = frozenset()
    inside: bool = False

    def idle(self, ops: frozenset[str], holds: bool) -> bool:
        """Has it nothing to do in a program of such ops? holds: some of them hold programs."""
        return bool(self.ops) and not (holds and self.inside) and self.ops.isdisjoint(ops)
