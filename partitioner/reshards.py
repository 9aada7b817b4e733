"""From RESOLVED to RESHARDED: every change of layout becomes a `reshard` equation.

Each equation gets the operands that its choice asks for and produces its results as chosen; what
differs from the resolved layouts is bridged by reshards, each with the reason for which it exists.
A value that is needed twice in one layout is brought there once. A sum over a split factor has a
result `{U:X}`, and the reshard that follows it says where the sum goes. At last chains of reshards
are folded, so that a pending sum goes straight to where it is wanted.
"""
from __future__ import annotations

from collections.abc import Sequence

from ..ir.mesh import AbstractMesh
from ..ir.ops.sharding import reshard_p
from ..ir.program import Atom, Equation, Level, Literal, Program, Var
from ..ir.rule import REDUCE
from ..ir.sharding import NamedSharding
from ..ir.types import ArrayType
from .choose import Choice, Site, choose
from .factors import Axes, RuleInfo, rule_info
from .regions import has_region, region_of, with_programs
from .resolve import reshard_equation, typed

_EMPTY: frozenset[str] = frozenset()


def insert_reshards(program: Program) -> Program:
    """The pass: a RESHARDED program whose equations agree on every factor."""
    return _Chooser(program.mesh, {}).program(program)


class _Chooser:
    def __init__(self, mesh: AbstractMesh, memo: dict) -> None:
        self.mesh = mesh
        self.memo = memo                  # choices, by rule and layouts
        self.eqns: list[Equation] = []
        self.env: dict[Var, Var] = {}
        # per value, the layouts that it has been brought to
        self.layouts: dict[Var, dict[NamedSharding, Var]] = {}

    def program(self, program: Program) -> Program:
        for eqn in program.eqns:
            self.equation(eqn)
        outvars = [self.atom(v) for v in program.outvars]
        eqns, outvars = fold_reshards(self.eqns, outvars)
        return program.replace(eqns=eqns, outvars=outvars, level=Level.RESHARDED)

    def atom(self, atom: Atom) -> Atom:
        return atom if isinstance(atom, Literal) else self.env.get(atom, atom)

    def nested(self, program: Program) -> Program:
        return _Chooser(program.mesh, self.memo).program(program)

    def equation(self, eqn: Equation) -> None:
        operands = [self.atom(a) for a in eqn.invars]
        if eqn.op is reshard_p:
            self.reshard(eqn, operands[0])
        elif has_region(eqn):
            region = region_of(eqn)
            programs = {(name, place): self.nested(p) for name, place, p in region.programs}
            self.eqns.append(eqn.replace(invars=operands,
                                         params=with_programs(eqn.params, programs)))
        elif eqn.op.subprograms:
            params = {**eqn.params, **{k: self.nested(eqn.params[k]) for k in eqn.op.subprograms}}
            self.eqns.append(eqn.replace(invars=operands, params=params))
        else:
            self.chosen(eqn, operands)

    def reshard(self, eqn: Equation, operand: Atom) -> None:
        result = eqn.outvars[0]
        aval = result.aval
        if isinstance(operand, Var) and not aval.unreduced and not operand.aval.unreduced:
            known = self.layouts.setdefault(operand, {operand.aval.sharding: operand})
            if aval.sharding in known:
                self.env[result] = known[aval.sharding]
                return
            known[aval.sharding] = result
        self.eqns.append(eqn.replace(invars=(operand,)))

    # -- equations with a factor rule --------------------------------------------------------------

    def chosen(self, eqn: Equation, operands: list[Atom]) -> None:
        rule = eqn.op.factor_rule(tuple([v.aval.shape for v in eqn.invars]),
                                  tuple([v.aval.shape for v in eqn.outvars]), eqn.params)
        info = rule_info(rule)
        types = tuple([v.aval for v in (*operands, *eqn.outvars)])
        choice = self.choice(info, types, operands)
        count = len(operands)
        needed = [self.operand(eqn, info, i, operand, choice, types)
                  for i, operand in enumerate(operands)]
        produced, after = [], []
        for k, var in enumerate(eqn.outvars):
            if (choice.layouts[count + k] == var.aval.entries
                    and choice.pending == var.aval.sharding.spec.unreduced):
                produced.append(var)
                continue
            partial = Var(typed(var.aval, self.mesh, choice.layouts[count + k], choice.pending),
                          var.name)
            produced.append(partial)
            move = reshard_equation(partial, var.aval, eqn.location,
                                    result_reason(eqn, info, choice, k, var), var.name)
            after.append(move.replace(outvars=(var,)))
        if needed != operands or eqn.invars != tuple(operands) or after:
            eqn = eqn.replace(invars=needed, outvars=produced)
        self.eqns.append(eqn)
        self.eqns.extend(after)

    def choice(self, info: RuleInfo, types: tuple[ArrayType, ...], operands: Sequence[Atom]
               ) -> Choice:
        shared = any(len(self.layouts.get(v, ())) > 1 for v in operands if isinstance(v, Var))
        key = (info, types)
        found = None if shared else self.memo.get(key)
        if found is None:
            sites = tuple(Site(t.shape, t.dtype.itemsize, t.entries, t.sharding.spec.unreduced)
                          for t in types)
            free = [frozenset(s.spec.entries for s in self.layouts.get(v, ()))
                    if isinstance(v, Var) else frozenset() for v in operands] if shared else ()
            found = choose(self.mesh, info, sites, self.kept(types, len(operands)), free)
            if not shared:
                self.memo[key] = found
        return found

    def kept(self, types: tuple[ArrayType, ...], count: int) -> frozenset[str]:
        """Axes over which pending sums pass through the equation, as its type says."""
        if len(types) > count + 1:
            return _EMPTY       # which result is pending over what would have to be said per result
        incoming = _EMPTY.union(*(t.sharding.spec.unreduced for t in types[:count]))
        return incoming & types[-1].sharding.spec.unreduced if incoming else _EMPTY

    def operand(self, eqn: Equation, info: RuleInfo, i: int, operand: Atom, choice: Choice,
                types: Sequence[ArrayType]) -> Atom:
        entries = choice.layouts[i]
        pending = types[i].sharding.spec.unreduced & choice.pending
        if isinstance(operand, Literal) or (operand.aval.entries == entries
                                            and operand.aval.sharding.spec.unreduced == pending):
            return operand
        aval = typed(operand.aval, self.mesh, entries, pending)
        known = self.layouts.setdefault(operand, {operand.aval.sharding: operand})
        if aval.sharding not in known:
            reason = operand_reason(eqn, info, i, choice, types)
            move = reshard_equation(operand, aval, eqn.location, reason)
            self.eqns.append(move)
            known[aval.sharding] = move.outvars[0]
        return known[aval.sharding]


