"""Primitives whose equations differ here in more than their params' classes."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir.diagnostics.diagnostic import fail
from ...ir.ops.dialect import OPS
from ...ir.support.lazy import lazy_import
from ...ir.values.shape_struct import ShapeDtypeStruct
from ...tracer.host.callbacks import debug_callback, debug_print, io_callback, pure_callback
from ...tracer.lax import linalg
from ...tracer.lax.communication.manual_axes import axis_index, axis_size
from ...tracer.lax.communication.ragged_exchange import ragged_all_to_all
from ...tracer.lax.creation import full_like
from ...tracer.lax.indexed import scatter_apply
from ...tracer.lax.on_demand.window_reductions import reduce_window
from ...tracer.lax.reduction import approx_max_k, approx_min_k, reduce
from ...tracer.shardings.sharding_functions import reshard
from ...tracer.staging.signature import as_tuple
from ..jax_values import dtype_of, impl_of, param_of, sharding_of
from .control import function_of, laid_out
from .equations import Replay, rule

jax = lazy_import("jax")


@rule("sharding_constraint")
def _sharding_constraint(replay: Replay, eqn: Any, operands: list[Any]) -> Any:
    return laid_out(replay, operands, [eqn.params["sharding"]])


@rule("reshard", "mesh_cast")
def _reshard(replay: Replay, eqn: Any, operands: list[Any]) -> Any:
    return reshard(operands[0], sharding_of(eqn.params["dst_sharding"], replay.mesh))


@rule("layout_constraint", "dce_sink")
def _nothing(replay: Replay, eqn: Any, operands: list[Any]) -> Any:
    return operands[:len(eqn.outvars)]


@rule("device_put")
def _device_put(replay: Replay, eqn: Any, operands: list[Any]) -> Any:
    """Inside of a program only a sharding, or a kind of memory, is asked for."""
    return laid_out(replay, operands, eqn.params["devices"])


@rule("axis_index")
def _axis_index(replay: Replay, eqn: Any, operands: list[Any]) -> Any:
    return axis_index(eqn.params["axis_name"])


@rule("psum", "psum_invariant", "unreduced_psum", "pmax", "pmin", "pvary", "preduced",
      "vary_unreduced_cast_p", "reduced_vary_cast_p", "all_gather", "all_gather_invariant",
      "all_gather_reduced", "reduce_scatter", "unreduced_reduce_scatter", "ppermute", "all_to_all")
def _collective(replay: Replay, eqn: Any, operands: list[Any]) -> Any:
    """Axes are in tuples, and groups of positions only where there are any."""
    params = dict(eqn.params)
    name = "axes" if "axes" in params else "axis_name"
    params[name] = axes = as_tuple(params[name])
    if params.get("axis_index_groups") is None:
        params.pop("axis_index_groups", None)
    else:
        params["axis_index_groups"] = tuple(map(tuple, params["axis_index_groups"]))
    if eqn.primitive.name == "all_to_all":
        params["axis_size"] = axis_size(axes)
    op = OPS[eqn.primitive.name]
    return [op.bind(x, **params) for x in operands]


@rule("random_seed", "random_wrap")
def _keys(replay: Replay, eqn: Any, operands: list[Any]) -> Any:
    return replay.same(eqn, operands, impl=impl_of(eqn.params["impl"]))


@rule("select_and_scatter_add", "select_and_gather_add")
def _pooling(replay: Replay, eqn: Any, operands: list[Any]) -> Any:
    select = eqn.params["select_prim"].name
    if select not in ("ge", "le"):
        fail(NotImplementedError, f"from_jax: {eqn.primitive.name} selects by {select!r}, which is "
             "neither `ge` nor `le`", code="unknown-primitive", location=replay.place,
             help="pool by a maximum or a minimum")
    return replay.same(eqn, operands, select_prim=select)


def _flat(callback: Callable[..., Any]) -> Callable[..., Any]:
    """A callback of JAX's, of flat arguments; its results are numpy's."""
    def call(*flat: Any) -> Any:
        return tuple(callback(*flat))
    call.__name__ = getattr(getattr(callback, "callback_func", callback), "__name__", "callback")
    return call


def _structs(eqn: Any) -> tuple[ShapeDtypeStruct, ...]:
    return tuple([ShapeDtypeStruct(a.shape, dtype_of(a.dtype)) for a in eqn.params["result_avals"]])


@rule("pure_callback")
def _pure_callback(replay: Replay, eqn: Any, operands: list[Any]) -> Any:
    return pure_callback(_flat(eqn.params["callback"]), _structs(eqn), *operands,
                         vmap_method=eqn.params["vmap_method"])


@rule("io_callback")
def _io_callback(replay: Replay, eqn: Any, operands: list[Any]) -> Any:
    return io_callback(_flat(eqn.params["callback"]), _structs(eqn), *operands,
                       ordered=eqn.params["ordered"])


@rule("debug_callback")
def _debug_callback(replay: Replay, eqn: Any, operands: list[Any]) -> Any:
    params = eqn.params
    ordered = "Ordered" in type(params["effect"]).__name__
    debug_callback(params["callback"], *operands, ordered=ordered,
                   partitioned=params["partitioned"])
    return []


@rule("debug_print")
def _debug_print(replay: Replay, eqn: Any, operands: list[Any]) -> Any:
    params = eqn.params
    static, arrays = dict(params["static_args"]), iter(operands)
    leaves = [static[i] if i in static else next(arrays)
              for i in range(len(static) + len(operands))]
    args, kwargs = jax.tree_util.tree_unflatten(params["in_tree"], leaves)
    debug_print(params["fmt"], *args, ordered=params["ordered"],
                partitioned=params["partitioned"], **kwargs)
    return []


@rule("symmetric_product", "cholesky_update", "ormqr")
def _linalg(replay: Replay, eqn: Any, operands: list[Any]) -> Any:
    return getattr(linalg, eqn.primitive.name)(*operands, **eqn.params)


@rule("ragged_all_to_all")
def _ragged_all_to_all(replay: Replay, eqn: Any, operands: list[Any]) -> Any:
    return ragged_all_to_all(*operands, **eqn.params)


@rule("approx_top_k")
def _approx_top_k(replay: Replay, eqn: Any, operands: list[Any]) -> Any:
    """All of the greatest are found, whatever recall is asked for."""
    params = eqn.params
    find = approx_max_k if params["is_max_k"] else approx_min_k
    return find(operands[0], params["k"], params["reduction_dimension"])


@rule("reduce_window")
def _reduce_window(replay: Replay, eqn: Any, operands: list[Any]) -> Any:
    params, half = eqn.params, len(operands) // 2
    run = function_of(replay, params["jaxpr"], params["consts"])
    return reduce_window(
        operands[:half], operands[half:], lambda a, b: run(*a, *b), params["window_dimensions"],
        params["window_strides"], params["padding"], params["base_dilation"],
        params["window_dilation"])


@rule("scatter")
def _scatter(replay: Replay, eqn: Any, operands: list[Any]) -> Any:
    """Without an update program it overwrites; with one it combines updates with the operand."""
    jaxpr = eqn.params["update_jaxpr"]
    if jaxpr is None or list(jaxpr.outvars) == list(jaxpr.invars[1:]):
        return replay.same(eqn, operands)
    run = function_of(replay, jaxpr, eqn.params["update_consts"])
    unread = operands[2]
    return scatter_apply(
        operands[0], operands[1], lambda x: run(x, full_like(x, 0))[0],
        param_of(eqn.params["dimension_numbers"], replay.mesh), update_shape=unread.shape,
        unique_indices=eqn.params["unique_indices"],
        mode=param_of(eqn.params["mode"], replay.mesh))


@rule("reduce")
def _reduce(replay: Replay, eqn: Any, operands: list[Any]) -> Any:
    half = len(operands) // 2
    run = function_of(replay, eqn.params["jaxpr"])
    return reduce(operands[:half], operands[half:],
                  lambda a, b: run(*a, *b), eqn.params["dimensions"])
