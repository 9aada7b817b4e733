"""Reasons of merged exchanges: each distinct reason once, joined by semicolons."""
from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..ir.program import Equation

_MOST = 8


def written(op: str) -> str:
    """The reason of an exchange that the user wrote."""
    return f"`{op.removesuffix('_invariant')}` is written here"


WRITTEN = written("reshard")


def is_written(eqn: Equation) -> bool:
    """Did the user write an exchange of a per-device program? Those of the planner have a reason.
    """
    return not eqn.reason


def merged_reasons(reasons: Iterable[str]) -> str:
    """One text for an exchange with several reasons."""
    return "; ".join(dict.fromkeys(filter(None, reasons)))


def shown_reasons(reasons: Sequence[str]) -> str:
    """One text for reasons that may be merged ones; of many, the first and how many follow."""
    if reasons and len(reasons) < 2 and "; " not in reasons[0]:
        return reasons[0]
    parts = list(dict.fromkeys(part for r in reasons if r for part in r.split("; ")))
    shown = parts[:_MOST]
    if len(parts) > len(shown):
        shown.append(f"and {len(parts) - len(shown)} more")
    return "; ".join(shown)


def reason_of_both(first: str, second: str) -> str:
    """The reason of one reshard in place of two; one without a reason was written by the user."""
    return merged_reasons((first or WRITTEN, second or WRITTEN)) if first or second else ""
