"""A walk over a program that keeps rows interleaved wherever that changes nothing else.

Equations that compute row by row, or reduce, take rows in any order; one that reads a whole part
reads the groups that stand in its place. Before all other equations the usual order is restored. An
operand that is combined with interleaved rows is interleaved, too: where it is concatenated, or by
interleaving what it is computed from.
"""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate

from ....ir.ops.control.loop_operands import scan_operands
from ....ir.program import Atom, Equation, Literal, Program, Var
from ....ir.rewriting.unread import drop_dead
from ....ir.rules.factor import PASS, REDUCE
from ...reasons.causes import AS_WRITTEN
from .row_order import Emitter, Order, Rows, of_factors, rule_of
from .written import Replaced

NONE: Rows = {}
_COMMUTES = ("sum", "max", "min", "prod", "and", "or", "xor")
_BACK = 12                      # equations that are looked through for what a value is made of


class Walk:
    """A walk over a program in which some values have interleaved rows.

    given: these values, parameters or results of equations. pulled: parameters that need
    interleaved rows as well, because they are combined with values that have them. replaced: what
    reads or joins parts, and what stands for it; alone: is that all that has to be written in the
    user's code, since no value is brought into another order?
    """

    def __init__(self, program: Program, order: Order, given: Mapping[Var, Rows]) -> None:
        self.program, self.order = program, order
        self.rows: dict[Atom, Rows] = {**given}
        self.made = {v: e for e in program.eqns for v in e.outvars}
        self.parameters = {*program.invars}
        self.eqns: list[Equation] = []
        self.pulled: dict[Var, Rows] = {}
        self.known: dict[tuple, Atom] = {}      # of values, in the order of others
        self.replaced: list[Replaced] = []
        self.alone = True

    def rows_of(self, a: Atom) -> Rows:
        return NONE if isinstance(a, Literal) else self.rows.get(a, NONE)

    def run(self, joins: Mapping[int, Rows] | None = None) -> None:
        """joins: for the number of an equation that joins parts, the order that its result is to
        have.
        """
        for n, eqn in enumerate(self.program.eqns):
            rows = joins.get(n) if joins else None
            if rows:
                ((d, group),) = rows.items()
                parts = [self.natural(a, eqn) for a in eqn.invars]
                out = Emitter(self.program, eqn)
                self.replace(eqn, out, [self.order.interleaved(out, parts, d, group)])
                self.rows[eqn.outvars[0]] = rows
            elif not any(map(self.rows_of, eqn.invars)):
                self.eqns.append(eqn)
            elif eqn.op.name == "scan":
                self.scan(eqn)
            elif not self.cut(eqn) and not self.along(eqn):
                self.eqns.append(eqn.with_operands(
                    [self.natural(a, eqn) for a in eqn.invars], eqn.outvars))

    def done(self, wanted: Sequence[Rows]) -> Program:
        """The program whose results have interleaved rows."""
        last = self.program.eqns[-1]
        outvars = [self.ordered(a, rows, last) for a, rows in zip(
            self.program.outvars, wanted, strict=True)]
        return drop_dead(self.program.replace(eqns=self.eqns, outvars=outvars))

    def replace(self, eqn: Equation, out: Emitter, values: Sequence[Atom]) -> None:
        """Let values of the emitter take the place of an equation's results."""
        self.replaced.append(Replaced(self.program, eqn, out.builder.eqns, values))
        names = dict(zip(values, eqn.outvars, strict=True))
        self.eqns += [e.with_operands([names.get(a, a) for a in e.invars],
                                      [names.get(v, v) for v in e.outvars])
                      for e in out.builder.eqns]

    # -- equations whose operands have rows side by side ------------------------------------------

    def along(self, eqn: Equation) -> bool:
        """Does the equation compute each row on its own, or reduce the rows? Then its results have
        interleaved rows as well.
        """
        found = rule_of(eqn)
        factors: dict[int, int] = {}
        if found is None:
            return False
        rule, sizes = found, [f.size for f in found.factors]
        for a, dims in zip(eqn.invars, rule.operands, strict=True):
            for d, group in self.rows_of(a).items():
                first, *tail = dims[d] or (-1,)
                inner, rest = divmod(group, math.prod(sizes[f] for f in tail))
                if first < 0 or rest or factors.setdefault(first, inner) != inner:
                    return False
        for f, inner in factors.items():
            factor = rule.factors[f]
            if factor.blocked or not (factor.kind == PASS or factor.kind == REDUCE
                                      and factor.operator in _COMMUTES) or (
                    factor.size % (self.order.total * inner)):
                return False
        wanted = [of_factors(dims, factors, sizes) for dims in (*rule.operands, *rule.results)]
        if None in wanted:
            return False
        count = len(eqn.invars)
        operands = [self.ordered(a, rows or NONE, eqn) for a, rows in zip(
            eqn.invars, wanted[:count], strict=True)]
        self.eqns.append(eqn.with_operands(operands, eqn.outvars))
        self.rows.update({v: rows for v, rows in zip(eqn.outvars, wanted[count:], strict=True)
                          if rows})
        return True

    def cut(self, eqn: Equation) -> bool:
        """Does the equation read whole parts? Then it reads the groups that replace them."""
        x, params = eqn.invars[0], eqn.params
        rows = self.rows_of(x)
        out = Emitter(self.program, eqn)
        if len(rows) != 1 or eqn.op.name not in ("slice", "split", "reshape"):
            return False
        ((d, group),) = rows.items()
        n = x.aval.shape[d]
        if eqn.op.name == "reshape":
            parts, shape = len(self.order.counts), eqn.outvars[0].aval.shape
            if {*self.order.counts} != {1} or params.get("dimensions") is not None or (
                    shape[:d] != x.aval.shape[:d] or shape[d:d + 1] != (parts,)):
                return False
            turned = out.moved(out.reshaped(x, d, (n // (parts * group), parts, group)), d + 1, d)
            self.replace(eqn, out, [out.emit("reshape", turned, new_sizes=shape, dimensions=None,
                                             sharding=None)])
            return True
        if eqn.op.name == "slice":
            bounds = [*zip(params["start_indices"], params["limit_indices"], strict=True)]
            cuts = [bounds[d]]
            if params["strides"] is not None and {*params["strides"]} != {1} or cuts == [(0, n)]:
                return False
            for k, (a, b) in enumerate(bounds):
                if k != d and (a, b) != (0, x.aval.shape[k]):
                    x = out.cut(x, k, a, b)
        elif params["axis"] == d:
            ends = (0, *accumulate(params["sizes"]))
            cuts = [*zip(ends, ends[1:], strict=False)]
        else:
            return False
        which = [self.order.parts(n, group, *cut) for cut in cuts]
        if None in which:
            return False
        self.replace(eqn, out, [out.concatenated(
            [self.order.part(out, x, d, group, i) for i in own or ()], d) for own in which])
        return True

    def scan(self, eqn: Equation) -> None:
        """A loop: its body has interleaved rows for those operands that have them."""
        params = eqn.params
        body, parts = params["jaxpr"], scan_operands(params)
        (consts, carries), first = parts, parts.first_item
        given = [self.rows_of(a) if i < first else {d - 1: g for d, g in self.rows_of(a).items()
                                                    if d} for i, a in enumerate(eqn.invars)]
        while True:
            walk = Walk(body, self.order, {v: r for v, r in zip(body.invars, given, strict=True)
                                           if r})
            walk.run()
            before = [*given]
            for i, v in enumerate(body.invars):
                given[i] = {**given[i], **walk.pulled.get(v, NONE)}
            for i, a in enumerate(body.outvars[:carries]):
                given[consts + i] = {**given[consts + i], **walk.rows_of(a)}
            if given == before:
                break
        self.replaced += walk.replaced
        results = [given[consts + i] if i < carries else walk.rows_of(a)
                   for i, a in enumerate(body.outvars)]
        operands = [self.ordered(a, r if i < first else {d + 1: g for d, g in r.items()}, eqn)
                    for i, (a, r) in enumerate(zip(eqn.invars, given, strict=True))]
        self.eqns.append(eqn.replace(invars=tuple(operands),
                                     params={**params, "jaxpr": walk.done(results)}))
        self.alone = self.alone and walk.alone
        self.rows.update({v: r if i < carries else {d + 1: g for d, g in r.items()}
                          for i, (v, r) in enumerate(zip(eqn.outvars, results, strict=True)) if r})

    # -- values in another order ------------------------------------------------------------------

    def natural(self, a: Atom, eqn: Equation) -> Atom:
        """A value with one part after the other, for an equation that needs the usual order."""
        return self.ordered(a, NONE, eqn)

    def ordered(self, a: Atom, wanted: Rows, eqn: Equation) -> Atom:
        """A value with its rows in the wanted order."""
        has = self.rows_of(a)
        if has == wanted:
            return a
        key = a, *sorted(wanted.items())
        found = self.known.get(key)
        if found is None:
            found, out = a, Emitter(self.program, eqn)
            for d, group in has.items():
                if wanted.get(d) != group:
                    found = self.order.back(out, found, d, group)
            self.write(out, eqn)
            for d, group in wanted.items():
                if has.get(d) != group:
                    found = self.brought(found, d, group, eqn, _BACK)
            self.known[key] = found
        return found

    def brought(self, a: Atom, d: int, group: int, eqn: Equation, left: int) -> Atom:
        """A value with the rows of a dimension interleaved; if it is joined from parts, it is
        joined so.
        """
        if isinstance(a, Var) and a in self.parameters:
            self.pulled[a] = {**self.pulled.get(a, NONE), d: group}
            return a
        maker = None if isinstance(a, Literal) else self.made.get(a)
        out = Emitter(self.program, eqn)
        found = None
        if maker is not None and maker.invars and left and not any(
                map(self.rows_of, maker.invars)):
            found = self.of_parts(maker, out, d, group)
            if found is None:
                again = self.remade(maker, d, group, eqn, left - 1)
                if again is not None:
                    return again
        if found is None:
            found = self.order.cut(out, a, d, group)
        self.write(out, maker or eqn)
        return found

    def write(self, out: Emitter, at: Equation) -> None:
        """Add the equations that bring a value into another order, for one of the program: in
        derivatives those follow from what the user writes.
        """
        self.eqns += out.builder.eqns
        self.alone = self.alone and (
            not out.builder.eqns or at.location.transform not in AS_WRITTEN)

    def of_parts(self, maker: Equation, out: Emitter, d: int, group: int) -> Atom | None:
        """The result of an equation that joins parts, or that places one between zeros."""
        x, params, shape = maker.invars[0], maker.params, maker.outvars[0].aval.shape
        if maker.op.name == "concatenate" and params["dimension"] == d:
            each = shape[d] // self.order.total
            sizes = tuple([a.aval.shape[d] for a in maker.invars])
            if sizes == tuple([c * each for c in self.order.counts]):
                return self.order.interleaved(out, maker.invars, d, group)
        if maker.op.name == "pad":
            low, _, inner = params["padding_config"][d]
            own = self.order.parts(shape[d], group, low, low + x.aval.shape[d])
            if not inner and own is not None and len(own) == 1 and not any(
                    any(c) for k, c in enumerate(params["padding_config"]) if k != d):
                return self.order.padded(out, x, maker.invars[1], d, group, own[0], shape[d])
        if maker.op.name == "reshape" and {*self.order.counts} == {1} and (
                x.aval.shape[:d] == shape[:d]
                and x.aval.shape[d:d + 1] == (len(self.order.counts),)):
            parts = len(self.order.counts)
            turned = out.moved(out.emit(
                "reshape", x, new_sizes=(*shape[:d], parts, shape[d] // (parts * group), group,
                                         *shape[d + 1:]), dimensions=None, sharding=None), d, d + 1)
            return out.reshaped(turned, d, (shape[d],), 3)
        return None

    def remade(self, maker: Equation, d: int, group: int, eqn: Equation, left: int) -> Atom | None:
        """The result of an equation that computes each row on its own, from operands with
        interleaved rows.
        """
        rule = rule_of(maker)
        if rule is None or len(maker.outvars) != 1 or not rule.results[0][d]:
            return None
        first, *tail = rule.results[0][d]
        sizes = [f.size for f in rule.factors]
        inner, rest = divmod(group, math.prod(sizes[f] for f in tail))
        wanted = [None if rest else of_factors(dims, {first: inner}, sizes)
                  for dims in rule.operands]
        if None in wanted or rule.factors[first].kind != PASS or rule.factors[first].blocked:
            return None
        if not any(wanted):                      # no operand has the dimension
            return maker.outvars[0] if maker.op.name == "broadcast_in_dim" else None
        operands = []
        for a, rows in zip(maker.invars, wanted, strict=True):
            for k, own in (rows or NONE).items():
                key = a, (k, own)
                if key not in self.known:
                    self.known[key] = self.brought(a, k, own, eqn, left)
                a = self.known[key]
            operands.append(a)
        new = maker.with_operands(operands, [Var(v.aval, v.name) for v in maker.outvars])
        self.eqns.append(new)
        return new.outvars[0]
