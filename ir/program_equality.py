"""When two programs are equal: same equations, types, params and constants, whatever the names."""
from __future__ import annotations

from typing import Any

import numpy as np

from .program import Atom, Literal, Program, Var


def programs_equal(a: Program, b: Program) -> bool:
    """Structural equality: same equations, types, params and constants, whatever the names.

    Locations and reasons do not count. Constants are compared bit for bit.
    """
    if (a.level is not b.level or a.mesh is not b.mesh or len(a.eqns) != len(b.eqns)
            or a.global_in != b.global_in or a.global_out != b.global_out
            or a.in_avals != b.in_avals or a.out_avals != b.out_avals
            or len(a.consts) != len(b.consts)):
        return False
    same: dict[Var, Var] = dict(zip(a.invars, b.invars, strict=True))
    for (va, xa), (vb, xb) in zip(a.consts, b.consts, strict=True):
        if va.aval is not vb.aval or not _values_equal(xa, xb):
            return False
        same[va] = vb

    def atoms_equal(x: Atom, y: Atom) -> bool:
        if isinstance(x, Literal):
            return isinstance(y, Literal) and x.aval is y.aval and _values_equal(x.val, y.val)
        return same.get(x) is y

    for ea, eb in zip(a.eqns, b.eqns, strict=True):
        if (ea.op is not eb.op or len(ea.invars) != len(eb.invars)
                or len(ea.outvars) != len(eb.outvars)
                or not all(map(atoms_equal, ea.invars, eb.invars))
                or not params_equal(ea.params, eb.params)):
            return False
        for va, vb in zip(ea.outvars, eb.outvars, strict=True):
            if va.aval is not vb.aval:
                return False
            same[va] = vb
    return all(map(atoms_equal, a.outvars, b.outvars))


def params_equal(a: dict[str, Any], b: dict[str, Any]) -> bool:
    if a.keys() != b.keys():
        return False
    return all(_param_equal(a[k], b[k]) for k in a)


def _param_equal(x: Any, y: Any) -> bool:
    if isinstance(x, Program):
        return isinstance(y, Program) and programs_equal(x, y)
    if isinstance(x, tuple) and isinstance(y, tuple):
        return len(x) == len(y) and all(map(_param_equal, x, y))
    if isinstance(x, (np.ndarray, np.generic)):
        return _values_equal(x, y)
    if type(x) is float and type(y) is float:
        return x.hex() == y.hex()          # NaN equals itself, 0.0 is not -0.0
    return x is y or x == y


def _values_equal(x: Any, y: Any) -> bool:
    # Arrays of random keys refuse `np.asarray`; `value` is what they hold.
    x, y = np.asarray(getattr(x, "value", x)), np.asarray(getattr(y, "value", y))
    return x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()
