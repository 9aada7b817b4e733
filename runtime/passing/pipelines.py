"""Loops of stages (passing/stages.py), executed stage by stage, all iterations of each at once.

A stage is planned as devices are: iterations take the place of the axis along which the loop passes
things on. So the body's plan runs once a device, on arrays of all iterations that are of use there.
"""
from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ir.keys import storage_dtype
from ...ir.mesh import AbstractMesh
from ...ir.ops.collective import ppermute_p
from ...ir.ops.emitting import literal
from ...ir.program import Atom, Equation, Var
from ..axes import MeshAtoms, axis_names, mesh_atoms
from ..layout import Layout, array_shape
from ..rewrites.equations import repeating
from ..rewrites.flatten import needed
from ..simulation.folding import combined
from ..simulation.workspace import Value
from .lifted import Lifted
from .stage_runs import (
    Body,
    Given,
    Kept,
    later,
    put_all,
    put_parts,
    put_rows,
    stage_runner,
    ticks_of,
)
from .stages import Stages, Written, find_stages

if TYPE_CHECKING:
    from ..simulation.executor import Planner

Arrays = list[Any]


def plan_stages(p: Planner, eqn: Equation) -> bool:
    """Append a loop of stages; False if the loop is no such."""
    s = find_stages(p, eqn)
    if s is None or not _Pipeline(p, eqn, s).plan():
        return False
    for v in eqn.outvars:
        if v not in p.at and p.users_of(v):         # of use nowhere, and yet read: any numbers do
            p.equation(repeating(literal(0, v.aval.dtype), v))
    return True


def _plus_zero(array: Any) -> Any:
    """The sum with zeros, which has no zero with a sign."""
    return array + array.dtype.type(0) if array.dtype.kind in "fc" else array


