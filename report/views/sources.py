"""The values of a program at the user's lines: their types, and where their axes come from.

Values and equations are those of the resolved program, in which every sharding is decided and
shapes are global. For an axis on a dimension only one step back is stored, to the value that it was
taken from; viewers follow the steps, so the data grows linearly with the program.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...ir.program import Equation, Program, Var
from ...partitioner.propagation.graph import Root
from ..reasons.causes import Step
from ..reasons.explain_collective import Reasons
from ..reasons.value_paths import inner_programs
from .tables import Tables


class Sources:
    """values, equations: as data, by number.

    A value: `name` as the user calls it ("" where he does not), `text` of its expression, `type`
    and `place` by number, `equation` that makes it (-1: a parameter), the equation that it is
    `inside` of (-1: none), and `from`: for each axis `[dimension, axis, value, op, place]`, the
    value that it was taken from, by which op and where; or -1, the annotation, its place, and the
    argument that it is of ("" if of none). An equation: `op`, `place`, `inside`, `scope` (names
    around it, the outermost first), `in` and `out`. program: the resolved one. reasons: what finds
    `from`; without, that is empty, and there are no equations.
    """

    def __init__(self, program: Program, tables: Tables, reasons: Reasons | None = None) -> None:
        self.tables, self.reasons = tables, reasons
        self.count = 0                       # of equations so far
        self.values: list[dict[str, Any]] = []
        self.equations: list[dict[str, Any]] = []
        self.number: dict[Var, int] = {}
        captured = len(program.invars) - len(program.arg_names)
        for i, v in enumerate(program.invars):
            self._value(v, v.name or (program.arg_names[i - captured] if i >= captured else ""))
        self._program(program, -1)
        for v, number in self.number.items():
            self.values[number]["from"] = [] if reasons is None else list(
                self._origins(v, reasons))
        self.results = [self.number[v] for v in program.outvars if v in self.number]

    def _program(self, program: Program, inside: int) -> None:
        """Number the equations and values of a program and of those inside it. inside: the equation
        that holds it.
        """
        for v, _ in program.consts:
            self._value(v, v.name or "", inside=inside)
        for eqn in program.eqns:
            n = self.count
            self.count += 1
            if self.reasons is not None:
                self.equations.append(self._equation(eqn, inside))
            for _, body in inner_programs(eqn, n) if eqn.op.subprograms else ():
                for v in body.invars:
                    self._value(v, v.name or "", inside=n)
                self._program(body, n)
            made = [self._value(v, v.name or "", eqn, n, inside) for v in eqn.outvars]
            if self.reasons is not None:
                self.equations[n]["out"] = made

    def _equation(self, eqn: Equation, inside: int) -> dict[str, Any]:
        where = eqn.location
        around = [where.transform, *where.scope.split("/"), where.function]
        return {"op": eqn.op.name, "place": self.tables.place(where), "inside": inside,
                "scope": [name for name in around if name and name != "<module>"],
                "in": [self.number[a] for a in eqn.invars
                       if isinstance(a, Var) and a in self.number]}

    def _value(self, v: Var, name: str, made: Equation | None = None, equation: int = -1,
               inside: int = -1) -> int:
        """The number of a value, which is entered into the tables if it is new."""
        number = self.number.get(v)
        if number is None:
            number = self.number[v] = len(self.values)
            text = self.tables.text(made.location) if made is not None and not name else ""
            self.values.append({
                "name": name, "text": text, "type": self.tables.type(v.aval),
                "place": -1 if made is None else self.tables.place(made.location),
                "equation": equation, "inside": inside})
        return number

    def _origins(self, v: Var, reasons: Reasons) -> Iterator[list[Any]]:
        """One step back for each axis of a value."""
        tensor = reasons.tensor(v) if any(v.aval.entries) else -1
        if tensor < 0:
            return
        for d, axes in enumerate(v.aval.entries):
            for axis in axes:
                back = _back(reasons, tensor, d, axis)
                if isinstance(back, Step):
                    source = reasons.of_tensor.get(back.tensor)
                    eqn = back.equation
                    yield [d, str(axis), -1 if source is None else self.number.get(source, -1),
                           "the result" if eqn is None else eqn.op.name,
                           -1 if eqn is None else self.tables.place(eqn.location)]
                elif back is not None:
                    yield [d, str(axis), -1, back.text, self.tables.place(back.location),
                           reasons.argument(back.argument)]


def _back(reasons: Reasons, tensor: int, dim: int, axis: str) -> Step | Root | None:
    back = reasons.back(tensor, dim, axis)
    assert reasons.origins is not None
    if isinstance(back, Step) and back.tensor in reasons.origins.solution.graph.repeats:
        # of no variable: what the equation computes with, an operand of it repeated
        further = reasons.back(back.tensor, back.dim, axis)
        if isinstance(further, Step):
            return Step(back.equation, further.tensor, further.dim)
    return back
