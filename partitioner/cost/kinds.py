"""How equations read and write memory: by elements, in what order, in one kernel with others.

A compiler fuses elementwise operations and what only they or reductions read. Each question is
answered once for all equations of equal op, params and types.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ...ir.facts import BITCAST, EXACT, GENERATED, IN_PLACE, READS_FUSED, REARRANGED
from ...ir.program import Equation
from ...ir.rules.factor import PASS, REDUCE
from ...ir.support.named_tuple import NamedTuple
from ..factors import RuleInfo, rule_info

T = TypeVar("T")


def by_types(f: Callable[[Equation], T]) -> Callable[[Equation], T]:
    """A decorator: computed once for all equations of equal op, params and types, in all programs.
    """
    def found(eqn: Equation) -> T:
        types = eqn.known_types or eqn.types
        try:
            return eqn.instance.tables[f][types]
        except KeyError:
            made = eqn.instance.table(f)[types] = f(eqn)
            return made
    found.__doc__ = f.__doc__
    return found


def info_of(eqn: Equation) -> RuleInfo:
    """The factors of an equation on blocks."""
    return rule_info(eqn.instance.rule(*eqn.types))


def is_elementwise(eqn: Equation) -> bool:
    """Can it be fused into its readers?"""
    facts = eqn.op.facts
    if GENERATED in facts or REARRANGED in facts or not eqn.op.arithmetic and EXACT in facts:
        return True
    if eqn.op.subprograms or eqn.op.collective or eqn.op.effect or len(eqn.outvars) != 1:
        return False
    if not eqn.op.arithmetic:
        return False
    info = info_of(eqn)
    shape = eqn.outvars[0].aval.shape
    return not info.is_product and all(f.kind == PASS for f in info.factors) and all(
        not a.aval.shape or (len(a.aval.shape) == len(shape)
                             and all(n in (1, m) for n, m in zip(a.aval.shape, shape,
                                                                 strict=True)))
        for a in eqn.invars)


def is_reduction(eqn: Equation) -> bool:
    """Does it read its operands element by element, and return fewer elements?"""
    if eqn.op.subprograms or eqn.op.collective or not eqn.op.arithmetic:
        return False
    info = info_of(eqn)
    return not info.is_product and info.operands >= 1 and all(
        f.kind in (PASS, REDUCE) for f in info.factors)


class Kind(NamedTuple):
    """How an equation takes part in fusions. reads: it can read values that are never written to
    memory. alone: it reduces over dimensions of size 1.
    """
    elementwise: bool
    reduction: bool
    reads: bool
    bitcast: bool
    generated: bool
    rearranged: bool
    alone: bool


@by_types
def kind_of(eqn: Equation) -> Kind:
    elementwise, reduction, facts = is_elementwise(eqn), is_reduction(eqn), eqn.op.facts
    alone = reduction and not elementwise and READS_FUSED not in facts and all(
        [a.aval.size == v.aval.size for a, v in zip(eqn.invars, eqn.outvars, strict=False)])
    return Kind(elementwise, reduction, elementwise or reduction or READS_FUSED in facts,
                BITCAST in facts, GENERATED in facts, REARRANGED in facts, alone)


@by_types
def is_product(eqn: Equation) -> bool:
    """Is it a product of arrays, or a convolution?"""
    op = eqn.op
    return op.arithmetic and not op.subprograms and not op.collective and info_of(eqn).is_product


@by_types
def is_flattened(eqn: Equation) -> bool:
    """Is it a product of matrices whose rows or columns are several dimensions of its result?"""
    info = info_of(eqn) if is_product(eqn) else None
    if info is None or info.has_halos or info.operands != 2:
        return False
    left, right, out = ([f for factors in dims for f in factors] for dims in info.maps)
    return any(sum(f in own and f not in other for f in out) > 1
               for own, other in ((left, right), (right, left)))


def orders_of(eqn: Equation, n: int) -> list[list[int]]:
    """The orders of dimensions, from the major one to the minor one, without those of size 1, in
    which it reads operand n, or where n is the number of operands writes its result; [] for all.
    """
    asks = eqn.op.cost.orders
    if asks is None:
        return []
    t = (*eqn.invars, *eqn.outvars)[n].aval
    return [[d for d in order if t.shape[d] > 1] for order in asks(n, t, eqn.params)]


def reads_as_stored(eqn: Equation, n: int, order: Sequence[int]) -> bool:
    """Does it read operand n without a copy where its dimensions lie in this order? Where n is the
    number of operands: does it write its result so?
    """
    t = (*eqn.invars, *eqn.outvars)[n].aval
    return [d for d in order if t.shape[d] > 1] in orders_of(eqn, n)


def reads_transposed(eqn: Equation, n: int, order: Sequence[int]) -> bool:
    """Does it read operand n as fast where its dimensions lie in this order as where they lie as
    they stand? A product of matrices does where batch dimensions come first, and free ones and
    contracted ones lie together.
    """
    info = info_of(eqn) if is_product(eqn) else None
    if info is None or info.has_halos:
        return info is not None and reads_as_stored(eqn, n, order)
    own, shape = info.maps[n], eqn.invars[n].aval.shape
    other, out = ([f for factors in info.maps[k] for f in factors] for k in (1 - n, 2))
    roles = [2 * (own[d][0] in out) + (own[d][0] in other) for d in order if shape[d] > 1]
    found = [role for k, role in enumerate(roles) if not k or role != roles[k - 1]]
    return len({*found}) == len(found) and 3 not in found[1:]            # 3: a batch dimension


@by_types
def copies(eqn: Equation) -> dict[int, list[int]]:
    """Which operands are copied, where they lie as their dimensions stand, and to which order. At
    the number of operands: in which other order than that it writes its result.
    """
    if eqn.op.cost.orders is None:
        return {}
    found = {n: orders_of(eqn, n) for n in range(len(eqn.invars) + 1)}
    return {n: orders[0] for n, orders in found.items()
            if orders and all([order != sorted(order) for order in orders])}


def operand_bytes(eqn: Equation) -> tuple[list[int], list[int]]:
    """The bytes of one device's blocks of the operands, and of the results."""
    return [a.aval.local_nbytes for a in eqn.invars], [v.aval.local_nbytes for v in eqn.outvars]


@by_types
def reads_in_parts(eqn: Equation) -> bool:
    """Does it read its operand where that lies, as what it reads in parts needs no padding?"""
    cost = eqn.op.cost
    return cost.in_parts is not None and cost.scratch is not None and not cost.scratch(
        *operand_bytes(eqn), eqn.types[0], eqn.params)


def in_place(eqn: Equation, elementwise: bool) -> bool:
    """May the result take the buffer of an operand that nothing reads later?"""
    facts = eqn.op.facts
    return (elementwise and GENERATED not in facts) or IN_PLACE in facts
