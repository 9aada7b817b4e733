"""The integers of a loop of stages (passing/stages.py) that are known before it runs."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...ir.program import Atom, Equation, Literal
from ..axes import axis_names
from .carries import DEEPEST, SAME
from .followed import COUNTING
from .travelling import number

if TYPE_CHECKING:
    from ..simulation.executor import Planner
    from .stages import Stages

Numbers = dict[Any, np.ndarray]         # known integers: [devices * iterations], or [1] for all


def know_numbers(p: Planner, eqn: Equation, s: Stages) -> None:
    """Enter the integers that are known for all devices and iterations."""
    params, flat, at = eqn.params, s.flat, s.numbers
    nc, nk = params["num_consts"], params["num_carry"]
    ticks = np.arange(s.length)
    for var, atom in zip(flat.invars[:nc], s.invars, strict=False):
        known = outside(p, atom, s) if var.aval.size == 1 else None
        if known is not None:
            at[var] = known if len(known) == 1 else np.repeat(known, s.length)
    made = {v: e for e in flat.eqns for v in e.outvars}
    for i, (c, o) in enumerate(zip(flat.invars[nc:nc + nk], flat.outvars, strict=False)):
        if c in s.counters:
            start, step = s.invars[nc + i], made[o].invars[1]    # type: ignore[index]
            assert type(start) is Literal and type(step) is Literal
            at[c] = np.tile(start.val + ticks * step.val, s.devices).astype(c.aval.dtype)
    for var, atom in zip(flat.invars[nc + nk:], s.invars[nc + nk:], strict=True):
        source = p.maker(atom)
        if source is not None and source.op.name == "iota" and not var.aval.shape and (
                var.aval.dtype.kind in "iu"):
            order = ticks[::-1] if params["reverse"] else ticks
            at[var] = np.tile(order, s.devices).astype(var.aval.dtype)
    for e in flat.eqns:
        found = _evaluated(e, at, s, s.length)
        if found is not None:
            at[e.outvars[0]] = found


def is_shared(known: np.ndarray | None) -> bool:
    """Is it a number that is known, and the same on all devices?"""
    return known is not None and bool((known == known[0]).all())


def _evaluated(e: Equation, at: Numbers, s: Stages, times: int) -> np.ndarray | None:
    (out, *more) = e.outvars or (None,)
    if out is None or more or out.aval.size != 1 or out.aval.dtype.kind not in "iub":
        return None
    if e.op.name == "axis_index":
        mine = axis_names(e.params["axis_name"]) == (s.axis,)
        return np.repeat(np.arange(s.devices).astype(out.aval.dtype), times) if mine else None
    if e.op.name not in COUNTING and e.op.name not in SAME:
        return None
    numbers = [at[a] if a in at else number(a) for a in e.invars]
    if not numbers or any([x is None for x in numbers]):
        return None
    if e.op.name in SAME:
        return numbers[0]
    evaluate: Any = e.op.evaluate
    return evaluate(1, *numbers, **e.params) if not out.aval.shape else None


def outside(p: Planner, atom: Atom, s: Stages, depth: int = DEEPEST) -> np.ndarray | None:
    """A known integer of the program around: by device, or one for all."""
    if atom not in s.outside:
        if not depth:
            return None
        source = p.maker(atom)
        found = number(atom)
        if found is None and source is not None and (
                source.op.name in COUNTING or source.op.name in SAME
                or source.op.name == "axis_index"):
            at = {a: outside(p, a, s, depth - 1) for a in source.invars}
            if not any([x is None for x in at.values()]):
                found = _evaluated(source, at, s, 1)        # type: ignore[arg-type]
        s.outside[atom] = found
    return s.outside[atom]
