"""`exchange_rows`: each device receives the rows it asks for, wherever they are, in one exchange.

It stands for a list of permutations: from each block exactly the rows that other devices lack are
sent (ir/ops/communication/row_exchange_plan.py says which). Its bytes are those of the
element-counting bound. After the direct exchanges of "Memory-efficient array redistribution"
(arXiv:2112.01075); on hardware, a ragged all-to-all.
"""
from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...diagnostics.diagnostic import fail
from ...meshes.manual_state import ManualState
from ...op import Collective, Op, defop
from ...rules.factor_axes import axis_set
from ...support.buffer_pool import empty
from ...support.caches import cached
from ...types import ArrayType
from . import group_exchange as exchange
from .collective_shapes import unrelated
from .row_exchange_plan import lacking, sent, sources

Params = dict[str, Any]


def _infer(t: ArrayType, *, axis_name: tuple[str, ...], axis_size: int, dimension: int,
           parts: tuple[int, ...], wanted: tuple) -> tuple:
    if not 0 <= dimension < t.ndim or sum(parts) != t.shape[dimension]:
        fail(ValueError, f"the parts {parts} of exchange_rows do not make up dimension {dimension} "
             f"of its operand", code="exchange-rows", label=f"the operand is {t.str_short(True)}",
             help="its parts must sum to the size of the dimension")
    for begin, end, part, start, stride in [p for run in wanted for p in run[3]]:
        inside = 0 <= part < len(parts) and stride > 0 and begin < end and start >= 0
        if not inside or start + (end - begin - 1) * stride >= parts[part] * axis_size:
            fail(ValueError, f"the piece {(begin, end, part, start, stride)} of exchange_rows lies "
                 f"outside of parts {parts} on {axis_size} devices", code="exchange-rows",
                 help="rows of a part are counted over all devices, from 0")
    shape = list(t.shape)
    shape[dimension] = sum(run[2] for run in wanted)
    return tuple(shape), t.dtype


def _state(op: Op, types: Sequence[ArrayType], params: Params) -> list[ManualState]:
    t, axes = types[0], params["axis_name"]
    if math.prod(map(t.mesh.axis_size, axes)) != params["axis_size"]:
        fail(ValueError, f"exchange_rows says that {axes} has {params['axis_size']} devices, but "
             f"the mesh has {t.mesh}", code="exchange-rows",
             help=f"give axis_size the number of devices along {axes}")
    m = t.manual
    return [ManualState(axis_set(m.varying.union(axes), t.mesh), m.unreduced, m.reduced)]


SLAB = 1 << 14             # elements for which a copy of their own costs little


@cached(1024)
def slabs(size: int, parts: tuple[int, ...], wanted: tuple) -> list[tuple[int, ...]]:
    """(member, begin, end, owner, start): rows that follow each other here and there."""
    owner, where = sources(size, parts, wanted)
    found = []
    for member in range(size):
        own, at = owner[member], where[member]
        cuts = np.flatnonzero((np.diff(own) != 0) | (np.diff(at) != 1)) + 1
        for begin, end in itertools.pairwise((0, *cuts.tolist(), len(own))):
            if end > begin and own[begin] >= 0:
                found.append((member, begin, end, int(own[begin]), int(at[begin])))
    return found


def _evaluate(x: np.ndarray, lead: int, size: int, *, axis_name: tuple[str, ...], axis_size: int,
              dimension: int, parts: tuple[int, ...], wanted: tuple) -> np.ndarray:
    """The rows that each member wants, copied slab by slab if there are few slabs, else by one
    gather of rows. Rows that nobody has are zero.
    """
    g, d = lead - 1, lead + dimension
    x = exchange.full_group(x, lead, size)
    found = slabs(size, parts, wanted)
    if len(found) <= max(64, x.size // SLAB):
        shape = list(x.shape)
        shape[d] = sum(run[2] for run in wanted)
        whole = sum(end - begin for _, begin, end, _, _ in found) == size * shape[d]
        out = empty(tuple(shape), x.dtype) if whole else np.zeros(shape, x.dtype)
        to: list[Any] = [slice(None)] * x.ndim
        source = list(to)
        for member, begin, end, owner, start in found:
            to[g], to[d] = member, slice(begin, end)
            source[g], source[d] = owner, slice(start, start + end - begin)
            out[tuple(to)] = x[tuple(source)]
        return out
    x = np.moveaxis(x, (g, d), (0, 1))
    owner, where = sources(size, parts, wanted)
    flat = np.ascontiguousarray(x).reshape(size * x.shape[1], *x.shape[2:])
    out = flat[np.maximum(owner, 0) * x.shape[1] + where]
    out[owner < 0] = np.zeros((), x.dtype)
    return np.moveaxis(out, (0, 1), (g, d))


def _wire(t: ArrayType, n: int, params: Params) -> int:
    rest = [m for d, m in enumerate(t.local_shape()) if d != params["dimension"]]
    return t.dtype.itemsize * math.prod(rest) * lacking(n, params["parts"], params["wanted"])


def _sent(t: ArrayType, n: int, params: Params) -> int:
    rest = [m for d, m in enumerate(t.local_shape()) if d != params["dimension"]]
    return t.dtype.itemsize * math.prod(rest) * sent(n, params["parts"], params["wanted"])


exchange_rows_p = defop(
    "exchange_rows",
    doc="Rows of all members' blocks along `dimension`: for each (step, offset, "
    "count, pieces) of `wanted` member i gets the places from i * step + offset on, `count` of "
    "them; pieces = (begin, end, part, start, stride) say what stands there, and zeros where none "
    "does. A fifth number divides i * step + offset, rounding down.",
    infer=_infer, rule=unrelated, explicit="follow", manual=_state,
    linear=((0,),),
    arithmetic=False, collective=Collective(
        lambda params: params["axis_name"], _evaluate, _wire, "collective-permute", sent=_sent))
