"""The collectives of a per-device program, as hardware names them, and how often each runs.

`each_collective` walks a LOCAL program in order, its loops and branches included. What exchanges
nothing (own-block slices, casts, permutations in which every block stays where it is) is left out.
"""
from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ...meshes.mesh import empty_abstract_mesh
from ...program import Atom, Equation, Literal, Program, Var
from ...support.named_tuple import NamedTuple
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
    for eqn in program.eqns:
        found = _kind(eqn)
        if found is not None:
            yield Use(eqn, *found, count, conditional, program.memo.get(MEMBERS, {}).get(eqn, ()))
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


# -- how often ------------------------------------------------------------------------------------

def trips(eqn: Equation, unknown: int = 1) -> int:
    """How often a loop runs its body; `unknown` where it does not say; 1 of other equations."""
    if eqn.op.name == "scan":
        return int(eqn.params["length"])
    if eqn.op.name == "while":
        found = trip_count(eqn)
        return unknown if found is None else found
    return 1


def _repeats(eqn: Equation, name: str) -> int:
    test = name == "cond_jaxpr"                 # runs once more, where it is known how often
    return trips(eqn, unknown=0 if test else 1) + test


def trip_count(eqn: Equation) -> int | None:
    """How often the body of a `while` equation runs, where it counts from a constant to one."""
    params = eqn.params
    cond, body = params["cond_jaxpr"], params["body_jaxpr"]
    skip, own = params["cond_nconsts"], params["body_nconsts"]
    test = _made_by(cond, cond.outvars[0])
    if test is None or test.op.name not in _TESTS or len(test.invars) != 2:
        return None
    left, right = test.invars
    compare = _TESTS[test.op.name]
    if left not in cond.invars[skip:]:
        left, right, compare = right, left, _TESTS[_SWAPPED[test.op.name]]
    if left not in cond.invars[skip:]:
        return None
    k = cond.invars.index(left) - skip
    outer: dict[Atom, Atom] = dict(zip(cond.invars[:skip], eqn.invars[:skip], strict=True))
    limit, start = _constant(outer.get(right, right)), _constant(eqn.invars[skip + own + k])
    counter = body.invars[own + k]
    step = _made_by(body, body.outvars[k])
    if limit is None or start is None or step is None or step.op.name not in ("add", "sub"):
        return None
    by = [_constant(a) for a in step.invars if a is not counter]
    if len(by) != 1 or by[0] is None or (step.op.name == "sub" and step.invars[0] is not counter):
        return None
    return _steps(start, limit, by[0] if step.op.name == "add" else -by[0], compare)


_TESTS: dict[str, Any] = {"lt": np.less, "le": np.less_equal, "gt": np.greater,
                          "ge": np.greater_equal}
_SWAPPED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}


def _steps(start: int, limit: int, by: int, compare: Any) -> int | None:
    if not compare(start, limit):
        return 0
    if not by or (by > 0) != (compare in (np.less, np.less_equal)):
        return None
    distance = abs(limit - start) + (compare in (np.less_equal, np.greater_equal))
    return -(-distance // abs(by))


def _made_by(program: Program, atom: Atom) -> Equation | None:
    return next((e for e in program.eqns if atom in e.outvars), None)


def _constant(atom: Atom) -> int | None:
    if isinstance(atom, Var) or not isinstance(atom, Literal):
        return None
    value = np.asarray(atom.val)
    return int(value) if value.ndim == 0 and value.dtype.kind in "iu" else None
