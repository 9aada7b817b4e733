"""The pass from RESHARDED to LOCAL: the program that every device runs on its blocks.

Shapes become local and all axes Manual. Equations run on blocks (builder.py), reshards become
collectives, and shard_map bodies are inlined. Varying axes are found by data flow, from the
parameters' blocks, own-block slices and collectives; they are not taken from types.
"""
from __future__ import annotations

from ...ir.facts import PER_DEVICE
from ...ir.meshes.mesh import AbstractMesh
from ...ir.op import Op
from ...ir.ops.communication.sharding import reshard_p
from ...ir.ops.control.user_partitioned import custom_partitioning_p
from ...ir.program import Atom, Equation, Level, Literal, Program, Var
from ...ir.rules.factor_axes import axes_without
from ...ir.support.caches import cached
from ...ir.types import ArrayType
from ..policy import OWN, Policy
from ..propagation.resolved_types import frozen_mesh, typed
from ..redistribution.moves import emit_moves
from ..redistribution.redistribute import plan
from ..redistribution.steps_of_xla import with_copies_of_xla
from ..regions import has_region
from .builder import Lowering, Special, local_mesh, local_type
from .callbacks import localize_callback
from .region_bodies import (
    is_of_regions,
    localize_manual_region,
    localize_plain,
    localize_region,
)
from .user_partitioned import localize_user_function


def localize(program: Program, policy: Policy = OWN) -> Program:
    """The pass from a RESHARDED program to the per-device one."""
    mesh = local_mesh(program.mesh)
    lowering = Lowering(mesh, _SPECIAL, policy=policy)
    env, wholes = lowering.env, program.in_avals
    blocks = {t: local_type(t, mesh) for t in set(wholes)}
    invars = [Var(blocks[v.aval], v.name) for v in program.invars]
    lowering.bind_all(program.invars, invars)
    if program.consts:
        lowering.constants(program)
    lowering.body(program)
    outvars: list[Atom] = []
    out_types = []
    for i, atom in enumerate(program.outvars):
        aval = atom.aval
        if atom.__class__ is Literal:
            aval = typed(aval, program.mesh if program.mesh.empty else frozen_mesh(program.mesh),
                         ((),) * aval.ndim)
        new = env[atom]
        outvars.append(new)
        out_types.append(aval)
        extra = _too_many(new.aval, aval, mesh)
        assert not extra, f"result {i} of type {aval} varies over {extra} as well"
    local = Program(program.name, invars, lowering.eqns, outvars, consts=lowering.consts, mesh=mesh,
                    level=Level.LOCAL, global_in=wholes, global_out=out_types,
                    arg_names=program.arg_names, result_names=program.result_names)
    if lowering.only_direct:
        known = program.memo
        local.memo.update([(x, known[x]) for x in ("ops", "holds_programs") if x in known])
    return local


@cached(4096)
def _too_many(local: ArrayType, whole: ArrayType, mesh: AbstractMesh) -> list[str]:
    """The axes over which a block varies although the whole value should not."""
    return sorted(axes_without(local.varying, whole.sharding.spec.unreduced.union(*whole.entries),
                               mesh))


def _is_special(op: Op, manual: bool) -> bool:
    """Does an equation of this op take more than the same op on blocks?"""
    return (op is reshard_p or bool(op.subprograms) or bool(op.effect)
            or op is custom_partitioning_p or manual and is_of_regions(op))


def _localize_special(out: Lowering, eqn: Equation) -> bool:
    """Lower an equation that takes more than the same op on blocks; returns False for any other."""
    op = eqn.op
    if op is reshard_p:
        _localize_reshard(out, eqn)
    elif PER_DEVICE in op.facts:
        localize_manual_region(out, eqn)
    elif has_region(eqn):
        localize_region(out, eqn)
    elif op.effect:
        localize_callback(out, eqn)
    elif op is custom_partitioning_p:
        localize_user_function(out, eqn)
    else:
        return out.manual and localize_plain(out, eqn)
    return True


def _localize_reshard(out: Lowering, eqn: Equation) -> None:
    """Lower a reshard to the moves of its plan, under the name of its result."""
    (operand,), (result,) = eqn.invars, eqn.outvars
    source, target = operand.aval, result.aval
    steps = plan(target.mesh, source.shape, source.entries, target.entries,
                 source.sharding.spec.unreduced, target.sharding.spec.unreduced)
    count, moves = len(out.eqns), steps.moves
    if out.policy.copies_groups:
        moves = with_copies_of_xla(target.mesh, source.entries, target.entries, moves,
                                   eqn.params.get("inside", ()))
    moved = emit_moves(out, out.atom(operand), moves)
    if len(out.eqns) > count and isinstance(moved, Var):
        moved.name = result.name
    out.env[result] = moved


_SPECIAL = Special(_is_special, _localize_special)
