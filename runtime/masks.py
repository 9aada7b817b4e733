"""Masks: which devices are at work in a loop or branch whose predicate differs between them.

A mask is an array of truth values, one dimension for each axis along which devices may go different
ways. All devices compute; those outside of the mask keep what they had, and a collective must find
its whole group inside or outside: otherwise hardware would wait for ever.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..ir.diagnostic import Label, error
from ..ir.program import Equation
from ..ir.types import array_type
from .axes import MeshAtoms
from .flatten import FlatProgram
from .folding import collective_atoms
from .layout import Atoms, Layout

Arrays = list[Any]
Guard = Callable[[Any], None]
MASK = array_type((), np.dtype(np.bool_))      # the type of a mask on one device
_OWN = frozenset({"all_slice"})        # each device has what it takes: nothing is exchanged


def guard(flat: FlatProgram, atoms: MeshAtoms, mask: Atoms, predicate: Equation | None
          ) -> Guard | None:
    """A check that no collective of the program has a part of its group at work only."""
    if not mask or predicate is None:
        return None
    found: list[tuple[Equation, tuple[int, ...]]] = []
    for eqn in flat.eqns:
        if eqn.op.collective is not None and eqn.op.name not in _OWN:
            group = set(collective_atoms(eqn, atoms))
            dims = tuple(i for i, a in enumerate(mask) if a in group)
            if dims:
                found.append((eqn, dims))
    if not found:
        return None

    def check(active: Any) -> None:
        for eqn, dims in found:
            if (active.any(axis=dims) != active.all(axis=dims)).any():
                raise split_collective(eqn, predicate)

    return check


def split_collective(eqn: Equation, predicate: Equation) -> Exception:
    """The error for a collective that a part of its group would wait in for ever."""
    assert eqn.op.collective is not None
    axes = ", ".join(eqn.op.collective.axes(eqn.params))
    return error(
        RuntimeError, f"`{eqn.op.name}` exchanges over {axes}, but the predicate of "
        f"`{predicate.op.name}` at {predicate.location} lets only some devices of a group along "
        f"{axes} reach it: on hardware they would wait for the others for ever",
        code="split-collective", location=eqn.location, label="not all members come here",
        others=(Label(predicate.location, f"this `{predicate.op.name}` goes different ways"),),
        help=(f"make the predicate equal along {axes}, for example `lax.pmax(pred, {axes!r})`",
              f"or exchange before the `{predicate.op.name}`"))


def mask_dims(mask: Atoms, layout: Layout, ndim: int, atoms: MeshAtoms) -> tuple[int, ...]:
    """Shape in which a mask lies beside an array of this layout."""
    here = set(mask)
    return (*(atoms.size[a] if a in here else 1 for a in layout.stack), *(1,) * ndim)


def selected(mask: Any, new: Arrays, old: Arrays, shapes: Sequence[tuple[int, ...]]) -> Arrays:
    if mask.all():
        return new
    return [np.where(mask.reshape(shape), n, o)
            for n, o, shape in zip(new, old, shapes, strict=True)]


def outer_mask(p: Any) -> tuple[Atoms, Equation | None, list[int]]:
    """Axes, predicate and slot of the mask that holds where an equation stands."""
    if p.mask is None:
        return (), None, []
    return p.mask.layout.stack, p.predicate, [p.mask.slot]
