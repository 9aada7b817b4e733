"""Sinking a reshard below an equation: can the equation run on its operands before the reshard?

After `y = reshard x` an equation that reads y can often run on x, with the reshard of its result
afterwards: a partial sum passes what is linear in it, a sharded value passes what keeps its
dimensions. `sunk` answers for one equation, by its factor rule and the op's linear operand sets:
which operands are taken before their reshard, which types the others then need, and the type of the
result.

A partial sum may be multiplied only by what all devices hold alike and what cannot be infinite; it
may not be rounded; and what is added to it is added on one device only.
"""
from __future__ import annotations

import cmath
import math
from collections.abc import Collection, Iterable, Mapping, Sequence, Set

from ...ir.ops.communication.sharding import reshard_p
from ...ir.program import Atom, Equation, Literal
from ...ir.rules.factor import PASS
from ...ir.support.caches import cached
from ...ir.support.named_tuple import NamedTuple
from ...ir.types import ArrayType
from ..factors import Axes, AxisSize, RuleInfo, project, rule_info, tensor_entries
from ..propagation.resolved_types import typed
from ..redistribution.redistribute import plan

_EMPTY: frozenset[str] = frozenset()


class Sunk(NamedTuple):
    """How an equation runs before a reshard. used: operands taken before theirs. needed: the types
    of all operands then. result: the type of its result.
    """
    used: frozenset[int]
    needed: tuple[ArrayType, ...]
    result: ArrayType


def bytes_between(source: ArrayType, target: ArrayType) -> int:
    """Bytes that each device receives when a value changes its type."""
    return 0 if source.sharding is target.sharding else _between(source, target)


@cached(4096)
def _between(source: ArrayType, target: ArrayType) -> int:
    """Bytes received where a value changes its type."""
    steps = plan(target.mesh, target.shape, source.entries, target.entries,
                 source.sharding.spec.unreduced, target.sharding.spec.unreduced)
    return steps.received * target.dtype.itemsize


def can_sink(eqn: Equation) -> bool:
    """Can the equation move above a reshard at all: one result, and a factor rule that says
    everything?
    """
    op = eqn.op
    return (len(eqn.outvars) == 1 and bool(eqn.invars) and not op.subprograms and not op.effect
            and op.collective is None and op is not reshard_p
            and not eqn.outvars[0].aval.sharding.spec.unreduced)


def partial_sum_sets(eqn: Equation) -> tuple[tuple[int, ...], ...]:
    """The operand sets through which a partial sum may pass: if these operands are sums over the
    same axes, so is the result.
    """
    op = eqn.op
    if not op.linear or not can_sink(eqn):
        return ()
    types = eqn.types[0]
    for t in types:
        if t.sharding.spec.reduced:
            return ()
    sets = op.linear_sets(len(types), types, eqn.params)
    constant = _constants(eqn) if op.passes_sums == "constants" else ()
    return tuple([tuple(s) for s in sets if _exact(eqn, types, s, constant)])


def sunk(eqn: Equation, earlier: tuple[ArrayType | None, ...]) -> Sunk | None:
    """How the equation runs on operands before their reshards; None if it cannot.

    earlier: for each operand the type before its reshard, or None. If not all can be taken early, a
    single one is tried.
    """
    op = eqn.op
    if op.subprograms:
        return None
    constant = _constants(eqn) if op.passes_sums == "constants" else ()
    key, tables = (eqn.known_types or eqn.types, earlier, constant), eqn.instance.tables
    if sunk in tables:
        known = tables[sunk]
        if key in known:
            return known[key]
    if op.effect or op.collective is not None:
        return None
    found = eqn.instance.table(sunk)[key] = _first_that_works(
        eqn, eqn.types[0], earlier, constant) if can_sink(eqn) else None
    return found


def _constants(eqn: Equation) -> tuple[bool, ...]:
    """For each operand whether it is a constant by which a sum may be divided."""
    return tuple([is_nonzero_constant(a) for a in eqn.invars])


def is_nonzero_constant(atom: Atom) -> bool:
    """Is it a finite constant other than zero, by which a sum may be divided term by term?"""
    if not isinstance(atom, Literal):
        return False
    kind, val = atom.aval.dtype.kind, atom.val
    finite = (math.isfinite(val) if kind == "f" else kind in "iu" or (
        kind == "c" and cmath.isfinite(val)))
    return finite and bool(val != 0)


def _first_that_works(eqn: Equation, types: tuple[ArrayType, ...],
                      earlier: tuple[ArrayType | None, ...], constant: tuple[bool, ...]
                      ) -> Sunk | None:
    """`sunk` for all early operands together, or else for the first of them that can be taken
    alone.
    """
    have = [i for i, t in enumerate(earlier) if t is not None]
    sets = [have, *([i] for i in have)] if len(have) > 1 else [have]
    for used in sets:
        some = tuple(t if i in used else None for i, t in enumerate(earlier))
        found = _sunk(eqn, types, some, constant)
        if found is not None:
            return found
    return None


