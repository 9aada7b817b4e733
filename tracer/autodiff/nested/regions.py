"""Derivatives of `shard_map` equations.

The body is differentiated as any program; the subtlety is the boundary. Tangents cross it as their
values do, cotangents in the other direction with unreduced and reduced swapped. A residual leaves
the region stacked along its first dimension over the axes it varies over, and returns the same way.

Where varying axes are not tracked (check_vma=False), the types do not say which sums a cotangent
needs: that of a result which is the same along an axis is divided by the axis's size, and that of
an operand which is the same along an axis is summed over it, as in JAX; `psum` then transposes to
`psum`.
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ....ir.diagnostics.diagnostic import fail
from ....ir.facts import POSITION
from ....ir.meshes.manual_state import ManualState
from ....ir.op import OPS
from ....ir.ops.control.manual import shard_map_p
from ....ir.ops.derivatives import const, div
from ....ir.program import Program
from ....ir.settings.context import STATE
from ....ir.spec import PartitionSpec, spec_from_entries
from ....ir.support.scopes import override
from ....ir.types import ArrayType
from ....ir.values.typeof import typeof
from ...staging.builder import current_builder
from ..call_rules import PartialEvaluation, register
from ..forward import jvp_program, weak_flags
from ..partial_eval import Split, split_program
from ..replay import evaluate, stage
from ..transpose import is_linear, transpose_program

Params = dict[str, Any]


def _tracking(params: Params) -> override:
    return override(STATE, check_vma=params["check_vma"])


def region_jvp(operands: Sequence[Any], tangents: Sequence[Any], params: Params
               ) -> tuple[list[Any], list[Any]]:
    """Values and tangents of a region, in one region."""
    mask = tuple(t is not None for t in tangents)
    with _tracking(params):
        body, out_mask = jvp_program(params["jaxpr"], mask, weak=weak_flags(tangents))
    in_specs, out_specs = params["in_specs"], params["out_specs"]
    results = shard_map_p.bind(
        *operands, *(t for t in tangents if t is not None),
        **{**params, "jaxpr": body,
           "in_specs": in_specs + _selected(in_specs, mask),
           "out_specs": out_specs + _selected(out_specs, out_mask)})
    rest = iter(results[len(out_specs):])
    return list(results[:len(out_specs)]), [next(rest) if m else None for m in out_mask]


def _selected(items: Sequence[Any], mask: Sequence[bool]) -> tuple[Any, ...]:
    return tuple(x for x, m in zip(items, mask, strict=True) if m)


# -- the split -------------------------------------------------------------------------------------

def region_split(evaluation: PartialEvaluation, operands: Sequence[Any], params: Params
                 ) -> list[Any]:
    """A region for what is known, and one in the linear program for the rest."""
    if not params["check_vma"]:
        _check_tracking(params, operands)       # residuals leave as their types say
    unknown = tuple(evaluation.is_unknown(x) for x in operands)
    known_mask = tuple(not u for u in unknown)
    with _tracking(params):
        split = split_program(params["jaxpr"], unknown, forward=params["check_vma"])
        first, second, specs = _with_residuals(split, params)
    in_specs, out_specs = params["in_specs"], params["out_specs"]
    known_specs = _selected(in_specs, known_mask)
    known = list(_selected(operands, known_mask))
    made = len(first.outvars) - sum(not u for u in split.out_unknown)
    left = (*_selected(out_specs, [not u for u in split.out_unknown]),
            *(s for s in specs[len(specs) - made:]))
    results: list[Any] = []
    if first.outvars:
        results = shard_map_p.bind(*known, **{**params, "jaxpr": first, "in_specs": known_specs,
                                              "out_specs": left})
    residuals, residual_specs = [], []
    for kind, i in split.residuals:
        residuals.append(known[i] if kind == "operand" else results[i])
        residual_specs.append(known_specs[i] if kind == "operand" else left[i])
    waiting: list[Any] = []
    if any(split.out_unknown):
        waiting = evaluation.linear.process(
            shard_map_p, [*residuals, *_selected(operands, unknown)],
            {**params, "jaxpr": second,
             "in_specs": (*residual_specs, *_selected(in_specs, unknown)),
             "out_specs": _selected(out_specs, split.out_unknown)})
    now, later = iter(results), iter(waiting)
    return [next(later) if u else next(now) for u in split.out_unknown]


def _with_residuals(split: Split, params: Params) -> tuple[Program, Program, list[PartitionSpec]]:
    """The two bodies, with the residuals in the form in which they cross the border.

    Also the specs of the residuals that leave the first body (not operands, nor results anyway).
    """
    plain = sum(not u for u in split.out_unknown)
    made = split.known.outvars[plain:]
    specs = [residual_spec(a.aval, params) for a in made]
    if all(a.aval.shape or not s.entries for a, s in zip(made, specs, strict=True)):
        return split.known, split.linear, specs

    def wide(i: int) -> bool:
        """Is result i of the known part a number of which each device has its own?"""
        return i >= plain and not made[i - plain].aval.shape and bool(specs[i - plain].entries)

    def run_known(*args: Any) -> list[Any]:
        outs = evaluate(split.known, args)
        return [OPS["broadcast_in_dim"].bind(x, shape=(1,), broadcast_dimensions=(), sharding=None)
                if wide(i) else x for i, x in enumerate(outs)]

    def run_linear(*args: Any) -> list[Any]:
        count = len(split.residuals)
        residuals = [OPS["squeeze"].bind(x, dimensions=(0,)) if k == "result" and wide(i) else x
                     for x, (k, i) in zip(args[:count], split.residuals, strict=True)]
        return evaluate(split.linear, [*residuals, *args[count:]])

    key = ("residuals", tuple(specs))
    found = split.known.memo.get(key)
    if found is None:
        first = stage(run_known, split.known.in_avals, split.known)
        types = [a.aval for a in first.outvars]
        entering = [types[i] if k == "result" else t for (k, i), t in
                    zip(split.residuals, split.linear.in_avals, strict=False)]
        rest = split.linear.in_avals[len(split.residuals):]
        second = stage(run_linear, [*entering, *rest], split.linear)
        found = split.known.memo[key] = first, second
    return found[0], found[1], specs


def residual_spec(t: ArrayType, params: Params) -> PartitionSpec:
    """How a value inside leaves a region so that each device gets its own back.

    Along the axes of a vmap's `spmd_axis_name` the devices hold different indices of it anyway.
    """
    mesh, axes = params["mesh"], params["manual_axes"]
    order = [a for a in mesh.axis_names if a in axes and a not in STATE.spmd_axes]
    if params["check_vma"]:
        order = [a for a in order if a in t.varying]
    entries = (tuple(order),) if order else ()
    return spec_from_entries(entries, t.manual.unreduced & axes, t.manual.reduced & axes)


# -- transposition ---------------------------------------------------------------------------------

def region_transpose(cts: Sequence[Any], operands: Sequence[Any], params: Params) -> list[Any]:
    """A region of the transposed body; specs of operands and results change places."""
    linear = tuple(map(is_linear, operands))
    given = tuple(ct is not None for ct in cts)
    _check_tracking(params, operands)
    in_specs, out_specs = params["in_specs"], params["out_specs"]
    ct_specs = tuple(s.to_ct_spec() for s in _selected(out_specs, given))
    back_specs = tuple(s.to_ct_spec() for s in _selected(in_specs, linear))
    with _tracking(params):
        body, out_mask = transpose_program(params["jaxpr"], linear, given,
                                           weak=weak_flags(cts))
        if not params["check_vma"]:
            body = _untracked(body, params, ct_specs, _selected(back_specs, out_mask))
    results: Sequence[Any] = ()
    if any(out_mask):
        values = _selected(operands, [not m for m in linear])
        results = shard_map_p.bind(
            *values, *_selected(cts, given),
            **{**params, "jaxpr": body, "out_specs": _selected(back_specs, out_mask),
               "in_specs": (*_selected(in_specs, [not m for m in linear]), *ct_specs)})
    found, has = iter(results), iter(out_mask)
    return [next(found) if m and next(has) else None for m in linear]


def _check_tracking(params: Params, operands: Sequence[Any]) -> None:
    """Refuse a region where the one around it tracks what varies over its axes, or this one, not
    both, and something varies over them: which cotangents are to be summed is unknown then."""
    around = frozenset(params["mesh"].manual_axes) - params["manual_axes"]
    inside, outside = params["check_vma"], STATE.check_vma
    if not around or inside == outside:
        return
    body: Program = params["jaxpr"]
    read = {a for e in body.eqns for a in e.invars}.union(body.outvars)
    types = (*body.in_avals, *body.out_avals) if inside else [
        x.aval if is_linear(x) else typeof(x)
        for v, x in zip(body.invars, operands, strict=True) if v in read]
    varying = next((t for t in types if around & t.varying), None)
    if varying is None and (inside or not _reads_place(body, around)):
        return
    t = body.out_avals[0] if varying is None else varying
    wanted, given = (t.update(manual=ManualState(axes)).str_short()
                     for axes in (t.varying | around, t.varying - around))
    fail(ValueError, f"Expected cotangent type {wanted} but got {given}",
         code="mixed-check-vma", label="this shard_map is differentiated",
         because=(f"it has check_vma={inside}, and the shard_map around it check_vma={outside}: "
                  f"which cotangents are to be summed over {', '.join(sorted(around))} is known to "
                  "one of them only",), help="give both the same `check_vma`")


def _reads_place(program: Program, axes: frozenset[str]) -> bool:
    """Does something in it depend on where along these axes a device is?"""
    return any(POSITION in e.op.facts and not axes.isdisjoint(e.params["axis_name"])
               for e in program.eqns) or any(
                   _reads_place(held, axes) for _, _, held in program.subprograms())


def _unmentioned(spec: PartitionSpec, params: Params) -> tuple[str, ...]:
    named = frozenset(spec.axes()) | spec.unreduced | spec.reduced
    return tuple(a for a in params["mesh"].axis_names
                 if a in params["manual_axes"] and a not in named and a not in STATE.spmd_axes)


def _untracked(body: Program, params: Params, ct_specs: Sequence[PartitionSpec],
               back_specs: Sequence[PartitionSpec]) -> Program:
    """The transposed body where types do not tell over which axes cotangents are to be summed."""
    mesh = params["mesh"]
    scales = [math.prod(mesh.axis_size(a) for a in _unmentioned(s, params)) for s in ct_specs]
    sums = [_unmentioned(s, params) for s in back_specs]
    key = ("untracked", tuple(scales), tuple(sums))
    found = body.memo.get(key)
    if found is not None:
        return found
    first, outer = len(body.invars) - len(scales), current_builder()

    def run(*args: Any) -> list[Any]:
        builder = current_builder()
        if builder is not None and outer is not None:
            builder.location = outer.location       # that of the region
        cts = [ct if n == 1 else div(ct, const(n, typeof(ct)))
               for ct, n in zip(args[first:], scales, strict=True)]
        return [x if not axes else OPS["psum"].bind(x, axes=axes, axis_index_groups=None)
                for x, axes in zip(evaluate(body, [*args[:first], *cts]), sums, strict=True)]

    found = body.memo[key] = stage(run, body.in_avals, body)
    return found


register("shard_map", jvp=region_jvp, split=region_split, transpose=region_transpose)
