"""The values of a program as targets of changes: where each is made, laid out and read."""
from __future__ import annotations

import functools
import re
from collections import deque

from ....ir.meshes.mesh import AbstractMesh
from ....ir.ops.communication.sharding import reshard_p
from ....ir.program import Equation, Program, Var
from ....ir.source.location import Location
from ....ir.types import Entries
from ....partitioner.pipeline import Partitioned
from ...reasons.causes import AS_WRITTEN, sharding_key, where
from ...reasons.explain_collective import Reasons
from ...reasons.value_paths import Place, places

_NO_PLACE = frozenset(("shard_map",))
_NUMBERED = re.compile(r"(\w+?)_\d+")


class PlacedValues:
    """The values of one partitioned program, without those inside `shard_map`s."""

    def __init__(self, partitioned: Partitioned, reasons: Reasons) -> None:
        self.partitioned, self.reasons = partitioned, reasons
        self.mesh: AbstractMesh = partitioned.mesh
        self.inlined: Program = partitioned.stages["inlined"]
        self.explicit = bool(partitioned.traced.mesh.explicit_axes) or any(
            v.aval.mesh.explicit_axes for v in partitioned.traced.invars)
        self.place: dict[Var, Place] = {}
        self.maker: dict[Var, Equation | None] = {}
        self.var_at: dict[Place, Var] = {}
        self.maps: list[tuple[Place, Equation]] = []       # the program's `shard_map`s
        self.by_line: dict[tuple, list[Place]] = {}          # the places of one line
        for place, var, eqn in places(self.inlined):
            if self._is_manual(place.path):
                continue
            self.place[var], self.maker[var] = place, eqn
            self.var_at[place] = var
            if eqn is not None:
                self.by_line.setdefault(line_of(eqn, place.index), []).append(place)
                if eqn.op.name in _NO_PLACE and place.index == 0:
                    self.maps.append((place, eqn))
        origins = reasons.origins
        self.value: dict[int, Var] = {}          # tensor of propagation -> value of the program
        self.entries: dict[int, Entries] = {}
        if origins is not None:
            for var, t in origins.solution.graph.index.items():
                self.value.setdefault(t, var)
            for var, t in origins.tensors.items():
                self.entries.setdefault(t, var.aval.entries)
        self.laid_out = [v for v, maker in self.maker.items()
                         if maker is not None and sharding_key(maker)]
        # The expressions that read a value: one that its own expression alone reads is inside of
        # a function of ours.
        self.read_at: dict[Var, set[tuple]] = {}
        self.readers: dict[Var, list[Equation]] = {}
        for place, _, eqn in places(self.inlined):
            if eqn is None or place.index:
                continue
            for a in eqn.invars:
                if isinstance(a, Var):
                    self.readers.setdefault(a, []).append(eqn)
                    found = self.read_at.setdefault(a, set())
                    if eqn.location.transform in AS_WRITTEN:
                        found.add(where(eqn.location)[:-1])

    def smaller(self, var: Var, steps: int = 12) -> list[Var]:
        """The values of the user's code with fewer bytes that follow from a value by so many
        equations, the nearest first.
        """
        found: list[Var] = []
        near, seen = deque(self.readers.get(var, ())), set[int]()
        while near and len(seen) < steps:
            eqn = near.popleft()
            if id(eqn) in seen:
                continue
            seen.add(id(eqn))
            for v in eqn.outvars:
                near += self.readers.get(v, ())
                if v in self.place and v.aval.shape and v.aval.nbytes < var.aval.nbytes and (
                        self.is_of_user(v, eqn)):
                    found.append(v)
        return found

    def _is_manual(self, path) -> bool:
        program = self.inlined
        for n, name, j in path:
            eqn = program.eqns[n]
            if eqn.op.name in _NO_PLACE:
                return True
            held = eqn.params[name]
            program = held if j < 0 else held[j]
        return False

    def constraint_at(self, location: Location, tensor: int) -> int:
        """The tensor that the constraint at a place returns, rather than the one it reads."""
        var = self.asked_at.get(where(location)) if location.line else None
        return tensor if var is None else self.graph_tensor(var)

    @functools.cached_property
    def asked_at(self) -> dict[tuple, Var]:
        """By place, the first value whose layout is written there."""
        return {where(maker.location): v for v in reversed(self.laid_out)
                if (maker := self.maker[v]) is not None}

    def tensor(self, var: Var) -> int:
        t = self.reasons.tensor(var)
        if t < 0:                                    # a partial sum: the finished value
            for reader in self.reasons.readers.get(var, ()):
                if reader.op is reshard_p:
                    return self.reasons.tensor(reader.outvars[0])
        return t

    def graph_tensor(self, var: Var) -> int:
        origins = self.reasons.origins
        return origins.solution.graph.index.get(var, -1) if origins is not None else -1

    def is_of_user(self, var: Var, maker: Equation) -> bool:
        """Is it, with these dimensions, a value of the user's code: named, or the value of an
        expression?
        """
        if maker.location.transform not in AS_WRITTEN:
            return False
        readers = self.read_at.get(var)
        return bool(var.name) or readers is None or bool(
            readers - {where(maker.location)[:-1]})

    def is_expression(self, var: Var, maker: Equation) -> bool:
        """Is it the value of the expression that computes it, and the only one?"""
        return self.results_at.get(where(maker.location)[:-1]) == {
            (maker.op.name, self.place[var].index, var.aval.shape)}

    @functools.cached_property
    def results_at(self) -> dict[tuple, set[tuple]]:
        """By place, the values that the user's code reads elsewhere, or that nothing reads: the ops
        that compute them, their numbers and shapes.
        """
        found: dict[tuple, set[tuple]] = {}
        for v, maker in self.maker.items():
            if maker is not None and maker.location.transform in AS_WRITTEN:
                own = where(maker.location)[:-1]
                if v not in self.readers or self.read_at[v] - {own}:
                    found.setdefault(own, set()).add(
                        (maker.op.name, self.place[v].index, v.aval.shape))
        return found

    def name(self, var: Var, maker: Equation) -> str:
        if var.name:
            base = _NUMBERED.fullmatch(var.name)        # `x_1` is the second value called `x`
            lines = maker.location.source_line()
            return base[1] if base and base[1] in lines and var.name not in lines else var.name
        text = maker.location.text()
        if len(text) > 40 and text.endswith(")"):
            text = f"{text.partition('(')[0]}(...)"
        return text if text and len(text) <= 40 else f"the result of {maker.op.name}"


def line_of(eqn: Equation, index: int) -> tuple:
    """What a change of a line applies to: the facts that its equations share."""
    key = sharding_key(eqn)
    at = where(eqn.location)
    # derivatives of a constraint repeat it, those of other equations do not; a constraint in a
    # function of a tree's leaves is one of all of them, whatever their shapes
    return (at[:-1] if key else at, eqn.op.name, index,
            eqn.params[key].spec if key else eqn.outvars[index].aval.shape,
            0 if eqn.location.line else id(eqn))
