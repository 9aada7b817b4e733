"""Reshards by way of another layout, where the price of both steps is less.

The moves of a reshard receive as few elements as possible (redistribution/). It may take less time
to receive more in fewer exchanges, or to exchange along the fast axes while blocks are large:

    P(None, ('y', 'x')) to P('x')   all-to-all over x, then all-gather over y    14.7 us
      by way of P(None, None)       all-gather over y and x, own rows cut out     8.7 us

for 128 KB on eight H100s as 2 x 4. The layouts that are tried have each dimension as one of the two
ends has it, or split over the leading axes that both have there.
"""
from __future__ import annotations

import itertools
from collections.abc import Iterator

from ...ir.ops.communication.sharding import reshard_p
from ...ir.program import Equation, Program
from ...ir.rewriting.inside import inside
from ...ir.spec import axes_overlap
from ...ir.support.caches import cached
from ...ir.types import ArrayType, Entries
from ..choice.costs import transfer
from ..cost.prices import Prices
from ..propagation.resolved_types import reshard_equation, typed

_GAIN = 0.95            # of the price of the direct way, from which down another one is taken
_LEAST = 0.75           # of a transfer's price without a plan: one with a plan may exchange tiles
                        # over more links, where the former cuts and gathers
_MOST_DIMENSIONS = 4    # that differ


def route_reshards(program: Program, prices: Prices) -> Program:
    """A RESHARDED program, nested ones included, with reshards by the cheapest way."""
    program = inside(program, lambda body: route_reshards(body, prices))
    if reshard_p not in program.ops:
        return program
    eqns: list[Equation] = []
    for eqn in program.eqns:
        middle = eqn.op is reshard_p and _middle(
            prices, eqn.invars[0].aval, eqn.outvars[0].aval)
        if middle:
            first = reshard_equation(eqn.invars[0], middle, eqn.location, eqn.reason)
            eqns.append(first)
            eqn = eqn.replace(invars=first.outvars)
        eqns.append(eqn)
    return program if len(eqns) == len(program.eqns) else program.replace(eqns=eqns)


@cached(4096, "layouts by way of which values are resharded")
def _middle(prices: Prices, source: ArrayType, target: ArrayType) -> ArrayType | None:
    """The type by way of which a value goes from one type to another; None: directly."""
    if source.sharding.spec.unreduced != target.sharding.spec.unreduced:
        return None
    least, found = _GAIN * prices.between(source, target), None
    mesh, itemsize = target.mesh, target.dtype.itemsize
    exchange = prices.on(mesh).exchange

    def unplanned(a: Entries, b: Entries) -> int:
        return transfer(exchange, mesh, a, b).of(target.shape, itemsize)

    for entries in _layouts_between(source.entries, target.entries) if least else ():
        if _LEAST * (unplanned(source.entries, entries)
                     + unplanned(entries, target.entries)) >= least:
            continue
        middle = typed(target, target.mesh, entries, target.sharding.spec.unreduced)
        price = prices.between(source, middle)
        if price < least:
            price += prices.between(middle, target)
            if price < least:
                least, found = price, middle
    return found


def _layouts_between(source: Entries, target: Entries) -> Iterator[Entries]:
    """The layouts that a reshard may go through; none if it changes too many dimensions."""
    differ = [d for d, (a, b) in enumerate(zip(source, target, strict=True)) if a != b]
    if len(differ) > _MOST_DIMENSIONS:
        return
    choices = []
    for have, want in zip(source, target, strict=True):
        both = tuple([a for a, _ in itertools.takewhile(
            lambda pair: pair[0] == pair[1], zip(have, want, strict=False))])
        choices.append(dict.fromkeys((have, want, both)))
    for entries in itertools.product(*choices):
        used = [a for axes in entries for a in axes]
        if entries not in (source, target) and not any(
                [axes_overlap(a, b) for a, b in itertools.combinations(used, 2)]):
            yield entries
