"""Induction variables: what a scan computes from its counter alone is computed before the scan.

The row that an iteration reads or writes, or its phase in a cycle, is a scalar that follows from
the counter, scalar items and loop invariants. Computing such scalars for all iterations at once, as
arrays that the scan iterates over, takes about the time of one iteration. A loop of 200 iterations:

    body(i, x):                         is = 0 + iota(200)
        j = rem i 64                    js = rem is 64
        x = add x j             ->      body(x; j): x = add x j
        i = add i 1
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.builder import ProgramBuilder
from ...ir.facts import EXACT
from ...ir.op import OPS
from ...ir.ops.control.loop_operands import scan_operands
from ...ir.ops.control.loops_and_branches import stacked_type
from ...ir.program import Atom, Equation, Literal, Program, Var
from ...ir.rewriting.inline import inline
from ...ir.rewriting.unread import drop_dead, without_unread
from ...ir.types import ArrayType

MOST = 1 << 18          # iterations, at most, of a loop whose scalars are worth storing


def precompute_induction(program: Program) -> Program:
    """The program with the induction variables of its scans computed before them."""
    eqns: list[Equation] = []
    for eqn in program.eqns:
        eqns += _precomputed(program, eqn) if eqn.op.name == "scan" else (eqn,)
    return program if len(eqns) == len(program.eqns) else program.replace(eqns=eqns)


class _Scan:
    """A scan, and the part of its body that depends on counters and scalar items alone.

    steps: for each counter, by its position in the carry, what an iteration adds. ahead: equations
    that compute scalars from counters, scalar items and constants. varying: the scalars among these
    that change from iteration to iteration.
    """

    def __init__(self, eqn: Equation) -> None:
        params = eqn.params
        self.eqn, self.length, self.body = eqn, params["length"], inline(params["jaxpr"])
        parts, invars = scan_operands(params), self.body.invars
        self.first, self.last = parts.consts, parts.first_item
        made = {v: e for e in self.body.eqns for v in e.outvars}
        self.steps: dict[int, Literal] = {}
        for k, (x, after) in enumerate(zip(invars[self.first:self.last], self.body.outvars,
                                           strict=False)):
            step = _step(made.get(after), x)            # type: ignore[arg-type]
            if step is not None:
                self.steps[k] = step
        self.counters = [invars[self.first + k] for k in self.steps]
        fixed: set[Atom] = set(invars[:self.first])
        self.varying: set[Atom] = {
            *self.counters, *[v for v in invars[self.last:] if not v.aval.shape]}
        self.ahead: list[Equation] = []
        for e in self.body.eqns:
            read = [a for a in e.invars if type(a) is Var]
            if EXACT in e.op.facts and all([not a.aval.shape for a in e.invars]) and all(
                    [a in self.varying or a in fixed for a in read]):
                self.ahead.append(e)
                (fixed if self.varying.isdisjoint(read) else self.varying).update(e.outvars)


def _step(eqn: Equation | None, x: Var) -> Literal | None:
    """The constant that an equation adds to the integer scalar x; None if it does anything else."""
    if eqn is None or eqn.op.name != "add" or x.aval.shape or x.aval.dtype.kind not in "iu":
        return None
    a, b = eqn.invars
    return b if a is x and type(b) is Literal else a if b is x and type(a) is Literal else None


def _precomputed(program: Program, eqn: Equation) -> Sequence[Equation]:
    """What replaces a scan: equations for all iterations at once, and the rest of the scan."""
    scan = _Scan(eqn)
    body, first, last = scan.body, scan.first, scan.last
    gone = {e for e in scan.ahead if e.outvars[0] in scan.varying}
    if not gone or scan.length > MOST:
        return (eqn,)
    carried = [k for k in range(last - first) if k not in scan.steps]
    outvars = [body.outvars[k] for k in (*carried, *range(last - first, len(body.outvars)))]
    rest = [e for e in body.eqns if e not in gone]
    read = {a for e in rest for a in e.invars}.union(outvars)
    given = [v for v in (*scan.counters, *[e.outvars[0] for e in scan.ahead if e in gone])
             if v in read]
    vectors = _AllIterations(program, scan)
    items = [vectors.vector(v) for v in given]
    counts = [vectors.last(k) for k in scan.steps]
    names = {v: Var(v.aval, v.name) for v in given}
    small = drop_dead(body.replace(
        invars=[*body.invars[:first], *[body.invars[first + k] for k in carried],
                *body.invars[last:], *names.values()],
        eqns=[e.with_operands([names.get(a, a) for a in e.invars], e.outvars)          # type: ignore
              for e in rest],
        outvars=[names.get(a, a) for a in outvars],                         # type: ignore
        arg_names=(), result_names=()))
    return [*without_unread(vectors.builder.eqns, (*items, *counts)), Equation(
        eqn.op, [*eqn.invars[:first], *[eqn.invars[first + k] for k in carried],
                 *eqn.invars[last:], *items],
        [v for k, v in enumerate(eqn.outvars) if k not in scan.steps],
        {**eqn.params, "jaxpr": small, "num_carry": len(carried)}, eqn.location, eqn.reason)]


class _AllIterations:
    """Writes the equations for all iterations at once. of: body value to what replaces it, an array
    with an element for each iteration if it varies.
    """

    def __init__(self, program: Program, scan: _Scan) -> None:
        self.scan, self.builder = scan, ProgramBuilder(program.mesh, program.level)
        self.of: dict[Atom, Atom] = dict(zip(scan.body.invars, scan.eqn.invars, strict=True))
        self.of.update({x: self._counts(k) for x, k in zip(scan.counters, scan.steps,
                                                           strict=True)})
        for e in scan.ahead:
            operands = [self.of.get(a, a) for a in e.invars]
            if e.outvars[0] in scan.varying:
                # ops of two operands broadcast literals, others such as `clamp` do not
                operands = [self._repeated(a) if type(a) is Var or len(operands) > 2 else a
                            for a in operands]
            self.of[e.outvars[0]] = self.emit(e.op.name, *operands, **e.params)

    def emit(self, op: str, *operands: Atom, **params: Any) -> Var:
        return self.builder.emit(OPS[op], operands, params, location=self.scan.eqn.location)[0]

    def vector(self, v: Var) -> Atom:
        """The array over which the scan iterates to get `v`."""
        found, t = self.of[v], stacked_type(v.aval, self.scan.length)
        return found if found.aval == t else self._of_type(found, t)

    def last(self, k: int) -> Var:
        """Append the last value of a counter, which keeps its variable in the program."""
        scan, step, out = self.scan, self.scan.steps[k], self.scan.eqn.outvars[k]
        with np.errstate(over="ignore"):
            total = np.multiply(np.asarray(scan.length).astype(step.aval.dtype), step.val)
        self.builder.eqns.append(Equation(
            OPS["add"], [scan.eqn.invars[scan.first + k], Literal(total, step.aval)], [out], {},
            scan.eqn.location))
        return out

    def _counts(self, k: int) -> Atom:
        """The value of a counter in each iteration, in the order of the items."""
        scan, step = self.scan, self.scan.steps[k]
        order = self.emit("iota", dtype=np.dtype(np.int32), shape=(scan.length,), dimension=0,
                          sharding=None)
        if scan.eqn.params["reverse"]:
            order = self.emit("rev", order, dimensions=(0,))
        passed = self.emit("mul", self._of_type(order, step.aval), step)
        return self.emit("add", self._repeated(scan.eqn.invars[scan.first + k]), passed)

    def _of_type(self, x: Atom, t: ArrayType) -> Var:
        return self.emit("convert_element_type", x, new_dtype=t.dtype, weak_type=t.weak_type,
                         sharding=None)

    def _repeated(self, x: Atom) -> Atom:
        return x if x.aval.shape else self.emit(
            "broadcast_in_dim", x, shape=(self.scan.length,), broadcast_dimensions=(),
            sharding=None)
