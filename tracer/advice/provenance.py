"""How a mesh axis came to shard a dimension of a traced value.

The equations traced so far and their factor rules tell where the axis of a dimension comes from:
step by step back through the operand that carries the same factor, up to an argument, a constant,
or the equation that introduced it (`reshard`, `out_sharding=`). This serves errors during tracing,
before there is a partitioned program; for that one see partitioner/propagation/origins.py.
"""
from __future__ import annotations

from typing import Any

from ...ir.program import Atom, Equation, Literal, Var
from ...ir.source.location import Location
from ...ir.support.immutable import immutable
from ..staging.builder import Builder

_LONGEST = 4     # expressions named on a path


@immutable
class AxisPath:
    """Where an axis comes from (`source`), through which expressions of the user's, in order."""
    source: str
    through: tuple[Location, ...] = ()

    def __str__(self) -> str:
        shown = [_expression(place) for place in self.through]
        if len(shown) > _LONGEST:
            shown = [*shown[:_LONGEST - 1], "...", shown[-1]]
        return self.source + (", through " + ", ".join(shown) if shown else "")


def axis_path(builder: Builder, atom: Atom, dim: int, axis: str) -> AxisPath | None:
    """The path of `axis` on dimension `dim` of a value of a trace; None where it is not known."""
    places: list[Location] = []
    while True:
        if isinstance(atom, Literal):
            return None
        step = _step(builder, atom, dim, axis)
        if isinstance(step, str):
            return AxisPath(step, tuple(reversed(places)))
        if step is None:
            return None
        builder, atom, dim, place = step
        if place is not None and (not places or str(places[-1]) != str(place)):
            places.append(place)


def _step(builder: Builder, var: Var, dim: int, axis: str) -> Any:
    """One step back: (builder, atom, dim, location), or the source in words, or None."""
    for position, v in enumerate(builder.args):
        if v is var:
            return (f"argument `{v.name or position}` of `{builder.name}`, "
                    f"{var.aval.str_short(True)}")
    for outer, v in zip(builder.captured, builder.captured_vars, strict=True):
        if v is var:
            if builder.parent is None or not hasattr(outer, "variable"):
                return _array_outside(builder, var)
            return builder.parent, outer.variable, dim, None
    if any(v is var for v, _ in builder.consts):
        return _array_outside(builder, var)
    for eqn in reversed(builder.eqns):
        for position, v in enumerate(eqn.outvars):
            if v is var:
                found = _carrier(eqn, position, dim, axis)
                if found is None:
                    return f"{_expression(eqn.location)}, which places it"
                return builder, *found, eqn.location
    return None


def _array_outside(builder: Builder, var: Var) -> str:
    where = f" from outside of `{builder.name}`" if builder.name else ""
    return f"an array{where}, {var.aval.str_short(True)}"


def _carrier(eqn: Equation, position: int, dim: int, axis: str) -> tuple[Atom, int] | None:
    """The operand, and its dimension, from which a result's dimension has its axis."""
    try:
        rule = eqn.op.factor_rule(tuple(v.aval.shape for v in eqn.invars),
                                  tuple(v.aval.shape for v in eqn.outvars), eqn.params)
    except Exception:      # an op without a rule for these params has no path, and no other harm
        return None
    wanted = set(rule.results[position][dim])
    for atom, dims in zip(eqn.invars, rule.operands, strict=True):
        for d, factors in enumerate(dims):
            if wanted.intersection(factors) and axis in atom.aval.entries[d]:
                return atom, d
    return None


def _expression(place: Location) -> str:
    text = place.text()
    if not text or len(text) > 48:
        return f"line {place.line}"
    return f"`{text}` (line {place.line})"
