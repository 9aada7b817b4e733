"""Waste in a partitioned program, each kind with its number, its line and what to do.

    silent-replication   an array that nobody placed is held whole on every device
    padding              a dimension that was padded so that its axes divide it
    redundant-compute    an equation that devices compute alike
    idle-axis            a mesh axis that splits nothing at all
    gather-then-slice    what is gathered is cut down again by all that read it
    repeated-gather      the same value is gathered several times
    loop-invariant       a collective in a loop whose operand is the same in every step

A warning is given from a hundredth of the program's bytes or operations upwards (`LEAST`), and for
what is waste in itself whatever its size.
"""
from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...ir.diagnostics.location import UNKNOWN, Location
from ...ir.ops.communication.collective_kinds import each_collective, received_bytes
from ...ir.program import Atom, Equation, Literal, Program, Var
from ...ir.shardings.sharding import NamedSharding
from ...ir.spec import UNCONSTRAINED, spec_from_entries
from ...ir.types import ArrayType, Entries
from ...partitioner.cost.buffers import nbytes
from ...partitioner.cost.work import bodies, equation_flops, trips
from ...partitioner.padding_notes import paddings
from ...partitioner.pipeline import Partitioned
from ..words import quantity
from .changes import Argument
from .suggestions import REFUSED

if TYPE_CHECKING:
    from ..explanation import ExplainedCollective, Explanation

LEAST = 0.01
_TRIALS = 4           # layouts of arguments that are partitioned for one warning
_TRIED = 12           # and for all of one kind
_NEARBY = 256         # equations among which a gather is sought
_SLICES = frozenset(("all_slice", "slice", "dynamic_slice", "gather"))
_SAME = frozenset(("reshape", "squeeze", "pvary", "preduced", "convert_element_type", "copy",
                   "stop_gradient", "optimization_barrier", "reduced_vary_cast_p",
                   "vary_unreduced_cast_p"))


KINDS = ("idle-axis", "silent-replication", "padding", "redundant-compute", "gather-then-slice",
         "repeated-gather", "loop-invariant")


@dataclass(frozen=True)
class Waste:
    """One warning. wasted_bytes, wasted_flops: of one device in one run; `what` says of what the
    bytes are ("held", "received"). fix: what to do.
    """
    kind: str
    text: str
    source: Location
    wasted_bytes: int = 0
    wasted_flops: float = 0.0
    what: str = "held"
    fix: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "text": self.text, "wasted_bytes": self.wasted_bytes,
                "wasted_flops": self.wasted_flops, "what": self.what, "fix": self.fix,
                "source": {"file": self.source.file, "line": self.source.line,
                           "column": self.source.column + 1,
                           "text": self.source.source_line().strip()}}

    def __str__(self) -> str:
        where = f" ({self.source})" if self.source.line else ""
        return f"{self.kind}: {self.text}{where}" + (f"\n   fix: {self.fix}" if self.fix else "")


def warnings_of(e: Explanation) -> tuple[Waste, ...]:
    """The warnings of an explained program, the largest of each kind first."""
    found = [*_silent_replication(e), *_dropped_constraints(e), *_padding(e),
             *_idle_axes(e), *_redundant(e), *_gathers(e), *_invariant(e)]
    return tuple(sorted(found, key=lambda w: (KINDS.index(w.kind), -w.wasted_bytes,
                                              -w.wasted_flops)))


# -- arguments and dimensions ----------------------------------------------------------------------

def _silent_replication(e: Explanation) -> Iterator[Waste]:
    """Arguments that nobody placed and that propagation left whole."""
    p = e.partitioned
    mesh = p.mesh
    trials = itertools.count()
    axes = [a for a, n in zip(mesh.axis_names, mesh.axis_sizes, strict=True) if n > 1]
    for i, (var, spec) in enumerate(zip(p.traced.invars, p.in_specs, strict=False)):
        if not axes or not _unplaced(e, i) or any(spec.padded(var.aval.ndim).entries):
            continue
        size = nbytes(p.local.invars[i].aval)
        ways = list(_splits(var.aval, spec.padded(var.aval.ndim).entries, axes, mesh))
        if not ways or size < LEAST * e.peak_bytes:
            continue
        lost = size - size // mesh.axis_size(ways[0][1])
        name = _argument_name(e, i)
        fix = "split it over an axis of the mesh"
        for entries, _ in ways[:_TRIALS if next(trials) < _TRIED else 0]:
            change = Argument(i, name, spec_from_entries(entries))
            if (changed := _changed(e, change)) is not None and (
                    nbytes(changed.local.invars[i].aval) < size):
                fix = change.text
                break
        yield Waste("silent-replication", f"argument `{name}` has no sharding and is held whole on "
                    f"each device: {quantity(lost, 'B')} of {quantity(size, 'B')} are copies",
                    _first_use(p.traced, var), lost,
                    fix=fix)


