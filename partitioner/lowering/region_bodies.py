"""Lowering ops that hold programs: `shard_map` bodies are inlined, loops and branches stay.

The body of a shard_map is per-device code already; over the axes that stayed Auto or Explicit it is
lowered like the rest. Its casts between varying, unreduced and reduced are dropped, since what
varies is found by data flow. The carry of a loop varies over whatever its body makes it vary over,
found by iteration; results of a varying predicate vary, too.
"""
from __future__ import annotations

from collections.abc import Sequence

from ...ir.facts import POSITION
from ...ir.meshes.manual_state import ManualState
from ...ir.op import Op
from ...ir.ops.communication.collective import OPS_ON_DATA, psum_invariant_p, pvary_p
from ...ir.ops.communication.sharding import assume_invarying_p
from ...ir.ops.control.region import Region
from ...ir.program import Atom, Equation, Level, Literal, Program, Var
from ...ir.reasons import CLAIMS_SAME
from ...ir.rules.factor_axes import axes_without
from ...ir.types import ArrayType
from ..redistribution.moves import varying
from ..regions import region_of, with_programs
from .builder import Lowering

_EMPTY: frozenset[str] = frozenset()


def localize_manual_region(out: Lowering, eqn: Equation) -> None:
    """Inline the body of a shard_map: blocks outside are its parameters inside."""
    body: Program = eqn.params["jaxpr"]
    out.bind_all(body.invars, [out.atom(a) for a in eqn.invars])
    out.constants(body)
    was, out.manual = out.manual, True
    out.body(body)
    out.manual = was
    out.location = eqn.location
    around = eqn.params["mesh"].manual_axes      # those of an enclosing region are its own matter
    for outer, body_result in zip(eqn.outvars, body.outvars, strict=True):
        atom = out.atom(body_result)
        claimed = outer.aval.sharding.spec.unreduced.union(
            around, *outer.aval.entries)
        extra = out.mesh.sort_axes(axes_without(atom.aval.varying, claimed, out.mesh))
        if extra:
            out.reason = (CLAIMS_SAME(", ".join(extra)),)
            atom = out.emit(assume_invarying_p, [atom], {"axes": extra})[0]
        out.env[outer] = atom


def is_of_regions(op: Op) -> bool:
    """Might `localize_plain` replace an equation of this op?"""
    return op.collective is not None or op in OPS_ON_DATA or POSITION in op.facts


def localize_plain(out: Lowering, eqn: Equation) -> bool:
    """Lower an equation of a manual region that changes once varying sets come from data flow;
    returns False for any other.
    """
    op, params = eqn.op, eqn.params
    if POSITION in op.facts:
        out.env[eqn.outvars[0]] = out.emit(op, [], {**params, "varying": True})[0]
        return True
    if op in OPS_ON_DATA and not params.get("axis_index_groups"):
        x = out.atom(eqn.invars[0])
        plain = OPS_ON_DATA[op]
        if plain is None:
            if not isinstance(x, Literal):
                out.env[eqn.outvars[0]] = x
                return True
            x = varying(out, x, params["axes"])
        elif plain is psum_invariant_p:
            x = out.emit(plain, [x], {"axes": params["axes"]}, [eqn.outvars[0].name])[0]
        else:
            x = out.emit(plain, [varying(out, x, params["axis_name"])], params,
                         [eqn.outvars[0].name])[0]
        out.env[eqn.outvars[0]] = x
        return True
    parts = params.get("axis_index_groups") is not None
    if op.collective is not None and (parts or not op.collective.invariant):
        # members get different parts even of an invarying value
        axes = op.collective.axes(params)
        out.equation(eqn, [varying(out, out.atom(a), axes) for a in eqn.invars], out.recipe(eqn))
        return True
    return False


# -- loops and branches -----------------------------------------------------------------------

