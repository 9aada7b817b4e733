"""The region of an equation (ir/ops/control/region.py): whether it has one, and its programs
replaced.

`shard_map`, whose body sees blocks, has no region: passes of its own handle it.
"""
from __future__ import annotations

from ..ir.facts import BRANCHES
from ..ir.ops.control.region import Region
from ..ir.program import Equation, Program

UNKNOWN_TRIPS = 8
"""How often the body of a `while` is taken to run, where it matters."""


def has_region(eqn: Equation) -> bool:
    return eqn.op.region is not None


def is_loop(eqn: Equation) -> bool:
    """Does it run its programs repeatedly, rather than one of them once?"""
    return eqn.op.region is not None and BRANCHES not in eqn.op.facts


def region_of(eqn: Equation) -> Region:
    """The region of an equation that has one."""
    assert eqn.op.region is not None
    return eqn.op.region(eqn)


def trips_of(region: Region) -> int:
    """How often its programs run, as far as is known."""
    return UNKNOWN_TRIPS if region.trips is None else region.trips


def with_programs(params: dict, programs: dict[tuple[str, int], Program]) -> dict:
    """Params with the programs at (param, place) replaced."""
    out = dict(params)
    for (name, place), program in programs.items():
        if place < 0:
            out[name] = program
        else:
            held = list(out[name])
            held[place] = program
            out[name] = tuple(held)
    return out
