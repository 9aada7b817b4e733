"""Equations that hold programs: calls, loops, branches, regions of shard_map."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...driver.jit.jit import jit
from ...ir.ops.control.loop_operands import scan_operands, while_operands
from ...ir.support.lazy import lazy_import
from ...tracer.autodiff.rematerialization.checkpoint import checkpoint
from ...tracer.lax.control.branches import switch
from ...tracer.lax.control.loops import scan, while_loop
from ...tracer.lax.sharding import with_sharding_constraint
from ...tracer.shard_map.shard_map import shard_map
from ..jax_values import mesh_of, sharding_of, spec_of
from .equations import Replay, rule
from .locations import is_of_jax

jax = lazy_import("jax")


def function_of(replay: Replay, closed: Any, consts: Sequence[Any] | None = None
                ) -> Callable[..., list[Any]]:
    """A function of ours of a jaxpr. What JAX defines itself stands where it is called."""
    jaxpr = closed if consts is not None else closed.jaxpr
    values = closed.consts if consts is None else consts
    place = replay.place
    inside = replay.is_inside_library or is_of_jax(jaxpr.debug_info.func_src_info or "")

    def run(*operands: Any) -> list[Any]:
        before = replay.place, replay.is_inside_library
        replay.place, replay.is_inside_library = place, inside
        try:
            return replay.run(jaxpr, values, operands)
        finally:
            replay.place, replay.is_inside_library = before
    run.__name__ = run.__qualname__ = name_of(jaxpr)
    return run


def name_of(jaxpr: Any) -> str:
    found = (jaxpr.debug_info.func_src_info or "f").partition(" at ")[0]
    return found.rpartition(".")[2].strip("<>") or "f"


def laid_out(replay: Replay, values: Sequence[Any], shardings: Sequence[Any]) -> list[Any]:
    """The values as shardings of JAX's ask for; as they are where these say nothing of axes."""
    found = []
    for x, theirs in zip(values, shardings, strict=True):
        ours = sharding_of(theirs, replay.mesh)
        found.append(x if ours is None else with_sharding_constraint(x, ours))
    return found


@rule("jit", "pjit")
def _jit(replay: Replay, eqn: Any, operands: list[Any]) -> Any:
    params = eqn.params
    run = function_of(replay, params["jaxpr"])
    run.__name__ = run.__qualname__ = params["name"]
    operands = laid_out(replay, operands, params["in_shardings"])
    return laid_out(replay, jit(run)(*operands), params["out_shardings"])


@rule("closed_call", "core_call", "call", "custom_jvp_call", "custom_vjp_call",
      "custom_vmap_call")
def _call(replay: Replay, eqn: Any, operands: list[Any]) -> Any:
    """What is called; how it is differentiated or batched was decided before."""
    name = "call" if eqn.primitive.name == "custom_vmap_call" else "call_jaxpr"
    return function_of(replay, eqn.params[name])(*operands)


@rule("remat2", "checkpoint", "remat")
def _remat(replay: Replay, eqn: Any, operands: list[Any]) -> Any:
    """A part that is computed again stays apart: no pass may merge it with the first time."""
    params = eqn.params
    return checkpoint(function_of(replay, params["jaxpr"], ()), prevent_cse=params["prevent_cse"])(
        *operands)


@rule("scan")
def _scan(replay: Replay, eqn: Any, operands: list[Any]) -> Any:
    """`scan`, with constants closed over by the body."""
    params = eqn.params
    parts = scan_operands(params)
    consts, init, xs = parts.split(operands)
    body = function_of(replay, params["jaxpr"])

    def step(carry: list[Any], slices: list[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
        return parts.results(body(*consts, *carry, *slices))
    step.__name__ = step.__qualname__ = body.__name__
    last, stacked = scan(step, init, xs, length=params["length"], reverse=params["reverse"],
                         unroll=params["unroll"])
    return [*last, *stacked]


@rule("while")
def _while(replay: Replay, eqn: Any, operands: list[Any]) -> Any:
    params = eqn.params
    tested = function_of(replay, params["cond_jaxpr"])
    done = function_of(replay, params["body_jaxpr"])
    of_test, of_body, init = while_operands(params).split(operands)
    return while_loop(lambda carry: tested(*of_test, *carry)[0],
                      lambda carry: done(*of_body, *carry), init)


@rule("cond")
def _cond(replay: Replay, eqn: Any, operands: list[Any]) -> Any:
    branches = [function_of(replay, b) for b in eqn.params["branches"]]
    index, *rest = operands
    return switch(index.astype("int32"), branches, *rest)


@rule("shard_map")
def _shard_map(replay: Replay, eqn: Any, operands: list[Any]) -> Any:
    params = eqn.params
    mesh = replay.mesh or mesh_of(params["mesh"])
    return shard_map(
        function_of(replay, params["jaxpr"], ()), mesh=mesh,
        in_specs=tuple(map(spec_of, params["in_specs"])),
        out_specs=list(map(spec_of, params["out_specs"])),
        axis_names=frozenset(params["newly_manual_axes"]), check_vma=params["check_vma"])(*operands)


@rule("custom_linear_solve")
def _custom_linear_solve(replay: Replay, eqn: Any, operands: list[Any]) -> Any:
    """The solution; how it is differentiated was decided before."""
    lengths, programs = eqn.params["const_lengths"], eqn.params["jaxprs"]
    first = lengths.matvec + lengths.vecmat
    consts = operands[first:first + lengths.solve]
    wanted = operands[first + lengths.solve + lengths.transpose_solve:]
    return function_of(replay, programs.solve)(*consts, *wanted)
