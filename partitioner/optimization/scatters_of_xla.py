"""Reduce-scatters of XLA: all-reduces of which each device keeps only its own block.

XLA's partitioner finishes a sum on every device and then cuts out what the device needs, in all
dimensions at once. Its compilers turn this into a reduce-scatter if the blocks are those of the
members of the sum: over x and y even if x cuts one dimension and y another, but not if z cuts the
block further.
"""
from __future__ import annotations

import itertools
import math
from collections import defaultdict
from typing import Any

from ...ir.meshes.mesh_axes import group_size
from ...ir.op import Op
from ...ir.ops.communication.collective import SCATTERS, all_slice_p, pvary_p
from ...ir.ops.movement.dynamic_slicing import dynamic_slice_p
from ...ir.ops.movement.reshape import reshape_p
from ...ir.ops.movement.shape import squeeze_p, transpose_p
from ...ir.program import Atom, Equation
from ...ir.rewriting.rewrite import Match, Rewrite, Rewrites
from ...ir.rewriting.unread import only_readers
from ..reasons import merged_reasons
from ..redistribution.prime_axes import PrimeAxes

_MOVES = frozenset((reshape_p, squeeze_p, transpose_p))


def _scattered(m: Match) -> Atom | None:
    """What gives each member its block of a sum, moved before it is added up; None if no sum leads
    to the slice, or other devices than its members keep different blocks.
    """
    following = only_readers(m.program)[m.eqn.outvars[0]]
    if following is not None and following.op in (all_slice_p, dynamic_slice_p):
        return None     # the last of the slices is the one replaced; XLA makes them all one
    cuts = [*_makers(m, m.eqn, frozenset((all_slice_p,))), m.eqn]
    moves = _makers(m, cuts[0], _MOVES)
    total = _maker(m, (moves or cuts)[0])
    if total is None or total.op not in SCATTERS:
        return None
    primes, size = PrimeAxes(m.mesh).primes, m.mesh.axis_size
    if {*primes([a for cut in cuts for a in cut.params["axes"]])} != {
            *primes(total.params["axes"])} or any([size(a) == 1 for a in total.params["axes"]]):
        return None
    return _scatter(m, total, moves, cuts)


def _maker(m: Match, eqn: Equation) -> Equation | None:
    """What computes the operand of an equation, if that alone reads it."""
    made = m.maker(eqn.invars[0])
    return None if made is None or only_readers(m.program)[made.outvars[0]] is None else made


def _makers(m: Match, eqn: Equation, ops: frozenset[Op]) -> list[Equation]:
    """The equations of these ops that lead, one after the other and to nothing else, to an
    equation's operand.
    """
    made = _maker(m, eqn)
    return [] if made is None or made.op not in ops else [*_makers(m, made, ops), made]


def _scatter(m: Match, total: Equation, moves: list[Equation], cuts: list[Equation]) -> Atom:
    """The moves, then the reduce-scatter; over several dimensions that are cut, of these as one
    that is in front.
    """
    reason = merged_reasons((total.reason, *[cut.reason for cut in cuts]))
    axes_of: dict[int, tuple[str, ...]] = defaultdict(tuple)
    for cut in cuts:
        axes_of[cut.params["dimension"]] += cut.params["axes"]
    axes = tuple(itertools.chain.from_iterable(axes_of.values()))
    x: Atom = total.invars[0]

    def emit(op: Op, **params: Any) -> Atom:
        return m.emit(op, x, like=total, reason=reason, **params)
    for move in moves:
        x = emit(move.op, **move.params)
    missing = tuple([a for a in axes if a not in x.aval.varying])
    if missing:
        x = emit(pvary_p, axes=missing)
    (dimension, *_), shape = axes_of, x.aval.shape
    if len(axes_of) > 1:                # the blocks of members stand one after the other
        dimension, counts = 0, {d: group_size(m.mesh, a) for d, a in axes_of.items()}
        split = [[counts[d], n // counts[d]] if d in counts else [n] for d, n in enumerate(shape)]
        starts = [*itertools.accumulate([len(part) for part in split], initial=0)]
        first = [starts[d] for d in axes_of]
        x = emit(reshape_p, new_sizes=tuple(sum(split, [])), dimensions=None, sharding=None)
        x = emit(transpose_p, permutation=(*first, *[d for d in range(starts[-1])
                                                     if d not in first]))
        shape = tuple([part[-1] for part in split])
        x = emit(reshape_p, new_sizes=(math.prod(counts.values()), *shape), dimensions=None,
                 sharding=None)
    x = emit(SCATTERS[total.op], axis_name=axes, axis_size=group_size(m.mesh, axes),
             scatter_dimension=dimension, tiled=True)
    return emit(reshape_p, new_sizes=shape, dimensions=None, sharding=None) if (
        len(axes_of) > 1) else x


SCATTERS_OF_XLA = Rewrites(Rewrite(
    "blocks-of-sum", "out = all_slice x", _scattered,
    why="a reduce-scatter moves half of what an all-reduce does"),
    also_drops=(*SCATTERS, *_MOVES, all_slice_p))
