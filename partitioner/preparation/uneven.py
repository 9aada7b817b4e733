"""Pads dimensions that mesh axes do not divide, so that they can be split.

`x[1:] @ w` with 64 rows over 8 devices has 63 rows; unsplit, every device would hold and compute
all of them. So the pass first asks which axes would split which dimensions if sizes did not matter
(`propagation.solve` with `uneven=True`), and then rounds these dimensions up: 64 rows in blocks of
8, the last of which is padding. Where an op would see the padding, it is given a value without
effect (padded_equations.py); where there is none, and at the end of the program, it is cut off.
Everything that follows, propagation included, sees only sizes that divide.

Rows that a slice cuts off from a split dimension can stay where they are as well: of `x[:1000]`
with 1024 rows over 8 devices no row moves then, where 1000 rows in blocks of 125 come from up to
two devices each. The blocks of what follows are longer, though, and masked, and what is combined
with other rows moves after all. So this is done in a plan of its own, which is compared with the
one that moves the rows (trial_plans.py).
"""
from __future__ import annotations

import math
from collections.abc import Sequence

from ...ir.dtypes import is_extended
from ...ir.facts import UNEVEN
from ...ir.meshes.mesh import AbstractMesh
from ...ir.ops.indexing.scatter import WRITES
from ...ir.ops.movement.joining import concatenate_p
from ...ir.ops.movement.padding import pad_p
from ...ir.ops.movement.slicing import slice_p
from ...ir.padded import Padded, with_entry
from ...ir.program import Atom, Equation, Program, Var
from ...ir.rewriting.unread import drop_dead
from ...ir.shardings.sharding import NamedSharding
from ...ir.spec import PartitionSpec
from ...ir.support.immutable import immutable
from ...ir.types import Shape
from ..policy import OWN, Policy
from ..propagation.divisibility import padded_size, part_counts
from ..propagation.graph import Graph
from ..propagation.propagate import solve
from ..regions import has_region, region_of, with_programs
from .padded_equations import Output, equation_on, laid_out, unpadded, with_sizes
from .xla.concatenations import joined

MOST_KEPT = 2           # rows that are kept are fewer than so many times those that count


def pad_uneven(program: Program, mesh: AbstractMesh,
               in_shardings: Sequence[PartitionSpec | None],
               out_shardings: Sequence[PartitionSpec | None], policy: Policy = OWN,
               keeps_rows: bool = False) -> Program:
    """The pass: a TRACED program, calls inlined, with all dimensions rounded up to what their axes
    divide. keeps_rows: rows that slices cut off stay, as padding.
    """
    splits = part_counts(mesh)
    if not splits or not mesh.auto_axes or mesh.manual_axes or not (
            keeps_rows or _may_gain(program, splits, policy.splits_few)):
        return program
    graph = solve(program, mesh, in_shardings, out_shardings, uneven=True, policy=policy).graph
    wanted = _Wanted(graph, keeps_rows)
    if not keeps_rows and not any(map(wanted.is_uneven, graph.index)):
        return program
    return drop_dead(_Writer(wanted, policy).program(program))


def _strided(eqn: Equation) -> bool:
    return max(eqn.params.get("window_strides", ()), default=1) > 1


def _may_gain(program: Program, splits: Sequence[int], splits_few: bool) -> bool:
    """Does some equation turn sizes that axes do not divide into sizes that they may?"""
    for eqn in program.eqns:
        if eqn.op.subprograms:
            if has_region(eqn) and any([_may_gain(p, splits, splits_few)
                                        for _, _, p in region_of(eqn).programs]):
                return True
        elif UNEVEN in eqn.op.facts:
            for v in eqn.outvars:
                if any([padded_size(n, k, splits_few) != n
                        for n in v.aval.shape for k in splits]):
                    return True
    return False


def cuts_split_rows(program: Program) -> bool:
    """Does an equation of a RESOLVED program cut off rows of a split dimension, or does one of it
    move rows since others were?
    """
    moved = [(eqn, d) for eqn in program.eqns if eqn.op is pad_p
             for d, config in enumerate(eqn.params["padding_config"]) if min(config[:2]) < 0]
    cut = [(eqn, d) for eqn in program.eqns if eqn.op is slice_p for d in cut_dims(eqn)]
    return any([eqn.invars[0].aval.entries[d] for eqn, d in (*moved, *cut)]) or any(
        [cuts_split_rows(body) for _, _, body in program.subprograms()])


