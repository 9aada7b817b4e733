"""The verifier: does a program keep the promises of its level? Run after every pass.

What holds at every level:

  bound       every operand is bound before it is used, every variable once; results are bound
  types       mesh axes exist, are used once in a type, and divide their dimensions; from RESOLVED
              on all are on the program's mesh, or on none; literals and constants have the dtype
              and shape of their type
  params      can be hashed (equations are cached by them)
  collectives exchange along Manual axes of the program's mesh
  programs    held in params keep their own promises

What the level adds (ir/program.py):

  TRACED      declared types are what Explicit typing gives
  RESOLVED    every axis of the mesh is Explicit; shapes and dtypes are what the op gives
  RESHARDED   operands and results agree on the axes of every factor; an axis splits a factor only
              where the op can run so; a sum over a split factor is unreduced over its axes
  LOCAL       every axis is Manual; declared types, varying sets included, are what the op gives on
              blocks; no op changes shardings; parameters are blocks of the declared whole values

The contract: whatever a program is, `verify` returns or raises VerificationError, with the user's
line and the equation among its neighbours. Once it has accepted a program, passes, printing,
explaining and running raise only errors of this package, each with its place. (tests/mutants looks
for programs that break this.) What has been verified is remembered by (op, types, params), so that
verifying costs one lookup per equation.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from .diagnostics.diagnostic import clipped, error
from .diagnostics.errors import VerificationError
from .inference.form import misfit
from .inference.levels import LEVEL_RULES, Violation, check_collective
from .kernels.key_data import storage_dtype
from .meshes.mesh import AbstractMesh
from .op import Op
from .program import SOUND_NAMES, Atom, Equation, Level, Literal, Program, Var
from .source.location import UNKNOWN
from .support.caches import cached
from .support.lazy import lazy_import
from .verify_types import bound_twice, check_heading, check_mesh, check_type

_text = lazy_import(".text.print", __package__)

# Ops that a level does not have: sharding is settled before the per-device program is made.
NOT_AT: dict[Level, frozenset[str]] = {
    Level.TRACED: frozenset(),
    Level.RESOLVED: frozenset(),
    Level.RESHARDED: frozenset(),
    Level.LOCAL: frozenset(("reshard", "sharding_constraint", "shard_map")),
}


def verify(program: Program, before: Program | None = None) -> None:
    """Raise VerificationError unless `program` keeps the promises of its level.

    before: what a pass made it of. Where that is sound, and its equations are the same and stand
    between the same names, names and literals are.
    """
    memo = program.memo
    if "verified" in memo:
        return
    index = -1
    try:
        place = _place(program.level, program.mesh)
        if before is None or not _has_heading_of(before, program):
            check_heading(program)
        named = SOUND_NAMES in memo or before is not None and _has_names_of(before, program)
        bound = None if named else dict.fromkeys((*program.invars, *program.constvars))
        for index, eqn in enumerate(program.eqns):          # noqa: B007 (shown with a violation)
            try:
                known = not eqn.op.subprograms and (
                    eqn.known_types or eqn.types) in eqn.instance.tables[place]
            except (KeyError, TypeError):       # the first of its use, or one that has none
                known = False
            if bound is None:
                if not known:
                    check_use(eqn, place)
                continue
            for atom in eqn.invars:
                if atom not in bound and not (
                        atom.__class__ is Literal
                        and atom.val.__class__ in atom.aval.memo):      # type: ignore[union-attr]
                    check_operand(eqn, atom)
            if not known:
                check_use(eqn, place)
            for var in eqn.outvars:
                if var in bound:
                    raise bound_twice(var)
                bound[var] = None
        index = len(program.eqns)
        if bound is not None:
            check_results(program, bound)
    except Violation as violation:
        raise _verification_error(program, index, violation) from violation.__cause__
    except VerificationError:                   # of a program in a param: says its own place
        raise
    except Exception as problem:                # raised by a rule that took more for granted
        raise _verification_error(program, index, _malformed(program, index, problem)) from problem
    memo["verified"] = memo[SOUND_NAMES] = True


def _malformed(program: Program, index: int, problem: Exception) -> Violation:
    """What is wrong with an equation whose form the rules of its op cannot read."""
    inside = 0 <= index < len(program.eqns)
    what = f"`{program.eqns[index].op.name}` is not of its op's form" if inside else (
        "the heading is not that of a program")
    if isinstance(problem, KeyError) and inside:
        return Violation(f"`{program.eqns[index].op.name}` lacks its param {problem.args[0]}",
                         "missing-param")
    return Violation(f"{what}: {clipped(str(problem), 200)}", "malformed")


def _has_heading_of(sound: Program, program: Program) -> bool:
    """Does it share parameters, constants and global types with `sound`?"""
    return ("verified" in sound.memo and program.invars is sound.invars
            and program.consts is sound.consts and program.mesh is sound.mesh
            and (program.level is sound.level or (
                program.level is Level.RESHARDED and sound.level is Level.RESOLVED))
            and program.global_in == sound.global_in and program.global_out is sound.global_out
            and (not program.global_out or program.outvars is sound.outvars))


def _has_names_of(sound: Program, program: Program) -> bool:
    return (SOUND_NAMES in sound.memo and program.eqns == sound.eqns
            and program.invars == sound.invars and program.outvars == sound.outvars
            and (program.consts is sound.consts or program.constvars == sound.constvars))


def _verification_error(program: Program, index: int, violation: Violation) -> Exception:
    inside = 0 <= index < len(program.eqns)
    where = program.eqns[index].location if inside else UNKNOWN
    excerpt = _text.equation_excerpt(program, max(index, 0)) if program.eqns else []
    level = "" if program.level is Level.TRACED else f" ({program.level.value})"
    shown = "\n".join([f"in program `{program.name}`{level}:", *excerpt])
    return error(VerificationError, violation.message, code=violation.code, location=where,
                 label=violation.label, notes=(*violation.notes, shown),
                 help=violation.help or ())


# -- equations -------------------------------------------------------------------------------------

class _Place:
    """Where equations stand: what is found right of them there is kept in their uses.

    before: the level before, on the same mesh, where that has checked what `rules[0]` would.
    """

    __slots__ = ("before", "level", "mesh", "refused", "rules")

    def __init__(self, level: Level, mesh: AbstractMesh) -> None:
        check_mesh(level, mesh)
        self.level, self.mesh = level, mesh
        before = _BEFORE.get(level)
        self.before = _place(before, mesh) if before is not None else None
        self.rules, self.refused = LEVEL_RULES[level], NOT_AT[level]


_BEFORE = {Level.RESOLVED: Level.TRACED, Level.RESHARDED: Level.RESOLVED}


_place = cached(256)(_Place)       # hashed by identity


def check_operand(eqn: Equation, atom: Atom) -> None:
    """One that is not bound is a literal of its type."""
    if not isinstance(atom, Literal):
        raise Violation(f"operand `{atom.name or atom}` of `{eqn.op.name}` is used before it "
                        "is bound", "unbound")
    check_literal(atom)


def check_use(eqn: Equation, place: _Place) -> None:
    """The op may stand here, and its types are right for it."""
    if eqn.op.subprograms and _holds_right(eqn, place):
        return
    try:
        instance = eqn.instance
        tables = instance.tables
        right = tables[place] if place in tables else instance.table(place)
    except TypeError as cause:
        _check_level(eqn.op, place.level)
        unhashable = [name for name, value in eqn.params.items() if not _hashable(value)]
        if not unhashable:
            raise
        raise Violation(f"param {unhashable[0]} of `{eqn.op.name}` cannot be hashed: "
                        f"{eqn.params[unhashable[0]]!r}", "unhashable-param") from cause
    op, pair, level, mesh = eqn.op, eqn.known_types or eqn.types, place.level, place.mesh
    if op.name in place.refused:
        _check_level(op, level)
    types, declared = pair
    formed = instance.table(_check_form)
    if len(types) not in formed:
        _check_form(op, len(types), instance.params)
        for value in instance.params.values():
            _check_programs(value)
        if not op.subprograms:
            formed[len(types)] = None
    for aval in declared:
        check_type(aval, level, mesh)
    if op.collective is not None:
        check_collective(op, instance.params, mesh)
    if declared[1:] or not declared:
        if not op.multiple_results:
            raise Violation(f"`{op.name}` has one result, not {len(declared)}", "result-count")
    known = place.before in tables and pair in tables[place.before]
    for rule in place.rules[known:]:
        rule(instance, types, declared, mesh)
    if not op.subprograms:
        right[pair] = None


def _check_form(op: Op, count: int, params: dict[str, Any]) -> None:
    """The op takes so many operands and these params, as the functions that it is made of say."""
    wrong = misfit(op, count, params)
    if wrong:
        raise Violation(wrong, "form")


def _holds_right(eqn: Equation, place: _Place) -> bool:
    """Is an equation that holds programs right by its whole types, with which the op answers?"""
    op, params, (types, declared) = eqn.op, eqn.params, eqn.types
    if op.name in place.refused or op.collective is not None:
        return False
    try:
        hash(tuple(params.values()))
        for aval in declared:
            check_type(aval, place.level, place.mesh)
        _check_form(op, len(types), params)
        given = op.infer(*types, **params)
        if not (op.multiple_results and tuple(given) == declared):
            return False
    except Exception:           # whatever a rule raises: `check_use` says what is wrong
        return False
    for name in op.subprograms:
        _check_programs(params[name])
    return True


def _check_level(op: Op, level: Level) -> None:
    if op.name in NOT_AT[level]:
        raise Violation(f"`{op.name}` cannot stand in a program of level {level.value}",
                        "op-not-at-level")


def _hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _check_programs(value: Any) -> None:
    if isinstance(value, Program):
        verify(value)
    elif isinstance(value, tuple):
        for item in value:
            _check_programs(item)


def check_literal(literal: Literal) -> None:
    """A literal is a scalar of its type's dtype."""
    aval, kind = literal.aval, literal.val.__class__
    if kind in aval.memo:
        return
    if aval.shape or getattr(literal.val, "dtype", None) != storage_dtype(aval.dtype):
        raise Violation(f"literal {literal.val!r} is no numpy scalar of type "
                        f"{aval.str_short(True)}", "literal-type")
    if issubclass(kind, np.generic) and not issubclass(kind, np.flexible):
        # its class says its dtype
        aval.memo[kind] = True


def check_results(program: Program, bound: dict[Var, None]) -> None:
    """Results are literals or bound variables."""
    for i, atom in enumerate(program.outvars):
        if atom in bound:
            continue
        if not isinstance(atom, Literal):
            raise Violation(f"result {i}, `{atom.name or atom}`, is not bound", "unbound")
        check_literal(atom)
