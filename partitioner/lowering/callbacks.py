"""Lowering calls of host functions: which devices call, and which axes results vary over.

Outside manual regions a function is called once, with whole values, or once per device with its
block if the user asks for that (`partitioned`). Nothing is known about what a function returns, so
inside a manual region its results vary over all of the region's axes.
"""
from __future__ import annotations

from ...ir.diagnostics.diagnostic import fail
from ...ir.ops.control.callback import inspect_sharding_p
from ...ir.program import Equation
from .builder import Lowering


def localize_callback(out: Lowering, eqn: Equation) -> None:
    """Append a callback equation for one device's blocks."""
    params, op = dict(eqn.params), eqn.op
    if op is inspect_sharding_p:            # whoever asked for the program gives its callback
        return
    if op.effect == "debug":
        if params.get("ordered") and out.mesh.size > 1:
            fail(ValueError, "The following ordered effects are not supported for more than 1 "
                 "device: [OrderedDebug]", code="ordered-effect", location=eqn.location,
                 help="leave out `ordered`: without it, calls come in program order as well")
        if params.get("partitioned"):
            params["axes"] = tuple(out.mesh.axis_names)
    else:
        params["varying"] = True
        partly = out.manual and set(params.get("axes", ())) != set(out.mesh.axis_names)
        if partly:
            fail(NotImplementedError, "callbacks are only supported in spmd computations when all "
                 "mesh axes are partitioned manually (no partial automatic sharding).",
                 code="partial-manual", location=eqn.location,
                 help="name all axes of the mesh in `axis_names`, or leave it out")
        if out.manual and params.get("sharding") is not None:
            fail(NotImplementedError, "callbacks do not support specifying sharding inside spmd "
                 "computations", code="callback-sharding", location=eqn.location,
                 help="leave out `sharding`: each device calls with its own block")
    results = out.emit(op, [out.atom(a) for a in eqn.invars], params,
                       [v.name for v in eqn.outvars])
    out.bind_all(eqn.outvars, results)
