"""Lowering `custom_partitioning`: the user's function is traced on blocks and inlined.

The blocks are those of the chosen strategy, with all axes Manual, as in the body of a shard_map;
where the function asks for other blocks, operands are resharded to them.
"""
from __future__ import annotations

from ...ir.diagnostics.diagnostic import fail
from ...ir.meshes.mesh_axes import group_size
from ...ir.ops.communication.sharding import assume_invarying_p
from ...ir.program import Atom, Equation
from ...ir.reasons import GIVES_SO, SAYS_SAME, WANTS, Reason
from ...ir.rewriting.inline import inline
from ...ir.rules.factor_axes import axes_without
from ...ir.types import ArrayType, Entries
from ..redistribution.moves import emit_moves
from ..redistribution.redistribute import plan
from .builder import Lowering
from .recipes import recipe_of


def localize_user_function(out: Lowering, eqn: Equation) -> None:
    """Append the user's function for a `custom_partitioning` equation, on one device's blocks."""
    types = [a.aval for a in eqn.invars]
    blocks = eqn.params["call"].on_blocks(types, [v.aval for v in eqn.outvars])
    body = inline(blocks.program)
    recipe = recipe_of(eqn.instance, tuple(types), tuple([v.aval for v in eqn.outvars]),
                       eqn.params)
    reason = (WANTS(blocks.name),)
    atoms = [_moved(out, out.atom(a), t, t.entries, want, reason)
             for a, t, want in zip(eqn.invars, types, blocks.operands, strict=True)]
    out.bind_all(body.invars, atoms)
    out.constants(body)
    was, out.manual = out.manual, True
    out.body(body)
    out.manual, out.location = was, eqn.location
    around = eqn.outvars[0].aval.mesh.manual_axes if eqn.outvars else ()
    for i, (var, body_result, made) in enumerate(zip(eqn.outvars, body.outvars, blocks.results,
                                                     strict=True)):
        atom, aval = out.atom(body_result), var.aval
        want = tuple([n // group_size(out.mesh, axes)
                      for n, axes in zip(aval.shape, made, strict=True)])
        if atom.aval.shape != want or atom.aval.dtype != aval.dtype:
            fail(ValueError, f"Mismatch in result shapes. `{blocks.name}` gives result {i} of "
                 f"blocks as {atom.aval.str_short()}, not {aval.dtype}{list(want)}",
                 code="block-shape",
                 location=eqn.location, help="the function on blocks gives the block of the result")
        claimed = aval.sharding.spec.unreduced.union(around, *made)
        extra = out.mesh.sort_axes(axes_without(atom.aval.varying, claimed, out.mesh))
        for reducer, parts, reason in recipe.finish:
            over = tuple([a for axes in parts for a in axes if a in extra])
            if over:
                out.reason = reason
                atom = out.emit(reducer, [atom], {"axes": over})[0]
                extra = [a for a in extra if a not in over]
        if extra:
            out.reason = (SAYS_SAME(blocks.name, i, ", ".join(extra)),)
            atom = out.emit(assume_invarying_p, [atom], {"axes": extra})[0]
        out.env[var] = _moved(out, atom, aval, made, aval.entries,
                              (GIVES_SO(blocks.name),))


def _moved(out: Lowering, atom: Atom, aval: ArrayType, source: Entries, target: Entries,
           reason: Reason) -> Atom:
    if source == target:
        return atom
    out.reason = reason
    return emit_moves(out, atom, plan(aval.mesh, aval.shape, source, target).moves)
