"""What every stage of a jitted function says about arguments and results: trees, types, donation.

Names and forms are JAX's: there is a value for each argument, in the tree `(args, kwargs)`.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ...ir.meshes.mesh import AbstractMesh
from ...ir.program import Program
from ...ir.shardings.formats import Format
from ...ir.support.immutable import immutable
from ...ir.types import ArrayType
from ...ir.values.shape_struct import struct_of
from ...tracer.staging.signature import Arguments
from ...tracer.trees import tree
from ..execution.executable import Executable
from .boundary import Boundary


class Function(Protocol):
    """The jitted function (jitted.py) as far as its stages know it."""

    arguments: Arguments
    keep_unused: bool
    _boundary: Boundary

    def _executable(self, program: Program, leaves: Sequence[Any], in_tree: Any,
                    out_tree: Any) -> Executable: ...


@immutable
class ArgInfo:
    """An argument of a stage: its type, and whether its buffer may be taken for a result.

    >>> f = st.jit(lambda x: x + 1, donate_argnums=0)
    >>> (info,), _ = f.trace(jnp.ones((2, 3))).args_info
    >>> info.shape, info.dtype, info.donated
    ((2, 3), dtype('float32'), True)
    """

    _aval: ArrayType
    donated: bool

    @property
    def shape(self) -> tuple[int, ...]:
        return self._aval.shape

    @property
    def dtype(self) -> Any:
        return self._aval.dtype


class StageInfo:
    """What Traced, Lowered and Compiled have in common.

    >>> traced = st.jit(lambda x, *, k: x * k, donate_argnums=0).trace(np.ones(3, np.float32), k=2)
    >>> traced.in_avals
    ((ShapedArray(float32[3]),), {'k': ShapedArray(int32[], weak_type=True)})
    >>> traced.donate_argnums, traced.lower().out_info
    ((0,), ShapeDtypeStruct(shape=(3,), dtype=float32))
    """

    jaxpr: Program
    in_tree: Any
    out_tree: Any
    _jitted: Function

    @property
    def fun_name(self) -> str:
        """The function's name."""
        return self.jaxpr.name

    @property
    def in_avals(self) -> Any:
        """Types of the arguments, as they are at this stage, in the form `(args, kwargs)`."""
        return tree.unflatten(self.in_tree, self._argument_types())

    def _argument_types(self) -> Sequence[ArrayType]:
        return self.jaxpr.in_avals

    @property
    def args_info(self) -> Any:
        """An `ArgInfo` for each argument, as it was traced, in the form `(args, kwargs)`."""
        return tree.unflatten(self.in_tree, [
            ArgInfo(t, d) for t, d in zip(self.jaxpr.in_avals, self._donated(), strict=True)])

    @property
    def donate_argnums(self) -> tuple[int, ...]:
        """Numbers of the arguments that are donated, among the leaves of `(args, kwargs)`."""
        return tuple([i for i, d in enumerate(self._donated()) if d])

    def _donated(self) -> list[bool]:
        args, kwargs = tree.unflatten(self.in_tree, list(self.jaxpr.invars))
        return self._jitted.arguments.donated(args, kwargs) or [False] * len(self.jaxpr.invars)

    @property
    def out_info(self) -> Any:
        """A pytree of ShapeDtypeStruct, as the function's result, with what out_shardings ask."""
        boundary, program = self._jitted._boundary, self.jaxpr
        found = [struct_of(v.aval) for v in program.outvars]
        requested = boundary.result_shardings(program, self.out_tree)
        if any(s is not None for s in requested):
            layouts = boundary.result_layouts(program, self.out_tree) or [None] * len(found)
            found = [t if s is None else t.update(sharding=Format(layout, s))
                     for t, layout, s in zip(found, layouts, requested, strict=True)]
        return tree.unflatten(self.out_tree, found)

    @property
    def out_avals(self) -> Any:
        """A pytree of types, as the function's result."""
        return tree.unflatten(self.out_tree, self.jaxpr.out_avals)


def on_mesh(aval: ArrayType, mesh: AbstractMesh, spec: Any) -> ArrayType:
    """The type of an argument that was given `spec` on `mesh`: over Auto axes it says nothing."""
    sharding = aval.sharding.update(mesh=mesh, spec=spec if mesh.explicit_axes else ())
    return aval.update(sharding=sharding)
