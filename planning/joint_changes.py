"""Candidate plans in which the layouts of all split parameters change together.

A climb that changes one group at a time does not pass between plans that are good only as a whole:
exchanges of parameters overlap and combine, and a small exchange takes its latency, none of which
the model sees. These are the ways in which such plans are written by hand: a least size from which
parameters are split at all, or none, fewer mesh axes for all of them, the first dimension of each,
and for an axis the dimension that most parameters have (the width of a model).
"""
from __future__ import annotations

import collections
import math
from collections.abc import Callable, Iterator, Sequence

from .model.model import GroupLayout, Model
from .roles import Roles

PARTS = 0.25, 0.5, 0.75    # of the split parameters, the smallest first, that are held whole


def moved_together(model: Model, roles: Roles, own: Sequence[int]) -> list[tuple[int, ...]]:
    """Other choices than a given one, none twice."""
    parameters = sorted([g for g, group in enumerate(model.groups) if group.holds_argument
                         and not roles.is_data(group)],
                        key=lambda g: (math.prod(model.groups[g].sizes), g))
    split = [g for g in parameters if any(model.layouts[g][own[g]])]

    def changed(new: Callable[[int, GroupLayout], GroupLayout], choice: Sequence[int] = own
                ) -> tuple[int, ...]:
        found = list(choice)
        for g in split:
            layouts = model.layouts[g]
            layout = new(g, layouts[choice[g]])
            if layout in layouts:
                found[g] = layouts.index(layout)
        return tuple(found)

    def along_first(g: int, layout: GroupLayout) -> GroupLayout:
        axes, rank = tuple([a for e in layout for a in e]), len(layout)
        found = [tuple([axes if d == first else () for d in range(rank)]) for first in range(rank)]
        return next((new for new in found if new in model.layouts[g]), layout)

    def common(axis: str) -> int:
        """The class of dimensions that most of the parameters have that an axis splits."""
        found = collections.Counter([
            c for g in split if any(axis in e for e in model.layouts[g][own[g]])
            for c in dict.fromkeys(roles.of[model.groups[g]])])
        return max(found, key=lambda c: (found[c], -c), default=-1)

    def along(axis: str, role: int) -> Callable[[int, GroupLayout], GroupLayout]:
        def new(g: int, layout: GroupLayout) -> GroupLayout:
            to = [d for d, c in enumerate(roles.of[model.groups[g]]) if c == role][:1]
            if not to or not any(axis in e for e in layout):
                return layout
            return tuple([(*[a for a in e if a != axis], *([axis] if [d] == to else []))
                          for d, e in enumerate(layout)])
        return new

    def without(axis: str) -> Callable[[int, GroupLayout], GroupLayout]:
        return lambda _, layout: tuple([tuple([a for a in e if a != axis]) for e in layout])

    def all_split() -> tuple[int, ...]:
        """With those that are whole along their largest dimension over the axes of most others; but
        scales and biases.
        """
        found = list(own)
        (axes, _), = collections.Counter([tuple([a for e in model.layouts[g][own[g]] for a in e])
                                          for g in split]).most_common(1)
        for g in parameters:
            group = model.groups[g]
            if g not in split and len(group.sizes) - len(group.closed) > 1:
                d = max(range(len(group.sizes)), key=lambda d: (group.sizes[d], -d))
                layout = tuple([axes if d == k else () for k in range(len(group.sizes))])
                if layout in model.layouts[g]:
                    found[g] = model.layouts[g].index(layout)
        return tuple(found)

    def choices() -> Iterator[tuple[int, ...]]:
        yield all_split()
        for part in PARTS:
            small = {*split[:int(part * len(split))]}
            yield changed(lambda g, layout, small=small: tuple([  # type: ignore[misc]
                () if g in small else e for e in layout]))
        moved = changed(along_first)
        yield moved
        for axis, n in model.mesh.shape.items():
            if n > 1:
                yield changed(without(axis))
                yield changed(without(axis), moved)
                yield changed(along(axis, common(axis)))

    return [choice for choice in dict.fromkeys(choices()) if choice != tuple(own)] if split else []
