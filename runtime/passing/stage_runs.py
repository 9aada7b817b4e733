"""Running a loop of stages (passing/stages.py): the body's plan once a device, in their order."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ir.keys import storage_dtype
from ...ir.named_tuple import NamedTuple
from ...ir.pool import empty
from ...ir.program import Var
from ..axes import MeshAtoms
from ..layout import Layout, array_shape
from ..plans.plan import Plan

if TYPE_CHECKING:
    from .stages import Stages

Arrays = list[Any]


class Given(NamedTuple):
    """What a stage takes from an array of all: see `stage_runner`.

    slot: of the array. layout: in a stage. stage: the dimension of devices, if there is one.
    iteration: that of iterations, if there is one (without that of devices); at: where it goes.
    counts: whether it goes by the order of iterations, even if items are taken from the last on.
    """
    slot: int
    layout: Layout
    stage: int | None = None
    iteration: int | None = None
    at: int = 0
    counts: bool = False


class Body(NamedTuple):
    """A stage's plan, with what it gives: by number, `sent` first, whether it is given."""
    plan: Plan
    layouts: list[Layout]
    gives: tuple[bool, ...]


class Kept(NamedTuple):
    """How the whole of a result is put together. What is of no use is left as memory has it.

    shape, dtype: of its array. stage: the dimension of devices. start: of the array that it begins
    as, which argument; -1 for none. used: devices whose part is of use. blank: whether it is zeros
    where nobody gives anything. put: writes what a device
    gives, from (part of the device, device, what it gives).
    """
    shape: tuple[int, ...]
    dtype: np.dtype
    stage: int
    start: int
    used: list[int]
    blank: bool
    put: Callable[..., None]


def put_all(mine: Any, d: int, piece: Any) -> None:
    mine[...] = piece


def put_rows(ticks: int, depth: int, rows: Sequence[slice], mine: Any, d: int, piece: Any) -> None:
    mine[(*[slice(None)] * depth, rows[d])] = (
        piece if ticks == depth else np.moveaxis(piece, ticks, depth))


def put_parts(ticks: int, depth: int, added: Sequence[int],
               places: Sequence[Sequence[tuple[int, tuple]]], mine: Any, d: int, piece: Any
               ) -> None:
    each = np.moveaxis(piece, ticks, 0)
    each = np.expand_dims(each, tuple([1 + depth + i for i in added]))
    for k, where in places[d]:
        mine[(..., *where)] = each[k]


def ticks_of(s: Stages, d: int, reverse: bool) -> slice:
    """Where the iterations of a device are among all."""
    low, high = int(s.low[d]), int(s.low[d]) + s.many
    if not reverse:
        return slice(low, high)
    return slice(s.length - 1 - low, s.length - 1 - high if high < s.length else None, -1)


def later(atoms: MeshAtoms, layout: Layout, v: Var, same: bool, axis: str
           ) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """What the first stage receives, and what a stage receives of what the one before it sent."""
    shape = array_shape(layout, v.aval.shape, atoms.size)
    dtype = storage_dtype(v.aval.dtype)

    def zeros() -> Any:
        result = empty(shape, dtype)
        result[...] = 0
        return result

    if same:
        return zeros, _itself
    labels = [x for dim in layout.dims for x in dim]
    sizes = {**atoms.size, **dict(enumerate(v.aval.shape))}
    read = tuple([sizes[x] for x in labels])
    at = labels.index(axis)
    order = (at, *[i for i in range(len(labels)) if i != at])

    def moved(array: Any) -> Any:
        result = empty(shape, dtype)
        after, before = (x.reshape(read).transpose(order) for x in (result, array))
        after[0] = 0
        after[1:] = before[:-1]
        return result
    return zeros, moved


def _itself(array: Any) -> Any:
    return array


def _where(x: Given, d: int, ticks: slice) -> tuple | None:
    """Where the part of a device lies in what a stage takes; None if it takes all."""
    where: list[Any] = [] if x.iteration is None else [*[slice(None)] * x.iteration, ticks]
    if x.stage is not None:
        where += [slice(None)] * (x.stage - len(where))
        where.insert(x.stage, d)
    return (*where, ...) if where else None


def stage_runner(s: Stages, given: Sequence[Given], bodies: Mapping[int, Body],
                 moves: Sequence[tuple[Callable[[], Any], Callable[[Any], Any]]],
                 kept: Sequence[Kept], reverse: bool) -> Callable[..., Arrays]:
    """The function of what stages take, and of arrays that results begin as.

    moves: for each thing that is passed on, what `later` gives.
    """
    order, count, passed = s.order, len(given), len(moves)
    takes = {d: [_where(x, d, ticks_of(s, d, reverse and not x.counts)) for x in given]
             for d in order}
    moved = [None if x.iteration == x.at or x.iteration is None else (x.iteration, x.at)
             for x in given]

    def stage(d: int, arrays: Sequence[Any]) -> Arrays:
        found = []
        for array, where, move in zip(arrays, takes[d], moved, strict=True):
            if where is not None:
                array = array[where]
            found.append(array if move is None else np.moveaxis(array, *move))
        return found

    def run(*arrays: Any) -> Arrays:
        wholes = []
        for x in kept:
            whole = empty(x.shape, x.dtype)
            parts = np.moveaxis(whole, x.stage, 0)
            if x.blank:
                whole[...] = 0
            if x.start >= 0:
                begun = np.moveaxis(np.broadcast_to(arrays[x.start], x.shape), x.stage, 0)
                for d in x.used:
                    parts[d] = begun[d]
            wholes.append((whole, parts))
        state: Arrays = [zeros() for zeros, _ in moves]
        for d in order:
            body = bodies[d]
            out = iter(body.plan.step([*stage(d, arrays[:count]), *state]))
            sent = [next(out) if give else None for give in body.gives[:passed]]
            for x, (_, parts), give in zip(kept, wholes, body.gives[passed:], strict=True):
                if give:
                    x.put(parts[d, ...], d, next(out))
            if d != order[-1]:
                state = [zeros() if x is None else move(x)
                         for x, (zeros, move) in zip(sent, moves, strict=True)]
        return [whole for whole, _ in wholes]

    return run
