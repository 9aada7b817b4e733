"""Mesh axes that a `shard_map` makes Manual for nothing: neither its specs nor its body need them.

All devices along such an axis get the same blocks and compute the same, so that whatever the axis
splits outside is gathered first. Left to the partitioner (`axis_names=` with the other axes), it
splits the body's values as it does those around it. No value changes: a sum over the axis, as a
derivative has one, is of equal values, and becomes a multiplication by its size.
"""
from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ....ir.meshes.manual_state import ManualState
from ....ir.meshes.mesh import AxisType
from ....ir.meshes.mesh_axes import group_size
from ....ir.ops.control.manual import leaving_type
from ....ir.program import Atom, Equation, Program, Var
from ....ir.rewriting.retyped import Retyped
from ....ir.rewriting.substitution import substituted
from ....ir.shardings.sharding import NamedSharding
from ....ir.source.location import UNKNOWN, Location, source_version
from ....ir.spec import PartitionSpec, spec_from_entries
from ....ir.support.caches import cached
from ....ir.types import ArrayType
from ...reasons.value_paths import Place, equations
from ...words import listed
from .lines.statements import Edit, call_of, called_name, syntax_tree
from .shard_map_bodies import multiplied

_SUMS = ("psum", "psum_invariant")
_CASTS = ("pvary",)


@dataclass(frozen=True)
class LeaveAxes:
    """Leave mesh axes to the partitioner in the `shard_map`s at these places. rest: the axes that
    stay Manual.
    """
    places: tuple[Place, ...]
    axes: frozenset[str]
    rest: tuple[str, ...] = field(compare=False)
    location: Location = field(default=UNKNOWN, compare=False)

    @property
    def text(self) -> str:
        axes = listed([f"`{a}`" for a in sorted(self.axes)])
        return (f"leave {axes} to the partitioner in the `shard_map` at line {self.location.line}, "
                f"with axis_names={self.names}")

    @property
    def names(self) -> str:
        """The axes that stay Manual, as code."""
        return "{" + ", ".join([f'"{a}"' for a in self.rest]) + "}"

    @property
    def edits(self) -> tuple[Edit, ...]:
        """The edit of the call of `shard_map`; none if that is not found on one line."""
        at = map_call(self.location)
        call = None if at is None else call_of(at.text(), "shard_map")
        if at is None or call is None or any(k.arg in ("axis_names", None) for k in call.keywords):
            return ()
        return ((at, f"{at.text()[:-1].rstrip().removesuffix(',')}, axis_names={self.names})"),)

    def made(self, eqn: Equation) -> Equation:
        """The `shard_map` with the change. What it keeps for its derivative has new variables."""
        params, manual = eqn.params, eqn.params["manual_axes"] - self.axes
        body = _Left(self.axes).program(_summed(params["jaxpr"], self.axes))
        in_specs, out_specs = [tuple([_without(s, self.axes) for s in params[key]])
                               for key in ("in_specs", "out_specs")]
        results = [v if s == was else Var(leaving_type(inner.aval, s, params["mesh"], manual))
                   for v, inner, s, was in zip(eqn.outvars, body.outvars, out_specs,
                                               params["out_specs"], strict=True)]
        return eqn.replace(outvars=results, params={
            **params, "jaxpr": body, "manual_axes": manual, "in_specs": in_specs,
            "out_specs": out_specs})


class _Left(Retyped):
    """Types of a body in which some axes are no longer Manual."""

    def __init__(self, axes: frozenset[str]) -> None:
        super().__init__()
        self.axes = axes

    def type(self, aval: ArrayType) -> ArrayType:
        state = aval.manual
        return aval.update(
            sharding=aval.sharding.update(mesh=self.mesh(aval.mesh)),
            manual=ManualState(state.varying - self.axes, state.unreduced, state.reduced))

    def mesh(self, mesh: Any) -> Any:
        return mesh.update_axis_types({a: AxisType.Auto for a in self.axes if a in mesh.shape})


def _summed(body: Program, axes: frozenset[str]) -> Program:
    """A body without sums over these axes, along which all values are equal, and casts."""
    eqns: list[Equation] = []
    same: dict[Atom, Atom] = {}
    for eqn in body.eqns:
        key = "axes" if eqn.op.name in (*_SUMS, *_CASTS) else ""
        gone = axes & {*eqn.params[key]} if key else frozenset[str]()
        if not gone:
            eqns.append(eqn)
            continue
        (x,), (result,) = eqn.invars, eqn.outvars
        left = tuple([a for a in eqn.params[key] if a not in axes])
        if eqn.op.name in _SUMS:
            part = Var(x.aval)
            eqns += multiplied(x, group_size(body.mesh, gone),
                               eqn.replace(outvars=(part,)))
            x = part
        if left:
            eqns.append(eqn.replace(invars=(x,), params={**eqn.params, key: left}))
        else:
            same[result] = same.get(x, x)
    return substituted(body.replace(eqns=eqns), same)


