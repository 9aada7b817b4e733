"""What each level demands of an equation: from operand types and params, what its results must be.

TRACED compares with Explicit typing (ir/infer.py), RESOLVED with shapes alone, RESHARDED with the
op's factor rule, LOCAL with typing on blocks. The walk over programs is in ir/verify.py.
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .factor_axes import Fragments, canonical_axes, factor_axes
from .infer import infer, pending_axes
from .mesh import AbstractMesh, empty_abstract_mesh
from .op import Op
from .print import type_texts
from .program import Level
from .spec import parse_axis
from .types import ArrayType, ManualState
from .use import Use

RESHARD = "reshard"      # the one op whose operand and result may differ in their spec
Types = tuple[ArrayType, ...]


class Violation(Exception):
    """A broken promise; the walk over the program adds where."""

    def __init__(self, message: str, code: str, *, label: str = "", notes: Sequence[str] = (),
                 help: str = "") -> None:
        super().__init__(message)
        self.message, self.code, self.label, self.notes, self.help = (
            message, code, label, tuple(notes), help)


def check_collective(op: Op, params: dict[str, Any], mesh: AbstractMesh) -> None:
    """Collectives run where the program is written for one device: along Manual axes."""
    for axis in op.collective.axes(params):
        if parse_axis(axis)[0] not in mesh.manual_axes and axis not in mesh.manual_axes:
            raise Violation(f"`{op.name}` exchanges along axis {axis}, which is no Manual axis of "
                            f"the mesh {mesh}", "collective-axis",
                            help="collectives stand in the body of a shard_map over their axes")


def check_traced(use: Use, types: Types, declared: Types, mesh: AbstractMesh) -> None:
    """Declared types are those of Explicit typing.

    The mesh that was current when the equation was traced is not recorded; it is the program's, or
    that of the result (inside `use_abstract_mesh`), or there was none.
    """
    op, params = use.op, use.params
    contexts = [mesh, *(t.mesh for t in declared[:1]), empty_abstract_mesh]
    failure: tuple[Any, ...] | Exception | None = None
    for i, context in enumerate(contexts):
        if context in contexts[:i]:
            continue
        try:
            inferred = infer(op, types, params, context)
        except Exception as problem:       # whatever a rule raises on operands it was not made for
            failure = failure or problem
            continue
        if inferred == declared:
            return
        if failure is None or isinstance(failure, Exception):
            failure = inferred
    if isinstance(failure, Exception):
        raise _refusal(op, types, mesh, failure)
    raise _difference(op, failure or (), declared, mesh)


def _refusal(op: Op, types: Types, mesh: AbstractMesh, problem: Exception
             ) -> Violation:
    diagnostic = getattr(problem, "diagnostic", None)
    message = diagnostic.message if diagnostic is not None else str(problem).split("\n")[0]
    violation = Violation(f"`{op.name}` does not accept {type_texts(types, mesh)}: {message}",
                          "bad-operands", label=getattr(diagnostic, "label", ""),
                          help=next(iter(getattr(diagnostic, "help", ())), ""))
    violation.__cause__ = problem
    return violation


def _difference(op: Op, inferred: Sequence[ArrayType], declared: Sequence[ArrayType],
                mesh: AbstractMesh) -> Violation:
    return Violation(f"`{op.name}` gives {type_texts(inferred, mesh)}, but the equation declares "
                     f"{type_texts(declared, mesh)}", "result-type",
                     label=f"gives {type_texts(inferred, mesh)}")


def check_shapes(use: Use, types: Types, declared: Types, mesh: AbstractMesh) -> None:
    """Shapes, dtypes and weak types are those that the op gives; specs may be any."""
    known = use.table(check_shapes)
    given = known[types] if types in known else None
    if given is None:
        given = known[types] = _given(use, types, mesh)
    if given != [(t.shape, t.dtype, t.weak_type) for t in declared]:
        shown = ", ".join(f"{'~' if w else ''}{d}{list(s)}" for s, d, w in given)
        raise Violation(f"`{use.op.name}` gives {shown}, but the equation declares "
                        f"{type_texts(declared, mesh)}", "result-type", label=f"gives {shown}")


def _given(use: Use, types: Types, mesh: AbstractMesh) -> list[tuple[Any, Any, bool]]:
    """Shape, dtype and weakness of each result."""
    op = use.op
    try:
        raw = op.infer(*types, **use.params)
    except Exception as problem:           # whatever a rule raises on operands it was not made for
        raise _refusal(op, types, mesh, problem) from problem
    weak = bool(types) and all([t.weak_type for t in types])
    given = []
    for r in raw if op.multiple_results else [raw]:
        if isinstance(r, ArrayType):
            given.append((r.shape, r.dtype, r.weak_type))
        else:
            given.append((tuple(r[0]), r[1], weak if len(r) < 3 else bool(r[2])))
    return given


def check_factors(use: Use, types: Types, declared: Types, mesh: AbstractMesh) -> None:
    """Operands and results agree on every factor, and the op can run with it split so."""
    op, params = use.op, use.params
    check_shapes(use, types, declared, mesh)
    if op.subprograms:
        return                             # edges, not factors: the bodies are checked instead
    if op.name == RESHARD:
        target = params["dst_sharding"]
        if declared[0].sharding is not target.update(
                mesh=target.mesh.abstract_mesh, spec=target.spec.padded(declared[0].ndim)):
            raise Violation(f"`{op.name}` to {target.spec} gives {type_texts(declared, mesh)}",
                            "result-type")
        return
    rule = use.rule(types, declared)
    factors, tensors = rule.factors, (*types, *declared)
    axes_of: dict[int, Fragments] = {}
    first: dict[int, int] = {}               # the tensor that says so
    for i, (t, dims) in enumerate(zip(tensors, (*rule.operands, *rule.results), strict=True)):
        for d, (group, entry) in enumerate(zip(dims, t.entries, strict=True)):
            parts: Sequence[Fragments] | None = ()
            if entry:
                parts = factor_axes(entry, [factors[f].size for f in group], mesh)
                if parts is None:
                    raise Violation(f"`{op.name}`: dimension {d} of {t.str_short(True)} is "
                                    f"split in the middle of a factor of `{rule}`",
                                    "factor-boundary")
            place = 0
            for f in group:
                axes = parts[place] if parts else ()
                place += 1
                if f not in axes_of:
                    axes_of[f], first[f] = axes, i
                elif axes_of[f] != axes:
                    raise Violation(
                        f"`{op.name}`: {_which(first[f], types)} and {_which(i, types)} do not "
                        f"agree on the axes of factor {factors[f].name} of `{rule}`: "
                        f"{tensors[first[f]].str_short(True)} and {t.str_short(True)}",
                        "factor-conflict", help="a `reshard` equation brings them together")
    sums: list[Any] = []
    for f in axes_of:
        axes, factor = axes_of[f], factors[f]
        if not axes:
            continue
        if not factor.splittable_over(math.prod([size for _, _, size in axes])):
            raise Violation(f"`{op.name}` cannot run with factor {factor.name} ({factor.kind}) of "
                            f"`{rule}` split", "factor-kind")
        if factor.leaves_sum:
            sums.extend(axes)
    if sums or any([t.sharding.spec.unreduced for t in tensors]):
        check_unreduced(op, types, declared, params, mesh, sums)


def _which(i: int, types: Sequence[ArrayType]) -> str:
    return f"operand {i}" if i < len(types) else f"result {i - len(types)}"


def check_unreduced(op: Op, types: Types, declared: Types, params: dict[str, Any],
                    mesh: AbstractMesh, sums: list[Any]) -> None:
    """Results are unreduced over the axes of split sums, and over those passed on linearly."""
    try:
        pending = passed_on(op, types, params)
    except Exception as problem:           # whatever a rule raises on operands it was not made for
        raise _refusal(op, types, mesh, problem) from problem
    expected = canonical_axes(pending, mesh, sums)
    for t in declared:
        if canonical_axes(t.sharding.spec.unreduced, mesh) != expected:
            names = sorted(str(a) for a in pending) + [str(a[0]) for a in sums]
            raise Violation(
                f"the result of `{op.name}` is a pending sum over {names or 'no axes'}, but the "
                f"equation declares {type_texts(declared, mesh)}", "unreduced-result")


def passed_on(op: Op, types: Types, params: dict[str, Any]) -> frozenset:
    """Axes over which the results are pending sums because operands are.

    A pending sum may pass an op that is linear in just the operands that are pending (x + y in
    both, x * y in one), or that Explicit typing lets it pass.
    """
    unreduced = [t.sharding.spec.unreduced for t in types]
    pending: frozenset = frozenset().union(*unreduced)
    for axis in pending:
        operands = tuple(i for i, axes in enumerate(unreduced) if axis in axes)
        if operands not in op.linear_sets(len(types), types, params):
            reduced = [t.sharding.spec.reduced for t in types]
            return pending_axes(op, types, params, unreduced, reduced)[0]
    return pending


def check_local(use: Use, types: Types, declared: Types, mesh: AbstractMesh) -> None:
    """Declared types are those that the op gives on blocks.

    Operands that vary over different axes need no cast here: the result varies over all of them.
    Operands of ops that hold programs are exactly what the programs take.
    """
    op, params = use.op, use.params
    if op.manual is None and not op.subprograms:
        types = together(types)
    try:
        inferred = infer(op, types, params, mesh)
    except Exception as problem:           # whatever a rule raises on operands it was not made for
        raise _refusal(op, types, mesh, problem) from problem
    if inferred != declared:
        raise _difference(op, inferred, declared, mesh)


def together(types: Types) -> Types:
    """The operand types, each varying over all axes that one of them varies over."""
    for t in types:
        if t.manual is not types[0].manual:
            break
    else:
        return types
    states = {t.manual for t in types}
    varying: frozenset = frozenset().union(*[s.varying for s in states])
    return tuple([t if t.manual.varying == varying else t.update(manual=ManualState(
        varying - t.manual.unreduced - t.manual.reduced, t.manual.unreduced, t.manual.reduced))
        for t in types])


LEVEL_RULES = {
    Level.TRACED: check_traced, Level.RESOLVED: check_shapes, Level.RESHARDED: check_factors,
    Level.LOCAL: check_local,
}
