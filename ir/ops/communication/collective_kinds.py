"""The collectives of a per-device program, as hardware names them, and how often each runs.

`each_collective` walks a LOCAL program in order, its loops and branches included. What exchanges
nothing (own-block slices, casts, permutations in which every block stays where it is) is left out.
"""
from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ...meshes.mesh import empty_abstract_mesh
from ...program import Equation, Program
from ...support.named_tuple import NamedTuple
from ..control.trips import trips
from . import group_exchange as exchange
from .retile import retile_kind, retile_p
from .variadic import MEMBERS

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")


class Use(NamedTuple):
    """A collective of a program. count: how often it runs, 1 where the length of a loop
    is unknown. conditional: whether it stands in a branch, so that it may not run. members: of one
    with several operands, the exchanges that were combined, where that is known.
    """
    equation: Equation
    kind: str
    mesh_axes: tuple[str, ...]
    group_size: int
    count: int
    conditional: bool
    members: Sequence[Equation] = ()

    @property
    def parts(self) -> list[Use]:
        """What it exchanges of each operand, as if alone; nothing of one operand."""
        return [self._replace(equation=eqn, members=()) for eqn in self.members]

    @property
    def operand_bytes(self) -> int:
        """Bytes of the operands of one device, or those of them that it sends."""
        eqn = self.equation
        collective = eqn.op.collective
        assert collective is not None
        if collective.sent is None:
            return sum(a.aval.local_nbytes for a in eqn.invars)
        size = _size(eqn, collective.axes(eqn.params))
        return sum(collective.sent(a.aval, size, eqn.params) for a in eqn.invars)

    @property
    def received_bytes(self) -> int:
        """Bytes that the busiest device receives in one run, under ring algorithms."""
        return received_bytes(self.equation)


def received_bytes(eqn: Equation) -> int:
    """Bytes that the busiest device receives in one run of a collective."""
    collective = eqn.op.collective
    assert collective is not None
    size = _size(eqn, collective.axes(eqn.params))
    return sum(collective.wire(a.aval, size, eqn.params) for a in eqn.invars)


def equation_kind(eqn: Equation) -> str | None:
    """The kind of a collective that exchanges something ("all-gather"), None of other equations."""
    found = _kind(eqn)
    return None if found is None else found[0]


def collective_of(eqn: Equation) -> Use | None:
    """An equation that exchanges something as one run of a collective, None of other equations."""
    found = _kind(eqn)
    return None if found is None else Use(eqn, *found, 1, False)


def each_collective(program: Program) -> Iterator[Use]:
    """The collectives of a LOCAL program in order."""
    return _uses(program, 1, False)


def total_received(program: Program) -> int:
    """Bytes that the busiest device receives in one run of a LOCAL program.

    Loops are multiplied; of several branches the one counts that receives most.
    """
    total = 0
    for eqn in program.eqns:
        if _kind(eqn) is not None:
            total += received_bytes(eqn)
        for name in eqn.op.subprograms:
            held = eqn.params[name]
            branches = held if isinstance(held, tuple) else (held,)
            total += _repeats(eqn, name) * max(map(total_received, branches))
    return total


def _uses(program: Program, count: int, conditional: bool) -> Iterator[Use]:
    """`each_collective` of a program that runs `count` times, under a condition or not."""
    for eqn in program.eqns:
        found = _kind(eqn)
        if found is not None:
            yield Use(eqn, *found, count, conditional,
                      program.attributes.get(MEMBERS, {}).get(eqn, ()))
        for name in eqn.op.subprograms:
            held = eqn.params[name]
            branches = held if isinstance(held, tuple) else (held,)
            for inner in branches:
                yield from _uses(inner, count * _repeats(eqn, name),
                                 conditional or len(branches) > 1)


def _kind(eqn: Equation) -> tuple[str, tuple[str, ...], int] | None:
    """(kind, mesh axes, group size) of an equation that exchanges something."""
    collective = eqn.op.collective
    if collective is None:
        return None
    axes = collective.axes(eqn.params)
    if eqn.op is retile_p:
        kind, size = retile_kind(eqn.invars[0].aval.local_shape(), eqn.params)
        return (kind, axes, size) if kind else None
    kind = collective.kind
    if not kind:
        return None
    if kind == "collective-permute" and not received_bytes(eqn):
        return None
    return kind, axes, exchange.members(_size(eqn, axes), eqn.params)


def _size(eqn: Equation, axes: Sequence[str]) -> int:
    mesh = next((a.aval.mesh for a in (*eqn.invars, *eqn.outvars) if a.aval.mesh.axis_names),
                empty_abstract_mesh)
    return math.prod(map(mesh.axis_size, axes))


def _repeats(eqn: Equation, name: str) -> int:
    test = name == "cond_jaxpr"                 # runs once more, where it is known how often
    return trips(eqn, unknown=0 if test else 1) + test
