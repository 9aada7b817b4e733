"""pjit: `jit` under its older name, with the older names of its arguments.

`in_axis_resources` and `out_axis_resources` are `in_shardings` and `out_shardings`; None in them is
"the same on all devices", and not "as it is" as with `jit`; `FROM_GDA` is what leaving a sharding
out is now. Behaviour is that of `jax.experimental.pjit` (0.4.1) with the unified array.
"""
from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

from ...arrays.array import ArrayImpl
from ...arrays.global_device_array import GlobalDeviceArray
from ...ir.api_boundary import bound_class
from ...ir.diagnostics.diagnostic import fail
from ...ir.meshes.mesh import entered_mesh
from ...ir.settings.context import STATE, config, mesh_context
from ...ir.shardings.sharding import NamedSharding
from ...ir.source.wording import warn
from ...ir.spec import PartitionSpec
from ...tracer import lax
from ...tracer.trees import tree
from .jit import jit
from .requested_shardings import ON_CONTEXT_MESH, is_sharding
from .stages import Lowered, Traced


class FromGda:
    """The type of `FROM_GDA`: an argument that is sharded as it already is."""

    __slots__ = ()

    def __new__(cls) -> FromGda:
        return FROM_GDA

    def __repr__(self) -> str:
        return "FROM_GDA"

    def __reduce__(self) -> tuple:
        return FromGda, ()


FROM_GDA: Any = object.__new__(FromGda)
_NOT_GIVEN: Any = object()
_REPLICATED = PartitionSpec()


def pjit(fun: Callable[..., Any] | None = None, in_shardings: Any = _NOT_GIVEN,
         out_shardings: Any = _NOT_GIVEN, static_argnums: Any = None,
         static_argnames: Any = None, donate_argnums: Any = None, *,
         in_axis_resources: Any = _NOT_GIVEN, out_axis_resources: Any = _NOT_GIVEN,
         **others: Any) -> Any:
    """`jit(fun, in_shardings=..., out_shardings=..., ...)`; write `jit` in new programs.

    The mesh of a `with mesh:` block is the context mesh of its calls. Under a context mesh, None in
    in_shardings or out_shardings is the same on all devices, where `jit` leaves the choice open.
    in_axis_resources, out_axis_resources: deprecated. A tree prefix of PartitionSpecs on the
      context mesh, None for the same on all devices, or `FROM_GDA` for arguments that are sharded
      as they are.
    others: further arguments of `jit`.

    >>> from shardtrace.experimental.pjit import pjit
    >>> with st.set_mesh(st.make_mesh((8,), ("x",))):
    ...     print(pjit(lambda v: v * 2, in_shardings=P("x"), out_shardings=P())(np.arange(8)))
    [ 0  2  4  6  8 10 12 14]
    """
    if in_axis_resources is not _NOT_GIVEN:
        _deprecated("in_axis_resources", "in_shardings")
        _only_one(in_shardings, "in_axis_resources", "in_shardings")
        in_shardings = _shardings(in_axis_resources, "in_axis_resources")
    if out_axis_resources is not _NOT_GIVEN:
        _deprecated("out_axis_resources", "out_shardings")
        _only_one(out_shardings, "out_axis_resources", "out_shardings")
        out_shardings = _shardings(out_axis_resources, "out_axis_resources")
    if _has_from_gda(in_shardings):
        warn("FROM_GDA is deprecated: an argument without a sharding in `in_shardings` keeps its "
             "own. With `jit`, write None in its place, or leave `in_shardings` out.",
             DeprecationWarning)
    if isinstance(in_shardings, list):
        in_shardings = tuple(in_shardings)
    arguments = dict(others, in_shardings=_of_jit(in_shardings),
                     out_shardings=_of_jit(out_shardings), static_argnums=static_argnums,
                     static_argnames=static_argnames, donate_argnums=donate_argnums)
    if fun is None:
        return lambda f: PjitFunction(jit(f, **arguments))
    return PjitFunction(jit(fun, **arguments))


