"""Derives one layout of a value from another, instead of resharding twice.

After `a = reshard x` to the whole value, the block that `b = reshard x` needs is a slice of a;
after a gather along one axis, a gather along two needs only the other. Each reshard starts from the
value or from a layout already available, whichever is cheaper.
"""
from __future__ import annotations

from ...ir.ops.communication.sharding import reshard_p
from ...ir.program import Atom, Equation, Program, Var
from ..cost.prices import Prices

_MOST = 8       # layouts of one value, at most, that are compared


def share_layouts(program: Program, prices: Prices) -> Program:
    """A RESHARDED program (without nested ones) whose reshards start from where it is cheapest."""
    sources = [eqn.invars[0] for eqn in program.eqns if eqn.op is reshard_p]
    if len({*sources, *[eqn.outvars[0] for eqn in program.eqns if eqn.op is reshard_p]}
           ) == 2 * len(sources):
        return program                      # no value is resharded to several layouts
    had: dict[Atom, list[Atom]] = {}        # value -> the same in other layouts
    origin: dict[Atom, Atom] = {}
    eqns: list[Equation] = []
    changed = False
    for eqn in program.eqns:
        if eqn.op is reshard_p and isinstance(eqn.invars[0], Var):
            (x,), (y,) = eqn.invars, eqn.outvars
            value = origin.get(x, x)
            known = had.setdefault(value, [value])
            least, best = prices.between(x.aval, y.aval), x
            if least and not y.aval.sharding.spec.unreduced:
                for other in known:
                    cost = prices.between(other.aval, y.aval)
                    if cost < least:
                        least, best = cost, other
            if best is not x:
                eqn = eqn.replace(invars=(best,))
                changed = True
            origin[y] = value
            if len(known) < _MOST:
                known.append(y)
        eqns.append(eqn)
    return program.replace(eqns=eqns) if changed else program
