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

from ...ir.builder import ProgramBuilder
from ...ir.op import Op
from ...ir.ops.communication.collective import SCATTERS, all_slice_p, pvary_p
from ...ir.ops.movement.reshape import reshape_p
from ...ir.ops.movement.shape import transpose_p
from ...ir.program import Atom, Equation, Program, Var
from ...ir.rewriting.unread import drop_dead
from ..reasons import merged_reasons
from ..redistribution.moves import group_size
from ..redistribution.prime_axes import PrimeAxes

_MOVES, _CUTS = frozenset((reshape_p, transpose_p)), frozenset((all_slice_p,))


def form_scatters_as_xla(program: Program) -> Program:
    """The pass: a LOCAL program (without nested ones) with such sums as reduce-scatters."""
    if all_slice_p not in program.ops or program.ops.isdisjoint(SCATTERS):
        return program
    readers: dict[Atom, list[Equation]] = defaultdict(list)
    for eqn in program.eqns:
        for atom in eqn.invars:
            readers[atom].append(eqn)
    results = {*program.outvars}
    eqns: list[Equation] = []
    made: set[Equation] = set()         # what scatters have done
    primes, size = PrimeAxes(program.mesh).primes, program.mesh.axis_size
    for eqn in program.eqns:
        moves = _readers(eqn.outvars[0], readers, results, _MOVES) if eqn.op in SCATTERS else []
        cuts = _readers((moves or [eqn])[-1].outvars[0], readers, results, _CUTS) if (
            eqn.op in SCATTERS) else []
        if cuts and {*primes([a for cut in cuts for a in cut.params["axes"]])} == {
                *primes(eqn.params["axes"])} and all([size(a) > 1 for a in eqn.params["axes"]]):
            eqns += _scattered(program, eqn, moves, cuts)
            made.update(moves, cuts)
        elif eqn not in made:
            eqns.append(eqn)
    return drop_dead(program.replace(eqns=eqns)) if made else program


def _readers(value: Var, readers: dict[Atom, list[Equation]], results: set[Atom],
             ops: frozenset[Op]) -> list[Equation]:
    """The equations of these ops that lead, one after the other, to all that is read of a value."""
    found: list[Equation] = []
    while value not in results and len(readers[value]) == 1 and readers[value][0].op in ops:
        found += readers[value]
        (value,) = found[-1].outvars
    return found


def _scattered(program: Program, total: Equation, moves: list[Equation], cuts: list[Equation]
               ) -> list[Equation]:
    """The equations that give each member its block of a sum, moved before it is added up."""
    out = ProgramBuilder(program.mesh, program.level)
    reason = merged_reasons((total.reason, *[cut.reason for cut in cuts]))
    axes_of: dict[int, tuple[str, ...]] = defaultdict(tuple)
    for cut in cuts:
        axes_of[cut.params["dimension"]] += cut.params["axes"]
    axes = tuple(itertools.chain.from_iterable(axes_of.values()))
    x: Atom = total.invars[0]

    def emit(op, **params):
        return out.emit(op, [x], params, location=total.location, reason=reason)[0]
    for move in moves:
        x = emit(move.op, **move.params)
    missing = tuple([a for a in axes if a not in x.aval.varying])
    if missing:
        x = emit(pvary_p, axes=missing)
    (dimension, *_), shape = axes_of, x.aval.shape
    if len(axes_of) > 1:                # the blocks of members stand one after the other
        dimension, counts = 0, {d: group_size(program.mesh, a) for d, a in axes_of.items()}
        split = [[counts[d], n // counts[d]] if d in counts else [n] for d, n in enumerate(shape)]
        starts = [*itertools.accumulate([len(part) for part in split], initial=0)]
        first = [starts[d] for d in axes_of]
        x = emit(reshape_p, new_sizes=tuple(sum(split, [])), dimensions=None, sharding=None)
        x = emit(transpose_p, permutation=(*first, *[d for d in range(starts[-1])
                                                     if d not in first]))
        shape = tuple([part[-1] for part in split])
        x = emit(reshape_p, new_sizes=(math.prod(counts.values()), *shape), dimensions=None,
                 sharding=None)
    x = emit(SCATTERS[total.op], axis_name=axes, axis_size=group_size(program.mesh, axes),
             scatter_dimension=dimension, tiled=True)
    if len(axes_of) > 1:
        x = emit(reshape_p, new_sizes=shape, dimensions=None, sharding=None)
    *before, last = out.eqns
    return [*before, last.with_operands(last.invars, cuts[-1].outvars)]
