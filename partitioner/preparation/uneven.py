"""Before propagation: arithmetic on slices that no mesh divides is done on what they are slices of.

`x[1:] - x[:-1]` of 64 rows has 63, which cannot be split over 8 devices. Computed on all 64 rows,
of x and of x moved by one, it is split as x is, and the row too many is left out where it would be
seen: a sum along the dimension counts it as zero, a padding writes over it, a concatenation takes
the others. Slices of one range, and what is computed from them element by element, form a group; it
is rewritten only if nothing outside of the group reads a value of it otherwise. (A pass, not a
rewrite: a group has any number of equations and ends.)
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...ir.ops.movement.creation import iota_p
from ...ir.ops.movement.joining import concatenate_p
from ...ir.ops.movement.padding import pad_p
from ...ir.ops.movement.placing import place_p, roll_p
from ...ir.ops.movement.shape import broadcast_in_dim_p
from ...ir.ops.movement.slicing import slice_p
from ...ir.program import Atom, Equation, Literal, Program, Var
from ...ir.rewriting.unread import without_unread
from ...ir.support.immutable import immutable
from ...ir.types import ArrayType, array_type
from .boxes import CHOOSE_BOXES
from .compose import ALIGN_STRIDES

_HOLDERS = ("scan", "while", "cond")
_REDUCTIONS = {"reduce_sum": "sum", "reduce_max": "max", "reduce_min": "min", "reduce_prod": "prod",
               "reduce_and": "and", "reduce_or": "or"}
_STAY = ("sharding_constraint", "reshard", "optimization_barrier", "device_put")


@immutable
class Range:
    """The first `taken` of `size` positions along a dimension."""
    dim: int
    size: int
    taken: int


def evened(program: Program) -> Program:
    """The program with such groups rewritten, in loops and branches too."""
    mesh = program.mesh
    sizes = [n for n in mesh.axis_sizes if n > 1]
    if mesh.empty or not sizes or mesh.explicit_axes or mesh.manual_axes:
        return program
    if program.holds_programs:
        eqns = [_inside(e) if e.op.name in _HOLDERS else e for e in program.eqns]
        if any(new is not old for new, old in zip(eqns, program.eqns, strict=True)):
            program = program.replace(eqns=eqns)
    program = CHOOSE_BOXES(program)
    if slice_p not in program.ops:
        return program
    program = ALIGN_STRIDES(program)
    groups = _Groups(program, sizes)
    return _Writer(program, groups).program() if groups.alive else program


def _inside(eqn: Equation) -> Equation:
    params = dict(eqn.params)
    for name in eqn.op.subprograms:
        held = params[name]
        params[name] = tuple(map(evened, held)) if isinstance(held, tuple) else evened(held)
    same = all(a is b for name in eqn.op.subprograms for a, b in zip(
        _listed(params[name]), _listed(eqn.params[name]), strict=True))
    return eqn if same else eqn.replace(params=params)


def _listed(held: Any) -> tuple:
    return held if isinstance(held, tuple) else (held,)


# -- groups ----------------------------------------------------------------------------------------

class _Groups:
    """Which values are rows of larger ones. alive: groups that are rewritten; stretched: constants
    that can be made of any size.
    """

    def __init__(self, program: Program, sizes: list[int]) -> None:
        self.sizes = sizes
        self.ranges: dict[Atom, Range] = {}
        self.parent: dict[Atom, Atom] = {}
        self.stretched: dict[Atom, Equation] = {}
        self.sinks: dict[Equation, Var] = {}
        seen: set[Var] = set()              # roots of groups that something ends
        worked: set[Var] = set()            # and in which something is computed
        dead: set[Var] = set()
        touched: list[tuple[set[Var], Var]] = []
        for eqn in program.eqns:
            self._add(eqn, touched, seen, worked, dead)
        for atom in program.outvars:
            if isinstance(atom, Var) and atom in self.ranges:
                touched.append((dead, atom))
        for roots, v in touched:
            roots.add(v)
        gone = {self.root(v) for v in dead}
        ended, busy = {self.root(v) for v in seen}, {self.root(v) for v in worked}
        self.alive = (ended & busy) - gone

    def root(self, v: Atom) -> Atom:
        while self.parent[v] is not v:
            self.parent[v] = v = self.parent[self.parent[v]]
        return v

    def holds(self, v: Atom) -> bool:
        return isinstance(v, Var) and v in self.ranges and self.root(v) in self.alive

    def _add(self, eqn: Equation, touched: list, seen: set, worked: set, dead: set) -> None:
        op = eqn.op
        if op is slice_p:
            found = self._slice(eqn)
            if found is not None:
                self._new(eqn.outvars[0], found)
        elif op in (broadcast_in_dim_p, iota_p):
            self.stretched[eqn.outvars[0]] = eqn
        members = [a for a in dict.fromkeys(eqn.invars) if isinstance(a, Var) and a in self.ranges]
        if not members:
            return
        first = self.ranges[members[0]]
        if all(self.ranges[v] == first for v in members):
            if _elementwise(eqn) and all(
                    _same_along(a, first.dim) or a in self.ranges or self.stretches(a, first)
                    for a in eqn.invars):
                touched.append((worked, members[0]))
                self._joined(members, eqn.outvars[0], first)
                return
            axes = eqn.params.get("axes", ())
            if op.name in _REDUCTIONS and first.dim not in axes:
                dim = first.dim - sum(a < first.dim for a in axes)
                self._joined(members, eqn.outvars[0], Range(dim, first.size, first.taken))
                return
            if self._ends(eqn, first):
                for v in members:
                    touched.append((seen, v))
                return
        for v in members:
            touched.append((dead, v))

    def _joined(self, members: list[Var], result: Var, found: Range) -> None:
        self._new(result, found)
        for v in members:
            self.parent[self.root(v)] = self.root(result)

    def _new(self, v: Var, found: Range) -> None:
        self.ranges[v] = found
        self.parent[v] = v

    def _slice(self, eqn: Equation) -> Range | None:
        params, shape = eqn.params, eqn.invars[0].aval.shape
        if any(s != 1 for s in params["strides"] or ()) or isinstance(eqn.invars[0], Literal):
            return None
        cut = [d for d, (a, b, n) in enumerate(zip(
            params["start_indices"], params["limit_indices"], shape, strict=True)) if b - a != n]
        if len(cut) != 1:
            return None
        (d,) = cut
        n, taken = shape[d], params["limit_indices"][d] - params["start_indices"][d]
        lost = any(n % k == 0 and taken % k for k in self.sizes)
        return Range(d, n, taken) if lost and 2 * taken > n else None

    def _ends(self, eqn: Equation, found: Range) -> bool:
        """Can the equation leave out the rows too many?"""
        if eqn.op.name in _REDUCTIONS:
            return eqn.invars[0].aval.dtype.kind in "biuf"
        if eqn.op is pad_p:
            config = eqn.params["padding_config"]
            return (eqn.invars[1] not in self.ranges
                    and eqn.outvars[0].aval.shape[found.dim] == found.size
                    and all(low >= 0 and high >= 0 and inner == 0 if d == found.dim
                            else (low, high, inner) == (0, 0, 0)
                            for d, (low, high, inner) in enumerate(config)))
        return (eqn.op is concatenate_p and eqn.params["dimension"] == found.dim
                and eqn.outvars[0].aval.shape[found.dim] == found.size)

    def stretches(self, a: Atom, found: Range) -> bool:
        """Is the value the same along the dimension, or its positions?"""
        eqn = self.stretched.get(a)  # type: ignore[arg-type]
        if eqn is None:
            return False
        if eqn.op is iota_p:
            return True
        dims = eqn.params["broadcast_dimensions"]
        return found.dim not in dims or eqn.invars[0].aval.shape[dims.index(found.dim)] == 1


def _elementwise(eqn: Equation) -> bool:
    if len(eqn.outvars) != 1 or eqn.op.subprograms or eqn.effects or eqn.op.name in _STAY \
            or eqn.op.collective is not None or "shape" in eqn.params:
        return False
    shape = eqn.outvars[0].aval.shape
    if not shape or any(len(a.aval.shape) not in (0, len(shape)) for a in eqn.invars):
        return False
    rule = eqn.op.factor_rule(tuple([a.aval.shape for a in eqn.invars]), (shape,), eqn.params)
    (result,) = rule.results
    return (all(own in ((), whole) for dims in rule.operands if dims
                for own, whole in zip(dims, result, strict=True))
            and all(f.kind == "pass" and not f.blocked for f in rule.factors))


def _same_along(atom: Atom, dim: int) -> bool:
    """Is the value one for all positions of a dimension?"""
    return isinstance(atom, Literal) or not atom.aval.shape or atom.aval.shape[dim] == 1


# -- rewriting -------------------------------------------------------------------------------------

class _Writer:
    def __init__(self, program: Program, groups: _Groups) -> None:
        self.source, self.groups = program, groups
        self.eqns: list[Equation] = []
        self.whole: dict[Atom, Atom] = {}            # value -> itself on all positions
        self.rolled: dict[tuple[Atom, int, int], Var] = {}
        self.constants: dict[tuple[Atom, int, int], Var] = {}

    def program(self) -> Program:
        holds = self.groups.holds
        for eqn in self.source.eqns:
            if len(eqn.outvars) == 1 and holds(eqn.outvars[0]):
                self.member(eqn)
            elif any(holds(a) for a in eqn.invars):
                self.end(eqn)
            else:
                self.eqns.append(eqn)
        return self.source.replace(eqns=without_unread(
            self.eqns, self.source.outvars, (broadcast_in_dim_p, iota_p)))

    def add(self, eqn: Equation, op: Any, operands: list[Atom], aval: ArrayType, **params: Any
            ) -> Var:
        out = Var(aval)
        self.eqns.append(eqn.replace(op=op, invars=tuple(operands), outvars=(out,), params=params))
        return out

    def member(self, eqn: Equation) -> None:
        (result,) = eqn.outvars
        found = self.groups.ranges[result]
        if eqn.op is slice_p:
            x, start = eqn.invars[0], eqn.params["start_indices"][found.dim]
            key = (x, start, found.dim)
            if start and key not in self.rolled:
                self.rolled[key] = self.add(eqn, roll_p, [x], x.aval, dimension=found.dim,
                                            shift=-start)
            self.whole[result] = self.rolled[key] if start else x
            return
        operands = [self.operand(a, found) for a in eqn.invars]
        self.whole[result] = self.add(eqn, eqn.op, operands,
                                      _resized(result.aval, found.dim, found.size), **eqn.params)

    def operand(self, atom: Atom, found: Range) -> Atom:
        if _same_along(atom, found.dim):
            return atom
        if atom in self.whole:
            return self.whole[atom]
        key = (atom, found.dim, found.size)
        if key not in self.constants:
            made = self.groups.stretched[atom]
            aval = _resized(atom.aval, found.dim, found.size)
            self.constants[key] = self.add(made, made.op, list(made.invars), aval, **{
                **made.params, "shape": aval.shape, "sharding": None})
        return self.constants[key]

    def end(self, eqn: Equation) -> None:
        """The equation on all positions, those too many as if they were not."""
        found = next(self.groups.ranges[a] for a in eqn.invars if self.groups.holds(a))
        d, (result,) = found.dim, eqn.outvars
        if eqn.op is concatenate_p:
            operands = [self.cut(eqn, a, found) if self.groups.holds(a) else a for a in eqn.invars]
            self.eqns.append(eqn.replace(invars=operands))
            return
        x = self.whole[eqn.invars[0]]
        if eqn.op is pad_p:
            base = self.filled(eqn, eqn.invars[1], result.aval)
            low = eqn.params["padding_config"][d][0]
            self.eqns.append(eqn.replace(op=place_p, invars=(x, base), params={
                "dimension": d, "start": 0, "limit": found.taken, "low": low}))
            return
        neutral = _NEUTRAL[_REDUCTIONS[eqn.op.name]](x.aval.dtype)
        base = self.filled(eqn, Literal(neutral, array_type((), x.aval.dtype, x.aval.weak_type)),
                           x.aval)
        placed = self.add(eqn, place_p, [x, base], x.aval, dimension=d, start=0,
                          limit=found.taken, low=0)
        self.eqns.append(eqn.replace(invars=(placed,)))

    def filled(self, eqn: Equation, value: Atom, aval: ArrayType) -> Var:
        return self.add(eqn, broadcast_in_dim_p, [value], aval, shape=aval.shape,
                        broadcast_dimensions=(), sharding=None)

    def cut(self, eqn: Equation, atom: Atom, found: Range) -> Var:
        limits = tuple(atom.aval.shape)
        return self.add(eqn, slice_p, [self.whole[atom]], atom.aval,  # type: ignore[index]
                        start_indices=(0,) * len(limits), limit_indices=limits, strides=None)


def _resized(aval: ArrayType, dim: int, size: int) -> ArrayType:
    shape = (*aval.shape[:dim], size, *aval.shape[dim + 1:])
    return array_type(shape, aval.dtype, aval.weak_type, aval.sharding, aval.manual,
                      aval.memory_space)


def _extreme(lowest: bool) -> Callable[[Any], Any]:
    def value(dtype: Any) -> Any:
        if dtype == np.bool_:
            return np.bool_(not lowest)
        if np.issubdtype(dtype, np.integer):
            info = np.iinfo(dtype)
            return np.asarray(info.min if lowest else info.max, dtype)[()]
        return np.asarray(-np.inf if lowest else np.inf, dtype)[()]
    return value


_NEUTRAL: dict[str, Callable[[Any], Any]] = {
    "sum": lambda t: np.zeros((), t)[()], "prod": lambda t: np.ones((), t)[()],
    "max": _extreme(True), "min": _extreme(False),
    "and": lambda t: np.asarray(True if t == np.bool_ else -1).astype(t)[()],
    "or": lambda t: np.zeros((), t)[()]}
