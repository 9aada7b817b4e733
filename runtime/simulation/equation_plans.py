"""Chooses the layouts of an equation's operands and results, and the numpy function in between.

A plan depends on the op, its params, and the types and layouts of its operands alone, never on
values or names; so equal equations (layers of a network, an op called again and again) share it.

Which axes stay in place, so that one evaluation serves all devices along them: an op treats the
elements along a pass-through factor independently, so a dimension with that factor may be longer
than a block. Where operands hold their blocks of a factor in place along an axis X, the op on the
whole arrays gives the blocks of the result in place, for the price of the unsharded program. That
holds if

- the factor is the major part of every dimension that carries it, in operands and results;
- every operand with the factor has the same axes there, major to minor in the same order (or is
  uniform along it, and is lengthened); an operand without it does not differ over them.

A reduction factor qualifies for axes over which the result is summed
(runtime/simulation/device_sums.py). All other axes are stacked, which is always correct: evaluators
take leading device dimensions.
"""
from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...arrays.axes import MeshAtoms
from ...ir.facts import BY_PLACE, FRESH, REPEATS
from ...ir.kernels.key_data import storage_dtype
from ...ir.op import Op
from ...ir.rules.factor import PASS, REDUCE
from ...ir.rules.parse import RuleError
from ...ir.rules.rule import FactorRule
from ...ir.support.named_tuple import NamedTuple
from ...ir.types import ArrayType, array_type
from ..calls.symbolic import Kernel
from ..layout import Atoms, Layout, split_shape, whole
from ..numerics import evaluator
from .device_sums import NONE, DeferredSums
from .workspace import Kind, Value, kind_of


class Form(NamedTuple):
    """How an operand is passed: the arguments of `Workspace.view`."""
    stack: Atoms
    split: tuple[Atoms, ...] | None
    lead: Atoms
    pad: int


class EquationPlan(NamedTuple):
    """How an equation is computed.

    operands: how each is passed; None if all stay as they are. function: takes their arrays.
    results: layout, uniform dimensions and kind of each. kernel: of a function with one result.
    """
    operands: tuple[Form, ...] | None
    function: Callable[..., Any]
    results: tuple[tuple[Layout, tuple[bool, ...], Kind], ...]
    kernel: Kernel | None


def equation_plan(op: Op, params: dict[str, Any], operands: Sequence[Value],
                  types: Sequence[ArrayType], atoms: MeshAtoms, deferred: DeferredSums,
                  done: frozenset[str], read: Sequence[int] | None = None) -> EquationPlan:
    """How to compute an equation with results of these types.

    deferred: by operator, the axes over which the results may be summed. done: axes over which the
    operands, and hence the results, are summed already. read: the results that are read, by number,
    of an evaluator that asks for them (`Evaluator.narrowed`).
    """
    numbers: dict[int, Value] = {}
    if op.rule == "... -> ..." and [x for x in operands if x.kind.is_number]:
        numbers = _numbers(op, operands)
        operands = [numbers.get(i, x) for i, x in enumerate(operands)]
    rule, orders, ins, outs = _in_place(op, params, operands, types, deferred)
    if deferred and rule is not None:
        done |= {a for f, order in orders.items() if rule.factors[f].kind == REDUCE for a in order}
    size = atoms.size
    stack, own = _stacked(operands, ins, atoms)
    # Elementwise operands have equal ranks or rank 0, which device dimensions would misalign.
    pad = len(types[0].shape) if stack and op.rule == "... -> ..." else 0
    given = [split_shape(split, x.aval.shape, size)
             for split, x in zip(ins, operands, strict=True)]
    wanted = [split_shape(split, t.shape, size) for split, t in zip(outs, types, strict=True)]
    if orders and op.resize is not None:
        params = op.resize(params, tuple(given), tuple(wanted))
    if stack:
        given = [(*[size[a] if a in mine else 1 for a in stack], *(shape or (1,) * pad))
                 for mine, shape in zip(own, given, strict=True)]
        leading = atoms.sizes(stack)
        wanted = [leading + shape for shape in wanted]
    forms: tuple[Form, ...] | None = None
    if numbers or [x for x, split in zip(operands, ins, strict=True) if split != x.layout.split
                   or stack != x.layout.stack or pad and not x.aval.shape]:
        forms = tuple([
            Form(mine, None if i in numbers else split, stack, 0 if x.aval.shape else pad)
            for i, (x, mine, split) in enumerate(zip(operands, own, ins, strict=True))])
    dtypes = [x.kind.dtype for x in operands]
    results = [storage_dtype(t.dtype) for t in types]
    if read is not None:
        params = {**params, **op.evaluator.narrowed(read)}      # type: ignore[union-attr, misc]
    function = evaluator(op, len(stack), params, dtypes, results, wanted, given)
    uniform = (
        [(False,) * len(t.shape) for t in types] if rule is None or BY_PLACE in op.facts else
        uniform_dims(rule, operands, orders, REPEATS in op.facts))
    kernel = None
    if not op.multiple_results:
        kernel = Kernel(function, (*given, *wanted), (*dtypes, *results))
        kernel.fresh = FRESH in op.facts or None
    return EquationPlan(forms, function, tuple([
        (layout := Layout(stack, split, done), same, kind_of(t, layout, same))
        for t, split, same in zip(types, outs, uniform, strict=True)]), kernel)


def _numbers(op: Op, operands: Sequence[Value]) -> dict[int, Value]:
    """Operands of an elementwise op that are one number everywhere, as values of rank 0: numpy
    repeats it, and selections know whether it is zero."""
    numbers = {i for i, x in enumerate(operands) if x.kind.is_number}
    if op.multiple_results or not any(
            [x.aval.shape for i, x in enumerate(operands) if i not in numbers]):
        return {}
    return {i: Value(array_type((), operands[i].aval.dtype), whole(0), -1) for i in numbers}


