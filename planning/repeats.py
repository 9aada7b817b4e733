"""Groups that are alike, such as those of equal layers written one after the other.

Alike are groups of equal sizes that stand alike in equal equations, whose other groups stand alike
in turn, for a few rounds (colour refinement, after Weisfeiler and Lehman). They are laid out alike:
a block that repeats is solved once, and where one block hands values to the next, it takes them as
it was handed its own. Rounds are few, so that a layer does not differ by how far it is from the
ends of the program.
"""
from __future__ import annotations

from collections.abc import Callable, Hashable

from ..ir.program import Var
from .groups import Group, Groups

ROUNDS = 2


def alike(groups: Groups, mark: Callable[[Group], Hashable]) -> dict[Group, int]:
    """Per group a number, the same for those that are alike; in the order of first appearance.

    mark: what tells groups apart besides.
    """
    every = list(dict.fromkeys(groups.of.values()))
    colours = _numbered({g: (g.sizes, g.closed, g.holds_argument, mark(g)) for g in every})
    for _ in range(ROUNDS):
        around: dict[Group, dict[Hashable, None]] = {g: {} for g in every}
        for use in groups.between:
            atoms = (*use.equation.invars, *use.equation.outvars)
            places = tuple([(colours[groups.of[a]], groups.dims[a]) if isinstance(a, Var) else None
                            for a in atoms])
            node = (use.equation.instance.identity, use.equation.types, use.runs, places)
            for t, a in enumerate(atoms):
                if isinstance(a, Var):
                    around[groups.of[a]][t, groups.dims[a], node] = None
        colours = _numbered({g: (colours[g], frozenset(around[g])) for g in every})
    return colours


def _numbered(found: dict[Group, Hashable]) -> dict[Group, int]:
    numbers: dict[Hashable, int] = {}
    return {g: numbers.setdefault(key, len(numbers)) for g, key in found.items()}
