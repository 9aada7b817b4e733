"""Calling functions of the host from traced code: debug.print, debug.callback, pure_callback,
io_callback.

Each is one equation (ir/ops/control/callback.py) whose operands are the arrays among the arguments.
Inside of a shard_map every device calls with its own blocks; elsewhere there is one call, with
whole values. Signatures, what happens under transformations, and messages are JAX's; calls come in
program order, whether or not they are `ordered`.
"""
from __future__ import annotations

import string
from collections.abc import Callable
from typing import Any

import numpy as np

from ...ir.diagnostics.diagnostic import fail
from ...ir.dtypes import canonicalize_dtype, dtype_of
from ...ir.ops.control import callback as ops
from ...ir.settings.context import STATE, x64_enabled
from ...ir.shardings.sharding import NamedSharding, SingleDeviceSharding
from ...ir.types import ArrayType, array_type
from ...ir.values.typeof import typeof
from ..trees import tree

VMAP_METHODS = ("sequential", "sequential_unrolled", "expand_dims", "broadcast_all",
                "legacy_vectorized", None)


# -- arguments -------------------------------------------------------------------------------------

def _is_array(x: Any) -> bool:
    try:
        typeof(x)
    except (TypeError, OverflowError):
        return False
    return True


def _hashable(x: Any) -> Any:
    try:
        hash(x)
    except TypeError:
        return ops.ByIdentity(x)
    return x


def _arguments(args: tuple[Any, ...], kwargs: dict[str, Any], *, static: bool
               ) -> tuple[list[Any], dict[str, Any]]:
    """The arrays among the arguments, and the params that say where they stand.

    static: whether there may be others.
    """
    params: dict[str, Any] = {"keywords": (), "in_tree": None, "static_args": ()}
    names = sorted(kwargs)
    values = [*args, *(kwargs[n] for n in names)]
    if all(map(_is_array, values)):
        if names:
            params["keywords"] = tuple(names)
        return values, params
    leaves, in_tree = tree.flatten((args, kwargs))
    if not static:
        for x in leaves:
            typeof(x)                  # raises TypeError for what is no array
    kept = [_is_array(x) for x in leaves]
    params["in_tree"] = in_tree
    params["static_args"] = tuple((i, _hashable(x)) for i, x in enumerate(leaves) if not kept[i])
    return [x for x, k in zip(leaves, kept, strict=True) if k], params


def _axes() -> tuple[str, ...]:
    """The axes along which every device calls: those that are Manual here."""
    mesh = STATE.abstract_mesh
    return tuple(a for a in mesh.axis_names if a in mesh.manual_axes)


# -- for debugging ---------------------------------------------------------------------------------