def localize_region(out: Lowering, eqn: Equation) -> None:
    """Lower a scan, while or cond: its programs on blocks, iterating until it is known over which
    axes the carries vary.
    """
    region = region_of(eqn)
    operands = [out.atom(a) for a in eqn.invars]
    states = [_EMPTY] * len(region.slots)
    for s, slot in enumerate(region.slots):
        if slot.operand >= 0:
            states[s] = operands[slot.operand].aval.varying
    while True:
        programs = [_body(out, region, p, states) for p in range(len(region.programs))]
        predicate = _predicate(region, operands, programs)
        grown = list(states)
        for s, slot in enumerate(region.slots):
            for p, i in slot.outputs:
                grown[s] |= programs[p].outvars[i].aval.varying
            if slot.result >= 0:
                grown[s] |= predicate
        if grown == states:
            break
        states = grown
    programs = [_with_results(out, region, p, program, states)
                for p, program in enumerate(programs)]
    for s, slot in enumerate(region.slots):
        if slot.operand >= 0:
            operands[slot.operand] = varying(out, operands[slot.operand], _sorted(out, states[s]))
    named = {(name, place): program for (name, place, _), program
             in zip(region.programs, programs, strict=True)}
    params = with_programs(eqn.params, named)
    results = out.emit(eqn.op, operands, params, [v.name for v in eqn.outvars])
    for var, result in zip(eqn.outvars, results, strict=True):
        out.env[var] = result


def _sorted(out: Lowering, axes: frozenset[str]) -> tuple[str, ...]:
    return out.mesh.sort_axes(axes)


def _predicate(region: Region, operands: Sequence[Atom], programs: Sequence[Program]
               ) -> frozenset[str]:
    """The axes along which devices may take different ways."""
    if region.predicate is None:
        return _EMPTY
    p, i = region.predicate
    return (operands[i] if p < 0 else programs[p].outvars[i]).aval.varying


def _body(out: Lowering, region: Region, p: int, states: Sequence[frozenset[str]]) -> Program:
    """Program p of the region on blocks, its parameters varying as their slots do.

    Remembered: the body of a loop around this one may be lowered several times, until it is known
    over which axes its carries vary, and otherwise work would double with each level of nesting.
    """
    program = region.programs[p][2]
    entering = {i: states[s] for s, slot in enumerate(region.slots)
                for q, i in slot.inputs if q == p}
    varying_over = tuple([entering[i] for i in range(len(program.invars))])
    key = (program, varying_over, out.manual)
    found = out.bodies.get(key)
    if found is None:
        inside = out.nested()
        invars = [Var(out.block_type(v.aval, axes), v.name)
                  for v, axes in zip(program.invars, varying_over, strict=True)]
        inside.bind_all(program.invars, invars)
        inside.constants(program)
        inside.body(program)
        found = out.bodies[key] = Program(
            program.name, invars, inside.eqns, [inside.atom(v) for v in program.outvars],
            consts=inside.consts, mesh=out.mesh, level=Level.LOCAL, arg_names=program.arg_names,
            result_names=program.result_names)
    return found


def _with_results(out: Lowering, region: Region, p: int, program: Program,
                  states: Sequence[frozenset[str]]) -> Program:
    """The program with its results made to vary as their slots do."""
    wanted: dict[int, frozenset[str]] = {i: states[s] for s, slot in enumerate(region.slots)
                                         for q, i in slot.outputs if q == p}
    eqns = list(program.eqns)
    outvars: list[Atom] = []
    for i, atom in enumerate(program.outvars):
        missing = _sorted(out, wanted.get(i, _EMPTY) - atom.aval.varying)
        if missing:
            aval = _varying_too(atom.aval, missing)
            if isinstance(atom, Literal):
                aval = out.block_type(atom.aval, frozenset(missing))
            result = Var(aval, getattr(atom, "name", None))
            eqns.append(Equation(pvary_p, (atom,), (result,), {"axes": missing}))
            atom = result
        outvars.append(atom)
    if len(eqns) == len(program.eqns):
        return program
    return program.replace(eqns=eqns, outvars=outvars)


def _varying_too(aval: ArrayType, axes: Sequence[str]) -> ArrayType:
    m = aval.manual
    return aval.update(manual=ManualState(m.varying | frozenset(axes), m.unreduced, m.reduced))
