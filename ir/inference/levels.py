"""What each level requires of an equation: the types of its results, given operands and params.

TRACED compares with Explicit typing (ir/inference/infer.py), RESOLVED with shapes alone, RESHARDED
with the op's factor rule, LOCAL with typing on blocks. The walk over programs is in ir/verify.py.
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..meshes.manual_state import ManualState
from ..meshes.memory import DEVICE
from ..meshes.mesh import AbstractMesh, empty_abstract_mesh
from ..op import Op
from ..op_instance import OpInstance
from ..program import WRITERS, Level
from ..rules.factor import PASS
from ..rules.factor_axes import Fragments, canonical_axes, factor_axes
from ..rules.rule import ELEMENTWISE
from ..spec import parse_axis
from ..types import ArrayType
from .infer import infer
from .unreduced import pending_axes

RESHARD = "reshard"      # the one op whose operand and result may differ in their spec
Types = tuple[ArrayType, ...]
_EMPTY: frozenset[str] = frozenset()


class Violation(Exception):
    """A broken promise; the walk over the program adds where."""

    def __init__(self, message: str, code: str, *, label: str = "", notes: Sequence[str] = (),
                 help: str = "") -> None:
        super().__init__(message)
        self.message, self.code, self.label, self.notes, self.help = (
            message, code, label, tuple(notes), help)


def _type_texts(types: Sequence[ArrayType], mesh: AbstractMesh) -> str:
    return WRITERS["types"](types, mesh)


def check_collective(op: Op, params: dict[str, Any], mesh: AbstractMesh) -> None:
    """Collectives run where the program is written for one device: along Manual axes."""
    size = 1
    for axis in op.collective.axes(params):
        if parse_axis(axis)[0] not in mesh.manual_axes and axis not in mesh.manual_axes:
            raise Violation(f"`{op.name}` exchanges along axis {axis}, which is no Manual axis of "
                            f"the mesh {mesh}", "collective-axis",
                            help="collectives stand in the body of a shard_map over their axes")
        size *= mesh.axis_size(axis)
    stated, groups = params.get("axis_size"), params.get("axis_index_groups")
    if groups is not None:
        members = sorted(d for group in groups for d in group)
        if members != list(range(size)):
            raise Violation(f"the groups of `{op.name}` are not parts of its {size} devices: "
                            f"{groups}", "replica-groups")
        size = len(groups[0])
    if stated is not None and stated != size:
        raise Violation(f"`{op.name}` says that {stated} devices exchange, but there are {size}",
                        "axis-size")
    for pair in params.get("perm", ()):
        source, target = pair
        if not (0 <= source < size and 0 <= target < size):
            raise Violation(f"`{op.name}` sends from device {source} to device {target} of {size}",
                            "permutation")


def check_traced(instance: OpInstance, types: Types, declared: Types, mesh: AbstractMesh) -> None:
    """Declared types are those of Explicit typing.

    The mesh that was current when the equation was traced is not recorded; it is the program's, or
    that of the result (inside `use_abstract_mesh`), or there was none.
    """
    op, params = instance.op, instance.params
    failure: tuple[Any, ...] | Exception | None = None
    tried: tuple[AbstractMesh, ...] = ()
    for context in (mesh, declared[0].mesh if declared else mesh, empty_abstract_mesh):
        if context in tried:
            continue
        tried += (context,)
        try:
            inferred = infer(op, types, params, context)
        except Exception as problem:       # whatever a rule raises on operands it was not made for
            failure = failure or problem
            continue
        if inferred == declared:
            if instance.by_shape and mesh.auto_axes:     # other types will stand in their places
                _note(instance, types, declared)
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
    violation = Violation(f"`{op.name}` does not accept {_type_texts(types, mesh)}: {message}",
                          "bad-operands", label=getattr(diagnostic, "label", ""),
                          help=next(iter(getattr(diagnostic, "help", ())), ""))
    violation.__cause__ = problem
    return violation


def _difference(op: Op, inferred: Sequence[ArrayType], declared: Sequence[ArrayType],
                mesh: AbstractMesh) -> Violation:
    return Violation(f"`{op.name}` gives {_type_texts(inferred, mesh)}, but the equation declares "
                     f"{_type_texts(declared, mesh)}", "result-type",
                     label=f"gives {_type_texts(inferred, mesh)}")


def check_shapes(instance: OpInstance, types: Types, declared: Types, mesh: AbstractMesh) -> None:
    """Shapes, dtypes and weak types are those that the op gives; specs may be any."""
    given, _ = _bare_results(instance, types, mesh)
    if not _is_like(declared, given):
        shown = ", ".join(f"{'~' if w else ''}{d}{list(s)}" for s, d, w in given)
        raise Violation(f"`{instance.op.name}` gives {shown}, but the equation declares "
                        f"{_type_texts(declared, mesh)}", "result-type", label=f"gives {shown}")


Bare = tuple[tuple[Any, Any, bool], ...]


def _is_like(types: Types, given: Bare) -> bool:
    """Have they these shapes, dtypes and weakness?"""
    if len(types) != len(given):
        return False
    for t, (shape, dtype, weak) in zip(types, given, strict=True):
        if t.shape != shape or t.dtype != dtype or t.weak_type != weak:
            return False
    return True


def _note(instance: OpInstance, types: Types, declared: Types) -> None:
    """Remember what `_bare_results` would find."""
    for t in (*types, *declared):
        if t.memory_space is not DEVICE:
            return
    instance.table(_bare_results)[tuple([(t.shape, t.dtype, t.weak_type) for t in types])] = tuple(
        [(t.shape, t.dtype, t.weak_type) for t in declared]), False


def _bare_results(instance: OpInstance, types: Types, mesh: AbstractMesh) -> tuple[Bare, bool]:
    """Shape, dtype and weakness of each result, and whether the op says whole types.

    They are asked for once for all levels, where nothing else of the operands matters.
    """
    op, known = instance.op, instance.table(_bare_results)
    key: Any = types
    if instance.by_shape:
        key = tuple([(t.shape, t.dtype, t.weak_type) for t in types])
    if key in known:
        return known[key]
    try:
        raw = op.infer(*types, **instance.params)
    except Exception as problem:           # whatever a rule raises on operands it was not made for
        raise _refusal(op, types, mesh, problem) from problem
    weak = bool(types)
    for t in types:
        weak = weak and t.weak_type
    given: Bare = ()
    typed = False
    for r in raw if op.multiple_results else (raw,):
        if r.__class__ is ArrayType:
            typed = True
            given += ((r.shape, r.dtype, r.weak_type),)
        else:
            shape, dtype, *own = r
            given += ((tuple(shape), dtype, bool(own[0]) if own else weak),)
    found = given, typed
    if not typed or key is types:
        known[key] = found
    return found


def check_factors(instance: OpInstance, types: Types, declared: Types, mesh: AbstractMesh) -> None:
    """Operands and results, of right shapes, agree on every factor; the op can run with it split.
    """
    op, params = instance.op, instance.params
    if op.subprograms:
        return                             # edges, not factors: the bodies are checked instead
    if op.name == RESHARD:
        target = params["dst_sharding"]
        if declared[0].sharding is not target.update(
                mesh=target.mesh.abstract_mesh, spec=target.spec.padded(declared[0].ndim)):
            raise Violation(f"`{op.name}` to {target.spec} gives {_type_texts(declared, mesh)}",
                            "result-type")
        return
    tensors = (*types, *declared)
    sums: list[Any] = ([] if _agree_plainly(op, tensors)
                       else _split_sums(instance, types, declared, mesh))
    if not sums:
        for t in tensors:
            if t.sharding.spec.unreduced:
                break
        else:
            return
    check_unreduced(op, types, declared, params, mesh, sums)


def _agree_plainly(op: Op, tensors: Types) -> bool:
    """Do all agree without a look at the factors? No dimension is split, or an elementwise op
    has all its tensors, scalars aside, split alike."""
    entries, shape = tensors[-1].entries if tensors else (), tensors[-1].shape if tensors else ()
    if op.rule == ELEMENTWISE:
        for t in tensors:
            if t.shape and (t.shape != shape or t.entries != entries):
                return False
        return True
    for t in tensors:
        for entry in t.entries:
            if entry:
                return False
    return True


def _split_sums(instance: OpInstance, types: Types, declared: Types, mesh: AbstractMesh
                ) -> list[Any]:
    """Checks that all agree on the axes of every factor; the axes of the sums among them."""
    op, rule = instance.op, instance.rule(types, declared)
    factors, tensors = rule.factors, (*types, *declared)
    whole: dict[int, Sequence[str]] = {}     # of factors that are dimensions: as they are named
    axes_of: dict[int, Fragments] = {}       # of the others, or where names differ
    first: dict[int, int] = {}               # the tensor that says so

    def axes(f: int) -> Fragments:
        if f not in axes_of:
            (axes_of[f],) = factor_axes(tuple(whole[f]), [factors[f].size], mesh) or ((),)
        return axes_of[f]

    for i, (t, dims) in enumerate(zip(tensors, (*rule.operands, *rule.results), strict=True)):
        for d, (group, entry) in enumerate(zip(dims, t.entries, strict=True)):
            if group and not group[1:]:
                f = group[0]
                if f not in first:
                    whole[f], first[f] = entry, i
                    continue
                if f in whole and whole[f] == entry:
                    continue
            elif not entry and not group:
                continue
            parts = factor_axes(entry, [factors[f].size for f in group], mesh)
            if parts is None:
                raise Violation(f"`{op.name}`: dimension {d} of {t.str_short(True)} is split in "
                                f"the middle of a factor of `{rule}`", "factor-boundary")
            for f, found in zip(group, parts, strict=True):
                if f not in first:
                    axes_of[f], first[f] = found, i
                elif axes(f) != found:
                    raise Violation(
                        f"`{op.name}`: {_which(first[f], types)} and {_which(i, types)} do not "
                        f"agree on the axes of factor {factors[f].name} of `{rule}`: "
                        f"{tensors[first[f]].str_short(True)} and {t.str_short(True)}",
                        "factor-conflict", help="a `reshard` equation brings them together")
    sums: list[Any] = []
    for f in first:
        factor = factors[f]
        if factor.kind == PASS or not (whole[f] if f in whole else axes_of[f]) or not axes(f):
            continue
        if not factor.splittable_over(math.prod([size for _, _, size in axes(f)])):
            raise Violation(f"`{op.name}` cannot run with factor {factor.name} ({factor.kind}) of "
                            f"`{rule}` split", "factor-kind")
        if factor.leaves_sum:
            sums.extend(axes(f))
    return sums


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
                f"equation declares {_type_texts(declared, mesh)}", "unreduced-result")


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


def check_local(instance: OpInstance, types: Types, declared: Types, mesh: AbstractMesh) -> None:
    """Declared types are those that the op gives on blocks.

    Operands that vary over different axes need no cast here: the result varies over all of them.
    Operands of ops that hold programs are exactly what the programs take.
    """
    op, params = instance.op, instance.params
    if op.manual is None and not op.subprograms:
        if instance.by_shape and _is_given_on_blocks(instance, types, declared, mesh):
            return
        types = together(types)
    try:
        inferred = infer(op, types, params, mesh)
    except Exception as problem:           # whatever a rule raises on operands it was not made for
        raise _refusal(op, types, mesh, problem) from problem
    if inferred != declared:
        raise _difference(op, inferred, declared, mesh)


def _is_given_on_blocks(instance: OpInstance, types: Types, declared: Types, mesh: AbstractMesh
                        ) -> bool:
    """Are these the declared types of blocks on the mesh? False where there is more to look at.

    They have no spec, and vary over all axes that an operand varies over.
    """
    varying = _EMPTY
    for t in types:
        state, there = t.manual, t.sharding.mesh
        if (state.unreduced or state.reduced or t.memory_space is not DEVICE
                or (there is not mesh and there is not empty_abstract_mesh)):
            return False
        if state.varying is not varying:
            varying = varying | state.varying
    for t in declared:
        state, sharding = t.manual, t.sharding
        if (state.varying != varying or state.unreduced or state.reduced
                or sharding.mesh is not mesh or t.memory_space is not DEVICE
                or sharding.spec.unreduced or sharding.spec.reduced):
            return False
        for entry in t.entries:
            if entry:
                return False
    given, typed = _bare_results(instance, types, mesh)
    return not typed and _is_like(declared, given)


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


# The first need not be asked of what was right at the level before, on the same mesh.
LEVEL_RULES = {
    Level.TRACED: (check_traced,), Level.RESOLVED: (check_shapes,),
    Level.RESHARDED: (check_shapes, check_factors), Level.LOCAL: (check_local,),
}
