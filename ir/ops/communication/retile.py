"""`retile`: from one tiling of a value over mesh axes to another, as one exchange.

It covers what no single named collective expresses: a permutation of devices given by two tilings
instead of a list, an all-to-all of several dimensions, or one whose receivers are permuted. Each
device receives what it lacks of its new tile and nothing else, which is the element-counting bound
(ir/ops/communication/retiling.py). Planned by partitioner/redistribution/redistribute.py, after the
direct exchanges of "Memory-efficient array redistribution" (arXiv:2112.01075).
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...diagnostics.diagnostic import fail
from ...meshes.axes import axes_overlap
from ...meshes.manual_state import ManualState
from ...op import Collective, Op, defop
from ...rules.factor_axes import axes_without, axis_set
from ...types import ArrayType
from .collective_shapes import unrelated
from .retiling import Tiling, least_shared, nested, received, retiled_shape

Params = dict[str, Any]


def _sizes(params: Params) -> dict[str, int]:
    return dict(zip(params["axes"], params["axis_sizes"], strict=True))


def _used(tiling: Tiling) -> tuple[str, ...]:
    return tuple([a for axes in tiling for a in axes])


def _infer(t: ArrayType, *, axes: tuple[str, ...], axis_sizes: tuple[int, ...], source: Tiling,
           target: Tiling) -> tuple:
    size = dict(zip(axes, axis_sizes, strict=True))
    for which, tiling in (("source", source), ("target", target)):
        used = _used(tiling)
        if len(tiling) != t.ndim:
            fail(ValueError, f"the {which} tiling of retile has {len(tiling)} dimensions, its "
                 f"operand {t.ndim}", code="retile", label=f"the operand is {t.str_short(True)}",
                 help="give an entry for each dimension, () where it is whole")
        if len(set(used)) != len(used) or not set(used) <= size.keys():
            fail(ValueError, f"the {which} tiling {tiling} of retile must use axes of {axes}, each "
                 "once", code="retile", help="add what is missing to `axes` and `axis_sizes`, and "
                 "leave out all but one mention of an axis")
    return retiled_shape(t.shape, source, target, size), t.dtype


def _state(op: Op, types: Sequence[ArrayType], params: Params) -> list[ManualState]:
    """Varying over the target's axes in place of the source's.

    Over axes that only the target uses the operand must be the same: nobody says whose is taken.
    """
    t = types[0]
    source, target = _used(params["source"]), _used(params["target"])
    for a, n in zip(params["axes"], params["axis_sizes"], strict=True):
        if t.mesh.axis_size(a) != n:
            fail(ValueError, f"retile says that axis {a} has size {n}, but the mesh has {t.mesh}",
                 code="retile", help="give axis_sizes the sizes of the mesh's axes")
    if any(axes_overlap(a, b) for a in target if a not in source for b in t.varying):
        fail(ValueError, f"retile cannot accept an operand that varies over axes which only its "
             f"target tiling has. Got {t.str_short(True)} and {params['target']}", code="retile",
             help="make it equal along them first, with a sum or a gather")
    remaining_axes = axes_without(t.varying, source, t.mesh)
    m = t.manual
    return [ManualState(axis_set(remaining_axes.union(target), t.mesh), m.unreduced, m.reduced)]


def _wire(t: ArrayType, n: int, params: Params) -> int:
    return t.dtype.itemsize * received(t.local_shape(), params["source"], params["target"],
                                       _sizes(params))


def retile_kind(shape: Sequence[int], params: Params) -> tuple[str, int]:
    """The kind of collective that a retile of blocks of this shape is, and its group's size.

    "" where nothing is received; "all-to-all" where each device keeps one n-th of its block and
    the tiles of n devices mix; "collective-permute" where blocks go to another device, whole or
    to several of them.
    """
    source, target, size = params["source"], params["target"], _sizes(params)
    if not received(shape, source, target, size):
        return "", 1
    block = math.prod(shape)
    if nested(source, target, size):
        new = math.prod(retiled_shape(shape, source, target, size))
        shared = least_shared(shape, source, target, size)
        return ("all-gather", new // block) if shared == block else ("all-to-all", new // shared)
    return "collective-permute", math.prod(size.values())


retile_p = defop(
    "retile",
    doc="Each device gets its tile of the target tiling; operand: its tile of the source "
    "tiling, the same along axes that the source does not use.",
    infer=_infer, rule=unrelated, explicit="follow", manual=_state,
    linear=((0,),),
    arithmetic=False,
    collective=Collective(lambda params: params["axes"], None, _wire, "retile"))