def cut_dims(eqn: Equation) -> list[int]:
    """The dimensions of which a slice cuts off rows at the ends, but not most of them."""
    params, shape = eqn.params, eqn.invars[0].aval.shape
    steps = params["strides"] or (1,) * len(shape)
    return [d for d, (start, limit, step, n) in enumerate(zip(
        params["start_indices"], params["limit_indices"], steps, shape, strict=True))
        if step == 1 and limit - start < n < MOST_KEPT * (limit - start)]


@immutable
class _Wanted:
    """Shapes rounded up to what the axes of a solution divide. keeps_rows: as for `pad_uneven`."""
    graph: Graph
    keeps_rows: bool = False

    def sizes(self, atom: Atom, coprime_stay: bool = False) -> Shape:
        """The padded shape of a value (random keys have no padding). coprime_stay: leave a size
        that has no factor in common with the number of its parts; XLA splits the others over a part
        of the axes.
        """
        t, shape = self.graph.of(atom), atom.aval.shape
        if t < 0 or is_extended(atom.aval.dtype):
            return shape
        parts = [math.prod(map(self.graph.size, axes)) for axes in self.graph.layouts[t].entries]
        few = self.graph.policy.splits_few
        return tuple([n if coprime_stay and math.gcd(n, k) == 1 else padded_size(n, k, few)
                      for n, k in zip(shape, parts, strict=True)])

    def is_uneven(self, var: Var) -> bool:
        return self.sizes(var) != var.aval.shape

    def kept(self, eqn: Equation) -> list[int]:
        """The dimensions of which an equation cuts off rows, but need not move the others."""
        cut = cut_dims(eqn) if self.keeps_rows and eqn.op is slice_p else []
        if not cut:
            return cut
        source, result = (self.graph.of(a) for a in (eqn.invars[0], eqn.outvars[0]))
        if min(source, result) < 0:
            return []
        before, after = (self.graph.layouts[t].entries for t in (source, result))
        return [d for d in cut if before[d] and before[d] == after[d]]