class _Pipeline:
    """The planning of one loop of stages."""

    def __init__(self, p: Planner, eqn: Equation, s: Stages) -> None:
        self.p, self.eqn, self.s = p, eqn, s
        mesh = p.atoms.mesh
        sizes = tuple([s.many if a == s.axis else n for a, n in mesh.shape.items()])
        used = [a for a in p.atoms.order if a not in mesh.shape]
        self.atoms: MeshAtoms = mesh_atoms(AbstractMesh(sizes, tuple(mesh.shape)), used)
        self.given: list[tuple[Var, Given]] = []
        self.received = [x.received for x in s.passed]
        self.forms: list[Layout] = []           # of what is passed on
        self.settled: tuple[tuple, tuple[Planner, list[Value]]]     # a body, by its key
        # what iterations give, beside what they pass on
        nk = eqn.params["num_carry"]
        stacks = [i for i in range(nk, len(eqn.outvars)) if s.results[i].any()]
        self.numbers = [*[w.carry for w in s.written], *[a.carry for a in s.added], *stacks]
        self.outs: list[Atom] = [*[w.part for w in s.written], *[a.term for a in s.added],
                                 *[s.flat.outvars[i] for i in stacks]]

    def plan(self) -> bool:
        s = self.s
        if not all([isinstance(a, Var) for a in (*self.outs, *[x.sent for x in s.passed])]) or (
                not all([s.results[i].any() for i in self.numbers])):
            return False
        self._take()
        keys = {d: self._key(d) for d in s.order}
        self.forms = [Layout((), ((s.axis,), *[()] * (v.aval.ndim - 1))) if v.aval.ndim else
                      Layout((s.axis,), ()) for v in self.received]
        for _ in range(3):
            if not self._settle(keys[s.order[len(s.order) // 2]]):
                return False
            bodies: dict[tuple, Body] = {}
            before = self.forms
            for key in keys.values():
                if key not in bodies and self.forms == before:
                    bodies[key] = self._body(key)
            if self.forms == before:        # else some send what differs over more axes
                layouts = self._common(list(bodies.values()))
                return layouts is not None and self._bind(
                    {d: bodies[keys[d]] for d in s.order}, layouts)
        return False

    # -- what stages take --------------------------------------------------------------------------
    def _take(self) -> None:
        """Enter what the body's parameters are, but those that it receives."""
        p, s, eqn, atoms = self.p, self.s, self.eqn, self.p.atoms
        nc, nk = eqn.params["num_consts"], eqn.params["num_carry"]
        fixed = [*range(nc), *[nc + i for i in s.fixed]]
        params = s.flat.invars
        for i in fixed:
            x = p.value_of(s.invars[i])
            if s.axis in x.layout.atoms:
                rest = x.layout.without({s.axis})
                stack = atoms.sort({*rest.stack, s.axis})
                self.given.append((params[i], Given(
                    p.view(x, stack, rest.split), rest, stack.index(s.axis))))
            else:
                self.given.append((params[i], Given(x.slot, x.layout)))
        for var, atom in zip(params[nc + nk:], s.invars[nc + nk:], strict=True):
            x = p.value_of(atom)
            stack = atoms.sort({*x.layout.stack, *x.layout.split[0]})
            slot = p.view(x, stack, ((), *x.layout.split[1:]))
            form = Layout(stack, x.layout.split[1:])
            stage = None
            if s.axis in form.atoms:
                rest = form.without({s.axis})
                stack = atoms.sort({*rest.stack, s.axis})
                slot, stage = p.view(x, stack, ((), *rest.split)), stack.index(s.axis)
                form = rest
            target = atoms.sort({*form.stack, s.axis})
            self.given.append((var, Given(slot, Layout(target, form.split), stage,
                                           len(form.stack), target.index(s.axis))))
        for var in s.counters:
            known = s.known(var)
            assert known is not None
            self.given.append((var, Given(p.plan.constant(np.ascontiguousarray(known)),
                                           Layout((s.axis,), ()), 0, 0, 0, True)))
        for e in s.flat.eqns:
            if e.op.name == "axis_index" and axis_names(e.params["axis_name"]) == (s.axis,):
                (out,) = e.outvars
                places = np.arange(s.devices).astype(storage_dtype(out.aval.dtype))
                self.given.append((out, Given(p.plan.constant(places), Layout((), ()), 0)))

    def _key(self, d: int) -> tuple:
        """What distinguishes the bodies of devices: the cases that they take, and what of their
        results is of use."""
        s = self.s
        ticks = slice(s.low[d], s.low[d] + s.many)
        cases: list[int | None] = []
        for e in s.flat.eqns:
            if e.op.name == "select_n" and not e.invars[0].aval.shape:
                known = s.known(e.invars[0])
                mine = None if known is None else known[d, ticks].astype(int)
                cases.append(None if mine is None or (mine != mine[0]).any() else int(mine[0]))
        gives = [v in s.sent and s.sent[v][d].any() for v in [x.sent for x in s.passed]]
        gives += [bool(s.results[i][d]) and v in s.needs and s.needs[v][d, ticks].any()
                  for i, v in zip(self.numbers, self.outs, strict=True)]
        return tuple(cases), tuple(map(bool, gives))

    # -- bodies ------------------------------------------------------------------------------------
    def _inside(self, key: tuple) -> tuple[Planner, list[Value]]:
        """The body, planned for devices that take these cases; and the values that it gives."""
        s, (cases, gives) = self.s, key
        instead: dict[Atom, Atom] = {}
        eqns: list[Equation] = []
        case = iter(cases)
        known = {v for v, _ in self.given}
        for e in s.flat.eqns:
            if e.op is ppermute_p or not known.isdisjoint(e.outvars):
                continue
            taken = next(case) if e.op.name == "select_n" and not e.invars[0].aval.shape else None
            if taken is not None:
                chosen = e.invars[1 + taken]
                instead[e.outvars[0]] = instead.get(chosen, chosen)     # type: ignore[arg-type]
            elif instead and not instead.keys().isdisjoint(e.invars):
                eqns.append(e.on([instead.get(a, a) for a in e.invars], e.outvars))
            else:
                eqns.append(e)
        outs = [instead.get(v, v) for v, give in zip(
            [*[x.sent for x in s.passed], *self.outs], gives, strict=True) if give]
        flat = copy.copy(s.flat)
        flat.outvars = outs
        flat.rewrite(needed(eqns, outs))
        q = type(self.p)(flat, self.atoms)
        for var, x in self.given:
            q.at[var] = Value(var.aval, x.layout, q.plan.input())
        for var, layout in zip(self.received, self.forms, strict=True):
            q.at[var] = Value(var.aval, layout, q.plan.input())
        first = len(s.passed) + len(s.written)
        sums = [frozenset((s.axis,)) if first <= i < first + len(s.added) else frozenset()
                for i, give in enumerate(gives) if give]
        q.follow(sums)
        return q, [q.folded(q.value_of(a), axes) if axes else q.value_of(a)
                   for a, axes in zip(outs, sums, strict=True)]

    def _settle(self, key: tuple) -> bool:
        """Find the layouts of what is passed on, as these devices send it."""
        s, count = self.s, len(self.s.passed)
        if not all(key[1][:count]):
            key = key[0], (*[True] * count, *key[1][count:])
        for _ in range(4):
            self.settled = key, self._inside(key)
            found = [x.layout for x in self.settled[1][1][:count]]
            if any([x.folded for x in found]):
                return False
            new = [a if b.atoms <= a.atoms and s.axis not in b.atoms else self._both(a, b)
                   for a, b in zip(self.forms, found, strict=True)]
            if new == self.forms:
                return True
            self.forms = new
        return False

    def _both(self, a: Layout, b: Layout) -> Layout:
        """A layout for what comes in both; as the second one, as far as that goes."""
        return Layout(self.atoms.sort({*b.stack, *(a.atoms - b.atoms)}), b.split)

    def _body(self, key: tuple) -> Body:
        """The body of devices with this key. What it sends may call for other forms."""
        s, (_, gives) = self.s, key
        q, values = self.settled[1] if self.settled[0] == key else self._inside(key)
        slots: list[int] = []
        layouts: list[Layout] = []
        first = len(s.passed)
        sums = range(first + len(s.written), first + len(s.written) + len(s.added))
        numbers = [i for i, give in enumerate(gives) if give]
        for i, x in zip(numbers, values, strict=True):
            if i < first:
                layout = self.forms[i]
                if not x.layout.atoms <= layout.atoms:
                    self.forms = [*self.forms]
                    self.forms[i] = layout = self._both(layout, x.layout)
            elif i in sums:
                layout = x.layout
            else:
                rest = x.layout.without({s.axis})
                layout = Layout(self.atoms.sort({*rest.stack, s.axis}), rest.split)
            slots.append(q.view(x, layout.stack, layout.split))
            layouts.append(layout)
        return Body(q.plan.finish(slots), layouts, gives)

    def _common(self, bodies: Sequence[Body]) -> list[Layout | None] | None:
        """The layout of each result in a stage; None for those that none gives."""
        found: list[Layout | None] = [None] * (len(self.s.passed) + len(self.outs))
        for body in bodies:
            for i, layout in zip([i for i, give in enumerate(body.gives) if give], body.layouts,
                                 strict=True):
                if found[i] is not None and found[i] != layout:
                    return None
                if layout.folded - {self.s.axis}:
                    return None
                found[i] = layout
        return found[len(self.s.passed):]

    # -- results -----------------------------------------------------------------------------------
    def _bind(self, bodies: Mapping[int, Body], layouts: Sequence[Layout | None]) -> bool:
        """Append the call that runs the stages, and bind the loop's results."""
        p, s, eqn, atoms = self.p, self.s, self.eqn, self.p.atoms
        first = eqn.params["num_consts"]
        slots = [x.slot for _, x in self.given]
        forms: list[tuple[int, Layout]] = []
        kept: list[Kept] = []
        alone: dict[int, int] = {}      # sums of what one device has, and zeros of others
        for i, (number, layout) in enumerate(zip(self.numbers, layouts, strict=True)):
            if layout is None:
                return False            # of use, and zeros everywhere
            written = s.written[i] if i < len(s.written) else None
            rows = i >= len(s.written) + len(s.added)
            rest = layout.without({s.axis})
            if written is not None:
                split = [*rest.split]
                for d in written.added:
                    split.insert(d, ())
                rest = rest._replace(split=tuple(split))
            form = Layout(atoms.sort({*rest.stack, s.axis}), ((), *rest.split) if rows else
                          rest.split)
            aval = s.flat.outvars[number].aval
            whole = (s.length, *aval.shape) if rows else aval.shape
            shape = array_shape(form, whole, atoms.size)
            stage, start = form.stack.index(s.axis), -1
            ticks = layout.stack.index(s.axis) if s.axis in layout.stack else 0
            put: Callable[..., None] = put_all
            if written is not None:
                x = p.value_of(s.invars[first + written.carry])
                begun = x.layout.without({s.axis})
                places = self._places(written, rest)
                if x.layout.folded or places is None or not begun.atoms <= rest.atoms:
                    return False
                start = len(slots)
                slots.append(p.view(x, tuple([a for a in form.stack if a in rest.stack
                                              or a in x.layout.atoms]), rest.split, form.stack))
                put = functools.partial(put_parts, ticks, len(rest.stack), written.added, places)
            elif rows:
                put = functools.partial(put_rows, ticks, len(rest.stack), [
                    ticks_of(s, d, eqn.params["reverse"]) for d in range(s.devices)])
            used = np.flatnonzero(s.results[number]).tolist()
            if written is not None and len(used) == 1 and number in s.blank and (
                    self._only_summed(eqn.outvars[number])):
                alone[number] = used[0]
            kept.append(Kept(shape, storage_dtype(aval.dtype), stage, start, used,
                             number in s.blank and number not in alone, put))
            forms.append((number, form))
        moves = [later(self.atoms, layout, v, bool(s.low.any()), s.axis)
                 for layout, v in zip(self.forms, self.received, strict=True)]
        run = stage_runner(s, [x for _, x in self.given], bodies, moves, kept,
                           eqn.params["reverse"])
        made = p.plan.call_several(run, slots, len(forms), eqn)
        for (number, form), slot in zip(forms, made, strict=True):
            if number in alone:
                form, slot = self._of_device(alone[number], form, slot)
                slot = p.call(_plus_zero, slot)
                form = form._replace(folded=frozenset((s.axis,)))
            elif number in s.lifted:
                form, slot = self._own_parts(s.lifted[number], form, slot,
                                             number >= eqn.params["num_carry"])
            p.bind(eqn.outvars[number], form, slot)
        for i in s.fixed:
            (var, x) = eqn.outvars[i], p.value_of(s.invars[first + i])
            p.at[var] = x.again(var.aval)
        return True

    def _only_summed(self, v: Var) -> bool:
        """Is of the value nothing asked but its sum over the devices?"""
        p = self.p
        found = [combined(e, p.atoms) if e.op.collective is not None else None
                 for e in p.flat.eqns if v in e.invars]
        return v not in p.flat.outvars and all([
            x is not None and x[0] == "sum" and self.s.axis in x[1] for x in found])

    def _own_parts(self, x: Lifted, form: Layout, slot: int, rows: bool) -> tuple[Layout, int]:
        """What one device has, as parts of which each device has one."""
        rest, slot = self._of_device(x.device, form, slot)
        split = [*rest.split]
        split[x.part + rows] += (self.s.axis,)
        return rest._replace(split=tuple(split)), slot

    def _of_device(self, d: int, form: Layout, slot: int) -> tuple[Layout, int]:
        """What one device has."""
        stage = form.stack.index(self.s.axis)
        return form.without({self.s.axis}), self.p.call(
            itemgetter((*[slice(None)] * stage, d, ...)), slot)

    def _places(self, w: Written, rest: Layout) -> list[list[tuple[int, tuple]]] | None:
        """By device: the numbers of the iterations that write, and where they do."""
        s, whole = self.s, self.s.flat.invars[self.eqn.params["num_consts"] + w.carry].aval.shape
        which = None if w.which is None else s.known(w.which)
        known = [0 if a is None else s.known(a) for a in w.starts]
        if w.which is not None and which is None or any([k is None for k in known]) or any(
                [axes and m != n for axes, m, n in zip(rest.split, w.sizes, whole, strict=True)]):
            return None
        found = []
        for d in range(s.devices):
            mine = []
            for k in range(s.many):
                t = s.low[d] + k
                if which is not None and int(which[d, t]) != w.case:
                    continue
                at = [x if type(x) is int else int(x[d, t]) for x in known]  # type: ignore[index]
                last = [n - m for m, n in zip(w.sizes, whole, strict=True)]
                if w.drops and not all([0 <= i <= j for i, j in zip(at, last, strict=True)]):
                    continue
                at = [min(max(i, 0), j) for i, j in zip(at, last, strict=True)]
                mine.append((k, tuple([slice(None) if m == n else slice(i, i + m)
                                       for i, m, n in zip(at, w.sizes, whole, strict=True)])))
            found.append(mine)
        return found
