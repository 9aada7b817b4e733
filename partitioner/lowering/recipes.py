"""How an equation runs on blocks: unchanged, with resized params, or by its op's own emitter."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...ir import reasons as say
from ...ir.op import Op
from ...ir.op_instance import OpInstance, Signature, instance_of
from ...ir.ops.communication.collective import pand_p, pmax_p, pmin_p, por_p, pprod_p, pxor_p
from ...ir.reasons import Clause, Reason, operand
from ...ir.rules.factor import PASS
from ...ir.rules.rule import ELEMENTWISE, FactorRule
from ...ir.types import ArrayType, Entries, Shape
from ..factors import Axes, RuleInfo, project, rule_info

FINISH = {"max": pmax_p, "min": pmin_p, "prod": pprod_p, "and": pand_p, "or": por_p, "xor": pxor_p}
OF_BOOLS = {"and": pmin_p, "or": pmax_p}


class Recipe:
    """How an equation runs on blocks; one for each (op, types, params).

    emitter: whether the op's own emitter is needed. exchange: why that may exchange something.
    direct: the equation becomes one equation of the same op. instance: that op with local params;
    None if the params stay the same. finish: (reducer op, axes by factor, reason). made:
    the types of operands and local results, by the types of the operands. rule: None where no
    factor is split or no dimension changes.
    """

    __slots__ = (
        "axes_of", "declared", "emitter", "exchange", "finish", "made", "rule", "direct", "types",
        "instance")

    def __init__(self, types: tuple[ArrayType, ...], declared: tuple[ArrayType, ...],
                 rule: FactorRule | None = None, axes_of: Mapping[int, Axes] | None = None,
                 emitter: bool = False, exchange: Reason = (), instance: OpInstance | None = None,
                 finish: tuple[tuple[Op, tuple[Axes, ...], Reason], ...] = (), direct: bool = True
                 ) -> None:
        self.types, self.declared, self.rule = types, declared, rule
        self.axes_of: Mapping[int, Axes] = {} if axes_of is None else axes_of
        self.emitter, self.exchange, self.instance = emitter, exchange, instance
        self.finish, self.direct = finish, direct
        self.made: dict[tuple[ArrayType, ...], Signature] = {}

    @property
    def operand_shapes(self) -> tuple[Shape, ...]:
        """Shapes of the operands' local blocks."""
        return tuple([t.local_shape() for t in self.types])

    @property
    def result_shapes(self) -> tuple[Shape, ...]:
        """Shapes of the results' local blocks."""
        return tuple([t.local_shape() for t in self.declared])

    @property
    def result_entries(self) -> tuple[Entries, ...]:
        """The axes that split each dimension of each result."""
        return tuple([t.entries for t in self.declared])


def recipe_of(instance: OpInstance, types: tuple[ArrayType, ...], declared: tuple[ArrayType, ...],
              params: dict[str, Any]) -> Recipe:
    """The recipe for equations of this instance and these types."""
    op, tensors = instance.op, (*types, *declared)
    if op.localize is None and ((op.rule == ELEMENTWISE and op.resize is None)
                                or not _is_split(tensors)):
        return Recipe(types, declared)
    rule = instance.rule(types, declared)
    info = rule_info(rule)
    axes_of: dict[int, Axes] = {}
    for aval, dims, plain in zip(tensors, info.maps, info.plain, strict=True):
        if plain is not None and -1 not in plain:
            for f, axes in zip(plain, aval.entries, strict=True):
                if axes:
                    axes_of[f] = axes
        elif any(aval.entries):
            found, overflow, _ = project(dims, info.factors, aval.entries, aval.mesh.axis_size)
            assert not overflow, f"`{op.name}` {types} -> {declared} does not fit `{rule}`"
            axes_of.update([(f, axes) for f, axes in found.items() if axes])
    emitter = op.localize is not None and (
        bool(axes_of) or any([t.sharding.spec.unreduced for t in tensors]))
    local = None
    if axes_of and not emitter and op.resize is not None:
        local = instance_of(op, op.resize(params, tuple([t.local_shape() for t in types]),
                                          tuple([t.local_shape() for t in declared])))
    split = [(f, axes_of[f], info.factors[f]) for f in sorted(axes_of)
             if info.factors[f].kind != PASS]
    if not split:
        return Recipe(types, declared, rule, axes_of, emitter, (), local, (), not emitter)
    first, *others = worked = [_over(info, f, axes) for f, axes, _ in split]
    exchange = (say.EXCHANGES(op.name, because=(first,)), *others)
    finish: dict[Op, tuple[tuple[Axes, ...], tuple[Clause, ...]]] = {}
    for (_, axes, factor), clause in zip(split, worked, strict=True):
        if factor.reducer:
            bools = OF_BOOLS if declared[0].dtype == np.bool_ else {}
            reducer = bools.get(factor.operator) or FINISH[factor.operator]
            before, clauses = finish.get(reducer, ((), ()))
            finish[reducer] = ((*before, axes), (*clauses, clause))
    done = tuple([(reducer, axes, (say.LEAVES_RESULTS(op.name, because=clauses),))
                  for reducer, (axes, clauses) in finish.items()])
    return Recipe(types, declared, rule, axes_of, emitter, exchange, local, done,
                  not emitter and not done)


def _is_split(tensors: Sequence[ArrayType]) -> bool:
    for t in tensors:
        for axes in t.entries:
            if axes:
                return True
    return False


def _over(info: RuleInfo, f: int, axes: Axes) -> Clause:
    """Where a factor appears, and the axes that split it."""
    return next((say.OVER(d, operand(i), ", ".join(axes)) for i in range(info.operands)
                 for g, d, _ in info.places[i] if g == f), say.SOMEWHERE_OVER(", ".join(axes)))
