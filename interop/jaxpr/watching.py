"""Functions that a file passes to `jax.jit`: imported at their calls instead of being run."""
from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ...driver.execution.call_capture import WATCH
from ...driver.jit.boundary import Boundary
from ...driver.jit.jitted import Jitted
from ...driver.jit.stages import Traced
from ...ir.shardings.sharding import NamedSharding
from ...ir.support.lazy import lazy_import
from ...ir.values.shape_struct import ShapeDtypeStruct
from ...tracer.staging.signature import Arguments
from ..imported import Imported
from ..jax_values import is_key
from .from_jax import from_jax

jax = lazy_import("jax")


class ImportedWhenCalled(Jitted):
    """A function of JAX's that is imported for the arguments it is called with.

    Outside of JAX's own traces a call tells the watcher of this thread what was imported, and gives
    zeros of the result's shapes: nothing is computed.
    """

    def __init__(self, real: Any, fun: Callable[..., Any], static_argnums: Any = None,
                 static_argnames: Any = None) -> None:
        arguments = Arguments(fun, static_argnums, static_argnames, None, None)
        super().__init__(fun, Boundary(None, None, arguments), False, False)
        self._real, self._statics = real, (static_argnums, static_argnames)
        self._shapes: dict[Any, Any] = {}       # of results, by arguments

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_real"], name)

    def imported(self, *args: Any, **kwargs: Any) -> Imported:
        """The function imported for these arguments, with the shardings that they state."""
        leaves = jax.tree_util.tree_leaves((args, kwargs))
        given = [x.sharding for x in leaves if isinstance(x, ShapeDtypeStruct)
                 and x.sharding is not None]
        found = from_jax(self._real, *jax.tree.map(_struct, args),
                         mesh=given[0].mesh if given else None, static_argnums=self._statics[0],
                         static_argnames=self._statics[1], **jax.tree.map(_struct, kwargs))
        if given:
            found.args = tuple([a.update(sharding=x.sharding) if isinstance(
                x, ShapeDtypeStruct) else a for a, x in zip(found.args, leaves, strict=True)])
        return found

    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        return self.imported(*args, **kwargs).trace()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, form = jax.tree_util.tree_flatten((args, kwargs))
        if WATCH.watcher is None or any([isinstance(x, jax.core.Tracer) for x in leaves]):
            return self._real(*args, **kwargs)
        key = form, tuple([(x.shape, x.dtype, x.sharding) if isinstance(x, jax.Array) else
                           (np.shape(x), np.asarray(x).dtype) if isinstance(x, np.ndarray) else x
                           for x in leaves])
        if key not in self._shapes:
            lowered = self.imported(*args, **kwargs).lower()        # which the watcher is given
            meshes = [x.sharding.mesh for x in leaves if isinstance(x, jax.Array)
                      and isinstance(x.sharding, jax.sharding.NamedSharding)]
            shapes, out = jax.tree_util.tree_flatten(jax.eval_shape(self._real, *args, **kwargs))
            own = lowered.compile().output_shardings
            self._shapes[key] = jax.tree_util.tree_unflatten(out, [
                _like(x, s, meshes) for x, s in zip(shapes, own, strict=True)])
        return jax.tree.map(_zeros, self._shapes[key])


def _like(x: Any, sharding: Any, meshes: Sequence[Any]) -> Any:
    """A result's shape, laid out as here on the mesh of the arguments."""
    if not meshes or not isinstance(sharding, NamedSharding):
        return x
    spec = jax.sharding.PartitionSpec(*sharding.spec)
    return jax.ShapeDtypeStruct(x.shape, x.dtype,
                                sharding=jax.sharding.NamedSharding(meshes[0], spec))


def _struct(x: Any) -> Any:
    """An argument for JAX's tracing."""
    return jax.ShapeDtypeStruct(x.shape, x.dtype) if isinstance(x, ShapeDtypeStruct) else x


def _zeros(x: Any) -> Any:
    if is_key(x.dtype):
        return jax.random.split(jax.random.key(0), x.shape) if x.shape else jax.random.key(0)
    found = jax.numpy.zeros(x.shape, x.dtype)
    sharding = getattr(x, "sharding", None)
    return found if sharding is None else jax.device_put(found, sharding)


@contextlib.contextmanager
def jax_functions_imported() -> Iterator[None]:
    """Within the block `jax.jit` gives functions that are imported when they are called."""
    real = jax.jit

    @functools.wraps(real)
    def jit(fun: Any = None, /, **options: Any) -> Any:
        if fun is None:
            return functools.partial(jit, **options)
        static = {k: options.get(k) for k in ("static_argnums", "static_argnames")}
        return ImportedWhenCalled(real(fun, **options), inspect.unwrap(fun), **static)

    module = sys.modules["jax"]
    module.jit = jit                    # type: ignore[attr-defined]
    try:
        yield
    finally:
        module.jit = real               # type: ignore[attr-defined]
