"""How the rows of a group are cut into blocks, for operands that lie in memory in a certain way.

A block is so many rows that a value of it has about `BLOCK` bytes. Blocks are independent, so
large groups are evaluated by one thread per core.
"""
from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...ir.program import Equation
from ...ir.support.buffer_pool import empty
from ..calls.permuted import Moves, source_of, starts
from .cores import in_parallel, share_count
from .steps import Act, Values
from .values import Value

Shape = tuple[int, ...]
BLOCK = 1 << 19                 # bytes of the largest value in a block
PIECES = 2                      # a thread's, of what need not be cut into blocks


class Group:
    """A group that is ready to be evaluated.

    values: the operands are the first. outputs: numbers of the results. scratch: the part
    of a row, and the dtype, that each buffer holds. acts: the steps, and of which call they are.
    cost: of all steps for one row, in cheap ones. is_one_pass: whether memory is read only once.
    shapes: into which rows come. widest: bytes of a row's largest value. is_flat: whether rows are
    single elements. moved: operands, by number, whose blocks are elsewhere, `count` in each.
    is_lone: whether it is one step for one thread, of scalars and operands of
    the result's shape.
    """

    __slots__ = ("acts", "cost", "count", "in_place", "in_scratch", "is_flat", "is_lone",
                 "is_one_pass", "moved", "outputs", "scratch", "shapes", "values", "widest")

    def __init__(self, values: list[Value], outputs: list[int],
                 scratch: list[tuple[Shape, np.dtype]], acts: list[tuple[Act, int | None]],
                 cost: int, is_one_pass: bool, moved: Mapping[int, Moves]) -> None:
        self.values = values
        self.outputs = outputs
        self.scratch = scratch
        self.acts = acts
        self.cost = cost
        self.is_one_pass = is_one_pass
        self.moved = moved
        self.count = next((m.count for m in moved.values()), 1)
        self.in_place: list[tuple[int, int]] = []
        self.in_scratch: list[tuple[int, int]] = []
        self.is_flat = True
        self.widest = 0
        shapes: dict[Shape, None] = {}
        for i, x in enumerate(values):
            if x.rows is not None:
                shapes[x.rows] = None
            if x.rest:
                self.is_flat = False
            width = x.dtype.itemsize
            for n in x.actual:
                width *= n
            if width > self.widest:
                self.widest = width
            if x.buffer is not None:
                kind, j = x.buffer
                (self.in_place if kind == "out" else self.in_scratch).append((i, j))
        self.shapes = tuple(shapes)
        out = values[-1]
        self.is_lone = (
            is_one_pass and not scratch and not moved and outputs == [len(values) - 1]
            and all([not x.shape or x.shape == out.shape and x.actual == x.rest for x in values])
            and share_count(math.prod(out.shape) * max(cost, 1), sum(
                [math.prod(x.shape) * x.dtype.itemsize for x in values])) == 1)

    def at_once(self, given: Sequence[Any], eqns: Sequence[Equation | None]) -> list[Any]:
        """The result of a lone step, for C-contiguous operands."""
        out = self.values[-1]
        result = empty(out.shape, out.dtype)
        unused = len(self.values) - len(given) - 1      # what steps that became one had between
        self.follow([*given, *[None] * unused, result], out.shape, eqns)
        return [result]

    def follow(self, at: Values, rows: Shape, eqns: Sequence[Equation | None]) -> None:
        """Do all steps on one block. at: by value the array of the block, then of the results.

        eqns: of each call, for who reads an error.
        """
        call: int | None = None
        try:
            for act, call in self.acts:      # noqa: B007
                act(at, rows)
        except Exception as error:
            eqn = None if call is None else eqns[call]
            if eqn is not None:
                error.add_note(f"while running `{eqn.op.name}` of {eqn.location}")
            raise


