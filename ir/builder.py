"""Program builders, with which passes and the tracer append equations."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .inference.infer import infer
from .inference.levels import together
from .meshes.mesh import AbstractMesh
from .op import Op
from .program import Atom, Equation, Level, Var
from .reasons import Reason
from .source.location import UNKNOWN, Location
from .types import ArrayType


class ProgramBuilder:
    """Appends equations to a program that a pass is making.

    `emit` takes result types if the pass knows them, else infers them.
    """

    def __init__(self, mesh: AbstractMesh, level: Level) -> None:
        self.mesh = mesh
        self.level = level
        self.eqns: list[Equation] = []
        self.consts: list[tuple[Var, Any]] = []

    def emit(self, op: Op, operands: Sequence[Atom], params: dict[str, Any] | None = None, *,
             types: Sequence[ArrayType] | None = None, location: Location = UNKNOWN,
             reason: Reason = (), names: Sequence[str | None] = ()) -> list[Var]:
        """Append an equation; its result variables."""
        params = {} if params is None else params
        if types is None:
            given = tuple([v.aval for v in operands])
            if self.level is Level.LOCAL and op.manual is None and not op.subprograms:
                given = together(given)
            types = infer(op, given, params, self.mesh)
        out = [Var(t, names[i] if i < len(names) else None) for i, t in enumerate(types)]
        self.eqns.append(Equation(op, operands, out, params, location, reason))
        return out

    def constant(self, value: Any, aval: ArrayType, name: str | None = None) -> Var:
        """A captured array, as a variable bound before the first equation."""
        var = Var(aval, name)
        self.consts.append((var, value))
        return var