def _in_place(op: Op, params: dict[str, Any], operands: Sequence[Value],
              types: Sequence[ArrayType], deferred: DeferredSums
              ) -> tuple[FactorRule | None, Orders, Splits, Splits]:
    """(the rule if it matters, the axes that split each of its factors, how these split the
    operands, and the results).
    """
    rule, orders = None, Orders()
    if deferred or REPEATS in op.facts or [
            x for x in operands if x.kind.atoms or True in x.uniform]:
        rule = local_rule(op, params, operands, types)
    if rule is not None and BY_PLACE not in op.facts:    # which wants blocks apart
        orders = common_orders(rule, operands, deferred)
    if rule is None or not orders:
        return (rule, orders, [((),) * len(x.aval.shape) for x in operands],
                [((),) * len(t.shape) for t in types])
    count = len(operands)
    found = splits((*rule.operands[:count], *rule.results), orders)
    return rule, orders, found[:count], found[count:]


def _stacked(operands: Sequence[Value], splits: Sequence[tuple[Atoms, ...]], atoms: MeshAtoms
             ) -> tuple[Atoms, list[Atoms]]:
    """The axes to stack beside `splits`, and those of them that each operand differs over."""
    own = [set(x.layout.stack) if split == x.layout.split else x.layout.atoms.difference(*split)
           for x, split in zip(operands, splits, strict=True)]
    if not any(own):
        return (), [()] * len(own)
    stack = atoms.sort(set().union(*own))
    return stack, [tuple([a for a in stack if a in mine]) for mine in own]


def local_rule(op: Op, params: dict[str, Any], operands: Sequence[Value],
               types: Sequence[ArrayType]) -> FactorRule | None:
    """The factor rule on local shapes; None where the op has none for them."""
    try:
        return op.factor_rule(tuple([x.aval.shape for x in operands]),
                              tuple([t.shape for t in types]), params)
    except RuleError:
        return None


# -- which axes stay in place ----------------------------------------------------------------------

Orders = dict[int, Atoms]        # factor to the axes in place on it, major to minor
Splits = list[tuple[Atoms, ...]]    # of each value, the axes in place in each dimension


def common_orders(rule: FactorRule, operands: Sequence[Value],
                  deferred: Mapping[str, frozenset[str]]) -> Orders:
    """For each factor the axes that can stay in place without copying any operand."""
    found: dict[int, Atoms] = {}
    for x, dims in zip(operands, rule.operands, strict=False):
        split, uniform = x.layout.split, x.uniform
        for d, factors in enumerate(dims):
            if factors and not uniform[d]:
                axes = found.setdefault(factors[0], split[d])
                if axes != split[d]:
                    found[factors[0]] = _common_suffix(axes, split[d])
    minor = {f for dims in (*rule.operands, *rule.results) for factors in dims
             for f in factors[1:]}
    orders: Orders = {}
    for f, order in found.items():
        factor = rule.factors[f]
        if factor.kind == REDUCE:
            order = _suffix_within(order, deferred.get(factor.operator, NONE))
        elif factor.kind != PASS or factor.blocked:
            continue
        if order and f not in minor:
            order = _without_conflicts(rule, operands, f, order)
            if order:
                orders[f] = order
    return orders


def _common_suffix(x: Atoms, y: Atoms) -> Atoms:
    """The longest common suffix."""
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(x[::-1], y[::-1], strict=False))
    return tuple([a for a, _ in same])[::-1]


def _suffix_within(order: Atoms, allowed: frozenset[str]) -> Atoms:
    return tuple(itertools.takewhile(allowed.__contains__, order[::-1]))[::-1]


def _without_conflicts(rule: FactorRule, operands: Sequence[Value], f: int, order: Atoms) -> Atoms:
    """The axes of factor `f` after the last that some operand has elsewhere."""
    start = 0
    for i, a in enumerate(order):
        for x, dims in zip(operands, rule.operands, strict=False):
            if a in x.layout.stack:
                start = i + 1
            for factors, axes in zip(dims, x.layout.split, strict=True):
                if a in axes and factors[:1] != (f,):
                    start = i + 1
    return order[start:]


def splits(values: Sequence[Sequence[Sequence[int]]], orders: Orders) -> Splits:
    """The axes in place in each dimension of each value, given the factors of these."""
    return [tuple([orders[factors[0]] if factors and factors[0] in orders else ()
                   for factors in dims]) for dims in values]


def uniform_dims(rule: FactorRule, operands: Sequence[Value], orders: Orders, makes_new: bool
                 ) -> list[tuple[bool, ...]]:
    """For each result the dimensions along which all elements are equal.

    makes_new: whether the op repeats its operand along factors that no operand has.
    """
    if not makes_new and not [x for x in operands if True in x.uniform]:
        return [(False,) * len(dims) for dims in rule.results]
    count = len(operands)

    def flat(f: int) -> bool:
        if f in orders or rule.factors[f].kind != PASS:
            return False
        sources = [(t, d) for t, d, _ in rule.carriers(f) if t < count]
        if not sources:
            return makes_new
        return all(operands[t].uniform[d] for t, d in sources)

    return [tuple(bool(factors) and all(map(flat, factors)) for factors in dims)
            for dims in rule.results]


def common_deferred_sums(found: Sequence[DeferredSums]) -> DeferredSums:
    """The axes, by operator, over which all results of an equation may be summed."""
    first, *rest = found or [{}]
    return {o: axes.intersection(*(other.get(o, NONE) for other in rest))
            for o, axes in first.items()}
