"""Work of one device: floating-point operations, bytes through memory, seconds by the roofline.

An equation takes the longer of its operations (operations.py) at the peak of the device (products
alone: elementwise work is bound by memory) and its bytes through memory, without those that a
compiler would not write (kernels.py). The first equation of a kernel also counts the launch of the
kernel.
"""
from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

from ...ir.facts import BRANCHES, TRANSCENDENTAL
from ...ir.ops.communication.collective_kinds import equation_kind
from ...ir.ops.control.trips import trips
from ...ir.program import Equation, Level, Program
from ...ir.support.immutable import immutable
from ...ir.types import ArrayType
from .hardware import Hardware
from .kernels import Kernels, moved_bytes
from .kinds import by_types, info_of
from .operations import equation_flops


@immutable
class Work:
    """The work of one run on one device. flops: operations without transcendentals.
    transcendentals: elements of functions such as `exp`. hbm_bytes: read and written, without fused
    values.
    """
    flops: float = 0.0
    transcendentals: float = 0.0
    hbm_bytes: float = 0.0

    @property
    def operations(self) -> float:
        """All operations."""
        return self.flops + self.transcendentals

    def __add__(self, other: Work) -> Work:
        return Work(self.flops + other.flops, self.transcendentals + other.transcendentals,
                    self.hbm_bytes + other.hbm_bytes)

    def times(self, n: float) -> Work:
        return Work(self.flops * n, self.transcendentals * n, self.hbm_bytes * n)


def bodies(eqn: Equation) -> list[Program]:
    """The programs that an equation runs."""
    return [program for _, program in eqn.subprograms()] if eqn.op.subprograms else []


def equation_seconds(eqn: Equation, grouped: Kernels, device: Hardware) -> float:
    """Seconds on one device by the roofline, and those of starting a kernel; 0 for exchanges and
    loops. grouped: the kernels of the program.
    """
    start = device.kernel if eqn in grouped.first else 0.0
    if eqn.op.collective is not None:               # the own block is read by what reads it
        return start if equation_kind(eqn) is None else 0.0
    if eqn.op.subprograms:
        return 0.0
    seconds, flops = grouped.moved[eqn] / device.hbm, _matrix_flops(eqn)
    if flops:
        seconds = max(seconds, flops / device.peak_of(eqn.invars[0].aval.dtype))
    return seconds + start


@by_types
def _matrix_flops(eqn: Equation) -> float:
    """Operations of a product, or of linear algebra; 0 for other equations."""
    if eqn.op.arithmetic and (eqn.op.cost.matrix_unit or info_of(eqn).is_product):
        return equation_flops(eqn)
    return 0.0


def program_work(program: Program, keeps_rows: bool = False) -> Work:
    """The work of one run: of one device for a LOCAL program, else of all. Of branches the most
    expensive counts. keeps_rows: as for `moved_bytes`.
    """
    moved = moved_bytes(program, keeps_rows)

    def own(eqn: Equation) -> Work:
        operations = equation_flops(eqn)
        written = 0.0 if eqn.op.collective else float(moved[eqn])
        if TRANSCENDENTAL in eqn.op.facts:
            return Work(0.0, operations, written)
        return Work(operations, 0.0, written)

    def more(one: Work, other: Work) -> Work:
        return max(one, other, key=lambda w: (w.operations, w.hbm_bytes))

    return _over(program, own, lambda p: program_work(p, keeps_rows), more, Work())


def accessed_bytes(program: Program) -> float:
    """Bytes that the equations of one run read and write, without any fusion."""
    def own(eqn: Equation) -> float:
        return float(sum(_size(a.aval) for a in (*eqn.invars, *eqn.outvars)))

    def _size(aval: ArrayType) -> int:
        shape = aval.local_shape() if program.level is Level.LOCAL else aval.shape
        return math.prod(shape) * aval.dtype.itemsize

    return _over(program, own, accessed_bytes, max, 0.0)


def _over(program: Program, own: Callable[[Equation], Any], inside: Callable[[Program], Any],
          more: Callable[[Any, Any], Any], total: Any) -> Any:
    """The sum of a figure over the equations of a program, with loops multiplied and the most
    expensive of branches.
    """
    for eqn in program.eqns:
        nested = bodies(eqn)
        if not nested:
            total = total + own(eqn)
            continue
        each = [inside(p) for p in nested]
        found = functools.reduce(more if BRANCHES in eqn.op.facts else operator.add, each)
        n = trips(eqn)
        total = total + (found.times(n) if isinstance(found, Work) else found * n)
    return total
