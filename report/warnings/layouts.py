"""Warnings about arguments, dimensions and mesh axes: replication, padding, idle axes."""
from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Any

from ...ir.meshes.mesh_axes import group_size
from ...ir.program import Program, Var
from ...ir.shardings.sharding import NamedSharding
from ...ir.source.location import UNKNOWN, Location
from ...ir.spec import UNCONSTRAINED, spec_from_entries
from ...ir.types import ArrayType, Entries
from ...partitioner.pipeline import Partitioned
from ...partitioner.reasons import paddings
from ..advice.changes import Argument
from ..advice.suggestion import Suggestion
from ..analysis import Analysis
from ..propagation.freedom import FreedomMap
from ..words import quantity
from .waste import LEAST, Waste, base_axis, equations, values

_TRIALS = 4           # layouts tried for one warning
_TRIED = 12           # and for all warnings of a kind
_PADDED = 0.01        # share of a dimension below which padding is not worth a warning


def silent_replication(e: Analysis) -> Iterator[Waste]:
    """Arguments without a given sharding that propagation left whole."""
    p = e.partitioned
    mesh = p.mesh
    trials = itertools.count()
    axes = [a for a, n in zip(mesh.axis_names, mesh.axis_sizes, strict=True) if n > 1]
    for i, (var, spec) in enumerate(zip(p.traced.invars, p.in_specs, strict=False)):
        if not axes or not _unplaced(e, i) or any(spec.padded(var.aval.ndim).entries):
            continue
        size = p.local.invars[i].aval.local_nbytes
        ways = list(_splits(var.aval, spec.padded(var.aval.ndim).entries, axes, mesh))
        if not ways or size < LEAST * e.peak_bytes:
            continue
        lost = size - size // mesh.axis_size(ways[0][1])
        name = _argument_name(e, i)
        fix = "split it over an axis of the mesh"
        for entries, _ in ways[:_TRIALS if next(trials) < _TRIED else 0]:
            change = Argument(i, name, spec_from_entries(entries))
            if (changed := _changed(e, change)) is not None and (
                    changed.local.invars[i].aval.local_nbytes < size):
                fix = change.text
                break
        yield Waste("silent-replication", f"argument `{name}` has no sharding and is held whole on "
                    f"each device: {quantity(lost, 'B')} of {quantity(size, 'B')} are copies",
                    _first_use(p.traced, var), lost,
                    fix=fix)


def dropped_constraints(e: Analysis) -> Iterator[Waste]:
    """Constraints that do not divide, and therefore replicate."""
    stages = e.partitioned.stages
    mesh = e.partitioned.mesh
    for eqn, _ in equations(stages.get("inlined", e.partitioned.traced)):
        sharding = eqn.params.get("sharding")
        if eqn.op.name != "sharding_constraint" or not isinstance(sharding, NamedSharding):
            continue
        t = eqn.outvars[0].aval
        for d, axes in enumerate(sharding.spec.padded(t.ndim).entries):
            if axes is UNCONSTRAINED or not all(a in mesh.shape for a in axes):
                continue
            parts = group_size(mesh, axes)
            n = t.shape[d]
            if parts > 1 and n % parts:
                size = math.prod(t.shape) * t.dtype.itemsize
                lost = size - size // parts
                over = ", ".join(map(str, axes))
                yield Waste("silent-replication", f"the constraint cannot split dimension {d}, "
                            f"{n}, {parts} ways over {over}, and leaves it whole: "
                            f"{quantity(lost, 'B')} of {quantity(size, 'B')} are copies",
                            eqn.location, lost,
                            fix=f"pad the dimension to {-(-n // parts) * parts}, or leave {over} "
                                "out of the spec")


def _unplaced(e: Analysis, i: int) -> bool:
    given = getattr(getattr(e.subject, "executable", None), "given", None)
    if given is not None:
        return not isinstance(given[i], NamedSharding)
    specs = getattr(e.subject, "specs", None)
    return specs is not None and i < len(specs) and specs[i] is None


