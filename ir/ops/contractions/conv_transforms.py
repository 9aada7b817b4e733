"""Derivatives and batching of convolutions, as convolutions.

With batch m, input features j and output features k, a convolution is a product [m j] [j k] ->
[m k] with windows. The cotangent of the operand is a convolution of the result's cotangent with the
reversed kernel, that of the kernel a convolution of the operand with the result's cotangent, batch
and features exchanged. Groups: feature groups become feature groups for the operand and batch
groups for the kernel; batch groups become feature groups in both.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...kernels.windows import spread_size, transposed_padding
from ...op import Op
from ...types import ArrayType, Shape
from ..derivatives import convert, cotangent_type, move_first, reshard_like, type_of
from ..rules import batch_axes, call, cotangent_sharding, insert_axes, with_entries

Params = dict[str, Any]


def _reshape(x: Any, shape: Shape) -> Any:
    return call("reshape", x, new_sizes=tuple(shape), dimensions=None, sharding=None)


def _move(x: Any, source: int, target: int) -> Any:
    """`x` with one dimension at another place."""
    if source == target:
        return x
    order = [d for d in range(type_of(x).ndim) if d != source]
    order.insert(target, source)
    return call("transpose", x, permutation=tuple(order))


def _split(x: Any, dim: int, major: int) -> Any:
    """Dimension `dim` as (major, rest)."""
    shape = type_of(x).shape
    return _reshape(x, (*shape[:dim], major, shape[dim] // major if major else 0,
                        *shape[dim + 1:]))


def _merge(x: Any, dim: int) -> Any:
    """Dimensions `dim` and `dim + 1` as one."""
    shape = type_of(x).shape
    return _reshape(x, (*shape[:dim], shape[dim] * shape[dim + 1], *shape[dim + 2:]))


def _groups_to(x: Any, source: int, target: int, groups: int) -> Any:
    """Move the group factor, major in dimension `source`, to the major part of `target`."""
    x = _split(x, source, groups)
    after = target + (target > source)              # where the target is after the split
    x = _move(x, source, after - (after > source))
    return _merge(x, target)


def transpose_operand(op: Op, ct: Any, lhs: ArrayType, rhs: Any, params: Params) -> Any:
    """The cotangent of the operand."""
    n = params["dimension_numbers"]
    kernel = type_of(rhs)
    groups, batches = params["feature_group_count"], params["batch_group_count"]
    spatial = n.rhs_spec[2:]
    out_shape = type_of(ct).shape
    rhs = call("rev", rhs, dimensions=tuple(spatial)) if spatial else rhs
    if groups * batches > 1:
        rhs = _groups_to(rhs, n.rhs_spec[0], n.rhs_spec[1], groups * batches)
    padding = tuple(
        transposed_padding(lhs.shape[a], out_shape[o], kernel.shape[k], s, p, b, d)
        for a, k, o, s, p, b, d in zip(
            n.lhs_spec[2:], spatial, n.out_spec[2:], params["window_strides"], params["padding"],
            params["lhs_dilation"], params["rhs_dilation"], strict=True))
    numbers = type(n)(n.out_spec, (n.rhs_spec[1], n.rhs_spec[0], *spatial), n.lhs_spec)
    wanted = cotangent_sharding(lhs) if batches == 1 else None
    out = op.bind(ct, rhs, **{
        **params, "window_strides": params["lhs_dilation"], "padding": padding,
        "lhs_dilation": params["window_strides"], "dimension_numbers": numbers,
        "feature_group_count": groups * batches, "batch_group_count": 1, "out_sharding": wanted})
    if batches > 1:                                 # the features hold the groups of the batch
        out = _groups_to(out, n.lhs_spec[1], n.lhs_spec[0], batches)
        out = reshard_like(out, cotangent_type(lhs))
    return convert(out, lhs.dtype)


def transpose_kernel(op: Op, ct: Any, lhs: Any, rhs: ArrayType, params: Params) -> Any:
    """The cotangent of the kernel."""
    n = params["dimension_numbers"]
    x = type_of(lhs)
    out_shape = type_of(ct).shape
    padding = []
    for a, k, o, s, (lo, _), b, d in zip(
            n.lhs_spec[2:], n.rhs_spec[2:], n.out_spec[2:], params["window_strides"],
            params["padding"], params["lhs_dilation"], params["rhs_dilation"], strict=True):
        covered = spread_size(rhs.shape[k], d) + spread_size(out_shape[o], s) - 1
        padding.append((lo, covered - lo - spread_size(x.shape[a], b)))
    numbers = type(n)((n.lhs_spec[1], n.lhs_spec[0], *n.lhs_spec[2:]),
                      (n.out_spec[1], n.out_spec[0], *n.out_spec[2:]),
                      (n.rhs_spec[1], n.rhs_spec[0], *n.rhs_spec[2:]))
    out = op.bind(lhs, ct, **{
        **params, "window_strides": params["rhs_dilation"], "padding": tuple(padding),
        "rhs_dilation": params["window_strides"], "dimension_numbers": numbers,
        "feature_group_count": params["batch_group_count"],
        "batch_group_count": params["feature_group_count"],
        "out_sharding": cotangent_sharding(rhs)})
    return convert(out, rhs.dtype)


# -- batching --------------------------------------------------------------------------------------

def _batch_into(x: Any, batch_dim: int, dim: int, groups: int = 1) -> Any:
    """The batch dimension merged into dimension `dim` (numbered without it), after its groups."""
    x = move_first(x, batch_dim)
    if groups > 1:
        x = _split(x, dim + 1, groups)              # [b, ..., g, n, ...]
        return _merge(_merge(_move(x, 0, dim + 1), dim + 1), dim)
    return _merge(_move(x, 0, dim), dim)


def _batch_out_of(x: Any, dim: int, size: int, groups: int = 1) -> tuple[list[Any], list[int]]:
    """Dimension `dim`, which is (groups, batch, rest), without the batch, which comes first."""
    if groups > 1:
        x = _split(_split(x, dim, groups), dim + 1, size)       # [..., g, b, n, ...]
        return [_merge(_move(x, dim + 1, 0), dim + 1)], [0]
    return [_move(_split(x, dim, size), dim, 0)], [0]


def batch_conv(op: Op, operands: Sequence[Any], dims: Sequence[int | None], size: int,
               params: Params) -> tuple[list[Any], list[int]]:
    """One convolution for a batch of them: the batch is more images, more features, or groups."""
    if not size:
        zeros = [x if d is None else call(
            "broadcast_in_dim", x.dtype.type(0), shape=(*x.shape[:d], *x.shape[d + 1:]),
            broadcast_dimensions=(), sharding=None) for x, d in zip(operands, dims, strict=True)]
        out = op.bind(*zeros, **params)
        return [call("broadcast_in_dim", out, shape=(0, *out.shape), sharding=None,
                     broadcast_dimensions=tuple(range(1, len(out.shape) + 1)))], [0]
    lhs, rhs = operands
    n = params["dimension_numbers"]
    groups, batches = params["feature_group_count"], params["batch_group_count"]
    at, inner = n.out_spec[1], 1        # where the batch goes in the result, and after what
    if dims[1] is None:
        assert dims[0] is not None
        lhs = _batch_into(lhs, dims[0], n.lhs_spec[0], batches)
        at = n.out_spec[0]
    elif dims[0] is None:
        inner = max(groups, batches)
        rhs = _batch_into(rhs, dims[1], n.rhs_spec[0], inner)
    else:
        into, count = (n.lhs_spec[0], "batch_group_count") if batches > 1 else (
            n.lhs_spec[1], "feature_group_count")
        lhs = _batch_into(lhs, dims[0], into)
        rhs = _batch_into(rhs, dims[1], n.rhs_spec[0])
        params = {**params, count: params[count] * size}
    axes = batch_axes(operands, dims)
    wanted = insert_axes(params["out_sharding"], 0, axes, len(n.out_spec))
    if wanted is None:
        return _batch_out_of(op.bind(lhs, rhs, **params), at, size, inner)
    entries = list(wanted.spec.entries[1:])
    entries[at] = axes + entries[at] if inner == 1 else ()
    out = op.bind(lhs, rhs, **{**params, "out_sharding": with_entries(wanted, entries)})
    (out,), place = _batch_out_of(out, at, size, inner)
    return [call("reshard", out, dst_sharding=wanted)], place

