"""The layout in which a concatenation runs: Shardy brings all operands to one layout first.

Each factor gets the axes that the largest tensors have along it. The axes of factors that cannot be
split go to the factors that all tensors have, as far as the axes divide them.
"""
from __future__ import annotations

from collections.abc import Iterable, Sequence

from ....ir.meshes.axes import axes_overlap
from ....ir.meshes.mesh import BaseMesh
from ....ir.rules.factor import PASS
from ...factors import Axes, RuleInfo
from ..costs import parts_of


def common_axes(info: RuleInfo, parts: Sequence[dict[int, Axes]], sizes: Sequence[int],
                whole: Iterable[int], mesh: BaseMesh) -> dict[int, Axes]:
    """The axes of each factor. parts: the axes that operands and results have; sizes: their
    elements; whole: the factors that cannot be split.
    """
    weights: dict[tuple[int, Axes], int] = {}
    for part, size in zip(parts, sizes, strict=True):
        for f, axes in part.items():
            for k in range(1, len(axes) + 1):
                weights[f, axes[:k]] = weights.get((f, axes[:k]), 0) + size
    found: dict[int, Axes] = {}
    left = [(f, axes, weight) for (f, axes), weight in weights.items()]

    def rank(candidate: tuple[int, Axes, int]) -> tuple:
        f, axes, weight = candidate
        more = parts_of(mesh, axes[len(found.get(f, ())):])
        return weight, info.factors[f].kind == PASS, more, f, axes
    while left:
        best, taken, _ = max(left, key=rank)
        found[best] = taken
        rest = [(f, axes if f == best else _before(axes, taken), n) for f, axes, n in left]
        left = [(f, axes, n) for f, axes, n in rest if axes != (now := found.get(f, ()))
                and axes[:len(now)] == now]
    for f in whole:
        axes = found.pop(f, ())
        for g, factor in enumerate(info.factors):
            while (axes and factor.kind == PASS and len(info.positions[g]) == len(parts)
                   and factor.size % parts_of(mesh, (*found.get(g, ()), axes[0])) == 0):
                found[g], axes = (*found.get(g, ()), axes[0]), axes[1:]
    return found


def _before(axes: Axes, others: Axes) -> Axes:
    """The first axes, up to one that overlaps others."""
    return next((axes[:k] for k, a in enumerate(axes) if any(
        [axes_overlap(a, b) for b in others])), axes)
