"""What an op sees that is applied to blocks in the user's code as the partitioner applies it."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....ir.op import OPS, Op
from ....ir.program import Atom, Equation
from ....ir.rewriting.rewrite import Match
from ....ir.rules.rule import FactorRule
from .rewrites import varying_as

_ANY_TYPES = {"all_gather_invariant": "all_gather", "psum_invariant": "psum"}


def varying_alike(m: Match, operands: Sequence[Atom]) -> list[Atom]:
    """Operands as values that vary over the same axes."""
    axes = frozenset[str]().union(*[a.aval.manual.varying for a in operands])
    return [m.emit(OPS["pvary"], a, axes=tuple(sorted(missing))) if (
        missing := axes - a.aval.manual.varying) else a for a in operands]


def own_place(m: Match, axes: Sequence[Any], size: int, varying: bool) -> Atom:
    """Where each device's own block of this size begins."""
    index = m.emit(OPS["axis_index"], axis_name=axes, varying=varying)
    return index if size == 1 else m.emit(
        OPS["mul"], index, varying_as(m, np.int32(size), index))


class OnBlocks:
    """What an op's `localize` sees of an equation that is applied to blocks along a factor
    (`LocalizeContext` of ir/op.py): so scans exchange totals, and windows the rows of neighbours.
    """
    permutes = False

    def __init__(self, m: Match, axes: tuple[Any, ...], eqn: Equation, rule: FactorRule, f: int,
                 operands: Sequence[Atom], shapes: Sequence[tuple[int, ...]]) -> None:
        self.m, self.operands, self.params, self.rule = m, operands, eqn.params, rule
        self.operand_types = [a.aval for a in eqn.invars]
        self.result_types = [v.aval for v in eqn.outvars]
        self.local_operand_shapes = [a.aval.shape for a in operands]
        self.local_result_shapes = shapes
        self.axes_of_factor = {f: axes}
        self.result_entries = [tuple([axes if f in own else () for own in dims])
                               for dims in rule.results]
        self.varying = any(a.aval.manual.varying for a in operands)

    def emit(self, op: Op, operands: Sequence[Atom], params: dict[str, Any]) -> list[Atom]:
        if op.name in _ANY_TYPES and not self.varying:      # without `check_vma`
            op, params = OPS[_ANY_TYPES[op.name]], {**params, "axis_index_groups": None}
        made = self.m.emit(op, *varying_alike(self.m, operands), **params)
        return made if op.multiple_results else [made]

    def block_offset(self, axes: tuple[str, ...], block_size: int) -> Atom:
        return own_place(self.m, axes, block_size, self.varying)
