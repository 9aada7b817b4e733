"""Equations and types that several passes make or look for."""
from __future__ import annotations

from ...ir.diagnostics.location import UNKNOWN, Location
from ...ir.ops.movement.shape import broadcast_in_dim_p
from ...ir.program import Atom, Equation, Literal, Var
from ...ir.types import ArrayType, array_type, unsharded


def makes_zeros(eqn: Equation) -> bool:
    """Does the equation repeat a zero?"""
    return eqn.op.name == "broadcast_in_dim" and _is_zero(eqn.invars[0])


def repeating(number: Atom, out: Var, location: Location = UNKNOWN) -> Equation:
    """The equation that gives an array of one number."""
    return Equation(broadcast_in_dim_p, (number,), (out,), {
        "shape": out.aval.shape, "broadcast_dimensions": (), "sharding": None}, location)


def of_shape(t: ArrayType, shape: tuple[int, ...]) -> ArrayType:
    """The type of a value on one device that differs from another one in its shape."""
    return array_type(shape, t.dtype, t.weak_type, unsharded(len(shape), t.mesh), t.manual,
                      t.memory_space)


def _is_zero(atom: Atom) -> bool:
    return isinstance(atom, Literal) and not atom.aval.shape and bool(atom.val == 0)
