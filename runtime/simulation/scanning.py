"""Runs scans and while loops: one run of the body's plan per iteration.

Items are views, from numpy's own iteration; stacked results are written into preallocated arrays.
"""
from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...ir.support.buffer_pool import empty
from ..plans import plan as plans
from ..plans.loops import scan_function, while_function
from ..plans.plan import TIMED, LoopBody, Plan

Arrays = list[Any]
Stack = tuple[tuple[int, ...], np.dtype, int]
"""The array that collects a result of all iterations: shape, dtype, the dimension of iterations."""


def scan_runner(body: LoopBody, fixed: int, carries: int, depths: Sequence[int], length: int,
                reverse: bool, stacks: Sequence[Stack],
                shifted: Sequence[tuple[int, int, int]] = ()) -> Callable[..., Arrays]:
    """The scan as a function of (mask and constants, carry, items).

    fixed, carries: how many operands there are of the first kinds. depths: for each item the
    dimension that is iterated over. reverse: from the last item to the first.
    shifted: (carry, before, after): stacks that hold this carry before and after each iteration.
    They share memory, since all but one item are the same.
    """
    before = {a for _, a, _ in shifted}
    pairs = {k for _, *both in shifted for k in both}
    numbers = [i for i in range(len(stacks)) if i not in before]
    iterations = 0
    compiled = functools.cache(lambda: scan_function(
        body.plan, fixed, carries, [carries + i for i in numbers]))

    def run(*arrays: Any) -> Arrays:
        nonlocal iterations
        head, carry = arrays[:fixed], arrays[fixed:fixed + carries]
        ys: Arrays = [None if k in pairs else empty(shape, dtype)
                      for k, (shape, dtype, _) in enumerate(stacks)]
        for c, a, b in shifted:
            shape, dtype, _ = stacks[b]
            both = empty((length + 1, *shape[1:]), dtype)
            ys[a], ys[b] = (both[1:], both[:-1]) if reverse else (both[:-1], both[1:])
            both[-1 if reverse else 0] = carry[c]
        if not length:
            return [*carry, *ys]
        carry = body.with_copies(carry)
        items = [_items(x, depth, reverse)
                 for x, depth in zip(arrays[fixed + carries:], depths, strict=True)]
        places = [np.moveaxis(y, depth, 0) if depth else y
                  for y, (_, _, depth) in zip(ys, stacks, strict=True)]
        rest = [(places[i], carries + i) for i in numbers]
        order = range(length - 1, -1, -1) if reverse else range(length)
        each = zip(*items, strict=True) if items else itertools.repeat(())
        iterations += length
        if iterations > plans.FEW * plans.ROUNDS and TIMED.recorder is None:
            return [*compiled()(head, carry, order, each, [y for y, _ in rest]), *ys]
        for i, here in zip(order, each, strict=False):
            out = body.plan.call_by_call([*head, *carry, *here])
            carry = out[:carries]
            for y, number in rest:
                y[i] = out[number]
        return [*carry, *ys]

    return run


def while_runner(test: Plan, body: LoopBody, counts: tuple[int, int, int]
                 ) -> Callable[..., Arrays]:
    """The loop as a function of (mask, constants of test and body, carry).

    counts: of all operands but the carry.
    """
    masks, nt, nb = counts
    iterations = 0
    compiled = functools.cache(lambda: while_function(test, body.plan, masks + nt, masks + nb))

    def run(*arrays: Any) -> Arrays:
        nonlocal iterations
        mask, rest = arrays[:masks], arrays[masks:]
        carry: Sequence[Any] = rest[nt + nb:]
        asked, head = [*mask, *rest[:nt]], [*mask, *rest[nt:nt + nb]]
        is_copied = False
        while test.call_by_call([*asked, *carry])[0]:
            if not is_copied:
                is_copied, carry = True, body.with_copies(carry)
            iterations += 1
            if iterations > plans.FEW * plans.ROUNDS and TIMED.recorder is None:
                return compiled()(asked, head, carry)
            carry = body.plan.call_by_call([*head, *carry])
        return list(carry)

    return run


def _items(x: Any, depth: int, reverse: bool) -> Any:
    """The slices of an array along a dimension, in the order of iteration."""
    if depth:
        x = np.moveaxis(x, depth, 0)
    if x.ndim == 1:                 # as 0-dimensional arrays, not numpy scalars
        x = [x[i, ...] for i in range(len(x))]
    return x[::-1] if reverse else x
