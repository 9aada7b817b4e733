"""jit: trace once per argument types, partition, run.

    f.trace(*args)            -> Traced     .jaxpr: the program as the user typed it
     .lower()                 -> Lowered    .as_text(): every sharding resolved, still global
     .compile()               -> Compiled   .as_text(): the per-device program and its collectives
     (*args)                                runs it

A call of a jitted function goes through the same three stages and caches the last on the types and
placements of the arguments. Inside of a trace it is one call equation.
"""
from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from ...ir.meshes.device import Device
from ...ir.shardings.sharding import SingleDeviceSharding
from ...tracer.staging.signature import Arguments, function_name
from .boundary import Boundary
from .jitted import Jitted
from .requested_shardings import check_asked, checked_device, planning_options


def jit(fun: Callable[..., Any] | None = None, /, *, in_shardings: Any = None,
        out_shardings: Any = None, static_argnums: Any = None, static_argnames: Any = None,
        donate_argnums: Any = None, donate_argnames: Any = None, keep_unused: bool = False,
        device: Device | None = None, backend: str | None = None, inline: bool = False,
        compiler_options: dict[str, Any] | None = None) -> Any:
    """A function that traces `fun` once per argument types, partitions it, and runs it.

    in_shardings, out_shardings: a Sharding, a PartitionSpec (under a context mesh), None, or a tree
      prefix of the positional arguments or of the result.
    static_argnums, static_argnames: arguments that are part of the program; hashable.
    donate_argnums, donate_argnames: arguments whose buffers results may take.
    compiler_options: what the plan is judged by, {"objective": "time", "hardware": "h100"} or
      {"objective": "bytes"}, or "memory", or "xla" for the plan that XLA makes, and the most bytes
      that a device may hold at once, {"memory_limit": 80e9}; by default
      `config.shardtrace_objective` and so on. Options of XLA are taken and change nothing; others
      raise JaxRuntimeError.
    The result has `.trace`, `.lower`, `.eval_shape`; see this module's docstring.
    Raises ValueError where committed arguments, shardings and the meshes named inside are not on
    the same devices, and IndivisibleError where a sharding does not divide an argument or result.

    Sharding
      Auto: an argument that is on a mesh keeps its layout, and the partitioner decides the rest:
        intermediate values, results, and which collectives there are.
      Explicit: shardings are part of the types that `fun` is traced with; `typeof` shows them.
      Manual: inside `shard_map` a jitted function works on each device's block.

    >>> rows = st.NamedSharding(st.make_mesh((4, 2), ("x", "y")), P("x"))
    >>> f = st.jit(lambda v: v * 2, in_shardings=rows, donate_argnums=0)
    >>> f(jnp.arange(8)).sharding.spec
    P('x',)
    """
    if fun is None:
        return functools.partial(
            jit, in_shardings=in_shardings, out_shardings=out_shardings,
            static_argnums=static_argnums, static_argnames=static_argnames,
            donate_argnums=donate_argnums, donate_argnames=donate_argnames,
            keep_unused=keep_unused, device=device, backend=backend, inline=inline,
            compiler_options=compiler_options)
    if not callable(fun):
        raise TypeError(f"Expected a callable value, got {fun}")
    if inspect.isgeneratorfunction(fun):
        raise TypeError(f"Expected a function, got a generator function: {fun}")
    if device is not None or backend is not None:
        device = checked_device(device, backend, in_shardings, out_shardings)
        out_shardings = in_shardings = SingleDeviceSharding(device)
    if in_shardings is not None:
        check_asked(in_shardings, "in_shardings")
    if out_shardings is not None:
        check_asked(out_shardings, "out_shardings")
    arguments = Arguments(fun, static_argnums, static_argnames, donate_argnums, donate_argnames)
    return Jitted(fun, Boundary(in_shardings, out_shardings, arguments), inline, keep_unused,
                  device, compiler_options, planning_options(compiler_options))


def eval_shape(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The shapes, dtypes and shardings of `fun(*args, **kwargs)`, which is traced but not computed.

    args, kwargs: pytrees of arrays or ShapeDtypeStructs. The result has the structure of fun's
    result, with ShapeDtypeStructs as leaves. Raises what tracing raises.

    Sharding
      Auto: is open until the program is partitioned, so the result says nothing of it but what
        `out_shardings` of a jitted `fun` say.
      Explicit: the result's `.sharding` is that of the type.
      Manual: inside `shard_map` shapes are those of blocks.

    >>> w = st.ShapeDtypeStruct((2, 3), jnp.float32)
    >>> st.eval_shape(lambda x, w: x @ w, jnp.ones((8, 2)), w)
    ShapeDtypeStruct(shape=(8, 3), dtype=float32)
    """
    return (fun if isinstance(fun, Jitted) else jit(fun)).eval_shape(*args, **kwargs)


def make_jaxpr(fun: Callable[..., Any], static_argnums: Any = (), axis_env: Any = None,
               return_shape: bool = False) -> Callable[..., Any]:
    """A function that returns the program of `fun` for given arguments: what it does, op by op.

    static_argnums: arguments that are part of the program. return_shape: also give the results'
    ShapeDtypeStructs. The program prints as text; `.jaxpr.eqns` are its equations.

    Sharding
      Auto: axes are not shown: the partitioner has not run (`jit(fun).lower(...).as_text()` is
        later).
      Explicit: every type shows its sharding.
      Manual: the body of a `shard_map` shows shapes of blocks and the axes that they vary over.

    >>> mesh = st.make_mesh((8,), ("x",), axis_types=(st.sharding.AxisType.Explicit,))
    >>> x = st.device_put(np.ones((8, 2), np.float32), st.NamedSharding(mesh, P("x")))
    >>> program = st.make_jaxpr(lambda x: x.sum(0))(x)
    >>> [(e.primitive.name, e.invars[0].aval.str_short(True)) for e in program.jaxpr.eqns]
    [('reduce_sum', 'f32[8@x,2]')]
    """
    jitted = jit(fun, static_argnums=static_argnums)

    @functools.wraps(fun)
    def traced(*args: Any, **kwargs: Any) -> Any:
        result = jitted.trace(*args, **kwargs)
        program, captured = result.jaxpr, result._captured
        if captured:                            # values of a trace around are constants of this one
            program = program.replace(invars=program.invars[len(captured):], consts=(
                *zip(program.invars, captured, strict=False), *program.consts))
        return (program, result.out_info) if return_shape else program

    traced.__module__ = __name__.partition(".")[0]
    traced.__name__ = f"make_jaxpr({function_name(fun)})"
    traced.__qualname__ = f"make_jaxpr({getattr(fun, '__qualname__', function_name(fun))})"
    return traced
