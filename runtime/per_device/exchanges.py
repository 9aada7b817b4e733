"""Collectives as messages between devices.

Each is a generator for one replica group: it yields a round of messages and is sent those that
arrived. It takes the devices of the group, in group order, and the blocks of the local devices, by
device; it returns their results. In one process all devices are local; of several processes each
has its own, and all go through the same rounds (wire.py says what carries them).

An all-reduce is a reduce-scatter and an all-gather, in which devices exchange in pairs; every
element is combined in the order of the group, in one place, so that the result depends neither on
who has which device nor on who comes first. Source: Thakur, Rabenseifner, Gropp, "Optimization of
Collective Communication Operations in MPICH", IJHPCA 2005.
"""
from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...ir.ops.communication.retiling import Tiling, coordinates, place, retiled_shape, tile_pieces
from ...ir.ops.communication.row_exchange_plan import sources
from ..numerics import widened
from .wire import Arrived, Round

Blocks = dict[int, np.ndarray]
Group = Sequence[int]
Combine = Callable[[np.ndarray, np.ndarray], np.ndarray]
Exchange = Generator[Round, Arrived, dict[int, Any]]
Piece = tuple[int, int, Any, Any]
"""(source member, target member, part of the source's block, place in the target's result)."""


def _all_pairs(group: Group, parts: Mapping[int, Sequence[np.ndarray]],
               shapes: Sequence[Sequence[tuple[int, ...]]]) -> Round:
    """A round in which every member sends a part to every other. parts: of each local device, one
    for each member. shapes: by position of source and target in the group.
    """
    round_ = Round()
    for i, source in enumerate(group):
        for j, to in enumerate(group):
            if source in parts:
                round_.send(source, to, parts[source][j])
            if to in parts:
                round_.want(source, to, shapes[i][j])
    return round_


def _from_all(group: Group, blocks: Blocks, shapes: Sequence[tuple[int, ...]]
              ) -> Generator[Round, Arrived, dict[int, list[np.ndarray]]]:
    """For each local device the blocks of all members, in group order. shapes: of these blocks."""
    n = len(group)
    arrived = yield _all_pairs(group, {d: [b] * n for d, b in blocks.items()},
                               [[shape] * n for shape in shapes])
    return {to: [arrived[source, to][0] for source in group] for to in blocks}


def _to_each(group: Group, parts: Mapping[int, Sequence[np.ndarray]]
             ) -> Generator[Round, Arrived, dict[int, list[np.ndarray]]]:
    """For each local device the parts that all have for it. parts: of it, for each member."""
    shapes = [p.shape for p in _any(parts)]
    arrived = yield _all_pairs(group, parts, [shapes] * len(group))
    return {to: [arrived[source, to][0] for source in group] for to in parts}


def _any(of: Mapping[int, Any]) -> Any:
    """The entry of any local device; all have the same shapes."""
    return next(iter(of.values()))


def _combined(parts: Sequence[np.ndarray], combine: Combine, dtype: Any) -> np.ndarray:
    total = widened(parts[0])
    for part in parts[1:]:
        total = combine(total, widened(part))
    return total.astype(dtype, copy=False)


def all_reduce(group: Group, blocks: Blocks, combine: Combine, dtype: Any) -> Exchange:
    chunks = {d: np.array_split(b.reshape(-1), len(group)) for d, b in blocks.items()}
    arrived = yield from _to_each(group, chunks)
    reduced = {d: _combined(parts, combine, dtype) for d, parts in arrived.items()}
    whole = yield from _from_all(group, reduced, [c.shape for c in _any(chunks)])
    return {d: np.concatenate(parts).reshape(blocks[d].shape) for d, parts in whole.items()}


def reduce_scatter(group: Group, blocks: Blocks, combine: Combine, dtype: Any, *, dim: int,
                   tiled: bool) -> Exchange:
    chunks = {d: np.split(b, len(group), axis=dim) for d, b in blocks.items()}
    arrived = yield from _to_each(group, chunks)
    reduced = {d: _combined(parts, combine, dtype) for d, parts in arrived.items()}
    return reduced if tiled else {d: np.squeeze(b, dim) for d, b in reduced.items()}


def all_gather(group: Group, blocks: Blocks, *, all_gather_dimension: int, tiled: bool, **_: Any
               ) -> Exchange:
    whole = yield from _from_all(group, blocks, [_any(blocks).shape] * len(group))
    join: Any = np.concatenate if tiled else np.stack
    return {d: join(parts, axis=all_gather_dimension) for d, parts in whole.items()}


