"""Optimizer state in another layout than its parameter, as in the first stage of ZeRO.

In the model a parameter, its gradient and its state are one group, with one layout. But only the
update reads the state, so it may also be split over axes that leave the parameter whole: each
device then sums its part of the gradient and updates its part of the state, and the new parameter
is gathered. `with_split_states` turns a plan into one of this kind.

State is recognised by how it is used: it is an argument that only elementwise equations read, that
is returned in a new version, and that has the shape of an argument which products read.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..ir.meshes.mesh import AbstractMesh
from ..ir.meshes.mesh_axes import group_size
from ..ir.program import Equation, Program, Var
from ..ir.spec import PartitionSpec, spec_from_entries
from .model.groups import Groups
from .trials import Plan

_FAR = 64           # equations between a state and its result


def states_of(groups: Groups) -> dict[int, int]:
    """The arguments that are state, by number, each with its result."""
    program = groups.program
    elementwise = {id(use.equation) for use in groups.within}
    parameters, plain = set(), set()
    for v in program.invars:
        readers = [e for e in program.eqns if v in e.invars]
        if readers and v.aval.shape:
            (plain if all(id(e) in elementwise for e in readers) else parameters).add(v)
    beside = {(groups.of[v], v.aval.shape) for v in parameters}
    made = {v: e for e in program.eqns for v in e.outvars}
    numbers = {v: i for i, v in enumerate(program.invars)}
    found: dict[int, int] = {}
    for k, result in enumerate(program.outvars):
        if not isinstance(result, Var) or result not in groups.of:
            continue
        near = _nearest(result, made, numbers)
        if near is not None and near in plain and (groups.of[near], near.aval.shape) in beside and (
                groups.of[result] is groups.of[near]):
            found.setdefault(numbers[near], k)
    return found


def _nearest(result: Var, made: Mapping[Var, Equation], arguments: Mapping[Var, int]
             ) -> Var | None:
    """The argument of a result's shape that it is fewest equations away from."""
    front, seen = [result], {result}
    for _ in range(_FAR):
        for v in front:
            if v in arguments and v.aval.shape == result.aval.shape:
                return v
        before = [a for v in front if v in made for a in made[v].invars if isinstance(a, Var)]
        front = [a for a in dict.fromkeys(before) if a not in seen]
        seen.update(front)
        if not front:
            break
    return None


def with_split_states(plan: Plan, states: Mapping[int, int], program: Program, mesh: AbstractMesh,
                      pinned: Sequence[PartitionSpec | None],
                      pinned_results: Sequence[PartitionSpec | None]) -> Plan | None:
    """The plan with each state split over all axes that leave it whole, if these divide it; other
    results of the same shape stay as they were. None if there is no such state.
    """
    arguments, results = list(plan.arguments), list(plan.results)
    for i, k in states.items():
        shape, spec = program.invars[i].aval.shape, arguments[i]
        if spec is None or pinned[i] is not None or pinned_results[k] is not None:
            continue
        split = _further(spec, shape, mesh)
        if split is not None:
            arguments[i] = results[k] = split
    made = Plan(tuple(arguments), tuple(results), plan.inside)
    return None if made == plan else made


def _further(spec: PartitionSpec, shape: Sequence[int], mesh: AbstractMesh) -> PartitionSpec | None:
    """The spec with the axes that it does not use on the largest blocks that they divide."""
    entries = list(spec.padded(len(shape)).entries)
    used = {a for axes in entries for a in axes}
    for axis, n in sorted(mesh.shape.items(), key=lambda item: -item[1]):
        if axis in used or n < 2:
            continue
        blocks = [size // group_size(mesh, axes) for size, axes in zip(
            shape, entries, strict=True)]
        free = [d for d in range(len(shape)) if blocks[d] % n == 0
                and shape[d] == blocks[d] * group_size(mesh, entries[d])]
        if free:
            best = max(free, key=lambda d: (blocks[d], -d))
            entries[best] = (*entries[best], axis)
    made = spec_from_entries(tuple(entries))
    return None if made == spec.padded(len(shape)) else made