def _dropped_constraints(e: Explanation) -> Iterator[Waste]:
    """Constraints that do not divide, and so replicate what they were to split."""
    stages = e.partitioned.stages
    mesh = e.partitioned.mesh
    for eqn, _ in _equations(stages.get("inlined", e.partitioned.traced)):
        sharding = eqn.params.get("sharding")
        if eqn.op.name != "sharding_constraint" or not isinstance(sharding, NamedSharding):
            continue
        t = eqn.outvars[0].aval
        for d, axes in enumerate(sharding.spec.padded(t.ndim).entries):
            if axes is UNCONSTRAINED or not all(a in mesh.shape for a in axes):
                continue
            parts = math.prod(map(mesh.axis_size, axes))
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


def _unplaced(e: Explanation, i: int) -> bool:
    given = getattr(getattr(e.subject, "executable", None), "given", None)
    if given is not None:
        return not isinstance(given[i], NamedSharding)
    specs = getattr(e.subject, "specs", None)
    return specs is not None and i < len(specs) and specs[i] is None


def _padding(e: Explanation) -> Iterator[Waste]:
    """Dimensions that were padded so that the devices divide them, by the user or by the planner.
    """
    for eqn, _ in _equations(e.partitioned.resolved):
        if eqn.op.name != "pad":
            continue
        t = eqn.outvars[0].aval
        before = list(eqn.invars[0].aval.shape)
        for d, n, _ in paddings(eqn.reason):
            before[d] = n
        for d, (n, padded, axes) in enumerate(zip(before, t.shape, t.entries, strict=True)):
            parts = math.prod(map(t.mesh.axis_size, axes)) if axes else 1
            if parts == 1 or padded <= n or not n % parts:
                continue
            size = nbytes(t)
            part = 1 - n / padded
            yield Waste("padding", f"dimension {d} of `{e.reasons.name(eqn.outvars[0]).strip('`')}`"
                        f", {n}, is padded to {padded} to be split {parts} ways over "
                        f"{', '.join(map(str, axes))}: {part:.0%} of its {quantity(size, 'B')}, "
                        "and of what is computed from it, is padding",
                        eqn.location, int(size * part),
                        fix=f"make the size a multiple of {parts} ({n - n % parts or parts} or "
                            f"{n + parts - n % parts}), or split it over fewer devices")


def _idle_axes(e: Explanation) -> Iterator[Waste]:
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
        ways = [Argument(i, _argument_name(e, i), spec_from_entries(entries))
                for i, (var, spec) in enumerate(zip(p.traced.invars, p.in_specs, strict=False))
                for entries, _ in _splits(var.aval, spec.padded(var.aval.ndim).entries, [axis],
                                          mesh)]
        for change in ways[:_TRIALS]:
            changed = _changed(e, change)
            if changed is not None and str(axis) in _used_axes(changed):
                fix += f": {change.text}"
                break
        yield Waste("idle-axis", f"mesh axis `{axis}` of {n} devices splits nothing: they do the "
                    f"same {quantity(flops, 'FLOP')} and hold the same {quantity(lost, 'B')}",
                    UNKNOWN, lost, flops, fix=fix)


# -- operations ------------------------------------------------------------------------------------

def _redundant(e: Explanation) -> Iterator[Waste]:
    """Equations that the devices along an axis compute alike, by line and axis."""
    p = e.partitioned
    mesh = p.mesh
    sizes = {str(axis): n for axis, n in mesh.shape.items()}
    idle = {w.text.split("`")[1] for w in _idle_axes(e)}
    flops: dict[tuple, float] = {}
    example: dict[tuple, Equation] = {}
    made: dict[Atom, Equation] = {}
    for eqn, count in _equations(p.local):
        made.update(dict.fromkeys(eqn.outvars, eqn))
        if eqn.op.subprograms or eqn.op.collective is not None or not eqn.op.arithmetic:
            continue
        own = equation_flops(eqn) * count
        if not own:
            continue
        varies = {_base(a) for v in eqn.outvars for a in (*v.aval.varying, *v.aval.unreduced)}
        for axis, n in zip(mesh.axis_names, mesh.axis_sizes, strict=True):
            if n > 1 and str(axis) not in varies and str(axis) not in idle:
                key = (eqn.location.file, eqn.location.line, str(axis))
                flops[key] = flops.get(key, 0.0) + own * (1 - 1 / n)
                if key not in example or equation_flops(example[key]) < equation_flops(eqn):
                    example[key] = eqn
    for key, lost in flops.items():
        if lost < LEAST * e.flops:
            continue
        eqn, axis = example[key], key[2]
        n = sizes[axis]
        t = eqn.outvars[0].aval
        free = [d for d, size in enumerate(t.shape) if size % n == 0 and size >= n]
        fix = f"split one of its operands over `{axis}`"
        if not free and t.ndim:
            fix += f"; no dimension of {list(t.shape)} divides by {n}: pad one to a multiple"
        elif free:
            fix += f", for example along dimension {free[0]} of the result"
        by = _gathered_by(e, eqn, axis, made)
        why = ""
        if by is not None:
            at = f" at line {by.source.line}" if by.source.line else ""
            why = f"; its operands are whole by the {by.kind}{at}, {by.verdict}"
            if by.reason_kind == "chosen":
                why = why.replace("chosen: ", "which the planner chose: ", 1)
                fix = "none is needed: the planner weighed it, and to split it saves nothing"
        yield Waste("redundant-compute", f"`{eqn.op.name}` is computed alike on all {n} devices of "
                    f"`{axis}`: {quantity(lost, 'FLOP')} a device, {lost / e.flops:.0%} of the "
                    f"program's{why}", eqn.location, 0, lost, fix=fix)


