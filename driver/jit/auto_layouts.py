"""What `Layout.AUTO` stands for: the layout that a result has where nothing is moved for it.

Arguments lie row-major. An equation that only permutes, drops or passes on the dimensions of its
operands leaves elements in the order in which they came; what such equations make of the arguments
is where a result lies if nobody asked. After what XLA's layout assignment chooses (JAX 0.10.2,
CPU).
"""
from __future__ import annotations

from ...ir.program import Equation, Program, Var
from ...ir.rules.factor import PASS
from ...ir.shardings.formats import Layout
from ...partitioner.preparation.inline import inline

__all__ = ["auto_layouts"]

Order = tuple[int, ...]


def auto_layouts(program: Program) -> list[Layout | None]:
    """The layout of each result of a traced program; None where it is row-major.

    >>> program = st.make_jaxpr(lambda x: (x.T + 1, x * 2, x @ x.T))(np.ones((2, 3)))
    >>> [layout and layout.major_to_minor for layout in auto_layouts(program)]
    [(1, 0), None, None]
    """
    program = inline(program)
    orders: dict[Var, Order] = {}                  # of values that do not lie row-major
    for eqn in program.eqns:
        if any(v.aval.ndim > 1 for v in eqn.outvars) and not eqn.op.subprograms:
            orders.update(_orders(eqn, orders))
    return [Layout(orders[v]) if v in orders else None for v in program.outvars]


def _order(v: object, orders: dict[Var, Order]) -> Order:
    return orders.get(v) or tuple(range(v.aval.ndim))       # type: ignore[attr-defined,call-overload]


def _orders(eqn: Equation, orders: dict[Var, Order]) -> dict[Var, Order]:
    """The order of dimensions in memory of the results of an equation."""
    rule, out = eqn.instance.rule(*eqn.types), {}
    for v, dims in zip(eqn.outvars, rule.results, strict=True):
        factors = [f for dim in dims for f in dim]
        if len(factors) != len(dims) or any(rule.factors[f].kind != PASS for f in factors):
            continue
        found = set()
        for x, theirs in zip(eqn.invars, rule.operands, strict=True):
            order = [f for d in _order(x, orders) for f in theirs[d] if f in factors]
            if order:
                found.add(tuple([factors.index(f) for f in order]))
        order = found.pop() if len(found) == 1 else ()
        if len(order) == len(dims) and order != tuple(range(len(dims))):
            out[v] = order
    return out
