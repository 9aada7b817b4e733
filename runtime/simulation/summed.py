"""Ops that are planned in another way where only the sum of their results over devices is seen.

What each device has for itself and zeros elsewhere is then one value for all, which is often there
already. runtime/simulation/folding.py says where only the sum is seen.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ir.dtypes import is_narrow_float
from ...ir.ops.collective import ppermute_p
from ...ir.ops.gather import gather_p
from ...ir.pool import empty
from ...ir.program import Equation, Var
from ..layout import Layout, array_shape
from ..rewrites.alone import axes_of_one
from ..rewrites.equations import is_zeros
from . import collectives, joined, owned, windows
from .own_positions import own_positions
from .permutes import axes_first

if TYPE_CHECKING:
    from .executor import Planner

NONE: frozenset[str] = frozenset()


def _sums(p: Planner, out: Var) -> frozenset[str]:
    """The axes over which only the sum of a result is seen."""
    return p.folds[out].get("sum", NONE) if p.folds and out in p.folds else NONE


def _select(p: Planner, eqn: Equation) -> None:
    """What one device alone lets through is its own sum over the devices."""
    (out,) = eqn.outvars
    allowed = _sums(p, out)
    if allowed and len(eqn.invars) == 3:
        if eqn.invars[0].aval.shape:
            if p.mask is None and _looked_up(p, eqn, allowed):
                return
        else:
            axes = axes_of_one(eqn, p.maker, p.atoms)
            x = p.value_of(eqn.invars[2])
            if axes and axes <= allowed and axes.isdisjoint(x.layout.atoms | x.layout.folded):
                p.bind(out, x.layout._replace(folded=x.layout.folded | axes), x.slot, x.uniform)
                return
            if p.mask is None and _from_some(p, eqn, allowed):
                return
    elif gather_p in p.flat.ops and len(eqn.invars) == 3 and p.mask is None and (
            windows.plan_choice(p, eqn)):
        return
    p.local(eqn)


def _from_some(p: Planner, eqn: Equation, sums: frozenset[str]) -> bool:
    """Plan the sum over devices of what those have on which a scalar is true: often one alone, as
    where a device sends what it has to all others."""
    which, zeros, value = eqn.invars
    (out,) = eqn.outvars
    test, x = p.value_of(which), p.value_of(value)
    axes, layout, atoms = test.layout.stack, x.layout, p.atoms
    if (not axes or not sums.issuperset(axes) or layout.folded or test.layout.folded
            or not layout.atoms.issuperset(axes) or not is_zeros(zeros, p.maker)
            or is_narrow_float(out.aval.dtype) or out.aval.dtype.kind not in "iufc"):
        return False
    rest = layout.without(set(axes))
    shape = array_shape(rest, out.aval.shape, atoms.size)
    read, order = axes_first(p, x, layout, axes)
    write, back = axes_first(p, x, rest, ())
    sizes = atoms.sizes(axes)

    def from_some(tests: Any, array: Any) -> Any:
        parts = array.reshape(read).transpose(order)
        result = empty(shape, array.dtype)
        target = result.reshape(write).transpose(back)
        places = np.flatnonzero(tests)
        if not len(places):
            target[...] = 0
        for i, place in enumerate(places):
            part = parts[np.unravel_index(place, sizes)]
            if i:
                target += part
            else:
                target[...] = part
        return result

    p.bind(out, rest._replace(folded=frozenset(axes)),
           p.plan.call(from_some, (test.slot, x.slot), eqn))
    return True


def _looked_up(p: Planner, eqn: Equation, sums: frozenset[str]) -> bool:
    """Plan the sum over devices of the rows that each of them has, if that is what is selected."""
    found = owned.lookup(eqn, p.maker)
    if found is None:
        return False
    gather, mine = found
    own = own_positions(p, mine, gather.invars[1])
    if own is not None and owned.plan_whole(p, eqn, gather, p.value_of(gather.invars[0]),
                                            p.value_of(own.places), own, sums):
        p.all_unread(eqn, (gather.invars[0], own.places))
        return True
    values = [p.value_of(a) for a in (*gather.invars, mine)]
    if not owned.plan_lookup(p, eqn, gather, values, sums):
        return False
    p.unread(gather.outvars[0])
    return True


def _update(p: Planner, eqn: Equation) -> None:
    """Blocks of all devices that are placed side by side, and summed, are the whole."""
    (out,) = eqn.outvars
    allowed = _sums(p, out)
    found = joined.placed(eqn, p.maker, p.atoms) if allowed and p.mask is None else None
    x = p.value_of(eqn.invars[1])
    if found is None or not allowed.issuperset((*found[1], *x.layout.folded)):
        if allowed or p.mask is not None or gather_p not in p.flat.ops or (
                not windows.plan_update(p, eqn)):
            p.local(eqn)
        return
    d, group = found
    stack, split = collectives.moved(x, group, d)
    slot = p.view(x, stack, split)
    layout = Layout(stack, split, x.layout.folded.union(group)).without(set(group))
    p.bind(out, layout, slot)


def _concatenate(p: Planner, eqn: Equation) -> None:
    """Rows of several devices, one after the other, may be rows of the whole."""
    if ppermute_p not in p.flat.ops or _sums(p, eqn.outvars[0]) or not joined.plan_moved(p, eqn):
        p.local(eqn)


STRATEGIES: dict[str, Callable[[Planner, Equation], None]] = {
    "concatenate": _concatenate, "dynamic_update_slice": _update, "select_n": _select}
