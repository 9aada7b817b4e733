"""The verifier's checks of a program besides its equations: mesh, parameters, results, types."""
from __future__ import annotations

from typing import Any

import numpy as np

from .inference.levels import Violation
from .kernels.key_data import storage_dtype
from .meshes.mesh import AbstractMesh, empty_abstract_mesh
from .program import Level, Program, Var
from .rules.factor_axes import canonical_axes, covered
from .spec import axes_overlap
from .support.caches import cached
from .text.placeholders import MissingConstant
from .types import ArrayType


def check_mesh(level: Level, mesh: AbstractMesh) -> None:
    """After propagation every axis is Explicit, in a per-device program every axis is Manual."""
    if any(n < 1 for n in mesh.axis_sizes):
        raise Violation(f"the sizes of the axes of a mesh are 1 or more, not {mesh}", "mesh-axes")
    if level is Level.TRACED or not mesh.axis_names:
        return
    if level is Level.LOCAL:
        if not mesh.are_all_axes_manual:
            raise Violation(f"a per-device program has Manual axes only, not {mesh}", "mesh-axes")
    elif mesh.auto_axes:
        raise Violation(f"after propagation no axis is Auto, but the mesh is {mesh}", "mesh-axes")


def bound_twice(var: Var) -> Violation:
    return Violation(f"variable `{var.name or var}` is bound twice", "bound-twice")


def check_heading(program: Program) -> None:
    """Parameters and constants are bound once, with sound types."""
    given = (*program.invars, *program.constvars) if program.consts else program.invars
    if len(given) > 1 and len(set(given)) != len(given):
        raise bound_twice(next(v for i, v in enumerate(given) if v in given[:i]))
    level, mesh = program.level, program.mesh
    for aval in dict.fromkeys([v.aval for v in given]):
        check_type(aval, level, mesh)
    for var, value in program.consts:
        if isinstance(value, MissingConstant):
            continue
        shape, dtype = var.aval.shape, storage_dtype(var.aval.dtype)
        if tuple(np.shape(value)) != shape or (
                isinstance(value, np.ndarray) and value.dtype != dtype):
            raise Violation(f"constant `{var.name or var}` of type {var.aval.str_short(True)} "
                            f"holds an array of shape {list(np.shape(value))}", "constant-type")
    if program.global_in:
        _check_blocks(program, "parameter", program.global_in, program.in_avals)
    if program.global_out:
        _check_blocks(program, "result", program.global_out, program.out_avals)


def _check_blocks(program: Program, word: str, wholes: tuple[ArrayType, ...],
                  blocks: tuple[ArrayType, ...]) -> None:
    """The types of parameters (or results) of a LOCAL program are those of blocks of the whole
    values that it declares.
    """
    if program.level is not Level.LOCAL or len(wholes) != len(blocks):
        raise Violation(f"{len(wholes)} global types for {len(blocks)} {word}s at level "
                        f"{program.level.value}", "global-types")
    exact = word == "parameter"
    pairs = list(zip(blocks, wholes, strict=True))
    for pair in dict.fromkeys(pairs):
        try:
            _check_block(*pair, exact)
        except Violation as violation:
            raise Violation(f"{word} {pairs.index(pair)} {violation.message}",
                            violation.code) from None


@cached(4096)
def _check_block(block: ArrayType, whole: ArrayType, exact: bool) -> None:
    """A local value is a block of the whole value: its shape, and over which axes it differs.

    A result may differ over fewer axes than its whole value is split over (`exact` is False).
    """
    if block.dtype != whole.dtype or block.shape != whole.local_shape():
        raise Violation(f"is a block {block.str_short(True)} of {whole.str_short(True)}, "
                        f"whose blocks have shape {list(whole.local_shape())}", "global-types")
    axes = [*whole.unreduced, *(a for dim in whole.entries for a in dim)]   # each has its own terms
    if block.varying.union(block.unreduced) == frozenset(axes):
        return
    of_whole, of_block = (canonical_axes(names, whole.mesh) for names in (
        axes, block.varying | block.unreduced))
    if of_block != of_whole and (exact or not covered(of_block, of_whole)):
        raise Violation(f"is {block.str_short(True)}, but the blocks of "
                        f"{whole.str_short(True)} differ over {', '.join(map(str, axes)) or 'no'} "
                        "axes", "global-types")


@cached(4096)
def check_type(aval: ArrayType, level: Level, program_mesh: AbstractMesh) -> None:
    """Axes exist and are used once; they divide. After tracing there is one mesh, or none."""
    mesh: AbstractMesh = aval.sharding.mesh  # type: ignore[assignment]
    if level is not Level.TRACED and mesh not in (program_mesh, empty_abstract_mesh):
        raise Violation(f"{aval.str_short(True)} is on the mesh {mesh}, and not on the program's, "
                        f"{program_mesh}", "mesh-mismatch")
    used: tuple[Any, ...] = ()
    state, spec = aval.manual, aval.sharding.spec
    if not (spec.unreduced or spec.reduced or state.varying or state.unreduced or state.reduced):
        for axes in aval.entries:
            if axes:
                break
        else:
            return                              # it names no axis
    sizes = mesh.shape
    for dim, axes in enumerate(aval.entries):
        parts = 1
        for axis in axes:
            if axis not in sizes:
                _check_axis(axis, mesh, aval)
            for other in used:
                if axis == other or not (axis in sizes and other in sizes) and axes_overlap(
                        axis, other):
                    raise Violation(f"{aval.str_short(True)} splits two dimensions over axis "
                                    f"{axis}", "axis-reused")
            used += (axis,)
            parts *= sizes[axis] if axis in sizes else mesh.axis_size(axis)
        if level is Level.TRACED and aval.shape[dim] % parts:
            raise Violation(f"{aval.str_short(True)}: {parts} devices do not divide dimension "
                            f"{dim}", "indivisible")
    for axis in (*state.varying, *state.unreduced, *spec.unreduced, *state.reduced,
                 *spec.reduced):
        if axis not in sizes:
            _check_axis(axis, mesh, aval)
    if level is Level.LOCAL and used:
        raise Violation(f"{aval.str_short(True)}: a per-device value is a block, and has no spec",
                        "mesh-axes")


def _check_axis(axis: Any, mesh: AbstractMesh, aval: ArrayType) -> None:
    try:
        mesh.axis_size(axis)
    except (KeyError, ValueError):
        raise Violation(f"{aval.str_short(True)} names axis {axis}, which the mesh {mesh} does "
                        "not have", "unknown-axis") from None
