"""Plans with names: data parallelism, FSDP, tensor and sequence parallelism, and their mixtures.

A plan uses each mesh axis in one of these ways (roles.py finds the dimensions):

    data      it splits the batch; parameters are whole
    FSDP      it splits the batch and the largest dimension of each parameter, gathered when used
    tensor    it splits the inner dimension of each parameter (hidden, heads, experts, vocabulary),
              and the dimensions of values that follow from it
    sequence  it splits the sequence; parameters are whole
    tensor+sequence  as tensor; values without the inner dimension are split along the sequence
    FSDP+sequence    it splits the sequence, and parameters as in FSDP

Scales and biases stay whole, as do other parameters that are small compared with the largest (such
as the factors of adapters), if that costs no more. A named plan is a choice of layouts in the model
(model.py), so it can be judged and improved like any other.
"""
from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from ..ir.support.named_tuple import NamedTuple
from .model.groups import Group
from .model.model import GroupLayout, Model
from .roles import Roles

JOBS = ("data", "FSDP", "tensor", "sequence", "tensor+sequence", "FSDP+sequence")
NAMES = {"data": "data parallel", "FSDP": "FSDP", "tensor": "tensor parallel",
         "sequence": "sequence parallel", "tensor+sequence": "tensor and sequence parallel",
         "FSDP+sequence": "FSDP over the sequence"}
SMALL = 20              # parts of the largest parameter, of which a small one has one at most
_GATHERED = ("FSDP", "FSDP+sequence")
_INNER = ("tensor", "tensor+sequence")


class NamedChoice(NamedTuple):
    """choice: the number of a layout for each group."""
    name: str
    choice: tuple[int, ...]


def named_plans(model: Model, roles: Roles) -> list[NamedChoice]:
    """The named plans that a mesh allows, without those that equal an earlier one."""
    axes = [a for a, n in model.mesh.shape.items() if n > 1]
    found: dict[tuple[int, ...], str] = {}
    lacks = [word for word, there in (("sequence", roles.sequence is not None),
                                      ("FSDP", roles.batch is not None),
                                      ("data", roles.batch is not None),
                                      ("tensor", bool(roles.inner_classes))) if not there]
    for jobs in _mixtures(axes):
        if any(word in job for job in jobs.values() for word in lacks):
            continue
        choice = tuple([_number(model, g, _layout(model, roles, g, jobs))
                        for g in range(len(model.groups))])
        found.setdefault(_small_whole(model, roles, choice), _name(jobs))
    return [NamedChoice(name, choice) for choice, name in found.items()]


def _mixtures(axes: Sequence[str]) -> Iterator[dict[str, str]]:
    """Jobs of all axes: one job for all, then two, each on some of them."""
    for job in JOBS:
        yield dict.fromkeys(axes, job)
    if len(axes) > 1:
        for first in itertools.product((True, False), repeat=len(axes)):
            if any(first) and not all(first):
                for one in ("data", "FSDP"):
                    for other in ("tensor", "tensor+sequence", "sequence", "FSDP+sequence",
                                  *(("FSDP",) if one == "data" else ())):
                        yield {a: one if own else other
                               for a, own in zip(axes, first, strict=True)}


def _name(jobs: dict[str, str]) -> str:
    by_job: dict[str, list[str]] = {}
    for a, job in jobs.items():
        by_job.setdefault(job, []).append(a)
    if len(by_job) == 1:
        return NAMES[next(iter(by_job))]
    return " x ".join([f"{NAMES[job]} ({', '.join(axes)})" for job, axes in by_job.items()])


def _layout(model: Model, roles: Roles, g: int, jobs: dict[str, str]) -> GroupLayout:
    """How a plan lays out a group."""
    group, of = model.groups[g], roles.of[model.groups[g]]
    layout: list[tuple[str, ...]] = [()] * len(group.sizes)

    def put(axis: str, dims: Sequence[int]) -> bool:
        for d in dims:
            trial = (*layout[d], axis)
            parts = 1
            for a in trial:
                parts *= model.mesh.axis_size(a)
            if d not in group.closed and group.sizes[d] % parts == 0:
                layout[d] = trial
                return True
        return False

    def places(role: int | None) -> list[int]:
        # of two dimensions of one class, as the queries and keys of scores, the first
        return [] if role is None else [d for d, c in enumerate(of) if c == role][:1]

    if roles.is_data(group):
        for a, job in jobs.items():
            if job in ("data", "FSDP"):
                put(a, places(roles.batch))
            elif job in ("sequence", "FSDP+sequence"):
                put(a, places(roles.sequence))
            elif not put(a, _inner_of_values(roles, group)) and job == "tensor+sequence":
                put(a, places(roles.sequence))
    elif group.holds_argument:
        inner = [a for a, job in jobs.items() if job in _INNER]
        gathered = [a for a, job in jobs.items() if job in _GATHERED]
        if len(group.sizes) - len(group.closed) > 1:      # not a scale or a bias
            for a in inner:
                put(a, roles.inner(group, [model.mesh.axis_size(a)])[:1])
            taken = [d for d, own in enumerate(layout) if own]
            largest = sorted(range(len(group.sizes)), key=lambda d: (-group.sizes[d], d))
            for a in gathered:
                put(a, [d for d in largest if d not in taken] + taken)
    return tuple(layout)


def _small_whole(model: Model, roles: Roles, choice: Sequence[int]) -> tuple[int, ...]:
    """A choice with small parameters whole where that costs no more."""
    found = list(choice)
    sizes = {g: math.prod(group.sizes) for g, group in enumerate(model.groups)
             if group.holds_argument and not roles.is_data(group)}
    most = max(sizes.values(), default=0) / SMALL
    for g, size in sizes.items():
        whole = len(model.layouts[g]) - 1
        if size <= most and not any(model.layouts[g][whole]):
            costs = model.group_costs(g, found)
            if costs[whole] <= costs[found[g]]:
                found[g] = whole
    return tuple(found)


def _inner_of_values(roles: Roles, group: Group) -> list[int]:
    """The dimensions of an activation that parameters split by their inner dimension give it."""
    return [d for d, c in enumerate(roles.of[group])
            if c in roles.inner_classes and c not in (roles.batch, roles.sequence)]


def _number(model: Model, g: int, wanted: GroupLayout) -> int:
    """The number of a layout; where a group may not take it, that of the one most like it."""
    layouts = model.layouts[g]
    if wanted in layouts:
        return layouts.index(wanted)

    def unlike(n: int) -> tuple[int, int]:
        pairs = zip(layouts[n], wanted, strict=True)
        return sum([len({*a} ^ {*b}) for a, b in pairs]), -n

    return min(range(len(layouts)), key=unlike)