# -- reasons ---------------------------------------------------------------------------------------

def _over(axes: Axes) -> str:
    return f"over {', '.join(axes)}" if axes else "whole"


def _tensor(info: RuleInfo, t: int) -> str:
    if t < info.operands:
        return f"operand {t}"
    return "its result" if info.count == info.operands + 1 else f"its result {t - info.operands}"


def _carrier(info: RuleInfo, f: int, besides: int) -> str:
    """Where a factor shows: "dimension 0 of operand 0", rather not in operand `besides`."""
    places = [(t == besides, t, d) for t, place in enumerate(info.places)
              for g, d, _ in place if g == f]
    _, t, d = min(places)
    return f"dimension {d} of {_tensor(info, t)}"


def operand_reason(eqn: Equation, info: RuleInfo, i: int, choice: Choice,
                   types: Sequence[ArrayType]) -> str:
    """Why operand i is moved: "`add` needs dimension 0 of operand 1 over X, as operand 0 has"."""
    name = eqn.op.name
    finished = types[i].sharding.spec.unreduced - choice.pending
    if finished:
        return f"`{name}` needs the finished sum over {', '.join(sorted(finished))}"
    for d, (have, need) in enumerate(zip(types[i].entries, choice.layouts[i], strict=True)):
        if have == need:
            continue
        what = f"`{name}` needs dimension {d} of operand {i} {_over(need)}"
        factors = info.maps[i][d]
        lost = [a for a in have if a not in need]
        if lost and any(not info.split_ok[f] for f in factors):
            return f"{what}: it works along that dimension"
        if len(factors) > 1 and lost:
            return f"{what}: a block of a merged or split dimension must be contiguous"
        for a in lost:
            taken = next((f for f, axes in choice.axes_of.items() if a in axes), None)
            if taken is not None and taken not in factors:
                return f"{what}: {a} splits {_carrier(info, taken, i)}"
        for t, other in enumerate(types):
            if t == i:
                continue
            for e, group in enumerate(info.maps[t]):
                if set(group) & set(factors) and other.entries[e] != have:
                    return f"{what}: {_tensor(info, t)} has dimension {e} {_over(other.entries[e])}"
        return what
    return f"`{name}` needs operand {i} in another layout"