@bound_class
class PjitFunction:
    """A jitted function for which the mesh of a `with mesh:` block is the context mesh.

    Its results have the older interface, if the old flag asks for it.
    """

    def __init__(self, jitted: Any) -> None:
        functools.update_wrapper(self, jitted, updated=())
        jitted._boundary.api = "pjit"
        self._jitted = jitted

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with _entered_context():
            results = self._jitted(*args, **kwargs)
        if config.jax_parallel_functions_output_gda:
            return tree.map(_as_global_device_array, results)
        return results

    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """As of `jit`."""
        with _entered_context():
            return self._jitted.trace(*args, **kwargs)

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """As of `jit`."""
        with _entered_context():
            return self._jitted.lower(*args, **kwargs)

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """As of `jit`."""
        with _entered_context():
            return self._jitted.eval_shape(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "_jitted":
            raise AttributeError(name)
        return getattr(self._jitted, name)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __repr__(self) -> str:
        return repr(self._jitted)


def _entered_context() -> Any:
    """The mesh of the innermost `with mesh:` block as context mesh, where there is one."""
    mesh = entered_mesh()
    if mesh.empty or mesh is STATE.mesh:
        return contextlib.nullcontext()
    context = STATE.abstract_mesh
    if STATE.interpreter is not None and not context.empty:
        if mesh.size != context.size:
            fail(ValueError, "use_abstract_mesh cannot change the size of the mesh. Got new mesh: "
                 f"{mesh.abstract_mesh} with size={mesh.size} and prev mesh: {context} with "
                 f"size={context.size}", code="mesh-size",
                 help="a computation has one mesh: enter it outside of the outermost function")
        return contextlib.nullcontext()
    return mesh_context(mesh)


def _as_global_device_array(x: Any) -> Any:
    if isinstance(x, ArrayImpl) and isinstance(x.sharding, NamedSharding):
        return GlobalDeviceArray.of(x)
    return x


def with_sharding_constraint(x: Any, shardings: Any = _NOT_GIVEN, *,
                             axis_resources: Any = _NOT_GIVEN) -> Any:
    """`lax.with_sharding_constraint`, which see; `axis_resources` is what `shardings` was called.

    >>> from shardtrace.experimental.pjit import with_sharding_constraint
    >>> with st.set_mesh(st.make_mesh((8,), ("x",))):
    ...     with_sharding_constraint(jnp.arange(16), P("x")).sharding.spec
    P('x',)
    """
    if axis_resources is not _NOT_GIVEN:
        _deprecated("axis_resources", "shardings")
        _only_one(shardings, "axis_resources", "shardings")
        shardings = _shardings(axis_resources, "axis_resources")
    if shardings is _NOT_GIVEN:
        raise TypeError("with_sharding_constraint() missing 1 required positional argument: "
                        "'shardings'")
    return lax.with_sharding_constraint(x, shardings)


def xmap(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Removed: raises RuntimeError that says what to write instead.

    >>> from shardtrace.experimental.maps import xmap
    >>> xmap(lambda v: v * 2, in_axes={0: "i"}, out_axes={0: "i"})
    Traceback (most recent call last):
    RuntimeError: xmap is gone...
    """
    name = getattr(fun, "__name__", "f")
    fail(RuntimeError, "xmap is gone. Named axes are mapped by `vmap`, and split over devices by "
         "`shard_map`", code="xmap",
         notes=("an axis that `axis_resources` gave to a mesh axis is a dimension split over that "
                "axis: collectives name the mesh axis. Other named axes are those of `vmap`",),
         help=f"map {name} with `shard_map`, over a mesh, or with `vmap` and an `axis_name`")


# -- old arguments ---------------------------------------------------------------------------------

def _is_leaf(x: Any) -> bool:
    return isinstance(x, FromGda) or is_sharding(x)


def _map(prefix: Any, f: Callable[[Any], Any]) -> Any:
    return tree.map(f, prefix, is_leaf=_is_leaf)


def _shardings(resources: Any, name: str) -> Any:
    """The shardings for old axis resources; None is replicated."""
    if isinstance(resources, list):
        resources = tuple(resources)

    def one(x: Any) -> Any:
        if isinstance(x, FromGda) and name != "in_axis_resources":
            raise ValueError(f"`{name}` cannot be `pjit.FROM_GDA`: it stands for the sharding of "
                             "an argument. Write a PartitionSpec, or leave it out.")
        return _REPLICATED if x is None else x

    return _map(resources, one)


def _has_from_gda(shardings: Any) -> bool:
    return any(isinstance(s, FromGda) for s in tree.leaves(shardings, _is_leaf))


def _of_jit(shardings: Any) -> Any:
    """What jit takes: None is the same on all devices of the context mesh, if there is one."""
    if shardings is _NOT_GIVEN:
        return None
    made = _map(shardings, lambda s: ON_CONTEXT_MESH if s is None else (
        None if isinstance(s, FromGda) else s))
    return None if all(s is None for s in tree.leaves(made, is_sharding)) else made


def _only_one(given: Any, old: str, new: str) -> None:
    if given is not _NOT_GIVEN:
        raise ValueError(f"`{old}` is the old name of `{new}`: give one of them, not both.")


def _deprecated(old: str, new: str) -> None:
    warn(f"`{old}` is deprecated, write `{new}`. (None in `{old}` is `PartitionSpec()` in "
         f"`{new}`, where None leaves the choice open.)", DeprecationWarning)
