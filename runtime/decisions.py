"""How one local equation is evaluated: its operands' layouts, its function, its results' layouts.

A decision depends on the op, its params, and the types and layouts of its operands alone, never on
values or names; so equal equations (layers of a network, an op called again and again) share it.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..ir.keys import storage_dtype
from ..ir.op import Op
from ..ir.rule import REDUCE, FactorRule, RuleError
from ..ir.types import ArrayType
from ..ir.use import Use
from . import inplace
from .axes import MeshAtoms
from .layout import Atoms, Layout, Shape, array_shape, split_shape
from .numerics import evaluator
from .recording import Kernel
from .workspace import Kind, Value, kind_of

NONE: frozenset[str] = frozenset()
Folds = Mapping[str, frozenset[str]]


@dataclass(frozen=True)
class Form:
    """The form in which an operand is given: arguments of `Workspace.view`."""
    stack: Atoms
    split: tuple[Atoms, ...]
    lead: Atoms
    pad: int


@dataclass(frozen=True)
class Decision:
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


def decide(use: Use, operands: Sequence[Value], types: Sequence[ArrayType],
           atoms: MeshAtoms, folds: Folds, done: frozenset[str]) -> Decision:
    """The decision for an equation with results of these types.

    folds: by operator, the axes over which results may be folded. done: those over which the
    operands are folded already, and hence the results.
    """
    known = use.tables.get(atoms.owner) or use.table(atoms.owner)
    key: tuple = (*[x.known_kind or x.kind for x in operands], *types)
    if folds or done:
        key = (key, tuple(sorted(folds.items())), done)
    found = known.get(key)
    if found is None:
        found = known[key] = _decide(use.op, use.params, operands, types, atoms, folds, done)
    return found


def _decide(op: Op, params: dict[str, Any], operands: Sequence[Value],
            types: Sequence[ArrayType], atoms: MeshAtoms, folds: Folds,
            done: frozenset[str]) -> Decision:
    layout = _common_layout(op, operands, types, atoms)
    if layout is not None:
        return _elementwise(op, params, operands, types, atoms, layout, done)
    rule = local_rule(op, params, operands, types)
    orders: inplace.Orders = {}
    if rule is not None and op.name not in POSITIONAL:
        orders = inplace.common_orders(rule, operands, folds)
        sums = folds.get("sum", NONE) - done
        if sums:
            orders = inplace.contraction_orders(rule, operands, orders, sums, atoms.order)
        done |= {a for f, order in orders.items() if rule.factors[f].kind == REDUCE
                 for a in order}
    if rule is not None and orders:
        ins = inplace.target_splits(rule, operands, orders)
        outs = inplace.result_splits(rule, orders)
    else:
        ins = [((),) * x.aval.ndim for x in operands]
        outs = [((),) * t.ndim for t in types]
    own = [x.layout.atoms.difference(*split) for x, split in zip(operands, ins, strict=True)]
    stack = atoms.sort(set().union(*own))
    # Elementwise operands have equal ranks or rank 0, which device dimensions would misalign.
    pad = types[0].ndim if stack and op.rule == "... -> ..." else 0
    forms = [Form(tuple(a for a in stack if a in mine), split, stack, 0 if x.aval.ndim else pad)
             for x, mine, split in zip(operands, own, ins, strict=True)]
    layouts = [Layout(stack, split, done) for split in outs]
    size = atoms.size
    if orders and op.resize is not None:
        params = op.resize(
            params,
            tuple(split_shape(f.split, x.aval.shape, size)
                  for f, x in zip(forms, operands, strict=True)),
            tuple(split_shape(split, t.shape, size)
                  for split, t in zip(outs, types, strict=True)))
    given = [form_shape(f, x.aval.shape, size) for f, x in zip(forms, operands, strict=True)]
    wanted = [array_shape(layout, t.shape, size)
              for layout, t in zip(layouts, types, strict=True)]
    function = evaluator(op, len(stack), params, [x.aval for x in operands], types, wanted, given)
    uniform: Sequence[tuple[bool, ...]] = [()] * len(types)
    if rule is not None:
        uniform = inplace.uniform_dims(rule, operands, orders, op.name == "broadcast_in_dim")
    kernel = None
    if len(types) == 1 and not op.multiple_results:
        kernel = Kernel(function, (*given, *wanted),
                        [storage_dtype(t.dtype) for t in (*(x.aval for x in operands), *types)])
    return _decision(forms, operands, function, types, layouts, uniform, kernel)


def _decision(forms: Sequence[Form], operands: Sequence[Value], function: Callable[..., Any],
              types: Sequence[ArrayType], layouts: Sequence[Layout],
              uniform: Sequence[tuple[bool, ...]], kernel: Kernel | None) -> Decision:
    as_given = all([f.lead == x.layout.stack and f.split == x.layout.split and not f.pad
                    for f, x in zip(forms, operands, strict=True)])
    results = []
    for t, layout, same in zip(types, layouts, uniform, strict=True):
        same = same or (False,) * t.ndim
        results.append((layout, same, kind_of(t, layout, same)))
    return Decision(None if as_given else tuple(forms), function, tuple(results), kernel)


def _common_layout(op: Op, operands: Sequence[Value], types: Sequence[ArrayType],
                   atoms: MeshAtoms) -> Layout | None:
    """The layout of all operands of an elementwise op, scalars that all devices share aside; None
    where the general rules have to say what becomes of them.
    """
    if (op.rule != "... -> ..." or op.resize is not None or op.multiple_results
            or op.name in POSITIONAL or not types[0].shape):
        return None
    shape = types[0].shape
    common: Layout | None = None
    for x in operands:
        layout = x.layout
        if x.aval.shape == shape and True not in x.uniform:
            if common is None:
                common = layout
            elif layout.stack != common.stack or layout.split != common.split:
                return None
        elif x.aval.shape or layout.stack:
            return None
    if common is None or (len(common.stack) > 1 and atoms.sort(common.stack) != common.stack):
        return None
    return common


def _elementwise(op: Op, params: dict[str, Any], operands: Sequence[Value],
                 types: Sequence[ArrayType], atoms: MeshAtoms, layout: Layout,
                 done: frozenset[str]) -> Decision:
    """What `_decide` comes to where operands and result are laid out alike."""
    (aval,), stack, split = types, layout.stack, layout.split
    array = Form(stack, split, stack, 0)
    scalar = Form((), (), stack, aval.ndim if stack else 0)
    whole = array_shape(layout, aval.shape, atoms.size)
    small = (1,) * (len(stack) + scalar.pad)
    given = [whole if x.aval.shape else small for x in operands]
    function = evaluator(op, len(stack), params, [x.aval for x in operands], types, [whole], given)
    kernel = Kernel(function, (*given, whole),
                    [storage_dtype(t.dtype) for t in (*[x.aval for x in operands], aval)])
    return _decision([array if x.aval.shape else scalar for x in operands], operands, function,
                     types, (Layout(stack, split, done),), ((),), kernel)


def local_rule(op: Op, params: dict[str, Any], operands: Sequence[Value],
               types: Sequence[ArrayType]) -> FactorRule | None:
    """The factor rule on local shapes; None where the op has none for them."""
    try:
        return op.factor_rule(tuple(x.aval.shape for x in operands),
                              tuple(t.shape for t in types), params)
    except RuleError:
        return None


def form_shape(form: Form, local: Shape, size: Mapping[str, int]) -> Shape:
    """Shape of the array of an operand with blocks of shape `local`."""
    here = set(form.stack)
    return (*(size[a] if a in here else 1 for a in form.lead),
            *split_shape(form.split, local, size), *(1,) * form.pad)
