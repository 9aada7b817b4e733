"""Forward mode, and its split: values now, a linear program for the tangents later.

`push_program` replays a program with tangents next to the values. For `linearize` the tangents are
tracers of a `LinearBuilder` and the interpreter is `Forward`: an op whose operands are all known is
run by the interpreter around it, any other is recorded in the linear program, which keeps the known
values it uses as residuals. `jvp_program` does the first on programs, for ops that hold programs,
and remembers its results on the program; partial_eval.py has the second.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.dtypes import float0
from ...ir.op import DEFAULT_INTERPRETER, OPS, LinearOperand, Op
from ...ir.ops.derivatives import full_like, has_tangent, push_forward
from ...ir.program import Atom, Equation, Literal, Program, Var
from ...ir.settings.context import STATE, interpreter_context
from ...ir.source.location import Location
from ...ir.support.collector import collector_paused
from ...ir.support.immutable import immutable
from ...ir.types import ArrayType
from ...ir.values.typeof import typeof
from ..staging.bound_names import copy_names
from ..staging.builder import Builder
from ..staging.tracer import Tracer
from .call_rules import CALL_RULES
from .replay import Replay, Scalar, live_equations, operand, process, scalar, stage
from .rule_memo import RuleMemo, rule_memo

Mask = tuple[bool, ...]


# -- one equation ----------------------------------------------------------------------------------

def push(op: Op, operands: Sequence[Any], tangents: Sequence[Any], params: dict[str, Any]
         ) -> tuple[list[Any], list[Any]]:
    """Results of an op and their tangents (None where zero), in the current interpreter."""
    for t in tangents:
        if t is not None:
            break
    else:
        results = process(op, operands, params)
        return results, [None] * len(results)
    rule = CALL_RULES.get(op.name)
    if rule is not None:
        outs, out_tangents = rule.jvp(operands, tangents, params)
    else:
        outs, out_tangents = push_forward(op, operands, tangents, params)
    return outs, _with_tangents(outs, out_tangents)


def _with_tangents(outs: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
    found = list(tangents)
    for i, x in enumerate(outs):
        if found[i] is not None and not has_tangent(x.dtype):
            found[i] = None
    return found


def _push_memoized(eqn: Equation, env: dict[Var, Any], tangents: Sequence[Any],
                   rules: RuleMemo, location: Location) -> tuple[Sequence[Any], Sequence[Any]]:
    """As `push`, which is called once for equations of one kind."""
    operands = [Scalar(a) if isinstance(a, Literal) else env[a] for a in eqn.invars]

    def rule() -> list[Any]:
        outs, out_tangents = push(eqn.op, operands, tangents, eqn.params)
        return [*outs, *out_tangents]

    count = len(eqn.outvars)
    found = rules.apply(eqn, [*operands, *tangents], location, rule)
    return found[:count], found[count:]


def zero_tangent(x: Any) -> Any:
    """Zeros of the tangent type of x (a value, or a type): float0 for integers."""
    t = x if isinstance(x, ArrayType) else typeof(x)
    if t.dtype == float0 or not has_tangent(t.dtype):
        return np.zeros(t.shape, float0)
    if t.weak_type and not t.shape and not t.varying:
        return Scalar(Literal(t.dtype.type(0), t))
    return full_like(LinearOperand(t), 0)


def matching(tangent: Any, t: ArrayType) -> Any:
    """A tangent, or cotangent, of a value of type t, varying over the Manual axes over which that
    does.
    """
    missing = t.varying - typeof(tangent).varying
    if missing:
        axes = tuple(a for a in t.mesh.axis_names if a in missing)
        return OPS["pvary"].bind(tangent, axes=axes)
    return tangent


# -- a program -------------------------------------------------------------------------------------

def push_program(program: Program, env: dict[Var, Any], tangents: dict[Var, Any],
                 wanted: Sequence[Atom], *builders: Any) -> None:
    """Replay a program with tangents: fills `env` and `tangents`.

    env: values of its parameters and constants, and of whatever else is known already. tangents:
    of parameters, where not zero. wanted: the results whose tangents are asked for. builders: the
    ones that record, for locations.
    """
    eqns = program.eqns
    moves = _dependent(eqns, set(tangents))
    known: Any = tangents             # looked up by literals too, which it never holds
    needed = moves.intersection(wanted)
    through: set[int] = set()
    for i in range(len(eqns) - 1, -1, -1):
        eqn = eqns[i]
        if not needed.isdisjoint(eqn.outvars) and eqn.op.jvp != "zero":
            through.add(i)
            needed.update(moves.intersection(eqn.invars))
        elif eqn.op.effect in ("host", "io") and not moves.isdisjoint(eqn.invars):
            through.add(i)                # its derivative is refused, used or not
    live = {id(e) for e in live_equations(eqns, program.outvars)}
    here: Any = STATE.interpreter
    repeat = here.repeat if type(here) in (Builder, Forward) else None
    rules = rule_memo("push", here.recorders if type(here) is Forward else here)
    with Replay("jvp", *builders) as at:
        at.name_meshes(program)
        for i, eqn in enumerate(eqns):
            alive = id(eqn) in live
            if not alive and i not in through:
                continue
            if i not in through or known.keys().isdisjoint(eqn.invars):
                if not alive or eqn.outvars and all([v in env for v in eqn.outvars]):
                    continue
                results = None
                if repeat is not None:
                    results = repeat(eqn, env, eqn.location)
                if results is None:
                    at(eqn)
                    at.exactly(eqn.location)
                    results = process(eqn.op, [operand(a, env) for a in eqn.invars], eqn.params)
                    copy_names(eqn.outvars, results)
                env.update(zip(eqn.outvars, results, strict=True))
                continue
            location = at(eqn)
            given = list(map(known.get, eqn.invars))
            if rules is not None:
                pushed = _push_memoized(eqn, env, given, rules, location)
            else:
                pushed = push(eqn.op, [operand(a, env) for a in eqn.invars], given, eqn.params)
            copy_names(eqn.outvars, pushed[0])
            for v, x, t in zip(eqn.outvars, *pushed, strict=True):
                env[v] = x
                if t is not None:
                    tangents[v] = t


def _dependent(eqns: Sequence[Equation], found: set[Var]) -> set[Var]:
    found = set(found)
    for eqn in eqns:
        if not found.isdisjoint(eqn.invars):
            found.update(eqn.outvars)
    return found


def weak_flags(values: Sequence[Any]) -> Mask:
    """Which of the values that are not None have a weak type."""
    return tuple(typeof(x).weak_type for x in values if x is not None)


def with_weakness(types: Sequence[ArrayType], weak: Mask | None) -> list[ArrayType]:
    """The types, weak where `weak` says so (None: as they are)."""
    if weak is None:
        return list(types)
    return [t if t.weak_type == w else t.update(weak_type=w)
            for t, w in zip(types, weak, strict=True)]


def jvp_program(program: Program, mask: Mask, instantiate: bool | Mask = False,
                weak: Mask | None = None) -> tuple[Program, Mask]:
    """The program of values and tangents, and which results have a tangent.

    Its parameters are those of `program`, then the tangents of those that `mask` names; its results
    those of `program`, then their tangents. instantiate: results that shall have one though it be
    zero (True: all). The tangent of a value has the value's type, but for weakness: `weak`, one
    flag per tangent, says which of those given are weak.
    """
    key = ("jvp", mask, instantiate, weak)
    found = program.memo.get(key)
    if found is not None:
        return found
    out_mask: list[bool] = []
    forced = (instantiate,) * len(program.outvars) if isinstance(instantiate, bool) else instantiate
    if any(forced):
        plain = program.memo.get(("jvp", mask, False, weak))
        if plain is not None and all(
                [m or not f for m, f in zip(plain[1], forced, strict=True)]):
            return plain                 # it has all the tangents that are asked for

    def run(*args: Any) -> list[Any]:
        n = len(program.invars)
        env = dict(zip(program.invars, args[:n], strict=True))
        env.update(program.consts)
        moving = [v for v, m in zip(program.invars, mask, strict=True) if m]
        tangents = dict(zip(moving, args[n:], strict=True))
        push_program(program, env, tangents, program.outvars, STATE.interpreter)
        outs = [operand(a, env) for a in program.outvars]
        given = []
        for a, force in zip(program.outvars, forced, strict=True):
            t = tangents.get(a) if isinstance(a, Var) else None
            if t is None and force and has_tangent(a.aval.dtype):
                t = zero_tangent(a.aval)
            out_mask.append(t is not None)
            if t is not None:
                given.append(matching(t, a.aval))
        return outs + given

    types = program.in_avals
    moving = with_weakness([t for t, m in zip(types, mask, strict=True) if m], weak)
    new = stage(run, [*types, *moving], program)
    found = program.memo[key] = new, tuple(out_mask)
    return found


# -- the split -------------------------------------------------------------------------------------

class LinearBuilder(Builder):
    """Records what depends on unknown values; known ones that it uses become residuals."""

    __slots__ = ("_by_id", "residual_vars", "residuals")

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.residuals: list[Any] = []
        self.residual_vars: list[Var] = []
        self._by_id: dict[int, Var] = {}

    def atom(self, x: Any) -> Atom:
        """The atom of an operand: a number as a literal, an unknown as its variable, any other
        known value as a residual.
        """
        if type(x) is Tracer:
            if x.builder is self or type(x.variable) is Literal:
                return x.variable
        elif isinstance(x, Scalar):
            return x.literal
        elif isinstance(x, (bool, int, float, complex, np.generic)) or (
                isinstance(x, np.ndarray) and not x.ndim):
            return self.atom(scalar(x))
        var = self._by_id.get(id(x))
        if var is None:
            var = self._by_id[id(x)] = Var(x.aval if type(x) is Tracer else typeof(x))
            self.residuals.append(x)
            self.residual_vars.append(var)
        return var

    def stands_for(self, var: Var) -> Atom | None:
        if var not in self.residual_vars:
            return None
        known = self.residuals[self.residual_vars.index(var)]
        return known.variable if isinstance(known, Tracer) else None


class Forward:
    """The interpreter that computes what is known and leaves the rest to `linear`."""

    __slots__ = ("linear", "outer")

    def __init__(self, outer: Any, linear: LinearBuilder) -> None:
        self.outer, self.linear = outer, linear

    @property
    def builders(self) -> tuple[Any, ...]:
        """What records here, for locations."""
        return self.outer, self.linear

    @property
    def recorders(self) -> Any:
        """The two builders that record all that is computed here; None if values are computed."""
        return (self.outer, self.linear) if type(self.outer) is Builder else None

    def is_unknown(self, x: Any) -> bool:
        return isinstance(x, Tracer) and x.builder is self.linear

    def process(self, op: Op, operands: Sequence[Any], params: dict[str, Any]) -> list[Any]:
        """Run an op on known operands in the interpreter around this one, and record any other; an
        op with a program may be split into a known and a linear one.
        """
        linear = self.linear
        for x in operands:
            if type(x) is Tracer and x.builder is linear:
                if op.subprograms:
                    rule = CALL_RULES.get(op.name)
                    if rule is not None and rule.split is not None:
                        return rule.split(self, operands, params)
                return linear.process(op, operands, params)
        outer = self.outer
        STATE.interpreter = outer
        try:
            return (outer or DEFAULT_INTERPRETER[0]).process(op, operands, params)
        finally:
            STATE.interpreter = self

    def repeat(self, eqn: Equation, env: dict[Var, Any], location: Location) -> list[Any] | None:
        """As `Builder.repeat`: in the builder around it, or in the linear program. None where the
        equation has to be processed."""
        linear, outer = self.linear, self.outer
        for a in eqn.invars:
            if not isinstance(a, Literal):
                x = env[a]
                if type(x) is Tracer and x.builder is linear:
                    return None if eqn.op.subprograms else linear.repeat(eqn, env, location)
        return outer.repeat(eqn, env, location) if type(outer) is Builder else None

    def constant(self, x: Any) -> Any:
        """What `jnp` functions make of a number or a numpy array within a rule."""
        return scalar(x) if not np.ndim(x) else self.process(OPS["copy"], [x], {})[0]

    def run(self, program: Program, values: Sequence[Any]) -> list[Any]:
        """The results of a program on operands of which some are unknown."""
        env: dict[Var, Any] = dict(zip(program.invars, values, strict=True))
        env.update(program.consts)
        return self.replay(program, env)

    def replay(self, program: Program, env: dict[Var, Any]) -> list[Any]:
        """The results of a program whose variables have values in `env`, which also gets those of
        its equations. Equations with all results in it are passed over.
        """
        with Replay("", self) as at:
            at.name_meshes(program)
            for eqn in live_equations(program.eqns, program.outvars):
                if eqn.outvars and all([v in env for v in eqn.outvars]):
                    continue
                tracers = self.repeat(eqn, env, eqn.location)
                if tracers is not None:
                    env.update(zip(eqn.outvars, tracers, strict=True))
                    continue
                at(eqn)
                results = self.process(eqn.op, [operand(a, env) for a in eqn.invars], eqn.params)
                copy_names(eqn.outvars, results)
                env.update(zip(eqn.outvars, results, strict=True))
        return [operand(a, env) for a in program.outvars]


@immutable
class Linear:
    """A linear map: `program` takes residuals, then the operands; `residuals` are values."""
    program: Program
    residuals: tuple[Any, ...]


def finish_linear(linear: LinearBuilder, outs: Sequence[Any], like: Program) -> Linear:
    """The linear program with these results; equations and residuals that none needs are left out.
    """
    outvars = [linear.atom(x) for x in outs]
    eqns = live_equations(linear.eqns, outvars)
    used = {a for e in eqns for a in e.invars if isinstance(a, Var)} | {
        a for a in outvars if isinstance(a, Var)}
    kept = [(v, x) for v, x in zip(linear.residual_vars, linear.residuals, strict=True)
            if v in used]
    program = Program(like.name, [*(v for v, _ in kept), *linear.args], eqns, outvars,
                      consts=[], mesh=like.mesh, level=like.level,
                      attributes={"meshes": like.attributes.get("meshes", ())})
    return Linear(program, tuple(x for _, x in kept))


def linearize_program(program: Program, env: dict[Var, Any], mask: Sequence[bool],
                      wanted: Sequence[bool]) -> tuple[list[Any], Linear, Mask]:
    """Values of a program's results, and the linear map from tangents to tangents.

    env: values of parameters and constants, and what else is known. mask: parameters that move.
    wanted: results whose tangents are asked for. The linear map has a result for those of them that
    move, which the last item of the answer tells.
    """
    outer = STATE.interpreter
    linear = LinearBuilder(program.name)
    tangents: dict[Var, Any] = {}
    for v, m in zip(program.invars, mask, strict=True):
        if m:
            tangents[v] = linear.argument(v.aval)
    outputs = [a for a, w in zip(program.outvars, wanted, strict=True) if w]
    with interpreter_context(Forward(outer, linear)), collector_paused():
        push_program(program, env, tangents, outputs, outer, linear)
        out_tangents = [tangents.get(a) if isinstance(a, Var) else None for a in outputs]
        moved = [matching(t, a.aval) for a, t in zip(outputs, out_tangents, strict=True)
                 if t is not None]
    outs = [operand(a, env) for a in program.outvars]
    return (outs, finish_linear(linear, moved, program),
            tuple(t is not None for t in out_tangents))
