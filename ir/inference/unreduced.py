"""Unreduced and reduced axes of results: which ops accept a pending sum, and what becomes of it."""
from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from ..diagnostics.diagnostic import fail
from ..diagnostics.errors import ShardingTypeError
from ..op import Op
from ..types import ArrayType, short_list

_EMPTY: frozenset[str] = frozenset()
_ISSUES = "Please file an issue at https://github.com/jax-ml/jax/issues"


def is_pending(t: ArrayType) -> bool:
    """Is the value a sum that waits over Explicit axes (U), or the dual of one (R)?"""
    spec = t.sharding.spec
    return bool(spec.unreduced or spec.reduced)


def refuse_pending(what: str, types: Sequence[ArrayType], iterated: bool = False) -> NoReturn:
    """The error of operations that JAX types by looking into a spec, which a set forbids.

    iterated: JAX's text distinguishes the two ways to look, by position and in order.
    """
    how, instead = (("*pspec", "*spec.partitions") if iterated else
                    ("pspec[...]", "spec.partitions[...]"))
    fail(ValueError, f"Using {how} is dangerous when PartitionSpec has non-empty "
         f"unreduced/reduced set. Please use {instead}", code="pending-operand",
         label=f"operands are {short_list(types)}",
         notes=(f"`{what}` has no rule for a value that is unreduced or reduced",),
         help="bring the operand to a plain spec first, with `reshard`")


def explicit_pending_axes(op: Op, types, params) -> tuple[frozenset[str], frozenset[str]]:
    """The pending axes. Raises AssertionError on meshes that have other axes than Explicit ones."""
    for t in types:
        if t.sharding.spec.unreduced or t.sharding.spec.reduced:
            break
    else:
        return _EMPTY, _EMPTY
    waiting = [t for t in types if t.sharding.spec.unreduced or t.sharding.spec.reduced]
    anywhere = getattr(op.pending, "on_any_mesh", "")     # a function may say where it applies
    if (op.pending != "carry" and anywhere != "all" and not waiting[0].mesh.are_all_axes_explicit
            and not (anywhere == "reduced" and not any(t.unreduced for t in waiting))):
        fail(AssertionError, "unreduced and reduced values need a mesh whose axes are all "
             f"Explicit. `{op.name}` is on the mesh {waiting[0].mesh}", code="pending-mixed-mesh",
             label=f"operands are {short_list(types)}",
             help="bring the operand to a plain spec first, with `reshard`")
    unreduced = [t.sharding.spec.unreduced for t in types]
    reduced = [t.sharding.spec.reduced for t in types]
    return pending_axes(op, types, params, unreduced, reduced)


def pending_axes(op: Op, types, params, unreduced, reduced
                 ) -> tuple[frozenset[str], frozenset[str]]:
    """Unreduced and reduced axes of the results, by the op's `pending` rule."""
    if callable(op.pending):
        return op.pending(op, types, params, unreduced, reduced)
    if op.pending in ("keep", "carry") and len(types) == 1:
        return unreduced[0], reduced[0]
    if any(unreduced):
        kind = "unreduced"
        fail(NotImplementedError, f"{kind} rule for {op.name} is not implemented. {_ISSUES}",
             code="unreduced-operand", label=f"operands are {short_list(types)}",
             notes=(f"`{op.name}` is not linear in an operand that is a pending sum",),
             help="finish the sum first, with `reshard` to a spec without `unreduced`")
    return _EMPTY, join_reduced(op, types, reduced)


def join_reduced(op: Op, types, reduced: Sequence[frozenset[str]]) -> frozenset[str]:
    """Reduced axes of an n-ary op: over these, no operand may be whole or split.

    A pending sum over the same axes is the business of the op's own rule.
    """
    sets = sorted({r for r in reduced if r}, key=sorted)
    if not sets:
        return _EMPTY
    if len(sets) > 1:
        listed = ", ".join("{" + ", ".join(map(repr, sorted(r))) + "}" for r in sets)
        fail(ShardingTypeError, "All inputs should be reduced across the same mesh axes. Got "
             f"specs: {listed}", code="reduced-operand", label=f"operands are {short_list(types)}",
             help="bring the operands to one spec, reduced over the same axes, with `reshard`")
    (some,) = sets
    for t in types:
        split = frozenset(a for e in t.entries for a in e) | t.varying
        if some - split - t.unreduced - t.reduced:
            fail(ShardingTypeError,
                 "Inputs cannot be replicated on the same axes that another input is reduced on. "
                 f"Got input type: {t} and reduced spec: {some}",
                 code="reduced-operand", label=f"operands are {short_list(types)}",
                 help="`reshard` the other operand to a spec with that `reduced`: no data moves")
        if split & some:
            fail(ShardingTypeError,
                 "Inputs cannot be sharded/varying on the same axes that another input is "
                 "reduced on. Reshard the input which is reduced to be sharded on the mesh "
                 "axes it is reduced on via `jax.sharding.reshard(inp, jax.P(...))`. "
                 f"Got input type: {t} and reduced spec: {some}",
                 code="reduced-operand", label=f"operands are {short_list(types)}")
    return some
