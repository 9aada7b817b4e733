"""Cost of a per-device program, without hardware: bytes on the wire and bytes in memory.

Every device runs the same program on blocks of the same shapes, so one sweep over its equations
tells the figures of all devices, however many there are.
"""
from __future__ import annotations

import math
from dataclasses import dataclass

from ..ir.program import Atom, Program, Var
from ..ir.types import ArrayType
from .collectives import bytes_received, collectives


@dataclass(frozen=True)
class Cost:
    """received: bytes that each device receives in one run. exchanges: collectives run.
    peak: most bytes of blocks that a device holds at once, arguments and constants included.
    """
    received: int
    exchanges: int
    peak: int


def block_bytes(aval: ArrayType) -> int:
    """Bytes of one device's block."""
    return math.prod(aval.local_shape()) * aval.dtype.itemsize


def cost(program: Program) -> Cost:
    """The figures of a LOCAL program."""
    records = collectives(program)
    return Cost(bytes_received(program), sum(r.count for r in records),
                peak_bytes(program))


def peak_bytes(program: Program) -> int:
    """Liveness sweep: a block lives from its equation to its last use; nothing is done in place.

    Arguments and constants are held throughout; a nested program adds its own peak, once.
    """
    last: dict[Atom, int] = {}
    for i, eqn in enumerate(program.eqns):
        for atom in eqn.invars:
            last[atom] = i
    for atom in program.outvars:
        last[atom] = len(program.eqns)
    held = {v for v in (*program.invars, *program.constvars)}
    live = sum(block_bytes(v.aval) for v in held)
    peak = live
    ends: dict[int, list[Var]] = {}
    for i, eqn in enumerate(program.eqns):
        inside = 0
        for name in eqn.op.subprograms:
            value = eqn.params[name]
            for inner in value if isinstance(value, tuple) else (value,):
                own = sum(block_bytes(v.aval) for v in inner.invars)
                inside = max(inside, peak_bytes(inner) - own)
        made = sum(block_bytes(v.aval) for v in eqn.outvars)
        peak = max(peak, live + made + inside)
        for v in eqn.outvars:
            if v in last:
                live += block_bytes(v.aval)
                ends.setdefault(last[v], []).append(v)
        for v in ends.pop(i, ()):
            live -= block_bytes(v.aval)
    return peak
