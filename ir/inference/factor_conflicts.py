"""The factor on which two operands disagree: a note for errors of explicit typing.

A factor is a dimension of an equation's rule, such as `i` in `i k, k j -> i j`; operands that carry
it must be split alike there, and an axis may split one factor only.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..diagnostics.diagnostic import Diagnostic
from ..op import Op
from ..support.immutable import replace
from ..types import ArrayType, Shape


def add_factors(error: Exception, op: Op, types: tuple[ArrayType, ...], shapes: Sequence[Shape],
                params: dict[str, Any]) -> None:
    """Put the factors in question into an error's text, each with the axes that operands have."""
    diagnostic = getattr(error, "diagnostic", None)
    if not isinstance(diagnostic, Diagnostic):
        return
    try:
        notes = factor_notes(op, types, shapes, params)
    except Exception:        # an op without a rule for these: the error stands as it is
        return
    if notes:
        diagnostic = replace(diagnostic, notes=(*diagnostic.notes, *notes))
        error.diagnostic = diagnostic  # type: ignore[attr-defined]
        error.args = (diagnostic.render(),)


def factor_notes(op: Op, types: tuple[ArrayType, ...], shapes: Sequence[Shape],
                 params: dict[str, Any]) -> tuple[str, ...]:
    """A line for each factor that is split in two ways, or by an axis that splits another one."""
    rule = op.factor_rule(tuple(t.shape for t in types), tuple(shapes), params)
    places: dict[int, list[tuple[int, int, tuple[str, ...]]]] = {}
    for i, (dims, t) in enumerate(zip(rule.operands, types, strict=True)):
        for d, factors in enumerate(dims):
            if len(factors) == 1 and t.entries[d]:
                places.setdefault(factors[0], []).append((i, d, t.entries[d]))
    holders: dict[str, set[int]] = {}
    for f, held in places.items():
        for _, _, axes in held:
            for a in axes:
                holders.setdefault(a, set()).add(f)
    lines = []
    for f, held in sorted(places.items()):
        shared = any(len(holders[a]) > 1 for _, _, axes in held for a in axes)
        differs = len({axes for _, _, axes in held}) > 1
        summed = not any(f in factors for dims in rule.results for factors in dims)
        if shared or differs or summed:
            where = ", ".join(f"operand {i} (dimension {d}) over {_axes(axes)}"
                              for i, d, axes in held)
            word = ", which is summed," if summed else ""
            lines.append(f"factor {rule.factors[f].name} of `{rule}`{word} has size "
                         f"{rule.factors[f].size}: {where}")
    return tuple(lines)


def _axes(axes: tuple[str, ...]) -> str:
    return axes[0] if len(axes) == 1 else f"({', '.join(axes)})"
