"""Calls with derivative rules of their own, and named values.

`custom_jvp_call` and `custom_vjp_call` are calls of `call_jaxpr` whose derivative is a Python
function that the user wrote; `checkpoint` is a call whose derivative computes its intermediate
values again. To every other transformation they are calls. `custom_lin` is what stands for the
derivative of a custom_vjp function until it is transposed; it can do nothing else.
"""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ...diagnostics.diagnostic import fail
from ...facts import IDENTITY, MAY_BE_NAN
from ...op import Op, Sample, defop
from ...rules.rule import FactorRule
from ...types import ArrayType
from ..elementwise.declaration import values
from ..rules import CALL_RULE, states_of
from .call import composite_p, jit_p


def _call(name: str, doc: str, *subprograms: str, facts: Iterable[str] = ()) -> Op:
    """Declare a call of the program in its first subprogram's param."""
    def infer(*types: ArrayType, **params: Any) -> list[ArrayType]:
        return list(params[subprograms[0]].out_avals)

    return defop(
        name, doc=doc, infer=infer, multiple_results=True, subprograms=subprograms,
        rule=CALL_RULE, manual=states_of(subprograms[0]), facts=facts)


custom_jvp_call_p = _call(
    "custom_jvp_call",
    "Call `call_jaxpr`; `jvp_jaxpr_fun` gives the derivative. The first `num_consts` operands are "
    "values that the function closes over.", "call_jaxpr")
custom_vjp_call_p = _call(
    "custom_vjp_call",
    "Call `call_jaxpr`; `fwd_jaxpr_thunk` gives results and residuals, `bwd` the cotangents of the "
    "operands. The first `num_consts` operands are values that the function closes over.",
    "call_jaxpr")
checkpoint_p = _call(
    "checkpoint",
    "Call `jaxpr`; its derivative computes intermediate values again, but for those that `policy` "
    "saves.", "jaxpr")
custom_linear_solve_p = _call(
    "custom_linear_solve",
    "Call `call_jaxpr`, which solves a linear system for the operands after the first "
    "`num_consts`, and may give further results. `maps` are the programs of the linear map and, if "
    "it can be transposed, of its transpose and of the solution of that; all take the same first "
    "operands, and give the derivatives.", "call_jaxpr", "maps", facts=(MAY_BE_NAN,))
CALLS = frozenset(op.name for op in (
    jit_p, composite_p, checkpoint_p, custom_jvp_call_p, custom_vjp_call_p, custom_linear_solve_p))
"""Ops that do what the program in their first subprogram's param says, whatever they mean to
derivatives and batching."""


def _forward_mode(operand_shapes: tuple, result_shapes: tuple, **params: Any) -> FactorRule:
    fail(TypeError, "can't apply forward-mode autodiff (jvp) to a custom_vjp function.",
         code="custom-vjp-forward", help="use reverse mode (`grad`, `vjp`), or a custom_jvp")


custom_lin_p = defop(
    "custom_lin",
    doc="The tangents of a custom_vjp function, of its residuals (the first `num_res` operands) "
        "and the tangents of its operands; to be transposed, by `bwd`.",
    infer=lambda *types, out_avals, **params: list(out_avals), multiple_results=True,
    rule=_forward_mode, manual=lambda op, types, params: [t.manual for t in params["out_avals"]])

name_p = defop(
    "name", doc="x, under a `name` that policies of `checkpoint` know.",
    infer=lambda x, *, name: (x.shape, x.dtype), rule="... -> ...", pending="carry",
    linear=((0,),),
    jvp=lambda operands, tangents, *, name: (name_p.bind(operands[0], name=name), tangents[0]),
    transpose=lambda ct, x, *, name: [ct],
    evaluate=lambda lead, x, *, name: x, arithmetic=False, facts=(IDENTITY,),
    samples=lambda: [Sample((values((4, 6), np.float32, -3, 3),), {"name": "x"})])
