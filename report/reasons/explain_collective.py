"""Why a collective exists: from its equation back to what the user wrote.

A collective comes from a reshard that the partitioner inserted with a reason. Here the equation and
the values in that reason get the user's names and lines (value_names.py), and every axis in it is
traced back, op by op, to the annotation that introduced it (axis_paths.py).
"""
from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import replace

from ...ir import reasons as say
from ...ir.passes import LayoutConstraints
from ...ir.program import Atom, Equation, Var
from ...ir.reasons import ASKED, Clause, Reason, reason_text
from ...ir.source.location import UNKNOWN, Location
from ...ir.types import ArrayType
from ...partitioner.collectives import CollectiveRecord, collectives, each_part
from ...partitioner.propagation.origins import vetoes
from ...partitioner.reasons import RESHARD_WRITTEN, written
from ..words import as_written, spec_text
from .body_paths import BodyPaths
from .causes import Asked, Cause, Path, reached, sharding_key, where, whole_axes
from .value_paths import equations

_VETOES = 3
_LONG = 72                  # characters of an expression or rule that are shown
_NEARBY, _WIDE = 8, 16      # steps and values in the search for a mentioned equation


class Reasons(BodyPaths):
    """Finds the causes of the collectives of one partitioned program."""

    def cause(self, record: CollectiveRecord) -> Cause:
        """Why this collective is there."""
        cause = self.beside(record.source).traced(record)
        kind, other = record.reason_kind, record.alternative
        if kind == ASKED:
            return replace(cause, kind=kind, asked_by=self.asked_by(record, cause))
        if other is None:
            asked = any([c.kind == ASKED for c in record.why])
            return replace(cause, kind=kind, rule=rule_of(cause.equation),
                           asked_by=self.asked_by(record, cause) if asked else None)
        equation = cause.equation
        clause = next(c for c in record.why if c.alternative == other)
        if cause.move is not None:
            equation = self.context(cause.move, clause) or equation
        if equation is not None:
            does = self.with_line(other.does(self.shown(equation)), equation)
            other = other._replace(steps=(say.SAID(does),))
        return replace(cause, kind=kind, alternative=other)

    def asked_by(self, record: CollectiveRecord, cause: Cause) -> Asked:
        """Who asked for it, and where."""
        clause = next((c for c in record.why if c.kind == ASKED), say.SAID(""))
        at = cause.asked or record.source
        match clause:
            case Clause(sentence=say.RESULT_ASKED, values=(which, spec)):
                return Asked(f"`out_shardings`, {as_written(spec)} for {which}", UNKNOWN,
                             self.result_of(cause))
            case Clause(ending=Clause(sentence=say.ASKED_SO)):
                return Asked("`out_shardings`", UNKNOWN, self.result_of(cause))
            case Clause(sentence=say.TAKES_AS, values=(_, operand, spec)):
                return Asked(f"`in_specs[{operand.number}]` of the `shard_map`, {as_written(spec)}",
                             at)
            case Clause(ending=Clause(sentence=say.ASKED_AT, values=(place,))):
                at = self.asked_at.get(place, UNKNOWN)
            case Clause(sentence=say.GIVES_ASKED) if cause.move is not None:
                equation = self.context(cause.move, clause)
                held = [h.root_location for v in (equation.outvars if equation is not None else ())
                        for h in self.held(v) if h.root_location.line]
                at = held[0] if held else at
        return Asked(_expression(at, self.layout_asked(at) or clause.op or record.op), at)

    def result_of(self, cause: Cause) -> int:
        """The number of the result that a cause brings to its layout, or -1."""
        moved = cause.move.outvars[0] if cause.move is not None else None
        return next((i for i, v in enumerate(self.resharded.outvars) if v is moved), -1)

    def layout_asked(self, at: Location) -> str:
        """The expression at a place that lays out a value, with the spec."""
        eqn = self.laying_out.get(where(at))
        if eqn is None:
            return ""
        word = {"reshard": "reshard", "sharding_constraint": "with_sharding_constraint"}.get(
            eqn.op.name)
        spec = spec_text(eqn.params[sharding_key(eqn)].spec)
        return f"{word}(..., {spec})" if word else f"out_sharding={spec}"

    @functools.cached_property
    def laying_out(self) -> dict[tuple, Equation]:
        """By place, the equations with shardings of their results in params."""
        return {where(e.location): e for e in equations(self.inlined) if sharding_key(e)}

    @functools.cached_property
    def asked_at(self) -> dict[str, Location]:
        """The places where the user wrote layouts, by the name of the place."""
        places = [m.location for moves in self.moves.values() for m in moves]
        constraints = self.resolved.attributes.get(LayoutConstraints.KEY)
        places += constraints.places.values() if constraints is not None else ()
        return {str(at): at for at in places}

    def traced(self, record: CollectiveRecord) -> Cause:
        """The cause of a collective, traced back to what the user wrote."""
        move = self.move_of(record)
        if move is None:
            equation = self.spoken_of(record.why, record.source)
            if equation is None:
                return Cause(None, None, reason_text(record.why or written(record.op)),
                             tuple(dict.fromkeys(self.body_paths(record))))
            axes = frozenset(map(str, record.mesh_axes))
            candidates = self.named_at[reached(record.source), equation.op.name]
            paths = {e: tuple(self.operand_paths(e, axes)) for e in candidates}
            equation = next((e for e in candidates if paths[e]), equation)
            return Cause(None, equation, self.named([c.bare for c in record.why], equation),
                         paths[equation])
        operand, result = move.invars[0], move.outvars[0]
        summed = operand.aval.sharding.spec.unreduced - result.aval.sharding.spec.unreduced
        reason = move.reason or record.why or RESHARD_WRITTEN
        clauses = list(dict.fromkeys([c.bare for c in reason]))
        spoken = [self.context(move, clause) for clause in clauses]
        equation = spoken[0]
        of_spec = say.WRITTEN_TO("reshard", str(result.aval.sharding.spec))
        text = "; ".join(dict.fromkeys([
            self.named([of_spec if eqn is None and (clause,) == RESHARD_WRITTEN else clause], eqn,
                       operand) for clause, eqn in zip(clauses, spoken, strict=True)]))
        paths = list(self.sum_paths(operand, summed)) if summed else []
        axes = frozenset(map(str, record.mesh_axes))
        if not summed or not axes & {str(a) for a in summed}:
            paths += self.layout_paths(operand, result, equation)
        made = self.made.get(self.source(operand)) if isinstance(operand, Var) else None
        if made is not None and any([c.sentence is say.GIVES for c in reason]):
            # operands disagree, and none prevails
            paths += self.operand_paths(made, axes)
        if not any(whole_axes([p.axis]) & whole_axes(axes) for p in paths if not p.planned):
            paths += self.nearby_paths(operand, result, equation, axes)
        return Cause(move, equation, text, tuple(_shortest(paths)),
                     tuple(dict.fromkeys(self.holds(move, spoken, axes))),
                     self.asked(result, summed, record))

    def asked(self, result: Var, summed: frozenset[str], record: CollectiveRecord
              ) -> Location | None:
        """Where the layout of a sum was asked for, if this exchange does more than finish it."""
        axes = {str(a) for a in record.mesh_axes}
        if not summed or record.kind in ("all-reduce", "reduce-scatter") or axes <= summed:
            return None
        found = [h.root_location for h in self.held(result)
                 if h.root == "`with_sharding_constraint`" and h.root_location.line]
        return found[0] if found else None

    def vetoes(self, cause: Cause) -> tuple[str, ...]:
        """Why nearby values lack the axes that would have avoided the exchange."""
        if cause.equation is None:
            return ()
        near = dict.fromkeys(map(self.first_form, (*cause.equation.invars,
                                                   *cause.equation.outvars)))
        found = []
        for var in near:
            if var is None:
                continue
            for veto in vetoes(self.resolved, var):
                text = (f"{veto.axis} on dimension {veto.dim} of {self.name(var)} was not taken: "
                        f"{veto.held}")
                at = veto.location
                found.append(f"{text} at {self.calls.line(at)}" if at.line else text)
        return tuple(dict.fromkeys(found))[:_VETOES]

    def first_form(self, atom: Atom) -> Var | None:
        """The value of the RESOLVED program of which this is a layout."""
        if not isinstance(atom, Var) or self.origins is None:
            return None
        return self.of_tensor.get(self.tensor(atom))

    def move_of(self, record: CollectiveRecord) -> Equation | None:
        """The reshard of the resharded program that a collective stands for: of those on lines with
        equal moves, the one that changes these axes and has this reason. None if it stands for
        none.
        """
        if record.why and record.why[0].sentence in (say.EXCHANGES, say.LEAVES_RESULTS):
            return None
        axes = whole_axes(record.mesh_axes)
        stated = {c._replace(place="") for c in record.why}

        def score(of: tuple[Reason, frozenset[str]]) -> tuple:
            reason, changed = of[0], whole_axes(of[1])
            named = bool(reason) and (stated.issuperset(reason) or stated.issubset(reason))
            return (bool(axes & changed), named or reason == record.why, -len(axes ^ changed))

        found = self.equal_moves.get(reached(record.source), {})
        best = max(found, key=score, default=None)
        if best is None or not score(best)[0]:
            return None
        candidates = found[best]
        n, total = self.turns.get(id(record.equation), (0, 1))
        return candidates[n * len(candidates) // total]

    @functools.cached_property
    def equal_moves(self) -> dict[tuple, dict[tuple[Reason, frozenset[str]], list[Equation]]]:
        """By place, the reshards in program order that share a reason and axes."""
        found: dict[tuple, dict[tuple[Reason, frozenset[str]], list[Equation]]] = {}
        for at, moves in self.moves.items():
            for eqn in moves:
                changed = _axes_changed(eqn.invars[0].aval, eqn.outvars[0].aval)
                found.setdefault(at, {}).setdefault((eqn.reason, changed), []).append(eqn)
        return found

    @functools.cached_property
    def turns(self) -> dict[int, tuple[int, int]]:
        """For each collective (its number, the count) among those that are alike: a line that runs
        for several layers causes as many, in the same order.
        """
        candidates: dict[tuple, list[int]] = {}
        for r, _ in each_part(collectives(self.local)):
            key = (r.kind, reached(r.source), r.why, r.mesh_axes)
            candidates.setdefault(key, []).append(id(r.equation))
        return {eqn: (n, len(same)) for same in candidates.values() for n, eqn in enumerate(same)}

    def context(self, move: Equation, clause: Clause) -> Equation | None:
        """The equation that a clause of a reason mentions: one that makes or reads the value."""
        name = clause.op
        made = self.made.get(move.invars[0]) if isinstance(move.invars[0], Var) else None
        if made is not None and made.op.name == name and clause.sentence.of_result:
            return made
        for eqn in self.readers.get(move.outvars[0], ()):
            if eqn.op.name == name:
                return eqn
        if made is not None and made.op.name == name:
            return made
        return self.spoken_of((clause,), move.location) or self.nearby(move, name)

    def nearby(self, move: Equation, name: str) -> Equation | None:
        """The nearest equation of this op before or after the moved value."""
        before = [v for v in move.invars if isinstance(v, Var)]
        after = list(move.outvars)
        for _ in range(_NEARBY):
            made = [e for e in map(self.made.get, before) if e is not None]
            reads = [e for v in after for e in self.readers.get(v, ())]
            for eqn in (*made, *reads):
                if eqn.op.name == name:
                    return eqn
            before = [v for e in made for v in e.invars if isinstance(v, Var)][:_WIDE]
            after = [v for e in reads for v in e.outvars][:_WIDE]
        return None

    def following(self, move: Equation | None) -> Iterable[Equation]:
        """The nearest equations that use a moved value; it may be moved for one of them."""
        waiting = [] if move is None else [*move.outvars]
        found: dict[Equation, None] = {}
        while waiting and len(found) < _WIDE:
            for eqn in self.readers.get(waiting.pop(0), ()):
                if eqn not in found:
                    found[eqn] = None
                    waiting += eqn.outvars
        return found

    def spoken_of(self, reason: Reason, location: Location) -> Equation | None:
        """The equation at a place whose op the reason begins with."""
        found = self.named_at.get((reached(location), reason[0].op), []) if reason else []
        return found[0] if found else None


def _shortest(paths: Iterable[Path]) -> Iterable[Path]:
    """For each axis, value and annotation the shortest path."""
    found: dict[tuple, Path] = {}
    for p in paths:
        key = (p.axis, p.dim, p.value, p.root, p.root_location)
        if key not in found or len(p.steps) < len(found[key].steps):
            found[key] = p
    return found.values()


def rule_of(equation: Equation | None) -> str:
    """The rule of an op: "`dot_general`: i k, k j -> i j | k:sum"."""
    if equation is None or equation.op.subprograms or equation.op.collective is not None:
        return ""
    text = str(equation.instance.rule(*equation.types))
    return f"`{equation.op.name}`" + (f": {text}" if len(text) <= _LONG else "")


def _expression(at: Location, otherwise: str) -> str:
    """The source text at a place."""
    text = " ".join(at.text().split())
    return f"`{text if 0 < len(text) <= _LONG else otherwise}`"


def _axes_changed(before: ArrayType, after: ArrayType) -> frozenset[str]:
    changed = {str(a) for a in before.sharding.spec.unreduced ^ after.sharding.spec.unreduced}
    for have, want in zip(before.entries, after.entries, strict=True):
        if have != want:
            changed |= {str(a) for a in (*have, *want)}
    return frozenset(changed)