def debug_callback(callback: Callable[..., None] | None = None, *args: Any,
                   ordered: bool = False, partitioned: bool = False, **kwargs: Any) -> Any:
    """Call `callback(*args, **kwargs)` when the program runs, for what it does.

    Arrays among the arguments come as arrays of one device: whole, or in a shard_map, or with
    `partitioned`, each device's block. ordered: keep the order among ordered calls; on one device
    only. `debug.callback(ordered=True)(f, x)` says the options first.
    Raises TypeError where callback is not callable. Exceptions of the callback are the caller's,
    as JaxRuntimeError where a program was running.

    >>> import shardtrace as st
    >>> @st.jit
    ... def f(x):
    ...     st.debug.callback(lambda v: print("now", v.shape), x)
    ...     return x + 1
    >>> float(f(1.0))
    now ()
    2.0
    """
    def call(callback: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        if not callable(callback):
            raise TypeError("first argument to jax.debug.callback must be callable, but got an "
                            f"object of type {type(callback)}")
        arrays, params = _arguments(args, kwargs, static=True)
        ops.debug_callback_p.bind(*arrays, callback=_hashable_function(callback),
                                  ordered=ordered, partitioned=partitioned, axes=_axes(), **params)

    if callback is not None:
        return call(callback, *args, **kwargs)
    if args or kwargs:
        raise TypeError("debug_callback received unexpected arguments in the two-call form: "
                        f"{args=} {kwargs=}")
    return call


def _hashable_function(f: Any) -> Any:
    try:
        hash(f)
    except TypeError:
        return lambda *args, **kwargs: f(*args, **kwargs)
    return f


class _FieldsOf(string.Formatter):
    """Finds which arguments a format string uses; formats nothing."""

    def format_field(self, value: Any, format_spec: str) -> str:
        return ""

    def check_unused_args(self, used_args: Any, args: Any, kwargs: Any) -> None:
        unused = [a for i, a in enumerate(args) if i not in used_args]
        if unused:
            raise ValueError(f"Unused positional arguments to `jax.debug.print`: {unused}")
        names = [k for k in kwargs if k not in used_args]
        if names:
            raise ValueError(
                f"Unused keyword arguments to `jax.debug.print`: {names}. You may be passing an "
                'f-string (i.e, `f"{x}"`) into `jax.debug.print` and instead should pass in a '
                "regular string.")


_FIELDS = _FieldsOf()
_DEFAULT_OPTIONS = dict(np.get_printoptions())


def debug_print(fmt: str | None = None, *args: Any, ordered: bool = False,
                partitioned: bool = False, skip_format_check: bool = False,
                _use_logging: bool = False, **kwargs: Any) -> Any:
    """Print `fmt.format(*args, **kwargs)` when the program runs.

    In a shard_map every device prints its own blocks; elsewhere whole values are printed once, or
    with `partitioned` every device its block. ordered: on one device only.
    `debug.print(ordered=True)("x is {}", x)` says the options first.
    Raises ValueError for arguments that `fmt` does not use, IndexError or KeyError for those that
    it misses.

    Over Auto and Explicit axes it sees whole values; over Manual axes each device prints its block.

    >>> import shardtrace as st
    >>> @st.jit
    ... def f(x):
    ...     st.debug.print("x is {x}", x=x)
    ...     return x * 2
    >>> float(f(1.5))
    x is 1.5
    3.0
    """
    def call(fmt: str, *args: Any, **kwargs: Any) -> None:
        if not skip_format_check:
            _FIELDS.format(fmt, *args, **kwargs)
        arrays, params = _arguments(args, kwargs, static=True)
        now = np.get_printoptions().items()
        options = tuple((k, v) for k, v in now if _DEFAULT_OPTIONS.get(k) != v)
        ops.debug_print_p.bind(
            *arrays, fmt=fmt, ordered=ordered, partitioned=partitioned, log=_use_logging,
            np_printoptions=options, axes=_axes(), **params)

    if fmt is not None:
        return call(fmt, *args, **kwargs)
    if args or kwargs:
        raise TypeError("debug_print received unexpected arguments in the two-call form: "
                        f"{args=} {kwargs=}")
    return call


def debug_log(fmt: str, *args: Any, **kwargs: Any) -> None:
    """As `debug.print`, to the logger `shardtrace.debug` at level INFO."""
    debug_print(fmt, *args, _use_logging=True, **kwargs)


# -- for results -----------------------------------------------------------------------------------

def _result_types(shapes: Any) -> tuple[tuple[ArrayType, ...], Any]:
    """(Types, their tree) of the results that a callback is said to give."""
    leaves, out_tree = tree.flatten(shapes)
    types = []
    for x in leaves:
        dtype = dtype_of(x.dtype)[0] if isinstance(x.dtype, type) else x.dtype
        if isinstance(dtype, np.dtype) and canonicalize_dtype(dtype, x64_enabled()) != dtype:
            raise ValueError("result_shape_dtypes cannot specify 64-bit types when "
                             "`jax_enable_x64` is disabled")
        types.append(array_type(tuple(x.shape), dtype))
    return tuple(types), out_tree


def _checked_sharding(sharding: Any) -> Any:
    one = isinstance(sharding, SingleDeviceSharding) or sharding is None or (
        isinstance(sharding, NamedSharding) and sharding.mesh.size == 1)
    if not one:
        fail(NotImplementedError, "pure_callback only supports SingleDeviceSharding, but got "
             f"{type(sharding)}", code="callback-sharding",
             help="name one device, in a `SingleDeviceSharding`")
    return sharding


def pure_callback(callback: Callable[..., Any], result_shape_dtypes: Any, *args: Any,
                  sharding: Any = None, vmap_method: str | None = None, **kwargs: Any) -> Any:
    """The results of a function of the host that depends on its arguments alone.

    result_shape_dtypes: pytree of what has `.shape` and `.dtype` (`ShapeDtypeStruct`), as
      `callback(*args, **kwargs)` returns it. sharding: the one device that calls.
    vmap_method: under vmap, call once for each index ("sequential", "sequential_unrolled"), or once
      with a further first dimension on all arrays, of size 1 where they are not mapped
      ("expand_dims"), of full size ("broadcast_all"), or on mapped ones only ("legacy_vectorized").
    It may be called any number of times, or not at all where nothing uses its results.
    Raises ValueError under grad, NotImplementedError under vmap without a method.

    >>> import numpy as np, shardtrace as st
    >>> f = st.jit(lambda x: st.pure_callback(np.sin, st.ShapeDtypeStruct(x.shape, x.dtype), x))
    >>> float(f(0.0))
    0.0
    """
    if vmap_method not in VMAP_METHODS:
        raise ValueError(f"vmap_method must be on of the allowed methods {list(VMAP_METHODS)}, "
                         f"but got: {vmap_method}")
    arrays, params = _arguments(args, kwargs, static=False)
    types, out_tree = _result_types(result_shape_dtypes)
    results = ops.pure_callback_p.bind(
        *arrays, callback=_hashable_function(callback), result_avals=types,
        sharding=_checked_sharding(sharding), vmap_method=vmap_method, axes=_axes(),
        varying=False, **params)
    return tree.unflatten(out_tree, results)


def io_callback(callback: Callable[..., Any], result_shape_dtypes: Any, *args: Any,
                sharding: Any = None, ordered: bool = False, **kwargs: Any) -> Any:
    """The results of a function of the host that may do something besides: read, write, count.

    It is called exactly once whenever the program reaches it. result_shape_dtypes: as in
    `pure_callback`; None for no results. ordered: keep the order among ordered calls.
    Raises ValueError under grad, and under vmap where `ordered`.

    >>> import shardtrace as st
    >>> seen = []
    >>> f = st.jit(lambda x: st.experimental.io_callback(lambda v: seen.append(int(v)), None, x))
    >>> f(3)
    >>> seen
    [3]
    """
    arrays, params = _arguments(args, kwargs, static=False)
    types, out_tree = _result_types(result_shape_dtypes)
    results = ops.io_callback_p.bind(
        *arrays, callback=_hashable_function(callback), result_avals=types,
        sharding=_checked_sharding(sharding), ordered=ordered, axes=_axes(),
        varying=False, **params)
    return tree.unflatten(out_tree, results)


def effects_barrier() -> None:
    """Wait for callbacks of running programs. They have always finished, so it returns at once."""
