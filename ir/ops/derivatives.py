"""Building blocks for derivative and batching rules: ops as plain functions, and combinators.

A rule never computes with numpy: it binds ops, so that it can itself be traced, differentiated
again and partitioned. Ops are looked up by name when they are used, because rules need each other
(a sum transposes to a broadcast, a broadcast to a sum) while their modules must not import each
other. Any module of `ir/ops` may use these functions.
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from ..diagnostics.diagnostic import fail
from ..dtypes import canonicalize_dtype, dtype_of, tangent_dtype
from ..meshes.manual_state import ManualState
from ..op import OPS, Op
from ..settings.context import x64_enabled
from ..shardings.sharding import NamedSharding, named_sharding_abstract
from ..spec import spec_from_entries
from ..support.caches import cached
from ..types import ArrayType, Shape, array_type


def call(name: str, *operands: Any, **params: Any) -> Any:
    """Use the op of this name."""
    return OPS[name].bind(*operands, **params)


def _op(name: str) -> Callable[..., Any]:
    return functools.partial(call, name)


add, sub, mul, div, neg = map(_op, ("add", "sub", "mul", "div", "neg"))
add_any, square, sign, floor, abs_ = map(_op, ("add_any", "square", "sign", "floor", "abs"))
exp, log, log1p, rsqrt = map(_op, ("exp", "log", "log1p", "rsqrt"))
eq, ne, lt, gt, ge, and_ = map(_op, ("eq", "ne", "lt", "gt", "ge", "and"))
real, imag, conj, complex_ = map(_op, ("real", "imag", "conj", "complex"))
select_n, max_, min_ = map(_op, ("select_n", "max", "min"))


# -- values ---------------------------------------------------------------------------------------

def type_of(x: Any) -> ArrayType:
    """The type of an operand of a rule: a tracer, an array, or a numpy value."""
    aval = getattr(x, "aval", None)
    if aval is not None:
        return aval
    if isinstance(x, (bool, int, float, complex)) and not isinstance(x, np.generic):
        return array_type((), canonicalize_dtype(dtype_of(x)[0], x64_enabled()), True)
    x = np.asarray(x)
    return array_type(x.shape, x.dtype)


def const(value: Any, like: Any) -> Any:
    """The scalar `value` in the dtype of `like` (a value or a type), weak if that is a weak scalar.

    Beside a weakly typed array it is strong, as the results of most rules are then in JAX.
    """
    t = like if isinstance(like, ArrayType) else type_of(like)
    return of_dtype(np.asarray(value, t.dtype)[()]) if t.shape else scalar_like(value, t)


def scalar_like(value: Any, like: Any) -> Any:
    """The scalar `value` in the dtype of `like` (a value or a type), weak if that is."""
    t = like if isinstance(like, ArrayType) else type_of(like)
    scalar = np.asarray(value, t.dtype)[()]
    if t.weak_type and type_of(scalar.item()).dtype == t.dtype:
        return scalar.item()
    return of_dtype(scalar)


def of_dtype(scalar: Any) -> Any:
    """A numpy scalar as an operand of its dtype, also where programs have narrower constants."""
    dtype = scalar.dtype
    if dtype.itemsize < 8 or canonicalize_dtype(dtype, x64_enabled()) is dtype:
        return scalar
    return OPS["convert_element_type"].bind(scalar, new_dtype=scalar.dtype, weak_type=False,
                                            sharding=None)


def is_complex(x: Any) -> bool:
    return x.dtype.kind == "c"


def explicit_sharding(t: ArrayType) -> NamedSharding | None:
    """What to pass as out_sharding so that a result is sharded as `t`: None off Explicit meshes."""
    return t.sharding if t.sharding.mesh.explicit_axes else None


def convert(x: Any, dtype: Any) -> Any:
    """x in another dtype, never weak."""
    if x.dtype == dtype:
        return x
    return OPS["convert_element_type"].bind(x, new_dtype=np.dtype(dtype), weak_type=False,
                                            sharding=None)


def convert_like(x: Any, like: Any) -> Any:
    """x in the dtype of `like` (a value or a type), weak if that is."""
    t, own = like if isinstance(like, ArrayType) else type_of(like), type_of(x)
    if own.dtype == t.dtype and own.weak_type == t.weak_type:
        return x
    return OPS["convert_element_type"].bind(x, new_dtype=t.dtype, weak_type=t.weak_type,
                                            sharding=None)


def strong(x: Any) -> Any:
    """x with a dtype that is not weak."""
    return convert_like(x, type_of(x).update(weak_type=False))


def iota_like(x: Any, dtype: Any, dimension: int) -> Any:
    """The index along `dimension` at every element of x, sharded and varying as x."""
    t = type_of(x)
    out = OPS["iota"].bind(dtype=np.dtype(dtype), shape=t.shape, dimension=dimension,
                           sharding=explicit_sharding(t))
    return _vary_as(out, t)


def full_like(x: Any, value: Any, dtype: Any = None) -> Any:
    """`value` in the shape of x, sharded and varying as x; without dtype, weak as x."""
    t = type_of(x)
    scalar = scalar_like(value, t) if dtype is None else of_dtype(np.asarray(value, dtype)[()])
    if not t.shape and not t.varying:
        return scalar
    return _vary_as(broadcast(scalar, t, ()), t)


def zeros_like(x: Any) -> Any:
    return full_like(x, 0)


def _vary_as(x: Any, t: ArrayType) -> Any:
    if t.varying and not type_of(x).varying:
        return OPS["pvary"].bind(x, axes=tuple(sorted(t.varying)))
    return x


def broadcast(x: Any, target: ArrayType, dims: Sequence[int]) -> Any:
    """x repeated to the type `target`; dimension i of x becomes dimension dims[i]."""
    return OPS["broadcast_in_dim"].bind(x, shape=target.shape, broadcast_dimensions=tuple(dims),
                                        sharding=explicit_sharding(target))


def broadcast_like(x: Any, like: Any) -> Any:
    """x, of rank 0 or with dimensions of size 1, in the shape (and sharding) of `like`."""
    t, target = type_of(x), type_of(like)
    if t.shape == target.shape:
        return x
    return broadcast(x, target, range(len(t.shape)))


def restore_dims(x: Any, like: Any, removed: Sequence[int]) -> Any:
    """x, which lacks the dimensions `removed` of `like`, repeated along them."""
    target = type_of(like)
    return broadcast(x, target, [d for d in range(target.ndim) if d not in removed])


def shift(x: Any, dim: int, by: int, fill: Any) -> Any:
    """x moved by `by` places along `dim`, `fill` coming in at the end that is left."""
    config = tuple((by, -by, 0) if d == dim else (0, 0, 0) for d in range(type_of(x).ndim))
    return OPS["pad"].bind(x, const(fill, x), padding_config=config)


def slice_along(shape: Shape, dim: int, start: int, stop: int, stride: int | None = None
                ) -> dict[str, Any]:
    """The params of a `slice` of positions start to stop of one dimension, and all of the others.
    """
    starts, limits, strides = [0] * len(shape), list(shape), [1] * len(shape)
    starts[dim], limits[dim], strides[dim] = start, stop, stride or 1
    return {"start_indices": tuple(starts), "limit_indices": tuple(limits),
            "strides": None if stride is None else tuple(strides)}


def reduce_sum(x: Any, axes: Sequence[int]) -> Any:
    return OPS["reduce_sum"].bind(x, axes=tuple(axes), out_sharding=None) if axes else x


# -- cotangents -----------------------------------------------------------------------------------

def cotangent_type(operand: ArrayType) -> ArrayType:
    """The type of the cotangent of a value: unreduced and reduced change places."""
    found = operand.memo.get("cotangent")
    if found is None:
        found = operand.memo["cotangent"] = _cotangent_type(operand)
    return operand if found is False else found


def _cotangent_type(operand: ArrayType) -> ArrayType | Literal[False]:
    """As `cotangent_type`; False for the type itself, which must not hold itself alive."""
    spec, manual = operand.sharding.spec, operand.manual
    changes: dict[str, Any] = {}
    if spec.unreduced or spec.reduced:
        changes["sharding"] = named_sharding_abstract(
            operand.mesh, spec_from_entries(operand.entries, spec.reduced, spec.unreduced))
    if manual.unreduced or manual.reduced:
        changes["manual"] = ManualState(manual.varying, manual.reduced, manual.unreduced)
    if operand.weak_type:
        changes["weak_type"] = False
    return operand.update(**changes) if changes else False


def unbroadcast(operand: ArrayType, ct: Any) -> Any:
    """The cotangent of an elementwise op's operand, summed where the operand was repeated.

    operand: the type of the operand. ct: a cotangent of the result's shape. Both the shape and, on
    an Explicit mesh, the sharding of the answer are those of the operand's cotangent.
    """
    t, want = type_of(ct), cotangent_type(operand)
    if t is want:
        return ct
    if t.shape != want.shape:
        repeated = [d for d in range(t.ndim) if not want.shape or want.shape[d] != t.shape[d]]
        ct = reduce_sum(ct, repeated)
        if want.shape:
            kept = [d for d in range(t.ndim) if d not in repeated]
            entries = tuple(() if d in repeated else e for d, e in enumerate(t.entries))
            ct = broadcast(ct, t.update(shape=want.shape, sharding=named_sharding_abstract(
                t.mesh, spec_from_entries(entries, t.spec.unreduced, t.spec.reduced))),
                kept)
    return reshard_like(ct, want)


def reshard_like(x: Any, want: ArrayType) -> Any:
    """x with the sharding of `want`, where an Explicit mesh makes it part of the type."""
    if want.sharding.mesh.explicit_axes and type_of(x).sharding is not want.sharding:
        return OPS["reshard"].bind(x, dst_sharding=want.sharding)
    return x


def whole_along(x: Any, dim: int) -> Any:
    """x with dimension `dim` unsharded, for rules that scan along it."""
    t = type_of(x)
    if not t.entries[dim]:
        return x
    entries = tuple(() if d == dim else e for d, e in enumerate(t.entries))
    spec = spec_from_entries(entries, t.spec.unreduced, t.spec.reduced)
    return OPS["reshard"].bind(x, dst_sharding=named_sharding_abstract(t.mesh, spec))


# -- forward derivatives of one equation ----------------------------------------------------------

def push_forward(op: Op, operands: Sequence[Any], tangents: Sequence[Any], params: dict[str, Any]
                 ) -> tuple[list[Any], list[Any]]:
    """Results of an op and their tangents, by its `jvp`.

    tangents: one per operand, None where it is zero; so are those of the results. Raises
    NotImplementedError for an op that has no derivative.
    """
    rule = op.jvp
    moving = False
    for t in tangents:
        if t is not None:
            moving = True
            break
    if rule == "zero" or not moving:
        outs = _results(op, op.bind(*operands, **params))
        return outs, [None] * len(outs)
    if rule is None:
        fail(NotImplementedError, f"Differentiation rule for '{op.name}' not implemented",
             code="not-differentiable",
             help="cut the derivative with `jax.lax.stop_gradient`, or give one with `custom_jvp`")
    if rule == "linear":
        linear = {i for s in op.linear_sets(len(operands)) for i in s}
        filled = [x if i not in linear else zeros_like(x) if t is None else t
                  for i, (x, t) in enumerate(zip(operands, tangents, strict=True))]
        return (_results(op, op.bind(*operands, **params)),
                _results(op, op.bind(*filled, **params)))
    if callable(rule):
        out, tangent = rule(operands, tangents, **params)
        return _results(op, out), _results(op, tangent)
    out = op.bind(*operands, **params)
    total = None
    for partial, g in zip(rule, tangents, strict=True):
        term = None if g is None or partial is None else partial(g, out, *operands, **params)
        if term is not None:
            total = term if total is None else add_any(total, term)
    return [out], [total]


def _results(op: Op, out: Any) -> list[Any]:
    return list(out) if op.multiple_results else [out]


@cached(256)
def has_tangent(dtype: Any) -> bool:
    """Whether values of this dtype have tangents: floats and complex numbers do."""
    return tangent_dtype(dtype) == dtype


# -- batching -------------------------------------------------------------------------------------

def batch_first(operands: Sequence[Any], dims: Sequence[int | None], size: int) -> list[Any]:
    """All operands with their batch dimension first, repeated `size` times where there is none.

    Repeated operands are sharded along the new dimension as the batched ones are.
    """
    model, dim = next((type_of(x), d) for x, d in zip(operands, dims, strict=True) if d is not None)
    return [_repeat(x, size, model, model.entries[dim]) if d is None else move_first(x, d)
            for x, d in zip(operands, dims, strict=True)]


def in_front(name: str, *numbering: str) -> Callable[..., tuple[list[Any], list[int]]]:
    """The batching rule of an op that takes the batch dimension in front of all others; params of
    the names `numbering` hold the number of a dimension, or several, and count it.
    """
    def batch(operands: Sequence[Any], dims: Sequence[int | None], size: int, **params: Any
              ) -> tuple[list[Any], list[int]]:
        out = _results(OPS[name], OPS[name].bind(*batch_first(operands, dims, size),
                                                 **_counted(params, numbering, 0)))
        return out, [0] * len(out)
    return batch


def in_place(name: str, *numbering: str) -> Callable[..., tuple[list[Any], list[int]]]:
    """As `in_front`, of an op of one operand in whose results the batch dimension is where it was.
    """
    def batch(operands: Sequence[Any], dims: Sequence[int], size: int, **params: Any
              ) -> tuple[list[Any], list[int]]:
        out = _results(OPS[name], OPS[name].bind(
            operands[0], **_counted(params, numbering, dims[0])))
        return out, [dims[0]] * len(out)
    return batch


def _counted(params: dict[str, Any], numbering: Sequence[str], dim: int) -> dict[str, Any]:
    """Params that number dimensions, with a new dimension `dim`."""
    def moved(d: Any) -> Any:
        return tuple([e + (e >= dim) for e in d]) if isinstance(d, tuple) else d + (d >= dim)
    return {**params, **{name: moved(params[name]) for name in numbering}}


def move_first(x: Any, dim: int) -> Any:
    """x with dimension `dim` moved to the front."""
    if dim == 0:
        return x
    order = (dim, *(d for d in range(type_of(x).ndim) if d != dim))
    return OPS["transpose"].bind(x, permutation=order)


def _repeat(x: Any, size: int, model: ArrayType, axes: tuple[str, ...]) -> Any:
    t = type_of(x)
    spec = spec_from_entries((axes, *t.entries), t.spec.unreduced, t.spec.reduced)
    target = t.update(shape=(size, *t.shape),
                      sharding=named_sharding_abstract(model.mesh, spec))
    return broadcast(x, target, range(1, t.ndim + 1))