def left_axes(maps: Sequence[tuple[Place, Equation]], readers: Mapping[Var, Sequence[Equation]],
              near: set[tuple], axes: Sequence[str]) -> Iterator[LeaveAxes]:
    """Changes of the `shard_map`s of a program that leave some of these axes to the partitioner, of
    all that one call of the user's makes. readers: of each value; near: the lines that matter.
    """
    calls: dict[Any, list[tuple[Place, Equation]]] = {}
    for place, eqn in maps:
        at = eqn.location
        made = map_call(at) or at
        calls.setdefault((made.file, made.line, made.column), []).append((place, eqn))
    for found in calls.values():
        places, eqns = zip(*found, strict=True)
        if any((e.location.file, e.location.line) in near for e in eqns):
            kept = _kept(eqns, readers)
            gone = frozenset([a for a in axes if all(_is_needless(e, a, kept) for e in eqns)])
            rest = eqns[0].params["manual_axes"] - gone
            if gone and rest and all(e.params["manual_axes"] == rest | gone for e in eqns):
                own = min([e.location for e in eqns], key=lambda at: (at.transform, at.line))
                yield LeaveAxes(places, gone, tuple(sorted(rest)), own)


def _kept(eqns: Sequence[Equation], readers: Mapping[Var, Sequence[Equation]]) -> set[Var]:
    """What some of these `shard_map`s keep for others, which alone read it: each device gets back
    the block that it gave.
    """
    specs = {v: s for e in eqns for v, s in zip(e.outvars, e.params["out_specs"], strict=True)}
    own = {id(e) for e in eqns}
    return {v for v, spec in specs.items() if (found := readers.get(v)) and all(
        id(e) in own and all(s == spec for a, s in zip(e.invars, e.params["in_specs"], strict=True)
                             if a is v) for e in found)}


def _is_needless(eqn: Equation, axis: str, kept: Collection[Var]) -> bool:
    """Do the specs and the body of a `shard_map` do without a Manual axis that may be Auto? kept:
    values of which the specs do not count.
    """
    params, body = eqn.params, eqn.params["jaxpr"]
    specs = [s for a, s in (*zip(eqn.invars, params["in_specs"], strict=True),
                            *zip(eqn.outvars, params["out_specs"], strict=True))
             if a not in kept]
    if axis not in params["manual_axes"] or params["mesh"].axis_type(axis) is not AxisType.Auto or (
            any(axis in {*s.axes(), *s.unreduced, *s.reduced} for s in specs)):
        return False
    top = {id(e) for e in body.eqns}
    return not any(
        e.op.effect or any(isinstance(p, NamedSharding) for p in e.params.values())
        or axis in e.axes and not (
            id(e) in top and e.op.name in _SUMS and e.params.get("axis_index_groups") is None)
        or id(e) not in top and e.op.name in _CASTS and axis in e.params["axes"]
        for e in equations(body))


def _without(spec: PartitionSpec, axes: frozenset[str]) -> PartitionSpec:
    """A spec without these axes."""
    if axes.isdisjoint(spec.axes()):
        return spec
    return spec_from_entries(tuple([tuple([a for a in e if a not in axes]) for e in spec.entries]))


def map_call(at: Location) -> Location | None:
    """Where the user calls `shard_map` for what is called at a place: there, or where the name that
    is called there is bound, once in its file; None if that is not on one line.
    """
    call = call_of(at.text())
    if call is None or at.line != at.end_line:
        return None
    if isinstance(call.func, ast.Call) and called_name(call.func) == "shard_map":
        if call.func.end_col_offset is None:
            return None
        return Location.at(at.file, at.line, at.column, at.line,
                           at.column + call.func.end_col_offset)
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    found = [node for bound, node in _bound_maps(at.file, source_version(at.file)) if bound == name]
    node = found[0] if len(found) == 1 else None
    if node is None:
        return None
    assert node.end_lineno is not None and node.end_col_offset is not None
    return None if node.lineno != node.end_lineno else Location.at(
        at.file, node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)


@cached(16, "names that files bind to calls of `shard_map`")
def _bound_maps(file: str, version: tuple) -> list[tuple[str, ast.Call | None]]:
    """Each binding of a name in a file, with the call of `shard_map` that it is bound to, if it is.
    """
    tree = syntax_tree(file, version)
    found: list[tuple[str, ast.Call | None]] = []
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Assign):
            value = node.value
            made = value if isinstance(value, ast.Call) and (
                called_name(value) == "shard_map") else None
            found += [(t.id, made) for t in node.targets if isinstance(t, ast.Name)]
        elif isinstance(node, ast.FunctionDef):
            found.append((node.name, None))
    return found
