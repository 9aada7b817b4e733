"""How often loops run: the length of a scan, and the count of a `while` between constants."""
from __future__ import annotations

from typing import Any

import numpy as np

from ...program import Atom, Equation, Literal, Program, Var
from .loop_operands import while_operands


def trips(eqn: Equation, unknown: int = 1) -> int:
    """How often a loop runs its body; `unknown` where it does not say; 1 of other equations."""
    if eqn.op.name == "scan":
        return int(eqn.params["length"])
    if eqn.op.name == "while":
        found = trip_count(eqn)
        return unknown if found is None else found
    return 1


def trip_count(eqn: Equation) -> int | None:
    """How often the body of a `while` equation runs, where it counts from a constant to one."""
    params = eqn.params
    cond, body = params["cond_jaxpr"], params["body_jaxpr"]
    skip, own = while_operands(params)
    test = _made_by(cond, cond.outvars[0])
    if test is None or test.op.name not in _TESTS or len(test.invars) != 2:
        return None
    left, right = test.invars
    compare = _TESTS[test.op.name]
    if left not in cond.invars[skip:]:
        left, right, compare = right, left, _TESTS[_SWAPPED[test.op.name]]
    if left not in cond.invars[skip:]:
        return None
    k = cond.invars.index(left) - skip
    outer: dict[Atom, Atom] = dict(zip(cond.invars[:skip], eqn.invars[:skip], strict=True))
    limit, start = _constant(outer.get(right, right)), _constant(eqn.invars[skip + own + k])
    counter = body.invars[own + k]
    step = _made_by(body, body.outvars[k])
    if limit is None or start is None or step is None or step.op.name not in ("add", "sub"):
        return None
    by = [_constant(a) for a in step.invars if a is not counter]
    if len(by) != 1 or by[0] is None or (step.op.name == "sub" and step.invars[0] is not counter):
        return None
    return _steps(start, limit, by[0] if step.op.name == "add" else -by[0], compare)


_TESTS: dict[str, Any] = {"lt": np.less, "le": np.less_equal, "gt": np.greater,
                          "ge": np.greater_equal}
_SWAPPED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}


def _steps(start: int, limit: int, by: int, compare: Any) -> int | None:
    if not compare(start, limit):
        return 0
    if not by or (by > 0) != (compare in (np.less, np.less_equal)):
        return None
    distance = abs(limit - start) + (compare in (np.less_equal, np.greater_equal))
    return -(-distance // abs(by))


def _made_by(program: Program, atom: Atom) -> Equation | None:
    return next((e for e in program.eqns if atom in e.outvars), None)


def _constant(atom: Atom) -> int | None:
    if isinstance(atom, Var) or not isinstance(atom, Literal):
        return None
    value = np.asarray(atom.val)
    return int(value) if value.ndim == 0 and value.dtype.kind in "iu" else None
