"""Work of one device: floating-point operations, bytes through memory, seconds by the roofline.

An equation takes the longer of its operations (operations.py) at the peak of the device (products
alone: elementwise work is bound by memory) and its bytes through memory; values that a compiler
would not write do not count (kernels.py).
"""
from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...ir.facts import TRANSCENDENTAL
from ...ir.ops.communication.collective_kinds import trips
from ...ir.program import Equation, Level, Literal, Program
from ...ir.types import ArrayType
from .buffers import by_types, info_of, nbytes
from .hardware import Hardware
from .kernels import Kernels, kernels
from .operations import MATRIX, equation_flops


@dataclass(frozen=True)
class Work:
    """flops: operations but for transcendentals, which count the elements of functions such as
    `exp`; hbm_bytes: read and written, what is fused left out; of one run on one device.
    """
    flops: float = 0.0
    transcendentals: float = 0.0
    hbm_bytes: float = 0.0

    @property
    def operations(self) -> float:
        """All of them."""
        return self.flops + self.transcendentals

    def __add__(self, other: Work) -> Work:
        return Work(self.flops + other.flops, self.transcendentals + other.transcendentals,
                    self.hbm_bytes + other.hbm_bytes)

    def times(self, n: float) -> Work:
        return Work(self.flops * n, self.transcendentals * n, self.hbm_bytes * n)


def bodies(eqn: Equation) -> list[Program]:
    """The programs that an equation runs."""
    return [program for _, program in eqn.subprograms()] if eqn.op.subprograms else []


def equation_bytes(eqn: Equation, held: Kernels) -> float:
    """Bytes that it reads and writes in memory: not what its kernel has at hand."""
    root, fused, invars = held.root, held.fused, eqn.invars
    free = held.free.get(eqn, ())
    if eqn.outvars and eqn.outvars[0] in root:
        return 0.0
    read, written, _ = _costs(eqn)
    total = 0
    for n, a in enumerate(invars):
        if (type(a) is not Literal and root.get(a, a) not in fused   # type: ignore[call-overload]
                and n not in free and not (n and a in invars[:n])):
            total += read[n]
    for n, v in enumerate(eqn.outvars):
        if v not in fused:
            total += written[n]
    return float(total)


@by_types
def _costs(eqn: Equation) -> tuple[list[int], list[int], float]:
    """The bytes that are read of each operand and written of each result, where these lie in
    memory; and the operations of a product, or of linear algebra (0 of others).
    """
    return *_operand_bytes(eqn), (equation_flops(eqn) if eqn.op.arithmetic and (
        eqn.op.name in MATRIX or info_of(eqn).is_product) else 0.0)


def _operand_bytes(eqn: Equation) -> tuple[list[int], list[int]]:
    name = eqn.op.name
    read = [nbytes(a.aval) for a in eqn.invars]
    written = [nbytes(v.aval) for v in eqn.outvars]
    if name == "sort":                    # as often as blocks in order are merged to larger ones
        n = eqn.invars[0].aval.shape[eqn.params["dimension"]]
        return [math.ceil(math.log2(max(n, 2))) * b for b in read], [
            math.ceil(math.log2(max(n, 2))) * b for b in written]
    if name in ("gather", "dynamic_slice", "slice"):
        return [min(n, sum(written)) for n in read], written
    if name == "dynamic_update_slice":    # in place: what changes is counted with the update
        return [0, *read[1:]], [read[1]]
    if name in ("scatter", "scatter-add"):
        return [0, *read[1:]], [2 * read[2]]
    return read, written


def equation_seconds(eqn: Equation, held: Kernels, device: Hardware) -> float:
    """Seconds on one device by the roofline; 0 for collectives and loops."""
    if eqn.op.collective is not None or eqn.op.subprograms:
        return 0.0
    seconds, flops = equation_bytes(eqn, held) / device.hbm, _costs(eqn)[2]
    return max(seconds, flops / device.peak_of(eqn.invars[0].aval.dtype)) if flops else seconds


def program_work(program: Program, keeps_rows: bool = False) -> Work:
    """Work of one run: of one device for a LOCAL program, else of all; of branches the dearest.
    keeps_rows: as of `kernels`.
    """
    held = kernels(program, keeps_rows)

    def own(eqn: Equation) -> Work:
        operations = equation_flops(eqn)
        written = 0.0 if eqn.op.collective else equation_bytes(eqn, held)
        if TRANSCENDENTAL in eqn.op.facts:
            return Work(0.0, operations, written)
        return Work(operations, 0.0, written)

    def more(one: Work, other: Work) -> Work:
        return max(one, other, key=lambda w: (w.operations, w.hbm_bytes))

    return _over(program, own, lambda p: program_work(p, keeps_rows), more, Work())


def accessed_bytes(program: Program) -> float:
    """Bytes that the equations of one run read and write, each by itself."""
    def own(eqn: Equation) -> float:
        return float(sum(_size(a.aval) for a in (*eqn.invars, *eqn.outvars)))

    def _size(aval: ArrayType) -> int:
        shape = aval.local_shape() if program.level is Level.LOCAL else aval.shape
        return math.prod(shape) * aval.dtype.itemsize

    return _over(program, own, accessed_bytes, max, 0.0)


def _over(program: Program, own: Callable[[Equation], Any], inside: Callable[[Program], Any],
          more: Callable[[Any, Any], Any], total: Any) -> Any:
    """A figure over the equations of a program, loops multiplied, the dearest of branches taken."""
    for eqn in program.eqns:
        nested = bodies(eqn)
        if not nested:
            total = total + own(eqn)
            continue
        each = [inside(p) for p in nested]
        found = functools.reduce(more if eqn.op.name == "cond" else operator.add, each)
        n = trips(eqn)
        total = total + (found.times(n) if isinstance(found, Work) else found * n)
    return total
