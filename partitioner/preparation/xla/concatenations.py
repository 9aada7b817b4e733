"""Concatenations of rows that mesh axes do not divide, as XLA computes them.

A dimension along which arrays are joined cannot be split. Where that of the result is, XLA moves
its axes to another one: each operand by an all-to-all, then the result back by one more. A single
row is padded to one for each device first, as any other operand is to blocks. An operand of fewer
rows than devices is laid out as the result.
"""
from __future__ import annotations

import math
from collections.abc import Sequence

from ....ir.padded import Padded, with_entry
from ....ir.program import Atom, Equation, Var
from ....ir.shardings.sharding import NamedSharding
from ....ir.spec import PartitionSpec
from ....ir.types import Entries, Shape
from ...propagation.graph import Graph
from ..padded_equations import Output, laid_out, unpadded, with_sizes


def joined(eqn: Equation, operands: Sequence[Padded], graph: Graph, out: Output) -> Padded | None:
    """The result of a concatenation, padded to blocks; appends what computes it. None if all rows
    divide, or if no other dimension can be split.

    graph: the layouts that values would have if sizes did not matter.
    """
    d, (result,) = eqn.params["dimension"], eqn.outvars
    found = _entries(graph, result)
    if found is None or not found[d] or any([
            n != m for x in operands for e, (n, m) in enumerate(zip(x.sizes, x.shape, strict=True))
            if e != d]):
        return None
    parts = math.prod(map(graph.size, found[d]))
    rows = [x.shape[d] for x in operands]
    moved = _moved(found, d, result.aval.shape, graph)
    if moved is None or not any([n % parts for n in (*rows, sum(rows))]):
        return None

    def blocks(x: Padded) -> Padded:
        size = -(-x.shape[d] // parts) * parts
        return with_sizes(x, with_entry(x.shape, d, size), eqn, out)

    def over(entries: Entries, x: Padded) -> Padded:
        return laid_out(x, NamedSharding(graph.mesh, PartitionSpec(*entries)), eqn, out)
    pieces = []
    for x, atom in zip(operands, eqn.invars, strict=True):
        own = _entries(graph, atom)
        before = own if own is not None and any(own) and x.shape[d] >= parts else found
        pieces.append(unpadded(over(moved, over(before, blocks(x))), eqn, out).atom)
    whole = Var(result.aval)
    out.eqns.append(eqn.replace(invars=pieces, outvars=(whole,)))
    return over(found, blocks(over(moved, Padded(whole, result.aval.shape))))


def _entries(graph: Graph, atom: Atom) -> Entries | None:
    """The axes of each dimension of a value; None if it has no layout."""
    t = graph.of(atom)
    return None if t < 0 else graph.layouts[t].entries


def _moved(entries: Entries, d: int, shape: Shape, graph: Graph) -> Entries | None:
    """The axes with those of dimension d at others, as far as these divide; None if they do not."""
    left, found = entries[d], with_entry(entries, d, ())
    for e, n in enumerate(shape):
        while e != d and left and n % math.prod(map(graph.size, (*found[e], left[0]))) == 0:
            found, left = with_entry(found, e, (*found[e], left[0])), left[1:]
    return None if left else found
