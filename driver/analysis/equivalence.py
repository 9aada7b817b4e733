"""Does the partitioned program compute what the original does? If not, which op fails first?

Each equation of the partitioned, still global program is checked in isolation: it is run on blocks
of the true values of its operands, and on the whole values. The first equation whose results differ
is to blame; if splitting a single factor is enough to make it differ, that factor is named. Loops
and branches that differ are searched inside. If all equations agree but the whole program does not,
a later pass is to blame, and the report says so. No factor rule is trusted: whole values are
computed without any.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ...arrays.storage import Stored, freeze_result
from ...ir.diagnostics.diagnostic import error
from ...ir.facts import PER_DEVICE
from ...ir.meshes.mesh import AbstractMesh, empty_abstract_mesh
from ...ir.ops.communication.sharding import reshard_p
from ...ir.ops.control.loop_operands import scan_operands, while_operands
from ...ir.ops.control.user_partitioned import custom_partitioning_p
from ...ir.program import Atom, Equation, Level, Literal, Program, Var
from ...ir.rewriting.inline import inline
from ...ir.rewriting.retyped import Retyped
from ...ir.source.location import UNKNOWN, Location
from ...ir.support.immutable import immutable
from ...ir.types import ArrayType, Entries, array_type
from ...partitioner.factors import RuleInfo, rule_info
from ...partitioner.pipeline import Partitioned
from ...partitioner.propagation.resolved_types import reshard_equation, typed
from ...runtime.simulation.executor import compile_simulated
from ..execution.programs import further

TOLERANCE = {2: 2e-2, 4: 1e-4, 8: 1e-9}     # of the largest value, by bytes of a float
Results = list[np.ndarray]


@immutable
class Divergence:
    """The first equation whose partitioned form computes something else.

    op, location: of the equation, op "" where all equations agree and a later pass is to blame.
    rule: its factor rule, as text; factors: (name, mesh axes) of those that differ when nothing
    else is split. layouts: operands, then results. error: the largest difference, as a part of the
    largest value; result: which one it is in.
    """
    op: str
    location: Location
    rule: str
    factors: tuple[tuple[str, tuple[str, ...]], ...]
    layouts: tuple[str, ...]
    error: float
    result: int

    def __str__(self) -> str:
        if not self.op:
            return (f"every equation by itself agrees, but result {self.result} of the whole "
                    f"differs by {self.error:.3g} of its largest value: a pass that moves or "
                    f"merges collectives is to blame")
        return (f"`{self.op}` line {self.location.line} computes something else on blocks: result "
                f"{self.result} differs by {self.error:.3g} of its largest value")

    def notes(self) -> list[str]:
        """Rule, factors and layouts, in sentences."""
        split = [f"factor `{name}` split over {', '.join(axes)} alone makes it differ"
                 for name, axes in self.factors]
        return [*([f"its rule is {self.rule}"] if self.rule else []), *split,
                *([f"laid out as {', '.join(self.layouts)}"] if self.layouts else [])]


def first_divergence(partitioned: Partitioned, values: Sequence[np.ndarray],
                     tolerance: float | None = None) -> Divergence | None:
    """Where a partitioned program first computes something else than on whole values, or None.

    values: the whole arguments, as stored. tolerance: of differences, as a part of the largest
    value of a result; by default by its dtype.
    """
    check = _Check(partitioned.mesh, tolerance)
    program = partitioned.resharded
    found, plain = check.program(program, list(values))
    if found is not None:
        return found
    whole = [np.asarray(x) for x in _run(partitioned.local, partitioned.mesh, values)]
    for k, (a, b) in enumerate(zip(whole, plain, strict=True)):
        wrong = check.differ(a, b)
        if wrong is not None:
            return Divergence("", UNKNOWN, "", (), (), wrong, k)
    return None


def refuse(found: Divergence, name: str) -> Exception:
    """The error that reports a divergence."""
    return error(AssertionError, f"{name}: {found}", code="divergence", location=found.location,
                 label="it is here", because=tuple(found.notes()), help=(
                     "a factor of its rule is split that may not be: declare that it needs "
                     "replication, or give the op an emitter" if found.op else
                     "find the pass: the variable `SHARDTRACE_SKIP` names passes to leave out"))


class _Check:
    """Runs a program equation by equation, on whole values and on blocks, and compares. mesh: that
    the blocks lie on. tolerance: relative error that is rounding; None: by the dtype.
    """

    def __init__(self, mesh: AbstractMesh, tolerance: float | None) -> None:
        self.mesh, self.tolerance = mesh, tolerance

    # -- values ----------------------------------------------------------------------------------

    def differ(self, a: np.ndarray, b: np.ndarray) -> float | None:
        """By how much two values differ if that is more than rounding; None if it is not."""
        if a.shape != b.shape:
            return float("inf")
        if not a.size:
            return None
        if a.dtype.kind in "biu" or a.dtype.kind not in "fcV":
            return None if np.array_equal(a, b) else float(np.mean(a != b))
        wide = np.complex128 if a.dtype.kind == "c" else np.float64
        x, y = a.astype(wide), b.astype(wide)
        same = (x == y) | (np.isnan(x) & np.isnan(y))
        gap = np.where(same, 0.0, np.abs(x - y))
        finite = np.abs(y[np.isfinite(y)])
        largest = float(finite.max()) if finite.size else 0.0
        worst = float(gap.max()) / largest if largest else float(gap.max())
        limit = self.tolerance
        if limit is None:
            size = a.dtype.itemsize // (2 if a.dtype.kind == "c" else 1)
            limit = TOLERANCE.get(size, TOLERANCE[2])
        return None if worst <= limit else worst

    # -- programs --------------------------------------------------------------------------------

    def program(self, program: Program, values: Results) -> tuple[Divergence | None, Results]:
        """The first divergence in a RESHARDED program, and its whole results."""
        env: dict[Var, np.ndarray] = dict(zip(program.invars, values, strict=True))
        for v, value in program.consts:
            env[v] = np.asarray(value)
        made: dict[Var, Equation] = {}
        for eqn in program.eqns:
            for v in eqn.outvars:
                made[v] = eqn
            if eqn.op is reshard_p:
                env[eqn.outvars[0]] = _value(eqn.invars[0], env)
            elif not _comparable(eqn):
                outer = self.on_blocks(program, eqn, made, env, None)
                env.update(zip(eqn.outvars, outer, strict=True))
                continue
            else:
                env.update(zip(eqn.outvars, self.on_whole_values(eqn, env), strict=True))
            found = self.equation(program, eqn, made, env)
            if found is not None:
                return found, []
        return None, [_value(a, env) for a in program.outvars]

    def equation(self, program: Program, eqn: Equation, made: dict[Var, Equation],
                 env: dict[Var, np.ndarray]) -> Divergence | None:
        """Whether blocks and whole values disagree on an equation, and where: in a program that it
        holds if that disagrees, else here, with the factors each of which alone is enough.
        """
        if not any(a.aval.sharding.spec.axes() or a.aval.sharding.spec.unreduced
                   for a in (*eqn.invars, *eqn.outvars)) and not eqn.op.subprograms:
            return None                              # every device does it whole
        wrong = self.wrong(program, eqn, made, env, None)
        if wrong is None:
            return None
        for inner, values in _inside(eqn, [_value(a, env) for a in eqn.invars]):
            found, _ = self.program(inner, values)
            if found is not None:
                return found
        k, size = wrong
        info = _info(eqn)
        factors: list[tuple[str, tuple[str, ...]]] = []
        for f, name in enumerate(_factor_names(info)):
            axes = _axes_of(eqn, info, f)
            if axes and self.wrong(program, eqn, made, env, f) is not None:
                factors.append((name, axes))
        layouts = tuple(a.aval.str_short(True) for a in (*eqn.invars, *eqn.outvars))
        rule = "" if eqn.op.subprograms else str(info.rule)
        return Divergence(eqn.op.name, eqn.location, rule, tuple(factors), layouts, size, k)

    def wrong(self, program: Program, eqn: Equation, made: dict[Var, Equation],
              env: dict[Var, np.ndarray], factor: int | None) -> tuple[int, float] | None:
        """(result, difference) where blocks give something else; factor: split this one alone."""
        try:
            found = self.on_blocks(program, eqn, made, env, factor)
        except Exception:
            if factor is None:
                raise
            return None                              # it cannot be split so
        for k, (a, v) in enumerate(zip(found, eqn.outvars, strict=True)):
            size = self.differ(a, env[v])
            if size is not None:
                return k, size
        return None

    # -- one equation ----------------------------------------------------------------------------

    def on_whole_values(self, eqn: Equation, env: dict[Var, np.ndarray]) -> Results:
        """The results of an equation on whole values, with no mesh."""
        given = [a for a in dict.fromkeys(eqn.invars) if isinstance(a, Var)]
        local = _Unsharded().program(Program("plain", given, [eqn], eqn.outvars, mesh=self.mesh,
                                         level=Level.RESHARDED))
        return _run(local.replace(global_in=local.in_avals, global_out=local.out_avals),
                    empty_abstract_mesh, [env[v] for v in given])

    def on_blocks(self, program: Program, eqn: Equation, made: dict[Var, Equation],
                  env: dict[Var, np.ndarray], factor: int | None) -> Results:
        """The results of an equation on blocks, put together; with what makes pending operands."""
        chain = _with_makers(eqn, made) if factor is None else [eqn]
        if factor is not None:
            info = _info(eqn)
            names: dict[Var, Var] = {}
            for place, a in enumerate(eqn.invars):
                if isinstance(a, Var):
                    names[a] = Var(self.split(a.aval, info, place, factor, frozenset()))
            reduced = frozenset(_axes_of(eqn, info, factor)) if not any(
                f == factor for place in info.places[info.operands:] for f, _, _ in place
            ) else frozenset()
            outs = [Var(self.split(v.aval, info, info.operands + k, factor,
                                   reduced & v.aval.sharding.spec.unreduced))
                    for k, v in enumerate(eqn.outvars)]
            chain = [eqn.replace(invars=tuple(names.get(a, a) if isinstance(a, Var) else a
                                              for a in eqn.invars), outvars=tuple(outs))]
            env = {**env, **{new: env[old] for old, new in names.items()}}
        inner = {v for e in chain for v in e.outvars}
        given = [a for a in dict.fromkeys(a for e in chain for a in e.invars)
                 if isinstance(a, Var) and a not in inner]
        last = chain[-1]
        eqns, results = list(chain), []
        for v in last.outvars:
            if v.aval.sharding.spec.unreduced:
                done = reshard_equation(v, typed(v.aval, v.aval.mesh, v.aval.entries),
                                        eqn.location, ())
                eqns.append(done)
                v = done.outvars[0]
            results.append(v)
        separate = Program("alone", given, eqns, results, mesh=program.mesh,
                        level=Level.RESHARDED, arg_names=[""] * len(given))
        stages = further(separate)
        local = stages[next(reversed(stages))]
        return _run(local, self.mesh, [env[v] for v in given])

    def split(self, aval: ArrayType, info: RuleInfo, place: int, factor: int,
              pending: frozenset[str]) -> ArrayType:
        """The type with only the axes of one factor."""
        if not aval.mesh.axis_names:
            return aval
        dims = {d for f, d, _ in info.places[place] if f == factor}
        entries: Entries = tuple(e if d in dims else () for d, e in enumerate(aval.entries))
        return typed(aval, aval.mesh, entries, pending)


def _run(local: Program, mesh: AbstractMesh, values: Sequence[np.ndarray]) -> Results:
    results = compile_simulated(local, mesh)([Stored(np.asarray(v)) for v in values])
    return [np.asarray(freeze_result(r.data) if not r.lead else r.data[(0,) * len(r.lead)])
            for r in results]


def _value(atom: Atom, env: dict[Var, np.ndarray]) -> np.ndarray:
    return np.asarray(atom.val) if isinstance(atom, Literal) else env[atom]


def _comparable(eqn: Equation) -> bool:
    """Does it mean something on whole values: no region of blocks, nothing seen outside?"""
    if PER_DEVICE in eqn.op.facts or eqn.op.collective is not None or eqn.op.effect:
        return False
    return all(_comparable(e) for _, p in eqn.subprograms() for e in p.eqns)


class _Unsharded(Retyped):
    """Programs without layouts, of one device."""

    def type(self, aval: ArrayType) -> ArrayType:
        return array_type(aval.shape, aval.dtype, aval.weak_type)

    def mesh(self, mesh: AbstractMesh) -> AbstractMesh:
        return empty_abstract_mesh

    def params(self, eqn: Equation) -> dict[str, Any]:
        params, key = super().params(eqn), eqn.op.sharding_param
        return params if key is None or key not in params else {**params, key: None}

    def program(self, program: Program) -> Program:
        """The program without reshards, and with the user's own partitioning replaced by its
        function for one block, which is the whole.
        """
        names: dict[Atom, Atom] = {}
        eqns: list[Equation] = []
        consts = list(program.consts)
        for eqn in program.eqns:
            eqn = eqn.replace(invars=tuple([names.get(a, a) for a in eqn.invars]))
            if eqn.op is reshard_p:
                names[eqn.outvars[0]] = eqn.invars[0]
            elif eqn.op is custom_partitioning_p:       # the user's function, on one block
                body = inline(eqn.params["call"].on_blocks(*(
                    [self.type(a.aval) for a in atoms] for atoms in (eqn.invars, eqn.outvars)
                )).program)
                inner: dict[Atom, Atom] = dict(zip(body.invars, eqn.invars, strict=True))
                eqns += [e.replace(invars=tuple([inner.get(a, a) for a in e.invars]))
                         for e in body.eqns]
                consts += body.consts
                names.update(zip(eqn.outvars, [inner.get(a, a) for a in body.outvars],
                                 strict=True))
            else:
                eqns.append(eqn)
        return super().program(program.replace(
            eqns=eqns, outvars=[names.get(a, a) for a in program.outvars], consts=consts,
            level=Level.LOCAL))


def _with_makers(eqn: Equation, made: dict[Var, Equation]) -> list[Equation]:
    """The first equation after those that make its pending operands."""
    chain: dict[Equation, None] = {}

    def add(e: Equation) -> None:
        for a in e.invars:
            if isinstance(a, Var) and a.aval.sharding.spec.unreduced and a in made:
                add(made[a])
        chain.setdefault(e)

    add(eqn)
    return list(chain)


def _inside(eqn: Equation, values: Results) -> Iterator[tuple[Program, Results]]:
    """The programs of a loop or branch, each with values that it may be run on."""
    if eqn.op.name == "scan":
        body: Program = eqn.params["jaxpr"]
        consts, carries, stacks = scan_operands(eqn.params).split(values)
        at = -1 if eqn.params["reverse"] else 0
        if eqn.params["length"]:
            yield body, [*consts, *carries, *[x[at] for x in stacks]]
    elif eqn.op.name == "while":
        tests, bodies, carries = while_operands(eqn.params).split(values)
        yield eqn.params["cond_jaxpr"], [*tests, *carries]
        yield eqn.params["body_jaxpr"], [*bodies, *carries]
    else:
        for _, program in eqn.subprograms():
            yield program, values[len(values) - len(program.invars):]


def _info(eqn: Equation) -> RuleInfo:
    return rule_info(eqn.op.factor_rule(tuple(a.aval.shape for a in eqn.invars),
                                        tuple(v.aval.shape for v in eqn.outvars), eqn.params))


def _factor_names(info: RuleInfo) -> list[str]:
    return [getattr(f, "name", "") or f"factor {i}" for i, f in enumerate(info.factors)]


def _axes_of(eqn: Equation, info: RuleInfo, factor: int) -> tuple[str, ...]:
    """Over which axes a factor is split in an equation."""
    found: dict[str, None] = {}
    for place, a in enumerate((*eqn.invars, *eqn.outvars)):
        for f, d, _ in info.places[place]:
            if f == factor:
                found.update(dict.fromkeys(map(str, a.aval.entries[d])))
    return tuple(found)
