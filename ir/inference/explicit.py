"""How the Explicit axes of operands decide those of results: the policies that ops name.

A policy is a function of the op, the types of operands, the shapes of results and the params that
gives, for each result, the axes of each dimension.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..diagnostics.diagnostic import fail
from ..diagnostics.errors import ShardingTypeError
from ..meshes.mesh import empty_abstract_mesh
from ..op import Op
from ..types import ArrayType, Entries, Shape, short_list


def padded(entries: Entries, ndim: int) -> Entries:
    """Axes for each of `ndim` dimensions, where some at the end are not named."""
    return entries + ((),) * (ndim - len(entries))


def join_policy(op: Op, types, shapes, params) -> list[Entries]:
    """Operands that carry a factor agree on its axes, or are whole along it."""
    if op.rule == "... -> ...":
        return [_join_elementwise(op, types, shapes[0])] * len(shapes)
    rule = op.factor_rule(tuple([t.shape for t in types]), tuple(shapes), params)
    axes_of: dict[int, tuple[str, ...]] = {}
    for t, dims in zip(types, rule.operands, strict=True):
        for factors, axes in zip(dims, t.entries, strict=True):
            if axes and factors:
                f = factors[0]
                if axes_of.setdefault(f, axes) != axes:
                    _conflict(op, types)
    return [tuple([axes_of.get(d[0], ()) if d else () for d in dims]) for dims in rule.results]


def _join_elementwise(op: Op, types, shape: Shape) -> Entries:
    """The policy "join" of an elementwise op: in each dimension the axes of those operands that
    have some. A whole dimension of size one takes no part, as it is broadcast.
    """
    ranked = [t for t in types if t.shape]
    if not ranked:
        return ()
    first, size = ranked[0].entries, ranked[0].shape
    if all([t.entries == first and t.shape == size for t in ranked]):
        return first
    out = []
    for d in range(len(shape)):
        entries = [(t.entries[d], t.shape[d]) for t in ranked]
        kept = {e for e, n in entries if e or n != 1} or {()}
        if len(kept) > 1:
            kept = {e for e in kept if e}
            if len(kept) > 1:
                _conflict(op, ranked)
        out.append(next(iter(kept)))
    return tuple(out)


def _conflict(op: Op, types: Sequence[ArrayType]) -> None:
    specs = ", ".join(str(tuple(spec_entry(e) for e in t.entries)) for t in types)
    fail(ShardingTypeError,
         f"{op.name} got incompatible shardings for broadcasting: {specs}.",
         code="sharding-conflict", label=f"operands are {short_list(types)}",
         notes=("operands of an elementwise op must be split over the same axes in each dimension, "
                "or be whole there",),
         help="bring the operands to one spec with `reshard`")


def spec_entry(axes: tuple[str, ...]) -> Any:
    """A dimension's axes as a user writes them: None, 'X', or ('X', 'Y')."""
    return None if not axes else axes[0] if len(axes) == 1 else axes


def equal_policy(op: Op, types, shapes, params) -> list[Entries]:
    """All operands that live on a mesh have the same spec; so have the results."""
    on_mesh = [t for t in types if t.sharding.mesh is not empty_abstract_mesh] or list(types)
    if len({t.sharding for t in on_mesh}) > 1:
        listed = ", ".join(str(t.sharding) for t in on_mesh)
        fail(ShardingTypeError,
             f"All operands should have the same sharding. Got shardings {listed}",
             code="sharding-conflict", label=f"operands are {short_list(types)}",
             help="bring all operands to one spec with `reshard`")
    return [padded(on_mesh[0].entries, len(s)) for s in shapes]


def follow_policy(op: Op, types, shapes, params) -> list[Entries]:
    """Operand 0's axes, carried to the results by the factor rule."""
    rule = op.factor_rule(tuple(t.shape for t in types), tuple(shapes), params)
    axes_of = {d[0]: e for d, e in zip(rule.operands[0], types[0].entries, strict=True) if d and e}
    return [tuple(axes_of.get(d[0], ()) if d else () for d in dims) for dims in rule.results]


def unsharded_policy(op: Op, types, shapes, params) -> list[Entries]:
    """Results are whole, whatever the operands are."""
    return [((),) * len(s) for s in shapes]


WHOLE_OF_WHOLE = ("join", "follow", "unsharded")
"""Policies that split no result where no operand is split, and have nothing to refuse then."""

POLICIES = {"join": join_policy, "equal": equal_policy, "follow": follow_policy,
            "unsharded": unsharded_policy}