def _sunk(eqn: Equation, types: tuple[ArrayType, ...], earlier: tuple[ArrayType | None, ...],
          constant: tuple[bool, ...]) -> Sunk | None:
    """`sunk` if exactly the operands with an entry in `earlier` are taken before their reshards.

    The factors get the axes that these operands have, and from them follow the layouts of the other
    operands and of the result; None if that would move data, or a partial sum may not pass.
    """
    result = eqn.outvars[0].aval
    mesh, size = result.mesh, result.mesh.axis_size
    pendings = {t.sharding.spec.unreduced for t in earlier if t is not None}
    if len(pendings) != 1:
        return None
    for t in types:
        if t.sharding.spec.unreduced or t.sharding.spec.reduced:
            return None
    (pending,) = pendings
    together = used = frozenset([i for i, t in enumerate(earlier) if t is not None])
    if pending:
        found = _linear_set(eqn, types, used)
        if found is None or not _exact(eqn, types, used, constant):
            return None
        together = frozenset(found)
    info = rule_info(eqn.instance.rule(*eqn.types))
    axes_of = _factor_axes(info, (*types, result), earlier, together)
    sums = None if axes_of is None else _sums_left(info, axes_of, pending)
    if axes_of is None or sums is None or (
            sums and (pending or result.dtype.kind not in "iufc")):
        return None
    layouts = []
    for dims, t in zip(info.maps, (*types, result), strict=True):
        entries = tensor_entries(dims, t.shape, info.factors, axes_of, size)
        if entries is None:
            return None
        layouts.append(entries)
    needed = []
    for i, t in enumerate(types):
        want = typed(t, mesh, layouts[i], pending if i in together else _EMPTY)
        before = earlier[i]
        if before is not None:
            if before.sharding is not want.sharding:
                return None
            if len(used) > 1 and bytes_between(t, want):
                return None
        elif t.shape or pending:
            if not t.mesh.empty and bytes_between(t, want):
                return None
        needed.append(want)
    return Sunk(used, tuple(needed), typed(result, mesh, layouts[-1], pending | sums))


def _factor_axes(info: RuleInfo, types: Sequence[ArrayType], earlier: Sequence[ArrayType | None],
                 together: Set[int]) -> dict[int, Axes] | None:
    """The axes of each factor: those of the early operands, else those of the other operands and
    the result. None where they contradict each other or fit no factor.
    """
    size = types[-1].mesh.axis_size
    axes_of: dict[int, Axes] = {}
    for i, t in enumerate(earlier):
        if t is not None and t.shape:
            for f, axes in _by_factor(info, i, t, size):
                if f < 0 or (axes_of[f] if f in axes_of else axes) != axes:
                    return None
                axes_of[f] = axes
    for i, t in enumerate(types):
        if i not in together and t.shape:
            for f, axes in _by_factor(info, i, t, size):
                if f < 0:
                    return None
                if f not in axes_of:
                    axes_of[f] = axes
    return axes_of


def _sums_left(info: RuleInfo, axes_of: Mapping[int, Axes], pending: frozenset[str]
               ) -> frozenset[str] | None:
    """The axes over which the equation leaves partial sums; None where its factors cannot be split
    so.
    """
    sums = _EMPTY
    names: list[str] = list(pending)
    for f, axes in axes_of.items():
        if not axes:
            continue
        factor = info.factors[f]
        if not info.split_ok[f] or not (factor.kind == PASS or factor.leaves_sum):
            return None
        names += axes
        if factor.leaves_sum:
            sums = sums.union(axes)
    return sums if len(set(names)) == len(names) else None


def _by_factor(info: RuleInfo, i: int, t: ArrayType, size: AxisSize) -> Iterable[tuple[int, Axes]]:
    """(factor, axes) for each factor of a tensor; factor -1 for axes that fit none."""
    plain = info.plain[i]
    if plain is not None and len(info.places[i]) == len(info.carried[i]):
        return [(f, axes) for f, axes in zip(plain, t.entries, strict=True) if axes or f >= 0]
    found, overflow, _ = project(info.maps[i], info.factors, t.entries, size)
    return ((-1, overflow),) if overflow else found.items()


def _linear_set(eqn: Equation, types: tuple[ArrayType, ...], used: frozenset[int]
                ) -> tuple[int, ...] | None:
    """The smallest operand set in which the op is linear and which includes these operands."""
    sets = [s for s in eqn.op.linear_sets(len(types), types, eqn.params) if used <= set(s)]
    return min(sets, key=len, default=None)


def _exact(eqn: Equation, types: tuple[ArrayType, ...], used: Collection[int],
           constant: tuple[bool, ...]) -> bool:
    """Is the finished sum the same as before, up to the order in which terms are added?"""
    passes, target = eqn.op.passes_sums, eqn.outvars[0].aval.dtype
    source = None
    for i in used:
        dtype = types[i].dtype
        if dtype.kind == "b" or (source is not None and dtype != source):
            return False
        source = dtype
    if source is None:
        return False
    if passes == "constants":
        return target.kind in "fc" and all(c for i, c in enumerate(constant) if i not in used)
    if passes == "never" or callable(passes) and not passes(types, eqn.params):
        return False
    if source == target:
        return True
    if source.kind == "f" and target.kind == "c":      # complex, with the same precision
        return target.itemsize == 2 * source.itemsize
    return source.kind == "c" and target.kind == "f" and source.itemsize == 2 * target.itemsize
