"""Masks: which devices are active in a loop or branch whose predicate differs between them.

A mask is a boolean array, with a dimension for each axis along which the predicate differs. All
devices compute; inactive ones keep their old values. The members of a replica group must be all
active or all inactive at a collective: hardware would deadlock otherwise.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..arrays.axes import MeshAtoms
from ..ir.diagnostics.diagnostic import Label, error
from ..ir.facts import BRANCHES
from ..ir.program import Equation, Program
from ..ir.source.wording import numbered
from ..ir.types import array_type
from .layout import Atoms, Layout

Arrays = list[Any]
MASK = array_type((), np.dtype(np.bool_))      # the type of a mask on one device


def guard(program: Program, atoms: MeshAtoms, mask: Atoms, predicate: Equation | None
          ) -> Callable[[Any], Arrays] | None:
    """A check, by mask, that no collective of the program has only a part of its group active: a
    function without results, called before the program. None: there is nothing to check.
    """
    if not mask or predicate is None:
        return None
    found: list[tuple[Equation, np.ndarray]] = []
    for eqn in program.eqns:
        if eqn.op.collective is not None and not eqn.op.collective.local:
            group = atoms.of_all(eqn.axes)
            if not set(group).isdisjoint(mask):
                groups, parts = atoms.groups(group), eqn.params.get("axis_index_groups")
                found.append((eqn, groups if parts is None else
                              np.concatenate([groups[:, list(p)] for p in parts])))
    if not found:
        return None
    sizes = atoms.sizes(atoms.order)
    shape = tuple(atoms.size[a] if a in mask else 1 for a in atoms.order)

    def check(active: Any) -> Arrays:
        if active.all() or not active.any():
            return []
        at_work = np.broadcast_to(active.reshape(shape), sizes).reshape(-1)
        for eqn, groups in found:
            here = at_work[groups]
            split = np.flatnonzero(here.any(axis=1) != here.all(axis=1))
            if len(split):
                members, there = groups[split[0]], here[split[0]]
                raise split_collective(eqn, predicate, members[there].tolist(),
                                       members[~there].tolist())
        return []

    return check


def split_collective(eqn: Equation, predicate: Equation, here: Sequence[int], away: Sequence[int]
                     ) -> Exception:
    """The error for a collective in which a part of its group would wait for ever.

    predicate: the loop or branch that parted the ranks that came here from those that did not.
    """
    assert eqn.op.collective is not None
    axes = ", ".join(eqn.op.collective.axes(eqn.params))
    name, asks = eqn.op.name, predicate.op.name
    who, missing = (numbered("rank", "ranks", ranks, 8) for ranks in (here, away))
    other, one = _collective_of_other_branch(eqn, predicate), len(away) == 1
    if other is not None:
        doing = f"{'waits' if one else 'wait'} in `{other.op.name}` at {other.location}"
    elif asks == "while":
        doing = f"{'has' if one else 'have'} left the loop at {predicate.location}"
    else:
        doing = f"{'takes' if one else 'take'} a branch without it, at {predicate.location}"
    labels = [Label(predicate.location, f"this `{asks}` goes different ways")]
    if other is not None:
        labels.append(Label(other.location, f"{missing} would wait here"))
    return error(
        RuntimeError, f"deadlock: `{name}` at {eqn.location} exchanges over {axes}, but the "
        f"predicate of `{asks}` at {predicate.location} lets only some devices of a group along "
        f"{axes} reach it: {who} would wait there for ever for {missing}, which {doing}",
        code="split-collective", location=eqn.location, label=f"{who} would wait here",
        others=tuple(labels),
        help=(f"make the predicate equal along {axes}, for example with `lax.pmax`",
              f"or exchange before the `{asks}`"))


def _collective_of_other_branch(eqn: Equation, predicate: Equation) -> Equation | None:
    """The first collective in another branch, in which the missing devices would wait."""
    if BRANCHES not in predicate.op.facts:
        return None
    exchanges = [[e for e in b.walk()
                  if e.op.collective is not None and not e.op.collective.local]
                 for b in predicate.params["branches"]]
    own = [any(e is eqn or (e.op is eqn.op and e.location is eqn.location) for e in found)
           for found in exchanges]
    return next((found[0] for found, mine in zip(exchanges, own, strict=True)
                 if found and not mine), None)


def mask_dims(mask: Atoms, layout: Layout, ndim: int, atoms: MeshAtoms) -> tuple[int, ...]:
    """The shape that makes a mask broadcast with an array of this layout."""
    here = set(mask)
    return (*(atoms.size[a] if a in here else 1 for a in layout.stack), *(1,) * ndim)


def selected(mask: Any, new: Arrays, old: Arrays, shapes: Sequence[tuple[int, ...]]) -> Arrays:
    if mask.all():
        return new
    return [np.where(mask.reshape(shape), n, o)
            for n, o, shape in zip(new, old, shapes, strict=True)]


def outer_mask(p: Any) -> tuple[Atoms, Equation | None, list[int]]:
    """(axes, predicate, slots) of the mask around the equation that is planned, if any."""
    if p.mask is None:
        return (), None, []
    return p.mask.layout.stack, p.predicate, [p.mask.slot]
