"""The stages of a jitted function that a user can hold: Traced, Lowered, Compiled."""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..ir.formats import Format, default_layout, kept_layout
from ..ir.print import print_program
from ..ir.program import Program
from ..ir.shape_struct import struct_of
from ..ir.sharding import NamedSharding, SingleDeviceSharding
from ..ir.spec import PartitionSpec
from ..ir.types import ArrayType
from ..tracer import tree
from ..tracer.tracer import typeof
from .executable import Executable, placed_sharding

if TYPE_CHECKING:
    from .jit import Jitted


class Traced:
    """A function traced on argument types: `.jaxpr` is its program."""

    def __init__(self, jitted: Jitted, program: Program, in_tree: Any, out_tree: Any,
                 leaves: Sequence[Any], captured: Sequence[Any]) -> None:
        self.jaxpr = program
        self.fun_name = program.name
        self.in_tree, self.out_tree = in_tree, out_tree
        self._jitted, self._leaves, self._captured = jitted, leaves, captured

    @property
    def out_info(self) -> Any:
        """A pytree of ShapeDtypeStruct, as the function's result."""
        return tree.unflatten(self.out_tree, [struct_of(v.aval) for v in self.jaxpr.outvars])

    @property
    def out_avals(self) -> tuple[ArrayType, ...]:
        return self.jaxpr.out_avals

    def lower(self, **unused: Any) -> Lowered:
        """Resolve every sharding and partition the program."""
        executable = self._jitted._executable(self.jaxpr, self._leaves, self.in_tree, self.out_tree)
        return Lowered(executable, self)

    def __str__(self) -> str:
        return str(self.jaxpr)


def _in_avals(executable: Executable, traced: Traced) -> Any:
    """The arguments' types, with the shardings that they were given over Explicit axes."""
    found = []
    for s, v in zip(executable.arg_specs, traced.jaxpr.invars, strict=True):
        mesh = executable.placement.abstract_mesh
        if s is not None and mesh.explicit_axes:
            found.append(v.aval.update(sharding=NamedSharding(mesh, s)))
        else:
            found.append(v.aval)
    return tree.unflatten(traced.in_tree, found)


class Lowered:
    """A program with every sharding resolved, still over whole arrays."""

    def __init__(self, executable: Executable, traced: Traced) -> None:
        self._executable, self._traced = executable, traced
        self.in_tree, self.out_tree = traced.in_tree, traced.out_tree
        self.stages = executable.partitioned.stages
        self.program = executable.partitioned.resolved

    def as_text(self) -> str:
        return print_program(self.program)

    @property
    def out_info(self) -> Any:
        return self._traced.out_info

    @property
    def in_avals(self) -> Any:
        """Types of the arguments, in the form `(args, kwargs)`."""
        return _in_avals(self._executable, self._traced)

    def compile(self, compiler_options: Any = None) -> Compiled:
        return Compiled(self._executable, self._traced)


class Compiled:
    """A per-device program; calling it runs it on arguments of the types it was compiled for."""

    def __init__(self, executable: Executable, traced: Traced) -> None:
        self._executable, self._traced = executable, traced
        self.in_tree, self.out_tree = traced.in_tree, traced.out_tree
        self.program = executable.partitioned.local
        self.stages = executable.partitioned.stages

    def as_text(self) -> str:
        return print_program(self.program)

    @property
    def in_avals(self) -> Any:
        """Types of the arguments, in the form `(args, kwargs)`."""
        return _in_avals(self._executable, self._traced)

    @property
    def input_shardings(self) -> Any:
        placement = self._executable.placement
        device = placement.device
        flat = [SingleDeviceSharding(device) if device is not None
                else placement.sharding(s if s is not None else PartitionSpec(), v.aval.ndim)
                for s, v in zip(self._executable.arg_specs, self._traced.jaxpr.invars, strict=True)]
        return tree.unflatten(self.in_tree, flat)

    @property
    def output_shardings(self) -> Any:
        return tree.unflatten(self.out_tree, self._executable.shardings)

    @property
    def input_formats(self) -> Any:
        """Formats of the arguments: row-major, with their shardings."""
        avals = [v.aval for v in self._traced.jaxpr.invars]
        flat = tree.leaves(self.input_shardings)
        return tree.unflatten(self.in_tree, [
            Format(default_layout(t.ndim), s) for t, s in zip(avals, flat, strict=True)])

    @property
    def output_formats(self) -> Any:
        """Formats of the results."""
        executable, avals = self._executable, self._traced.jaxpr.out_avals
        layouts = executable.layouts or [None] * len(avals)
        return tree.unflatten(self.out_tree, [
            Format(default_layout(t.ndim) if layout is None else kept_layout(layout), s)
            for t, layout, s in zip(avals, layouts, executable.shardings, strict=True)])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        jitted = self._traced._jitted
        leaves, in_tree = tree.flatten((args, kwargs))
        if in_tree != self.in_tree:      # static arguments may be given again, or left out
            args, kwargs, _ = jitted.arguments.split(args, kwargs)
            leaves, in_tree = tree.flatten((args, kwargs))
        if in_tree != self.in_tree:
            raise TypeError(f"Function compiled with input pytree does not match the input pytree "
                            f"it was called with. Compiled with {self.in_tree}, called with "
                            f"{in_tree}")
        self._check(leaves)
        return tree.unflatten(self.out_tree, self._executable(leaves))

    def _check(self, leaves: Sequence[Any]) -> None:
        program, names = self._traced.jaxpr, self._traced.jaxpr.arg_names
        wrong, moved = [], []
        executable = self._executable
        for x, v, name, spec, given in zip(leaves, program.invars, names, executable.arg_specs,
                                           executable.given, strict=True):
            t = typeof(x)
            if (t.shape, t.dtype) != (v.aval.shape, v.aval.dtype) or t.entries != v.aval.entries:
                wrong.append(f"Argument {name!r} compiled with {v.aval} and called with {t}")
                continue
            placement, sharding = executable.placement, placed_sharding(x)
            if given is not None and sharding is not None and given.is_equivalent_to(
                    sharding, t.ndim):
                continue
            if placement.mesh is not None and sharding is not None:
                required = placement.sharding(PartitionSpec() if spec is None else spec, t.ndim)
                if not required.is_equivalent_to(sharding, t.ndim):
                    moved.append(f"Argument {name} with shape {t}:\n  Passed sharding: {sharding}\n"
                                 f"  Required sharding: {required}")
        if wrong:
            raise TypeError(
                "Argument types differ from the types for which this computation was compiled. "
                "Perhaps you are calling the compiled executable with a different enable_x64 mode "
                "than when it was AOT compiled? The mismatches are:\n" + "\n".join(wrong))
        if moved:
            raise ValueError(
                "Computation was compiled for input shardings that disagree with the shardings of "
                f"arguments passed to it. Here are the {len(moved)} mismatches:\n"
                + "\n".join(moved))
