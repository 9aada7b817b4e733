"""Notes on reshards of padded values: how many of their rows are real.

Equations that pad (preparation/uneven.py) say so in their reasons. Starting there, the number of
real rows is followed along pass-through factors, into loops too, and noted on every `reshard` of
such a value: "63 of 64 rows of dimension 0 count".
"""
from __future__ import annotations

from collections.abc import Mapping

from ...ir.ops.communication.sharding import reshard_p
from ...ir.program import Atom, Equation, Program
from ...ir.reasons import COUNT, PADDED
from ...ir.types import Shape
from ..factors import major_factor
from ..reasons import paddings
from ..regions import has_region, region_of, with_programs


def note_padding(program: Program) -> Program:
    """The pass: a RESHARDED program."""
    return _Notes({}).program(program)[0] if _pads(program) else program


def _pads(program: Program) -> bool:
    if "pad" in program.op_names and any([
            c.sentence is PADDED for e in program.eqns for c in e.reason]):
        return True
    for eqn in program.eqns if program.holds_programs else ():
        if has_region(eqn) and any([_pads(body) for _, _, body in region_of(eqn).programs]):
            return True
    return False


class _Notes:
    """shapes: of padded values, their shapes without padding."""

    def __init__(self, known: Mapping[Atom, Shape]) -> None:
        self.shapes: dict[Atom, Shape] = dict(known)

    def program(self, program: Program) -> tuple[Program, list[Shape | None]]:
        """(the program with notes, the shapes of its results that have padding)."""
        eqns = []
        for eqn in program.eqns:
            if has_region(eqn):
                eqn = self.region(eqn)
            elif eqn.op is reshard_p:
                eqn = self.noted(eqn)
            elif len(eqn.outvars) == 1 and not eqn.op.subprograms:
                self.follow(eqn)
            eqns.append(eqn)
        found = [self.shapes.get(a) for a in program.outvars]
        if all(a is b for a, b in zip(eqns, program.eqns, strict=True)):
            return program, found
        return program.replace(eqns=eqns), found

    def noted(self, eqn: Equation) -> Equation:
        shape = self.shapes.get(eqn.invars[0])
        if shape is None:
            return eqn
        self.shapes[eqn.outvars[0]] = shape
        said = [COUNT(n, size, d) for d, (n, size) in enumerate(
            zip(shape, eqn.outvars[0].aval.shape, strict=True)) if n != size]
        return eqn.replace(reason=(*eqn.reason, *said))

    def follow(self, eqn: Equation) -> None:
        """The shapes known of the results: of an equation that pads, or along factors of its
        operands.
        """
        (result,) = eqn.outvars
        shape = list(result.aval.shape)
        for d, n, size in paddings(eqn.reason):
            if d < len(shape) and shape[d] == size:
                shape[d] = n
        known = [(i, self.shapes[a]) for i, a in enumerate(eqn.invars) if a in self.shapes]
        if known:
            rule = eqn.instance.rule(*eqn.types)
            rows = {}
            for i, own in known:
                for d, split in enumerate(rule.operands[i]):
                    n, size = own[d], eqn.invars[i].aval.shape[d]
                    f = major_factor(split, rule)
                    whole = rule.factors[f].size if f >= 0 else 0
                    if n != size and whole and size % whole == 0:
                        rows[f, size] = n
            for d, split in enumerate(rule.results[0]):
                f, size = major_factor(split, rule), shape[d]
                if f >= 0:
                    for (g, whole), n in rows.items():
                        if g == f and n * size % whole == 0:
                            shape[d] = min(shape[d], n * size // whole)
        if tuple(shape) != result.aval.shape:
            self.shapes[result] = tuple(shape)

    def region(self, eqn: Equation) -> Equation:
        """A loop or branch with the notes in its bodies; padded results are recorded in `shapes`.
        """
        region = region_of(eqn)
        inside: dict[int, dict[Atom, Shape]] = {}
        for slot in region.slots:
            shape = self.shapes.get(eqn.invars[slot.operand]) if slot.operand >= 0 else None
            if shape is not None:
                for p, i in slot.inputs:
                    body = region.programs[p][2]
                    inside.setdefault(p, {})[body.invars[i]] = shape[slot.stacked:]
        if not inside:
            return eqn
        programs, results = {}, {}
        for p, (param, place, body) in enumerate(region.programs):
            programs[param, place], results[p] = _Notes(inside.get(p, {})).program(body)
        for slot in region.slots:
            if slot.result >= 0 and slot.outputs:
                p, i = slot.outputs[0]
                found, v = results[p][i], eqn.outvars[slot.result]
                if found is not None:
                    self.shapes[v] = (*v.aval.shape[:slot.stacked], *found)
        return eqn.replace(params=with_programs(eqn.params, programs))
