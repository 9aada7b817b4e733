"""Which values to save for later, and which to recompute from them.

A derivative reads many values of the forward pass. For a gelu these are its operand, the square, a
tanh, one minus its square and so on, each as large as the activations. Most are a few additions and
products apart, and recomputing them takes less time than writing them to memory and reading them
back. So the values saved instead are those from which the others follow by such cheap equations:
values that are expensive to compute (products, exponentials, sums), or not computed at all.

Input: the wanted values, the equations that make values, their prices. Output: what to recompute.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ...ir.facts import CHEAP
from ...ir.program import Equation, Var
from ...ir.support.caches import cached
from ...ir.support.disjoint_sets import DisjointSets
from ...ir.types import ArrayType

MAX_CHAIN = 12                  # length of a chain of recomputed equations, at most
MAX_RECOMPUTE_RATIO = 6         # bytes recomputed for each byte saved, at most
NEGLIGIBLE_BYTES = 1 << 14      # smaller values count as free
MIN_SAVED_BYTES = 1 << 20       # savings that are worth the search
INFINITE_PRICE = 1 << 62        # for values that cannot be kept


@cached(4096)
def held_bytes(t: ArrayType) -> int:
    """Bytes that a local value takes on all devices together, equal copies counted once."""
    sizes = t.mesh.shape
    count = t.nbytes
    for axis in t.varying:
        count *= sizes.get(axis, 1)
    return count


def is_cheap(eqn: Equation) -> bool:
    """Is recomputing it cheaper than memory traffic? Powers beyond the third are not."""
    return CHEAP in eqn.op.facts and (
        eqn.op.name != "integer_pow" or 0 < eqn.params["y"] <= 3)


def choose(wanted: Iterable[Var], made: Mapping[Var, Equation], price: Callable[[Var], int],
           least: int, root: Callable[[Var], Var] = lambda v: v) -> set[Var]:
    """The values to recompute, the wanted ones among them, from values that are saved or free.

    made: the equations that compute values. price: bytes that keeping a value takes; 0 if it is
    there anyway. least: the bytes a group of wanted values must save. root: from a view to the
    value whose memory it shares.
    """
    wanted = [v for v in wanted if price(v)]
    into, costly = _cheap_region(wanted, made, price)
    recomputed: set[Var] = set()
    if costly.issuperset(wanted):
        return recomputed
    sets, asked = DisjointSets[Var](), set(wanted)
    for v, operands in into.items():
        sets.join(v, *operands)
    for part in sets.groups(into):
        mine = [v for v in part if v in asked]
        if costly.issuperset(mine):
            continue
        before = sum(map(price, {root(v) for v in mine}))
        cut = costly.intersection(part)           # wanted ones among them are kept anyway
        won = before - sum(map(price, cut))
        if won < least:
            continue
        cut.update(v for v in mine if root(v) in cut)
        found = _on_the_way(mine, cut, into)
        if sum([held_bytes(v.aval) for v in found]) <= MAX_RECOMPUTE_RATIO * won:
            recomputed |= found
    return recomputed


def _cheap_region(wanted: Sequence[Var], made: Mapping[Var, Equation], price: Callable[[Var], int]
            ) -> tuple[dict[Var, list[Var]], set[Var]]:
    """(for each value that cheap equations lead to a wanted one: its operands that are not free;
    the expensive values among them).
    """
    into: dict[Var, list[Var]] = {}
    costly: set[Var] = set()
    level = list(wanted)
    for step in range(MAX_CHAIN + 1):
        after: list[Var] = []
        for v in level:
            if v in into:
                continue
            eqn = made.get(v)
            if eqn is None or step == MAX_CHAIN or not is_cheap(eqn):
                costly.add(v)
                into[v] = []
                continue
            into[v] = [a for a in eqn.invars if type(a) is Var and price(a)]
            after += into[v]
        level = after
    return into, costly


def _on_the_way(wanted: Sequence[Var], saved: set[Var], into: Mapping[Var, list[Var]]) -> set[Var]:
    """The values on the way from the saved ones to the wanted ones, the latter included."""
    found: set[Var] = set()
    left = [v for v in wanted if v not in saved]
    while left:
        v = left.pop()
        if v not in found:
            found.add(v)
            left += [a for a in into[v] if a not in saved]
    return found
