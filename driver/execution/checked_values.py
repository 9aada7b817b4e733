"""`debug_nans` and `debug_infs`: the error at the op that made the number, not at the end.

Results of executables are looked at when they come out. If one holds a NaN (an infinity), the
program is run again op by op, and the op that made the first is named with the user's line.
"""
from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...arrays.array import ArrayImpl
from ...ir.diagnostics.diagnostic import fail
from ...ir.facts import PER_DEVICE
from ...ir.meshes.mesh import Mesh
from ...ir.program import Program, Var
from ...ir.settings.context import STATE, config
from ...ir.source.location import Location
from ...tracer.autodiff.replay import operand, process
from ...tracer.shardings.mesh_context import mesh_context


def watched() -> tuple[str, ...]:
    """The kinds of numbers, "nan" and "inf", that are errors in results."""
    overrides, values = STATE.overrides, config._values
    if not overrides and not values["jax_debug_nans"] and not values["jax_debug_infs"]:
        return ()
    return tuple(kind for kind in ("nan", "inf") if config.read(f"jax_debug_{kind}s"))


def bad_value(results: Sequence[Any], kinds: Sequence[str]) -> str | None:
    """The kind of number that one of the results holds and should not, if any."""
    for x in results:
        if isinstance(x, ArrayImpl) and not (isinstance(x.dtype, np.dtype) and x.is_readable):
            continue
        value = np.asarray(x)
        if not np.issubdtype(value.dtype, np.inexact) and value.dtype.kind != "V":
            continue
        if value.dtype.kind == "V":
            value = value.astype(np.float32)
        for kind in kinds:
            if (np.isnan if kind == "nan" else np.isinf)(value).any():
                return kind
    return None


def report(program: Program, arguments: Sequence[Any], kind: str, kinds: Sequence[str],
           mesh: Mesh | None, is_operation: bool) -> None:
    """Raise FloatingPointError at the first equation that makes such a number from operands without
    one.

    mesh: that the program ran on. is_operation: whether it is one op, whatever its operands are.
    """
    if is_operation and not program.eqns[0].op.subprograms:
        _raise(kind, f"invalid value ({kind}) encountered in {program.eqns[0].op.name}",
               program.eqns[0].location)
    where = contextlib.nullcontext() if mesh is None else mesh_context(mesh)
    with config.override(jax_debug_nans=False, jax_debug_infs=False), where:
        _replay(program, arguments, kinds)
    _raise(kind, f"invalid value ({kind}) encountered in jit({program.name}). Op by op, the "
           "de-optimized function did not produce invalid values during its execution: they are "
           "among its inputs, or are literal outputs", None)


def _replay(program: Program, arguments: Sequence[Any], kinds: Sequence[str]) -> list[Any]:
    """Run a program equation by equation, and raise at the first that makes a bad value of good
    ones.
    """
    env: dict[Var, Any] = dict(zip(program.invars, arguments, strict=True))
    env.update(program.consts)
    for eqn in program.eqns:
        operands = [operand(a, env) for a in eqn.invars]
        if eqn.op.name == "jit":
            results = _replay(eqn.params["jaxpr"], operands, kinds)
        else:
            results = process(eqn.op, operands, eqn.params)
            kind = bad_value(results, kinds)
            if kind is not None and bad_value(operands, (kind,)) is None:
                region = PER_DEVICE in eqn.op.facts
                _raise(kind, f"Invalid value ({kind}) encountered in sharded computation." if region
                       else f"invalid value ({kind}) encountered in {eqn.op.name}", eqn.location)
        env.update(zip(eqn.outvars, results, strict=True))
    return [operand(a, env) for a in program.outvars]


def _raise(kind: str, message: str, location: Location | None) -> None:
    fail(FloatingPointError, message, code="bad-number",
         location=location, label=f"the result holds {'a NaN' if kind == 'nan' else 'an infinity'}",
         notes=(f"`debug_{kind}s` is on",),
         help=f"where such numbers are meant, compute under `debug_{kind}s` of False")
