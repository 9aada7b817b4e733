"""Sums over devices in the form in which more of them can be combined.

Small exchanges over one group count as one. So an all-reduce over x and y, which is an exchange of
its own beside one over x, may take two steps: over y, and over x with the other. And a small
reduce-scatter may be an all-reduce of which each device cuts its block, where there is an
all-reduce over its axes. Each form is priced.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ...ir.inference.infer import infer
from ...ir.op import Op
from ...ir.ops.communication.collective import all_slice_p, psum_invariant_p, reduce_scatter_p
from ...ir.program import Equation, Program, Var
from ..cost.prices import Prices
from ..reasons import is_written

Axes = tuple[str, ...]
Combinable = tuple[Iterable[Equation], Mapping[Equation, Any]]
"""The exchanges that can be combined, and the group of each that has others in it."""
Form = Callable[[Equation], Sequence[tuple[Op, dict[str, Any]]]]
"""The steps that a sum takes, each with its params."""
_TRIES = 4


def in_cheapest_forms(program: Program, prices: Prices, combinable: Combinable,
                      regroup: Callable[[Program], Combinable]) -> tuple[Program, Any]:
    """(the LOCAL program, without nested ones, with its sums in the cheapest forms; its exchanges).
    combinable: those of the program as it is. regroup: returns those of another one.
    """
    forms = [*_forms(combinable[0])]
    if not forms:
        return program, combinable
    best, least = (program, combinable), _price(combinable, prices)
    for which, form in forms:
        tried = _rewritten(program, which, form)
        combinable = regroup(tried)
        cost = _price(combinable, prices)
        if cost < least:
            best, least = (tried, combinable), cost
    return best


def _price(combinable: Combinable, prices: Prices) -> int:
    """The price of the exchanges that can be combined."""
    every, grouped = combinable
    members: dict[object, list[Equation]] = {}
    for eqn in every:
        members.setdefault(grouped.get(eqn, eqn), []).append(eqn)
    return sum([prices.exchange_of(eqns[0]).of(sum([e.invars[0].aval.local_nbytes for e in eqns]))
                for eqns in members.values()])


def _forms(small: Iterable[Equation]) -> Iterator[tuple[set[Equation], Form]]:
    """Some of these exchanges, with another form of theirs that may have company."""
    sums: dict[Axes, set[Equation]] = {}
    scattered: dict[frozenset[str], set[Equation]] = {}
    for eqn in small:
        if eqn.op is psum_invariant_p:
            sums.setdefault(eqn.params["axes"], set()).add(eqn)
        elif eqn.op is reduce_scatter_p and not is_written(eqn):
            scattered.setdefault(frozenset(eqn.params["axis_name"]), set()).add(eqn)
    tries = [(axes, part) for axes in sums for part in sums
             if len(part) < len(axes) and {*part} < {*axes}]
    rests = [(axes, part, tuple([a for a in axes if a not in part])) for axes, part in tries]
    for axes, *steps in dict.fromkeys([(axes, *steps) for axes, part, rest in rests[:_TRIES]
                                       for steps in ((rest, part), (part, rest))]):
        yield sums[axes], partial(_in_steps, steps)
    for axes in [axes for axes in sums if frozenset(axes) in scattered][:_TRIES]:
        yield scattered[frozenset(axes)], partial(_cut_afterwards, axes)


def _in_steps(steps: Sequence[Axes], eqn: Equation) -> list[tuple[Op, dict[str, Any]]]:
    return [(eqn.op, {**eqn.params, "axes": axes}) for axes in steps]


def _cut_afterwards(axes: Axes, eqn: Equation) -> list[tuple[Op, dict[str, Any]]]:
    said = eqn.params
    return [(psum_invariant_p, {"axes": axes}),
            (all_slice_p, {"axes": said["axis_name"], "axis_size": said["axis_size"],
                           "dimension": said["scatter_dimension"]})]


def _rewritten(program: Program, which: set[Equation], form: Form) -> Program:
    """The program with these sums in this form."""
    eqns: list[Equation] = []
    for eqn in program.eqns:
        if eqn not in which:
            eqns.append(eqn)
            continue
        first, last = form(eqn)
        (aval,) = infer(first[0], (eqn.invars[0].aval,), first[1], program.mesh)
        half = Var(aval)
        eqns.append(eqn.replace(op=first[0], outvars=(half,), params=first[1]))
        eqns.append(eqn.replace(op=last[0], invars=(half,), params=last[1]))
    return program.replace(eqns=eqns)
