"""Collectives as messages between devices: ring and pairwise algorithms.

Each function takes the devices of one replica group, in group order, the block of each, and the
wire; it gives each device's result, using of other devices' blocks only what came over the wire.
An all-reduce is a reduce-scatter and an all-gather, each of n-1 steps in which every device sends
one n-th to its neighbour. Source: Thakur, Rabenseifner, Gropp, "Optimization of Collective
Communication Operations in MPICH", IJHPCA 2005.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...ir.ops.communication.retiling import Tiling, coordinates, pieces, place, retiled_shape
from ...ir.ops.communication.row_exchange_plan import sources
from .meter import Wire

Blocks = list[np.ndarray]
Group = Sequence[int]
Combine = Callable[[np.ndarray, np.ndarray], np.ndarray]


def _reduce_chunks(group: Group, chunks: list[Blocks], combine: Combine, wire: Wire) -> Blocks:
    """chunks[i][c] is chunk c of member i; member i gets chunk i combined over all members."""
    n = len(group)
    moving = [[c for c in own] for own in chunks]
    for step in range(n - 1):
        # Chunk c travels from member c + 1 around the ring to member c.
        for i in range(n):
            c = (i - 2 - step) % n
            sender = (i - 1) % n
            arrived = wire.receive(group[i], group[sender], moving[sender][c])
            moving[i][c] = combine(arrived, chunks[i][c])
    return [moving[i][i] for i in range(n)]


def _gather_chunks(group: Group, own: Blocks, wire: Wire) -> list[Blocks]:
    """Every member gets the chunks of all, in group order."""
    n = len(group)
    have: list[list[Any]] = [[None] * n for _ in group]
    for i in range(n):
        have[i][i] = own[i]
    for step in range(n - 1):
        for i in range(n):
            c = (i - 1 - step) % n
            have[i][c] = wire.receive(group[i], group[(i - 1) % n], have[(i - 1) % n][c])
    return have


def all_reduce(group: Group, blocks: Blocks, combine: Combine, wire: Wire) -> Blocks:
    n = len(group)
    shape = blocks[0].shape
    chunks = [np.array_split(b.reshape(-1), n) for b in blocks]
    reduced = _reduce_chunks(group, chunks, combine, wire)
    return [np.concatenate(parts).reshape(shape) for parts in _gather_chunks(group, reduced, wire)]


def reduce_scatter(group: Group, blocks: Blocks, combine: Combine, wire: Wire, *, dim: int,
                   tiled: bool) -> Blocks:
    n = len(group)
    chunks = [np.split(b, n, axis=dim) for b in blocks]
    reduced = _reduce_chunks(group, chunks, combine, wire)
    return reduced if tiled else [np.squeeze(b, dim) for b in reduced]


def all_gather(group: Group, blocks: Blocks, wire: Wire, *, dim: int, tiled: bool) -> Blocks:
    join = np.concatenate if tiled else np.stack
    return [join(parts, axis=dim) for parts in _gather_chunks(group, blocks, wire)]


def all_to_all(group: Group, blocks: Blocks, wire: Wire, *, split: int, concat: int, tiled: bool
               ) -> Blocks:
    n = len(group)
    parts = [np.split(b, n, axis=split) for b in blocks]
    out = []
    for i in range(n):
        arrived = [wire.receive(group[i], group[s], parts[s][i]) for s in range(n)]
        if tiled:
            out.append(np.concatenate(arrived, axis=concat))
        else:
            out.append(np.stack([np.squeeze(a, split) for a in arrived], axis=concat))
    return out


def permute(group: Group, blocks: Blocks, wire: Wire, *, perm: Sequence[tuple[int, int]]) -> Blocks:
    out = [np.zeros_like(b) for b in blocks]
    for source, to in perm:
        out[to] = wire.receive(group[to], group[source], blocks[source])
    return out


def retile(group: Group, blocks: Blocks, wire: Wire, *, axes: Sequence[str],
           axis_sizes: Sequence[int], source: Tiling, target: Tiling) -> Blocks:
    """Every member gets the pieces of its new tile, each from a member that has it."""
    size = dict(zip(axes, axis_sizes, strict=True))
    shape = blocks[0].shape
    out = []
    for i, device in enumerate(group):
        tile = np.empty(retiled_shape(shape, source, target, size), blocks[0].dtype)
        at = coordinates(i, axes, size)
        for where, there, here in pieces(shape, source, target, axes, size, at):
            s = place(axes, where, size)
            tile[here] = wire.receive(device, group[s], blocks[s][there])
        out.append(tile)
    return out


def rows(group: Group, blocks: Blocks, wire: Wire, *, dim: int, parts: tuple[int, ...], wanted: Any
         ) -> Blocks:
    """Every member gets the rows that it wants from the members that have them."""
    owner, where = sources(len(group), parts, wanted)
    out = []
    for i, device in enumerate(group):
        shape = list(blocks[i].shape)
        shape[dim] = len(owner[i])
        block = np.zeros(shape, blocks[i].dtype)
        front = (slice(None),) * dim
        for s in np.unique(owner[i][owner[i] >= 0]).tolist():
            here = np.flatnonzero(owner[i] == s)
            block[(*front, here)] = wire.receive(
                device, group[s], blocks[s][(*front, where[i][here])])
        out.append(block)
    return out


def own_block(member: int, block: np.ndarray, count: int, dim: int) -> np.ndarray:
    """The member's block of a dimension: nothing is received."""
    return np.split(block, count, axis=dim)[member]


def exchange(group: Group, blocks: Blocks, wire: Wire, evaluate: Callable[..., np.ndarray],
             params: dict[str, Any]) -> Blocks:
    """Any collective: every member gets all blocks and computes what the op declares."""
    n = len(group)
    out = []
    for i in range(n):
        everything = np.stack([wire.receive(group[i], group[s], blocks[s]) for s in range(n)])
        result = evaluate(everything, 1, n, **params)
        out.append(np.array(result[0 if result.shape[0] == 1 else i]))
    return out
