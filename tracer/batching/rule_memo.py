"""Memoised batching rules: equations of the same kind are batched once.

What a batching rule binds depends on the axis, on the op and its params, on the types and mapped
dimensions of its operands (on the values of numbers, which become literals), on which operands are
the same value, and on the context. If all of that is as before, the same equations are recorded
again, and neither the rule nor inference runs. Rules that use anything else (programs, constants,
axis names) are not memoised, nor are traces that are observed or ops that run at once.
"""
from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from ...ir.op import Op
from ...ir.op_instance import instance_of
from ...ir.program import Atom
from ...ir.settings.context import STATE
from ...ir.types import ArrayType
from ...ir.values.typeof import NUMPY_SCALARS
from ..staging.builder import Builder
from ..staging.steps import marks, owner_of, steps_since
from ..staging.tracer import Tracer


class Place:
    """Where the steps of an equation and the dims of their results are, or shall be, kept."""

    __slots__ = ("_before", "_builders", "_key", "_operands", "_table")

    def __init__(self, builder: Builder, operands: Sequence[Any], table: dict[Any, Any],
                 key: tuple[Any, ...]) -> None:
        self._builders, self._operands = (builder,), operands
        self._table, self._key = table, key

    def repeated(self) -> tuple[list[Any], Sequence[int | None]] | None:
        """What the rule gives, recorded again; None where it is not known. Then it is to be
        recorded, and `keep` to be called."""
        found = self._table.get(self._key)
        if found is not None:
            steps, dims = found
            location = self._builders[0].location or self._builders[0].watch.place()
            return steps.repeat(self._builders, self._operands, location), dims
        self._before = marks(self._builders)
        return None

    def keep(self, results: Sequence[Any], dims: Sequence[int | None]) -> None:
        """Remember what was recorded, if it is all that happened."""
        steps = steps_since(self._before, self._builders, self._operands, results)
        if steps is not None:
            self._table[self._key] = steps, tuple(dims)


def place_of(axis: Hashable, op: Op, operands: Sequence[Any], dims: Sequence[int | None],
             params: dict[str, Any], types: Sequence[ArrayType]) -> Place | None:
    """The place of the plan of an equation; None where it is not remembered."""
    state = STATE
    builder = state.interpreter
    if (type(builder) is not Builder or state.on_equation or op.subprograms or op.effect
            or op.collective is not None):
        return None
    atoms: list[Atom] = []
    key: list[Any] = [state.abstract_mesh, *dims, *types]
    for x in operands:
        if type(x) is Tracer:
            a = x.variable if x.builder is builder else builder.const_vars.get(id(x))
            if a is None:
                return None                              # it would be captured
            key.append(a.aval)
        elif type(x) in NUMPY_SCALARS or type(x) in (int, float, bool, complex):
            a = builder.atom(x)
            key += (type(x), a.aval, a.val.tobytes())    # type: ignore[union-attr]
        else:
            return None
        atoms.append(a)
    if len(set(atoms)) < len(atoms):
        key += [atoms.index(a) for a in atoms]
    try:
        instance = instance_of(op, params)
    except TypeError:
        return None                                      # a param cannot be hashed
    if instance.identity is not instance:
        return None                                      # not one object for all that are equal
    return Place(builder, operands, instance.table(owner_of(axis)), tuple(key))
