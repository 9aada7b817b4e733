"""Where an axis comes from: the path from a value's layout back to what the user wrote.

Propagation notes, for every axis that it places, the equation that brought it and the tensor that
it came from. Followed backwards these notes lead to an annotation: an argument's sharding, a
constraint, an explicit type. The path is data, for reports to render.
"""
from __future__ import annotations

from dataclasses import dataclass

from ..ir.location import UNKNOWN, Location
from ..ir.program import Program, Var
from .propagate import Solution

KEY = "origins"     # of Program.memo


@dataclass(frozen=True)
class Step:
    """One step back. text: "`mul` has it from `x`, dimension 0"; location: of that equation."""
    text: str
    location: Location = UNKNOWN


@dataclass(frozen=True)
class Origins:
    """What a resolved program remembers of its propagation."""
    solution: Solution
    tensors: dict[Var, int]
    names: dict[int, str]


def origin_path(program: Program, var: Var, dim: int, axis: str) -> tuple[Step, ...]:
    """Why `var` of a resolved program has `axis` on dimension `dim`: steps back to an annotation.

    Empty where the value does not have the axis, or the program did not come from propagation.
    """
    origins: Origins | None = program.memo.get(KEY)
    tensor = origins.tensors.get(var, -1) if origins else -1
    if origins is None or tensor < 0:
        return ()
    return _walk(origins, tensor, dim, axis)


def _walk(origins: Origins, tensor: int, dim: int, axis: str) -> tuple[Step, ...]:
    solution = origins.solution
    steps: list[Step] = []
    seen: set[tuple[int, int]] = set()
    while (tensor, dim) not in seen:
        seen.add((tensor, dim))
        origin = solution.origins.get((tensor, dim, axis))
        if origin is None:
            root = solution.graph.roots[tensor].get((dim, axis)) if tensor >= 0 else None
            if root is not None:
                steps.append(Step(root.text, root.location))
            break
        eqn = origin.node.equation
        name = origins.names.get(origin.tensor, "a value")
        by = f"`{eqn.op.name}`" if eqn is not None else "the result"
        steps.append(Step(f"{by} has it from {name}, dimension {origin.dim}",
                          eqn.location if eqn is not None else UNKNOWN))
        tensor, dim = origin.tensor, origin.dim
    return tuple(steps)
