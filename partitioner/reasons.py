"""Functions on reasons (ir/reasons.py): the reason of one equation in place of several, the kind of
exchange that a reason gives, and the padding that it mentions.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ..ir.program import Equation
from ..ir.reasons import (
    AND_MORE,
    ASKED,
    CHOSEN,
    COUNT,
    NEEDED,
    ONE_OF,
    PADDED,
    WRITTEN,
    Alternative,
    Reason,
)

_MOST = 8
RESHARD_WRITTEN: Reason = (WRITTEN("reshard"),)


def written(op: str) -> Reason:
    """The reason of an exchange that the user wrote."""
    return (WRITTEN(op.removesuffix("_invariant")),)


def is_written(eqn: Equation) -> bool:
    """Did the user write an exchange of a per-device program? Those of the planner have a reason.
    """
    return not eqn.reason


def merged_reasons(reasons: Iterable[Reason]) -> Reason:
    """The reason of an exchange with several, each once."""
    return tuple([clause for reason in dict.fromkeys(reasons) for clause in reason])


def shown_reasons(reasons: Sequence[Reason]) -> Reason:
    """One reason for several that may be merged ones; of many clauses, the first and how many
    follow.
    """
    if len(reasons) == 1 and len(reasons[0]) < 2:
        return reasons[0]
    clauses = tuple(dict.fromkeys([clause for reason in reasons for clause in reason]))
    more = len(clauses) - _MOST
    return (*clauses[:_MOST], AND_MORE(more)) if more > 0 else clauses


def reason_of_both(first: Reason, second: Reason) -> Reason:
    """The reason of one reshard in place of two; one without a reason was written by the user."""
    return merged_reasons((first or RESHARD_WRITTEN, second or RESHARD_WRITTEN)) if (
        first or second) else ()


def reason_of_group(eqns: Iterable[Equation]) -> Reason:
    """The reason of one equation in place of several: those of all, each with its line."""
    def placed(eqn: Equation) -> Reason:
        *clauses, last = eqn.reason or (ONE_OF(eqn.op.name),)
        return (*clauses, last._replace(place=str(eqn.location)))
    return merged_reasons(map(placed, eqns))


def kind_of(reason: Reason, sums: bool | None = None) -> tuple[str, Alternative | None]:
    """The kind of an exchange with this reason, and the alternative if it was chosen.

    Of several clauses the one that would keep the exchange alone decides: "needed" first, then
    "asked"; without any, the user wrote the exchange. sums: whether the exchange adds up; if only
    some of the clauses are about a sum, only those that fit are considered.
    """
    clauses = [c for c in reason if not c.sentence.remark] or reason
    if sums is not None:
        clauses = [c for c in clauses if c.sentence.sums == sums] or clauses
    kinds = [c.kind for c in clauses] or [ASKED]
    for kind in (NEEDED, ASKED):
        if kind in kinds:
            return kind, None
    return CHOSEN, clauses[0].alternative


def paddings(reason: Reason) -> Iterator[tuple[int, int, int]]:
    """(dimension, real rows, rows with padding) of each dimension that an equation pads."""
    for c in reason:
        if c.sentence is PADDED:
            d, _, n, size = c.values
            yield d, n, size


def padded_share(reason: Reason) -> float:
    """The share of what an exchange with this reason moves that is padding."""
    part = 1.0
    for n, size in dict.fromkeys([c.values[:2] for c in reason if c.sentence is COUNT]):
        part *= n / size
    return 1 - part