def result_reason(eqn: Equation, info: RuleInfo, choice: Choice, k: int, var: Var) -> str:
    """Why a result is moved after it was computed."""
    name = eqn.op.name
    summed = choice.pending - var.aval.sharding.spec.unreduced
    if summed:
        factors = [f for f, axes in sorted(choice.axes_of.items())
                   if set(axes) & summed and info.factors[f].kind == REDUCE]
        along = ""
        for f in factors:
            for i in range(info.operands):
                for g, d, _ in info.places[i]:
                    if g == f and not along:
                        over = ", ".join(sorted(summed))
                        along = f": dimension {d} of operand {i} is over {over}"
        return f"`{name}` leaves partial sums{along}"
    have = choice.layouts[info.operands + k]
    for d, (a, b) in enumerate(zip(have, var.aval.entries, strict=True)):
        if a != b:
            return f"`{name}` gives dimension {d} {_over(a)}; its result is laid out {_over(b)}"
    return f"the result of `{name}` is a pending sum by its type"


# -- folding ---------------------------------------------------------------------------------------

def fold_reshards(eqns: Sequence[Equation], outvars: Sequence[Atom]
                  ) -> tuple[list[Equation], list[Atom]]:
    """A -> B -> C becomes A -> C where nothing else reads B; A -> B -> A becomes A.

    Reshards that nothing reads are dropped.
    """
    uses: dict[Atom, int] = {}
    for eqn in eqns:
        for atom in eqn.invars:
            uses[atom] = uses.get(atom, 0) + 1
    for atom in outvars:
        uses[atom] = uses.get(atom, 0) + 1
    made: dict[Var, Equation] = {}
    same: dict[Atom, Atom] = {}
    out: list[Equation | None] = []
    place: dict[Equation, int] = {}
    for eqn in eqns:
        if same and any(a in same for a in eqn.invars):
            eqn = eqn.replace(invars=tuple(same.get(a, a) for a in eqn.invars))
        if eqn.op is reshard_p:
            (operand,), (result,) = eqn.invars, eqn.outvars
            first = made.get(operand) if isinstance(operand, Var) else None
            if first is not None and uses.get(operand, 0) == 1:
                source = first.invars[0]
                out[place[first]] = None
                reasons = "; ".join(dict.fromkeys(r for r in (first.reason, eqn.reason) if r))
                eqn = eqn.replace(invars=(source,), reason=reasons)
                operand = source
            if operand.aval is result.aval:
                same[result] = operand
                uses[operand] = uses.get(operand, 0) + uses.get(result, 0) - 1
                continue
            made[result] = eqn
        place[eqn] = len(out)
        out.append(eqn)
    kept: list[Equation] = []
    live = {same.get(a, a) for a in outvars}
    for eqn in reversed([e for e in out if e is not None]):
        if eqn.op is reshard_p and eqn.outvars[0] not in live:
            continue
        live.update(eqn.invars)
        kept.append(eqn)
    kept.reverse()
    return kept, [same.get(a, a) for a in outvars]
