"""Divisibility of dimensions by mesh axes: which axes could split a dimension, by size alone.

A constraint that does not divide is cut, with a warning.
"""
from __future__ import annotations

import math
from typing import Any

from ...ir.diagnostics.diagnostic import Diagnostic
from ...ir.meshes.mesh import AbstractMesh
from ...ir.program import Equation
from ...ir.rewriting.rewrite import Match
from ...ir.source.wording import warn
from ...ir.support.caches import cached
from ...ir.types import ArrayType, Shape
from ..factors import Axes


def splitting_sizes(mesh: AbstractMesh) -> list[int]:
    """The sizes of the mesh axes that may split dimensions."""
    return [n for a, n in mesh.shape.items() if n > 1 and a not in mesh.manual_axes]


def may_be_split(m: Match) -> bool:
    """Is there a mesh axis that may split dimensions of a matched program?"""
    return bool(splitting_sizes(m.mesh))


@cached(4096, "shapes that all axes divide")
def rounded_up(shape: Shape, mesh: AbstractMesh, splits_few: bool) -> Shape:
    """The shape with dimensions rounded up so that every axis that may split them (`padded_size`)
    divides them, and all axes together; such are the layouts of padded blocks.
    """
    counts = part_counts(mesh)
    return tuple([-(-n // mesh.size) * mesh.size if any(
        [padded_size(n, k, splits_few) != n for k in counts]) else n for n in shape])


def padded_size(n: int, parts: int, splits_few: bool) -> int:
    """The size of a dimension that is padded to be split into parts, if it has a row for each of
    them. splits_few: or if it has several rows.
    """
    return -(-n // parts) * parts if n >= (min(2, parts) if splits_few else parts) else n


def part_counts(mesh: AbstractMesh) -> list[int]:
    """In how many parts a dimension may be split: over each axis, and over all."""
    return [n for n in dict.fromkeys((*mesh.axis_sizes, mesh.size)) if n > 1]


_given = [0]


def warnings_given() -> int:
    """How many warnings about programs being partitioned there have been."""
    return _given[0]


def warn_indivisible(eqn: Equation, aval: ArrayType, dim: int, axes: Axes, divides: Axes,
                     size: Any) -> None:
    """Warn of a constraint that does not divide, which is allowed over Auto axes."""
    _given[0] += 1
    parts = math.prod(map(size, axes))
    n = aval.shape[dim]
    lost = ", ".join(axes[len(divides):])
    warn(Diagnostic(
        f"with_sharding_constraint: dimension {dim} of size {n} is not divisible by {parts} "
        f"(axes {', '.join(axes)}); it is left replicated over {lost}",
        code="indivisible-constraint", location=eqn.location,
        label=f"this is {aval.str_short(True)}",
        help=(f"pad the dimension to {-(-n // parts) * parts}, or leave {lost} out of the spec",),
    ).render())


def dividing(axes: Axes, n: int, size: Any) -> Axes:
    """The longest prefix of axes that divides a dimension of size n."""
    divides: Axes = ()
    for a in axes:
        if n % math.prod(map(size, (*divides, a))):
            break
        divides += (a,)
    return divides