class Frame:
    """A group for operands with given strides: how its rows are cut into blocks.

    dims: the sizes into which the rows are told apart, so that every operand has one stride along
    each. cut: the dimension of these that is sliced; `size` along it in a block.
    """

    __slots__ = ("blocks", "dims", "fine", "group", "inner", "moved", "operands", "order",
                 "results", "shares", "size")

    def __init__(self, group: Group, given: Sequence[Any]) -> None:
        self.group = group
        values = group.values
        fine = _refined(group.shapes)
        if group.moved:
            fine = _in_front(fine, group.count)
        depth = len(fine)
        strides = [(x if x.shape == fine + v.rest else x.reshape(fine + v.rest)).strides[:depth]
                   for x, v in zip(given, values, strict=False) if v.rows is not None]
        self.order = None
        if group.is_flat and not group.moved and all([_plain(x) == fine for x in group.shapes]):
            self.order = _order(fine, strides)
        self.fine = fine
        if self.order is not None:
            fine = tuple(fine[d] for d in self.order)
            strides = [tuple(s[d] for d in self.order) for s in strides]
        self.dims = dims = _merged(fine, strides)
        rows = math.prod(dims)
        self.results = [(values[o].shape, dims + values[o].rest, values[o].dtype)
                        for o in group.outputs]
        moved = sum([math.prod(shape) * dtype.itemsize for shape, _, dtype in self.results])
        moved += sum([x.nbytes for x in given if 0 not in x.strides])
        self.shares = share_count(rows * group.cost, moved)
        per = max(1, BLOCK // group.widest)
        if group.is_one_pass:               # nothing is kept in the cache from step to step
            per = max(per, -(-rows // (1 if self.shares == 1 else PIECES * self.shares)))
        cut = len(dims) - 1
        below = 1
        while cut > 0 and below * dims[cut] < per:
            below *= dims[cut]
            cut -= 1
        self.size = size = max(1, min(dims[cut], per // below))
        self.inner = dims[cut + 1:]
        ends = [0, dims[cut]]
        self.moved: list[tuple[int, list[int], int]] = []
        if group.moved:
            per = dims[0] // group.count
            self.moved = [(i, m.offsets, per) for i, m in group.moved.items()]
            if not cut:
                ends = [*starts(group.moved.values(), dims[0]), dims[0]]
        self.blocks = [(*outer, slice(i, min(i + size, end)))
                       for outer in itertools.product(*(range(n) for n in dims[:cut]))
                       for start, end in itertools.pairwise(ends)
                       for i in range(start, end, size)]

        self.operands = [(i, None if v.rows is None else dims + v.rest, v.rows is None)
                         for i, v in enumerate(values[:len(given)])]

    def run(self, given: Sequence[Any], eqns: Sequence[Equation | None],
            memory: Mapping[int, Any]) -> list[Any]:
        """The results. memory: C-contiguous arrays for some of them, by number."""
        order = self.order
        at: Values = list(given)
        for i, shape, scalar in self.operands:
            if scalar:
                continue
            x = at[i]
            if order is not None:
                x = x.reshape(self.fine).transpose(order)
            at[i] = x if x.shape == shape else x.reshape(shape)
        results: list[Any] = []
        wholes: list[Any] = []
        for j, (shape, rows, dtype) in enumerate(self.results):
            if j in memory and order is None:
                x = memory[j]
                results.append(x)
            elif order is not None:
                x = empty(tuple(self.fine[d] for d in order), dtype)
                results.append(x.transpose(_inverse(order)).reshape(shape))
            else:
                x = empty(shape, dtype)
                results.append(x)
            wholes.append(x if x.shape == rows else x.reshape(rows))
        blocks, shares = self.blocks, min(self.shares, len(self.blocks))
        if len(blocks) == 1:
            self._single(at, wholes, eqns)
        elif shares == 1:
            self._several(at, wholes, blocks, self._memory(), eqns)
        else:                               # memory is taken here, or runs would need it by chance
            source = iter(blocks)
            in_parallel([functools.partial(self._several, at, wholes, source, self._memory(), eqns)
                         for _ in range(shares)])
        if order is not None:
            for j, x in memory.items():
                np.copyto(x, results[j])
                results[j] = x
        return results

    def _memory(self) -> list[Any]:
        rows = (self.size, *self.inner)
        return [empty(rows + rest, dtype) for rest, dtype in self.group.scratch]

    def _single(self, given: Values, wholes: list[Any], eqns: Sequence[Equation | None]) -> None:
        """All rows at once."""
        group = self.group
        at: Values = [*given, *[None] * (len(group.values) - len(given)), *wholes]
        for i, j in group.in_place:
            at[i] = wholes[j]
        memory = self._memory()
        for i, k in group.in_scratch:
            at[i] = memory[k]
        group.follow(at, self.dims, eqns)

    def _several(self, given: Values, wholes: list[Any], blocks: Iterable[tuple],
                 memory: list[Any], eqns: Sequence[Equation | None]) -> None:
        """Some of the blocks, one after the other; an iterator may be several threads' source."""
        group, inner, count = self.group, self.inner, len(self.group.values)
        in_place, in_scratch, follow = group.in_place, group.in_scratch, group.follow
        at: Values = [*given, *[None] * (count - len(given)), *wholes]
        moved = [(i, given[i], offsets, per) for i, offsets, per in self.moved]
        elsewhere = {i for i, _, _ in self.moved}
        operands = [(i, given[i]) for i, _, scalar in self.operands
                    if not scalar and i not in elsewhere]
        rows: Shape = ()
        for block in blocks:
            last = block[-1]
            size = last.stop - last.start
            if not rows or size != rows[0]:
                rows = (size, *inner)
                for i, k in in_scratch:
                    at[i] = memory[k][:size]
            for i, x in operands:
                at[i] = x[block]
            for i, x, offsets, per in moved:
                at[i] = x[source_of(block, offsets, per)]
            outs = [w[block] for w in wholes]
            at[count:] = outs
            for i, j in in_place:
                at[i] = outs[j]
            follow(at, rows, eqns)


def _refined(shapes: Sequence[Shape]) -> Shape:
    """The coarsest sizes of which those of every shape are products, all having one product.

    Where shapes have no such sizes (6 x 20 and 10 x 12), rows are not told apart: one size.
    """
    if len(shapes) == 1:
        return tuple([n for n in shapes[0] if n != 1]) or (1,)
    ends = {1}
    for shape in shapes:
        count = 1
        for n in shape:
            count *= n
            ends.add(count)
    sizes = sorted(ends)
    if any([b % a for a, b in itertools.pairwise(sizes)]):
        return (sizes[-1],)
    return tuple([b // a for a, b in itertools.pairwise(sizes)]) or (1,)


def _in_front(sizes: Shape, count: int) -> Shape:
    """Sizes of the same product of which the first is a multiple of `count`."""
    done = 1
    for i, n in enumerate(sizes):
        if count % done == 0 and n % (count // done) == 0:
            return (count, *[m for m in (n * done // count, *sizes[i + 1:]) if m != 1])
        done *= n
    return (math.prod(sizes),)


def _merged(dims: Shape, strides: Sequence[tuple[int, ...]]) -> Shape:
    """The sizes with neighbours made one where all strides allow it."""
    out = [dims[0]]
    for d in range(1, len(dims)):
        if all([s[d - 1] == s[d] * dims[d] for s in strides]):
            out[-1] *= dims[d]
        else:
            out.append(dims[d])
    return tuple(out)


def _plain(shape: Shape) -> Shape:
    return tuple([n for n in shape if n != 1]) or (1,)


def _order(dims: Shape, strides: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    """The order of dimensions in which the operands lie in memory; None if it is the given one."""
    full = [s for s in strides if 0 not in s]
    if not full:
        return None
    order = tuple(sorted(range(len(dims)), key=lambda d: -abs(full[0][d])))
    return None if order == tuple(range(len(dims))) else order


def _inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(order.index(d) for d in range(len(order)))
