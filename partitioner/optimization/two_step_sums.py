"""Splits an all-reduce over several mesh axes into two steps where that saves an exchange.

An all-reduce over x and y is an exchange of its own, even if there is one over x that it could be
combined with after a sum over y. So three forms are priced: one step, and two steps in either
order. Small exchanges over one group count as one.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...ir.inference.infer import infer
from ...ir.ops.communication.collective import psum_invariant_p
from ...ir.program import Equation, Program, Var
from ..cost.prices import Prices

Axes = tuple[str, ...]
Combinable = tuple[Iterable[Equation], Mapping[Equation, Any]]
"""The exchanges that can be combined, and the group of each that has others in it."""
_TRIES = 4


def in_two_steps(program: Program, prices: Prices, combinable: Combinable,
                 regroup: Callable[[Program], Combinable]) -> tuple[Program, Any]:
    """(the LOCAL program, without nested ones, with its sums in as many steps as is cheapest; its
    exchanges). combinable: those of the program as it is. regroup: returns those of another one.
    """
    small = [eqn for eqn in combinable[0] if eqn.op is psum_invariant_p]
    known = {eqn.params["axes"]: None for eqn in small}
    tries = [(axes, part) for axes in known for part in known
             if len(part) < len(axes) and {*part} < {*axes}]
    if not tries:
        return program, combinable
    best, least = (program, combinable), _price(combinable, prices)
    rests = [(axes, part, tuple([a for a in axes if a not in part])) for axes, part in tries]
    for axes, *steps in dict.fromkeys([(axes, *steps) for axes, part, rest in rests[:_TRIES]
                                       for steps in ((rest, part), (part, rest))]):
        tried = _split(program, axes, steps, {*small})
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


def _split(program: Program, axes: Axes, steps: Sequence[Axes], some: set[Equation]) -> Program:
    """The program with those of these sums that go over `axes` in two steps."""
    eqns: list[Equation] = []
    for eqn in program.eqns:
        if eqn.op is not psum_invariant_p or eqn.params["axes"] != axes or eqn not in some:
            eqns.append(eqn)
            continue
        params = {**eqn.params, "axes": steps[0]}
        (aval,) = infer(eqn.op, (eqn.invars[0].aval,), params, program.mesh)
        half = Var(aval)
        eqns.append(eqn.replace(outvars=(half,), params=params))
        eqns.append(eqn.replace(invars=(half,), params={**eqn.params, "axes": steps[1]}))
    return program.replace(eqns=eqns)
