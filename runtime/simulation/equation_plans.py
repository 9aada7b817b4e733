"""Chooses the layouts of an equation's operands and results, and the numpy function in between.

A decision depends on the op, its params, and the types and layouts of its operands alone, never on
values or names; so equal equations (layers of a network, an op called again and again) share it.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...ir.facts import FRESH
from ...ir.kernels.key_data import storage_dtype
from ...ir.op import Op
from ...ir.op_instance import OpInstance
from ...ir.rules.factor import REDUCE
from ...ir.rules.parse import RuleError
from ...ir.rules.rule import FactorRule
from ...ir.support.named_tuple import NamedTuple
from ...ir.types import ArrayType
from ..axes import MeshAtoms
from ..calls.symbolic import Kernel
from ..layout import Atoms, Layout, Shape, array_shape, split_shape
from ..numerics import evaluator
from . import inplace
from .workspace import Kind, Value, kind_of

NONE: frozenset[str] = frozenset()
Folds = Mapping[str, frozenset[str]]
NO_FOLDS: Folds = {}


class Form(NamedTuple):
    """The form in which an operand is given: arguments of `Workspace.view`."""
    stack: Atoms
    split: tuple[Atoms, ...]
    lead: Atoms
    pad: int


class Decision(NamedTuple):
    """operands: their forms; None where all are given as they are. function: of their arrays.

    results: of each the layout, uniform dimensions, and kind. kernel: of a function with one
    result, how it may be evaluated in blocks.
    """
    operands: tuple[Form, ...] | None
    function: Callable[..., Any]
    results: tuple[tuple[Layout, tuple[bool, ...], Kind], ...]
    kernel: Kernel | None


# Ops that tell elements of one array apart by where they are: an array that is longer than the
# block gives other results, so devices' blocks lie one beside the other.
POSITIONAL = frozenset({"random_gamma"})


def decide(instance: OpInstance, operands: Sequence[Value], types: Sequence[ArrayType],
           atoms: MeshAtoms, folds: Folds, done: frozenset[str]) -> Decision:
    """The decision for an equation with results of these types.

    folds: by operator, the axes over which results may be folded. done: those over which the
    operands are folded already, and hence the results.
    """
    key: tuple = (*[x.known_kind or x.kind for x in operands], *types)
    if folds or done:
        key = (key, tuple(sorted(folds.items())), done)
    return decided(instance, key, operands, types, atoms, folds, done)


def decided(instance: OpInstance, key: tuple, operands: Sequence[Value], types: Sequence[ArrayType],
            atoms: MeshAtoms, folds: Folds = NO_FOLDS, done: frozenset[str] = NONE) -> Decision:
    """The same. key: the kinds of operands, and `types`; with it folds and done if there are any.
    """
    owner = atoms.owner
    known = instance.tables[owner] if owner in instance.tables else instance.table(owner)
    if key in known:
        return known[key]
    found = known[key] = _decide(instance.op, instance.params, operands, types, atoms, folds, done)
    return found


def _decide(op: Op, params: dict[str, Any], operands: Sequence[Value],
            types: Sequence[ArrayType], atoms: MeshAtoms, folds: Folds,
            done: frozenset[str]) -> Decision:
    if op.rule == "... -> ..." and op.resize is None and not op.multiple_results and (
            op.name not in POSITIONAL):
        shape = types[0].shape
        if all([x.aval.shape in ((), shape) for x in operands]):
            layout = _common_layout(operands, len(shape))
            if layout is not None and (
                    len(layout.stack) < 2 or layout.stack == atoms.sort(layout.stack)):
                return _in_equal_layouts(op, params, operands, types[0], atoms,
                                         layout._replace(folded=done))
    orders: inplace.Orders = {}
    rule = None
    if folds or op.name == "broadcast_in_dim" or any(
            [any(x.uniform) or any(x.layout.split) for x in operands]):
        rule = local_rule(op, params, operands, types)
    if rule is not None and op.name not in POSITIONAL:
        orders = inplace.common_orders(rule, operands, folds)
        if folds and orders:
            done |= {a for f, order in orders.items() if rule.factors[f].kind == REDUCE
                     for a in order}
    if rule is not None and orders:
        ins = inplace.splits(rule.operands[:len(operands)], orders)
        outs = inplace.splits(rule.results, orders)
    else:
        ins = [((),) * len(x.aval.shape) for x in operands]
        outs = [((),) * len(t.shape) for t in types]
    size = atoms.size
    stack, own = _stacked(operands, ins, atoms)
    # Elementwise operands have equal ranks or rank 0, which device dimensions would misalign.
    pad = len(types[0].shape) if stack and op.rule == "... -> ..." else 0
    forms = [Form(mine, split, stack, 0 if x.aval.shape else pad)
             for x, mine, split in zip(operands, own, ins, strict=True)]
    layouts = [Layout(stack, split, done) for split in outs]
    shapes = [split_shape(split, x.aval.shape, size)
              for split, x in zip(ins, operands, strict=True)]
    wanted = [split_shape(split, t.shape, size) for split, t in zip(outs, types, strict=True)]
    if orders and op.resize is not None:
        params = op.resize(params, tuple(shapes), tuple(wanted))
    given = shapes
    if stack:
        given = [(*[size[a] if a in f.stack else 1 for a in stack], *shape, *(1,) * f.pad)
                 for f, shape in zip(forms, shapes, strict=True)]
        leading = tuple([size[a] for a in stack])
        wanted = [leading + shape for shape in wanted]
    dtypes = [(x.known_kind or x.kind).dtype for x in operands]
    results = [storage_dtype(t.dtype) for t in types]
    function = evaluator(op, len(stack), params, dtypes, results, wanted, given)
    uniform = [(False,) * len(t.shape) for t in types]
    if rule is not None:
        uniform = inplace.uniform_dims(rule, operands, orders, op.name == "broadcast_in_dim")
    kernel = None
    if len(types) == 1 and not op.multiple_results:
        kernel = Kernel(function, (*given, *wanted), (*dtypes, *results))
        kernel.fresh = FRESH in op.facts or None
    moved = any([f.lead != x.layout.stack or f.split != x.layout.split or f.pad
                 for f, x in zip(forms, operands, strict=True)])
    return Decision(tuple(forms) if moved else None, function, tuple([
        (layout, same, kind_of(t, layout, same))
        for t, layout, same in zip(types, layouts, uniform, strict=True)]), kernel)


def _stacked(operands: Sequence[Value], splits: Sequence[tuple[Atoms, ...]], atoms: MeshAtoms
             ) -> tuple[Atoms, list[Atoms]]:
    """The axes that have to be stacked, operands having these in place; and those of each."""
    own = []
    for x, split in zip(operands, splits, strict=True):
        layout = x.layout
        own.append(set(layout.stack) if split == layout.split else
                   layout.atoms.difference(*split))
    if not any(own):
        return (), [()] * len(own)
    stack = atoms.sort(set().union(*own))
    return stack, [tuple([a for a in stack if a in mine]) for mine in own]


def _common_layout(operands: Sequence[Value], rank: int) -> Layout | None:
    """The layout of all operands of this rank, if they have one, and scalars can go with it."""
    found: Layout | None = None
    stack: Atoms | None = None
    for x in operands:
        mine = x.layout
        if len(mine.split) != rank:
            if mine.stack or stack:
                return None
            stack = ()
        elif found is None:
            if True in x.uniform or (mine.stack and stack is not None):
                return None
            found, stack = mine, mine.stack
        elif True in x.uniform or (found is not mine and (
                found.split != mine.split or found.stack != mine.stack)):
            return None
    return found


def _in_equal_layouts(op: Op, params: dict[str, Any], operands: Sequence[Value], aval: ArrayType,
           atoms: MeshAtoms, layout: Layout) -> Decision:
    """What the general rules come to where operands are given as they are, in the layout of the
    result or as scalars."""
    whole = array_shape(layout, aval.shape, atoms.size)
    rank = len(aval.shape)
    given: list[Shape] = [whole if len(x.layout.split) == rank else () for x in operands]
    dtypes = [(x.known_kind or x.kind).dtype for x in operands]
    same = (False,) * rank
    kind = kind_of(aval, layout, same)
    dtype = kind.dtype
    function = evaluator(op, len(layout.stack), params, dtypes, [dtype], [whole], given)
    kernel = Kernel(function, (*given, whole), (*dtypes, dtype))
    return Decision(None, function, ((layout, same, kind),), kernel)


def local_rule(op: Op, params: dict[str, Any], operands: Sequence[Value],
               types: Sequence[ArrayType]) -> FactorRule | None:
    """The factor rule on local shapes; None where the op has none for them."""
    try:
        return op.factor_rule(tuple([x.aval.shape for x in operands]),
                              tuple([t.shape for t in types]), params)
    except RuleError:
        return None
