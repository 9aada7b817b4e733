"""Rewrites of the user's code that exchange once behind a loop instead of in each of its steps.

    NAME                  instead of                              written
    sum behind            a psum in each step of a scan           one psum behind it
"""
from __future__ import annotations

from collections import Counter

import numpy as np

from ...ir.op import OPS
from ...ir.program import Atom, Var
from ...ir.rewriting.rewrite import Match, Rewrite
from .code_rewrites import CodeChange, alike


def _summed_behind(m: Match) -> list[Atom] | None:
    """Of a scan that adds the sum over devices to what it carries in each step."""
    body, first = m.eqn.params["jaxpr"], m.eqn.params["num_consts"]
    made = {v: e for e in body.eqns for v in e.outvars}
    reads = Counter([a for e in body.eqns for a in e.invars] + list(body.outvars))
    for j in range(m.eqn.params["num_carry"]):
        add, carry = made.get(body.outvars[j]), body.invars[first + j]
        if add is None or add.op.name != "add" or carry not in add.invars:
            continue
        value = add.invars[1 - add.invars.index(carry)]
        total = made.get(value) if isinstance(value, Var) else None
        if (total is None or total.op.name not in ("psum", "psum_invariant")
                or total.params.get("axis_index_groups") is not None or len(total.invars) != 1
                or [reads[carry], reads[value], reads[body.outvars[j]]] != [1, 1, 1]):
            continue
        part = total.invars[0]
        if not isinstance(part, Var) or (part.aval.shape, part.aval.dtype) != (
                carry.aval.shape, carry.aval.dtype):
            continue
        own, out = Var(part.aval, carry.name), Var(part.aval, body.outvars[j].name)
        eqns = [add.replace(invars=(own, part), outvars=(out,)) if e is add else e
                for e in body.eqns if e is not total]
        inside = body.replace(
            eqns=eqns, invars=[own if v is carry else v for v in body.invars],
            outvars=[out if i == j else v for i, v in enumerate(body.outvars)])
        zero = m.emit(OPS["broadcast_in_dim"], alike(m, np.zeros((), part.aval.dtype)[()], part),
                      shape=part.aval.shape, broadcast_dimensions=(), sharding=None)
        start = m.eqn.invars[first + j]
        given = [zero if i == first + j else a for i, a in enumerate(m.eqn.invars)]
        results = m.emit(m.eqn.op, *given, **{**m.eqn.params, "jaxpr": inside})
        everywhere = m.emit(total.op, results[j], like=total, **total.params)
        results[j] = m.emit(add.op, start, everywhere, like=total, **add.params)
        return results if results[j].aval == m.eqn.outvars[j].aval else None
    return None


LOOPS: tuple[CodeChange, ...] = (
    CodeChange(Rewrite(
        "sum behind", "out = scan *operands", _summed_behind,
        why="devices add up their own parts, and these are summed once"),
        "sum over devices once, behind the loop, instead of in each step of the one",
        lambda m: ""),
)
