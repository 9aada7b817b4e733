"""What passes over programs ask of equations, and the types that they make."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ...ir.diagnostics.location import UNKNOWN, Location
from ...ir.ops.movement.shape import broadcast_in_dim_p
from ...ir.program import Atom, Equation, Literal, Var
from ...ir.types import ArrayType, array_type, unsharded


def makes_zeros(eqn: Equation) -> bool:
    """Does the equation repeat a zero?"""
    return eqn.op.name == "broadcast_in_dim" and _is_zero(eqn.invars[0])


def is_zeros(atom: Atom, maker: Callable[[Atom], Equation | None]) -> bool:
    """Is the value a zero, or many? maker: what computes a value, if that is known."""
    made = maker(atom)
    return _is_zero(atom) if made is None else makes_zeros(made)


def makers(eqns: Iterable[Equation]) -> dict[Var, Equation]:
    """By value, the equation that computes it."""
    return {v: e for e in eqns for v in e.outvars}


def repeating(number: Atom, out: Var, location: Location = UNKNOWN) -> Equation:
    """The equation that gives an array of one number."""
    return Equation(broadcast_in_dim_p, (number,), (out,), {
        "shape": out.aval.shape, "broadcast_dimensions": (), "sharding": None}, location)


def repeated(atom: Atom, maker: Callable[[Atom], Equation | None], dims: Sequence[int]
             ) -> Atom | None:
    """What a value repeats along all dimensions but these; None if it does something else."""
    wanted = tuple(dims)
    while True:
        made = maker(atom)
        if made is None or made.op.name != "broadcast_in_dim":
            return None
        source, places = made.invars[0], made.params["broadcast_dimensions"]
        shape = source.aval.shape
        rows = [i for i, d in enumerate(places) if d in wanted]
        if tuple([places[i] for i in rows]) != wanted or any(
                [n != 1 for i, n in enumerate(shape) if i not in rows]):
            return None
        if len(rows) == len(shape):
            return source
        atom, wanted = source, tuple(rows)


def of_shape(t: ArrayType, shape: tuple[int, ...]) -> ArrayType:
    """The type of a value on one device that differs from another one in its shape."""
    return array_type(shape, t.dtype, t.weak_type, unsharded(len(shape), t.mesh), t.manual,
                      t.memory_space)


def _is_zero(atom: Atom) -> bool:
    return isinstance(atom, Literal) and not atom.aval.shape and bool(atom.val == 0)