def _gathered_by(e: Explanation, eqn: Equation, axis: str, made: dict[Atom, Equation]
                 ) -> ExplainedCollective | None:
    """What makes an operand whole along an axis that was split over it: one that was chosen, if
    there is one; None where all that the equation is computed from came whole.
    """
    explained = {id(c.record.equation): c for c in e.collectives}
    found: list[ExplainedCollective] = []
    seen: set[Equation] = set()
    waiting = [made[a] for a in eqn.invars if a in made]
    while waiting and len(seen) < _NEARBY:
        at = waiting.pop()
        if at in seen:
            continue
        seen.add(at)
        c = explained.get(id(at))
        if c is None or axis not in map(_base, c.mesh_axes):
            waiting += [made[a] for a in at.invars if a in made]
        elif c.kind != "all-reduce":        # which leaves a value that nothing was split of
            found.append(c)
    return min(found, key=lambda c: c.reason_kind != "chosen", default=None)


# -- collectives -----------------------------------------------------------------------------------

def _gathers(e: Explanation) -> Iterator[Waste]:
    """Gathers whose result is cut down again, and those that are made several times."""
    for program, count in _programs(e.partitioned.local):
        readers: dict[Var, list[Equation]] = {}
        for eqn in program.eqns:
            for a in eqn.invars:
                if isinstance(a, Var):
                    readers.setdefault(a, []).append(eqn)
        results = {v for v in program.outvars if isinstance(v, Var)}
        made = {v: eqn for eqn in program.eqns for v in eqn.outvars}
        again: dict[tuple, list[Equation]] = {}
        for eqn in program.eqns:
            if not eqn.op.name.startswith("all_gather"):
                continue
            root = _root(eqn.invars[0], made)
            assert eqn.op.collective is not None
            again.setdefault((id(root), eqn.op.collective.axes(eqn.params),
                              eqn.outvars[0].aval.shape), []).append(eqn)
            yield from _sliced(eqn, readers, results, count)
        for eqns in again.values():
            if len(eqns) > 1:
                each = received_bytes(eqns[0])
                lost = each * (len(eqns) - 1) * count
                name = _called(eqns[0])
                lines = ", ".join(dict.fromkeys(f"line {x.location.line}" for x in eqns))
                yield Waste("repeated-gather", f"`{name}` is gathered {len(eqns)} times ({lines}): "
                            f"{quantity(lost, 'B')} received more than once", eqns[-1].location,
                            lost, what="received",
                            fix="gather it once before its uses; a `checkpoint` between them makes "
                                f"it anew, to save {quantity(nbytes(eqns[0].outvars[0].aval), 'B')}"
                                " of memory")


def _sliced(gather: Equation, readers: dict[Var, list[Equation]], results: set[Var], count: int
            ) -> Iterator[Waste]:
    """A gather all of whose readers take a part of what it gave."""
    out, kept = gather.outvars[0], 0
    frontier, steps = [out], 0
    while frontier and steps < 64:
        steps += 1
        v = frontier.pop()
        if v in results or not readers.get(v):
            return
        for reader in readers[v]:
            size = sum(nbytes(w.aval) for w in reader.outvars)
            if reader.op.name in _SAME:
                frontier += reader.outvars
            elif reader.op.name in _SLICES and reader.invars[0] is v and size < nbytes(out.aval):
                kept += size
            else:
                return
    whole = nbytes(out.aval)
    if kept > 0.75 * whole:
        return
    each = received_bytes(gather)
    lost = max(0, int(each * (1 - kept / whole))) * count
    where = next(r.location for v in [out] for r in readers[v])
    yield Waste("gather-then-slice", f"what is gathered, {quantity(whole, 'B')}, is cut down to "
                f"{quantity(kept, 'B')} by all that read it", where, lost, what="received",
                fix="slice before the dimension is gathered, or keep the dimension that is sliced "
                    "whole and split another one")


