"""An imported program as a jitted function of shardtrace."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ..arrays.transfer import put
from ..driver.jit.boundary import Boundary
from ..driver.jit.jitted import Jitted
from ..driver.jit.stages import Traced
from ..ir.api_boundary import bound_class
from ..ir.meshes.mesh import AbstractMesh, Mesh
from ..ir.support.lazy import lazy_import
from ..ir.values.array import Array
from ..ir.values.shape_struct import ShapeDtypeStruct
from ..tracer.staging.signature import Arguments
from .jax_values import array_of, struct_of

jax = lazy_import("jax")


class Source(Protocol):
    """What a program is imported from. name: its name. names: of its arguments. in_tree, out_tree:
    how arguments and results are structured; None where these are flat. origin: the function.
    donated: the arguments that are given up."""
    name: str
    names: tuple[str, ...]
    in_tree: Any
    out_tree: Any
    origin: Any
    donated: tuple[int, ...]

    def hlo(self, structs: Sequence[ShapeDtypeStruct], results: Sequence[Any]) -> str:
        """XLA's optimised program of it, for arguments and results that lie so."""
        ...

    def replayed(self, leaves: Sequence[Any], mesh: Mesh | AbstractMesh | None) -> list[Any]:
        """The results for leaves of ours, under our tracing."""
        ...


@bound_class
class Imported(Jitted):
    """A jitted function that was made from one of JAX's, or from StableHLO.

    args: what stands for its arguments, one a leaf. `trace`, `lower` and what explains it take
    arguments of the same structure, these leaves, or nothing for `args`.
    """

    def __init__(self, source: Source, structs: Sequence[ShapeDtypeStruct],
                 results: Sequence[Any], mesh: Mesh | AbstractMesh | None) -> None:
        def flat(*leaves: Any) -> list[Any]:
            return source.replayed(leaves, mesh)
        flat.__name__ = flat.__qualname__ = source.name
        arguments = Arguments(flat, None, None, source.donated or None, None)
        arguments.names = source.names
        requested = list(results) if any([s is not None for s in results]) else None
        super().__init__(flat, Boundary(None, requested, arguments), False, False)
        self._source, self.args, self._results = source, tuple(structs), tuple(results)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves = self._leaves(args, kwargs)
        results = super().__call__(*[_placed(x, s) for x, s in zip(leaves, self.args, strict=True)])
        form = self._source.out_tree
        return results if form is None else jax.tree_util.tree_unflatten(form, results)

    def hlo(self) -> str:
        """What XLA's own partitioner makes of the program, on JAX's devices."""
        return self._source.hlo(self.args, self._results)

    @property
    def origin(self) -> Any:
        """The function of JAX's, where there was one."""
        return self._source.origin or self._f

    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        return super().trace(*self.traced_arguments(args, kwargs)[0])

    def traced_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]
                ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """One argument a leaf, by default what was imported."""
        if not args and not kwargs:
            return self.args, {}
        leaves = zip(self._leaves(args, kwargs), self.args, strict=True)
        return tuple([struct_of(x, None, s.sharding) if isinstance(x, jax.ShapeDtypeStruct) else
                      _placed(x, s) for x, s in leaves]), {}

    def _leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any]:
        """The leaves of arguments that are structured as those that were imported, or flat."""
        if not kwargs and len(args) == len(self.args) and all([
                isinstance(x, ShapeDtypeStruct | Array) for x in args]):
            return args
        form = self._source.in_tree
        if form is None:
            return args
        given, named, static = form.signature.split(args, kwargs)
        found, own = jax.tree_util.tree_flatten((given, named))
        if own != form.tree:
            raise TypeError(f"{self._source.name} was imported for arguments of another "
                            f"structure.\nimported: {form.tree}\ngiven:    {own}")
        others = zip((*found, static), (*form.others, form.static), (*form.arrays, False),
                     strict=True)
        for x, known, is_array in others:
            if not is_array and x is not known and x != known:
                raise TypeError(f"{self._source.name} was imported with {known!r} as a part of "
                                f"the program, where {x!r} is given now; import it for that as "
                                "well")
        return [x for x, is_array in zip(found, form.arrays, strict=True) if is_array]


def _placed(x: Any, struct: ShapeDtypeStruct) -> Any:
    """A value of JAX's or numpy's as an array of ours, laid out as the struct says."""
    if isinstance(x, ShapeDtypeStruct | Array):
        return x
    if isinstance(x, jax.Array):
        x = array_of(x)
    return x if struct.sharding is None else put(x, struct.sharding)