def padding(e: Analysis) -> Iterator[Waste]:
    """Dimensions that the user or the planner padded to a multiple of the devices: parts that are
    padded to be joined are one.
    """
    told: set[tuple] = set()
    for eqn, _ in equations(e.partitioned.resolved):
        if eqn.op.name != "pad":
            continue
        t = eqn.outvars[0].aval
        before = list(eqn.invars[0].aval.shape)
        for d, n, _ in paddings(eqn.reason):
            before[d] = n
        for d, (n, padded, axes) in enumerate(zip(before, t.shape, t.entries, strict=True)):
            parts = group_size(t.mesh, axes) if axes else 1
            if parts == 1 or padded <= n or not n % parts:
                continue
            size = t.local_nbytes
            part = 1 - n / padded
            name = e.reasons.name(eqn.outvars[0]).strip("`")
            what = name, eqn.location.place, d, n, padded
            if part < _PADDED or what in told:
                continue
            told.add(what)
            yield Waste("padding", f"dimension {d} of `{name}`"
                        f", {n}, is padded to {padded} to be split {parts} ways over "
                        f"{', '.join(map(str, axes))}: {part:.0%} of its {quantity(size, 'B')}, "
                        "and of what is computed from it, is padding",
                        eqn.location, int(size * part),
                        fix=f"make the size a multiple of {parts} ({n - n % parts or parts} or "
                            f"{n + parts - n % parts}), or split it over fewer devices")


def idle_axes(e: Analysis) -> Iterator[Waste]:
    """Mesh axes over which nothing is split and nothing varies."""
    p = e.partitioned
    mesh = p.mesh
    used = _used_axes(p)
    for axis, n in zip(mesh.axis_names, mesh.axis_sizes, strict=True):
        if n == 1 or str(axis) in used:
            continue
        flops = e.flops * (1 - 1 / n)
        lost = e.peak_bytes - e.peak_bytes // n
        fix = f"leave `{axis}` out of the mesh, or split something over it"
        trials = e.search.whole.apart()
        best = FreedomMap(e.reasons, trials).best_over(axis, _TRIALS)
        suggestion = None
        if best is not None:
            fix += f": {best.text}"
        if best is not None and best.time < e.time:
            suggestion = Suggestion(best.text, best.received_bytes, best.time, best.peak_bytes,
                                    best.flops, False, best.changes, trials.subject)
        yield Waste("idle-axis", f"mesh axis `{axis}` of {n} devices splits nothing: they do the "
                    f"same {quantity(flops, 'FLOP')} and hold the same {quantity(lost, 'B')}",
                    UNKNOWN, lost, flops, fix=fix, suggestion=suggestion)


def _splits(t: ArrayType, entries: Entries, axes: Iterable[str], mesh: Any
            ) -> Iterator[tuple[Entries, str]]:
    """(layout, axis) for each way to split a whole dimension over one of these axes that is unused
    and divides it, large dimensions first.
    """
    used = {a for e in entries for a in e}
    for axis in axes:
        n = mesh.axis_size(axis)
        free = [d for d, size in enumerate(t.shape)
                if axis not in used and not entries[d] and size % n == 0 and size >= n]
        for d in sorted(free, key=lambda k: -t.shape[k]):
            yield (*entries[:d], (axis,), *entries[d + 1:]), axis


def _changed(e: Analysis, change: Argument) -> Partitioned | None:
    """The program partitioned with a change; None if that fails, or there is no time left."""
    trials = e.search.whole
    if trials.work > trials.budget.left:
        return None
    tried = trials.attempt((change,))
    return None if tried is None else tried.partitioned


def _used_axes(p: Partitioned) -> set[str]:
    """The mesh axes over which something is split or varies."""
    used: set[str] = set()
    for var, _, _ in values(p.resolved):
        used |= {base_axis(a) for entry in var.aval.entries for a in entry}
        used |= {base_axis(a) for a in var.aval.spec.unreduced}
    for var, _, _ in values(p.local):
        used |= {base_axis(a) for a in var.aval.varying}
    return used


def _first_use(program: Program, var: Var) -> Location:
    for eqn in program.eqns:
        if var in eqn.invars:
            return eqn.location
    return UNKNOWN


def _argument_name(e: Analysis, i: int) -> str:
    traced = e.partitioned.traced
    names = traced.arg_names
    offset = len(traced.invars) - len(names)
    return names[i - offset] if i >= offset and names else (traced.invars[i].name or f"arg{i}")