def _invariant(e: Explanation) -> Iterator[Waste]:
    """Collectives in the body of a loop that depend on nothing that changes."""
    for eqn, count in _equations(e.partitioned.local):
        if eqn.op.name not in ("scan", "while") or trips(eqn) < 2:
            continue
        if eqn.op.name == "scan":
            body, first = eqn.params["jaxpr"], eqn.params["num_consts"]
        else:
            body, first = eqn.params["body_jaxpr"], eqn.params["body_nconsts"]
        fixed: set[Var] = {*body.invars[:first], *body.constvars}
        for inner in body.eqns:
            if inner.op.effect or not all(isinstance(a, Literal) or a in fixed
                                          for a in inner.invars):
                continue
            fixed.update(inner.outvars)
            if inner.op.collective is None or not received_bytes(inner):
                continue
            if not any(u.equation is inner for u in each_collective(body)):
                continue
            lost = received_bytes(inner) * (trips(eqn) - 1) * count
            name = _called(inner)
            yield Waste("loop-invariant", f"`{inner.op.name}` of `{name}` is the same in each of "
                        f"the loop's {trips(eqn)} steps: {quantity(lost, 'B')} received again",
                        inner.location, lost, what="received",
                        fix="do it once before the loop, and let the body use the result")


# -- walking ---------------------------------------------------------------------------------------

def _programs(program: Program, count: int = 1) -> Iterator[tuple[Program, int]]:
    """The program and those inside, each with how often it runs."""
    yield program, count
    for eqn in program.eqns:
        for inner in bodies(eqn):
            yield from _programs(inner, count * trips(eqn))


def _equations(program: Program) -> Iterator[tuple[Equation, int]]:
    for inner, count in _programs(program):
        for eqn in inner.eqns:
            yield eqn, count


def _values(program: Program) -> Iterator[tuple[Var, Equation | None, int]]:
    for inner, count in _programs(program):
        for v in inner.invars:
            yield v, None, count
        for eqn in inner.eqns:
            for v in eqn.outvars:
                yield v, eqn, count


def _root(atom: Atom, made: dict[Var, Equation]) -> Atom:
    """What a value is another form of."""
    while isinstance(atom, Var) and atom in made and made[atom].op.name in _SAME:
        atom = made[atom].invars[0]
    return atom


def _called(eqn: Equation) -> str:
    """What the user calls the operand of an equation of a per-device program, or wrote for it."""
    operand, text = eqn.invars[0], eqn.location.text()
    if isinstance(operand, Var) and operand.name:
        return operand.name
    return text if 0 < len(text) <= 60 else f"the operand of {eqn.op.name}"


def _splits(t: ArrayType, entries: Entries, axes: Iterable[str], mesh: Any
            ) -> Iterator[tuple[Entries, str]]:
    """Dimensions of a type split over axes that divide them and are not used, large ones first."""
    used = {a for e in entries for a in e}
    for axis in axes:
        n = mesh.axis_size(axis)
        free = [d for d, size in enumerate(t.shape)
                if axis not in used and not entries[d] and size % n == 0 and size >= n]
        for d in sorted(free, key=lambda k: -t.shape[k]):
            yield (*entries[:d], (axis,), *entries[d + 1:]), axis


def _changed(e: Explanation, change: Argument) -> Partitioned | None:
    """The program partitioned with a change; None where it cannot be."""
    with warnings.catch_warnings():      # what a trial warns of is not about the user's program
        warnings.simplefilter("ignore")
        try:
            return e.subject.changed((change,))
        except REFUSED:
            return None


def _used_axes(p: Partitioned) -> set[str]:
    """The mesh axes over which something is split or varies."""
    used: set[str] = set()
    for var, _, _ in _values(p.resolved):
        used |= {_base(a) for entry in var.aval.entries for a in entry}
        used |= {_base(a) for a in var.aval.spec.unreduced}
    for var, _, _ in _values(p.local):
        used |= {_base(a) for a in var.aval.varying}
    return used


def _first_use(program: Program, var: Var) -> Location:
    for eqn in program.eqns:
        if var in eqn.invars:
            return eqn.location
    return UNKNOWN


def _argument_name(e: Explanation, i: int) -> str:
    traced = e.partitioned.traced
    names = traced.arg_names
    offset = len(traced.invars) - len(names)
    return names[i - offset] if i >= offset and names else (traced.invars[i].name or f"arg{i}")


def _base(axis: Any) -> str:
    return str(axis).partition(":")[0]