class _Writer:
    """Writes programs with padding. env: old variable to its padded or renamed value."""

    def __init__(self, wanted: _Wanted, policy: Policy) -> None:
        self.wanted, self.policy = wanted, policy
        self.env: dict[Atom, Padded] = {}
        self.out = Output(policy.masks_always)

    def value(self, atom: Atom) -> Padded:
        found = self.env.get(atom)
        return Padded(atom, atom.aval.shape) if found is None else found

    def program(self, source: Program, arrivals: Sequence[Shape] = (),
                leaves: Sequence[Shape] = (), within: Equation | None = None) -> Program:
        """arrivals, leaves: padded shapes of parameters and results; by default as `_Wanted` says.
        within: the equation that holds the program.
        """
        invars = list(source.invars)
        for i, shape in enumerate(arrivals):
            v = source.invars[i]
            if shape != v.aval.shape:
                invars[i] = Var(v.aval.update(shape=shape), v.name)
                self.env[v] = Padded(invars[i], v.aval.shape)
        for eqn in source.eqns:
            self.equation(eqn)
        outvars: list[Atom] = []
        for i, atom in enumerate(source.outvars):
            x = self.value(atom)
            shape = leaves[i] if leaves else x.shape
            if x.sizes != shape or any(x.lows):
                maker = next((e for e in reversed(source.eqns) if atom in e.outvars),
                             source.eqns[-1] if source.eqns else within)
                assert maker is not None, "what is padded was made, or handed in"
                x = (unpadded(x, maker, self.out) if shape == x.shape
                     else with_sizes(x, shape, maker, self.out))
            outvars.append(x.atom)
        return source.replace(invars=invars, eqns=self.out.eqns, outvars=outvars)

    def equation(self, eqn: Equation) -> None:
        """Write an equation as it is if neither its operands nor its results are padded; otherwise
        as `equation_on` says.
        """
        if has_region(eqn):
            self.region(eqn)
            return
        operands = [self.value(a) for a in eqn.invars]
        if self.policy.joins_across and eqn.op is concatenate_p:
            found = joined(eqn, operands, self.wanted.graph, self.out)
            if found is not None:
                self.env[eqn.outvars[0]] = found
                return
        coprime_stay = not self.policy.pads_strides and _strided(eqn)
        sizes = [self.wanted.sizes(v, coprime_stay) for v in eqn.outvars]
        kept = self.wanted.kept(eqn)
        for d in kept:
            sizes = [with_entry(sizes[0], d, operands[0].size(d))]
        if all([x.sizes == x.shape for x in operands]) and all(
                [s == v.aval.shape for s, v in zip(sizes, eqn.outvars, strict=True)]):
            if any([x.atom is not a for x, a in zip(operands, eqn.invars, strict=True)]):
                eqn = eqn.replace(invars=[x.atom for x in operands])
            self.out.eqns.append(eqn)
            return
        if self.policy.gathers_padded_indices and eqn.op in WRITES:
            operands[1] = self.gathered(operands[1], eqn)
        results = equation_on(eqn, operands, sizes, self.out, kept)
        for v, x in zip(eqn.outvars, results, strict=True):
            if x.atom is not v:
                self.env[v] = x

    def gathered(self, x: Padded, eqn: Equation) -> Padded:
        """The value with new padding, gathered before if it has some. Source: `HandleScatter` of
        XLA's gather_scatter_handler.cc.
        """
        if x.sizes == x.shape:
            return x
        sharding = NamedSharding(self.wanted.graph.mesh, PartitionSpec(*((),) * len(x.shape)))
        whole = laid_out(x, sharding, eqn, self.out)
        return with_sizes(unpadded(whole, eqn, self.out), x.sizes, eqn, self.out)

    def region(self, eqn: Equation) -> None:
        """Write a loop or branch: values that are one inside and outside get the same padding."""
        region = region_of(eqn)
        operands = [self.value(a) for a in eqn.invars]
        arrivals = {p: [v.aval.shape for v in body.invars]
                    for p, (_, _, body) in enumerate(region.programs)}
        leaves = {p: [a.aval.shape for a in body.outvars]
                  for p, (_, _, body) in enumerate(region.programs)}
        shapes = [v.aval.shape for v in eqn.outvars]
        for slot in region.slots:
            first = slot.stacked
            body_atoms = region.body_atoms(slot)
            sizes = [self.wanted.sizes(a) for a in body_atoms if isinstance(a, Var)]
            front: Shape = ()
            if slot.operand >= 0:
                x = operands[slot.operand]
                sizes.append(x.sizes[first:])
                front = x.shape[:first]
            if slot.result >= 0:
                sizes.append(self.wanted.sizes(eqn.outvars[slot.result])[first:])
                front = shapes[slot.result][:first]
            shape = tuple(map(max, *sizes)) if len(sizes) > 1 else sizes[0] if sizes else None
            if shape is None:
                continue
            for p, i in slot.inputs:
                arrivals[p][i] = shape
            for p, i in slot.outputs:
                leaves[p][i] = shape
            if slot.operand >= 0:
                operands[slot.operand] = with_sizes(operands[slot.operand], (*front, *shape), eqn,
                                                    self.out)
            if slot.result >= 0:
                shapes[slot.result] = (*front, *shape)
        programs = {}
        for p, (param, place, body) in enumerate(region.programs):
            programs[param, place] = _Writer(self.wanted, self.policy).program(
                body, arrivals[p], leaves[p], eqn)
        outvars = [v if shape == v.aval.shape else Var(v.aval.update(shape=shape), v.name)
                   for v, shape in zip(eqn.outvars, shapes, strict=True)]
        self.out.eqns.append(eqn.replace(
            invars=[x.atom for x in operands], outvars=outvars,
            params=with_programs(eqn.params, programs)))
        for v, new in zip(eqn.outvars, outvars, strict=True):
            if new is not v:
                self.env[v] = Padded(new, v.aval.shape)
