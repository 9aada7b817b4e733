"""Choosing between values element by element: `select_n` and `clamp`.

Both are typed more strictly, or more loosely, than elementwise arithmetic. Cases of a select must
have one sharding, since taking either of two differently split values would move data unseen; a
clamp has the sharding of its middle operand, whatever its bounds have.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...diagnostics.diagnostic import fail
from ...diagnostics.errors import ShardingTypeError
from ...dtypes import issubdtype
from ...facts import CHEAP, EXACT, DeviceCost, Types
from ...inference import pending
from ...kernels.elementwise.selection import selected
from ...meshes.mesh import empty_abstract_mesh
from ...op import LinearOperand, Sample, defop
from ...shardings.sharding import NamedSharding, named_sharding_abstract
from ...source.wording import warn
from ...spec import spec_from_entries
from ...types import ArrayType, Shape, short_list
from ..derivatives import (
    and_,
    batch_first,
    broadcast,
    broadcast_like,
    gt,
    lt,
    select_n,
    type_of,
    zeros_like,
)
from .declaration import ANY, check_same_dtypes, nary_infer, ufunc, values

F32, I32 = np.float32, np.int32


# -- select_n -------------------------------------------------------------------------------------

def _select_infer(which: ArrayType, *cases: ArrayType) -> tuple[Shape, Any, bool]:
    """Cases of one shape and dtype; `which` is a scalar or has that shape, and is boolean for two
    cases.
    """
    if not cases:
        fail(TypeError, "select must have at least one case", code="no-cases",
             help="after `which`, give the values to choose from")
    first = cases[0]
    shape = first.shape
    if any(c.shape != shape for c in cases):
        fail(TypeError, "select cases must have the same shapes, got "
             f"[{', '.join(str(c.shape) for c in cases)}].", code="shape-mismatch",
             label=f"operands are {short_list((which, *cases))}",
             help="`jnp.where` broadcasts its operands")
    if which.shape and which.shape != shape:
        fail(TypeError, "select `which` must be scalar or have the same shape as cases, got "
             f"`which` shape {which.shape} but case shape {shape}.", code="shape-mismatch",
             label=f"operands are {short_list((which, *cases))}",
             help="`jnp.where` broadcasts its operands")
    check_same_dtypes("select", cases)
    is_bool = issubdtype(which.dtype, np.bool_)
    if not is_bool and not issubdtype(which.dtype, np.integer):
        fail(TypeError, f"select `which` must be boolean or integer type, got {which.dtype}.",
             code="dtype-not-accepted", help="compare it with 0 first")
    if is_bool and len(cases) > 2:
        fail(TypeError, "select with boolean `which` cannot have > 2 cases.", code="no-cases",
             help="give `which` an integer dtype")
    return shape, first.dtype, all(c.weak_type for c in cases)


def _select_explicit(op: Any, types: Sequence[ArrayType], shapes: Sequence[Shape],
                     params: dict[str, Any]) -> list[NamedSharding | tuple]:
    """Cases on a mesh must have one sharding, which the result has too; so must `which`, unless
    scalar.
    """
    which, *cases = types
    placed = [c for c in cases if c.sharding.mesh is not empty_abstract_mesh]
    if not placed:
        return [((),) * len(shapes[0])]
    first = placed[0].sharding
    if any(c.sharding is not first for c in placed):
        fail(ShardingTypeError, "select cases must have the same shardings, got "
             f"[{', '.join(str(c.sharding) for c in cases)}].", code="sharding-conflict",
             label=f"cases are {short_list(cases)}",
             help="bring all cases to one spec with `reshard`")
    if (which.shape and which.sharding.mesh is not empty_abstract_mesh
            and (which.sharding.mesh is not first.mesh or which.entries != placed[0].entries)):
        fail(ShardingTypeError, "select `which` must be scalar or have the same sharding as cases, "
             f"got `which` sharding {which.sharding} but case sharding {cases[0].sharding}.",
             code="sharding-conflict", label=f"operands are {short_list(types)}",
             help="`reshard` the predicate to the spec of the cases")
    return [first]


def _select_pending(op: Any, types: Sequence[ArrayType], params: dict[str, Any],
                    unreduced: Sequence[frozenset], reduced: Sequence[frozenset]
                    ) -> tuple[frozenset, frozenset]:
    # That the cases agree is checked with their shardings.
    for t, u, r in zip(types[1:], unreduced[1:], reduced[1:], strict=True):
        if t.sharding.mesh is not empty_abstract_mesh:
            return u, r
    return frozenset(), frozenset()


def _select_jvp(operands: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    which, *cases = operands
    out = select_n(which, *cases)
    if all(t is None for t in tangents[1:]):
        return out, None
    filled = [zeros_like(c) if t is None else t
              for c, t in zip(cases, tangents[1:], strict=True)]
    return out, select_n(which, *filled)


def _select_transpose(ct: Any, which: Any, *cases: Any) -> list[Any]:
    zeros = zeros_like(ct)
    out: list[Any] = [None]
    for i, case in enumerate(cases):
        if not isinstance(case, LinearOperand):
            out.append(None)
        elif which.dtype == np.bool_:
            out.append(select_n(which, *((ct, zeros) if i == 0 else (zeros, ct))[:len(cases)]))
        else:
            out.append(select_n(which, *(ct if j == i else zeros for j in range(len(cases)))))
    return out


def _select_batch(operands: Sequence[Any], dims: Sequence[int | None], size: int
                  ) -> tuple[list[Any], list[int]]:
    which, *cases = operands
    if dims[0] is None and not type_of(which).shape:
        return [select_n(which, *batch_first(cases, dims[1:], size))], [0]
    which, *cases = batch_first(operands, dims, size)
    return [select_n(_fill(which, cases[0]), *cases)], [0]


def _fill(x: Any, like: Any) -> Any:
    """x, a scalar per example, repeated to the shape of `like`; other x as they are."""
    t = type_of(like)
    if type_of(x).ndim == t.ndim:
        return x
    whole = named_sharding_abstract(t.mesh, spec_from_entries(t.entries))
    return broadcast(x, t.update(sharding=whole), (0,))


def _select(lead: int, which: np.ndarray, *cases: np.ndarray) -> np.ndarray:
    if which.dtype == np.bool_:
        return cases[0] if len(cases) == 1 else selected(which, cases[1], cases[0])
    # Numbers out of range choose the first or the last case.
    out = cases[0]
    for i, case in enumerate(cases[1:], 1):
        out = selected(which >= i, case, out)
    return out


def _select_flops(operands: Types, results: Types, params: dict[str, Any]) -> float:
    """One for each element, as XLA counts a choice."""
    return float(results[0].size)


select_n_p = defop(
    "select_n",
    doc="cases[which] element by element; a boolean `which` chooses the second case where true.",
    infer=_select_infer, rule="... -> ...", explicit=_select_explicit, pending=_select_pending,
    linear=lambda count, types, params: (tuple(range(1, count)),), jvp=_select_jvp,
    transpose=_select_transpose, batch=_select_batch,
    evaluate=_select, arithmetic=False, facts=(CHEAP, EXACT), cost=DeviceCost(_select_flops),
    samples=lambda: [
        Sample((values((4, 6), bool, 0, 1), values((4, 6), F32, -3, 3),
                values((4, 6), F32, -5, 5, 1))),
        Sample((np.array(True), values((4, 6), F32, -3, 3), values((4, 6), F32, -5, 5, 1))),
        Sample((np.array([[0, 2, 1, 0], [1, 1, 2, 0]], I32), values((2, 4), F32, -3, 3),
                values((2, 4), F32, -5, 5, 1), values((2, 4), F32, -7, 7, 2)))])


# -- clamp ----------------------------------------------------------------------------------------

_clamp_dtypes = nary_infer("clamp", (ANY, ANY, ANY))


def _clamp_infer(low: ArrayType, x: ArrayType, high: ArrayType) -> tuple[Shape, Any]:
    for name, bound in (("min", low), ("max", high)):
        if bound.shape and bound.shape != x.shape:
            fail(TypeError, f"clamp requires {name}.shape == operand.shape or {name}.shape == (), "
                 f"got {name}.shape={bound.shape}, operand.shape={x.shape}.",
                 code="shape-mismatch", label=f"operands are {short_list((low, x, high))}",
                 help="`jnp.clip` broadcasts its operands")
    return x.shape, _clamp_dtypes(low, x, high)[1]


def _clamp_explicit(op: Any, types: Sequence[ArrayType], shapes: Sequence[Shape],
                    params: dict[str, Any]) -> list[tuple]:
    low, x, high = types
    for bound in (low, high):
        if bound.shape and any(b and b != e for b, e in zip(bound.entries, x.entries, strict=True)):
            warn(
                f"clamp takes the sharding of its operand, {x.str_short()}, and moves the bound "
                f"{bound.str_short()} to it; reshard the bound to make this visible")
    return [x.entries]


def _keep(g: Any, out: Any, where: Any) -> Any:
    g = broadcast_like(g, out)
    return select_n(broadcast_like(where, out), zeros_like(g), g)


def _clamp_batch(operands: Sequence[Any], dims: Sequence[int | None], size: int
                 ) -> tuple[list[Any], list[int]]:
    scalar = [d is None and not type_of(v).shape for v, d in zip(operands, dims, strict=True)]
    scalar[1] = False
    moved = iter(batch_first([v for v, s in zip(operands, scalar, strict=True) if not s],
                             [d for d, s in zip(dims, scalar, strict=True) if not s], size))
    low, x, high = (v if s else next(moved) for v, s in zip(operands, scalar, strict=True))
    low, high = (v if s else _fill(v, x) for v, s in ((low, scalar[0]), (high, scalar[2])))
    return [clamp_p.bind(low, x, high)], [0]


def _clamp(low: np.ndarray, x: np.ndarray, high: np.ndarray) -> np.ndarray:
    return np.minimum(np.maximum(x, low), high)


clamp_p = defop(
    "clamp", doc="min(max(low, x), high); the bounds have the shape of x or rank 0.",
    infer=_clamp_infer, rule="... -> ...", explicit=_clamp_explicit, pending=pending.refuse,
    jvp=(lambda g, out, low, x, high: _keep(g, out, and_(gt(low, x), lt(low, high))),
         lambda g, out, low, x, high: _keep(g, out, and_(gt(x, low), lt(x, high))),
         lambda g, out, low, x, high: _keep(g, out, lt(high, x))),
    batch=_clamp_batch,
    evaluate=ufunc(_clamp),
    facts=(CHEAP, EXACT),
    samples=lambda: [
        Sample((values((4, 6), F32, -3, 0), values((4, 6), F32, -4, 4, 1),
                values((4, 6), F32, 0, 3, 2))),
        Sample((np.array(-1.25, F32), values((4, 6), F32, -4, 4), np.array(2.25, F32))),
        Sample((np.array(-3, I32), values((4, 6), I32, -9, 9), values((4, 6), I32, 0, 5)))])
