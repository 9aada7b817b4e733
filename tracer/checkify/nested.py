"""Errors in loops, branches, calls and regions: their programs return them as extra results.

A program with checks (`CheckedProgram`) returns only its own errors, before its results; earlier
errors are merged outside. Loops carry the errors of the iterations so far.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ir.diagnostics.diagnostic import fail
from ...ir.op import OPS, LinearOperand
from ...ir.ops.control.loop_operands import scan_operands, while_operands
from ...ir.ops.control.loops_and_branches import cond_p, item_type, scan_p, while_p
from ...ir.ops.derivatives import full_like
from ...ir.program import Equation, Program
from ...ir.settings.context import STATE
from ...ir.spec import PartitionSpec
from ...ir.support.immutable import immutable
from ...ir.support.scopes import override
from ...ir.types import ArrayType
from ...ir.values.typeof import typeof
from ..autodiff.forward import zero_tangent
from ..autodiff.replay import Replay, evaluate, operand, process, stage
from ..batching.control import ANY_INDEX
from ..trees import tree
from .automatic import Enabled, rule, rule_of
from .errors import Error, Kinds

Result = tuple[Error, list[Any]]


def with_checks(program: Program, enabled: Enabled, values: Sequence[Any]) -> Result:
    """The error and the results of a program on these values, in the current interpreter."""
    env: dict[Any, Any] = dict(zip(program.invars, values, strict=True))
    env.update(program.consts)
    error = Error()
    with Replay("", STATE.interpreter) as at:
        at.name_meshes(program)
        for eqn in program.eqns:
            at(eqn)
            operands = [operand(a, env) for a in eqn.invars]
            own = rule_of(eqn.op)
            if own is None:
                results = process(eqn.op, operands, eqn.params)
            else:
                error, results = own(error, enabled, operands, eqn)
            env.update(zip(eqn.outvars, results, strict=True))
    return error, [operand(a, env) for a in program.outvars]


@immutable
class CheckedProgram:
    """A program that gives the leaves of its error, then its results. like: an error of its kinds.
    """
    program: Program
    like: Error

    @property
    def kinds(self) -> Kinds:
        """The kinds of its errors, with the types that they have in the program."""
        types = iter(self.program.out_avals)
        return {kind: tuple([next(types) for _ in self.like._found[kind]])
                for kind in sorted(self.like._found)}

    @property
    def count(self) -> int:
        """How many of the results are leaves of the error."""
        return len(self.like.leaves)

    def split(self, results: Sequence[Any]) -> Result:
        """The error and the results, of what the program gave."""
        n = self.count
        return self.like.with_values(results[:n]), list(results[n:])


def checked(program: Program, enabled: Enabled, each_place: bool = False) -> CheckedProgram:
    """The program with its checks. each_place: errors have a first dimension, of size 1."""
    key = ("checkify", enabled, STATE.check_vma, each_place)
    found = program.memo.get(key)
    if found is None:
        errors: list[Error] = []

        def run(*values: Any) -> list[Any]:
            error, results = with_checks(program, enabled, values)
            errors.append(error.with_values(0 for _ in error.leaves))     # no tracers
            return [*(x.reshape((1, *typeof(x).shape)) if each_place else x
                      for x in _everywhere(error.leaves)), *results]

        new = stage(run, program.in_avals, program)
        found = program.memo[key] = CheckedProgram(new, errors[-1])
    return found


def _everywhere(values: Sequence[Any]) -> list[Any]:
    """Values of a region as ones that may differ between any two places: all errors do."""
    mesh = STATE.abstract_mesh
    axes = mesh.manual_axes if STATE.check_vma else ()
    out = []
    for x in values:
        missing = tuple([a for a in mesh.axis_names if a in axes and a not in typeof(x).varying])
        out.append(OPS["pvary"].bind(x, axes=missing) if missing else x)
    return out


def _union(parts: Sequence[CheckedProgram]) -> tuple[Kinds, Error]:
    """All kinds of error of some programs with the types there, and an error of these kinds."""
    kinds: Kinds = {}
    like = Error()
    for part in parts:
        kinds = {**part.kinds, **kinds}
        like = Error(part.like._found | like._found, part.like._metadata | like._metadata)
    return {kind: kinds[kind] for kind in sorted(kinds)}, like


def _none_of(kinds: Kinds) -> Error:
    """No error, of these kinds."""
    return Error({kind: tuple([full_like(LinearOperand(t), 0) for t in types])
                  for kind, types in kinds.items()})


def _filled(error: Error, kinds: Kinds) -> list[Any]:
    """The leaves of an error as one of all of these kinds, of which it has some."""
    none = {kind: types for kind, types in kinds.items() if kind not in error._found}
    return _everywhere(Error(_none_of(none)._found | error._found).leaves)


# -- calls -----------------------------------------------------------------------------------------

def _call(name: str, param: str) -> None:
    @rule(name)
    def call(error: Error, enabled: Enabled, operands: Sequence[Any], eqn: Equation) -> Result:
        inner = checked(eqn.params[param], enabled)
        own, results = inner.split(process(eqn.op, operands,
                                           {**eqn.params, param: inner.program}))
        return error.then(own), results


_call("jit", "jaxpr")
_call("checkpoint", "jaxpr")


@rule("check")
def _check(error: Error, enabled: Enabled, operands: Sequence[Any], eqn: Equation) -> Result:
    new: Error = tree.unflatten(eqn.params["tree"], operands)
    return error.then(new.only(enabled)), []


@rule("shard_map")
def _region(error: Error, enabled: Enabled, operands: Sequence[Any], eqn: Equation) -> Result:
    """A region gives the errors of each place, one after the other."""
    params = eqn.params
    with override(STATE, check_vma=params["check_vma"]):
        inner = checked(params["jaxpr"], enabled, True)
    axes = tuple([a for a in params["mesh"].axis_names if a in params["manual_axes"]])
    specs = (PartitionSpec(axes),) * inner.count
    own, results = inner.split(process(eqn.op, operands, {
        **params, "jaxpr": inner.program, "out_specs": (*specs, *params["out_specs"])}))
    return error.then(own), results


# -- loops and branches ----------------------------------------------------------------------------

@rule("cond")
def _branch(error: Error, enabled: Enabled, operands: Sequence[Any], eqn: Equation) -> Result:
    """A branch with the errors of all branches as results; one that lacks some of them returns none
    there.
    """
    parts = [checked(b, enabled) for b in eqn.params["branches"]]
    kinds, like = _union(parts)

    def padded(part: CheckedProgram) -> Program:
        if part.kinds.keys() == kinds.keys():
            return part.program

        def run(*values: Any) -> list[Any]:
            own, results = part.split(evaluate(part.program, values))
            return [*_filled(own, kinds), *results]
        return stage(run, part.program.in_avals, part.program)

    results = cond_p.bind(*operands, branches=tuple([padded(part) for part in parts]))
    n = len(like.leaves)
    return error.then(like.with_values(results[:n])), list(results[n:])


def _types(values: Sequence[Any]) -> list[ArrayType]:
    return [typeof(x) for x in values]


def _remembered(program: Program, key: tuple, make: Callable[[], Program]) -> Program:
    found = program.memo.get(key)
    if found is None:
        found = program.memo[key] = make()
    return found


@rule("scan")
def _scan(error: Error, enabled: Enabled, operands: Sequence[Any], eqn: Equation) -> Result:
    """A scan that carries the first error of its iterations so far."""
    params = eqn.params
    body, parts = params["jaxpr"], scan_operands(params)
    inner = checked(body, enabled)
    (consts, carries), carried, n = parts, parts.first_item, inner.count
    start = _everywhere(_none_of(inner.kinds).leaves)

    def run(*values: Any) -> list[Any]:
        before = inner.like.with_values(values[consts:consts + n])
        own, results = inner.split(evaluate(inner.program, [*values[:consts],
                                                            *values[consts + n:]]))
        return [*_everywhere(before.then(own).leaves), *results]

    types = [*_types(operands[:consts]), *_types(start), *_types(operands[consts:carried]),
             *(item_type(typeof(x)) for x in operands[carried:])]
    looped = _remembered(inner.program, ("checkify scan", consts), lambda: stage(run, types, body))
    results = scan_p.bind(*operands[:consts], *start, *operands[consts:], **{
        **params, "jaxpr": looped, "num_carry": carries + n})
    return error.then(inner.like.with_values(results[:n])), list(results[n:])


@rule("while")
def _while(error: Error, enabled: Enabled, operands: Sequence[Any], eqn: Equation) -> Result:
    """The condition is checked before the loop and after each run of the body."""
    params = eqn.params
    going, body = params["cond_jaxpr"], params["body_jaxpr"]
    if ANY_INDEX in going.attributes:
        fail(ValueError, "Checkify does not support batched while-loops "
             "(checkify-of-vmap-of-while). \nHint: if possible, move the vmap to the outer level "
             "to get vmap-of-checkify-of-while.", code="checked-loop", location=eqn.location)
    test, inner = checked(going, enabled), checked(body, enabled)
    kinds, like = _union([inner, test])
    tests, bodies = while_operands(params)
    closed, n = tests + bodies, len(like.leaves)
    found, _ = test.split(evaluate(test.program, [*operands[:tests], *operands[closed:]]))
    start = _everywhere(_none_of(kinds).leaves)

    def goes_on(*values: Any) -> list[Any]:
        return test.split(evaluate(test.program, [*values[:tests], *values[tests + n:]]))[1]

    def run(*values: Any) -> list[Any]:
        before = like.with_values(values[closed:closed + n])
        own, carry = inner.split(evaluate(inner.program, [*values[tests:closed],
                                                          *values[closed + n:]]))
        then, _ = test.split(evaluate(test.program, [*values[:tests], *carry]))
        return [*_filled(before.then(own).then(then), kinds), *carry]

    carried = _types([*start, *operands[closed:]])
    key = ("checkify while", tests, closed)
    new_test = _remembered(inner.program, (*key, going, "test"), lambda: stage(
        goes_on, [*_types(operands[:tests]), *carried], going))
    new_body = _remembered(inner.program, (*key, going), lambda: stage(
        run, [*_types(operands[:closed]), *carried], body))
    results = while_p.bind(
        *operands[:tests], *operands[:closed], *start, *operands[closed:], cond_jaxpr=new_test,
        body_jaxpr=new_body, cond_nconsts=tests, body_nconsts=closed)
    return error.then(found).then(like.with_values(results[:n])), list(results[n:])


# -- derivatives of the user's ---------------------------------------------------------------------

class _Rule:
    """A rule of the user's for a function that gives errors, too. The rule does not: what it
    computes is looked at where the derivative is what `checkify` transforms.
    """

    def __init__(self, rule: Any, types: Sequence[ArrayType]) -> None:
        self.rule, self.types = rule, tuple(types)
        self.closed, self.__name__ = getattr(rule, "closed", ()), getattr(rule, "__name__", "rule")
        self.is_eager = getattr(rule, "is_eager", False)

    def _no_errors(self) -> list[Any]:
        return [full_like(LinearOperand(t), 0) for t in self.types]


class _JVP(_Rule):
    def __call__(self, primals: Sequence[Any], tangents: Sequence[Any], closed: Sequence[Any] = ()
                 ) -> list[Any]:
        outs = self.rule(primals, tangents, closed)
        half, none = len(outs) // 2, self._no_errors()
        return [*none, *outs[:half], *map(zero_tangent, none), *outs[half:]]


class _Forward(_Rule):
    def __call__(self, *args: Any) -> tuple[list[Any], list[Any], Any]:
        outs, residuals, res_tree = self.rule(*args)
        return [*self._no_errors(), *outs], residuals, res_tree


class _Backward(_Rule):
    def __call__(self, residuals: Sequence[Any], res_tree: Any, cts: Sequence[Any]) -> list[Any]:
        return self.rule(residuals, res_tree, cts[len(self.types):])


@rule("custom_jvp_call", "custom_vjp_call")
def _custom(error: Error, enabled: Enabled, operands: Sequence[Any], eqn: Equation) -> Result:
    """The call and its rules with errors as extra results, whose derivatives are zero."""
    params = dict(eqn.params)
    if hasattr(params.get("jvp_jaxpr_fun"), "batch"):       # a primitive of a library's own
        return error, process(eqn.op, operands, params)
    inner = checked(params["call_jaxpr"], enabled)
    types = inner.program.out_avals[:inner.count]
    params["call_jaxpr"] = inner.program
    for name, kind in (("jvp_jaxpr_fun", _JVP), ("fwd_jaxpr_thunk", _Forward), ("bwd", _Backward)):
        if name in params:
            params[name] = kind(params[name], types)
    own, results = inner.split(process(eqn.op, operands, params))
    return error.then(own), results