def all_to_all(group: Group, blocks: Blocks, *, split_axis: int, concat_axis: int, tiled: bool,
               **_: Any) -> Exchange:
    arrived = yield from _to_each(
        group, {d: np.split(b, len(group), axis=split_axis) for d, b in blocks.items()})
    if tiled:
        return {d: np.concatenate(parts, axis=concat_axis) for d, parts in arrived.items()}
    return {d: np.stack([np.squeeze(a, split_axis) for a in parts], axis=concat_axis)
            for d, parts in arrived.items()}


def _in_pieces(group: Group, blocks: Blocks, out: Blocks, pieces: Iterable[Piece]) -> Exchange:
    """Results assembled from pieces of blocks. out: the arrays to fill, by local device.

    The pieces come in an order that is the same in all processes.
    """
    some = _any(blocks)
    round_ = Round()
    places: list[tuple[int, int, Any]] = []
    for source, to, there, here in pieces:
        if group[source] in blocks:
            round_.send(group[source], group[to], blocks[group[source]][there])
        if group[to] in blocks:
            round_.want(group[source], group[to], some[there].shape)
            places.append((group[source], group[to], here))
    arrived = yield round_
    for source, to, here in places:
        out[to][here] = arrived[source, to].pop(0)
    return out


def permute(group: Group, blocks: Blocks, *, perm: Sequence[tuple[int, int]] | None = None,
            **params: Any) -> Exchange:
    """Whole blocks go to other members, or rows of them."""
    if perm is None:
        return rows(group, blocks, **params)
    return _in_pieces(group, blocks, {d: np.zeros_like(b) for d, b in blocks.items()},
                      [(source, to, ..., ...) for source, to in perm])


def retile(group: Group, blocks: Blocks, *, axes: Sequence[str], axis_sizes: Sequence[int],
           source: Tiling, target: Tiling) -> Exchange:
    """Every member gets the pieces of its new tile, each from a member that has it."""
    size = dict(zip(axes, axis_sizes, strict=True))
    some = _any(blocks)
    new = retiled_shape(some.shape, source, target, size)
    return _in_pieces(group, blocks, {d: np.empty(new, some.dtype) for d in blocks}, [
        (place(axes, where, size), to, there, here) for to in range(len(group))
        for where, there, here in tile_pieces(some.shape, source, target, axes, size,
                                              coordinates(to, axes, size))])


def rows(group: Group, blocks: Blocks, *, dimension: int, parts: tuple[int, ...], wanted: Any,
         **_: Any) -> Exchange:
    """Every member gets the rows that it wants from the members that have them."""
    owner, where = sources(len(group), parts, wanted)
    some = _any(blocks)
    front = (slice(None),) * dimension
    before, behind = some.shape[:dimension], some.shape[dimension + 1:]
    out = {d: np.zeros((*before, len(owner[i]), *behind), some.dtype)
           for i, d in enumerate(group) if d in blocks}
    return _in_pieces(group, blocks, out, [
        (source, to, (*front, where[to][here]), (*front, here)) for to, owners in enumerate(owner)
        for source in np.unique(owners[owners >= 0]).tolist()
        for here in [np.flatnonzero(owners == source)]])


def own_block(member: int, block: np.ndarray, count: int, dim: int) -> np.ndarray:
    """The member's own block of a dimension; nothing is received."""
    return np.split(block, count, axis=dim)[member]


def declared(group: Group, blocks: Blocks, evaluate: Callable[..., np.ndarray],
             params: dict[str, Any], widen: bool) -> Exchange:
    """Any collective: every member gets all blocks and evaluates the op on them."""
    n = len(group)
    whole = yield from _from_all(group, blocks, [_any(blocks).shape] * n)
    out = {}
    for d, parts in whole.items():
        everything = np.stack([widened(p) for p in parts] if widen else parts)
        result = evaluate(everything, 1, n, **params)
        out[d] = np.array(result[0 if result.shape[0] == 1 else group.index(d)])
    return out


def from_first(group: Group, values: Mapping[int, Sequence[np.ndarray]],
              types: Sequence[tuple[tuple[int, ...], Any]]) -> Exchange:
    """The values of the first member, at all local devices. values: by local device; only those of
    the first member are used. types: shape and dtype of each.
    """
    round_ = Round()
    for to in group:
        for value in values.get(group[0], ()):
            round_.send(group[0], to, value)
        for shape, dtype in types if to in values else ():
            round_.want(group[0], to, shape, dtype)
    arrived = yield round_
    return {d: arrived[group[0], d] for d in values}


# By kind of collective. Each takes the params of the op.
EXCHANGES: dict[str, Callable[..., Exchange]] = {
    "all-gather": all_gather, "all-to-all": all_to_all, "collective-permute": permute,
    "retile": retile}
